"""SOCKS5, the client's half: `proto/codecs/socks5.py`, and its fuzz target."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.target_socks5 import one_input
from proto.codecs.socks5 import (
    REPLIES,
    Socks5Hop,
    connect_request,
    greeting,
    login_request,
)
from proto.errors import ExitError, ExitRefused, ExitTimeout

V4, V6 = bytes((203, 0, 113, 10)), bytes.fromhex("20010db8000000000000000000000010")
LOGIN = (b"user", b"password")
CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "socks5"
BOUND = {
    1: b"\x01" + V4 + b"\x01\xbb",
    3: b"\x03\x0bexample.com\x01\xbb",
    4: b"\x04" + V6 + b"\x01\xbb",
}
"""Addresses by which a server says it leaves."""


def answered(hop: Socks5Hop, said: bytes, step: int = 300) -> tuple[bytes, bytes]:
    """Feed a server's words; return all that we sent, and what of its words was left."""
    sent, at = b"", 0
    while hop.needs:
        sent += hop.to_send
        piece = said[at : at + min(step, hop.needs)]
        hop.feed(piece)
        at += len(piece)
    assert not hop.to_send
    return sent, said[at:]


def test_the_greeting_offers_what_we_have() -> None:
    assert greeting(login=False) == b"\x05\x01\x00"
    assert greeting(login=True) == b"\x05\x02\x00\x02"


def test_a_login_and_a_request_are_the_rfc_s() -> None:
    assert login_request(b"ab", b"c" * 255) == b"\x01\x02ab\xff" + b"c" * 255
    assert connect_request(V4, 443) == b"\x05\x01\x00\x01" + V4 + b"\x01\xbb"
    assert connect_request(V6, 80) == b"\x05\x01\x00\x04" + V6 + b"\x00\x50"


@pytest.mark.parametrize("bound", BOUND.values(), ids=BOUND)
@pytest.mark.parametrize("step", [1, 2, 3, 300])
def test_the_tunnel_begins_right_behind_the_reply(bound: bytes, step: int) -> None:
    said = b"\x05\x00" + b"\x05\x00\x00" + bound + b"SSH-2.0-x\r\n"
    sent, left = answered(Socks5Hop(V4, 443), said, step)
    assert sent == greeting(login=False) + connect_request(V4, 443)
    assert left == b"SSH-2.0-x\r\n"


@pytest.mark.parametrize("version", [1, 5])
def test_a_login_is_given_where_it_is_asked_for(version: int) -> None:
    """Some servers answer it with SOCKS's version: RFC 1929's is 1."""
    said = b"\x05\x02" + bytes((version, 0)) + b"\x05\x00\x00" + BOUND[1]
    sent, left = answered(Socks5Hop(V6, 443, LOGIN), said)
    assert sent == greeting(login=True) + login_request(*LOGIN) + connect_request(V6, 443)
    assert left == b""


def test_a_login_that_is_not_asked_for_is_not_given() -> None:
    sent, _ = answered(Socks5Hop(V4, 443, LOGIN), b"\x05\x00\x05\x00\x00" + BOUND[1])
    assert LOGIN[1] not in sent


@pytest.mark.parametrize("reply", range(1, 12))
def test_a_failure_is_a_502_or_504_that_says_why(reply: int) -> None:
    late = reply == 6
    with pytest.raises(ExitRefused) as raised:
        answered(Socks5Hop(V4, 443), b"\x05\x00" + bytes((5, reply)))
    assert type(raised.value) is (ExitTimeout if late else ExitRefused)
    assert raised.value.status_hint == (504 if late else 502)
    said = REPLIES.get(reply, "it doesn't say why")
    assert raised.value.message.endswith(f": {said}.")


@pytest.mark.parametrize(
    ("login", "said", "why"),
    [
        (None, b"\x05\xff", "wants a login"),
        (LOGIN, b"\x05\xff", "wants another login"),
        (None, b"\x05\x02", "wasn't offered"),
        (LOGIN, b"\x05\x01", "wasn't offered"),
        (LOGIN, b"\x05\x02\x01\x01", "doesn't take the login"),
        (None, b"HTTP/1.1 400", "doesn't speak SOCKS5"),
        (None, b"\x04\x5a", "doesn't speak SOCKS5"),
        (None, b"\x05\x00\x04\x00", "doesn't speak SOCKS5"),
        (None, b"\x05\x00\x05\x00\x00\x02", "no known kind"),
        (None, b"", "before it answered"),
        (None, b"\x05", "before it answered"),
        (None, b"\x05\x00\x05\x00\x00\x03\xff", "before it answered"),
    ],
)
def test_what_is_no_way_through_is_told_and_shows_no_login(
    login: tuple[bytes, bytes] | None, said: bytes, why: str
) -> None:
    with pytest.raises(ExitError, match=why) as raised:
        answered(Socks5Hop(V4, 443, login), said)
    assert type(raised.value) is ExitError
    assert raised.value.status_hint == 502
    assert LOGIN[0].decode() not in raised.value.message
    assert "Socks5Hop object" in repr(Socks5Hop(V4, 443, login))


@given(st.binary(max_size=400))
@example(b"\x01\x05\x02\x01\x00\x05\x00\x00\x03\xff")
def test_a_server_says_what_it_likes(data: bytes) -> None:
    one_input(data)


@given(
    st.booleans(),
    st.sampled_from([0, 2, 5]).flatmap(lambda m: st.tuples(st.just(m), st.binary(max_size=300))),
    st.binary(max_size=20),
)
def test_how_it_is_cut_changes_nothing(
    login: bool, method_and_said: tuple[int, bytes], tail: bytes
) -> None:
    method, said = method_and_said
    words = bytes((5, method)) + (b"\x01\x00" if method == 2 else b"") + b"\x05\x00\x00" + said
    outcomes = set()
    for step in (1, 2, 7, 300):
        hop = Socks5Hop(V4, 443, LOGIN if login else None)
        try:
            outcomes.add(answered(hop, words + tail, step))
        except ExitError as error:
            outcomes.add((type(error).__name__.encode(), error.message.encode()))
    assert len(outcomes) == 1


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_the_corpus_is_read(path: Path) -> None:
    one_input(path.read_bytes())
