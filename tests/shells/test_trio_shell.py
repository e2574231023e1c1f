"""The trio shell on real sockets: each command, each way that it can end."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from time import monotonic

import pytest
import trio

from proto.commands import (
    BOTH,
    CLIENT,
    UPSTREAM,
    Close,
    Command,
    Connect,
    Locate,
    Log,
    Receive,
    Resolve,
    Send,
    Splice,
)
from proto.events import (
    Cancelled,
    Cause,
    Closed,
    Connected,
    Event,
    Failed,
    Located,
    Logged,
    Place,
    Reason,
    Received,
    Resolved,
    Sent,
    Spliced,
)
from proto.policy.records import Allowed, Ending, Record, Refusal
from proto.script import Script
from shells import splice, trio_shell
from shells.env import INTERNAL_ERROR, Env
from shells.listen import listen_tcp
from shells.workers import Workers
from tests.shells import single

SOON_S = 60.0
"""Longer than anything here takes: only a fault waits for it."""

RESET = struct.pack("ii", 1, 0)


class MemoryLog:
    """A log in memory, which can be full."""

    def __init__(self) -> None:
        self.records: list[tuple[str, Record]] = []
        self.full = False

    def write(self, record: Record, call_id: str) -> bool:
        if not self.full:
            self.records.append((call_id, record))
        return not self.full


class World:
    """One script under the trio shell in a thread; `client` is the program's end."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.said: list[str] = []
        self.may_fail = False
        self.events: list[Event] = []
        self.lookup: Callable[[str], tuple[str, ...]] = lambda _: ("192.0.2.1",)
        self.env = Env(
            lookup=lambda host: self.lookup(host),
            locate=lambda addresses: (Place.ELSEWHERE,) * len(addresses),
            log=self.log,
            say=self.said.append,
        )
        with closing(listen_tcp("127.0.0.1", 0)) as door:
            self.client = socket.create_connection(door.getsockname(), SOON_S)
            self._served, _ = door.accept() if door.getblocking() else accepted(door)
        self.server = listen_tcp("127.0.0.1", 0)
        self.port = self.server.getsockname()[1]
        self.upstream: socket.socket | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._running = threading.Event()
        self._told = threading.Semaphore(0)
        self.opened = threading.Semaphore(0)

    def start(self, script: Callable[[World], Script[None]]) -> None:
        """Run a script on the connection from now on."""
        self._thread = threading.Thread(target=self._run, args=(script,))
        self._thread.start()
        assert self._running.wait(SOON_S)

    def _run(self, script: Callable[[World], Script[None]]) -> None:
        async def main() -> None:
            self._token = trio.lowlevel.current_trio_token()
            self._running.set()
            await single.by_trio(script(self), self._served, self.env)

        try:
            trio.run(main)
        except BaseException as error:
            self._failed = error

    def ask(self, command: Command) -> Script[Event]:
        """Yield one command from a script, and keep its event."""
        event = yield command
        self.events.append(event)
        self._told.release()
        return event

    def next_event(self) -> Event:
        """Wait until the script has kept one more event, and return the last."""
        assert self._told.acquire(timeout=SOON_S), "no event came"
        return self.events[-1]

    def accept(self) -> socket.socket:
        """Return the server's end of the upstream side, once the shell knows that it is open."""
        assert self.opened.acquire(timeout=SOON_S), "nothing was dialled"
        self.upstream, _ = accepted(self.server)
        self.upstream.settimeout(SOON_S)
        return self.upstream

    def cancel(self, cause: Cause) -> None:
        """Cancel what runs, from the shell's own thread."""
        assert self._token is not None
        self._token.run_sync_soon(self.env.cancel_all, cause)

    def end(self) -> list[Event]:
        """Wait for the script's end and return the events it kept."""
        assert self._thread is not None
        self._thread.join(SOON_S)
        assert not self._thread.is_alive(), "the script did not end"
        if self._failed is not None:
            raise self._failed
        assert self.may_fail or not self.said, self.said
        return self.events

    def close(self) -> None:
        for sock in (self.client, self.server, self._served, self.upstream):
            if sock is not None:
                sock.close()
        if self._thread is not None:
            self._thread.join(SOON_S)


