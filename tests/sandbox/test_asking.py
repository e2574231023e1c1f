"""How Link asks: by a dialog, on a real terminal, and by a question that waits (R57)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox import asking
from sandbox.asking import Question, Withdrawn, pages_of
from sandbox.errors import LaunchError
from sandbox.state import State
from tests.sandbox import lnk
from tests.sandbox.terminal import Terminal

TEXT = 'call "delete_note"\nwith:\n  {\n    "id": 1\n  }'

LONG = "\n".join(f"line {n}" for n in range(60))

RUN = """\
import json, os, subprocess, sys
command, told = json.loads(sys.argv[1]), json.loads(sys.argv[2])
{first}
told["front"] = os.getpgrp() if told["front"] else 0
asker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={},
                         preexec_fn=lambda: os.setpgid(0, 0))
asker.stdin.write(json.dumps(told).encode() + b"\\n"); asker.stdin.flush()
{then}
print("said", asker.stdout.read(), asker.wait(), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
sys.stdin.readline()
"""
"""A run in the foreground of its terminal, whose asker is in a group of its own."""


def ask_command(installed: lnk.Installed) -> list[str]:
    start = f"{installed.folder}/sandbox/cli/kept_start.py"
    return [installed.python, "-I", "-S", start, "ask"]


def told(state: str, text: str = TEXT, seconds: float = 60, *, front: bool = True) -> str:
    return json.dumps({"sandbox": "box", "text": text, "desktop": {}, "seconds": seconds,
                       "state": state, "front": front, "launcher": 0})  # fmt: skip


@contextmanager
def on_terminal(
    installed: lnk.Installed, who: lnk.Account, text: str = TEXT, *, first: str = "",
    then: str = "", seconds: float = 60, front: bool = True,
) -> Iterator[Terminal]:  # fmt: skip
    script = RUN.replace("{first}", first).replace("{then}", then)
    state = f"{who.home}/.lnk"
    words = [json.dumps(ask_command(installed)), told(state, text, seconds, front=front)]
    with Terminal(who, [installed.python, "-c", script, *words]) as terminal:
        yield terminal


def code_on(terminal: Terminal) -> str:
    """Return the code that is asked for."""
    said = terminal.read_until("Enter alone refuses: ")
    found = re.search(r"type (\w+) and Enter", said)
    assert found, said
    return found[1]


def test_the_code_typed_back_on_the_terminal_is_a_yes(installed, who):
    with on_terminal(installed, who) as terminal:
        said = terminal.read_until("delete_note")
        assert "The sandbox box asks to" in said
        terminal.type(f"{code_on(terminal)}\n")
        terminal.read_until("said b'yes\\n' 0 True")


@pytest.mark.parametrize("typed", ["\n", "n\n", "NO\n", "\x03", "\x04", "x\nyes\ny\n"])
def test_anything_else_is_a_no(installed, ordinary, typed):
    with on_terminal(installed, ordinary) as terminal:
        code_on(terminal)
        first, *more = typed.splitlines(keepends=True)
        terminal.type(first)
        for line in more:
            code_on(terminal)
            terminal.type(line)
        terminal.read_until("said b'no\\n' 0 True")


def test_a_wrong_code_is_asked_for_again_and_is_another(installed, ordinary):
    with on_terminal(installed, ordinary) as terminal:
        first = code_on(terminal)
        terminal.type("wrong\n")
        second = code_on(terminal)
        assert first != second
        terminal.type(f"{second}\n")
        terminal.read_until("said b'yes\\n'")


def test_what_was_typed_before_answers_nothing(installed, ordinary):
    # A terminal can be made to type, and a person types ahead: neither is an answer.
    then = "import time; time.sleep(0)"
    with on_terminal(installed, ordinary, then=then) as terminal:
        terminal.type("y\nyes\n\n")
        terminal.read_until("delete_note")
        terminal.type(f"{code_on(terminal)}\n")
        terminal.read_until("said b'yes\\n'")


def test_the_question_is_drawn_after_what_could_hide_it_is_undone(installed, ordinary):
    hide = 'sys.stdout.write("\\x1b(0\\x1b[8m\\x1b[5;6r\\x1b[?25l"); sys.stdout.flush()'
    with on_terminal(installed, ordinary, then=hide) as terminal:
        said = terminal.read_until("delete_note")
        assert "\x1b(B" in said
        assert "\x1b[?1049h" in said
        code_on(terminal)
        terminal.type("\n")
        after = terminal.read_until("said b'no")
        assert "\x1b[?1049l" in after


def test_a_long_question_is_shown_whole_page_by_page(installed, ordinary):
    lines = [f"line {number}" for number in range(60)]
    with on_terminal(installed, ordinary, "\n".join(lines)) as terminal:
        said = ""
        for number in (1, 2, 3):
            said += terminal.read_until(f"({number} of 4: Enter for more, n to refuse) ")
            assert "type" not in said
            terminal.type("\n")
        said += terminal.read_until("Enter alone refuses: ")
        for line in lines:
            assert f"{line}\r\n" in said
        terminal.type("\n")
        terminal.read_until("said b'no\\n'")


def test_a_page_can_be_refused(installed, ordinary):
    with on_terminal(installed, ordinary, "x\n" * 60) as terminal:
        terminal.read_until("Enter for more, n to refuse) ")
        terminal.type("n\n")
        terminal.read_until("said b'no\\n'")


def test_a_size_that_a_program_has_set_pushes_no_line_off_the_screen(installed, ordinary):
    # Whoever has the terminal may set it (TIOCSWINSZ); the screen stays as large as it is.
    with on_terminal(installed, ordinary, LONG) as terminal:
        terminal.resize(9999, 9999)
        first = terminal.read_until("Enter for more, n to refuse) ")
        assert "line 0" in first
        assert first.partition("The sandbox")[2].count("\n") < asking.PAGE_ROWS


@pytest.mark.parametrize(("rows", "said"), [(10, 10), (9999, 24)])
def test_a_terminal_is_asked_how_large_it_is_and_the_smaller_size_counts(
    installed, ordinary, rows, said
):
    shown = []
    for _ in range(5):  # on a busy machine the answer may come too late to count
        with on_terminal(installed, ordinary, LONG) as terminal:
            terminal.read_until("\x1b[6n")
            terminal.type(f"\x1b[{rows};80R")
            first = terminal.read_until("Enter for more, n to refuse) ")
            shown.append(first.partition("The sandbox")[2].count("\n"))
        if shown[-1] == said - 4:
            assert "[10;80R" not in first
            return
    raise AssertionError(shown)


def test_a_size_that_is_said_late_is_no_part_of_what_is_typed(installed, ordinary):
    with on_terminal(installed, ordinary) as terminal:
        code = code_on(terminal)
        terminal.type(f"\x1b[24;80R{code}\n")
        terminal.read_until("said b'yes\\n' 0 True")


def test_a_terminal_that_a_program_has_stopped_goes_on(installed, ordinary):
    # Whoever writes to it would wait for good, and with it whoever else is to be asked.
    stop = "import termios; termios.tcflow(1, termios.TCOOFF)"
    with on_terminal(installed, ordinary, first=stop) as terminal:
        terminal.type(f"{code_on(terminal)}\n")
        terminal.read_until("said b'yes\\n'")


def test_a_terminal_that_takes_nothing_holds_a_question_no_longer_than_its_time(life):
    control, terminal = os.openpty()
    os.set_blocking(terminal, False)
    with pytest.raises(TimeoutError):
        asking._write(terminal, "x" * (1 << 20), question(0.3), life)
    begun = time.monotonic()
    asking._write_soon(terminal, "x")
    assert time.monotonic() - begun < 30
    os.close(control)
    os.close(terminal)


def test_silence_on_the_terminal_is_no_answer(installed, ordinary):
    with on_terminal(installed, ordinary, seconds=4) as terminal:
        code_on(terminal)
        terminal.read_until("said b'silence\\n' 0 True")


def test_a_question_that_is_taken_back_leaves_the_terminal_as_it_was(installed, ordinary):
    then = "sys.stdin.readline() if False else None; asker.stdin.close() if input_seen() else 0"
    seen = "import time\ndef input_seen():\n    time.sleep(1)\n    return True\n"
    with on_terminal(installed, ordinary, then=seen + then) as terminal:
        terminal.read_until("said b'' 1 True")


def test_a_run_in_the_background_isnt_asked_on_the_terminal(installed, ordinary):
    with on_terminal(installed, ordinary, front=False) as terminal:
        said = terminal.read_until("lnk sandbox answer ")
        assert "Enter alone" not in said
        name = terminal.read_until("\r\n").strip()
        done = installed.run(ordinary, "answer", name, "yes")
        assert done.returncode == 0
        terminal.read_until("said b'yes\\n'")


# A question that waits.


@contextmanager
def waiting(
    installed: lnk.Installed, who: lnk.Account, text: str = TEXT, seconds: float = 60
) -> Iterator[subprocess.Popen[str]]:
    """Ask where there is neither screen nor terminal."""
    asker = lnk.popen(
        who, ask_command(installed), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert asker.stdin
        asker.stdin.write(told(f"{who.home}/.lnk", text, seconds) + "\n")
        asker.stdin.flush()
        yield asker
    finally:
        asker.terminate()
        asker.wait()
        for stream in (asker.stdin, asker.stdout, asker.stderr):
            if stream:
                stream.close()


def left_of(who: lnk.Account) -> list[str]:
    return os.listdir(f"{who.home}/.lnk/sandbox/questions")


def name_of(asker: subprocess.Popen[str]) -> str:
    assert asker.stderr
    return asker.stderr.readline().split()[-1]


@pytest.mark.parametrize("said", ["yes", "no"])
def test_a_question_waits_for_lnk_sandbox_answer(installed, who, said):
    with waiting(installed, who) as asker:
        name = name_of(asker)
        listed = installed.run(who, "answer", "--json")
        [one] = [json.loads(line) for line in listed.stdout.splitlines()]
        assert (one["id"], one["text"], one["sandbox"]) == (name, TEXT, "box")
        shown = installed.run(who, "answer")
        assert TEXT in shown.stdout
        assert installed.run(who, "answer", name, said).returncode == 0
        assert asker.stdout
        assert asker.stdout.read() == f"{said}\n"
    assert left_of(who) == [".lock"]
    gone = installed.run(who, "answer", name, said)
    assert (gone.returncode, "waits any more" in gone.stderr) == (1, True)
    assert "No question waits" in installed.run(who, "answer").stdout


def test_its_files_are_its_users_alone(installed, ordinary):
    with waiting(installed, ordinary) as asker:
        name = name_of(asker)
        folder = f"{ordinary.home}/.lnk/sandbox/questions"
        assert os.stat(folder).st_mode & 0o777 == 0o700
        assert os.stat(f"{folder}/{name}.json").st_mode & 0o777 == 0o600


def test_silence_is_no_answer(installed, ordinary):
    with waiting(installed, ordinary, seconds=1) as asker:
        assert asker.stdout
        assert asker.stdout.read() == "silence\n"
    assert left_of(ordinary) == [".lock"]


def test_a_question_that_is_taken_back_waits_no_more(installed, ordinary):
    with waiting(installed, ordinary) as asker:
        name_of(asker)
        assert asker.stdin
        assert asker.stdout
        asker.stdin.close()
        assert asker.stdout.read() == ""
    assert left_of(ordinary) == [".lock"]


@pytest.mark.parametrize(
    "words", [["x", "--json"], ["x", "maybe"], ["x", "yes", "y"], ["x", "yes", "--json"]]
)
def test_an_answer_is_yes_or_no(installed, ordinary, words):
    done = installed.run(ordinary, "answer", *words)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_question_is_answered_on_its_persons_terminal(installed, ordinary):
    with waiting(installed, ordinary) as asker:
        name_of(asker)
        with Terminal(ordinary, installed.argv("answer")) as terminal:
            terminal.read_until("delete_note")
            terminal.read_until("[y/N] ")
            terminal.type("y\n")
            assert terminal.wait() == 0
        assert asker.stdout
        assert asker.stdout.read() == "yes\n"


@pytest.mark.parametrize("mode", [0o600, 0o000])
def test_a_question_is_answered_on_a_terminal_that_is_nobodys_own(installed, ordinary, mode):
    # As it is without a session's terminal, and behind su, where it is another user's.
    with waiting(installed, ordinary, LONG) as asker:
        control, theirs = os.openpty()
        os.fchown(theirs, ordinary.uid, ordinary.gid)
        os.fchmod(theirs, mode)
        words = [*installed.argv("answer"), name_of(asker)]
        answers = lnk.popen(
            ordinary, words, stdin=theirs, stdout=subprocess.PIPE, start_new_session=True
        )
        assert answers.stdout
        said, pages = "", 1
        while not said.endswith("[y/N] "):
            said += answers.stdout.read(1)
            if said.endswith("n to refuse) "):
                os.write(control, b"\n")
                said, pages = "", pages + 1
        assert pages == 4
        os.write(control, b"y\n")
        assert answers.wait(lnk.LONG_S) == 0
        answers.stdout.close()
        assert asker.stdout
        assert asker.stdout.read() == "yes\n"
        os.close(control)
        os.close(theirs)


@pytest.mark.parametrize(("typed", "said"), [("y\n", "yes\n"), ("\n", "no\n")])
def test_the_command_that_a_notice_names_shows_its_question_and_takes_the_answer(
    installed, ordinary, typed, said
):
    with waiting(installed, ordinary) as asker:
        assert asker.stderr
        words = asker.stderr.readline().split("lnk sandbox ")[-1].split()
        assert words[0] == "answer"
        shown = installed.run(ordinary, *words)
        assert (shown.returncode, TEXT in shown.stdout) == (0, True)
        with Terminal(ordinary, installed.argv(*words)) as terminal:
            terminal.read_until("delete_note")
            terminal.read_until("[y/N] ")
            terminal.type(typed)
            assert terminal.wait() == 0
        assert asker.stdout
        assert asker.stdout.read() == said
    gone = installed.run(ordinary, *words)
    assert (gone.returncode, f"no question {words[1]!r} waits any more" in gone.stderr) == (1, True)


@pytest.mark.parametrize(("typed", "said"), [("\n", "yes\n"), ("n\n", "no\n")])
def test_a_long_question_is_answered_page_by_page(installed, ordinary, typed, said):
    with waiting(installed, ordinary, "\n".join(f"line {n}" for n in range(30))) as asker:
        name_of(asker)
        with Terminal(ordinary, installed.argv("answer")) as terminal:
            first = terminal.read_until("(Enter for more, n to refuse) ")
            assert "line 0" in first
            assert "[y/N]" not in first
            terminal.type(typed)
            if said == "yes\n":
                assert "line 29" in terminal.read_until("[y/N] ")
                terminal.type("y\n")
            assert terminal.wait() == 0
        assert asker.stdout
        assert asker.stdout.read() == said


# In this process: what a dialog's program says, and what is left behind.


@pytest.fixture
def state(tmp_path) -> State:
    return State(str(tmp_path / "lnk"))


@pytest.fixture
def life() -> Iterator[int]:
    reads, writes = os.pipe()
    yield reads
    os.close(reads)
    os.close(writes)


def question(seconds: float = 30, text: str = TEXT) -> Question:
    return Question("box", text, {"DISPLAY": ":9"}, seconds)


def asked_in_vain(asks: Callable[[Question], str | None], shown: Path) -> None:
    """Ask what nobody answers, for so long that a busy machine has shown it by then."""
    for seconds in (0.3, 3, 30):
        assert asks(question(seconds)) == "silence"
        if shown.exists() and shown.read_text().endswith("\n"):
            return
    raise AssertionError("it was never shown")


def a_dialog(tmp_path, monkeypatch, script: str, name: str = "zenity") -> None:
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(asking, "FOLDERS", (str(tmp_path), "/usr/bin", "/bin"))


@pytest.mark.parametrize(("code", "said"), [(0, "yes"), (1, "no"), (5, None), (255, None)])
def test_a_dialogs_status_is_its_answer(tmp_path, monkeypatch, life, code, said):
    a_dialog(tmp_path, monkeypatch, f"cat >{tmp_path}/read; exit {code}")
    assert asking._by_dialog(question(), life) == said
    assert (tmp_path / "read").read_text() == f"The sandbox box asks to\n\n{TEXT}\n"


def test_a_dialog_that_cant_be_drawn_is_no_answer(tmp_path, monkeypatch, life):
    a_dialog(tmp_path, monkeypatch, "echo 'cannot open display: :9' >&2; exit 1")
    assert asking._by_dialog(question(), life) is None


def test_a_dialog_gets_the_way_to_the_screen_and_nothing_else(tmp_path, monkeypatch, life):
    monkeypatch.setenv("LD_PRELOAD_LIKE", "x")
    a_dialog(tmp_path, monkeypatch, f'env >{tmp_path}/env; echo "$@" >{tmp_path}/argv; exit 0')
    assert asking._by_dialog(question(), life) == "yes"
    assert "DISPLAY=:9" in (tmp_path / "env").read_text()
    assert "LD_PRELOAD_LIKE" not in (tmp_path / "env").read_text()
    # What is asked isn't in the command line, which every user can read.
    assert "delete_note" not in (tmp_path / "argv").read_text()


def test_a_dialog_that_nobody_answers_is_closed(tmp_path, monkeypatch, life):
    a_dialog(tmp_path, monkeypatch, f"echo $$ >{tmp_path}/pid; sleep 600")
    asked_in_vain(lambda asked: asking._by_dialog(asked, life), tmp_path / "pid")
    pid = int((tmp_path / "pid").read_text())
    assert not os.path.exists(f"/proc/{pid}/exe")


def test_a_dialog_is_closed_when_its_question_is_taken_back(tmp_path, monkeypatch):
    reads, writes = os.pipe()
    a_dialog(tmp_path, monkeypatch, f"echo $$ >{tmp_path}/pid; sleep 600")
    os.close(writes)
    with pytest.raises(Withdrawn):
        asking._by_dialog(question(), reads)
    os.close(reads)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("printf 'read\\nallow\\n'", "yes"),
        ("printf 'allow\\n'", "no"),
        ("printf 'read\\n'", "no"),
        ("true", "no"),
        # What it says where its window was closed, or its screen went away.
        ("printf 'read\\nallow\\n'; exit 1", "no"),
        ("exit 254", None),
    ],
)
def test_kdialog_allows_by_both_lines_of_its_list_alone(tmp_path, monkeypatch, life, script, said):
    a_dialog(tmp_path, monkeypatch, script, "kdialog")
    assert asking._by_dialog(question(), life) == said


def test_kdialog_is_given_what_it_shows_whole(tmp_path, monkeypatch, life):
    script = f"printf %s \"$5\" >{tmp_path}/shown; printf 'read\\nallow\\n'"
    a_dialog(tmp_path, monkeypatch, script, "kdialog")
    # It reads a backslash and an n as a line's end, and cuts the middle out of a long line.
    text = 'call "f"\nwith:\n  {"a": "x\\n\\nwith no arguments' + "y" * 100 + '"}'
    assert asking._by_dialog(question(text=text), life) == "yes"
    shown = (tmp_path / "shown").read_text()
    assert "x\\\\n\\\\nwith no arguments" in shown
    assert all(len(line) <= 90 for line in shown.split("\n"))
    # It doesn't scroll: what it would cut it isn't given.
    assert asking._by_dialog(question(text="x\n" * 50), life) is None
    assert asking._by_dialog(question(text="x" * 1980 + "\n" * 10), life) is None


def test_what_goes_on_a_line_is_no_line_of_its_own():
    forged = "with no arguments"
    text = f'  "x": "{" " * 12}{forged}"'
    assert asking.folded(text, 20) == '  "x": "            \n> with no arguments"'
    assert asking.folded("a\n\nb", 20) == "a\n\nb"
    assert asking.folded("a" * 20, 20) == "a" * 20


def test_without_a_screen_there_is_no_dialog(tmp_path, monkeypatch, life):
    a_dialog(tmp_path, monkeypatch, "exit 0")
    assert asking._by_dialog(Question("box", TEXT, {}, 30), life) is None


def test_a_dialogs_program_is_looked_for_where_the_system_has_it(tmp_path, monkeypatch):
    fake = tmp_path / "zenity"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asking.find("zenity") != str(fake)
    assert asking.find("sh") == "/usr/bin/sh"


@pytest.mark.parametrize("text", ["", "a\x1b[2J", "a\rb", "é", "\u202e", "a\x7f", "a\tb"])
def test_only_plain_text_is_asked(text):
    with pytest.raises(LaunchError):
        question(text=text)


def test_who_asks_is_plain_too():
    assert Question("bo\x1b[2Jx\u202e", TEXT, {}, 1).sandbox == "bo?[2Jx?"


def test_one_question_is_asked_at_a_time(tmp_path, monkeypatch, state, life):
    a_dialog(tmp_path, monkeypatch, f"echo >>{tmp_path}/shown; sleep 600")
    first = asking._lock(question(), state, life)
    assert first is not None
    assert asking.ask(question(0.3), state, life, print) == "silence"
    assert not (tmp_path / "shown").exists()
    os.close(first)
    asked_in_vain(lambda asked: asking.ask(asked, state, life, print), tmp_path / "shown")


@pytest.mark.parametrize(
    ("dialog", "terminal", "said", "tried"),
    [
        ("yes", None, "yes", ["dialog"]),
        ("no", None, "no", ["dialog"]),
        ("silence", None, "silence", ["dialog"]),
        (None, "yes", "yes", ["dialog", "terminal"]),
        (None, "silence", "silence", ["dialog", "terminal"]),
        (None, None, "yes", ["dialog", "terminal", "queue"]),
    ],
)
def test_a_dialog_is_first_then_the_terminal_and_then_it_waits(
    monkeypatch, state, life, dialog, terminal, said, tried
):
    found: list[str] = []

    def way(name, answer):
        def asks(*_):
            found.append(name)
            return answer

        return asks

    monkeypatch.setattr(asking, "_by_dialog", way("dialog", dialog))
    monkeypatch.setattr(asking, "_on_terminal", way("terminal", terminal))
    monkeypatch.setattr(asking, "_waiting", way("queue", "yes"))
    assert asking.ask(question(), state, life, print) == said
    assert found == tried


def test_two_minutes_without_an_answer_are_a_no_whoever_asks(monkeypatch, state, life):
    monkeypatch.setattr(asking.time, "monotonic", lambda: 1000.0)
    assert question(1e9).until == 1120.0
    asked = question(60)
    monkeypatch.setattr(asking.time, "monotonic", lambda: 1060.0)
    monkeypatch.setattr(asking, "_by_dialog", lambda *_: "yes")
    assert asking.ask(asked, state, life, print) == "silence"


def waits(name: str, asked: float, until: float, pid: int) -> bytes:
    told = {"id": name, "sandbox": "box", "text": TEXT, "pid": pid, "launcher": 0}
    return json.dumps({**told, "asked": asked, "until": until}).encode()


def test_no_more_questions_wait_on_a_machine_than_a_bound(monkeypatch, state, life):
    monkeypatch.setattr(asking, "_on_terminal", lambda *_: None)
    for number in range(asking.WAITING_MAX):
        name, later = f"q{number}", time.time() + 60
        state.write(waits(name, number, later, os.getpid()), "questions", f"{name}.json")
    said: list[str] = []
    asked = Question("box", TEXT, {}, 30)
    assert asking.ask(asked, state, life, said.append) == "silence"
    assert said == []


def test_what_a_killed_asker_left_is_taken_away(state):
    later = time.time() + 60
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name, until, pid in (("old", 1.0, os.getpid()), ("new", later, os.getpid()),
                             ("killed", later, ended.pid)):  # fmt: skip
        state.write(waits(name, until, until, pid), "questions", f"{name}.json")
    state.write(b"yes", "questions", "stray.answer")
    state.write(b"yes", "questions", "new.answer")
    asking.sweep(state)
    assert state.names("questions") == ["new.answer", "new.json"]


def test_pages_hold_every_letter():
    text = "a" * 500 + "\n\n" + "\n".join(str(n) for n in range(50))
    pages = pages_of(text, 80, 24)
    assert all(page.count("\n") < 20 for page in pages)
    assert all(len(line) <= 80 for page in pages for line in page.split("\n"))
    assert "\n".join(pages).replace("\n> ", "").replace("\n", "") == text.replace("\n", "")
    assert pages_of("x", 1, 1) == ["x"]


def test_codes_are_all_different():
    codes = {asking.new_code() for _ in range(300)}
    assert len(codes) > 290
    assert all(len(code) == asking.CODE_CHARS and code.isalnum() for code in codes)


def test_the_askers_words_reach_stderr(monkeypatch, state, life, capsys):
    monkeypatch.setattr(asking, "_on_terminal", lambda *_: None)
    given = json.loads(told(state.settings, seconds=2))
    assert asking.asker(given, life) == "silence"
    assert "lnk sandbox answer" in capsys.readouterr().err
    assert sys.stderr
