"""Pages asked about: `proto/verbs/open_page.py`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_open_page import one_input
from proto.codecs.http1 import RequestHead, RequestReader
from proto.verbs.open_page import (
    Callback,
    PageRefused,
    is_answer,
    is_loopback,
    question,
    read_page,
)

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "open_page"
LOGIN = "https://login.example/authorize?client_id=x&redirect_uri="


def page(uri: str, start: str = LOGIN):
    return read_page((start + quote(uri, safe="")).encode())


@pytest.mark.parametrize(
    ("uri", "callback"),
    [
        ("http://localhost:8080/callback", Callback(8080, "/callback")),
        ("http://127.0.0.1:1455/auth/callback?x=1", Callback(1455, "/auth/callback")),
        ("http://[::1]:9999", Callback(9999, "/")),
        ("http://LOCALHOST:8080/", Callback(8080, "/")),
        ("https://localhost:8080/", None),
        ("http://localhost.evil.test:8080/", None),
        ("http://evil.test:8080/", None),
        ("https://app.example/done", None),
        ("urn:ietf:wg:oauth:2.0:oob", None),
        ("com.example.app:/oauth", None),
        ("http://user@localhost:8080/", None),
        ("", None),
    ],
)
def test_the_port_of_a_login_is_found(uri, callback):
    assert page(uri).callback == callback


def test_no_shell_finds_a_command_in_what_is_opened():
    made = read_page(b"https://a.example/$(calc)?q='+x+'&u=$HOME#$x")
    assert made.url == "https://a.example/%24(calc)?q=%27+x+%27&u=%24HOME#%24x"
    assert made.url in question(made)
    assert not set(made.url) & set("$'\"`\\ <>|^{}")


def test_a_page_without_a_login_has_no_listener():
    assert read_page(b"https://example.com/?q=redirect_uri").callback is None
    assert read_page(b"https://example.com/#redirect_uri=http://localhost:8080/").callback is None
    assert read_page(b"https://example.com/?redirect_uri=%ff").callback is None
    assert read_page(b"https://example.com/?Redirect_Uri=http://localhost:8080/").callback is None


def test_a_plus_in_a_query_is_a_space_and_a_name_may_be_encoded():
    assert read_page(b"https://a.example/?redirect%5Furi=http://localhost:8080/x").callback
    assert read_page(b"https://a.example/?redirect_uri=http://localhost:8080/+").callback is None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff", "UTF-8"),
        (b"", "no http"),
        (b"file:///etc/passwd", "no http"),
        (b"https://a:b@example.com/", "password"),
        (b"https://example.com/\nhttps://evil.test/", "isn't shown"),
        (LOGIN.encode() + b"http://localhost:80/", "port 80"),
        (LOGIN.encode() + b"http://localhost/", "port 80"),
        (LOGIN.encode() + b"http://localhost:8080/&redirect_uri=http://localhost:8081/", "more"),
    ],
)
def test_a_page_that_is_no_page_is_refused(body, why):
    with pytest.raises(PageRefused, match=why):
        read_page(body)


def test_the_question_shows_the_whole_page_in_ascii():
    long = "https://bücher.example/" + "é" * 500
    asked = read_page(long.encode())
    text = question(asked)
    assert asked.url in text
    assert asked.url.startswith("https://xn--bcher-kva.example/%C3%A9")
    assert text.replace("\n", "").isprintable()
    assert text.isascii()
    assert "<" not in question(read_page(b"https://a.example/<b>x</b>"))
    assert "localhost:8080" in question(page("http://localhost:8080/x"))


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("::1", True),
        ("128.0.0.1", False),
        ("::", False),
        ("localhost.evil.test", False),
        ("0.0.0.0", False),
    ],
)
def test_this_machine_is_known_by_name_and_address(host, is_here):
    assert is_loopback(host) is is_here


def head(text: str) -> RequestHead:
    found = RequestReader().feed(text.replace("\n", "\r\n").encode() + b"\r\n\r\n")
    assert found is not None
    return found[0]


ANSWER = "GET /cb?code=1 HTTP/1.1\nHost: localhost:8080"


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        (ANSWER, True),
        ("POST /cb HTTP/1.1\nHost: 127.0.0.1:8080", True),
        ("GET /cb HTTP/1.1\nHost: [::1]:8080", True),
        (f"{ANSWER}\nSec-Fetch-Mode: navigate", True),
        (f"{ANSWER}\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document", True),
        (f"{ANSWER}\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe", False),
        (f"{ANSWER}\nSec-Fetch-Mode: no-cors", False),
        (f"{ANSWER}\nSec-Fetch-Mode: navigate\nSec-Fetch-Mode: cors", False),
        ("GET /favicon.ico HTTP/1.1\nHost: localhost:8080", False),
        ("GET /cb/../x HTTP/1.1\nHost: localhost:8080", False),
        ("OPTIONS /cb HTTP/1.1\nHost: localhost:8080", False),
        ("GET /cb HTTP/1.1\nHost: evil.test:8080", False),
        ("GET /cb HTTP/1.1\nHost: localhost:8081", False),
        ("GET /cb HTTP/1.1\nHost: localhost", False),
        ("GET /cb HTTP/1.0", False),
    ],
)
def test_only_a_navigation_to_the_logins_path_is_its_answer(text, is_it):
    assert is_answer(head(text), Callback(8080, "/cb")) is is_it


@given(st.text(max_size=80))
def test_whatever_is_shown_is_what_opens(text):
    one_input(text.encode("utf-8", "surrogatepass"))
    one_input(
        b"https://a.example/?" + urlencode({"redirect_uri": text[:20]}, errors="replace").encode()
    )


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_the_corpus_holds(path: Path) -> None:
    one_input(path.read_bytes())
