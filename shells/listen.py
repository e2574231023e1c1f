"""Listening sockets: made, checked when handed over, and accepted from in bounded turns.

A `Door` is a plain state machine, as a pump is (`shells.splice`): the shells differ only
in how they wait for it.  Proxied connections never get an asyncio transport or a trio
stream: what is accepted here stays a raw non-blocking socket, which can be spliced.
"""

from __future__ import annotations

import errno
import resource
import socket
import stat
from collections.abc import Callable
from os import fstat

from shells.descriptors import has_spare, is_spare
from shells.sides import prepare

BACKLOG = 4096
"""Connections that the kernel completes for us while we are busy (net.core.somaxconn
may allow fewer)."""

ACCEPTS_A_TURN = 32
"""A storm of connections must not starve the calls that run."""

REOPEN_AFTER_S = 0.1
"""How long a door stays shut for want of descriptors, unless a call ends before."""

SAY_AGAIN_AFTER_S = 60.0
"""The line about missing descriptors is said at most this often."""

DESCRIPTORS_RESERVED = 96
"""Kept from new connections: pipes, lookups, log files, the loop's own."""

_ONE_CLIENTS = (
    errno.ECONNABORTED,
    errno.EPROTO,
    errno.EPERM,
    errno.ENETDOWN,
    errno.ENOPROTOOPT,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENONET,
    errno.ETIMEDOUT,
)
"""Errors of accept(2) that are those of the connection it took from the queue."""


def listen_tcp(host: str, port: int) -> socket.socket:
    """Return a prepared socket that listens on a literal address.  Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        prepare(listener)
    except OSError:
        listener.close()
        raise
    return listener


def adopt_listener(fd: int) -> socket.socket:
    """Return the listening socket that another process handed over as a descriptor.

    Raises ValueError with one sentence unless it is a listening TCP or unix stream
    socket: whoever made it stood inside the sandbox's network.  Takes `fd` over.
    """
    if not stat.S_ISSOCK(fstat(fd).st_mode):
        raise ValueError(f"descriptor {fd} is not a socket.")
    listener = socket.socket(fileno=fd)
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    if listener.family not in families or listener.type != socket.SOCK_STREAM:
        listener.detach()
        raise ValueError(f"descriptor {fd} is not a stream socket.")
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.detach()
        raise ValueError(f"descriptor {fd} doesn't listen.")
    prepare(listener)
    return listener


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of descriptors to the hard one; return it.

    The usual soft limit of 1,024 is for programs that use select(2).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connections_most() -> int:
    """Return how many connections fit into the limit of descriptors, two for each.

    Accepting more would leave the calls that run without the second one.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(8, (soft - DESCRIPTORS_RESERVED) // 2)


class Door:
    """One listening socket.

    `shut` is true while there are no descriptors for another connection: the shell
    then stops watching the listener, since it would stay readable, and calls `reopen`
    when a call has ended or after REOPEN_AFTER_S.  Waiting clients stay in the backlog.
    """

    __slots__ = ("_kind", "_said_at", "_say", "_tight", "listener", "shut")

    def __init__(self, listener: socket.socket, say: Callable[[str], None]) -> None:
        self.listener = listener
        self.shut = False
        self._tight = False  # descriptors have run short before: look before each accept(2)
        # As plain numbers: socket.accept() makes an enumeration's members of both, each time.
        self._kind = int(listener.family), int(listener.type), listener.proto
        self._say = say
        self._said_at = float("-inf")

    def take(self, room: int, now: float, at_most: int = ACCEPTS_A_TURN) -> list[socket.socket]:
        """Accept what waits: at most so many, and at most `room`, connections.

        They are non-blocking and have the listener's other options.  Fewer than
        `at_most` doesn't mean that nobody waits any more.
        """
        taken: list[socket.socket] = []
        for _ in range(at_most):
            if len(taken) >= room:
                self._shut("the limit of descriptors leaves no room", now)
                break
            if self._tight and not has_spare():
                self._shut("the descriptors left are kept for name lookups", now)
                break
            try:
                fd, _ = self.listener._accept()  # type: ignore[attr-defined]  # accept4(2), bare
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _ONE_CLIENTS:
                    continue
                self._shut(f"accept failed ({error.strerror})", now)
                break
            connection = socket.socket(*self._kind, fileno=fd)
            connection.setblocking(False)
            taken.append(connection)
            self._tight = self._tight or not is_spare(fd)
        return taken

    def reopen(self) -> None:
        """Accept again: a descriptor may have become free."""
        self.shut = False

    def _shut(self, why: str, now: float) -> None:
        self.shut = True
        if now - self._said_at >= SAY_AGAIN_AFTER_S:
            self._said_at = now
            self._say(f"new connections wait until another ends: {why}.")
