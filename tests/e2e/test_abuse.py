"""Two hundred bad clients at once neither delay a healthy call nor leave anything behind."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.proxy import LNK, SHELLS, SOON_S, Proxy, read_head
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Connection, echo, on_network

pytestmark = [pytest.mark.netns, pytest.mark.parametrize("shell", SHELLS)]
HOST = "203.0.113.10"
BAD = (
    b"",  # says nothing
    b"CONNECT example.com:9000 HTT",  # stops in its head
    b"GET http://example.com/ HTTP/1.1\nHost: example.com\n\n",  # malformed
    b"\x16\x03\x01\x02\x00\x01",  # TLS to the proxy itself
    b"A" * 70_000,  # a head without an end
    b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",  # and no hello
    b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n\x16\x03\x01\x02",
    b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 99\r\n\r\nx",
    b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",  # refused
)
HEALTHY_WITHIN_S = 2.0
"""Far above what a healthy call takes, far below every deadline of a bad one."""
LATE_MOST = 2
"""Of thirty calls: a machine that is busy with others may be late with so many."""


def healthy_call(proxy: Proxy) -> float:
    """Make one whole call; return how many seconds it took."""
    began = time.monotonic()
    sock, head = proxy.tunnel("example.com:9000")
    with sock:
        assert head.startswith(b"HTTP/1.1 200 ")
        sock.sendall(b"ping")
        assert sock.recv(10) == b"ping"
    return time.monotonic() - began


def settled(proxy: Proxy, count: int) -> int:
    """Return the descriptors held once they are as few as `count`, or after a minute."""
    deadline = time.monotonic() + SOON_S
    while (held := proxy.descriptors()) > count and time.monotonic() < deadline:
        time.sleep(0.05)
    return held


def test_two_hundred_bad_clients_delay_nobody_and_leave_nothing(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with (
        on_network(network, HOST, 9000, echo),
        on_network(network, HOST, 443, echo),
        on_network(network, HOST, 80, echo),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        healthy_call(proxy)
        before, memory = proxy.descriptors(), proxy.rss_kib()
        bad: list[socket.socket] = []
        took: list[float] = []
        for number in range(200):
            sock = proxy.connect()
            sock.setblocking(False)
            bad.append(sock)
            data = BAD[number % len(BAD)]
            if data:
                sock.send(data)
            if number % 20 == 0:
                took.append(healthy_call(proxy))
        for _ in range(20):  # trickle, a byte each, and make healthy calls between
            for sock in bad[:: len(BAD)]:
                with contextlib.suppress(ConnectionError):  # its time was up
                    sock.send(b"C")
            took.append(healthy_call(proxy))
        assert sum(each >= HEALTHY_WITHIN_S for each in took) <= LATE_MOST, took
        for number, sock in enumerate(bad):
            if number % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        healthy_call(proxy)
        assert settled(proxy, before) <= before
        assert proxy.rss_kib() - memory < 8 << 10
        assert proxy.process.poll() is None
        assert "Traceback" not in proxy.stderr()


def test_a_connection_storm_is_served_to_the_last(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with (
        on_network(network, HOST, 9000, echo),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        waiting = [proxy.connect() for _ in range(300)]
        for sock in waiting:
            sock.sendall(b"CONNECT example.com:9000 HTTP/1.1\r\nHost: example.com:9000\r\n\r\n")
        for sock in waiting:
            with sock:
                assert read_head(sock).startswith(b"HTTP/1.1 200 ")


def test_a_proxy_without_descriptors_says_so_once_and_recovers_by_itself(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with (
        on_network(network, HOST, 9000, echo),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        healthy_call(proxy)
        before = proxy.descriptors()
        resource.prlimit(proxy.pid(), resource.RLIMIT_NOFILE, (64, 64))
        with contextlib.ExitStack() as storm:
            for number in range(200):
                sock = storm.enter_context(proxy.connect())
                # Some only hold a descriptor, some want another one for their server.
                end = b"\r\n" if number % 2 else b""
                sock.sendall(
                    b"CONNECT example.com:9000 HTTP/1.1\r\nHost: example.com:9000\r\n" + end
                )
            deadline = time.monotonic() + SOON_S
            while "new connections wait" not in proxy.stderr() and time.monotonic() < deadline:
                time.sleep(0.05)
        assert settled(proxy, before) <= before
        healthy_call(proxy)
        assert proxy.stderr().count("new connections wait until another ends") == 1
        assert "Traceback" not in proxy.stderr()
        assert all("not found" not in line.get("reason", "") for line in proxy.log())
        assert proxy.process.poll() is None


STALLED = 64
EACH_KIB = 64 + 40
"""64 KiB for the way that stands still (R43), and what a call is itself: no second piece."""
EACH_RESIDENT_KIB = 64 + 136
"""The same as the kernel counts it, with holes in the heap and what libraries hold."""
TRACING = (sys.executable, str(Path(__file__).with_name("tracing.py")))


def traced(proxy: Proxy) -> int:
    """Return how many bytes Python's allocators have given out in a proxy that is traced."""
    stdin, stdout = proxy.process.stdin, proxy.process.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(b"\n")
    stdin.flush()
    return int(stdout.readline())


