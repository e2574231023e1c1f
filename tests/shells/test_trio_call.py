"""The trio shell, held to what the tests of its twin ask beyond the common ones."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from proto.commands import CLIENT, Close
from proto.events import Cause, Closed
from proto.script import Script
from shells import trio_jobs, trio_shell
from tests.shells import test_trio_shell
from tests.shells import test_uvloop_shell as twin
from tests.shells.test_trio_shell import SOON_S, World, soon, world  # noqa: F401  # a fixture
from tests.shells.test_uvloop_shell import PROGRAM, tunnels  # noqa: F401  # a fixture

OF_THE_TWIN_ALONE = {
    "test_a_deadline_further_off_than_a_sweep_is_kept",  # trio's own timers need no sweep
    "test_a_close_of_a_peer_that_talks_on_lets_others_have_their_turn",  # below
    "test_a_signal_ends_every_call_with_its_last_line",  # below
}

# (The twin's module holds all of ours too, on its own shell.)
globals().update(
    {
        name: test
        for name, test in vars(twin).items()
        if name.startswith("test_")
        and name not in OF_THE_TWIN_ALONE
        and name not in vars(test_trio_shell)
    }
)


@pytest.fixture(autouse=True)
def _this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin, "serve", trio_shell.serve)


def test_a_close_of_a_peer_that_talks_on_lets_others_have_their_turn(
    world: World,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trio_jobs, "DRAINS_A_TURN", 1)

    def script(world: World) -> Script[None]:
        yield from world.ask(Close(CLIENT, soon()))

    world.client.sendall(bytes(300_000))
    world.client.shutdown(socket.SHUT_WR)
    world.start(script)
    (event,) = world.end()
    assert isinstance(event, Closed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_every_call_with_its_last_line(number: signal.Signals) -> None:
    program = PROGRAM.replace("uvloop_shell", "trio_shell")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as proxy:
        assert proxy.stdout is not None
        with socket.create_connection(
            ("127.0.0.1", int(proxy.stdout.readline())), SOON_S
        ) as client:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            proxy.send_signal(number)
            _, lines = proxy.communicate(timeout=SOON_S)
            assert client.recv(1) == b""
    assert proxy.returncode == 0
    assert lines.count(Cause.SHUTDOWN.value) == 1
