"""Pumps between socket pairs, stepped by hand: no loop, no thread, no waiting."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from proto.commands import CLIENT, UPSTREAM
from proto.events import Reason
from shells import splice
from shells.sides import hang_up
from shells.splice import (
    BUFFER_BYTES,
    COPIED_FIRST_BYTES,
    MOVES_A_STEP,
    NOTHING,
    PIPE_BYTES,
    PIPES_KEPT,
    READ,
    TURN,
    WRITE,
    Broken,
    Pipe,
    Plumbing,
    Pump,
)

MIB = 1 << 20


class Line:
    """client ⇄ our end of it | our end of the server ⇄ server, over TCP."""

    def __init__(self, stack: ExitStack) -> None:
        self.client, self.near = (stack.enter_context(end) for end in connection())
        self.server, self.far = (stack.enter_context(end) for end in connection())
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.plumbing = Plumbing()
        stack.callback(self.plumbing.close)

    def pump(self, held: bytes = b"", plumbing: Plumbing | None = None) -> Pump:
        """Return the pump from the client to the server."""
        return Pump(plumbing or self.plumbing, (CLIENT, self.near), (UPSTREAM, self.far), held)


def connection() -> tuple[socket.socket, socket.socket]:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        outer = socket.create_connection(door.getsockname(), 10)
        inner, _ = door.accept()
        return outer, inner


@pytest.fixture
def line() -> Iterator[Line]:
    before = sorted(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        yield Line(stack)
    assert sorted(os.listdir("/proc/self/fd")) == before


def write_some(sock: socket.socket, size: int) -> int:
    """Write at most `size` bytes of a pattern, as far as the kernel takes them."""
    sock.setblocking(False)
    sent = 0
    try:
        while sent < size:
            sent += sock.send(pattern(sent, min(size - sent, MIB)))
    except BlockingIOError:
        pass
    return sent


def pattern(start: int, size: int) -> bytes:
    """Return bytes of an endless pattern whose period divides no buffer's size."""
    first = start % 251
    return (bytes(range(251)) * (size // 251 + 2))[first : first + size]


def read_some(sock: socket.socket) -> bytes:
    sock.setblocking(False)
    parts = []
    try:
        while data := sock.recv(MIB):
            parts.append(data)
    except BlockingIOError:
        pass
    return b"".join(parts)


def push_through(line: Line, pump: Pump, size: int) -> bytes:
    """Move `size` bytes of the pattern from end to end; return what came out."""
    sent, came = 0, bytearray()
    while len(came) < size:
        if sent < size:
            line.client.setblocking(False)
            piece = pattern(sent, min(size - sent, MIB))
            with suppress(BlockingIOError):
                sent += line.client.send(piece)
        pump.step()
        came += read_some(line.server)
    return bytes(came)


def test_an_idle_direction_waits_for_its_source_and_holds_nothing(line: Line) -> None:
    pump = line.pump()
    assert pump.step() is READ
    assert (pump.moved, line.plumbing.leased) == (0, 0)


def test_what_is_held_goes_before_what_is_read(line: Line) -> None:
    pump = line.pump(b"held ")
    line.client.sendall(b"read")
    assert pump.step() is READ
    assert line.server.recv(100) == b"held read"
    assert pump.moved == 9


def test_a_short_read_may_be_taken_for_the_last_there_is(line: Line) -> None:
    pump = line.pump()
    line.client.sendall(b"x")
    line.client.shutdown(socket.SHUT_WR)
    assert pump.step(to_the_end=False) is READ
    assert pump.step(to_the_end=False) is NOTHING


def test_a_source_without_news_is_not_asked_but_what_is_held_goes(line: Line) -> None:
    pump = line.pump(held=b"held")
    line.client.send(b"more")
    assert pump.step(may_read=False) is READ
    assert read_some(line.server) == b"held"
    assert pump.step() is READ
    assert read_some(line.server) == b"more"


def test_a_fin_is_passed_on_after_the_bytes(line: Line) -> None:
    pump = line.pump()
    line.client.sendall(b"last words")
    line.client.shutdown(socket.SHUT_WR)
    assert pump.step() is NOTHING
    assert line.server.recv(100) == b"last words"
    assert line.server.recv(100) == b""
    line.server.sendall(b"the other direction is open")
    assert line.far.recv(100)


def test_many_bytes_come_through_exactly_copied_and_spliced(line: Line) -> None:
    pump = line.pump()
    size = 8 * MIB + 77
    came = push_through(line, pump, size)
    assert came == pattern(0, size)
    assert pump.moved == size
    assert line.plumbing.leased == 0


def test_bytes_of_a_splice_come_through_after_a_fin_too(line: Line) -> None:
    pump = line.pump()
    push_through(line, pump, 2 * COPIED_FIRST_BYTES)
    line.client.setblocking(True)
    line.client.sendall(b"end")
    line.client.shutdown(socket.SHUT_WR)
    assert pump.step() is NOTHING
    line.server.setblocking(True)
    assert line.server.recv(100) == b"end"
    assert line.server.recv(100) == b""
    assert line.plumbing.leased == 0


def test_a_full_target_is_waited_for_and_holds_at_most_a_buffer_or_a_pipe(line: Line) -> None:
    pump = line.pump()
    sent = stuff(line, pump)
    assert pump.step() is WRITE
    assert line.plumbing.leased <= 1
    assert len(pump._held) <= BUFFER_BYTES
    assert pump._in_pipe <= PIPE_BYTES  # all else waits in the kernel's buffers
    came = bytearray()
    while len(came) < sent:
        came += read_some(line.server)
        pump.step()
    assert bytes(came) == pattern(0, sent)
    assert line.plumbing.leased == 0


def stuff(line: Line, pump: Pump) -> int:
    """Write into a line whose far end doesn't read until nothing moves; return the count."""
    line.client.setblocking(False)
    sent = stuck = 0
    while stuck < 3:
        try:
            sent += line.client.send(pattern(sent, MIB))
            stuck = 0
        except BlockingIOError:
            stuck += 1
        pump.step()
    return sent


def test_a_full_target_is_waited_for_without_a_pipe_too(line: Line) -> None:
    none = Plumbing(most=0)
    pump = line.pump(plumbing=none)
    sent = stuff(line, pump)
    assert pump.step() is WRITE
    came = bytearray()
    while len(came) < sent:
        came += read_some(line.server)
        pump.step()
    assert bytes(came) == pattern(0, sent)


def test_a_step_is_bounded_so_that_others_have_their_turn(line: Line) -> None:
    pump = line.pump()
    write_some(line.client, MOVES_A_STEP * BUFFER_BYTES * 2)
    assert pump.step() is TURN
    assert pump.moved <= MOVES_A_STEP * BUFFER_BYTES


def test_without_a_pipe_bytes_are_copied(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pipe() -> Pipe:
        raise PermissionError(1, "over the user's share of pipe pages")

    monkeypatch.setattr(splice, "Pipe", no_pipe)
    size = 3 * MIB
    assert push_through(line, line.pump(), size) == pattern(0, size)
    assert line.plumbing.leased == 0


def test_a_refused_pipe_is_not_asked_for_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def no_pipe() -> Pipe:
        nonlocal asked
        asked += 1
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(splice, "Pipe", no_pipe)
    plumbing = Plumbing()
    assert [plumbing.lease() for _ in range(splice.ASK_AGAIN_AFTER + 2)].count(None) > 1
    assert asked == 2


def test_leases_are_bounded_and_a_pipe_comes_back_for_the_next() -> None:
    plumbing = Plumbing(most=2)
    first, second = plumbing.lease(), plumbing.lease()
    assert first is not None
    assert second is not None
    assert plumbing.lease() is None
    plumbing.give_back(first)
    assert plumbing.lease() is first
    plumbing.discard(first)
    plumbing.discard(second)
    assert plumbing.leased == 0


def test_only_a_few_idle_pipes_are_kept() -> None:
    before = len(os.listdir("/proc/self/fd"))
    plumbing = Plumbing()
    pipes = [plumbing.lease() for _ in range(PIPES_KEPT + 3)]
    for pipe in pipes:
        assert pipe is not None
        plumbing.give_back(pipe)
    assert len(os.listdir("/proc/self/fd")) == before + 2 * PIPES_KEPT
    plumbing.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_pipe_that_cannot_be_made_big_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_pages(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "fcntl", no_pages)
    assert Plumbing().lease() is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_pipe_with_bytes_in_it_is_closed_and_never_lent_again(line: Line) -> None:
    pump = line.pump()
    stuff(line, pump)
    assert line.plumbing.leased == 1
    pump.abandon()
    assert line.plumbing.leased == 0
    pipe = line.plumbing.lease()
    assert pipe is not None
    with pytest.raises(BlockingIOError):
        os.read(pipe.read_fd, 1)
    line.plumbing.give_back(pipe)
    pump.abandon()  # once more does nothing
    assert pump.want is NOTHING


def test_a_reset_of_the_source_is_told_with_its_side(line: Line) -> None:
    pump = line.pump()
    hang_up(line.client, reset=True)
    with pytest.raises(Broken) as broken:
        pump.step()
    assert (broken.value.side, broken.value.reason) == (CLIENT, Reason.RESET)


def test_a_reset_of_the_source_of_a_splice_is_told_with_its_side(line: Line) -> None:
    pump = line.pump()
    push_through(line, pump, 2 * COPIED_FIRST_BYTES)
    hang_up(line.client, reset=True)
    with pytest.raises(Broken) as broken:
        pump.step()
    assert (broken.value.side, broken.value.reason) == (CLIENT, Reason.RESET)
    pump.abandon()
    assert line.plumbing.leased == 0


@pytest.mark.parametrize("held", [b"", b"held"])
def test_a_reset_of_the_target_is_told_with_its_side(line: Line, held: bytes) -> None:
    pump = line.pump(held)
    line.client.sendall(b"to nobody")
    hang_up(line.server, reset=True)
    with pytest.raises(Broken) as broken:
        pump.step()
    assert (broken.value.side, broken.value.reason) == (UPSTREAM, Reason.RESET)


def test_a_fin_to_a_target_that_was_reset_is_told_with_its_side(line: Line) -> None:
    pump = line.pump()
    line.client.shutdown(socket.SHUT_WR)
    hang_up(line.server, reset=True)
    with pytest.raises(ConnectionResetError):
        line.far.recv(1)
    with pytest.raises(Broken) as broken:
        pump.step()
    assert (broken.value.side, broken.value.reason) == (UPSTREAM, Reason.RESET)


def test_a_rescue_moves_what_was_said_but_no_fin(line: Line) -> None:
    pump = line.pump()
    line.client.sendall(b"413 too large")
    line.client.shutdown(socket.SHUT_WR)
    pump.rescue()
    assert line.server.recv(100) == b"413 too large"
    line.server.setblocking(False)
    with pytest.raises(BlockingIOError):
        line.server.recv(1)


def test_a_rescue_of_a_broken_direction_is_silent(line: Line) -> None:
    pump = line.pump()
    hang_up(line.client, reset=True)
    pump.rescue()
    pump.rescue()
    assert pump.moved == 0
