"""Bridges as processes: started at the first call, again once they are dead, gone with the wire."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from shells import bridges as room
from shells.bridges import Bridges, Program

WAIT_MS = 60_000
SERVES = """\
import json, os, socket
door = socket.socket(fileno=3)
while True:
    call, _ = door.accept()
    told = {"pid": os.getpid(), "cwd": os.getcwd(), "environ": dict(os.environ),
            "fds": sorted(fd for fd in map(int, os.listdir("/proc/self/fd")) if fd < 200),
            "group": os.getpgrp(), "said": os.read(0, 100).decode() if %d else ""}
    call.sendall(json.dumps(told).encode())
    call.close()
"""
ENDS = "import os, socket; door = socket.socket(fileno=3); os.read(0, 100); os.read(0, 1)"
STUBBORN = "import socket, time; door = socket.socket(fileno=3)\nwhile True: door.accept()"
DIES = "import socket; socket.socket(fileno=3).accept()"
NEVER = "raise SystemExit(1)"


def program(code: str, given: int | None = None) -> Program:
    return Program((sys.executable, "-I", "-S", "-c", code), b'{"link": 1}\n', given)


class Stage:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.made: list[Bridges] = []

    def bridges(self, *, group: int = 0, **programs: Program) -> Bridges:
        self.made.append(Bridges(programs, group=group, say=self.said.append))
        return self.made[-1]


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    for each in made.made:
        each.close()


def ask(bridges: Bridges, name: str = "a") -> dict:
    """Call a bridge and return what it says of itself; {} where it says nothing."""
    with bridges.connect(name) as sock:
        sock.settimeout(WAIT_MS / 1000)
        data = b""
        try:
            while piece := sock.recv(65536):
                data += piece
        except ConnectionResetError:
            return {}
    return json.loads(data) if data else {}


def is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Wait until a process has ended; False if it doesn't."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    try:
        return bool(waiting.poll(WAIT_MS))
    finally:
        os.close(process)


def test_a_bridge_is_started_at_the_first_call_and_stays(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(room, "FOLDERS", (str(tmp_path),))
    bridges = stage.bridges(a=program(SERVES % 0))
    first, second = ask(bridges), ask(bridges)
    assert first["pid"] == second["pid"]
    assert list(tmp_path.iterdir()) == []
    assert stage.said == []


def test_it_has_its_own_descriptors_and_nothing_of_the_wires_environment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")  # where every wire is
    kept = os.open("/dev/null", os.O_RDONLY)
    given = os.memfd_create("given", os.MFD_CLOEXEC)
    os.write(given, b"keys")
    try:
        told = ask(stage.bridges(a=program(SERVES % 1, given)))
    finally:
        os.close(kept)
        os.close(given)
    assert told["said"] == '{"link": 1}\n'
    assert told["environ"] == {} or set(told["environ"]) <= {"LC_CTYPE"}
    assert told["cwd"] == "/"
    ours = {fd for fd in map(int, os.listdir("/proc/self/fd")) if is_inheritable(fd)}
    # and the call, and the listing's own
    assert set(told["fds"]) - ours <= {0, 1, 2, 3, 4, 5, 6, 7}
    assert {0, 1, 2, 3, 4} <= set(told["fds"])
    assert told["group"] == told["pid"]


def test_a_dead_one_is_started_again_at_the_next_call(stage: Stage) -> None:
    bridges = stage.bridges(a=program(SERVES % 0))
    first = ask(bridges)["pid"]
    os.kill(first, signal.SIGKILL)
    assert gone(first)
    second = ask(bridges)["pid"]
    assert second != first
    assert stage.said == ["the bridge a ended; it is started again."]
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)  # it was reaped


def test_who_waits_for_one_that_dies_is_told_at_once(stage: Stage) -> None:
    bridges = stage.bridges(a=program(DIES))
    first, second = bridges.connect("a"), bridges.connect("a")
    for sock in (first, second):
        sock.settimeout(WAIT_MS / 1000)
        with sock, suppress(ConnectionResetError):
            assert sock.recv(1) == b""


def test_one_that_never_lives_is_refused_and_not_started_without_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "STARTS_A_MINUTE", 3)
    bridges = stage.bridges(a=program(NEVER))
    started = 0
    for _ in range(50):
        try:
            with bridges.connect("a") as sock:
                sock.settimeout(WAIT_MS / 1000)
                with suppress(ConnectionResetError):
                    sock.recv(1)
        except ConnectionRefusedError:
            started += 1
    assert started > 40
    assert len(stage.said) <= 3


def test_one_that_is_not_there_is_refused(stage: Stage) -> None:
    with pytest.raises(ConnectionRefusedError):
        stage.bridges().connect("a")


def test_a_program_that_is_not_there_is_told_of(stage: Stage) -> None:
    bridges = stage.bridges(a=Program(("/nowhere/program",), b"\n"))
    fds = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        bridges.connect("a")
    assert stage.said == ["the bridge a can't be started: No such file or directory."]
    assert len(os.listdir("/proc/self/fd")) == fds


@pytest.mark.parametrize("at", range(3))
def test_where_descriptors_run_out_none_is_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    real, made = fcntl.fcntl, count()

    def dup(fd: int, what: int, number: int) -> int:
        if next(made) == at:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(fd, what, number)

    monkeypatch.setattr(fcntl, "fcntl", dup)
    fds = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Too many"):
        stage.bridges(a=program(ENDS)).connect("a")
    assert len(os.listdir("/proc/self/fd")) == fds


def test_a_bridge_that_cannot_be_watched_is_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def none_left(pid: int) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    with pytest.raises(OSError, match="Too many"):
        stage.bridges(a=program(STUBBORN)).connect("a")
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)  # it was reaped


def test_bridges_end_with_their_wire(stage: Stage) -> None:
    bridges = stage.bridges(good=program(ENDS), stubborn=program(STUBBORN))
    socks = [bridges.connect(name) for name in ("good", "stubborn")]
    pids = [bridges._running[name].pid for name in ("good", "stubborn")]
    bridges.close()
    assert all(map(gone, pids))
    for sock in socks:
        sock.close()
    bridges.close()


def test_a_bridge_ends_when_its_wire_is_killed() -> None:
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            bridges = Bridges({"a": program(ENDS)}, say=lambda _: None)
            bridges.connect("a")
            os.write(tell, b"%d" % bridges._running["a"].pid)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.close(tell)
    os.waitpid(pid, 0)
    assert gone(int(os.read(told, 20)))
    os.close(told)


def test_it_is_started_in_the_group_that_ends_with_the_sandbox(stage: Stage) -> None:
    keeper = os.posix_spawn("/bin/sleep", ["sleep", "60"], {}, setpgroup=0)
    try:
        told = ask(stage.bridges(group=keeper, a=program(SERVES % 0)))
        assert told["group"] == keeper
        os.killpg(keeper, signal.SIGKILL)
        assert gone(told["pid"])
    finally:
        os.waitpid(keeper, 0)


def test_one_that_runs_already_is_reached_at_its_socket(stage: Stage, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    bridges = Bridges({}, {"a": path}, say=stage.said.append)
    with pytest.raises(FileNotFoundError):
        bridges.connect("a")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(0)
        with bridges.connect("a") as sock:
            assert not sock.getblocking()
            with pytest.raises(BlockingIOError):
                bridges.connect("a")  # its queue is full
    with pytest.raises(ConnectionRefusedError):
        bridges.connect("a")
    bridges.close()


def test_where_no_folder_can_hold_a_socket_for_a_moment_there_is_an_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "FOLDERS", ("/proc/nowhere", "/sys"))
    with pytest.raises((FileNotFoundError, PermissionError)):
        stage.bridges(a=program(SERVES % 0)).connect("a")
    monkeypatch.setattr(room, "FOLDERS", ("/proc/nowhere", "/dev/shm"))
    assert ask(stage.bridges(a=program(SERVES % 0)))
