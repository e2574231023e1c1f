"""What befalls a simulated call besides its peers: cancels, and faults of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proto.commands import (
    CLIENT,
    UPSTREAM,
    Close,
    Command,
    Connect,
    Log,
    Look,
    Open,
    Receive,
    Resolve,
    Send,
    Side,
    StartTls,
)
from proto.events import Cause, Reason
from shells.env import WATCH_S
from shells.sim_wires import Reactor
from shells.sim_world import World


class Fate:
    """The cancels and faults of one run; `cause` waits for the next command that waits.

    `closed` is what a `Look` finds; `begun`: a call has found the wire open, and runs.
    """

    def __init__(self, world: World, reactor: Reactor) -> None:
        self._world, self._rng = world, reactor.rng
        self.cause: Cause | None = None
        self.closed: Cause | None = None
        self.begun = False
        self._reactor = reactor
        for after, cause in world.cancels_at:
            reactor.at(reactor.now + after, self._canceller(cause))
        for after, closed in world.closed_at:
            reactor.at(reactor.now + after, self._closer(closed))

    def cancel(self, cause: Cause | None) -> None:
        """Cancel the call at its next wait; the first cause stands."""
        self.cause = self.cause or cause

    def before(self, number: int) -> None:
        """Let land what lands before the command of that number is begun."""
        self.cancel(self._world.cancels_before.get(number))
        if self._world.ends_from is not None and number >= self._world.ends_from:
            self.cancel(Cause.SHUTDOWN)

    def signalled(self, name: str) -> None:
        """Note that a peer has signalled."""
        self.cancel(self._world.cancels_on.get(name))
        if name in self._world.closes_on:
            self.close(self._world.closes_on[name])

    def close(self, cause: Cause | None) -> None:
        """Close the wire: each `Look` sees it at once, and a call that runs ends within WATCH_S."""
        self.closed = cause
        if cause is not None:
            self._reactor.at(self._reactor.now + self._rng.random() * WATCH_S, self._end_call)

    def look(self) -> Cause | None:
        """Look for a call that would begin."""
        self.begun = self.closed is None
        return self.closed

    def _end_call(self) -> None:
        if self.begun:
            self.cancel(self.closed)

    def fault(self, number: int, command: Command) -> Reason | None:
        """Return the failure that the world has for a command; three kinds never fail."""
        if isinstance(command, Close | Log | Look):
            return None
        if number not in self._world.faults and self._rng.random() < self._world.fault_rate:
            return self._rng.choice(list(Reason))
        return self._world.faults.get(number)

    def blamed(self, command: Command, open_sides: Iterable[Side]) -> Side | None:
        """Choose the side that a failure names; a shell may not know it."""
        match command:
            case Resolve() | Connect() | Open() | StartTls():
                return UPSTREAM
            case Receive(sides=sides):
                return self._rng.choice([None, *sides])
            case Send(to_client=b""):
                return self._rng.choice([None, UPSTREAM])
            case Send(to_upstream=b""):
                return self._rng.choice([None, CLIENT])
            case _:
                return self._rng.choice([None, *open_sides])

    def _canceller(self, cause: Cause) -> Callable[[], None]:
        return lambda: self.cancel(cause)

    def _closer(self, cause: Cause | None) -> Callable[[], None]:
        return lambda: self.close(cause)
