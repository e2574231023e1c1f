"""JSON from another program, read strictly.

`json` alone keeps the last of two equal keys, takes NaN, and gives an error with no
place in the request.  Here a key given twice and a number that is none are kept as what
they are (`Pairs.twice`, `NotJson`), so that the reader of the tables refuses them by
their path.
"""

from __future__ import annotations

import json

from sandbox.errors import SpecError
from sandbox.place import NotJson, Pairs

INTEGER_MAX_CHARS = 18
"""Longer whole numbers are no port, limit or count; reading one costs its length squared."""


def read_json(data: bytes, most: int, root: str = "request") -> object:
    """Return the value that bytes hold, of at most `most` bytes.

    Raises SpecError, its key `root`, where they are too long, not UTF-8 or not JSON.
    """
    if len(data) > most:
        raise SpecError(root, f"is longer than {most} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SpecError(root, f"isn't UTF-8 (byte {error.start + 1})") from None
    if text.startswith("\ufeff"):
        raise SpecError(root, "begins with a byte order mark; send it without")
    if not text.strip(" \t\r\n"):
        raise SpecError(root, "is empty; it takes one JSON object")
    try:
        return json.loads(text, object_pairs_hook=_pairs, parse_constant=NotJson, parse_int=_whole)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SpecError(root, f"isn't JSON: {error.msg} ({where})") from None
    except RecursionError:
        # Nested lists take the reader's stack; nothing of ours is ever ten deep.
        raise SpecError(root, "is nested too deeply") from None


def _pairs(items: list[tuple[str, object]]) -> Pairs:
    pairs = Pairs()
    for name, value in items:
        if name in pairs and pairs.twice is None:
            pairs.twice = name
        pairs[name] = value
    return pairs


def _whole(text: str) -> object:
    return int(text) if len(text) <= INTEGER_MAX_CHARS else NotJson(text)
