"""By way of another proxy to an address that was checked here (R40).

The exit itself is the person's word: it is looked up and dialled wherever it stands, as
nothing else is.  It is asked for one address at a time, and for the next only where it
says that it doesn't reach the one before, each time over a connection of its own.
"""

from __future__ import annotations

from typing import TypeVar

from proto.calls.ledger import Ledger
from proto.codecs.connect_hop import ConnectHop
from proto.codecs.socks5 import Socks5Hop
from proto.commands import UPSTREAM, Close, Command, Connect, Receive, Resolve, Send
from proto.errors import ExitError, ExitRefused, ExitSilent, ExitTimeout
from proto.events import NO_RESULT, Closed, Connected, Failed, Reason, Received, Resolved, Sent
from proto.policy.exits import Exit, Protocol
from proto.policy.literals import packed
from proto.policy.target import authority
from proto.script import Script, error_for

E = TypeVar("E")

TRIES_MAX = 3
"""Addresses of a server that an exit is asked for in turn: one of each family, and one more."""


def leave(
    ledger: Ledger, exit_: Exit, addresses: tuple[str, ...], port: int, by: float
) -> Script[bytes]:
    """Open the upstream side, by an exit, to the first of the addresses that it reaches.

    Returns what the server has said already.  Raises ExitError (502), ExitSilent (504), and
    ExitRefused (502), ExitTimeout (504) where it is the server that it didn't reach.
    """
    try:
        return (yield from _leave(ledger, exit_, addresses, port, by))
    except ExitRefused:
        raise
    except ExitError as error:  # it is the exit itself, which the person has named
        raise type(error)(f"{error.message.removesuffix('.')}; see {exit_.named}.") from None


def _leave(
    ledger: Ledger, exit_: Exit, addresses: tuple[str, ...], port: int, by: float
) -> Script[bytes]:
    near = yield from _find(ledger, exit_, by)
    tries = addresses[:TRIES_MAX]
    for address in tries[:-1]:
        # Half of what is left each time: a family that leads nowhere must not eat it all.
        due = ledger.now + (by - ledger.now) / 2
        yield from _ask(ledger, Connect(near, exit_.port, by), Connected)
        try:
            return (yield from _pass(ledger, _hop(exit_, address, port), due))
        except ExitRefused:
            yield from _ask(ledger, Close(UPSTREAM, ledger.now), Closed)
    yield from _ask(ledger, Connect(near, exit_.port, by), Connected)
    return (yield from _pass(ledger, _hop(exit_, tries[-1], port), by))


def _find(ledger: Ledger, exit_: Exit, by: float) -> Script[tuple[str, ...]]:
    """Return where the exit stands."""
    if exit_.literal:
        return (exit_.host,)
    return (yield from _ask(ledger, Resolve(exit_.host, by), Resolved)).addresses


def _pass(ledger: Ledger, hop: ConnectHop | Socks5Hop, due: float) -> Script[bytes]:
    """Take the exit's words and ours until the tunnel stands; return what is past them."""
    while hop.needs:
        if hop.to_send:
            yield from _ask(ledger, Send(due, to_upstream=hop.to_send), Sent)
        piece = yield from _ask(ledger, Receive((UPSTREAM,), hop.needs, due), Received)
        hop.feed(piece.data)
    return hop.rest


def _hop(exit_: Exit, address: str, port: int) -> ConnectHop | Socks5Hop:
    login = exit_.login
    if exit_.protocol is Protocol.HTTP:
        return ConnectHop(authority(address, port), None if login is None else login.basic)
    known = None if login is None else (login.user, login.password)
    return Socks5Hop(packed(address), port, known)


def _ask(ledger: Ledger, command: Command, wanted: type[E]) -> Script[E]:
    """Yield one command, as `Ledger.ask` does; what fails is the exit's failure."""
    event = yield command
    ledger.now = event.now
    if isinstance(event, Failed) and event.reason is not Reason.EXHAUSTED:
        raise _failure(command, event.reason)
    if isinstance(event, NO_RESULT):
        raise error_for(command, event)
    assert isinstance(event, wanted), f"{command!r} answered by {event!r}"
    return event


def _failure(command: Command, reason: Reason) -> ExitError:
    """Return the error for a command that the exit has failed."""
    if isinstance(command, Send | Receive):
        if reason is Reason.TIMED_OUT:
            return ExitTimeout("the upstream proxy did not answer in time.")
        return ExitError(f"the upstream proxy broke the connection off: {reason.value}.")
    kind = ExitSilent if reason is Reason.TIMED_OUT else ExitError
    return kind(f"the upstream proxy could not be reached: {reason.value}.")
