"""The uvloop shell on real sockets: all that its twin is held to, and what is its own."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic

import pytest
import uvloop

from proto.commands import CLIENT, UPSTREAM, Close, Connect, Log, Receive, Resolve, Send, Splice
from proto.events import (
    Cancelled,
    Cause,
    Closed,
    Connected,
    Event,
    Failed,
    Reason,
    Received,
    Resolved,
    Spliced,
)
from proto.policy.records import Allowed, Ending, Record, Refusal
from proto.script import Script
from shells import uvloop_call, uvloop_shell
from shells.env import INTERNAL_ERROR
from shells.splice import BUFFER_BYTES
from shells.uvloop_shell import serve
from shells.workers import Workers
from tests.shells import single
from tests.shells import test_trio_shell as twin
from tests.shells.test_trio_shell import SOON_S, World, accepted, read_all, reset, soon

MIB = 1 << 20

uvloop.new_event_loop().close()  # the first one opens a pipe for signals that stays

# Every test of the twin runs here as well, on the `world` and the shell of this module.
globals().update({name: test for name, test in vars(twin).items() if name.startswith("test_")})


class UvloopWorld(World):
    """One script under the uvloop shell in a thread."""

    def _run(self, script: Callable[[World], Script[None]]) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._token = self  # type: ignore[assignment]
            self._running.set()
            await single.by_uvloop(script(self), self._served, self.env)

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:
            self._failed = error

    def run_sync_soon(self, call: Callable[..., object], *args: object) -> None:
        """Do what a trio token does."""
        self._loop.call_soon_threadsafe(call, *args)


@pytest.fixture(autouse=True)
def _this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin, "trio_shell", uvloop_shell)


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    before = sorted(os.listdir("/proc/self/fd"))
    yield
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def world() -> Iterator[World]:
    made = UvloopWorld()
    yield made
    made.close()


class Tunnels:
    """A proxy that splices every client to one server; `ends` are how it went."""

    def __init__(self, world: World, stack: ExitStack) -> None:
        self._world, self._stack = world, stack
        self.ends: list[Event] = []
        self.ended = threading.Semaphore(0)
        self.address, self.stop = stack.enter_context(twin.serving(self._script, world.env))

    def _script(self, now: float) -> Script[None]:
        event = yield Connect(("127.0.0.1",), self._world.port, now + SOON_S)
        assert isinstance(event, Connected), event
        end = yield Splice(b"", b"", SOON_S)
        self.ends.append(end)
        self.ended.release()

    def open(self) -> tuple[socket.socket, socket.socket]:
        """Return the client's and the server's end of a new tunnel."""
        client = self._stack.enter_context(socket.create_connection(self.address[:2], SOON_S))
        server, _ = accepted(self._world.server)
        server.settimeout(SOON_S)
        return client, self._stack.enter_context(server)

    def next_end(self) -> Event:
        assert self.ended.acquire(timeout=SOON_S)
        return self.ends[-1]


@pytest.fixture
def tunnels(world: World) -> Iterator[Tunnels]:
    with ExitStack() as stack:
        yield Tunnels(world, stack)


# -- tunnels ------------------------------------------------------------------------------


def test_a_server_that_ends_first_still_gets_what_the_client_says(tunnels: Tunnels) -> None:
    client, server = tunnels.open()
    server.sendall(b"goodbye")
    server.shutdown(socket.SHUT_WR)
    assert read_all(client) == b"goodbye"
    client.sendall(b"a late word")
    client.close()
    assert read_all(server) == b"a late word"
    assert isinstance(tunnels.next_end(), Spliced)


def test_sixteen_tunnels_are_exact_both_ways_at_once(tunnels: Tunnels, world: World) -> None:
    size = 3 * MIB
    blobs = [os.urandom(MIB) * 3 for _ in range(32)]
    heard: dict[int, bytes] = {}

    def say(sock: socket.socket, blob: bytes) -> None:
        sock.sendall(blob)
        sock.shutdown(socket.SHUT_WR)

    def hear(sock: socket.socket, number: int) -> None:
        heard[number] = read_all(sock)

    threads = []
    for number in range(16):
        for far, sock in enumerate(tunnels.open()):
            mine = 2 * number + far
            threads.append(threading.Thread(target=say, args=(sock, blobs[mine])))
            threads.append(threading.Thread(target=hear, args=(sock, mine ^ 1)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert [heard[number] == blob for number, blob in enumerate(blobs)] == [True] * 32
    for _ in range(16):
        assert isinstance(tunnels.next_end(), Spliced)
    assert (world.env.counters.up, world.env.counters.down) == (16 * size, 16 * size)


def test_stalled_readers_cost_no_memory_and_lose_no_byte(tunnels: Tunnels) -> None:
    pairs = [tunnels.open() for _ in range(16)]
    block = bytes(256 * 1024)
    sent = []
    tracemalloc.start()
    try:
        for _, server in pairs:
            server.setblocking(False)
            count = stuck = 0
            while count < 64 * MIB and stuck < 50:  # nobody reads: the sender must come to a halt
                try:
                    count += server.send(block)
                    stuck = 0
                except BlockingIOError:
                    stuck += 1
                    threading.Event().wait(0.002)
            assert count < 64 * MIB
            sent.append(count)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < len(pairs) * BUFFER_BYTES + MIB
    for (client, server), count in zip(pairs, sent, strict=True):
        server.close()
        assert count_all(client) == count


def count_all(sock: socket.socket) -> int:
    count = 0
    while data := sock.recv(MIB):
        count += len(data)
    return count


def test_a_small_word_passes_while_another_tunnel_is_busy(tunnels: Tunnels) -> None:
    client, server = tunnels.open()
    busy, source = tunnels.open()

    def talk() -> None:
        with suppress(OSError):
            while True:
                source.sendall(bytes(MIB))

    def hear() -> None:
        with suppress(OSError):
            while busy.recv(MIB):
                pass

    threads = [threading.Thread(target=talk), threading.Thread(target=hear)]
    for thread in threads:
        thread.start()
    for word in range(200):
        client.sendall(b"%03d" % word)
        assert server.recv(3, socket.MSG_WAITALL) == b"%03d" % word
    reset(busy)
    for thread in threads:
        thread.join(SOON_S)


def test_a_reset_after_a_fin_reaches_a_silent_server(tunnels: Tunnels) -> None:
    client, server = tunnels.open()
    client.shutdown(socket.SHUT_WR)
    assert server.recv(1) == b""
    reset(client)  # nobody reads this side any more: only the error itself tells
    end = tunnels.next_end()
    assert isinstance(end, Failed)
    assert (end.reason, end.side) == (Reason.RESET, CLIENT)
    poll = select.poll()
    poll.register(server, 0)  # a full close, which an end of ours alone wouldn't be
    assert poll.poll(SOON_S * 1000)
    with pytest.raises(BrokenPipeError):
        server.sendall(b"x")


def test_what_a_server_said_before_it_broke_still_arrives(tunnels: Tunnels) -> None:
    client, server = tunnels.open()
    client.sendall(b"a long upload")
    assert server.recv(100)
    server.sendall(b"413 too large")
    reset(server)
    with suppress(ConnectionResetError):
        for _ in range(100):
            client.sendall(b"and on")
    heard = b""
    with suppress(ConnectionResetError):
        while data := client.recv(100):
            heard += data
    assert heard == b"413 too large"
    assert isinstance(tunnels.next_end(), Failed)


def test_a_client_on_a_unix_socket_is_served(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind("")  # an abstract name that the kernel chooses
        listener.listen()
        with serving_on(listener, twin.echo, world):
            client.connect(listener.getsockname())
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"


@contextmanager
def serving_on(
    listener: socket.socket, make_script: Callable[[float], Script[None]], world: World
) -> Iterator[None]:
    readable, writable = os.pipe()
    thread = threading.Thread(
        target=serve, args=([listener], make_script, world.env), kwargs={"stop_fd": readable}
    )
    thread.start()
    try:
        yield
    finally:
        os.close(writable)  # an end of file is a word to stop as well
        thread.join(SOON_S)
        os.close(readable)
        assert not thread.is_alive()


# -- connections without room -------------------------------------------------------------


def test_out_of_descriptors_clients_wait_until_one_is_free(world: World) -> None:
    with twin.serving(twin.echo, world.env) as (address, stop), ExitStack() as stack:
        first = stack.enter_context(socket.create_connection(address[:2], SOON_S))
        first.sendall(b"x")
        assert first.recv(1) == b"x"
        second = stack.enter_context(socket.socket())
        second.settimeout(SOON_S)
        with no_descriptor_free():
            second.connect(address[:2])
            second.sendall(b"y")
            first.sendall(b"x")  # whoever is in is served on
            assert first.recv(1) == b"x"
            while not world.said:
                threading.Event().wait(0.01)
        assert second.recv(1) == b"y"
        stop()
    (sentence,) = world.said
    assert os.strerror(errno.EMFILE) in sentence


@contextmanager
def no_descriptor_free() -> Iterator[None]:
    """Fill the table of descriptors up to a limit lowered for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    try:
        with suppress(OSError):
            while True:
                fillers.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for filler in fillers:
            os.close(filler)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_connect_without_a_descriptor_says_that_the_proxy_is_exhausted(world: World) -> None:
    def script(world: World) -> Script[None]:
        for _ in range(2):
            yield from world.ask(Receive((CLIENT,), 1, soon()))
        yield from world.ask(Connect(("127.0.0.1",), world.port, soon()))

    world.client.sendall(b"x")
    world.start(script)
    world.next_event()  # the shell has all the descriptors that it needs for itself
    with no_descriptor_free():
        world.client.sendall(b"x")
        *_, event = world.end()
    assert isinstance(event, Failed)
    assert (event.reason, event.side) == (Reason.EXHAUSTED, UPSTREAM)


