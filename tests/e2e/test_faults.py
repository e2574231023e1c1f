"""A fault campaign: every bad client against every bad server, and healthy calls all along.

Peers stall, reset, half-close, send garbage and trickle, at every step of a tunnel and of a
plain request.  Afterwards the proxy holds no descriptor and no object of a call that it
didn't hold before, and no more memory, and its log has counted every byte that servers saw.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import select
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shells.splice import PIPES_KEPT
from tests.e2e.proxy import SHELLS, Proxy, read_head
from tests.e2e.test_tunnels import client_hello
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Connection, Handler, echo, listen, on_network

pytestmark = [pytest.mark.netns, pytest.mark.parametrize("shell", SHELLS)]
HOST = "203.0.113.10"
HEALTHY = 9000
COUNTING = (sys.executable, str(Path(__file__).with_name("counting.py")))
AT_ONCE = 96
MOMENT_S = 0.25
"""How long a peer does nothing before it goes on to the worst."""
TRICKLE_S = 0.01
SOON_S = 60.0
GARBAGE = random.Random(7).randbytes(64 * 1024)

Client = Callable[[socket.socket, int], None]


def reset(sock: socket.socket) -> None:
    """Break a connection off."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def trickle(sock: socket.socket, data: bytes) -> None:
    """Send a byte at a time."""
    for at in range(len(data)):
        sock.sendall(data[at : at + 1])
        time.sleep(TRICKLE_S)


# -- servers: each by its port ----------------------------------------------------------------


def stalls(connection: Connection) -> None:
    time.sleep(2 * MOMENT_S)


def resets(connection: Connection) -> None:
    reset(connection.sock)


def ends(connection: Connection) -> None:
    connection.sock.shutdown(socket.SHUT_WR)
    while connection.recv():
        pass


def babbles(connection: Connection) -> None:
    connection.send(GARBAGE)
    while connection.recv():
        pass


