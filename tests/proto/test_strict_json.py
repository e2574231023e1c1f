"""JSON that can be read one way only: `proto/codecs/strict_json.py`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_strict_json import one_input
from proto.codecs import strict_json
from proto.codecs.strict_json import WHOLE_MAX, NotJson, read_json, write_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-WHOLE_MAX, WHOLE_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_a_value_is_read_as_every_reader_reads_it_and_written_the_same(value: object) -> None:
    text = json.dumps(value).encode()
    assert read_json(text) == value
    assert json.loads(write_json(value)) == value
    assert read_json(write_json(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"{}{}",
        b"{} {}",
        b"{}\n{}",
        b"{} x",
        b"{}//",
        b"{'a':1}",
        b'{"a":1,}',
        b"[1,]",
        b"{a:1}",
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b"+1",
        b"01",
        b".5",
        b"1.",
        b"0x1",
        b"1e999",
        b"-1e999",
        b"[18446744073709551616]",
        b"[" + b"9" * 5000 + b"]",
        b'"\x00"',
        b'"\n"',
        b'"\t"',
        b'"\\x41"',
        b'"\\u12"',
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b"\xff",
        b'"\xc0\xaf"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
        b"{\x00}\x00",
        b"\x0b{}",
        b"\xc2\xa0{}",
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'{"x":[{"a":1,"a":2}]}',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
)
def test_what_two_readers_could_take_apart_is_refused(text: bytes) -> None:
    with pytest.raises(NotJson):
        write_json(read_json(text))


def test_a_pair_of_surrogates_is_one_letter() -> None:
    assert read_json(b'"\\ud83d\\ude00"') == "\U0001f600"
    assert write_json("\U0001f600") == b'"\xf0\x9f\x98\x80"'


def test_what_was_read_deep_but_can_not_be_written_is_refused() -> None:
    value: object = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotJson):
        write_json(value)


def test_the_order_of_keys_is_kept() -> None:
    assert write_json(read_json(b'{ "b" : 1, "a" : [ 2.5 ] }')) == b'{"b":1,"a":[2.5]}'


@given(st.binary(max_size=80) | st.text('{}[]",:01e.-\\ut aNI', max_size=30).map(str.encode))
def test_any_bytes_are_read_one_way_or_refused(data: bytes) -> None:
    one_input(data)


def test_a_body_of_too_many_values_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "VALUES_MAX", 10)
    assert read_json(b"[" + b"0," * 8 + b"0]")
    with pytest.raises(NotJson, match="too many"):
        read_json(b"[" + b"[]," * 10 + b"0]")
