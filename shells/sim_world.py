"""What a simulated call meets: peers, names, addresses, faults; and what came of it.

A `World` is data.  Its peers are lists of steps: what the program that calls does, and
what each server does once it is connected to.  The same steps can be played by threads
over real sockets, which is how one suite of conversations runs over every shell.

A peer reads only while a step hears.  When its steps have run out it hears on, silent,
until the other side ends, and then closes; one that must never read again ends with
`Deaf`.  A lookup is a signal too: "asked " and the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from proto.commands import OUT, Command, Side, Way
from proto.events import Cause, Event, Reason
from proto.policy.records import Record


@dataclass(frozen=True, slots=True)
class Say:
    """Send these bytes, waiting for room as long as it takes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Hear:
    """Read until `count` more bytes have come, or the other side has ended."""

    count: int


@dataclass(frozen=True, slots=True)
class Trade:
    """Say `data` and hear `count` bytes, both at once, until both are done."""

    data: bytes
    count: int


@dataclass(frozen=True, slots=True)
class HearUntil:
    """Read until `enough` says so of the bytes since this step began, or until the end.

    `make` gives a function that is told each piece as it comes and answers whether
    that was enough.
    """

    make: Callable[[], Callable[[bytes], bool]]


@dataclass(frozen=True, slots=True)
class HearEnd:
    """Read until the other side has ended or reset."""


@dataclass(frozen=True, slots=True)
class Echo:
    """Say back whatever is heard until the other side has ended; then `Fin`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Say what `make` makes of what is heard, again and again, until the other side ends.

    `make` is told all that was heard since its last answer, and returns None where that
    isn't enough yet.  What it returns is said at once, each of several by itself.
    """

    make: Callable[[bytes], bytes | tuple[bytes, ...] | None]


@dataclass(frozen=True, slots=True)
class Fin:
    """End our direction (shutdown for writing); the other goes on."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connection off (RST): what the other side hasn't read yet is lost."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Close the descriptor: our end is sent, and bytes that come later are answered by RST."""


@dataclass(frozen=True, slots=True)
class Deaf:
    """Read nothing more, ever, and keep the connection open."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Signal:
    """Let those who `Await` this name go on."""

    name: str


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until some peer has signalled this name."""

    name: str


Step = (
    Say
    | Hear
    | HearUntil
    | HearEnd
    | Echo
    | Reply
    | Fin
    | Reset
    | Leave
    | Deaf
    | Pause
    | Signal
    | Await
)
Steps = tuple[Step, ...]


class Cut(Enum):
    """How a stream of bytes is cut on its way; a cut piece is what one read gives."""

    WHOLE = "whole"
    BYTES = "a byte at a time"
    RANDOM = "at random"


CUT_MAX_BYTES = 72 * 1024
"""So much of a stream is cut, and the rest comes as it was sent: every limit on a head, a
chunk's line or a hello is passed well before, and a body of megabytes stays quick."""

PIECE_MAX_BYTES = 64 * 1024


class Cutter:
    """Cuts one direction's bytes into the pieces in which they arrive."""

    def __init__(self, cut: Cut, rng: Random) -> None:
        self._cut = cut
        self._rng = rng
        self._passed = 0

    def size(self, available: int) -> int:
        """Return how many of the `available` bytes (at least one) come next in one piece."""
        size = min(self._size(available), available, PIECE_MAX_BYTES)
        self._passed += size
        return size

    def _size(self, available: int) -> int:
        if self._cut is Cut.WHOLE or self._passed >= CUT_MAX_BYTES:
            return available
        if self._cut is Cut.BYTES:
            return 1
        # As many pieces of a few bytes as of thousands: uniform in the logarithm.
        return int(2 ** self._rng.uniform(0, available.bit_length()))


SILENT = None
"""In `World.names`: the resolver never answers.  In `connect_fails`: nor does the address.
In `tls`: nor does the server, to a handshake."""

TRUSTED = "trusted"
"""In `World.tls`: the server's certificate is right."""

