"""A `Splice` under way between two ends that are watched for edges."""

from __future__ import annotations

import errno
import os
import socket
from time import monotonic

from proto.commands import CLIENT, UPSTREAM, Splice
from proto.events import Event, Failed, Reason, Spliced
from shells.edges import End
from shells.env import Counters
from shells.splice import NOTHING, READ, TURN, WRITE, Broken, Plumbing, Pump


class Joint:
    """Two pumps, and when anything moved last."""

    __slots__ = (
        "_client",
        "_counters",
        "_down",
        "_idle_s",
        "_moved_at",
        "_up",
        "_upstream",
        "_watched",
    )

    def __init__(
        self, command: Splice, client: End, upstream: End, plumbing: Plumbing, counters: Counters
    ) -> None:
        self._client, self._upstream = client, upstream
        self._counters = counters
        self._idle_s = command.idle_s
        self._moved_at = monotonic()
        self._watched = False
        to_client, to_upstream = (CLIENT, client.sock), (UPSTREAM, upstream.sock)
        self._up = Pump(plumbing, to_client, to_upstream, command.to_upstream)
        self._down = Pump(plumbing, to_upstream, to_client, command.to_client)
        if not command.to_upstream and not client.readable:
            self._up.want = READ
        if not command.to_client and not upstream.readable:
            self._down.want = READ

    @property
    def due(self) -> float:
        """When the splice has been idle for too long, unless something moves."""
        return self._moved_at + self._idle_s

    @property
    def moved(self) -> tuple[int, int]:
        """The bytes moved up and down."""
        return self._up.moved, self._down.moved

    def has_more(self) -> bool:
        """Tell whether a direction could go on at once, and only made room for others."""
        return self._up.want is TURN or self._down.want is TURN

    def advance(self) -> Event | None:
        """Move what can be moved; return the outcome once there is one."""
        up, down = self._up, self._down
        had_up, had_down = up.moved, down.moved
        now = monotonic()
        late = self._moved_at + self._idle_s <= now
        broken: Broken | None = None
        try:
            _step(up, self._client, self._upstream, late)
            _step(down, self._upstream, self._client, late)
        except Broken as error:
            broken = error
            (up if error.side is CLIENT else down).rescue()  # it may have answered early
        if up.moved != had_up or down.moved != had_down:
            late = False
            self._moved_at = now
            self._counters.up += up.moved - had_up
            self._counters.down += down.moved - had_down
        if up.want is NOTHING and down.want is NOTHING and broken is None:
            return Spliced(up.moved, down.moved, now)
        if self._client.failed or self._upstream.failed:
            broken = broken or self._dead()
        if broken is not None:
            return Failed(broken.reason, now, broken.side, up.moved, down.moved)
        return Failed(Reason.TIMED_OUT, now, None, up.moved, down.moved) if late else None

    def watch(self) -> None:
        """Have the call woken by edges of both ends."""
        if not self._watched:
            self._watched = True
            self._client.watch()
            self._upstream.watch()

    def abandon(self) -> None:
        """Stop for good."""
        self._up.abandon()
        self._down.abandon()

    def _dead(self) -> Broken | None:
        """Return the error of a side that had ended before, so that nobody reads it."""
        for side, end, pump in (
            (CLIENT, self._client, self._up),
            (UPSTREAM, self._upstream, self._down),
        ):
            if end.failed and pump.want is NOTHING:
                code = end.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or errno.ECONNRESET
                return Broken(side, OSError(code, os.strerror(code)))
        return None


def _step(pump: Pump, source: End, target: End, everything: bool) -> None:
    """Let a pump move, unless what it waits for hasn't come."""
    want = pump.want
    if want is READ:
        if not (source.readable or everything):
            return
    elif want is WRITE:
        if not (target.writable or everything):
            return
    elif want is NOTHING:
        return
    want = pump.step(to_the_end=source.hung, may_read=source.readable or everything)
    if want is READ:
        source.readable = False
    elif want is WRITE:
        target.is_full()
