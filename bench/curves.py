"""What a call costs as work grows: hosts listed, tunnels open, calls made and logged before.

Two proxies of one kind stand side by side, one with the burden and one without, and are
asked in turn: flat is a ratio of 1.
"""

from __future__ import annotations

from contextlib import closing

from bench import peers
from bench.load import Load
from bench.peers import Running
from bench.table import Row, progress, ratios

FLAT = 0.85
"""What counts as flat: repeated, the same proxy differs from itself by as much."""

HOSTS = (100, 1_000, 10_000)
CALLS_S = 0.5
WORN_BY_S = 6.0


def beside(load: Load, burdened: Running, bare: Running, rounds: int, quick: bool) -> list[float]:
    """Return the rate of calls of one proxy by that of the other, a value a round."""
    rates: dict[Running, list[float]] = {burdened: [], bare: []}
    for number in range(rounds):
        for proxy in (burdened, bare) if number % 2 else (bare, burdened):
            seconds = CALLS_S / 2 if quick else CALLS_S
            rates[proxy].append(load.measure("calls", proxy.at, 1, seconds)[0])
    return ratios(rates[burdened], rates[bare])


def host_rows(load: Load, number: int, rounds: int, quick: bool) -> list[Row]:
    """Return the rate of calls with longer lists of hosts, beside ten hosts."""
    rows = []
    with closing(peers.ours(load, number, "uvloop")) as few:
        for hosts in HOSTS[-1:] if quick else HOSTS:
            progress(f"curve: {hosts:,} hosts listed")
            with closing(peers.ours(load, number + 1, "uvloop", hosts)) as many:
                values = beside(load, many, few, rounds, quick)
            rows.append(Row(f"calls with {hosts:,} hosts listed", values, "× with 10", FLAT))
    return rows


def worn_row(load: Load, number: int, shell: str, rounds: int, quick: bool) -> Row:
    """Return the rate of calls of a proxy that has made thousands, beside a fresh one."""
    progress(f"curve: calls made before, {shell}")
    with (
        closing(peers.ours(load, number, shell)) as fresh,
        closing(peers.ours(load, number + 1, shell)) as worn,
    ):
        rate, seconds = load.measure("calls", worn.at, 8, WORN_BY_S / 6 if quick else WORN_BY_S)
        values = beside(load, worn, fresh, rounds, quick)
    made = round(rate * seconds, -2)
    return Row(f"{shell}: calls after {made:,.0f} others, logged", values, "× fresh", FLAT)
