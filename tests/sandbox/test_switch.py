"""`lnk sandbox stop`, `start`, `resume`, `paused`, `on-stop`, `log` and `traffic`."""

from __future__ import annotations

import itertools
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import on_stop, wires
from sandbox.cli import log as logging_
from sandbox.cli import main as cli
from sandbox.cli.traffic import spelled
from sandbox.errors import SandboxError
from sandbox.published import Publication
from sandbox.state import State

ROOT = Path(__file__).parents[2]
START = f"""
import sys
sys.path.append({str(ROOT)!r})
from sandbox.cli.main import main
sys.exit(main())
"""
Run = Callable[..., tuple[int, str]]
COMMANDS = ("stop", "start", "resume", "paused", "log", "traffic", "on-stop")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setenv("LNK_HOME", str(tmp_path / "lnk"))
    return State(str(tmp_path / "lnk"))


@pytest.fixture
def run(state: State, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str]:
        status = cli.run(list(words))
        return status, capsys.readouterr().out

    return run


@pytest.fixture
def lnk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `lnk` on PATH that writes down what it is given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "lnk"
    program.write_text(
        '#!/bin/sh\nenv > "$0.env"\npwd > "$0.pwd"\nprintf "%s\\n" "$@" > "$0.$3"\n'
        '[ "$1" != fail ]\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return program


@pytest.mark.parametrize("name", COMMANDS)
def test_each_says_what_it_is_for_and_makes_nothing(run: Run, state: State, name: str) -> None:
    status, out = run(name, "--help")
    assert status == 0
    assert f"usage: lnk sandbox {name}" in out
    assert not os.path.exists(state.settings)


def test_on_stop_is_hidden_and_the_others_are_not(run: Run) -> None:
    shown = run("--help")[1]
    assert "on-stop" not in shown
    assert all(f"\n  {name}: " in shown for name in COMMANDS if name != "on-stop")
    row = cli.HIDDEN["on-stop"]
    assert row.example.startswith("lnk sandbox on-stop ")


# -- the flags -------------------------------------------------------------------------------


def test_stop_and_start(run: Run, state: State) -> None:
    assert run("paused") == (0, "No wire is closed.\n")
    assert not os.path.exists(state.settings)
    status, out = run("stop")
    assert status == 0
    assert "within two seconds" in out
    assert json.loads(run("paused", "--json")[1]) == {"stopped": True, "paused": []}
    assert "lnk sandbox start" in run("paused")[1]
    assert run("stop")[0] == 0
    assert run("start") == (0, "The wires are open again.\n")
    assert run("start") == (0, "The wires were not stopped.\n")
    assert json.loads(run("paused", "--json")[1]) == {"stopped": False, "paused": []}


def test_a_pause_is_shown_and_resumed(run: Run, state: State) -> None:
    wires.pause(state, "run-12", "it called a cloud's metadata service (169.254.169.254:80)")
    wires.stop(state)
    told = json.loads(run("paused", "--json")[1])
    assert told["paused"][0]["sandbox"] == "run-12"
    assert "169.254.169.254" in run("paused")[1]
    assert "run-12 is still paused" in run("start")[1]
    wires.stop(state)
    status, out = run("resume", "run-12")
    assert status == 0
    assert "lnk sandbox start opens them" in out
    run("start")
    with pytest.raises(SandboxError, match="was not paused") as refused:
        run("resume", "run-12")
    assert refused.value.exit_code == 1


@pytest.mark.parametrize("name", ["", "../stopped", ".box", "a/b", "a b", "x" * 65, "\x1b", "é"])
def test_what_is_no_sandboxes_name_reaches_no_file(run: Run, state: State, name: str) -> None:
    for words in (["resume", name], ["log", name], ["on-stop", name, "--", "agent"]):
        with pytest.raises(SandboxError) as refused:
            run(*words)
        assert refused.value.exit_code == 2
    assert not os.path.exists(state.settings)


@pytest.mark.parametrize(
    "words",
    [["resume"], ["resume", "a", "b"], ["log", "a", "b"], ["stop", "now"], ["paused", "box"],
     ["traffic", "box"], ["start", "--json"], ["on-stop"], ["on-stop", "--", "agent"],
     ["on-stop", "a", "agent"], ["log", "--since", "1"]],
)  # fmt: skip
def test_a_command_line_that_can_not_be_followed_is_a_mistake(run: Run, words: list[str]) -> None:
    with pytest.raises(SandboxError) as refused:
        run(*words)
    assert refused.value.exit_code == 2


# -- on-stop ---------------------------------------------------------------------------------


def test_what_is_registered_runs_when_the_wires_are_stopped(
    run: Run, state: State, lnk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/evil")
    monkeypatch.setenv("LD_AUDIT_NOT", "x")
    assert run("on-stop", "agent-ann", "--", "agent", "stop", "ann", "-a") == (0, "")
    assert run("on-stop", "agent-bob", "--", "agent", "stop", "bob") == (0, "")
    file = Path(state.path, "on-stop", "agent-ann.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {
        "lnk": str(lnk), "args": ["agent", "stop", "ann", "-a"],
    }  # fmt: skip
    assert run("stop")[0] == 0
    assert Path(f"{lnk}.ann").read_text() == "agent\nstop\nann\n-a\n"
    assert Path(f"{lnk}.bob").read_text() == "agent\nstop\nbob\n"
    assert Path(f"{lnk}.pwd").read_text() == f"{state.path}\n"
    variables = {line.partition("=")[0] for line in Path(f"{lnk}.env").read_text().splitlines()}
    assert variables <= {*on_stop.PASSED, "PATH", "PWD", "SHLVL", "_", "OLDPWD"}
    assert wires.wires(state.settings).stopped


def test_what_is_forgotten_runs_no_more(run: Run, state: State, lnk: Path) -> None:
    run("on-stop", "agent-ann", "--", "agent", "stop", "ann")
    assert run("on-stop", "agent-ann") == (0, "")
    assert run("on-stop", "agent-ann") == (0, "")
    assert run("stop")[0] == 0
    assert not Path(f"{lnk}.ann").exists()


def test_one_that_fails_leaves_the_others_and_the_wires_closed(
    run: Run, state: State, lnk: Path
) -> None:
    run("on-stop", "a", "--", "fail", "stop", "first")
    run("on-stop", "b", "--", "agent", "stop", "second")
    state.write(b"{", "on-stop", "broken.json")
    state.write(b'{"lnk": "lnk", "args": []}', "on-stop", "relative.json")
    state.write(b'{"lnk": "/nowhere/lnk", "args": []}', "on-stop", "gone.json")
    status, out = run("stop")
    assert status == 1
    assert "a: it ended with status 1." in out
    for name in ("broken", "relative", "gone"):
        assert f"{name}: it could not be run" in out
    assert Path(f"{lnk}.second").exists()
    assert wires.wires(state.settings).stopped


def test_one_that_does_not_end_is_ended(
    run: Run, state: State, lnk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_stop, "LIMIT_S", 0.2)
    lnk.write_text("#!/bin/sh\nexec sleep 600\n")
    run("on-stop", "a", "--", "agent", "stop")
    status, out = run("stop")
    assert status == 1
    assert "was ended" in out


@pytest.mark.parametrize("args", [["sandbox", "start"], ["sandbox"], ["--x", "sandbox", "stop"]])
def test_the_kill_switch_never_runs_the_sandbox_itself(
    run: Run, state: State, lnk: Path, args: list[str]
) -> None:
    with pytest.raises(SandboxError, match="never lnk sandbox"):
        run("on-stop", "a", "--", *args)
    assert state.names("on-stop") == []


def test_without_an_lnk_there_is_nothing_to_run(
    run: Run, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="no lnk on PATH"):
        run("on-stop", "a", "--", "agent", "stop")


def test_the_lnk_that_registers_is_the_one_that_runs(
    lnk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "venv" / "lnk"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(other), "sandbox", "on-stop"])
    assert on_stop.find_lnk() == str(other)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/lnk-sandbox", "on-stop"])
    assert on_stop.find_lnk() == str(lnk)


# -- traffic ---------------------------------------------------------------------------------


def test_traffic_is_listed_and_leftovers_go(run: Run, state: State) -> None:
    assert run("traffic") == (0, "No sandbox with a proxy is running.\n")
    one = Publication(state)
    one.put(sandbox="run-12", up=2048, down=3)
    state.write(
        b'{"pid": 1, "start": "x", "sandbox": "y", "up": 1, "down": 1}', "traffic", "1.json"
    )
    told = json.loads(run("traffic", "--json")[1])
    assert told == [{"pid": os.getpid(), "sandbox": "run-12", "up": 2048, "down": 3}]
    assert state.names("traffic") == [f"{os.getpid()}.json"]
    assert run("traffic")[1] == f"run-12 (pid {os.getpid()}): up 2.0 KiB, down 3 B\n"


def test_sizes_are_spelled() -> None:
    sizes = (0, 1023, 1024, 5 << 20, 3 << 40, 5 << 50)
    assert [spelled(each) for each in sizes] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.0 TiB", "5120.0 TiB",
    ]  # fmt: skip


