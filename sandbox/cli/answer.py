"""`lnk sandbox answer`: the questions that wait, and their answers (R57)."""

from __future__ import annotations

import os
import sys
import time

from sandbox.cli.flags import Flag, UsageError, describe, read_flags
from sandbox.errors import SandboxError
from sandbox.state import State, settings_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
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
                f"no question {name!r} waits any more: lnk sandbox answer shows those that do.",
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
        print("No question waits.")
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
    import shutil
    import termios

    # A page at a time: the beginning of a long one would have gone by unseen.
    *pages, last = asking.pages_of(whole, *shutil.get_terminal_size())
    for page in pages:
        termios.tcflush(0, termios.TCIFLUSH)
        print(f"{page}\n(Enter for more, n to refuse) ", end="", flush=True)
        if os.read(0, 100).strip():
            asking.answer(state, one["id"], yes=False)
            return
    print(last)
    termios.tcflush(0, termios.TCIFLUSH)  # what was typed before answers nothing
    print(f"Allow it? ({left:.0f} s left) [y/N] ", end="", flush=True)
    typed = os.read(0, 100).strip().lower()
    if not asking.answer(state, one["id"], yes=typed in (b"y", b"yes")):
        print("It waits no more.")
