"""A `Connect` under way on non-blocking sockets: happy eyeballs (RFC 8305 §5)."""

from __future__ import annotations

import errno
import os
import socket

from proto.commands import ATTEMPT_DELAY_S, DATAGRAMS, Connect
from proto.events import Reason
from shells.edges import Edges, End, Owner
from shells.env import Env
from shells.reasons import reason_for

_PENDING = (errno.EINPROGRESS, errno.EALREADY)


class Dialling:
    """Addresses not tried yet, and attempts that are open.

    `reason` is why the last attempt that failed did: after an address that has no route
    it says what the next one answered.  `next_at` is when the next address is due.
    """

    __slots__ = (
        "_edges",
        "_in_datagrams",
        "_left",
        "_new",
        "_owner",
        "_port",
        "attempts",
        "next_at",
        "reason",
    )

    def __init__(self, edges: Edges, owner: Owner, command: Connect, env: Env) -> None:
        self._edges = edges
        self._left = list(reversed(command.addresses))
        self._port = command.port
        self._new = env.maker_of(command.way)
        self._in_datagrams = command.way is DATAGRAMS
        self._owner = owner
        self.attempts: list[tuple[str, End]] = []
        self.next_at = float("-inf")
        self.reason = Reason.UNREACHABLE

    def advance(self, now: float) -> tuple[str, End] | None:
        """Look at every attempt, and begin the next where one is due; return the winner.

        A winner is no longer among the attempts.  connect(2) is asked a second time at
        once: on this machine's own network it has mostly finished by then.
        """
        while True:
            begins = bool(self._left) and now >= self.next_at
            for attempt in tuple(self.attempts):
                if begins:  # after a stall, a timer may come before the edges it was late with
                    attempt[1].writable = True
                if self._has_won(attempt, now):
                    return attempt
            if not self._left or now < self.next_at:
                break
            self._begin(self._left.pop(), now)
        for _, end in self.attempts:
            end.watch(writes=True)
        if not self._left:
            self.next_at = float("inf")
        return None

    def is_over(self) -> bool:
        """Tell whether every address has failed."""
        return not self._left and not self.attempts

    def abandon(self) -> None:
        """Close the attempts that are open."""
        for _, end in self.attempts:
            end.hang_up()
        self.attempts.clear()

    def _begin(self, address: str, now: float) -> None:
        self.next_at = now + ATTEMPT_DELAY_S
        try:
            sock = self._new(address)
        except OSError as error:
            self._failed(error, now)
            return
        end = End(self._edges, sock, self._owner, may_have_more=self._in_datagrams)
        end.readable = False  # until an edge tells otherwise: most servers speak second
        self.attempts.append((address, end))

    def _has_won(self, attempt: tuple[str, End], now: float) -> bool:
        address, end = attempt
        if not (end.writable or end.hung):
            return False
        sock = end.sock
        assert isinstance(sock, socket.socket), "TLS comes after the connection"
        code = sock.connect_ex((address, self._port))
        if code == errno.EINPROGRESS:
            code = sock.connect_ex((address, self._port))
        if code in _PENDING:
            end.writable = False
            return False
        self.attempts.remove(attempt)
        if code in (0, errno.EISCONN):
            end.writable = True
            return True
        end.hang_up()
        self._failed(OSError(code, os.strerror(code)), now)
        return False

    def _failed(self, error: OSError, now: float) -> None:
        self.reason = reason_for(error)
        self.next_at = now
