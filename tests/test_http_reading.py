"""The lenient reader that judges what the proxy prints: it must see what a lax server sees."""

from __future__ import annotations

import pytest

from fuzz.http_reading import Reader, answer_reader, request_reader


def fed(reader: Reader, data: bytes) -> Reader:
    reader.feed(data)
    return reader


POST = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_messages_are_read_however_they_are_cut(size: int) -> None:
    reader, stream = request_reader(), POST + CHUNKED + b"GET / HTTP/1.1\r\n\r\n" + b"PUT"
    complete = [reader.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
    assert [bytes(m.body) for m in reader.messages] == [b"abc", b"abc", b""]
    assert [m.framing for m in reader.messages] == ["length", "chunked", "none"]
    assert all(m.complete and m.tidy for m in reader.messages)
    assert reader.rest == b"PUT"
    assert complete[-1]


def test_half_a_message_is_not_complete() -> None:
    for data in (POST[:-1], CHUNKED[:-1], b"GET / HTTP/1.1\r\nHost: a\r\n"):
        assert not request_reader().feed(data)


def test_a_bare_line_feed_ends_a_line_and_is_untidy() -> None:
    (message,) = fed(request_reader(), b"GET / HTTP/1.1\nHost: a\nX: b\n\n").messages
    assert message.values("x") == ["b"]
    assert not message.tidy
    (hidden,) = fed(request_reader(), b"GET / HTTP/1.1\r\nX: a\nY: b\r\n\r\n").messages
    assert hidden.values("y") == ["b"]
    assert not hidden.tidy


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nX : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: a\x7fb\r\n\r\n",
    ],
)
def test_what_two_servers_could_read_otherwise_is_untidy(head: bytes) -> None:
    assert not fed(request_reader(), head).messages[0].tidy


def test_a_chunk_that_lies_ends_the_reading() -> None:
    start = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    for body in (b"3\r\nabcd\r\n0\r\n\r\n", b"x\r\n\r\n"):
        reader = fed(request_reader(), start + body)
        assert reader.broken
        assert not reader.messages[0].complete


def test_answers_end_as_their_request_and_status_say() -> None:
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    reader = fed(answer_reader(b"GET"), interim + ok + ok)
    assert [m.status for m in reader.messages] == [103, 200, 200]
    head = fed(answer_reader(b"HEAD"), ok[:-2] + ok)
    assert [bytes(m.body) for m in head.messages] == [b"", b"ok"]
    empty = fed(answer_reader(b"GET"), b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n" + ok)
    assert [m.framing for m in empty.messages] == ["none", "length"]


def test_an_answer_up_to_the_end_is_whole_when_the_end_has_come() -> None:
    reader = fed(answer_reader(b"GET"), b"HTTP/1.1 200 OK\r\n\r\nall")
    assert not reader.messages[0].complete
    reader.end()
    assert reader.messages[0].complete
    assert bytes(reader.messages[0].body) == b"all"
    fed(answer_reader(b"GET"), b"").end()


def test_a_tunnels_bytes_are_the_rest() -> None:
    reader = fed(answer_reader(b"CONNECT"), b"HTTP/1.1 200 OK\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert len(reader.messages) == 1
    assert reader.messages[0].complete
    assert reader.rest == b"GET / HTTP/1.1\r\n\r\n"
    refused = b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno"
    assert bytes(fed(answer_reader(b"CONNECT"), refused).messages[0].body) == b"no"


def test_lines_that_are_no_http_are_read_as_words_that_lack() -> None:
    (message,) = fed(answer_reader(b"GET"), b"SSH-2.0\r\n\r\n").messages
    assert message.words == (b"SSH-2.0", b"", b"")
    assert message.status == 0
