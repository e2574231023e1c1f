"""`lnk sandbox proxy`: the filtering proxy by itself.  What serves it is `sandbox.cli.serving`."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from contextlib import suppress

from sandbox.cli import blank, standing
from sandbox.cli.flags import Flag, Flags, UsageError, describe, full_path, read_flags
from sandbox.cli.serving import LogRefused, WireSettings, policy_of, run_wire
from sandbox.errors import LaunchError, SandboxError, quoted
from sandbox.held_port import LOOPBACK, take_over
from sandbox.wires import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

    from sandbox.cli.front import Kept, Serve

SHELLS = ("uvloop", "trio")
PER_MINUTE_MAX = 1_000_000
FLAGS = (
    Flag("--listen", "127.0.0.1:PORT", "where it listens: loopback only; port 0 takes a free one"),
    Flag("--hosts", "HOST,…", "internet hosts: names, *.names below one, addresses", many=True),
    Flag("--any-host", "", "any host on the internet, instead of --hosts"),
    Flag("--no-internet", "", "no host on the internet, whatever else is listed"),
    Flag("--tcp", "HOST:PORT,…", "endpoints on the internet, each at its port", many=True),
    Flag("--lan", "HOST:PORT,…", "machines of the local network, each at its port", many=True),
    Flag("--upstream", "URL", "leave by another proxy: http://HOST:PORT or socks5://HOST:PORT"),
    Flag("--upstream-file", "FILE", "the same from a file of yours alone, for one with a login"),
    Flag("--name", "NAME", "the wire's name, which its log bears (default: proxy)"),
    Flag("--log", "FOLDER", "where NAME.jsonl is written (default: lines on stderr)"),
    Flag("--per-minute", "N", "the most calls a minute (default: any number)"),
    Flag("--state", "FOLDER", "Link's settings, the kill switch among them (default: ~/.lnk)"),
    Flag("--pointed-by", "VARIABLE", "require the secret of the proxy URL in this variable"),
    Flag("--routes-handed", "VARIABLE", "routes, read from the descriptor that this variable has"),
    Flag("--shell", "uvloop|trio", "the event loop (default: uvloop)"),
)  # fmt: skip
HELP_FLAG = Flag("--help", "", "print this")
HIDDEN = (Flag("--settings", "JSON", "what wrap has packed, instead of the lists", many=True),)
"""For the commands that `wrap` prints."""
LISTS = (
    "--routes-handed", "--hosts", "--any-host", "--no-internet", "--tcp", "--lan", "--upstream",
    "--upstream-file", "--name", "--log",
)  # fmt: skip

HELP = f"""\
A filtering proxy: tunnels (CONNECT) and plain http:// requests to the hosts listed.

usage: lnk sandbox proxy --listen 127.0.0.1:PORT (--hosts HOST,… | --any-host | --no-internet)
                         [-- PROGRAM [ARGUMENT…]]

{describe((*FLAGS, *standing.FLAGS, *blank.FLAGS, HELP_FLAG))}

It prints one line, "listening on 127.0.0.1:PORT", once it accepts, and logs every call as
a line of JSON.  SIGTERM, SIGINT and SIGHUP end it in good order, with status 0.

Before a program it prints nothing, runs the program as it is, forwards signals to it and ends
with its status.  Where a URL in the program's environment names 127.0.0.1:0, it finds the port;
with --pointed-by it finds the proxy in each variable that programs look at.  A listener that
the caller holds already is named by LNK_PROXY_LISTENER_FD (see HeldPort in sandbox.client).

  lnk sandbox proxy --listen 127.0.0.1:8080 --hosts 'example.com,*.example.org'
  HTTPS_PROXY=http://127.0.0.1:8080 curl https://example.com/

  HTTPS_PROXY=http://127.0.0.1:0 lnk sandbox proxy --listen 127.0.0.1:0 --hosts example.com \\
      -- curl https://example.com/"""


