"""Plain requests: `proto/calls/forward.py`."""

from __future__ import annotations

import tracemalloc

import pytest

from proto.calls.exchange import Exchange
from proto.calls.forward import carry, forward_call
from proto.calls.ledger import Ledger
from proto.calls.limits import PIECE_BYTES, Limits
from proto.calls.reach import Link
from proto.calls.refuse import answer_for
from proto.calls.rewrite import answer_here
from proto.commands import (
    CLIENT,
    UPSTREAM,
    Close,
    Log,
    Receive,
    Send,
    Side,
    Splice,
)
from proto.errors import (
    BadAnswer,
    CallCancelled,
    ClientError,
    MalformedRequest,
    ProxyError,
    RequestTimeout,
    UpstreamError,
    UpstreamTimeout,
    WireBusy,
)
from proto.events import (
    Cancelled,
    Cause,
    Closed,
    Event,
    Failed,
    Logged,
    Reason,
    Received,
    Sent,
    Spliced,
)
from proto.policy.hosts import Scope, Target
from proto.policy.records import Ending, Refusal
from proto.script import Call
from tests.proto.playbook import Step, Steps, goes, obliging, play, reaches
from tests.proto.requests import get, head_bytes, plain

LIMITS = Limits(idle_s=100.0)
HOST = "example.com"
TARGET = Target(HOST, 80, Scope.INTERNET, literal=False, reads_hello=False)
OTHER = Target(HOST, 8080, Scope.INTERNET, literal=False, reads_hello=False)
UP = head_bytes("GET /a HTTP/1.1", "Host: example.com")
POST = get("Content-Length: 5", method="POST")
POST_UP = head_bytes("POST /a HTTP/1.1", "Host: example.com", "Content-Length: 5")
OK = head_bytes("HTTP/1.1 200 OK", "Content-Length: 5")
CLOSING_OK = head_bytes("HTTP/1.1 200 OK", "Content-Length: 5", "Connection: close")
BOTH, SERVER = (UPSTREAM, CLIENT), (UPSTREAM,)

REACHED = reaches("http", HOST, 80, 11.0, at=1.0)
ALLOW = REACHED[0]


def ending(up: int, down: int, reason: str = "done", *, at: float = 1.0) -> Step:
    return goes(Log(Ending("http", HOST, 80, up, down, at - 1.0, reason)), at)


def send(
    up: bytes = b"", down: bytes = b"", heed: tuple[object, ...] = BOTH, *, at: float = 1.0
) -> Step:
    """A Send that goes whole."""
    command = Send(at + 100.0, down, up, heed)  # type: ignore[arg-type]
    return command, Sent(len(down), len(up), at)


def receive(
    side: object, data: bytes, sides: tuple[object, ...] = BOTH, *, at: float = 1.0
) -> Step:
    command = Receive(sides, PIECE_BYTES, at + 100.0)  # type: ignore[arg-type]
    return command, Received(side, data, at)  # type: ignore[arg-type]


def call(data: bytes, book: Steps, link: Link | None = None) -> tuple[bool, Link]:
    request, early = plain(data)
    link = link or Link()
    link.early = early
    ledger = Ledger(1.0, "http", HOST, 80, 1.0)
    return play(forward_call(link, ledger, request, TARGET, LIMITS), book), link


def test_a_request_and_its_answer_leave_both_connections_for_the_next() -> None:
    book = [
        *REACHED,
        send(UP),
        receive(UPSTREAM, OK + b"he"),
        send(down=OK + b"he", heed=(CLIENT,)),
        receive(UPSTREAM, b"llo"),
        send(down=b"llo", heed=(CLIENT,)),
        ending(len(UP), len(OK) + 5),
    ]
    goes_on, link = call(get(), book)
    assert goes_on
    assert link == Link(b"", TARGET)


def test_a_next_request_to_the_same_server_goes_over_its_connection() -> None:
    book = [
        ALLOW,
        send(UP),
        receive(UPSTREAM, OK + b"hello"),
        send(down=OK + b"hello", heed=(CLIENT,)),
        ending(len(UP), len(OK) + 5),
    ]
    goes_on, link = call(get(), book, Link(upstream=TARGET))
    assert goes_on
    assert link.upstream == TARGET


