"""Fuzz target: JSON-RPC messages (`proto.codecs.jsonrpc`); its corpus is `corpus/jsonrpc`."""

from __future__ import annotations

import json

from proto.codecs.jsonrpc import MalformedMessage, read, write


def one_input(data: bytes) -> None:
    """Read a message: what goes on is one line, and reads the same to us and to others."""
    try:
        message = read(data)
    except MalformedMessage:
        return
    line = write(message)
    assert len(line.splitlines()) == 1
    assert line.isascii()
    assert read(line) == message
    assert json.loads(line) == json.loads(data)
