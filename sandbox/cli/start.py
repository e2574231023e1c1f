"""`lnk sandbox start`: the kill switch taken back."""

from __future__ import annotations

from sandbox.cli.flags import Flag, describe, read_flags
from sandbox.errors import one_line
from sandbox.state import State, settings_folder

FLAGS = (Flag("--help", "", "print this"),)

HELP = f"""\
Open the wires that lnk sandbox stop has closed.

usage: lnk sandbox start

{describe(FLAGS)}

A paused wire stays paused (lnk sandbox paused lists them), and what on-stop commands ended
is not started again.

  lnk sandbox start"""


def main(words: list[str]) -> int:
    """Lower the flag; return 0, also where it was down."""
    if "--help" in read_flags(FLAGS, words):
        print(HELP)
        return 0
    from sandbox import wires

    state = State(settings_folder())
    was_stopped = wires.start(state)
    print("The wires are open again." if was_stopped else "The wires were not stopped.")
    for one in wires.wires(state.settings).paused:
        print(one_line(f"{one.sandbox} is still paused: lnk sandbox resume {one.sandbox}"))
    return 0
