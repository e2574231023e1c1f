"""A command in the foreground of a terminal of its own."""

from __future__ import annotations

import codecs
import os
import pty
import select
import signal
import termios
import time

from tests.sandbox import lnk

SIZE = 24, 80
"""Rows and columns."""


class Terminal:
    """A command in the foreground of a terminal of its own."""

    def __init__(self, who: lnk.Account, command: list[str]) -> None:
        self.pid, self.control = pty.fork()
        if self.pid == 0:
            try:
                termios.tcsetwinsize(0, SIZE)  # before anything looks at it
                os.setgroups([])
                os.setgid(who.gid)
                os.setuid(who.uid)
            except PermissionError:
                pass  # it is our own
            try:
                os.chdir(who.home)
                os.execve(command[0], command, who.environ)
            finally:
                os._exit(99)
        self.said = ""
        self._letters = codecs.getincrementaldecoder("utf-8")("replace")  # a read may cut one
        self.status: int | None = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.control)

    def read_until(self, words: str) -> str:
        """Return what was said up to and with some words."""
        until = time.monotonic() + lnk.LONG_S
        while words not in self.said:
            assert time.monotonic() < until, self.said
            assert select.select([self.control], [], [], lnk.LONG_S)[0], self.said
            try:
                self.said += self._letters.decode(os.read(self.control, 4096))
            except OSError:
                raise AssertionError(self.said) from None
        before, _, self.said = self.said.partition(words)
        return before + words

    def type(self, text: str) -> None:
        os.write(self.control, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.control, (rows, columns))

    def continue_(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.status = status
        return os.waitstatus_to_exitcode(status)
