"""A plain `http://` request by way of the proxy: one exchange with its server (RFC 9112 §3.2.2).

The server's connection is kept for the next request to the same host and port on the
same client's connection, and for nothing else.
"""

from __future__ import annotations

from proto.calls.connect import join
from proto.calls.exchange import Exchange
from proto.calls.ledger import Ledger
from proto.calls.limits import PIECE_BYTES, Limits
from proto.calls.reach import Link, open_upstream
from proto.calls.refuse import end_badly, send_due
from proto.calls.rewrite import PlainRequest, answer_here, forwards_left
from proto.codecs.http1 import RequestHead
from proto.commands import CLIENT, UPSTREAM, Close, Receive, Send
from proto.errors import (
    CallCancelled,
    ClientError,
    ProxyError,
    UpstreamError,
    UpstreamTimeout,
)
from proto.events import Cancelled, Failed, Reason, Received, Sent
from proto.policy.hosts import Target
from proto.script import Script, error_for


def forward_call(
    link: Link, ledger: Ledger, request: PlainRequest, target: Target, limits: Limits
) -> Script[bool]:
    """Serve one request whose target was admitted by name; tell whether the client may go on."""
    try:
        if forwards_left(request.head) == 0:
            yield from _answer_here(ledger, request.head, limits)
            return False
        exchange = Exchange(request, link.take_early())
        if exchange.repeatable and link.upstream == target:
            yield ledger.allow()
            try:
                yield from carry(ledger, exchange, limits)
            except UpstreamError as error:
                if not was_stale(exchange, error):
                    raise
                exchange = Exchange(request, exchange.early)
                yield from _over_new(link, ledger, exchange, target, limits)
        else:
            yield from _over_new(link, ledger, exchange, target, limits)
    except ProxyError as error:
        yield from end_badly(ledger, error, limits, request.head.method)
        return False
    if exchange.switched:
        yield from join(ledger, exchange.to_client, exchange.to_upstream, limits)
        return False
    yield ledger.end()
    if exchange.closing:
        yield Close(CLIENT, ledger.now + limits.grace_s)
        return False
    link.early = exchange.early
    return exchange.reusable or (yield from _drop(link, ledger))


def _answer_here(ledger: Ledger, head: RequestHead, limits: Limits) -> Script[None]:
    """Answer what must not be passed on, in its server's place, and close (RFC 9110 §7.6.2)."""
    yield ledger.allow()
    by = ledger.now + limits.grace_s
    ledger.answered, ledger.due = True, answer_here(head)
    while ledger.due:
        event = yield from send_due(ledger, by)
        if isinstance(event, Failed) and event.reason is Reason.TIMED_OUT:
            raise ClientError("the client stopped reading.")
        if not isinstance(event, Sent):
            raise error_for(Send(by, answer_here(head)), event)
    yield ledger.end()
    yield Close(CLIENT, by)


def was_stale(exchange: Exchange, error: UpstreamError) -> bool:
    """Tell whether a kept connection had been closed before the request reached its server.

    A server may close an idle connection just as a request goes out.  Only a request
    that asks for nothing to be done takes that risk, for it is then sent twice
    (RFC 9112 §9.3.1).
    """
    return not exchange.heard and not isinstance(error, UpstreamTimeout)


def _over_new(
    link: Link, ledger: Ledger, exchange: Exchange, target: Target, limits: Limits
) -> Script[None]:
    yield from open_upstream(link, ledger, target, ledger.now + limits.setup_s)
    if said := link.take_said():
        exchange.hear(UPSTREAM, said)
    yield from carry(ledger, exchange, limits)


def _drop(link: Link, ledger: Ledger) -> Script[bool]:
    """Close the server's connection between two calls; False if cancelled meanwhile."""
    try:
        yield from link.drop(ledger)
    except CallCancelled:
        return False  # there is nothing to log
    return True


def carry(ledger: Ledger, exchange: Exchange, limits: Limits) -> Script[None]:
    """Move an exchange's bytes until it is over.

    Raises what `Exchange.hear` does, RequestTimeout (408), ClientError, UpstreamError
    (502), UpstreamTimeout (504), CallCancelled (503).
    """
    speaks = False
    try:
        while not exchange.over:
            by, sides = ledger.now + limits.idle_s, exchange.listening
            down, up = exchange.to_client, exchange.to_upstream
            command: Send | Receive
            if speaks or not (down or up):
                command, speaks = Receive(sides, PIECE_BYTES, by), False
            else:
                command = Send(by, down, up, sides)
            event = yield command
            ledger.now = event.now
            if isinstance(event, Received):
                exchange.hear(event.side, event.data)
            elif isinstance(event, Sent):
                assert isinstance(command, Send), f"{command!r} answered by {event!r}"
                _note_sent(ledger, exchange, event.to_client, event.to_upstream)
                # A side that was heeded speaks where neither buffer has gone whole.
                whole = (down and not exchange.to_client) or (up and not exchange.to_upstream)
                speaks = not whole and bool(sides)
            else:
                assert isinstance(event, Failed | Cancelled), f"{command!r} answered by {event!r}"
                _take_failure(ledger, exchange, command, event)
            del event  # what it brought is the exchange's now, and mustn't be held twice
    finally:
        ledger.answered, ledger.due = exchange.answered, exchange.to_client
        ledger.until_close = exchange.until_close


def _take_failure(
    ledger: Ledger, exchange: Exchange, command: Send | Receive, event: Failed | Cancelled
) -> None:
    """Take what has gone, and raise what went wrong.

    A server that reads no more of a request may have answered it first (413, 401), and
    then closed: what it said can still be read.
    """
    _note_sent(ledger, exchange, event.down, event.up)
    if isinstance(event, Cancelled):
        raise CallCancelled(event.cause)
    if isinstance(command, Send) and event.reason is not Reason.TIMED_OUT:
        upstream = event.side is UPSTREAM if event.side else not command.to_client
        if upstream:
            exchange.stop_upload()
            return
    raise _error_of(command, event, exchange)


def _note_sent(ledger: Ledger, exchange: Exchange, down: int, up: int) -> None:
    exchange.sent(down, up)
    ledger.down += down
    ledger.up += up


def _error_of(command: Send | Receive, event: Failed, exchange: Exchange) -> ProxyError:
    """Return the error for a failure; whose lateness it was is told by what was waited for."""
    if event.reason is not Reason.TIMED_OUT:
        error = error_for(command, event)
        if isinstance(error, UpstreamError):
            return UpstreamError(f"the server broke the connection off: {event.reason.value}.")
        return error
    if exchange.to_client:
        return ClientError("the client stopped reading.")
    if exchange.to_upstream:
        return UpstreamTimeout("the server stopped reading.")
    if exchange.whole:
        return UpstreamTimeout("the server did not answer in time.")
    return error_for(command, event)
