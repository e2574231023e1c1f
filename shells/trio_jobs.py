"""What the trio shell does for each command: jobs, which are generators and await nothing.

A job tries what can be done at once, and yields where it has to wait; most never do.  It
is tried again when a socket of its call has news (`shells.edges`), at `_try_at`, and once
more when the command is late: a result that is there counts.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Generator
from contextlib import suppress
from time import monotonic

import trio

from proto.commands import (
    CLIENT,
    UPSTREAM,
    Close,
    Command,
    Connect,
    Open,
    Receive,
    Resolve,
    Send,
    Splice,
    StartTls,
)
from proto.events import (
    Closed,
    Connected,
    Event,
    Failed,
    Opened,
    Reason,
    Received,
    Resolved,
    Secured,
    Sent,
)
from shells.dialling import Dialling
from shells.edges import End
from shells.ends import Ends, Surroundings
from shells.joint import Joint
from shells.reasons import reason_for
from shells.sides import prepare
from shells.splice import Broken
from shells.unsent import LOOK_AGAIN_S, is_under_way

DRAINS_A_TURN = 4
"""A peer that goes on sending to a side that is being closed must not keep the others
from their turn."""

LATE_OUTSIDE = Resolve, Connect, Open, StartTls
"""Commands whose lateness is the upstream side's."""

OPEN_AGAIN_S = 0.01
"""When a bridge whose queue is full is tried again: the kernel doesn't tell of room there."""

Job = Generator[bool, None, Event]
"""A command under way: yields whether it could go on at once, having let others."""


class Shared(Surroundings, kw_only=True):
    """What the conversations of one `trio.run` share.

    `ahead_s` is how far trio's clock is ahead of monotonic(), which is the script's.
    """

    token: trio.lowlevel.TrioToken
    ahead_s: float
    again: set[Jobs]
    """Those that could go on at once, and have let others."""

    def look_up(self, host: str, lookup: Lookup) -> None:
        """Look a name up in a thread; put the outcome into `lookup`, then wake its job."""

        def job() -> None:
            if lookup.wake is None:
                return  # after an outage, who still waits needn't wait for who gave up
            try:
                outcome: tuple[str, ...] | Exception = self.env.lookup(host)
            except Exception as error:  # noqa: BLE001  # raised again in trio's thread
                outcome = error
            with suppress(trio.RunFinishedError):
                self.token.run_sync_soon(arrived, outcome)

        def arrived(outcome: tuple[str, ...] | Exception) -> None:
            lookup.outcome = outcome
            if lookup.wake is not None:
                lookup.wake()

        try:
            self.workers.submit(job)
        except RuntimeError:  # no thread can be started
            lookup.outcome = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def close(self) -> None:
        """Give everything back."""
        self.workers.close()
        self.plumbing.close()
        self.edges.close()


