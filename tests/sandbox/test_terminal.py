"""A sandbox that keeps its terminal: Ctrl-C, job control inside, and the shell around it."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.sandbox import lnk
from tests.sandbox.terminal import Terminal

KEPT = {"terminal": True}
LISTED = {"commands": {"only": ["/bin/bash", "/bin/sh", "/usr/bin/sleep", "/usr/bin/stty",
                                "/usr/bin/python3", "/usr/bin/cat"]}}  # fmt: skip


@pytest.fixture(params=["any", "listed"])
def keys(request: pytest.FixtureRequest) -> dict[str, object]:
    return {**KEPT, **(LISTED if request.param == "listed" else {})}


def test_a_program_reads_and_writes_its_terminal(installed, who, keys):
    command = installed.wrapped(who, ["sh", "-c", "tty -s; read x < /dev/tty; echo got $x"], **keys)
    with Terminal(who, command) as terminal:
        terminal.type("hello\n")
        terminal.read_until("got hello")
        assert terminal.wait() == 0


def test_ctrl_c_reaches_the_program_once_and_nothing_else(installed, who, keys):
    script = "trap 'echo int' INT; echo up; while :; do sleep 0.05; done"
    command = installed.wrapped(who, ["sh", "-c", script], **keys)
    with Terminal(who, command) as terminal:
        terminal.read_until("up")
        for _ in range(3):
            terminal.type("\x03")
            assert terminal.read_until("int").count("int") == 1
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM


def test_a_program_that_leaves_ctrl_c_alone_ends_by_it(installed, who, keys):
    command = installed.wrapped(who, ["sh", "-c", "echo up; exec sleep 1000"], **keys)
    for typed, number in (("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)):
        with Terminal(who, command) as terminal:
            terminal.read_until("up")
            terminal.type(typed)
            assert terminal.wait() == 128 + number


def test_a_shell_inside_has_job_control(installed, who, keys):
    command = installed.wrapped(who, ["bash", "--norc", "--noprofile", "-i"], **keys)
    with Terminal(who, command) as terminal:
        terminal.type("PS1='ready> '; set +H\n")
        terminal.read_until("ready> ")
        terminal.read_until("ready> ")
        terminal.type("sleep 1000\n")
        terminal.read_until("sleep 1000")
        wait_for_front(terminal, "sleep")
        terminal.type("\x1a")
        terminal.read_until("Stopped")
        terminal.type("jobs; echo still $((40 + 2))\n")
        terminal.read_until("still 42")
        terminal.type("fg\n")
        terminal.read_until("sleep 1000")
        wait_for_front(terminal, "sleep")
        terminal.type("\x03")
        terminal.read_until("ready> ")
        terminal.type("echo no job left: $(jobs | wc -l 2>/dev/null); exit 7\n")
        assert terminal.wait() == 7


def wait_for_front(terminal: Terminal, name: str) -> None:
    """Wait until a program of this name is in the terminal's foreground."""
    until = time.monotonic() + lnk.LONG_S
    while True:
        group = os.tcgetpgrp(terminal.control)
        try:
            with open(f"/proc/{group}/comm") as file:
                if file.read().strip() == name:
                    return
        except OSError:
            pass
        assert time.monotonic() < until, f"{name} isn't in the foreground"
        time.sleep(0.01)


def test_ctrl_z_stops_the_launcher_too_and_both_go_on(installed, who, keys):
    """The shell that it was started from sees its job stopped, and may type meanwhile."""
    script = "echo up; while read x; do echo got $x; done"
    command = installed.wrapped(who, ["sh", "-c", script], **keys)
    with Terminal(who, command) as terminal:
        terminal.read_until("up")
        terminal.type("one\n")
        terminal.read_until("got one")
        for word in ("two", "three"):
            terminal.type("\x1a")
            pid, status = os.waitpid(terminal.pid, os.WUNTRACED)
            assert pid == terminal.pid
            assert os.WIFSTOPPED(status)
            assert os.tcgetpgrp(terminal.control) == terminal.pid, "its terminal is the shell's"
            os.kill(terminal.pid, signal.SIGCONT)
            terminal.type(f"{word}\n")
            terminal.read_until(f"got {word}")
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_nothing_is_typed_into_it_for_the_shell_to_read(installed, who, keys):
    code = (
        "import fcntl, json\n"
        "def tried(request, data):\n"
        "    try: fcntl.ioctl(0, request, data)\n"
        "    except OSError as error: return error.errno\n"
        "print(json.dumps([tried(r, b'x') for r in (0x5412, 0x541C)]))"
    )
    command = installed.wrapped(who, ["/usr/bin/python3", "-c", code], **keys)
    with Terminal(who, command) as terminal:
        said = terminal.read_until("]")
        assert json.loads(said[said.index("[") :]) == [1, 1]  # EPERM
        assert terminal.wait() == 0


def test_the_terminal_is_the_shells_again_at_the_end(installed, who, keys):
    command = installed.wrapped(who, ["sh", "-c", "exit 3"], **keys)
    code = (
        "import os, subprocess, sys; done = subprocess.run(sys.argv[1:]).returncode; "
        "print('ended', done, os.tcgetpgrp(0) == os.getpgrp())"
    )
    with Terminal(who, [installed.python, "-I", "-S", "-c", code, *command]) as terminal:
        terminal.read_until("ended 3 True")
        assert terminal.wait() == 0


def test_without_a_terminal_it_runs_as_ever(installed, who, keys):
    done = lnk.run(who, installed.wrapped(who, ["sh", "-c", "cat; exit 5"], **keys), input="x",
                   start_new_session=True)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (5, "x", "")


def test_the_terminals_size_reaches_the_program(installed, who, keys):
    script = "trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.05; done"
    command = installed.wrapped(who, ["sh", "-c", script], **keys)
    with Terminal(who, command) as terminal:
        terminal.read_until("up")
        terminal.resize(33, 77)
        terminal.read_until("33 77")
        assert terminal.wait() == 0
