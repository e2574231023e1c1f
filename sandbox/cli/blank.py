"""A blank proxy: it holds nothing of anybody's until it is bound, by one line of JSON (R42).

    this process   stands before a program, or serves (--hold)
      the wire     answers every call with a 503, and once it is bound serves as told
      the control  takes the line, keeps the keys in it, and tells the wire the rest

The control is a process apart, forked before anything is bound, so that no key is ever in the
memory of the process that serves: what bridges are to know goes to it as the descriptor of a
sealed memory file, which it only passes on.
"""

from __future__ import annotations

import json
import os
import select
import socket
import stat
import sys
import threading
import time

from sandbox.cli.flags import Flag, Flags, UsageError, full_path
from sandbox.cli.front import keep_only
from sandbox.cli.standing import Standing, read_id
from sandbox.errors import SandboxError, SpecError
from sandbox.linux.wire_folder import listen_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandbox.cli.serving import WireSettings
    from sandbox.handed import ProxyBind
    from sandbox.linux.wire_folder import Folder

FLAGS = (
    Flag("--blank", "", "hold nothing until it is bound on --control"),
    Flag("--control", "SOCKET", "where it is bound, once"),
    Flag("--binder", "UID", "a user who may bind it beside its own"),
)
BIND_MAX_BYTES = 4 << 20
"""As much as `wrap` takes; a hundred thousand hosts are less."""
LINE_S = 10.0
"""For a binder to send its line, and to take the answer."""
BREATH_S = 0.1
"""Until descriptors or threads that have run out are looked for again."""
TOLD_MAX_BYTES = 4096
CREDENTIALS_BYTES = 12
BOUND, REFUSED = b"+", b"-"
NOT_YOURS = "this user may not bind it: name it with --binder"
BOUND_ALREADY = "it is bound already, and stays so until it ends; start another"


def refuse_beside(flags: Flags, names: tuple[str, ...]) -> None:
    """Refuse what a blank proxy isn't told by flags; raises UsageError."""
    for name in names:
        if name in flags:
            raise UsageError(f"{name} stands beside --blank, which holds nothing: leave it out.")
    for name in ("--control", "--dir"):
        if name not in flags:
            raise UsageError(f"--blank needs {name}: add it.")
    if "--hold" not in flags and flags.rest is None:
        raise UsageError("--blank alone starts nothing: add --hold, or -- and a program.")


def refuse_alone(flags: Flags) -> None:
    """Refuse what a proxy is bound by where it isn't blank; raises UsageError."""
    for name in ("--control", "--binder"):
        if name in flags:
            raise UsageError(f"{name} is for a blank proxy: add --blank, or leave it out.")


def run(flags: Flags, standing: Standing, shell: str, environ: dict[str, str]) -> int:
    """Stand blank until bound, and serve then; return the status."""
    binder = flags.one("--binder")
    users = {os.geteuid()} | ({read_id("--binder", binder)} if binder is not None else set())
    control = full_path("--control", flags.one("--control") or "", "SOCKET")
    link = _fork_control(control, users)

    def serve(stopped: int, ready: Callable[[], None]) -> None:
        _serve(link, standing, shell, stopped, ready)

    if standing.argv is not None:
        from sandbox.cli import front

        return front.run(standing.argv, environ, serve, [link])
    from sandbox.cli.proxy import until_a_signal

    return until_a_signal(serve, f"{standing.folder}/out.sock")


# -- the wire ---------------------------------------------------------------------------------


def _serve(
    link: socket.socket, standing: Standing, shell: str, stopped: int, ready: Callable[[], None]
) -> None:
    """Answer every call with a 503 until a binding holds; then serve that, until stopped."""
    from sandbox.cli.proxy import shut_out_environment

    shut_out_environment()
    _undumpable()
    with standing.open() as (listeners, folder):
        while True:
            _refuse_calls(listeners, shell, stopped, link, ready)
            ready = _said_already
            if select.select([stopped], [], [], 0)[0] or _serve_bound(
                _told(link), listeners, folder, shell, stopped, link
            ):
                return


def _said_already() -> None:
    """Say nothing: whoever waits for the proxy knows that it answers."""


def _serve_bound(
    settings: WireSettings,
    listeners: list[socket.socket],
    folder: Folder | None,
    shell: str,
    stopped: int,
    link: socket.socket,
) -> bool:
    """Serve what was bound until stopped; tell the binder, and return False, where it can't be."""
    from sandbox.cli.serving import run_wire

    begun = False

    def ready() -> None:
        nonlocal begun
        begun = True
        link.send(BOUND)

    served = [each.dup() for each in listeners]
    try:
        run_wire(settings, served, shell=shell, stop_fd=stopped, on_ready=ready, folder=folder)
    except (SandboxError, OSError) as error:
        if begun:
            raise
        for each in served:
            each.close()
        _refuse(link, error, settings)
    return begun


