"""How much memory: idle tunnels by the thousand, and readers that stand still."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

from bench import peers
from bench.curves import FLAT, beside
from bench.load import Load
from bench.peers import Running
from bench.table import Row, progress

LEVELS = (1_000, 5_000, 9_900)
"""Two descriptors a tunnel: 9,900 is what a hard limit of 20,000 leaves room for.  The
goal for 10,000 is held against that figure scaled up."""

GOALS = {"uvloop": (30, 45, 150), "trio": (None, None, None)}
"""RSS in MiB: idle, with 1,000 and with 10,000 idle tunnels."""

STALLED, STALLED_BYTES = 16, 64 << 20
SETTLES_S = 2.0


def idle_rows(load: Load, number: int, shell: str, rounds: int, quick: bool) -> list[Row]:
    """Return RSS with idle tunnels, and the rate of calls beside a proxy that has none."""
    rss, rows, open_now = {}, [], 0
    with (
        closing(_warm(load, number, shell)) as bare,
        closing(_warm(load, number + 1, shell)) as proxy,
        ExitStack() as held,
    ):
        rss[0] = proxy.rss_mib()
        for level in LEVELS[:1] if quick else LEVELS:
            progress(f"memory: {level:,} idle tunnels, {shell}")
            held.enter_context(load.held("idle", proxy.at, level - open_now))
            open_now, rss[level] = level, proxy.rss_mib()
            if level < LEVELS[-1]:
                values = beside(load, proxy, bare, rounds, quick)
                rows.append(Row(f"{shell}: calls beside {level:,} tunnels", values, "× none", FLAT))
    return _rss_rows(shell, rss) + rows


def _rss_rows(shell: str, rss: dict[int, float]) -> list[Row]:
    """Return the rows of one shell; `rss` in MiB by the tunnels that were open."""
    idle, thousand, ten_thousand = GOALS[shell]
    rows = [
        Row(f"RSS of {shell}, idle", [rss[0]], "MiB", idle, at_most=True),
        Row(f"RSS of {shell}, 1,000 idle tunnels", [rss[1_000]], "MiB", thousand, at_most=True),
    ]
    most = LEVELS[-1]
    if most in rss:
        scaled = rss[0] + (rss[most] - rss[0]) * 10_000 / most
        what = f"RSS of {shell}, 10,000 idle tunnels (scaled from {most:,})"
        rows.append(Row(what, [scaled], "MiB", ten_thousand, at_most=True))
    for level in sorted(rss)[1:]:
        each = (rss[level] - rss[0]) * 1024 / level
        rows.append(Row(f"RSS of {shell}, a tunnel of {level:,}", [each], "KiB"))
    return rows


def stalled_row(load: Load, number: int, shell: str) -> Row:
    """Return the growth of RSS while 16 clients read nothing of 64 MiB each."""
    progress(f"memory: stalled readers, {shell}")
    with closing(_warm(load, number, shell)) as proxy:
        before = most = proxy.rss_mib()
        with load.held("stall", proxy.at, STALLED, STALLED_BYTES):
            until = time.monotonic() + SETTLES_S
            while time.monotonic() < until:
                most = max(most, proxy.rss_mib())
                time.sleep(0.05)
    what = f"growth of {shell}, 16 × 64 MiB to stalled readers"
    return Row(what, [most - before], "MiB", 8, at_most=True)


def _warm(load: Load, number: int, shell: str) -> Running:
    """Start a proxy, and make what it makes at its first calls."""
    proxy = peers.ours(load, number, shell)
    try:
        load.measure("calls", proxy.at, 1, 0.1)
    except BaseException:
        proxy.close()
        raise
    return proxy
