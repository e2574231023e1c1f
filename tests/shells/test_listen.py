"""Listening sockets: what is accepted, in what measure, and what when nothing is left."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from shells.listen import (
    ACCEPTS_A_TURN,
    SAY_AGAIN_AFTER_S,
    Door,
    adopt_listener,
    connections_most,
    listen_tcp,
    raise_descriptor_limit,
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def clients(stack: ExitStack, listener: socket.socket, count: int) -> list[socket.socket]:
    address = listener.getsockname()
    return [stack.enter_context(socket.create_connection(address[:2], 10)) for _ in range(count)]


def keep(stack: ExitStack, connections: list[socket.socket]) -> list[socket.socket]:
    for connection in connections:
        stack.callback(connection.close)
    return connections


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connections_are_ready_to_be_proxied(stack: ExitStack, host: str) -> None:
    listener = stack.enter_context(closing(listen_tcp(host, 0)))
    clients(stack, listener, 1)
    (connection,) = keep(stack, Door(listener, print).take(10, 0.0))
    assert connection.getblocking() is False
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert connection.get_inheritable() is False


def test_an_address_in_use_is_an_error_that_leaves_nothing_open(stack: ExitStack) -> None:
    listener = stack.enter_context(closing(listen_tcp("127.0.0.1", 0)))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="in use") as refused:
        listen_tcp(*listener.getsockname())
    assert refused.value.errno == errno.EADDRINUSE
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_storm_is_taken_in_by_turns(stack: ExitStack) -> None:
    listener = stack.enter_context(closing(listen_tcp("127.0.0.1", 0)))
    clients(stack, listener, ACCEPTS_A_TURN + 5)
    door = Door(listener, print)
    assert len(keep(stack, door.take(1000, 0.0, at_most=1))) == 1
    assert len(keep(stack, door.take(1000, 0.0))) == ACCEPTS_A_TURN
    assert len(keep(stack, door.take(1000, 0.0))) == 4
    assert door.shut is False


def test_without_room_the_door_is_shut_and_says_so_once_a_minute(stack: ExitStack) -> None:
    said: list[str] = []
    listener = stack.enter_context(closing(listen_tcp("127.0.0.1", 0)))
    clients(stack, listener, 3)
    door = Door(listener, said.append)
    assert len(keep(stack, door.take(2, 0.0))) == 2
    assert door.shut
    for now in (1.0, SAY_AGAIN_AFTER_S - 1, SAY_AGAIN_AFTER_S):
        door.reopen()
        assert door.take(0, now) == []
        assert door.shut
    assert len(said) == 2
    assert "new connections wait" in said[0]
    door.reopen()
    assert len(keep(stack, door.take(1, 100.0))) == 1  # it had waited in the backlog


class Failing:
    """A listening socket whose accept(2) fails in the ways it can."""

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, 0

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def _accept(self) -> tuple[int, object]:
        code = self.codes.pop(0) if self.codes else errno.EAGAIN
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EINVAL])
def test_an_accept_that_would_fail_again_shuts_the_door(code: int) -> None:
    said: list[str] = []
    door = Door(Failing(code), said.append)  # type: ignore[arg-type]
    assert door.take(10, 0.0) == []
    assert door.shut
    assert os.strerror(code) in said[0]


def test_an_error_of_one_client_is_not_the_next_ones() -> None:
    listener = Failing(errno.ECONNABORTED, errno.EPROTO)
    door = Door(listener, print)  # type: ignore[arg-type]
    assert door.take(10, 0.0) == []
    assert door.shut is False
    assert listener.codes == []


def test_a_handed_listener_is_adopted(stack: ExitStack) -> None:
    with listen_tcp("127.0.0.1", 0) as made:
        fd = os.dup(made.fileno())
    listener = stack.enter_context(closing(adopt_listener(fd)))
    clients(stack, listener, 1)
    assert len(keep(stack, Door(listener, print).take(10, 0.0))) == 1


def test_a_handed_unix_listener_is_adopted(stack: ExitStack) -> None:
    made = stack.enter_context(socket.socket(socket.AF_UNIX))
    made.bind("")  # an abstract name that the kernel chooses
    made.listen()
    listener = stack.enter_context(closing(adopt_listener(os.dup(made.fileno()))))
    client = stack.enter_context(socket.socket(socket.AF_UNIX))
    client.connect(made.getsockname())
    assert len(keep(stack, Door(listener, print).take(10, 0.0))) == 1


def test_what_is_no_listening_socket_is_not_adopted(stack: ExitStack) -> None:
    file = os.open("/dev/null", os.O_RDONLY)
    stack.callback(os.close, file)
    datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    connected = stack.enter_context(socket.socket())
    for fd, why in (
        (file, "not a socket"),
        (datagrams.fileno(), "not a stream socket"),
        (connected.fileno(), "doesn't listen"),
    ):
        with pytest.raises(ValueError, match=why):
            adopt_listener(fd)
        os.fstat(fd)  # still open: it is the caller's


@pytest.mark.parametrize(
    ("soft", "most"), [(1024, 464), (20_000, 9952), (64, 8), (resource.RLIM_INFINITY, 1 << 30)]
)
def test_no_more_connections_than_have_room_for_both_sides(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert connections_most() == most


def test_the_soft_limit_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    assert raise_descriptor_limit() == 4096
    assert raise_descriptor_limit() == 4096
    assert limits == [(1024, 4096), (4096, 4096)]
