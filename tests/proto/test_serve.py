"""A client's connection: `proto/calls/serve.py`."""

from __future__ import annotations

from base64 import b64encode

import pytest

from proto.calls.connect import ESTABLISHED
from proto.calls.limits import DRAIN_MAX_BYTES, PIECE_BYTES, Limits
from proto.calls.refuse import answer_for
from proto.calls.serve import serve_connection
from proto.calls.ways import PLAIN, Ways
from proto.codecs.http1 import HEAD_MAX_BYTES
from proto.commands import (
    CLIENT,
    UPSTREAM,
    Close,
    Command,
    Locate,
    Log,
    Look,
    Receive,
    Resolve,
    Send,
    Splice,
)
from proto.errors import (
    AuthenticationRequired,
    CallCancelled,
    ExpectationFailed,
    HeadTooLarge,
    MalformedRequest,
    NoSuchRoute,
    NotImplementedHere,
    ProxyError,
    Refused,
    RequestTimeout,
    VersionNotSupported,
    WirePaused,
)
from proto.events import (
    Cancelled,
    Cause,
    Closed,
    Event,
    Failed,
    Located,
    Logged,
    Looked,
    Place,
    Reason,
    Received,
    Resolved,
    Sent,
    Spliced,
)
from proto.policy.admission import METADATA_NAMES, REFUSALS_MOST, TARGETS_MOST, Admission
from proto.policy.hosts import Policy
from proto.policy.records import Allowed, Ending, Paused, Refusal
from proto.policy.secret import Secret
from proto.script import Script
from tests.proto.playbook import Steps, goes, play, reaches
from tests.proto.requests import get, head_bytes

LIMITS = Limits(idle_s=100.0)
POLICY = Policy.of(["example.com"])
SECRET = Secret("s3cretS3cretS3cret")
CREDENTIALS = "Proxy-Authorization: Basic " + b64encode(b"lnk:s3cretS3cretS3cret").decode()
CONNECT = head_bytes("CONNECT example.com:22 HTTP/1.1", "Host: example.com:22")
UP = head_bytes("GET /a HTTP/1.1", "Host: example.com")
OK = head_bytes("HTTP/1.1 200 OK", "Content-Length: 2") + b"ok"
FIRST_BY, HEAD_BY, NEXT_BY = 31.0, 32.0, 77.0  # from 1, 2 and 2


def hear(
    data: bytes, *, by: float = FIRST_BY, room: int = HEAD_MAX_BYTES, at: float = 2.0
) -> Steps:
    return [(Receive((CLIENT,), room, by), Received(CLIENT, data, at))]


def hear_next(event: Event, *, room: int = HEAD_MAX_BYTES, by: float = NEXT_BY) -> Steps:
    """What a client says on a connection whose server's connection is kept."""
    return [(Receive((UPSTREAM, CLIENT), room, by), event)]


LET_GO = (Close(UPSTREAM, 2.0), Closed(2.0))
"""What is kept of a server's connection where more came behind the request: nothing."""


def reached(verb: str = "http", port: int = 80) -> Steps:
    return [goes(Look(), 2.0), *reaches(verb, "example.com", port, 12.0, at=2.0)]


def exchanged(*, heed: tuple[object, ...] = (UPSTREAM, CLIENT)) -> Steps:
    back = tuple(side for side in heed if side is CLIENT)
    return [
        (Send(102.0, b"", UP, heed), Sent(0, len(UP), 2.0)),  # type: ignore[arg-type]
        (Receive(heed, PIECE_BYTES, 102.0), Received(UPSTREAM, OK, 2.0)),  # type: ignore[arg-type]
        goes(Send(102.0, OK, b"", back), 2.0),  # type: ignore[arg-type]
        goes(Log(Ending("http", "example.com", 80, len(UP), len(OK), 0.0)), 2.0),
    ]


