"""What a strict head costs beside a lenient one that C code reads.

    python -m bench.bench_heads             the ratio to httptools, measured in turns
    pytest bench/bench_heads.py             each by itself

The goal is at most twice httptools (Node's parser, in C) for a request of ten fields, and a
time for a head that comes byte by byte which grows as its length does.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median

import httptools
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from proto.codecs.http1 import RequestReader

ROUNDS, HEADS = 500, 40

TEN_FIELDS = (
    b"GET http://example.com/index.html?q=1 HTTP/1.1\r\n"
    b"Host: example.com\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
    b"Accept-Language: en-US,en;q=0.5\r\n"
    b"Accept-Encoding: gzip, deflate\r\n"
    b"Referer: http://example.com/\r\n"
    b"Cookie: session=0123456789abcdef; theme=dark\r\n"
    b"Cache-Control: no-cache\r\n"
    b"Pragma: no-cache\r\n"
    b"Connection: keep-alive\r\n\r\n"
)
CONNECT = (
    b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n"
    b"User-Agent: curl/7.88.1\r\nProxy-Connection: Keep-Alive\r\n\r\n"
)


class Collector:
    """Keeps what httptools calls back with: as much as our head holds."""

    __slots__ = ("fields", "target", "whole")

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.whole = False

    def on_url(self, url: bytes) -> None:
        self.target = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.whole = True


def by_httptools(data: bytes) -> tuple[bytes, bytes, str, list[tuple[bytes, bytes]]]:
    """Read a head leniently, in C."""
    collector = Collector()
    parser = httptools.HttpRequestParser(collector)
    with suppress(httptools.HttpParserUpgrade):  # it says so after a CONNECT
        parser.feed_data(data)
    assert collector.whole
    return parser.get_method(), collector.target, parser.get_http_version(), collector.fields


def by_ours(data: bytes) -> object:
    """Read a head strictly."""
    found = RequestReader().feed(data)
    assert found is not None
    return found[0]


def ratio(data: bytes) -> tuple[float, float, float]:
    """Return the medians of both in microseconds, ours first, and of their ratio."""
    ours, theirs = [], []
    gc.disable()
    for _ in range(ROUNDS):
        ours.append(_microseconds(by_ours, data))
        theirs.append(_microseconds(by_httptools, data))
    gc.enable()
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return median(ours), median(theirs), median(ratios)


def byte_by_byte_ms(length: int) -> float:
    """Return the median milliseconds for a head with one field of `length` bytes, in bytes."""
    data = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * length + b"\r\n\r\n"
    pieces = [data[at : at + 1] for at in range(len(data))]

    def read() -> None:
        reader = RequestReader()
        for piece in pieces:
            reader.feed(piece)

    times = []
    for _ in range(7):
        began = time.process_time()
        read()
        times.append((time.process_time() - began) * 1e3)
    return median(times)


def _microseconds(read: Callable[[bytes], object], data: bytes) -> float:
    began = time.process_time()
    for _ in range(HEADS):
        read(data)
    return (time.process_time() - began) / HEADS * 1e6


@pytest.mark.parametrize("data", [TEN_FIELDS, CONNECT], ids=["ten fields", "CONNECT"])
@pytest.mark.parametrize("read", [by_ours, by_httptools])
def test_a_head(benchmark: BenchmarkFixture, read: Callable[[bytes], object], data: bytes) -> None:
    benchmark(read, data)


def main() -> None:
    """Print the ratios."""
    for name, data in (("ten fields", TEN_FIELDS), ("CONNECT", CONNECT)):
        ours, theirs, times = ratio(data)
        print(f"{name}: {ours:.1f} µs, httptools {theirs:.1f} µs, ratio {times:.2f} (goal: 2)")
    for length in (7_000, 14_000, 28_000, 56_000):
        print(f"{length} bytes one by one: {byte_by_byte_ms(length):.1f} ms")


if __name__ == "__main__":
    main()