def accepted(door: socket.socket) -> tuple[socket.socket, object]:
    assert select.select([door], [], [], SOON_S)[0], "nobody came"
    return door.accept()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def soon() -> float:
    return monotonic() + SOON_S


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while data := sock.recv(1 << 20):
        parts.append(data)
    return b"".join(parts)


def upstream(world: World) -> Script[None]:
    """Open the upstream side."""
    event = yield Connect(("127.0.0.1",), world.port, soon())
    assert isinstance(event, Connected), event
    world.opened.release()


def fill(sock: socket.socket) -> int:
    """Send until the peer's kernel takes no more; return the count."""
    sock.setblocking(False)
    sent = 0
    try:
        while True:
            sent += sock.send(bytes(1 << 16))
    except BlockingIOError:
        return sent
    finally:
        sock.settimeout(SOON_S)


def test_a_server_is_reset_before_the_line_that_counts_what_it_got(world: World) -> None:
    """Else it would make room between the two, and get what isn't counted."""

    def script(world: World) -> Script[None]:
        yield from upstream(world)
        yield Splice(b"", b"", SOON_S)
        yield Log(Ending("connect", "a.example", 443, 0, 0, 0.0))

    seen: list[str] = []
    keep = world.log.write

    def write(record: Record, call_id: str) -> bool:
        assert world.upstream is not None
        try:
            world.upstream.recv(1)
        except OSError as error:
            seen.append(type(error).__name__)
        return keep(record, call_id)

    world.log.write = write  # type: ignore[method-assign]
    world.start(script)
    world.accept().setblocking(False)
    reset(world.client)
    world.end()
    assert seen == ["ConnectionResetError"]


# -- Receive ------------------------------------------------------------------------------


def test_what_is_there_is_received_up_to_the_limit(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Receive((CLIENT,), 3, soon()))
        yield from world.ask(Receive((CLIENT,), 100, soon()))

    world.client.sendall(b"hello")
    world.start(script)
    first, second = world.end()
    assert isinstance(first, Received)
    assert (first.side, first.data) == (CLIENT, b"hel")
    assert isinstance(second, Received)
    assert second.data == b"lo"


def test_what_is_not_there_yet_is_waited_for(world: World) -> None:
    def script(world: World) -> Script[None]:
        for _ in range(3):
            yield from world.ask(Receive((CLIENT,), 100, soon()))

    world.start(script)
    for word in (b"one", b"two"):
        world.client.sendall(word)
        world.next_event()
    world.client.shutdown(socket.SHUT_WR)
    assert [event.data for event in world.end()] == [b"one", b"two", b""]  # type: ignore[union-attr]


def test_what_was_received_is_let_go_once_its_script_has_let_go(world: World) -> None:
    """A call that waits for a peer holds what is due to it, and nothing twice (R43)."""
    sizes: list[int] = []
    proceed = threading.Event()

    def script(world: World) -> Script[None]:
        yield from upstream(world)
        assert proceed.wait(SOON_S)  # holds the whole shell, until all is there
        event = yield Receive((CLIENT,), 1 << 20, soon())
        assert isinstance(event, Received)
        sizes.append(len(event.data))
        del event
        yield Receive((UPSTREAM,), 1, soon() + SOON_S)

    world.start(script)
    server = world.accept()
    fill(world.client)
    tracemalloc.start()
    try:
        proceed.set()
        until = soon()
        while not sizes or tracemalloc.get_traced_memory()[0] > sizes[0]:
            assert monotonic() < until, "it is held still"
            threading.Event().wait(0.01)
    finally:
        tracemalloc.stop()
        server.close()
        world.end()
    assert sizes[0] > 100_000  # and so more than a shell's own buffer, which is made meanwhile


