"""The terminal that a sandbox keeps: who is in its foreground, the launcher or the program.

Without a session of its own the sandbox shares the launcher's terminal, and with it what a
shell does there: the program is in a process group of its own, which the stage inside puts
into the foreground.  So Ctrl-C and Ctrl-Z reach the program and neither the launcher nor
bubblewrap.  Where the program stops, the launcher takes the terminal back and stops too, so
that the shell it was started from sees its job stopped; where it goes on, the program gets the
terminal again.

Whoever asks for this must have SIGTTOU blocked: it is sent to who changes a terminal's
foreground from behind.
"""

import _signal  # type: ignore[import-not-found]
import posix


class Terminal:
    """The launcher's terminal, if it has one."""

    __slots__ = ("_fd", "_theirs")

    def __init__(self) -> None:
        self._theirs = 0
        try:
            self._fd = posix.open("/dev/tty", posix.O_RDWR | posix.O_NOCTTY | posix.O_CLOEXEC)
        except OSError:
            self._fd = -1  # a service has none

    @property
    def is_ours(self) -> bool:
        """Whether the launcher is in the foreground."""
        return self._fd >= 0 and self._front() == posix.getpgrp()

    def stop(self) -> None:
        """Take the terminal from the program, which has stopped, and stop until continued."""
        front = self._front()
        if front not in (0, posix.getpgrp()):
            self._theirs = front
            self._put(posix.getpgrp())
        posix.kill(posix.getpid(), _signal.SIGSTOP)

    def go_on(self, group: int) -> None:
        """Let the program go on: in the foreground, where a shell has put the launcher there.

        group: its process group, where none was in the foreground before.
        """
        theirs = self._theirs or group
        if self.is_ours:
            self._put(theirs)
        try:
            posix.kill(-theirs, _signal.SIGCONT)
        except ProcessLookupError:
            return  # it has just ended

    def take_back(self) -> None:
        """Be in the foreground again, where the program was."""
        if self._fd >= 0 and self._front() not in (0, posix.getpgrp()):
            self._put(posix.getpgrp())

    def close(self) -> None:
        """Let go of it, in a process that isn't the launcher."""
        if self._fd >= 0:
            posix.close(self._fd)

    def _front(self) -> int:
        """Return the group in the foreground, 0 where there is no terminal any more."""
        try:
            return posix.tcgetpgrp(self._fd)
        except OSError:
            return 0  # it was hung up

    def _put(self, group: int) -> None:
        try:
            posix.tcsetpgrp(self._fd, group)
        except OSError:
            return  # the group has ended, or the terminal has
