"""`lnk sandbox stop`: the kill switch.  Every wire closes, and what is registered runs (R37)."""

from __future__ import annotations

from sandbox.cli.flags import Flag, describe, read_flags
from sandbox.errors import SandboxError, one_line
from sandbox.state import State, settings_folder

FLAGS = (Flag("--help", "", "print this"),)

HELP = f"""\
Close every wire at once: calls are refused, and those that are open end within two seconds.

usage: lnk sandbox stop

{describe(FLAGS)}

Then it runs what `lnk sandbox on-stop` has registered, such as an agent's own stop.  Wires
stay closed, those of sandboxes started later too, until lnk sandbox start.

  lnk sandbox stop"""


def main(words: list[str]) -> int:
    """Raise the flag, then run what is registered; 1 where some of that failed."""
    if "--help" in read_flags(FLAGS, words):
        print(HELP)
        return 0
    from sandbox import wires
    from sandbox.on_stop import run_all

    state = State(settings_folder())
    open_still: SandboxError | None = None
    try:
        wires.stop(state)
        print("Every wire is closed; what is open ends within two seconds.", flush=True)
    except SandboxError as error:
        said = f"the wires stay open, for the kill switch can't be raised: {error.message}"
        open_still = SandboxError(said)  # and what is registered is run all the same
    try:
        failed = run_all(state)
    except SandboxError as error:
        raise open_still or error from None
    for name, why in failed:
        print(one_line(f"{name}: {why}."))
    if open_still is not None:
        raise open_still
    print("lnk sandbox start opens them again.")
    return 1 if failed else 0
