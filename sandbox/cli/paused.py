"""`lnk sandbox paused`: which wires are closed, and why (R39)."""

from __future__ import annotations

from sandbox.cli.flags import Flag, describe, read_flags
from sandbox.errors import one_line

FLAGS = (
    Flag("--json", "", 'print {"stopped", "paused": [{"sandbox", "why"}]}'),
    Flag("--help", "", "print this"),
)

HELP = f"""\
Whether every wire is stopped, and the sandboxes whose wire is paused.

usage: lnk sandbox paused [--json]

{describe(FLAGS)}

  lnk sandbox paused --json"""


def main(words: list[str]) -> int:
    """Print them; return 0.  Raises Unavailable where the flags can't be read."""
    flags = read_flags(FLAGS, words)
    if "--help" in flags:
        print(HELP)
        return 0
    from sandbox.wires import wires

    found = wires()
    if "--json" in flags:
        import json

        print(json.dumps(found.as_json()))
        return 0
    if found.stopped:
        print("Every wire is stopped: lnk sandbox start opens them.")
    for one in found.paused:
        print(one_line(f"{one.sandbox} is paused: {one.why}."))
    if not found.stopped and not found.paused:
        print("No wire is closed.")
    return 0
