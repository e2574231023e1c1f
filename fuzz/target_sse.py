"""Fuzz target: server-sent events (`proto.codecs.sse`); its corpus is `corpus/sse`."""

from __future__ import annotations

import re

from proto.codecs.sse import SseReader

_LINE = re.compile(rb"\r\n|\n|\r")


def plainly(stream: bytes) -> list[bytes]:
    """Return the data of a stream's events, read at one go as the standard says it."""
    found: list[bytes] = []
    data: list[bytes] = []
    for line in _LINE.split(stream.removeprefix(b"\xef\xbb\xbf"))[:-1]:
        name, _, value = line.partition(b":")
        if not line:
            found += [b"\n".join(data)] if data else []
            data = []
        elif name == b"data":
            data.append(value.removeprefix(b" "))
    return found


def one_input(data: bytes) -> None:
    """Read a stream: however it is cut, it holds the events that it holds at one go."""
    due = plainly(data)
    assert SseReader().feed(data) == due
    for size in (1, 2, 3, 7):
        reader = SseReader()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [event for piece in pieces for event in reader.feed(piece)] == due
