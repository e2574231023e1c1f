"""What a call asks of its shell (the imperative half of the seam).

A call is a script (`proto.script`) that yields one command and is sent one event
(`proto.events`).  Times are the shell's monotonic seconds; `by` is an absolute
deadline, after which the answer is `Failed(Reason.TIMED_OUT)`.

A new command costs three shells and an entry in DECISIONS.md; first try these.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from proto.policy.records import Record


class Side(Enum):
    """The two ends of a call: the program that called, and the server it wants."""

    CLIENT = "client"
    UPSTREAM = "upstream"


CLIENT, UPSTREAM = Side.CLIENT, Side.UPSTREAM
BOTH = (CLIENT, UPSTREAM)


class Way(Enum):
    """By what a `Connect` reaches its address."""

    OUT = "out"
    """TCP, from this machine."""

    IN = "in"
    """TCP in the sandbox's own network, to what the program inside listens on."""

    DATAGRAMS = "datagrams"
    """UDP, from this machine and from a port of chance: each `Send` is one datagram, and so
    is what a `Receive` takes.  Only those of that address and port are heard."""


OUT, IN, DATAGRAMS = Way.OUT, Way.IN, Way.DATAGRAMS


class Receive(msgspec.Struct, frozen=True, gc=False):
    """Take at most `limit` bytes from the first of `sides` that has some: `Received`.

    Naming both sides lets a script see an early answer, or a client that leaves,
    while it waits for the other.  No bytes mean that the side has ended (FIN).
    `Failed` and `Cancelled` leave unread bytes where they are.
    """

    sides: tuple[Side, ...]
    limit: int
    by: float


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send bytes to one side or both at once: `Sent`, with the counts that went.

    Answered as soon as either buffer has gone whole (an empty one never counts as
    gone), or when a side in `heed` can be read (bytes, FIN or a reset): then the
    counts say how much of each went so far, perhaps nothing.  So neither direction
    can block the other, and a script holds at most one buffer a direction.
    """

    by: float
    to_client: bytes = b""
    to_upstream: bytes = b""
    heed: tuple[Side, ...] = ()


class Resolve(msgspec.Struct, frozen=True, gc=False):
    """Look a host name up outside, once: `Resolved`; no such name is `UNRESOLVED`.

    `host` is in canonical form (`proto.policy.hosts`); the shell asks for it as an
    absolute name (no search list) and for both families.
    """

    host: str
    by: float


class Locate(msgspec.Struct, frozen=True, gc=False):
    """Ask this machine's kernel where addresses lead, without a packet: `Located`.

    `addresses` are texts as inet_ntop(3) prints them, without a zone.  Doesn't wait.
    """

    addresses: tuple[str, ...]


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Open the upstream side to the first of `addresses` that accepts: `Connected`.

    The addresses are tried in this order, each `ATTEMPT_DELAY_S` after the one
    before or as soon as that one failed, and the first to connect wins (RFC 8305
    §5).  Nothing else is ever dialled.  The upstream side must not be open.
    """

    addresses: tuple[str, ...]
    port: int
    by: float
    way: Way = OUT


class Listen(msgspec.Struct, frozen=True, gc=False):
    """Serve connections to an address of the sandbox's own loopback: `Listening`.

    From then on each is a call, to whatever name the address stands for.  Doesn't wait.
    """

    address: str
    port: int


class Open(msgspec.Struct, frozen=True, gc=False):
    """Open the upstream side to the bridge of that name, started if it must be: `Opened`.

    A bridge that has ended is started again, once a command.  `REFUSED` where there is none
    of that name, or none that lives.  The upstream side must not be open.
    """

    name: str
    by: float


class StartTls(msgspec.Struct, frozen=True, gc=False):
    """Speak TLS on the upstream side from here on, as a client of `host`: `Secured`.

    The server's certificate has to be for `host`, a canonical name, and signed by an
    authority that this machine trusts, else `UNTRUSTED`.  Every later command on that side
    takes and gives what is inside.  An end without TLS's own close is a reset: somebody in
    between may have cut it (RFC 8446 §6.1).
    """

    host: str
    by: float


class Close(msgspec.Struct, frozen=True, gc=False):
    """Close one side in good order: `Closed`, also where the peer misbehaves.

    Sends FIN, then reads and drops what the peer still says until it ends or `by`:
    a close with unread bytes would be a reset, and a reset destroys an answer that
    the peer hasn't read yet (RFC 9112 §9.6).  A side that isn't open is closed.

    `broken`: a reset ends it in place of the FIN, so that the peer can tell that what it
    heard was cut short.  It may still take what is on the way: until `by`, or its own end once
    it has all.  What never leaves is off the counts of the `Ending` that is logged next.
    """

    side: Side
    by: float
    broken: bool = False


class Splice(msgspec.Struct, frozen=True, gc=False):
    """Join both sides until both have ended: `Spliced`, with the counts of bytes.

    Sends first what the core already holds for each side.  A FIN of one side is
    passed on to the other once its bytes have gone, and the other direction goes
    on.  `Failed(TIMED_OUT)` when nothing moved either way for `idle_s` seconds.
    However it ends, the event carries what has moved.
    """

    to_client: bytes
    to_upstream: bytes
    idle_s: float


class Look(msgspec.Struct, frozen=True, gc=False):
    """Look whether the wire is stopped or paused: `Looked`.  Doesn't wait, and never fails."""


class Log(msgspec.Struct, frozen=True, gc=False):
    """Write one record to the wire's log; scripts ignore the answer (`Logged`)."""

    record: Record


Command = (
    Receive
    | Send
    | Resolve
    | Locate
    | Connect
    | Listen
    | Open
    | StartTls
    | Close
    | Splice
    | Look
    | Log
)

ATTEMPT_DELAY_S = 0.25
"""Between two attempts of a `Connect` (RFC 8305 §8: 250 ms recommended)."""
