"""Server-sent events: `proto/codecs/sse.py`."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_sse import one_input
from proto.codecs import sse
from proto.codecs.sse import SseReader

CORPUS = Path(__file__).parent.parent.parent / "fuzz" / "corpus" / "sse"

PIECES = [
    b"data: ", b"data:", b"data", b"event: x", b"id: 1", b": c", b"\n", b"\r", b"\r\n", b"\n\n",
    b"a", b"{}", b"\xef\xbb\xbf", b"\xef", b" ", b"retry: 3",
]  # fmt: skip


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (b"data: a\n\n", [b"a"]),
        (b"data: a\r\n\r\n", [b"a"]),
        (b"data: a\r\r", [b"a"]),
        (b"data:a\ndata: b\n\n", [b"a\nb"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data\n\n", [b""]),
        (b"event: x\nid: 7\n: c\n\ndata: a\n\n", [b"a"]),
        (b"data: a\n", []),
        (b"data: a", []),
        (b"\n\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\n\xef\xbb\xbfdata: a\n\n", []),
        (b"Data: a\n\n", []),
        (b" data: a\n\n", []),
    ],
)
def test_a_stream_is_read_as_the_standard_says(stream: bytes, events: list[bytes]) -> None:
    assert SseReader().feed(stream) == events


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join))
def test_however_a_stream_is_cut_it_holds_the_same_events(stream: bytes) -> None:
    one_input(stream)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_the_corpus_holds(path: Path) -> None:
    one_input(path.read_bytes())


@pytest.mark.parametrize("size", [1, 1000, 10**9])
@pytest.mark.parametrize("long", [b"data: " + b"x" * 100, b"data: x\n" * 20])
def test_an_event_that_is_too_long_is_passed_over_and_the_next_one_read(
    monkeypatch: pytest.MonkeyPatch, size: int, long: bytes
) -> None:
    monkeypatch.setattr(sse, "EVENT_MAX_BYTES", 50)
    stream = b"data: a\n\n" + long + b"\n\ndata: b\n\n"
    reader = SseReader()
    found = []
    for at in range(0, len(stream), size):
        found += reader.feed(stream[at : at + size])
        assert len(reader._held) <= 51 + size or size > 1000
    assert found[0] == b"a"
    assert found[-1] == b"b"


@pytest.mark.parametrize(
    ("stream", "last_id", "retry_ms"),
    [
        (b"id: 7\ndata:\n\n", b"7", None),
        (b"id:7\n\nid: 8\n", b"7", None),
        (b"id: 7\n\nid\n\n", b"", None),
        (b"id: 7\n\nid: 8\x00\n\n", b"7", None),
        (b"id: 7\n\nid: \xc3\xa9\n\n", b"7", None),
        (b"id: 7\n\nid: " + b"a" * 1025 + b"\n\n", b"7", None),
        (b"retry: 1500\n", b"", 1500),
        (b"retry:0\nretry: x\nretry: -1\nretry: 1.5\nretry: 9999999999\n", b"", 0),
    ],
)
def test_where_a_stream_is_taken_up_again_is_told(
    stream: bytes, last_id: bytes, retry_ms: int | None
) -> None:
    for size in (1, len(stream)):
        reader = SseReader()
        for at in range(0, len(stream), size):
            reader.feed(stream[at : at + size])
        assert (reader.last_id, reader.retry_ms) == (last_id, retry_ms)
    assert SseReader(last_id=b"9").last_id == b"9"


def test_an_event_of_short_lines_takes_no_more_than_its_bytes() -> None:
    reader, times = SseReader(1 << 20), 60
    tracemalloc.start()
    try:
        for _ in range(times):
            reader.feed(b"data:ab\n" * 1000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 8_000 * times
    assert reader.feed(b"\n") == [b"\n".join([b"ab"] * 1000 * times)]
