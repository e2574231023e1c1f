"""What a shell answers (the past-tense half of the seam).

Each command gets exactly one event: its result, `Failed` or `Cancelled`; none comes
unasked.  `now` is the shell's monotonic clock in seconds when the event happened.
"""

from __future__ import annotations

import msgspec

from proto.commands import Side
from proto.kinds import Cause, Place, Reason

__all__ = [
    "NO_RESULT",
    "Cancelled",
    "Cause",
    "Closed",
    "Connected",
    "Event",
    "Failed",
    "Listening",
    "Located",
    "Logged",
    "Looked",
    "Opened",
    "Place",
    "Reason",
    "Received",
    "Resolved",
    "Secured",
    "Sent",
    "Spliced",
]


class Received(msgspec.Struct, frozen=True, gc=False):
    """Bytes that `side` sent, at most as many as asked for; none when it has ended."""

    side: Side
    data: bytes
    now: float


class Sent(msgspec.Struct, frozen=True, gc=False):
    """How many bytes of each buffer were handed to the kernel."""

    to_client: int
    to_upstream: int
    now: float


class Resolved(msgspec.Struct, frozen=True, gc=False):
    """A name's addresses as texts, in the resolver's order, each once; never empty."""

    addresses: tuple[str, ...]
    now: float


class Located(msgspec.Struct, frozen=True, gc=False):
    """A `Place` for each address asked about, in the same order."""

    places: tuple[Place, ...]
    now: float


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The upstream side is open, to this one of the addresses."""

    address: str
    now: float


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The upstream side is open, to the bridge that was asked for."""

    now: float


class Secured(msgspec.Struct, frozen=True, gc=False):
    """The upstream side speaks TLS with the host that was asked for."""

    now: float


class Listening(msgspec.Struct, frozen=True, gc=False):
    """Connections to the address are calls from now on."""

    now: float


class Closed(msgspec.Struct, frozen=True, gc=False):
    """The side is closed and may be opened again."""

    now: float


class Spliced(msgspec.Struct, frozen=True, gc=False):
    """Both sides have ended; the bytes moved from the client (up) and to it (down)."""

    up: int
    down: int
    now: float


class Looked(msgspec.Struct, frozen=True, gc=False):
    """Why the wire is closed to calls, None where it is open.

    What can't be read counts as closed (`Cause.UNSEEN`): nothing is let through unseen.
    """

    cause: Cause | None
    now: float


class Logged(msgspec.Struct, frozen=True, gc=False):
    """The record was handed to the log."""

    now: float


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The world said no.  `side` is the one that failed, where that is known.

    `up` and `down` count the bytes a `Splice` had moved, or a `Send` had sent, by then.
    """

    reason: Reason
    now: float
    side: Side | None = None
    up: int = 0
    down: int = 0


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """We ended the call: kill switch, pause or shutdown; counts as in `Failed`."""

    cause: Cause
    now: float
    up: int = 0
    down: int = 0


Event = (
    Received
    | Sent
    | Resolved
    | Located
    | Connected
    | Opened
    | Secured
    | Listening
    | Closed
    | Spliced
    | Looked
    | Logged
    | Failed
    | Cancelled
)

NO_RESULT = Failed, Cancelled
"""For `isinstance`: written there, `Failed | Cancelled` is made anew for each event, which
takes longer than most commands' own part of the script."""
