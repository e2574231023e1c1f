"""The steps of a simulated peer (`shells.sim_world`), played by a thread on a real socket."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

from shells.sim_world import (
    Await,
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

SOON_S = 60.0
"""Longer than anything here takes: only a fault waits for it."""

PIECE_BYTES = 64 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Signals:
    """The names that peers have signalled; `on_signal` is told of each."""

    def __init__(self, on_signal: Callable[[str], None]) -> None:
        self._on_signal = on_signal
        self._given: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def event(self, name: str) -> threading.Event:
        with self._lock:
            return self._given.setdefault(name, threading.Event())

    def give(self, name: str) -> None:
        self.event(name).set()
        self._on_signal(name)


Wrap = Callable[[socket.socket], socket.socket | None]
"""What a peer does on its thread before its first step; None: that was all."""


class Peer(threading.Thread):
    """Plays its steps, then hears on until the connection ends; `over` ends the deaf ones."""

    def __init__(
        self,
        sock: socket.socket,
        steps: Steps,
        signals: Signals,
        over: threading.Event,
        wrap: Wrap | None = None,
    ) -> None:
        super().__init__()
        self._wrap = wrap
        self._sock = sock
        self._steps = steps
        self._signals = signals
        self._over = over
        self._heard = bytearray()
        self._end = End.OPEN
        self._closed = False
        self._failed: BaseException | None = None
        sock.settimeout(SOON_S)

    def heard(self) -> int:
        """Return how many bytes have been heard so far."""
        return len(self._heard)

    def saw(self) -> Saw:
        """Wait for the thread's end and return what was heard; raise what went wrong."""
        self.join(SOON_S)
        assert not self.is_alive(), "a peer waits for what never comes"
        if self._failed is not None:
            raise self._failed
        return Saw(bytes(self._heard), self._end)

    def run(self) -> None:
        try:
            if self._wrap is None:
                self._all()
                return
            with self._sock:
                wrapped = self._wrap(self._sock)
                if wrapped is None:
                    self._end = End.FIN
                else:
                    self._sock = wrapped
                    self._all()
        except BaseException as error:
            self._failed = error

    def _all(self) -> None:
        with self._sock:
            for step in self._steps:
                self._play(step)
            self._hear_until(lambda _: False)

    def _play(self, step: Step) -> None:
        match step:
            case Say(data):
                self._say(data)
            case Hear(wanted):
                self._hear(wanted)
            case Trade(data, wanted):
                speaking = threading.Thread(target=self._say, args=(data,))
                speaking.start()
                self._hear(wanted)
                speaking.join(SOON_S)
            case HearUntil(make):
                self._hear_until(make())
            case HearEnd():
                self._hear_until(lambda _: False)
            case Echo():
                while piece := self._read(PIECE_BYTES):
                    self._say(piece)
                self._sock.shutdown(socket.SHUT_WR)
            case Reply(make):
                self._reply(make)
            case Fin():
                self._finish()
            case Reset():
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                self._leave()
            case Leave():
                self._leave()
            case Deaf():
                assert self._over.wait(SOON_S)
                self._closed = True
            case Signal(name):
                self._signals.give(name)
            case Await(name):
                assert self._signals.event(name).wait(SOON_S), f"nobody signalled {name}"
            case Pause():
                raise AssertionError("only a simulated peer can pause: a test doesn't sleep")
            case _:
                assert_never(step)

    def _finish(self) -> None:
        if not isinstance(self._sock, ssl.SSLSocket):
            self._sock.shutdown(socket.SHUT_WR)
            return
        self._sock.settimeout(0)
        with suppress(ssl.SSLWantReadError):  # TLS's own close is sent, and not waited for
            self._sock.unwrap()
        self._sock.settimeout(SOON_S)

    def _leave(self) -> None:
        self._sock.close()
        self._closed = True

    def _say(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the reader tells the end
            self._sock.sendall(data)

    def _hear(self, wanted: int) -> None:
        while wanted and (piece := self._read(wanted)):
            wanted -= len(piece)

    def _hear_until(self, enough: Callable[[bytes], bool]) -> None:
        while (piece := self._read(PIECE_BYTES)) and not enough(piece):
            pass

    def _reply(self, make: Callable[[bytes], bytes | tuple[bytes, ...] | None]) -> None:
        heard = b""
        while piece := self._read(PIECE_BYTES):
            heard += piece
            if (answer := make(heard)) is not None:
                heard = b""
                for each in (answer,) if isinstance(answer, bytes) else answer:
                    self._say(each)

    def _read(self, limit: int) -> bytes:
        if self._closed or self._end is not End.OPEN:
            return b""
        try:
            piece = self._sock.recv(min(limit, PIECE_BYTES))
        except ConnectionResetError:
            self._end = End.RESET
            return b""
        except ssl.SSLZeroReturnError:  # so it is told to who has said its own end
            piece = b""
        if not piece:
            self._end = End.FIN
        self._heard += piece
        return piece
