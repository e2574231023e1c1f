"""The readers of heads: `proto/codecs/http1.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import repeat

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.strategies_http import (
    Request,
    Seen,
    cut,
    lenient,
    onward,
    points,
    read_by_h11,
    read_by_httptools,
    requests,
    spoilt,
)
from proto.codecs.fields import FIELDS_MAX
from proto.codecs.http1 import (
    HEAD_MAX_BYTES,
    AnswerReader,
    RequestHead,
    RequestReader,
    ResponseHead,
)
from proto.errors import BadAnswer, HeadTooLarge, MalformedRequest, ProxyError, VersionNotSupported

LINE = b"GET http://example.com/ HTTP/1.1\r\n"
HEAD = LINE + b"Host: example.com\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"

Read = tuple[RequestHead | ResponseHead, bytes]


def read(
    pieces: Iterable[bytes], reader: RequestReader | AnswerReader | None = None
) -> Read | None:
    """Feed pieces until the head is there; the bytes of all pieces behind it come with it."""
    reader = reader or RequestReader()
    left = iter(pieces)
    for piece in left:
        found = reader.feed(piece)
        if found is not None:
            return found[0], found[1] + b"".join(left)
    return None


def outcome(pieces: Iterable[bytes], answer: bool) -> Read | type[ProxyError] | None:
    try:
        return read(pieces, AnswerReader() if answer else RequestReader())
    except ProxyError as error:
        return type(error)


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def refusal(data: bytes) -> ProxyError:
    with pytest.raises(ProxyError) as caught:
        read([data])
    with pytest.raises(type(caught.value)) as again:
        read(bytewise(data))
    assert again.value.message == caught.value.message
    return caught.value


def test_a_head_comes_with_the_bytes_past_it() -> None:
    fields = ((b"Host", b"example.com"), (b"X", b"a\tb"), (b"Empty", b""))
    data = LINE + b"Host: example.com\r\nX:\t a\tb \r\nEmpty:\r\n\r\n\r\nmore"
    head = RequestHead("GET", b"http://example.com/", (1, 1), fields)
    for pieces in ([data], bytewise(data)):
        assert read(pieces) == (head, b"\r\nmore")


def test_an_answer_comes_with_the_bytes_past_it() -> None:
    head = ResponseHead((1, 1), 200, b"OK", ((b"Content-Length", b"5"),))
    for pieces in ([ANSWER + b"hello"], bytewise(ANSWER + b"hello")):
        assert read(pieces, AnswerReader()) == (head, b"hello")


def test_a_reader_tells_whether_it_began_and_how_much_it_takes() -> None:
    reader = RequestReader(max_bytes=100)
    assert reader.feed(b"") is None
    assert (reader.started, reader.room) == (False, 100)
    assert reader.feed(b"GE") is None
    assert (reader.started, reader.room) == (True, 98)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (LINE[:-2] + b"\nHost: example.com\n\n", "LF without"),
        (LINE[:-2] + b"\rHost: example.com\r\r", "CR without"),
        (LINE + b"Host: example.com\r\n\n", "begins with"),
        (LINE + b"Host: example.com\nX: 1\r\n\r\n", "LF without"),
        (LINE + b"Host: example.com\r\n\rX", "CR without"),
        (LINE + b"Host: example.com\r\n\r\rGET", "CR without"),
        (LINE + b"X:\nTransfer-Encoding: chunked\r\n\r\n", "line 2 "),
        (LINE + b"X:\rTransfer-Encoding: chunked\r\n\r\n", "line 2 "),
        (LINE + b"Host: a\r\nX: 1\r\n folded\r\n\r\n", "line 4 of the head begins with"),
        (LINE + b"Host : example.com\r\n\r\n", "colon"),
        (LINE + b"Content-Length 5\r\n\r\n", "colon"),
        (LINE + b": value\r\n\r\n", "begins with"),
        (LINE + b"X(A): 1\r\n\r\n", "colon"),
        (LINE + b"X: a\x00b\r\n\r\n", "must not hold"),
        (LINE + b"X: a\x7fb\r\n\r\n", "must not hold"),
        (LINE + b"Content-Length\x85: 5\r\n\r\n", "colon"),
        (b"\r\n" + HEAD, "line 1 of the head begins with"),
        (b" " + HEAD, "begins with"),
        (b"GET\thttp://example.com/ HTTP/1.1\r\n\r\n", "must not hold"),
        (b"GET  http://example.com/ HTTP/1.1\r\n\r\n", "method, target and version"),
        (b"GET http://example.com/ HTTP/1.1 \r\n\r\n", "method, target and version"),
        (b"GET http://example.com/ http/1.1\r\n\r\n", "method, target and version"),
        (b"GET http://example.com/\r\n\r\n", "method, target and version"),
        (b"GET http://example.com/\xc3\xa9 HTTP/1.1\r\n\r\n", "must not hold"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "method, target and version"),
        (LINE + b"\r\n", "no Host"),
    ],
)
def test_a_malformed_head_is_refused_saying_why(data: bytes, word: str) -> None:
    error = refusal(data)
    assert type(error) is MalformedRequest
    assert word in error.message


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/3.1"])
def test_another_version_is_named_as_the_reason(version: bytes) -> None:
    assert type(refusal(b"GET / " + version + b"\r\nHost: a\r\n\r\n")) is VersionNotSupported
    assert type(refusal(b"GET / " + version + b"\r\n")) is VersionNotSupported


@pytest.mark.parametrize(
    "data",
    [
        b"\x16",  # a TLS record
        b"\x05",  # SOCKS5
        b"\x04",  # SOCKS4
        b"\x00",
        b"\r",
        b"\n",
        b"(",
        b"\x80",
        b"GET /\x00",
        b"GET / HTTP/1.1\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        LINE + b"Host\x00",
        LINE + b" ",
        LINE + b":",
        LINE + b"X: 1\rY",
        LINE + b"Host : a\r\n",
    ],
)
def test_bytes_that_nothing_could_make_right_are_refused_at_once(data: bytes) -> None:
    assert isinstance(refusal(data), MalformedRequest)
    assert read(bytewise(data[:-1])) is None


@pytest.mark.parametrize("data", [b"\x15\x03", b"220 mail.example.com\r\n", b"S", b"HTTP/1.1 2OO"])
def test_a_server_of_another_protocol_is_a_bad_answer(data: bytes) -> None:
    for pieces in ([data + b"\r\n"], bytewise(data + b"\r\n")):
        with pytest.raises(BadAnswer):
            read(pieces, AnswerReader())


def test_an_answer_as_strict_as_a_request_is_read() -> None:
    for data in (
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 020 OK\r\n\r\n",
    ):
        for pieces in ([data], bytewise(data)):
            with pytest.raises(BadAnswer):
                read(pieces, AnswerReader())


def test_the_longest_head_is_taken_and_one_byte_more_is_too_large() -> None:
    start = LINE + b"Host: example.com\r\nX: "
    longest = start + b"a" * (HEAD_MAX_BYTES - len(start) - 4) + b"\r\n\r\n"
    found = read([longest + b"rest"])
    assert found is not None
    assert found[1] == b"rest"
    assert read(cut(longest, [4000, 40000])) == (found[0], b"")
    more = longest[:-4] + b"a\r\n\r\n"
    for pieces in ([more], [more[:HEAD_MAX_BYTES]], bytewise(more)):
        with pytest.raises(HeadTooLarge):
            read(pieces)
    with pytest.raises(BadAnswer, match="65536"):
        read([b"HTTP/1.1 200 OK\r\nX: " + b"a" * HEAD_MAX_BYTES], AnswerReader())


def test_what_is_wrong_in_the_head_counts_before_its_size() -> None:
    assert type(refusal(LINE + b"X: " + b"a" * HEAD_MAX_BYTES + b"\x00")) is HeadTooLarge
    assert type(refusal(LINE + b"X: \x00" + b"a" * HEAD_MAX_BYTES)) is MalformedRequest
    assert type(refusal(b"A" * HEAD_MAX_BYTES)) is HeadTooLarge
    # A CR in the last place could still have got its LF.
    at_the_end = LINE + b"X: " + b"a" * (HEAD_MAX_BYTES - len(LINE) - 4) + b"\r\n"
    assert type(refusal(at_the_end)) is HeadTooLarge


def test_as_many_fields_as_there_may_be_are_taken_and_one_more_is_too_large() -> None:
    most = LINE + b"Host: a\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(FIELDS_MAX - 1))
    for pieces in ([most + b"\r\n"], bytewise(most + b"\r\n")):
        assert read(pieces) is not None
    assert type(refusal(most + b"Y: 1\r\n\r\n")) is HeadTooLarge
    assert type(refusal(most + b"Y: 1\r\nZ : 1\r\n\r\n")) is HeadTooLarge
    assert type(refusal(most + b"Y : 1\r\nZ: 1\r\n\r\n")) is MalformedRequest
    with pytest.raises(BadAnswer):
        read([b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * (FIELDS_MAX + 1) + b"\r\n"], AnswerReader())


def test_a_head_byte_by_byte_costs_no_more_than_its_length() -> None:
    """Matching from the start each time took 25 times as long; four times the bytes, 16."""

    def seconds(length: int) -> float:
        pieces = bytewise(LINE + b"Host: example.com\r\nX: " + b"a" * length + b"\r\n\r\n")
        began = time.process_time()
        assert read(pieces) is not None
        return time.process_time() - began

    short = min(seconds(7_000) for _ in range(5))
    long = min(seconds(56_000) for _ in range(3))
    assert short < 0.1
    assert long < 8 * 4 * short


@given(st.one_of(spoilt(), st.binary(max_size=300)), points, st.booleans())
@example(b"GET / HTTP/2.0\r\n\x00", [], False)
def test_how_a_stream_is_cut_never_changes_the_outcome(
    data: bytes, at: list[int], answer: bool
) -> None:
    whole = outcome([data], answer)
    assert outcome(cut(data, at), answer) == whole
    assert outcome(bytewise(data), answer) == whole


@given(st.sampled_from(["HTTP/1.1 200 OK", "HTTP/1.0 304 ", "HTTP/1.1 204"]), spoilt(), points)
def test_nor_that_of_an_answer(line: str, request: bytes, at: list[int]) -> None:
    data = line.encode() + request[request.find(b"\r\n") :]
    assert outcome(cut(data, at), True) == outcome([data], True) == outcome(bytewise(data), True)


@given(st.one_of(spoilt(), st.binary(max_size=300), requests.map(lambda each: each.head)))
def test_only_documented_errors_come_of_any_bytes(data: bytes) -> None:
    documented = (MalformedRequest, HeadTooLarge, VersionNotSupported)
    request, answer = outcome([data], False), outcome([data], True)
    assert not isinstance(request, type) or request in documented
    assert not isinstance(answer, type) or answer is BadAnswer


@given(requests)
def test_what_goes_out_is_the_one_request_that_was_meant(request: Request) -> None:
    gone = onward(request.data)
    assert gone is not None
    for reader in READERS:
        assert reader(gone[1]) == [request.seen]


@given(spoilt())
def test_whatever_goes_out_is_one_request_to_every_reader(data: bytes) -> None:
    try:
        gone = onward(data)
    except MalformedRequest:
        return
    if gone is None:
        return
    url, out = gone
    first, *others = [
        seen for seen in map(unless_refused, READERS, repeat(out)) if seen is not None
    ]
    assert len(first) == 1
    assert all(other == first for other in others)
    assert (first[0].target, first[0].host) == (url.origin_form, url.authority)


def unless_refused(reader: Callable[[bytes], list[Seen]], data: bytes) -> list[Seen] | None:
    """What a reader sees, None where it is stricter than we are and takes nothing at all."""
    try:
        return reader(data)
    except httptools.HttpParserError:
        return None


READERS: list[Callable[[bytes], list[Seen]]] = [
    lenient,
    lambda data: lenient(data, cr_ends=True),
    lambda data: lenient(data, length_wins=True),
    read_by_h11,
    read_by_httptools,
]
