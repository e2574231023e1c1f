"""From a target that was admitted by name to a connection: resolve, check, connect (5.1, 7)."""

from __future__ import annotations

import msgspec

from proto.calls.leave import leave
from proto.calls.ledger import Ledger
from proto.commands import UPSTREAM, Close, Connect, Locate, Resolve
from proto.events import Closed, Connected, Located, Resolved
from proto.policy.addresses import reachable, to_locate
from proto.policy.cures import SPEC, Cures
from proto.policy.exits import Exit
from proto.policy.hosts import Scope, Target
from proto.script import Script


class Link(msgspec.Struct, gc=False):
    """What outlives one call of a client's connection.

    `early`: bytes that came behind the last request.  `upstream`: where the open
    upstream side leads, None when it isn't open.  `exit`: the proxy by which it leads
    there, None where it does so directly.  `said`: what the server said on that side before
    anybody listened.  `cures`: what a refusal tells a person to change.
    """

    early: bytes = b""
    upstream: Target | None = None
    exit: Exit | None = None
    said: bytes = b""
    cures: Cures = SPEC

    def take_early(self) -> bytes:
        """Return what came behind the last request, once: kept here it would be held twice."""
        early, self.early = self.early, b""
        return early

    def take_said(self) -> bytes:
        """Return what the server has said already, once."""
        said, self.said = self.said, b""
        return said

    def drop(self, ledger: Ledger) -> Script[None]:
        """Close the upstream side, if it is open, without waiting for its peer."""
        if self.upstream is not None:
            self.upstream = None
            yield from ledger.ask(Close(UPSTREAM, ledger.now), Closed)


def open_upstream(link: Link, ledger: Ledger, target: Target, by: float) -> Script[None]:
    """Log that a target is allowed, and connect the upstream side to it.

    The addresses that were checked are the ones dialled: no name is looked up twice in
    a call, or its owner could answer differently the second time.
    Raises Refused (403) by address, UpstreamError (502), UpstreamTimeout (504).
    """
    yield from link.drop(ledger)
    if target.literal:  # its verdict needs no lookup, so it falls before the log line
        addresses = yield from _checked(link, ledger, target, (target.host,))
    if not ledger.allowed:
        yield ledger.allow()
    if not target.literal:
        found = yield from ledger.ask(Resolve(target.host, by), Resolved)
        addresses = yield from _checked(link, ledger, target, found.addresses)
    # At the exit, a machine of the local network would be one of another network's.
    if link.exit is None or target.scope is Scope.LAN:
        yield from ledger.ask(Connect(addresses, target.port, by), Connected)
        link.said = b""
    else:
        link.said = yield from leave(ledger, link.exit, addresses, target.port, by)
    link.upstream = target


def _checked(
    link: Link, ledger: Ledger, target: Target, found: tuple[str, ...]
) -> Script[tuple[str, ...]]:
    """Return those of the addresses that may be dialled, in the order to dial them."""
    located = yield from ledger.ask(Locate(to_locate(found)), Located)
    return reachable(found, located.places, target, link.cures)
