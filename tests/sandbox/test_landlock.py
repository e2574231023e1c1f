"""Landlock by itself, in a process of its own; test_walls tries it in a sandbox."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from sandbox.linux import landlock
from sandbox.linux.libc import Libc


def in_a_fork(what: Callable[[], str]) -> str:
    """Return what a function returns in a process of its own."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(tell, what().encode())
        except OSError as error:
            os.write(tell, f"errno {error.errno}".encode())
        finally:
            os._exit(0)
    os.close(tell)
    with open(told) as file:
        said = file.read()
    os.waitpid(pid, 0)
    return said


needs = pytest.mark.skipif(landlock.abi() < landlock.SCOPE_ABI, reason="kernel: Landlock ABI 6")


@needs
def test_an_abstract_socket_outside_is_closed_and_one_inside_is_open():
    outside = socket.socket(socket.AF_UNIX)
    outside.bind("")  # the kernel gives it an abstract name
    outside.listen()
    name = outside.getsockname()

    def tries() -> str:
        landlock.scope_abstract_sockets()
        mine = socket.socket(socket.AF_UNIX)
        mine.bind("")
        mine.listen()
        socket.socket(socket.AF_UNIX).connect(mine.getsockname())
        try:
            socket.socket(socket.AF_UNIX).connect(name)
        except PermissionError:
            return "closed"
        return "open"

    assert in_a_fork(tries) == "closed"
    outside.close()


@needs
def test_files_that_no_rule_grants_do_not_run_and_are_renamed_all_the_same(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "file").touch()

    def tries() -> str:
        libc = Libc()
        rules = landlock.ruleset(libc, files=landlock.EXECUTE | landlock.REFER)
        landlock.allow(libc, rules, "/", landlock.REFER)
        landlock.restrict(libc, rules)
        os.rename(tmp_path / "a" / "file", tmp_path / "b" / "file")
        try:
            os.execv("/bin/true", ["true"])
        except PermissionError:
            return "closed"

    assert in_a_fork(tries) == "closed"


def test_a_kernel_without_landlock_has_no_abi(monkeypatch):
    class Without(Libc):
        error = landlock.ENOSYS

        def syscall(self, number, *arguments):
            raise OSError(self.error, "")

    assert landlock.abi(Without()) == 0
    Without.error = landlock.EOPNOTSUPP
    assert landlock.abi(Without()) == 0
    Without.error = 1
    with pytest.raises(OSError, match=r"\[Errno 1\]"):
        landlock.abi(Without())


def test_a_call_that_fails_says_which_and_why():
    with pytest.raises(OSError, match="syscall: Bad file descriptor"):
        Libc().syscall(landlock.RESTRICT, 12345, 0)
