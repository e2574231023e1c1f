"""Answers of the proxy's own: `proto/calls/refuse.py`."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.refuse import answer_for, end_badly
from proto.commands import CLIENT, Close, Log, Send
from proto.errors import (
    AuthenticationRequired,
    BadAnswer,
    CallCancelled,
    ClientError,
    HeadTooLarge,
    HelloRefused,
    MalformedRequest,
    NoSuchRoute,
    ProxyError,
    RateLimited,
    Refused,
    RequestTimeout,
    UpstreamError,
    UpstreamTimeout,
    WirePaused,
)
from proto.events import Cancelled, Cause, Closed, Event, Failed, Logged, Reason, Sent
from proto.policy.admission import Admission
from proto.policy.records import Ending, Paused, Refusal
from tests.proto.playbook import play

ERRORS: list[ProxyError] = [
    MalformedRequest("m."),
    HeadTooLarge("m."),
    Refused("m.", key="internet.hosts"),
    NoSuchRoute("m."),
    AuthenticationRequired("m."),
    RequestTimeout("m."),
    UpstreamError("m."),
    UpstreamTimeout("m."),
    CallCancelled(Cause.STOPPED),
    RateLimited("m.", retry_after_s=7),
    WirePaused(Cause.PAUSED),
]


def read(answer: bytes, method: str = "GET") -> tuple[h11.Response, bytes, bytes]:
    """Return an answer's head, its body, and what is behind it, as h11 reads them."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(answer)
    head = client.next_event()
    assert isinstance(head, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    return head, body, client.trailing_data[0]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_answer_is_whole_and_says_whether_the_connection_ends(
    error: ProxyError, keep: bool
) -> None:
    head, body, rest = read(answer_for(error, "GET", keep=keep))
    assert head.status_code == error.status_hint
    assert body == error.message.encode() + b"\n"
    assert rest == b""
    assert ((b"connection", b"close") in head.headers) is not keep
    assert (b"content-length", b"%d" % len(body)) in head.headers


def test_an_answer_to_head_has_no_body() -> None:
    head, body, rest = read(answer_for(Refused("no."), "HEAD"), "HEAD")
    assert (body, rest) == (b"", b"")
    assert (b"content-length", b"4") in head.headers


def test_only_a_407_asks_for_the_secret() -> None:
    asks = [error for error in ERRORS if b"Proxy-Authenticate: Basic" in answer_for(error)]
    assert [type(error) for error in asks] == [AuthenticationRequired]


def test_the_reason_phrase_names_the_key() -> None:
    error = Refused("no.", phrase="Forbidden: add example.org to internet.hosts")
    assert answer_for(error).startswith(
        b"HTTP/1.1 403 Forbidden: add example.org to internet.hosts\r\n"
    )


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("internet.hosts", b"HTTP/1.1 403 Forbidden: see internet.hosts\r\n"),
        (None, b"HTTP/1.1 403 Forbidden\r\n"),
    ],
)
def test_a_phrase_too_long_to_be_shown_still_names_the_key(key: str | None, line: bytes) -> None:
    assert answer_for(Refused("no.", phrase="x" * 300, key=key)).startswith(line)


def test_a_long_phrase_of_an_error_without_a_key_is_its_class_s() -> None:
    error = UpstreamError("no.", phrase="x" * 300)
    assert answer_for(error).startswith(b"HTTP/1.1 502 Bad Gateway\r\n")


@given(st.text(), st.text(), st.sampled_from(["GET", "HEAD"]))
def test_no_text_in_an_error_makes_a_second_answer_or_field(
    message: str, phrase: str, method: str
) -> None:
    answer = answer_for(Refused(message, phrase=phrase), method)
    head, body, rest = read(answer, method)
    assert [name for name, _ in head.headers] == [b"content-type", b"content-length", b"connection"]
    assert rest == b""
    assert body.isascii()


def test_an_error_without_a_status_is_told_to_nobody() -> None:
    with pytest.raises(AssertionError):
        answer_for(ClientError("gone."))


LIMITS = Limits()
NOW, BY = 5.0, 7.0
REFUSAL = Log(Refusal("http", "example.com", 80, 403, "no."))
SENT, CLOSED, LOGGED = Sent(1, 0, 5.5), Closed(6.0), Logged(5.1)


def account(**more: object) -> Ledger:
    return Ledger(NOW, "http", "example.com", 80, NOW, **more)  # type: ignore[arg-type]


def test_a_limit_says_when_to_try_again_and_nothing_else_does() -> None:
    for error in ERRORS:
        head, _, _ = read(answer_for(error))
        told = dict(head.headers).get(b"retry-after")
        assert told == (b"7" if isinstance(error, RateLimited) else None)


