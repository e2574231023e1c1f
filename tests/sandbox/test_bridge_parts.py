"""The proxy's connections to a bridge with a loop of its own: `sandbox/cli/bridge_parts.py`."""

from __future__ import annotations

import errno
import json
import os
import socket
import tracemalloc
from collections.abc import Callable

import pytest

from proto.codecs.http1 import RequestHead
from proto.codecs.jsonrpc import parse
from proto.policy.keys import Key
from sandbox.cli import tool_bridge
from sandbox.cli.bridge import Told
from sandbox.cli.bridge_parts import (
    HELD_MAX_BYTES,
    MESSAGE_MAX_BYTES,
    Asker,
    Connection,
    weight_of,
)
from sandbox.cli.tool_bridge import Server
from sandbox.route import Tool
from shells.poll_loop import Loop
from tests.sandbox.loops import TOLD, turn

KEY = "k" * 32
MOST = 8 << 20


class Bridge:
    """A loop, the bodies it was given, and who has left."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.bodies: list[bytes] = []
        self.left = 0

    def call(self, _: Connection, __: RequestHead, body: bytes) -> Callable[[], None]:
        self.bodies.append(body)

        def gone() -> None:
            self.left += 1

        return gone

    def connect(self, body: bytes) -> socket.socket:
        """Send a request; return the connection."""
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        ours.setblocking(False)
        Connection.begin(self.loop, theirs.detach(), Key(KEY), self.call, MOST)
        head = (
            f"POST /x HTTP/1.1\r\nHost: x\r\nLink-Caller: {KEY}\r\nContent-Length: {len(body)}\r\n"
        )
        data = head.encode() + b"\r\n" + body

        def sent() -> bool:
            nonlocal data
            try:
                data = data[ours.send(data) :] if data else b""
            except (BlockingIOError, BrokenPipeError):
                return False
            return not data

        turn(self.loop, sent)
        return ours

    def status(self, sock: socket.socket) -> int:
        """Return the status of the answer that comes."""
        said = b""

        def heard() -> bool:
            nonlocal said
            try:
                said += sock.recv(4096)
            except BlockingIOError:
                return False
            return b"\r\n" in said

        turn(self.loop, heard)
        return int(said.split(b" ")[1])


@pytest.mark.parametrize("part", ["{}", "[]", "1", '"a\\n"', '{"k":1}', '"\\u20ac"', "1.5e3"])
def test_a_message_takes_no_more_than_it_is_counted_for(part: str) -> None:
    body = b"[" + b",".join([part.encode()] * 20_000) + b"]"
    tracemalloc.start()
    try:
        value = parse(body)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value
    assert taken <= weight_of(body)


def test_a_wide_letter_is_counted_for_the_whole_text() -> None:
    body = json.dumps(["a" * 100_000 + "\U0001f600"]).encode()
    assert weight_of(body) >= 4 * 100_000
    assert weight_of("é".encode() * 1000) == 2000 * 5


@pytest.mark.parametrize(
    ("head", "status"),
    [("GET / HTTP/1.2", 505), ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip", 501),
     ("POST / HTTP/1.1\r\nExpect: more", 417), ("GET /", 400)],
)  # fmt: skip
def test_whatever_is_no_request_is_answered_and_nothing_ends(head: str, status: int) -> None:
    bridge = Bridge()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    Connection.begin(bridge.loop, theirs.detach(), Key(KEY), bridge.call, MOST)
    with ours:
        ours.send(f"{head}\r\nHost: x\r\nLink-Caller: {KEY}\r\n\r\n".encode())
        assert bridge.status(ours) == status
    assert not bridge.bodies


def test_a_message_is_counted_while_its_call_is_open() -> None:
    bridge = Bridge()
    body = b"[" + b",".join([b"{}"] * 1000) + b"]"
    with bridge.connect(body):
        turn(bridge.loop, lambda: bool(bridge.bodies))
        assert bridge.loop.held == weight_of(body)
    turn(bridge.loop, lambda: bridge.left == 1)
    assert bridge.loop.held == 0


def test_messages_that_would_fill_the_machine_are_not_read() -> None:
    bridge = Bridge()
    body = b"[" + b",".join([b"{}"] * 200_000) + b"]"
    assert weight_of(body) > MESSAGE_MAX_BYTES
    with bridge.connect(body) as sock:
        assert bridge.status(sock) == 413
    assert bridge.loop.held == 0
    bridge.loop.held = HELD_MAX_BYTES - 10
    with bridge.connect(b"1,2,3") as sock:
        assert bridge.status(sock) == 503
    assert bridge.bodies == []


def test_a_connection_that_has_ended_holds_nothing_though_its_timer_runs() -> None:
    bridge = Bridge()
    before = Connection.open
    bridge.connect(b"x").close()
    turn(bridge.loop, lambda: bridge.left == 1)
    assert Connection.open == before
    acts = [each[2] for each in bridge.loop._timers]
    ended = [act.__self__ for act in acts if isinstance(getattr(act, "__self__", None), Connection)]
    assert [(each._head, each._reader.started) for each in ended] == [(None, False)]


# A tool's server that can't be started.


def served_by(state: str) -> Server:
    loop = Loop()
    tool = Tool(name="notes", argv=("/bin/cat",), ask="all", allow=())
    told = Told({**TOLD, "state": state})
    return Server(loop, told, tool, Asker(loop, told))


def test_a_tools_folder_that_cannot_be_made_is_said_and_the_bridge_goes_on(tmp_path, capfd) -> None:
    (tmp_path / "sandbox").symlink_to("/etc")
    server = served_by(str(tmp_path))
    server._start()
    assert server.process is None
    said = capfd.readouterr().err
    assert said.startswith("lnk sandbox: the tool notes can't be started: Link's settings")


def test_a_tool_that_dies_again_and_again_fills_no_terminal(tmp_path, monkeypatch, capfd) -> None:
    (tmp_path / "sandbox").symlink_to("/etc")
    server, now = served_by(str(tmp_path)), [1000.0]
    monkeypatch.setattr(tool_bridge, "monotonic", lambda: now[0])
    for _ in range(100):
        server._start()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == tool_bridge.TOLD_MAX
    assert [line.endswith("More of the kind isn't told for some minutes.") for line in lines] == [
        *[False] * (tool_bridge.TOLD_MAX - 1), True,
    ]  # fmt: skip
    now[0] += tool_bridge.TOLD_S
    server._start()
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_a_tools_server_that_cannot_be_watched_is_ended(tmp_path, monkeypatch, capfd) -> None:
    started: list[int] = []

    def none_left(pid: int) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    server = served_by(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "pidfd_open", none_left)
    server._start()
    assert server.process is None
    assert "can't be started: Too many open files" in capfd.readouterr().err
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)  # it was reaped


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("yes", None),
        ("no", "the person refused"),
        ("silence", "nobody answered"),
        ("enough", "too many"),
        ("Yes", "too many"),
    ],
)
def test_a_yes_alone_lets_a_call_go_on(monkeypatch, said: str, why: str | None) -> None:
    server = served_by("/nowhere")
    told: list[tuple[bool, str]] = []
    monkeypatch.setattr(server._hub, "answered", lambda _, yes, why, **__: told.append((yes, why)))
    server._answered(1, said)
    ((yes, words),) = told
    assert yes is (why is None)
    assert why is None or why in words
