"""How long a message's body is (RFC 9112 §6), with nothing left to a reader's choice.

Where the RFC lets a recipient repair (a list of equal lengths, a length beside a coding),
this refuses: the server behind might repair it otherwise, and what is a body to one would
be a second request to the other.
"""

from __future__ import annotations

import re
from enum import Enum

import msgspec

from proto.codecs.fields import options_of
from proto.codecs.heads import RequestHead, ResponseHead
from proto.errors import BadAnswer, ExpectationFailed, MalformedRequest, NotImplementedHere


class Kind(Enum):
    """The four ways in which a body can end."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


class Framing(msgspec.Struct, frozen=True, gc=False):
    """How a body ends; `length` is its bytes where the kind is LENGTH."""

    kind: Kind
    length: int = 0


NONE = Framing(Kind.NONE)
CHUNKED = Framing(Kind.CHUNKED)
UNTIL_CLOSE = Framing(Kind.UNTIL_CLOSE)

LENGTH_MAX = 2**63 - 1
"""The largest length that every server's signed 64 bits hold."""

_LENGTH = re.compile(rb"0|[1-9][0-9]{0,18}")


def request_framing(head: RequestHead) -> Framing:
    """Return the framing of a request's body (RFC 9112 §6.3).

    A CONNECT has no body, and a GET may have one (RFC 9110 §9.3).  Raises MalformedRequest
    (400), NotImplementedHere (501) for a transfer coding other than `chunked`.
    """
    coding, length = head.one(b"transfer-encoding"), _length_of(head)
    if coding is None:
        if head.method != "CONNECT":
            return NONE if length is None else Framing(Kind.LENGTH, length)
        if length:
            raise MalformedRequest("a CONNECT has no body.")
        return NONE
    if length is not None:
        raise MalformedRequest("the request has both a length and a transfer coding.")
    if head.version == (1, 0) or head.method == "CONNECT":
        raise MalformedRequest("a request in HTTP/1.0, and a CONNECT, has no transfer coding.")
    # Not even `chunked` last in a list: who knows only the first would frame it otherwise.
    if coding.lower() != b"chunked":
        raise NotImplementedHere("the only transfer coding here is chunked.")
    return CHUNKED


def answer_framing(head: ResponseHead, method: str) -> Framing:
    """Return the framing of an answer's body to a request of this method (RFC 9112 §6.3).

    What 1xx, 204, 304 and answers to HEAD say of a body is checked too, though they have
    none.  Raises BadAnswer (502) on whatever two clients could read differently.
    """
    coding, length = head.one(b"transfer-encoding"), _length_of(head)
    if coding is not None:
        if length is not None:
            raise BadAnswer("the server's answer has both a length and a transfer coding.")
        if coding.lower() != b"chunked" or head.version == (1, 0):
            raise BadAnswer("the transfer coding of the server's answer is not chunked.")
    if method == "HEAD" or head.status < 200 or head.status in (204, 304):
        return NONE
    if coding is not None:
        return CHUNKED
    return UNTIL_CLOSE if length is None else Framing(Kind.LENGTH, length)


def framing_lines(framing: Framing) -> bytes:
    """Print the field that tells a receiver of this framing, if one does."""
    if framing.kind is Kind.LENGTH:
        return b"Content-Length: %d\r\n" % framing.length
    return b"Transfer-Encoding: chunked\r\n" if framing.kind is Kind.CHUNKED else b""


def wants_close(head: RequestHead | ResponseHead) -> bool:
    """Tell whether the sender's connection ends with this message (RFC 9112 §9.3).

    In HTTP/1.0 always: a proxy must not honour a client's `keep-alive` there.
    """
    values = head.get_all(b"connection")
    if not values or head.version == (1, 0):
        return head.version == (1, 0)
    options = options_of(values)
    return options is None or b"close" in options


def expects_continue(head: RequestHead) -> bool:
    """Tell whether the client waits for a 100 before its body (RFC 9110 §10.1.1).

    Raises ExpectationFailed (417) for any other expectation.  In HTTP/1.0 it says nothing.
    """
    expected = head.one(b"expect")
    if expected is None:
        return False
    if expected.lower() != b"100-continue":
        raise ExpectationFailed("the only expectation here is 100-continue.")
    return head.version == (1, 1)


def _length_of(head: RequestHead | ResponseHead) -> int | None:
    """Return a message's `Content-Length`, None without one.

    One plain number: int() would take a sign, an underscore and other scripts' digits, some
    servers an octal, the first of a list, or what is left of a number that wraps round.
    """
    value = head.one(b"content-length")
    if value is None:
        return None
    if _LENGTH.fullmatch(value) is None or (length := int(value)) > LENGTH_MAX:
        error = MalformedRequest if isinstance(head, RequestHead) else BadAnswer
        raise error("the Content-Length is not one plain number.")
    return length