def test_a_refusal_that_pauses_the_wire_logs_that_first() -> None:
    error = Refused("no.", metadata=True)
    why = "it called a cloud's metadata service (example.com:80)"
    book = [
        (Log(Paused("http", "example.com", 80, why)), LOGGED),
        (REFUSAL, LOGGED),
        (Send(BY, answer_for(error, "GET")), SENT),
        (Close(CLIENT, BY), CLOSED),
    ]
    assert play(end_badly(account(admission=Admission()), error, LIMITS, "GET"), book) is None


def test_a_refusal_is_logged_answered_and_closed() -> None:
    error = Refused("no.")
    book = [
        (REFUSAL, LOGGED),
        (Send(BY, answer_for(error, "GET")), SENT),
        (Close(CLIENT, BY), CLOSED),
    ]
    assert play(end_badly(account(), error, LIMITS, "GET"), book) is None


@pytest.mark.parametrize(
    "event", [Failed(Reason.RESET, 6.0, CLIENT), Cancelled(Cause.STOPPED, 6.0)], ids=repr
)
def test_an_answer_that_does_not_go_ends_the_call(event: Event) -> None:
    error = Refused("no.")
    book = [(REFUSAL, LOGGED), (Send(BY, answer_for(error, "GET")), event)]
    play(end_badly(account(), error, LIMITS, "GET"), book)


def test_a_client_that_left_is_told_nothing() -> None:
    line = Log(Ending("http", "example.com", 80, 0, 0, 0.0, "gone."))
    play(end_badly(account(allowed=True), ClientError("gone."), LIMITS), [(line, LOGGED)])


def test_a_cancelled_call_says_why_and_shortly() -> None:
    error, by = CallCancelled(Cause.PAUSED), NOW + LIMITS.parting_s
    line = Log(Ending("http", "example.com", 80, 0, 0, 0.0, "503: the wire is paused."))
    book = [
        (line, LOGGED),
        (Send(by, answer_for(error)), SENT),
        (Close(CLIENT, by), CLOSED),
    ]
    play(end_badly(account(allowed=True), error, LIMITS), book)


def test_a_cancelled_call_that_was_answered_says_nothing_more() -> None:
    line = Log(Ending("http", "example.com", 80, 0, 0, 0.0, "the wire is paused."))
    ledger = account(allowed=True, answered=True, due=b"more of it")
    play(end_badly(ledger, CallCancelled(Cause.PAUSED), LIMITS), [(line, LOGGED)])


def test_an_answer_cut_short_goes_as_far_as_it_came_and_ends_as_the_server_did() -> None:
    line = Log(Ending("http", "example.com", 80, 0, 10, 1.0, "cut."))
    ledger = account(allowed=True, answered=True, due=b"more of it")
    book = [(Send(BY, b"more of it"), Sent(10, 0, NOW + 1)), (line, LOGGED)]
    play(end_badly(ledger, BadAnswer("cut."), LIMITS), book)


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize(
    "event",
    [
        Failed(Reason.TIMED_OUT, NOW + 1, None, 0, 4),
        Failed(Reason.RESET, NOW + 1, CLIENT, 0, 4),
        Cancelled(Cause.STOPPED, NOW + 1, 0, 4),
    ],
    ids=repr,
)
def test_as_much_counts_of_what_was_due_as_has_gone(event: Event, answered: bool) -> None:
    line = Log(Ending("http", "example.com", 80, 0, 4, 1.0, "cut." if answered else "502: cut."))
    ledger = account(allowed=True, answered=answered, due=b"more of it")
    book = [(Send(BY, b"more of it"), event), (line, LOGGED)]
    play(end_badly(ledger, BadAnswer("cut."), LIMITS), book)


def test_an_answer_cut_short_with_nothing_due_ends_at_once() -> None:
    line = Log(Ending("http", "example.com", 80, 0, 0, 0.0, "cut."))
    ledger = account(allowed=True, answered=True)
    play(end_badly(ledger, BadAnswer("cut."), LIMITS), [(line, LOGGED)])


def test_interim_answers_that_are_due_go_before_the_refusal() -> None:
    error = BadAnswer("no answer.")
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    line = Log(Ending("http", "example.com", 80, 0, len(early), 1.0, "502: no answer."))
    ledger = account(allowed=True, due=early)
    book = [
        (Send(BY, early), Sent(len(early), 0, NOW + 1)),
        (line, LOGGED),
        (Send(BY, answer_for(error)), SENT),
        (Close(CLIENT, BY), CLOSED),
    ]
    play(end_badly(ledger, error, LIMITS), book)


def test_a_refused_tunnel_is_closed_without_a_word() -> None:
    line = Log(Refusal("http", "example.com", 80, 0, "no hello."))
    ledger = account(allowed=True, answered=True)
    book = [(line, LOGGED), (Close(CLIENT, BY), CLOSED)]
    play(end_badly(ledger, HelloRefused("no hello."), LIMITS), book)
