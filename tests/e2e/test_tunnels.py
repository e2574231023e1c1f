"""Tunnels through the real proxy: hellos, half-close, resets, slow readers, gigabytes."""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.e2e.calls import Made, made
from tests.e2e.proxy import SHELLS, SOON_S, Proxy, read_all
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Connection, collect, echo, on_network

pytestmark = [pytest.mark.netns, pytest.mark.parametrize("shell", SHELLS)]
HOST = "203.0.113.10"
MUCH = 2 << 30
PATTERN = hashlib.sha256(b"seed").digest() * (1 << 15)
"""A mebibyte, of which any part tells where in 32 bytes it begins."""


def holds_pattern(sock: socket.socket, meanwhile: Callable[[], object] = int) -> int:
    """Read the pattern, again and again, to the end; return how many bytes there were."""
    due, count = PATTERN + PATTERN[:32], 0
    while data := sock.recv(len(PATTERN)):
        begin = count % 32
        assert data == due[begin : begin + len(data)]
        count += len(data)
        if count % (1 << 26) < len(data):
            meanwhile()
    return count


def client_hello(name: str | None) -> bytes:
    """Return the first flight that OpenSSL sends for this name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def over_records(hello: bytes, records: int) -> list[bytes]:
    """Cut the message of a one-record hello into `records` records of its own."""
    message, step = hello[5:], -(-len(hello[5:]) // records)
    pieces = [message[at : at + step] for at in range(0, len(message), step)]
    return [b"\x16\x03\x01" + struct.pack(">H", len(piece)) + piece for piece in pieces]


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (client_hello("www.example.com"), "another listed host"),
        (client_hello("evil.test"), "a host that isn't listed"),
        (client_hello(None), "no name"),
        (b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", "no TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"\x00" * 64, "zeros"),
    ],
    ids=["another-listed", "unlisted", "no-name", "http", "ssh", "zeros"],
)
def test_a_tunnel_for_another_name_reaches_the_server_with_no_byte(
    shell: str, network: Network, dns: DnsDouble, first: bytes, why: str
) -> None:
    with (
        on_network(network, HOST, 443, collect) as server,
        Proxy(network, "--hosts", "example.com,www.example.com", shell=shell) as proxy,
    ):
        sock, head = proxy.tunnel("example.com:443")
        with sock:
            assert head.startswith(b"HTTP/1.1 200 ")
            sock.sendall(first)
            assert read_all(sock) == b"", why
        proxy.close()
    assert b"".join(server.received) == b""


def test_a_hello_over_twenty_records_and_segments_arrives_unchanged(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    pieces = over_records(client_hello("example.com"), 20)
    assert len(pieces) == 20
    with (
        on_network(network, HOST, 443, echo) as server,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        sock, head = proxy.tunnel("example.com:443")
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert head.startswith(b"HTTP/1.1 200 ")
            for piece in pieces:
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock) == b"".join(pieces)
        assert bytes(server.received[0]) == b"".join(pieces)


def test_tls_goes_through_whole(
    shell: str, network: Network, dns: DnsDouble, authority: Authority
) -> None:
    with (
        on_network(network, HOST, 443, echo, authority.context("example.com")),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        sock, _ = proxy.tunnel("example.com:443")
        with authority.client_context().wrap_socket(sock, server_hostname="example.com") as tls:
            tls.sendall(b"through")
            assert tls.recv(64) == b"through"


def test_a_server_may_ask_for_another_share_and_for_no_other_name(
    shell: str, network: Network, dns: DnsDouble, authority: Authority
) -> None:
    """OpenSSL goes by the name of a second hello, which a program can bring about."""
    names: list[str | None] = []
    context = authority.context("example.com", "www.example.com")
    context.set_ecdh_curve("secp384r1")
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    with (
        on_network(network, HOST, 443, echo, context),
        Proxy(network, "--hosts", "example.com,www.example.com", shell=shell) as proxy,
    ):
        sock, _ = proxy.tunnel("example.com:443")
        with authority.client_context().wrap_socket(sock, server_hostname="example.com") as tls:
            tls.sendall(b"through")
            assert tls.recv(64) == b"through"
        assert names == ["example.com"] * 2
        sock, _ = proxy.tunnel("example.com:443")
        with sock:
            sock.sendall(client_hello("example.com"))
            assert sock.recv(1 << 16)[5] == 2  # HelloRetryRequest, a ServerHello of a kind
            sock.sendall(client_hello("www.example.com"))
            assert read_all(sock) in (b"", b"\x14\x03\x03\x00\x01\x01")
        last = proxy.log()[-1]
    assert names == ["example.com"] * 3
    assert last["verdict"] == "refused"
    assert "another name in its second ClientHello" in last["reason"]


def test_a_late_answer_arrives_after_a_half_close(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    client_has_ended = threading.Event()

    def late(connection: Connection) -> None:
        while connection.recv():
            pass
        client_has_ended.set()
        connection.send(b"late " * 100_000)

    with (
        on_network(network, HOST, 9000, late),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        sock, _ = proxy.tunnel("example.com:9000")
        with sock:
            sock.sendall(b"question")
            sock.shutdown(socket.SHUT_WR)
            assert client_has_ended.wait(SOON_S)
            assert read_all(sock) == b"late " * 100_000


def test_a_server_that_ends_first_still_hears_the_client(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    heard = threading.Event()

    def first(connection: Connection) -> None:
        connection.send(b"bye")
        connection.sock.shutdown(socket.SHUT_WR)
        while connection.recv():
            pass
        heard.set()

    with (
        on_network(network, HOST, 9000, first) as server,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        sock, _ = proxy.tunnel("example.com:9000")
        with sock:
            assert read_all(sock) == b"bye"
            sock.sendall(b"still here" * 1000)
            sock.shutdown(socket.SHUT_WR)
            assert heard.wait(SOON_S)
        assert bytes(server.received[0]) == b"still here" * 1000


@pytest.mark.parametrize("who", ["client", "server"])
def test_a_reset_of_one_side_reaches_the_other(
    shell: str, network: Network, dns: DnsDouble, who: str
) -> None:
    outcome: list[object] = []
    ended = threading.Event()

    def reset(sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    def serve(connection: Connection) -> None:
        assert connection.recv() == b"hello"
        if who == "server":
            reset(connection.sock)
            return
        connection.send(b"now")
        try:
            outcome.append(connection.recv())
        except OSError as error:
            outcome.append(error)
        ended.set()

    with (
        on_network(network, HOST, 9000, serve),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        sock, _ = proxy.tunnel("example.com:9000")
        sock.sendall(b"hello")
        if who == "client":
            assert sock.recv(10) == b"now"
            reset(sock)
            assert ended.wait(SOON_S)
            assert isinstance(outcome[0], ConnectionResetError)
        else:
            with sock, pytest.raises(ConnectionResetError):
                read_all(sock)


def test_a_slow_reader_slows_its_sender_and_gets_every_byte(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    block = bytes(range(256)) * 4096
    count, sent = 160, [0]  # mebibytes: the kernels' buffers take some thirty

    def pour(connection: Connection) -> None:
        for _ in range(count):
            connection.send(block)
            sent[0] += 1

    with (
        on_network(network, HOST, 9000, pour),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        before = proxy.rss_kib()
        sock, _ = proxy.tunnel("example.com:9000")
        with sock:
            still, last = 0, -1
            while still < 10:  # half a second without a block: the sender is held
                still = still + 1 if sent[0] == last else 0
                last = sent[0]
                time.sleep(0.05)
            assert last < count // 2
            assert proxy.rss_kib() - before < 8 << 10
            whole, got = hashlib.blake2b(), hashlib.blake2b()
            for _ in range(count):
                whole.update(block)
            while data := sock.recv(1 << 18):
                got.update(data)
            assert got.digest() == whole.digest()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_gibibytes_up_and_down_are_exact_with_flat_memory(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    def serve(connection: Connection) -> None:
        assert holds_pattern(connection.sock) == MUCH
        for _ in range(MUCH // len(PATTERN)):
            connection.send(PATTERN)

    with (
        on_network(network, HOST, 9000, serve) as server,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        sock, _ = proxy.tunnel("example.com:9000")
        with sock:
            before, most = proxy.rss_kib(), [0]
            for sent in range(MUCH // len(PATTERN)):
                sock.sendall(PATTERN)
                if sent % 64 == 0:
                    most.append(proxy.rss_kib())
            sock.shutdown(socket.SHUT_WR)
            assert holds_pattern(sock, lambda: most.append(proxy.rss_kib())) == MUCH
        assert not server.errors
        assert max(most) - before < 8 << 10, f"grew by {max(most) - before} KiB"
        proxy.end()
        assert made(proxy.log()) == [Made("connect", "example.com", 9000, MUCH, MUCH)]


def test_a_log_counts_the_bytes_the_peers_saw(shell: str, network: Network, dns: DnsDouble) -> None:
    with (
        on_network(network, HOST, 9000, echo),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        sock, _ = proxy.tunnel("example.com:9000")
        with sock:
            sock.sendall(b"x" * 70_000)
            sock.shutdown(socket.SHUT_WR)
            assert len(read_all(sock)) == 70_000
        proxy.end()
        assert made(proxy.log()) == [Made("connect", "example.com", 9000, 70_000, 70_000)]


@pytest.mark.parametrize("towards", ["client", "server"])
def test_bytes_that_a_reset_destroys_do_not_count(
    shell: str, network: Network, dns: DnsDouble, towards: str
) -> None:
    """Kernels take megabytes for a peer that reads nothing, of which it never gets most."""
    full, over, got = threading.Event(), threading.Event(), []

    def pour(sock: socket.socket) -> None:
        sock.settimeout(0.5)
        with suppress(TimeoutError):
            while True:
                sock.sendall(PATTERN)

    def read(sock: socket.socket) -> None:
        sock.settimeout(60)
        count = 0
        with suppress(ConnectionResetError):
            while data := sock.recv(1 << 16):
                count += len(data)
        got.append(count)

    def serve(connection: Connection) -> None:
        if towards == "client":
            pour(connection.sock)
            full.set()
        else:
            assert over.wait(60)
            read(connection.sock)

    with (
        on_network(network, HOST, 9000, serve) as server,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
    ):
        sock, _ = proxy.tunnel("example.com:9000")
        with sock:
            if towards == "client":
                assert full.wait(60)
                proxy.lnk("stop")
            else:
                pour(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
            proxy.end()
            over.set()
            if towards == "client":
                read(sock)
        server.close()
        assert not server.errors
        counts = (0, got[0]) if towards == "client" else (got[0], 0)
        assert got[0] > 0
        assert made(proxy.log()) == [Made("connect", "example.com", 9000, *counts)]


def test_both_families_are_tried_and_the_one_that_answers_wins(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with (
        on_network(network, "203.0.113.11", 9000, echo) as server,
        Proxy(network, "--hosts", "*.example.com", shell=shell) as proxy,
    ):
        # Nothing listens at its v6 address, which is refused at once.
        sock, head = proxy.tunnel("both.example.com:9000")
        with sock:
            assert head.startswith(b"HTTP/1.1 200 ")
            sock.sendall(b"hello")
            assert sock.recv(10) == b"hello"
    assert server.accepted == 1


def test_an_ipv6_server_is_reached(shell: str, network: Network, dns: DnsDouble) -> None:
    with (
        on_network(network, "2001:db8::10", 9000, echo),
        Proxy(network, "--hosts", "*.example.com", shell=shell) as proxy,
    ):
        sock, head = proxy.tunnel("six.example.com:9000")
        with sock:
            assert head.startswith(b"HTTP/1.1 200 ")
            sock.sendall(b"hello")
            assert sock.recv(10) == b"hello"
