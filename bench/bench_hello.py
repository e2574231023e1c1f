"""What reading a ClientHello costs, beside reading a small request with httptools.

    pytest bench/bench_hello.py

The hellos are of the sizes that clients send: 250 bytes (Node), 517 (OpenSSL, padded),
1,700 (a browser's, with a post-quantum key share); then what an attacker may send.
"""

from __future__ import annotations

import httptools
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fuzz.strategies_hello import Hello, record, server_name
from proto.codecs.client_hello import RAW_MAX_BYTES, HelloReader
from proto.errors import HelloRefused

NAME = server_name(b"www.example.com")


def hello_of(size: int) -> bytes:
    """Return a hello of `size` bytes with its record's head and thirteen extensions."""
    others = [(kind, b"\x00\x02\x00\x01") for kind in range(10, 20)]
    bare = len(record(Hello([NAME, *others, (21, b""), (43, b"")]).message()))
    padding = bytes(max(0, size - bare))
    return record(Hello([NAME, *others, (21, padding), (43, b"")]).message())


@pytest.mark.parametrize("size", [250, 517, 1_700, 16_000])
@pytest.mark.benchmark(group="a ClientHello in one segment")
def test_hello(benchmark: BenchmarkFixture, size: int) -> None:
    data = hello_of(size)
    assert benchmark(lambda: HelloReader().feed(data)) == "www.example.com"


@pytest.mark.benchmark(group="a ClientHello in one segment")
def test_request_by_httptools(benchmark: BenchmarkFixture) -> None:
    request = b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"

    class Heard:
        def on_header(self, name: bytes, value: bytes) -> None:
            pass

    def parse() -> None:
        parser = httptools.HttpRequestParser(Heard())
        with pytest.raises(httptools.HttpParserUpgrade):
            parser.feed_data(request)

    benchmark(parse)


@pytest.mark.benchmark(group="a ClientHello that isn't whole")
def test_incomplete_hello(benchmark: BenchmarkFixture) -> None:
    data = hello_of(1_700)[:1_400]
    assert benchmark(lambda: HelloReader().feed(data)) is None


@pytest.mark.parametrize("records", [1, 20, 500])
@pytest.mark.benchmark(group="a ClientHello over records")
def test_hello_over_records(benchmark: BenchmarkFixture, records: int) -> None:
    message = hello_of(517)[5:]
    step = -(-len(message) // records)
    data = b"".join(record(message[at : at + step]) for at in range(0, len(message), step))
    assert benchmark(lambda: HelloReader().feed(data)) == "www.example.com"


@pytest.mark.benchmark(group="the costliest hello")
def test_a_record_for_each_byte_up_to_the_limit(benchmark: BenchmarkFixture) -> None:
    message = hello_of(16_000)[5:]
    data = b"".join(record(bytes([byte])) for byte in message)[: RAW_MAX_BYTES + 1]

    def refuse() -> None:
        with pytest.raises(HelloRefused):
            HelloReader().feed(data)

    benchmark(refuse)
