"""JSON-RPC messages: `proto/codecs/jsonrpc.py`."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_jsonrpc import one_input
from proto.codecs import jsonrpc
from proto.codecs.jsonrpc import (
    DEPTH_MAX,
    ID_MAX_CHARS,
    INVALID_REQUEST,
    NUMBER_MAX_CHARS,
    PARSE_ERROR,
    Answer,
    Id,
    LineReader,
    MalformedMessage,
    Notification,
    Number,
    Request,
    TooManyParts,
    answered_by,
    error,
    parse,
    read,
    text_of,
    write,
)

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "jsonrpc"

MESSAGES = [
    (b'{"jsonrpc":"2.0","id":1,"method":"a"}', Request(Number("1"), "a", None)),
    (b'{"jsonrpc":"2.0","id":"1","method":"a","params":{}}', Request("1", "a", {})),
    (b'{"jsonrpc":"2.0","method":"a"}', Notification("a", None)),
    (
        b'{"jsonrpc":"2.0","method":"a","params":{"b":[1.50,null]}}',
        Notification("a", {"b": [Number("1.50"), None]}),
    ),
    (b'{"jsonrpc":"2.0","id":-7,"result":true}', Answer(Number("-7"), result=True)),
    (b'{"jsonrpc":"2.0","id":1,"result":null}', Answer(Number("1"))),
    (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}',
        Answer(None, error={"code": Number("-1"), "message": "m"}),
    ),
]

NOT_JSON = [
    b"",
    b" ",
    b"{",
    b"{}x",
    b'{"a":1}{"a":2}',
    b'{"a":1}\n{"a":2}',
    b'{"a":"b\nc"}',
    b'{"a":"\x00"}',
    b"{'a':1}",
    b'{"a":1,}',
    b"[01]",
    b"[+1]",
    b"[.5]",
    b"[NaN]",
    b"[Infinity]",
    b"[-Infinity]",
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'["\\ud800"]',
    b'{"\\udfff":1}',
    b'{"a":1,"a":1}',
    b'[{"b":{"a":1,"\\u0061":2}}]',
    b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
    b"[" * 100_000,
    b"1" * (NUMBER_MAX_CHARS + 1),
    "[１]".encode(),
]

NO_MESSAGES = [
    b"7",
    b"null",
    b'"a"',
    b"[]",
    b'[{"jsonrpc":"2.0","id":1,"method":"a"}]',
    b"{}",
    b'{"id":1,"method":"a"}',
    b'{"jsonrpc":2.0,"id":1,"method":"a"}',
    b'{"jsonrpc":"2.0","id":1}',
    b'{"jsonrpc":"2.0","id":1,"method":"a","result":1}',
    b'{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}',
    b'{"jsonrpc":"2.0","id":1,"method":7}',
    b'{"jsonrpc":"2.0","id":1,"method":null}',
    b'{"jsonrpc":"2.0","id":1,"method":"a","params":[]}',
    b'{"jsonrpc":"2.0","id":1,"method":"a","params":null}',
    b'{"jsonrpc":"2.0","method":"a","params":7}',
    b'{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}',
    b'{"jsonrpc":"2.0","result":1}',
    b'{"jsonrpc":"2.0","id":null,"result":1}',
    b'{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}',
    b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}',
    b'{"jsonrpc":"2.0","id":1,"error":null}',
]
NO_IDS = [
    b"null",
    b"true",
    b"{}",
    b"[1]",
    b"1.5",
    b"1e3",
    b"1.0",
    b"-",
    b"-0",
    b'"%b"' % (b"a" * 257),
]


@pytest.mark.parametrize(("data", "message"), MESSAGES)
def test_a_message_is_read_and_printed_as_it_was_meant(data, message):
    assert read(data) == message
    assert read(write(message)) == message


@pytest.mark.parametrize("data", NOT_JSON, ids=lambda d: repr(d[:24]))
def test_what_two_readers_could_read_differently_is_malformed(data):
    with pytest.raises(MalformedMessage) as caught:
        read(data)
    assert caught.value.code == PARSE_ERROR


@pytest.mark.parametrize("data", NO_MESSAGES)
def test_what_is_no_message_is_malformed(data):
    with pytest.raises(MalformedMessage) as caught:
        read(data)
    assert caught.value.code == INVALID_REQUEST


@pytest.mark.parametrize("text", NO_IDS)
def test_an_id_is_text_or_a_whole_number(text):
    with pytest.raises(MalformedMessage):
        read(b'{"jsonrpc":"2.0","id":%b,"method":"a"}' % text)


def test_an_error_tells_whose_request_was_malformed():
    with pytest.raises(MalformedMessage) as caught:
        read(b'{"jsonrpc":"2.0","id":"x","method":7}')
    assert caught.value.id == "x"


def test_an_id_and_a_number_may_be_as_long_as_their_bounds():
    assert read(b'{"jsonrpc":"2.0","id":"%b","method":"a"}' % (b"a" * ID_MAX_CHARS))
    assert parse(b"1" * NUMBER_MAX_CHARS) == Number("1" * NUMBER_MAX_CHARS)
    assert parse(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)


def test_a_message_is_printed_on_one_line_of_ascii():
    said = "a\u2028b\x85c\x0bd\r\ne\x7fé\U0001f600"
    line = write(Notification("m", {"t": said}))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["params"]["t"] == said


def test_no_digit_of_a_number_is_lost():
    for text in ("1.10", "123456789012345678901234567890", "1e400", "-0", "0.1000000000000000055"):
        assert text_of(parse(text.encode())) == text


def test_an_error_is_made_with_its_code():
    assert write(error(None, -1, "m")) == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}'
    )


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers().map(lambda n: Number(str(n)))
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_every_value_is_printed_as_json_reads_it(value):
    text = text_of(value)
    assert parse(text.encode()) == value
    assert text.isascii()
    json.loads(text)


@given(st.binary(max_size=200))
def test_parsers_raise_only_what_they_say(data):
    one_input(data)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda p: p.name)
def test_the_corpus_holds(path):
    one_input(path.read_bytes())


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"bb", b"\xc2\x85"]), max_size=12))
def test_lines_are_the_same_however_they_are_cut(pieces):
    whole = LineReader().feed(b"".join(pieces))
    reader = LineReader()
    assert [line for piece in pieces for line in reader.feed(piece)] == whole


@pytest.mark.parametrize(
    ("said", "id_"),
    [
        (b'{"id":5,"result":{"a":1,"a":2}}', Number("5")),
        (b'\xef\xbb\xbf{"id":"x","result":"\xe9"}', "x"),
        (b'{"id":5.5,"result":{}}', None),
        (b'{"id":5,"method":"x"}', None),
        (b'{"result":{}}', None),
        (b"[5]", None),
        (b"5", None),
        (b'{"id":5', None),
        (b"[" * 100_000, None),
    ],
)
def test_what_is_no_message_may_say_what_it_would_have_answered(said: bytes, id_: Id | None):
    assert answered_by(said) == id_


LIMIT = 1 << 14


@pytest.fixture
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonrpc, "PARTS_MAX", LIMIT)


@pytest.mark.parametrize("part", ["[]", "{}", "1", '""', '"ab"', '{"a":"b"}', '"\\\\"', '"\\""'])
@pytest.mark.usefixtures("few_parts")
def test_what_has_too_many_parts_is_not_read(part: str):
    data = f'{{"id":1,"result":[{f"{part}," * LIMIT}1]}}'.encode()
    tracemalloc.start()
    try:
        with pytest.raises(TooManyParts):
            read(data)
        assert answered_by(data) is None
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * len(data)


@pytest.mark.parametrize(
    "sign", [",", "[", "{", ":", "[],", '\\",', "\\\\,", '\\\\\\",', '{\\"a\\":1},']
)
@pytest.mark.usefixtures("few_parts")
def test_what_stands_in_a_text_is_one_part(sign: str):
    text = json.loads(f'"{sign}"')
    data = f'{{"jsonrpc":"2.0","id":1,"result":"{sign * LIMIT}"}}'.encode()
    assert read(data) == Answer(Number("1"), text * LIMIT)


@pytest.mark.usefixtures("few_parts")
def test_as_many_parts_as_may_be_are_read():
    most = "1," * (LIMIT - 2)
    assert parse(f"[{most}1]".encode())
    with pytest.raises(TooManyParts):
        parse(f"[{most}1,1,1]".encode())


@given(
    st.recursive(
        st.text(max_size=4) | st.none(),
        lambda v: st.lists(v) | st.dictionaries(st.text(max_size=4), v),
    )
)
def test_parts_are_counted_as_json_has_them(value: Any):
    def parts(value: Any) -> int:
        """Count texts, colons, commas and what opens, as they are printed."""
        match value:
            case str():
                return 1
            case list():
                return 1 + max(0, len(value) - 1) + sum(parts(each) for each in value)
            case dict():
                return 1 + max(0, len(value) - 1) + sum(2 + parts(v) for v in value.values())
        return 0

    data = json.dumps(value).encode()
    count = parts(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonrpc, "PARTS_MAX", count)
        parse(data)
        patch.setattr(jsonrpc, "PARTS_MAX", count - 1)
        if count:
            with pytest.raises(TooManyParts):
                parse(data)


def test_only_a_line_feed_ends_a_line_and_empty_ones_are_left_out():
    reader = LineReader()
    assert reader.feed(b"a\x0bb\xc2\x85c\r\n\n\r\nd") == [b"a\x0bb\xc2\x85c"]
    assert reader.feed(b"e\nf") == [b"de"]


def test_a_line_that_goes_on_past_its_bound_is_never_kept():
    reader = LineReader(4)
    assert reader.feed(b"abcd\nab") == [b"abcd"]
    assert not reader.overlong
    assert reader.feed(b"cde") == []
    assert reader.overlong
    assert reader.feed(b"\nab\n") == []
    assert LineReader(4).feed(b"ab\nabcde\nab\n") == [b"ab"]


def test_a_line_in_small_pieces_takes_no_more_than_its_bytes():
    reader, pieces = LineReader(), 200_000
    tracemalloc.start()
    try:
        for number in range(pieces):
            reader.feed(b"%02d" % (number % 100))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * 2 * pieces
    assert len(reader.feed(b"\n")[0]) == 2 * pieces
