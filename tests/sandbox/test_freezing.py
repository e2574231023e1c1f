"""A program is held still while its person is asked on the terminal that they share (R57)."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from sandbox.linux import freezing
from sandbox.linux.freezing import Frozen, go_on, passers_on, program_of
from tests.sandbox import lnk
from tests.sandbox.terminal import Terminal
from tests.sandbox.test_tools import Box, a_box

BUSY = """\
import os, subprocess, sys
# It draws over the terminal, reads what is typed there, and starts processes all the while.
subprocess.Popen([sys.executable, "-c", '''
while True:
    print("\\x1b[2J\\x1b[HType y to go on", flush=True)
'''])
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", '''
import sys
for line in sys.stdin:
    print("STOLEN", repr(line), flush=True)
'''])
subprocess.Popen(["sh", "-c", "while :; do sleep 0.01; done"])
"""


TREE = """\
import os, sys, time
def down(n):
    if os.fork() == 0:
        if n: down(n - 1)
        if n < 3: exec(sys.argv[1])
        time.sleep(600); os._exit(0)
down(4); time.sleep(600)
"""
"""A launcher, its child (bubblewrap), the first inside, and a program that forks."""


@contextmanager
def forked(leaf: str = "pass") -> Iterator[subprocess.Popen[bytes]]:
    """Run the tree until the program's three processes are there, and end it all afterwards.

    leaf: what each of the three does first.
    """
    words = [sys.executable, "-c", TREE, leaf]
    run = subprocess.Popen(words, start_new_session=True)
    try:
        until = time.monotonic() + lnk.LONG_S
        while len(program_of(run.pid)) < 3 and time.monotonic() < until:
            time.sleep(0.02)
        yield run
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def test_all_below_the_first_process_stop_and_go_on() -> None:
    with forked() as run:
        found = program_of(run.pid)
        assert len(found) == 3
        alone = min(found)
        os.kill(alone, signal.SIGSTOP)
        while state(alone) != "T":
            time.sleep(0.01)
        frozen = Frozen.of(run.pid)
        assert frozen is not None
        until = time.monotonic() + lnk.LONG_S
        while {state(pid) for pid in found} != {"T"} and time.monotonic() < until:
            time.sleep(0.01)  # a signal that waits is as good, and seen to take effect
        assert {state(pid) for pid in found} == {"T"}
        assert state(run.pid) != "T"
        frozen.thaw()
        while not {state(pid) for pid in found - {alone}} <= {"S", "R"}:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert state(alone) == "T", "what was stopped before stays so"
        go_on(run.pid)
        while state(alone) == "T" and time.monotonic() < until:
            time.sleep(0.01)
        assert state(alone) != "T"


def state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_program_that_has_ended_is_no_hindrance() -> None:
    run = subprocess.Popen([sys.executable, "-c", "pass"])
    run.wait()
    frozen = Frozen.of(run.pid)
    assert frozen is not None
    frozen.thaw()


@pytest.mark.parametrize(
    ("letters", "looks"),
    [
        (["R", "T"], 2),  # a call that it is in is done first: a fork, or a write
        (["R", "TR", "TS", "T"], 4),  # the same of each thread
        (["RT", "R", "T"], 3),
        (["D"], 1),  # it waits for a child that is stopped too
        (["TD"], 1),
        (["R", "Z"], 2),
        (["R", ""], 2),  # it has ended
    ],
)
def test_one_that_is_to_stop_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, letters: list[str], looks: int
) -> None:
    left = list(letters)
    monkeypatch.setattr(freezing, "program_of", lambda *_: {7})
    monkeypatch.setattr(freezing, "_letters", lambda _: set(left.pop(0)))
    monkeypatch.setattr(freezing, "_waiting", lambda _, **__: 1 << (signal.SIGSTOP - 1))
    assert Frozen.of(6) is not None
    assert len(letters) - len(left) == looks


def test_one_that_stays_in_its_call_for_long_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(freezing, "CALL_S", 0.05)
    monkeypatch.setattr(freezing, "program_of", lambda *_: {7})
    monkeypatch.setattr(freezing, "_letters", lambda _: {"R"})
    monkeypatch.setattr(freezing, "_waiting", lambda _, **__: 1 << (signal.SIGSTOP - 1))
    assert Frozen.of(6) is not None


def test_what_one_started_just_before_it_stopped_is_stopped_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists = [{7}, {7, 8}]
    stopped = {7}
    monkeypatch.setattr(freezing, "program_of", lambda *_: lists.pop(0) if lists[1:] else lists[0])
    monkeypatch.setattr(freezing, "_letters", lambda pid: {"T" if pid in stopped else "S"})
    monkeypatch.setattr(freezing, "_waiting", lambda _, **__: 0)
    monkeypatch.setattr(Frozen, "_stop", lambda _, pid: stopped.add(pid))
    assert Frozen.of(6) is not None
    assert stopped == {7, 8}


def test_all_threads_of_a_program_stop() -> None:
    code = "import threading, time\nfor _ in range(4): threading.Thread(target=spin).start()"
    spin = "def spin():\n    while True: pass\n"
    with forked(spin + code) as run:
        target = min(program_of(run.pid))
        frozen = Frozen.of(run.pid)
        assert frozen is not None
        states = {state(int(thread)) for thread in os.listdir(f"/proc/{target}/task")}
        assert states == {"T"}
        frozen.thaw()


def test_a_held_program_is_known_to_have_been_told_to_end() -> None:
    with forked() as run:
        frozen = Frozen.of(run.pid)
        assert frozen is not None
        target = min(program_of(run.pid))
        os.kill(target, signal.SIGUSR1)
        assert not frozen.is_to_end()
        os.kill(target, signal.SIGTERM)
        assert frozen.is_to_end()
        frozen.thaw()


def test_a_run_that_is_told_to_end_ends_though_it_asks(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    spec = f"{ordinary_folder}/pages.toml"
    with open(spec, "w") as file:
        file.write("[desktop]\nopen = true\n")
    words = ["run", "--yes", "--spec", spec, "--", "sh", "-c", "$BROWSER https://example.com/"]
    with Terminal(ordinary, installed.argv(*words)) as terminal:
        terminal.read_until("Enter alone refuses: ")
        begun = time.monotonic()
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM
        assert time.monotonic() - begun < 60, "silence would be two minutes"


def test_a_program_can_neither_draw_over_the_question_nor_take_its_answer(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    script = f"""
session = begin()
exec({BUSY!r})
print("ANSWERED", call(session, "save", a=1), flush=True)
os.killpg(0, 9)
"""
    with a_box(installed, ordinary, ordinary_folder) as box:
        from tests.sandbox.test_tools import CLIENT

        client = f"{ordinary_folder}/client.py"
        with open(client, "w") as file:
            file.write(CLIENT + script)
        with open(box.spec, "a") as file:
            file.write(f'[files]\nread = ["{client}"]\n')
        words = ["run", "--yes", "--spec", box.spec, "--", "/usr/bin/python3", client]
        with Terminal(ordinary, installed.argv(*words)) as terminal:
            terminal.read_until("\x1b[?1049h")
            said = terminal.read_until("Enter alone refuses: ")
            found = re.search(r"type (\w+) and Enter", said)
            assert found, said
            assert "Type y to go on" not in said
            terminal.type(f"{found[1]}\n")
            after = terminal.read_until("ANSWERED")
            assert "Type y" not in after.partition("\x1b[?1049l")[0]
            assert "STOLEN" not in after
            terminal.read_until("result")
        assert box.calls() == ["save"]


DRAWS = """
session = begin()
print("\\x1b[8m", end="", flush=True)
subprocess = __import__("subprocess")
subprocess.Popen([sys.executable, "-c", "while True: print('Type y to go on', flush=True)"])
print("ANSWERED", call(session, "save", a=1), flush=True)
os.killpg(0, 9)
"""


@contextmanager
def answered(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> Iterator[tuple[Terminal, Box]]:
    """A run in the background of a terminal, on which its question is answered; `pid` is whose."""
    with a_box(installed, who, folder) as box:
        from tests.sandbox.test_tools import CLIENT

        client = f"{folder}/client.py"
        with open(client, "w") as file:
            file.write(CLIENT + DRAWS)
        with open(box.spec, "a") as file:
            file.write(f'[files]\nread = ["{client}"]\n')
        run = ["run", "--yes", "--spec", box.spec, "--", "/usr/bin/python3", client]
        answer = shlex.join(installed.argv("answer"))
        words = (
            f"set -m; {shlex.join(installed.argv(*run))} </dev/null &\n"
            f"echo $! >{folder}/run; id=\n"
            # Another run's may still be there, where nobody has reaped who asked.
            f"until [ $id ]; do id=$({answer} --json | grep run-$! | cut -d'\"' -f4); done\n"
            f"sh -c 'echo $$ >{folder}/pid; exec {answer} '$id; wait"
        )
        with Terminal(who, ["/bin/bash", "-c", words]) as terminal:
            terminal.resize(24, 80)
            terminal.read_until("\x1b[?1049h")
            with open(f"{folder}/run") as file:
                left = int(file.read())
            try:
                yield terminal, box
            finally:
                with suppress(ProcessLookupError):
                    os.kill(left, signal.SIGTERM)
                    while True:  # its question waits no more than it does
                        os.kill(left, 0)
                        time.sleep(0.05)


def stopped_of(box: Box) -> set[str]:
    """Return which processes outside a sandbox are stopped: its asker, or its tool's server."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode().split("\0")
            asks = words[3:] == [f"{box.installed.folder}/sandbox/cli/kept_start.py", "ask", ""]
            ours = box.notes in words or asks
            if ours and state(int(pid)) == "T":
                found.add(" ".join(words))
    return found


def test_a_program_in_the_background_cant_draw_over_its_question_either(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    with answered(installed, ordinary, ordinary_folder) as (terminal, box):
        said = terminal.read_until("[y/N] ")
        with open(f"{ordinary_folder}/run") as file:
            passing = passers_on(int(file.read()))
        assert [state(pid) for pid in passing] == ["T"], "what it said before is drawn later"
        assert stopped_of(box) == set(), "who asks, and the tool, are no program of the sandbox's"
        assert '"save"' in said
        assert "Type y" not in said
        terminal.type("y\n")
        after = terminal.read_until("ANSWERED")
        assert "Type y" not in after.partition("\x1b[?1049l")[0]
        assert "Type y" in after, "and it goes on"
        assert box.calls() == ["save"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_goes_on_where_who_answers_is_told_to_end(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, number: int
) -> None:
    with answered(installed, ordinary, ordinary_folder) as (terminal, _):
        terminal.read_until("[y/N] ")
        with open(f"{ordinary_folder}/pid") as file:
            os.kill(int(file.read()), number)
        terminal.read_until("\x1b[?1049l")
        terminal.read_until("Type y to go on")
