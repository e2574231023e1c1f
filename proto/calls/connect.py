"""CONNECT: one tunnel from its admission to its end (RFC 9110 §9.3.6)."""

from __future__ import annotations

from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.reach import Link, open_upstream
from proto.calls.refuse import end_badly
from proto.codecs.client_hello import HelloReader
from proto.commands import CLIENT, Receive, Send, Splice
from proto.errors import HelloRefused, ProxyError
from proto.events import Cancelled, Failed, Received, Sent, Spliced
from proto.policy.hosts import Target
from proto.script import Script

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
"""No Content-Length and no Transfer-Encoding: what follows is the tunnel (RFC 9110 §9.3.6)."""


def connect_call(link: Link, ledger: Ledger, target: Target, limits: Limits) -> Script[None]:
    """Serve one CONNECT whose target was admitted by name; it ends the connection.

    Bytes that came with the head are the tunnel's first.
    """
    early = link.take_early()
    greeting = ESTABLISHED
    try:
        yield from open_upstream(link, ledger, target, ledger.now + limits.setup_s)
        if target.reads_hello:
            early = yield from greet_and_read_hello(ledger, target.host, early, limits)
            greeting = b""
    except ProxyError as error:
        yield from end_badly(ledger, error, limits, "CONNECT")
        return
    yield from join(ledger, greeting + link.take_said(), early, limits, len(greeting))


def greet_and_read_hello(ledger: Ledger, host: str, early: bytes, limits: Limits) -> Script[bytes]:
    """Say 200, then read the ClientHello (R33); return every byte read, for the server.

    A CDN serves the site that the hello names, whatever was connected to: a hello for
    another name, or none, is refused before the server has a byte.  Once the 200 is sent
    a failure is never answered: the client would take it for the server's word.
    """
    ledger.answered = True
    yield from ledger.ask(Send(ledger.now + limits.hello_s, to_client=ESTABLISHED), Sent)
    return (yield from read_hello(ledger, host, early, limits))


def read_hello(ledger: Ledger, host: str, early: bytes, limits: Limits) -> Script[bytes]:
    """Read the ClientHello that a tunnel begins with; return every byte read."""
    by = ledger.now + limits.hello_s
    reader = HelloReader()
    name = reader.feed(early)
    while name is None:
        piece = yield from ledger.ask(Receive((CLIENT,), reader.room, by), Received)
        if not piece.data:
            raise HelloRefused("the client ended the tunnel before its ClientHello did.")
        name = reader.feed(piece.data)
    if name != host:
        raise HelloRefused(f"a tunnel to {host} must not ask for another name in its ClientHello.")
    return reader.raw


def join(
    ledger: Ledger, to_client: bytes, to_upstream: bytes, limits: Limits, ours: int = 0
) -> Script[None]:
    """Splice both sides until they end, and log that; `ours` bytes to the client don't count."""
    ledger.answered = True
    event = yield Splice(to_client, to_upstream, limits.idle_s)
    assert isinstance(event, Spliced | Failed | Cancelled), f"Splice answered by {event!r}"
    ledger.now = event.now
    ledger.up += event.up
    ledger.down += max(0, event.down - ours)
    yield ledger.end(how_ended(event))


def how_ended(event: Spliced | Failed | Cancelled) -> str:
    """Return the reason of a tunnel's last line."""
    if isinstance(event, Spliced):
        return "done"
    if isinstance(event, Cancelled):
        return event.cause.value
    return f"{event.side.value}: {event.reason.value}" if event.side else event.reason.value
