"""Takes a key out of what goes to the program, should its provider say it back.

A provider that answers with the request's own fields (in an error, a redirect, a page for
debugging) would hand the key to the program.  It is struck out with as many asterisks, so
that every length that was said of the answer stays true.
"""

from __future__ import annotations

SHORT_BYTES = 8
"""A shorter secret stands by chance in what has nothing to do with it, and can be guessed."""


class Mask:
    """Strikes one secret out of a stream of bytes that is cut anywhere.

    Only bytes that the secret may begin in are held back, until it shows whether it does:
    an answer that doesn't have it passes piece by piece, and at its end nothing is held.
    """

    __slots__ = ("_held", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret if len(secret) >= SHORT_BYTES else b""
        self._held = b""

    def __repr__(self) -> str:
        return "Mask(...)"

    def whole(self, data: bytes) -> bytes:
        """Return bytes that come alone, the secret struck out."""
        return data.replace(self._secret, b"*" * len(self._secret)) if self._secret else data

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the stream; return those that may go on."""
        text = self.whole(self._held + data)
        held = self._begun_at_end(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> bytes:
        """Return what is still held: the stream has ended, and the secret can't follow."""
        held, self._held = self._held, b""
        return held

    def _begun_at_end(self, text: bytes) -> int:
        """Return how many bytes at the end of `text` are the secret's beginning."""
        for size in range(min(len(self._secret) - 1, len(text)), 0, -1):
            if text.endswith(self._secret[:size]):
                return size
        return 0
