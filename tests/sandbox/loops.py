"""A bridge's own loop (`shells/poll_loop.py`), turned by a test."""

from __future__ import annotations

import time
from collections.abc import Callable

from shells.poll_loop import Loop
from tests.sandbox.lnk import LONG_S

TOLD = {
    "name": "box", "caller": "k", "imports": [], "upstream": "direct", "state": "/nowhere",
    "listed": True, "desktop": {}, "front": 0, "launcher": 0, "by": "wrap",
}  # fmt: skip
"""What a bridge is told."""


def turn(loop: Loop, until: Callable[[], bool]) -> None:
    """Turn a loop until something holds."""
    limit = time.monotonic() + LONG_S
    while not until():
        assert time.monotonic() < limit, "it never came to that"
        loop._running = True
        loop.after(0.01, loop.stop)
        loop.run()
