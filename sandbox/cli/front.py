"""A proxy in front of a program: starts it, forwards signals, ends with its status.

    this process   waits for signals and for the program; ends as it ended
      the wire     serves; ends when this process has let go of a pipe
      the program  as it is: standard streams, folder, descriptors and all

The wire is a process of its own, so that neither the program's start nor its end waits for
an event loop, and nothing that the program's caller left open reaches what serves calls.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from sandbox.errors import LaunchError, SandboxError, sentence

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import BinaryIO

    Kept = socket.socket | BinaryIO
    Serve = Callable[[int, Callable[[], None]], None]
    """Takes what can be read once to stop, and what to call when calls are accepted."""

FORWARDED = frozenset(
    {signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
CHANGED = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""What Python changed: the program gets them as a machine starts with them."""
BY_TERMINAL = 0x80
"""SI_KERNEL: the terminal has told the program as it told us."""
WIRE_ENDS_S = 5.0
"""How long the wire may take to end once the program has, its last log lines included."""


def run(argv: list[str], environ: Mapping[str, str], serve: Serve, kept: Sequence[Kept]) -> int:
    """Run a program behind a wire; return its status, 128+n for a signal.

    environ: the program's.  kept: what the wire serves, and what was handed to it, taken over;
    it doesn't reach the program.  Raises LaunchError where the program can't be found (127) or run
    (126); returns the wire's own status where it couldn't be begun, having said why.
    """
    ignored = {number for number in FORWARDED if signal.getsignal(number) is signal.SIG_IGN}
    watched = (FORWARDED - ignored) | {signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, lambda *_: None)  # an ignored one would never be waited for
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    wire, life = _start_wire(serve, kept)
    try:
        code = _begun(wire)
        if code is not None:
            return code
        program = _spawn(argv, environ, before)
        return _watch(program, wire, set(watched))
    finally:
        os.close(life)
        _end_wire(wire)


class Wire:
    """The process that serves: `pid` is 0 once it has ended."""

    def __init__(self, pid: int, ready: int) -> None:
        self.pid = pid
        self.ready = ready


def _start_wire(serve: Serve, kept: Sequence[Kept]) -> tuple[Wire, int]:
    """Fork the wire; return it and the pipe whose end ends it."""
    stopped, life = os.pipe2(os.O_CLOEXEC)
    ready, tell = os.pipe2(os.O_CLOEXEC)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(stopped)
        os.close(tell)
        for each in kept:
            each.close()
        return Wire(pid, ready), life
    code = 1
    try:
        os.setpgid(0, 0)  # what a terminal sends is the program's alone
        keep_only({*(each.fileno() for each in kept), stopped, tell})
        serve(stopped, lambda: _told(tell))
        code = 0
    except SandboxError as error:
        print(f"lnk sandbox: {sentence(error)}", file=sys.stderr, flush=True)
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001 - a forked process ends here, whatever happens
        print(f"lnk sandbox: the proxy: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _told(tell: int) -> None:
    os.write(tell, b"s")


def keep_only(wanted: set[int]) -> None:
    """Close every descriptor but standard ones and these."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in wanted:
            with suppress(OSError):  # the one that listed them
                os.close(int(name))


def _begun(wire: Wire) -> int | None:
    """Wait until the wire serves; return its status where it ended instead."""
    said = os.read(wire.ready, 1)
    os.close(wire.ready)
    if said:
        return None
    _, status = os.waitpid(wire.pid, 0)
    wire.pid = 0
    code = os.waitstatus_to_exitcode(status)
    return code if code > 0 else 125


def _spawn(argv: list[str], environ: Mapping[str, str], mask: Iterable[int]) -> int:
    try:
        return os.posix_spawnp(argv[0], argv, environ, setsigmask=mask, setsigdef=CHANGED)
    except OSError as error:
        found = error.errno not in (2, 20)  # ENOENT, ENOTDIR
        why = error.strerror if found else "there is no such program"
        if not found and "/" in argv[0] and os.path.isfile(argv[0]):
            why = "the interpreter that it names isn't there"
        raise LaunchError(
            "program", error.errno or 0, f"{argv[0]}: {why}.", exit_code=126 if found else 127
        ) from None


def _watch(program: int, wire: Wire, watched: set[signal.Signals]) -> int:
    """Forward signals until the program has ended; return its status."""
    while True:
        info = signal.sigwaitinfo(watched)
        if info.si_signo == signal.SIGCHLD:
            status = _reaped(program, wire)
            if status is not None:
                code = os.waitstatus_to_exitcode(status)
                return 128 - code if code < 0 else code
        elif info.si_code != BY_TERMINAL:
            os.kill(program, info.si_signo)


def _reaped(program: int, wire: Wire) -> int | None:
    """Reap what has ended; return the program's status once it has."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == program:
            found = status
        elif pid == wire.pid:
            # It is the program's way out; without it nothing that it does can go well.
            wire.pid = 0
            print("lnk sandbox: the proxy ended, so its program is told to.", file=sys.stderr)
            if found is None:
                os.kill(program, signal.SIGTERM)


def _end_wire(wire: Wire) -> None:
    """Wait until the wire has written its last lines, for a while."""
    while wire.pid:
        try:
            if os.waitpid(wire.pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        if signal.sigtimedwait({signal.SIGCHLD}, WIRE_ENDS_S) is None:
            os.kill(wire.pid, signal.SIGKILL)
            os.waitpid(wire.pid, 0)
            return
