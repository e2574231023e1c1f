"""A connection's two ends, and what is done with them at once, for the shells that watch edges.

uvloop's and trio's conversations differ in how they wait.  Whatever never waits stands here:
what is pushed out, how a side is shut, and the commands that are always answered in one go.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import msgspec

from proto.commands import CLIENT, UPSTREAM, Listen, Locate, Log, Side
from proto.events import Cause, Event, Failed, Listening, Located, Logged, Looked
from proto.policy.records import Ending
from shells.edges import Edges, End
from shells.env import Env, Journal, MakeScript
from shells.reasons import reason_for
from shells.splice import Broken, Plumbing
from shells.unsent import unsent, without_unsent
from shells.workers import Workers


class Surroundings(msgspec.Struct, kw_only=True):
    """What the conversations of one shell share, as far as it doesn't matter how it waits."""

    env: Env
    edges: Edges
    plumbing: Plumbing
    workers: Workers
    open: Callable[[socket.socket, MakeScript], None]
    """Serves the connections of one more listening socket."""


class Ends(ABC):
    """The sides of one connection, as far as they are open, and its account.

    `_up` and `_down` are what the pending command has moved, `_never_up` and `_never_down`
    what resets have kept from leaving; all in bytes.
    """

    __slots__ = (
        "_cancelled_once",
        "_cause",
        "_client",
        "_down",
        "_journal",
        "_never_down",
        "_never_up",
        "_shared",
        "_truncated",
        "_up",
        "_upstream",
    )

    def __init__(self, shared: Surroundings, client: socket.socket) -> None:
        self._shared = shared
        self._client: End | None = End(shared.edges, client, self)
        self._upstream: End | None = None
        self._journal = Journal(shared.env)
        self._cause: Cause | None = None
        self._truncated = False
        self._cancelled_once = False
        self._up = self._down = 0
        self._never_up = self._never_down = 0

    @abstractmethod
    def run(self) -> None:
        """Go on with what has to wait: there is news for it.  Doesn't raise."""

    def _side(self, side: Side) -> End:
        """Return a side that is open; a script that uses another has a bug."""
        end = self._client if side is CLIENT else self._upstream
        assert end is not None, f"the {side.value} side isn't open"
        return end

    def _shut(self, side: Side, *, reset: bool = False) -> None:
        """Close a side; what a reset keeps from leaving is off the call's last line."""
        if side is CLIENT:
            end, self._client = self._client, None
        else:
            end, self._upstream = self._upstream, None
        if end is None:
            return
        with suppress(OSError):  # close(2) may tell of bytes that never arrived
            never = end.hang_up(reset=reset)
            if side is CLIENT:
                self._never_down += never
            else:
                self._never_up += never

    def _log(self, command: Log) -> Logged:
        now, record = monotonic(), command.record
        if isinstance(record, Ending):
            if self._truncated or self._cancelled_once:
                self._shut(UPSTREAM, reset=True)  # nothing more is said to it
            if self._truncated:
                self._never_down += unsent(self._client.sock) if self._client is not None else 0
            record = without_unsent(record, self._never_up, self._never_down)
            self._never_up = self._never_down = 0
        if not self._journal.write(record, now):
            self._cause = self._cause or Cause.UNLOGGED
        return Logged(now)

    def _look(self) -> Looked:
        return Looked(self._journal.look(), monotonic())

    def _locate(self, command: Locate) -> Event:
        try:
            return Located(self._shared.env.locate(command.addresses), monotonic())
        except OSError as error:
            return Failed(reason_for(error), monotonic())

    def _listen(self, command: Listen) -> Event:
        inside = self._shared.env.inside
        assert inside is not None, "there is no network of the sandbox's own"
        try:
            listener = inside.listener(command.address, command.port)
            self._shared.open(listener, inside.script_at(command.address, command.port))
        except OSError as error:
            return Failed(reason_for(error), monotonic())
        return Listening(monotonic())

    def _push(self, side: Side, data: bytes) -> bool:
        """Send what is left of one buffer of a `Send`; tell whether it has gone whole."""
        if not data:
            return False
        end = self._side(side)
        before = sent = self._down if side is CLIENT else self._up
        try:
            while sent < len(data):
                sent += end.sock.send(memoryview(data)[sent:] if sent else data)
        except BlockingIOError:
            end.is_full()
        except OSError as error:
            raise Broken(side, error) from None
        finally:
            counters = self._shared.env.counters
            if side is CLIENT:
                self._down = sent
                counters.down += sent - before
                self._journal.down += sent - before
            else:
                self._up = sent
                counters.up += sent - before
                self._journal.up += sent - before
        return sent == len(data)
