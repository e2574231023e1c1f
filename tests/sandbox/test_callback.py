"""A login's answer at its port: `sandbox/cli/callback.py`."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from proto.verbs.open_page import Callback
from sandbox.cli.bridge import Told
from sandbox.cli.callback import ADDRESSES, Answer, Callbacks, bound
from shells.poll_loop import Loop
from tests.sandbox.loops import TOLD, turn


class AtPort:
    """What an answer knows of its port; `program` is the other end of the way in."""

    def __init__(self) -> None:
        self.callback = Callback(8000, "/cb")
        self.taken = self.closed = False
        self.way, self.program = socket.socketpair()

    def inward(self) -> socket.socket:
        return self.way

    def close(self) -> None:
        self.closed = True

    def over(self, _: Any) -> None:
        return


REQUEST = b"GET /cb?code=1 HTTP/1.1\r\nHost: localhost:8000\r\nCookie: notebook=SECRET\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"\r\n\r\nhi"),
        (b"HTTP/1.1 302 Go\r\nLocation: http://192.168.1.1/\r\n\r\n", b"close this page.\n"),
        (b"no HTTP\r\n", b"doesn't listen.\n"),
        (b"", b"doesn't listen.\n"),
    ],
)
def test_the_code_comes_in_alone_and_text_alone_goes_out(said: bytes, shown: bytes) -> None:
    loop, port = Loop(), AtPort()
    browser, theirs = socket.socketpair()
    with browser, port.program:
        Answer(loop, theirs.detach(), port)  # type: ignore[arg-type]
        browser.sendall(REQUEST)
        loop.after(0.05, loop.stop)
        loop.run()
        got = port.program.recv(4096)
        assert got.startswith(b"GET /cb?code=1 HTTP/1.1\r\n")
        assert b"SECRET" not in got
        port.program.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + said)
        port.program.shutdown(socket.SHUT_WR)
        loop._running = True
        loop.after(0.05, loop.stop)
        loop.run()
        page = b""
        while piece := browser.recv(4096):
            page += piece
        assert page.endswith(shown)
        assert page.count(b"HTTP/1.1 ") == 1
        assert b"192.168" not in page


def test_where_nobody_can_be_reached_the_port_is_let_go_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(_: AtPort) -> socket.socket:
        raise ConnectionRefusedError

    monkeypatch.setattr(AtPort, "inward", none)
    loop, port = Loop(), AtPort()
    browser, theirs = socket.socketpair()
    with browser, port.program, port.way:
        Answer(loop, theirs.detach(), port)  # type: ignore[arg-type]
        browser.sendall(REQUEST)
        turn(loop, lambda: port.closed)
        assert browser.recv(4096).startswith(b"HTTP/1.1 502 ")


def test_a_port_is_held_from_the_question_on_and_let_go_when_its_time_is_over() -> None:
    loop = Loop()
    with bound(*ADDRESSES[0], 0) as sock:
        number = sock.getsockname()[1]
    callbacks = Callbacks(loop, Told(TOLD))
    port = callbacks.hold(Callback(number, "/cb"))
    for family, address in ADDRESSES:
        with pytest.raises(OSError, match="in use"):
            bound(family, address, number)
    with pytest.raises(OSError, match="refused"):  # nobody listens before the page may open
        socket.create_connection(("127.0.0.1", number))
    port.listen(0.02)
    socket.create_connection(("127.0.0.1", number)).close()
    turn(loop, lambda: not callbacks._ports and not port._calls)
    for family, address in ADDRESSES:
        bound(family, address, number).close()
