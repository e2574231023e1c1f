"""The small loop of bridges: `shells/poll_loop.py`."""

from __future__ import annotations

import errno
import os
import select
import socket
import tracemalloc
from pathlib import Path

import pytest

from shells import poll_loop
from shells.poll_loop import Loop, Stream, accept_on


@pytest.fixture
def loop() -> Loop:
    made = Loop()

    def late() -> None:
        made.stop()
        raise AssertionError("nothing ended the loop")

    made.after(60, late)
    return made


def test_bytes_are_heard_and_an_end_is_told_once(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    heard: list[bytes] = []
    ends: list[int] = []

    def ended() -> None:
        ends.append(1)
        loop.stop()

    stream = Stream(loop, ours.detach(), on_data=heard.append, on_end=ended)
    theirs.sendall(b"hello")
    theirs.close()
    loop.run()
    assert (b"".join(heard), ends, stream.closed) == (b"hello", [1], True)
    stream.write(b"too late")
    stream.close()


def test_all_is_sent_before_a_stream_that_is_finished_closes(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    stream = Stream(loop, ours.detach(), on_data=lambda _: None)
    data = os.urandom(3_000_000)
    stream.write(data)
    assert 0 < loop.held < len(data)
    stream.finish()
    got = bytearray()

    def take(_: int) -> None:
        piece = theirs.recv(65536)
        got.extend(piece)
        if not piece:
            loop.unwatch(theirs.fileno())
            loop.stop()

    loop.watch(theirs.fileno(), select.POLLIN, take)
    loop.run()
    theirs.close()
    assert bytes(got) == data
    assert (stream.closed, loop.held) == (True, 0)


def test_a_reader_who_stands_still_is_broken_off(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    closed: list[int] = []
    ended: list[int] = []
    stream = Stream(loop, ours.detach(), on_end=lambda: ended.append(1), queue_max=1_000_000)
    stream.on_close = lambda: closed.append(1)
    stream.write(b"x" * 3_000_000)
    theirs.close()
    assert (stream.closed, ended, closed, loop.held) == (True, [1], [1], 0)


def test_what_waits_in_small_pieces_takes_no_more_than_its_bytes(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    stream, pieces = Stream(loop, ours.detach()), 100_000
    tracemalloc.start()
    try:
        for _ in range(pieces):
            stream.write(b"piece")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < loop.held <= 5 * pieces
    assert held < 2 * 5 * pieces
    stream.finish()
    got = 0

    def take(_: int) -> None:
        nonlocal got
        got += len(data := theirs.recv(1 << 16))
        if not data:
            loop.stop()

    loop.watch(theirs.fileno(), select.POLLIN, take)
    loop.run()
    assert (got, loop.held) == (5 * pieces, 0)
    theirs.close()


def test_a_pipe_whose_reader_has_gone_ends(loop: Loop) -> None:
    reads, writes = os.pipe()
    stream = Stream(loop, writes, on_end=loop.stop)
    os.close(reads)
    stream.write(b"x")
    assert stream.closed
    loop.run()


def test_a_pipe_that_is_only_written_tells_of_its_end(loop: Loop) -> None:
    reads, writes = os.pipe()
    Stream(loop, writes, on_end=loop.stop)
    loop.after(0.01, lambda: os.close(reads))
    loop.run()


def test_connections_are_taken_as_they_come(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[int] = []

        def took(fd: int) -> None:
            taken.append(fd)
            if len(taken) == 2:
                loop.stop()

        accept_on(loop, listener, took)
        callers = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        loop.run()
        loop.unwatch(listener.fileno())
    for fd in taken:
        os.close(fd)
    for caller in callers:
        caller.close()


def test_where_descriptors_run_out_who_connects_is_waited_with(loop: Loop, tmp_path: Path) -> None:
    class Spent(socket.socket):
        tries = 0

        def accept(self) -> tuple[socket.socket, object]:
            Spent.tries += 1
            if Spent.tries == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    def took(fd: int) -> None:
        os.close(fd)
        loop.stop()

    with Spent(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        listener.bind(str(tmp_path / "door"))
        listener.listen()
        accept_on(loop, listener, took)
        caller.connect(listener.getsockname())
        loop.after(0.01, loop.stop)
        loop.run()
        assert Spent.tries == 1
        loop._running = True
        loop.run()
        assert Spent.tries == 2


def test_a_listener_that_is_closed_meanwhile_is_watched_no_more(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spent(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            loop.stop()
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(poll_loop, "SPENT_S", 0.01)
    with socket.socket(socket.AF_UNIX) as caller:
        listener = Spent(socket.AF_UNIX)
        listener.bind(str(tmp_path / "door"))
        listener.listen()
        accept_on(loop, listener, os.close)
        caller.connect(listener.getsockname())
        loop.run()
        loop.unwatch(listener.fileno())
        listener.close()
        loop._running = True
        loop.after(0.05, loop.stop)
        loop.run()
    assert loop._watched == {}


def test_what_is_due_is_done_in_time(loop: Loop) -> None:
    done: list[str] = []
    loop.after(0.02, lambda: done.append("second"))
    loop.after(0, lambda: done.append("first"))
    loop.after(0.04, loop.stop)
    loop.run()
    assert done == ["first", "second"]
