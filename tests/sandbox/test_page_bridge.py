"""Pages that are asked for, and the ports of their answers: `sandbox/cli/page_bridge.py`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from proto.codecs.http1 import RequestHead, RequestReader
from sandbox.cli import callback, page_bridge
from sandbox.cli.bridge import Told
from sandbox.cli.bridge_parts import UNANSWERED_MAX, Asker
from sandbox.cli.page_bridge import WAITING_MAX, Pages
from shells.poll_loop import Loop
from tests.sandbox.test_asker import TOLD


class Caller:
    """A connection of the proxy's, as the bridge of pages needs it."""

    def __init__(self) -> None:
        self.status = 0

    def refuse(self, status: int, _: str) -> None:
        self.status = status

    def answer(self, status: int, _: str) -> None:
        self.status = status


@pytest.fixture
def pages(monkeypatch) -> Iterator[Pages]:
    """Pages whose questions nobody answers."""
    monkeypatch.setattr(Asker, "_start", lambda *_: None)
    made = Pages(Loop(), Told(TOLD))
    yield made
    made.end()


def head() -> RequestHead:
    found = RequestReader().feed(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert found is not None
    return found[0]


def ask(pages: Pages, port: int) -> tuple[int, Callable[[], None]]:
    caller = Caller()
    body = f"https://login.example/?redirect_uri=http://localhost:{port}/".encode()
    left = pages.call(caller, head(), body)  # type: ignore[arg-type]
    return caller.status, left


@pytest.fixture
def port() -> Iterator[tuple[socket.socket, int]]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock, sock.getsockname()[1]


def test_a_program_cant_try_every_port_of_the_machine(pages, port) -> None:
    _, taken = port
    for _ in range(UNANSWERED_MAX):
        assert ask(pages, taken)[0] == 409
    assert ask(pages, taken)[0] == 403


def test_nor_by_taking_its_questions_back(pages, port) -> None:
    sock, free = port
    sock.close()
    for _ in range(UNANSWERED_MAX):
        status, left = ask(pages, free)
        assert status == 0
        left()
    assert ask(pages, free)[0] == 403
    with socket.socket() as again:  # and none is held any more
        again.bind(("127.0.0.1", free))


def test_of_a_thousand_pages_at_once_a_few_wait_and_the_rest_is_refused(pages) -> None:
    callers = [Caller() for _ in range(1000)]
    for caller in callers:
        pages.call(caller, head(), b"https://example.com/")
    assert [caller.status for caller in callers] == [0] * WAITING_MAX + [403] * (1000 - WAITING_MAX)


@pytest.mark.parametrize(
    "request_",
    [b"GET / HTTP/1.1\r\n", b"POST /x HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nOrigin: null\r\n"],
)
def test_a_page_is_asked_for_in_one_way_and_by_no_page(pages, request_) -> None:
    found = RequestReader().feed(request_ + b"Host: x\r\n\r\n")
    assert found is not None
    caller = Caller()
    pages.call(caller, found[0], b"https://example.com/")
    assert caller.status == 403


@pytest.mark.parametrize("said", ["yes", "no", "silence", "enough", "YES"])
def test_a_yes_alone_opens_a_page_and_listens_for_five_minutes(monkeypatch, port, said) -> None:
    sock, free = port
    sock.close()
    opened: list[str] = []
    listened: list[float] = []
    monkeypatch.setattr(page_bridge, "open_page", lambda _, url, *__: opened.append(url))
    monkeypatch.setattr(callback.Port, "listen", lambda _, seconds: listened.append(seconds))
    monkeypatch.setattr(Asker, "ask", lambda _, __, ___, then: then(said))
    made = Pages(Loop(), Told(TOLD))
    status, _ = ask(made, free)
    yes = said == "yes"
    assert (len(opened), listened, status) == ((1, [300.0], 0) if yes else (0, [], 403))
    assert len(made._callbacks._ports) == yes
    made.end()
