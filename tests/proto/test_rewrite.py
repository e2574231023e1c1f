"""Heads as the next hop gets them: `proto/calls/rewrite.py`."""

from __future__ import annotations

import pytest

from proto.calls.rewrite import (
    answer_for_client,
    answer_here,
    asks_for_websocket,
    became_websocket,
    framing_for_client,
    request_for_server,
    switch_for_client,
)
from proto.codecs.http1 import CHUNKED, NONE, UNTIL_CLOSE, AnswerReader, Framing, Kind
from tests.proto.requests import answer, get, head_bytes, plain

FIVE = Framing(Kind.LENGTH, 5)
ASKS = ("Connection: Upgrade", "Upgrade: websocket")


def onward(data: bytes, *, upgrade: bool = False, last: bool = False) -> bytes:
    return request_for_server(plain(data)[0], upgrade=upgrade, last=last)


def backward(data: bytes, framing: Framing, *, last: bool = False) -> bytes:
    found = AnswerReader().feed(data)
    assert found is not None
    return answer_for_client(found[0], framing, last=last)


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    ("told", "left"),
    [("1", 0), ("10", 9), ("010", 9), ("255", 254), ("256", 254), ("9" * 5000, 254)],
)
def test_a_forward_fewer_is_left_where_they_are_counted(method: str, told: str, left: int) -> None:
    asked = get(f"Max-Forwards: {told}", "Accept: */*", method=method)
    assert onward(asked) == head_bytes(
        f"{method} /a HTTP/1.1", "Host: example.com", "Accept: */*", f"Max-Forwards: {left}"
    )


def test_a_trace_without_a_host_gets_itself_back_as_it_came() -> None:
    asked = b"TRACE http://example.com/ HTTP/1.0\r\nMax-Forwards: 0\r\n\r\n"
    found = AnswerReader().feed(answer_here(plain(asked)[0].head))
    assert found is not None
    head, body = found
    assert (head.status, body) == (200, asked)
    assert head.one(b"content-length") == b"%d" % len(asked)


def test_other_methods_forwards_are_not_counted() -> None:
    for told in ("0", "3", "x"):
        asked = get(f"Max-Forwards: {told}")
        assert onward(asked) == head_bytes(
            "GET /a HTTP/1.1", "Host: example.com", f"Max-Forwards: {told}"
        )
    for method in ("OPTIONS", "TRACE"):
        assert onward(get(method=method)) == head_bytes(
            f"{method} /a HTTP/1.1", "Host: example.com"
        )


def test_a_request_goes_on_in_origin_form_with_its_own_fields() -> None:
    asked = get(
        "User-Agent: x", "Authorization: Bearer abc", "Cookie: a=b", url="http://h.test/p?q"
    )
    assert onward(asked) == head_bytes(
        "GET /p?q HTTP/1.1",
        "Host: h.test",
        "User-Agent: x",
        "Authorization: Bearer abc",
        "Cookie: a=b",
    )


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://EXAMPLE.com./", "example.com"),
        ("http://example.com:80/", "example.com"),
        ("http://example.com:8080/", "example.com:8080"),
        ("http://example.com:180/", "example.com:180"),
        ("http://[2001:DB8:0::1]/", "[2001:db8::1]"),
        ("http://[2001:db8::80]:80/", "[2001:db8::80]"),
        ("http://[2001:db8::80]:8080/", "[2001:db8::80]:8080"),
    ],
)
def test_the_host_is_the_canonical_one_that_was_checked(url: str, host: str) -> None:
    assert onward(get(url=url)) == head_bytes("GET / HTTP/1.1", f"Host: {host}")


def test_fields_of_this_connection_stay_on_it() -> None:
    asked = get(
        "Proxy-Authorization: Basic eDp5",
        "Proxy-Connection: keep-alive",
        "Connection: keep-alive, X-Hop",
        "Keep-Alive: timeout=5",
        "X-Hop: 1",
        "TE: trailers",
        "Trailer: X",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
        "X-Kept: 1",
    )
    assert onward(asked) == head_bytes("GET /a HTTP/1.1", "Host: example.com", "X-Kept: 1")


def test_no_connection_option_takes_the_host_or_the_length_away() -> None:
    asked = get("Connection: Host, Content-Length", "Content-Length: 5", method="POST")
    assert onward(asked) == head_bytes("POST /a HTTP/1.1", "Host: example.com", "Content-Length: 5")


def test_no_via_tells_the_server_of_the_proxy() -> None:
    assert b"via" not in onward(get()).lower()


