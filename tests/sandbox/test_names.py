"""What the launcher hears from inside: bounded, escaped, and never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from sandbox.linux import names
from sandbox.linux.kept import Kept
from tests.sandbox import lnk

PLACES = {"/work": True, "/work/kept": False, "/tmp": True}


@pytest.fixture(autouse=True)
def _no_signal():
    """Who hears of the pipe by SIGIO has it blocked; a thread that another test left has not."""
    handler = signal.signal(signal.SIGIO, lambda *_: None)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    yield
    while signal.sigtimedwait({signal.SIGIO}, 0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    signal.signal(signal.SIGIO, handler)


def kept(log: str | None = None, learns: object = None) -> Kept:
    inside = {"log": log, "name": "box", "places": PLACES, "learns": learns}
    fields = {"bwrap": "", "args": [], "copy": [], "check": [], "bpf": "", "wire": None, "port": 0,
              "home": "", "path": [], "state": "", "uid": 0, "dots": None, "scoped": False,
              "sockets": [],
              "inside": inside}  # fmt: skip
    return Kept(fields)


class Heard:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.programs: list[tuple[bytes, bytes]] = []
        self.ended = False

    def __call__(self, called: bytes, real: bytes) -> None:
        self.programs.append((called, real))

    def end(self) -> None:
        self.ended = True


def fill(pipe: int) -> None:
    """Write until there is no room."""
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"x" * 4096)


def test_a_record_is_heard_whole_however_it_comes():
    heard = Heard()
    made = names.Names(heard)
    whole = b"p12\0x/bin/a\0/usr/bin/a\0s\0x/bin/b\0/usr/bin/b\0"
    for at in range(len(whole)):
        os.write(made.inner, whole[at : at + 1])
        made.hear()
    assert heard.programs == [(b"/bin/a", b"/usr/bin/a"), (b"/bin/b", b"/usr/bin/b")]
    assert made.stopped
    assert made.program == 12
    os.close(made.inner)
    made.end()
    assert heard.ended
    made.close()


HEARS = f"""
import os, signal, sys
sys.path.append({lnk.REPOSITORY!r})
from sandbox.linux import names
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
made = names.Names(None)
made.hear()
print(signal.sigtimedwait([signal.SIGIO], 0) is None)
os.write(made.inner, b"s\\0")
print(signal.sigtimedwait([signal.SIGIO], 30) is not None)
"""


def test_hearing_waits_for_nothing_and_the_kernel_says_when():
    """In a process with one thread, as the launcher is."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", HEARS], capture_output=True, timeout=lnk.LONG_S, check=False
    )
    assert (done.stdout, done.stderr) == (b"True\nTrue\n", b"")


@pytest.mark.parametrize("garbage", [b"\0", b"garbage\0\0\0", b"\xff" * 20000, b"x" * 100_000])
def test_what_is_no_record_is_kept_short_and_heard_as_nothing(garbage):
    heard = Heard()
    made = names.Names(heard)
    for at in range(0, len(garbage), 4096):
        os.write(made.inner, garbage[at : at + 4096])
        made.hear()
    assert heard.programs == []
    assert len(made._said) <= names.RECORD_MAX
    os.close(made.inner)
    made.close()


def test_a_name_is_one_printable_line_of_ascii(capfd):
    tell = names.Refused(kept())
    tell(b"/opt/\x1b[31m\n\xff\xe2\x80\xaeexe", b"/opt/x")
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert said.isascii()
    assert said[:-1].isprintable()
    tell(b"/opt/" + b"a" * 5000, b"/opt/x")
    assert len(capfd.readouterr().err) < 3 * names.SHOWN_MAX


def test_what_the_sandbox_writes_is_said_to_be_so(capfd):
    tell = names.Refused(kept())
    tell(b"/work/x", b"/work/x")
    tell(b"/work/kept/x", b"/work/kept/x")
    tell(b"/usr/bin/link", b"/tmp/x")
    assert capfd.readouterr().err.splitlines() == [
        "lnk sandbox: x isn't in [commands] only, and can't be: the sandbox writes /work.",
        'lnk sandbox: x isn\'t in [commands] only: add "/work/kept/x" to let it run.',
        "lnk sandbox: link isn't in [commands] only, and can't be: the sandbox writes /tmp.",
    ]


def test_so_many_are_named_and_no_more(capfd):
    tell = names.Refused(kept())
    for number in range(names.TOLD_MAX + 50):
        tell(b"/opt/%d" % number, b"/opt/%d" % number)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == names.TOLD_MAX + 1
    assert lines[-1] == "lnk sandbox: more programs are refused than are named here."


def test_a_reader_who_stands_still_stops_nothing():
    read, write = os.pipe()
    os.set_blocking(write, False)
    fill(write)
    os.set_blocking(write, True)
    before = os.dup(2)
    os.dup2(write, 2)
    try:
        names.say("nobody reads this.")
    finally:
        os.dup2(before, 2)
        for fd in (before, read, write):
            os.close(fd)


def test_each_is_a_line_of_the_log(tmp_path, capfd):
    tell = names.Refused(kept(str(tmp_path)))
    tell(b'/opt/"quoted"', b"/opt/x")
    (line,) = (tmp_path / "box.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["verb"], found["verdict"], found["host"], found["port"]) == (
        "exec", "refused", "", 0,
    )  # fmt: skip
    why = '"quoted" isn\'t in [commands] only: add "/opt/\\"quoted\\"" to let it run.'
    assert found["reason"] == why
    assert set(found) == {"time", "call", "verb", "host", "port", "verdict", "reason", "status"}
    assert os.stat(tmp_path / "box.jsonl").st_mode & 0o777 == 0o600


def test_a_log_that_is_a_link_or_too_long_is_left_alone(tmp_path, capfd):
    (tmp_path / "target").touch()
    os.symlink(tmp_path / "target", tmp_path / "box.jsonl")
    tell = names.Refused(kept(str(tmp_path)))
    tell(b"/opt/x", b"/opt/x")
    assert (tmp_path / "target").read_bytes() == b""
    os.unlink(tmp_path / "box.jsonl")
    with open(tmp_path / "box.jsonl", "w") as file:
        file.truncate(names.LOG_MAX_BYTES)
    tell(b"/opt/y", b"/opt/y")
    assert os.path.getsize(tmp_path / "box.jsonl") == names.LOG_MAX_BYTES


def test_who_learns_refuses_nothing():
    from sandbox.linux.learned import Learned

    assert isinstance(names.teller(kept(learns=[])), Learned)
    assert isinstance(names.teller(kept()), names.Refused)
