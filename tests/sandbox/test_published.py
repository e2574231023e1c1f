"""The published counters (`sandbox/published.py`), and the notification of a pause."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import notify as notifying
from sandbox import published
from sandbox.errors import LaunchError, Unavailable
from sandbox.published import Publication, start_of, sweep, traffic
from sandbox.state import State


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(str(tmp_path / "lnk"))


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is there, and not us."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def folder(state: State) -> Path:
    return Path(state.path, "traffic")


def written(state: State, name: str, **fields: object) -> None:
    state.write(json.dumps(fields).encode(), "traffic", name)


def read(state: State) -> list[dict[str, object]]:
    return [one.as_json() for one in traffic(state.settings)]


def test_what_a_process_publishes_is_read_while_it_runs(state: State) -> None:
    one = Publication(state)
    one.put(sandbox="run-12", up=0, down=0)
    one.put(sandbox="run-12", up=12, down=1 << 40)
    assert read(state) == [{"pid": os.getpid(), "sandbox": "run-12", "up": 12, "down": 1 << 40}]
    file = folder(state) / f"{os.getpid()}.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    fields = json.loads(file.read_text())
    assert fields["start"] == start_of(os.getpid())
    one.withdraw()
    assert os.listdir(folder(state)) == []
    assert read(state) == []
    one.withdraw()  # it is gone, which is no error


def test_what_did_not_change_is_not_written_again(state: State) -> None:
    one = Publication(state)
    one.put(sandbox="box", up=1, down=2)
    inode = (folder(state) / f"{os.getpid()}.json").stat().st_ino
    one.put(sandbox="box", up=1, down=2)
    assert (folder(state) / f"{os.getpid()}.json").stat().st_ino == inode
    one.put(sandbox="box", up=1, down=3)
    assert (folder(state) / f"{os.getpid()}.json").stat().st_ino != inode


def test_what_a_bridge_counts_stands_beside_it_and_is_no_traffic(state: State) -> None:
    tokens = Publication(state, "tokens")
    tokens.put(requests=3, unmetered=0, input=10, output=2, cached=4, written=0)
    assert read(state) == []
    name = f"{os.getpid()}.tokens.json"
    assert published.read(state, name) == {
        "pid": os.getpid(), "start": start_of(os.getpid()), "requests": 3, "unmetered": 0,
        "input": 10, "output": 2, "cached": 4, "written": 0,
    }  # fmt: skip
    sweep(state)
    assert os.listdir(folder(state)) == [name]


def test_missing_counters_are_none_and_reading_makes_nothing(state: State, tmp_path: Path) -> None:
    assert read(state) == []
    assert os.listdir(tmp_path) == []
    sweep(state)
    assert os.listdir(tmp_path) == []


def test_a_number_that_another_process_has_by_now_is_not_it(
    state: State, other: subprocess.Popen[bytes]
) -> None:
    pid, start = other.pid, start_of(other.pid)
    assert start is not None
    boot, _, ticks = start.partition(":")
    stale = (f"{boot}:{int(ticks) - 1}", f"{boot[::-1]}:{ticks}", "", None, 7)
    for marker in stale:
        written(state, f"{pid}.json", pid=pid, start=marker, sandbox="x", up=1, down=2)
        assert read(state) == []
        assert os.listdir(folder(state)) == [f"{pid}.json"]  # whoever reads changes nothing
        sweep(state)
        assert os.listdir(folder(state)) == []
    written(state, f"{pid}.json", pid=pid, start=start, sandbox="x", up=1, down=2)
    sweep(state)
    assert [one["pid"] for one in read(state)] == [pid]


def test_one_that_ended_is_gone_even_before_it_is_waited_for(state: State) -> None:
    ended = subprocess.Popen(["true"], stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert start_of(ended.pid) is None
    ended.wait()
    assert start_of(ended.pid) is None


def test_the_next_one_takes_away_what_was_killed_left_behind(state: State) -> None:
    code = (
        "import sys, signal; from sandbox.published import Publication\n"
        "from sandbox.state import State\n"
        f"Publication(State({state.settings!r})).put(sandbox='box', up=1, down=2)\n"
        "print('there', flush=True); signal.pause()"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"there\n"
    assert [one["pid"] for one in read(state)] == [killed.pid]
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    (folder(state) / f".{killed.pid}.json.00aa").write_text("{")  # it was writing again
    (folder(state) / f".{os.getpid()}.json.00aa").write_text("{")  # and we are
    (folder(state) / "notes.txt").write_text("a person's")
    (folder(state) / "12.json").mkdir()
    assert read(state) == []
    sweep(state)
    left = {f".{os.getpid()}.json.00aa", "notes.txt", "12.json"}
    assert set(os.listdir(folder(state))) == left


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"3", b'{"pid": "x"}', b"[" * 100_000, b'{"pid": true, "start": 1}'],
)
def test_what_is_no_record_is_none(state: State, data: bytes) -> None:
    state.write(data, "traffic", f"{os.getpid()}.json")
    assert read(state) == []


def test_a_record_of_another_shape_is_no_traffic(state: State) -> None:
    pid, start = os.getpid(), start_of(os.getpid())
    written(state, f"{pid}.json", pid=pid, start=start, sandbox="x", up="many", down=2)
    assert read(state) == []
    written(state, "1.json", pid=pid, start=start, sandbox="x", up=1, down=2)
    assert read(state) == []


def test_settings_that_others_can_change_are_unavailable(state: State) -> None:
    state.folder("traffic")
    os.chmod(folder(state), 0o777)
    with pytest.raises(Unavailable, match="can be written by others"):
        traffic(state.settings)
    with pytest.raises(LaunchError):
        Publication(state).put(up=1)


def test_settings_that_can_not_be_read_are_unavailable(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.folder("traffic")

    def names(*_: str) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(State, "names", names)
    with pytest.raises(Unavailable, match="Input/output error"):
        traffic(state.settings)


# -- the notification ------------------------------------------------------------------------


@pytest.fixture
def desktop(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A notify-send that writes down what it is given, and a session bus's socket."""
    program, run = tmp_path / "notify-send", tmp_path / "run"
    program.write_text('#!/bin/sh\nenv > "$0.env"\nprintf "%s\\n" "$@" > "$0.words"\n')
    program.chmod(0o755)
    (run / str(os.geteuid())).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as bus:
        bus.bind(str(run / str(os.geteuid()) / "bus"))
        yield {"program": str(program), "run": str(run)}