def refusal(
    error: ProxyError, host: str = "", port: int = 0, *, verb: str = "http", method: str = "",
    at: float = 2.0, key: str = "",
) -> Steps:  # fmt: skip
    by = at + LIMITS.grace_s
    line = Refusal(verb, host, port, error.status_hint or 0, error.message, key)
    words = answer_for(error, method)
    judged = isinstance(error, Refused) and not isinstance(error, AuthenticationRequired)
    return [
        *([goes(Look(), at)] if judged else []),
        goes(Log(line), at),
        goes(Send(by, words), at),
        goes(Close(CLIENT, by), at),
    ]


def serve(
    book: Steps, secret: Secret | None = None, policy: Policy = POLICY, ways: Ways = PLAIN
) -> None:
    assert play(serve_connection(policy, LIMITS, secret, 1.0, ways), book) is None


# Heads.


@pytest.mark.parametrize(
    "event",
    [
        Received(CLIENT, b"", 2.0),
        Failed(Reason.TIMED_OUT, 31.0),
        Failed(Reason.RESET, 2.0, CLIENT),
        Cancelled(Cause.STOPPED, 2.0),
    ],
    ids=lambda event: repr(event)[:40],
)
def test_a_client_that_says_nothing_leaves_no_line(event: Event) -> None:
    serve([(Receive((CLIENT,), HEAD_MAX_BYTES, FIRST_BY), event)])


def test_a_head_has_thirty_seconds_from_its_first_byte() -> None:
    book = [
        *hear(b"GET ", at=20.0),
        *hear(b"h", by=50.0, room=HEAD_MAX_BYTES - 4, at=49.0),
        (Receive((CLIENT,), HEAD_MAX_BYTES - 5, 50.0), Failed(Reason.TIMED_OUT, 50.0)),
        *refusal(RequestTimeout("the request did not come in time."), at=50.0),
    ]
    serve(book)


def test_a_client_that_breaks_off_in_its_head_is_logged_and_told_nothing() -> None:
    line = Refusal("http", "", 0, 0, "the client left: connection reset.")
    book = [
        *hear(b"GET "),
        (Receive((CLIENT,), HEAD_MAX_BYTES - 4, HEAD_BY), Failed(Reason.RESET, 3.0, CLIENT)),
        goes(Log(line), 3.0),
    ]
    serve(book)


def test_a_client_that_ends_in_its_head_is_told_so() -> None:
    book = [
        *hear(b"GET "),
        (Receive((CLIENT,), HEAD_MAX_BYTES - 4, HEAD_BY), Received(CLIENT, b"", 3.0)),
        *refusal(MalformedRequest("the request ended inside its head."), at=3.0),
    ]
    serve(book)


def test_a_cancel_in_a_head_is_a_503() -> None:
    error, by = CallCancelled(Cause.SHUTDOWN), 3.0 + LIMITS.parting_s
    line = Refusal("http", "", 0, 503, "the proxy is shutting down.")
    book = [
        *hear(b"GET "),
        (Receive((CLIENT,), HEAD_MAX_BYTES - 4, HEAD_BY), Cancelled(Cause.SHUTDOWN, 3.0)),
        goes(Log(line), 3.0),
        goes(Send(by, answer_for(error)), 3.0),
        goes(Close(CLIENT, by), 3.0),
    ]
    serve(book)