# -- log -------------------------------------------------------------------------------------


def line(second: int, host: str = "example.com", **more: object) -> bytes:
    told = {"time": f"2026-01-01T00:00:{second:02d}.000Z", "call": "ab-1", "verb": "connect",
            "host": host, "port": 443, "verdict": "allowed", **more}  # fmt: skip
    return json.dumps(told).encode() + b"\n"


def put(state: State, name: str, data: bytes) -> Path:
    path = Path(state.folder("log"), name)
    path.write_bytes(data)
    return path


def test_a_log_is_shown_with_its_rotated_files_oldest_first(run: Run, state: State) -> None:
    put(state, "box.jsonl", line(5) + line(6, verdict="ended", up=7, down=8, seconds=0.5,
                                          reason="done"))  # fmt: skip
    put(state, "box.jsonl.1", line(3) + line(4))
    put(state, "box.jsonl.10", line(1))
    put(state, "box.jsonl.2", line(2, "2001:db8::1"))
    put(state, "other.jsonl", line(9))
    status, out = run("log", "box")
    assert status == 0
    lines = out.splitlines()
    assert [text[17:19] for text in lines] == ["01", "02", "03", "04", "05", "06"]
    assert lines[1].endswith("Z box allowed connect [2001:db8::1]:443")
    assert lines[-1].endswith("Z box ended connect example.com:443 up 7 down 8 in 0.5 s")


