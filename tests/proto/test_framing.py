"""Where bodies end: `proto/codecs/framing.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.codecs.fields import Fields, print_fields, split_fields
from proto.codecs.framing import (
    CHUNKED,
    LENGTH_MAX,
    NONE,
    UNTIL_CLOSE,
    Framing,
    Kind,
    answer_framing,
    expects_continue,
    framing_lines,
    request_framing,
    wants_close,
)
from proto.codecs.heads import RequestHead, ResponseHead, Version
from proto.errors import BadAnswer, ExpectationFailed, MalformedRequest, NotImplementedHere

CHUNKS = (b"Transfer-Encoding", b"chunked")
FIVE = (b"Content-Length", b"5")

NOT_LENGTHS = [
    b"+5",
    b"-5",
    b"5_0",
    b"0x5",
    b"5.0",
    b"5;",
    b"5 5",
    b"",
    b"5, 6",
    b"5,5",
    b"1e1",
    b"NaN",
    b"008",
    b"00",
    b"\xd9\xa5",
    b"\xb2",
    b"18446744073709551621",
    b"9223372036854775808",
    b"9" * 5000,
]
NOT_CHUNKED = [
    b"identity",
    b"gzip",
    b"gzip, chunked",
    b"chunked, identity",
    b"chunked, chunked",
    b",chunked",
    b"chunked,",
    b"xchunked",
    b"chunk",
    b"chunked;q=1",
    b'"chunked"',
    b"'chunked'",
    b"",
    b"\xa0chunked",
]


def request(
    *fields: tuple[bytes, bytes], method: str = "POST", version: Version = (1, 1)
) -> RequestHead:
    return RequestHead(method, b"/", version, fields)


def answer(
    *fields: tuple[bytes, bytes], status: int = 200, version: Version = (1, 1)
) -> ResponseHead:
    return ResponseHead(version, status, b"", fields)


def test_a_request_has_no_body_a_length_or_chunks() -> None:
    assert request_framing(request()) == NONE
    assert request_framing(request(method="GET")) == NONE
    assert request_framing(request(FIVE, method="GET")) == Framing(Kind.LENGTH, 5)
    assert request_framing(request(FIVE, version=(1, 0))) == Framing(Kind.LENGTH, 5)
    assert request_framing(request((b"Transfer-encoding", b"CHUNKED"))) == CHUNKED


@given(st.integers(0, LENGTH_MAX))
def test_any_length_of_signed_64_bits_is_taken(length: int) -> None:
    framing = Framing(Kind.LENGTH, length)
    fields, _ = split_fields(framing_lines(framing))
    assert request_framing(request(*fields)) == framing
    assert answer_framing(answer(*fields), "GET") == framing


@pytest.mark.parametrize("value", NOT_LENGTHS)
def test_what_is_not_one_plain_number_is_no_length(value: bytes) -> None:
    for method in ("POST", "CONNECT"):
        with pytest.raises(MalformedRequest):
            request_framing(request((b"Content-Length", value), method=method))
    for method in ("GET", "HEAD"):
        with pytest.raises(BadAnswer):
            answer_framing(answer((b"Content-Length", value)), method)


@pytest.mark.parametrize("value", NOT_CHUNKED)
def test_no_coding_but_chunked_is_known_here(value: bytes) -> None:
    with pytest.raises(NotImplementedHere):
        request_framing(request((b"Transfer-Encoding", value)))
    for method in ("GET", "HEAD"):
        with pytest.raises(BadAnswer):
            answer_framing(answer((b"Transfer-Encoding", value)), method)


@pytest.mark.parametrize(
    "fields",
    [
        (FIVE, CHUNKS),
        (CHUNKS, (b"Content-Length", b"0")),
        (FIVE, (b"Transfer-Encoding", b"identity")),
        (FIVE, FIVE),
        (FIVE, (b"Content-Length", b"6")),
        (CHUNKS, CHUNKS),
    ],
)
def test_a_body_framed_twice_is_refused(fields: Fields) -> None:
    with pytest.raises(MalformedRequest):
        request_framing(request(*fields))
    for status in (200, 204, 304):
        with pytest.raises(BadAnswer):
            answer_framing(answer(*fields, status=status), "GET")


def test_http_1_0_has_no_chunks() -> None:
    with pytest.raises(MalformedRequest, match="HTTP"):
        request_framing(request(CHUNKS, version=(1, 0)))
    with pytest.raises(BadAnswer):
        answer_framing(answer(CHUNKS, version=(1, 0)), "GET")


def test_a_connect_has_no_body() -> None:
    assert request_framing(request(method="CONNECT")) == NONE
    assert request_framing(request((b"Content-Length", b"0"), method="CONNECT")) == NONE
    for fields in ((FIVE,), (CHUNKS,)):
        with pytest.raises(MalformedRequest):
            request_framing(request(*fields, method="CONNECT"))


def test_an_answer_ends_by_its_length_its_chunks_or_its_connection() -> None:
    assert answer_framing(answer(FIVE), "GET") == Framing(Kind.LENGTH, 5)
    assert answer_framing(answer(CHUNKS), "GET") == CHUNKED
    assert answer_framing(answer(), "POST") == UNTIL_CLOSE
    assert answer_framing(answer(version=(1, 0)), "GET") == UNTIL_CLOSE


@pytest.mark.parametrize("fields", [(), (FIVE,), (CHUNKS,)])
def test_some_answers_have_no_body_whatever_they_say(fields: Fields) -> None:
    assert answer_framing(answer(*fields), "HEAD") == NONE
    for status in (100, 103, 204, 304):
        assert answer_framing(answer(*fields, status=status), "GET") == NONE
    assert answer_framing(answer(*fields, status=205), "GET") != NONE


def test_each_framing_is_told_by_at_most_one_field() -> None:
    assert framing_lines(NONE) == framing_lines(UNTIL_CLOSE) == b""
    assert framing_lines(CHUNKED) == print_fields((CHUNKS,))
    assert framing_lines(Framing(Kind.LENGTH, 0)) == b"Content-Length: 0\r\n"


def test_a_connection_ends_where_it_is_said_and_always_in_http_1_0() -> None:
    assert not wants_close(request())
    assert not wants_close(request((b"Connection", b"keep-alive")))
    assert wants_close(request((b"Connection", b"x, Close")))
    assert wants_close(answer((b"Connection", b"x"), (b"connection", b"close")))
    assert wants_close(request((b"Connection", b"keep-alive"), version=(1, 0)))
    assert wants_close(answer((b"Connection", b"no list")))


def test_only_100_continue_is_expected_and_only_in_http_1_1() -> None:
    assert not expects_continue(request())
    assert expects_continue(request((b"Expect", b"100-Continue")))
    assert not expects_continue(request((b"Expect", b"100-continue"), version=(1, 0)))
    for value in (b"200-ok", b"", b"100-continue, x"):
        with pytest.raises(ExpectationFailed):
            expects_continue(request((b"Expect", value)))
