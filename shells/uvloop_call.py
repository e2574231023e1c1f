"""One connection in the uvloop shell: performs its script's commands on raw sockets.

Every command is tried at once and, if nobody has to be waited for, answered in the same
breath; a script goes from its head to its splice without leaving `run`.  When a command
must wait, `run` just returns.  Whatever happens next, an edge on a socket
(`shells.edges`), the deadline, a finished lookup or a cancel, only calls `run` again,
which tries the same command again.  So there is no task and no future a call, one code
path for "at once" and "later", and an idle tunnel is a dozen small objects.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import assert_never

from proto.commands import (
    CLIENT,
    UPSTREAM,
    Close,
    Command,
    Connect,
    Listen,
    Locate,
    Log,
    Look,
    Open,
    Receive,
    Resolve,
    Send,
    Splice,
    StartTls,
)
from proto.events import (
    NO_RESULT,
    Cancelled,
    Cause,
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
from proto.script import Call
from shells.dialling import Dialling
from shells.edges import End
from shells.ends import Ends, Surroundings
from shells.env import MakeScript
from shells.joint import Joint
from shells.reasons import reason_for
from shells.sides import Secure, prepare, truncates
from shells.splice import Broken
from shells.unsent import LOOK_AGAIN_S, is_under_way

COMMANDS_A_TURN = 32
"""A script whose peers are always ready must not keep the others from theirs."""

DRAINS_A_TURN = 4
"""The same for a peer that goes on sending to a side that is being closed."""

OPEN_AGAIN_S = 0.01
"""When a bridge whose queue is full is tried again: the kernel doesn't tell of room there."""

TURNS_AT_MOST = 64
"""A script that goes on after so many turns of cancelled commands has a bug."""

AT_ONCE = Log, Locate, Listen, Look
"""Commands that don't wait, and so are never answered by a cancel."""


class Shared(Surroundings, kw_only=True):
    """What the conversations of one loop share."""

    loop: asyncio.AbstractEventLoop
    swept_until: float = 0.0
    """Deadlines before this have timers; later ones will get theirs by a sweep."""

    def look_up(self, host: str, lookup: Lookup, wake: Callable[[], None]) -> None:
        """Look a name up in a thread; put the outcome into `lookup`, then wake."""

        def job() -> None:
            if not lookup.wanted:
                return  # after an outage, who still waits needn't wait for who gave up
            try:
                outcome: tuple[str, ...] | Exception = self.env.lookup(host)
            except Exception as error:  # noqa: BLE001  # raised again in the loop's thread
                outcome = error
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self.loop.call_soon_threadsafe(arrived, outcome)

        def arrived(outcome: tuple[str, ...] | Exception) -> None:
            lookup.outcome = outcome
            wake()

        try:
            self.workers.submit(job)
        except RuntimeError:
            out_of_threads = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            self.loop.call_soon(arrived, out_of_threads)

    def close(self) -> None:
        """Give everything back."""
        self.workers.close()
        self.plumbing.close()
        self.edges.close()


class Lookup:
    """A `Resolve` under way, its outcome, and whether anybody still waits for that."""

    __slots__ = ("outcome", "wanted")

    def __init__(self) -> None:
        self.outcome: tuple[str, ...] | Exception | None = None
        self.wanted = True


class Handshake:
    """A `StartTls` under way."""

    __slots__ = ("tls",)

    def __init__(self, tls: Secure) -> None:
        self.tls = tls


