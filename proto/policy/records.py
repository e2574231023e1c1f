"""The wire's log lines as values (R38): host and port, never a path, header or body.

A call logs one `Allowed` or one `Refusal` when its verdict falls, and one `Ending`
when an allowed call ends.  A refusal that pauses the wire has a `Paused` before it.  The
shell adds the time and the call's id.
"""

from __future__ import annotations

import msgspec


class Allowed(msgspec.Struct, frozen=True, gc=False):
    """A call was let through by name."""

    verb: str
    host: str
    port: int


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A call ended without having been let through, or before a byte of it passed.

    `host` is empty and `port` 0 where the request named none that could be read.
    `status` is what was answered, 0 for nothing.  `key` names what would allow it.
    """

    verb: str
    host: str
    port: int
    status: int
    reason: str
    key: str = ""


class Ending(msgspec.Struct, frozen=True, gc=False):
    """An allowed call ended: bytes from the client (up) and to it (down), and how.

    `at_exit`: it was the proxy by which calls leave this machine that failed, not a server.
    """

    verb: str
    host: str
    port: int
    up: int
    down: int
    seconds: float
    reason: str = "done"
    at_exit: bool = False


class Paused(msgspec.Struct, frozen=True, gc=False):
    """The wire looks wrong and is to be paused, for this reason; the call's own line follows.

    The shell closes the wire for every call, outside, where no sandbox reaches.
    """

    verb: str
    host: str
    port: int
    reason: str


Record = Allowed | Refusal | Ending | Paused

INWARD = frozenset({"serve", "callback"})
"""Verbs whose client is outside: what comes from the sandbox is what their server said."""


def from_and_to(verb: str, up: int, down: int) -> tuple[int, int]:
    """Return a call's bytes from the sandbox and to it, of those from its client and to that."""
    return (down, up) if verb in INWARD else (up, down)
