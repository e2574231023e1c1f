"""The socket maker: sockets in a sandbox's network, made from outside for as long as it lives."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import threading

import pytest

from sandbox.errors import LaunchError
from sandbox.linux import socket_maker
from sandbox.linux.socket_maker import Maker, MakerClient
from tests.sandbox import lnk

SCRIPT = os.path.join(os.path.dirname(__file__), "making.py")


def making(installed: lnk.Installed, who: lnk.Account, *more: str) -> dict[str, object]:
    with open(SCRIPT) as file:
        script = file.read()
    argv = [installed.python, "-I", "-S", "-c", script, installed.folder, shutil.which("bwrap")]
    done = lnk.run(who, [*argv, *more])
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_sockets_are_made_inside_for_as_long_as_the_sandbox_lives(installed, who):
    found = making(installed, who)
    assert found["first"] == ["127.0.0.1", 40781]
    assert found["listens"] == ["127.53.0.1", 5432]
    assert found["udp"] == ["127.0.0.1", 53]  # a port that the program itself can't have
    assert found["accepted"] == "to the endpoint"
    assert found["connected in"] == "from outside"
    assert found["asked"] == "answer to question"


def test_what_is_handed_over_reaches_no_program_and_stops_no_loop(installed, who):
    found = making(installed, who)
    assert (found["cloexec"], found["blocks"]) == (True, False)


def test_the_maker_keeps_nothing_but_its_end(installed, who):
    assert making(installed, who)["held"] == 1


def test_what_cannot_be_made_is_an_error_and_the_next_request_is_answered(installed, who):
    found = making(installed, who)
    assert found["taken"] == os.strerror(errno.EADDRINUSE)
    for name in ("outside", "port", "name", "strange", "long"):
        assert found[name] == os.strerror(errno.EINVAL), name


def test_a_maker_that_has_ended_is_an_error(installed, who):
    assert making(installed, who, "end")["ended"] == os.strerror(errno.EPIPE)


@pytest.fixture
def ends():
    ours, its = socket_maker.pair()
    inside = MakerClient(ours)
    with socket.socket(fileno=its) as maker:
        yield inside, maker
    inside._maker.close()


def test_a_maker_that_does_not_answer_is_given_up_for_good(ends, monkeypatch):
    """Its late answer would be taken for the next request's: another name's socket."""
    inside, maker = ends
    inside._maker.settimeout(0.05)
    with pytest.raises(BrokenPipeError):
        inside.listener("127.0.0.1", 1)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        inside.listener("127.0.0.1", 2)
    assert maker.recv(100) == b"tcp 127.0.0.1 1"


def test_a_sandbox_that_never_was_is_a_broken_pipe(ends):
    inside, maker = ends
    maker.shutdown(socket.SHUT_RDWR)
    with pytest.raises(BrokenPipeError):
        inside.first()


def test_a_wire_may_have_no_listener_of_its_own(ends):
    inside, maker = ends
    Maker(maker).answer(0, None)
    assert inside.first() is None


def test_a_request_that_nobody_waits_for_does_not_hold_up_the_maker(ends):
    inside, maker = ends
    maker.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
    serving = Maker(maker)

    def ask():
        for _ in range(2000):
            inside._maker.send(b"no request")

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(2000):
        assert serving.serve()
    asking.join()


def test_served_ports_are_on_the_loopback_and_refused_where_they_are_taken():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (made,) = socket_maker.serve_outside([port])
    with socket.socket(fileno=made) as listener:
        assert listener.getsockname() == ("127.0.0.1", port)
        with pytest.raises(LaunchError, match=f"port {port} of this machine is taken"):
            socket_maker.serve_outside([port])
