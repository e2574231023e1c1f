"""Fuzz target: strict JSON (`proto.codecs.strict_json`); its corpus is `corpus/strict_json`."""

from __future__ import annotations

import json

import msgspec

from proto.codecs.strict_json import NotJson, read_json, write_json


def one_input(data: bytes) -> None:
    """Read bytes: what is taken reads alike to two other readers, before and after."""
    try:
        value = read_json(data)
        written = write_json(value)
    except NotJson:
        return
    assert json.loads(data) == value
    assert json.loads(written) == value
    assert msgspec.json.decode(written) == msgspec.json.decode(data)
    assert read_json(written) == value
