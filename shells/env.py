"""What a shell is given from outside: lookups, the machine, the log and the counters.

One `Env` serves one shell in one thread.  The shells differ in how they wait; all that
they share of the world goes through here, so that the contract suite can hand each of
them the same.
"""

from __future__ import annotations

import errno
import os
import socket
import traceback
from collections.abc import Callable
from typing import Protocol, assert_never

import msgspec

from proto.commands import Way
from proto.events import Cause, Place
from proto.policy.records import Allowed, Ending, Paused, Record, Refusal, from_and_to
from proto.script import Script
from shells.sides import Secure, new_datagrams, new_upstream
from shells.wire_files import warn

WATCH_S = 1.0
"""Between two looks at the flags while anything runs: open calls end within two seconds (R37)."""

INTERNAL_ERROR = "internal error"
"""The reason of the last line of a call that a bug of ours has ended."""


class LogSink(Protocol):
    """Where records go (`shells.wire_files.WireLog`)."""

    def write(self, record: Record, call_id: str) -> bool:
        """Write one line now; False when it couldn't be, and the call must not go on."""


MakeScript = Callable[[float], Script[None]]
"""Makes the script of a connection that was accepted just now."""


class Inside(Protocol):
    """The sandbox's own network, whose loopback alone it has.  Each call is quick or OSError."""

    def listener(self, address: str, port: int) -> socket.socket:
        """Return a socket that listens there."""

    def connector(self, address: str) -> socket.socket:
        """Return a socket of an address's family, not yet connected."""

    def script_at(self, address: str, port: int) -> MakeScript:
        """Return what serves those who connect there."""


class Flags(Protocol):
    """What stands outside for every proxy to look at: the kill switch, and pauses.

    Nothing here waits or raises.
    """

    def look(self) -> Cause | None:
        """Tell why the wire is closed, None where it is open; asked for each call."""

    def watch(self, up: int, down: int) -> Cause | None:
        """Tell why it was closed since the last time; None where it wasn't.

        Called each second while anything runs, and once after, with the bytes that
        calls have carried so far, from the sandbox (up) and to it (down).
        """

    def pause(self, why: str) -> None:
        """Close the wire for this reason, for as long as nobody outside opens it."""


class NoFlags:
    """A wire that nothing stops: what a shell has in tests."""

    def look(self) -> Cause | None:
        """Tell that it is open."""
        return None

    def watch(self, up: int, down: int) -> Cause | None:
        """Tell that it is open."""
        return None

    def pause(self, why: str) -> None:
        """Leave it open."""


class Running(Protocol):
    """A call that runs in some shell."""

    def cancel(self, cause: Cause) -> None:
        """Answer the command that waits, or the next that does, with `Cancelled`."""

    def close(self, cause: Cause) -> None:
        """Cancel its present call; where none has begun, the next one's look will tell."""

    def carried(self) -> tuple[int, int]:
        """Return the bytes that its present call has carried from the sandbox and to it."""


class Bridges(Protocol):
    """The bridges that a wire has (`shells.bridges.Bridges`)."""

    def connect(self, name: str) -> socket.socket:
        """Return a non-blocking connection to one, started if it must be.

        Raises BlockingIOError where it has to be tried again in a moment, else OSError.
        """


class NoBridges:
    """Those of a wire without routes."""

    def connect(self, name: str) -> socket.socket:
        """Raise ConnectionRefusedError."""
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    def close(self) -> None:
        """End none."""


def speak_tls(sock: socket.socket, host: str) -> Secure:
    """Return the machine's own TLS with a host; loaded late, for a proxy never speaks it."""
    from shells.tls import Tls

    return Tls(sock, host)


class Counters(msgspec.Struct, gc=False):
    """The wire's counters: connections, and bytes from clients (up) and to them (down).

    `carried_up` and `carried_down` are those of calls that have ended, from the sandbox and to
    it, as the log has them: without answers of our own.
    """

    accepted: int = 0
    ended: int = 0
    up: int = 0
    down: int = 0
    bugs: int = 0
    carried_up: int = 0
    carried_down: int = 0