def _refuse(link: socket.socket, error: SandboxError | OSError, settings: WireSettings) -> None:
    """Tell the binder why what it bound can't be served."""
    said = str(error)
    if isinstance(error, OSError):
        said = f"the proxy can't be begun: {error.strerror}."
    link.send(REFUSED + said.encode()[: TOLD_MAX_BYTES - 1])
    if settings.routes is not None:
        os.close(settings.routes["fd"])


def _refuse_calls(
    listeners: list[socket.socket],
    shell: str,
    stopped: int,
    link: socket.socket,
    ready: Callable[[], None],
) -> None:
    """Answer calls with a 503 until there is news from outside or from the control."""
    from importlib import import_module

    from proto.calls.blank import blank_connection
    from proto.calls.limits import Limits
    from shells.env import Env
    from shells.listen import raise_descriptor_limit
    from shells.machine import Machine
    from shells.resolve import lookup
    from shells.wire_files import open_log

    limits, machine, log = Limits(), Machine(), open_log(None, "blank")
    news = select.epoll()  # which can itself be waited for
    news.register(stopped, select.EPOLLIN)
    news.register(link, select.EPOLLIN)
    try:
        raise_descriptor_limit()
        ready()
        import_module(f"shells.{shell}_shell").serve(
            [each.dup() for each in listeners],
            lambda now: blank_connection(limits, now),
            Env(lookup=lookup, locate=machine.locate, log=log),
            stop_fd=news.fileno(),
        )
    finally:
        news.close()
        machine.close()
        log.close()


def _told(link: socket.socket) -> WireSettings:
    """Take what the control has to tell of a binding; raises SandboxError where it is gone."""
    from sandbox.cli.handing import received

    data, fds = received(link, 2)
    if not data or not fds:
        raise SandboxError("what binds this proxy has ended, so it ends too.", exit_code=1)
    with open(fds[0], "rb") as file:
        file.seek(0)  # who wrote it shares our place in it
        told = json.loads(file.read())
    if told["routes"] is not None:
        told["routes"]["fd"] = fds[1]
    from sandbox.cli.serving import WireSettings

    return WireSettings(told.pop("hosts"), **told)


# -- the control ------------------------------------------------------------------------------


def _fork_control(path: str, users: set[int]) -> socket.socket:
    """Fork the control; return the wire's end of the pair between them."""
    listener = _control(path)
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    if os.fork():
        listener.close()
        its.close()
        return ours
    try:
        os.setpgid(0, 0)
        ours.close()
        os.chdir("/")
        desktop = _desktop()
        os.environ.clear()
        keep_only({listener.fileno(), its.fileno()})
        _undumpable()
        Control(listener, its, users, desktop).run()
    except BaseException as error:  # noqa: BLE001 - a forked process ends here, whatever happens
        print(f"lnk sandbox: the control: {error!r}", file=sys.stderr, flush=True)
    finally:
        _unlink(path, listener)
        os._exit(0)


def _control(path: str) -> socket.socket:
    """Listen at the control's path, its user's alone; raises UsageError."""
    folder, _, name = path.rpartition("/")
    try:
        fd = os.open(folder or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(
            f"--control {path}: its folder can't be opened: {error.strerror}."
        ) from None
    try:
        about = os.fstat(fd)
        if about.st_uid not in (0, os.geteuid()) or (
            about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX
        ):
            # Whoever writes it puts a socket of their own there, and is handed the keys.
            raise UsageError(f"--control {path}: others can write its folder: name another.")
        made = listen_at(fd, name, 0o600)
    except FileExistsError:
        raise UsageError(f"--control {path} is there and is no socket: remove it.") from None
    except OSError as error:
        raise UsageError(f"--control {path} can't be made: {error.strerror}.") from None
    finally:
        os.close(fd)
    if made < 0:
        raise UsageError(f"--control {path}: another proxy is bound there: name another.")
    return socket.socket(fileno=made)


def _unlink(path: str, listener: socket.socket) -> None:
    """Take the control's socket away, if it is still ours."""
    try:
        # A living one that took our place answers; ours doesn't, for nobody accepts any more.
        listener.close()
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    except OSError:
        return


def _desktop() -> dict[str, str]:
    from sandbox.linux.environment import to_the_desktop

    return to_the_desktop(os.environb)


def _undumpable() -> None:
    """Close this process's memory to others of its user: a login or keys are in it."""
    from sandbox.linux.libc import PR_SET_DUMPABLE, Libc

    Libc().call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


class Control:
    """Takes bindings from those who may bind; one who says nothing keeps nobody waiting."""

    def __init__(
        self, listener: socket.socket, link: socket.socket, users: set[int], desktop: dict[str, str]
    ) -> None:
        self._listener, self._link = listener, link
        self._users = users
        self._desktop = desktop
        self._bound = False
        self._one_at_a_time = threading.Lock()

    def run(self) -> None:
        """Answer until the wire has ended."""
        self._listener.setblocking(True)
        news = select.poll()
        news.register(self._listener, select.POLLIN)
        news.register(self._link, select.POLLHUP)  # what the wire says is for who asked it
        while True:
            for fd, _ in news.poll():
                if fd == self._link.fileno():
                    return
                self._take()

    def _take(self) -> None:
        """Serve one connection; where nothing is left to do it with, it waits for a moment."""
        try:
            connection, _ = self._listener.accept()
        except OSError:
            time.sleep(BREATH_S)
            return
        try:
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except RuntimeError:  # no thread: whoever binds may try again
            connection.close()
            time.sleep(BREATH_S)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        credentials = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS_BYTES
        )
        may = int.from_bytes(credentials[4:8], sys.byteorder) in self._users
        try:
            error: str | None = NOT_YOURS  # and nothing that it says is read
            if may:
                line = read_line(connection)
                error = self._bind(line) if line is not None else "the line doesn't end"
            answer = {} if error is None else {"error": error}
            connection.sendall(json.dumps(answer).encode() + b"\n")
            hear_out(connection)
        except OSError:
            return  # it left

    def _bind(self, line: bytes) -> str | None:
        """Bind; return what is wrong, None where nothing is."""
        with self._one_at_a_time:
            return BOUND_ALREADY if self._bound else self._bind_now(line)

    def _bind_now(self, line: bytes) -> str | None:
        from sandbox.cli.handing import sealed

        try:
            told, given = told_of(read_bind(line), self._desktop)
        except SandboxError as error:
            return str(error)
        fds = [sealed(json.dumps(told).encode())]
        if given is not None:
            fds.append(sealed(given))
        try:
            socket.send_fds(self._link, [b"b"], fds)
        finally:
            for fd in fds:
                os.close(fd)
        said = self._link.recv(TOLD_MAX_BYTES)
        self._bound = said == BOUND
        return None if self._bound else said[1:].decode(errors="replace") or "the proxy has ended"


