"""Bodies: `proto/codecs/body.py`."""

from __future__ import annotations

from collections.abc import Iterable

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.strategies_http import cut, points
from proto.codecs.body import CHUNK_LINE_MAX_BYTES, LAST_CHUNK, BodyReader, chunk, last_chunk
from proto.codecs.fields import FIELDS_MAX
from proto.codecs.framing import CHUNKED, NONE, UNTIL_CLOSE, Framing, Kind
from proto.codecs.heads import HEAD_MAX_BYTES
from proto.errors import BadAnswer, MalformedRequest, ProxyError

FIVE = Framing(Kind.LENGTH, 5)


def read(
    pieces: Iterable[bytes], framing: Framing = CHUNKED, error: type[ProxyError] = MalformedRequest
) -> tuple[bytes, bytes] | None:
    """Read a body; return it and what is behind it, None if it isn't whole."""
    reader = BodyReader(framing, error)
    payload = b""
    for piece in pieces:
        payload += b"".join(reader.feed(piece))
    return (payload, reader.rest) if reader.done else None


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def outcome(pieces: Iterable[bytes]) -> tuple[bytes, bytes] | str | None:
    try:
        return read(pieces)
    except MalformedRequest as error:
        return error.message


def refused(data: bytes) -> None:
    for pieces in ([data], bytewise(data)):
        with pytest.raises(MalformedRequest) as caught:
            read(pieces)
        assert caught.type is MalformedRequest
    with pytest.raises(BadAnswer):
        read([data], error=BadAnswer)


@pytest.mark.parametrize("framing", [NONE, Framing(Kind.LENGTH, 0)])
def test_no_body_is_done_at_once(framing: Framing) -> None:
    reader = BodyReader(framing, MalformedRequest)
    assert reader.done
    assert not reader.needs_eof
    reader.ended()
    assert reader.feed(b"next") + reader.feed(b" one") == []
    assert reader.rest == b"next one"


def test_a_length_is_read_to_its_last_byte_and_no_further() -> None:
    for pieces in ([b"hello"], [b"hel", b"", b"lo"], bytewise(b"hello")):
        assert read(pieces, FIVE) == (b"hello", b"")
    assert read([b"hel", b"loGET"], FIVE) == (b"hello", b"GET")
    assert read([b"hell"], FIVE) is None


def test_a_body_until_the_end_of_the_stream_is_whole_only_then() -> None:
    reader = BodyReader(UNTIL_CLOSE, BadAnswer)
    assert reader.needs_eof
    assert reader.feed(b"") == []
    assert reader.feed(b"0\r\n\r\n") == [b"0\r\n\r\n"]
    assert not reader.done
    reader.ended()
    assert reader.done


@pytest.mark.parametrize(
    ("framing", "data"),
    [(FIVE, b"hell"), (CHUNKED, b"5\r\nhello\r\n"), (CHUNKED, b"0\r\nX: 1\r\n")],
)
def test_the_end_of_the_stream_before_the_body_s_is_an_error(framing: Framing, data: bytes) -> None:
    for error in (MalformedRequest, BadAnswer):
        reader = BodyReader(framing, error)
        reader.feed(data)
        with pytest.raises(error, match="before the end"):
            reader.ended()


