"""What the processes that we start have in common: their signals, and how they are watched."""

from __future__ import annotations

import os
import signal

DEFAULTED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""What Python, or whoever started us, has changed: a child gets them as a machine has them."""


def pidfd_of(pid: int) -> int:
    """Return a descriptor that tells of a child's end; the child ends where there can be none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
