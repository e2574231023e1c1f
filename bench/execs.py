"""What an exec list costs a program that runs: its execs, its children, its memory files.

    python -m bench.execs            # half a minute, as anybody
    python -m bench.execs --quick    # to see whether something broke
    python -m bench.execs --json     # every value, for another program

The same small C program in two sandboxes that differ by the list alone, round by round, the
order turned each time; ratios are made within a round.  It times itself, so starting a sandbox
doesn't count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from bench import sandboxes
from bench.report import Measured, run
from bench.sandboxes import TRUE, Copies
from bench.table import Row, progress, ratios

ROUNDS, QUICK_ROUNDS = 9, 2
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "execs.c")

WORKS: dict[str, tuple[str, int, float | None]] = {
    # what is printed: the program's word, how often, and the goal as a ratio
    "exec after exec, one process": ("exec", 1500, 1.3),
    "children started, one by one": ("spawn", 600, None),
    "memory files, made and closed": ("memory", 5000, None),
}


def measure(quick: bool) -> Measured:
    """Return every row."""
    with tempfile.TemporaryDirectory(prefix="lnk-execs-") as folder:
        os.chmod(folder, 0o755)
        progress("installing")
        return _rows(sandboxes.install(folder), folder, quick), ()


def _rows(copies: Copies, folder: str, quick: bool) -> list[Row]:
    program = os.path.join(folder, "execs")
    subprocess.run(["gcc", "-O2", "-o", program, SOURCE], check=True, timeout=60)
    rows = []
    for what, (word, count, goal) in WORKS.items():
        argv = [program, word, str(count)]
        plain = copies.closed(*argv, read=[folder])
        listed = copies.closed(*argv, read=[folder], commands={"only": [program, TRUE]})
        plain_us: list[float] = []
        listed_us: list[float] = []
        for number in range(QUICK_ROUNDS if quick else ROUNDS):
            progress(f"{what}: round {number + 1}")
            for command in (plain, listed) if number % 2 else (listed, plain):
                took = listed_us if command is listed else plain_us
                took.append(_seconds(command, copies) / count * 1e6)
        rows += [
            Row(what, ratios(listed_us, plain_us), "× no list", goal, at_most=True),
            Row(f"{what}: without a list", plain_us, "µs each"),
            Row(f"{what}: with one", listed_us, "µs each"),
        ]
    return rows


def _seconds(command: list[str], copies: Copies) -> float:
    done = subprocess.run(
        command, env=copies.who.environ, capture_output=True, text=True, timeout=100, check=True
    )
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(run("bench.execs", measure))
