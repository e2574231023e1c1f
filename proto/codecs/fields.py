"""Field lines of HTTP/1.1 heads and trailers (RFC 9110 §5, RFC 9112 §5).

The syntax is the RFC's own without any of its allowances for old senders: only CRLF
ends a line, a name is a token with the colon right behind it, a value holds no
control character but HTAB, and a line never goes on in the next.

Patterns here and in the other parsers never backtrack: each repeated class is possessive,
and of what follows a group nothing can begin as the group does.  The groups themselves are
repeated greedily: Python before 3.11.5 keeps what a possessive group's last, failing turn
had already taken, and with it `5;` passed for the line before a chunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Field = tuple[bytes, bytes]
"""A field's name as it was sent, and its value without the white space around it."""

Fields = tuple[Field, ...]

Index = dict[bytes, bytes]
"""A value for each name in small letters: as many as there are fields if none repeats."""

FIELDS_MAX = 1000
"""Field lines a head may have: real clients send fewer than 100, and each costs memory."""

TCHAR = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
"""The bytes of a token (RFC 9110 §5.6.2)."""

FIELD_LINE = TCHAR + rb"++:[\t\x20-\x7e\x80-\xff]*+\r\n"
_ONE_LINE = re.compile(FIELD_LINE)
FIELD_LINES = re.compile(rb"(?:" + FIELD_LINE + rb")*")

_TOKEN = re.compile(TCHAR + rb"++")

OPTIONS = re.compile(rb"(?:[ \t]*+" + TCHAR + rb"*+[ \t]*+(?:,|\Z))*")
"""A value of `Connection`: a list of tokens, of which some may be empty (§5.6.1)."""


def is_token(text: bytes) -> bool:
    """Tell whether `text` is one token (RFC 9110 §5.6.2)."""
    return _TOKEN.fullmatch(text) is not None


def split_fields(lines: bytes) -> tuple[Fields, Index]:
    """Split field lines that FIELD_LINES has matched, the last CRLF included.

    One loop for the fields and their index: half of the time that a head takes goes here.
    """
    fields: list[Field] = []
    index: Index = {}
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        value = value.strip()  # of the bytes it strips, the pattern lets SP and HTAB in
        fields.append((name, value))
        index[name.lower()] = value
    return tuple(fields), index


def index_of(fields: Fields) -> Index:
    """Return the index of fields that were made here, not parsed."""
    return {name.lower(): value for name, value in fields}


def print_fields(fields: Fields) -> bytes:
    """Print field lines; ValueError for one that would not read back as what it was."""
    lines = [b"%b: %b\r\n" % field for field in fields]
    for line, (name, value) in zip(lines, fields, strict=True):
        if not is_token(name) or value != value.strip() or _ONE_LINE.fullmatch(line) is None:
            raise ValueError("this is no field.")
    return b"".join(lines)


def options_of(values: Iterable[bytes]) -> frozenset[bytes] | None:
    """Return the options of a `Connection` field in small letters (RFC 9110 §7.6.1).

    Empty members are no options (§5.6.1).  None if it is no list of tokens.
    """
    text = b",".join(values).lower()
    if OPTIONS.fullmatch(text) is None:
        return None
    return frozenset(text.translate(None, b" \t").split(b",")) - {b""}


HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Fields that concern one connection alone (RFC 9110 §7.6.1, RFC 7540 §3.2.1)."""

NEVER_DROPPED = frozenset({b"host", b"content-length"})
"""Fields that no `Connection` option may take away: without them the next server would
read another request than the one that was checked (RFC 9110 §7.6.1 forbids the naming)."""
