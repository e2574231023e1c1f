"""A proxy that isn't bound yet: `proto/calls/blank.py`."""

from __future__ import annotations

import pytest

from proto.calls.blank import blank_connection
from proto.calls.limits import Limits
from proto.calls.refuse import answer_for
from proto.codecs.http1 import HEAD_MAX_BYTES
from proto.commands import CLIENT, Close, Command, Log, Receive, Send
from proto.errors import NotBound, RequestTimeout
from proto.events import Event, Failed, Reason, Received
from proto.policy.records import Refusal
from tests.proto.playbook import goes, play

LIMITS = Limits()
SAYS = "this proxy is bound to no sandbox yet; try again once it is."


@pytest.mark.parametrize(
    "head",
    [
        b"CONNECT treasure.example:443 HTTP/1.1\r\nHost: treasure.example:443\r\n\r\n",
        b"GET http://treasure.example/ HTTP/1.1\r\nHost: treasure.example\r\n\r\n",
        b"GET /_link/model/x HTTP/1.1\r\nHost: treasure\r\n\r\n",
        b"HEAD http://a/ HTTP/1.1\r\nHost: treasure\r\n\r\n",  # not even the Host is compared
    ],
)
def test_every_call_is_told_so_and_nothing_of_it_is_kept(head: bytes) -> None:
    error = NotBound(SAYS)
    method = head.split(b" ")[0].decode()
    book: list[tuple[Command, Event]] = [
        (Receive((CLIENT,), HEAD_MAX_BYTES, 31.0), Received(CLIENT, head, 2.0)),
        goes(Log(Refusal("http", "", 0, 503, SAYS)), 2.0),
        goes(Send(4.0, answer_for(error, method)), 2.0),
        goes(Close(CLIENT, 4.0), 2.0),
    ]
    play(blank_connection(LIMITS, 1.0), book)


def test_a_client_that_says_nothing_gets_nothing() -> None:
    book: list[tuple[Command, Event]] = [
        (Receive((CLIENT,), HEAD_MAX_BYTES, 31.0), Received(CLIENT, b"", 2.0))
    ]
    play(blank_connection(LIMITS, 1.0), book)


def test_a_client_that_does_not_finish_is_told() -> None:
    error = RequestTimeout("the request did not come in time.")
    book: list[tuple[Command, Event]] = [
        (Receive((CLIENT,), HEAD_MAX_BYTES, 31.0), Received(CLIENT, b"GET", 2.0)),
        (Receive((CLIENT,), HEAD_MAX_BYTES - 3, 32.0), Failed(Reason.TIMED_OUT, 32.0, CLIENT)),
        goes(Log(Refusal("http", "", 0, 408, error.message)), 32.0),
        goes(Send(34.0, answer_for(error)), 32.0),
        goes(Close(CLIENT, 34.0), 32.0),
    ]
    play(blank_connection(LIMITS, 1.0), book)
