"""Finds secrets in what a service says, in whatever way it writes their characters.

Letters and digits are written as they are everywhere.  Each other character may be escaped by
whoever prints it, one and not the next: a URL's path leaves `+` and `=` alone and a query
doesn't, one JSON writer escapes `/` and another `+`, a page's template all of them.  So a
secret is sought character by character, not as one text in each encoding.
"""

from __future__ import annotations

import binascii
import itertools
import re
from collections.abc import Iterable, Iterator

Spelling = tuple[bytes, ...]
"""The ways to write a run of letters and digits, of which there is one, or another character."""

_PARTS = re.compile(rb"[0-9A-Za-z]+|.", re.DOTALL)

_NAMED = {b"&": b"&amp;", b"<": b"&lt;", b">": b"&gt;", b'"': b"&quot;", b"'": b"&apos;"}


def _spellings(part: bytes) -> Spelling:
    r"""Return the ways to write a part of a secret in ASCII, the longest first.

    Itself, behind a backslash (JSON's `\/` and `\"`), percent-encoded (RFC 3986 §2.1, and a
    form's `+`), by JSON's number (RFC 8259 §7), by HTML's number (PHP's in three digits) or name.
    """
    if part.isalnum():
        return (part,)
    number = part[0]
    found = {part, b"\\" + part, b"&#%d;" % number, b"&#%03d;" % number}
    for digits in _hex(number):
        found |= {b"%" + digits, b"\\u00" + digits, b"&#x" + digits + b";"}
    if part == b" ":
        found.add(b"+")
    if part in _NAMED:
        found.add(_NAMED[part])
    return tuple(sorted(found, key=len, reverse=True))


def _hex(number: int) -> Iterator[bytes]:
    """Give a byte's two digits, each letter large and small."""
    digits = f"{number:02x}"
    for each in set(itertools.product(*((digit, digit.upper()) for digit in digits))):
        yield "".join(each).encode()


def _last(spelling: Spelling) -> Spelling:
    """Return the ways to write a last character, without those that only go on from another.

    Where `&` has come, the secret is whole; whether `amp;` follows needn't be waited for.
    """
    return tuple(
        each
        for each in spelling
        if not any(each != other and each.startswith(other) for other in spelling)
    )


class Spelled:
    """Secrets, of which the longer is found before one that it holds."""

    __slots__ = ("_longest", "_pattern", "_words")

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._words: list[list[Spelling]] = []
        for secret in sorted(set(secrets), key=len, reverse=True):
            *most, last = map(_spellings, _PARTS.findall(secret))
            self._words.append([*most, _last(last)])
        self._longest = max(sum(len(each[0]) for each in word) for word in self._words)
        patterns = [b"".join(map(_any_of, word)) for word in self._words]
        self._pattern = re.compile(b"|".join(patterns))

    def __repr__(self) -> str:
        return "Spelled(...)"

    def starred(self, text: bytes) -> bytes:
        """Return a text with as many asterisks in each secret's stead."""
        return self._pattern.sub(lambda match: b"*" * len(match[0]), text)

    def replaced(self, text: bytes, other: bytes) -> bytes:
        """Return a text with another in each secret's stead."""
        return self._pattern.sub(lambda _: other, text)

    def stands_in(self, name: bytes) -> bool:
        """Tell whether a secret is in a name, whatever the case of its letters."""
        return re.search(self._pattern.pattern, name, re.IGNORECASE) is not None

    def begun(self, text: bytes) -> int:
        """Return where the longest tail begins that more bytes can make a secret."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            if any(_may_become(word, text, at) for word in self._words):
                return at
        return len(text)


def _any_of(spelling: Spelling) -> bytes:
    return b"(?:" + b"|".join(map(re.escape, spelling)) + b")"


def _may_become(word: list[Spelling], text: bytes, at: int) -> bool:
    """Tell whether a text ends in the beginning of a word, however it is written."""
    reached = [(0, at)]
    while reached:
        which, at = reached.pop()
        for each in word[which] if which < len(word) else ():
            if text.startswith(each, at):
                reached.append((which + 1, at + len(each)))
            elif len(text) - at < len(each) and each.startswith(text[at:]):
                return True
    return False


def credentials(told: bytes) -> Iterator[bytes]:
    """Give what Basic credentials are made of: user and password, and that alone (RFC 7617 §2)."""
    try:
        both = binascii.a2b_base64(told, strict_mode=True)
    except binascii.Error:
        return
    yield both
    yield both.partition(b":")[2]
