"""What a tool's hub (`proto.verbs.mcp`) wants done: by its server, its clients, the person."""

from __future__ import annotations

import msgspec


class Start(msgspec.Struct, frozen=True):
    """Start the server's process; its output is told by `read` and `ended`."""


class Stop(msgspec.Struct, frozen=True):
    """End the server's process, of which nothing is heard any more; its person is told why."""

    why: str


class Write(msgspec.Struct, frozen=True):
    """Write to the server's standard input."""

    data: bytes


class Ask(msgspec.Struct, frozen=True):
    """Ask the person; `answered` is told the number."""

    number: int
    text: str


class Withdraw(msgspec.Struct, frozen=True):
    """Take a question back: nobody waits for its answer any more."""

    number: int


class Reply(msgspec.Struct, frozen=True):
    """Send bytes of a call's answer; with `last` it has ended."""

    call: int
    data: bytes
    last: bool


Effect = Start | Stop | Write | Ask | Withdraw | Reply