def status_behind(book: Steps) -> int:
    """Return the status of the refusal that a script logs, answers and closes behind a book."""
    script = serve_connection(POLICY, LIMITS, None, 1.0)
    pending = next(script)
    for expected, event in book:
        assert pending == expected
        pending = script.send(event)
    if isinstance(pending, Look):
        pending = script.send(Looked(None, 2.0))
    assert isinstance(pending, Log)
    assert isinstance(pending.record, Refusal)
    status = pending.record.status
    pending = script.send(Logged(2.0))
    assert isinstance(pending, Send)
    assert pending.to_client.startswith(b"HTTP/1.1 %d " % status)
    assert isinstance(script.send(Sent(len(pending.to_client), 0, 2.0)), Close)
    with pytest.raises(StopIteration):
        script.send(Closed(2.0))
    return status


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"GET http://example.com/ HTTP/1.1\nHost: example.com\n\n", MalformedRequest),
        (b"\x16\x03\x01\x02\x00", MalformedRequest),
        (head_bytes("GET http://example.com/ HTTP/2.0", "Host: x"), VersionNotSupported),
        (b"A" * HEAD_MAX_BYTES, HeadTooLarge),
        (get("Transfer-Encoding: gzip, chunked"), NotImplementedHere),
        (get("Content-Length: 5", "Content-Length: 6"), MalformedRequest),
        (get("Expect: 200-ok"), ExpectationFailed),
        (get().replace(b"Host: example.com", b"Host: evil.test"), MalformedRequest),
        (head_bytes("CONNECT example.com HTTP/1.1", "Host: example.com"), MalformedRequest),
        (head_bytes("GET https://example.com/ HTTP/1.1", "Host: example.com"), NotImplementedHere),
        (head_bytes("GET / HTTP/1.1", "Host: example.com"), NoSuchRoute),
        (head_bytes("GET /_link/model/x HTTP/1.1", "Host: example.com"), NoSuchRoute),
        (head_bytes("OPTIONS * HTTP/1.1", "Host: example.com"), NoSuchRoute),
    ],
)
def test_what_is_no_request_to_a_host_is_answered_and_closed(
    data: bytes, error: type[ProxyError]
) -> None:
    assert status_behind(hear(data)) == error.status_hint


# The flags and the limit.


def closed(cause: Cause, at: float = 2.0) -> Steps:
    """A look that finds the wire closed, and what is answered."""
    (_, *rest) = refusal(WirePaused(cause), "example.com", 80, at=at)
    return [(Look(), Looked(cause, at)), *rest]


@pytest.mark.parametrize("cause", [Cause.STOPPED, Cause.PAUSED, Cause.UNSEEN])
def test_a_closed_wire_answers_503_and_says_why(cause: Cause) -> None:
    book = [*hear(get()), *closed(cause)]
    serve(book)
    words = book[-2][0]
    assert isinstance(words, Send)
    assert words.to_client.startswith(
        b"HTTP/1.1 503 " + cause.value.capitalize().encode() + b"\r\n"
    )
    assert b"`lnk sandbox " in words.to_client


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (CONNECT, ("connect", "example.com", 22)),
        (get(), ("http", "example.com", 80)),
        (get(url="http://evil.test/"), ("http", "evil.test", 80)),
        (head_bytes("GET /_link/model/x HTTP/1.1", "Host: a"), ("http", "", 0)),
    ],
    ids=["tunnel", "plain", "not listed", "route"],
)
def test_every_verb_is_held_up_by_a_closed_wire_and_by_the_limit(
    data: bytes, line: tuple[str, str, int]
) -> None:
    """Before it is judged: neither answer tells what the policy would have said."""
    full = Admission(1)
    full.count(2.0)
    for looked, status in ((Looked(Cause.PAUSED, 2.0), 503), (Looked(None, 2.0), 429)):
        script = serve_connection(POLICY, LIMITS, None, 1.0, Ways(admission=full))
        next(script)
        assert script.send(Received(CLIENT, data, 2.0)) == Look()
        refused = script.send(looked)
        assert isinstance(refused, Log)
        assert isinstance(refused.record, Refusal)
        told = refused.record
        assert (told.verb, told.host, told.port, told.status) == (*line, status)
        script.close()


def test_each_request_of_a_connection_looks_anew() -> None:
    book = [
        *hear(get()), *reached(), *exchanged(), *hear_next(Received(CLIENT, get(), 3.0)),
        *closed(Cause.PAUSED, at=3.0),
    ]  # fmt: skip
    serve(book)


def test_the_secret_is_asked_for_before_anything_is_looked_at_or_counted() -> None:
    admission = Admission(1)
    script = serve_connection(POLICY, LIMITS, SECRET, 1.0, Ways(admission=admission))
    next(script)
    asked = script.send(Received(CLIENT, get(), 2.0))
    assert isinstance(asked, Log)
    assert isinstance(asked.record, Refusal)
    assert asked.record.status == 407
    script.close()
    admission.count(2.0)  # nothing was counted