def trickles(connection: Connection) -> None:
    connection.recv()
    trickle(connection.sock, b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n")


def pours(connection: Connection) -> None:
    for _ in range(64):
        connection.send(GARBAGE)


def breaks_off(connection: Connection) -> None:
    connection.recv()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf of it")
    reset(connection.sock)


def cuts_short(connection: Connection) -> None:
    connection.recv()
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")


def spoils_chunks(connection: Connection) -> None:
    connection.recv()
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    while connection.recv():
        pass


def answers_early(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
    connection.sock.shutdown(socket.SHUT_WR)
    time.sleep(MOMENT_S)


READ_ON = (ends, babbles, spoils_chunks, echo)
"""Those that read whatever comes, so that what they saw is all that was sent."""

SERVERS = (
    stalls, resets, ends, babbles, trickles, pours, breaks_off, cuts_short, spoils_chunks,
    answers_early, echo,
)  # fmt: skip
FIRST_PORT = 9001
NOBODY, DEAF = 9100, 9101
"""Ports at which nobody listens, and at which nobody accepts: connecting takes for ever."""
PORTS = (*range(FIRST_PORT, FIRST_PORT + len(SERVERS)), NOBODY, DEAF)


# -- clients ----------------------------------------------------------------------------------


def connect_head(port: int) -> bytes:
    return f"CONNECT example.com:{port} HTTP/1.1\r\nHost: example.com:{port}\r\n\r\n".encode()


def get_head(port: int, method: str = "GET", *fields: str) -> bytes:
    lines = [f"{method} http://example.com:{port}/ HTTP/1.1", f"Host: example.com:{port}", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


def read_for_a_moment(sock: socket.socket) -> None:
    sock.settimeout(MOMENT_S)
    with contextlib.suppress(TimeoutError):
        while sock.recv(65536):
            pass


def leaves(sock: socket.socket, port: int) -> None:
    sock.sendall(connect_head(port))


def leaves_by_reset(sock: socket.socket, port: int) -> None:
    sock.sendall(connect_head(port))
    reset(sock)


def babbles_in_a_tunnel(sock: socket.socket, port: int) -> None:
    sock.sendall(connect_head(port) + GARBAGE[:32_000])
    read_for_a_moment(sock)


def never_reads(sock: socket.socket, port: int) -> None:
    sock.sendall(connect_head(port))
    read_head(sock)
    time.sleep(MOMENT_S)
    reset(sock)


def trickles_in_a_tunnel(sock: socket.socket, port: int) -> None:
    trickle(sock, connect_head(port)[:20])
    sock.sendall(connect_head(port)[20:])
    trickle(sock, b"hello there")
    sock.shutdown(socket.SHUT_WR)
    read_for_a_moment(sock)


def half_closes(sock: socket.socket, port: int) -> None:
    sock.sendall(connect_head(port))
    sock.shutdown(socket.SHUT_WR)
    read_for_a_moment(sock)


def floods_and_resets(sock: socket.socket, port: int) -> None:
    sock.sendall(connect_head(port))
    sock.settimeout(MOMENT_S)
    with contextlib.suppress(TimeoutError):
        for _ in range(32):
            sock.sendall(GARBAGE)
    reset(sock)


def gets_and_resets(sock: socket.socket, port: int) -> None:
    sock.sendall(get_head(port))
    time.sleep(TRICKLE_S)
    reset(sock)


def gets(sock: socket.socket, port: int) -> None:
    sock.sendall(get_head(port) * 3)
    sock.shutdown(socket.SHUT_WR)
    read_for_a_moment(sock)


def posts_half(sock: socket.socket, port: int) -> None:
    sock.sendall(get_head(port, "POST", "Content-Length: 200000") + GARBAGE)
    read_for_a_moment(sock)


def posts_half_and_ends(sock: socket.socket, port: int) -> None:
    sock.sendall(get_head(port, "POST", "Content-Length: 200000") + GARBAGE)
    sock.shutdown(socket.SHUT_WR)
    read_for_a_moment(sock)


def posts_bad_chunks(sock: socket.socket, port: int) -> None:
    sock.sendall(get_head(port, "POST", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n")
    time.sleep(TRICKLE_S)
    sock.sendall(b"-1\r\n")
    read_for_a_moment(sock)


def trickles_a_post(sock: socket.socket, port: int) -> None:
    sock.sendall(get_head(port, "POST", "Content-Length: 16"))
    trickle(sock, b"0123456789")
    read_for_a_moment(sock)


def upgrades(sock: socket.socket, port: int) -> None:
    fields = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    sock.sendall(get_head(port, "GET", *fields) + b"\x81\x05hello")
    read_for_a_moment(sock)
    reset(sock)


TO_A_SERVER: tuple[Client, ...] = (
    leaves, leaves_by_reset, babbles_in_a_tunnel, never_reads, trickles_in_a_tunnel, half_closes,
    floods_and_resets, gets_and_resets, gets, posts_half, posts_half_and_ends, posts_bad_chunks,
    trickles_a_post, upgrades,
)  # fmt: skip


def saying(data: bytes, *, byte_by_byte: bool = False, then: str = "waits") -> Client:
    """Return a client that says something to the proxy, then waits, leaves or resets."""

    def client(sock: socket.socket, _: int) -> None:
        if byte_by_byte:
            trickle(sock, data)
        else:
            sock.sendall(data)
        if then == "waits":
            read_for_a_moment(sock)
        elif then == "ends":
            sock.shutdown(socket.SHUT_WR)
            read_for_a_moment(sock)
        else:
            reset(sock)

    return client


TLS = connect_head(443)
HELLO = client_hello("example.com")
SAID = (
    b"", b"GET http://exam", b"\x16\x03\x01\x02", b"A" * 70_000, GARBAGE, b"\r\n" * 500,
    TLS, TLS + HELLO[:40], TLS + GARBAGE, TLS + client_hello("evil.test"), get_head(80)[:-2],
    b"CONNECT evil.test:1 HTTP/1.1\r\nHost: evil.test:1\r\n\r\n",
)  # fmt: skip
ALONE: tuple[Client, ...] = (
    *(saying(data, then=then) for data in SAID for then in ("waits", "ends", "resets")),
    saying(get_head(80)[:30], byte_by_byte=True),
    saying(HELLO[:30], byte_by_byte=True),
)


# -- the campaign -----------------------------------------------------------------------------


class Heard(Connection):
    """A connection that tells how many bytes came on it."""

    def __init__(self, connection: Connection, tell: Callable[[int], None]) -> None:
        super().__init__(connection.sock, connection.seen)
        self._tell = tell

    def recv(self, limit: int = 65536) -> bytes:
        """Return what the peer sent; no bytes when it has ended."""
        data = super().recv(limit)
        self._tell(len(data))
        return data


class Tally:
    """How many bytes servers have read, by their port."""

    def __init__(self) -> None:
        self.read: Counter[int] = Counter()
        self._lock = threading.Lock()

    def of(self, port: int, handler: Handler) -> Handler:
        """Return a handler whose bytes are counted."""

        def tell(count: int) -> None:
            with self._lock:
                self.read[port] += count

        def handle(connection: Connection) -> None:
            heard = Heard(connection, tell)
            try:
                handler(heard)
            except OSError:  # reset, perhaps as it wrote: what came before can still be read
                while heard.recv():
                    pass

        return handle


@contextlib.contextmanager
def servers(network: Network) -> Iterator[Tally]:
    """Run every bad server, a healthy one, and one that accepts nobody."""
    tally = Tally()
    with contextlib.ExitStack() as stack:
        healthy = dict.fromkeys((HEALTHY, 80, 443), echo)
        for port, handler in {**dict(enumerate(SERVERS, FIRST_PORT)), **healthy}.items():
            stack.enter_context(on_network(network, HOST, port, tally.of(port, handler)))
        deaf = stack.enter_context(network.on_server_side(lambda: listen(HOST, DEAF, 0)))
        waiting = [network.on_server_side(socket.socket) for _ in range(4)]
        for each in waiting:  # its queue is full: the kernel drops who comes then
            stack.enter_context(each).setblocking(False)
            each.connect_ex(deaf.getsockname())
        assert select.select([], waiting, [], SOON_S)[1]
        yield tally


def misbehave(proxy: Proxy, client: Client, port: int) -> None:
    with contextlib.suppress(OSError), proxy.connect() as sock:
        client(sock, port)


def healthy_call(proxy: Proxy) -> None:
    sock, head = proxy.tunnel(f"example.com:{HEALTHY}")
    with sock:
        assert head.startswith(b"HTTP/1.1 200 "), head
        sock.sendall(b"ping")
        assert sock.recv(4) == b"ping"


@contextlib.contextmanager
def healthy_calls(proxy: Proxy) -> Iterator[list[float]]:
    """Make one healthy call after the other all along; yield how long each took."""
    took: list[float] = []
    failed: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            began = time.monotonic()
            try:
                healthy_call(proxy)
            except BaseException as error:
                failed.append(error)
                return
            took.append(time.monotonic() - began)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join(SOON_S)
    assert not failed, failed


def campaign(proxy: Proxy, ports: Sequence[int]) -> None:
    """Let every bad client meet every bad server, many at once."""
    every = [*itertools.product(TO_A_SERVER, ports), *itertools.product(ALONE, (80,))]
    random.Random(3).shuffle(every)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for outcome in [pool.submit(misbehave, proxy, *each) for each in every]:
            outcome.result(3 * SOON_S)  # it may wait once to connect, and once to be answered


def counted(proxy: Proxy) -> dict[str, int]:
    """Return how many objects of calls live in the proxy."""
    stdin, stdout = proxy.process.stdin, proxy.process.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(b"\n")
    stdin.flush()
    found: dict[str, int] = json.loads(stdout.readline())
    return found


def held(proxy: Proxy) -> dict[str, int]:
    """Return what the proxy holds: descriptors by their kind, and objects of calls."""
    kinds = Counter()
    for fd in os.listdir(f"/proc/{proxy.pid()}/fd"):
        with contextlib.suppress(FileNotFoundError):
            kinds[os.readlink(f"/proc/{proxy.pid()}/fd/{fd}").partition(":")[0]] += 1
    # A few empty pipes wait for the next tunnel that carries much.
    kinds["pipe"] = max(0, kinds["pipe"] - 2 * PIPES_KEPT)
    return {**kinds, **counted(proxy)}


def at_rest(proxy: Proxy) -> None:
    """Wait until no call is left."""
    deadline = time.monotonic() + SOON_S
    while counted(proxy)["Conversation"] and time.monotonic() < deadline:
        time.sleep(0.05)


def grown(proxy: Proxy, before: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return what is more than before, once nothing is, or after a while."""
    deadline = time.monotonic() + SOON_S
    while True:
        now = held(proxy)
        more = {kind: (before.get(kind, 0), now[kind]) for kind in now}
        more = {kind: pair for kind, pair in more.items() if pair[1] > pair[0]}
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_bad_peers_at_every_step_delay_nobody_and_leave_nothing(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with (
        servers(network) as tally,
        Proxy(network, "--hosts", "example.com", shell=shell, program=COUNTING) as proxy,
    ):
        healthy_call(proxy)
        at_rest(proxy)
        before, memory = held(proxy), []
        # The second time without the server that takes ten seconds to be given up.
        for ports in (PORTS, PORTS[:-1]):
            with healthy_calls(proxy) as took:
                campaign(proxy, ports)
            assert len(took) > 2  # it was asked all the while
            assert grown(proxy, before) == {}
            memory.append(proxy.rss_kib())
        assert memory[1] - memory[0] < 4 << 10, memory
        assert "Traceback" not in proxy.stderr()
        assert "bug of ours" not in proxy.stderr()
        proxy.end()
        log = proxy.log()
    check_lines(log)
    check_bytes(log, tally)


def check_bytes(log: Sequence[Mapping[str, Any]], tally: Tally) -> None:
    """Hold what went up to what the servers read, and every healthy call to its four bytes.

    Of a server that leaves with bytes unread, nobody knows how many there were.
    """
    ended = [line for line in log if line["verdict"] == "ended"]
    up: Counter[int] = Counter()
    for line in ended:
        up[line["port"]] += line["up"]
    for port, handler in enumerate(SERVERS, FIRST_PORT):
        assert tally.read[port] == up[port] if handler in READ_ON else tally.read[port] <= up[port]
    assert {(one["up"], one["down"]) for one in ended if one["port"] == HEALTHY} == {(4, 4)}
    for port in (HEALTHY, 80, 443):
        assert tally.read[port] == up[port]


def check_lines(log: Sequence[Mapping[str, Any]]) -> None:
    """Each call that was allowed has one last line, and none has two."""
    began: set[str] = set()
    ended: set[str] = set()
    for line in log:
        into = began if line["verdict"] == "allowed" else ended
        assert line["call"] not in into
        into.add(line["call"])
    assert began <= ended
