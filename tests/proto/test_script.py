"""The seam itself: asking, what an answer that is no result becomes, and a call's state."""

from __future__ import annotations

from enum import Enum
from typing import get_args, get_type_hints

import msgspec
import pytest

from proto.commands import (
    BOTH,
    CLIENT,
    UPSTREAM,
    Command,
    Connect,
    Listen,
    Locate,
    Log,
    Look,
    Receive,
    Resolve,
    Send,
    Splice,
)
from proto.errors import (
    CallCancelled,
    ClientError,
    ProxyError,
    RequestTimeout,
    UpstreamError,
    UpstreamTimeout,
    WireBusy,
)
from proto.events import Cancelled, Cause, Closed, Event, Failed, Logged, Reason, Received
from proto.policy.records import Allowed, Record
from proto.script import Call, Script, ask, error_for

HEAR_CLIENT = Receive((CLIENT,), 10, 5.0)
HEAR_UPSTREAM = Receive((UPSTREAM,), 10, 5.0)
HEAR_BOTH = Receive(BOTH, 10, 5.0)
RESOLVE = Resolve("example.com", 5.0)
CONNECT = Connect(("203.0.113.10",), 443, 5.0)
LOCATE = Locate(("203.0.113.10",))
TELL_CLIENT = Send(5.0, to_client=b"x")
TELL_UPSTREAM = Send(5.0, to_upstream=b"x")
TELL_BOTH = Send(5.0, b"x", b"y")
SPLICE = Splice(b"", b"", 60.0)
LOG = Log(Allowed("connect", "example.com", 443))


def asking(command: Command, got: list[Received]) -> Script[None]:
    got.append((yield from ask(command, Received)))


def test_asking_yields_one_command_and_returns_its_answer() -> None:
    got: list[Received] = []
    call = Call(asking(HEAR_CLIENT, got))
    assert call.pending == HEAR_CLIENT
    call.answer(Received(CLIENT, b"hi", 1.0))
    assert call.pending is None
    assert got == [Received(CLIENT, b"hi", 1.0)]


@pytest.mark.parametrize(
    "event", [Failed(Reason.RESET, 1.0), Cancelled(Cause.STOPPED, 1.0)], ids=["failed", "cancelled"]
)
def test_asking_raises_what_went_wrong(event: Event) -> None:
    call = Call(asking(HEAR_CLIENT, []))
    with pytest.raises(ProxyError):
        call.answer(event)
    assert call.pending is None


def test_an_answer_of_another_kind_is_a_bug_of_ours() -> None:
    call = Call(asking(HEAR_CLIENT, []))
    with pytest.raises(AssertionError, match=r"Receive.*answered by Closed"):
        call.answer(Closed(1.0))


@pytest.mark.parametrize("cause", Cause)
def test_a_cancel_is_told_with_its_cause_whatever_was_asked(cause: Cause) -> None:
    for command in (HEAR_CLIENT, CONNECT, SPLICE):
        error = error_for(command, Cancelled(cause, 1.0))
        assert isinstance(error, CallCancelled)
        assert error.cause is cause
        assert error.status_hint == 503
        assert cause.value in error.message


@pytest.mark.parametrize("command", [HEAR_CLIENT, CONNECT, TELL_UPSTREAM, LOCATE])
@pytest.mark.parametrize("side", [None, CLIENT, UPSTREAM])
def test_want_of_descriptors_is_nobodys_fault(command: Command, side: object) -> None:
    error = error_for(command, Failed(Reason.EXHAUSTED, 1.0, side))  # type: ignore[arg-type]
    assert type(error) is WireBusy
    assert error.status_hint == 503