def at_its_most(measure: Callable[[], int]) -> int:
    """Return what is measured, once it has grown no more for half a second."""
    most, still = measure(), 0
    while still < 10:
        time.sleep(0.05)
        now = measure()
        still, most = (still + 1, most) if now <= most else (0, now)
    return most


@pytest.mark.parametrize("how", ["traced", "resident"])
@pytest.mark.parametrize("kind", ["tunnel", "download", "upload", "chunks"])
def test_a_call_whose_peer_stands_still_holds_its_piece_and_no_more(
    shell: str, network: Network, dns: DnsDouble, kind: str, how: str
) -> None:
    program, each_kib = ((str(LNK),), EACH_RESIDENT_KIB)
    if how == "traced":
        program, each_kib = (TRACING, EACH_KIB)
    block, stay = b"x" * (1 << 20), threading.Event()

    def pours(connection: Connection) -> None:
        if kind == "upload":
            stay.wait(60)  # it reads nothing
            return
        if kind != "tunnel":
            connection.until(b"\r\n\r\n")
            framing = "Content-Length: 1000000000"
            if kind == "chunks":
                framing = "Transfer-Encoding: chunked"
            connection.send(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode())
        while not stay.is_set():
            connection.send(b"%x\r\n%s\r\n" % (len(block), block) if kind == "chunks" else block)

    def begin(sock: socket.socket) -> None:
        if kind == "tunnel":
            sock.sendall(b"CONNECT example.com:9000 HTTP/1.1\r\nHost: example.com:9000\r\n\r\n")
            return
        method, length = ("POST", "1000000000") if kind == "upload" else ("GET", "0")
        sock.sendall(
            f"{method} http://example.com:9000/ HTTP/1.1\r\nHost: example.com:9000\r\n"
            f"Content-Length: {length}\r\n\r\n".encode()
        )
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while kind == "upload" and sock.send(block):
                pass

    with (
        on_network(network, HOST, 9000, pours),
        on_network(network, HOST, 9001, echo),
        Proxy(network, "--hosts", "example.com", shell=shell, program=program) as proxy,
        contextlib.ExitStack() as held,
    ):

        def measured() -> int:
            return traced(proxy) if how == "traced" else proxy.rss_kib() << 10

        sock, _ = proxy.tunnel("example.com:9001")
        sock.close()
        before = measured()
        for _ in range(STALLED):
            begin(held.enter_context(proxy.connect()))
        deadline = time.monotonic() + SOON_S
        while sum(line["verdict"] == "allowed" for line in proxy.log()) < STALLED + 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert at_its_most(measured) - before < STALLED * each_kib << 10
        stay.set()


def test_a_storm_of_connections_that_are_broken_off_delays_nobody(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    over = threading.Event()

    def storm() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                sock = proxy.connect()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()

    with (
        on_network(network, HOST, 9000, echo),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        healthy_call(proxy)
        before = proxy.descriptors()
        stormers = [threading.Thread(target=storm) for _ in range(4)]
        for each in stormers:
            each.start()
        try:
            slowest = max(healthy_call(proxy) for _ in range(50))
        finally:
            over.set()
            for each in stormers:
                each.join()
        assert slowest < SOON_S
        assert settled(proxy, before) <= before
        assert "Traceback" not in proxy.stderr()
