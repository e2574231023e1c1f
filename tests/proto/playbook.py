"""Play a script against a list of (expected command, event to answer)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from proto.commands import (
    Close,
    Command,
    Connect,
    Locate,
    Log,
    Look,
    Open,
    Receive,
    Resolve,
    Send,
    Splice,
    StartTls,
)
from proto.events import (
    Closed,
    Connected,
    Event,
    Located,
    Logged,
    Looked,
    Opened,
    Place,
    Received,
    Resolved,
    Secured,
    Sent,
    Spliced,
)
from proto.policy.records import Allowed
from proto.script import Script

T = TypeVar("T")
Step = tuple[Command, Event]
Steps = list[Step]

ADDRESS = "203.0.113.10"
"""Of every name, in the world that obliges."""


def obliging(command: Command, now: float) -> Event:
    """Let everything succeed; whoever is heard has ended."""
    match command:
        case Receive(sides=sides):
            return Received(sides[0], b"", now)
        case Send(to_client=down, to_upstream=up):
            return Sent(len(down), len(up), now)
        case Resolve():
            return Resolved((ADDRESS,), now)
        case Locate(addresses=addresses):
            return Located((Place.ELSEWHERE,) * len(addresses), now)
        case Connect(addresses=addresses):
            return Connected(addresses[0], now)
        case Open():
            return Opened(now)
        case StartTls():
            return Secured(now)
        case Splice():
            return Spliced(0, 0, now)
        case Close():
            return Closed(now)
        case Look():
            return Looked(None, now)
        case Log():
            return Logged(now)


def goes(command: Command, at: float) -> Step:
    """Return a command that succeeds, and its event."""
    return command, obliging(command, at)


def reaches(verb: str, host: str, port: int, by: float, *, at: float, step: float = 0.0) -> Steps:
    """Return what a call does from its admission until a server is connected.

    The first is over at `at`, each of the others `step` seconds later.
    """
    return [
        goes(Log(Allowed(verb, host, port)), at),
        goes(Resolve(host, by), at + step),
        goes(Locate((ADDRESS,)), at + 2 * step),
        goes(Connect((ADDRESS,), port, by), at + 3 * step),
    ]


def play(script: Script[T], playbook: Iterable[Step]) -> T:
    """Hold each command of a script to the book and answer it; return what it returned.

    Raises what the script raises.  A script that ends early, or goes on behind the
    book's end, fails.
    """
    pending, result = _step(script, None)
    for number, (expected, event) in enumerate(playbook):
        assert pending == expected, f"command {number}: {pending!r}\n  expected {expected!r}"
        pending, result = _step(script, event)
    assert pending is None, f"goes on behind the book's end: {pending!r}"
    assert result
    return result[0]


def _step(script: Script[T], event: Event | None) -> tuple[Command | None, tuple[T] | tuple[()]]:
    try:
        return script.send(event), ()  # type: ignore[arg-type]  # None starts it
    except StopIteration as end:
        return None, (end.value,)
