"""Tunnels: `proto/calls/connect.py`."""

from __future__ import annotations

import pytest

from fuzz.strategies_hello import hello_for, record
from proto.calls.connect import BOTH, ESTABLISHED, connect_call, how_ended, join
from proto.calls.ledger import Ledger
from proto.calls.limits import PIECE_BYTES, Limits
from proto.calls.reach import Link
from proto.calls.refuse import answer_for
from proto.codecs.client_hello import HelloReader
from proto.codecs.hello_retry import _RETRY
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
    Side,
    Splice,
)
from proto.errors import CallCancelled, UpstreamError
from proto.events import (
    Cancelled,
    Cause,
    Failed,
    Logged,
    Reason,
    Received,
    Resolved,
    Sent,
    Spliced,
)
from proto.policy.addresses import PRIVATE, refused
from proto.policy.hosts import Scope, Target
from proto.policy.records import Ending, Refusal
from tests.proto.playbook import ADDRESS, Steps, goes, play, reaches

LIMITS = Limits()
HOST = "example.com"
HELLO = record(hello_for(b"example.com"))


def target(port: int = 443, *, reads: bool = True) -> Target:
    return Target(HOST, port, Scope.INTERNET, literal=False, reads_hello=reads)


def reached(port: int = 443) -> Steps:
    """Return what goes before a tunnel; the clock stands at 4."""
    return reaches("connect", HOST, port, 11.0, at=1.0, step=1.0)


def greeted() -> Steps:
    return [*reached(), goes(Send(14.0, ESTABLISHED), 4.0)]


def ending(reason: str, up: int = 0, down: int = 0, *, at: float, port: int = 443) -> Log:
    return Log(Ending("connect", HOST, port, up, down, at - 1.0, reason))


ANSWER = record(b"\x02\x00\x00\x28\x03\x03" + bytes(38))
RETRY = record(b"\x02\x00\x00\x28\x03\x03" + _RETRY + bytes(6))
ANSWERED = Received(UPSTREAM, ANSWER, 8.0)


def followed(sent: bytes, *, at: float, said: Received = ANSWERED) -> Steps:
    """Return the steps by which a hello goes to its server, and what is said then."""
    by = at + LIMITS.idle_s
    return [
        (Send(by, to_upstream=sent), Sent(0, len(sent), at)),
        (Receive(BOTH, PIECE_BYTES, by), said),
    ]


def call(book: Steps, *, early: bytes = b"", to: Target | None = None) -> None:
    to = to or target()
    account = Ledger(1.0, "connect", HOST, to.port, 1.0)
    assert play(connect_call(Link(early), account, to, LIMITS), book) is None


def test_the_first_words_of_an_unread_tunnel_go_with_the_splice() -> None:
    book: Steps = [
        *reached(22),
        (Splice(ESTABLISHED, b"early", LIMITS.idle_s), Spliced(15, 10 + len(ESTABLISHED), 9.0)),
        (ending("done", 15, 10, at=9.0, port=22), Logged(9.0)),
    ]
    call(book, early=b"early", to=target(22, reads=False))


def test_the_200_has_neither_length_nor_coding() -> None:
    assert ESTABLISHED == b"HTTP/1.1 200 Connection established\r\n\r\n"


def test_a_hello_is_read_after_the_200_and_goes_on_as_it_came() -> None:
    room = HelloReader().room
    first, second = HELLO[:20], HELLO[20:] + b"\x14\x03\x03"
    book: Steps = [
        *greeted(),
        (Receive((CLIENT,), room, 14.0), Received(CLIENT, first, 5.0)),
        (Receive((CLIENT,), room - len(first), 14.0), Received(CLIENT, second, 6.0)),
        *followed(first + second, at=6.0),
        (Splice(ANSWER, b"", LIMITS.idle_s), Spliced(3, 10, 9.0)),
        (ending("done", 3 + len(first + second), 10, at=9.0), Logged(9.0)),
    ]
    call(book)


def test_a_hello_that_came_with_the_head_is_the_tunnel_s() -> None:
    book: Steps = [
        *greeted(),
        *followed(HELLO, at=4.0),
        (Splice(ANSWER, b"", LIMITS.idle_s), Spliced(0, 10, 9.0)),
        (ending("done", len(HELLO), 10, at=9.0), Logged(9.0)),
    ]
    call(book, early=HELLO)


def test_what_either_side_says_before_the_server_s_answer_goes_on() -> None:
    by, data = 6.0 + LIMITS.idle_s, b"\x17\x03\x03\x00\x01x"
    book: Steps = [
        *greeted(),
        *followed(HELLO, at=4.0, said=Received(CLIENT, data, 6.0)),
        (Send(by, to_upstream=data), Sent(0, len(data), 6.0)),
        (Receive(BOTH, PIECE_BYTES, by), Received(UPSTREAM, ANSWER[:9], 6.0)),
        (Send(by, to_client=ANSWER[:9]), Sent(9, 0, 6.0)),
        (Receive(BOTH, PIECE_BYTES, by), Received(UPSTREAM, ANSWER[9:], 6.0)),
        (Splice(ANSWER[9:], b"", LIMITS.idle_s), Spliced(0, 40, 9.0)),
        (ending("done", len(HELLO + data), 49, at=9.0), Logged(9.0)),
    ]
    call(book, early=HELLO)


