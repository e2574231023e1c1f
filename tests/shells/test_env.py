"""The journal: which line belongs to which call, and the last line after a bug."""

from __future__ import annotations

import pytest

from proto.events import Cause
from proto.policy.records import Allowed, Ending, Paused, Record, Refusal
from shells.env import INTERNAL_ERROR, Env, Journal


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, Record]] = []
        self.full = False

    def write(self, record: Record, call_id: str) -> bool:
        self.lines.append((call_id, record))
        return not self.full


def env(log: Log, said: list[str]) -> Env:
    return Env(lookup=lambda _: (), locate=lambda _: (), log=log, say=said.append, id_prefix="ab12")


ALLOWED = Allowed("connect", "example.com", 443)
ENDING = Ending("connect", "example.com", 443, 1, 2, 3.0)
REFUSAL = Refusal("connect", "example.com", 443, 403, "no")


def test_each_call_of_a_connection_has_an_id_of_its_own() -> None:
    log = Log()
    one = env(log, [])
    first, second = Journal(one), Journal(one)
    for journal, record in (
        (first, ALLOWED),
        (second, REFUSAL),
        (first, ENDING),
        (first, ALLOWED),
        (first, REFUSAL),
    ):
        assert journal.write(record, 0.0)
    assert [call_id for call_id, _ in log.lines] == ["ab12-1", "ab12-2", "ab12-1"] + ["ab12-3"] * 2


def test_only_a_call_that_begins_is_stopped_by_a_log_that_is_full() -> None:
    log = Log()
    log.full = True
    journal = Journal(env(log, []))
    assert [journal.write(record, 0.0) for record in (ALLOWED, ENDING, REFUSAL)] == [
        False,
        True,
        True,
    ]


def test_a_bug_in_an_allowed_call_is_its_ending() -> None:
    log, said = Log(), list[str]()
    journal = Journal(env(log, said))
    journal.write(ALLOWED, 10.0)
    journal.bug(KeyError("secret"), 12.5)
    ending = Ending("connect", "example.com", 443, 0, 0, 2.5, INTERNAL_ERROR)
    assert log.lines == [("ab12-1", ALLOWED), ("ab12-1", ending)]
    assert "KeyError" in said[0]
    assert "secret" not in said[0]


def test_a_bug_between_calls_is_a_refusal() -> None:
    log = Log()
    one = env(log, [])
    journal = Journal(one)
    journal.write(ALLOWED, 10.0)
    journal.write(ENDING, 11.0)
    journal.bug(KeyError("secret"), 12.5)
    assert log.lines[-1] == ("ab12-2", Refusal("", "", 0, 0, INTERNAL_ERROR))
    assert one.counters.bugs == 1


class Switch:
    """A wire's flags that note what they are told."""

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self.watched: list[tuple[int, int]] = []
        self.paused: list[str] = []

    def look(self) -> Cause | None:
        return self.cause

    def watch(self, up: int, down: int) -> Cause | None:
        self.watched.append((up, down))
        return self.cause

    def pause(self, why: str) -> None:
        self.paused.append(why)


class Running:
    """A call that has carried so much."""

    def __init__(self, up: int, down: int) -> None:
        self.sizes = up, down
        self.causes: list[Cause] = []

    def cancel(self, cause: Cause) -> None:
        raise AssertionError("it may be between two calls")

    def close(self, cause: Cause) -> None:
        self.causes.append(cause)

    def carried(self) -> tuple[int, int]:
        return self.sizes


def test_a_line_that_pauses_closes_the_wire_and_is_not_its_calls_last() -> None:
    log, switch = Log(), Switch()
    one = env(log, [])
    one.flags = switch
    journal = Journal(one)
    assert journal.write(Paused("connect", "example.com", 443, "it looks wrong"), 1.0)
    assert journal.write(REFUSAL, 1.0)
    assert switch.paused == ["it looks wrong"]
    assert [call_id for call_id, _ in log.lines] == ["ab12-1", "ab12-1"]


def test_what_was_carried_is_what_the_log_says_and_what_runs_adds_to_that() -> None:
    switch = Switch()
    one = env(Log(), [])
    one.flags = switch
    journal = Journal(one)
    journal.up = journal.down = 9  # of an answer of our own
    assert journal.carried(0, 0) == (0, 0)
    journal.write(ALLOWED, 0.0)
    journal.up += 5
    assert journal.carried(100, 200) == (105, 200)
    journal.write(ENDING, 1.0)
    assert journal.carried(100, 200) == (0, 0)
    calls = [Running(3, 4), Running(10, 20)]
    one.calls.update(calls)
    one.watch()
    due = ENDING.up + 13, ENDING.down + 24
    assert switch.watched == [due]
    calls[0].sizes = (4, 4)
    one.watch()
    assert switch.watched == [due, due]  # no counter has moved, so nobody was asked
    one.counters.up += 1
    one.watch()
    assert switch.watched[-1] == (due[0] + 1, due[1])
    calls.pop(0)
    one.calls = set(calls)
    one.counters.ended += 1
    one.watch()
    assert switch.watched[-1] == (ENDING.up + 10, ENDING.down + 20)
    assert not any(call.causes for call in calls)
    switch.cause = Cause.STOPPED
    one.watch()
    assert all(call.causes == [Cause.STOPPED] for call in calls)


@pytest.mark.parametrize("verb", ["serve", "callback"])
def test_what_a_client_outside_is_sent_came_from_the_sandbox(verb: str) -> None:
    switch = Switch()
    one = env(Log(), [])
    one.flags = switch
    journal = Journal(one)
    journal.write(Allowed(verb, "localhost", 8080), 0.0)
    journal.up += 5  # to the server, which is inside
    assert journal.carried(100, 200) == (200, 105)
    ending = Ending(verb, "localhost", 8080, 105, 200, 1.0)
    journal.write(ending, 1.0)
    one.watch()
    assert switch.watched == [(200, 105)]


def test_a_call_has_begun_from_an_open_look_to_its_last_line() -> None:
    switch = Switch()
    one = env(Log(), [])
    one.flags = switch
    journal = Journal(one)
    assert not journal.begun
    for last in (REFUSAL, ENDING):
        assert journal.look() is None
        assert journal.begun
        journal.write(ALLOWED, 0.0)
        journal.write(Paused("connect", "example.com", 443, "x"), 0.0)
        assert journal.begun
        journal.write(last, 0.0)
        assert not journal.begun
    switch.cause = Cause.PAUSED
    assert journal.look() is Cause.PAUSED
    assert not journal.begun


def test_a_wire_without_flags_is_open() -> None:
    flags = env(Log(), []).flags
    flags.pause("whatever")
    assert flags.look() is None
    assert flags.watch(1, 2) is None


def test_every_running_call_is_cancelled() -> None:
    class Call:
        cause: Cause | None = None

        def cancel(self, cause: Cause) -> None:
            self.cause = cause
            one.calls.discard(self)  # it may end at once

    one = env(Log(), [])
    calls = [Call(), Call()]
    one.calls.update(calls)
    one.cancel_all(Cause.PAUSED)
    assert [call.cause for call in calls] == [Cause.PAUSED] * 2
