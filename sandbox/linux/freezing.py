"""Hold a sandbox's program still while its person is asked on the terminal that they share.

The program isn't in the terminal's session, so nothing else keeps it from reading what is
typed there, or from drawing over the question.  A process that is stopped starts no other:
once all of a list are stopped, a list that has no more of them is the last.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

STOPPED_S = 10.0
"""How long it may take until all have stopped."""
CALL_S = 5.0
"""How long one that is to stop may take over the call that it is in, on a busy processor."""
LOOK_S = 0.002
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class Frozen:
    """The processes of a program that were stopped; `thaw` lets them go on."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        """Their descriptors, so that nobody else of the same number is continued."""
        self._waited: dict[int, int] = {}
        """The signals that waited for each when all had stopped."""

    @classmethod
    def of(cls, launcher: int, asker: int = 0) -> Frozen | None:
        """Stop all of the program whose launcher this is; None where that can't be done.

        asker: the process that asks for it, 0 for this one.
        """
        made = cls()
        begun, passers = time.monotonic(), passers_on(launcher)
        while (took := time.monotonic() - begun) < STOPPED_S:
            stages = {pid: _stage(pid) for pid in program_of(launcher, asker) | passers}
            running = [pid for pid, stage in stages.items() if stage == RUNNING]
            held = not running and (STOPPING not in stages.values() or took > CALL_S)
            # What one started just before it stopped came behind the list.
            if held and program_of(launcher, asker) <= stages.keys():
                made._waited = {pid: _waiting(pid) for pid in made._held}
                return made
            for pid in running:
                made._stop(pid)
            time.sleep(LOOK_S)
        made.thaw()
        return None

    def _stop(self, pid: int) -> None:
        try:
            if pid not in self._held:
                self._held[pid] = os.pidfd_open(pid)
            signal.pidfd_send_signal(self._held[pid], signal.SIGSTOP)
        except ProcessLookupError:
            return

    def is_to_end(self) -> bool:
        """Tell whether one of them has been told to end since, which it can't while it is held."""
        wanted = sum(1 << (number - 1) for number in ENDING)
        return any(_waiting(pid) & ~was & wanted for pid, was in self._waited.items())

    def thaw(self) -> None:
        """Let them all go on: those that were stopped before stay so."""
        for fd in self._held.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGCONT)
            os.close(fd)
        self._held = {}


def go_on(launcher: int) -> None:
    """Let a program go on whose asker was killed before it could."""
    for pid in program_of(launcher) | passers_on(launcher):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def terminal_of(pid: int) -> int:
    """Return the number of a process's controlling terminal, 0 for none."""
    try:
        return int(_stat(pid)[4])
    except OSError:
        return 0


def program_of(launcher: int, asker: int = 0) -> set[int]:
    """Return the processes of a launcher's program: all below the sandbox's first.

    The launcher's own helpers have no such depth, but for the branch that asks.
    """
    mine = _ancestors(asker or os.getpid())
    found: set[int] = set()
    for child in _children(launcher):
        if child not in mine:
            for first in _children(child):
                found |= _below(first)
    return found


def passers_on(launcher: int) -> set[int]:
    """Return what hands on to the terminal what the program says (`sandbox.linux.background`).

    It holds up to two pipes full that the program said before it was stopped.  It is a fork of
    its launcher that reads the launcher's own output; who else reads that is the person's
    (`lnk sandbox run … | less`).
    """
    said = {link for fd in (1, 2) if (link := _link(f"{launcher}/fd/{fd}")).startswith("pipe:")}
    if not said:
        return set()
    words = _words(launcher)
    return {
        int(pid)
        for pid in os.listdir("/proc")
        if pid.isdigit() and int(pid) != launcher and _words(pid) == words and _holds(pid, said)
    }


def _holds(pid: str, links: set[str]) -> bool:
    """Tell whether a process reads one of some pipes."""
    try:
        return any(
            _link(f"{pid}/fd/{fd}") in links
            and not os.stat(f"/proc/{pid}/fd/{fd}", follow_symlinks=False).st_mode & 0o200
            for fd in os.listdir(f"/proc/{pid}/fd")
        )
    except OSError:
        return False


def _link(name: str) -> str:
    try:
        return os.readlink(f"/proc/{name}")
    except OSError:
        return ""


def _words(pid: int | str) -> bytes:
    """Return a process's command line, nothing once it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _below(pid: int) -> set[int]:
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    """Return a process's children, whichever of its threads started them."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass  # it has ended
    return found


def _ancestors(pid: int) -> set[int]:
    found = {pid}
    while pid > 1:
        pid = int(_stat(pid)[1])
        found.add(pid)
    return found


RUNNING, STOPPING, STOPPED = range(3)


def _stage(pid: int) -> int:
    """Tell whether a process runs, is to stop, or is stopped (or ends), with all its threads.

    One that is to stop runs no more of its own code, but a call that it is in is done first: a
    fork(2) makes one more process, a write(2) is still drawn.  Where the processor is busy that
    may take a while.  In a sleep that no signal ends (D) it stays as long as what it waits for,
    vfork(2) for a child that is stopped too.
    """
    letters = _letters(pid)
    moving = letters - {"T", "t", "Z", "X"}
    if not moving:
        return STOPPED
    if "T" not in letters and not _waiting(pid, gone=-1) >> (signal.SIGSTOP - 1) & 1:
        return RUNNING
    return STOPPED if moving == {"D"} else STOPPING


def _letters(pid: int) -> set[str]:
    """Return the states of a process's threads, none once it is gone."""
    found = set()
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found.add(_stat(f"{pid}/task/{thread}")[0])
    return found


def _waiting(pid: int, *, gone: int = 0) -> int:
    """Return the signals that wait for a process as a whole, a bit each; `gone` once it is."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next(int(line.split()[1], 16) for line in file if line.startswith(b"ShdPnd:"))
    except (OSError, StopIteration):
        return gone


def _stat(pid: int | str) -> list[str]:
    """Return what stands behind a process's name in its `stat`, or behind a thread's."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().decode("latin-1").rpartition(")")[2].split()
