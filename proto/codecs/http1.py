"""Readers of HTTP/1.1 heads from a stream that is cut anywhere (RFC 9112).

A reader takes bytes as they come and answers once with the head and the bytes past it.
It looks for the head's end in the new bytes alone and matches each line once as it is
complete, so a head that comes a byte at a time costs no more than its length.  Bytes that
nothing after them could make right are refused at once: a client that speaks another
protocol gets its answer though it waits.  How the stream is cut never changes the outcome,
for the first offence in the stream's own order decides it.

The rest of the codec is offered here too: `fields`, `heads` and `framing` are its parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from proto.codecs.fields import FIELD_LINES, FIELDS_MAX, TCHAR, Field, Fields
from proto.codecs.framing import (
    CHUNKED,
    NONE,
    UNTIL_CLOSE,
    Framing,
    Kind,
    answer_framing,
    expects_continue,
    framing_lines,
    request_framing,
    wants_close,
)
from proto.codecs.heads import (
    HEAD_MAX_BYTES,
    REQUEST_LINE,
    STATUS_LINE,
    RequestHead,
    ResponseHead,
    Version,
    parse_answer,
    parse_request,
    write_request,
    write_response_head,
)
from proto.errors import BadAnswer, HeadTooLarge, MalformedRequest, ProxyError, VersionNotSupported

__all__ = [
    "CHUNKED",
    "HEAD_MAX_BYTES",
    "NONE",
    "UNTIL_CLOSE",
    "AnswerReader",
    "Field",
    "Fields",
    "Framing",
    "Kind",
    "RequestHead",
    "RequestReader",
    "ResponseHead",
    "SectionReader",
    "Version",
    "answer_framing",
    "expects_continue",
    "framing_lines",
    "request_framing",
    "wants_close",
    "write_request",
    "write_response_head",
]

S = TypeVar("S")

_LINE_START = re.compile(TCHAR + rb"|\r")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NO_LINE = re.compile(rb"[^\x20-\x7e]")
_OTHER_VERSION = re.compile(TCHAR + rb"++ [\x21-\x7e]++ HTTP/[0-9]\.[0-9]\r\n")


class SectionReader(Generic[S]):
    """Reads a first line, field lines and an empty line, whatever the first line is."""

    _first: ClassVar[re.Pattern[bytes]]
    """The whole first line."""
    _first_start: ClassVar[re.Pattern[bytes]]
    """What its first byte may be."""
    _first_bad: ClassVar[re.Pattern[bytes]]
    """A byte that it can't hold, CR and LF among them."""
    _parse: Callable[[bytes], S | None]
    """Parses a whole section; None if it is wrong, and then `_check` says how."""

    __slots__ = ("_checked", "_error", "_lines", "_max_bytes", "_text", "_too_large")

    def __init__(
        self, error: type[ProxyError], too_large: type[ProxyError], max_bytes: int
    ) -> None:
        self._error = error
        self._too_large = too_large
        self._max_bytes = max_bytes
        self._text = bytearray()
        self._lines = 0
        """How many lines are whole and right, and where they end."""
        self._checked = 0

    @property
    def started(self) -> bool:
        """Whether any byte has come."""
        return bool(self._text)

    @property
    def room(self) -> int:
        """How many bytes more the section may take; what is fed beyond must lie past it."""
        return self._max_bytes - len(self._text)

    def feed(self, data: bytes) -> tuple[S, bytes] | None:
        """Take bytes; return the section and the bytes past it, None while more are needed.

        The reader must not be fed again once it has answered or raised.
        """
        if not self._text:  # most heads come in one piece, and no copy of them is made
            end = data.find(b"\r\n\r\n", 0, self._max_bytes) + 4
            if end >= 4 and (whole := self._parse(data[:end])) is not None:
                return whole, data[end:]
        seen = len(self._text)
        self._text += data[: self._max_bytes - seen]
        end = self._text.find(b"\r\n\r\n", max(0, seen - 3)) + 4
        if end >= 4 and (whole := self._parse(bytes(self._text[:end]))) is not None:
            return whole, data[end - seen :]
        self._check(seen)
        if len(self._text) == self._max_bytes:
            raise self._too_large(f"the head has more than {self._max_bytes} bytes.")
        return None

    def _check(self, seen: int) -> None:
        """Refuse what nothing after it could make right, in bytes from `seen` on."""
        text = self._text
        if text.find(b"\n", seen) >= 0:
            self._check_lines()
        at = self._checked
        if at < len(text):
            start, bad = (_LINE_START, _CONTROL) if at else (self._first_start, self._first_bad)
            if at >= seen and start.match(text, at) is None:
                raise self._error(f"{self._place()} begins with a byte that no line begins with.")
            found = bad.search(text, max(at, seen - 1))
            if found is not None and text[found.start() :] != b"\r":
                raise self._fault(found.start())

    def _check_lines(self) -> None:
        """Go past the lines that are whole and right."""
        text, start = self._text, self._checked
        if not start:
            first = self._first.match(text)
            if first is None:
                return
            start = first.end()
        fields = FIELD_LINES.match(text, start)
        assert fields is not None, "a pattern of none or more always matches"
        self._lines += text.count(b"\n", self._checked, fields.end())
        self._checked = fields.end()
        if self._lines > FIELDS_MAX + 1:
            raise self._too_large(f"the head has more than {FIELDS_MAX} fields.")

    def _fault(self, at: int) -> ProxyError:
        """Say what is wrong with the line that the bad byte at `at` is in, or ends."""
        where, pair = self._place(), bytes(self._text[at : at + 2])
        if pair == b"\r\n":
            return self._wrong_line(bytes(self._text[self._checked : at + 2]))
        if pair[:1] == b"\r":
            return self._error(f"{where} holds a CR without its LF.")
        if pair[:1] == b"\n":
            return self._error(f"{where} ends in an LF without a CR.")
        return self._error(f"{where} holds a byte that it must not hold.")

    def _wrong_line(self, line: bytes) -> ProxyError:
        """Say what is wrong with a whole line whose bytes are all allowed."""
        return self._error(f"{self._place()} is no field, its colon right behind its name.")

    def _place(self) -> str:
        return f"line {self._lines + 1} of the head"


class RequestReader(SectionReader[RequestHead]):
    """Reads one request's head.

    `feed` raises MalformedRequest (400), VersionNotSupported (505), HeadTooLarge (431).
    """

    _first = re.compile(REQUEST_LINE)
    _first_start = re.compile(TCHAR)
    _first_bad = _NO_LINE
    _parse = staticmethod(parse_request)

    __slots__ = ()

    def __init__(self, max_bytes: int = HEAD_MAX_BYTES) -> None:
        super().__init__(MalformedRequest, HeadTooLarge, max_bytes)

    def _wrong_line(self, line: bytes) -> ProxyError:
        if self._checked:
            return super()._wrong_line(line)
        if _OTHER_VERSION.fullmatch(line):
            return VersionNotSupported("the only versions here are HTTP/1.1 and HTTP/1.0.")
        return MalformedRequest("the first line is no method, target and version.")


class AnswerReader(SectionReader[ResponseHead]):
    """Reads one answer's head; `feed` raises BadAnswer (502)."""

    _first = re.compile(STATUS_LINE)
    _first_start = re.compile(rb"H")
    _first_bad = _CONTROL
    _parse = staticmethod(parse_answer)

    __slots__ = ()

    def __init__(self, max_bytes: int = HEAD_MAX_BYTES) -> None:
        super().__init__(BadAnswer, BadAnswer, max_bytes)
