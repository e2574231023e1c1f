"""What a call costs without its system calls, piece by piece.

    pytest bench/bench_hot_paths.py

The scripts are answered at once by a shell that does nothing; bodies, log lines and
pumps are what a shell adds.  Heads, hellos and verdicts have files of their own
(`bench_heads`, `bench_hello`, `bench_policy`); `python -m bench.proxy` measures the whole.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import assert_never

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from proto.calls.limits import Limits
from proto.calls.serve import serve_connection
from proto.codecs.body import LAST_CHUNK, BodyReader, chunk
from proto.codecs.framing import CHUNKED, Framing, Kind
from proto.commands import (
    CLIENT,
    UPSTREAM,
    Close,
    Command,
    Connect,
    Listen,
    Locate,
    Log,
    Look,
    Open,
    Receive,
    Resolve,
    Send,
    Splice,
    StartTls,
)
from proto.errors import MalformedRequest
from proto.events import (
    Closed,
    Connected,
    Event,
    Listening,
    Located,
    Logged,
    Looked,
    Place,
    Received,
    Resolved,
    Sent,
    Spliced,
)
from proto.policy.admission import Admission
from proto.policy.hosts import Policy
from proto.policy.records import Allowed, Ending
from proto.script import Call
from sandbox.state import State
from sandbox.watch import Watch
from shells.splice import READ, Plumbing, Pump
from shells.wire_files import WireLog, open_log

CONNECT = b"CONNECT example.com:8443 HTTP/1.1\r\nHost: example.com:8443\r\n\r\n"
REQUEST = (
    b"GET http://example.com/index.html HTTP/1.1\r\nHost: example.com\r\n"
    b"User-Agent: bench\r\nAccept: */*\r\n\r\n"
)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, world!"
REQUESTS = 100
"""On one kept connection, so that what a connection costs is spread thin."""

POLICY = Policy.of(["example.com"])
PIECE = 64 * 1024


def play(said: list[bytes]) -> int:
    """Run one connection on which the client says these; return how many commands it took."""
    call = Call(serve_connection(POLICY, Limits(), None, 0.0))
    words = iter(said)
    commands = 0
    while (command := call.pending) is not None:
        commands += 1
        call.answer(answer(command, words))
    return commands


def answer(command: Command, words: Iterator[bytes]) -> Event:  # noqa: C901  # a flat match
    """Answer a command as a perfect world would."""
    match command:
        case Receive(sides=(side, *_)) if side is UPSTREAM and len(command.sides) == 1:
            return Received(UPSTREAM, ANSWER, 1.0)
        case Receive(limit=limit):
            from_client = limit > PIECE - 64  # a head's; behind it the server speaks first
            data = next(words, b"") if from_client else ANSWER
            return Received(CLIENT if from_client else UPSTREAM, data, 1.0)
        case Send(to_client=down, to_upstream=up):
            return Sent(len(down), len(up), 1.0)
        case Log():
            return Logged(1.0)
        case Look():
            return Looked(None, 1.0)
        case Resolve():
            return Resolved(("203.0.113.10",), 1.0)
        case Locate(addresses=addresses):
            return Located((Place.ELSEWHERE,) * len(addresses), 1.0)
        case Connect(addresses=addresses):
            return Connected(addresses[0], 1.0)
        case Listen():
            return Listening(1.0)
        case Splice():
            return Spliced(1, 1, 1.0)
        case Close():
            return Closed(1.0)
        case Open() | StartTls():
            raise AssertionError(f"{command!r} is no plain call's")
        case _:
            assert_never(command)


@pytest.mark.benchmark(group="a call's script")
def test_a_connect(benchmark: BenchmarkFixture) -> None:
    assert benchmark(play, [CONNECT]) == 8


@pytest.mark.benchmark(group="a call's script")
def test_a_hundred_plain_requests(benchmark: BenchmarkFixture) -> None:
    assert benchmark(play, [REQUEST] * REQUESTS) >= 6 * REQUESTS


@pytest.mark.parametrize("pieces", [1, 16])
@pytest.mark.benchmark(group="64 KiB of a body")
def test_chunks_taken_apart_and_made_anew(benchmark: BenchmarkFixture, pieces: int) -> None:
    data = chunk(bytes(PIECE // pieces)) * pieces + LAST_CHUNK

    def pass_on() -> int:
        reader = BodyReader(CHUNKED, MalformedRequest)
        payload = b"".join(reader.feed(data))
        assert reader.done
        return len(chunk(payload))

    assert benchmark(pass_on) > PIECE


@pytest.mark.benchmark(group="64 KiB of a body")
def test_a_body_of_known_length(benchmark: BenchmarkFixture) -> None:
    data = bytes(PIECE)

    def pass_on() -> int:
        return sum(map(len, BodyReader(Framing(Kind.LENGTH, PIECE), MalformedRequest).feed(data)))

    assert benchmark(pass_on) == PIECE


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WireLog]:
    with closing(open_log(str(tmp_path / "log"), "bench")) as made:
        yield made


@pytest.mark.parametrize(
    "record",
    [Allowed("connect", "example.com", 443), Ending("connect", "example.com", 443, 1, 1, 0.001)],
    ids=["allowed", "ended"],
)
@pytest.mark.benchmark(group="a log line, written")
def test_a_log_line(benchmark: BenchmarkFixture, log: WireLog, record: Allowed | Ending) -> None:
    assert benchmark(log.write, record, "1f2e3d4c-5")


def pump_of(plumbing: Plumbing, moved: int) -> tuple[Callable[[], None], list[socket.socket]]:
    """Return what moves 32 KiB from one socket to another, after so many bytes before."""
    near, source = socket.socketpair()
    target, far = socket.socketpair()
    for each in (source, target):
        each.setblocking(False)
    pump = Pump(plumbing, (CLIENT, source), (UPSTREAM, target), b"")
    data, buffer = bytes(PIECE // 2), bytearray(PIECE)

    def move() -> None:
        pump.moved = moved
        near.sendall(data)
        assert pump.step() is READ
        assert far.recv_into(buffer) == len(data)

    return move, [near, source, target, far]


@pytest.mark.parametrize("moved", [0, 1 << 20], ids=["copied", "spliced"])
@pytest.mark.benchmark(group="32 KiB through a pump, both peers' ends included")
def test_a_pump(benchmark: BenchmarkFixture, moved: int) -> None:
    with closing(Plumbing()) as plumbing:
        move, sockets = pump_of(plumbing, moved)
        try:
            benchmark(move)
        finally:
            for each in sockets:
                each.close()


@pytest.mark.benchmark(group="before each call")
def test_a_look_at_the_flags(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    watch = Watch(State(str(tmp_path / "lnk")), "bench", print, lambda *_: None)
    watch.begin()
    assert benchmark(watch.look) is None
    watch.end()


@pytest.mark.benchmark(group="before each call")
def test_a_call_counted(benchmark: BenchmarkFixture) -> None:
    admission, moments = Admission(1_000_000), itertools.count()
    benchmark(lambda: admission.count(next(moments) / 2_000))  # 2,000 calls a second
