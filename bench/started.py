"""Start a command, and take its time: to its end, to its first byte, and all the CPU it used.

The bench adopts what a command leaves behind (a subreaper), and waits for it before it
goes on: its CPU counts, and the next start has the machine for itself.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36
MOST_S = 60.0
LEFT_S = 5.0
"""How long what a command leaves behind may go on before it is ended."""


@dataclass(frozen=True)
class Start:
    """What one start took, in seconds: to its first byte on stdout, to its end, and CPU.

    first_s is `end_s` where nothing came.  cpu_s: user and system time of the command and
    of all its children, those included that end after it.
    """

    first_s: float
    end_s: float
    cpu_s: float


def adopt() -> None:
    """Become the parent of whatever outlives its own below this process."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("prctl: no subreaper")


def started(argv: Sequence[str], environ: Mapping[str, str]) -> Start:
    """Run a command to its end; raise RuntimeError where its status isn't 0."""
    read, write = os.pipe2(os.O_CLOEXEC)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, write, 1),
    ]
    others, before = _children(), _cpu_s()
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], list(argv), dict(environ), file_actions=actions)
    os.close(write)
    try:
        select.select([read], [], [], MOST_S)
        data, first = os.read(read, 1 << 16), time.perf_counter()
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(read)
    end = time.perf_counter()
    _wait_for_all_but(others)
    if status != 0:
        code = os.waitstatus_to_exitcode(status)
        raise RuntimeError(f"{' '.join(argv)[:2000]} ended with {code}")
    return Start((first if data else end) - began, end - began, _cpu_s() - before)


def _wait_for_all_but(others: set[int]) -> None:
    until = time.monotonic() + LEFT_S
    while left := _children() - others:
        for pid in left:
            if os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.0005)


def _children() -> set[int]:
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as children:
            found.update(map(int, children.read().split()))
    return found


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