def test_a_request_to_another_server_gets_a_connection_of_its_own() -> None:
    book = [
        goes(Close(UPSTREAM, 1.0), 1.0),
        *REACHED,
        send(UP),
        receive(UPSTREAM, OK + b"hello"),
        send(down=OK + b"hello", heed=(CLIENT,)),
        ending(len(UP), len(OK) + 5),
    ]
    assert call(get(), book, Link(upstream=OTHER))[0]


def test_a_request_that_may_not_be_sent_twice_gets_a_connection_of_its_own() -> None:
    book = [
        goes(Close(UPSTREAM, 1.0), 1.0),
        *REACHED,
        send(POST_UP + b"hello"),
        receive(UPSTREAM, OK + b"hello"),
        send(down=OK + b"hello", heed=(CLIENT,)),
        ending(len(POST_UP) + 5, len(OK) + 5),
    ]
    assert call(POST + b"hello", book, Link(upstream=TARGET))[0]


@pytest.mark.parametrize(
    "stale",
    [
        [send(UP), receive(UPSTREAM, b"")],
        [send(UP), (Receive(BOTH, PIECE_BYTES, 101.0), Failed(Reason.RESET, 1.0, UPSTREAM))],
        [
            (Send(101.0, b"", UP, BOTH), Failed(Reason.RESET, 1.0, UPSTREAM)),
            receive(UPSTREAM, b"", SERVER),
        ],
    ],
    ids=["fin", "reset", "broken"],
)
def test_a_connection_that_was_closed_meanwhile_is_replaced_once(stale: Steps) -> None:
    sent = sum(event.to_upstream for _, event in stale if isinstance(event, Sent))
    book = [
        ALLOW,
        *stale,
        goes(Close(UPSTREAM, 1.0), 1.0),
        *REACHED[1:],
        send(UP),
        receive(UPSTREAM, OK + b"hello"),
        send(down=OK + b"hello", heed=(CLIENT,)),
        ending(sent + len(UP), len(OK) + 5),
    ]
    assert call(get(), book, Link(upstream=TARGET))[0]


def test_what_came_behind_the_request_meanwhile_is_not_lost() -> None:
    behind = get(url="http://example.com/b")
    book = [
        ALLOW,
        send(UP),
        receive(CLIENT, behind),
        receive(UPSTREAM, b"", SERVER),
        goes(Close(UPSTREAM, 1.0), 1.0),
        *REACHED[1:],
        send(UP, heed=SERVER),
        receive(UPSTREAM, OK + b"hello", SERVER),
        send(down=OK + b"hello", heed=()),
        ending(2 * len(UP), len(OK) + 5),
        (Close(UPSTREAM, 1.0), Closed(1.0)),
    ]
    goes_on, link = call(get(), book, Link(upstream=TARGET))
    assert goes_on
    assert link.early == behind


def failed(error: ProxyError, up: int, down: int = 0, *, at: float = 1.0) -> Steps:
    """What ends a call that was not answered yet."""
    by = at + LIMITS.grace_s
    words = answer_for(error, "GET")
    return [
        ending(up, down, f"{error.status_hint}: {error.message}", at=at),
        goes(Send(by, words), at),
        goes(Close(CLIENT, by), at),
    ]


def test_a_kept_connection_that_is_only_slow_is_not_replaced() -> None:
    book = [
        ALLOW,
        send(UP),
        (Receive(BOTH, PIECE_BYTES, 101.0), Failed(Reason.TIMED_OUT, 101.0)),
        *failed(UpstreamTimeout("the server did not answer in time."), len(UP), at=101.0),
    ]
    assert not call(get(), book, Link(upstream=TARGET))[0]


def test_a_kept_connection_whose_answer_has_begun_is_not_replaced() -> None:
    book = [
        ALLOW,
        send(UP),
        receive(UPSTREAM, b"HTTP/1.1"),
        receive(UPSTREAM, b""),
        *failed(BadAnswer("the server closed the connection before it answered."), len(UP)),
    ]
    # The end came inside the head.
    assert not call(get(), book, Link(upstream=TARGET))[0]


def test_an_early_answer_ends_the_client_s_connection() -> None:
    book = [
        *REACHED,
        send(POST_UP + b"he", heed=SERVER),
        receive(UPSTREAM, OK + b"sorry"),
        send(down=CLOSING_OK + b"sorry", heed=(CLIENT,)),
        ending(len(POST_UP) + 2, len(CLOSING_OK) + 5),
        goes(Close(CLIENT, 1.0 + LIMITS.grace_s), 1.0),
    ]
    assert not call(POST + b"he", book)[0]


