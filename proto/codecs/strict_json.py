"""JSON that can be read one way only (RFC 8259), and JSON written.

What is read here is judged, written anew and handed to a server with another reader.  So
everything is refused in which two readers differ: a key given twice (one takes the first,
one the last), `NaN`, a byte order mark or another encoding than UTF-8, half a surrogate
pair, a number that a float or 64 bits don't hold, more than one document.
"""

from __future__ import annotations

import json

from proto.errors import MalformedRequest

WHOLE_MAX = 2**64 - 1
"""The largest whole number that is read: seeds have unsigned 64 bits, and a reader that
keeps fewer takes another number for it."""

VALUES_MAX = 4_000_000
"""How many values a body may have, about: each takes some fifty bytes once it is read, which
a body of empty lists makes the twentyfold of its own length."""

_WHOLE_MAX_CHARS = 21
"""Digits of WHOLE_MAX and a sign: reading a longer text costs its length squared."""


class NotJson(MalformedRequest):
    """The bytes are no JSON, or JSON that two readers would take differently."""


def read_json(data: bytes) -> object:
    """Return the value that bytes hold; NotJson (400) where there isn't just one.

    Objects are dicts in the order that they came in.  How deep they may be nested is what
    the interpreter's own stack allows, some hundreds.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > VALUES_MAX:  # those in texts too: a few more
        raise NotJson("the body has too many values.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotJson("the body is no UTF-8.") from None
    try:
        return json.loads(
            text, object_pairs_hook=_pairs, parse_constant=_no_number, parse_int=_whole
        )
    except json.JSONDecodeError as error:  # a byte order mark is one too
        raise NotJson(f"the body is no JSON (character {error.pos + 1}).") from None
    except RecursionError:
        raise NotJson("the body is nested too deeply.") from None


def write_json(value: object) -> bytes:
    """Print a value that `read_json` gave; NotJson (400) where UTF-8 or JSON can't hold it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotJson("the body holds half a pair of surrogates.") from None
    except ValueError:
        raise NotJson("the body holds a number that is too large.") from None
    except RecursionError:
        raise NotJson("the body is nested too deeply.") from None


def _pairs(items: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(items)
    if len(made) != len(items):
        raise NotJson("the body has a key twice in one object.")
    return made


def _no_number(text: str) -> object:
    raise NotJson(f"the body holds {text}, which is no number.")


def _whole(text: str) -> int:
    if len(text) > _WHOLE_MAX_CHARS or abs(number := int(text)) > WHOLE_MAX:
        raise NotJson("the body holds a number that is too large.")
    return number