class Conversation(Ends):
    """One connection from a client, and what its script has opened."""

    __slots__ = (
        "_call",
        "_doing",
        "_due",
        "_ended",
        "_fin_sent",
        "_on_end",
        "_timer",
        "_to_the_last",
    )
    _shared: Shared

    def __init__(
        self, shared: Shared, client: socket.socket, on_end: Callable[[Conversation], None]
    ) -> None:
        super().__init__(shared, client)
        self._on_end = on_end
        self._call: Call | None = None
        self._doing: Dialling | Joint | Lookup | Handshake | None = None
        self._fin_sent = False
        self._to_the_last = False
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")

    # -- the script ---------------------------------------------------------------------

    def begin(self, make_script: MakeScript) -> None:
        """Start the script and take it as far as it goes."""
        try:
            self._call = Call(make_script(monotonic()))
        except Exception as bug:  # noqa: BLE001  # a bug of ours ends its own call alone
            self._bug(bug)
        self.run()

    def run(self) -> None:
        """Perform commands until one must wait, others are due, or the script has ended.

        Called for every reason there is to try the pending command again.
        """
        if self._ended:
            return
        try:
            if self._advance():
                self._end()
        except Exception as bug:  # noqa: BLE001  # a bug of ours ends its own call alone
            self._bug(bug)

    def cancel(self, cause: Cause) -> None:
        """Answer the command that waits, or the next that does, with `Cancelled`."""
        self._cause = self._cause or cause
        self._shared.loop.call_soon(self.run)  # we may stand in the middle of a Log

    def close(self, cause: Cause) -> None:
        """Cancel the present call, if one has begun."""
        if self._journal.begun:
            self.cancel(cause)

    def carried(self) -> tuple[int, int]:
        """Return the bytes that the present call has carried up and down."""
        doing = self._doing
        return self._journal.carried(*(doing.moved if isinstance(doing, Joint) else (0, 0)))

    def end_now(self, cause: Cause) -> None:
        """Cancel every further command that waits, until the script ends."""
        self._cause, self._to_the_last = cause, True
        for _ in range(TURNS_AT_MOST):
            self.run()
        if not self._ended:
            self._bug(RuntimeError("the script doesn't end"))

    def _advance(self) -> bool:
        """Go on with the script; tell whether it has ended."""
        call = self._call
        assert call is not None
        for _ in range(COMMANDS_A_TURN):
            command = call.pending
            if command is None:
                return True
            event = self._perform(command)
            if event is None:
                return False
            if self._truncated or type(event) in NO_RESULT:
                self._truncated = truncates(command, event, self._truncated)
                self._cancelled_once |= type(event) is Cancelled
            if self._doing is not None:
                self._give_up()
            self._up = self._down = 0
            call.answer(event)
        self._shared.loop.call_soon(self.run)
        return False

    def _bug(self, error: Exception) -> None:
        self._give_up()
        self._journal.bug(error, monotonic())
        self._truncated = True
        self._end()

    def _end(self) -> None:
        """Close what is open."""
        self._ended = True
        if self._doing is not None:
            self._give_up()
        self._shut(CLIENT, reset=self._truncated)
        self._shut(UPSTREAM, reset=self._truncated)
        if self._timer is not None:
            self._timer.cancel()
        self._on_end(self)

    # -- waiting ------------------------------------------------------------------------

    def _wait(self, due: float) -> None:
        """Have `run` called at `due`, at the latest."""
        self._due = due
        if due < self._shared.swept_until:
            self._set_timer()

    def set_timer(self, until: float) -> None:
        """Set a timer if the deadline comes before `until`."""
        if self._due < until:
            self._set_timer()

    def _set_timer(self) -> None:
        """Set a timer for the deadline; one that fires earlier is kept, and set anew then."""
        if self._timer is not None:
            if self._timer.when() <= self._due:
                return
            self._timer.cancel()
        delay = max(self._due - monotonic(), 0.001)
        self._timer = self._shared.loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if monotonic() < self._due:
            self._wait(self._due)
        else:
            self._due = float("inf")
            self.run()

    # -- commands: each returns its event, or None while it has to wait -----------------

    def _perform(self, command: Command) -> Event | None:  # noqa: C901  # a flat match
        """Try a command, or try it again."""
        if self._cause is not None and not isinstance(command, AT_ONCE):
            return self._cancelled(command, self._cause)
        match command:
            case Receive():
                return self._receive(command)
            case Send():
                return self._send(command)
            case Log():
                return self._log(command)
            case Look():
                return self._look()
            case Splice():
                return self._splice(command)
            case Close():
                return self._close(command)
            case Connect():
                return self._connect(command)
            case Locate():
                return self._locate(command)
            case Listen():
                return self._listen(command)
            case Resolve():
                return self._resolve(command)
            case Open():
                return self._open(command)
            case StartTls():
                return self._start_tls(command)
            case _:
                assert_never(command)

    def _cancelled(self, command: Command, cause: Cause) -> Cancelled:
        if not self._to_the_last:
            self._cause = None
        up, down = self._give_up()
        if isinstance(command, Close):
            self._shut(command.side, reset=command.broken)
            self._fin_sent = False
        return Cancelled(cause, monotonic(), up, down)

    def _give_up(self) -> tuple[int, int]:
        """Drop what is under way; return the bytes it has moved up and down."""
        doing, self._doing = self._doing, None
        match doing:
            case Joint():
                doing.abandon()
                up, down = doing.moved
                self._journal.up += up
                self._journal.down += down
                return up, down
            case Dialling():
                doing.abandon()
            case Lookup():
                doing.wanted = False
            case Handshake() | None:
                pass
            case _:
                assert_never(doing)
        return self._up, self._down

    def _receive(self, command: Receive) -> Event | None:
        now = monotonic()
        late = command.by <= now
        for side in command.sides:
            end = self._side(side)
            if not (end.readable or late):
                continue
            try:
                data = end.sock.recv(command.limit)
            except BlockingIOError:
                end.readable = False
                continue
            except OSError as error:
                return Failed(reason_for(error), now, side)
            if data:
                if len(data) < command.limit and not (end.hung or end.may_have_more):
                    end.readable = False  # that was all: what comes next makes an edge
            elif end.broken is not None:
                return Failed(end.broken, now, side)
            return Received(side, data, now)
        if late:
            return Failed(Reason.TIMED_OUT, now)
        for side in command.sides:
            self._side(side).watch()
        self._wait(command.by)
        return None

    def _send(self, command: Send) -> Event | None:
        assert command.to_client or command.to_upstream, "a Send has something to send"
        try:
            whole = self._push(CLIENT, command.to_client)
            whole = self._push(UPSTREAM, command.to_upstream) or whole
        except Broken as broken:
            self._side(broken.side).broken = broken.reason  # after what it may have said
            if broken.side not in command.heed:
                return Failed(broken.reason, monotonic(), broken.side, self._up, self._down)
            whole = True
        now = monotonic()
        if whole or any(self._side(side).can_be_read() for side in command.heed):
            return Sent(self._down, self._up, now)
        if command.by <= now:
            return Failed(Reason.TIMED_OUT, now, None, self._up, self._down)
        for side in command.heed:
            self._side(side).watch()
        self._wait(command.by)
        return None

    def _close(self, command: Close) -> Event | None:
        now = monotonic()
        end = self._client if command.side is CLIENT else self._upstream
        if end is None:
            return Closed(now)
        over = self._drained(end, fin=not command.broken)
        if over and now < command.by and command.broken and is_under_way(end.sock):
            self._wait(min(command.by, now + LOOK_AGAIN_S))
            return None
        if over or command.by <= now:
            self._shut(command.side, reset=command.broken)
            self._fin_sent = False
            return Closed(now)
        if end.readable:
            self._shared.loop.call_soon(self.run)
        end.watch()
        self._wait(command.by)
        return None

    def _drained(self, end: End, *, fin: bool) -> bool:
        """Send the FIN if due, drop what the peer says; tell whether it has ended or broken."""
        try:
            if fin and not self._fin_sent:
                end.sock.shutdown(socket.SHUT_WR)
                self._fin_sent = True
            for _ in range(DRAINS_A_TURN):
                if not end.sock.recv_into(self._shared.plumbing.view):
                    return True
        except BlockingIOError:
            end.readable = False
        except OSError:
            return True
        return False

    def _resolve(self, command: Resolve) -> Event | None:
        now = monotonic()
        lookup = self._doing
        if lookup is None and now < command.by:
            self._doing = Lookup()
            self._shared.look_up(command.host, self._doing, self.run)
        elif isinstance(lookup, Lookup) and lookup.outcome is not None:
            return self._looked_up(lookup.outcome, now)
        if command.by <= now:
            return Failed(Reason.TIMED_OUT, now, UPSTREAM)
        self._wait(command.by)
        return None

    def _looked_up(self, outcome: tuple[str, ...] | Exception, now: float) -> Event:
        if isinstance(outcome, OSError):
            return Failed(reason_for(outcome), now, UPSTREAM)
        if isinstance(outcome, Exception):
            raise outcome
        if not outcome:
            return Failed(Reason.UNRESOLVED, now, UPSTREAM)
        return Resolved(outcome, now)

    def _connect(self, command: Connect) -> Event | None:
        assert command.addresses, "a Connect has an address to try"
        assert self._upstream is None, "the upstream side is open already"
        now = monotonic()
        dialling = self._doing
        if not isinstance(dialling, Dialling):
            if command.by <= now:
                return Failed(Reason.TIMED_OUT, now, UPSTREAM)
            dialling = Dialling(self._shared.edges, self, command, self._shared.env)
            self._doing = dialling
        won = dialling.advance(now)
        if won is not None:
            address, self._upstream = won
            return Connected(address, monotonic())
        if dialling.is_over():
            return Failed(dialling.reason, now, UPSTREAM)
        if command.by <= now:
            return Failed(Reason.TIMED_OUT, now, UPSTREAM)
        self._wait(min(command.by, dialling.next_at))
        return None

    def _open(self, command: Open) -> Event | None:
        assert self._upstream is None, "the upstream side is open already"
        now = monotonic()
        if command.by <= now:
            return Failed(Reason.TIMED_OUT, now, UPSTREAM)
        try:
            sock = self._shared.env.bridges.connect(command.name)
        except BlockingIOError:
            self._wait(min(command.by, now + OPEN_AGAIN_S))
            return None
        except OSError as error:
            return Failed(reason_for(error), now, UPSTREAM)
        prepare(sock)
        self._upstream = End(self._shared.edges, sock, self)
        return Opened(monotonic())

    def _start_tls(self, command: StartTls) -> Event | None:
        now, doing, end = monotonic(), self._doing, self._side(UPSTREAM)
        try:
            if not isinstance(doing, Handshake):
                if command.by <= now:
                    return Failed(Reason.TIMED_OUT, now, UPSTREAM)
                assert isinstance(end.sock, socket.socket), "it speaks TLS already"
                self._doing = doing = Handshake(self._shared.env.secure(end.sock, command.host))
            if end.go_on(doing.tls):
                return Secured(monotonic())
        except OSError as error:
            return Failed(reason_for(error), now, UPSTREAM)
        if command.by <= now:
            return Failed(Reason.TIMED_OUT, now, UPSTREAM)
        self._wait(command.by)
        return None

    def _splice(self, command: Splice) -> Event | None:
        joint = self._doing
        if not isinstance(joint, Joint):
            client, upstream = self._side(CLIENT), self._side(UPSTREAM)
            shared = self._shared
            joint = Joint(command, client, upstream, shared.plumbing, shared.env.counters)
            self._doing = joint
        event = joint.advance()
        if event is not None:
            return event
        if joint.has_more():
            self._shared.loop.call_soon(self.run)
        joint.watch()
        self._wait(joint.due)
        return None
