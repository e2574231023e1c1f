"""`lnk sandbox resume NAME`: a paused wire opened again (R36)."""

from __future__ import annotations

from sandbox.cli.flags import Flag, UsageError, describe, read_flags
from sandbox.errors import SandboxError
from sandbox.state import State, settings_folder

FLAGS = (Flag("--help", "", "print this"),)

HELP = f"""\
Open a wire that was paused because its calls looked wrong.

usage: lnk sandbox resume NAME

{describe(FLAGS)}

Look first: lnk sandbox paused says why, lnk sandbox log NAME what was called.

  lnk sandbox resume run-4711"""


def main(words: list[str]) -> int:
    """Lower the flag; SandboxError (1) where the wire wasn't paused."""
    names = [word for word in words if not word.startswith("-")]
    if "--help" in read_flags(FLAGS, [word for word in words if word.startswith("-")]):
        print(HELP)
        return 0
    if len(names) != 1:
        raise UsageError("it takes one sandbox's name: lnk sandbox paused lists them.")
    from sandbox import wires

    (name,) = names
    wires.check_name(name)
    state = State(settings_folder())
    if not wires.resume(state, name):
        raise SandboxError(f"{name} was not paused: lnk sandbox paused lists those.", exit_code=1)
    print(f"The wire of {name} is open again.")
    if wires.wires(state.settings).stopped:
        print("But every wire is stopped: lnk sandbox start opens them.")
    return 0
