"""The secret of a proxy that programs are pointed at: `proto/policy/secret.py`."""

from __future__ import annotations

from base64 import b64encode

import pytest

from proto.policy.secret import Secret

SECRET = "s3cretS3cretS3cret"


def basic(credentials: str) -> bytes:
    return b"Basic " + b64encode(credentials.encode())


@pytest.mark.parametrize("user", ["lnk", "anyone", "", "with space"])
def test_the_secret_opens_whatever_the_user(user: str) -> None:
    assert Secret(SECRET).opens(basic(f"{user}:{SECRET}"))


def test_the_scheme_has_no_case_and_any_number_of_spaces() -> None:
    assert Secret(SECRET).opens(b"bAsIc   " + b64encode(f"lnk:{SECRET}".encode()))


def test_the_user_ends_at_the_first_colon() -> None:
    assert Secret("colons:in:the:secret").opens(basic("lnk:colons:in:the:secret"))
    assert not Secret(SECRET).opens(basic(f"lnk:x:{SECRET}"))


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        b"",
        b"Basic",
        b"Basic ",
        b"Basic ####",
        b"Basic =",
        b"Basic bG5rOg",  # no padding
        b"Bearer " + SECRET.encode(),
        SECRET.encode(),
        basic(SECRET),  # no colon
        basic("lnk:"),
        basic(f"lnk:{SECRET}x"),
        basic(f"lnk:{SECRET[:-1]}"),
        basic(f"lnk:{SECRET.upper()}"),
        basic(f"lnk:{SECRET}\0"),
        basic(f"lnk: {SECRET}"),
        basic(f"lnk:{SECRET}") + b" ",
        basic(f"lnk:{SECRET}") + b"\xff",
        basic(f"lnk:{SECRET}").replace(b"Basic ", b"Basic\t"),
        b"Basic " + b64encode(f"lnk:{SECRET}".encode())[:-2] + b"R=",  # a byte more
        b"Basic " + b64encode(f"lnk:{SECRET}".encode())[:-3] + b"B==",  # bits that nothing reads
        b"Basic, " + basic(f"lnk:{SECRET}"),
    ],
)
def test_nothing_else_opens(authorization: bytes | None) -> None:
    assert not Secret(SECRET).opens(authorization)


@pytest.mark.parametrize("text", ["", "short", "x" * 15, "x" * 256, "sixteen letters!", "ä" * 16])
def test_a_secret_that_keeps_nobody_out_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="16 to 255 visible ASCII characters"):
        Secret(text)


def test_the_secret_never_shows() -> None:
    secret = Secret(SECRET)
    assert SECRET not in repr(secret)
    assert SECRET not in f"{secret} {secret!r} {[secret]}"
    assert not hasattr(secret, "__dict__")
