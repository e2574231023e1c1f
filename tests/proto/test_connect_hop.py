"""CONNECT, the client's half: `proto/codecs/connect_hop.py`, and its fuzz target."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.target_connect_hop import one_input
from proto.codecs.connect_hop import ANSWER_MAX_BYTES, ConnectHop
from proto.codecs.http1 import RequestReader
from proto.errors import ExitError, ExitRefused, ExitTimeout

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "connect_hop"
BASIC = b"Basic dXNlcjpwYXNzd29yZA=="
OK = b"HTTP/1.1 200 Connection established\r\n\r\n"


def answered(said: bytes, step: int = ANSWER_MAX_BYTES, login: bytes | None = None) -> bytes:
    """Feed a proxy's words; return what it says behind its answer."""
    hop = ConnectHop("203.0.113.10:443", login)
    at = 0
    while hop.needs:
        piece = said[at : at + min(step, hop.needs)]
        hop.feed(piece)
        assert not hop.to_send
        at += len(piece)
    return hop.rest + said[at:]


@pytest.mark.parametrize("where", ["203.0.113.10:443", "[2001:db8::10]:443"])
def test_the_request_is_one_our_own_reader_takes(where: str) -> None:
    found = RequestReader().feed(ConnectHop(where, BASIC).to_send)
    assert found is not None
    head, rest = found
    assert (head.method, head.target, rest) == ("CONNECT", where.encode(), b"")
    assert head.one(b"host") == where.encode()
    assert head.one(b"proxy-authorization") == BASIC
    assert b"uthorization" not in ConnectHop(where, None).to_send


@pytest.mark.parametrize(
    "head",
    [
        OK,
        b"HTTP/1.0 200 OK\r\nProxy-Agent: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 204 \r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",  # RFC 9110 §9.3.6: ignored
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
@pytest.mark.parametrize("step", [1, 7, ANSWER_MAX_BYTES])
def test_behind_a_2xx_the_tunnel_begins(head: bytes, step: int) -> None:
    assert answered(head + b"SSH-2.0-x\r\n", step) == b"SSH-2.0-x\r\n"


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (301, ExitRefused, 502),
        (403, ExitRefused, 502),
        (502, ExitRefused, 502),
        (503, ExitRefused, 502),
        (504, ExitTimeout, 504),
        (408, ExitTimeout, 504),
        (407, ExitError, 502),
    ],
)
def test_another_answer_is_a_502_or_504(status: int, kind: type[ExitError], hint: int) -> None:
    with pytest.raises(kind) as raised:
        answered(b"HTTP/1.1 %d treasure\r\nContent-Length: 5\r\n\r\nhello" % status)
    assert type(raised.value) is kind
    assert raised.value.status_hint == hint
    assert "treasure" not in raised.value.message


@pytest.mark.parametrize(("login", "says"), [(None, "wants a login"), (BASIC, "another login")])
def test_a_407_says_which_login_is_missing(login: bytes | None, says: str) -> None:
    with pytest.raises(ExitError, match=says) as raised:
        answered(b"HTTP/1.1 407 x\r\n\r\n", login=login)
    assert "dXN" not in raised.value.message


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 2",
        b"HTTP/1.1 200 OK\n\n",
        b"\x05\x00",
        b"SSH-2.0-x\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * ANSWER_MAX_BYTES,
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 12,
    ],
)
def test_what_is_no_answer_is_a_502(said: bytes) -> None:
    with pytest.raises(ExitError, match="the upstream proxy") as raised:
        answered(said)
    assert raised.value.status_hint == 502


@given(
    st.binary(max_size=60).flatmap(
        lambda tail: st.sampled_from([OK, b"HTTP/1.1 100 \r\n\r\n", b""]).map(
            lambda head: b"\x03" + head + tail
        )
    )
)
@example(b"\x01" + OK)
def test_a_proxy_says_what_it_likes(data: bytes) -> None:
    one_input(data)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_the_corpus_is_read(path: Path) -> None:
    one_input(path.read_bytes())
