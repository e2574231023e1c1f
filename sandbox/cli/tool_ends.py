"""How a tool's server ends: in good order, else by force, with all that it started (R53).

Its input ends first, then it is asked to end, then it is killed.  A bridge that has been killed
itself does nothing of this, and one whose wire has ended has no time for it.  So each server has
a guard: a process of its own, forked from the bridge, that does nothing until the bridge's end
of a pipe is closed, whoever closed it.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from time import monotonic

from shells.children import pidfd_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from shells.poll_loop import Loop

END_S = 2.0
"""How long a server may take to end once its input has, and again once it is told to."""
STEPS = (0, signal.SIGTERM, signal.SIGKILL)


class Started:
    """A server's process: its number, its descriptor, and the bridge's end of its guard's pipe."""

    __slots__ = ("life", "pid", "pidfd")

    def __init__(self, pid: int) -> None:
        """Take a child that leads a group of its own; without a guard it is killed (OSError)."""
        self.pid = pid
        self.pidfd = pidfd_of(pid)
        try:
            self.life = _guarded(pid, self.pidfd)
        except OSError:
            signal_group(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(self.pidfd)
            raise

    def is_gone(self, until: float) -> bool:
        """Wait for its end; reap it, and kill what it left in its group."""
        if not _has_ended(self.pidfd, until):
            return False
        signal_group(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.let_go()
        return True

    def let_go(self) -> None:
        """Close what is held of it; its guard ends it, if it hasn't ended."""
        os.close(self.pidfd)
        os.close(self.life)


class Ending:
    """Ends a server whose input has ended, while all else goes on; `then` is called once it has.

    A server that ends for nothing takes some seconds, in which the other tools of its wire, and
    the person's answers, mustn't wait.
    """

    def __init__(self, loop: Loop, started: Started, then: Callable[[], None]) -> None:
        self._loop, self._started, self._then = loop, started, then
        self._steps = iter(STEPS)
        self._over = False
        loop.watch(started.pidfd, select.POLLIN, self._ended)
        self._step()

    def _step(self) -> None:
        if self._over:
            return
        number = next(self._steps, None)
        if number is None:  # not even SIGKILL: it waits for a device, say
            self._loop.unwatch(self._started.pidfd)
            self._started.let_go()
            self._finish()
            return
        if number:
            signal_group(self._started.pid, number)
        self._loop.after(END_S, self._step)

    def _ended(self, _: int) -> None:
        if not _has_ended(self._started.pidfd, monotonic()):
            return  # it was told of a descriptor that had this number until now
        self._loop.unwatch(self._started.pidfd)
        self._started.is_gone(monotonic())
        self._finish()

    def _finish(self) -> None:
        self._over = True
        self._then()


def await_ends(started: list[Started], until: float) -> list[Started]:
    """Wait for the ends of servers; return those that still run."""
    return [each for each in started if not each.is_gone(until)]


def signal_group(pid: int, number: int) -> None:
    """Send a signal to the group that a server leads."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _has_ended(pidfd: int, until: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0, int((until - monotonic()) * 1000))))


def _guarded(pid: int, pidfd: int) -> int:
    """Fork a server's guard; return the descriptor by whose end it knows that it must act."""
    told, life = os.pipe2(os.O_CLOEXEC)
    try:
        between = os.fork()
        if between == 0:
            _become_guard(pid, pidfd, told)
        if os.waitpid(between, 0)[1] != 0:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    except OSError:
        os.close(life)
        raise
    finally:
        os.close(told)
    return life


def _become_guard(pid: int, pidfd: int, told: int) -> NoReturn:
    """Guard a server from a child's child, which its bridge needn't reap."""
    status = 1
    try:
        if os.fork() == 0:
            os.setsid()  # neither the terminal's signals nor the end of the run's group are for it
            _hold_only(pidfd, told)
            _guard(pid, pidfd, told)
        status = 0
    finally:
        os._exit(status)


def _hold_only(*kept: int) -> None:
    """Close all but a few descriptors: a listener or a log that is held here would look alive."""
    at = 0
    for fd in sorted(kept):
        os.closerange(at, fd)
        at = fd + 1
    os.closerange(at, os.sysconf("SC_OPEN_MAX"))


def _guard(pid: int, pidfd: int, told: int) -> None:
    """Wait for a server's end, or its bridge's, and end the server then."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(told, select.POLLIN)
    ready = [fd for fd, _ in poll.poll()]
    if told not in ready:
        return  # its bridge sees to the rest
    for number in STEPS:
        if number:
            signal_group(pid, number)
        if _has_ended(pidfd, monotonic() + END_S):
            break
    signal_group(pid, signal.SIGKILL)
