"""`lnk sandbox learn`: run a program once with every program open, and say what to list (R64)."""

from __future__ import annotations

from sandbox.cli.flags import Flag, UsageError, describe, read_flags

FLAGS = (
    Flag("--spec", "FILE", "the spec whose other grants it runs under"),
    Flag("--yes", "", "don't ask about a spec not agreed to before"),
    Flag("--help", "", "print this"),
)

HELP = f"""\
Run a program once under a spec's other grants with every program open, and print the lines that
[commands] only needs for what it ran.  Nothing is written: add the lines that you want.

usage: lnk sandbox learn --spec FILE [--yes] -- PROGRAM [ARGUMENT…]

{describe(FLAGS)}

It never offers a program that the sandbox could replace, and marks interpreters, which run any
code.  It ends with the program's status; the lines follow all that the program prints.

  lnk sandbox learn --spec box.toml -- make"""


def main(words: list[str]) -> int:
    """Run the program, print the lines, and end as it ended."""
    flags = read_flags(FLAGS, words, takes_rest=True)
    if "--help" in flags:
        print(HELP)
        return 0
    if "--spec" not in flags:
        raise UsageError("learn runs under a spec: write --spec FILE.")
    from sandbox.cli.run import start

    start(flags, learns=True)
    return 125  # pragma: no cover - it ends the process
