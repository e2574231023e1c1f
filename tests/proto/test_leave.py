"""By way of another proxy: `proto/calls/leave.py`, and how calls use it."""

from __future__ import annotations

import pytest

from proto.calls.connect import ESTABLISHED, connect_call
from proto.calls.forward import forward_call
from proto.calls.leave import TRIES_MAX, leave
from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.reach import Link, open_upstream
from proto.calls.rewrite import request_for_server
from proto.codecs.connect_hop import ANSWER_MAX_BYTES, ConnectHop
from proto.codecs.socks5 import connect_request, greeting, login_request
from proto.commands import (
    CLIENT,
    UPSTREAM,
    Close,
    Connect,
    Locate,
    Log,
    Receive,
    Resolve,
    Send,
    Splice,
)
from proto.errors import (
    CallCancelled,
    ExitError,
    ExitRefused,
    ExitSilent,
    ExitTimeout,
    ProxyError,
    WireBusy,
)
from proto.events import (
    Cancelled,
    Cause,
    Event,
    Failed,
    Located,
    Place,
    Reason,
    Received,
    Resolved,
    Sent,
    Spliced,
)
from proto.policy.exits import Exit
from proto.policy.hosts import Scope, Target
from proto.policy.records import Allowed, Ending
from tests.proto.playbook import Step, Steps, goes, play
from tests.proto.requests import get, plain

LIMITS = Limits()
ADDRESSES = ("2001:db8::10", "203.0.113.10", "203.0.113.11", "203.0.113.12")
V4, V6 = bytes((203, 0, 113, 10)), bytes.fromhex("20010db8000000000000000000000010")
OK = b"HTTP/1.1 200 Connection established\r\n\r\n"
BOUND = b"\x01" + V4 + b"\x01\xbb"
CONNECT = goes(Connect(("10.0.0.9",), 1080, 20.0), 11.0)


def exit_of(text: str) -> Exit:
    found = Exit.of(text)
    assert found is not None
    return found


SOCKS, HTTP = exit_of("socks5://10.0.0.9:1080"), exit_of("http://10.0.0.9:1080")


def sends(data: bytes, due: float = 20.0, at: float = 11.0) -> Step:
    return Send(due, to_upstream=data), Sent(0, len(data), at)


def hears(data: bytes, needs: int, due: float = 20.0, at: float = 11.0) -> Step:
    return Receive((UPSTREAM,), needs, due), Received(UPSTREAM, data, at)


def asks(address: str, due: float = 20.0) -> Step:
    where = f"[{address}]:443" if ":" in address else f"{address}:443"
    return sends(ConnectHop(where, None).to_send, due)


def left(exit_: Exit, addresses: tuple[str, ...], book: Steps) -> bytes:
    return play(leave(Ledger(10.0), exit_, addresses, 443, 20.0), book)


def test_an_address_is_not_looked_up_and_a_socks5_server_is_told_the_checked_one() -> None:
    book: Steps = [
        CONNECT,
        sends(greeting(login=False)),
        hears(b"\x05\x00", 2),
        sends(connect_request(V4, 443)),
        hears(b"\x05", 2),
        hears(b"\x00", 1),
        hears(b"\x00\x01", 2),
        hears(BOUND[1:], 6),
    ]
    assert left(SOCKS, ADDRESSES[1:2], book) == b""


def test_a_login_goes_to_the_exit_alone() -> None:
    exit_ = exit_of("socks5://user:password@10.0.0.9:1080")
    book: Steps = [
        CONNECT,
        sends(greeting(login=True)),
        hears(b"\x05\x02", 2),
        sends(login_request(b"user", b"password")),
        hears(b"\x01\x00", 2),
        sends(connect_request(V6, 443)),
        hears(b"\x05\x00", 2),
        hears(b"\x00\x01", 2),
        hears(BOUND[1:], 6),
    ]
    assert left(exit_, ADDRESSES[:1], book) == b""
    named = exit_of("http://user:password@10.0.0.9:1080")
    book = [
        CONNECT,
        sends(ConnectHop("203.0.113.10:443", b"Basic dXNlcjpwYXNzd29yZA==").to_send),
        hears(OK + b"hi", ANSWER_MAX_BYTES),
    ]
    assert left(named, ADDRESSES[1:2], book) == b"hi"


