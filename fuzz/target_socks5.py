"""Fuzz target: what a SOCKS5 server answers (`proto.codecs.socks5`); corpus in `corpus/socks5`.

The first byte chooses whether there is a login and how many bytes come at a time.
"""

from __future__ import annotations

from proto.codecs.socks5 import Socks5Hop
from proto.errors import ExitError

DESTINATION, LOGIN = bytes((203, 0, 113, 10)), (b"user", b"password")
ANSWER_MAX_BYTES = 2 + 2 + 4 + 1 + 255 + 2
"""The longest that a server needs to say until the tunnel stands."""


def one_input(data: bytes) -> None:
    """Feed a server's bytes; no more is asked for than a reply has, and what is refused is told."""
    how, said = data[:1] or b"\0", data[1:]
    login = LOGIN if how[0] & 1 else None
    hop = Socks5Hop(DESTINATION, 443, login)
    at = 0
    try:
        while hop.needs:
            size = min(hop.needs, how[0] // 2 or 1)
            piece = said[at : at + size]
            hop.feed(piece)
            at += len(piece)
            assert login or b"password" not in hop.to_send
    except ExitError as error:
        if error.status_hint not in (502, 504) or "password" in error.message:
            raise
    assert at <= ANSWER_MAX_BYTES
