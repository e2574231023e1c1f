"""What goes out, read by real servers: each sees the one request that was meant (R30).

Requests are sent through the product's own calls under the simulated shell; the bytes that
its server got are then sent to Node (strict and lenient), nginx and Go.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzz.strategies_http import Seen, lenient, plain_paths, read_by_h11, requests_for, spoilt
from proto.calls.limits import Limits
from proto.calls.serve import serve_connection
from proto.policy.hosts import Policy
from shells.sim_shell import run
from shells.sim_world import Say, World
from tests.e2e.readers import RealReader, start

T = TypeVar("T")

READERS = ["node", "node, lenient", "nginx", "go"]

GET = b"GET http://example.com/x HTTP/1.1\r\nHost: example.com\r\n"
POST = b"POST http://example.com/x HTTP/1.1\r\nHost: example.com\r\n"
AGENT = b"User-Agent: curl/7.88.1\r\nAccept: */*\r\nProxy-Connection: Keep-Alive\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
CLIENTS = [
    GET + AGENT + b"\r\n",
    b"GET http://example.com?q=1 HTTP/1.1\r\nHost:EXAMPLE.COM.\r\n\r\n",
    b"GET http://example.com/a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
    b"GET http://[2001:db8::1]:8080/x HTTP/1.1\r\nHost: [2001:DB8:0::1]:8080\r\n\r\n",
    b"GET http://example.com//evil.test/?a=http://evil.test/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
    b"OPTIONS http://example.com/ HTTP/1.1\r\nHost: example.com:80\r\n\r\n",
    GET + b"X-Note: a\tb\r\nX-Text: \xc3\xa9\x80\r\n\r\n",
    GET + b"Connection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\nTE: trailers\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
    GET + b"Content-Length: 5\r\n\r\nhello",
    POST + b"Content-Length: 13\r\n\r\nline1\nline2\r\x00",
    POST + b"Content-Length: 0\r\n\r\n",
    POST + b"Connection: close, Content-Length\r\nContent-Length: 46\r\n\r\n"
    b"GET http://evil.test/ HTTP/1.1\r\nHost: evil\r\n\r\n",
    POST + AGENT + b"Expect: 100-continue\r\n" + CHUNKED + b"6\r\nhello\n\r\n0\r\n\r\n",
    POST + b"Connection: Transfer-Encoding, Host\r\n" + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",
    POST + CHUNKED + b'5;name="a;b"\r\nhello\r\n06\r\n world\r\n'
    b"0;end\r\nHost: evil.test\r\nContent-Length: 9\r\n\r\n",
]


def sent_on(data: bytes) -> list[bytes]:
    """Return what the product sends for a client's bytes, a server's connection each."""
    world = World(client=(Say(data),), any_name=("203.0.113.10",), any_server=())
    seen = run(lambda now: serve_connection(Policy.of(None), Limits(), None, now), world)
    return [dial.saw.data for dial in seen.opened if dial.saw is not None]


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Draw so many examples, the same each time."""
    examples: list[T] = []

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(example: T) -> None:
        examples.append(example)

    draw()
    return examples


@cache
def meant() -> list[tuple[Seen, bytes]]:
    """Return requests as they are meant, each with what goes out for it."""
    formed = drawn(requests_for(plain_paths), 150)
    pairs = [(lenient(out)[0], out) for data in CLIENTS for out in sent_on(data)]
    pairs += [(each.seen, out) for each in formed for out in sent_on(each.data)]
    assert len(pairs) == len(CLIENTS) + len(formed)
    return pairs


@cache
def taken() -> list[bytes]:
    """Return what goes out for spoilt requests, whole or cut off where they were refused."""
    outs = [out for data in drawn(spoilt(), 600) for out in sent_on(data)]
    assert len(outs) > 60
    return outs


@pytest.fixture(scope="module", params=READERS)
def reader(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealReader]:
    server = start(request.param, tmp_path_factory.mktemp("reader"))
    yield server
    server.stop()


def test_a_real_server_sees_the_one_request_that_was_meant(reader: RealReader) -> None:
    due = {}
    for request, out in meant():
        assert lenient(out) == [request]
        peer, statuses = reader.exchange(out, whole=True)
        assert statuses in ([200], [204]), out
        due[peer] = [request]
    seen = reader.seen()
    assert {peer: seen.get(peer) for peer in due} == due


def test_no_real_server_sees_a_second_request_in_what_was_taken(reader: RealReader) -> None:
    exchanged = {}
    for out in taken():
        whole = read_by_h11(out) == lenient(out)
        peer, statuses = reader.exchange(out, whole=whole)
        exchanged[peer] = out, whole, statuses
    seen = reader.seen()
    for peer, (out, whole, statuses) in exchanged.items():
        # A server may be stricter than we are; but then it takes nothing at all.
        refused = statuses in ([], [400]) and peer not in seen
        served = whole and len(statuses) == 1 and seen.get(peer) == lenient(out)
        assert refused or served, (out, whole, statuses, seen.get(peer))