BLAMED = [
    (HEAR_CLIENT, None, CLIENT),
    (HEAR_UPSTREAM, None, UPSTREAM),
    (HEAR_BOTH, None, CLIENT),
    (HEAR_BOTH, UPSTREAM, UPSTREAM),
    (HEAR_BOTH, CLIENT, CLIENT),
    (TELL_CLIENT, None, CLIENT),
    (TELL_UPSTREAM, None, UPSTREAM),
    (TELL_BOTH, None, CLIENT),
    (TELL_BOTH, UPSTREAM, UPSTREAM),
    (RESOLVE, None, UPSTREAM),
    (CONNECT, None, UPSTREAM),
    (LOCATE, None, UPSTREAM),
    (SPLICE, None, CLIENT),
    (SPLICE, UPSTREAM, UPSTREAM),
]


@pytest.mark.parametrize(("command", "side", "blamed"), BLAMED)
@pytest.mark.parametrize("reason", [r for r in Reason if r is not Reason.EXHAUSTED])
def test_a_failure_blames_the_side_it_names_or_the_one_that_was_asked(
    command: Command, side: object, blamed: object, reason: Reason
) -> None:
    late = reason is Reason.TIMED_OUT
    error = error_for(command, Failed(reason, 1.0, side))  # type: ignore[arg-type]
    if blamed is UPSTREAM:
        assert type(error) is (UpstreamTimeout if late else UpstreamError)
        assert error.status_hint == (504 if late else 502)
    else:
        assert type(error) is (RequestTimeout if late else ClientError)
        assert error.status_hint == (408 if late else None)


def test_a_call_that_yields_nothing_is_over_at_once() -> None:
    def script() -> Script[None]:
        return
        yield LOG

    assert Call(script()).pending is None


def test_a_call_holds_its_pending_command_and_nothing_else() -> None:
    def script() -> Script[None]:
        assert (yield LOG) == Logged(1.0)
        yield RESOLVE

    call = Call(script())
    assert call.pending == LOG
    call.answer(Logged(1.0))
    assert call.pending == RESOLVE
    call.answer(Closed(2.0))
    assert call.pending is None
    with pytest.raises(AttributeError):
        call.other = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("bug", [ValueError("a bug"), KeyboardInterrupt()])
def test_a_scripts_error_passes_through_and_ends_the_call(bug: BaseException) -> None:
    def script() -> Script[None]:
        yield LOG
        raise bug

    call = Call(script())
    with pytest.raises(type(bug)):
        call.answer(Logged(1.0))
    assert call.pending is None


def test_a_script_that_fails_before_its_first_command_tells_so() -> None:
    def script() -> Script[None]:
        raise ValueError("a bug")
        yield LOG

    with pytest.raises(ValueError, match="a bug"):
        Call(script())


@pytest.mark.parametrize("kind", [*get_args(Command), *get_args(Event)])
def test_commands_and_events_are_frozen_and_have_slots(kind: type[msgspec.Struct]) -> None:
    """They share no object with the shell that either could change under the other."""
    made = kind(*[None] * len(kind.__struct_fields__))
    assert not hasattr(made, "__dict__")
    for name in kind.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(made, name, 1)


@pytest.mark.parametrize("kind", [*get_args(Command), *get_args(Event)])
def test_nothing_in_a_command_or_an_event_can_be_changed_or_lead_back_to_it(kind: type) -> None:
    """They aren't counted for the collector of cycles: what they hold must not make one."""
    plain = {int, float, bool, bytes, str}
    for hint in get_type_hints(kind).values():
        for each in get_args(hint) or (hint,):
            assert (
                each in plain
                or each in (Ellipsis, type(None))
                or issubclass(each, Enum)
                or each in get_args(Record)
            )


def test_every_event_says_when_it_happened() -> None:
    for kind in get_args(Event):
        assert "now" in set(kind.__struct_fields__)


def test_every_command_that_waits_on_a_peer_has_a_deadline() -> None:
    for kind in get_args(Command):
        names = set(kind.__struct_fields__)
        assert kind in (Listen, Locate, Look, Log) or names & {"by", "idle_s"}
