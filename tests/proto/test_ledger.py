"""A call's account: `proto/calls/ledger.py`."""

from __future__ import annotations

import pytest

from proto.calls.ledger import Ledger
from proto.commands import CLIENT, Log, Receive
from proto.errors import (
    AuthenticationRequired,
    CallCancelled,
    ProxyError,
    RateLimited,
    Refused,
    RequestTimeout,
    UpstreamError,
    WirePaused,
)
from proto.events import Cancelled, Cause, Event, Failed, Reason, Received, Sent
from proto.policy.admission import Admission
from proto.policy.records import Allowed, Ending, Paused, Refusal
from tests.proto.playbook import play

ASKED = Receive((CLIENT,), 10, 9.0)


def ledger(*, allowed: bool = False) -> Ledger:
    return Ledger(5.0, "connect", "example.com", 443, 4.0, 10, 20, allowed)


def test_an_answer_is_returned_and_its_time_noted() -> None:
    account = ledger()
    event = Received(CLIENT, b"x", 6.0)
    assert play(account.ask(ASKED, Received), [(ASKED, event)]) is event
    assert account.now == 6.0


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Failed(Reason.TIMED_OUT, 7.0), RequestTimeout),
        (Cancelled(Cause.STOPPED, 7.0), CallCancelled),
    ],
)
def test_what_went_wrong_is_raised_and_its_time_noted(
    event: Event, error: type[ProxyError]
) -> None:
    account = ledger()
    with pytest.raises(error):
        play(account.ask(ASKED, Received), [(ASKED, event)])
    assert account.now == 7.0


def test_an_answer_to_another_command_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        play(ledger().ask(ASKED, Received), [(ASKED, Sent(1, 0, 6.0))])


def test_an_allowed_call_has_one_first_and_one_last_line() -> None:
    account = ledger()
    assert account.allow() == Log(Allowed("connect", "example.com", 443))
    assert account.end() == Log(Ending("connect", "example.com", 443, 10, 20, 1.0, "done"))


def test_a_failure_of_an_allowed_call_says_what_was_answered() -> None:
    error = UpstreamError("nobody is there.")
    last = Ending("connect", "example.com", 443, 10, 20, 1.0, "502: nobody is there.")
    assert ledger(allowed=True).fail(error, 502) == Log(last)


def test_a_failure_that_nobody_was_told_of_has_no_status() -> None:
    last = Ending("connect", "example.com", 443, 10, 20, 1.0, "nobody is there.")
    assert ledger(allowed=True).fail(UpstreamError("nobody is there."), 0) == Log(last)


@pytest.mark.parametrize("allowed", [False, True])
def test_what_our_policy_refuses_is_a_refusal_with_its_key(allowed: bool) -> None:
    error = Refused("no.", key="internet.hosts")
    last = Refusal("connect", "example.com", 443, 403, "no.", "internet.hosts")
    assert ledger(allowed=allowed).fail(error, 403) == Log(last)


def test_whatever_ends_a_call_that_was_not_allowed_is_a_refusal() -> None:
    last = Refusal("connect", "example.com", 443, 502, "nobody is there.")
    assert ledger().fail(UpstreamError("nobody is there."), 502) == Log(last)


@pytest.mark.parametrize(
    "error",
    [
        UpstreamError("no"),
        AuthenticationRequired("no"),
        RateLimited("no", retry_after_s=1),
        WirePaused(Cause.STOPPED),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_does_not_look_wrong_counts_towards_no_pause(error: ProxyError) -> None:
    ledger = Ledger(1.0, "connect", "169.254.169.254", 80, admission=Admission())
    assert ledger.pause(error) is None


def test_what_looks_wrong_pauses_the_wire_where_somebody_counts() -> None:
    error = Refused("no", metadata=True)
    assert Ledger(1.0, "connect", "a.test", 80).pause(error) is None
    paused = Ledger(1.0, "connect", "a.test", 80, admission=Admission()).pause(error)
    why = "it called a cloud's metadata service (a.test:80)"
    assert paused == Log(Paused("connect", "a.test", 80, why))
    assert Ledger(1.0, admission=Admission()).pause(Refused("no")) is None
