"""WebSocket and server-sent events, message by message, plain and through a tunnel.

A relay that counts stands in front of the server, to which the wire's log is held.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Request,
    TextMessage,
)

from tests.e2e.calls import Made, made
from tests.e2e.proxy import SHELLS, Proxy, read_all, read_head
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.relay import LOOPBACK, Relay
from tests.net.servers import Connection, Handler, on_network

pytestmark = [pytest.mark.netns, pytest.mark.parametrize("shell", SHELLS)]
HOST = "203.0.113.10"
WAYS = ("plain", "tunnel")


def websocket_echo(connection: Connection) -> None:
    """Serve one WebSocket connection and send each message back."""
    peer = WSConnection(ConnectionType.SERVER)
    while data := connection.recv():
        peer.receive_data(data)
        for event in peer.events():
            match event:
                case Request():
                    connection.send(peer.send(AcceptConnection()))
                case Message():
                    connection.send(peer.send(event))
                case CloseConnection():
                    connection.send(peer.send(event.response()))
                    return


def opened(proxy: Proxy, way: str, authority: Authority) -> socket.socket:
    """Return a connection on which to speak HTTP to the server, one way or the other."""
    if way == "plain":
        return proxy.connect()
    sock, head = proxy.tunnel("example.com:443")
    assert head.startswith(b"HTTP/1.1 200 ")
    return authority.client_context().wrap_socket(sock, server_hostname="example.com")


@contextmanager
def served(network: Network, way: str, authority: Authority, handler: Handler) -> Iterator[Relay]:
    """Serve behind a relay, in TLS where the client speaks through a tunnel."""
    port, context = (80, None) if way == "plain" else (443, authority.context("example.com"))
    with (
        on_network(network, LOOPBACK, port, handler, context),
        Relay(network, (HOST, port), (LOOPBACK, port)) as relay,
    ):
        yield relay


def check_counts(proxy: Proxy, way: str, relay: Relay, received: int) -> None:
    """Hold the one call's last line to what its server saw, and its client.

    A tunnel's bytes are the same on both sides; a plain answer's head is written anew.
    """
    proxy.end()
    ((up, down),) = relay.counts()
    where = ("http", "example.com", 80) if way == "plain" else ("connect", "example.com", 443)
    assert made(proxy.log()) == [Made(*where, up, received if way == "plain" else down)]
    assert min(up, down) > 0


@pytest.mark.parametrize("way", WAYS)
def test_a_websocket_echoes_message_by_message(
    shell: str, way: str, network: Network, dns: DnsDouble, authority: Authority
) -> None:
    received = 0
    with (
        served(network, way, authority, websocket_echo) as relay,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        opened(proxy, way, authority) as sock,
    ):
        target = "http://example.com/socket" if way == "plain" else "/socket"
        peer = WSConnection(ConnectionType.CLIENT)
        sock.sendall(peer.send(Request(host="example.com", target=target)))

        def one() -> Event:
            nonlocal received
            while True:
                for event in peer.events():
                    return event
                data = sock.recv(65536)
                assert data
                received += len(data)
                peer.receive_data(data)

        assert isinstance(one(), AcceptConnection)
        for number in range(20):
            sock.sendall(peer.send(TextMessage(data=f"message {number}")))
            event = one()
            assert isinstance(event, TextMessage)
            assert event.data == f"message {number}"
        blob = bytes(range(256)) * 1000
        sock.sendall(peer.send(BytesMessage(data=blob)))
        got = bytearray()
        while len(got) < len(blob):
            event = one()
            assert isinstance(event, BytesMessage)
            got += event.data
        assert got == blob
        sock.sendall(peer.send(CloseConnection(code=1000)))
        assert isinstance(one(), CloseConnection)
        assert read_all(sock) == b""
        sock.close()
        check_counts(proxy, way, relay, received)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("framing", ["chunked", "until-close"])
def test_server_sent_events_arrive_one_by_one(
    shell: str, way: str, framing: str, network: Network, dns: DnsDouble, authority: Authority
) -> None:
    go = threading.Semaphore(0)

    def events(connection: Connection) -> None:
        connection.until(b"\r\n\r\n")
        chunked = framing == "chunked"
        extra = b"Transfer-Encoding: chunked\r\n" if chunked else b""
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + extra + b"\r\n")
        for number in range(10):
            go.acquire()
            piece = b"data: %d\n\n" % number
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            connection.send(b"0\r\n\r\n")

    with (
        served(network, way, authority, events) as relay,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        opened(proxy, way, authority) as sock,
    ):
        target = "http://example.com/e" if way == "plain" else "/e"
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: example.com\r\n\r\n".encode())
        head = read_head(sock)
        assert b" 200 " in head
        received = len(head)
        for number in range(10):
            # The next event isn't sent before this one has been seen whole.
            go.release()
            seen = b""
            while b"data: %d\n\n" % number not in seen:
                data = sock.recv(65536)
                assert data
                seen += data
            received += len(seen)
        if way == "plain":  # whose client may go on: only in a tunnel the server ends it all
            sock.shutdown(socket.SHUT_WR)
        received += len(read_all(sock))
        sock.close()
        check_counts(proxy, way, relay, received)