def test_a_named_exit_is_looked_up_and_its_addresses_are_not_judged() -> None:
    book: Steps = [
        (Resolve("proxy.lan", 20.0), Resolved(("127.0.0.1", "10.0.0.9"), 10.5)),
        goes(Connect(("127.0.0.1", "10.0.0.9"), 3128, 20.0), 11.0),
        asks("203.0.113.10"),
        hears(OK, ANSWER_MAX_BYTES),
    ]
    assert left(exit_of("http://proxy.lan:3128"), ADDRESSES[1:2], book) == b""


def test_the_next_address_is_tried_over_another_connection() -> None:
    refusal = b"HTTP/1.1 503 x\r\n\r\n"
    again: Step = goes(Close(UPSTREAM, 11.0), 11.0)
    book: Steps = [
        CONNECT,
        asks(ADDRESSES[0], 15.0),  # half of the ten seconds that were left
        hears(refusal, ANSWER_MAX_BYTES, 15.0),
        again,
        CONNECT,
        asks(ADDRESSES[1], 15.5),
        hears(refusal, ANSWER_MAX_BYTES, 15.5),
        again,
        CONNECT,
        asks(ADDRESSES[2]),
        hears(OK, ANSWER_MAX_BYTES),
    ]
    assert left(HTTP, ADDRESSES, book) == b""
    assert TRIES_MAX == 3
    book[-1] = hears(refusal, ANSWER_MAX_BYTES)
    with pytest.raises(ExitRefused, match="it answered 503"):
        left(HTTP, ADDRESSES, book)


def test_an_address_that_takes_too_long_gives_way_to_the_next() -> None:
    book: Steps = [
        CONNECT,
        asks(ADDRESSES[0], 15.0),
        (Receive((UPSTREAM,), ANSWER_MAX_BYTES, 15.0), Failed(Reason.TIMED_OUT, 15.0, UPSTREAM)),
        goes(Close(UPSTREAM, 15.0), 15.0),
        CONNECT,
        asks(ADDRESSES[1]),
        hears(OK, ANSWER_MAX_BYTES),
    ]
    assert left(HTTP, ADDRESSES[:2], book) == b""


@pytest.mark.parametrize(
    ("answer", "error"), [(b"HTTP/1.1 407 x\r\n\r\n", ExitError), (b"SSH-2.0", ExitError)]
)
def test_what_no_other_address_would_change_ends_it(answer: bytes, error: type[ProxyError]) -> None:
    book: Steps = [CONNECT, asks(ADDRESSES[0], 15.0), hears(answer, ANSWER_MAX_BYTES, 15.0)]
    with pytest.raises(error) as raised:
        left(HTTP, ADDRESSES, book)
    assert type(raised.value) is error


@pytest.mark.parametrize(
    ("event", "error", "says"),
    [
        (Failed(Reason.REFUSED, 11.0, UPSTREAM), ExitError, "could not be reached: connection"),
        (Failed(Reason.TIMED_OUT, 20.0, UPSTREAM), ExitSilent, "could not be reached: timed out"),
        (Failed(Reason.EXHAUSTED, 11.0), WireBusy, "descriptors"),
        (Cancelled(Cause.STOPPED, 11.0), CallCancelled, "stopped"),
    ],
)
def test_an_exit_that_is_not_there_is_told_apart_from_a_server(
    event: Event, error: type[ProxyError], says: str
) -> None:
    with pytest.raises(error, match=says) as raised:
        left(SOCKS, ADDRESSES, [(CONNECT[0], event)])
    assert type(raised.value) is error
    assert "10.0.0.9" not in raised.value.message