class Env(msgspec.Struct):
    """A shell's surroundings.

    `lookup` blocks and runs in a thread: a name to its addresses, or OSError
    (`socket.gaierror`).  `locate` is quick and runs in the shell's own thread.  `secure`
    begins TLS with a host on a connected socket.
    `calls` holds what runs; only the shell's thread may look at it.
    """

    lookup: Callable[[str], tuple[str, ...]]
    locate: Callable[[tuple[str, ...]], tuple[Place, ...]]
    log: LogSink
    bridges: Bridges = msgspec.field(default_factory=NoBridges)
    secure: Callable[[socket.socket, str], Secure] = speak_tls
    inside: Inside | None = None
    counters: Counters = msgspec.field(default_factory=Counters)
    flags: Flags = msgspec.field(default_factory=NoFlags)
    say: Callable[[str], None] = warn
    calls: set[Running] = msgspec.field(default_factory=set)
    id_prefix: str = msgspec.field(default_factory=lambda: os.urandom(4).hex())
    """Tells the call ids of this process from those of another with the same log."""
    _last_id: int = 0
    _moved: tuple[int, ...] = ()
    _sums: tuple[int, int] = (0, 0)

    def maker_of(self, way: Way) -> Callable[[str], socket.socket]:
        """Return what makes a socket for an address that is reached this way."""
        match way:
            case Way.OUT:
                return new_upstream
            case Way.DATAGRAMS:
                return new_datagrams
            case Way.IN:
                assert self.inside is not None, "there is no network of the sandbox's own"
                return self.inside.connector
            case _:
                assert_never(way)

    def next_call_id(self) -> str:
        """Return an id that no other call of this log has."""
        self._last_id += 1
        return f"{self.id_prefix}-{self._last_id}"

    def watch(self) -> None:
        """Look at the flags, and end each call where the wire was closed since; each WATCH_S.

        Who hasn't asked for anything yet stays, to be answered: a connection that is cut
        off says nothing of why.
        """
        cause = self.flags.watch(*self._carried())
        if cause is not None:
            for call in tuple(self.calls):
                call.close(cause)

    def _carried(self) -> tuple[int, int]:
        """Return the bytes that calls have carried so far, from the sandbox and to it.

        Counted anew only where something has moved or ended: ten thousand idle tunnels are
        not gone through each second.
        """
        counters = self.counters
        moved = counters.up, counters.down, counters.carried_up, counters.ended
        if moved != self._moved:
            self._moved = moved
            up, down = counters.carried_up, counters.carried_down
            for call in self.calls:
                more_up, more_down = call.carried()
                up, down = up + more_up, down + more_down
            self._sums = up, down
        return self._sums

    def cancel_all(self, cause: Cause) -> None:
        """End everything that runs: shutdown."""
        for call in tuple(self.calls):
            call.cancel(cause)


class Journal:
    """Writes one connection's records, each under the id of its call.

    A kept connection carries one call after another: `Ending` and `Refusal` are the
    last line of a call, so what is written after them belongs to the next.

    `begun`: a call has looked at the flags and found the wire open, and has no last line
    yet.  `up` and `down` are what the shell has sent since the call was let through; they
    count for nothing before, and after its last line.
    """

    __slots__ = ("_allowed", "_env", "_id", "_since", "begun", "down", "up")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._id = ""
        self._allowed: Allowed | None = None
        self._since = 0.0
        self.begun = False
        self.up = self.down = 0

    def look(self) -> Cause | None:
        """Look at the flags for a call that would begin."""
        cause = self._env.flags.look()
        self.begun = cause is None
        return cause

    def carried(self, up: int, down: int) -> tuple[int, int]:
        """Return what the call has carried with so many bytes more; nothing outside a call."""
        if self._allowed is None:
            return 0, 0
        return from_and_to(self._allowed.verb, self.up + up, self.down + down)

    def write(self, record: Record, now: float) -> bool:
        """Hand one record to the log; False when the call must not go on.

        That is an `Allowed` that couldn't be written: the shell then answers the next
        command that waits with `Cancelled(Cause.UNLOGGED)`.  After an unwritten
        `Refusal` or `Ending` there is nothing left to stop.
        """
        if not self._id:
            self._id = self._env.next_call_id()
        call_id = self._id
        if isinstance(record, Allowed):
            self._allowed, self._since = record, now
            self.up = self.down = 0
        elif isinstance(record, Paused):
            self._env.flags.pause(record.reason)
        else:
            self._allowed, self._id = None, ""
            self.begun = False
            if isinstance(record, Ending):
                up, down = from_and_to(record.verb, record.up, record.down)
                self._env.counters.carried_up += up
                self._env.counters.carried_down += down
        return self._env.log.write(record, call_id) or not isinstance(record, Allowed)

    def bug(self, error: Exception, now: float) -> None:
        """Write the last line of a call whose script or shell failed, and say where.

        Only the places in the code are told, not the message: an exception's text
        can hold bytes of the call.
        """
        self._env.counters.bugs += 1
        frames = traceback.extract_tb(error.__traceback__)
        where = " < ".join(f"{f.filename}:{f.lineno} {f.name}" for f in reversed(frames[-6:]))
        self._env.say(f"a bug of ours ended a call: {type(error).__name__} at {where}")
        record: Record = Refusal("", "", 0, 0, INTERNAL_ERROR)
        if (allowed := self._allowed) is not None:
            seconds = now - self._since
            target = allowed.verb, allowed.host, allowed.port
            record = Ending(*target, self.up, self.down, seconds, INTERNAL_ERROR)
        try:
            self.write(record, now)
        except Exception as unwritten:  # noqa: BLE001  # perhaps the log is where the bug is
            self._env.say(f"and its last line can't be written: {type(unwritten).__name__}")
