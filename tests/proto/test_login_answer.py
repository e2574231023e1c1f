"""A login's answer between browser and program: `proto/verbs/login_answer.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_login_answer import one_input
from proto.codecs.http1 import RequestHead, RequestReader
from proto.errors import BadAnswer
from proto.verbs.login_answer import DONE, Shown, inward

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "login_answer"
PIECES = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 103 x\r\n", b"HTTP/1.1 302 Go\r\n", b"\r\n", b"\n", b"hi",
     b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n", b"2\r\nhi\r\n", b"0\r\n\r\n",
     b"Content-Type: text/html\r\n", b"Location: http://192.168.1.1/\r\n", b"Refresh: 0\r\n"]
)  # fmt: skip


def head_of(text: bytes) -> RequestHead:
    found = RequestReader().feed(text)
    assert found is not None
    return found[0]


def shown(*pieces: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines of the head that a browser gets, and the body."""
    made = Shown("GET")
    said = b"".join(map(made.feed, pieces))
    head, _, body = said.partition(b"\r\n\r\n")
    return head.split(b"\r\n"), body


def test_no_cookie_or_password_of_the_persons_goes_in() -> None:
    head = head_of(
        b"GET /cb?code=1 HTTP/1.1\r\nHost: localhost:8000\r\nCookie: notebook=SECRET\r\n"
        b"authorization: Basic U0VDUkVU\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n"
        b"Connection: keep-alive\r\n\r\n"
    )
    assert inward(head, b"") == (
        b"GET /cb?code=1 HTTP/1.1\r\nHost: localhost:8000\r\nAccept: */*\r\n"
        b"Connection: close\r\n\r\n"
    )


def test_a_form_goes_in_with_its_length() -> None:
    head = head_of(
        b"POST /cb HTTP/1.1\r\nHost: localhost:8000\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert inward(head, b"code=1") == (
        b"POST /cb HTTP/1.1\r\nHost: localhost:8000\r\n"
        b"Content-Length: 6\r\nConnection: close\r\n\r\ncode=1"
    )


def test_the_programs_page_is_text_that_does_nothing() -> None:
    lines, body = shown(
        b"HTTP/1.1 103 Early Hints\r\nLink: <http://192.168.1.1/>; rel=preload\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nSet-Cookie: a=b\r\n"
        b"Refresh: 0;url=http://192.168.1.1/\r\nContent-Length: 44\r\n\r\n<p>l",
        b"ogged <a href=http://192.168.1.1/>in</a>",
        b" and more",
    )
    assert body == b"logged in\n", "a link may be as large as the window"
    assert lines[0] == b"HTTP/1.1 200 "
    names = {line.partition(b":")[0].lower() for line in lines[1:]}
    assert names == {
        b"cache-control", b"connection", b"content-security-policy", b"content-type",
        b"referrer-policy", b"x-content-type-options",
    }  # fmt: skip
    assert b"Content-Type: text/plain; charset=utf-8" in lines
    assert any(b"sandbox; default-src 'none'" in line for line in lines)


@pytest.mark.parametrize(
    ("kind", "shown_as"),
    [
        (b"text/html", b"text/plain; charset=utf-8"),
        (b"TEXT/HTML;charset=iso-8859-1", b"text/plain;charset=iso-8859-1"),
        (b"text/plain; charset=koi8-r", b"text/plain; charset=koi8-r"),
    ],
)
def test_a_page_keeps_its_charset(kind: bytes, shown_as: bytes) -> None:
    lines, _ = shown(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n\r\nwhy" % kind)
    assert b"Content-Type: " + shown_as in lines


def test_the_end_of_a_page_that_only_its_connection_ends_is_shown() -> None:
    made = Shown("GET")
    said = made.feed(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\na <b")
    assert not made.over
    assert said.endswith(b"\r\n\r\na")
    assert (made.ended(), made.over, made.ended()) == (b" <b\n", True, b"")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_the_program_leads_the_browser_nowhere(status: int) -> None:
    lines, body = shown(
        b"HTTP/1.1 %d Go\r\nLocation: http://192.168.1.1/reboot\r\n\r\n" % status, b"more"
    )
    assert (lines[0], body) == (b"HTTP/1.1 200 ", DONE)
    assert not any(b"192.168" in line for line in lines)


@pytest.mark.parametrize(
    "kind", [b"", b"application/octet-stream", b"text/html, x", b"image/svg+xml", b"text/xml"]
)
def test_what_is_no_page_is_shown_as_plain_text(kind: bytes) -> None:
    lines, _ = shown(b"HTTP/1.1 400 No\r\nContent-Type: %b\r\n\r\nwhy" % kind)
    assert lines[0] == b"HTTP/1.1 400 "
    assert b"Content-Type: text/plain" in lines


def test_an_answer_is_over_where_its_body_is_and_comes_in_any_pieces() -> None:
    made = Shown("GET")
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    said = b"".join(made.feed(text[at : at + 1]) for at in range(len(text)))
    assert made.over
    assert said.endswith(b"\r\n\r\nabc")
    assert made.feed(b"HTTP/1.1 302 Go\r\n\r\n") == b""


@pytest.mark.parametrize(
    "text", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"]
)
def test_what_is_no_answer_is_not_shown(text: bytes) -> None:
    with pytest.raises(BadAnswer):
        Shown("GET").feed(text)


@given(st.integers(0, 255), st.lists(PIECES | st.binary(max_size=6), max_size=12))
def test_whatever_a_program_answers_the_browser_gets_text_alone(step, pieces) -> None:
    one_input(bytes([step]) + b"".join(pieces))


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_the_corpus_holds(path: Path) -> None:
    one_input(path.read_bytes())
