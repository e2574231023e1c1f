"""Fuzz target: what an HTTP proxy answers to CONNECT (`proto.codecs.connect_hop`).

Its corpus is `corpus/connect_hop`; the first byte chooses how many bytes come at a time.
"""

from __future__ import annotations

from proto.codecs.connect_hop import ANSWER_MAX_BYTES, INTERIM_MAX, ConnectHop
from proto.errors import ExitError


def one_input(data: bytes) -> None:
    """Feed a proxy's bytes; none is lost behind the head, and what is refused is told."""
    step, said = (data[0] if data else 0) or 1, data[1:]
    hop = ConnectHop("203.0.113.10:443", b"Basic dXNlcjpwYXNzd29yZA==")
    at = 0
    try:
        while hop.needs:
            piece = said[at : at + min(step, hop.needs)]
            hop.feed(piece)
            at += len(piece)
    except ExitError as error:
        if error.status_hint not in (502, 504) or "dXNl" in error.message:
            raise
        return
    assert said[:at].endswith(b"\r\n\r\n" + hop.rest)
    assert at <= ANSWER_MAX_BYTES * (INTERIM_MAX + 1)
