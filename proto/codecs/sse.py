"""Server-sent events: a stream of bytes to events (WHATWG HTML §9.2.6).

The stream is only looked at here, never changed: what is read of it is for counting.  So an
event that is longer than what is held is passed over, and a malformed line is nothing.
"""

from __future__ import annotations

import re

EVENT_MAX_BYTES = 1024 * 1024
"""The data that one event may have, to be read: the longest that tells of usage repeats a
whole answer, and that one is passed over, not held."""

_ID = re.compile(rb"[\x20-\x7e]{0,1024}")
"""An event's name that a header field can hold, for it is said back in one."""
_RETRY = re.compile(rb" ?[0-9]{1,9}")

_MARK = b"\xef\xbb\xbf"


class SseReader:
    """Reads the data of events from a stream that is cut anywhere.

    `feed` gives each event's data once its empty line has come; one that the stream's end
    cuts off is no event (§9.2.6).  Lines end in CRLF, LF or CR.  `lost` tells that the event
    that is being read is too long to be held.  `last_id` is the last event's name, empty for
    none, and `retry_ms` how long the server wants to be left alone once the stream has ended.
    """

    __slots__ = (
        "_begun", "_data", "_held", "_id", "_max_bytes", "_size", "_skip_lf", "last_id", "lost",
        "retry_ms",
    )  # fmt: skip

    def __init__(self, max_bytes: int | None = None, last_id: bytes = b"") -> None:
        self._max_bytes = EVENT_MAX_BYTES if max_bytes is None else max_bytes
        self._held = bytearray()
        self._data = bytearray()  # each line with its end
        self._size = 0
        self.lost = False
        self._skip_lf = False
        self._begun = False
        self._id = self.last_id = last_id
        self.retry_ms: int | None = None

    @property
    def held(self) -> int:
        """How many bytes it holds, of an event that isn't whole."""
        return len(self._held) + len(self._data)

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the data of the events that they complete."""
        if self._skip_lf and data:
            data, self._skip_lf = data.removeprefix(b"\n"), False
        self._held += data
        if not self._begun:
            if len(self._held) < len(_MARK) and _MARK.startswith(self._held):
                return []
            self._held, self._begun = self._held.removeprefix(_MARK), True
        elif b"\n" not in data and b"\r" not in data:
            self._forget_long_line()
            return []
        return self._lines()

    def _lines(self) -> list[bytes]:
        text = bytes(self._held)
        lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._skip_lf = text.endswith(b"\r")
        self._held = bytearray(lines.pop())
        found: list[bytes] = []
        for line in lines:
            self._take(line, found)
        self._forget_long_line()
        return found

    def _forget_long_line(self) -> None:
        """Hold nothing of a line that is too long: its end is waited for."""
        if len(self._held) > self._max_bytes:
            self._held, self.lost = bytearray(b":"), True

    def _take(self, line: bytes, found: list[bytes]) -> None:
        if not line:
            if self._data and not self.lost:
                found.append(bytes(self._data[:-1]))
            self._data, self._size, self.lost = bytearray(), 0, False
            self.last_id = self._id
            return
        name, _, value = line.partition(b":")
        if name == b"data" and not self.lost:
            self._data += value.removeprefix(b" ") + b"\n"
            self._size += len(line)
            if self._size > self._max_bytes:
                self._data, self.lost = bytearray(), True
        elif name == b"id" and _ID.fullmatch(value):
            self._id = value.removeprefix(b" ")
        elif name == b"retry" and _RETRY.fullmatch(value):
            self.retry_ms = int(value)