def test_an_early_answer_is_heard_while_the_body_waits_for_its_server() -> None:
    """The server reads no more of the body: `Send` answers early since it speaks."""
    book = [
        *REACHED,
        send(POST_UP, heed=SERVER),
        receive(CLIENT, b"he"),
        (Send(101.0, b"", b"he", SERVER), Sent(0, 1, 1.0)),
        receive(UPSTREAM, OK, SERVER),
        (Send(101.0, CLOSING_OK, b"e", ()), Sent(len(CLOSING_OK), 0, 1.0)),
        (Send(101.0, b"", b"e", SERVER), Sent(0, 0, 1.0)),
        receive(UPSTREAM, b"sorry", SERVER),
        (Send(101.0, b"sorry", b"e", ()), Sent(5, 0, 1.0)),
        ending(len(POST_UP) + 1, len(CLOSING_OK) + 5),
        goes(Close(CLIENT, 1.0 + LIMITS.grace_s), 1.0),
    ]
    assert not call(POST, book)[0]


def test_neither_direction_waits_for_the_other() -> None:
    """A client that reads nothing yet is heard while the answer waits for it."""
    book = [
        *REACHED,
        send(POST_UP, heed=SERVER),
        receive(UPSTREAM, OK),
        (Send(101.0, CLOSING_OK, b"", (CLIENT,)), Sent(10, 0, 1.0)),
        receive(CLIENT, b"hello", (CLIENT,)),
        (Send(101.0, CLOSING_OK[10:], b"hello", (CLIENT,)), Sent(0, 5, 1.0)),
        (Send(101.0, CLOSING_OK[10:], b"", (CLIENT,)), Sent(len(CLOSING_OK) - 10, 0, 1.0)),
        receive(UPSTREAM, b"world"),
        send(down=b"world", heed=(CLIENT,)),
        ending(len(POST_UP) + 5, len(CLOSING_OK) + 5),
        goes(Close(CLIENT, 1.0 + LIMITS.grace_s), 1.0),
    ]
    assert not call(POST, book)[0]


def test_a_server_that_reads_no_more_has_its_answer_passed_on() -> None:
    book = [
        *REACHED,
        send(POST_UP + b"he", heed=SERVER),
        receive(CLIENT, b"l"),
        (Send(101.0, b"", b"l", SERVER), Failed(Reason.RESET, 1.0, None, 0, 0)),
        receive(UPSTREAM, OK + b"sorry", SERVER),
        send(down=CLOSING_OK + b"sorry", heed=()),
        ending(len(POST_UP) + 2, len(CLOSING_OK) + 5),
        goes(Close(CLIENT, 1.0 + LIMITS.grace_s), 1.0),
    ]
    assert not call(POST + b"he", book)[0]


def test_an_answer_that_ends_its_connection_leaves_the_client_s_open() -> None:
    ends = head_bytes("HTTP/1.1 200 OK", "Content-Length: 5", "Connection: close")
    book = [
        *REACHED,
        send(UP),
        receive(UPSTREAM, ends + b"hello"),
        send(down=OK + b"hello", heed=(CLIENT,)),
        ending(len(UP), len(OK) + 5),
        goes(Close(UPSTREAM, 1.0), 1.0),
    ]
    goes_on, link = call(get(), book)
    assert goes_on
    assert link.upstream is None


def test_a_cancel_between_two_calls_is_no_call() -> None:
    ends = head_bytes("HTTP/1.1 200 OK", "Content-Length: 0", "Connection: close")
    onward = head_bytes("HTTP/1.1 200 OK", "Content-Length: 0")
    book = [
        *REACHED,
        send(UP),
        receive(UPSTREAM, ends),
        send(down=onward, heed=(CLIENT,)),
        ending(len(UP), len(onward)),
        (Close(UPSTREAM, 1.0), Cancelled(Cause.STOPPED, 1.0)),
    ]
    assert not call(get(), book)[0]


def test_a_half_closed_client_gets_its_answer() -> None:
    book = [
        *REACHED,
        send(UP),
        receive(CLIENT, b""),
        receive(UPSTREAM, OK + b"hello", SERVER),
        send(down=OK + b"hello", heed=()),
        ending(len(UP), len(OK) + 5),
    ]
    assert call(get(), book)[0]


