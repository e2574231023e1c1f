"""One connection of a client: its requests one after the other, each judged by itself.

The order of the steps (5.1): a head, the secret, the kill switch and the limit, the route
or the host by name, then the call.  After a refusal the connection closes and nothing
else that came on it is acted on: what follows a refused CONNECT may be meant as a
tunnel's bytes, chosen by somebody else than the program, and must not be read as a
request.  Only a 407 keeps the connection, for clients that send the secret when they are asked.
"""

from __future__ import annotations

from proto.calls.connect import connect_call
from proto.calls.forward import forward_call
from proto.calls.gate import pass_gate
from proto.calls.ledger import Ledger
from proto.calls.limits import DRAIN_MAX_BYTES, Limits
from proto.calls.reach import Link
from proto.calls.refuse import answer_for, end_badly
from proto.calls.rewrite import PlainRequest
from proto.calls.route import route_call
from proto.calls.ways import PLAIN, Ways
from proto.codecs.body import BodyReader
from proto.codecs.http1 import (
    Framing,
    RequestHead,
    RequestReader,
    expects_continue,
    request_framing,
    wants_close,
)
from proto.codecs.target import (
    AbsoluteTarget,
    AsteriskTarget,
    ConnectTarget,
    OriginTarget,
    RequestTarget,
    read_target,
)
from proto.commands import CLIENT, UPSTREAM, Close, Receive, Send
from proto.errors import AuthenticationRequired, MalformedRequest, NoSuchRoute, ProxyError
from proto.events import NO_RESULT, Cancelled, Failed, Received, Sent
from proto.policy.hosts import Policy, Target
from proto.script import Script, error_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proto.policy.secret import Secret  # brings hashlib, which a wire without one never needs

HEARD = Received, *NO_RESULT
OUTWARD = ConnectTarget, AbsoluteTarget
"""For `isinstance`, as NO_RESULT is."""


def serve_connection(
    policy: Policy, limits: Limits, secret: Secret | None, now: float, ways: Ways = PLAIN
) -> Script[None]:
    """Serve one client's connection from its first byte to its end."""
    link = Link(exit=ways.exit, cures=ways.cures)
    ledger = Ledger(now, admission=ways.admission)
    wait_s = limits.head_s
    while (yield from serve_request(link, ledger, policy, limits, secret, ways, wait_s)):
        ledger = Ledger(ledger.now, admission=ways.admission)
        wait_s = limits.keepalive_s


def serve_request(
    link: Link,
    ledger: Ledger,
    policy: Policy,
    limits: Limits,
    secret: Secret | None,
    ways: Ways,
    wait_s: float,
) -> Script[bool]:
    """Serve the next request, if one comes within `wait_s`; tell whether another may follow."""
    method = ""
    try:
        head = yield from read_head(link, ledger, limits, wait_s)
        if head is None:
            return False
        method = head.method
        framing, wanted = request_framing(head), read_target(head)
        waits = expects_continue(head)  # any other expectation is refused, never passed on
        name_call(ledger, wanted)
        if secret is not None and not may_go_out(head, wanted, secret):
            keep = not waits and not wants_close(head)
            return (yield from ask_for_secret(link, ledger, head.method, framing, limits, keep))
        yield from pass_gate(ledger)
        if isinstance(wanted, OriginTarget):
            mount, path = ways.mounts.find(wanted.path)
        else:
            target = admit(policy, wanted)
    except ProxyError as error:
        yield from end_badly(ledger, error, limits, method)
        return False
    if isinstance(wanted, OriginTarget):
        ledger.verb, ledger.host, ledger.port = mount.verb, mount.host, mount.port
        return (
            yield from route_call(link, ledger, head, framing, mount, path, ways.mounts, limits)
        )
    if isinstance(wanted, AbsoluteTarget):
        request = PlainRequest(head, wanted, framing)
        return (yield from forward_call(link, ledger, request, target, limits))
    yield from connect_call(link, ledger, target, limits)
    return False


