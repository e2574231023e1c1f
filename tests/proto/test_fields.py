"""Field lines: `proto/codecs/fields.py`."""

from __future__ import annotations

import pytest
from hypothesis import given

from fuzz.strategies_http import fields
from proto.codecs.fields import (
    FIELD_LINES,
    OPTIONS,
    Fields,
    index_of,
    is_token,
    options_of,
    print_fields,
    split_fields,
)


@given(fields)
def test_what_is_printed_splits_into_what_it_was(each: Fields) -> None:
    lines = print_fields(each)
    assert FIELD_LINES.fullmatch(lines)
    assert split_fields(lines) == (each, index_of(each))


def test_white_space_round_a_value_is_not_its_own() -> None:
    assert split_fields(b"A: \t x y\t \r\nB:\r\nC:z\r\n")[0] == (
        (b"A", b"x y"),
        (b"B", b""),
        (b"C", b"z"),
    )


def test_bytes_that_only_text_would_strip_stay() -> None:
    assert split_fields(b"A:\x85x\xa0\r\n")[0] == ((b"A", b"\x85x\xa0"),)


@pytest.mark.parametrize("text", [b"", b"a b", b"a:", b"(a)", b"\x80", b"a\r", b'"a"'])
def test_what_is_no_token(text: bytes) -> None:
    assert not is_token(text)
    assert is_token(b"a!#$%&'*+-.^_`|~Z9")


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([], set()),
        ([b""], set()),
        ([b"close"], {b"close"}),
        ([b"x-A,, Close ", b",X-B"], {b"x-a", b"close", b"x-b"}),
        ([b" \t, ,"], set()),
    ],
)
def test_options_of_several_fields_are_one_list(values: list[bytes], options: set[bytes]) -> None:
    assert options_of(values) == options
    assert all(map(OPTIONS.fullmatch, values))


@pytest.mark.parametrize("value", [b"a b", b'"close"', b"a;b", b"close\x85", b"a,(b)", b"a\tb"])
def test_a_connection_that_is_no_list_of_names_has_no_options(value: bytes) -> None:
    assert options_of([b"close", value]) is None
    assert OPTIONS.fullmatch(value) is None


@pytest.mark.parametrize(
    "field",
    [
        (b"", b"1"),
        (b"X ", b"1"),
        (b"X:Y", b"1"),
        (b"X\r\nY", b"1"),
        (b"X", b"1\r\nContent-Length: 5"),
        (b"X", b"1\n"),
        (b"X", b"\0"),
        (b"X", b" 1"),
        (b"X", b"1\t"),
    ],
)
def test_what_would_read_as_another_field_is_never_printed(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="no field"):
        print_fields(((b"A", b"1"), field))
