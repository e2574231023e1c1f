"""A bridge's own loop (`shells/poll_loop.py`), turned by a test."""

from __future__ import annotations

from collections.abc import Callable

from shells.poll_loop import Loop

TOLD = {
    "name": "box", "caller": "k", "imports": [], "upstream": "direct", "state": "/nowhere",
    "listed": True, "desktop": {}, "front": 0, "launcher": 0, "by": "wrap",
}  # fmt: skip
"""What a bridge is told."""


def turn(loop: Loop, until: Callable[[], bool]) -> None:
    """Turn a loop until something holds."""
    for _ in range(500):
        if until():
            return
        loop._running = True
        loop.after(0.01, loop.stop)
        loop.run()
    raise AssertionError("it never came to that")
