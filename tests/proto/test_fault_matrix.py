"""The fault matrix: every command of each conversation × every `Reason` and `Cause`.

No shell is in it.  A conversation is recorded once, then played again up to each of its
commands, which is answered by each failure, blaming nobody or either side, or by each
cancel; what follows is answered by a world that obliges, one in which all else fails
too, and one that shuts down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from proto.calls.connect import ESTABLISHED
from proto.commands import (
    CLIENT,
    UPSTREAM,
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
    Cancelled,
    Cause,
    Closed,
    Event,
    Failed,
    Logged,
    Looked,
    Reason,
    Received,
    Sent,
    Spliced,
)
from proto.policy.records import Allowed
from proto.script import Call
from tests.proto.playbook import obliging
from tests.proto.test_calls_simulated import TALKS, Talk, behind, check_log

COMMANDS_MOST = 400
"""Far more than any of the conversations takes."""

OPENS = Resolve, Connect, Open, StartTls, Splice, Receive
"""What a call that was cancelled does no more."""

World = Callable[[Command, float], Event]


def failing(command: Command, now: float) -> Event:
    """Let everything fail that can."""
    if isinstance(command, Close | Look | Log):
        return obliging(command, now)
    return Failed(Reason.BROKEN, now)


def ending(command: Command, now: float) -> Event:
    """Cancel everything that waits, as a shell does that must come to its end."""
    if isinstance(command, Locate | Look | Log):
        return obliging(command, now)
    return Cancelled(Cause.SHUTDOWN, now)


WORLDS: tuple[World, ...] = (obliging, failing, ending)


@dataclass
class Played:
    """What came of one run: its commands and answers, and what was heard and said."""

    performed: list[tuple[Command, Event]] = field(default_factory=list)
    heard: bytearray = field(default_factory=bytearray)
    """From the client."""
    down: bytearray = field(default_factory=bytearray)
    """To the client."""
    up: bytearray = field(default_factory=bytearray)
    """To the server."""

    def note(self, command: Command, event: Event) -> None:
        """Take one command and its answer into the account."""
        self.performed.append((command, event))
        match command, event:
            case Receive(), Received(side=side, data=data) if side is CLIENT:
                self.heard += data
            case Send(to_client=down, to_upstream=up), Sent(to_client=n, to_upstream=m):
                self.down += down[:n]
                self.up += up[:m]
            case Splice(to_client=down, to_upstream=up), _:
                self.down += down
                self.up += up


def begun(talk: Talk) -> Call:
    return Call(talk.script(1000.0))


def faults(command: Command, now: float) -> list[Event]:
    """Return each way in which a command may come to nothing."""
    if isinstance(command, Log):
        return [Logged(now)]
    if isinstance(command, Look):
        return [Looked(cause, now) for cause in (Cause.STOPPED, Cause.PAUSED, Cause.UNSEEN)]
    sides = (None, CLIENT, UPSTREAM)
    if isinstance(command, Close):
        failed: list[Event] = [Closed(now)]
    else:
        failed = [Failed(reason, now, side) for reason in Reason for side in sides]
    if isinstance(command, Send):
        failed.append(Sent(0, 0, now))
        failed += [
            Failed(Reason.RESET, now, side, len(command.to_upstream) // 2, len(command.to_client))
            for side in sides
        ]
    if isinstance(command, Locate):
        return failed
    return failed + [Cancelled(cause, now) for cause in Cause]


def play(talk: Talk, record: list[tuple[Command, Event]], fault: Event, world: World) -> Played:
    """Play a conversation again up to a fault, then on in a world."""
    call, played = begun(talk), Played()
    for command, event in record:
        assert call.pending == command
        played.note(command, event)
        call.answer(event)
    now, event = fault.now, fault
    while call.pending is not None:
        assert len(played.performed) < COMMANDS_MOST, f"never ends: {call.pending!r}"
        played.note(call.pending, event)
        call.answer(event)
        if call.pending is not None:
            event = world(call.pending, now)
    return played


def check(talk: Talk, played: Played) -> None:
    """Hold a run to what holds whatever went wrong."""
    check_last_line(played)
    check_opens_nothing_once_cancelled(played)
    if talk.tunnels:
        check_tunnel(talk, played)


def check_last_line(played: Played) -> None:
    """Look for a last log line, and nothing behind it but an answer and closing."""
    commands = [command for command, _ in played.performed]
    records = tuple(command.record for command in commands if isinstance(command, Log))
    check_log(records)
    while commands and isinstance(commands[-1], Close | Send):
        commands.pop()
    if not isinstance(commands[-1], Log):
        # Between two requests, and before the first, there is no call to end.
        assert isinstance(commands[-1], Receive), commands[-1]
        behind_a_call = bool(records) and not isinstance(records[-1], Allowed)
        assert behind_a_call or not played.heard


def check_opens_nothing_once_cancelled(played: Played) -> None:
    events = [event for _, event in played.performed]
    first = next((n for n, event in enumerate(events) if isinstance(event, Cancelled)), None)
    if first is None:
        return
    behind = [command for command, _ in played.performed[first + 1 :]]
    assert not any(isinstance(each, OPENS) for each in behind)
    assert sum(isinstance(each, Log) for each in behind) <= 1


def check_tunnel(talk: Talk, played: Played) -> None:
    """Check that a tunnel carries its own bytes alone: no answer of ours, no head."""
    tunnel = bytes(played.heard).partition(b"\r\n\r\n")[2]
    assert tunnel.startswith(behind(talk.hop, bytes(played.up)))
    if played.down.startswith(ESTABLISHED[:12]):
        assert ESTABLISHED.startswith(bytes(played.down))
    else:
        assert b" 200 " not in played.down


@pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)
def test_every_command_may_come_to_nothing_in_every_way(talk: Talk) -> None:
    record = [(each.command, each.event) for each in talk.play().performed]
    for number, (command, event) in enumerate(record):
        for fault in faults(command, event.now):
            for world in WORLDS:
                check(talk, play(talk, record[:number], fault, world))


def test_the_matrix_has_every_reason_and_cause() -> None:
    found = faults(Receive((CLIENT,), 1, 5.0), 1.0)
    assert {event.reason for event in found if isinstance(event, Failed)} == set(Reason)
    assert {event.cause for event in found if isinstance(event, Cancelled)} == set(Cause)


def test_the_conversations_have_every_command() -> None:
    kinds = {type(each.command) for talk in TALKS.values() for each in talk.play().performed}
    core = {Receive, Send, Resolve, Locate, Connect, Close, Splice, Look, Log}
    assert kinds == core | {Open, StartTls}


ALLOWED = Log(Allowed("connect", "example.com", 22))


@pytest.mark.parametrize(
    "performed",
    [
        [(ALLOWED, Logged(1.0))],
        [(Receive((CLIENT,), 9, 5.0), Received(CLIENT, b"GET", 1.0))],
        [(Receive((CLIENT,), 9, 5.0), Cancelled(Cause.STOPPED, 1.0)), (ALLOWED, Logged(1.0)),
         (Connect(("203.0.113.10",), 80, 5.0), Failed(Reason.REFUSED, 1.0))],
    ],
    ids=["no last line", "no line", "opened once cancelled"],
)  # fmt: skip
def test_the_checks_can_fail(performed: list[tuple[Command, Event]]) -> None:
    played = Played()
    for command, event in performed:
        played.note(command, event)
    with pytest.raises(AssertionError):
        check(TALKS["plain"], played)


@pytest.mark.parametrize("down", [ESTABLISHED + b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b"x 200 y"])
def test_an_answer_in_a_tunnel_is_noticed(down: bytes) -> None:
    played = Played()
    played.note(Send(1.0, to_client=down), Sent(len(down), 0, 1.0))
    with pytest.raises(AssertionError):
        check_tunnel(TALKS["tunnel"], played)


def test_a_byte_of_ours_towards_a_tunnels_server_is_noticed() -> None:
    played = Played()
    played.note(Splice(ESTABLISHED, b"GET / HTTP/1.1", 9.0), Spliced(0, 0, 1.0))
    with pytest.raises(AssertionError):
        check_tunnel(TALKS["tunnel"], played)