def test_one_call_over_the_limit_is_told_when_to_try_again() -> None:
    ways = Ways(admission=Admission(2))
    serve([*hear(get()), *reached(), *exchanged(), *hear_next(Failed(Reason.TIMED_OUT, NEXT_BY))],
          ways=ways)  # fmt: skip
    script = serve_connection(POLICY, LIMITS, None, 30.0, ways)
    answer_to(script, head_bytes("CONNECT evil.test:443 HTTP/1.1", "Host: evil.test"), 30.0)
    over = answer_to(serve_connection(POLICY, LIMITS, None, 50.5, ways), get(), 50.5)
    assert over.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert b"\r\nRetry-After: 12\r\n" in over
    assert b"[network] per_minute" in over
    again = answer_to(serve_connection(POLICY, LIMITS, None, 61.5, ways), get(), 61.5)
    assert b"\r\nRetry-After: 1\r\n" in again
    later = serve_connection(POLICY, LIMITS, None, 62.0, ways)
    next(later)
    assert later.send(Received(CLIENT, get(), 62.0)) == Look()
    assert later.send(Looked(None, 62.0)) == Log(Allowed("http", "example.com", 80))
    later.close()


def answer_to(script: Script[None], data: bytes, now: float) -> bytes:
    """Return what a script answers to a request that it refuses, and end it."""
    next(script)
    command = script.send(Received(CLIENT, data, now))
    assert command == Look()
    command = script.send(Looked(None, now))
    while isinstance(command, Log):
        command = script.send(Logged(now))
    assert isinstance(command, Send)
    script.close()
    return command.to_client


def pauses(script: Script[None], data: bytes, now: float = 2.0) -> str:
    """Return why a refused request pauses the wire, or nothing; its own line comes last."""
    next(script)
    assert script.send(Received(CLIENT, data, now)) == Look()
    lines = []
    command: Command = script.send(Looked(None, now))
    while isinstance(command, Log):
        lines.append(command.record)
        command = script.send(Logged(now))
    script.close()
    *before, last = lines
    assert isinstance(last, Refusal)
    assert len(before) <= 1
    for each in before:
        assert isinstance(each, Paused)
        assert (each.verb, each.host, each.port) == (last.verb, last.host, last.port)
        return each.reason
    return ""


def to_host(host: str, port: int = 443) -> bytes:
    return head_bytes(f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}")


@pytest.mark.parametrize(
    "host", [*sorted(METADATA_NAMES), "169.254.169.254", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]"]
)
def test_one_call_to_a_metadata_service_pauses_the_wire(host: str) -> None:
    ways = Ways(admission=Admission())
    script = serve_connection(POLICY, LIMITS, None, 1.0, ways)
    assert "metadata service" in pauses(script, to_host(host, 80))


def test_a_listed_name_that_leads_to_a_metadata_service_pauses_the_wire() -> None:
    script = serve_connection(POLICY, LIMITS, None, 1.0, Ways(admission=Admission()))
    book = [
        *hear(CONNECT),
        *reached("connect", 22)[:2],
        (Resolve("example.com", 12.0), Resolved(("169.254.169.254",), 2.0)),
    ]
    pending = next(script)
    for expected, event in book:
        assert pending == expected
        pending = script.send(event)
    assert pending == Locate(("169.254.169.254",))
    paused = script.send(Located((Place.ELSEWHERE,), 2.0))
    assert isinstance(paused, Log)
    assert isinstance(paused.record, Paused)
    assert "example.com:22" in paused.record.reason
    last = script.send(Logged(2.0))
    assert isinstance(last, Log)
    assert isinstance(last.record, Refusal)
    script.close()


def test_a_burst_of_refusals_pauses_the_wire() -> None:
    ways = Ways(admission=Admission())
    found = [
        pauses(serve_connection(POLICY, LIMITS, None, 1.0, ways), to_host("evil.test"))
        for _ in range(2 * REFUSALS_MOST)
    ]
    at = [number for number, why in enumerate(found, 1) if why]
    assert at == [REFUSALS_MOST, 2 * REFUSALS_MOST]
    assert "300 of its calls were refused" in found[at[0] - 1]


