"""The sockets of a call's two sides: how they are set up, dialled and hung up."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Protocol

from proto.commands import Command, Receive, Send, Splice
from proto.events import NO_RESULT, Event, Failed, Reason
from shells.descriptors import is_spare, none_left
from shells.unsent import hold_back, unsent

KEEPALIVE_AFTER_S = 60
"""Idle time before the first probe: a peer that vanished is noticed within minutes,
and most NATs forget a connection after five."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_INET = (socket.AF_INET, socket.AF_INET6)


class Stream(Protocol):
    """What the shells ask of a side's socket, or of the TLS that stands in its place."""

    def fileno(self) -> int:
        """Return its descriptor."""

    def recv(self, limit: int, /) -> bytes:
        """Return what there is, or raise BlockingIOError."""

    def recv_into(self, view: memoryview, /) -> int:
        """Take what there is into a buffer."""

    def send(self, data: bytes | memoryview, /) -> int:
        """Send what there is room for, or raise BlockingIOError."""

    def shutdown(self, how: int, /) -> None:
        """End our direction."""

    def getsockopt(self, level: int, option: int, /) -> int:
        """Return an option of the socket."""

    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None:
        """Set an option of the socket."""

    def close(self) -> None:
        """Close it."""


class Secure(Stream, Protocol):
    """TLS on a side (`shells.tls.Tls`)."""

    @property
    def is_full(self) -> bool:
        """Whether room to write is waited for."""

    def handshake(self) -> None:
        """Go on with the handshake, or raise BlockingIOError."""

    def ready(self) -> bool:
        """Tell whether a read would be answered."""


def prepare(sock: socket.socket) -> None:
    """Make a connection's socket, or a listening one whose children inherit it, ready.

    Without TCP_NODELAY a small message waits for the peer's delayed ACK.  Keepalive
    finds the peers that went without a FIN.  Raises OSError.
    """
    sock.setblocking(False)
    if sock.family in _INET:
        _set_options(sock)


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_AFTER_S)


def new_upstream(address: str) -> socket.socket:
    """Return a prepared socket of an address's family, not yet connected.

    `address` must be a literal: handed a name, connect(2) in Python would look it up
    by itself, past every check of the policy.  Raises OSError.
    """
    sock = _new(address, socket.SOCK_STREAM)
    try:
        if not is_spare(sock.fileno()):
            raise none_left()
        _set_options(sock)
    except OSError:
        sock.close()
        raise
    return sock


def new_datagrams(address: str) -> socket.socket:
    """Return a UDP socket of an address's family; see `new_upstream`.

    Once it is connected the kernel drops what comes from elsewhere, and has chosen its port
    by chance (RFC 6056).
    """
    sock = _new(address, socket.SOCK_DGRAM)
    if not is_spare(sock.fileno()):
        sock.close()
        raise none_left()
    return sock


def _new(address: str, kind: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    socket.inet_pton(family, address)
    return socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def truncates(command: Command, event: Event, before: bool) -> bool:
    """Tell whether an answer has cut a conversation short, or one `before` it.

    The last that says something decides how the sides that the script leaves open are
    closed.  A server that resets must not look to the client like one that ended in good
    order, so they are reset then (see `hang_up`).
    """
    match command:
        case Splice():
            return isinstance(event, NO_RESULT)
        case Receive() | Send():
            return isinstance(event, Failed) and event.reason is not Reason.TIMED_OUT
        case _:
            return before


def hang_up(sock: Stream, *, reset: bool) -> int:
    """Close a socket: with a FIN, or with a reset that the peer can tell from an end.

    Returns how many bytes a reset keeps from leaving.
    """
    never_sent = 0
    if reset:
        with suppress(OSError):  # the peer has already reset it: nothing is left to say
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            hold_back(sock)
        never_sent = unsent(sock)
    sock.close()
    return never_sent
