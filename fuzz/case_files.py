"""Files of cases: JSON lines, each an input and the outcome that is right.

A *suite* knows one kind of file: the kinds of its cases, the keys of their `config`,
how the product is driven with one, and how what it did is compared with what is due.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shells.sim_world import Cut, Say, Steps

Case = dict[str, Any]
Outcome = dict[str, Any]
"""What the product did with a case, in the words of the files' `expect`."""

INPUTS = ("input", "input_b64", "segments_b64")
FIELDS = frozenset({"id", "kind", "config", "expect", "why", "source", "decided", "eof", *INPUTS})


@dataclass(frozen=True, slots=True)
class Way:
    """How an input comes: cut how, by which seed, its pieces as the case has them or joined."""

    name: str
    cut: Cut
    seed: int = 0
    joined: bool = True


WHOLE = Way("whole", Cut.WHOLE)
AS_IT_CAME = Way("in the case's own pieces", Cut.WHOLE, joined=False)
BYTE_BY_BYTE = Way("a byte at a time", Cut.BYTES)


def ways(case: Case, seeds: int) -> Iterator[Way]:
    """Yield every way to try a case."""
    yield WHOLE
    yield BYTE_BY_BYTE
    if len(case.get("segments_b64", ())) > 1:
        yield AS_IT_CAME
    for seed in range(1, seeds + 1):
        yield Way(f"cut at random, seed {seed}", Cut.RANDOM, seed)


@dataclass(frozen=True, slots=True)
class Suite:
    """One kind of file.

    `perform` drives the product with a case one way; `differences` names each way in
    which an outcome isn't one expectation.  Both raise ValueError for what they don't
    know, which fails the case.
    """

    name: str
    kinds: frozenset[str]
    needs: frozenset[str]
    config: frozenset[str]
    fields: frozenset[str]
    perform: Callable[[Case, Way], Outcome]
    differences: Callable[[Outcome, Outcome], list[str]]

    def fits(self, case: Case) -> bool:
        """Tell whether a case could be one of this suite's, by its kind and its config."""
        keys = set(case.get("config", {}))
        return case.get("kind") in self.kinds and self.needs <= keys <= self.needs | self.config

    def check(self, case: Case) -> None:
        """Raise ValueError for a case that isn't in the format."""
        if sum(key in case for key in INPUTS) != 1:
            raise ValueError("a case has one input, no more and no less")
        unknown(case, FIELDS | self.fields, "field")
        if case.get("kind") not in self.kinds:
            raise ValueError(f"unknown kind: {case.get('kind')!r}")
        unknown(case.get("config", {}), self.needs | self.config, "config key")
        for key in self.needs - set(case.get("config", {})):
            raise ValueError(f"its config lacks {key!r}")


def unknown(found: dict[str, Any], known: frozenset[str] | set[str], what: str) -> None:
    """Raise ValueError for a key that isn't known: never pass over what may matter."""
    for key in found:
        if key not in known:
            raise ValueError(f"unknown {what}: {key!r}")


def load(path: Path) -> Iterator[Case]:
    """Yield a file's cases.  Raises OSError, and ValueError for what is no line of JSON."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield json.loads(line.decode())
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"line {number} isn't JSON: {error}") from None


def segments(case: Case) -> list[bytes]:
    """Return an input's bytes as they come, an item a segment."""
    if "segments_b64" in case:
        return [_segment(part) for part in case["segments_b64"]]
    if "input_b64" in case:
        return [base64.b64decode(case["input_b64"])]
    if isinstance(case["input"], str):
        return [case["input"].encode()]
    raise ValueError("its input is no bytes")


def _segment(part: str | dict[str, Any]) -> bytes:
    if isinstance(part, str):
        return base64.b64decode(part)
    unknown(part, {"repeat_b64", "times"}, "key of a segment")
    return base64.b64decode(part["repeat_b64"]) * int(part["times"])


def says(case: Case, way: Way) -> Steps:
    """Return the steps by which a client sends a case's input."""
    pieces = segments(case)
    if way.joined:
        pieces = [b"".join(pieces)]
    return tuple(Say(piece) for piece in pieces if piece)


def right_outcomes(case: Case) -> list[Outcome]:
    """Return every outcome that is right; what is never dialled holds for each of them."""
    expect = case["expect"]
    always = {"never_dials": expect["never_dials"]} if "never_dials" in expect else {}
    return [expect, *({**always, **other} for other in expect.get("also_ok", []))]