def test_many_targets_tried_in_turn_pause_the_wire() -> None:
    ways = Ways(admission=Admission())
    found = [
        pauses(serve_connection(POLICY, LIMITS, None, 1.0, ways), to_host("evil.test", port))
        for port in range(1, TARGETS_MOST + 1)
    ]
    assert not any(found[:-1])
    assert "100 different targets" in found[-1]


def test_what_the_wire_itself_holds_up_never_pauses_it() -> None:
    ways = Ways(admission=Admission(1))
    ways.admission.count(1.0)  # type: ignore[union-attr]
    for _ in range(REFUSALS_MOST + 1):
        over = serve_connection(POLICY, LIMITS, None, 1.0, ways)
        assert answer_to(over, get(), 2.0).startswith(b"HTTP/1.1 429 ")
        serve([*hear(get()), *closed(Cause.STOPPED)], ways=ways)
        script = serve_connection(POLICY, LIMITS, SECRET, 1.0, ways)
        next(script)
        script.send(Received(CLIENT, get(), 2.0))
        assert isinstance(script.send(Logged(2.0)), Send)  # and no line in between
        script.close()


# By name.


@pytest.mark.parametrize(
    ("data", "verb", "port"),
    [
        (head_bytes("CONNECT Evil.Test:443 HTTP/1.1", "Host: evil.test"), "connect", 443),
        (get(url="http://EVIL.test./a"), "http", 80),
    ],
)
def test_a_host_that_is_not_listed_is_refused_before_any_lookup(
    data: bytes, verb: str, port: int
) -> None:
    with pytest.raises(Refused) as raised:
        POLICY.admit("evil.test", port)
    error = raised.value
    method = data.split(b" ")[0].decode()
    book = [
        *hear(data + get()),  # what came with it is never acted on
        *refusal(error, "evil.test", port, verb=verb, method=method, key="internet.hosts"),
    ]
    serve(book)


def test_a_tunnel_ends_the_connection() -> None:
    book = [
        *hear(CONNECT + b"SSH-2.0"),
        *reached("connect", 22),
        (Splice(ESTABLISHED, b"SSH-2.0", 100.0), Spliced(9, 9 + len(ESTABLISHED), 3.0)),
        goes(Log(Ending("connect", "example.com", 22, 9, 9, 1.0)), 3.0),
    ]
    serve(book)


# One request after the other.


def test_a_connection_serves_requests_until_its_client_is_silent() -> None:
    book = [
        *hear(get()),
        *reached(),
        *exchanged(),
        *hear_next(Received(CLIENT, get()[:9], 2.0)),
        *hear_next(Received(CLIENT, get()[9:], 2.0), room=HEAD_MAX_BYTES - 9, by=HEAD_BY),
        *reached()[:2],
        *exchanged(),
        *hear_next(Failed(Reason.TIMED_OUT, NEXT_BY)),
    ]
    serve(book)


def test_a_request_that_came_behind_another_is_judged_by_itself() -> None:
    with pytest.raises(Refused) as raised:
        POLICY.admit("evil.test", 80)
    behind = get(url="http://evil.test/a")
    book = [
        *hear(get() + behind),
        *reached(),
        *exchanged(heed=(UPSTREAM,)),
        LET_GO,
        *refusal(raised.value, "evil.test", 80, method="GET", key="internet.hosts"),
    ]
    serve(book)


def test_a_request_that_came_behind_another_goes_by_a_connection_of_its_own() -> None:
    """Though it is for the same server: what smuggles a request puts it there."""
    book = [
        *hear(get() * 2),
        *reached(),
        *exchanged(heed=(UPSTREAM,)),
        LET_GO,
        *reached(),
        *exchanged(),
        *hear_next(Received(CLIENT, b"", 2.0)),
    ]
    serve(book)


def test_part_of_a_head_that_came_behind_a_request_has_its_time_from_then() -> None:
    book = [
        *hear(get() + b"GET "),
        *reached(),
        *exchanged(heed=(UPSTREAM,)),
        LET_GO,
        (Receive((CLIENT,), HEAD_MAX_BYTES - 4, HEAD_BY), Received(CLIENT, b"", 3.0)),
        *refusal(MalformedRequest("the request ended inside its head."), at=3.0),
    ]
    serve(book)


