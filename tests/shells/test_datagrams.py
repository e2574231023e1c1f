"""Datagrams as calls, and addresses that are listened at later, on both real shells."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib import import_module

import pytest

from proto.commands import CLIENT, IN, UPSTREAM, Connect, Listen, Receive, Send
from proto.events import Listening, Received
from proto.script import Script
from shells import datagrams
from shells.datagrams import Post
from shells.env import Env, MakeScript
from tests.shells.contract import MemoryLog
from tests.shells.peers import SOON_S


class Inside:
    """This machine's own loopback, for the sandbox's; what listens later echoes."""

    def __init__(self) -> None:
        self.made: list[socket.socket] = []

    def listener(self, address: str, port: int) -> socket.socket:
        self.made.append(socket.create_server((address, port)))
        return self.made[-1]

    def connector(self, address: str) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        return sock

    def script_at(self, address: str, port: int) -> MakeScript:
        return lambda now: says(b"at " + address.encode(), now)


def says(words: bytes, now: float) -> Script[None]:
    yield Send(now + SOON_S, to_client=words)


def echoes(now: float) -> Script[None]:
    """Answer a datagram with itself, but for two words."""
    event = yield Receive((CLIENT,), 65535, now + SOON_S)
    assert isinstance(event, Received)
    if event.data == b"bug":
        raise RuntimeError("a bug of ours")
    if event.data == b"listen":
        made = yield Listen("127.0.0.9", 0)
        assert isinstance(made, Listening)
    if event.data not in (b"nothing", b""):
        yield Send(now + SOON_S, to_client=event.data)


class Shell:
    """A shell that serves one bound socket, in a thread, and its client."""

    def __init__(self, name: str, stack: ExitStack, make: MakeScript) -> None:
        door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        door.bind(("127.0.0.1", 0))
        self.address = door.getsockname()
        self.inside = Inside()
        self.said: list[str] = []
        self.env = Env(
            lookup=lambda _: (), locate=lambda _: (), log=MemoryLog(full=False),
            inside=self.inside, say=self.said.append,
        )  # fmt: skip
        stopped, stop = os.pipe()
        serve = import_module(f"shells.{name}_shell").serve
        thread = threading.Thread(
            target=serve,
            args=((), make, self.env),
            kwargs={"more": [(door, make)], "stop_fd": stopped},
        )
        thread.start()

        def end() -> None:
            os.write(stop, b"x")
            thread.join(SOON_S)
            os.close(stop)
            os.close(stopped)
            assert not thread.is_alive()

        stack.callback(end)
        self.client = stack.enter_context(self.new_client())

    def new_client(self) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.settimeout(SOON_S)
        made.connect(self.address)
        return made


Start = Callable[..., Shell]


@pytest.fixture(params=["uvloop", "trio"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda make=echoes: Shell(request.param, stack, make)


def test_each_datagram_is_answered_to_whom_it_came_from(start: Start) -> None:
    shell = start()
    with shell.new_client() as other:
        for number in range(20):
            shell.client.send(b"mine %d" % number)
            other.send(b"theirs %d" % number)
        mine = {shell.client.recv(100) for _ in range(20)}
        theirs = {other.recv(100) for _ in range(20)}
    assert mine == {b"mine %d" % number for number in range(20)}
    assert theirs == {b"theirs %d" % number for number in range(20)}


def test_one_without_an_answer_and_one_with_a_bug_of_ours_hold_up_nobody(start: Start) -> None:
    shell = start()
    for words in (b"nothing", b"bug", b"", b"x" * 8000):
        shell.client.send(words)
    assert len(shell.client.recv(65535)) == 8000
    assert len(shell.said) == 1


def test_more_than_may_run_at_once_wait_their_turn(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datagrams, "AT_ONCE_MOST", 2)
    shell = start()
    for number in range(50):
        shell.client.send(b"%d" % number)
    assert {shell.client.recv(100) for _ in range(50)} == {b"%d" % number for number in range(50)}


def test_calls_that_run_when_the_shell_is_stopped_end_with_it(start: Start) -> None:
    began = threading.Event()

    def waits(now: float) -> Script[None]:
        event = yield Receive((CLIENT,), 100, now + SOON_S)
        assert isinstance(event, Received)
        began.set()
        yield Connect(("127.0.0.9",), 9, now + SOON_S, IN)
        yield Receive((CLIENT,), 100, now + SOON_S)

    shell = start(waits)
    shell.client.send(b"x")
    assert began.wait(SOON_S)


def test_an_address_is_listened_at_from_then_on(start: Start) -> None:
    shell = start()
    shell.client.send(b"listen")
    assert shell.client.recv(100) == b"listen"
    (door,) = shell.inside.made
    with socket.create_connection(door.getsockname(), SOON_S) as made:
        assert made.recv(100) == b"at 127.0.0.9"


def test_a_call_may_lead_inside(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def leads(now: float) -> Script[None]:
            yield Receive((CLIENT,), 100, now + SOON_S)
            yield Connect(("127.0.0.1",), port, now + SOON_S, IN)
            event = yield Receive((UPSTREAM,), 100, now + SOON_S)
            assert isinstance(event, Received)
            yield Send(now + SOON_S, to_client=event.data)

        shell = start(leads)
        shell.client.send(b"x")
        server.settimeout(SOON_S)
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"from inside")
            assert shell.client.recv(100) == b"from inside"


def test_a_datagram_for_which_there_is_no_descriptor_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door, ExitStack() as stack:
        door.bind(("127.0.0.1", 0))
        client = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        client.connect(door.getsockname())
        post = Post(door)
        client.send(b"lost")

        def none(*_: object) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(socket, "socketpair", none)
            assert list(post.take()) == []
        client.send(b"taken")
        (asked,) = post.take()
        assert asked.client.recv(100) == b"taken"
        asked.client.close()
        asked.reply()
        assert post.asked == set()
        with suppress(OSError):
            post.close()
