"""Starts on an odd machine, or by an odd caller: each works, or is refused in a sentence."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess

import pytest

from sandbox.linux import launcher
from tests.sandbox import lnk

# -- signals that the caller ignores ---------------------------------------------------------

IGNORING = """\
import os, signal, sys
for name in sys.argv[1].split(","):
    signal.signal(signal.Signals[name], signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
"""
WAITS = "echo ready; read line; echo $line"


def ignoring(installed: lnk.Installed, names: str, command: list[str]) -> list[str]:
    return [installed.python, "-I", "-c", IGNORING, names, *command]


def mask(pid: int, name: str) -> int:
    """Return signals of a process, a bit each."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1], 16) for line in status if line.startswith(name))


@pytest.mark.parametrize("keys", [{}, {"terminal": True}], ids=str)
def test_an_end_is_heard_of_where_the_caller_ignores_it(installed, who, keys):
    command = installed.wrapped(who, ["sh", "-c", "exit 7"], **keys)
    done = lnk.run(who, ignoring(installed, "SIGCHLD", command))
    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.parametrize("keys", [{}, {"terminal": True}], ids=str)
@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"])
def test_a_signal_that_the_caller_ignores_ends_nothing(installed, who, name, keys):
    command = installed.wrapped(who, ["sh", "-c", WAITS], **keys)
    running = lnk.popen(
        who, ignoring(installed, name, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert running.stdout.readline() == "ready\n"
    bit = 1 << (signal.Signals[name] - 1)
    assert mask(running.pid, "SigIgn") & bit, "nobody hears of it: that needs no wait"
    assert not mask(running.pid, "SigBlk") & bit
    running.send_signal(signal.Signals[name])
    out, _ = running.communicate("went on\n", timeout=lnk.LONG_S)
    assert (running.returncode, out) == (0, "went on\n")


@pytest.mark.parametrize("keys", [{}, {"terminal": True}], ids=str)
def test_the_program_ignores_what_its_caller_does_and_no_more(installed, who, keys):
    words = ["sh", "-c", "grep SigIgn: /proc/self/status"]
    command = installed.wrapped(who, words, **keys)
    done = lnk.run(who, ignoring(installed, "SIGHUP,SIGINT,SIGPIPE,SIGCHLD", command))
    wanted = sum(1 << (number - 1) for number in (signal.SIGHUP, signal.SIGINT))
    of_c = 3 << (32 - 1)  # the C library's own, which it may have ignored
    assert int(done.stdout.split()[1], 16) & ~of_c == wanted


# -- limits of the caller's ------------------------------------------------------------------


def limited(what: int, most: int) -> dict[str, object]:
    return {"preexec_fn": lambda: resource.setrlimit(what, (most, most))}


@pytest.mark.parametrize("most", [40, 55, 60, 65, 70])
def test_too_few_descriptors_are_named_with_their_cure(installed, who, folder, most):
    done = installed.run(
        who, "run", "--yes", "--write", folder, "--", "true",
        **limited(resource.RLIMIT_NOFILE, most),
    )  # fmt: skip
    if done.returncode != 0:
        assert done.returncode == 125
        assert "Traceback" not in done.stderr
        assert done.stderr.endswith(": raise the limit of them (ulimit -n).\n")
    assert os.listdir(folder) == []


def test_no_room_for_a_file_is_named_with_its_cure(installed, who, folder):
    done = installed.run(
        who, "run", "--yes", "--write", folder, "--", "true", **limited(resource.RLIMIT_FSIZE, 64)
    )
    assert done.returncode == 125
    assert done.stderr.count("\n") == 1
    assert "File too large: raise the limit of a file's length (ulimit -f)." in done.stderr
    assert os.listdir(folder) == []


@pytest.mark.parametrize("most", [1 << 14, 1 << 15, 1 << 16])
def test_what_bubblewrap_is_told_is_never_cut(installed, who, most):
    """A write that reaches the limit ends early: the rest would be walls that are missing."""
    largest = max(os.path.getsize(one.path) for one in os.scandir("/etc") if one.is_file())
    most += largest  # such a file is copied in, and it isn't that what is refused
    many = {f"LNK_TESTS_{number}": "x" * 1000 for number in range(most // 1000 + 2)}
    command = installed.wrapped(who, ["sh", "-c", "echo ran"])
    limit = limited(resource.RLIMIT_FSIZE, most)
    done = lnk.run(who, command, environ=many, **limit)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == (
        "lnk sandbox: the sandbox could not be started: File too large: raise the limit of a "
        "file's length (ulimit -f).\n"
    )


def test_no_room_for_a_process_is_named_with_its_cure(installed, ordinary, ordinary_folder):
    if ordinary.uid == os.geteuid():
        pytest.skip("needs a user of its own, whose processes are counted")
    words = ["run", "--yes", "--write", ordinary_folder, "--", "true"]
    done = installed.run(ordinary, *words, **limited(resource.RLIMIT_NPROC, 1))
    assert done.returncode == 125
    assert "could not be started: Resource temporarily unavailable: end some" in done.stderr
    assert os.listdir(ordinary_folder) == []


# -- a home, and settings, by a link ---------------------------------------------------------


def test_a_home_that_is_a_link_is_there_by_its_name(installed, who, folder):
    os.mkdir(f"{folder}/real")
    os.symlink("real", f"{folder}/home")
    os.chown(f"{folder}/real", who.uid, who.gid)
    environ = {"HOME": f"{folder}/home"}
    words = ["sh", "-c", "cd ~ && pwd -P && echo mine > ~/.config && cat $HOME/.config"]
    done = installed.run(who, "run", "--yes", "--", *words, environ=environ)
    assert (done.returncode, done.stdout) == (0, f"{folder}/real\nmine\n"), done.stderr
    assert os.listdir(f"{folder}/real") == []


@pytest.mark.parametrize("name", ["LNK_HOME", "HOME"])
def test_a_link_to_the_settings_is_in_no_written_folder(installed, who, folder, name):
    for path in (f"{folder}/real", f"{folder}/work"):
        os.mkdir(path)
        os.chown(path, who.uid, who.gid)
    os.symlink("../real", f"{folder}/work/link")
    environ = {"LNK_HOME": "", name: f"{folder}/work/link/mine"}
    confinement = {"name": "box", "write": [f"{folder}/work"], "read": [], "commands": "any",
                   "net": "closed"}  # fmt: skip
    request = json.dumps({"confinement": confinement, "argv": ["true"]})
    done = installed.run(who, "wrap", input=request, environ=environ)
    assert (done.returncode, done.stdout) == (125, "")
    assert f"write names {folder}/work, and a link in {folder}/work leads to" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be two users")
def test_root_runs_no_command_that_was_made_for_another(installed, people):
    command = installed.wrapped(people["user"], ["true"])
    assert lnk.run(people["user"], command).returncode == 0
    done = lnk.run(people["root"], command)
    assert done.returncode == 125
    assert "made by an ordinary user, and its walls are for one: make it anew" in done.stderr


# -- streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fd", [0, 1, 2])
def test_a_file_that_only_reads_is_written_by_no_stream(installed, who, folder, fd):
    path = f"{folder}/notes"
    with open(path, "w") as file:
        file.write("notes")
    os.chown(path, who.uid, who.gid)
    command = installed.wrapped(who, ["sh", "-c", f"echo forged > /proc/self/fd/{fd}"])
    name = ("stdin", "stdout", "stderr")[fd]
    with open(path) as file:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
                   "stderr": subprocess.DEVNULL, name: file}  # fmt: skip
        lnk.run(who, command, capture_output=False, **streams)
    with open(path) as file:
        assert file.read() == "notes"


@pytest.mark.parametrize(
    ("mode", "number", "terminal", "judged"),
    [
        (0o100600, 0, False, True),
        (0o060600, os.makedev(7, 0), False, True),
        (0o020600, os.makedev(13, 64), False, True),
        (0o020666, os.makedev(1, 3), False, False),
        (0o020620, os.makedev(136, 0), True, False),
        (0o010600, 0, False, False),
        (0o140600, 0, False, False),
    ],
    ids=["file", "disk", "device", "null", "terminal", "pipe", "socket"],
)
def test_what_could_be_opened_anew_is_told_apart(monkeypatch, mode, number, terminal, judged):
    about = os.stat_result((mode, 0, 0, 0, 0, 0, 0, 0, 0, 0), {"st_rdev": number})
    monkeypatch.setattr(launcher.posix, "fstat", lambda _: about)
    monkeypatch.setattr(launcher.posix, "isatty", lambda _: terminal)
    assert launcher._could_be_opened_anew(0) is judged


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may open a disk")
@pytest.mark.skipif(not os.path.exists("/dev/loop0"), reason="kernel: no loop device")
def test_a_disk_that_is_given_to_be_read_is_refused(installed, people):
    command = installed.wrapped(people["root"], ["true"])
    with open("/dev/loop0", "rb") as disk:
        done = lnk.run(people["root"], command, stdin=disk)
    assert done.returncode == 125
    assert "the standard input is a device, given to be read" in done.stderr
    assert "hand it over by a pipe" in done.stderr