def main(words: list[str]) -> int:
    """Serve until stopped; return 0.  Raises SandboxError: 2 for usage, 1 for this machine."""
    known = (*FLAGS, *standing.FLAGS, *HIDDEN, *blank.FLAGS, HELP_FLAG)
    flags = read_flags(known, words, takes_rest=True)
    if "--help" in flags:
        print(HELP)
        return 0
    stands, shell = standing.Standing.of(flags), _shell_name(flags)
    environ = _as_it_came()
    environ.pop(flags.one("--routes-handed") or "", None)  # it is not the program's
    if "--blank" in flags:
        blank.refuse_beside(flags, (*LISTS, "--settings", "--listen", "--pointed-by"))
        take_over(environ, 0)
        return blank.run(flags, stands, shell, environ)
    blank.refuse_alone(flags)
    listens = "--listen" in flags or stands.folder is None
    host, port = listen_address(flags.one("--listen")) if listens else (LOOPBACK, 0)
    settings = settings_of(flags, port)
    _check_policy(settings)
    code = 1 if stands.argv is None else 125
    listeners = []
    held = take_over(environ, port if host == LOOPBACK else 0)
    if listens:
        listeners.append(held or _listen(host, port, code))
        port = listeners[0].getsockname()[1]
    if stands.argv is not None:
        environ = _pointed(environ, flags.one("--pointed-by"), port) if listens else environ
    name = _spelled(listeners[0]) if listens else f"{stands.folder}/out.sock"

    def serve(stopped: int, ready: Callable[[], None]) -> None:
        shut_out_environment()
        try:
            with stands.open() as (more, folder):
                run_wire(
                    settings, [*listeners, *more], shell=shell, stop_fd=stopped, on_ready=ready,
                    folder=folder,
                )  # fmt: skip
        except OSError as error:
            said = f"the proxy can't be begun: {error.strerror}."
            raise SandboxError(said, exit_code=code) from None
        except LogRefused as error:
            raise SandboxError(error.message, exit_code=code) from None

    if stands.argv is None:
        return until_a_signal(serve, name)
    from sandbox.cli import front

    kept: list[Kept] = [*listeners, *_handed(settings)]
    return front.run(stands.argv, environ, serve, kept)


def _handed(settings: WireSettings) -> list[BinaryIO]:
    """Return the descriptor of routes that were handed over, for the wire alone."""
    routes = settings.routes or {}
    return [open(routes["fd"], "rb")] if "fd" in routes else []


def _as_it_came() -> dict[str, str]:
    from sandbox.linux.given import as_it_came

    came = as_it_came(dict(os.environb))
    return {os.fsdecode(name): os.fsdecode(value) for name, value in came.items()}


def _listen(host: str, port: int, code: int) -> socket.socket:
    from shells.listen import listen_tcp

    try:
        return listen_tcp(host, port)
    except OSError as error:
        raise SandboxError(_cannot_listen(host, port, error), exit_code=code) from None


def _pointed(environ: dict[str, str], pointer: str | None, port: int) -> dict[str, str]:
    """Return a program's environment, with the proxy's port and its twins in it."""
    from sandbox.pointing import filled, with_twins

    made = filled(environ, port)
    return made if pointer is None else with_twins(made, pointer, port)


def settings_of(flags: Flags, port: int) -> WireSettings:
    """Return the settings that the flags stand for; raises UsageError."""
    if "--settings" in flags:
        return _packed_settings(flags, port)
    hosts = flags.items("--hosts")
    if hosts is not None and "*" in hosts:
        raise UsageError("--hosts '*' would be any host: write --any-host for that.")
    if "--any-host" in flags and hosts is not None:
        raise UsageError("--any-host and --hosts are both given: write the one you mean.")
    if "--no-internet" in flags and (hosts or "--any-host" in flags):
        raise UsageError("--no-internet closes what --hosts or --any-host opens: write one.")
    # No list must never mean no filter: open has to be spelled.
    if hosts is None and "--any-host" not in flags and "--no-internet" not in flags:
        raise UsageError("--hosts is missing: write --hosts a.example,… or --any-host.")
    return WireSettings(
        None if "--any-host" in flags else hosts or [],
        lan=flags.items("--lan"),
        tcp=flags.items("--tcp"),
        no_internet="--no-internet" in flags,
        secret=_pointed_by(flags, port),
        log=_log_folder(flags),
        name=_name(flags),
        upstream=_upstream(flags),
        state=_state_folder(flags),
        per_minute=_per_minute(flags),
        routes=_routes_handed(flags),
    )