@pytest.mark.parametrize(
    "event",
    [
        Received(UPSTREAM, b"", 2.0),
        Received(UPSTREAM, b"HTTP/1.1 408 Request Timeout\r\n\r\n", 2.0),
        Failed(Reason.RESET, 2.0, UPSTREAM),
    ],
    ids=["ends", "speaks", "resets"],
)
def test_a_kept_server_that_ends_or_speaks_unasked_is_let_go(event: Event) -> None:
    book = [
        *hear(get()),
        *reached(),
        *exchanged(),
        *hear_next(event),
        goes(Close(UPSTREAM, 2.0), 2.0),
        *hear(get(), by=NEXT_BY),
        *reached(),
        *exchanged(),
        *hear_next(Received(CLIENT, b"", 2.0)),
    ]
    serve(book)


def test_a_cancel_while_a_kept_server_is_let_go_is_no_call() -> None:
    book = [
        *hear(get()),
        *reached(),
        *exchanged(),
        *hear_next(Received(UPSTREAM, b"", 2.0)),
        (Close(UPSTREAM, 2.0), Cancelled(Cause.STOPPED, 2.0)),
    ]
    serve(book)


def test_a_tunnel_behind_a_request_lets_the_kept_server_go_first() -> None:
    book = [
        *hear(get()),
        *reached(),
        *exchanged(),
        *hear_next(Received(CLIENT, CONNECT, 2.0)),
        goes(Look(), 2.0),
        goes(Close(UPSTREAM, 2.0), 2.0),
        *reached("connect", 22)[1:],
        goes(Splice(ESTABLISHED, b"", 100.0), 2.0),
        goes(Log(Ending("connect", "example.com", 22, 0, 0, 0.0)), 2.0),
    ]
    serve(book)


def test_an_answer_to_another_command_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="answered by"):
        serve([(Receive((CLIENT,), HEAD_MAX_BYTES, FIRST_BY), Closed(2.0))])


# The secret.

ASKED = AuthenticationRequired("this proxy wants its secret: use HTTPS_PROXY as it is set.")


def asked(method: str, *, keep: bool, verb: str = "http", port: int = 80, at: float = 2.0) -> Steps:
    words = answer_for(ASKED, method, keep=keep)
    line = Refusal(verb, "example.com", port, 407, ASKED.message)
    steps: Steps = [
        goes(Log(line), at),
        goes(Send(at + LIMITS.grace_s, words), at),
    ]
    return steps if keep else [*steps, goes(Close(CLIENT, at + LIMITS.grace_s), at)]


def silent(by: float = NEXT_BY) -> Steps:
    return [(Receive((CLIENT,), HEAD_MAX_BYTES, by), Received(CLIENT, b"", 2.0))]


@pytest.mark.parametrize(
    ("data", "method", "verb", "port"),
    [
        (CONNECT, "CONNECT", "connect", 22),
        (get(), "GET", "http", 80),
        (get(method="HEAD"), "HEAD", "http", 80),
        (get("Proxy-Authorization: Basic eDp5"), "GET", "http", 80),
        (get("Content-Length: 0"), "GET", "http", 80),
    ],
)
def test_a_request_without_the_secret_is_a_407_on_a_connection_that_is_kept(
    data: bytes, method: str, verb: str, port: int
) -> None:
    serve([*hear(data), *asked(method, keep=True, verb=verb, port=port), *silent()], SECRET)


def test_the_secret_is_asked_for_before_the_host_is_judged() -> None:
    data = get(url="http://evil.test/a")
    line = Refusal("http", "evil.test", 80, 407, ASKED.message)
    words = answer_for(ASKED, "GET", keep=True)
    book = [
        *hear(data),
        goes(Log(line), 2.0),
        goes(Send(4.0, words), 2.0),
        *silent(),
    ]
    serve(book, SECRET)


def test_a_client_that_sends_the_secret_once_it_is_asked_is_served() -> None:
    book = [
        *hear(get()),
        *asked("GET", keep=True),
        *hear(get(CREDENTIALS), by=NEXT_BY),
        *reached(),
        *exchanged(),  # and the secret stays here
        *hear_next(Received(CLIENT, b"", 2.0)),
    ]
    serve(book, SECRET)


