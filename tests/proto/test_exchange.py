"""A request and its answer as bytes: `proto/calls/exchange.py`."""

from __future__ import annotations

import pytest

from proto.calls.exchange import Exchange
from proto.calls.limits import INTERIM_MAX
from proto.codecs.body import chunk
from proto.commands import CLIENT, UPSTREAM
from proto.errors import BadAnswer, MalformedRequest
from tests.proto.requests import get, head_bytes, plain

ASKS = ("Connection: Upgrade", "Upgrade: websocket")
OK = head_bytes("HTTP/1.1 200 OK", "Content-Length: 5")
CONTINUE = head_bytes("HTTP/1.1 100 Continue")


def begin(data: bytes, *, sent: bool = True) -> Exchange:
    """Begin an exchange; `sent`: its head, and what of its body came with it, has gone."""
    exchange = Exchange(*plain(data))
    if sent:
        exchange.sent(0, len(exchange.to_upstream))
    return exchange


def heard(data: bytes, *answers: bytes) -> Exchange:
    """Return an exchange whose server has said these, and has ended where one is empty."""
    exchange = begin(data)
    for each in answers:
        exchange.hear(UPSTREAM, each)
    return exchange


# The request.


def test_a_request_waits_to_be_sent_and_only_its_server_and_client_are_heard() -> None:
    exchange = begin(get(), sent=False)
    assert exchange.to_upstream == head_bytes("GET /a HTTP/1.1", "Host: example.com")
    assert exchange.listening == (UPSTREAM, CLIENT)
    exchange.sent(0, 10)
    assert exchange.to_upstream == head_bytes("GET /a HTTP/1.1", "Host: example.com")[10:]


def test_a_body_goes_on_as_it_comes() -> None:
    exchange = begin(get("Content-Length: 5", method="POST") + b"he")
    exchange.hear(CLIENT, b"l")
    assert exchange.to_upstream == b"l"
    assert exchange.listening == (UPSTREAM,)  # until it has gone
    exchange.sent(0, 1)
    assert exchange.listening == (UPSTREAM, CLIENT)
    assert not exchange.whole
    exchange.hear(CLIENT, b"loGET")
    assert exchange.whole
    assert (exchange.to_upstream, exchange.early) == (b"lo", b"GET")


def test_a_body_that_came_with_its_head_goes_with_it() -> None:
    exchange = begin(get("Content-Length: 2", method="POST") + b"hello", sent=False)
    assert exchange.to_upstream.endswith(b"Content-Length: 2\r\n\r\nhe")
    assert exchange.early == b"llo"


def test_chunks_are_made_anew() -> None:
    data = get("Transfer-Encoding: chunked", method="POST")
    exchange = begin(data + b"2;x=1\r\nhe\r\n03\r\nl", sent=False)
    assert exchange.to_upstream.endswith(b"\r\n\r\n" + chunk(b"hel"))
    exchange.sent(0, len(exchange.to_upstream))
    exchange.hear(CLIENT, b"lo\r\n0\r\nX-Trailer: 1\r\n\r\nGET")
    assert exchange.to_upstream == chunk(b"lo") + b"0\r\n\r\n"
    assert exchange.early == b"GET"


def test_a_chunk_s_head_alone_gives_nothing_to_send() -> None:
    exchange = begin(get("Transfer-Encoding: chunked", method="POST"))
    exchange.hear(CLIENT, b"5\r\n")
    assert exchange.to_upstream == b""


def test_a_length_of_0_is_no_body() -> None:
    exchange = begin(get("Content-Length: 0", method="POST") + b"GET")
    assert exchange.whole
    assert exchange.early == b"GET"


def test_what_comes_behind_a_request_is_kept_and_then_nobody_listens() -> None:
    exchange = begin(get())
    assert exchange.listening == (UPSTREAM, CLIENT)
    exchange.hear(CLIENT, b"GET http://example.com/b")
    assert exchange.early == b"GET http://example.com/b"
    assert exchange.to_upstream == b""
    assert exchange.listening == (UPSTREAM,)


@pytest.mark.parametrize(
    ("fields", "more"),
    [("Transfer-Encoding: chunked", b"zz\r\n"), ("Transfer-Encoding: chunked", b"5\nhello\r\n")],
)
def test_a_malformed_body_is_refused_with_its_head_or_later(fields: str, more: bytes) -> None:
    data = get(fields, method="POST")
    with pytest.raises(MalformedRequest):
        begin(data + more)
    with pytest.raises(MalformedRequest):
        begin(data).hear(CLIENT, more)


