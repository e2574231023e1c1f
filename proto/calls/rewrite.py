"""Heads as the next hop gets them: a request in origin form, an answer for its client.

Fields that concern one connection stay on it (RFC 9110 §7.6.1), `Host` is the canonical
host that was checked, and the body's framing is said anew.  No `Via` is added, which
RFC 9110 §7.6.3 asks for: it would tell every server that the program is confined.
"""

from __future__ import annotations

import msgspec

from proto.codecs.fields import HOP_BY_HOP, options_of, print_fields
from proto.codecs.http1 import (
    CHUNKED,
    UNTIL_CLOSE,
    Framing,
    Kind,
    RequestHead,
    ResponseHead,
    framing_lines,
    write_request,
    write_response_head,
)
from proto.codecs.target import AbsoluteTarget
from proto.errors import MalformedRequest

COUNTED = frozenset({"OPTIONS", "TRACE"})
"""The methods whose `Max-Forwards` says how many proxies may pass them on (RFC 9110 §7.6.2)."""
MAX_FORWARDS = b"max-forwards"
FORWARDS_MOST = 255
"""The most that is passed on; no chain of proxies is longer."""
UNTRACED = frozenset({b"authorization", b"cookie", b"proxy-authorization"})
ALLOWED = b"CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, TRACE"

CLOSE = b"Connection: close\r\n"
WEBSOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
FRAMED_ANEW = HOP_BY_HOP | {b"content-length"}
SAID_ANEW = FRAMED_ANEW | {b"host"}
SAID_ANEW_1_0 = SAID_ANEW | {b"expect"}
"""In HTTP/1.0 an expectation means nothing (RFC 9110 §10.1.1)."""


class Onward(msgspec.Struct, frozen=True, gc=False):
    """Where a route's request goes on to: the `Host` there, and the path and query."""

    authority: bytes
    origin_form: bytes


class PlainRequest(msgspec.Struct, frozen=True, gc=False):
    """A request for an `http://` URL or a route: its head, what it is for, how its body ends.

    `lines`: the field lines that go on, where they aren't the head's own.  `alone`: the
    server's connection carries this request and no other, and never becomes a WebSocket.
    `last`: so does the client's.
    """

    head: RequestHead
    url: AbsoluteTarget | Onward
    framing: Framing
    lines: bytes | None = None
    alone: bool = False
    last: bool = False


def request_for_server(request: PlainRequest, *, upgrade: bool, last: bool) -> bytes:
    """Print a request's head for its server.

    `upgrade`: ask for a WebSocket.  `last`: no other request will come.
    """
    head, url = request.head, request.url
    connection = WEBSOCKET if upgrade else CLOSE if last or request.alone else b""
    kept = request.lines
    if kept is None:
        kept = _lines_of(head)
    lines = (
        b"Host: %b\r\n" % url.authority,
        kept,
        framing_lines(request.framing),
        connection,
    )
    return write_request(head.method, url.origin_form, b"".join(lines))


def _lines_of(head: RequestHead) -> bytes:
    """Return the field lines that go on, one forward fewer among them where they are counted."""
    said_anew = SAID_ANEW if head.version == (1, 1) else SAID_ANEW_1_0
    left = forwards_left(head)
    if left is None:
        return head.lines_without(said_anew)
    return head.lines_without(said_anew | {MAX_FORWARDS}) + b"Max-Forwards: %d\r\n" % (left - 1)


def forwards_left(head: RequestHead) -> int | None:
    """Return how many proxies may still pass a request on, None for any number.

    Other methods than OPTIONS and TRACE aren't counted.  Raises MalformedRequest (400) for what
    is no number, or two: the next proxy could read another one.
    """
    if head.method not in COUNTED:
        return None
    text = head.one(MAX_FORWARDS)
    if text is None:
        return None
    if not text.isdigit():
        raise MalformedRequest("Max-Forwards is no number.")
    digits = text.lstrip(b"0")
    return FORWARDS_MOST if len(digits) > 3 else min(int(digits or b"0"), FORWARDS_MOST)


def answer_here(head: RequestHead) -> bytes:
    """Print the whole answer to an OPTIONS or a TRACE that may be passed on no further.

    A TRACE gets its own request back, but for what would show a login (RFC 9110 §9.3.8).
    """
    fields: tuple[tuple[bytes, bytes], ...] = ((b"Allow", ALLOWED),)
    body = b""
    if head.method == "TRACE":
        # A body, not a request of ours: it is as it came, without a Host where none did.
        kept = head.lines_without(UNTRACED)
        line = b"TRACE %b HTTP/%d.%d\r\n" % (head.target, *head.version)
        body = line + kept + b"\r\n"
        fields = ((b"Content-Type", b"message/http"),)
    fields += (b"Content-Length", b"%d" % len(body)), (b"Connection", b"close")
    return write_response_head(200, b"OK", print_fields(fields)) + body


def answer_for_client(head: ResponseHead, framing: Framing, *, last: bool) -> bytes:
    """Print an answer's head for its client; `framing` is how its body goes on from here.

    `last`: the client's connection ends with it.
    """
    # RFC 9110 §8.6: no Content-Length in a 1xx or a 204, where it could only mislead.
    # In an answer to HEAD, and in a 304, it tells of another answer and stays.
    bare = framing.kind is Kind.NONE and head.status >= 200 and head.status != 204
    kept = head.lines_without(HOP_BY_HOP if bare else FRAMED_ANEW)
    lines = kept + framing_lines(framing) + (CLOSE if last else b"")
    return write_response_head(head.status, head.reason, lines)


def switch_for_client(head: ResponseHead) -> bytes:
    """Print the 101 by which both sides go over to a WebSocket (RFC 6455 §4.2.2)."""
    lines = head.lines_without(FRAMED_ANEW) + WEBSOCKET
    return write_response_head(head.status, head.reason, lines)


def framing_for_client(framing: Framing, *, chunks: bool) -> Framing:
    """Return how an answer's body goes on to the client.

    A body that ends with its connection is chunked, so that the client can tell a whole
    one from one that was cut.  To HTTP/1.0 (no `chunks`) only the connection's own end can
    tell (see `proto.calls.refuse.end_badly`).
    """
    if framing.kind in (Kind.NONE, Kind.LENGTH):
        return framing
    return CHUNKED if chunks else UNTIL_CLOSE


def asks_for_websocket(head: RequestHead, framing: Framing) -> bool:
    """Tell whether a request asks to become a WebSocket (RFC 6455 §4.1).

    With a body, in HTTP/1.0, or where `Connection` doesn't list it, `Upgrade` is
    dropped: what a server may ignore must not be able to hide bytes (RFC 9110 §7.8).
    """
    return (
        _lists(head.get_all(b"upgrade"), b"websocket")
        and _lists(head.get_all(b"connection"), b"upgrade")
        and head.method == "GET"
        and head.version == (1, 1)
        and framing.kind is Kind.NONE
    )


def became_websocket(head: ResponseHead) -> bool:
    """Tell whether a 101 switches to a WebSocket and to nothing else."""
    upgrade = [value.lower() for value in head.get_all(b"upgrade")]
    return upgrade == [b"websocket"] and _lists(head.get_all(b"connection"), b"upgrade")


def _lists(values: list[bytes], option: bytes) -> bool:
    return bool(values) and option in (options_of(values) or ())
