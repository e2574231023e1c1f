"""Each command as somebody uses it who is new to it: what is wrong is said in one sentence."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pytest

from sandbox import asking, on_stop, tools, wires
from sandbox.cli import blank
from sandbox.cli import main as cli
from sandbox.cli.flags import Flag, UsageError, full_path, read_flags
from sandbox.errors import LaunchError, SandboxError, SpecError, quoted, sentence
from sandbox.route import Tool
from sandbox.spec import Spec
from sandbox.state import State
from sandbox.strict_json import read_json
from tests.sandbox.test_switch import START, Run, run, state

__all__ = ["run", "state"]  # fixtures
LONG = "x" * 100_000
ESCAPE = "a\x1b[31m"
NAMED = {**cli.COMMANDS, **cli.HIDDEN}


def started(
    words: list[str], home: Path, stdin: IO[str] | int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", START, *words],
        stdin=stdin,
        capture_output=True,
        text=True,
        env={"LNK_HOME": str(home / "lnk"), "HOME": str(home)},
        check=False,
    )


@pytest.mark.parametrize("name", NAMED)
def test_h_is_help_too(run: Run, state: State, name: str) -> None:
    status, out = run(name, "-h")
    assert status == 0
    assert f"lnk sandbox {name}" in out
    assert not os.path.exists(state.settings)


@pytest.mark.parametrize(
    "words",
    [
        ["proxy", "--listen", LONG],
        ["proxy", "--listen", "127.0.0.1:0", "--any-host", "--name", LONG],
        ["proxy", "--listen", "127.0.0.1:0", "--any-host", "--per-minute", LONG],
        ["proxy", "--listen", "127.0.0.1:0", "--any-host", "--upstream-file", LONG],
        ["proxy", "--hold", "--any-host", "--dir", LONG],
        ["run", "--write", LONG, "--", "true"],
        ["run", "--internet-host", LONG, "--", "true"],
        ["run", "--spec", LONG, "--", "true"],
        ["resume", LONG],
        ["log", LONG],
        ["answer", LONG, "yes"],
        ["tool", "remove", LONG],
        ["tool", "add", LONG, "--", sys.executable],
        ["tool", "add", "x", "--", LONG],
        ["on-stop", LONG],
        ["paused", LONG],
        [LONG],
    ],
)
def test_a_long_word_makes_no_long_sentence(words: list[str], tmp_path: Path) -> None:
    done = started(words, tmp_path)
    assert done.returncode in (1, 2, 125)
    assert done.stdout == ""
    assert done.stderr.startswith("lnk sandbox: ")
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 10_000


def test_what_a_sentence_names_is_cut_in_its_middle() -> None:
    said = sentence(SandboxError(f"{LONG}{ESCAPE} isn't there: make it."))
    assert said.startswith("xxx")
    assert said.endswith("a\\x1b[31m isn't there: make it.")
    assert len(said) < 9_010
    assert quoted("é\n") == "'é\\n'"


# -- tools ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["add", "remove"])
def test_help_behind_a_tools_name_is_help_and_nothing_else(
    run: Run, state: State, verb: str
) -> None:
    run("tool", "add", "notes", "--", sys.executable)
    assert run("tool", verb, "notes", "--help")[1].startswith("Tools that run outside")
    assert run("tool", "list")[1] == f"notes: {sys.executable}; every call asks you.\n"


def test_a_tool_whose_file_is_broken_is_named_with_the_cure_which_works(
    run: Run, state: State
) -> None:
    run("tool", "add", "notes", "--", sys.executable)
    for text, why in (
        ("{", "tools.notes: isn't JSON: "),
        ('{"name": "x", "argv": ["/x"], "ask": "all", "allow": []}', "tools.notes.name: 'x' isn't"),
    ):
        Path(state.path, "tools", "notes.json").write_text(text)
        with pytest.raises(SpecError) as caught:
            run("tool", "list")
        assert str(caught.value).startswith(why)
        assert str(caught.value).endswith("; lnk sandbox tool remove notes takes it away")
    assert run("tool", "remove", "notes") == (0, "")
    assert run("tool", "list")[1].startswith("No tool is defined")


def test_a_folder_in_a_files_place_is_named_whole(run: Run, state: State) -> None:
    folder = Path(state.folder("tools"), "notes.json")
    folder.mkdir()
    with pytest.raises(LaunchError, match=f"{folder}' isn't a file: take it away"):
        run("tool", "list")
    with pytest.raises(LaunchError, match=f"{folder}' can't be removed: "):
        run("tool", "remove", "notes")


def test_of_two_who_add_a_tool_at_once_one_is_refused(state: State) -> None:
    found: list[object] = []
    said: list[SandboxError] = []
    start = threading.Barrier(8)

    def add(number: int) -> None:
        start.wait()
        try:
            tools.save(state, Tool(name="x", argv=(f"/{number}",), ask="all", allow=()))
            found.append(number)
        except SandboxError as error:
            said.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
    assert all(error.exit_code == 2 for error in said)
    assert all(str(error).startswith("there is a tool x already: ") for error in said)
    (kept,) = tools.load_all(state)
    assert kept.argv == (f"/{found[0]}",)
    assert os.listdir(f"{state.path}/tools") == ["x.json"]


def test_a_programs_name_is_shown_without_its_escapes(
    run: Run, state: State, tmp_path: Path
) -> None:
    program = tmp_path / ESCAPE
    program.symlink_to(sys.executable)
    said = run("tool", "add", "notes", "--ask", "none", "--allow", "x", "--", str(program))[1]
    assert said.endswith("a\\x1b[31m; no call asks you.\n")
    assert run("tool", "list")[1] == said


# -- what can't be written -----------------------------------------------------------------


def test_what_cant_be_written_is_named_by_its_whole_path(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(on_stop, "find_lnk", lambda: "/bin/lnk")
    for act in (
        lambda: tools.save(state, Tool(name="x", argv=("/x",), ask="all", allow=())),
        lambda: on_stop.register(state, "x", ["agent"]),
    ):
        with pytest.raises(LaunchError, match=r"/x.json' can't be written: No space left"):
            act()
    assert not os.listdir(f"{state.path}/tools")


def test_stop_runs_what_is_registered_though_the_wires_stay_open(
    run: Run,
    state: State,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/lnk"
    program.write_text('#!/bin/sh\necho "$@" > "$0.was"\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    run("on-stop", "ann", "--", "agent", "stop")

    def full(*_: object) -> None:
        raise LaunchError("x", 28, "stopped can't be written.")

    monkeypatch.setattr(wires, "stop", full)
    with pytest.raises(SandboxError, match=r"^the wires stay open, .*: stopped can't be written"):
        run("stop")
    assert capsys.readouterr().out == "ann: it ended with status 3.\n"
    assert Path(f"{program}.was").read_text() == "agent stop\n"
    monkeypatch.setattr(on_stop, "FOLDER", "wires")
    Path(state.folder("wires")).chmod(0o777)
    with pytest.raises(SandboxError, match=r"^the wires stay open, .*: stopped can't be written"):
        run("stop")


def test_names_of_files_are_shown_without_their_escapes(run: Run, state: State) -> None:
    for folder, text in (("paused", "{}"), ("on-stop", "{")):
        Path(state.folder(folder), f"{ESCAPE}{'.json' * (folder == 'on-stop')}").write_text(text)
    for words in (["stop"], ["paused"], ["start"]):
        out = run(*words)[1]
        assert "a\\x1b[31m" in out
        assert "\x1b" not in out


@pytest.mark.parametrize("args", [[""], ["", "x"]])
def test_on_stop_runs_no_empty_word(state: State, args: list[str]) -> None:
    with pytest.raises(SandboxError, match="another plugin's"):
        on_stop.register(state, "x", args)


@pytest.mark.parametrize(
    "text", ["{", "[1]", "1", "{}", '{"id": "abcde"}', "[" * 100_000, '{"id": 1, "pid": "x"}']
)
def test_what_is_no_question_waits_for_nobody(run: Run, state: State, text: str) -> None:
    Path(state.folder("questions"), "abcde.json").write_text(text)
    assert asking.waiting(state) == []
    assert run("answer")[1].startswith("No question waits: ")
    assert os.listdir(f"{state.path}/questions") == []


# -- flags and files -----------------------------------------------------------------------


def test_a_relative_path_of_a_folder_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match=r"--log x is read from the working folder, which is gone"):
        full_path("--log", "x")
    with pytest.raises(SandboxError, match=r"'./x' is no program here: write its path"):
        tools.found("./x", "")
    assert full_path("--log", "/x/../y") == "/y"
    for empty in ("", "a\0b"):
        with pytest.raises(UsageError, match=r"^--log names no folder: write --log FOLDER\.$"):
            full_path("--log", empty)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["--write", "/\udcff", "--", "true"],
            '--write names a path that is none: "/\\udcff" holds',
        ),
        (["--read", "y" * 256, "--", "true"], "--read names a path that has a name longer"),
        (["--internet-host", "a b", "--", "true"], "'a b' in --internet-host is no host. "),
        (["--internet-host", "a.test:1", "--", "true"], "'a.test:1' has a port, and --internet"),
    ],
)
def test_a_flags_value_is_refused_by_the_flag_once(run: Run, words: list[str], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        run("run", *words)
    assert caught.value.message.startswith(why)
    assert caught.value.message.count("--internet-host is") <= 1
    assert "files." not in caught.value.message


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--control", "c"], "--control is for a blank proxy: add --blank"),
        (["--binder", "1"], "--binder is for a blank proxy: add --blank"),
        (["--upstream", ""], "--upstream: the exit isn't one: "),
        (["--upstream-file", ""], "--upstream-file names no file: write --upstream-file FILE."),
        (["--lan", "x"], "'x' in --lan has no port"),
        (["--hosts=a b"], "'a b' in --hosts is no host."),
    ],
)
def test_a_proxys_flag_is_refused_by_its_name(
    run: Run, state: State, words: list[str], why: str
) -> None:
    opens = [] if words[0].startswith("--hosts") else ["--no-internet"]
    with pytest.raises(UsageError) as caught:
        run("proxy", "--listen", "127.0.0.1:0", *opens, *words)
    assert caught.value.message.startswith(why)


def test_handed_routes_are_refused_by_their_flag(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = os.open(tmp_path / "routes", os.O_RDONLY | os.O_CREAT, 0o600)
    monkeypatch.setenv("ROUTES", str(file))
    flags = ["--listen", "127.0.0.1:0", "--no-internet", "--routes-handed", "ROUTES"]
    with pytest.raises(SandboxError, match=r"^--routes-handed ROUTES: request: is empty"):
        run("proxy", *flags)
    os.close(file)


def test_a_word_that_is_no_flag_is_shown_short_and_escaped() -> None:
    with pytest.raises(UsageError) as caught:
        read_flags((Flag("--yes", "", ""),), [f"--{ESCAPE}{LONG}"])
    assert caught.value.message.startswith("'--a\\x1b[31mxxx")
    assert caught.value.message.endswith("xxx...' is not one of its flags: --help lists them.")


def test_a_slip_is_told_what_was_meant(
    run: Run, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        UsageError, match=r"^'--wriet=x' is not one of its flags \(did you mean --wri"
    ):
        run("run", "--wriet=x")
    assert cli.run(["pasued"]) == 2
    assert capsys.readouterr().err == (
        "lnk sandbox: 'pasued' is no command (did you mean paused?): lnk sandbox --help lists "
        "them.\n"
    )


def test_two_dashes_make_no_two_flags_alike(run: Run) -> None:
    with pytest.raises(UsageError, match=r"^'--nope' is not one of its flags: --help lists them"):
        run("run", "--nope")


def test_a_spec_that_is_not_there_is_told_with_the_cure_however_long_its_name_is() -> None:
    for name, shown in (("no.toml", "no.toml"), ("x" * 5000, f"'{'x' * 80}...'")):
        with pytest.raises(SpecError) as caught:
            Spec.read(name)
        said = str(caught.value)
        assert said.startswith(f"{shown}: ")
        assert said.endswith("; name the file that the spec is in")


def test_a_byte_order_mark_and_a_number_too_long_are_called_that() -> None:
    with pytest.raises(SpecError, match=r"^x:1: spec: begins with a byte order mark; save it with"):
        Spec.parse(b"\xef\xbb\xbf[files]", folder="/x", file="x")
    with pytest.raises(SpecError, match=r"^request: begins with a byte order mark; send it witho"):
        read_json(b"\xef\xbb\xbf{}", 100)
    with pytest.raises(SpecError, match=r"^x: spec: holds a number too long for any key$"):
        Spec.parse(b"[network]\nper_minute = " + b"9" * 5000, folder="/x", file="x")


@pytest.mark.parametrize("words", [["wrap"], ["check", "--policy"]])
def test_an_input_that_cant_be_read_is_one_sentence(words: list[str], tmp_path: Path) -> None:
    with open(tmp_path / "out", "w") as target:
        done = started(words, tmp_path, target)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "lnk sandbox: the request can't be read from standard input: Bad file descriptor; "
        "open it to be read.\n"
    )


def test_a_reader_who_leaves_ends_log_as_any_other_command(state: State, tmp_path: Path) -> None:
    line = '{"time": "2026-01-01T00:00:00Z", "verdict": "allowed", "verb": "connect"}\n'
    Path(state.folder("log"), "box.jsonl").write_text(line * 5000)
    for words in (["log"], ["log", "--json"]):
        child = subprocess.Popen(
            [sys.executable, "-c", START, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"LNK_HOME": state.settings, "HOME": str(tmp_path)},
        )
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
        child.stderr.close()
        assert child.wait() == cli.ENDED_BY_SIGPIPE


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(11, "no process"), "no process: end some of your processes, or raise their"),
        (OSError(24, "many", ESCAPE), "a\\x1b[31m: many: raise the limit of them (ulimit -n)."),
        (OSError(28, "full", "/x"), "/x: full: make room."),
    ],
)
def test_what_a_machine_has_no_more_of_is_one_sentence(
    error: OSError,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def out(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(cli, "run", out)
    assert cli.main() == 125
    assert capsys.readouterr().err.startswith(f"lnk sandbox: {said}")


def test_another_error_of_the_machine_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def out(*_: object, **__: object) -> int:
        raise OSError(5, "x")

    monkeypatch.setattr(cli, "run", out)
    with pytest.raises(OSError, match="x"):
        cli.main()


def test_a_control_that_runs_out_of_descriptors_or_threads_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Listener(socket.socket):
        left = 2

        def accept(self) -> tuple[socket.socket, object]:
            self.left -= 1
            if self.left >= 0:
                raise OSError(24, "Too many open files")
            return super().accept()

    class Thread(threading.Thread):
        left = 1

        def start(self) -> None:
            Thread.left -= 1
            if Thread.left >= 0:
                raise RuntimeError("can't start new thread")
            super().start()

    listener, (ours, its) = Listener(socket.AF_UNIX), socket.socketpair()
    listener.bind(str(tmp_path / "control"))
    listener.listen()
    control = threading.Thread(target=blank.Control(listener, its, set(), {}).run)
    control.start()
    monkeypatch.setattr(blank.threading, "Thread", Thread)
    answers = []
    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(tmp_path / "control"))
            one.shutdown(socket.SHUT_WR)
            answers.append(one.makefile("rb").read())
    ours.close()
    control.join()
    assert answers == [b"", json.dumps({"error": blank.NOT_YOURS}).encode() + b"\n"]
    listener.close()
    its.close()


def test_a_script_whose_interpreter_is_gone_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/shell\n")
    script.chmod(0o755)
    words = ["proxy", "--listen", "127.0.0.1:0", "--no-internet", "--", str(script)]
    done = started(words, tmp_path)
    assert done.returncode == 127
    assert done.stderr == f"lnk sandbox: {script}: the interpreter that it names isn't there.\n"


def test_a_question_is_answered_on_a_terminal_that_is_no_session_s(
    state: State, tmp_path: Path
) -> None:
    told = {"id": "abcde", "sandbox": "box", "text": "open a page", "pid": os.getpid()}
    told |= {"launcher": 0, "asked": 1.0, "until": time.time() + 60}
    state.write(json.dumps(told).encode(), "questions", "abcde.json")
    ours, its = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", START, "answer"],
        stdin=its,
        stdout=its,
        stderr=its,
        env={"LNK_HOME": state.settings, "HOME": str(tmp_path)},
        start_new_session=True,
    )
    os.close(its)
    said = b""
    while b"[y/N] " not in said:
        said += os.read(ours, 4096)
    os.write(ours, b"y\n")
    assert child.wait() == 0
    os.close(ours)
    assert state.read("questions", "abcde.answer") == b"yes"


def test_a_file_of_ones_own_is_refused_for_what_it_is(tmp_path: Path, run: Run) -> None:
    (tmp_path / "exit").write_text("http://me:word@127.0.0.1:3128")
    (tmp_path / "exit").chmod(0o640)
    (tmp_path / "link").symlink_to("exit")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, said in (
        ("exit", "isn't a file of yours alone: chmod 600 it."),
        ("link", "is a link: name the file that it leads to."),
        ("pipe", "is no file: name one that holds it."),
        (".", "is no file: name one that holds it."),
        ("gone", "can't be opened: No such file or directory."),
    ):
        flags = ["--listen", "127.0.0.1:0", "--any-host", "--upstream-file", f"{tmp_path}/{name}"]
        with pytest.raises(UsageError) as caught:
            run("proxy", *flags)
        assert caught.value.message.startswith("--upstream-file: the exit's login: ")
        assert caught.value.message.endswith(f" {said}")