# -- faults of ours -----------------------------------------------------------------------


def test_a_bug_in_one_call_leaves_the_others_alone(world: World) -> None:
    def script(now: float) -> Script[None]:
        event = yield Receive((CLIENT,), 100, now + SOON_S)
        assert isinstance(event, Received)
        assert event.data != b"bug"
        yield Send(now + SOON_S, to_client=event.data)

    world.may_fail = True
    with twin.serving(script, world.env) as (address, stop), ExitStack() as stack:
        good, bad = (
            stack.enter_context(socket.create_connection(address[:2], SOON_S)) for _ in range(2)
        )
        bad.sendall(b"bug")
        with pytest.raises(ConnectionResetError):
            bad.recv(1)
        good.sendall(b"fine")
        assert read_all(good) == b"fine"
        stop()
    ((_, record),) = world.log.records
    assert record == Refusal("", "", 0, 0, INTERNAL_ERROR)
    assert "test_uvloop_shell.py" in world.said[0]


def test_a_log_with_a_bug_ends_its_call_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(record: Record, call_id: str) -> bool:
        raise TypeError("secret")

    def script(now: float) -> Script[None]:
        yield Receive((CLIENT,), 100, now + SOON_S)
        yield Log(Allowed("connect", "example.com", 443))

    monkeypatch.setattr(world.log, "write", broken)
    world.may_fail = True
    with twin.serving(script, world.env) as (address, stop):
        for _ in range(2):
            with socket.create_connection(address[:2], SOON_S) as client:
                client.sendall(b"x")
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
        stop()
    assert world.env.counters.bugs == 2
    assert "TypeError" in world.said[0]
    assert "secret" not in "".join(world.said)


