"""Keys that are compared: a caller's, by which a bridge knows its proxy, and a URL's (R55, R56)."""

from __future__ import annotations

import hmac


class Key:
    """A key that never shows in a message, a log or a traceback."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        """Take the key; ValueError for one so short that it could be guessed."""
        if len(key) < 16 or not key.isascii():
            raise ValueError("a key has 16 ASCII characters or more.")
        self._key = key.encode("ascii")

    def __repr__(self) -> str:
        return "Key(...)"

    def is_told(self, told: bytes | None) -> bool:
        """Tell whether somebody has told the key.

        Compared in constant time: how long a wrong one takes must not tell how much of it
        was right.
        """
        return hmac.compare_digest(told or b"", self._key)

    def reveal(self) -> bytes:
        """Return the key, to tell it to somebody who compares it."""
        return self._key