BRIDGE_PORT = 0
"""In `World.servers` a bridge stands at its name and this port."""

Addresses = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside the script.

    `names` has a name's addresses at each turn it is asked (the last one stays); a name
    that isn't there has `any_name`, and none at all is "no such name".  `servers` are
    keyed by address and port; elsewhere `any_server` stands, or nobody (refused).
    `tls` says by host how a handshake ends; one that isn't there is `UNTRUSTED`.
    Those reached another way than out have their own table, `ways`.  `listen_fails` are
    addresses inside that are taken.  `places` answer `Locate`:
    `own_addresses`, `own_networks` and `many`, else elsewhere.

    `delay_s` bounds each delay the seed draws, `window_bytes` what one direction of a
    connection holds unread.  `faults` fail the command of that number (from 0), unless it
    is a `Close`, a `Look` or a `Log`, which never fail; `fault_rate` is a command's chance
    to fail by itself.  `cancels_before` land before the command of that number is begun,
    `cancels_at` so many seconds after the start, `cancels_on` when a peer signals that
    name; from the command `ends_from` on each that waits is cancelled, as a shell does that
    must come to its end.  `closed_at` closes the wire so many seconds after the start (None
    opens it), `closes_on` when a peer signals that name.  `log_full`: no call can be
    logged, so none may be let through.
    """

    client: Steps = ()
    names: Mapping[str, tuple[Addresses | None, ...]] = field(default_factory=dict)
    any_name: Addresses = ()
    servers: Mapping[tuple[str, int], Steps] = field(default_factory=dict)
    any_server: Steps | None = None
    ways: Mapping[tuple[Way, str, int], Steps] = field(default_factory=dict)
    listen_fails: tuple[tuple[str, int], ...] = ()
    connect_fails: Mapping[str, Reason | None] = field(default_factory=dict)
    tls: Mapping[str, str | Reason | None] = field(default_factory=dict)
    own_addresses: Addresses = ()
    own_networks: tuple[str, ...] = ()
    many: Addresses = ()
    cut: Cut = Cut.WHOLE
    delay_s: float = 0.0005
    window_bytes: int = 64 * 1024
    start_s: float = 1000.0
    faults: Mapping[int, Reason] = field(default_factory=dict)
    fault_rate: float = 0.0
    cancels_before: Mapping[int, Cause] = field(default_factory=dict)
    ends_from: int | None = None
    cancels_on: Mapping[str, Cause] = field(default_factory=dict)
    closes_on: Mapping[str, Cause | None] = field(default_factory=dict)
    log_full: bool = False
    cancels_at: tuple[tuple[float, Cause], ...] = ()
    closed_at: tuple[tuple[float, Cause | None], ...] = ()
    commands_max: int = 5_000_000


class End(Enum):
    """How a connection ended for the peer at its far end."""

    OPEN = "open"
    FIN = "fin"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Saw:
    """What one peer heard in all, and the end it heard."""

    data: bytes
    end: End


@dataclass(frozen=True, slots=True)
class Dial:
    """One attempt of a `Connect`; `saw` is None where no connection came of it."""

    address: str
    port: int
    at: float
    saw: Saw | None = None
    way: Way = OUT


@dataclass(frozen=True, slots=True)
class Performed:
    """A command, the event that answered it, and when it was begun."""

    command: Command
    event: Event
    at: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """All that could be seen of a call from outside, and the seed that replays it."""

    seed: int
    performed: tuple[Performed, ...]
    client: Saw
    asked: tuple[str, ...]
    dials: tuple[Dial, ...]
    secured: tuple[str, ...]
    log: tuple[Record, ...]
    closed: tuple[tuple[Side, float], ...]
    started: float
    ended: float
    listening: tuple[tuple[str, int], ...] = ()

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands alone, in order."""
        return tuple(each.command for each in self.performed)

    @property
    def opened(self) -> tuple[Dial, ...]:
        """The attempts that became connections, in the order they were dialled."""
        return tuple(dial for dial in self.dials if dial.saw is not None)
