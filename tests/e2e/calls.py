"""What a wire's log says of its calls (R38), read as strictly as it is promised."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.sandbox import lnk


class Made(NamedTuple):
    """One call that was let through: where it led, and the bytes up and down."""

    verb: str
    host: str
    port: int
    up: int
    down: int


def made(log: Iterable[Mapping[str, Any]]) -> list[Made]:
    """Return the calls of a log, in the order in which they began; each was let through.

    Each has just one line at its start and one at its end, which name the same place.
    """
    begun: dict[str, Mapping[str, Any]] = {}
    ended: dict[str, Mapping[str, Any]] = {}
    for line in log:
        into = {"allowed": begun, "ended": ended}[line["verdict"]]
        assert line["call"] not in ended, line
        assert line["call"] not in into, line
        assert into is begun or line["call"] in begun, line
        into[line["call"]] = line
    assert ended.keys() == begun.keys()
    found = []
    for call, first in begun.items():
        last = ended[call]
        where = first["verb"], first["host"], first["port"]
        assert where == (last["verb"], last["host"], last["port"])
        found.append(Made(*where, last["up"], last["down"]))
    return found


def counts(log: Iterable[Mapping[str, Any]], verb: str = "connect") -> list[tuple[int, int]]:
    """Return the bytes up and down of each call of a kind, in the order in which they began."""
    return [(each.up, each.down) for each in made(log) if each.verb == verb]


class Logged:
    """What the wires of a person's runs have logged since this was made."""

    def __init__(self, who: lnk.Account) -> None:
        self._folder = Path(who.home, ".lnk/sandbox/log")
        self._before = self._sizes()

    def _sizes(self) -> dict[Path, int]:
        return {path: path.stat().st_size for path in self._folder.glob("run-*.jsonl")}

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines; a number of a process may come again, and its log goes on."""
        return [
            json.loads(line)
            for path in self._sizes()
            for line in path.read_bytes()[self._before.get(path, 0) :].splitlines()
        ]
