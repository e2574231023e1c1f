"""Figures with their ranges, beside their goals, as a table."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One figure: its values (one a round), what they are counted in, and its goal.

    `at_most` tells which way the goal is met; without a goal a row is there for comparison.
    """

    what: str
    values: list[float]
    unit: str
    goal: float | None = None
    at_most: bool = False

    @property
    def median(self) -> float:
        """The figure."""
        return statistics.median(self.values)

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        return self.median <= self.goal if self.at_most else self.median >= self.goal

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return what is printed: what, figure, range, goal, reached or not."""
        low, high = min(self.values), max(self.values)
        spread = f"{_short(low)}–{_short(high)}" if len(self.values) > 1 else ""
        goal = "" if self.goal is None else f"{'≤' if self.at_most else '≥'} {_short(self.goal)}"
        verdict = {None: "", True: "yes", False: "NO"}[self.reached]
        return self.what, f"{_short(self.median)} {self.unit}", spread, goal, verdict

    def plain(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return {
            "what": self.what, "unit": self.unit, "median": self.median, "values": self.values,
            "goal": self.goal, "at_most": self.at_most, "reached": self.reached,
        }  # fmt: skip


def ratios(values: list[float], others: list[float]) -> list[float]:
    """Divide round by round: what the machine did meanwhile then falls on both."""
    return [value / other for value, other in zip(values, others, strict=True)]


def text(rows: list[Row]) -> str:
    """Return rows as a Markdown table."""
    cells = [("what", "figure", "range", "goal", "reached"), *(row.cells() for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(5)]
    lines = [_line([f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)])
             for line in cells]  # fmt: skip
    lines.insert(1, _line(["-" * width for width in widths]))
    return "\n".join(lines)


def progress(words: str) -> None:
    """Say what is being done, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _short(value: float) -> str:
    return (
        f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if value < 10 else f"{value:.1f}"
    )