def _routes_handed(flags: Flags) -> dict[str, Any] | None:
    variable = flags.one("--routes-handed")
    if variable is None:
        return None
    from sandbox.cli.routes_handed import taken
    from sandbox.linux.environment import to_the_desktop

    return taken(variable, _state_folder(flags), to_the_desktop(os.environb))


def _packed_settings(flags: Flags, port: int) -> WireSettings:
    """Return what `wrap` has packed."""
    from sandbox.cli.wire import settings_from
    from sandbox.linux.kept import read_json

    for name in LISTS:
        if name in flags:
            raise UsageError(f"{name} stands beside --settings, which has it: leave it out.")
    try:
        wire = read_json("".join(flags.all("--settings")))
        assert isinstance(wire, dict)
        settings = settings_from(wire)
        if settings.routes is not None:
            from sandbox.linux.environment import to_the_desktop

            settings.routes["front"] = os.getpgrp()
            settings.routes["desktop"] = to_the_desktop(os.environb)
        sys.path += [folder for folder in wire["path"] if folder not in sys.path]
    except (AssertionError, KeyError, TypeError, ValueError):
        raise UsageError("--settings is for Link alone: make the command with wrap.") from None
    settings.secret = _pointed_by(flags, port)
    return settings


def listen_address(text: str | None) -> tuple[str, int]:
    """Read `--listen`: an address of the loopback and a port; raises UsageError.

    Anything else would let every machine of the network out through this wire.
    """
    if text is None:
        raise UsageError("--listen is missing: write --listen 127.0.0.1:8080.")
    host, colon, digits = text.rpartition(":")
    if not colon or not re.fullmatch(r"0|[1-9][0-9]{0,4}", digits) or int(digits) > 65535:
        raise UsageError(
            f"--listen {quoted(text)} has no port from 0 to 65535: write 127.0.0.1:8080."
        )
    if host == "[::1]":
        return "::1", int(digits)
    try:
        packed = socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        raise UsageError(
            f"--listen {quoted(text)} names no loopback address: write 127.0.0.1:{digits} "
            f"or [::1]:{digits}."
        ) from None
    if packed[0] != 127:
        raise UsageError(
            f"--listen {quoted(text)} could be reached from other machines, which would then go "
            f"out by this wire: write 127.0.0.1:{digits}."
        )
    return host, int(digits)


def shut_out_environment() -> None:
    """Keep nothing of the environment, which may be the sandboxed program's own (R3).

    The resolver reads HOSTALIASES, LOCALDOMAIN and RES_OPTIONS there, OpenSSL its
    settings, libuv its switches; a proxy needs none of them, not even PATH or HOME.
    Nor does it need a working folder, which a sandbox might write.
    """
    os.environ.clear()  # unsetenv(3) for each, so C's readers see nothing either
    os.chdir("/")


def until_a_signal(serve: Serve, name: str) -> int:
    """Serve until a signal says stop, and say where once calls are accepted; return 0."""
    stopped, stop = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def on_signal(*_: object) -> None:
        with suppress(BlockingIOError):  # it was told 65,536 times
            os.write(stop, b"x")

    def on_ready() -> None:
        print(f"listening on {name}", flush=True)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup(1) and `&` ask for that
            signal.signal(number, on_signal)
    try:
        serve(stopped, on_ready)
    finally:
        os.close(stopped)
        os.close(stop)
    return 0


