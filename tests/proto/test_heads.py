"""Whole heads: `proto/codecs/heads.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies_http import Request, fields, requests, tokens, values
from proto.codecs.fields import FIELDS_MAX, HOP_BY_HOP, Fields, print_fields
from proto.codecs.heads import (
    RequestHead,
    ResponseHead,
    parse_answer,
    parse_request,
    write_request,
    write_response_head,
)
from proto.errors import BadAnswer, MalformedRequest

HOST = (b"Host", b"example.com")
targets = st.from_regex(rb"[\x21-\x7e]{1,40}", fullmatch=True)


def request_with(*lines: bytes, version: bytes = b"1.1") -> bytes:
    head = [b"GET / HTTP/" + version, b"Host: example.com", *lines, b"", b""]
    return b"\r\n".join(head)


def answer_with(*lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""])


@given(tokens, targets, fields)
def test_a_printed_request_parses_back(method: bytes, target: bytes, each: Fields) -> None:
    meant = RequestHead(method.decode(), target, (1, 1), (HOST, *each))
    assert parse_request(write_request(meant.method, target, print_fields(meant.fields))) == meant


@given(st.integers(100, 999), values, fields, st.sampled_from([(1, 0), (1, 1)]))
def test_a_printed_answer_parses_back(
    status: int, reason: bytes, each: Fields, version: tuple[int, int]
) -> None:
    text = write_response_head(status, reason, print_fields(each), version)
    assert parse_answer(text) == ResponseHead(version, status, reason, each)


@given(requests)
def test_a_parsed_request_prints_as_it_was_read(request: Request) -> None:
    head = parse_request(request.head)
    assert head is not None
    assert write_request(head.method, head.target, head.lines) == request.head


@given(tokens, st.text(max_size=10), st.binary(max_size=10), st.binary(max_size=10))
def test_what_would_read_as_something_else_is_never_printed(
    name: bytes, method: str, target: bytes, value: bytes
) -> None:
    each = (HOST, (name, value))
    try:
        text = write_request(method, target, print_fields(each))
    except ValueError:
        return
    assert parse_request(text) == RequestHead(method, target, (1, 1), each)


@pytest.mark.parametrize(
    ("method", "target", "each"),
    [
        ("GET", b"/ HTTP/1.1\r\nX: 1", (HOST,)),
        ("GET /x HTTP/1.1\r\nHost:", b"/", (HOST,)),
        ("GET", b"", (HOST,)),
        ("G\u0118T", b"/", (HOST,)),
        ("GET", b"/", (HOST, (b"X", b"1\r\nContent-Length: 5"))),
        ("GET", b"/", (HOST, (b"X", b" 1"))),
        ("GET", b"/", (HOST, (b"X: 1\r\nY", b"1"))),
        ("GET", b"/", (HOST, (b"X ", b"1"))),
        ("GET", b"/", ()),
        ("GET", b"/", (HOST, HOST)),
        ("GET", b"/", (HOST, (b"Content-Length", b"1"), (b"Content-Length", b"1"))),
    ],
)
def test_a_slip_of_ours_is_an_error_and_not_a_second_request(
    method: str, target: bytes, each: Fields
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which of the two words it says is no matter
        write_request(method, target, print_fields(each))


@pytest.mark.parametrize(
    "lines",
    [
        b"Host: a\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n",
        b"Host: a\nX: 1\r\n",
        b"Host: a\r\n X: 1\r\n",
        b"Host: a\r\nX: 1",
        b"Host: a\r\nhOST:b\r\n",
        b"Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"Host: a\r\nContent-Length: 1\r\ncontent-length:1\r\n",
        b"X: 1\r\n",
    ],
)
def test_lines_that_are_no_fields_of_one_request_are_never_printed(lines: bytes) -> None:
    with pytest.raises(ValueError, match="no head"):
        write_request("GET", b"/", lines)


def test_an_answer_that_would_read_otherwise_is_never_printed() -> None:
    for status, reason in ((200, b"OK\r\nX: 1"), (99, b""), (1000, b""), (200, b" OK")):
        with pytest.raises(ValueError, match="no head"):
            write_response_head(status, reason, b"")
    for lines in (b"A: 1", b"A: 1\r\n\r\n", b"Content-Length: 1\r\nContent-Length: 2\r\n"):
        with pytest.raises(ValueError, match="no head"):
            write_response_head(200, b"OK", lines)


def test_a_call_may_send_on_more_fields_than_are_read() -> None:
    most = tuple((b"X", b"1") for _ in range(FIELDS_MAX))
    lines = print_fields((HOST, *most))
    assert parse_request(write_request("GET", b"/", lines)) is None
    assert parse_answer(write_response_head(200, b"", lines)) is None


@pytest.mark.parametrize("value", [b"a b", b'"close"', b"a;b", b"close\x85", b"a,(b)"])
def test_a_connection_that_is_no_list_of_names_drops_no_other_field(value: bytes) -> None:
    head = RequestHead("GET", b"/", (1, 1), ((b"Connection", value), (b"A", b"1")))
    assert head.lines_without() == b"A: 1\r\n"


def test_fields_of_this_connection_stay_on_it() -> None:
    kept = b"Host:a\r\n", b"Authorization:   b \r\n"
    named = b"Connection: X-Hop\r\nconnection: x-other\r\nx-HOP: 1\r\nX-Other: 1\r\n"
    dropped = [name.title() + b": x\r\n" for name in sorted(HOP_BY_HOP - {b"connection"})]
    text = b"".join([b"HTTP/1.1 200\r\n", kept[0], named, *dropped, kept[1], b"\r\n"])
    head = parse_answer(text)
    assert head is not None
    assert head.lines_without() == kept[0] + kept[1]


def test_a_call_may_drop_more_of_them() -> None:
    head = RequestHead("GET", b"/", (1, 1), (HOST, (b"A", b"1")))
    assert head.lines_without(frozenset({b"host"})) == b"A: 1\r\n"
    assert head.lines_without() == print_fields(head.fields)


def test_connection_never_takes_the_host_or_the_length_away() -> None:
    fields = (HOST, (b"Content-Length", b"5"))
    connection = (b"Connection", b"close, HOST, Content-Length")
    head = RequestHead("GET", b"/", (1, 1), (*fields, connection))
    assert head.lines_without() == print_fields(fields)


def test_a_field_is_found_by_its_name_in_small_letters() -> None:
    head = RequestHead("GET", b"/", (1, 1), ((b"A", b"1"), (b"hOST", b"x"), (b"a", b"2")))
    assert (head.get_all(b"a"), head.get_all(b"b")) == ([b"1", b"2"], [])
    assert (head.one(b"host"), head.one(b"b")) == (b"x", None)
    with pytest.raises(MalformedRequest, match="more than once"):
        head.one(b"a")
    answer = ResponseHead((1, 1), 200, b"", head.fields)
    assert answer.get_all(b"host") == [b"x"]
    with pytest.raises(BadAnswer, match="more than once"):
        answer.one(b"a")
    assert ResponseHead((1, 1), 200, b"", ((b"A", b"1"),)).get_all(b"a") == [b"1"]


@pytest.mark.parametrize(
    "line",
    [
        b"Host: example.com",
        b"host: evil.test",
        b"Content-Length: 5\r\ncontent-length: 5",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Expect: 100-continue\r\nExpect: 100-continue",
        b"Proxy-Authorization: Basic eDp5\r\nProxy-Authorization: Basic eDp6",
        b"Content_Length: 5",
        b"Transfer_Encoding: chunked",
        b"Connection: a b",
        b"Connection: close\r\nConnection: (x)",
        b"Connection: (x)\r\nConnection: close",
        b"Transfer-Encoding: \xa0chunked",
        b"Content-Length: \xb2",
        b"Expect: 100-continue\x85",
        b"Upgrade: websocket\xa0",
        b"Connection: close\x85",
        b"Proxy-Authorization: Basic \xe9",
    ],
)
def test_a_field_that_two_servers_could_read_differently_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedRequest):
        parse_request(request_with(line))


@pytest.mark.parametrize(
    "line",
    [
        b"X: 1\r\nx: 2",
        b"Connection: close, Host\r\nconnection: ,x",
        b"Connection: Upgrade",
        b"X: \xc3\xa9\x80",
        b"X_Y: 1",
        b"Upgrade: a, b",
    ],
)
def test_fields_that_harm_nobody_pass(line: bytes) -> None:
    assert parse_request(request_with(line)) is not None


def test_http_1_0_needs_no_host() -> None:
    head = parse_request(b"GET / HTTP/1.0\r\n\r\n")
    assert head == RequestHead("GET", b"/", (1, 0), ())
    with pytest.raises(MalformedRequest, match="no Host"):
        parse_request(b"GET / HTTP/1.1\r\nX-Host: a\r\n\r\n")


@pytest.mark.parametrize(
    "line",
    [
        b"Content-Length: 5\r\nContent-Length: 5",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Content-Length: \xb2",
    ],
)
def test_an_answer_that_two_clients_could_read_differently_is_bad(line: bytes) -> None:
    with pytest.raises(BadAnswer):
        parse_answer(answer_with(line))


def test_an_answer_may_have_a_field_twice() -> None:
    head = parse_answer(answer_with(b"Set-Cookie: a", b"Set-Cookie: b", b"X: \xe9"))
    assert head is not None
    assert head.get_all(b"set-cookie") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"HTTP/1.1 204", b""),
        (b"HTTP/1.1 204 ", b""),
        (b"HTTP/1.0 999  Request denied ", b"Request denied"),
        (b"HTTP/1.1 200 \xc3\xa9t\xc3\xa9", b"\xc3\xa9t\xc3\xa9"),
    ],
)
def test_a_reason_may_be_missing_or_odd(line: bytes, reason: bytes) -> None:
    head = parse_answer(line + b"\r\n\r\n")
    assert head is not None
    assert head.reason == reason


@pytest.mark.parametrize("text", [b"", b"\r\n\r\n", request_with()[:-1], request_with(b"A : 1")])
def test_what_is_no_head_has_none(text: bytes) -> None:
    assert parse_request(text) is None
    assert parse_answer(text) is None
