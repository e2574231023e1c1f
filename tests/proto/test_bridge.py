"""What verbs behind a bridge are built on: who is served, how a body is read, how TLS fails."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping

import pytest

from proto.calls.ledger import Ledger
from proto.calls.limits import PIECE_BYTES, Limits
from proto.calls.reach import Link
from proto.codecs.http1 import RequestReader
from proto.commands import CLIENT
from proto.events import Reason, Received
from proto.policy.exits import Exit
from proto.policy.keys import Key
from proto.script import Script
from proto.verbs.bridge import (
    Outgoing,
    Request,
    answer,
    bridge_connection,
    known,
    onward_lines,
    provider_verb,
    read_body,
)
from shells.sim_shell import run
from shells.sim_world import (
    SILENT,
    TRUSTED,
    Cut,
    Deaf,
    End,
    Fin,
    Hear,
    HearEnd,
    Reset,
    Say,
    Steps,
    World,
)
from tests.proto.wires import CALLER, HEARD, answers, bridge, fields, heard, request, said

HOST = "api.example.com"
EXPECT = frozenset({b"expect"})
"""Dropped where the body is read by the verb first: then nobody waits for a 100 any more."""


class Upper:
    """A verb that reads bodies of up to ten bytes and sends them in capitals."""

    def reads(self, request: Request) -> int:
        return 10 if request.path == b"/read" else 0

    def call(self, request: Request, body: bytes) -> Outgoing:
        target = request.path + request.question + request.query
        whole = body.upper() if request.path == b"/read" else None
        dropped = EXPECT if whole is not None else frozenset()
        return Outgoing(HOST, target, onward_lines(request, dropped), whole)


UPPER = provider_verb(Upper())


def asked(
    target: str = "/a?b", method: str = "GET", body: bytes | None = None, **more: str
) -> bytes:
    return request(target, method, body, **{"Link_Caller": CALLER, **more})


def test_a_call_goes_to_its_provider_and_its_answer_comes_back() -> None:
    seen = bridge(asked(X_A="1", Link_Sandbox="box"), UPPER, said(b"answer", X_B="2"))
    (got,) = heard(seen)
    assert got.words[:2] == (b"GET", b"/a?b")
    told = fields(got)
    assert told == {"host": HOST, "x-a": "1", "connection": "close"}
    assert seen.asked == (HOST,)
    assert seen.secured == (HOST,)
    assert [(dial.address, dial.port) for dial in seen.dials] == [("203.0.113.10", 443)]
    (back,) = answers(seen)
    assert (back.status, back.body, fields(back)["x-b"]) == (200, b"answer", "2")


@pytest.mark.parametrize("caller", [None, "", "x", "c" * 32, CALLER + "x"])
def test_who_does_not_tell_the_callers_key_is_served_nothing(caller: str | None) -> None:
    told = {} if caller is None else {"Link_Caller": caller}
    seen = bridge(request("/a", **told), UPPER, said())
    (back,) = answers(seen)
    assert back.status == 403
    assert fields(back)["link-refused"] == "this bridge serves its proxy alone."
    assert not seen.asked


def test_two_keys_are_no_key() -> None:
    seen = bridge(request("/a", Link_Caller=CALLER, Link_caller=CALLER), UPPER, said())
    assert answers(seen)[0].status == 400


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (f"GET http://a/ HTTP/1.1\r\nHost: a\r\nLink-Caller: {CALLER}\r\n\r\n", 404),
        (f"OPTIONS * HTTP/1.1\r\nHost: a\r\nLink-Caller: {CALLER}\r\n\r\n", 404),
        (f"GET /a HTTP/1.1\r\nHost: a\r\nLink-Caller: {CALLER}\r\nExpect: x\r\n\r\n", 417),
        ("GET /a\n\n", 400),
    ],
)
def test_what_is_no_call_is_told_so(data: str, status: int) -> None:
    seen = bridge(data.encode(), UPPER, said())
    assert answers(seen)[0].status == status
    assert not seen.asked


def test_who_says_nothing_gets_nothing() -> None:
    assert bridge((Fin(), HearEnd()), UPPER).client.data == b""


@pytest.mark.parametrize("cut", Cut)
def test_a_body_that_is_read_first_goes_on_as_the_verb_made_it(cut: Cut) -> None:
    seen = bridge(asked("/read", "POST", b"hello"), UPPER, said(), cut=cut)
    (got,) = heard(seen)
    assert got.body == b"HELLO"
    assert fields(got)["content-length"] == "5"


@pytest.mark.parametrize("cut", Cut)
def test_a_chunked_body_that_is_read_first_gets_a_length(cut: Cut) -> None:
    body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    seen = bridge(asked("/read", "POST", body, Transfer_Encoding="chunked"), UPPER, said(), cut=cut)
    (got,) = heard(seen)
    assert got.body == b"ABCDE"
    assert "transfer-encoding" not in fields(got)


def test_no_body_is_read_as_nothing() -> None:
    assert heard(bridge(asked("/read", "POST"), UPPER, said()))[0].body == b""


def test_a_body_passes_as_it_comes_where_it_is_not_read() -> None:
    seen = bridge(asked("/pass", "POST", b"x" * 100_000), UPPER, said())
    assert heard(seen)[0].body == b"x" * 100_000


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long_is_refused(cut: Cut, chunked: bool) -> None:
    body = b"6\r\nabcdef\r\n6\r\nghijkl\r\n0\r\n\r\n" if chunked else b"x" * 11
    more = {"Transfer_Encoding": "chunked"} if chunked else {}
    seen = bridge(asked("/read", "POST", body, **more), UPPER, said(), cut=cut)
    assert answers(seen)[0].status == 413
    assert "10 bytes" in fields(answers(seen)[0])["link-refused"]
    assert not seen.asked


def test_who_waits_for_a_100_gets_one_where_the_body_is_read_here() -> None:
    head = asked("/read", "POST", b"", Content_Length="5", Expect="100-continue").replace(
        b"Content-Length: 0\r\n", b""
    )
    seen = bridge((Say(head), Hear(25), Say(b"hello"), HearEnd()), UPPER, said())
    assert seen.client.data.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
    assert heard(seen)[0].body == b"HELLO"
    assert "expect" not in fields(heard(seen)[0])


def test_a_body_in_small_chunks_takes_no_more_than_its_bytes() -> None:
    head = asked("/read", "POST", b"", Transfer_Encoding="chunked")
    found = RequestReader().feed(head)
    assert found is not None
    script = read_body(Link(), Ledger(0.0), known(found[0], Key(CALLER)), 1 << 20, Limits())
    events = 100
    next(script)
    tracemalloc.start()
    try:
        for _ in range(events):
            script.send(Received(CLIENT, b"2\r\nab\r\n" * 5000, 0.0))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * events * 10_000
    with pytest.raises(StopIteration) as over:
        script.send(Received(CLIENT, b"0\r\n\r\n", 0.0))
    assert over.value.value == b"ab" * events * 5000


def test_a_body_that_is_cut_short_is_malformed() -> None:
    head = asked("/read", "POST", b"", Content_Length="5").replace(b"Content-Length: 0\r\n", b"")
    seen = bridge((Say(head + b"he"), Fin(), HearEnd()), UPPER, said())
    assert answers(seen)[0].status == 400
    assert not seen.asked


@pytest.mark.parametrize(
    ("tls", "status", "told"),
    [
        ({}, 502, "its certificate is not trusted"),
        ({HOST: Reason.UNTRUSTED}, 502, "its certificate is not trusted"),
        ({HOST: Reason.RESET}, 502, "connection reset"),
        ({HOST: SILENT}, 504, "in time"),
        ({"other.example.com": TRUSTED}, 502, "its certificate is not trusted"),
    ],
)
def test_a_provider_that_speaks_no_right_tls_gets_not_a_byte(
    tls: Mapping[str, object], status: int, told: str
) -> None:
    seen = bridge(asked(), UPPER, said(), tls=tls)
    (back,) = answers(seen)
    assert back.status == status
    assert told in back.body.decode()
    assert all(dial.saw is not None and dial.saw.data == b"" for dial in seen.opened)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
def test_a_provider_that_leads_inward_is_never_dialled(address: str) -> None:
    seen = bridge(asked(), UPPER, said(), names={HOST: ((address,),)})
    assert answers(seen)[0].status == 403
    assert "link-refused" in fields(answers(seen)[0])
    assert not seen.dials


def test_a_name_that_is_not_there_is_a_502() -> None:
    assert answers(bridge(asked(), UPPER, names={HOST: ((),)}))[0].status == 502


def test_an_answer_that_is_cut_short_looks_so() -> None:
    half = Say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    seen = bridge(asked(), UPPER, half, Reset())
    assert seen.client.end is End.RESET or not answers(seen)[0].complete


class Answering:
    """Serves a call by an answer of the bridge's own."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def __call__(
        self, link: Link, ledger: Ledger, request: Request, limits: Limits
    ) -> Script[None]:
        body = yield from read_body(link, ledger, request, 5, limits)
        told = ((b"Content-Type", b"text/plain"),)
        whole = self.body + body
        yield from answer(ledger, limits, 200, told, whole, request.head.method)