def _spelled(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    import errno

    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken: end what listens there, or name another port."
    if error.errno == errno.EACCES:
        return f"port {port} is for root alone: name one from 1024 up."
    return f"it can't listen on port {port} of {host}: {error.strerror}."


def _upstream(flags: Flags) -> str:
    """Return the exit; one with a login comes from a file, for everybody sees a command line."""
    from sandbox.exits import has_login, read_login

    url, file = flags.one("--upstream"), flags.one("--upstream-file")
    if url is not None and file is not None:
        raise UsageError("--upstream and --upstream-file are both given: write one.")
    if url is None and file is None:
        return "direct"
    if url is not None and has_login(url):
        raise UsageError(
            "--upstream holds a login, which everybody sees on a command line: write the URL into "
            "a file (chmod 600), and --upstream-file FILE."
        )
    from proto.policy.exits import Exit

    flag = "--upstream" if file is None else "--upstream-file"
    try:
        found = url if file is None else read_login(full_path(flag, file, "FILE"), "")
        assert found is not None, "one of the two was given"
        Exit.of(found)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None
    except LaunchError as error:
        raise UsageError(f"{flag}: {error.message}") from None
    return found


def _shell_name(flags: Flags) -> str:
    shell = flags.one("--shell", "uvloop") or ""
    if shell not in SHELLS:
        raise UsageError(f"--shell {quoted(shell)} is no event loop here: write uvloop or trio.")
    return shell


def _name(flags: Flags) -> str:
    name = flags.one("--name", "proxy") or ""
    if not is_name(name):  # as a log's file may be named (shells.wire_files.NAME)
        raise UsageError(
            f"--name {quoted(name)} can't name a log: use 1 to 64 letters, digits, '.', '_' or "
            "'-', a letter or digit first."
        )
    return name


def _log_folder(flags: Flags) -> str | None:
    folder = flags.one("--log")
    if folder is None:
        return None
    return full_path("--log", folder)


def _state_folder(flags: Flags) -> str:
    """Return Link's settings; only where no flag names them are they looked for (R95)."""
    folder = flags.one("--state")
    if folder is None:
        from sandbox.state import settings_folder

        return settings_folder()
    if not folder.startswith("/") or "\0" in folder:
        raise UsageError(f"--state {quoted(folder)} isn't absolute: write the folder in full.")
    return os.path.normpath(folder)


def _per_minute(flags: Flags) -> int | None:
    text = flags.one("--per-minute")
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,6}", text) or int(text) > PER_MINUTE_MAX:
        raise UsageError(
            f"--per-minute {quoted(text)} is no number of calls: write 1 to {PER_MINUTE_MAX}."
        )
    return int(text)


def _pointed_by(flags: Flags, port: int) -> str | None:
    """Return the secret in the variable's `http://lnk:<secret>@127.0.0.1:<port>`.

    The variable is the one place that holds it, so it is taken out of the environment,
    and no message shows it.  Port 0 stands for one that isn't known yet.
    """
    variable = flags.one("--pointed-by")
    if variable is None:
        return None
    value = os.environ.pop(variable, None) if variable else None
    if value is None:
        raise UsageError(
            f"--pointed-by {quoted(variable)}: there is no such variable; set it, or drop the flag."
        )
    found = re.fullmatch(
        r"http://lnk:(?P<secret>[A-Za-z0-9]{16,64})@(?:127\.0\.0\.1|\[::1\]):(?P<port>[0-9]{1,5})/?",
        value,
        re.ASCII,
    )
    if found is None or int(found["port"]) not in (0, port):
        raise UsageError(
            f"--pointed-by {variable}: its value must be http://lnk:SECRET@127.0.0.1:PORT, with a "
            "secret of 16 to 64 letters and digits and the port of --listen."
        )
    return found["secret"]


def _check_policy(settings: WireSettings) -> None:
    """Refuse a bad entry of a list, before anything listens."""
    try:
        policy_of(settings)
    except ValueError as error:
        raise UsageError(str(error)) from None  # which names the flag
