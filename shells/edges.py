"""Readiness of proxied sockets: one edge-triggered epoll set, watched by the event loop.

`loop.add_reader` costs five system calls and three objects each time that a call waits
(and as many again to stop).  Here a socket is registered once, when it first has to wait,
and goes out of the set by being closed.  The loop watches the set's own descriptor, which
can be read while any socket in it has news.

An edge is only a hint: whoever is woken tries the system call again.  So an edge too many
does no harm, not even one of a descriptor whose number was used again.  What must not
happen is a wait without having met EAGAIN; `End` keeps what is known.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Protocol

from proto.events import Reason
from shells.sides import Secure, Stream, hang_up

_READS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_READS_AND_WRITES = _READS | select.EPOLLOUT
_HUNG = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_READABLE = select.EPOLLIN | _HUNG
_WRITABLE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
_ERROR = select.EPOLLERR

EVENTS_A_TURN = 256


class Owner(Protocol):
    """Whom an edge wakes."""

    def run(self) -> None:
        """Try again what had to wait.  Must not raise."""


class Loop(Protocol):
    """What the set needs of an event loop: asyncio's, or the trio shell."""

    def add_reader(self, fd: int, callback: Callable[[], None], /) -> object:
        """Call back whenever a descriptor can be read."""

    def remove_reader(self, fd: int, /) -> object:
        """Call back no more."""


class End:
    """A side's socket while it is open, and what is known of it.

    `readable` and `writable` are false from an EAGAIN to the next edge.  `hung` is true
    once a FIN or an error was reported, `failed` once an error was: after those no
    further edge comes.  `broken` is an error that was met while sending, and which the
    kernel therefore won't tell a reader again.  `may_have_more`: a short read doesn't mean
    that there is no more, for what is left may make no edge: a datagram, or TLS's own end.
    """

    __slots__ = (
        "_edges",
        "_tls",
        "broken",
        "failed",
        "hung",
        "may_have_more",
        "owner",
        "readable",
        "sock",
        "watched",
        "writable",
    )

    def __init__(
        self, edges: Edges, sock: socket.socket, owner: Owner, *, may_have_more: bool = False
    ) -> None:
        self._edges = edges
        self.sock: Stream = sock
        self._tls: Secure | None = None
        self.may_have_more = may_have_more
        self.owner: Owner | None = owner
        self.readable = self.writable = True
        self.hung = self.failed = False
        self.watched = 0
        self.broken: Reason | None = None

    def watch(self, *, writes: bool = False) -> None:
        """Wake the owner at each edge from now on; soon, if there is news already.

        Room to write is news that only those want who had none: without `writes` every
        new socket would wake its owner for nothing.
        """
        wanted = _READS_AND_WRITES if writes else _READS
        if self.watched & wanted != wanted:
            self._edges.watch(self, wanted)

    def go_on(self, tls: Secure) -> bool:
        """Go on with a handshake; tell whether it is done: then TLS has the socket's place.

        Else the owner is woken when there is news for it.  Raises OSError.
        """
        try:
            tls.handshake()
        except BlockingIOError:
            if tls.is_full:
                self.is_full()
            else:
                self.readable = False
                self.watch()
            return False
        self.sock = self._tls = tls
        self.readable = self.writable = self.may_have_more = True
        return True

    def is_full(self) -> None:
        """Note that a write met EAGAIN: the next edge tells of room."""
        self.writable = False
        self.watch(writes=True)

    def hang_up(self, *, reset: bool = False) -> int:
        """Close the socket, and with that its place in the set; see `shells.sides.hang_up`."""
        if self.watched:
            del self._edges.ends[self.sock.fileno()]
        self.owner = None  # it holds us: without the cycle both go at once
        return hang_up(self.sock, reset=reset)

    def can_be_read(self) -> bool:
        """Ask the kernel whether there are bytes, a FIN or an error, and take nothing."""
        if self.broken is not None:
            return True
        if self._tls is not None:
            return self._tls.ready()
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLRDHUP)
        return bool(poll.poll(0))


class Edges:
    """The set, and `ends` for the descriptors in it: who is to be woken."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self.ends: dict[int, End] = {}
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def watch(self, end: End, wanted: int) -> None:
        """Take an end into the set, or tell it of more."""
        fd = end.sock.fileno()
        if end.watched:
            self._epoll.modify(fd, wanted)
        else:
            self.ends[fd] = end
            self._epoll.register(fd, wanted)
        end.watched = wanted

    def close(self) -> None:
        """Stop watching."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _dispatch(self) -> None:
        if self._epoll.closed:
            return  # the loop had heard of news just before it was told to stop
        for fd, mask in self._epoll.poll(0, EVENTS_A_TURN):
            end = self.ends.get(fd)
            if end is None or end.owner is None:
                continue  # it was closed by one of those before it
            if mask & _READABLE:
                end.readable = True
                if mask & _HUNG:
                    end.hung = True
                    if mask & _ERROR:
                        end.failed = True
            if mask & _WRITABLE:
                end.writable = True
            end.owner.run()