def read_line(connection: socket.socket) -> bytes | None:
    """Return a line without its end; None where it is too long, or doesn't come in time."""
    line, by = b"", time.monotonic() + LINE_S
    while b"\n" not in line:
        left = by - time.monotonic()
        if left <= 0 or len(line) > BIND_MAX_BYTES:
            return None
        connection.settimeout(left)
        try:
            data = connection.recv(1 << 16)
        except TimeoutError:
            return None
        if not data:
            return None
        line += data
    connection.settimeout(LINE_S)
    line, _, behind = line.partition(b"\n")
    return None if behind else line  # one line, and nothing else


def hear_out(connection: socket.socket) -> None:
    """Take what is still said, unread: closed before that, its end would break while it speaks.

    A write then fails, or a read, though the answer is there, and a client may give that up.
    """
    connection.shutdown(socket.SHUT_WR)
    by = time.monotonic() + LINE_S
    while (left := by - time.monotonic()) > 0:
        connection.settimeout(left)
        if not connection.recv(1 << 16):
            return


def read_bind(line: bytes) -> ProxyBind:
    """Read a binding's line; raises SpecError for the first key that is wrong."""
    from sandbox.cli.host_lists import check_bind
    from sandbox.handed import ProxyBind
    from sandbox.place import Place
    from sandbox.strict_json import read_json
    from sandbox.table import read_table, refuse_unbuilt

    bind = read_table(ProxyBind, read_json(line, BIND_MAX_BYTES, "bind"), Place(root="bind"))
    refuse_unbuilt(bind, Place(root="bind"))
    check_bind(bind)
    return bind


def told_of(bind: ProxyBind, desktop: dict[str, str]) -> tuple[dict[str, Any], bytes | None]:
    """Return what a binding's proxy may know, and what its bridges alone may."""
    from sandbox.mounts import mount_of, needs_secret
    from sandbox.route import Open, Tool
    from sandbox.routes_file import text_of

    wire = bind.wire
    told: dict[str, Any] = {
        "hosts": None if bind.host is None else list(bind.host),
        "lan": list(bind.lan),
        "no_internet": bind.no_internet,
        "upstream": bind.upstream,
        "name": bind.name or "proxy",
        "log": None if wire is None else os.path.join(wire, "log"),
        "logged": wire is not None,
        "wire": wire,
        "per_minute": bind.per_minute,
        "serve": list(dict.fromkeys(bind.serve)),
        "routes": None,
        "by": "bind",
    }
    if not bind.routes:
        return told, None
    assert bind.caller is not None, "its table has refused that"
    if needs_secret(bind.routes) and bind.url_secret is None:
        raise SpecError("url_secret", "is missing; these routes' addresses carry it")
    opens = any(isinstance(each, Open) for each in bind.routes)
    if opens and not bind.desktop:
        raise SpecError("desktop", "is false, so no page can be opened; set it, or no open route")
    if wire is None and any(isinstance(each, Open | Tool) for each in bind.routes):
        raise SpecError("wire", "is missing; tools and pages ask, and tools work, in its folder")
    told["routes"] = {
        "mounts": [mount_of(each) for each in bind.routes],
        "caller": bind.caller,
        "secret": bind.url_secret,
        "state": wire or "",
        "desktop": desktop if bind.desktop else {},
    }
    return told, text_of(bind.caller, bind.routes)
