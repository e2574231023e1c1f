"""Heads and exchanges made of bytes, for the tests of calls."""

from __future__ import annotations

from proto.calls.rewrite import PlainRequest
from proto.codecs.http1 import AnswerReader, RequestReader, ResponseHead, request_framing
from proto.codecs.target import AbsoluteTarget, read_target

URL = "http://example.com/a"


def head_bytes(line: str, *fields: str) -> bytes:
    """Return the bytes of a head: its first line, its fields, its empty line."""
    return "\r\n".join([line, *fields, "", ""]).encode("latin-1")


def get(*fields: str, url: str = URL, version: str = "1.1", method: str = "GET") -> bytes:
    """Return the bytes of a request for a URL, its Host among the fields."""
    host = url.split("/")[2]
    return head_bytes(f"{method} {url} HTTP/{version}", f"Host: {host}", *fields)


def plain(data: bytes) -> tuple[PlainRequest, bytes]:
    """Read a request for a URL; return it, and the bytes behind its head."""
    found = RequestReader().feed(data)
    assert found is not None
    head, rest = found
    url = read_target(head)
    assert isinstance(url, AbsoluteTarget)
    return PlainRequest(head, url, request_framing(head)), rest


def answer(line: str, *fields: str) -> ResponseHead:
    """Read an answer's head."""
    found = AnswerReader().feed(head_bytes(f"HTTP/1.1 {line}", *fields))
    assert found is not None
    return found[0]