def test_a_second_hello_is_held_until_it_is_read() -> None:
    by = 6.0 + LIMITS.hello_s
    book: Steps = [
        *greeted(),
        *followed(HELLO, at=4.0, said=Received(UPSTREAM, RETRY, 6.0)),
        (Send(by, to_client=RETRY), Sent(len(RETRY), 0, 6.5)),
        (Receive(BOTH, PIECE_BYTES, by), Received(CLIENT, HELLO[:30], 7.0)),
        (Receive(BOTH, PIECE_BYTES, by), Received(UPSTREAM, b"\x14", 7.5)),
        (Send(by, to_client=b"\x14"), Sent(1, 0, 7.5)),
        (Receive(BOTH, PIECE_BYTES, by), Received(CLIENT, HELLO[30:], 8.0)),
        (Splice(b"", HELLO, LIMITS.idle_s), Spliced(len(HELLO), 5, 9.0)),
        (ending("done", 2 * len(HELLO), len(RETRY) + 6, at=9.0), Logged(9.0)),
    ]
    call(book, early=HELLO)


def test_a_second_hello_for_another_host_reaches_nobody() -> None:
    other = record(hello_for(b"www.example.com"))
    says = "a tunnel to example.com must not ask for another name in its second ClientHello."
    retried: Steps = [
        *greeted(),
        *followed(HELLO, at=4.0, said=Received(UPSTREAM, RETRY, 6.0)),
        (Send(6.0 + LIMITS.hello_s, to_client=RETRY), Sent(len(RETRY), 0, 6.0)),
    ]
    heard = Receive(BOTH, PIECE_BYTES, 6.0 + LIMITS.hello_s)
    refused: Steps = [
        goes(Log(Refusal("connect", HOST, 443, 0, says)), 6.0),
        goes(Close(CLIENT, 6.0 + LIMITS.grace_s), 6.0),
    ]
    call([*retried, (heard, Received(CLIENT, other, 6.0)), *refused], early=HELLO)
    # Sent ahead it has gone, but what its server answers doesn't come back.
    ahead: Steps = [
        *greeted(),
        *followed(HELLO, at=4.0, said=Received(CLIENT, other, 6.0)),
        (Send(6.0 + LIMITS.idle_s, to_upstream=other), Sent(0, len(other), 6.0)),
        (Receive(BOTH, PIECE_BYTES, 6.0 + LIMITS.idle_s), Received(UPSTREAM, RETRY, 6.0)),
        *refused,
    ]
    call(ahead, early=HELLO)
    gone = "the client ended the tunnel before its second ClientHello did."
    ended: Steps = [
        goes(Log(Refusal("connect", HOST, 443, 0, gone)), 6.0),
        goes(Close(CLIENT, 6.0 + LIMITS.grace_s), 6.0),
    ]
    call([*retried, (heard, Received(CLIENT, b"", 6.0)), *ended], early=HELLO)
    call(
        [
            *retried,
            (heard, Failed(Reason.TIMED_OUT, 16.0)),
            (ending("timed out", len(HELLO), len(RETRY), at=16.0), Logged(16.0)),
        ],
        early=HELLO,
    )


@pytest.mark.parametrize("side", [CLIENT, UPSTREAM])
def test_a_side_that_ends_before_the_server_s_answer_is_spliced(side: Side) -> None:
    book: Steps = [
        *greeted(),
        *followed(HELLO, at=4.0, said=Received(side, b"", 6.0)),
        (Splice(b"", b"", LIMITS.idle_s), Spliced(0, 0, 9.0)),
        (ending("done", len(HELLO), 0, at=9.0), Logged(9.0)),
    ]
    call(book, early=HELLO)


@pytest.mark.parametrize(
    ("event", "reason", "up"),
    [
        (Failed(Reason.RESET, 6.0, UPSTREAM, up=7), "upstream: connection reset", 7),
        (Cancelled(Cause.STOPPED, 6.0, up=3), "the wire is stopped", 3),
    ],
)
def test_a_tunnel_that_breaks_off_at_its_hello_counts_what_has_gone(
    event: Failed | Cancelled, reason: str, up: int
) -> None:
    book: Steps = [
        *greeted(),
        (Send(4.0 + LIMITS.idle_s, to_upstream=HELLO), event),
        (ending(reason, up, at=6.0), Logged(6.0)),
    ]
    call(book, early=HELLO)


