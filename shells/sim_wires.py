"""Simulated time, connections and the peers at their far ends.

The reactor is a heap of acts; time is what the next act says.  A connection is two
pipes.  A pipe holds at most its window of bytes unread, so a slow reader holds its
sender; pieces arrive in order, each after a delay that the seed draws.

It is the worst network that TCP allows: a reset destroys what the reader had not read
yet, and closing with bytes unread is a reset (RFC 9293 §3.6.1, RFC 9112 §9.6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import assert_never

from shells.sim_world import (
    PIECE_MAX_BYTES,
    Await,
    Cutter,
    Deaf,
    Echo,
    End,
    Fin,
    Hear,
    HearEnd,
    HearUntil,
    Leave,
    Pause,
    Reply,
    Reset,
    Saw,
    Say,
    Signal,
    Step,
    Steps,
    Trade,
)

Act = Callable[[], None]


def _nothing() -> None:
    """Wake whoever waits for a change."""


class Reactor:
    """A virtual clock and the acts that are due; `rng` is the run's one source of chance."""

    def __init__(self, rng: Random, start: float, delay_s: float) -> None:
        self.rng = rng
        self.now = start
        self._delay_s = delay_s
        self._heap: list[tuple[float, int, Act]] = []
        self._order = count()

    def delay(self) -> float:
        """Draw one delay in seconds."""
        return self.rng.random() * self._delay_s

    def at(self, when: float, act: Act = _nothing) -> None:
        """Do `act` at that time; acts of one time keep their order."""
        heappush(self._heap, (when, next(self._order), act))

    def soon(self, act: Act = _nothing) -> None:
        """Do `act` after a drawn delay."""
        self.at(self.now + self.delay(), act)

    def due(self) -> float | None:
        """Return the time of the next act, None when nothing will ever happen again."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        """Set the clock to the next act and do it."""
        self.now, _, act = heappop(self._heap)
        act()

    def sleep(self, until: float) -> Iterator[None]:
        """Yield until that time has come."""
        self.at(until)
        while self.now < until:
            yield


class Pipe:
    """One direction of a connection, from `put` to `take`."""

    def __init__(self, reactor: Reactor, window: int, arrivals: Cutter, reads: Cutter) -> None:
        self._reactor = reactor
        self._window = window
        self._arrivals, self._reads = arrivals, reads
        self._ready: deque[bytes] = deque()
        self._held = 0
        self._last = 0.0
        self._starved = False
        self._closed = False
        self._dropping = False
        self._forgotten = False
        self.ended = False
        self.broken = False
        self.rejected: Act = _nothing

    @property
    def readable(self) -> bool:
        """Tell whether a read would be answered: by bytes, the end, or a reset."""
        return bool(self._ready) or self.ended or self.broken

    @property
    def pending(self) -> bool:
        """Tell whether bytes wait unread or are on their way."""
        return self._held > 0

    def put(self, data: bytes) -> int:
        """Send as many of the bytes as there is room for; return their count."""
        if self.broken or self._closed:
            return len(data)  # into the void, as a kernel does until the reset is back
        taken = min(len(data), self.room()) if data else 0
        self._held += taken
        start = 0
        while start < taken:
            size = self._arrivals.size(taken - start)
            self._arrive(self._deliver, data[start : start + size])
            start += size
        return taken

    def finish(self) -> None:
        """Send the end of this direction, once."""
        if not self._closed:
            self._closed = True
            self._arrive(self._end, b"")

    def reset(self) -> None:
        """Break the direction off."""
        if not self.broken:
            self._closed = True
            self._arrive(self._break, b"")

    def take(self, limit: int) -> bytes:
        """Return what one read gives: at most `limit` bytes, none when there are none."""
        if not self._ready:
            return b""
        return self.take_piece(min(limit, self._reads.size(len(self._ready[0]))))

    def take_piece(self, limit: int) -> bytes:
        """Return the next piece as it arrived, at most `limit` bytes."""
        if not self._ready or not limit:
            return b""
        piece = self._ready.popleft()
        if limit < len(piece):
            self._ready.appendleft(piece[limit:])
        self._free(min(limit, len(piece)))
        return piece[:limit]

    def room(self) -> int:
        """Return how many bytes `put` would take; who asks is woken when there is more.

        A window that is nearly full counts as full (RFC 9293 §3.8.6.2.2): bytes would go
        one by one, each as soon as the reader has taken one.
        """
        if self.broken or self._closed:
            return self._window
        self._starved = True
        room = self._window - self._held
        return room if room * 4 >= self._window else 0

    def drop(self) -> None:
        """Read whatever comes from now on, and keep nothing."""
        self._dropping = True
        self._free(sum(map(len, self._ready)))
        self._ready.clear()

    def forget(self) -> None:
        """Reject bytes that come from now on: the reader's descriptor is closed."""
        self.drop()
        self._forgotten = True

    def _free(self, size: int) -> None:
        self._held -= size
        if size and self._starved:
            self._starved = False
            self._reactor.soon()

    def _arrive(self, act: Callable[[bytes], None], piece: bytes) -> None:
        self._last = max(self._last, self._reactor.now + self._reactor.delay())
        self._reactor.at(self._last, lambda: act(piece))

    def _deliver(self, piece: bytes) -> None:
        if self._forgotten:
            self._held -= len(piece)
            self.rejected()
        elif self._dropping or self.broken:
            self._free(len(piece))
        else:
            self._ready.append(piece)

    def _end(self, _: bytes) -> None:
        self.ended = not self.broken

    def _break(self, _: bytes) -> None:
        self.broken = True
        self._held = 0
        self._ready.clear()


