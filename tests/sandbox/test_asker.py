"""Questions of a bridge's, one after the other: `sandbox/cli/bridge_parts.py`."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable
from itertools import count

import pytest

from sandbox.cli import bridge_parts
from sandbox.cli.ask import QUESTION_MAX_BYTES
from sandbox.cli.bridge import Told, read_line
from sandbox.cli.bridge_parts import UNANSWERED_MAX, Asker
from shells.poll_loop import Loop
from tests.sandbox.loops import TOLD, turn


@pytest.fixture
def asked(tmp_path, monkeypatch) -> Callable[[], int]:
    """Have questions put to a program that waits for their end; tell how many were."""
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\necho x >>{tmp_path}/asked\n/bin/cat >/dev/null\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(fake))

    def count() -> int:
        path = tmp_path / "asked"
        return len(path.read_text().split()) if path.exists() else 0

    return count


def test_questions_that_are_taken_back_again_and_again_are_asked_no_more(asked) -> None:
    loop = Loop()
    asker = Asker(loop, Told(TOLD))
    said: list[str] = []
    for number in range(UNANSWERED_MAX):
        asker.ask(number, "x", said.append)
        turn(loop, lambda number=number: asked() == number + 1)  # type: ignore[misc]
        asker.withdraw(number)
        turn(loop, lambda: asker._life is None)
    asker.ask("one more", "x", said.append)
    turn(loop, lambda: bool(said))
    assert said == ["enough"]
    assert asked() == UNANSWERED_MAX


def test_a_question_that_is_taken_back_before_it_was_asked_counts_for_nothing(asked) -> None:
    loop = Loop()
    asker = Asker(loop, Told(TOLD))
    asker.ask("first", "x", lambda _: None)
    for number in range(UNANSWERED_MAX):
        asker.ask(number, "x", lambda _: None)
        asker.withdraw(number)
    assert asker._unanswered == []
    asker.end()
    turn(loop, lambda: asker._life is None)


def test_what_waits_behind_another_for_two_minutes_is_not_asked(asked, monkeypatch) -> None:
    loop = Loop()
    asker = Asker(loop, Told(TOLD))
    said: list[str] = []
    now = 1000.0
    monkeypatch.setattr(bridge_parts, "monotonic", lambda: now)
    asker.ask("first", "x", lambda _: None)
    turn(loop, lambda: asked() == 1)
    asker.ask("late", "x", said.append)
    now += 1
    asker.ask("later", "x", said.append)
    now += 119  # the two minutes of the one are over, and the other has a second left
    asker.withdraw("first")
    turn(loop, lambda: asked() == 2)
    assert said == ["silence"]
    asker.end()
    turn(loop, lambda: asker._life is None)


@pytest.mark.parametrize(
    ("says", "status", "told"),
    [
        ("yes", 0, "yes"),
        ("no", 0, "no"),
        ("silence", 0, "silence"),
        ("", 0, "silence"),
        ("", 1, "silence"),
        ("YES", 0, "silence"),
        ("yes yes", 0, "silence"),
    ],
)
def test_a_plain_yes_alone_is_a_yes(tmp_path, monkeypatch, says, status, told) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\nread line; echo {says}; exit {status}\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(fake))
    loop = Loop()
    asker = Asker(loop, Told(TOLD))
    said: list[str] = []
    asker.ask(1, "x", said.append)
    turn(loop, lambda: bool(said))
    assert said == [told]
    assert len(asker._unanswered) == (told != "yes")


def test_where_no_process_can_be_started_the_answer_is_no_and_counts(monkeypatch) -> None:
    def spawn(*_: object, **__: object) -> int:
        raise OSError(errno.EAGAIN, "no processes")

    monkeypatch.setattr(os, "posix_spawn", spawn)
    before = len(os.listdir("/proc/self/fd"))
    loop = Loop()
    asker = Asker(loop, Told(TOLD))
    said: list[str] = []
    for number in range(UNANSWERED_MAX + 1):
        asker.ask(number, "x", said.append)
        turn(loop, lambda number=number: len(said) == number + 1)  # type: ignore[misc]
    assert said == ["silence"] * UNANSWERED_MAX + ["enough"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_descriptors_run_out_none_is_kept(monkeypatch) -> None:
    real, made = os.pipe2, count()

    def pipe(flags: int) -> tuple[int, int]:
        if next(made) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(flags)

    monkeypatch.setattr(os, "pipe2", pipe)
    before = len(os.listdir("/proc/self/fd"))
    loop = Loop()
    said: list[str] = []
    Asker(loop, Told(TOLD)).ask(1, "x", said.append)
    turn(loop, lambda: bool(said))
    assert said == ["silence"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_longest_question_is_read_whole() -> None:
    from proto.verbs.mcp_question import QUESTION_MAX_CHARS

    line = json.dumps({**TOLD, "text": '"' * QUESTION_MAX_CHARS}).encode() + b"\n"
    file = os.memfd_create("question")
    os.write(file, line)
    os.lseek(file, 0, os.SEEK_SET)
    assert read_line(file, QUESTION_MAX_BYTES) == line
    os.close(file)
