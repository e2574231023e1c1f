"""Heads of HTTP/1.1 requests and answers: bytes to values and back (RFC 9112 §2–§5).

A head is matched once, whole, by one regular expression that never backtracks.  Then the
fields that decide where a message ends or whom it is for are looked at: one of each, in
ASCII.  What goes on keeps the lines that were matched, and is matched again as a whole, so
it always reads as what was meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import msgspec

from proto.codecs.fields import (
    FIELD_LINE,
    FIELDS_MAX,
    HOP_BY_HOP,
    NEVER_DROPPED,
    OPTIONS,
    TCHAR,
    Fields,
    Index,
    index_of,
    options_of,
    print_fields,
    split_fields,
)
from proto.errors import BadAnswer, MalformedRequest, ProxyError

HEAD_MAX_BYTES = 65536
"""The longest head that is read, its empty line included (R30)."""

Version = tuple[int, int]

REQUEST_LINE = rb"(" + TCHAR + rb"++) ([\x21-\x7e]++) HTTP/1\.([01])\r\n"
STATUS_LINE = rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*+))?\r\n"
"""The space before an empty reason phrase may be missing: many servers leave it out, and
no reader takes what follows for anything else (RFC 9112 §4 wants it)."""

_REQUEST = re.compile(REQUEST_LINE + rb"((?:" + FIELD_LINE + rb")*)\r\n")
_ANSWER = re.compile(STATUS_LINE + rb"((?:" + FIELD_LINE + rb")*)\r\n")
_VERSIONS: dict[bytes, Version] = {b"0": (1, 0), b"1": (1, 1)}

_REQUEST_SINGLES = (
    b"host",
    b"content-length",
    b"transfer-encoding",
    b"expect",
    b"proxy-authorization",
)
_ANSWER_SINGLES = (b"content-length", b"transfer-encoding")
_USUAL_OPTIONS = frozenset({b"close", b"keep-alive", b"Keep-Alive"})
_ASCII_ONLY = (*_REQUEST_SINGLES, b"connection", b"upgrade")


class _Head:
    """What both kinds of head can be asked."""

    __slots__ = ()
    _index: Index
    lines: bytes
    _error: ClassVar[type[ProxyError]]
    if TYPE_CHECKING:

        @property
        def fields(self) -> Fields: ...

    def __eq__(self, other: object) -> bool:
        """Compare what two heads say, however their lines were written."""
        return type(other) is type(self) and _said(other) == _said(self)

    __hash__ = None  # type: ignore[assignment]

    def get_all(self, name: bytes) -> list[bytes]:
        """Return the values of a field, whose name is given in small letters."""
        if name not in self._index:
            return []
        if len(self._index) == len(self.fields):
            return [self._index[name]]
        return [value for other, value in self.fields if other.lower() == name]

    def one(self, name: bytes) -> bytes | None:
        """Return a field's only value, or None without one.

        Raises MalformedRequest, or BadAnswer, if the field came more than once.
        """
        value = self._index.get(name)
        if value is None or len(self._index) == len(self.fields):
            return value
        if len(self.get_all(name)) > 1:
            raise self._error(f"the field {name.decode()} came more than once.")
        return value

    def lines_without(self, dropped: frozenset[bytes] = HOP_BY_HOP) -> bytes:
        """Return the field lines as they came, but for those `dropped` or named by `Connection`.

        `Transfer-Encoding` is among HOP_BY_HOP and `Content-Length` isn't: who sends the
        message on frames it anew (`framing_lines`).
        """
        if b"connection" in self._index:
            options = options_of(self.get_all(b"connection"))
            dropped |= (options or frozenset()) - NEVER_DROPPED
        text, index = self.lines or print_fields(self.fields), self._index
        if dropped.isdisjoint(index):
            return text
        lines = text.splitlines(True)
        names: Iterable[bytes] = index
        if len(index) != len(lines):
            names = [name.lower() for name, _ in self.fields]
        return b"".join(
            [line for name, line in zip(names, lines, strict=True) if name not in dropped]
        )


class RequestHead(_Head, msgspec.Struct, frozen=True, eq=False, gc=False):
    """A request's head.  `target` is as it was sent: `proto.codecs.target` reads it."""

    method: str
    target: bytes
    version: Version
    fields: Fields
    _index: Index = {}
    lines: bytes = b""
    """The field lines as they came; none in a head that was made here."""
    _error: ClassVar[type[ProxyError]] = MalformedRequest

    def __post_init__(self) -> None:
        if not self._index:
            msgspec.structs.force_setattr(self, "_index", index_of(self.fields))