class Socket:
    """One end of a connection."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self.incoming, self.outgoing = incoming, outgoing

    def close(self) -> None:
        """Close the descriptor: FIN, or RST where bytes are left unread (see the module)."""
        if self.incoming.pending:
            self.reset()
        self.outgoing.finish()
        self.incoming.forget()

    def reset(self) -> None:
        """Break the connection off."""
        self.outgoing.reset()
        self.incoming.forget()


def connection(forth: Pipe, back: Pipe) -> tuple[Socket, Socket]:
    """Join two pipes; return the end that `forth` leads away from, then the other."""
    forth.rejected, back.rejected = back.reset, forth.reset
    return Socket(back, forth), Socket(forth, back)


class Signals:
    """The names that peers have signalled, and what else comes of one."""

    def __init__(self, on_signal: Callable[[str], None]) -> None:
        self._on_signal = on_signal
        self.given: set[str] = set()

    def give(self, name: str) -> None:
        """Let those who await a name go on."""
        self.given.add(name)
        self._on_signal(name)


class Peer:
    """Plays one peer's steps: each wait is a `yield`, and `poll` tries again."""

    def __init__(self, reactor: Reactor, socket: Socket, steps: Steps, signals: Signals) -> None:
        self._reactor = reactor
        self._socket = socket
        self._signals = signals
        self._heard = bytearray()
        self._end = End.OPEN
        self._play = self._all(steps)
        self._gone = self._over = False

    def poll(self) -> None:
        """Go on as far as possible."""
        if not self._over and next(self._play, self) is self:
            self._over = True

    def saw(self) -> Saw:
        """Return what was heard so far, and the end if that was heard too."""
        return Saw(bytes(self._heard), self._end)

    def _all(self, steps: Steps) -> Iterator[None]:
        for step in steps:
            yield from self._reactor.sleep(self._reactor.now + self._reactor.delay())
            yield from self._one(step)
        yield from self._hear_until(lambda _: False)
        self._socket.close()

    def _one(self, step: Step) -> Iterator[None]:  # noqa: C901  # a flat match
        match step:
            case Say(data):
                yield from self._say(data)
            case Hear(wanted):
                yield from self._hear(wanted)
            case Trade(data, wanted):
                yield from self._trade(data, wanted)
            case HearUntil(make):
                yield from self._hear_until(make())
            case HearEnd():
                yield from self._hear_until(lambda _: False)
            case Echo():
                yield from self._echo()
            case Reply(make):
                yield from self._reply(make)
            case Fin():
                self._socket.outgoing.finish()
            case Reset():
                self._socket.reset()
                self._gone = True
            case Leave():
                self._socket.close()
                self._gone = True
            case Deaf():
                while True:
                    yield
            case Pause(seconds):
                yield from self._reactor.sleep(self._reactor.now + seconds)
            case Signal(name):
                self._signals.give(name)
                self._reactor.soon()
            case Await(name):
                while name not in self._signals.given:
                    yield
            case _:
                assert_never(step)

    def _say(self, data: bytes) -> Iterator[None]:
        outgoing, start = self._socket.outgoing, 0
        while start < len(data) and not self._socket.incoming.broken:
            if outgoing.room():
                start += outgoing.put(data[start : start + PIECE_MAX_BYTES])
            else:
                yield

    def _trade(self, data: bytes, wanted: int) -> Iterator[None]:
        speaking, hearing = self._say(data), self._hear(wanted)
        running = [speaking, hearing]
        while running:
            running = [each for each in running if next(each, self) is not self]
            if running:
                yield

    def _hear(self, wanted: int) -> Iterator[None]:
        """Read so many bytes, or up to the end."""
        while wanted:
            piece = self._read(wanted)
            wanted -= len(piece)
            if not piece:
                if self._socket.incoming.readable:
                    return
                yield

    def _hear_until(self, enough: Callable[[bytes], bool]) -> Iterator[None]:
        """Read until `enough` says so of a piece, or up to the end."""
        while True:
            piece = self._read(PIECE_MAX_BYTES)
            if piece and enough(piece):
                return
            if not piece:
                if self._socket.incoming.readable:
                    return
                yield

    def _echo(self) -> Iterator[None]:
        def say(piece: bytes) -> bool:
            pieces.append(piece)
            return True

        pieces: list[bytes] = []
        while True:
            yield from self._hear_until(say)
            if not pieces:
                break
            yield from self._say(pieces.pop())
        self._socket.outgoing.finish()

    def _reply(self, make: Callable[[bytes], bytes | tuple[bytes, ...] | None]) -> Iterator[None]:
        heard = bytearray()
        answers: list[bytes | tuple[bytes, ...]] = [()]

        def enough(piece: bytes) -> bool:
            heard.extend(piece)
            answer = make(bytes(heard))
            if answer is not None:
                heard.clear()
                answers.append(answer)
            return answer is not None

        while answers:
            answer = answers.pop()
            for each in (answer,) if isinstance(answer, bytes) else answer:
                yield from self._say(each)
            yield from self._hear_until(enough)

    def _read(self, limit: int) -> bytes:
        incoming = self._socket.incoming
        piece = incoming.take_piece(limit)
        self._heard += piece
        if not piece and incoming.readable and not self._gone:
            self._end = End.RESET if incoming.broken else End.FIN
        return piece
