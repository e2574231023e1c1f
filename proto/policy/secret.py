"""The secret of a proxy that programs are pointed at: `Proxy-Authorization: Basic`.

Where the proxy listens on the machine's loopback, any program of any user can connect;
only those that were given the secret may go on.
"""

from __future__ import annotations

import binascii
import hmac
import re

_BASIC = re.compile(rb"(?i:basic) +([A-Za-z0-9+/]+={0,2})")
_FIT = re.compile(r"[\x21-\x7e]{16,255}")


class Secret:
    """A secret that never shows in a message, a log or a traceback."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        """Take the secret; ValueError for one that is short, empty included, or no plain text.

        An empty secret would let everybody in, so it is none.
        """
        if _FIT.fullmatch(secret) is None:
            raise ValueError("the proxy's secret must be 16 to 255 visible ASCII characters.")
        self._secret = secret.encode("ascii")

    def __repr__(self) -> str:
        return "Secret(...)"

    def opens(self, authorization: bytes | None) -> bool:
        """Tell whether a `Proxy-Authorization` value holds the secret, whatever user it names.

        Compared in constant time: how long a wrong answer takes must not tell how much
        of a guess was right.
        """
        return hmac.compare_digest(_password_of(authorization), self._secret)


def _password_of(authorization: bytes | None) -> bytes:
    """Return the password of Basic credentials (RFC 7617 §2); empty for anything else.

    The user ends at the first colon.  Base64 has one spelling here: bytes and bits that a
    lax decoder skips are a wrong secret (RFC 4648 §3.5).
    """
    match = _BASIC.fullmatch(authorization or b"")
    if match is None:
        return b""
    try:
        decoded = binascii.a2b_base64(match[1], strict_mode=True)
    except binascii.Error:
        return b""
    if binascii.b2a_base64(decoded, newline=False) != match[1]:
        return b""
    return decoded.partition(b":")[2]