def test_either_side_may_speak_first(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from upstream(world)
        yield from world.ask(Receive(BOTH, 100, soon()))
        yield from world.ask(Receive(BOTH, 100, soon()))

    world.start(script)
    server = world.accept()
    server.sendall(b"early")
    world.next_event()
    world.client.sendall(b"late")
    first, second = world.end()
    assert isinstance(first, Received)
    assert (first.side, first.data) == (UPSTREAM, b"early")
    assert isinstance(second, Received)
    assert (second.side, second.data) == (CLIENT, b"late")


def test_a_reset_is_told_with_its_side(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from upstream(world)
        yield from world.ask(Receive(BOTH, 100, soon()))

    world.start(script)
    reset(world.accept())
    (event,) = world.end()
    assert isinstance(event, Failed)
    assert (event.reason, event.side) == (Reason.RESET, UPSTREAM)


def test_a_receive_that_is_late_is_answered_and_takes_nothing(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Receive((CLIENT,), 100, monotonic() + 0.01))
        yield from world.ask(Receive((CLIENT,), 100, soon()))

    world.start(script)
    world.next_event()
    world.client.sendall(b"kept")
    late, then = world.end()
    assert isinstance(late, Failed)
    assert late.reason is Reason.TIMED_OUT
    assert isinstance(then, Received)
    assert then.data == b"kept"


def test_what_is_there_counts_even_after_the_deadline(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Receive((CLIENT,), 100, monotonic() - 1))

    world.client.sendall(b"in time")
    assert select.select([world._served], [], [], SOON_S)[0]
    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Received)


# -- Send ---------------------------------------------------------------------------------


def test_a_send_is_answered_once_a_buffer_has_gone_whole(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Send(soon(), to_client=b"hello"))

    world.start(script)
    assert world.client.recv(100) == b"hello"
    (event,) = world.end()
    assert isinstance(event, Sent)
    assert (event.to_client, event.to_upstream) == (5, 0)


def test_a_big_send_waits_for_a_slow_reader(world: World) -> None:
    size = 32 << 20

    def script(world: World) -> Script[None]:
        yield from world.ask(Send(soon(), to_client=bytes(size)))

    world.start(script)
    assert len(read_all(world.client)) == size
    (event,) = world.end()
    assert isinstance(event, Sent)
    assert event.to_client == size
    assert world.env.counters.down == size


def test_a_send_is_answered_early_when_the_heeded_side_speaks(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from upstream(world)
        yield from world.ask(Send(soon(), to_upstream=bytes(64 << 20), heed=(UPSTREAM,)))
        yield from world.ask(Receive((UPSTREAM,), 100, soon()))

    world.start(script)
    world.accept().sendall(b"413")
    sent, received = world.end()
    assert isinstance(sent, Sent)
    assert sent.to_upstream < 64 << 20
    assert isinstance(received, Received)
    assert received.data == b"413"


def test_after_a_reset_an_early_answer_is_heard_and_then_the_reset(world: World) -> None:
    proceed = threading.Event()

    def script(world: World) -> Script[None]:
        yield from upstream(world)
        assert proceed.wait(SOON_S)  # holds the whole shell, until the reset is there
        for _ in range(2):  # the first meets the reset, or makes it come
            yield from world.ask(Send(soon(), to_upstream=b"x", heed=(UPSTREAM,)))
        yield from world.ask(Receive((UPSTREAM,), 100, soon()))
        yield from world.ask(Receive((UPSTREAM,), 100, soon()))

    world.start(script)
    server = world.accept()
    server.sendall(b"413")
    reset(server)
    proceed.set()
    *_, answer, end = world.end()
    assert isinstance(answer, Received)
    assert answer.data == b"413"
    assert isinstance(end, Failed)
    assert (end.reason, end.side) == (Reason.RESET, UPSTREAM)


def test_a_send_to_a_side_that_was_reset_fails_with_its_side(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Send(soon(), to_client=bytes(64 << 20)))

    world.start(script)
    world.client.recv(1)
    reset(world.client)
    (event,) = world.end()
    assert isinstance(event, Failed)
    assert (event.reason, event.side) == (Reason.RESET, CLIENT)
    assert event.down > 0


def test_a_send_that_is_late_says_how_much_has_gone(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Send(monotonic() + 0.05, to_client=bytes(64 << 20)))

    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Failed)
    assert event.reason is Reason.TIMED_OUT
    assert event.down > 0


# -- Resolve and Locate -------------------------------------------------------------------


def test_a_name_is_looked_up_in_a_thread(world: World) -> None:
    asked: list[tuple[str, str]] = []

    def lookup(host: str) -> tuple[str, ...]:
        asked.append((host, threading.current_thread().name))
        return ("203.0.113.10", "2001:db8::10")

    def script(world: World) -> Script[None]:
        yield from world.ask(Resolve("example.com", soon()))

    world.lookup = lookup
    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Resolved)
    assert event.addresses == ("203.0.113.10", "2001:db8::10")
    assert [host for host, _ in asked] == ["example.com"]


