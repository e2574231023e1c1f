"""A call from outside in, of a bridge's: `proto/calls/inward.py`."""

from __future__ import annotations

import pytest

from proto.calls.inward import REACHED, inward_call
from proto.calls.limits import Limits
from proto.calls.ways import PLAIN, Ways
from proto.codecs.http1 import HEAD_MAX_BYTES
from proto.commands import CLIENT, IN, Close, Connect, Log, Look, Receive, Send, Splice
from proto.events import (
    Cause,
    Closed,
    Connected,
    Failed,
    Logged,
    Looked,
    Reason,
    Received,
    Sent,
    Side,
    Spliced,
)
from proto.policy.admission import Admission
from proto.policy.keys import Key
from proto.policy.records import Allowed, Ending, Refusal
from proto.script import Script
from tests.proto.playbook import goes, play
from tests.proto.requests import head_bytes

KEY = "k" * 32
LIMITS = Limits()
HEAD = head_bytes("CONNECT localhost:8085 HTTP/1.1", "Host: localhost:8085", f"Link-Caller: {KEY}")
BEGUN = [
    (Receive((CLIENT,), HEAD_MAX_BYTES, 31.0), Received(CLIENT, HEAD + b"GET /", 1.0)),
    goes(Look(), 1.0),
    goes(Log(Allowed("callback", "localhost", 8085)), 1.0),
]
CONNECT = Connect(("127.0.0.1",), 8085, 11.0, IN)


def script() -> Script[None]:
    return inward_call(Key(KEY), LIMITS, PLAIN, 1.0)


def refused(data: bytes, cause: Cause | None = None, ways: Ways = PLAIN) -> Refusal:
    """Return the line of a call that is refused, which is answered and closed."""
    call = inward_call(Key(KEY), LIMITS, ways, 1.0)
    next(call)
    command = call.send(Received(CLIENT, data, 1.0))
    if isinstance(command, Look):
        command = call.send(Looked(cause, 1.0))
    assert isinstance(command, Log)
    assert isinstance(command.record, Refusal)
    sent = call.send(Logged(1.0))
    assert isinstance(sent, Send)
    assert isinstance(call.send(Sent(len(sent.to_client), 0, 1.0)), Close)
    with pytest.raises(StopIteration):
        call.send(Closed(1.0))
    return command.record


def test_a_login_s_answer_is_joined_with_what_listens_inside() -> None:
    play(script(), [
        *BEGUN,
        (CONNECT, Connected("127.0.0.1", 1.0)),
        (Send(11.0, to_client=REACHED), Sent(len(REACHED), 0, 1.0)),
        (Splice(b"", b"GET /", LIMITS.idle_s), Spliced(5, 9, 1.0)),
        goes(Log(Ending("callback", "localhost", 8085, 5, 9, 0.0)), 1.0),
    ])  # fmt: skip


def test_a_joined_answer_that_breaks_off_is_logged_with_its_bytes_and_told_nobody() -> None:
    why = "upstream: connection reset"
    play(script(), [
        *BEGUN,
        (CONNECT, Connected("127.0.0.1", 1.0)),
        (Send(11.0, to_client=REACHED), Sent(len(REACHED), 0, 1.0)),
        (Splice(b"", b"GET /", LIMITS.idle_s), Failed(Reason.RESET, 2.0, Side.UPSTREAM, 5, 9)),
        goes(Log(Ending("callback", "localhost", 8085, 5, 9, 1.0, why)), 2.0),
    ])  # fmt: skip


def test_nobody_inside_is_a_failure_that_is_told() -> None:
    call = script()
    pending = next(call)
    for expected, event in BEGUN:
        assert pending == expected
        pending = call.send(event)
    assert pending == CONNECT
    last = call.send(Failed(Reason.REFUSED, 1.0))
    assert isinstance(last, Log)
    assert isinstance(last.record, Ending)
    answer = call.send(Logged(1.0))
    assert isinstance(answer, Send)
    assert answer.to_client.startswith(b"HTTP/1.1 502 ")
    call.close()


def test_a_bridge_that_says_nothing_leaves_no_line() -> None:
    play(script(), [(BEGUN[0][0], Received(CLIENT, b"", 1.0))])


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"k" * 32, b"x" * 32),
        HEAD.replace(b"Link-Caller", b"Link-Other"),
        HEAD.replace(b"localhost:8085", b"example.com:8085"),
        head_bytes("GET / HTTP/1.1", "Host: localhost:8085", f"Link-Caller: {KEY}"),
    ],
    ids=["another key", "no key", "another host", "no CONNECT"],
)
def test_who_is_no_bridge_of_the_wire_is_refused(head: bytes) -> None:
    assert refused(head).status == 403


def test_a_closed_wire_lets_nobody_in() -> None:
    line = refused(HEAD, Cause.STOPPED)
    assert (line.status, line.host, line.port) == (503, "localhost", 8085)


def test_a_limit_counts_it_as_any_call() -> None:
    ways = Ways(admission=Admission(1))
    call = inward_call(Key(KEY), LIMITS, ways, 1.0)
    pending = next(call)
    for expected, event in BEGUN:
        assert pending == expected
        pending = call.send(event)
    call.close()
    line = refused(HEAD, ways=ways)
    assert (line.verb, line.status) == ("callback", 429)