class ResponseHead(_Head, msgspec.Struct, frozen=True, eq=False, gc=False):
    """An answer's head.  `status` is 100 to 999."""

    version: Version
    status: int
    reason: bytes
    fields: Fields
    _index: Index = {}
    lines: bytes = b""
    """The field lines as they came; none in a head that was made here."""
    _error: ClassVar[type[ProxyError]] = BadAnswer

    def __post_init__(self) -> None:
        if not self._index:
            msgspec.structs.force_setattr(self, "_index", index_of(self.fields))


def _said(head: object) -> list[object]:
    names: tuple[str, ...] = head.__struct_fields__  # type: ignore[attr-defined]
    return [getattr(head, name) for name in names if name not in ("_index", "lines")]


def parse_request(text: bytes) -> RequestHead | None:
    """Parse a whole request head, its empty line included.

    None if a line is wrong or there are too many (`http1.RequestReader` then says how).
    Raises MalformedRequest (400) where each line is right by itself.
    """
    match = _REQUEST.fullmatch(text)
    if match is None:
        return None
    method, target, minor, lines = match.groups()
    fields, index = split_fields(lines)
    if len(fields) > FIELDS_MAX:
        return None
    head = RequestHead(method.decode(), target, _VERSIONS[minor], fields, index, lines)
    _check_fields(head, _REQUEST_SINGLES, text)
    # Without a Host, a server behind may go by whatever it likes (RFC 9112 §3.2).
    if b"host" not in index and minor == b"1":
        raise MalformedRequest("the request has no Host.")
    if len(index) != len(fields) or index.get(b"connection", b"close") not in _USUAL_OPTIONS:
        _check_options(head)
    if b"content_length" in index or b"transfer_encoding" in index:
        # Gateways of the CGI kind can't tell these names from the ones with a hyphen.
        raise MalformedRequest("a field's name has an underscore for its hyphen.")
    return head


def parse_answer(text: bytes) -> ResponseHead | None:
    """Parse a whole head of an answer, its empty line included.

    None if a line is wrong or there are too many; raises BadAnswer (502) where each line is
    right by itself.
    """
    match = _ANSWER.fullmatch(text)
    if match is None:
        return None
    minor, status, reason, lines = match.groups()
    fields, index = split_fields(lines)
    if len(fields) > FIELDS_MAX:
        return None
    reason = (reason or b"").strip()
    head = ResponseHead(_VERSIONS[minor], int(status), reason, fields, index, lines)
    _check_fields(head, _ANSWER_SINGLES, text)
    return head


def _check_options(head: RequestHead) -> None:
    """Refuse a `Connection` of which two readers could drop different fields."""
    if not OPTIONS.fullmatch(b",".join(head.get_all(b"connection"))):
        raise MalformedRequest("the Connection field is no list of names.")


def _check_fields(
    head: RequestHead | ResponseHead, singles: tuple[bytes, ...], text: bytes
) -> None:
    """Refuse fields that two servers could read differently, whichever kind of head it is."""
    # Of two, one server takes the first and another the last.
    if len(head._index) != len(head.fields):
        for name in singles:
            head.one(name)
    # str.strip() takes 0x85 and 0xa0 off and str.isdigit() takes 0xb2 for a digit: a server
    # that decodes before it looks would see another length or coding.
    if not text.isascii():
        for name in _ASCII_ONLY:
            if not all(map(bytes.isascii, head.get_all(name))):
                raise head._error(f"the field {name.decode()} is not ASCII.")


def write_request(method: str, target: bytes, lines: bytes) -> bytes:
    """Print a request's head in HTTP/1.1; ValueError if it would not read as these parts.

    A slip of ours must not smuggle.  There may be some more fields than are read, for a
    call adds its own.
    """
    word = method.encode()
    text = b"%b %b HTTP/1.1\r\n%b\r\n" % (word, target, lines)
    match = _REQUEST.fullmatch(text)
    if match is None or match.group(1, 2, 4) != (word, target, lines):
        raise ValueError("these parts are no head.")
    small = text.lower()
    if small.count(b"\r\nhost:") != 1:
        raise ValueError("these parts are no head: it needs one Host.")
    _check_framed_once(small)
    return text


def write_response_head(
    status: int, reason: bytes, lines: bytes, version: Version = (1, 1)
) -> bytes:
    """Print an answer's head; ValueError if it would not read as these parts."""
    text = b"HTTP/%d.%d %03d %b\r\n%b\r\n" % (*version, status, reason, lines)
    match = _ANSWER.fullmatch(text)
    if match is None or match.group(3, 4) != (reason, lines) or reason != reason.strip():
        raise ValueError("these parts are no head.")
    _check_framed_once(text.lower())
    return text


def _check_framed_once(small: bytes) -> None:
    """Refuse a head, in small letters, in which more than one field tells the body's length."""
    if small.count(b"\r\ncontent-length:") + small.count(b"\r\ntransfer-encoding:") > 1:
        raise ValueError("these parts are no head: its body is framed twice.")