CHUNK = b"%x\r\n%b\r\n" % (PIECE_BYTES - 16, b"x" * (PIECE_BYTES - 16))
PLAIN = b"x" * PIECE_BYTES


@pytest.mark.parametrize(("framing", "piece"), [("Content-Length: 1000000000", PLAIN),
                                                ("Transfer-Encoding: chunked", CHUNK)])  # fmt: skip
@pytest.mark.parametrize("side", [CLIENT, UPSTREAM])
def test_what_waits_for_a_peer_that_stands_still_is_held_once(
    side: Side, framing: str, piece: bytes
) -> None:
    def fresh() -> bytes:
        return bytes(bytearray(piece))

    request, _ = plain(get(framing, method="POST") if side is CLIENT else get())
    begun = [] if side is CLIENT else [head_bytes("HTTP/1.1 200 OK", framing)]
    ledger = Ledger(1.0, "http", HOST, 80, 1.0)
    tracemalloc.start()
    try:
        link = Link(early=fresh()) if side is CLIENT else Link()
        running = Call(forward_call(link, ledger, request, TARGET, LIMITS))
        for _ in range(4):  # the first pieces fit into the kernel
            while not isinstance(running.pending, Receive):
                assert running.pending is not None
                running.answer(obliging(running.pending, 1.0))
            running.answer(Received(side, begun.pop() if begun else fresh(), 1.0))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(running.pending, Send)
    assert len(piece) - 16 <= held < 1.5 * len(piece)


def test_a_websocket_is_spliced_with_what_both_sides_have_said() -> None:
    asks = ("Connection: Upgrade", "Upgrade: websocket")
    up = head_bytes("GET /a HTTP/1.1", "Host: example.com", *asks)
    switch = head_bytes("HTTP/1.1 101 Switching Protocols", *asks)
    book = [
        *REACHED,
        send(up, heed=SERVER),
        receive(UPSTREAM, switch + b"hi", SERVER),
        (Splice(switch + b"hi", b"frames", 100.0), Spliced(30, 40, 5.0)),
        ending(len(up) + 30, 40, at=5.0),
    ]
    assert not call(get(*asks) + b"frames", book)[0]


def test_a_malformed_body_that_came_with_its_head_opens_nothing() -> None:
    data = get("Transfer-Encoding: chunked") + b"zz\r\n"
    with pytest.raises(AssertionError, match="status=400"):
        call(data, [])


def test_a_malformed_body_is_answered_and_its_server_never_gets_it_whole() -> None:
    up = head_bytes("GET /a HTTP/1.1", "Host: example.com", "Transfer-Encoding: chunked")
    error = MalformedRequest("")
    book = [*REACHED, send(up, heed=SERVER), receive(CLIENT, b"zz\r\n")]
    with pytest.raises(AssertionError, match="reason='400: ") as raised:
        call(get("Transfer-Encoding: chunked"), book)
    assert "Log(record=Ending" in str(raised.value)
    assert error.status_hint == 400


def test_an_answer_cut_short_goes_as_far_as_it_came() -> None:
    reason = "the connection closed before the end of the body."
    book = [
        *REACHED,
        send(UP),
        receive(UPSTREAM, OK + b"he"),
        (Send(101.0, OK + b"he", b"", (CLIENT,)), Sent(len(OK), 0, 1.0)),
        receive(CLIENT, b"GET ", (CLIENT,)),
        send(down=b"he", heed=()),
        receive(UPSTREAM, b"", SERVER),
        ending(len(UP), len(OK) + 2, reason),
    ]
    assert not call(get(), book)[0]


def test_a_cancel_counts_what_had_gone_and_says_nothing_in_an_answer() -> None:
    book = [
        *REACHED,
        send(UP),
        receive(UPSTREAM, OK + b"he"),
        (Send(101.0, OK + b"he", b"", (CLIENT,)), Cancelled(Cause.PAUSED, 1.0, 0, 7)),
        ending(len(UP), 7, "the wire is paused."),
    ]
    assert not call(get(), book)[0]


