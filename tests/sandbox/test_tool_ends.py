"""A tool's server ends with its wire, however that ends: `sandbox/cli/tool_ends.py`."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto.verbs.mcp_effects import Start, Stop, Write
from sandbox.cli import tool_bridge, tool_ends
from sandbox.cli.bridge import Told
from sandbox.cli.bridge_parts import Asker
from sandbox.cli.tool_bridge import Server
from sandbox.cli.tool_ends import Ending, Started
from sandbox.route import Tool
from shells.poll_loop import Loop
from tests.sandbox import lnk
from tests.sandbox.loops import TOLD, turn
from tests.sandbox.test_tools import CLIENT

STUBBORN = """\
import json, os, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"])
with open(sys.argv[1], "w") as file:
    print(os.getpid(), child.pid, os.getppid(), file=file)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
time.sleep(1000)
"""
"""A server that ends for nothing, and has started another process."""


def until_gone(*pids: int) -> None:
    until = time.monotonic() + lnk.LONG_S
    while any(map(lives, pids)):
        assert time.monotonic() < until, [pid for pid in pids if lives(pid)]
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("killed", ["nothing", "the launcher", "the bridge"])
def test_a_server_that_ends_for_nothing_ends_with_its_wire(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, killed: str
) -> None:
    server, noted = f"{ordinary_folder}/server.py", f"{ordinary_folder}/pids"
    with open(server, "w") as file:
        file.write(STUBBORN)
    spec = f"{ordinary_folder}/box.toml"
    with open(spec, "w") as file:
        file.write('[tools]\nuse = ["stubborn"]\n')
    added = installed.run(ordinary, "tool", "add", "stubborn", "--", "python3", server, noted)
    assert added.returncode == 0, added.stderr
    script = CLIENT.replace("NOTES", "STUBBORN") + "begin(); print(1, flush=True); input()"
    words = ["run", "--yes", "--spec", spec, "--", "/usr/bin/python3", "-c", script]
    try:
        with lnk.popen(
            ordinary, installed.argv(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as run:
            assert run.stdout
            assert run.stdout.readline() == "1\n"
            with open(noted) as file:
                pid, child, bridge = map(int, file.read().split())
            if killed == "the launcher":
                run.kill()
            elif killed == "the bridge":
                os.kill(bridge, signal.SIGKILL)
                until_gone(pid, child)
        until_gone(pid, child)
    finally:
        installed.run(ordinary, "tool", "remove", "stubborn")


@contextlib.contextmanager
def a_server(*words: str) -> Iterator[Started]:
    pid = os.posix_spawn(sys.executable, [sys.executable, *words], {}, setpgroup=0)
    started = Started(pid)
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def ends(started: Started) -> None:
    """Wait until a server has ended."""
    loop, gone = Loop(), list[bool]()
    Ending(loop, started, lambda: gone.append(True))
    turn(loop, lambda: bool(gone))


IGNORES = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""


def test_while_a_server_ends_for_nothing_all_else_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_ends, "END_S", 0.2)
    loop, seen = Loop(), list[str]()
    with a_server("-c", IGNORES) as started:
        Ending(loop, started, lambda: seen.append("ended"))
        loop.after(0, lambda: seen.append("another tool"))
        assert lives(started.pid)
        turn(loop, lambda: len(seen) == 2)
        assert seen == ["another tool", "ended"]
        assert not os.path.exists(f"/proc/{started.pid}"), "it was reaped"


def test_what_was_told_of_another_descriptor_ends_nothing() -> None:
    loop, gone = Loop(), list[bool]()
    with a_server("-c", "import time; time.sleep(1000)") as started:
        Ending(loop, started, lambda: gone.append(True))
        loop._watched[started.pidfd](select.POLLIN)
        assert not gone
        os.kill(started.pid, signal.SIGKILL)
        turn(loop, lambda: bool(gone))


def test_a_server_that_no_signal_ends_is_left_to_its_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_ends, "END_S", 0.01)
    monkeypatch.setattr(tool_ends, "STEPS", (0, 0))
    with a_server("-c", "import time; time.sleep(1000)") as started:
        loop, gone = Loop(), list[bool]()
        Ending(loop, started, lambda: gone.append(True))
        turn(loop, lambda: bool(gone))
        assert not loop._watched
        until_gone(started.pid)
        os.waitpid(started.pid, 0)


NOTES_ITSELF = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lines = [sys.stdin.readline()]
others = open(sys.argv[1]).read().split()
alive = [pid for pid in others if os.path.exists(f"/proc/{pid}")]
with open(sys.argv[1], "a") as notes:
    print(os.getpid(), file=notes)
with open(sys.argv[1] + ".said", "a") as said:
    print(len(alive), lines[0].strip(), file=said, flush=True)
while True:
    signal.pause()
"""


def test_a_server_is_started_again_once_the_last_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_ends, "END_S", 0.2)
    notes, said = tmp_path / "pids", tmp_path / "pids.said"
    notes.touch()
    said.touch()
    loop = Loop()
    told = Told({**TOLD, "state": None})
    argv = (sys.executable, "-c", NOTES_ITSELF, str(notes))
    tool = Tool(name="notes", argv=argv, ask="all", allow=())
    server = Server(loop, told, tool, Asker(loop, told))
    for number in range(3):
        server._do(Start())
        server._do(Write(b"%d\n" % number))
        turn(loop, lambda number=number: said.read_text().count("\n") == number + 1)
        server._do(Stop("of a test."))
    server._do(Start())
    server._do(Write(b"3\n"))
    server._do(Stop("of a test."))  # before it has begun
    turn(loop, lambda: not server._ends)
    assert said.read_text().split("\n") == ["0 0", "0 1", "0 2", ""]
    assert server.process is None
    assert not any(map(lives, map(int, notes.read_text().split())))


def test_what_waits_for_a_server_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_bridge, "EARLY_MAX_BYTES", 10)
    loop, told = Loop(), Told({**TOLD, "state": None})
    tool = Tool(name="notes", argv=("/bin/cat",), ask="all", allow=())
    server = Server(loop, told, tool, Asker(loop, told))
    server._ends = True
    server._do(Start())
    server._do(Write(b"0123456789"))
    assert server._early == b"0123456789"
    server._do(Write(b"0"))
    assert server._early is None


def test_a_guard_holds_nothing_of_its_bridges() -> None:
    reads, writes = os.pipe()
    with a_server("-c", "import time; time.sleep(1000)") as started:
        os.close(writes)
        assert os.read(reads, 1) == b"", "or this would wait for good"
        ends(started)
        assert not lives(started.pid)
    os.close(reads)


def test_where_no_guard_can_be_made_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise OSError(errno.EAGAIN, "no processes")

    before = len(os.listdir("/proc/self/fd"))
    pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}, setpgroup=0)
    monkeypatch.setattr(tool_ends.os, "fork", fork)
    with pytest.raises(OSError, match="no processes"):
        Started(pid)
    assert not os.path.exists(f"/proc/{pid}")
    assert len(os.listdir("/proc/self/fd")) == before
