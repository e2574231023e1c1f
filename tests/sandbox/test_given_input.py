"""A file on a sandbox's standard input: it is read, and never written."""

from __future__ import annotations

import os
import subprocess

import pytest

from sandbox.errors import LaunchError
from sandbox.linux import given_input
from tests.sandbox import lnk

TRIES = """\
import os, sys
print(sys.stdin.read(5))
for way in (
    lambda: os.write(os.open("/proc/self/fd/0", os.O_WRONLY), b"forged"),
    lambda: os.truncate("/proc/self/fd/0", 0),
    lambda: os.fchmod(0, 0o666),
    lambda: os.utime(0, (1, 1)),
    lambda: os.write(0, b"forged"),
):
    try:
        way()
    except OSError:
        pass
"""


def given(who: lnk.Account, path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o600)
    os.chown(path, who.uid, who.gid)


@pytest.mark.parametrize("keys", [{}, {"terminal": True}], ids=str)
def test_it_is_read_and_not_changed(installed, who, folder, keys):
    path = f"{folder}/notes"
    given(who, path, "these are notes")
    before = os.stat(path)
    command = installed.wrapped(who, [installed.python, "-I", "-c", TRIES], **keys)
    with open(path) as file:
        done = lnk.run(who, command, stdin=file)
    assert (done.returncode, done.stdout) == (0, "these\n"), done.stderr
    after = os.stat(path)
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    with open(path) as file:
        assert file.read() == "these are notes"


def test_without_the_copy_it_is_written(who, folder):
    path = f"{folder}/notes"
    given(who, path, "these are notes")
    with open(path) as file:
        lnk.run(who, ["python3", "-I", "-c", TRIES], stdin=file)
    with open(path) as file:
        assert file.read() != "these are notes"


def test_it_begins_where_it_was_read_to_and_can_be_sought(installed, who, folder):
    given(who, f"{folder}/lines", "one\ntwo\nthree\n")
    words = "import os; print(os.read(0, 3), os.lseek(0, 0, 0), os.read(0, 3), os.fstat(0).st_size)"
    command = installed.wrapped(who, [installed.python, "-I", "-c", words])
    with open(f"{folder}/lines", "rb", buffering=0) as file:
        file.read(4)
        done = lnk.run(who, command, stdin=file)
        assert file.read() == b"two\nthree\n"
    assert done.stdout == "b'two' 0 b'one' 14\n"


def test_one_that_was_opened_to_be_written_is(installed, who, folder):
    given(who, f"{folder}/open", "was")
    command = installed.wrapped(who, ["sh", "-c", "printf now >&0"])
    with open(f"{folder}/open", "r+") as file:
        assert lnk.run(who, command, stdin=file).returncode == 0
    with open(f"{folder}/open") as file:
        assert file.read() == "now"


def test_a_listed_program_runs_none_from_its_input(installed, who):
    """The copy is a memory file, which Landlock doesn't judge."""
    words = "import os; os.execv('/proc/self/fd/0', ['id'])"
    command = installed.wrapped(
        who, [installed.python, "-I", "-c", words], commands={"only": [installed.python]}
    )
    with open("/usr/bin/id") as file:
        done = lnk.run(who, command, stdin=file)
    assert done.returncode == 1
    assert "Permission denied" in done.stderr


def test_one_that_is_too_long_is_refused_with_its_cure(tmp_path, monkeypatch):
    (tmp_path / "long").write_bytes(b"x" * 33)
    monkeypatch.setattr(given_input, "INPUT_MAX_BYTES", 32)
    kept = os.dup(0)
    fd = os.open(tmp_path / "long", os.O_RDONLY)
    try:
        os.dup2(fd, 0)
        with pytest.raises(LaunchError, match="hand it over by a pipe"):
            given_input.copy()
        monkeypatch.setattr(given_input, "INPUT_MAX_BYTES", 33)
        given_input.copy()
        assert os.readlink("/proc/self/fd/0").startswith("/memfd:")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(fd)


def test_what_the_kernel_tells_by_a_file_without_a_size_arrives(installed, who):
    command = installed.wrapped(who, ["cat"])
    with open("/proc/self/status") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False,
                              **lnk.identity(who), env=who.environ)  # fmt: skip
    assert done.stdout.startswith("Name:")