def test_a_refused_call_of_a_tool_is_shown_with_its_tool(run: Run, state: State) -> None:
    reason = "nobody answered the question in time, so the call was refused."
    told = {"verb": "tool", "port": 0, "verdict": "refused", "reason": reason, "status": 200}
    put(state, "box.jsonl", line(1, "notes", **told))
    assert run("log", "box")[1].endswith(f"Z box refused tool notes: {reason}\n")


def test_without_a_name_all_logs_are_shown_by_time(run: Run, state: State) -> None:
    put(state, "a.jsonl", line(1) + line(4))
    put(state, "b.jsonl", line(2) + line(3, verdict="refused", reason="not listed", status=403))
    told = [json.loads(text) for text in run("log", "--json")[1].splitlines()]
    assert [(one["sandbox"], one["time"][17:19]) for one in told] == [
        ("a", "01"), ("b", "02"), ("b", "03"), ("a", "04"),
    ]  # fmt: skip
    assert ": not listed" in run("log")[1].splitlines()[2]


def test_what_stands_in_a_log_can_not_act_on_a_terminal(run: Run, state: State) -> None:
    put(state, "box.jsonl", line(1, "\x1b]0;x\x07\u202e") + b"no line\n[]\n{}\n\xff\n")
    out = run("log")[1]
    assert out.isascii()
    assert out.count("\n") == 1
    assert "\x1b" not in out
    assert run("log", "--json")[1].isascii()


def test_a_line_longer_than_any_is_left_out(run: Run, state: State) -> None:
    put(state, "box.jsonl", line(1) + b"x" * 300_000 + b"\n" + line(2))
    assert len(run("log")[1].splitlines()) == 2


def test_a_log_that_is_not_there_is_said(run: Run, state: State) -> None:
    with pytest.raises(SandboxError, match="there is no log of box in"):
        run("log", "box")
    state.folder("log")
    with pytest.raises(SandboxError, match="there is no log in") as refused:
        run("log")
    assert refused.value.exit_code == 1


def test_a_log_in_a_folder_that_others_write_is_not_read(run: Run, state: State) -> None:
    put(state, "box.jsonl", line(1)).parent.chmod(0o777)
    with pytest.raises(SandboxError, match="can be written by others"):
        run("log")