class Lookup:
    """A `Resolve` under way, its outcome, and who is to be woken by it, if anybody still is."""

    __slots__ = ("outcome", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.outcome: tuple[str, ...] | Exception | None = None
        self.wake: Callable[[], None] | None = wake


class Jobs(Ends):
    """A job or an answer for each command of one connection.

    `_due` is when the pending command is late, `_try_at` when its job is to go on at the
    latest; a job sets both before it first yields.
    """

    __slots__ = ("_due", "_joint", "_try_at")
    _shared: Shared

    def __init__(self, shared: Shared, client: socket.socket) -> None:
        super().__init__(shared, client)
        self._joint: Joint | None = None  # of the pending Splice
        self._due = self._try_at = 0.0

    def carried(self) -> tuple[int, int]:
        """Return the bytes that the present call has carried up and down."""
        return self._journal.carried(*((0, 0) if self._joint is None else self._joint.moved))

    def _late(self, command: Command) -> Event:
        """Answer a command whose time has passed; a close is a close all the same."""
        if isinstance(command, Close):
            self._shut(command.side, reset=command.broken)
            return Closed(monotonic())
        side = UPSTREAM if isinstance(command, LATE_OUTSIDE) else None
        return Failed(Reason.TIMED_OUT, monotonic(), side, self._up, self._down)

    # -- commands -----------------------------------------------------------------------

    def _receive(self, command: Receive) -> Job:
        self._due = self._try_at = command.by
        ends = [(side, self._side(side)) for side in command.sides]
        while True:
            late = self._due <= monotonic()
            for side, end in ends:
                if not (end.readable or late):
                    continue
                try:
                    data = end.sock.recv(command.limit)
                except BlockingIOError:
                    end.readable = False
                    continue
                except OSError as error:
                    return Failed(reason_for(error), monotonic(), side)
                if data:
                    if len(data) < command.limit and not (end.hung or end.may_have_more):
                        end.readable = False  # that was all: what comes next makes an edge
                elif end.broken is not None:
                    return Failed(end.broken, monotonic(), side)
                return Received(side, data, monotonic())
            for _, end in ends:
                end.watch()
            yield False

    def _send(self, command: Send) -> Job:
        assert command.to_client or command.to_upstream, "a Send has something to send"
        self._due = self._try_at = command.by
        while True:
            try:
                whole = self._push(CLIENT, command.to_client)
                whole = self._push(UPSTREAM, command.to_upstream) or whole
            except Broken as broken:
                self._side(broken.side).broken = broken.reason  # after what it may have said
                if broken.side not in command.heed:
                    return Failed(broken.reason, monotonic(), broken.side, self._up, self._down)
                whole = True
            if whole or any(self._side(side).can_be_read() for side in command.heed):
                return Sent(self._down, self._up, monotonic())
            for side in command.heed:
                self._side(side).watch()
            yield False

    def _close(self, command: Close) -> Job:
        """Send a FIN unless a reset is due, and drop what the peer says until its own."""
        self._due = self._try_at = command.by
        end = self._client if command.side is CLIENT else self._upstream
        if end is not None:
            with suppress(OSError):  # it was reset: there is nobody left to spare
                if not command.broken:
                    end.sock.shutdown(socket.SHUT_WR)
                end.watch()
                yield from self._drain(end)
                while command.broken and is_under_way(end.sock):
                    self._try_at = min(command.by, monotonic() + LOOK_AGAIN_S)
                    yield False
            self._shut(command.side, reset=command.broken)
        return Closed(monotonic())

    def _drain(self, end: End) -> Generator[bool, None, None]:
        reads = 0
        while True:
            try:
                if not end.sock.recv_into(self._shared.plumbing.view):
                    return
            except BlockingIOError:
                yield False
            reads += 1
            if reads % DRAINS_A_TURN == 0:
                yield True

    def _resolve(self, command: Resolve) -> Job:
        if command.by <= monotonic():
            return self._late(command)
        self._due = self._try_at = command.by
        lookup = Lookup(self.run)
        try:
            self._shared.look_up(command.host, lookup)
            while lookup.outcome is None:
                yield False
        finally:
            lookup.wake = None
        outcome = lookup.outcome
        if isinstance(outcome, OSError):
            return Failed(reason_for(outcome), monotonic(), UPSTREAM)
        if isinstance(outcome, Exception):
            raise outcome
        if not outcome:
            return Failed(Reason.UNRESOLVED, monotonic(), UPSTREAM)
        return Resolved(outcome, monotonic())

    def _connect(self, command: Connect) -> Job:
        assert command.addresses, "a Connect has an address to try"
        assert self._upstream is None, "the upstream side is open already"
        if command.by <= monotonic():
            return self._late(command)
        self._due = command.by
        dialling = Dialling(self._shared.edges, self, command, self._shared.env)
        try:
            while True:
                won = dialling.advance(monotonic())
                if won is not None:
                    address, self._upstream = won
                    return Connected(address, monotonic())
                if dialling.is_over():
                    return Failed(dialling.reason, monotonic(), UPSTREAM)
                self._try_at = min(command.by, dialling.next_at)
                yield False
        finally:
            dialling.abandon()

    def _open(self, command: Open) -> Job:
        assert self._upstream is None, "the upstream side is open already"
        self._due = command.by
        while command.by > monotonic():
            try:
                sock = self._shared.env.bridges.connect(command.name)
            except BlockingIOError:
                self._try_at = min(command.by, monotonic() + OPEN_AGAIN_S)
                yield False
                continue
            except OSError as error:
                return Failed(reason_for(error), monotonic(), UPSTREAM)
            prepare(sock)
            self._upstream = End(self._shared.edges, sock, self)
            return Opened(monotonic())
        return self._late(command)

    def _start_tls(self, command: StartTls) -> Job:
        end = self._side(UPSTREAM)
        assert isinstance(end.sock, socket.socket), "it speaks TLS already"
        if command.by <= monotonic():
            return self._late(command)
        self._due = self._try_at = command.by
        try:
            tls = self._shared.env.secure(end.sock, command.host)
            while not end.go_on(tls):
                yield False
        except OSError as error:
            return Failed(reason_for(error), monotonic(), UPSTREAM)
        return Secured(monotonic())

    def _splice(self, command: Splice) -> Job:
        client, upstream = self._side(CLIENT), self._side(UPSTREAM)
        joint = Joint(command, client, upstream, self._shared.plumbing, self._shared.env.counters)
        self._joint = joint
        try:
            while True:
                event = joint.advance()
                if event is not None:
                    return event
                self._due = self._try_at = joint.due
                can_go_on = joint.has_more()
                if not can_go_on:
                    joint.watch()
                yield can_go_on
        finally:
            self._up, self._down = joint.moved
            self._journal.up += self._up
            self._journal.down += self._down
            self._joint = None
            joint.abandon()