def test_a_notification_gets_words_and_an_environment_of_ours_alone(
    desktop: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD_NOT", "theirs")
    command = notifying.command_for("The wire of box is paused", "--why\nnot", **desktop)
    assert command is not None
    notifying._show(*command)
    words = Path(desktop["program"] + ".words").read_text()
    assert words.endswith("\n--\nThe wire of box is paused\n--why\nnot\n")
    variables = dict(
        line.partition("=")[::2]
        for line in Path(desktop["program"] + ".env").read_text().splitlines()
    )
    assert set(variables) - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "PATH", "LANG",
    }  # fmt: skip


def test_it_is_shown_by_a_thread_that_nobody_waits_for(
    desktop: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = threading.Event()
    monkeypatch.setattr(notifying, "command_for", lambda *_: ([], {}))
    monkeypatch.setattr(notifying, "_show", lambda *_: shown.set())
    notifying.notify("a", "b")
    assert shown.wait(110)


def test_a_desktop_that_fails_is_no_error() -> None:
    notifying._show(["/nowhere/notify-send"], {})
    notifying._show(["/bin/false"], {})


def test_where_there_is_no_desktop_nothing_is_shown(
    desktop: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert notifying.command_for("a", "b", **{**desktop, "run": "/nowhere"}) is None
    assert notifying.command_for("a", "b", **{**desktop, "program": "/nowhere"}) is None
    os.chmod(desktop["program"], 0o777)  # others could put theirs in its place
    assert notifying.command_for("a", "b", **desktop) is None
    os.chmod(desktop["program"], 0o644)
    assert notifying.command_for("a", "b", **desktop) is None
    os.chmod(desktop["program"], 0o755)
    os.chown(desktop["program"], 12345, 12345)
    assert notifying.command_for("a", "b", **desktop) is None
    os.chown(desktop["program"], 0, 0)
    bus = Path(desktop["run"], str(os.geteuid()), "bus")
    bus.unlink()
    bus.write_text("no socket")
    assert notifying.command_for("a", "b", **desktop) is None
    monkeypatch.setattr(notifying, "command_for", lambda *_: None)
    notifying.notify("a", "b")