@pytest.mark.parametrize(
    ("event", "error", "says"),
    [
        (Failed(Reason.RESET, 11.0, UPSTREAM), ExitError, "broke the connection off"),
        (Failed(Reason.TIMED_OUT, 20.0, UPSTREAM), ExitTimeout, "did not answer in time"),
        (Cancelled(Cause.PAUSED, 11.0), CallCancelled, "paused"),
    ],
)
def test_an_exit_that_breaks_off_is_told_too(
    event: Event, error: type[ProxyError], says: str
) -> None:
    book: Steps = [CONNECT, (sends(greeting(login=False))[0], event)]
    with pytest.raises(error, match=says) as raised:
        left(SOCKS, ADDRESSES[:1], book)
    assert type(raised.value) is error


# -- in a call ------------------------------------------------------------------------------


def target(port: int, scope: Scope = Scope.INTERNET) -> Target:
    return Target("203.0.113.10", port, scope, literal=True, reads_hello=False)


def test_a_machine_of_the_local_network_is_reached_directly() -> None:
    """By the exit it would be another network's machine of that address."""
    link, near = Link(exit=SOCKS), target(9000, Scope.LAN)
    book: Steps = [
        (Locate(("203.0.113.10",)), Located((Place.OWN_NETWORK,), 10.0)),
        goes(Log(Allowed("connect", "203.0.113.10", 9000)), 10.0),
        goes(Connect(("203.0.113.10",), 9000, 20.0), 11.0),
    ]
    play(open_upstream(link, Ledger(10.0, "connect", near.host, 9000), near, 20.0), book)
    assert link.upstream == near


def reached(verb: str, port: int, said: bytes) -> Steps:
    """Return what goes before a call's own bytes; the clock stands at 11."""
    return [
        goes(Locate(("203.0.113.10",)), 10.0),
        goes(Log(Allowed(verb, "203.0.113.10", port)), 10.0),
        CONNECT,
        sends(ConnectHop(f"203.0.113.10:{port}", None).to_send),
        hears(OK + said, ANSWER_MAX_BYTES),
    ]


def test_what_a_server_says_first_is_the_tunnel_s() -> None:
    """As an ssh server does; it came with the exit's answer."""
    account = Ledger(10.0, "connect", "203.0.113.10", 22, 10.0)
    book: Steps = [
        *reached("connect", 22, b"SSH-2.0-x"),
        (
            Splice(ESTABLISHED + b"SSH-2.0-x", b"", LIMITS.idle_s),
            Spliced(3, 9 + len(ESTABLISHED), 12.0),
        ),
        goes(Log(Ending("connect", "203.0.113.10", 22, 3, 9, 2.0)), 12.0),
    ]
    link = Link(exit=HTTP)
    play(connect_call(link, account, target(22), LIMITS), book)
    assert link.said == b""


def test_a_plain_request_goes_through_a_tunnel_and_keeps_its_host() -> None:
    request, _ = plain(get(url="http://203.0.113.10:8080/a"))
    ours = request_for_server(request, upgrade=False, last=False)
    early = b"HTTP/1.1 204 No Content\r\n\r\n"
    account = Ledger(10.0, "http", "203.0.113.10", 8080, 10.0)
    sides = (CLIENT,)
    book: Steps = [
        *reached("http", 8080, early),
        (Send(11.0 + LIMITS.idle_s, early, ours, sides), Sent(len(early), len(ours), 12.0)),
        goes(Log(Ending("http", "203.0.113.10", 8080, len(ours), len(early), 2.0)), 12.0),
    ]
    link = Link(exit=HTTP)
    assert play(forward_call(link, account, request, target(8080), LIMITS), book) is True
    assert b"Host: 203.0.113.10:8080" in ours
