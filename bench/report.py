"""What the benches that are commands share: their flags, and how they tell what was measured."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence

from bench.needs import Missing, NotRoot
from bench.table import Row, progress, text

Measured = tuple[list[Row], Sequence[str]]
"""The rows, and what is to be said of them."""


def run(name: str, measure: Callable[[bool], Measured]) -> int:
    """Measure, print the table, and return 0: a missed goal is a result, not a failure.

    measure: takes whether it is to be quick.  Returns 2 where the machine lacks something.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description="See the module.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller loads")
    parser.add_argument("--json", action="store_true", help="print values instead of a table")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    try:
        rows, said = measure(options.quick)
    except (Missing, NotRoot) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    progress("")
    if options.json:
        plain = [row.plain() for row in rows]
        print(json.dumps({"machine": _machine(busy), "said": list(said), "rows": plain}))
        return 0
    print("\n".join([_machine(busy), *said]))
    print(f"\n{text([row for row in rows if row.goal is not None])}")
    print(f"\nFor comparison:\n\n{text([row for row in rows if row.goal is None])}")
    return 0


def _machine(busy: float) -> str:
    """Say where this was measured, with which Python, and whether others were busy there."""
    python = f"Python {platform.python_version()} ({os.path.realpath(sys.executable)})"
    cpus, busy = os.cpu_count(), round(busy, 1)
    return f"Linux {platform.release()}, {cpus} CPUs, {python}; load average before: {busy}."
