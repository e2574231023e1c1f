"""Bodies of HTTP/1.1 messages: a stream of bytes to payload, and back (RFC 9112 §7).

Nothing of a body is kept: what comes in is handed out, so memory is bounded by what is
fed and by one line.  Chunk extensions and trailers are read as strictly as fields.  Then
extensions are dropped, and trailers stand apart from the payload and from the head's fields:
none may become a field behind our back (RFC 9110 §6.5.1).
"""

from __future__ import annotations

import re

from proto.codecs.fields import FIELD_LINES, FIELDS_MAX, TCHAR, Fields, print_fields
from proto.codecs.framing import LENGTH_MAX, Framing, Kind
from proto.codecs.heads import HEAD_MAX_BYTES
from proto.codecs.http1 import SectionReader
from proto.errors import ProxyError

LAST_CHUNK = b"0\r\n\r\n"
"""What ends a chunked body that has no trailers."""

CHUNK_LINE_MAX_BYTES = 1024
"""The longest line before a chunk, extensions and line endings included.  The longest in
use, a storage service's signature of each chunk, is under 200."""

_EXTENSION = (
    rb";"
    + TCHAR
    + rb"++(?:=(?:"
    + TCHAR
    + rb'++|"(?:[\t \x21\x23-\x5b\x5d-\x7e]|\\[\t\x20-\x7e])*"))?'
)
_SIZE_LINE = rb"([0-9A-Fa-f]{1,16}+)(?:" + _EXTENSION + rb")*\r\n"
_SIZE_BEGUN = rb"(?:[0-9A-Fa-f]{1,16}+(?:;[\t\x20-\x7e]*+)?\r?+)?"

_FIRST = re.compile(_SIZE_LINE), re.compile(_SIZE_BEGUN)
_NEXT = re.compile(rb"\r\n" + _SIZE_LINE), re.compile(rb"(?:\r(?:\n" + _SIZE_BEGUN + rb")?)?")
"""The line before a chunk, whole and begun; behind a chunk, the end of its data first."""


def chunk(data: bytes) -> bytes:
    """Print one chunk; `data` must not be empty, for that would end the body."""
    assert data, "an empty chunk ends a body"
    return b"%x\r\n%b\r\n" % (len(data), data)


def last_chunk(trailers: Fields) -> bytes:
    """Print what ends a chunked body, with trailers; ValueError for one that is no field."""
    return b"0\r\n%b\r\n" % print_fields(trailers)


class BodyReader:
    """Reads one body from a stream; malformed bytes raise `error`.

    `done` tells that it was read to its end, `rest` holds the bytes that came behind it.
    `trailers`: the field lines behind its last chunk, as they came; nobody passes them on.
    """

    __slots__ = ("_chunks", "_error", "_kind", "_left", "done", "rest", "trailers")

    def __init__(self, framing: Framing, error: type[ProxyError]) -> None:
        self._kind = framing.kind
        self._left = framing.length
        self._error = error
        self._chunks = _ChunkedReader(error) if framing.kind is Kind.CHUNKED else None
        self.done = framing.length == 0 and framing.kind in (Kind.NONE, Kind.LENGTH)
        self.rest = self.trailers = b""

    @property
    def needs_eof(self) -> bool:
        """Whether only the end of the stream ends this body."""
        return self._kind is Kind.UNTIL_CLOSE

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the payload among them, in pieces that are never empty."""
        if self.done:
            self.rest += data
            return []
        if self._chunks is not None:
            pieces = self._chunks.feed(data)
            self.done, self.rest = self._chunks.done, self._chunks.rest
            self.trailers = self._chunks.trailers
            return pieces
        if self.needs_eof:
            return [data] if data else []
        piece, self.rest = data[: self._left], data[self._left :]
        self._left -= len(piece)
        self.done = not self._left
        return [piece] if piece else []

    def ended(self) -> None:
        """Take the end of the stream in good order; raise `error` if it cuts the body short.

        A reset is no such end: after one a body that needs it is cut, and must look so.
        """
        if self.needs_eof:
            self.done = True
        if not self.done:
            raise self._error("the connection closed before the end of the body.")


class _ChunkedReader:
    """The chunked coding (RFC 9112 §7.1): size lines, data, then trailers."""

    __slots__ = (
        "_begun", "_error", "_held", "_left", "_line", "_trailers", "done", "rest", "trailers",
    )  # fmt: skip

    def __init__(self, error: type[ProxyError]) -> None:
        self._error = error
        self._line, self._begun = _FIRST
        self._held = b""
        self._left = 0
        self._trailers: _TrailerReader | None = None
        self.done = False
        self.rest = self.trailers = b""

    def feed(self, data: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        at = 0
        while at < len(data) and self._trailers is None:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                self._left -= len(piece)
                at += len(piece)
            else:
                at = self._read_line(data, at)
        if self._trailers is not None:
            read = self._trailers.feed(data[at:])
            if read is not None:
                self.done, (self.trailers, self.rest) = True, read
        return pieces

    def _read_line(self, data: bytes, at: int) -> int:
        """Read the line before a chunk, or what there is of it; return where it ends."""
        held = len(self._held)
        text = self._held + data[at : at + CHUNK_LINE_MAX_BYTES - held]
        match = self._line.match(text)
        if match is None:
            # A size in another notation, a bare CR or LF, or data past its size: where a
            # lax reader sees a chunk's end elsewhere, it sees another request behind it.
            if len(text) == CHUNK_LINE_MAX_BYTES or self._begun.fullmatch(text) is None:
                raise self._error("the line before a chunk of the body is malformed.")
            self._held = text
            return len(data)
        self._held = b""
        self._line, self._begun = _NEXT
        self._left = int(match[1], 16)
        if self._left > LENGTH_MAX:
            raise self._error("a chunk of the body is too large.")
        if not self._left:
            self._trailers = _TrailerReader(self._error, self._error, HEAD_MAX_BYTES)
            self._trailers.feed(b"\r\n")
        return at + match.end() - held


def _parse_trailers(text: bytes) -> bytes | None:
    """Return trailers that are right, between the CRLF before them and their empty line."""
    right = FIELD_LINES.fullmatch(text, 2, len(text) - 2)
    return text[2:-2] if right and text.count(b"\n") <= FIELDS_MAX + 2 else None


class _TrailerReader(SectionReader[bytes]):
    """Reads trailers up to the empty line, from the CRLF of the last chunk's line on."""

    _first = re.compile(rb"\r\n")
    _first_start = re.compile(rb"\r")
    _first_bad = re.compile(rb"[^\r]")
    _parse = staticmethod(_parse_trailers)

    __slots__ = ()
