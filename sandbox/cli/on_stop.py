"""`lnk sandbox on-stop NAME [-- ARGS]`: what `lnk sandbox stop` runs.  Hidden: plugins call it."""

from __future__ import annotations

from sandbox.cli.flags import Flag, UsageError, describe, read_flags
from sandbox.state import State, settings_folder

FLAGS = (Flag("--help", "", "print this"),)

HELP = f"""\
Have lnk sandbox stop run `lnk ARGS` for NAME; without ARGS, nothing any more.

usage: lnk sandbox on-stop NAME [-- ARGS…]

{describe(FLAGS)}

  lnk sandbox on-stop agent-ann -- agent stop -a ann"""


def main(words: list[str]) -> int:
    """Register or forget; return 0."""
    if words[:1] and not words[0].startswith("-"):
        name, *more = words
    else:
        name, more = "", words
    flags = read_flags(FLAGS, more, takes_rest=True)
    if "--help" in flags:
        print(HELP)
        return 0
    if not name:
        raise UsageError("it takes a name first: write lnk sandbox on-stop NAME -- ARGS.")
    from sandbox import on_stop, wires

    wires.check_name(name)
    state = State(settings_folder())
    if flags.rest:
        on_stop.register(state, name, flags.rest)
    else:
        on_stop.forget(state, name)
    return 0