def test_a_link_in_a_logs_place_is_not_followed(run: Run, state: State, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(line(1))
    Path(state.folder("log"), "box.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(SandboxError, match=r"box\.jsonl"):
        run("log")


@pytest.fixture
def following(state: State, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    put(state, "box.jsonl", line(1))
    process = subprocess.Popen(
        [sys.executable, "-c", START, "log", "--follow", "--json"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "LNK_HOME": state.settings},
    )  # fmt: skip
    timer = threading.Timer(60, process.kill)
    timer.start()
    yield process
    timer.cancel()
    process.kill()
    process.communicate()


def test_a_log_is_followed_through_rotations_and_new_sandboxes(
    following: subprocess.Popen[str], state: State
) -> None:
    assert following.stdout is not None

    def seen() -> tuple[str, str]:
        told = json.loads(following.stdout.readline())  # type: ignore[union-attr]
        return told["sandbox"], told["time"][17:19]

    assert seen() == ("box", "01")
    path = Path(state.path, "log", "box.jsonl")
    with path.open("ab") as file:
        file.write(line(2)[:30])
        file.flush()
        file.write(line(2)[30:])
    assert seen() == ("box", "02")
    with path.open("ab") as file:
        file.write(line(3))
    path.rename(f"{path}.1")
    path.write_bytes(line(4))
    assert [seen(), seen()] == [("box", "03"), ("box", "04")]
    put(state, "run-9.jsonl", line(5))
    assert seen() == ("run-9", "05")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "there is no log yet; lines are shown once a sandbox calls anything."),
        ("bxo", "there is no log of bxo yet; nothing called bxo runs now, and lines are shown once "
         "something does; look at the name."),
        ("new", "there is no log of new yet; new runs, and its lines are shown once it calls "
         "anything."),
    ],
)  # fmt: skip
def test_what_has_not_logged_yet_is_followed_and_that_it_has_not_is_said(
    state: State, name: str, said: str
) -> None:
    published = Publication(state)
    published.put(sandbox="new", up=0, down=0)
    words = ["log", "--follow", *([name] if name else [])]
    with subprocess.Popen(
        [sys.executable, "-c", START, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "LNK_HOME": state.settings},
    ) as process:  # fmt: skip
        timer = threading.Timer(60, process.kill)
        timer.start()
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == f"lnk sandbox: {said}\n"
        put(state, f"{name or 'box'}.jsonl", line(1))
        assert f" {name or 'box'} " in process.stdout.readline()
        timer.cancel()
        process.kill()


def test_a_run_that_is_over_without_a_log_has_none_to_come(run: Run, state: State) -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as ended:
        ended.wait()
    with pytest.raises(SandboxError, match=f"there is no log of run-{ended.pid} in ") as raised:
        run("log", "--follow", f"run-{ended.pid}")
    assert raised.value.exit_code == 1


def test_who_reads_no_more_is_no_error(state: State) -> None:
    put(state, "box.jsonl", line(1) * 5000)
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" log | head -1', sys.executable, START],
        capture_output=True, text=True, timeout=110,
        env={**os.environ, "LNK_HOME": state.settings},
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_a_log_that_is_rotated_while_it_is_read_loses_nothing(state: State) -> None:
    path = put(state, "box.jsonl", line(1) + line(2))
    lines = logging_.Logs(state, "box").lines(follow=False)
    assert next(lines)[1]["time"] == json.loads(line(1))["time"]
    path.rename(f"{path}.1")
    path.write_bytes(line(3))
    assert [one["time"][17:19] for _, one in lines] == ["02"]  # type: ignore[index]
    later = logging_.Logs(state, None)
    later._look()
    Path(f"{path}.1").rename(f"{path}.2")
    path.rename(f"{path}.1")
    path.unlink(missing_ok=True)
    assert [one["time"][17:19] for _, one in later._by_time()] == ["01", "02", "03"]  # type: ignore[index]
    for file in path.parent.iterdir():
        file.unlink()
    later._look()
    assert list(later._by_time()) == []


def test_another_file_of_the_same_number_is_read_from_its_start(state: State) -> None:
    path = put(state, "box.jsonl", line(1) + line(2))
    logs = logging_.Logs(state, "box")
    assert len(list(logs.lines(follow=False))) == 2
    path.write_bytes(line(3))
    assert [one["time"][17:19] for _, one in logs.lines(follow=False)] == ["03"]  # type: ignore[index]


def test_thousands_of_logs_are_shown_with_few_descriptors(run: Run, state: State) -> None:
    for number in range(300):
        put(state, f"run-{number}.jsonl", line(number % 50) + line(number % 50 + 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + 40, hard))
    try:
        told = [json.loads(text)["time"] for text in run("log", "--json")[1].splitlines()]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(told) == 600
    assert told == sorted(told)


@given(st.lists(st.lists(st.integers(0, 59), max_size=8).map(sorted), max_size=8))
def test_lines_of_all_logs_are_merged_by_time(seconds: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = State(f"{folder}/lnk")
        for number, each in enumerate(seconds):
            put(state, f"box-{number}.jsonl", b"".join(line(second) for second in each))
        found = [
            int(one["time"][17:19]) for _, one in logging_.Logs(state, None).lines(follow=False)
        ]  # type: ignore[index]
    assert found == sorted(itertools.chain(*seconds))