def test_a_lookup_with_a_bug_ends_its_call_with_a_last_line(world: World) -> None:
    def lookup(_: str) -> tuple[str, ...]:
        raise ValueError("secret")

    def script(world: World) -> Script[None]:
        yield from world.ask(Resolve("example.com", soon()))

    world.lookup = lookup
    world.may_fail = True
    world.start(script)
    world.end()
    assert [record for _, record in world.log.records] == [Refusal("", "", 0, 0, INTERNAL_ERROR)]


@pytest.mark.parametrize("command", [Receive((UPSTREAM,), 1, 0.0), Send(0.0, to_upstream=b"x")])
def test_a_side_that_is_not_open_is_a_bug_of_the_script(
    world: World, command: Receive | Send
) -> None:
    world.may_fail = True
    world.start(lambda world: world.ask(command))  # type: ignore[arg-type, return-value]
    world.end()
    assert world.env.counters.bugs == 1


def test_a_name_is_never_dialled(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Connect(("localhost",), world.port, soon()))

    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Failed)


# -- lookups ------------------------------------------------------------------------------


def test_a_lookup_that_hangs_does_not_hold_up_another(world: World) -> None:
    hang = threading.Event()

    def lookup(host: str) -> tuple[str, ...]:
        if host == "slow.example":
            hang.wait(SOON_S)
        return ("192.0.2.1",)

    def script(now: float) -> Script[None]:
        named = yield Receive((CLIENT,), 100, now + SOON_S)
        assert isinstance(named, Received)
        found = yield Resolve(named.data.decode(), now + SOON_S)
        assert isinstance(found, Resolved | Cancelled)
        yield Send(now + SOON_S, to_client=type(found).__name__.encode())

    world.lookup = lookup
    with twin.serving(script, world.env) as (address, stop), ExitStack() as stack:
        slow, quick = (
            stack.enter_context(socket.create_connection(address[:2], SOON_S)) for _ in range(2)
        )
        slow.sendall(b"slow.example")
        quick.sendall(b"quick.example")
        assert read_all(quick) == b"Resolved"
        stop()  # doesn't wait for the lookup either
        assert read_all(slow) == b"Cancelled"
        hang.set()


