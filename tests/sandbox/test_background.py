"""A sandbox in a terminal's background: what is typed there is somebody else's."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.sandbox import lnk

DRIVER = """\
import fcntl, json, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
more = {"process_group": 0} if sys.argv[1] == "behind" else {}
print("ended", subprocess.run(json.loads(sys.argv[2]), **more).returncode, flush=True)
"""
SHELL = """\
import fcntl, json, os, select, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(json.loads(sys.argv[2]), process_group=0, stderr=subprocess.PIPE)
os.tcsetpgrp(0, job.pid)
told = job.stderr.fileno()
def ticks():
    found = b""
    while select.select([told], [], [], 0.3)[0] and len(found) < 4096:
        found += os.read(told, 512)
    return b"tick" in found
while b"tick" not in os.read(told, 512):
    pass
os.killpg(job.pid, signal.SIGTSTP)
for then in ("bg", "bg", "fg"):
    _, status = os.waitpid(job.pid, os.WUNTRACED)
    ticks()
    print("stopped", os.WIFSTOPPED(status), "ticks", ticks(), flush=True)
    os.tcsetpgrp(0, os.getpgrp() if then == "bg" else job.pid)
    os.killpg(job.pid, signal.SIGCONT)
while b"tick" not in os.read(told, 512):
    pass
if sys.argv[1] == "behind":
    os.killpg(job.pid, signal.SIGTSTP)
    os.waitpid(job.pid, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
os.kill(job.pid, signal.SIGTERM)
os.killpg(job.pid, signal.SIGCONT)
print("ended", job.wait(), flush=True)
"""
LOOKS = """\
import os
print([os.isatty(n) for n in range(3)], flush=True)
print("over", os.isatty(0) or os.read(0, 9), flush=True)
os.write(2, b"told\\n")
"""


def seen(who: lnk.Account, command: list[str], where: str, driver: str = DRIVER) -> list[str]:
    """Run a command on a terminal, in its foreground or behind there; return what it shows."""
    ours, theirs = os.openpty()
    argv = ["python3", "-I", "-c", driver, where, json.dumps(command)]
    process = subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env=who.environ, **lnk.identity(who),
    )  # fmt: skip
    os.close(theirs)
    text = b""
    try:
        while data := os.read(ours, 1 << 16):
            text += data
    except OSError:
        pass  # it was hung up
    finally:
        os.close(ours)
        assert process.wait(lnk.LONG_S) == 0
    return sorted(text.decode().replace("\r", "").splitlines())


def test_behind_there_it_has_no_terminal_and_is_heard(installed, who):
    command = installed.wrapped(who, [installed.python, "-I", "-c", LOOKS])
    assert set(seen(who, command, "behind")) >= {"[False, False, False]", "over b''", "told"}


@pytest.mark.parametrize("where", ["front", "behind"])
def test_in_front_and_where_it_keeps_the_terminal_it_has_it(installed, who, where):
    keys = {} if where == "front" else {"terminal": True}
    command = installed.wrapped(who, [installed.python, "-I", "-c", LOOKS], **keys)
    assert set(seen(who, command, where)) >= {"[True, True, True]", "over True", "told", "ended 0"}


@pytest.mark.parametrize("where", ["front", "behind"])
def test_one_that_was_stopped_goes_on_in_front_alone_and_can_be_ended(installed, who, where):
    ticks = "setsid sh -c 'while :; do echo tick >&2; sleep 0.05; done' & wait"
    command = installed.wrapped(who, ["sh", "-c", ticks])
    stops = ["stopped True ticks False"] * 3
    assert seen(who, command, where, SHELL) == ["ended 143", *stops]