def read_head(
    link: Link, ledger: Ledger, limits: Limits, wait_s: float
) -> Script[RequestHead | None]:
    """Read one request's head (RFC 9112 §2–§5); None where the client says nothing.

    Takes at most HEAD_MAX_BYTES, within `head_s` of the first; bytes past the head stay in
    `link.early`.  Raises MalformedRequest (400), HeadTooLarge (431), VersionNotSupported
    (505), RequestTimeout (408), ClientError when the client broke off.
    """
    reader = RequestReader()
    found = reader.feed(link.early) if link.early else None
    by = ledger.now + (limits.head_s if reader.started else wait_s)
    while found is None:
        event = yield from _hear_client(link, reader.room, by)
        ledger.now = event.now
        match event:
            case Received(data=data) if data:
                by = by if reader.started else event.now + limits.head_s
                found = reader.feed(data)
            case Received() if reader.started:
                raise MalformedRequest("the request ended inside its head.")
            case Failed() | Cancelled() if reader.started:
                raise error_for(Receive((CLIENT,), reader.room, by), event)
            case _:
                return None
    head, link.early = found
    ledger.began = ledger.now
    return head


def _hear_client(link: Link, limit: int, by: float) -> Script[Received | Failed | Cancelled]:
    """Wait for the client, and watch the server's connection that the last request left open.

    Where that server ends it, or speaks unasked (a 408; or an answer that the next
    request would be given), nothing more is sent there.
    """
    while True:
        sides = (UPSTREAM, CLIENT) if link.upstream else (CLIENT,)
        event = yield Receive(sides, limit, by)
        assert isinstance(event, HEARD), f"Receive answered by {event!r}"
        if isinstance(event, Cancelled) or event.side is not UPSTREAM:
            return event
        link.upstream = None
        closed = yield Close(UPSTREAM, event.now)
        if isinstance(closed, Cancelled):
            return closed


def name_call(ledger: Ledger, wanted: RequestTarget) -> None:
    """Write into the ledger what a request is for."""
    if isinstance(wanted, OUTWARD):
        ledger.verb = "connect" if isinstance(wanted, ConnectTarget) else "http"
        ledger.host, ledger.port = wanted.host, wanted.port


def may_go_out(head: RequestHead, wanted: RequestTarget, secret: Secret) -> bool:
    """Tell whether a request holds the secret, or doesn't go out and so needs none.

    Raises MalformedRequest (400) for two `Proxy-Authorization`s.
    """
    if isinstance(wanted, OriginTarget | AsteriskTarget):
        return True
    return secret.opens(head.one(b"proxy-authorization"))


def admit(policy: Policy, wanted: RequestTarget) -> Target:
    """Judge by name alone what a request is for; Refused (403), NoSuchRoute (404)."""
    if isinstance(wanted, ConnectTarget):
        return policy.admit(wanted.host, wanted.port, "connect")
    if isinstance(wanted, AbsoluteTarget):
        return policy.admit(wanted.host, wanted.port, "http")
    raise NoSuchRoute("this is a proxy, and there is nothing at this path of its own.")


def ask_for_secret(
    link: Link, ledger: Ledger, method: str, framing: Framing, limits: Limits, keep: bool
) -> Script[bool]:
    """Answer 407 and keep the connection, where the request's body is short enough to skip.

    Java, Maven and git send the secret only once they are asked, on the same connection.
    `keep` is False for a client that waits for a 100: it may or may not send its body
    after this answer, and which can't be told.
    """
    error = AuthenticationRequired("this proxy wants its secret: use HTTPS_PROXY as it is set.")
    yield ledger.fail(error, AuthenticationRequired.status_hint)
    keep = keep and framing.length <= DRAIN_MAX_BYTES
    words = answer_for(error, method, keep=keep)
    try:
        yield from ledger.ask(Send(ledger.now + limits.grace_s, words), Sent)
        if keep and (yield from _skip_body(link, ledger, framing, limits)):
            return True
    except ProxyError:
        return False  # the last line is written, and there is nobody to answer
    yield Close(CLIENT, ledger.now + limits.grace_s)
    return False


def _skip_body(link: Link, ledger: Ledger, framing: Framing, limits: Limits) -> Script[bool]:
    """Read a body and drop it; False if it is too long."""
    body = BodyReader(framing, MalformedRequest)
    body.feed(link.early)
    left, by = DRAIN_MAX_BYTES, ledger.now + limits.head_s
    while not body.done and left > 0:
        piece = yield from ledger.ask(Receive((CLIENT,), left, by), Received)
        if not piece.data:
            return False
        left -= len(piece.data)
        body.feed(piece.data)
    link.early = body.rest
    return body.done
