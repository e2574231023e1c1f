"""Plain http:// through the real proxy: keep-alive, early answers, whole bodies, refusals."""

from __future__ import annotations

import fcntl
import hashlib
import socket
import struct
import sys
import termios
import threading
import time
from contextlib import suppress

import pytest

from tests.e2e.calls import Made, counts, made
from tests.e2e.proxy import SHELLS, SOON_S, Proxy, read_all, read_head
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Connection, http, ok, on_network

pytestmark = [pytest.mark.netns, pytest.mark.parametrize("shell", SHELLS)]
HOST = "203.0.113.10"


def get(path: str, *fields: str, host: str = "example.com") -> bytes:
    """Return a GET in absolute form."""
    lines = [f"GET http://{host}{path} HTTP/1.1", f"Host: {host}", *fields, "", ""]
    return "\r\n".join(lines).encode()


def read_answer(sock: socket.socket) -> tuple[bytes, bytes]:
    """Read one answer framed by Content-Length; return its head and body."""
    head = read_head(sock)
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    body = b""
    while len(body) < length:
        data = sock.recv(length - len(body))
        assert data
        body += data
    return head, body


def test_many_requests_go_over_one_connection(shell: str, network: Network, dns: DnsDouble) -> None:
    with (
        on_network(network, HOST, 80, http(lambda head, _: ok(head.split(b" ")[1]))) as server,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as sock,
    ):
        came = []
        for number in range(50):
            sock.sendall(get(f"/{number}"))
            head, body = read_answer(sock)
            assert head.startswith(b"HTTP/1.1 200 ")
            assert body == f"/{number}".encode()
            came.append(len(head + body))
        proxy.end()
        asked = [len(one) + 4 for one in bytes(server.received[0]).split(b"\r\n\r\n")[:-1]]
        assert counts(proxy.log(), "http") == list(zip(asked, came, strict=True))


