"""The epoll set: who is woken, for what, and what an end remembers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from shells.edges import Edges, End
from shells.sides import hang_up


class Loop:
    """An event loop that turns when it is told to."""

    def __init__(self) -> None:
        self.turn: Callable[[], None] = lambda: None

    def add_reader(self, _: int, callback: Callable[[], None]) -> None:
        self.turn = callback

    def remove_reader(self, _: int) -> None:
        self.turn = lambda: None


class Call:
    """Counts how often it is woken; closes `other` when it is."""

    def __init__(self) -> None:
        self.woken = 0
        self.other: End | None = None

    def run(self) -> None:
        self.woken += 1
        if self.other is not None:
            self.other.hang_up()
            self.other = None


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def edges(loop: Loop) -> Iterator[Edges]:
    made = Edges(loop)
    yield made
    assert made.ends == {}
    made.close()


def pair(edges: Edges, call: Call) -> tuple[socket.socket, End]:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        outer = socket.create_connection(door.getsockname(), 10)
        inner, _ = door.accept()
    inner.setblocking(False)
    return outer, End(edges, inner, call)


def test_an_end_is_woken_once_for_what_comes(edges: Edges, loop: Loop) -> None:
    call = Call()
    outer, end = pair(edges, call)
    end.watch()
    end.watch()  # once is enough
    loop.turn()
    assert call.woken == 0  # room to write is no news to somebody who never lacked it
    end.readable = False
    outer.sendall(b"x")
    loop.turn()
    loop.turn()
    assert (call.woken, end.readable, end.hung) == (1, True, False)
    outer.close()
    loop.turn()
    assert (call.woken, end.hung, end.failed) == (2, True, False)
    end.hang_up()


def test_an_end_that_is_watched_late_hears_of_what_was_there(edges: Edges, loop: Loop) -> None:
    call = Call()
    outer, end = pair(edges, call)
    outer.sendall(b"x")
    end.readable = False
    end.watch()
    loop.turn()
    assert (call.woken, end.readable) == (1, True)
    outer.close()
    end.hang_up()


def test_a_full_end_is_woken_by_room(edges: Edges, loop: Loop) -> None:
    call = Call()
    outer, end = pair(edges, call)
    end.watch()
    try:
        while True:
            end.sock.send(bytes(1 << 16))
    except BlockingIOError:
        end.is_full()
    assert end.writable is False
    while not end.writable:
        outer.recv(1 << 20)
        loop.turn()
    assert call.woken >= 1
    outer.close()
    end.hang_up()


def test_a_reset_is_told_apart_from_an_end(edges: Edges, loop: Loop) -> None:
    call = Call()
    outer, end = pair(edges, call)
    end.watch()
    hang_up(outer, reset=True)
    loop.turn()
    assert (end.hung, end.failed, end.writable) == (True, True, True)
    end.hang_up()


def test_an_end_closed_in_the_same_turn_wakes_nobody(edges: Edges, loop: Loop) -> None:
    first, second = Call(), Call()
    (outer, one), (other, two) = pair(edges, first), pair(edges, second)
    one.watch()
    two.watch()
    first.other, second.other = two, one
    outer.sendall(b"x")
    other.sendall(b"x")
    loop.turn()
    assert first.woken + second.woken == 1
    for end in (one, two):
        if end.owner is not None:
            end.hang_up()
    outer.close()
    other.close()


def test_an_end_says_whether_it_can_be_read_and_takes_nothing(edges: Edges) -> None:
    outer, end = pair(edges, Call())
    assert end.can_be_read() is False
    outer.sendall(b"x")
    assert end.can_be_read()
    assert end.sock.recv(10) == b"x"
    assert end.can_be_read() is False
    outer.close()
    assert end.can_be_read()
    end.hang_up()


def test_news_that_the_loop_has_heard_of_may_come_after_the_close(loop: Loop) -> None:
    edges = Edges(loop)
    turn = loop.turn
    edges.close()
    turn()
