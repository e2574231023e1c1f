"""The exit of a wire as it is written: `proto/policy/exits.py`."""

from __future__ import annotations

import base64
import contextlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.policy.exits import Exit, Login, Protocol


def exit_of(text: str) -> Exit:
    found = Exit.of(text)
    assert found is not None
    return found


def test_direct_is_no_exit() -> None:
    assert Exit.of("direct") is None


@pytest.mark.parametrize(
    ("text", "protocol", "host", "port", "literal"),
    [
        ("http://proxy.example:3128", Protocol.HTTP, "proxy.example", 3128, False),
        ("http://Proxy.Example.:3128/", Protocol.HTTP, "proxy.example", 3128, False),
        ("socks5://127.0.0.1:1080", Protocol.SOCKS5, "127.0.0.1", 1080, True),
        ("socks5://[::1]:1080", Protocol.SOCKS5, "::1", 1080, True),
        ("socks5://localhost:9050", Protocol.SOCKS5, "localhost", 9050, False),
        ("http://10.0.0.1:80", Protocol.HTTP, "10.0.0.1", 80, True),
    ],
)
def test_an_exit_may_stand_anywhere(
    text: str, protocol: Protocol, host: str, port: int, literal: bool
) -> None:
    found = exit_of(text)
    assert (found.protocol, found.host, found.port) == (protocol, host, port)
    assert found.literal is literal
    assert found.login is None


def test_a_login_is_decoded_and_never_shows() -> None:
    found = exit_of("http://us%40er:p%3Aa%2Fs%25s%C3%A9@proxy.example:3128")
    assert found.login == Login(b"us@er", "p:a/s%sé".encode())
    assert "us@er" not in repr(found)
    assert "s%s" not in repr(found)
    assert found.login is not None
    assert base64.b64decode(found.login.basic.removeprefix(b"Basic ")) == (
        "us@er:p:a/s%sé".encode()
    )


PART = st.binary(min_size=1, max_size=255).filter(
    lambda data: not any(byte < 32 or byte == 127 for byte in data)
)


@given(PART.filter(lambda user: b":" not in user), PART)
def test_every_login_that_can_be_told_can_be_written(user: bytes, password: bytes) -> None:
    text = f"socks5://{quote(user, safe='')}:{quote(password, safe='')}@127.0.0.1:1080"
    found = exit_of(text)
    assert found.login == Login(user, password)
    assert repr(found.login) == "Login(...)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Direct",
        "https://secret.example:443",
        "socks4://secret.example:1080",
        "socks5h://secret.example:1080",
        "http://secret.example",
        "http://secret.example:0",
        "http://secret.example:65536",
        "http://secret.example:080",
        "http://secret.example:3128/path",
        "http://secret.example:3128?x",
        "http://secret.example:3128#x",
        "http://sec ret.example:3128",
        "http://sec\\ret.example:3128",
        "http://sec\nret.example:3128",
        "http://secret@secret@secret.example:3128",
        "http://:3128",
        "http://0x7f.1:3128",
        "http://::1:3128",
        "http://[secret]:3128",
        "secret.example:3128",
        "//secret.example:3128",
        "http://secret:se:cret@a.example:3128",
        "http://secret:se/cret@a.example:3128",
        "http://secret:%zz@a.example:3128",
        "http://secret:%0a@a.example:3128",
        "http://secret%3A:secret@a.example:3128",
        "http://:secret@a.example:3128",
        "http://@a.example:3128",
        "socks5://secret@a.example:3128",
        "socks5://secret:@a.example:3128",
        f"socks5://secret:{'s' * 256}@a.example:3128",
    ],
)
def test_what_is_no_exit_is_refused_in_one_sentence_that_does_not_show_it(text: str) -> None:
    with pytest.raises(ValueError, match="exit") as raised:
        Exit.of(text)
    said = str(raised.value)
    assert "secret" not in said
    assert "sss" not in said
    assert "\n" not in said
    assert said.endswith(".")


def test_basic_takes_a_login_without_a_password() -> None:
    assert exit_of("http://user@a.example:3128").login == Login(b"user", b"")


@given(st.text(max_size=60))
def test_any_text_is_an_exit_or_one_sentence(text: str) -> None:
    with contextlib.suppress(ValueError):
        Exit.of(text)