@pytest.mark.parametrize(
    ("early", "says"),
    [
        (
            record(hello_for(b"www.example.com")),
            "a tunnel to example.com must not ask for another name in its ClientHello.",
        ),
        (b"GET / HTTP/1.1\r\n", "the tunnel doesn't begin with a TLS handshake."),
    ],
)
def test_a_refused_hello_closes_the_client_and_splices_nothing(early: bytes, says: str) -> None:
    book: Steps = [
        *greeted(),
        goes(Log(Refusal("connect", HOST, 443, 0, says)), 4.0),
        goes(Close(CLIENT, 4.0 + LIMITS.grace_s), 5.0),
    ]
    call(book, early=early)


def test_a_client_that_ends_before_its_hello_is_refused() -> None:
    says = "the client ended the tunnel before its ClientHello did."
    book: Steps = [
        *greeted(),
        (Receive((CLIENT,), HelloReader().room, 14.0), Received(CLIENT, b"", 5.0)),
        goes(Log(Refusal("connect", HOST, 443, 0, says)), 5.0),
        goes(Close(CLIENT, 5.0 + LIMITS.grace_s), 6.0),
    ]
    call(book)


def test_a_hello_that_does_not_come_is_not_answered() -> None:
    book: Steps = [
        *greeted(),
        (Receive((CLIENT,), HelloReader().room, 14.0), Failed(Reason.TIMED_OUT, 14.0)),
        (ending("the request did not come in time.", at=14.0), Logged(14.0)),
        goes(Close(CLIENT, 14.0 + LIMITS.grace_s), 15.0),
    ]
    call(book)


def test_a_cancel_before_the_hello_ends_the_tunnel_without_a_word() -> None:
    book: Steps = [
        *greeted(),
        (Receive((CLIENT,), HelloReader().room, 14.0), Cancelled(Cause.STOPPED, 6.0)),
        (ending("the wire is stopped.", at=6.0), Logged(6.0)),
    ]
    call(book)


def test_a_server_that_is_not_there_is_a_502() -> None:
    error = UpstreamError("the server could not be reached: connection refused.")
    book: Steps = [
        *reached()[:-1],
        (Connect((ADDRESS,), 443, 11.0), Failed(Reason.REFUSED, 4.0, UPSTREAM)),
        (ending(f"502: {error.message}", at=4.0), Logged(4.0)),
        goes(Send(6.0, answer_for(error)), 4.0),
        goes(Close(CLIENT, 6.0), 5.0),
    ]
    call(book)


def test_a_refused_address_is_a_403_and_a_refusal_with_its_key() -> None:
    error = refused(HOST, 443, PRIVATE)
    book: Steps = [
        *reached()[:1],
        (Resolve(HOST, 11.0), Resolved(("10.0.0.1",), 2.0)),
        goes(Locate(("10.0.0.1",)), 3.0),
        goes(Log(Refusal("connect", HOST, 443, 403, error.message, "lan.hosts")), 3.0),
        goes(Send(5.0, answer_for(error)), 3.0),
        goes(Close(CLIENT, 5.0), 3.0),
    ]
    call(book)


def test_a_cancel_while_it_connects_is_a_503_and_opens_nothing() -> None:
    error, by = CallCancelled(Cause.STOPPED), 4.0 + LIMITS.parting_s
    book: Steps = [
        *reached()[:-1],
        (Connect((ADDRESS,), 443, 11.0), Cancelled(Cause.STOPPED, 4.0)),
        (ending("503: the wire is stopped.", at=4.0), Logged(4.0)),
        goes(Send(by, answer_for(error)), 4.0),
        goes(Close(CLIENT, by), 4.1),
    ]
    call(book)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Spliced(1, 2, 9.0), "done"),
        (Failed(Reason.TIMED_OUT, 9.0, None, 1, 2), "timed out"),
        (Failed(Reason.RESET, 9.0, UPSTREAM, 1, 2), "upstream: connection reset"),
        (Failed(Reason.RESET, 9.0, CLIENT, 1, 2), "client: connection reset"),
        (Cancelled(Cause.SHUTDOWN, 9.0, 1, 2), "the proxy is shutting down"),
    ],
)
def test_the_last_line_counts_the_bytes_and_says_how_it_ended(
    event: Spliced | Failed | Cancelled, reason: str
) -> None:
    account = Ledger(1.0, "connect", HOST, 443, 1.0)
    book: Steps = [
        (Splice(b"a", b"b", LIMITS.idle_s), event),
        goes(Log(Ending("connect", HOST, 443, 1, 2, 8.0, reason)), 9.0),
    ]
    play(join(account, b"a", b"b", LIMITS), book)
    assert how_ended(event) == reason


def test_a_200_that_did_not_go_whole_is_not_counted() -> None:
    account = Ledger(1.0, "connect", HOST, 22, 1.0)
    book: Steps = [
        (Splice(ESTABLISHED, b"", LIMITS.idle_s), Failed(Reason.RESET, 2.0, CLIENT, 0, 5)),
        goes(Log(Ending("connect", HOST, 22, 0, 0, 1.0, "client: connection reset")), 2.0),
    ]
    play(join(account, ESTABLISHED, b"", LIMITS, len(ESTABLISHED)), book)
