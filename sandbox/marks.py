"""Which processes are runs: a mark for each, by which what they leave is known (`sandbox.runs`).

    <settings>/sandbox/runs/run-<pid>    `start_of` the process that began the run, a space, and
                                         its `place`

A run imports this at each start, so it brings nothing that isn't there already.
"""

from __future__ import annotations

import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.state import State

FOLDER = "runs"
LOG, ENDING = "log", ".jsonl"
LOGS_MOST = 200
"""Runs that are over whose logs are kept, the newest."""
LOCK_S = 0.2
"""How long a run waits for the marks: a sweep has them for a few milliseconds, and a run without a
mark has a log that is kept for good."""
LOCK_STEP_S = 0.001


def start_of(pid: int) -> str | None:
    """Return the marker of a running process: this boot, and the moment it was started at."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The second field is the program's name, which may hold anything, `) ` too.
            fields = file.read(4096).rpartition(b") ")[2].split()
        with open("/proc/sys/kernel/random/boot_id", "rb", buffering=0) as file:
            boot = file.read(64).strip().decode()
    except OSError:
        return None
    is_gone = fields[0] in (b"Z", b"X")
    return None if is_gone else f"{boot}:{fields[19].decode()}"


def place() -> str:
    """Return where a process's number means something: this machine, and the processes seen.

    Settings may be shared with containers and, by a network's disk, with other machines.
    """
    try:
        return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def mark(state: State, name: str) -> None:
    """Note that this process is the run of a name, before it logs anything.

    Where a sandbox that is only called so has a log already, the run's lines stand in that and
    it isn't a run's to remove.  Raises LaunchError, OSError (EAGAIN where others are at it).
    """
    with Locked(state, wait_s=LOCK_S):
        is_another_s = os.path.lexists(f"{state.path}/{LOG}/{name}{ENDING}")
        if not is_another_s or state.read(FOLDER, name) is not None:
            text = f"{start_of(os.getpid()) or ''} {place()}"
            state.write(text.encode(), FOLDER, name, flush=False)


def unmark(state: State, name: str) -> None:
    """Note that a sandbox is only called like a run.  Raises LaunchError, OSError."""
    if pid_of(name) is not None:
        state.remove(FOLDER, name)


def pid_of(name: str) -> int | None:
    """Return the number of the process in a run's name, or a check's; None for another name."""
    kind, _, digits = name.partition("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    return int(digits) if kind in ("run", "check") and is_number else None


class Locked:
    """The marks alone for a block; BlockingIOError where others have them for longer than that."""

    __slots__ = ("_folder",)

    def __init__(self, state: State, *, wait_s: float) -> None:
        by = time.monotonic() + wait_s
        path = state.folder(FOLDER)
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        while True:
            try:
                fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() >= by:
                    os.close(self._folder)
                    raise
            time.sleep(LOCK_STEP_S)

    def __enter__(self) -> None:
        """Do nothing: they are locked since this was made."""

    def __exit__(self, *raised: object) -> None:
        os.close(self._folder)
