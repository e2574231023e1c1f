"""What runs leave behind, and how much of it is kept: `sandbox/runs.py`, `sandbox/marks.py`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox import marks, runs, wires
from sandbox.cli import run as cli_run
from sandbox.marks import mark, unmark
from sandbox.published import Publication, traffic
from sandbox.runs import sweep
from sandbox.state import State
from sandbox.watch import Watch
from tests.sandbox import lnk
from tests.sandbox.test_launcher import alive, family, wait_for

LINE = b'{"time":"2026-01-01T00:00:00.000Z"}\n'


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(str(tmp_path))
    for folder in ("log", "wires", "proxy"):
        made.folder(folder)
    return made


@pytest.fixture
def ended() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def living() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        yield process
        process.kill()


def over(state: State, number: int, text: bytes = LINE, at: int = 0) -> str:
    """Leave the mark and the log of a run that is over, last written to at a time."""
    name = f"run-{number}"
    state.write(b"another-boot:1", "runs", name)
    state.write(text, "log", f"{name}.jsonl")
    os.utime(f"{state.path}/log/{name}.jsonl", (at, at))
    return name


def logs(state: State) -> set[str]:
    return set(state.names("log"))


# -- logs ---------------------------------------------------------------------------------------


def test_the_newest_logs_are_kept_and_the_rest_go_with_their_marks(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LOGS_MOST", 3)
    names = [over(state, number, at=number) for number in range(1, 8)]
    sweep(state)
    assert logs(state) == {f"{name}.jsonl" for name in names[-3:]}
    assert set(state.names("runs")) == set(names[-3:])


def test_no_more_bytes_are_kept_than_that(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LOGS_MAX_BYTES", 3 * len(LINE))
    state.write(LINE, "log", "run-3.jsonl.1")  # what was turned over counts too, and goes too
    for number in (1, 2, 3):
        over(state, number, at=number)
    os.utime(f"{state.path}/log/run-3.jsonl.1", (1, 1))
    sweep(state)
    assert logs(state) == {"run-3.jsonl", "run-3.jsonl.1", "run-2.jsonl"}
    over(state, 4, at=4)
    sweep(state)
    assert logs(state) == {"run-4.jsonl", "run-3.jsonl", "run-3.jsonl.1"}


def test_an_empty_log_is_nobody_s_to_look_for(state: State) -> None:
    over(state, 1, b"")
    kept = over(state, 2)
    sweep(state)
    assert logs(state) == {f"{kept}.jsonl"}
    assert state.names("runs") == [kept]


def test_the_log_of_a_run_that_is_alive_stays(
    state: State, living: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LOGS_MOST", 0)
    alive = over(state, living.pid, b"")
    state.write((marks.start_of(living.pid) or "").encode(), "runs", alive)
    sweep(state)
    assert logs(state) == {f"{alive}.jsonl"}
    assert state.names("runs") == [alive]


def test_a_later_process_of_that_number_is_no_run(
    state: State, living: subprocess.Popen[bytes]
) -> None:
    over(state, living.pid, b"")
    sweep(state)
    assert logs(state) == set()


def test_a_run_whose_launcher_was_killed_is_alive_while_its_proxy_publishes(
    state: State, ended: int
) -> None:
    name = over(state, ended, b"")
    published = Publication(state)
    published.put(sandbox=name, up=0, down=0)
    sweep(state)
    assert logs(state) == {f"{name}.jsonl"}
    published.withdraw()
    sweep(state)
    assert logs(state) == set()


def test_a_named_sandbox_s_log_is_never_touched(
    state: State, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LOGS_MOST", 0)
    over(state, ended)
    names = ("box", "run-box", f"run-{ended + 1}", f"run-{ended}.jsonl", f"run-{ended}.jsonl.1")
    for name in names:
        state.write(b"", "log", f"{name}.jsonl")
    sweep(state)
    assert logs(state) == {f"{name}.jsonl" for name in names}


def test_a_sandbox_that_is_only_called_like_a_run_takes_the_mark_away(
    state: State, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LOGS_MOST", 0)
    name = over(state, ended)
    Watch(state, name, lambda _: None, lambda *_: None).begin()
    assert logs(state) == {f"{name}.jsonl"}
    mark(state, name)  # nor does a run of that number get it, which logs to the same file
    assert state.names("runs") == []
    unmark(state, "box")


def test_a_run_of_a_number_that_one_had_before_is_marked_anew(state: State) -> None:
    name = over(state, os.getpid(), b"")
    mark(state, name)
    sweep(state)
    assert logs(state) == {f"{name}.jsonl"}


def test_where_there_was_no_run_nothing_is_made(tmp_path: Path) -> None:
    settings = tmp_path / "lnk"
    settings.mkdir(0o700)
    sweep(State(str(settings), itself=True))
    assert list(settings.iterdir()) == []


def test_a_proxy_is_published_though_nothing_can_be_swept(state: State, tmp_path: Path) -> None:
    over(state, 1, b"")
    log = Path(state.path, "log")
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    watch = Watch(state, "box", lambda _: None, lambda *_: None)
    watch.begin()
    assert [one.sandbox for one in traffic(state.settings)] == ["box"]
    watch.end()
    assert (tmp_path / "elsewhere" / "run-1.jsonl").exists()


def test_who_finds_the_marks_locked_sweeps_nothing_and_a_run_begins_all_the_same(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "LOCK_S", 0.0)
    name = over(state, 1, b"")
    folder = os.open(state.folder("runs"), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        sweep(state)
        assert logs(state) == {f"{name}.jsonl"}
        with pytest.raises(BlockingIOError):
            mark(state, f"run-{os.getpid()}")
    finally:
        os.close(folder)
    sweep(state)
    assert logs(state) == set()


# -- folders and pauses ----------------------------------------------------------------------------


def socket_in(state: State, above: str, name: str) -> Path:
    folder = Path(state.folder(above, name))
    for each in ("out.sock", "in.sock", ".out.sock.77"):
        (folder / each).touch()
    return folder


def test_folders_of_sockets_go_with_their_runs(
    state: State, ended: int, living: subprocess.Popen[bytes]
) -> None:
    name = over(state, ended)
    gone = [socket_in(state, above, name) for above in ("wires", "proxy")]
    gone.append(socket_in(state, "wires", f"check-{ended}"))
    stay = [
        socket_in(state, "wires", f"check-{living.pid}"),
        socket_in(state, "wires", f"run-{living.pid}"),
        socket_in(state, "proxy", "box"),
        socket_in(state, "proxy", f"run-{ended + 1}"),  # has no mark: a sandbox of that name
    ]
    sweep(state)
    assert [path.exists() for path in gone] == [False] * 3
    assert all((path / "out.sock").exists() for path in stay)


def test_a_folder_that_holds_something_else_stays(state: State, ended: int) -> None:
    folder = socket_in(state, "wires", over(state, ended))
    (folder / "mine").touch()
    (Path(state.path) / "wires" / f"check-{ended}").symlink_to(folder)
    sweep(state)
    assert os.listdir(folder) == ["mine"]
    assert (Path(state.path) / "wires" / f"check-{ended}").is_symlink()


def test_a_killed_run_s_pause_goes_and_a_sandbox_s_stays(state: State, ended: int) -> None:
    for name in (over(state, ended), "box", f"run-{ended + 1}"):
        wires.pause(state, name, "why")
    sweep(state)
    assert state.names("paused") == ["box", f"run-{ended + 1}"]


def begun_elsewhere(state: State, number: int, text: bytes = LINE, at: int = 0) -> str:
    """Leave what `over` does of a run in a container, or on another machine."""
    name = over(state, number, text, at)
    state.write(b"another-boot:1 another-machine pid:[4026531836]", "runs", name)
    return name


def test_of_a_run_elsewhere_nobody_tells_here_that_it_is_over(state: State, ended: int) -> None:
    name, empty = begun_elsewhere(state, ended), begun_elsewhere(state, 1, b"")
    wires.pause(state, name, "why")
    folder = socket_in(state, "wires", name)
    sweep(state)
    assert state.names("paused") == [name], "its wire may be alive, and would be open again"
    assert logs(state) == {f"{name}.jsonl", f"{empty}.jsonl"}
    assert set(state.names("runs")) == {name, empty}
    assert (folder / "out.sock").exists()


def test_the_logs_of_runs_elsewhere_have_the_same_bound(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LOGS_MOST", 2)
    names = [begun_elsewhere(state, number, at=number) for number in range(1, 5)]
    begun_elsewhere(state, 5, b"", at=5)  # counts for none
    wires.pause(state, names[0], "why")
    sweep(state)
    assert logs(state) == {f"{names[2]}.jsonl", f"{names[3]}.jsonl", "run-5.jsonl"}
    assert set(state.names("runs")) == {names[0], names[2], names[3], "run-5"}
    wires.resume(state, names[0])
    sweep(state)
    assert set(state.names("runs")) == {names[2], names[3], "run-5"}


def test_a_mark_says_where_its_run_began(
    state: State, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks.os, "getpid", lambda: ended)
    name = f"run-{ended}"
    mark(state, name)
    wires.pause(state, name, "why")
    monkeypatch.setattr(runs, "place", lambda: "this-machine pid:[4026532999]")
    sweep(state)
    assert state.names("paused") == [name]
    monkeypatch.undo()
    sweep(state)
    assert state.names("paused") == []


@pytest.mark.parametrize("proxy", [None, {}])
def test_marks_have_a_bound_though_no_run_ever_comes_to_have_its_proxy(
    state: State, monkeypatch: pytest.MonkeyPatch, proxy: dict[str, object] | None
) -> None:
    monkeypatch.setattr(marks, "LOGS_MOST", 5)
    monkeypatch.setattr(marks, "start_of", lambda pid: None)
    monkeypatch.setattr(runs, "start_of", lambda pid: None)
    most = 0
    for number in range(1, 40):
        cli_run._begin_log(state, SimpleNamespace(name=f"run-{number}", proxy=proxy))
        most = max(most, len(state.names("runs")))
    assert 5 <= most <= 11


# -- real runs -----------------------------------------------------------------------------------

METADATA = ["/usr/bin/curl", "-s", "-o", "/dev/null", "http://169.254.169.254/"]
CALLS = ["/usr/bin/curl", "-s", "-o", "/dev/null", "http://evil.test/"]


@pytest.fixture
def kept(who: lnk.Account) -> Callable[[str], set[str]]:
    """Return what tells the names in a folder of the account's settings."""

    def look(folder: str) -> set[str]:
        path = Path(who.home) / ".lnk" / "sandbox" / folder
        return set(os.listdir(path)) if path.exists() else set()

    return look