@pytest.mark.parametrize(
    ("data", "payload"),
    [
        (b"0\r\n\r\n", b""),
        (b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", b"hello world"),
        (b"A\r\n0123456789\r\n000\r\n\r\n", b"0123456789"),
        (b'5;name=value;q="a;\\"b\t"\r\nhello\r\n0;end\r\n\r\n', b"hello"),
        (b"5\r\n\r\n0\r\n\r\n0\r\n\r\n", b"\r\n0\r\n"),
        (b"1\r\nx\r\n0\r\nX-Trailer: 1\r\nHost: evil.test\r\nContent-Length: 9\r\n\r\n", b"x"),
        (b"000000000000000a\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    ],
)
def test_chunks_come_without_extensions_and_trailers(data: bytes, payload: bytes) -> None:
    for pieces in ([data + b"GET"], [*bytewise(data), b"GET"]):
        assert read(pieces) == (payload, b"GET")
    assert read(bytewise(data[:-1])) is None


@pytest.mark.parametrize(
    "data",
    [
        b"5 \r\n",
        b" 5\r\n",
        b"+5\r\n",
        b"-5\r\n",
        b"0x5\r\n",
        b"5_\r\n",
        b"5h\r\n",
        b"5,\r\n",
        b"\x0b5\r\n",
        b"\r\n",
        b";a\r\n",
        b"10000000000000005\r\n",
        b"8000000000000000\r\n",
        b"5\nhello\r\n",
        b"5\rhello\r\n",
        b"5\r\r\nhello",
        b"5\r\r;ABCD\r\n34\r\nE\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello\rX",
        b"4\r\nhello\r\n0\r\n\r\n",
        b"6\r\nhello\r\n0\r\n\r\n",
        b"5;a=b\nX\r\nhello",
        b"5;a=b\rX",
        b"5;a\x00\r\n",
        b"5;\xa0\r\n",
        b"5;\r\n",
        b"5; a\r\n",
        b"5;a=\r\n",
        b'5;a="b\r\n',
        b'5;a="b"c\r\n',
        b"0\r\nX: 1\n\r\n",
        b"0\r\n\n",
        b"0\r\n\rX",
        b"0\r\n X: 1\r\n\r\n",
        b"0\r\nX : 1\r\n\r\n",
        b"0\r\nX: 1\r\n folded\r\n\r\n",
        b"0\r\nX: \x00\r\n\r\n",
        b"0\r\nGET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_chunk_that_two_readers_could_end_elsewhere_is_refused(data: bytes) -> None:
    refused(data)


def test_the_line_before_a_chunk_is_bounded() -> None:
    longest = b"1;" + b"x" * (CHUNK_LINE_MAX_BYTES - 4) + b"\r\n"
    assert read([longest + b"a\r\n" + LAST_CHUNK]) == (b"a", b"")
    refused(longest[:-2] + b"x\r\n")
    refused(b"1;" + b"x" * CHUNK_LINE_MAX_BYTES)


@given(st.integers(0, 60))
def test_trailers_stand_apart_as_they_came(at: int) -> None:
    data = b"2\r\nhi\r\n0\r\nX-Trailer: 1\r\nLink-Refused:  no \r\n\r\nGET"
    reader = BodyReader(CHUNKED, MalformedRequest)
    assert reader.trailers == b""
    assert b"".join(reader.feed(data[:at]) + reader.feed(data[at:])) == b"hi"
    assert (reader.done, reader.rest) == (True, b"GET")
    assert reader.trailers == b"X-Trailer: 1\r\nLink-Refused:  no \r\n"


def test_the_last_chunk_is_printed_with_its_trailers() -> None:
    assert last_chunk(()) == LAST_CHUNK
    assert last_chunk(((b"A", b"b"), (b"C", b""))) == b"0\r\nA: b\r\nC: \r\n\r\n"
    with pytest.raises(ValueError, match="no field"):
        last_chunk(((b"A", b"b\r\nC: d"),))


def test_trailers_are_bounded_in_bytes_and_number() -> None:
    longest = b"X: " + b"a" * (HEAD_MAX_BYTES - 9) + b"\r\n\r\n"
    for pieces in ([b"0\r\n" + longest], [b"0\r\n", *bytewise(longest)]):
        assert read(pieces) == (b"", b"")
    refused(b"0\r\nY" + longest)
    most = b"0\r\n" + b"X: 1\r\n" * FIELDS_MAX
    assert read([most + b"\r\n"]) == read(bytewise(most + b"\r\n")) == (b"", b"")
    refused(most + b"X: 1\r\n\r\n")


def test_a_chunk_is_handed_out_as_it_comes_and_never_gathered() -> None:
    reader = BodyReader(CHUNKED, MalformedRequest)
    assert reader.feed(b"7fffffffffffffff\r\nab") == [b"ab"]
    for _ in range(3):
        assert reader.feed(b"x" * 1000) == [b"x" * 1000]
    assert not reader.done


def test_no_chunk_is_printed_that_would_end_the_body() -> None:
    assert chunk(b"0123456789abcdef") == b"10\r\n0123456789abcdef\r\n"
    with pytest.raises(AssertionError):
        chunk(b"")


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), points, st.binary(max_size=9))
def test_what_is_chunked_reads_back_here_and_in_h11(
    payload: list[bytes], at: list[int], behind: bytes
) -> None:
    data = b"".join(map(chunk, payload)) + LAST_CHUNK
    assert read(cut(data + behind, at)) == (b"".join(payload), behind)
    assert read_by_h11(data + behind) == (b"".join(payload), behind)


pieces_of_chunks = st.sampled_from(
    [
        b"\r\n",
        b"\n",
        b"\r",
        b"0",
        b"5",
        b"a",
        b"0\r\n\r\n",
        b"5\r\nhello\r\n",
        b";x=y",
        b'"',
        b" ",
        b"X: 1\r\n",
    ]
)
chunkish = st.lists(st.one_of(pieces_of_chunks, st.binary(max_size=3)), max_size=14).map(b"".join)


@given(chunkish, points)
@example(b'1;a="\\\r\n"', [])
def test_how_a_body_is_cut_never_changes_the_outcome(data: bytes, at: list[int]) -> None:
    whole = outcome([data])
    assert outcome(cut(data, at)) == whole
    assert outcome(bytewise(data)) == whole


@given(chunkish)
def test_h11_reads_the_same_where_a_body_is_taken(data: bytes) -> None:
    found = outcome([data])
    if isinstance(found, tuple):
        assert read_by_h11(data) == found


def read_by_h11(data: bytes) -> tuple[bytes, bytes]:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + data
    )
    connection.next_event()
    payload = b""
    while isinstance(event := connection.next_event(), h11.Data):
        payload += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    return payload, connection.trailing_data[0]