@pytest.mark.parametrize("fields", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_a_client_that_ends_inside_its_body_is_refused(fields: str) -> None:
    with pytest.raises(MalformedRequest):
        begin(get(fields, method="POST")).hear(CLIENT, b"")


@pytest.mark.parametrize("fields", ["X-A: 1", "Content-Length: 0"])
def test_a_client_that_ends_behind_its_request_is_answered_still(fields: str) -> None:
    exchange = begin(get(fields))
    exchange.hear(CLIENT, b"")
    assert exchange.listening == (UPSTREAM,)
    exchange.hear(UPSTREAM, OK + b"hello")
    assert exchange.to_client == OK + b"hello"


def test_a_server_that_reads_no_more_can_answer_still() -> None:
    exchange = begin(get("Content-Length: 50", method="POST") + b"hello", sent=False)
    exchange.stop_upload()
    assert exchange.to_upstream == b""
    assert exchange.listening == (UPSTREAM,)
    exchange.hear(UPSTREAM, head_bytes("HTTP/1.1 413 No", "Content-Length: 0"))
    assert exchange.ended
    assert exchange.closing
    assert not exchange.reusable


@pytest.mark.parametrize(
    ("data", "repeatable"),
    [
        (get(), True),
        (get(method="HEAD"), True),
        (get(method="OPTIONS"), True),
        (get(method="DELETE"), False),
        (get(method="POST"), False),
        (get("Content-Length: 0"), False),
        (get("Transfer-Encoding: chunked"), False),
        (get(*ASKS), False),
    ],
)
def test_only_a_request_that_asks_for_nothing_to_be_done_may_be_sent_twice(
    data: bytes, repeatable: bool
) -> None:
    assert begin(data).repeatable is repeatable


# The answer.


def test_an_answer_with_a_length_goes_on_and_leaves_both_connections_open() -> None:
    exchange = heard(get(), OK + b"he")
    assert exchange.answered
    assert exchange.to_client == OK + b"he"
    assert exchange.listening == (CLIENT,)
    exchange.sent(len(exchange.to_client), 0)
    assert not exchange.over
    exchange.hear(UPSTREAM, b"llo")
    assert exchange.ended
    assert not exchange.over
    exchange.sent(3, 0)
    assert exchange.over
    assert exchange.reusable
    assert not exchange.closing


def test_an_answer_without_a_body_is_over_with_its_head() -> None:
    exchange = heard(get(method="HEAD"), OK)
    assert exchange.ended
    assert exchange.to_client == OK
    assert exchange.reusable


def test_bytes_behind_an_answer_are_dropped_and_end_the_server_s_connection() -> None:
    exchange = heard(get(), OK + b"hello" + OK + b"other")
    assert exchange.to_client == OK + b"hello"
    assert not exchange.reusable


@pytest.mark.parametrize(
    "request_", [get(), get("Content-Length: 2", method="POST") + b"hi"], ids=["bare", "body"]
)
def test_bytes_behind_a_request_go_by_another_connection_to_its_server(request_: bytes) -> None:
    exchange = heard(request_ + get(), OK + b"hello")
    assert exchange.early == get()
    assert not exchange.reusable
    assert not exchange.closing


@pytest.mark.parametrize(
    ("version", "head", "body"),
    [
        ("1.1", ["Transfer-Encoding: chunked"], chunk(b"hello")),
        ("1.0", ["Connection: close"], b"hello"),
    ],
)
def test_an_answer_in_chunks_is_chunked_anew_or_ends_with_the_connection(
    version: str, head: list[str], body: bytes
) -> None:
    came = head_bytes("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")
    exchange = heard(get(version=version), came, b"5;x\r\nhe", b"llo\r\n")
    assert exchange.closing is (version == "1.0")
    expected = chunk(b"he") + chunk(b"llo") if version == "1.1" else b"hello"
    assert exchange.to_client == head_bytes("HTTP/1.1 200 OK", *head) + expected
    exchange.hear(UPSTREAM, b"0\r\nX: 1\r\n\r\n")
    assert exchange.ended
    assert exchange.to_client.endswith(b"\r\n0\r\n\r\n" if version == "1.1" else b"hello")
    assert exchange.reusable


def test_an_answer_until_the_end_gets_an_end_that_can_be_told() -> None:
    exchange = heard(get(), head_bytes("HTTP/1.1 200 OK"), b"hello")
    assert exchange.to_client.endswith(b"chunked\r\n\r\n" + chunk(b"hello"))
    assert not exchange.ended
    exchange.hear(UPSTREAM, b"")
    assert exchange.ended
    assert exchange.to_client.endswith(chunk(b"hello") + b"0\r\n\r\n")
    assert not exchange.reusable
    assert not exchange.closing


@pytest.mark.parametrize(
    "head",
    [
        head_bytes("HTTP/1.1 200 OK", "Content-Length: 5", "Connection: close"),
        head_bytes("HTTP/1.0 200 OK", "Content-Length: 5"),
    ],
)
def test_a_server_that_says_it_ends_is_not_asked_again(head: bytes) -> None:
    assert not heard(get(), head + b"hello").reusable


@pytest.mark.parametrize(
    "answers",
    [
        (b"",),
        (OK + b"he", b""),
        (head_bytes("HTTP/1.1 200 OK", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n", b""),
        (head_bytes("HTTP/1.1 200 OK", "Transfer-Encoding: chunked") + b"zz",),
        (b"SSH-2.0-OpenSSH_9.6\r\n",),
        (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",),
        (head_bytes("HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 6"),),
        (head_bytes("HTTP/1.1 200 OK", "Content-Length: -1"),),
        (head_bytes("HTTP/1.1 101 Switching", *ASKS),),
        (b"HTTP/1.1 200 OK\r\n" + b"A: 1\r\n" * 20_000,),
    ],
)
def test_an_answer_that_two_clients_could_read_differently_is_refused(
    answers: tuple[bytes, ...],
) -> None:
    with pytest.raises(BadAnswer):
        heard(get(), *answers)


def test_silence_is_told_from_an_answer_begun() -> None:
    exchange = begin(get())
    with pytest.raises(BadAnswer):
        exchange.hear(UPSTREAM, b"")
    assert not exchange.heard
    exchange.hear(UPSTREAM, b"H")
    assert exchange.heard
    assert exchange.to_client == b""


def test_an_early_answer_goes_on_at_once_and_ends_the_client_s_connection() -> None:
    exchange = heard(get("Content-Length: 50", method="POST") + b"hello", OK + b"sorry")
    assert (
        exchange.to_client
        == head_bytes("HTTP/1.1 200 OK", "Content-Length: 5", "Connection: close") + b"sorry"
    )
    assert exchange.closing
    assert not exchange.reusable


def test_an_answer_before_the_request_has_gone_ends_the_server_s_connection() -> None:
    exchange = begin(get(), sent=False)
    exchange.hear(UPSTREAM, OK + b"sorry")
    assert not exchange.reusable
    assert not exchange.closing


@pytest.mark.parametrize(
    ("version", "fields"),
    [("1.1", ["Connection: close"]), ("1.0", []), ("1.0", ["Connection: keep-alive"])],
)
def test_a_client_s_connection_ends_when_it_says_so(version: str, fields: list[str]) -> None:
    exchange = begin(get(*fields, version=version), sent=False)
    assert exchange.to_upstream.endswith(b"\r\nConnection: close\r\n\r\n")
    assert exchange.closing


# Interim answers and switches.


def test_interim_answers_go_on_and_the_final_one_follows() -> None:
    hints = head_bytes("HTTP/1.1 103 Early Hints", "Link: </a>")
    exchange = heard(get(), CONTINUE + hints[:5], hints[5:] + OK + b"he")
    assert exchange.to_client == CONTINUE + hints + OK + b"he"
    assert exchange.answered


def test_an_interim_answer_alone_is_no_answer() -> None:
    exchange = heard(get(), CONTINUE)
    assert exchange.to_client == CONTINUE
    assert not exchange.answered
    with pytest.raises(BadAnswer):
        exchange.hear(UPSTREAM, b"")


def test_a_client_of_http_1_0_gets_no_interim_answer() -> None:
    assert heard(get(version="1.0"), CONTINUE).to_client == b""


def test_interim_answers_have_an_end() -> None:
    exchange = heard(get(), CONTINUE * INTERIM_MAX)
    with pytest.raises(BadAnswer, match="without end"):
        exchange.hear(UPSTREAM, CONTINUE)


def test_a_websocket_takes_over_with_what_both_sides_have_said() -> None:
    switch = head_bytes("HTTP/1.1 101 Switching Protocols", *ASKS)
    exchange = begin(get(*ASKS) + b"frames")
    assert exchange.to_upstream == b""  # not before the server has agreed
    exchange.hear(UPSTREAM, switch + b"hello")
    assert exchange.switched
    assert exchange.over
    assert (exchange.to_client, exchange.to_upstream) == (switch + b"hello", b"frames")


@pytest.mark.parametrize(
    "fields", [("Connection: Upgrade", "Upgrade: h2c"), (), ("Upgrade: websocket",)]
)
def test_a_switch_to_anything_else_is_refused(fields: tuple[str, ...]) -> None:
    with pytest.raises(BadAnswer, match="nobody asked for"):
        heard(get(*ASKS), head_bytes("HTTP/1.1 101 Switching Protocols", *fields))


def test_an_upgrade_that_is_declined_ends_the_connection() -> None:
    """What the client sends then are frames, and must not be read as a request."""
    exchange = heard(get(*ASKS) + b"frames", OK + b"hello")
    assert exchange.closing
    assert exchange.to_upstream == b""
    assert b"\r\nConnection: close\r\n" in exchange.to_client