def test_an_early_answer_arrives_while_the_body_is_still_going(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    def early(connection: Connection) -> None:
        connection.until(b"\r\n\r\n")
        connection.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nno.\n")
        while connection.recv():
            pass

    with (
        on_network(network, HOST, 80, early) as server,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as sock,
    ):
        sock.sendall(
            b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\n"
            b"Content-Length: 1000000000\r\n\r\nbeginning"
        )
        head, body = read_answer(sock)
        assert b" 413 " in head
        assert body == b"no.\n"
        proxy.end()
        server.close()
        assert counts(proxy.log(), "http") == [(len(server.received[0]), len(head + body))]


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_sixty_four_mebibytes_go_up_and_come_back_exact(
    shell: str, framing: str, network: Network, dns: DnsDouble
) -> None:
    block = hashlib.sha256(b"plain").digest() * (1 << 15)
    count = 64

    def answer(_: bytes, body: bytes) -> bytes:
        return ok(body)

    with (
        on_network(network, HOST, 80, http(answer)),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as sock,
    ):
        before = proxy.rss_kib()
        how = f"Content-Length: {count << 20}" if framing == "length" else (
            "Transfer-Encoding: chunked"
        )  # fmt: skip
        sock.sendall(
            f"PUT http://example.com/ HTTP/1.1\r\nHost: example.com\r\n{how}\r\n\r\n".encode()
        )

        def upload() -> None:
            for _ in range(count):
                if framing == "chunked":
                    sock.sendall(b"%x\r\n" % len(block) + block + b"\r\n")
                else:
                    sock.sendall(block)
            if framing == "chunked":
                sock.sendall(b"0\r\n\r\n")

        thread = threading.Thread(target=upload)
        thread.start()
        head = read_head(sock)
        assert head.startswith(b"HTTP/1.1 200 ")
        digest, left = hashlib.sha256(), count << 20
        while left:
            data = sock.recv(1 << 18)
            assert data
            digest.update(data)
            left -= len(data)
        thread.join(SOON_S)
        assert digest.digest() == hashlib.sha256(block * count).digest()
        assert proxy.rss_kib() - before < 8 << 10


def test_an_echo_that_never_reads_ahead_does_not_deadlock(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    """The server answers as it reads, the client reads only once it has sent all."""
    size = 8 << 20

    def mirror(connection: Connection) -> None:
        _, _, body = connection.until(b"\r\n\r\n").partition(b"\r\n\r\n")
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        left = size
        while left:
            if body:
                connection.send(body)
                left -= len(body)
            body = connection.recv() if left else b""

    with (
        on_network(network, HOST, 80, mirror),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as sock,
    ):
        sock.sendall(
            f"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\n"
            f"Content-Length: {size}\r\n\r\n".encode()
        )
        got = bytearray()
        reader = threading.Thread(target=lambda: got.extend(read_n(sock, size)))
        block = b"0123456789abcdef" * 4096
        reader.start()
        for _ in range(size // len(block)):
            sock.sendall(block)
        reader.join(SOON_S)
        assert got == block * (size // len(block))


def read_n(sock: socket.socket, size: int) -> bytes:
    """Read an answer's head, then `size` bytes of its body."""
    assert read_head(sock).startswith(b"HTTP/1.1 200 ")
    body = bytearray()
    while len(body) < size:
        data = sock.recv(65536)
        assert data
        body += data
    return bytes(body)


def test_each_request_of_a_connection_is_judged_by_itself(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with (
        on_network(network, HOST, 80, http(lambda *_: ok(b"yes"))) as server,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as sock,
    ):
        sock.sendall(get("/one") + get("/two", host="evil.test"))
        assert read_answer(sock)[1] == b"yes"
        head, body = read_answer(sock)
        assert b" 403 Forbidden: add --hosts evil.test" in head.split(b"\r\n")[0]
        assert b"evil.test" in body
        assert b"add --hosts evil.test." in body
    assert b"evil.test" not in b"".join(server.received)
    assert "evil.test" not in dns.names_asked()


def test_a_half_closed_client_still_gets_its_answer(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with (
        on_network(network, HOST, 80, http(lambda *_: ok(b"late but there"))),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as sock,
    ):
        sock.sendall(get("/"))
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock).endswith(b"late but there")


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"half of it" * 9000


@pytest.mark.parametrize(
    ("said", "then"),
    [
        (LONG, "resets"),
        (LONG, "ends"),
        (CHUNKED + b"5\r\nhello\r\nzz\r\n", "waits"),
        (CHUNKED + b"zz\r\n", "waits"),
        (CHUNKED + b"5\r\nhel", "ends"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\x00\r\n\r\n", "waits"),
    ],
    ids=["reset", "cut-short", "bad-chunk", "no-chunk", "half-a-chunk", "no-head"],
)
def test_an_answer_that_breaks_off_is_counted_to_the_byte(
    shell: str, network: Network, dns: DnsDouble, said: bytes, then: str
) -> None:
    asked: list[bytes] = []

    def breaks_off(connection: Connection) -> None:
        asked.append(connection.until(b"\r\n\r\n"))
        connection.send(said)
        if then == "waits":
            connection.recv()
        elif then == "resets":
            until_empty(connection.sock)
            linger = struct.pack("ii", 1, 0)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    with (
        on_network(network, HOST, 80, breaks_off),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as sock,
    ):
        sock.sendall(get("/"))
        got = b""
        with suppress(ConnectionResetError):
            while data := sock.recv(65536):
                got += data
        proxy.end()
        # What the proxy says itself is no byte of the call's.
        theirs = got.partition(b"HTTP/1.1 502 ")[0]
        assert theirs
        assert made(proxy.log()) == [Made("http", "example.com", 80, len(asked[0]), len(theirs))]


def until_empty(sock: socket.socket) -> None:
    """Wait until the peer's kernel has everything that was sent."""
    while int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder):
        time.sleep(0.01)


def test_nothing_private_is_in_the_log(shell: str, network: Network, dns: DnsDouble) -> None:
    markers = ("PATHMARK", "QUERYMARK", "HEADMARK", "BODYMARK", "COOKIEMARK", "ANSWERMARK")
    with (
        on_network(network, HOST, 80, http(lambda *_: ok(b"ANSWERMARK", "X-A: ANSWERMARK"))),
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as sock,
    ):
        sock.sendall(
            b"POST http://example.com/PATHMARK?q=QUERYMARK HTTP/1.1\r\nHost: example.com\r\n"
            b"X-A: HEADMARK\r\nCookie: COOKIEMARK\r\nContent-Length: 8\r\n\r\nBODYMARK"
        )
        assert read_answer(sock)[1] == b"ANSWERMARK"
        proxy.end()
        written = (proxy.logs / "test.jsonl").read_text() + proxy.stderr()
    assert "example.com" in written
    assert not [marker for marker in markers if marker in written]


MUCH = 2 << 30
BLOCK = hashlib.sha256(b"seed").digest() * (1 << 15)  # 1 MiB


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_gibibytes_up_and_down_are_exact_with_flat_memory(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    framing = {"uvloop": "chunked", "trio": "length"}[shell]  # 64 MiB are tried in every way
    counted: list[int] = []
    length = f"Content-Length: {MUCH}" if framing == "length" else "Transfer-Encoding: chunked"
    blocks = MUCH // len(BLOCK)
    last = b"" if framing == "length" else b"0\r\n\r\n"
    piece = BLOCK if framing == "length" else b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK)

    def serve(connection: Connection) -> None:
        """Count what comes: a body that ends by its length or its last chunk; then send as much."""
        began = connection.until(b"\r\n\r\n")
        rest = began.partition(b"\r\n\r\n")[2]
        count, tail = len(rest), rest[-5:]
        while count < MUCH if framing == "length" else tail != last:
            data = connection.sock.recv(1 << 20)
            assert data
            count += len(data)
            tail = (tail + data)[-5:]
        counted.append(len(began) - len(rest) + count)
        connection.send(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode())
        for _ in range(blocks):
            connection.send(piece)
        connection.send(last)

    with (
        on_network(network, HOST, 80, serve) as server,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as sock,
    ):
        sock.sendall(get("/", length).replace(b"GET", b"POST", 1))
        before = proxy.rss_kib()
        most = before
        for sent in range(blocks):
            sock.sendall(piece)
            most = max(most, proxy.rss_kib()) if sent % 64 == 0 else most
        sock.sendall(last)
        head = read_head(sock)
        assert b" 200 " in head
        down, tail = 0, b""
        while down < MUCH if framing == "length" else tail != last:
            data = sock.recv(1 << 20)
            assert data
            down += len(data)
            tail = (tail + data)[-5:]
            most = max(most, proxy.rss_kib()) if down % (1 << 26) < (1 << 16) else most
        assert not server.errors
        assert counted[0] > MUCH
        assert down >= MUCH
        assert most - before < 8 << 10, f"grew by {most - before} KiB"
        proxy.end()
        call = Made("http", "example.com", 80, counted[0], len(head) + down)
        assert made(proxy.log()) == [call]
