"""CONNECT: one tunnel from its admission to its end (RFC 9110 §9.3.6)."""

from __future__ import annotations

from proto.calls.ledger import Ledger
from proto.calls.limits import PIECE_BYTES, Limits
from proto.calls.reach import Link, open_upstream
from proto.calls.refuse import end_badly
from proto.codecs.client_hello import HelloReader
from proto.codecs.hello_retry import HelloAnswer
from proto.commands import CLIENT, UPSTREAM, Receive, Send, Splice
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
            hello = yield from greet_and_read_hello(ledger, target.host, early, limits)
            due = yield from hear_answer(ledger, target.host, hello, link.take_said(), limits)
            if due is not None:
                yield from join(ledger, *due, limits)
            return
    except ProxyError as error:
        yield from end_badly(ledger, error, limits, "CONNECT")
        return
    yield from join(ledger, greeting + link.take_said(), early, limits, len(greeting))


def greet_and_read_hello(
    ledger: Ledger, host: str, early: bytes, limits: Limits
) -> Script[HelloReader]:
    """Say 200, then read the ClientHello (R33); return what read it, and has it for the server.

    A CDN serves the site that the hello names, whatever was connected to: a hello for
    another name, or none, is refused before the server has a byte.  Once the 200 is sent
    a failure is never answered: the client would take it for the server's word.
    """
    ledger.answered = True
    yield from ledger.ask(Send(ledger.now + limits.hello_s, to_client=ESTABLISHED), Sent)
    return (yield from read_hello(ledger, host, early, limits))


def read_hello(ledger: Ledger, host: str, early: bytes, limits: Limits) -> Script[HelloReader]:
    """Read the ClientHello that a tunnel begins with."""
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
    return reader


BOTH = UPSTREAM, CLIENT

Due = tuple[bytes, bytes]
"""What of a tunnel waits for its client, and for its server."""


def hear_answer(
    ledger: Ledger, host: str, hello: HelloReader, said: bytes, limits: Limits
) -> Script[Due | None]:
    """Carry a tunnel on to its server's answer, and past a second hello if that asks for one.

    Returns what is left to send, None once the tunnel has ended and that is logged.  `said`:
    what the server had said already.  Raises HelloRefused for a second hello that isn't for
    `host`; nothing of one that is asked for goes on before it is read.
    """
    answer = HelloAnswer(host)
    answer.hear_client(hello.behind)
    answer.hear_server(said)
    down, up, held = said, hello.raw, b""
    by = ledger.now + limits.idle_s
    while not answer.settled:
        command = Send(by, down, up) if down or up else Receive(BOTH, PIECE_BYTES, by)
        event = yield command
        assert isinstance(event, Sent | Received | Failed | Cancelled), f"answered by {event!r}"
        ledger.now, retried = event.now, answer.retried
        if isinstance(event, Sent):
            down, up = down[event.to_client :], up[event.to_upstream :]
            ledger.down += event.to_client
            ledger.up += event.to_upstream
        elif not isinstance(event, Received):
            ledger.up += event.up
            ledger.down += event.down
            yield ledger.end(how_ended(event))
            return None
        elif not event.data:
            if retried and event.side is CLIENT:
                raise HelloRefused("the client ended the tunnel before its second ClientHello did.")
            return b"", b""  # a side that has ended neither asks for a hello nor sends one
        elif event.side is UPSTREAM:
            down = event.data
            answer.hear_server(down)
        else:
            up, held = (b"", held + event.data) if retried else (event.data, b"")
            answer.hear_client(event.data)
        if not retried:
            by = event.now + (limits.hello_s if answer.retried else limits.idle_s)
    return down, up + held


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
