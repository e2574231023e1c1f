"""A call of a route: one exchange with the bridge that serves it (5.2, R56).

The bridge gets the request as it came, with the path below the route's mount, and three
fields of the proxy's own: `Host: localhost`, `Link-Sandbox`, and `Link-Caller`, by which it
knows the proxy.  Whatever a program sends by a name of that kind is dropped.  What the
bridge answers is the program's, but for its own `Link-` fields: `Link-Refused` says that the
answer is a refusal, and why, for the wire's log.  Where its head has gone before that is known (a
person is still being asked), it stands behind the body, as a trailer.
"""

from __future__ import annotations

import re

from proto.calls.exchange import Exchange
from proto.calls.forward import carry
from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.mounts import Mount, Mounts
from proto.calls.reach import Link
from proto.calls.refuse import end_badly
from proto.calls.rewrite import SAID_ANEW, SAID_ANEW_1_0, Onward, PlainRequest
from proto.codecs.fields import Fields, print_fields, split_fields
from proto.codecs.http1 import Framing, RequestHead, ResponseHead
from proto.commands import CLIENT, Close, Open
from proto.errors import ClientError, ProxyError, Refused, UpstreamError, UpstreamTimeout
from proto.events import Opened
from proto.policy.target import Scope, Target
from proto.script import Script
from proto.verbs.local_model import local_call

OURS = (b"link-", b"link_")
"""What fields of the wire's own begin with; a gateway may read the second as the first."""

REFUSED = b"link-refused"
REASON_MAX_CHARS = 200
_UNPRINTABLE = re.compile(rb"[^\x20-\x7e]")

LOCALHOST = b"localhost"


class BridgeAnswer:
    """What of a bridge's answer is the program's; `refused` is why it refused, or None."""

    __slots__ = ("refused", "status")

    def __init__(self) -> None:
        self.refused: str | None = None
        self.status = 0

    def head(self, head: ResponseHead) -> ResponseHead:
        """Take the wire's own fields out."""
        self.status = head.status
        for name, value in head.fields:
            if name.lower() == REFUSED:
                self.refused = _reason(value)
        return ResponseHead(head.version, head.status, head.reason, without_ours(head.fields))

    def body(self, data: bytes) -> bytes:
        """Pass the body on as it comes."""
        return data

    def end(self) -> bytes:
        """Hold nothing back."""
        return b""

    def read_trailers(self, lines: bytes) -> None:
        """Take what stood behind the body; none of it is the program's."""
        value = split_fields(lines)[1].get(REFUSED)
        if value is not None:
            self.refused = _reason(value)


def _reason(value: bytes) -> str:
    """Return why a bridge refused, as the wire's log has it."""
    return _UNPRINTABLE.sub(b"?", value)[:REASON_MAX_CHARS].decode()


def without_ours(fields: Fields) -> Fields:
    """Return an answer's fields without those that only the wire itself may send."""
    return tuple(each for each in fields if not each[0].lower().startswith(OURS))


def route_call(
    link: Link,
    ledger: Ledger,
    head: RequestHead,
    framing: Framing,
    mount: Mount,
    target: bytes,
    mounts: Mounts,
    limits: Limits,
) -> Script[bool]:
    """Serve one call of a route; tell whether the client may go on."""
    if not mount.bridge:  # it holds nothing, so the proxy serves it itself
        yield from local_call(link, ledger, head, framing, target, limits)
        return False
    answer = BridgeAnswer()
    try:
        request = _for_bridge(head, framing, target, mounts)
        exchange = Exchange(request, link.take_early(), answer)
        yield from link.drop(ledger)
        yield ledger.allow()
        yield from open_bridge(link, ledger, mount, limits)
        yield from _carry(ledger, exchange, answer, limits)
    except ProxyError as error:
        yield from end_badly(ledger, error, limits, head.method)
        return False
    if answer.refused is None:
        yield ledger.end()
    else:
        told = Refused(answer.refused)
        if (pause := ledger.pause(told)) is not None:
            yield pause
        yield ledger.fail(told, answer.status)
    return (yield from _part(link, ledger, exchange, limits))


def _carry(
    ledger: Ledger, exchange: Exchange, answer: BridgeAnswer, limits: Limits
) -> Script[None]:
    """Move the bytes of an exchange with a bridge; raises what `carry` does."""
    try:
        yield from carry(ledger, exchange, limits)
    except ClientError:
        answer.read_trailers(exchange.trailers)
        if answer.refused is None:
            raise
        # Nobody was left to be told; that it was refused is what becomes of the call.
        raise Refused(answer.refused) from None
    answer.read_trailers(exchange.trailers)


def _part(link: Link, ledger: Ledger, exchange: Exchange, limits: Limits) -> Script[bool]:
    """End a route's exchange, and its server's connection; tell whether the client's goes on."""
    if exchange.closing:
        yield Close(CLIENT, ledger.now + limits.grace_s)
        return False
    link.early = exchange.early
    try:
        yield from link.drop(ledger)
    except ProxyError:
        return False  # cancelled, and there is nothing to log
    return True


def open_bridge(link: Link, ledger: Ledger, mount: Mount, limits: Limits) -> Script[None]:
    """Open the upstream side to a route's bridge; UpstreamError (502), UpstreamTimeout (504)."""
    try:
        yield from ledger.ask(Open(mount.bridge, ledger.now + limits.setup_s), Opened)
    except UpstreamTimeout:
        raise UpstreamTimeout(f"what serves {mount.verb} outside took too long.") from None
    except UpstreamError:
        raise UpstreamError(f"what serves {mount.verb} outside could not be started.") from None
    link.upstream = Target(mount.bridge, 0, Scope.INTERNET, literal=False, reads_hello=False)


def _for_bridge(head: RequestHead, framing: Framing, target: bytes, mounts: Mounts) -> PlainRequest:
    """Return a request as its bridge gets it."""
    assert mounts.caller is not None, "routes come with their caller's key"
    ours = (
        (b"Link-Sandbox", mounts.sandbox.encode("ascii", "replace")),
        (b"Link-Caller", mounts.caller.reveal()),
    )
    said_anew = SAID_ANEW if head.version == (1, 1) else SAID_ANEW_1_0
    lines = print_fields(ours) + head.lines_without(said_anew | ours_of(head))
    return PlainRequest(head, Onward(LOCALHOST, target), framing, lines, alone=True)


def ours_of(head: RequestHead) -> frozenset[bytes]:
    """Return the names of a request's fields that only the wire itself may send."""
    return frozenset(name.lower() for name, _ in head.fields if name.lower().startswith(OURS))