@pytest.mark.parametrize("answer", [socket.gaierror(socket.EAI_NONAME, "no"), ()])
def test_a_name_that_does_not_exist_is_unresolved(
    world: World, answer: tuple[str, ...] | OSError
) -> None:
    def lookup(_: str) -> tuple[str, ...]:
        if isinstance(answer, OSError):
            raise answer
        return answer

    def script(world: World) -> Script[None]:
        yield from world.ask(Resolve("example.com", soon()))

    world.lookup = lookup
    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Failed)
    assert (event.reason, event.side) == (Reason.UNRESOLVED, UPSTREAM)


def test_a_lookup_that_was_given_up_while_it_waited_is_never_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage a thousand of them would hold up every later lookup for minutes."""
    monkeypatch.setattr(trio_shell, "Workers", lambda: Workers(1))
    asked: list[str] = []
    begun, hang = threading.Event(), threading.Event()

    def lookup(host: str) -> tuple[str, ...]:
        asked.append(host)
        begun.set()
        hang.wait(SOON_S)
        return ("203.0.113.10",)

    def script(world: World) -> Script[None]:
        yield from world.ask(Resolve("slow.example", soon()))
        yield from world.ask(Resolve("behind.example", monotonic() + 0.05))
        hang.set()
        yield from world.ask(Resolve("quick.example", soon()))

    world.lookup = lookup
    world.start(script)
    assert begun.wait(SOON_S)
    world.cancel(Cause.PAUSED)
    first, second, last = world.end()
    assert isinstance(first, Cancelled)
    assert isinstance(second, Failed)
    assert isinstance(last, Resolved)
    assert asked == ["slow.example", "quick.example"]


@pytest.mark.parametrize("cause", [None, Cause.STOPPED])
def test_a_lookup_that_hangs_holds_nobody_up(world: World, cause: Cause | None) -> None:
    asked, hang = threading.Event(), threading.Event()

    def lookup(_: str) -> tuple[str, ...]:
        asked.set()
        hang.wait(SOON_S)
        return ("203.0.113.10",)

    def script(world: World) -> Script[None]:
        by = soon() if cause else monotonic() + 0.3  # by then a thread has mostly begun it
        yield from world.ask(Resolve("example.com", by))

    world.lookup = lookup
    world.start(script)
    try:
        if cause is not None:
            assert asked.wait(SOON_S)
            world.cancel(cause)
        (event,) = world.end()
    finally:
        hang.set()
    if cause is None:
        assert isinstance(event, Failed)
        assert (event.reason, event.side) == (Reason.TIMED_OUT, UPSTREAM)
    else:
        assert isinstance(event, Cancelled)


def test_a_place_is_given_for_each_address(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Locate(("192.0.2.1", "192.0.2.2")))

    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Located)
    assert event.places == (Place.ELSEWHERE, Place.ELSEWHERE)


def test_a_kernel_that_cannot_say_where_an_address_leads_fails_the_command(world: World) -> None:
    def locate(_: tuple[str, ...]) -> tuple[Place, ...]:
        raise OSError(24, "Too many open files")

    def script(world: World) -> Script[None]:
        yield from world.ask(Locate(("192.0.2.1",)))

    world.env.locate = locate
    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Failed)
    assert event.reason is Reason.EXHAUSTED


# -- Connect ------------------------------------------------------------------------------


def test_a_connect_goes_on_to_the_next_address_where_one_refuses(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Connect(("127.0.0.2", "127.0.0.3", "127.0.0.1"), world.port, soon()))

    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Connected)
    assert event.address == "127.0.0.1"


def test_a_connect_that_everybody_refuses_is_refused(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Connect(("127.0.0.2", "127.0.0.3"), world.port, soon()))

    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Failed)
    assert (event.reason, event.side) == (Reason.REFUSED, UPSTREAM)


@contextmanager
def deaf_address() -> Iterator[tuple[str, int]]:
    """An address whose backlog is full: a connection attempt to it hangs."""
    with socket.socket() as door:
        door.bind(("127.0.0.7", 0))
        door.listen(0)
        with fill_backlog(door):
            yield door.getsockname()


@contextmanager
def fill_backlog(door: socket.socket) -> Iterator[None]:
    """Have others in a listener's queue, which holds one: the kernel drops who comes then."""
    with ExitStack() as stack:
        fillers = [stack.enter_context(socket.socket()) for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(door.getsockname())
        assert select.select([], fillers, [], SOON_S)[1], "nobody came into the queue"
        yield


def test_a_silent_address_is_given_a_moment_before_the_next_is_tried(world: World) -> None:
    with deaf_address() as (deaf, port), closing(listen_tcp("127.0.0.1", port)):

        def script(world: World) -> Script[None]:
            yield from world.ask(Connect((deaf, "127.0.0.1"), port, soon()))

        before = monotonic()
        world.start(script)
        (event,) = world.end()
    assert isinstance(event, Connected)
    assert event.address == "127.0.0.1"
    assert monotonic() - before >= 0.25


@pytest.mark.parametrize("by", [0.05, -1.0])
def test_a_connect_that_is_late_leaves_nothing_open(world: World, by: float) -> None:
    with deaf_address() as (deaf, port):

        def script(world: World) -> Script[None]:
            yield from world.ask(Connect((deaf,), port, monotonic() + by))
            yield from world.ask(Close(UPSTREAM, soon()))

        world.start(script)
        event, closed = world.end()
    assert isinstance(event, Failed)
    assert (event.reason, event.side) == (Reason.TIMED_OUT, UPSTREAM)
    assert isinstance(closed, Closed)


# -- Close --------------------------------------------------------------------------------


def test_a_close_spares_the_answer_from_a_reset(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield Send(soon(), to_client=b"refused")
        yield from world.ask(Close(CLIENT, soon()))

    world.start(script)
    world.client.sendall(bytes(1 << 20))  # nobody wants it, and a plain close would reset
    world.client.shutdown(socket.SHUT_WR)
    assert read_all(world.client) == b"refused"
    (event,) = world.end()
    assert isinstance(event, Closed)


def test_a_close_of_a_peer_that_never_ends_is_over_at_its_deadline(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Close(CLIENT, monotonic() + 0.05))

    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Closed)
    assert read_all(world.client) == b""


def test_a_close_of_a_peer_that_never_stops_is_over_at_its_deadline(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Close(CLIENT, monotonic() + 0.1))

    def talk() -> None:
        try:
            while True:
                world.client.sendall(bytes(1 << 16))
        except OSError:
            return

    talker = threading.Thread(target=talk)
    world.start(script)
    talker.start()
    (event,) = world.end()
    talker.join(SOON_S)
    assert isinstance(event, Closed)


def test_a_close_of_a_reset_side_and_of_none_is_closed(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Receive((CLIENT,), 1, soon()))
        yield from world.ask(Close(CLIENT, soon()))
        yield from world.ask(Close(CLIENT, soon()))
        yield from world.ask(Close(UPSTREAM, soon()))

    world.start(script)
    reset(world.client)
    _, *closed = world.end()
    assert [type(event) for event in closed] == [Closed] * 3


def test_a_closed_upstream_side_can_be_opened_again(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from upstream(world)
        yield from world.ask(Close(UPSTREAM, soon()))
        yield from upstream(world)
        yield from world.ask(Send(soon(), to_upstream=b"again"))

    world.start(script)
    with world.accept() as first:
        assert read_all(first) == b""
    assert read_all(world.accept()) == b"again"
    world.end()


# -- Splice -------------------------------------------------------------------------------


def tunnel(world: World, idle_s: float = SOON_S) -> Script[None]:
    yield from upstream(world)
    yield from world.ask(Splice(b"down first:", b"up first:", idle_s))


def test_a_splice_sends_what_is_held_and_then_both_ways_until_both_end(world: World) -> None:
    world.start(tunnel)
    server = world.accept()
    world.client.sendall(b"ping")
    assert server.recv(9, socket.MSG_WAITALL) == b"up first:"
    assert server.recv(4, socket.MSG_WAITALL) == b"ping"
    world.client.shutdown(socket.SHUT_WR)
    assert server.recv(1) == b""
    server.sendall(b"pong, late")  # a half-closed client still gets its answer
    server.close()
    assert read_all(world.client) == b"down first:pong, late"
    (event,) = world.end()
    assert isinstance(event, Spliced)
    assert (event.up, event.down) == (13, 21)
    assert (world.env.counters.up, world.env.counters.down) == (13, 21)


def test_a_splice_is_exact_for_many_bytes_both_ways(world: World) -> None:
    size = 24 << 20
    blob = os.urandom(1 << 20) * (size >> 20)
    world.start(tunnel)
    server = world.accept()
    heard: dict[str, bytes] = {}

    def both(sock: socket.socket, name: str) -> list[threading.Thread]:
        def say() -> None:
            sock.sendall(blob)
            sock.shutdown(socket.SHUT_WR)

        def hear() -> None:
            heard[name] = read_all(sock)

        return [threading.Thread(target=say), threading.Thread(target=hear)]

    threads = both(world.client, "client") + both(server, "server")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert heard["server"] == b"up first:" + blob
    assert heard["client"] == b"down first:" + blob
    (event,) = world.end()
    assert isinstance(event, Spliced)
    assert (event.up, event.down) == (size + 9, size + 11)


@pytest.mark.parametrize("who", ["client", "server"])
def test_a_reset_of_one_side_reaches_the_other(world: World, who: str) -> None:
    world.start(tunnel)
    server = world.accept()
    server.recv(9, socket.MSG_WAITALL)
    world.client.recv(11, socket.MSG_WAITALL)
    broken, other = (world.client, server) if who == "client" else (server, world.client)
    reset(broken)
    with pytest.raises(ConnectionResetError):
        other.recv(1)
    (event,) = world.end()
    assert isinstance(event, Failed)
    assert event.reason is Reason.RESET
    assert event.side is (CLIENT if who == "client" else UPSTREAM)
    assert (event.up, event.down) == (9, 11)


def test_a_splice_in_which_nothing_moves_is_late(world: World) -> None:
    world.start(lambda world: tunnel(world, idle_s=0.1))
    server = world.accept()
    assert server.recv(9, socket.MSG_WAITALL) == b"up first:"
    (event,) = world.end()
    assert isinstance(event, Failed)
    assert event.reason is Reason.TIMED_OUT
    assert (event.up, event.down) == (9, 11)


def test_a_stalled_reader_holds_its_sender(world: World) -> None:
    world.start(tunnel)
    server = world.accept()
    assert server.recv(9, socket.MSG_WAITALL) == b"up first:"
    sent = fill(server)  # the client reads nothing
    assert sent < 64 << 20
    assert world.env.counters.down <= sent + 11
    server.close()
    assert len(read_all(world.client)) == sent + 11
    world.client.shutdown(socket.SHUT_WR)
    (event,) = world.end()
    assert isinstance(event, Spliced)


def test_what_came_before_a_splice_passes_though_nothing_else_comes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splice, "MOVES_A_STEP", 1)  # so it makes room, with more to move
    world.client.sendall(bytes(100_000))
    world.start(tunnel)
    server = world.accept()
    left = 100_009
    while left:
        left -= len(server.recv(left))
    server.close()
    world.client.close()
    world.end()


# -- cancelling ---------------------------------------------------------------------------


def test_a_waiting_command_is_cancelled_once_and_later_ones_are_not(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Receive((CLIENT,), 1, soon()))
        yield from world.ask(Send(soon(), to_client=b"503"))

    world.start(script)
    world.cancel(Cause.PAUSED)
    cancelled, sent = world.end()
    assert isinstance(cancelled, Cancelled)
    assert cancelled.cause is Cause.PAUSED
    assert isinstance(sent, Sent)
    assert read_all(world.client) == b"503"


def test_a_cancel_between_two_commands_answers_the_next_that_waits(world: World) -> None:
    def script(world: World) -> Script[None]:
        world.env.cancel_all(Cause.STOPPED)
        world.env.cancel_all(Cause.SHUTDOWN)  # the first cause stands
        yield from world.ask(Log(Allowed("connect", "example.com", 443)))
        yield from world.ask(Locate(("192.0.2.1",)))
        yield from world.ask(Receive((CLIENT,), 100, soon()))

    world.client.sendall(b"there")
    world.start(script)
    logged, located, cancelled = world.end()
    assert isinstance(logged, Logged)
    assert isinstance(located, Located)
    assert isinstance(cancelled, Cancelled)
    assert cancelled.cause is Cause.STOPPED


def test_a_cancelled_splice_says_what_it_moved(world: World) -> None:
    world.start(tunnel)
    server = world.accept()
    assert server.recv(9, socket.MSG_WAITALL) == b"up first:"
    assert world.client.recv(11, socket.MSG_WAITALL) == b"down first:"
    world.cancel(Cause.STOPPED)
    (event,) = world.end()
    assert isinstance(event, Cancelled)
    assert (event.up, event.down) == (9, 11)
    with pytest.raises(ConnectionResetError):  # cut short must not look like an end
        server.recv(1)


def test_a_busy_splice_can_be_cancelled(world: World) -> None:
    world.start(tunnel)
    server = world.accept()

    def talk() -> None:
        try:
            while True:
                server.sendall(bytes(1 << 16))
        except OSError:
            return

    def hear() -> None:
        heard = 0
        try:
            while data := world.client.recv(1 << 20):
                heard += len(data)
                if heard > 8 << 20:
                    busy.set()
        except OSError:
            return

    busy = threading.Event()
    threads = [threading.Thread(target=talk), threading.Thread(target=hear)]
    for thread in threads:
        thread.start()
    assert busy.wait(SOON_S)
    world.cancel(Cause.STOPPED)
    (event,) = world.end()
    for thread in threads:
        thread.join(SOON_S)
    assert isinstance(event, Cancelled)
    assert event.down >= 8 << 20


def test_a_cancelled_close_closes_all_the_same(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Close(CLIENT, soon()))
        yield from world.ask(Close(CLIENT, soon()))

    world.start(script)
    assert world.client.recv(1) == b""
    world.cancel(Cause.STOPPED)
    cancelled, closed = world.end()
    assert isinstance(cancelled, Cancelled)
    assert isinstance(closed, Closed)


def test_a_call_that_cannot_be_logged_does_not_go_on(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield from world.ask(Log(Allowed("connect", "example.com", 443)))
        yield from world.ask(Resolve("example.com", soon()))

    world.log.full = True
    world.start(script)
    _, event = world.end()
    assert isinstance(event, Cancelled)
    assert event.cause is Cause.UNLOGGED


# -- ends ---------------------------------------------------------------------------------


def test_the_script_end_closes_both_sides(world: World) -> None:
    world.start(upstream)
    server = world.accept()
    assert read_all(server) == b""
    assert read_all(world.client) == b""
    world.end()
    assert world.env.calls == set()
    assert (world.env.counters.accepted, world.env.counters.ended) == (1, 1)


def test_a_bug_of_a_script_ends_its_call_with_a_last_line(world: World) -> None:
    def script(world: World) -> Script[None]:
        yield Log(Allowed("connect", "example.com", 443))
        raise AssertionError("secret bytes")

    world.may_fail = True
    world.start(script)
    with pytest.raises(ConnectionResetError):
        world.client.recv(1)
    world.end()
    (_, allowed), (_, ending) = world.log.records
    assert isinstance(allowed, Allowed)
    assert isinstance(ending, Ending)
    assert ending.reason == INTERNAL_ERROR
    assert "secret" not in "".join(world.said)


def test_a_bug_before_the_first_command_ends_its_call_too(world: World) -> None:
    def script(_: World) -> Script[None]:
        raise AssertionError
        yield

    world.may_fail = True
    world.start(script)
    world.end()
    ((_, record),) = world.log.records
    assert isinstance(record, Refusal)


def test_a_script_that_never_waits_lets_the_others_have_their_turn(world: World) -> None:
    def script(world: World) -> Script[None]:
        while world.env.counters.accepted:  # until the test says so, from trio's own thread
            yield Log(Allowed("connect", "example.com", 443))

    world.start(script)
    assert world._token is not None
    world._token.run_sync_soon(setattr, world.env.counters, "accepted", 0)
    world.end()


# -- serve --------------------------------------------------------------------------------


@contextmanager
def serving(
    make_script: Callable[[float], Script[None]], env: Env
) -> Iterator[tuple[tuple[str, int], Callable[[], None]]]:
    """Serve on a listener in a thread; yield its address and what stops it."""
    listener = listen_tcp("127.0.0.1", 0)
    address = listener.getsockname()
    readable, writable = os.pipe()
    thread = threading.Thread(
        target=trio_shell.serve, args=([listener], make_script, env), kwargs={"stop_fd": readable}
    )
    thread.start()

    def stop() -> None:
        os.write(writable, b"x")
        thread.join(SOON_S)
        assert not thread.is_alive(), "the shell did not stop"

    try:
        yield address, stop
    finally:
        if thread.is_alive():
            stop()
        os.close(readable)
        os.close(writable)


def echo(now: float) -> Script[None]:
    while True:
        event = yield Receive((CLIENT,), 1 << 16, now + 3600)
        if isinstance(event, Cancelled):
            yield Log(Ending("connect", "example.com", 443, 0, 0, 0.0, event.cause.value))
            return
        if not isinstance(event, Received) or not event.data:
            return
        yield Send(now + 3600, to_client=event.data)


def test_many_clients_are_served_at_once_and_leave_nothing(world: World) -> None:
    ended = threading.Semaphore(0)

    def script(now: float) -> Script[None]:
        yield from echo(now)
        ended.release()

    def turn(client: socket.socket, word: bytes) -> None:
        client.sendall(word)
        assert client.recv(10) == word

    with (
        serving(script, world.env) as (address, stop),
        socket.create_connection(address, SOON_S) as last,
    ):
        turn(last, b"first")
        before = len(os.listdir("/proc/self/fd"))
        clients = [socket.create_connection(address, SOON_S) for _ in range(100)]
        for number, client in enumerate(clients):
            client.sendall(b"%d" % number)
        for number, client in enumerate(clients):
            assert client.recv(10) == b"%d" % number
        for client in clients:
            client.close()
        for _ in clients:
            assert ended.acquire(timeout=SOON_S)
        turn(last, b"last")  # the turn after the one in which the last of them was closed
        assert len(os.listdir("/proc/self/fd")) == before
        stop()
    assert world.env.counters.bugs == 0


def test_a_stop_ends_every_call_with_its_last_line_and_accepts_nobody(world: World) -> None:
    with serving(echo, world.env) as (address, stop):
        clients = [socket.create_connection(address, SOON_S) for _ in range(5)]
        for client in clients:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
        stop()
        for client in clients:
            assert client.recv(1) == b""
            client.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, SOON_S)
    reasons = [record.reason for _, record in world.log.records if isinstance(record, Ending)]
    assert reasons == [Cause.SHUTDOWN.value] * 5


def test_a_call_that_will_not_end_is_cancelled_to_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stubborn(now: float) -> Script[None]:
        while True:
            event = yield Receive((CLIENT,), 1, now + 3600)
            if isinstance(event, Received):
                yield Send(now + 3600, to_client=event.data)

    monkeypatch.setattr(trio_shell, "SHUTDOWN_S", 0.05)
    with (
        serving(stubborn, world.env) as (address, stop),
        socket.create_connection(address, SOON_S) as client,
    ):
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        stop()
    assert world.env.counters.bugs == 1
    ((_, record),) = world.log.records
    assert isinstance(record, Refusal)


def test_clients_wait_outside_while_there_is_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trio_shell, "connections_most", lambda: 2)
    with serving(echo, world.env) as (address, stop):
        clients = [socket.create_connection(address, SOON_S) for _ in range(3)]
        for client in clients:
            client.sendall(b"x")
        assert [client.recv(1) for client in clients[:2]] == [b"x", b"x"]
        assert not select.select([clients[2]], [], [], 0.3)[0]
        clients[0].close()
        assert clients[2].recv(1) == b"x"
        for client in clients:
            client.close()
        stop()
    assert any("wait" in sentence for sentence in world.said)
