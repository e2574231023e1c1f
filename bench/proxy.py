"""What the proxy costs, as ratios beside a direct connection, squid and HAProxy.

    apt-get install --no-install-recommends squid haproxy gcc iproute2
    python -m bench.proxy            # as root: it makes network namespaces; some five minutes
    python -m bench.proxy --quick    # a minute, to see whether something broke
    python -m bench.proxy --json     # every value, for another program

Four questions, one after the other: how fast (`bench.speeds`), how much memory
(`bench.memory`), how costs grow (`bench.curves`), what a head costs (`bench.bench_heads`).
The table says which of the project's goals are reached.  All in one run, on one machine, in
turns: the ratios can be trusted, seconds can't.  Where others are busy on the machine even
the ratios can't: the first line tells.  It names the interpreter too: one that was built
without profiling, as version managers build it, is up to a third slower than a
distribution's, and squid isn't.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from bench import bench_heads, curves, memory, needs, peers, speeds
from bench.load import Load
from bench.report import Measured, run
from bench.table import Row, progress

ROUNDS, QUICK_ROUNDS = 5, 2
BURDENED = 8
"""The first of the two ports for the proxies of memory and curves."""


def measure(quick: bool) -> Measured:
    """Return every row.  Raises Missing or NotRoot."""
    needs.check()
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with Load(str(os.getpid())) as load:
        rows = _speeds(load, rounds, quick)
        for shell in speeds.SHELLS:
            rows += memory.idle_rows(load, BURDENED, shell, rounds, quick)
            rows.append(memory.stalled_row(load, BURDENED, shell))
            rows.append(curves.worn_row(load, BURDENED, shell, rounds, quick))
        rows += curves.host_rows(load, BURDENED, rounds, quick)
    return rows + head_rows(rounds), ()


def _speeds(load: Load, rounds: int, quick: bool) -> list[Row]:
    with ExitStack() as stack:
        running: list[peers.Peer] = [peers.direct(0)]
        for peer in peers.all_of(load):
            stack.callback(peer.close)
            running.append(peer)
        return speeds.rows(speeds.measure(load, running, rounds, quick))


def head_rows(rounds: int) -> list[Row]:
    """Return what a strict head costs beside httptools, which is C."""
    progress("heads")
    rows = []
    for what, head, goal in (
        ("a head with ten fields", bench_heads.TEN_FIELDS, 2),
        ("the head of a CONNECT", bench_heads.CONNECT, None),
    ):
        values = [bench_heads.ratio(head)[2] for _ in range(rounds)]
        rows.append(Row(what, values, "× httptools", goal, at_most=True))
    return rows


if __name__ == "__main__":
    sys.exit(run("bench.proxy", measure))
