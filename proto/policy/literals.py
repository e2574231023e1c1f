"""IP addresses as texts and as integers, without a socket.

Strict on the way in: an address that two readers could take for two different ones
is none (a leading zero is octal to inet_aton(3) and decimal to others, `127.1` is
loopback to curl and a name to Java).  On the way out the text is inet_ntop(3)'s, so
that it can be compared with what the kernel and the resolver print.
"""

from __future__ import annotations

import re

_OCTETS = {str(n): n for n in range(256)}
"""The only 256 spellings of a part: no sign, no zero in front, no digit but ASCII's."""

_GROUPS = 8
_GROUP_MAX_DIGITS = 4
_HEX_AND_COLONS = re.compile(r"[0-9A-Fa-f:]+").fullmatch
MAPPED = 0xFFFF << 32
"""::ffff:0:0/96 (RFC 4291 §2.5.5.2)."""


def v4_of(text: str) -> int | None:
    """Return the integer of a dotted quad, None when `text` isn't one.

    Four decimal numbers without zeros in front (RFC 6943 §3.1.1's strict form).
    """
    try:
        a, b, c, d = map(_OCTETS.__getitem__, text.split("."))
    except (KeyError, ValueError):
        return None
    return a << 24 | b << 16 | c << 8 | d


def v4_text(value: int) -> str:
    """Return the dotted quad of an integer below 2**32."""
    return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"


def v6_of(text: str) -> int | None:
    """Return the integer of an IPv6 address, None when `text` isn't one.

    The forms of RFC 4291 §2.2: groups of 1–4 digits, one `::` for one or more
    groups of zeros, the last 32 bits as a dotted quad.  No zone, no brackets.
    """
    if "." in text:
        start, colon, quad = text.rpartition(":")
        low = v4_of(quad)
        if not colon or low is None:
            return None
        text = f"{start}:{low >> 16:x}:{low & 0xFFFF:x}"
    # int() would also take signs, spaces, underscores and the digits of other scripts.
    if not _HEX_AND_COLONS(text):
        return None
    head, gap, tail = text.partition("::")
    left = head.split(":") if head else []
    right = tail.split(":") if tail else []
    missing = _GROUPS - len(left) - len(right)
    if missing < 1 if gap else missing:
        return None
    groups = [*left, *["0"] * missing, *right]
    if "" in groups or max(map(len, groups)) > _GROUP_MAX_DIGITS:
        return None
    return int("".join([group.rjust(_GROUP_MAX_DIGITS, "0") for group in groups]), 16)


def v6_text(value: int) -> str:
    """Return the text of an integer below 2**128 as inet_ntop(3) prints it (RFC 5952).

    The first of the longest runs of two or more zero groups is `::`; IPv4-mapped
    and IPv4-compatible addresses end in a dotted quad.
    """
    if value >> 32 in (0, 0xFFFF) and value >> 16 != 0:
        return ("::ffff:" if value >> 32 else "::") + v4_text(value & 0xFFFFFFFF)
    digits = f"{value:032x}"
    groups = [digits[at : at + 4].lstrip("0") or "0" for at in range(0, 32, 4)]
    text = f":{':'.join(groups)}:"
    for zeros in _RUNS_OF_ZEROS:
        if zeros in text:
            start, _, end = text.partition(zeros)
            return f"{start[1:]}::{end[:-1]}"
    return text[1:-1]


_RUNS_OF_ZEROS = [":0" * length + ":" for length in range(_GROUPS, 1, -1)]
"""The longest first, two groups at least: one alone is never shortened (RFC 5952 §4.2.2)."""


def unmapped(value: int) -> int | None:
    """Return the IPv4 integer of an IPv4-mapped IPv6 one, None for any other.

    The kernel sends `::ffff:a.b.c.d` over IPv4: it is that machine, so it is judged,
    matched and dialled as that machine (RFC 4291 §2.5.5.2).
    """
    return value & 0xFFFFFFFF if value >> 32 << 32 == MAPPED else None


def packed(address: str) -> bytes:
    """Return an address's 4 or 16 bytes, as they go over the wire; it must be one."""
    quad = v4_of(address)
    if quad is not None:
        return quad.to_bytes(4, "big")
    value = v6_of(address)
    assert value is not None, address
    return value.to_bytes(16, "big")