def serving(
    who: lnk.Account, command: list[str], kept: Callable[[str], set[str]], name: str = ""
) -> subprocess.Popen[str]:
    """Start a sandbox of a shell that waits for its input to end; return it once it serves."""
    one = lnk.popen(who, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_for(lambda: (name or f"run-{one.pid}") in published(kept, who))
    return one


def a_run(installed: lnk.Installed) -> list[str]:
    return installed.argv("run", "--yes", "--", "/bin/cat")


def test_a_run_that_called_nothing_leaves_no_log_and_one_that_did_leaves_its_own(
    installed: lnk.Installed, who: lnk.Account, kept: Callable[[str], set[str]]
) -> None:
    with serving(who, a_run(installed), kept) as one:
        empty = f"run-{one.pid}.jsonl"
        assert empty in kept("log")
        one.communicate("")
    assert empty not in kept("log")
    calling = lnk.popen(who, installed.argv("run", "--yes", "--", *CALLS), stderr=subprocess.PIPE)
    calling.communicate(timeout=lnk.LONG_S)
    made = f"run-{calling.pid}.jsonl"
    assert made in kept("log")
    assert made.removesuffix(".jsonl") in kept("runs")
    with serving(who, a_run(installed), kept) as one:
        one.communicate("")
    assert made in kept("log"), "it is within the bound"


def test_a_named_sandbox_keeps_its_empty_log(
    installed: lnk.Installed, who: lnk.Account, kept: Callable[[str], set[str]], folder: str
) -> None:
    proxy = {"upstream": "direct", "dir": f"{folder}-wire", "hosts": []}
    command = installed.wrapped(
        who, ["/bin/cat"], name="quiet", net={"proxied": {"proxy": proxy, "ports": []}}
    )
    with serving(who, command, kept, "quiet") as one:
        one.communicate("")
    assert "quiet.jsonl" in kept("log")


def test_what_a_run_left_that_was_killed_whole_goes_with_the_next_beside_one_that_is_alive(
    installed: lnk.Installed, who: lnk.Account, kept: Callable[[str], set[str]]
) -> None:
    with (
        serving(who, a_run(installed), kept) as killed,
        serving(who, a_run(installed), kept) as alive,
    ):
        name, other = f"run-{killed.pid}", f"run-{alive.pid}"
        all_of_it = family(killed.pid)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none cleans up for another
            for pid in all_of_it:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        killed.communicate()
        assert {name, other} <= kept("wires")
        assert f"{name}.jsonl" in kept("log")
        wait_for(lambda: name not in published(kept, who))
        with serving(who, a_run(installed), kept) as third:
            third.communicate("")
        assert name not in kept("wires") | kept("runs")
        assert f"{name}.jsonl" not in kept("log")
        assert other in kept("wires") & kept("runs")
        assert f"{other}.jsonl" in kept("log")
        alive.communicate("")
    assert other not in kept("wires")


def published(kept: Callable[[str], set[str]], who: lnk.Account) -> set[str]:
    """Return the sandboxes of the proxies that publish, and are there."""
    found = set()
    for file in kept("traffic"):
        pid = 0 if file.startswith(".") else int(file.partition(".")[0])
        if alive({pid: file}):
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                text = Path(f"{who.home}/.lnk/sandbox/traffic/{file}").read_text()
                found.add(json.loads(text)["sandbox"])
    return found


def test_a_paused_run_of_a_container_stays_paused_while_others_begin(
    installed: lnk.Installed, who: lnk.Account, kept: Callable[[str], set[str]]
) -> None:
    if who.uid != 0:
        inside = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child"]
    else:
        inside = ["unshare", "--pid", "--fork", "--kill-child"]
    before = kept("paused")
    script = f"{' '.join(METADATA)}; exec cat"
    command = [*inside, "--mount-proc", *installed.argv("run", "--yes", "--", "sh", "-c", script)]
    with lnk.popen(who, command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
        wait_for(lambda: kept("paused") > before)
        (name,) = kept("paused") - before
        installed.run(who, "run", "--yes", "--", *CALLS)
        assert name in kept("paused")
        one.communicate("")
