"""A relay that counts: it stands in front of a real server, as the peer that the wire sees.

Bytes, half-closes and resets go through as they come.  What a reader has been given counts as
received, what a kernel has taken counts as sent.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tests.net.namespaces import Network
from tests.net.servers import Connection, Server, listen

LOOPBACK = "127.0.0.1"
"""Where a server behind a relay listens, in the servers' namespace: only the relay gets there."""
TAKEN = 1 << 16
ENDED_S = 60
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Passed:
    """What one connection has carried, in bytes from the wire (up) and to it (down)."""

    up: int = 0
    down: int = 0


class Relay(Server):
    """A relay from one of the network's server addresses to a server; a context manager."""

    def __init__(self, network: Network, at: tuple[str, int], to: tuple[str, int]) -> None:
        self.passed: list[Passed] = []
        """A connection each, in the order in which they began."""
        self._network, self._to = network, to
        super().__init__(network.on_server_side(lambda: listen(*at)), self._join)

    def counts(self) -> list[tuple[int, int]]:
        """Return the bytes up and down of each connection, in the order in which they began.

        Each has ended, or the wire has left something open.
        """
        for thread in self._threads:
            thread.join(ENDED_S)
            assert not thread.is_alive()
        return [(each.up, each.down) for each in self.passed]

    def _join(self, connection: Connection) -> None:
        self.passed.append(passed := Passed())
        beyond = self._network.on_server_side(lambda: socket.create_connection(self._to, 60))
        with beyond:
            beyond.settimeout(60)
            Joined(connection.sock, beyond, passed).carry()


@dataclass
class Joined:
    """A connection of the wire's and the server's own, for as long as both last."""

    wire: socket.socket
    server: socket.socket
    passed: Passed
    broken: bool = False

    def carry(self) -> None:
        """Carry both directions to their end; a reset of one side is one of the other."""
        down = threading.Thread(target=self._whole, args=(self._down,))
        down.start()
        self._whole(self._up)
        down.join()
        if self.broken:
            for sock in (self.wire, self.server):
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)

    def _whole(self, direction: Callable[[], None]) -> None:
        try:
            direction()
        except OSError:
            self.broken = True
            for sock in (self.wire, self.server):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RD)  # wakes the other direction, and says nothing

    def _up(self) -> None:
        while data := self.wire.recv(TAKEN):
            self.passed.up += len(data)
            self.server.sendall(data)
        self.server.shutdown(socket.SHUT_WR)

    def _down(self) -> None:
        while data := self.server.recv(TAKEN):
            view = memoryview(data)
            while view:
                sent = self.wire.send(view)
                self.passed.down += sent
                view = view[sent:]
        self.wire.shutdown(socket.SHUT_WR)
