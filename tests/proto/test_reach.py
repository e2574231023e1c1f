"""From an admitted target to a connection: `proto/calls/reach.py`."""

from __future__ import annotations

import pytest

from proto.calls.ledger import Ledger
from proto.calls.reach import Link, open_upstream
from proto.commands import UPSTREAM, Close, Connect, Locate, Log, Resolve
from proto.errors import CallCancelled, ProxyError, Refused, UpstreamError, UpstreamTimeout
from proto.events import (
    Cancelled,
    Cause,
    Connected,
    Event,
    Failed,
    Located,
    Place,
    Reason,
    Resolved,
)
from proto.policy.hosts import Scope, Target
from proto.policy.records import Allowed
from tests.proto.playbook import goes, play

BY = 20.0
NAMED = Target("example.com", 9000, Scope.INTERNET, literal=False, reads_hello=False)
LITERAL = Target("203.0.113.10", 9000, Scope.INTERNET, literal=True, reads_hello=False)
FOUND = ("203.0.113.10", "2001:db8::10")
ELSEWHERE = (Place.ELSEWHERE, Place.ELSEWHERE)

ALLOW = goes(Log(Allowed("connect", "example.com", 9000)), 10.1)
RESOLVE = (Resolve("example.com", BY), Resolved(FOUND, 11.0))
LOCATE = (Locate(FOUND), Located(ELSEWHERE, 11.1))
CONNECT = (Connect(FOUND, 9000, BY), Connected(FOUND[0], 12.0))


def ledger(target: Target = NAMED, **more: bool) -> Ledger:
    return Ledger(10.0, "connect", target.host, target.port, **more)


def test_a_name_is_allowed_resolved_checked_and_what_was_checked_is_dialled() -> None:
    link, account = Link(), ledger()
    play(open_upstream(link, account, NAMED, BY), [ALLOW, RESOLVE, LOCATE, CONNECT])
    assert link.upstream == NAMED
    assert account.now == 12.0


def test_an_address_is_judged_before_it_is_logged_and_nobody_is_asked_for_it() -> None:
    book = [
        goes(Locate(("203.0.113.10",)), 10.0),
        goes(Log(Allowed("connect", "203.0.113.10", 9000)), 10.1),
        goes(Connect(("203.0.113.10",), 9000, BY), 12.0),
    ]
    play(open_upstream(Link(), ledger(LITERAL), LITERAL, BY), book)


def test_an_address_of_this_machine_is_refused_and_never_logged_as_allowed() -> None:
    account = ledger(LITERAL)
    book = [(Locate(("203.0.113.10",)), Located((Place.THIS_MACHINE,), 10.0))]
    with pytest.raises(Refused, match="this machine"):
        play(open_upstream(Link(), account, LITERAL, BY), book)
    assert not account.allowed


def test_a_name_with_no_good_address_is_refused_before_any_connect() -> None:
    bad = Resolved(("127.0.0.1", "10.0.0.1"), 11.0)
    book = [
        ALLOW,
        (RESOLVE[0], bad),
        (Locate(bad.addresses), Located((Place.THIS_MACHINE, Place.ELSEWHERE), 11.0)),
    ]
    with pytest.raises(Refused):
        play(open_upstream(Link(), ledger(), NAMED, BY), book)


def test_of_a_name_s_addresses_only_the_good_ones_are_dialled() -> None:
    mixed = Resolved(("10.0.0.1", "203.0.113.10"), 11.0)
    book = [
        ALLOW,
        (RESOLVE[0], mixed),
        (Locate(mixed.addresses), Located(ELSEWHERE, 11.0)),
        goes(Connect(("203.0.113.10",), 9000, BY), 12.0),
    ]
    play(open_upstream(Link(), ledger(), NAMED, BY), book)


def test_a_call_that_was_allowed_already_is_not_allowed_again() -> None:
    account = ledger(allowed=True)
    play(open_upstream(Link(), account, NAMED, BY), [RESOLVE, LOCATE, CONNECT])


def test_what_is_open_is_closed_first() -> None:
    link = Link(upstream=LITERAL)
    book = [goes(Close(UPSTREAM, 10.0), 10.0), ALLOW, RESOLVE, LOCATE, CONNECT]
    play(open_upstream(link, ledger(), NAMED, BY), book)
    assert link.upstream == NAMED


@pytest.mark.parametrize(
    ("book", "error"),
    [
        ([ALLOW, (RESOLVE[0], Failed(Reason.UNRESOLVED, 11.0, UPSTREAM))], UpstreamError),
        ([ALLOW, (RESOLVE[0], Failed(Reason.TIMED_OUT, 20.0, UPSTREAM))], UpstreamTimeout),
        ([ALLOW, (RESOLVE[0], Cancelled(Cause.STOPPED, 11.0))], CallCancelled),
        ([ALLOW, RESOLVE, (LOCATE[0], Failed(Reason.BROKEN, 11.0))], UpstreamError),
        (
            [ALLOW, RESOLVE, LOCATE, (CONNECT[0], Failed(Reason.REFUSED, 11.0, UPSTREAM))],
            UpstreamError,
        ),
        ([ALLOW, RESOLVE, LOCATE, (CONNECT[0], Cancelled(Cause.PAUSED, 11.0))], CallCancelled),
    ],
)
def test_what_fails_leaves_nothing_open(
    book: list[tuple[Resolve | Locate | Connect | Log, Event]], error: type[ProxyError]
) -> None:
    link = Link()
    with pytest.raises(error) as raised:
        play(open_upstream(link, ledger(), NAMED, BY), book)
    assert type(raised.value) is error
    assert link.upstream is None


def test_a_cancel_while_the_old_connection_closes_opens_no_other() -> None:
    link = Link(upstream=LITERAL)
    book = [(Close(UPSTREAM, 10.0), Cancelled(Cause.STOPPED, 10.0))]
    with pytest.raises(CallCancelled):
        play(open_upstream(link, ledger(), NAMED, BY), book)
    assert link.upstream is None