def test_a_lookup_without_a_thread_says_that_the_proxy_is_exhausted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    def script(world: World) -> Script[None]:
        yield from world.ask(Resolve("example.com", soon()))

    monkeypatch.setattr(Workers, "submit", no_thread)
    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Failed)
    assert (event.reason, event.side) == (Reason.EXHAUSTED, UPSTREAM)


# -- deadlines ----------------------------------------------------------------------------


def test_a_deadline_further_off_than_a_sweep_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvloop_shell, "SWEEP_S", 0.05)

    def script(world: World) -> Script[None]:
        yield from world.ask(Receive((CLIENT,), 1, monotonic() + 0.2))
        yield from world.ask(Receive((CLIENT,), 1, monotonic() + 0.01))

    before = monotonic()
    world.start(script)
    events = world.end()
    assert 0.21 <= monotonic() - before < SOON_S
    assert [event.reason for event in events if isinstance(event, Failed)] == [
        Reason.TIMED_OUT,
        Reason.TIMED_OUT,
    ]


def test_a_deadline_that_moves_out_does_not_fire_early(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Receive((CLIENT,), 1, monotonic() + 0.1))
        yield from world.ask(Receive((CLIENT,), 1, monotonic() + 0.2))

    world.client.sendall(b"x")
    before = monotonic()
    world.start(script)
    received, late = world.end()
    assert isinstance(received, Received)
    assert isinstance(late, Failed)
    assert monotonic() - before >= 0.2


def test_a_close_of_a_peer_that_talks_on_lets_others_have_their_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvloop_call, "DRAINS_A_TURN", 1)

    def script(world: World) -> Script[None]:
        yield from world.ask(Close(CLIENT, soon()))

    world.client.sendall(bytes(300_000))
    world.client.shutdown(socket.SHUT_WR)
    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Closed)


# -- as a command by itself ---------------------------------------------------------------

PROGRAM = """
import sys
from proto.commands import CLIENT, Log, Receive, Send
from proto.events import Cancelled
from proto.policy.records import Ending
from shells.env import Env
from shells.listen import listen_tcp
from shells.uvloop_shell import serve
from shells.wire_files import StderrSink, WireLog

def script(now):
    event = yield Receive((CLIENT,), 1, now + 60)
    yield Send(now + 60, to_client=event.data)
    event = yield Receive((CLIENT,), 1, now + 60)
    yield Log(Ending("connect", "example.com", 443, 0, 0, 0.0, event.cause.value))

listener = listen_tcp("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
serve([listener], script, Env(None, None, WireLog(StderrSink(2))))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_every_call_with_its_last_line(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as proxy:
        assert proxy.stdout is not None
        with socket.create_connection(
            ("127.0.0.1", int(proxy.stdout.readline())), SOON_S
        ) as client:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            proxy.send_signal(number)
            _, lines = proxy.communicate(timeout=SOON_S)
            assert client.recv(1) == b""
    assert proxy.returncode == 0
    assert lines.count(Cause.SHUTDOWN.value) == 1


def test_records_of_one_connection_are_told_apart_by_call(world: World) -> None:
    first, second = Allowed("http", "a.example", 80), Allowed("http", "b.example", 80)
    ending = Ending("http", "a.example", 80, 1, 2, 0.0)
    refusal = Refusal("http", "b.example", 80, 403, "no")

    def script(_: World) -> Script[None]:
        for record in (first, ending, second, refusal):
            yield Log(record)

    world.start(script)
    world.end()
    ids = [call_id for call_id, _ in world.log.records]
    assert ids[0] == ids[1] != ids[2] == ids[3]
