"""A secret is found however its characters are written, and nothing else is."""

from __future__ import annotations

import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.verbs.spelled import Spelled

SECRET = "k/ey+RE:AL=012"
WAYS = (
    SECRET,
    quote(SECRET),  # a path's: the slash stays
    quote(SECRET, safe=""),
    quote(SECRET, safe="/+=").replace("%3A", "%3a"),
    quote_plus(SECRET).lower().replace("re", "RE").replace("al", "AL"),
    SECRET.replace("/", "\\/"),
    SECRET.replace("+", "\\u002B"),
    SECRET.replace("=", "\\u003d"),
    "".join(each if each.isalnum() else f"\\u{ord(each):04x}" for each in SECRET),
    SECRET.replace("/", "&#x2F;").replace("=", "&#61;"),
    "".join(each if each.isalnum() else f"&#{ord(each)};" for each in SECRET),
    SECRET.replace(":", "&#058;").replace("=", "&#061;"),
)


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_is_found_however_its_signs_are_written(way: str) -> None:
    spelled = Spelled([SECRET.encode()])
    assert spelled.starred(f"<{way}>".encode()) == b"<" + b"*" * len(way) + b">"
    assert spelled.replaced(f"{way}{way}".encode(), b"x") == b"xx"


@pytest.mark.parametrize("way", WAYS)
def test_each_beginning_of_it_is_waited_for(way: str) -> None:
    spelled = Spelled([SECRET.encode()])
    for end in range(1, len(way)):
        assert spelled.begun(b"..." + way[:end].encode()) == 3


@pytest.mark.parametrize(
    "other",
    [
        SECRET[:-1],
        SECRET.lower(),
        SECRET.replace("/", "%2E"),
        SECRET.replace("/", "/ "),
        SECRET.replace("k", "%6b"),
        SECRET.replace("+", "%2"),
        SECRET.replace("+", "\\u2B"),
        SECRET.replace("=", "&#62;"),
        SECRET.replace("/", "&sol"),
    ],
)
def test_what_is_nearly_it_passes(other: str) -> None:
    assert Spelled([SECRET.encode()]).starred(other.encode()) == other.encode()


def test_signs_that_have_names_in_a_page_and_spaces_are_known() -> None:
    secret = "a&b<c>d\"e'f g"
    spelled = Spelled([secret.encode()])
    for way in (html.escape(secret), secret.replace(" ", "+"), json.dumps(secret)[1:-1]):
        assert spelled.starred(way.encode()) == b"*" * len(way)


def test_of_two_the_longer_is_found_first() -> None:
    spelled = Spelled([b"pass-word", b"user:pass-word", b"pass-word"])
    assert spelled.starred(b"user:pass-word pass%2Dword") == b"*" * 14 + b" " + b"*" * 11


@pytest.mark.parametrize("sign", ["&", "%", "\\"])
def test_a_last_sign_that_could_go_on_isnt_waited_for(sign: str) -> None:
    spelled = Spelled([f"secret{sign}".encode()])
    assert spelled.begun(spelled.starred(f"secret{sign}".encode())) == 7
    assert spelled.starred(f"secret{sign}amp;".encode()) == b"*" * 7 + b"amp;"


def test_a_name_holds_one_in_any_case() -> None:
    spelled = Spelled([b"Se-Cret"])
    assert spelled.stands_in(b"x-SE-CRET-y")
    assert spelled.stands_in(b"x-se%2dcret")
    assert not spelled.stands_in(b"x-se-crat")


def test_it_doesnt_show_in_a_traceback() -> None:
    assert SECRET not in repr(Spelled([SECRET.encode()]))


@given(st.text("aA/&%\\u002f;#x", min_size=1, max_size=8), st.binary(max_size=40), st.data())
def test_cut_anywhere_no_secret_is_left(secret: str, noise: bytes, data: st.DataObject) -> None:
    spelled = Spelled([secret.encode()])
    body = noise + secret.encode() + noise
    kept, out = b"", b""
    while body:
        size = data.draw(st.integers(1, len(body)))
        piece, body = body[:size], body[size:]
        text = spelled.starred(kept + piece)
        at = spelled.begun(text)
        out, kept = out + text[:at], text[at:]
    assert secret.encode() not in out + kept
