"""The simulated shell: a heap for a reactor, a virtual clock, one seed for all chance.

It performs the same scripts as the real shells against a `World`, so hours pass in
milliseconds and a failure replays from its seed.  Where the seam leaves a shell a
choice (which of two sides is heard first, how much of a `Send` goes before it heeds,
how long anything takes), the seed chooses.  A command that nothing can ever answer is
an error that names it, never a test that hangs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from math import isfinite
from random import Random
from typing import assert_never

from proto.commands import (
    ATTEMPT_DELAY_S,
    CLIENT,
    OUT,
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
    Side,
    Splice,
    StartTls,
)
from proto.events import (
    Cancelled,
    Cause,
    Closed,
    Connected,
    Event,
    Failed,
    Listening,
    Located,
    Logged,
    Looked,
    Opened,
    Reason,
    Received,
    Resolved,
    Secured,
    Sent,
    Spliced,
)
from proto.policy.records import Allowed, Ending, Paused, Record
from proto.script import Call, Script
from shells.sides import truncates
from shells.sim_fate import Fate
from shells.sim_outside import Outside
from shells.sim_wires import Reactor, Socket
from shells.sim_world import BRIDGE_PORT, SILENT, Cut, Performed, Transcript, World

Job = Generator[None, None, Event]
"""A command being performed: yields while it waits, returns its answer."""


BOTH_WAYS = ((CLIENT, UPSTREAM), (UPSTREAM, CLIENT))


class SimulationError(AssertionError):
    """A command that nothing can answer, or a script that never ends."""


def run(make_script: Callable[[float], Script[None]], world: World, seed: int = 0) -> Transcript:
    """Run one script to its end and return all that could be seen of it.

    `make_script` is given the time at the start.  Raises SimulationError, or whatever
    the script raised; a note says which seed replays it.
    """
    shell = SimShell(world, seed)
    try:
        return shell.run(make_script)
    except BaseException as error:
        error.add_note(f"simulation: seed {seed}, cut {world.cut.value}")
        raise


class SimShell:
    """One simulated connection from a program, and whatever its script opens."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._seed = world, seed
        self._rng = Random(seed)  # noqa: S311  # chance that must replay, no secret
        self._reactor = Reactor(self._rng, world.start_s, world.delay_s)
        self._fate = Fate(world, self._reactor)
        self._outside = Outside(world, self._reactor, self._fate.signalled)
        self._deadline: float | None = None
        self._truncated = False
        self._cancelled_once = False
        self._up = self._down = 0
        self._log: list[Record] = []
        self._performed: list[Performed] = []

    def run(self, make_script: Callable[[float], Script[None]]) -> Transcript:
        """Play the script, close what it left open, and let the peers come to rest."""
        started = self._reactor.now
        call = Call(make_script(started))
        while call.pending is not None:
            call.answer(self._answer(call.pending))
        ended = self._reactor.now
        for side in tuple(self._outside.sides):
            self._outside.shut(side, reset=self._truncated)
        while self._reactor.due() is not None:
            self._reactor.step()
            self._outside.poll()
        return Transcript(
            seed=self._seed,
            performed=tuple(self._performed),
            client=self._outside.client_saw(),
            asked=tuple(self._outside.asked),
            dials=tuple(self._outside.dials()),
            secured=tuple(self._outside.secured),
            log=tuple(self._log),
            closed=tuple(self._outside.closed),
            listening=tuple(self._outside.listening),
            started=started,
            ended=ended,
        )

    # Answering: results, deadlines, cancels and faults.

    def _answer(self, command: Command) -> Event:
        """Perform one command and note it down."""
        number, at = len(self._performed), self._reactor.now
        if number >= self._world.commands_max:
            raise SimulationError(f"the script never ends: still at {command!r}")
        self._fate.before(number)
        self._up = self._down = 0
        self._deadline = self._late_at(command)
        fault = self._fate.fault(number, command)
        event = self._until_answered(command, self._job(command, fault))
        self._truncated = truncates(command, event, self._truncated)
        self._cancelled_once |= isinstance(event, Cancelled)
        self._performed.append(Performed(command, event, at))
        return event

    def _until_answered(self, command: Command, job: Job) -> Event:
        """Let time pass until the job, the deadline or a cancel answers."""
        waits = not isinstance(command, Locate | Listen | Look | Log)
        while True:
            if waits and self._fate.cause is not None:
                return self._cancelled(command, self._fate.cause)
            try:
                next(job)
            except StopIteration as done:
                event: Event = done.value
                return event
            if self._is_late():
                return self._late(command)
            self._turn(command)

    def _is_late(self) -> bool:
        """Tell whether the command's time has passed: it was tried once more even then."""
        return self._deadline is not None and self._deadline <= self._reactor.now

    def _turn(self, command: Command) -> None:
        """Let the next thing happen: an act, or the deadline of the pending command."""
        due, late = self._reactor.due(), self._deadline
        if due is None and late is None:
            raise SimulationError(f"hang: nothing can ever answer {command!r}")
        if late is not None and (due is None or late < due):
            self._reactor.at(late)
        self._reactor.step()
        self._outside.poll()

    def _late_at(self, command: Command) -> float | None:
        """Return when a command has waited long enough, counted from now."""
        match command:
            case Splice(idle_s=idle_s):
                late = self._reactor.now + idle_s
            case Locate() | Listen() | Look() | Log():
                return None
            case _:
                late = command.by
        return late if isfinite(late) else None

    def _late(self, command: Command) -> Event:
        """Answer a command whose time has passed; a close is a close all the same."""
        if isinstance(command, Close):
            self._outside.shut(command.side, reset=command.broken)
            return Closed(self._reactor.now)
        side = UPSTREAM if isinstance(command, Resolve | Connect | Open | StartTls) else None
        return self._failed(Reason.TIMED_OUT, side)

    def _cancelled(self, command: Command, cause: Cause) -> Event:
        self._fate.cause = None
        if isinstance(command, Close):
            self._outside.shut(command.side, reset=command.broken)
        return Cancelled(cause, self._reactor.now, self._up, self._down)

    def _failed(self, reason: Reason, side: Side | None) -> Failed:
        return Failed(reason, self._reactor.now, side, self._up, self._down)

    def _fail(self, command: Command, reason: Reason) -> Job:
        """Fail as the world may: what is late at its deadline, what is reset for good."""
        late = self._late_at(command)
        if reason is Reason.TIMED_OUT and late is not None:
            yield from self._reactor.sleep(late)
        yield from self._begin()
        side = self._fate.blamed(command, self._outside.sides)
        if reason is Reason.RESET and side in self._outside.sides:
            self._outside.sides[side].incoming.reset()
        return self._failed(reason, side)

    # Performing: one job a command.

    def _job(self, command: Command, fault: Reason | None) -> Job:  # noqa: C901  # a flat match
        if fault is not None:
            return self._fail(command, fault)
        match command:
            case Receive():
                return self._receive(command)
            case Send():
                return self._send(command)
            case Resolve():
                return self._resolve(command)
            case Locate():
                return self._locate(command)
            case Listen():
                return self._listen(command)
            case Connect():
                return self._connect(command)
            case Open():
                return self._open(command)
            case StartTls():
                return self._start_tls(command)
            case Close():
                return self._close(command)
            case Splice():
                return self._splice(command)
            case Look():
                return self._look()
            case Log():
                return self._write(command)
            case _:
                assert_never(command)

    def _begin(self) -> Iterator[None]:
        """Let a moment pass, as a system call may; not where there is none left."""
        if not self._is_late() and self._chance():
            yield from self._reactor.sleep(self._reactor.now + self._reactor.delay())

    def _receive(self, command: Receive) -> Job:
        assert command.sides, "a Receive names at least one side"
        assert command.limit > 0, "a Receive takes at least one byte"
        yield from self._begin()
        while True:
            for side in command.sides if self._chance() else command.sides[::-1]:
                incoming = self._outside.socket(side).incoming
                if incoming.broken:
                    return self._failed(Reason.RESET, side)
                if incoming.readable:
                    return Received(side, incoming.take(command.limit), self._reactor.now)
            yield

    def _send(self, command: Send) -> Job:
        left = {CLIENT: command.to_client, UPSTREAM: command.to_upstream}
        assert any(left.values()), "a Send has something to send"
        yield from self._begin()
        while True:
            heeded = any(self._outside.socket(side).incoming.readable for side in command.heed)
            for side, data in left.items():
                if not data or (heeded and self._chance()):
                    continue
                if self._outside.socket(side).incoming.broken and side not in command.heed:
                    return self._failed(Reason.RESET, side)
                left[side] = data[self._put(side, data) :]
                heeded = heeded or not left[side]
            if heeded:
                return Sent(self._down, self._up, self._reactor.now)
            yield

    def _chance(self) -> bool:
        return self._rng.random() < 0.5

    def _put(self, side: Side, data: bytes) -> int:
        """Hand over as much as fits, or less: a kernel may take any part of it."""
        size = len(data)
        if self._world.cut is Cut.RANDOM and not self._outside.keeps_apart(side):
            size = self._rng.randint(1, size)
        sent = self._outside.socket(side).outgoing.put(data[:size])
        if 0 < sent < len(data):
            self._reactor.soon()  # the rest
        self._count(side, sent)
        return sent

    def _count(self, towards: Side, size: int) -> None:
        if towards is UPSTREAM:
            self._up += size
        else:
            self._down += size

    def _resolve(self, command: Resolve) -> Job:
        if self._is_late():
            yield  # nobody is asked
        addresses = self._outside.look_up(command.host)
        yield from self._begin()
        while addresses is None:
            yield
        if not addresses:
            return self._failed(Reason.UNRESOLVED, UPSTREAM)
        return Resolved(tuple(dict.fromkeys(addresses)), self._reactor.now)

    def _locate(self, command: Locate) -> Job:
        yield from ()
        places = tuple(self._outside.place(address) for address in command.addresses)
        return Located(places, self._reactor.now)

    def _listen(self, command: Listen) -> Job:
        yield from ()
        where = command.address, command.port
        if where in self._world.listen_fails or where in self._outside.listening:
            return self._failed(Reason.BROKEN, None)
        self._outside.listening.append(where)
        return Listening(self._reactor.now)

    def _connect(self, command: Connect) -> Job:
        """Dial one address after the other as RFC 8305 §5 has it; the first to accept wins."""
        assert command.addresses, "a Connect has an address to try"
        assert UPSTREAM not in self._outside.sides, "the upstream side is open already"
        if self._is_late():
            yield  # nobody is dialled
        yield from self._begin()
        left = deque(command.addresses)
        told: deque[tuple[int, Reason | None]] = deque()
        running, following = 0, self._reactor.now
        reason: Reason | None = Reason.UNREACHABLE
        while left or running:
            if left and self._reactor.now >= following:
                running, following = running + 1, self._reactor.now + ATTEMPT_DELAY_S
                self._reactor.at(following)
                self._outside.dial(
                    left.popleft(), command.port, command.way, lambda *end: told.append(end)
                )
            if not told:
                yield
                continue
            number, reason = told.popleft()
            if reason is None:
                return Connected(self._outside.connected(number), self._reactor.now)
            running, following = running - 1, self._reactor.now
        assert reason is not None
        return self._failed(reason, UPSTREAM)

    def _open(self, command: Open) -> Job:
        """Reach a bridge: a server at its name and port 0."""
        assert UPSTREAM not in self._outside.sides, "the upstream side is open already"
        if self._is_late():
            yield  # nobody is dialled
        yield from self._begin()
        told: list[tuple[int, Reason | None]] = []
        self._outside.dial(command.name, BRIDGE_PORT, OUT, lambda *end: told.append(end))
        while not told:
            yield
        number, reason = told[0]
        if reason is not None:
            return self._failed(reason, UPSTREAM)
        self._outside.connected(number)
        return Opened(self._reactor.now)

    def _start_tls(self, command: StartTls) -> Job:
        """Secure the upstream side: its bytes stay as they are, and so does its peer."""
        assert UPSTREAM in self._outside.sides, "the upstream side isn't open"
        if self._is_late():
            yield
        yield from self._begin()
        self._outside.secured.append(command.host)
        reason = self._world.tls.get(command.host, Reason.UNTRUSTED)
        while reason is SILENT:
            yield
        if isinstance(reason, Reason):
            return self._failed(reason, UPSTREAM)
        return Secured(self._reactor.now)

    def _close(self, command: Close) -> Job:
        """Send FIN if due, then read and drop until the peer ends (or the deadline comes)."""
        yield from self._begin()
        if command.side in self._outside.sides:
            socket = self._outside.socket(command.side)
            if not command.broken:
                socket.outgoing.finish()
            socket.incoming.drop()
            while not socket.incoming.readable or self._is_under_way(socket, command):
                yield
            self._outside.shut(command.side, reset=command.broken)
        return Closed(self._reactor.now)

    def _is_under_way(self, socket: Socket, command: Close) -> bool:
        """Tell whether a reset would destroy what the peer is yet to take, and may."""
        return command.broken and socket.outgoing.pending and not socket.incoming.broken

    def _splice(self, command: Splice) -> Job:
        held = {CLIENT: command.to_client, UPSTREAM: command.to_upstream}
        directions = list(BOTH_WAYS)
        yield from self._begin()
        while True:
            for side, _ in BOTH_WAYS:
                if self._outside.socket(side).incoming.broken:
                    return self._failed(Reason.RESET, side)
            for side, other in tuple(directions):
                source, sink = self._outside.socket(side), self._outside.socket(other)
                held[other] = self._pump(source, sink, held[other], other, command)
                if source.incoming.ended and not source.incoming.pending and not held[other]:
                    sink.outgoing.finish()
                    directions.remove((side, other))
            if not directions:
                return Spliced(self._up, self._down, self._reactor.now)
            yield

    def _pump(
        self, source: Socket, sink: Socket, held: bytes, towards: Side, command: Splice
    ) -> bytes:
        """Move what can be moved one way, what is held first; return what is held still."""
        while True:
            piece = held or source.incoming.take_piece(sink.outgoing.room())
            sent = sink.outgoing.put(piece)
            held = piece[sent:]
            if not sent:
                return held
            self._count(towards, sent)
            self._deadline = self._late_at(command)

    def _look(self) -> Job:
        yield from ()
        return Looked(self._fate.look(), self._reactor.now)

    def _write(self, command: Log) -> Job:
        """Write a record; it takes its moment, in which a cancel may land and must not be lost."""
        if self._cancelled_once and isinstance(command.record, Ending):
            self._outside.shut(UPSTREAM, reset=True)
        if not self._world.log_full:
            self._log.append(command.record)
        elif isinstance(command.record, Allowed):
            self._fate.cancel(Cause.UNLOGGED)
        if isinstance(command.record, Paused):
            self._fate.close(Cause.PAUSED)
        elif not isinstance(command.record, Allowed):
            self._fate.begun = False
        yield from self._begin()
        return Logged(self._reactor.now)