OLD_OK = head_bytes("HTTP/1.1 200 OK", "Connection: close")
OLD_UP = head_bytes("GET /a HTTP/1.1", "Host: example.com", "Connection: close")
CHUNKED_OK = head_bytes("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")
CUT_OFF: list[tuple[Event, str, float]] = [
    (
        Received(UPSTREAM, b"", 1.0),
        "the connection closed before the end of the body.",
        LIMITS.grace_s,
    ),
    (Failed(Reason.TIMED_OUT, 1.0), "the server did not answer in time.", LIMITS.grace_s),
    (
        Failed(Reason.RESET, 1.0, UPSTREAM),
        "the server broke the connection off: connection reset.",
        LIMITS.grace_s,
    ),
    (Cancelled(Cause.STOPPED, 1.0), "the wire is stopped.", LIMITS.parting_s),
]


@pytest.mark.parametrize(("event", "reason", "grace_s"), CUT_OFF)
def test_a_client_that_is_told_of_the_end_by_the_connection_s_is_told_of_a_cut_by_a_reset(
    event: Event, reason: str, grace_s: float
) -> None:
    """To HTTP/1.0 a FIN is the body's end, so half of one must not end in it (RFC 9112 §8)."""
    heard = b"5\r\nhello\r\n"
    book = [
        *REACHED,
        send(OLD_UP),
        receive(UPSTREAM, CHUNKED_OK + heard),
        send(down=OLD_OK + b"hello", heed=(CLIENT,)),
        (Receive(BOTH, PIECE_BYTES, 101.0), event),
        goes(Close(CLIENT, 1.0 + grace_s, broken=True), 1.0),
        ending(len(OLD_UP), len(OLD_OK) + 5, reason),
    ]
    assert not call(get(version="1.0"), book)[0]


def test_a_whole_answer_that_ends_with_its_connection_ends_in_good_order() -> None:
    heard = b"5\r\nhello\r\n0\r\n\r\n"
    book = [
        *REACHED,
        send(OLD_UP),
        receive(UPSTREAM, CHUNKED_OK + heard),
        send(down=OLD_OK + b"hello", heed=(CLIENT,)),
        ending(len(OLD_UP), len(OLD_OK) + 5),
        goes(Close(CLIENT, 1.0 + LIMITS.grace_s), 1.0),
    ]
    assert not call(get(version="1.0"), book)[0]


@pytest.mark.parametrize(
    "book",
    [
        [(send(UP)[0], Closed(1.0))],
        [send(UP), (Receive(BOTH, PIECE_BYTES, 101.0), Sent(0, 0, 1.0))],
    ],
)
def test_an_answer_to_another_command_is_a_bug(book: Steps) -> None:
    with pytest.raises(AssertionError, match="answered by"):
        play(carry(Ledger(1.0), Exchange(*plain(get())), LIMITS), book)


PART = get("Content-Length: 5", method="POST") + b"he"


@pytest.mark.parametrize(
    ("data", "steps", "event", "error"),
    [
        (get(), [], Failed(Reason.TIMED_OUT, 2.0), UpstreamTimeout),
        (get(), [], Failed(Reason.RESET, 2.0, CLIENT), ClientError),
        (POST, [], Failed(Reason.TIMED_OUT, 2.0), UpstreamTimeout),
        (get(), [], Failed(Reason.EXHAUSTED, 2.0, CLIENT), WireBusy),
        (get(), [], Cancelled(Cause.STOPPED, 2.0), CallCancelled),
        (get(), [send(UP)], Failed(Reason.TIMED_OUT, 2.0), UpstreamTimeout),
        (get(), [send(UP)], Failed(Reason.RESET, 2.0, CLIENT), ClientError),
        (get(), [send(UP)], Failed(Reason.RESET, 2.0, UPSTREAM), UpstreamError),
        (get(), [send(UP)], Cancelled(Cause.STOPPED, 2.0), CallCancelled),
        (PART, [send(POST_UP + b"he", heed=SERVER)], Failed(Reason.TIMED_OUT, 2.0), RequestTimeout),
        (
            get(),
            [send(UP), receive(UPSTREAM, OK)],
            Failed(Reason.TIMED_OUT, 2.0),
            ClientError,
        ),
        (
            get(),
            [send(UP), receive(UPSTREAM, OK)],
            Failed(Reason.RESET, 2.0),
            ClientError,
        ),
    ],
)
def test_what_fails_is_blamed_on_whom_was_waited_for(
    data: bytes, steps: Steps, event: Failed, error: type[ProxyError]
) -> None:
    exchange, ledger = Exchange(*plain(data)), Ledger(1.0)
    script = carry(ledger, exchange, LIMITS)
    pending = next(script)
    for expected, answer in steps:
        assert pending == expected
        pending = script.send(answer)
    with pytest.raises(error) as raised:
        script.send(event)
    assert type(raised.value) is error
    assert ledger.now == 2.0
    assert (ledger.answered, ledger.due) == (exchange.answered, exchange.to_client)


