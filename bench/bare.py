"""The least that a Python program does for a call: bytes from one socket to the other, no more.

    python -I bench/bare.py PORT HOST HOST_PORT

It parses nothing, asks no list, writes no log, and connects to the one server it was told,
so it is no proxy; but it costs what every proxy on uvloop must, whatever else that does.
`bench.proxy` runs it beside ours: what lies between the two is the filter's, and what lies
between this and squid is the interpreter's and the machine's.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

import uvloop

PIECE_BYTES = 65536
ESTABLISHED = b"HTTP/1.1 200 OK\r\n\r\n"


class Pair:
    """A client's connection and its server's."""

    __slots__ = ("_client", "_first", "_loop", "_server", "_where")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: socket.socket, where: tuple[str, int]
    ) -> None:
        self._loop, self._client, self._where = loop, client, where
        self._server: socket.socket | None = None
        self._first = b""
        loop.add_reader(client, self._from_client)

    def _from_client(self) -> None:
        data = self._client.recv(PIECE_BYTES)
        if not data:
            self._end()
        elif self._server is not None:
            self._server.send(data)
        else:
            self._first = b"" if data.startswith(b"CONNECT ") else data
            self._server = prepared(socket.socket())
            with suppress(BlockingIOError):
                self._server.connect(self._where)
            self._loop.add_writer(self._server, self._connected)

    def _connected(self) -> None:
        assert self._server is not None
        self._loop.remove_writer(self._server)
        self._loop.add_reader(self._server, self._from_server)
        if self._first:
            self._server.send(self._first)
        else:
            self._client.send(ESTABLISHED)

    def _from_server(self) -> None:
        assert self._server is not None
        data = self._server.recv(PIECE_BYTES)
        if data:
            self._client.send(data)
        else:
            self._end()

    def _end(self) -> None:
        for end in (self._client, self._server):
            if end is not None:
                self._loop.remove_reader(end)
                self._loop.remove_writer(end)
                end.close()


def prepared(sock: socket.socket) -> socket.socket:
    """Return a socket that never blocks and doesn't hold small messages back."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


async def serve(port: int, where: tuple[str, int]) -> None:
    """Serve until ended."""
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    listener.setblocking(False)

    def accept() -> None:
        with suppress(BlockingIOError):
            Pair(loop, prepared(listener.accept()[0]), where)

    loop.add_reader(listener, accept)
    await asyncio.Event().wait()


if __name__ == "__main__":
    own_port, host, its_port = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(own_port), (host, int(its_port))))