def test_two_secrets_are_refused() -> None:
    data = get(CREDENTIALS, CREDENTIALS)
    error = MalformedRequest("the field proxy-authorization came more than once.")
    serve([*hear(data), *refusal(error)], SECRET)


def test_a_request_that_does_not_go_out_needs_no_secret() -> None:
    data = head_bytes("GET /x HTTP/1.1", "Host: example.com")
    error = NoSuchRoute("this is a proxy, and there is nothing at this path of its own.")
    serve([*hear(data), *refusal(error, method="GET")], SECRET)


def test_the_body_of_a_request_without_the_secret_is_skipped() -> None:
    data = get("Content-Length: 10", method="POST")
    book = [
        *hear(data + b"hello"),
        *asked("POST", keep=True),
        (Receive((CLIENT,), DRAIN_MAX_BYTES, HEAD_BY), Received(CLIENT, b"worl", 2.0)),
        (Receive((CLIENT,), DRAIN_MAX_BYTES - 4, HEAD_BY), Received(CLIENT, b"dGET ", 2.0)),
        *hear(b"", by=HEAD_BY, room=HEAD_MAX_BYTES - 4, at=3.0),
        *refusal(MalformedRequest("the request ended inside its head."), at=3.0),
    ]
    serve(book, SECRET)


def test_a_body_too_long_to_skip_ends_the_connection() -> None:
    data = get(f"Content-Length: {DRAIN_MAX_BYTES + 1}", method="POST")
    serve([*hear(data), *asked("POST", keep=False)], SECRET)


def test_a_chunked_body_that_turns_out_too_long_ends_the_connection() -> None:
    data = get("Transfer-Encoding: chunked", method="POST")
    book = [
        *hear(data + b"FFFFF\r\n"),
        *asked("POST", keep=True),
        (
            Receive((CLIENT,), DRAIN_MAX_BYTES, HEAD_BY),
            Received(CLIENT, bytes(DRAIN_MAX_BYTES), 2.0),
        ),
        goes(Close(CLIENT, 4.0), 2.0),
    ]
    serve(book, SECRET)


def test_a_client_that_ends_inside_a_skipped_body_is_let_go() -> None:
    book = [
        *hear(get("Content-Length: 5", method="POST")),
        *asked("POST", keep=True),
        (Receive((CLIENT,), DRAIN_MAX_BYTES, HEAD_BY), Received(CLIENT, b"", 2.0)),
        goes(Close(CLIENT, 4.0), 2.0),
    ]
    serve(book, SECRET)


@pytest.mark.parametrize(
    "event",
    [
        Received(CLIENT, b"zz\r\n", 2.0),
        Failed(Reason.RESET, 2.0, CLIENT),
        Cancelled(Cause.STOPPED, 2.0),
    ],
    ids=["malformed", "reset", "cancelled"],
)
def test_a_skipped_body_that_goes_wrong_ends_the_connection_with_no_second_line(
    event: Event,
) -> None:
    book = [
        *hear(get("Transfer-Encoding: chunked", method="POST")),
        *asked("POST", keep=True),
        (Receive((CLIENT,), DRAIN_MAX_BYTES, HEAD_BY), event),
    ]
    serve(book, SECRET)


@pytest.mark.parametrize(
    "data",
    [
        get("Expect: 100-continue", "Content-Length: 5", method="POST"),
        get("Connection: close", method="POST"),
        get(method="POST", version="1.0"),
    ],
    ids=["may or may not send its body", "says close", "HTTP/1.0"],
)
def test_a_407_ends_the_connection_where_what_comes_next_can_not_be_told(data: bytes) -> None:
    serve([*hear(data), *asked("POST", keep=False)], SECRET)


def test_a_client_that_left_before_its_407_is_let_go() -> None:
    steps = asked("GET", keep=True)
    book = [*hear(get()), steps[0], (steps[1][0], Failed(Reason.RESET, 2.0, CLIENT))]
    serve(book, SECRET)
