"""The bridges of a wire: processes outside the sandbox, each started at its first call (R56).

A bridge gets a listening unix socket as its descriptor 3, and on its standard input one
line of JSON that says whose it is; that input ends with the wire, and the bridge with it.
What a bridge of Link's may know beside that, keys among it, is descriptor 4: it is passed on
unread, so that nothing of it is ever in this process.

The socket has no name: it is made in a folder that is its user's alone, and taken away
before anybody could have looked, while a descriptor of its inode is kept to connect by.  Only
the bridge holds its listening end, so the kernel tells when it has died: whoever waits in its
queue is reset, and who comes is refused.  Then the next call starts it again.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from shells.children import DEFAULTED, pidfd_of

LISTENER_FD, GIVEN_FD, DOOR_FD = 3, 4, 5
HIGH_FD = 64
"""From here on are descriptors that are yet to get their numbers."""

STARTS_A_MINUTE = 30
"""A bridge that dies at each call must not keep the machine busy with starting it."""

ENDS_S = 0.5
"""What bridges have to end in good order once their wire has."""

BACKLOG = 128
FOLDERS = ("/tmp", "/dev/shm", "/var/tmp")  # noqa: S108  # its folder there is its user's alone
"""Where a socket can be made, for the moment that it has a name."""

_UNIX = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC


@dataclass(frozen=True, slots=True)
class Program:
    """How a bridge is started: its command line, what it is told, and what it is given.

    `said` is one line, far shorter than a pipe holds.  `given`: a descriptor, or None.
    `door`: the descriptor of a socket's inode to connect to, or None.
    """

    argv: tuple[str, ...]
    said: bytes
    given: int | None = None
    door: int | None = None


class Bridges:
    """A wire's bridges: `programs` to start, by their names, and `sockets` of those that run.

    group: the process group that they are started in, which ends with the sandbox; 0 gives
    each its own.  Everything here is quick but for starting a process, which vfork(2) makes
    a matter of a millisecond.
    """

    def __init__(
        self,
        programs: Mapping[str, Program],
        sockets: Mapping[str, str] | None = None,
        *,
        group: int = 0,
        say: Callable[[str], None],
    ) -> None:
        self._programs = programs
        self._sockets = sockets or {}
        self._group = group
        self._say = say
        self._running: dict[str, _Running] = {}
        self._ending: list[_Running] = []
        self._started: dict[str, deque[float]] = {}

    def connect(self, name: str) -> socket.socket:
        """Return a non-blocking connection to a bridge, started if it must be.

        Raises BlockingIOError where its queue is full, ConnectionRefusedError where there is
        none of that name or it doesn't live, another OSError where it can't be started.
        """
        self._reap()
        if name in self._sockets:
            return _connected(self._sockets[name])
        running = self._running.get(name)
        if running is not None:
            with suppress(ConnectionRefusedError):
                return running.connect()
            self._say(f"the bridge {name} ended; it is started again.")
            self._ending.append(self._running.pop(name))
            running.let_go()
            self._reap()
        return self._start(name).connect()

    def close(self) -> None:
        """End all bridges: in good order, else by SIGKILL."""
        self._ending += self._running.values()
        self._running.clear()
        for each in self._ending:
            each.let_go()
        until = monotonic() + ENDS_S
        while self._ending and (left := until - monotonic()) > 0:
            waiting = select.poll()
            for each in self._ending:
                waiting.register(each.process, select.POLLIN)
            waiting.poll(left * 1000)
            self._reap()
        for each in self._ending:
            each.kill()
        self._ending.clear()

    def _start(self, name: str) -> _Running:
        program = self._programs.get(name)
        if program is None:
            raise _refused()
        times = self._started.setdefault(name, deque(maxlen=STARTS_A_MINUTE))
        now = monotonic()
        if len(times) == STARTS_A_MINUTE and now - times[0] < 60:
            raise _refused()
        times.append(now)
        try:
            running = self._running[name] = _Running(program, self._group)
        except OSError as error:
            self._say(f"the bridge {name} can't be started: {error.strerror}.")
            raise
        return running

    def _reap(self) -> None:
        """Forget those that have ended."""
        self._ending = [each for each in self._ending if not each.has_ended()]


class _Running:
    """A bridge's process, and the descriptor that its socket is reached by."""

    __slots__ = ("_life", "_place", "pid", "process")

    def __init__(self, program: Program, group: int) -> None:
        listener, self._place = nameless_listener()
        try:
            told, self._life = os.pipe2(os.O_CLOEXEC)
            try:
                os.write(self._life, program.said)
                self.pid = _spawn(program, told, listener.fileno(), group)
                self.process = pidfd_of(self.pid)
            except OSError:
                os.close(self._life)
                raise
            finally:
                os.close(told)
        except OSError:
            os.close(self._place)
            raise
        finally:
            listener.close()

    def connect(self) -> socket.socket:
        return _connected(f"/proc/self/fd/{self._place}")

    def let_go(self) -> None:
        """Let it end: its input has ended, and nobody comes any more."""
        for fd in (self._life, self._place):
            if fd >= 0:
                os.close(fd)
        self._life = self._place = -1

    def has_ended(self) -> bool:
        """Reap it if it has ended."""
        with suppress(ChildProcessError):  # somebody else's signal handler had it
            if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                return False
        os.close(self.process)
        return True

    def kill(self) -> None:
        with suppress(ProcessLookupError, ChildProcessError):
            signal.pidfd_send_signal(self.process, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.process)


def _connected(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, _UNIX)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def nameless_listener() -> tuple[socket.socket, int]:
    """Return a listening unix socket that nobody can find, and its inode's descriptor."""
    failed: OSError = _refused()
    for above in FOLDERS:
        folder = f"{above}/lnk-{os.urandom(12).hex()}"
        try:
            os.mkdir(folder, 0o700)
        except OSError as error:
            failed = error
            continue
        try:
            return _listener_in(folder)
        except OSError as error:
            failed = error
        finally:
            os.rmdir(folder)
    raise failed


def _listener_in(folder: str) -> tuple[socket.socket, int]:
    path = f"{folder}/socket"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind(path)
        try:
            listener.listen(BACKLOG)
            return listener, os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        finally:
            os.unlink(path)
    except OSError:
        listener.close()
        raise


def _spawn(program: Program, told: int, listener: int, group: int) -> int:
    """Start a program with an empty environment and just its own descriptors.

    It works where its wire does, which is `/`.
    """
    import fcntl

    null = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
    wanted = {0: told, 1: null, LISTENER_FD: listener, GIVEN_FD: program.given,
              DOOR_FD: program.door}  # fmt: skip
    high: dict[int, int] = {}
    try:
        for number, fd in wanted.items():
            if fd is not None:
                high[number] = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
        return os.posix_spawn(
            program.argv[0],
            program.argv,
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in high.items()],
            setpgroup=group,
            setsigmask=(),
            setsigdef=DEFAULTED,
        )
    finally:
        for fd in (null, *high.values()):
            os.close(fd)


def _refused() -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