def test_the_body_is_framed_anew() -> None:
    chunked = onward(get("Transfer-Encoding: Chunked", method="POST"))
    assert chunked.endswith(b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert onward(get("content-length: 0", method="POST")).endswith(
        b"\r\nContent-Length: 0\r\n\r\n"
    )


def test_an_expectation_goes_on_but_not_from_http_1_0() -> None:
    asked = get("Expect: 100-continue", "Content-Length: 5", method="POST")
    assert b"\r\nExpect: 100-continue\r\n" in onward(asked)
    old = get("Expect: 100-continue", "Content-Length: 5", method="POST", version="1.0")
    assert b"expect" not in onward(old).lower()


def test_the_last_request_says_so() -> None:
    assert onward(get(), last=True).endswith(b"\r\nConnection: close\r\n\r\n")


def test_an_upgrade_asks_for_a_websocket_and_nothing_else() -> None:
    asked = get("Upgrade: websocket, h2c", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    assert onward(asked, upgrade=True, last=True) == head_bytes(
        "GET /a HTTP/1.1", "Host: example.com", "Sec-WebSocket-Version: 13", *ASKS
    )


@pytest.mark.parametrize("fields", [0, 1, 997])
def test_the_longest_heads_that_are_read_can_be_sent(fields: int) -> None:
    asked = head_bytes(
        "GET http://example.com/ HTTP/1.1", "Host: example.com", *ASKS, *["A: 1"] * fields
    )
    assert onward(asked, upgrade=True).count(b"\r\n") == fields + 5
    old = head_bytes("GET http://example.com/ HTTP/1.0", *["A: 1"] * 1000)
    assert onward(old, last=True).count(b"\r\n") == 1004


@pytest.mark.parametrize(
    ("framing", "says"),
    [
        (FIVE, ["Content-Length: 5"]),
        (CHUNKED, ["Transfer-Encoding: chunked"]),
        (UNTIL_CLOSE, []),
    ],
)
def test_an_answer_says_anew_how_its_body_goes_on(framing: Framing, says: list[str]) -> None:
    came = head_bytes("HTTP/1.1 200 OK", "content-length: 7", "X-A: 1")
    assert backward(came, framing) == head_bytes("HTTP/1.1 200 OK", "X-A: 1", *says)


def test_an_answer_keeps_its_reason_and_gets_our_version() -> None:
    assert backward(b"HTTP/1.0 299 So so\r\n\r\n", FIVE, last=True) == head_bytes(
        "HTTP/1.1 299 So so", "Content-Length: 5", "Connection: close"
    )


def test_fields_of_the_server_s_connection_stay_on_it() -> None:
    came = head_bytes(
        "HTTP/1.1 200 OK",
        "Connection: close, X-Hop",
        "X-Hop: 1",
        "Proxy-Authenticate: Basic",
        "Keep-Alive: x",
        "X-A: 1",
    )
    assert backward(came, FIVE) == head_bytes("HTTP/1.1 200 OK", "X-A: 1", "Content-Length: 5")


@pytest.mark.parametrize(("status", "kept"), [(103, False), (204, False), (304, True), (200, True)])
def test_the_length_of_an_answer_without_a_body_stays_where_it_can_not_mislead(
    status: int, kept: bool
) -> None:
    came = head_bytes(f"HTTP/1.1 {status} X", "Content-Length: 5")
    assert (b"Content-Length: 5" in backward(came, NONE)) is kept


def test_a_switch_says_what_was_agreed() -> None:
    came = answer(
        "101 Switching Protocols", *ASKS, "Sec-WebSocket-Accept: x", "Content-Length: 5", "X-A: 1"
    )
    assert switch_for_client(came) == head_bytes(
        "HTTP/1.1 101 Switching Protocols", "Sec-WebSocket-Accept: x", "X-A: 1", *ASKS
    )


@pytest.mark.parametrize(
    ("framing", "chunks", "onwards"),
    [
        (NONE, True, NONE),
        (FIVE, False, FIVE),
        (CHUNKED, True, CHUNKED),
        (CHUNKED, False, UNTIL_CLOSE),
        (UNTIL_CLOSE, True, CHUNKED),
        (UNTIL_CLOSE, False, UNTIL_CLOSE),
    ],
)
def test_a_body_is_chunked_where_its_end_could_not_be_told(
    framing: Framing, chunks: bool, onwards: Framing
) -> None:
    assert framing_for_client(framing, chunks=chunks) == onwards


@pytest.mark.parametrize(
    ("data", "asks"),
    [
        (get(*ASKS), True),
        (get("connection: keep-alive, uPgrade", "upgrade: h2c, WebSocket"), True),
        (get(), False),
        (get("Upgrade: websocket"), False),
        (get("Connection: Upgrade", "Upgrade: h2c"), False),
        (get("Connection: Upgrade", "Upgrade: websocket/13"), False),
        (get("Connection: Upgrade", 'Upgrade: "websocket"'), False),
        (get(*ASKS, version="1.0"), False),
        (get(*ASKS, method="POST"), False),
        (get(*ASKS, "Content-Length: 5"), False),
        (get(*ASKS, "Transfer-Encoding: chunked"), False),
    ],
)
def test_a_websocket_is_asked_for_in_just_one_way(data: bytes, asks: bool) -> None:
    request, _ = plain(data)
    assert asks_for_websocket(request.head, request.framing) is asks


@pytest.mark.parametrize(
    ("fields", "became"),
    [
        (ASKS, True),
        (("Connection: upgrade", "Upgrade: WebSocket"), True),
        (("Connection: Upgrade", "Upgrade: websocket, h2c"), False),
        (("Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c"), False),
        (("Connection: Upgrade", "Upgrade: h2c"), False),
        (("Connection: close", "Upgrade: websocket"), False),
        (("Upgrade: websocket",), False),
        ((), False),
    ],
)
def test_a_websocket_is_agreed_to_in_just_one_way(fields: tuple[str, ...], became: bool) -> None:
    assert became_websocket(answer("101 Switching Protocols", *fields)) is became
