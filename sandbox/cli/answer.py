"""`lnk sandbox answer`: the questions that wait, and their answers (R57)."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager

from sandbox.cli.flags import Flag, UsageError, describe, read_flags
from sandbox.errors import SandboxError, quoted
from sandbox.state import State, settings_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

FLAGS = (
    Flag("--json", "", "print the questions that wait, a line of JSON each, and ask nothing"),
    Flag("--help", "", "print this"),
)

HELP = f"""\
Answer what sandboxes ask where there is no screen or terminal of theirs to ask on.

usage: lnk sandbox answer [flags]             each question in turn, on this terminal
       lnk sandbox answer ID                  one of them, on this terminal
       lnk sandbox answer ID yes|no           one of them

{describe(FLAGS)}

A question waits for two minutes; without an answer it is a no.

  lnk sandbox answer k3x9p yes"""


def main(words: list[str]) -> int:
    """Show and answer; return 1 where the question named waits no more."""
    named = [word for word in words if not word.startswith("-")]
    flags = read_flags(FLAGS, [word for word in words if word.startswith("-")])
    if "--help" in flags:
        print(HELP)
        return 0
    from sandbox import asking

    state = State(settings_folder())
    if named:
        if len(named) > 2 or named[1:] not in ([], ["yes"], ["no"]) or "--json" in flags:
            raise UsageError("write lnk sandbox answer ID yes, or no.")
        name, *said = named
        # As the notice of a question says it, the name alone: it is shown, then answered.
        asked = [one for one in asking.waiting(state) if one["id"] == name and not said]
        if said and asking.answer(state, name, yes=said == ["yes"]):
            return 0
        if not asked:
            raise SandboxError(
                f"no question {quoted(name)} waits any more: "
                "lnk sandbox answer shows those that do.",
                exit_code=1,
            )
        _put(asked[0], state)
        return 0
    asking.sweep(state)
    found = asking.waiting(state)
    if "--json" in flags:
        import json

        for one in found:
            print(json.dumps(one))
        return 0
    if not found:
        print(
            "No question waits: one that comes is told of where its sandbox runs, for two minutes."
        )
    for one in found:
        _put(one, state)
    return 0


def _put(one: dict[str, Any], state: State) -> None:
    """Show one question and take its answer from the terminal."""
    from sandbox import asking

    left = max(0.0, one["until"] - time.time())
    whole = f"The sandbox {one['sandbox']} asks to\n\n{one['text']}\n"
    if not sys.stdin.isatty():
        print(f"{whole}\nlnk sandbox answer {one['id']} yes|no   ({left:.0f} s left)\n")
        return
    with _held(one["launcher"], one["pid"]):
        yes = _typed(whole, time.monotonic() + left)
    if yes is None or not asking.answer(state, one["id"], yes=yes):
        print("It waits no more.")


def _typed(whole: str, until: float) -> bool | None:
    """Show a question page by page; return whether it is allowed, None where its time is over."""
    import termios

    from sandbox import asking

    # A page at a time: the beginning of a long one would have gone by unseen.
    *pages, last = asking.pages_of(whole, *_size())
    for page in pages:
        termios.tcflush(0, termios.TCIFLUSH)
        print(f"{page}\n(Enter for more, n to refuse) ", end="", flush=True)
        said = _line(until)
        if said is None or said:
            return None if said is None else False
    print(last)
    termios.tcflush(0, termios.TCIFLUSH)  # what was typed before answers nothing
    print(f"Allow it? ({until - time.monotonic():.0f} s left) [y/N] ", end="", flush=True)
    said = _line(until)
    return None if said is None else said in (b"y", b"yes")


def _size() -> tuple[int, int]:
    """Return how many columns and rows this terminal shows, or what any does."""
    from sandbox import asking

    try:
        # Anew, for what waits for none of it must not change how others write there.
        terminal = os.open(
            "/proc/self/fd/0", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return asking.PAGE_COLUMNS, asking.PAGE_ROWS  # it is another user's (su)
    try:
        return asking.size_of(terminal)
    finally:
        os.close(terminal)


def _line(until: float) -> bytes | None:
    """Return a line that is typed, without what stands around it; None where none is in time."""
    import select

    if not select.select([0], [], [], max(0.0, until - time.monotonic()))[0]:
        print()
        return None
    return os.read(0, 100).strip().lower()


@contextmanager
def _held(launcher: int, asker: int) -> Iterator[None]:
    """Hold the program that asks still, where it may have this terminal as well.

    A run in the background still has it: it could draw another question over its own.
    """
    from sandbox.linux.freezing import Frozen, terminal_of

    if not launcher or terminal_of(launcher) != terminal_of(os.getpid()):
        yield
        return
    import signal
    import termios

    from sandbox.asking import OWN_SCREEN, THEIR_SCREEN

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, end)  # else the program would be held for good
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        frozen = Frozen.of(launcher, asker)
    except OSError:
        frozen = None  # who asked has ended
    if frozen is None:
        raise SandboxError("the program that asks can't be held still; have it ask again.")
    try:
        termios.tcflow(0, termios.TCOON)  # it may have stopped what is written here
        print(OWN_SCREEN, end="", flush=True)
        yield
    finally:
        try:
            print(THEIR_SCREEN, end="", flush=True)
        finally:
            frozen.thaw()
