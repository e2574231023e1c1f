"""A bound UDP socket whose datagrams are calls: each is a connection of one message.

A call has a client side that it receives from and sends to, and so has one that is a
datagram: a pair of unix sockets is made for it, which keeps messages apart
(SOCK_SEQPACKET), and what its script sends there goes back to where the datagram came
from.  So a conversation, on either shell, knows nothing of datagrams.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

DATAGRAM_MAX_BYTES = 65_535

AT_ONCE_MOST = 128
"""Calls that run at once; further datagrams wait in the kernel, which drops what is too much,
as a network does.  Each holds two descriptors."""

TAKEN_A_TURN = 32
"""A storm of datagrams must not starve the calls that run."""


class Asked:
    """One datagram's call: our end of its pair, and who waits for what comes out of it."""

    __slots__ = ("_peer", "_post", "client", "end")

    def __init__(self, post: Post, data: bytes, peer: tuple[str, int]) -> None:
        """Make the pair; raise OSError where there is no descriptor for it."""
        self._post, self._peer = post, peer
        self.end, self.client = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.end.setblocking(False)
        self.end.send(data)
        self.end.shutdown(socket.SHUT_WR)

    def reply(self) -> None:
        """Send on what the call has answered, if it has, and be done with it.

        A client that has gone, or whose buffer is full, gets none: it will ask again.
        """
        with suppress(OSError):  # the call's own end was reset
            if answer := self.end.recv(DATAGRAM_MAX_BYTES):
                self._post.listener.sendto(answer, self._peer)
        self.close()

    def close(self) -> None:
        """Forget the call: nothing that it says goes anywhere."""
        self.end.close()
        self._post.asked.discard(self)


class Post:
    """The socket, and the calls of its datagrams that run: `asked`."""

    __slots__ = ("asked", "listener")

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self.listener = listener
        self.asked: set[Asked] = set()

    @property
    def full(self) -> bool:
        """Tell whether no further datagram is taken until a call has ended."""
        return len(self.asked) >= AT_ONCE_MOST

    def take(self) -> Iterator[Asked]:
        """Take datagrams that wait, in a bounded turn; who iterates starts the calls.

        One for which there is no descriptor is lost, as on a network that is too busy.
        """
        for _ in range(TAKEN_A_TURN):
            if self.full:
                return
            try:
                data, peer = self.listener.recvfrom(DATAGRAM_MAX_BYTES)
                asked = Asked(self, data, peer)
            except OSError:
                return
            self.asked.add(asked)
            yield asked

    def close(self) -> None:
        """Take and answer nothing more."""
        self.listener.close()
        for asked in tuple(self.asked):
            asked.close()
