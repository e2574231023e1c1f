"""A real dialog on a real screen: what a person sees, and which keys allow (R57)."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from sandbox import asking
from sandbox.asking import Question

TEXT = 'call "delete_note"\nwith:\n  {\n    "<b>id</b>": 1\n  }'


PAUSES_S = 0.2, 1, 4
"""How long is waited after each key."""
WAITS = "waits"


class Screen:
    """An X server of its own, and somebody who types on it."""

    def __init__(self, display: str) -> None:
        self.environ = {"DISPLAY": display, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}

    def xdotool(self, *words: str) -> str:
        done = subprocess.run(
            ["xdotool", *words], env=self.environ, capture_output=True, text=True, timeout=110
        )
        return done.stdout

    def window(self) -> str:
        """Wait for the dialog."""
        until = time.monotonic() + 110
        while time.monotonic() < until:
            found = self.xdotool("search", "--onlyvisible", "--name", "lnk sandbox").split()
            if found:
                return found[0]
            time.sleep(0.1)
        raise AssertionError("no dialog was drawn")

    def answers(self, keys: list[str], wanted: str) -> bool:
        """Tell whether keys at the dialog give an answer.

        Nothing tells when a window that is there is drawn, and takes keys: where some were lost
        it is asked again, and they are typed more slowly.
        """
        return any(self.ask(keys, pause_s) == wanted for pause_s in PAUSES_S)

    def ask(self, keys: list[str], pause_s: float) -> str | None:
        """Ask, and type keys with pauses; return the answer, WAITS where they give none.

        Then the question is taken back.
        """
        reads, writes = os.pipe()
        found: list[str | None] = []
        question = Question("box", TEXT, {"DISPLAY": self.environ["DISPLAY"]}, 110)

        def put() -> None:
            with suppress(asking.Withdrawn):
                found.append(asking._by_dialog(question, reads))

        thread = threading.Thread(target=put)
        thread.start()
        try:
            window = self.window()
            time.sleep(2 * pause_s)
            self.xdotool("windowfocus", "--sync", window)
            for key in keys:
                self.xdotool("key", "--window", window, key)
                time.sleep(pause_s)
            thread.join(5 * pause_s)
            waits = thread.is_alive()
        finally:
            os.close(writes)
            thread.join()
            os.close(reads)
        return WAITS if waits else found[0]


@contextmanager
def x_server() -> Iterator[Screen]:
    reads, writes = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writes), "-screen", "0", "1024x768x24", "-noreset"],
        pass_fds=(writes,), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writes)
    try:
        with open(reads) as told:
            yield Screen(f":{int(told.readline())}")
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def screen() -> Iterator[Screen]:
    with x_server() as made:
        yield made


def test_the_box_must_be_ticked_before_a_yes(screen: Screen) -> None:
    # From the text: the box, which is ticked; then refuse, then allow.
    assert screen.answers(["Tab", "space", "Tab", "Tab", "Return"], "yes")


def test_keys_meant_for_another_window_allow_nothing(screen: Screen) -> None:
    assert screen.ask(["Return", "space", "y", "Return", "space"], 0.2) == WAITS


def test_escape_refuses(screen: Screen) -> None:
    assert screen.answers(["Escape"], "no")


def test_a_dialog_that_cannot_be_watched_is_taken_away(monkeypatch) -> None:
    started: list[int] = []

    def none_left(pid: int) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    reads, writes = os.pipe()
    question = Question("box", TEXT, {}, 110)
    with pytest.raises(OSError, match="Too many"):
        asking._run_dialog(["/bin/sleep", "600"], "", question, reads)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)
    os.close(reads)
    os.close(writes)