def test_a_bridge_answers_by_itself_too() -> None:
    body = bytes(range(256)) * 1000
    seen = bridge(asked("/", "POST", b"more"), Answering(body))
    (back,) = answers(seen)
    assert len(back.body) > PIECE_BYTES
    assert back.body == body + b"more"
    assert fields(back)["content-type"] == "text/plain"
    assert seen.client.end is End.FIN


def test_a_head_is_answered_without_a_body() -> None:
    seen = bridge(asked("/", "HEAD"), Answering(b"hello"))
    assert seen.client.data.endswith(b"\r\n\r\n")
    assert b"Content-Length: 5" in seen.client.data


def test_a_proxy_that_does_not_read_is_given_up() -> None:
    seen = bridge((Say(asked("/")), Deaf()), Answering(b"x" * 1_000_000))
    assert b"HTTP/1.1" not in seen.client.data
    assert seen.ended - seen.started <= Limits().idle_s + 10


def test_a_call_leaves_by_the_wires_exit() -> None:
    def by_exit(steps: Steps) -> object:
        world = World(
            client=(Say(asked()),),
            any_name=("203.0.113.10",),
            servers={("192.0.2.1", 8080): steps},
            tls={HOST: TRUSTED},
        )
        leaves = Exit.of("http://192.0.2.1:8080")
        return run(
            lambda now: bridge_connection(UPPER, Key(CALLER), Limits(), now, leaves), world, 0
        )

    passed = Say(b"HTTP/1.1 200 OK\r\n\r\n")
    ask = Hear(len(b"CONNECT 203.0.113.10:443 HTTP/1.1\r\nHost: 203.0.113.10:443\r\n\r\n"))
    seen = by_exit((ask, passed, HEARD, said(b"hi")))
    assert answers(seen)[0].body == b"hi"  # type: ignore[arg-type]
    early = by_exit((ask, Say(b"HTTP/1.1 200 OK\r\n\r\nbanner"), HEARD, said(b"hi")))
    assert answers(early)[0].status == 502  # type: ignore[arg-type]
