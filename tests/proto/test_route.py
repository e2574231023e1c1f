"""A route's call at the proxy: what its bridge gets, and what the program gets of it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.mounts import Mount, Mounts
from proto.calls.reach import Link
from proto.calls.route import route_call
from proto.codecs.http1 import NONE, RequestReader
from proto.commands import CLIENT, UPSTREAM, Close, Log, Receive, Send
from proto.events import Cause, Failed, Reason, Received
from proto.policy.admission import REFUSALS_MOST, Admission
from proto.policy.keys import Key
from proto.policy.records import Allowed, Ending, Paused, Refusal
from shells.sim_world import Await, Cut, End, Fin, Hear, HearEnd, Leave, Reset, Say, Signal
from tests.proto.playbook import obliging
from tests.proto.wires import CALLER, HEARD, SECRET, answers, fields, heard, request, said, wire

OTHER = Mount(b"other", "bridge", "bridge other", host="other")
TOOL = Mount(b"mcp/notes", "tool", "tool", b"/notes", needs_secret=True, host="notes")
ALLOWED = Allowed("bridge", "other", 0)


def test_a_bridge_gets_the_call_and_the_program_its_answer() -> None:
    asked = request("/_link/other/a?b=c", "POST", b"hello", X_Mine="1", Authorization="Bearer x")
    seen = wire(asked, [OTHER], {"bridge other": (HEARD, said(b"answer", X_Its="2"))})
    (got,) = heard(seen)
    assert got.words[:2] == (b"POST", b"/a?b=c")
    assert got.body == b"hello"
    told = fields(got)
    assert told["host"] == "localhost"
    assert told["link-caller"] == CALLER
    assert told["link-sandbox"] == "box"
    assert told["connection"] == "close"
    assert (told["x-mine"], told["authorization"]) == ("1", "Bearer x")
    (answer,) = answers(seen)
    assert (answer.status, answer.body, fields(answer)["x-its"]) == (200, b"answer", "2")
    assert seen.asked == ()
    assert seen.log[0] == ALLOWED
    assert isinstance(seen.log[1], Ending)
    assert seen.log[1].reason == "done"


@pytest.mark.parametrize("name", ["Link-Caller", "link-sandbox", "LINK-ANYTHING", "Link_Caller"])
def test_what_a_program_sends_in_the_wires_own_fields_is_dropped(name: str) -> None:
    asked = request("/_link/other/", **{name: "forged"})
    seen = wire(asked, [OTHER], {"bridge other": (HEARD, said())})
    (got,) = heard(seen)
    assert "forged" not in fields(got).values()
    assert fields(got)["link-caller"] == CALLER


def test_the_wires_own_fields_of_an_answer_are_not_the_programs() -> None:
    seen = wire(
        request("/_link/other/"),
        [OTHER],
        {"bridge other": (HEARD, said(Link_Caller="x", Link_Later="y", X_A="z"))},
    )
    assert b"ink-" not in seen.client.data
    assert fields(answers(seen)[0])["x-a"] == "z"


def test_a_bridges_refusal_is_logged_as_one() -> None:
    seen = wire(
        request("/_link/other/"),
        [OTHER],
        {"bridge other": (HEARD, said(b"no\n", "403 Forbidden", Link_Refused="no such thing\x80"))},
    )
    assert answers(seen)[0].status == 403
    assert b"ink-" not in seen.client.data
    assert seen.log[-1] == Refusal("bridge", "other", 0, 403, "no such thing??")


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DATA = b"9\r\ndata: x\n\n\r\n"


@pytest.mark.parametrize("cut", Cut)
def test_a_refusal_behind_an_answer_that_has_begun_is_logged_as_one(cut: Cut) -> None:
    behind = b"0\r\nX-Its: 1\r\nLINK-Refused: the person\x80 refused. \r\n\r\n"
    for seed in range(4):
        bridges = {"bridge other": (HEARD, Say(STREAM + DATA + behind), Leave())}
        seen = wire(request("/_link/other/"), [OTHER], bridges, cut=cut, seed=seed)
        assert answers(seen)[0].body == b"data: x\n\n"
        assert b"efused" not in seen.client.data
        assert b"X-Its" not in seen.client.data
        assert seen.log == (ALLOWED, Refusal("bridge", "other", 0, 200, "the person? refused."))


def test_other_trailers_say_nothing_of_a_call() -> None:
    stream = Say(STREAM + DATA + b"0\r\nX-Link-Refused: no\r\nDate: x\r\n\r\n")
    seen = wire(request("/_link/other/"), [OTHER], {"bridge other": (HEARD, stream)})
    assert isinstance(seen.log[-1], Ending)
    assert seen.log[-1].reason == "done"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 403 No\r\nLink-Refused: no.\r\nContent-Length: 1\r\n\r\n.",
        STREAM + DATA + b"0\r\nLink-Refused: no.\r\n\r\n",
    ],
)
def test_a_refusal_whose_client_has_left_is_logged_as_one(answer: bytes) -> None:
    head = RequestReader().feed(request("/_link/other/"))
    assert head is not None
    mounts = Mounts([OTHER], caller=Key(CALLER))
    script = route_call(Link(), Ledger(0.0), head[0], NONE, OTHER, b"/", mounts, Limits())
    log = []
    command = next(script)
    with suppress(StopIteration):
        while True:
            event = obliging(command, 1.0)
            match command:
                case Log(record):
                    log.append(record)
                case Receive():
                    event = Received(UPSTREAM, answer, 1.0)
                case Send(to_client=data) if data:
                    event = Failed(Reason.RESET, 1.0, CLIENT)
            command = script.send(event)
    assert [type(record) for record in log] == [Allowed, Refusal]
    assert (log[1].reason, log[1].status) == ("no.", 0)


def test_a_client_that_leaves_before_its_answer_is_an_ending() -> None:
    seen = wire(
        (Say(request("/_link/other/")), Await("asked"), Reset()),
        [OTHER],
        {"bridge other": (HEARD, Signal("asked"), HearEnd())},
    )
    assert isinstance(seen.log[-1], Ending)


def test_a_route_counts_as_a_call_and_its_refusals_as_refusals() -> None:
    admission = Admission(REFUSALS_MOST)
    refused = (HEARD, said(b"no\n", "403 Forbidden", Link_Refused="no"))
    logs = [
        wire(request("/_link/other/"), [OTHER], {"bridge other": refused}, admission=admission).log
        for _ in range(REFUSALS_MOST + 1)
    ]
    assert [type(line) for line in logs[0]] == [Allowed, Refusal]
    assert [type(line) for line in logs[-2]] == [Allowed, Paused, Refusal]
    (over,) = logs[-1]
    assert isinstance(over, Refusal)
    assert over.status == 429


def test_a_reason_is_cut_short() -> None:
    answer = said(b"", "403 No", Link_Refused="x" * 5000)
    seen = wire(request("/_link/other/"), [OTHER], {"bridge other": (HEARD, answer)})
    assert len(getattr(seen.log[-1], "reason", "")) == 200


def test_a_connection_is_kept_for_the_next_call_which_has_its_own_at_the_bridge() -> None:
    asked = request("/_link/other/1") + request("/_link/other/2")
    seen = wire(asked, [OTHER], {"bridge other": (HEARD, said())})
    assert [answer.status for answer in answers(seen)] == [200, 200]
    assert len(seen.opened) == 2
    assert [message.words[1] for message in heard(seen)] == [b"/1", b"/2"]


def test_a_client_that_wants_to_close_is_closed() -> None:
    asked = request("/_link/other/1", Connection="close") + request("/_link/other/2")
    seen = wire(asked, [OTHER], {"bridge other": (HEARD, said())})
    assert len(answers(seen)) == 1
    assert seen.client.end is End.FIN


def test_a_bridge_that_is_not_there_is_a_502() -> None:
    seen = wire(request("/_link/other/"), [OTHER])
    (answer,) = answers(seen)
    assert answer.status == 502
    assert answer.body == b"what serves bridge outside could not be started.\n"
    assert isinstance(seen.log[-1], Ending)


def test_a_bridge_that_never_answers_the_door_is_a_504() -> None:
    seen = wire(request("/_link/other/"), [OTHER], silent=("bridge other",))
    assert answers(seen)[0].status == 504


@pytest.mark.parametrize("ends", [(Leave(),), (Fin(),), (Reset(),)])
def test_a_bridge_that_dies_over_a_call_is_a_502(ends: tuple) -> None:
    seen = wire(request("/_link/other/"), [OTHER], {"bridge other": (HEARD, *ends)})
    assert answers(seen)[0].status == 502


def test_an_answer_that_a_bridge_cuts_short_is_told_from_a_whole_one() -> None:
    half = Say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    seen = wire(request("/_link/other/"), [OTHER], {"bridge other": (HEARD, half, Reset())})
    assert seen.client.data.endswith(b"half") or seen.client.end is End.RESET
    assert len(answers(seen)) <= 1
    assert b"502" not in seen.client.data


def test_a_call_that_is_cancelled_says_so_and_opens_nothing() -> None:
    seen = wire(
        request("/_link/other/"),
        [OTHER],
        {"bridge other": (HEARD, Signal("stop"), HearEnd())},
        cancels_on={"stop": Cause.STOPPED},
    )
    assert answers(seen)[0].status == 503


def test_a_cancel_between_two_calls_ends_the_connection() -> None:
    asked, bridges = request("/_link/other/") * 2, {"bridge other": (HEARD, said())}
    closes = [
        number
        for number, command in enumerate(wire(asked, [OTHER], bridges).commands)
        if isinstance(command, Close)
    ]
    seen = wire(asked, [OTHER], bridges, cancels_before={closes[0]: Cause.SHUTDOWN})
    assert [answer.status for answer in answers(seen)] == [200]
    assert len(seen.dials) == 1


def test_a_secret_opens_the_routes_that_need_one() -> None:
    bridges = {"tool": (HEARD, said())}
    right = wire(request(f"/_link/s/{SECRET}/mcp/notes", "POST", b"{}"), [TOOL], bridges)
    assert answers(right)[0].status == 200
    wrong = wire(request(f"/_link/s/{'t' * 20}/mcp/notes", "POST", b"{}"), [TOOL], bridges)
    assert answers(wrong)[0].status == 404
    assert not wrong.dials
    assert SECRET not in repr(right.log) + repr(wrong.log)


@pytest.mark.parametrize(
    "asked",
    [
        b"GET http://127.0.0.1:40781/_link/other/ HTTP/1.1\r\nHost: 127.0.0.1:40781\r\n\r\n",
        b"GET http://localhost/_link/other/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT 127.0.0.1:40781 HTTP/1.1\r\nHost: 127.0.0.1:40781\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_no_other_form_of_a_target_reaches_a_route(asked: bytes) -> None:
    seen = wire(asked, [OTHER, TOOL], {"bridge other": (HEARD, said())})
    assert answers(seen)[0].status in (403, 404)
    assert not seen.dials


def test_an_upgrade_is_dropped_on_a_route() -> None:
    asked = request("/_link/other/", Connection="Upgrade", Upgrade="websocket",
                    Sec_WebSocket_Key="AAAAAAAAAAAAAAAAAAAAAA==")  # fmt: skip
    seen = wire(asked, [OTHER], {"bridge other": (HEARD, said())})
    assert "upgrade" not in fields(heard(seen)[0])


def test_an_interim_answer_goes_on_without_its_fields() -> None:
    hint = Say(b"HTTP/1.1 103 Early Hints\r\nLink-Caller: x\r\nLink: </a>\r\n\r\n")
    seen = wire(request("/_link/other/"), [OTHER], {"bridge other": (HEARD, hint, said())})
    assert seen.client.data.startswith(b"HTTP/1.1 103 \r\n\r\nHTTP/1.1 200")


@pytest.mark.parametrize("cut", Cut)
def test_a_stream_comes_as_it_is_said(cut: Cut) -> None:
    chunks = [b"data: %d\n\n" % number for number in range(50)]
    stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    stream += b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n"
    for seed in range(4):
        bridges = {"bridge other": (HEARD, Say(stream), Leave())}
        seen = wire(request("/_link/other/"), [OTHER], bridges, cut=cut, seed=seed)
        assert answers(seen)[0].body == b"".join(chunks)


def test_a_piece_of_a_stream_does_not_wait_for_the_next() -> None:
    first = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    rest = Say(b"1\r\nb\r\n0\r\n\r\n")
    seen = wire(
        (Say(request("/_link/other/")), Hear(len(first)), Signal("got it"), HearEnd()),
        [OTHER],
        {"bridge other": (HEARD, Say(first), Await("got it"), rest, Leave())},
    )
    assert answers(seen)[0].body == b"ab"