# -- Max-Forwards (RFC 9110 §7.6.2) -------------------------------------------------------------


def answered(*fields: str, method: str, said: bytes) -> None:
    """Play a request that is answered here: nobody is looked up or connected to."""
    account = Ledger(1.0, "http", HOST, 80, 1.0)
    request, _ = plain(get(*fields, method=method))
    by = 1.0 + LIMITS.grace_s
    book: Steps = [
        ALLOW,
        (Send(by, said), Sent(3, 0, 1.0)),  # the client takes it by pieces
        (Send(by, said[3:]), Sent(len(said) - 3, 0, 1.0)),
        ending(0, len(said)),
        goes(Close(CLIENT, by), 1.0),
    ]
    assert play(forward_call(Link(), account, request, TARGET, LIMITS), book) is False


def test_an_options_that_may_go_no_further_is_answered_here() -> None:
    said = head_bytes(
        "HTTP/1.1 200 OK",
        "Allow: CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, TRACE",
        "Content-Length: 0",
        "Connection: close",
    )
    answered("Max-Forwards: 0", method="OPTIONS", said=said)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Failed(Reason.TIMED_OUT, 3.0, down=3), "the client stopped reading."),
        (Failed(Reason.RESET, 3.0, CLIENT, down=3), "the client left: connection reset."),
    ],
)
def test_what_has_gone_of_an_answer_of_ours_is_counted_and_goes_once(
    event: Failed, reason: str
) -> None:
    account = Ledger(1.0, "http", HOST, 80, 1.0)
    request, _ = plain(get("Max-Forwards: 0", method="OPTIONS"))
    said = answer_here(request.head)
    book: Steps = [
        ALLOW,
        (Send(1.0 + LIMITS.grace_s, said), event),
        (Send(3.0 + LIMITS.grace_s, said[3:]), Failed(Reason.TIMED_OUT, 5.0, down=2)),
        ending(0, 5, reason, at=5.0),
    ]
    assert play(forward_call(Link(), account, request, TARGET, LIMITS), book) is False


def test_a_trace_that_may_go_no_further_gets_itself_back_without_its_logins() -> None:
    body = head_bytes(
        "TRACE http://example.com/a HTTP/1.1", "Host: example.com", "Max-Forwards: 0", "X-A: b"
    )
    said = head_bytes(
        "HTTP/1.1 200 OK",
        "Content-Type: message/http",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    fields = "Max-Forwards: 0", "Cookie: c=d", "X-A: b", "Authorization: Bearer treasure"
    answered(*fields, method="TRACE", said=said + body)


@pytest.mark.parametrize("fields", [["Max-Forwards: x"], ["Max-Forwards: -1"], ["Max-Forwards:"],
                                    ["Max-Forwards: 1", "Max-Forwards: 0"]])  # fmt: skip
def test_forwards_that_are_no_number_or_two_are_malformed(fields: list[str]) -> None:
    account = Ledger(1.0, "http", HOST, 80, 1.0)
    request, _ = plain(get(*fields, method="OPTIONS"))
    script = forward_call(Link(), account, request, TARGET, LIMITS)
    line = next(script)
    assert isinstance(line, Log)
    assert isinstance(line.record, Refusal)
    assert line.record.status == 400
    answer = script.send(Logged(1.0))
    assert isinstance(answer, Send)
    assert answer.to_client.startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_one_that_may_go_on_goes_with_one_fewer() -> None:
    account = Ledger(1.0, "http", HOST, 80, 1.0)
    request, _ = plain(get("Max-Forwards: 2", method="OPTIONS"))
    up = head_bytes("OPTIONS /a HTTP/1.1", "Host: example.com", "Max-Forwards: 1")
    book: Steps = [
        *REACHED,
        send(up),
        receive(UPSTREAM, OK + b"hello"),
        send(down=OK + b"hello", heed=(CLIENT,)),
        ending(len(up), len(OK) + 5),
    ]
    assert play(forward_call(Link(), account, request, TARGET, LIMITS), book) is True
