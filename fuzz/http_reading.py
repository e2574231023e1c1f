"""HTTP/1.1 as a lenient reader takes it: what a server or a client makes of our bytes.

Written apart from the product's own codec, so that one mistake can't hide the other.
Here a bare LF ends a line, and most things pass; `tidy` says whether a strict reader
would have read the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

_TIDY = re.compile(
    rb"[!-~]+ [!-~]+ [\t -~\x80-\xff]*\r\n"
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*\r\n"
)
_HEAD_END = re.compile(rb"\n\r?\n")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[^\r\n]*)?\r?\n")

Wait = Generator[None, None, None]


@dataclass(slots=True)
class Message:
    """One request or answer, as far as it has come.

    `words` are the first line's three, `fields` have their names in small letters.
    `framing` is none, length, chunked, close (up to the connection's end) or tunnel.
    """

    words: tuple[bytes, bytes, bytes]
    fields: list[tuple[str, str]]
    tidy: bool
    framing: str = "none"
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False

    @property
    def status(self) -> int:
        """An answer's status; 0 where it is no number."""
        return int(self.words[1]) if self.words[1].isdigit() else 0

    def values(self, name: str) -> list[str]:
        """Return a field's values, one a line."""
        return [value for key, value in self.fields if key == name]


class Reader:
    """Reads messages off one direction of a connection; `framing` judges each head.

    `broken` says why reading ended early; `rest` are bytes that belong to no message: a
    tunnel's, a message's that hasn't come whole, or those that could not be read.
    """

    def __init__(self, framing: Callable[[Message], str]) -> None:
        self._framing = framing
        self._buffer = bytearray()
        self._seen = 0
        self.messages: list[Message] = []
        self.broken = ""
        self._steps = self._read()
        next(self._steps)

    @property
    def rest(self) -> bytes:
        """The bytes that belong to no message."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> bool:
        """Take bytes; tell whether at least one message is complete by now."""
        self._buffer += data
        next(self._steps)
        return any(message.complete for message in self.messages)

    def end(self) -> None:
        """Note that the connection has ended in good order."""
        if self.messages and self.messages[-1].framing == "close":
            self.messages[-1].complete = True

    def _read(self) -> Wait:
        while not self.broken:
            size = yield from self._until_head()
            message = parse_head(self._take(size))
            message.framing = self._framing(message)
            self.messages.append(message)
            yield from self._body(message)
        while True:
            yield

    def _body(self, message: Message) -> Wait:
        match message.framing:
            case "length":
                yield from self._sized(message, content_length(message))
            case "chunked":
                yield from self._chunks(message)
            case "close":
                while True:
                    message.body += self._take(len(self._buffer))
                    yield
            case "tunnel":
                self.broken = "no HTTP follows"
        message.complete = self.broken in ("", "no HTTP follows")

    def _until_head(self) -> Generator[None, None, int]:
        while (end := _HEAD_END.search(self._buffer, self._seen)) is None:
            self._seen = max(0, len(self._buffer) - 2)
            yield
        return end.end()

    def _sized(self, message: Message, size: int) -> Wait:
        while size:
            part = self._take(min(size, len(self._buffer)))
            message.body += part
            size -= len(part)
            if size:
                yield

    def _chunks(self, message: Message) -> Wait:
        while True:
            line = yield from self._line()
            match = _CHUNK_SIZE.fullmatch(line)
            if match is None:
                self.broken = f"no chunk's size: {line[:40]!r}"
                return
            if not int(match[1], 16):
                break
            yield from self._sized(message, int(match[1], 16))
            if (yield from self._line()).strip(b"\r\n"):
                self.broken = "a chunk is longer than it says"
                return
        while (yield from self._line()).strip(b"\r\n"):
            pass  # a trailer

    def _line(self) -> Generator[None, None, bytes]:
        while (end := self._buffer.find(b"\n")) < 0:
            yield
        return self._take(end + 1)

    def _take(self, size: int) -> bytes:
        self._seen = 0
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def parse_head(raw: bytes) -> Message:
    """Read a head, whatever it is; what a word lacks is empty."""
    first, *lines = [line.rstrip(b"\r") for line in raw.split(b"\n")]
    words = [*first.split(b" ", 2), b"", b""]
    fields = []
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            fields.append((name.strip().lower(), value.strip(" \t")))
    return Message((words[0], words[1], words[2]), fields, bool(_TIDY.fullmatch(raw)))


def content_length(message: Message) -> int:
    """Return the body's length; 0 where none is said that a reader would take."""
    values = message.values("content-length")
    return int(values[0]) if values and values[0].isdigit() else 0


def request_framing(message: Message) -> str:
    """Judge how a request's body ends."""
    if any("chunked" in value.lower() for value in message.values("transfer-encoding")):
        return "chunked"
    return "length" if message.values("content-length") else "none"


def answer_framing(message: Message, method: bytes) -> str:
    """Judge how the body of an answer to `method` ends (RFC 9112 §6.3)."""
    if message.status == 101 or (method == b"CONNECT" and 200 <= message.status < 300):
        return "tunnel"
    if message.status < 200 or message.status in (204, 304) or method == b"HEAD":
        return "none"
    if message.values("transfer-encoding"):
        return "chunked"
    return "length" if message.values("content-length") else "close"


def request_reader() -> Reader:
    """Return a reader of what a server gets."""
    return Reader(request_framing)


def answer_reader(method: bytes) -> Reader:
    """Return a reader of what a client gets; later answers are read as to a GET."""
    final = False

    def framing(message: Message) -> str:
        nonlocal final
        asked, final = (b"GET" if final else method), final or message.status >= 200
        return answer_framing(message, asked)

    return Reader(framing)
