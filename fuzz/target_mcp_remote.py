"""Fuzz target: what a tool at a URL answers; its corpus is `corpus/mcp_remote`."""

from __future__ import annotations

import json

from proto.verbs.mcp_remote import Line, Open, Remote, check_url

REMOTE = check_url("https://tools.example.com/mcp")


def one_input(data: bytes) -> None:
    """Hear an answer, whole and a byte at a time: one line answers, and nothing is dialled."""
    whole = _played(data, len(data) or 1)
    assert _played(data, 1) == whole


def _played(data: bytes, size: int) -> list[object]:
    remote = Remote(REMOTE)
    remote.line(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    opened = [each.call for each in remote.take() if isinstance(each, Open)]
    for at in range(0, len(data), size):
        remote.hear(opened[0], data[at : at + size])
    remote.hear(opened[0], b"")
    effects = remote.take()
    taken_up = [each for each in effects if isinstance(each, Open)]
    assert all(b"\r\nLast-Event-ID: " in each.data for each in taken_up)
    lines = [json.loads(each.data) for each in effects if isinstance(each, Line)]
    answers = [line for line in lines if "method" not in line]
    assert [line["id"] for line in answers] == ([] if taken_up else [1])
    assert len(taken_up) <= 1
    return lines
