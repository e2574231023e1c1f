"""A tool's server ends with its wire, however that ends: `sandbox/cli/tool_ends.py`."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from sandbox.cli import tool_ends
from sandbox.cli.tool_ends import Started, end_all
from tests.sandbox import lnk
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


def test_a_guard_holds_nothing_of_its_bridges() -> None:
    reads, writes = os.pipe()
    with a_server("-c", "import time; time.sleep(1000)") as started:
        os.close(writes)
        assert os.read(reads, 1) == b"", "or this would wait for good"
        end_all([started])
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
