"""Servers that the tests start, each on a listening socket made where they like.

A server runs its `handler(connection)` on a thread a connection and keeps what it saw:
`accepted` counts connections and `received` holds the bytes of each.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable

from tests.net.namespaces import Network

JOIN_S = 60.0
"""Longer than any handler goes on once its connection was shut: only a fault waits for it."""

Handler = Callable[["Connection"], None]


class Connection:
    """One accepted connection: `recv` keeps a copy of what came (up to 1 MiB)."""

    KEEP = 1 << 20

    def __init__(self, sock: socket.socket, seen: bytearray) -> None:
        self.sock, self.seen = sock, seen

    def recv(self, limit: int = 65536) -> bytes:
        """Return what the peer sent; no bytes when it has ended."""
        data = self.sock.recv(limit)
        if len(self.seen) < self.KEEP:
            self.seen += data
        return data

    def until(self, mark: bytes) -> bytes:
        """Return what came up to and with `mark` (and perhaps more), or what there was."""
        got = b""
        while mark not in got and (data := self.recv()):
            got += data
        return got

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        self.sock.sendall(data)


class Server:
    """A listening server; use it as a context manager."""

    def __init__(
        self, listener: socket.socket, handler: Handler, context: ssl.SSLContext | None = None
    ) -> None:
        self.listener, self.handler, self.context = listener, handler, context
        self.received: list[bytearray] = []
        self.errors: list[BaseException] = []
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def accepted(self) -> int:
        """How many connections have come."""
        return len(self.received)

    @property
    def address(self) -> tuple[str, int]:
        """The address and port it listens on."""
        name = self.listener.getsockname()
        return name[0], name[1]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            seen = bytearray()
            self.received.append(seen)
            self._open.add(sock)
            thread = threading.Thread(target=self._serve, args=(sock, seen), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, seen: bytearray) -> None:
        raw = sock
        sock.settimeout(60)
        try:
            if self.context is not None:
                sock = self.context.wrap_socket(sock, server_side=True)
            self.handler(Connection(sock, seen))
        except (OSError, ssl.SSLError):
            pass  # the peer left: tests look at what was received
        except BaseException as error:
            self.errors.append(error)
        finally:
            self._open.discard(raw)
            with contextlib.suppress(OSError):
                sock.close()

    def close(self) -> None:
        """Stop listening, close every connection and wait for the threads."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._thread.join(JOIN_S)
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(JOIN_S)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def listen(address: str, port: int, backlog: int = 256) -> socket.socket:
    """Return a listening TCP socket in the namespace of the thread that calls."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        listener.bind((address, port))
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def on_network(
    network: Network,
    address: str,
    port: int,
    handler: Handler,
    context: ssl.SSLContext | None = None,
) -> Server:
    """Start a server at one of the network's server addresses."""
    return Server(network.on_server_side(lambda: listen(address, port)), handler, context)


def echo(connection: Connection) -> None:
    """Send back what comes, until the peer ends; then end."""
    while data := connection.recv():
        connection.send(data)
    connection.sock.shutdown(socket.SHUT_WR)


def collect(connection: Connection) -> None:
    """Read to the end and say nothing."""
    while connection.recv():
        pass


def http(answer: Callable[[bytes, bytes], bytes]) -> Handler:
    """Return a handler for HTTP: `answer(head, body)` gives the whole answer.

    The connection is kept unless the client asks for its close.
    Bodies are framed by Content-Length or chunked; both are handed over decoded.
    """

    def handle(connection: Connection) -> None:
        held = b""
        while True:
            while b"\r\n\r\n" not in held:
                data = connection.recv()
                if not data:
                    return
                held += data
            head, _, held = held.partition(b"\r\n\r\n")
            body, held = _body(connection, head, held)
            connection.send(answer(head, body))
            if b"\r\nconnection: close" in head.lower():
                return

    return handle


def _body(connection: Connection, head: bytes, held: bytes) -> tuple[bytes, bytes]:
    fields = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    if b"expect" in fields:
        connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        return _chunks(connection, held)
    length = int(fields.get(b"content-length", b"0"))
    parts = [held]
    size = len(held)
    while size < length:
        data = connection.recv(1 << 18)
        if not data:
            raise ConnectionError("cut short")
        parts.append(data)
        size += len(data)
    whole = b"".join(parts)
    return whole[:length], whole[length:]


def _chunks(connection: Connection, held: bytes) -> tuple[bytes, bytes]:
    body = bytearray()
    while True:
        while b"\r\n" not in held:
            if not (data := connection.recv()):
                raise ConnectionError("cut short")
            held += data
        line, _, held = held.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        while len(held) < size + 2:
            data = connection.recv()
            if not data:
                raise ConnectionError("cut short")
            held += data
        body += held[:size]
        held = held[size + 2 :]
        if size == 0:
            return bytes(body), held


def ok(body: bytes, *fields: str) -> bytes:
    """Return a 200 answer with this body."""
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body
