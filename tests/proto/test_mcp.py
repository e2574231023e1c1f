"""A tool's hub: `proto/verbs/mcp.py`, `mcp_server.py` and `mcp_answers.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies_mcp import PLAYS
from fuzz.target_mcp import one_input
from proto.codecs import jsonrpc
from proto.codecs.jsonrpc import MESSAGE_MAX_BYTES
from proto.verbs import mcp, mcp_server
from proto.verbs.mcp_rules import REFUSED
from tests.proto.hub_stage import CALL, MODERN_META, WELCOME, Stage

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "mcp"


def ready(*allow: str, asks: bool = True) -> Stage:
    stage = Stage(*allow, asks=asks)
    stage.begin()
    return stage


# Sessions.


def test_the_first_initialize_starts_the_server_and_reaches_it():
    stage = Stage()
    call = stage.request("initialize", {"protocolVersion": "2025-06-18"}, id_=7, session=None)
    assert stage.starts == 1
    assert stage.take() == {
        "jsonrpc": "2.0", "id": 7, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18"},
    }  # fmt: skip
    assert call not in stage.ended
    stage.result(7, WELCOME)
    assert stage.body(call) == {"jsonrpc": "2.0", "id": 7, "result": WELCOME}
    assert stage.field(call, "Mcp-Session-Id") == "s1"
    told = stage.tell("notifications/initialized")
    assert stage.status(told) == 202
    assert stage.take() == {"jsonrpc": "2.0", "method": "notifications/initialized"}


def test_a_second_client_is_answered_as_the_first_was():
    stage = ready()
    call = stage.request("initialize", {"protocolVersion": "2024-11-05"}, id_="b", session=None)
    assert stage.body(call)["result"] == WELCOME
    assert stage.field(call, "Mcp-Session-Id") == "s2"
    stage.tell("notifications/initialized", session="s2")
    assert stage.wrote == []


def test_clients_that_begin_at_once_are_all_answered():
    stage = Stage()
    first = stage.request("initialize", {}, id_=1, session=None)
    second = stage.request("initialize", {}, id_=1, session=None)
    third = stage.request("initialize", {}, id_=1, session=None)
    stage.leave(third)
    assert len(stage.wrote) == 1
    stage.result(1, WELCOME)
    assert stage.body(first)["id"] == stage.body(second)["id"] == 1
    assert {stage.field(first, "Mcp-Session-Id"), stage.field(second, "Mcp-Session-Id")} == {
        "s1", "s2",
    }  # fmt: skip
    gone = stage.request("tools/list", session="s3")
    assert stage.status(gone) == 404


def test_a_server_that_refuses_to_begin_gives_no_session():
    stage = Stage()
    first = stage.request("initialize", {}, id_=1, session=None)
    second = stage.request("initialize", {}, id_=2, session=None)
    stage.say({"jsonrpc": "2.0", "id": 1, "error": {"code": -5, "message": "no"}})
    assert stage.error(first) == stage.error(second) == -5
    assert stage.status(stage.request("tools/list")) == 404
    again = stage.request("initialize", {}, id_=3, session=None)
    stage.wrote.clear()
    stage.result(3, WELCOME)
    assert stage.body(again)["result"] == WELCOME


@pytest.mark.parametrize("session", ["nobody", "../s1", "S1"])
def test_a_session_that_nobody_has_is_no_session(session):
    stage = ready()
    assert stage.status(stage.request("tools/list", session=session)) == 404
    assert stage.status(stage.send("DELETE", mcp_session_id=session)) == 404
    assert stage.wrote == []


def test_a_request_without_a_session_is_refused():
    stage = ready()
    assert stage.status(stage.request("tools/list", session=None)) == 400
    assert stage.status(stage.send("DELETE")) == 400
    assert stage.status(stage.request("initialize", {}, id_=2)) == 400
    assert stage.wrote == []


def test_a_session_named_twice_is_refused():
    stage = ready()
    head = {"content_type": "application/json", "mcp_session_id": "s1"}
    message = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    twice = stage.send("POST", message, **head, **{"Mcp-Session-Id": "s1"})
    assert stage.status(twice) == 400
    assert (
        stage.status(stage.send("DELETE", mcp_session_id="s1", **{"Mcp_Session-Id": "s1"})) == 400
    )


def test_the_session_that_was_longest_unused_makes_room(monkeypatch):
    monkeypatch.setattr(mcp, "SESSIONS_MAX", 3)
    stage = ready()
    assert [stage.begin("b"), stage.begin("c")] == ["s2", "s3"]
    stage.request("tools/list", session="s1")
    stage.result(stage.take()["id"])
    assert stage.begin("d") == "s4"
    assert stage.status(stage.request("tools/list", session="s2", id_=2)) == 404
    stream = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    stage.request("tools/list", session="s3", id_=3)
    stage.send("GET", accept="text/event-stream", mcp_session_id="s4")
    full = stage.request("initialize", {}, id_=1, session=None)
    assert stage.status(full) == 503
    assert stream not in stage.ended


def test_a_deleted_session_takes_all_its_calls_with_it():
    stage = ready("f")
    other = stage.begin("b")
    sent = stage.request("tools/call", CALL, id_="x")
    sent_as = stage.take()["id"]
    asked = stage.request("tools/call", {"name": "g"}, id_="y")
    others = stage.request("tools/call", CALL, id_="z", session=other)
    stage.wrote.clear()
    stream = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    stage.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create"})
    stage.say({"jsonrpc": "2.0", "id": "r", "method": "elicitation/create"})
    assert stage.status(stage.send("DELETE", mcp_session_id="s1")) == 204
    assert {sent, asked, stream} <= stage.ended
    assert stage.withdrawn == [1]
    assert others not in stage.ended
    told = [m for m in stage.wrote if m.get("method") == "notifications/cancelled"]
    assert [m["params"]["requestId"] for m in told] == [sent_as]
    assert stage.status(stage.request("tools/list")) == 404


def test_the_servers_requests_to_a_deleted_session_are_answered():
    stage = ready()
    stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    stage.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create"})
    stage.send("DELETE", mcp_session_id="s1")
    answer = stage.take()
    assert (answer["id"], "error" in answer) == ("q", True)


# Calls, and who is asked.


def test_an_allowed_call_goes_on_unasked_and_its_answer_comes_back():
    stage = ready("f")
    call = stage.request("tools/call", CALL, id_="x")
    assert stage.take() == {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": CALL}
    stage.result("x", {"content": []})
    assert stage.body(call) == {"jsonrpc": "2.0", "id": "x", "result": {"content": []}}
    assert stage.asks == []


def test_another_call_waits_for_a_yes():
    stage = ready("f")
    call = stage.request("tools/call", {"name": "g", "arguments": {"a": "b"}}, id_="x")
    assert stage.wrote == []
    assert '"g"' in stage.asks[0].text
    stage.answer(yes=True)
    stage.result(stage.take()["id"])
    assert "result" in stage.body(call)


def test_a_no_reaches_the_program_and_nothing_the_tool():
    stage = ready()
    call = stage.request("tools/call", CALL, id_="x")
    stage.answer(yes=False)
    assert stage.error(call) == REFUSED
    assert stage.body(call)["id"] == "x"
    stage.hub.answered(1, yes=True, why="", now=stage.now)
    stage.play()
    assert stage.wrote == []


# What the wire's log has of a no.


def test_a_no_is_said_to_the_log_in_the_answers_head():
    stage = ready()
    call = stage.request("tools/call", CALL)
    stage.answer(yes=False)
    assert stage.field(call, "Link-Refused") == "no."
    other = stage.modern("tools/call", CALL)
    stage.answer(yes=False)
    assert (stage.status(other), stage.field(other, "Link-Refused")) == (200, "no.")


def test_a_no_to_a_call_whose_stream_has_begun_is_said_behind_it():
    stage = ready()
    call = stage.request("tools/call", CALL)
    stage.wait(6)
    stage.answer(yes=False)
    assert stage.field(call, "Link-Refused") is None
    assert stage.events(call)[-1]["error"]["code"] == REFUSED
    assert stage.replies[call].endswith(b"\r\n0\r\nLink-Refused: no.\r\n\r\n")


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("begun", [True, False])
def test_a_call_that_is_taken_back_before_its_answer_is_no_call_that_was_made(accept, begun):
    stage = ready()
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}
    call = stage.post(message, "s1", accept=accept)
    stage.wait(6 if begun else 0)
    stage.tell("notifications/cancelled", {"requestId": 1})
    assert call in stage.ended
    assert f"Link-Refused: {mcp.TAKEN_BACK}\r\n".encode() in stage.replies[call]


def test_a_call_taken_back_after_a_yes_was_made():
    stage = ready()
    call = stage.request("tools/call", CALL)
    stage.answer(yes=True)
    stage.tell("notifications/cancelled", {"requestId": 1})
    assert call in stage.ended
    assert b"Link-Refused" not in stage.replies[call]


def test_a_call_of_a_session_that_ends_before_its_answer_was_not_made():
    stage = ready()
    call = stage.request("tools/call", CALL)
    stage.send("DELETE", mcp_session_id="s1")
    assert f"Link-Refused: {mcp.TAKEN_BACK}\r\n".encode() in stage.replies[call]


def test_what_is_refused_unasked_is_said_to_the_log():
    stage = ready()
    calls = [stage.request("tools/call", CALL, id_=f"x{n}") for n in range(mcp.QUESTIONS_MAX + 1)]
    assert stage.field(calls[-1], "Link-Refused").startswith("too many questions")
    stage = ready()
    long = stage.request("tools/call", {"name": "f", "arguments": {"x": "y" * 70_000}})
    assert stage.field(long, "Link-Refused").startswith("the call is too long")
    page = stage.post({"jsonrpc": "2.0", "id": 5, "method": "ping"}, "s1", origin="http://a")
    assert stage.field(page, "Link-Refused") == "pages may not call a tool."


def test_no_server_has_its_answers_counted_as_refusals():
    stage = ready("f")
    call = stage.request("tools/call", CALL)
    error = {"code": REFUSED, "message": "the person refused the call."}
    stage.say({"jsonrpc": "2.0", "id": 1, "error": error, "Link-Refused": "x"})
    stage.say({"jsonrpc": "2.0", "id": 1, "error": error})
    assert stage.error(call) == REFUSED
    assert b"Link-Refused" not in stage.replies[call]


def test_a_request_that_is_malformed_is_no_refusal():
    stage = ready()
    call = stage.request("tools/call", {"arguments": {}})
    assert stage.status(call) == 400
    assert stage.field(call, "Link-Refused") is None


def test_a_tool_that_asks_nobody_asks_nobody():
    stage = ready(asks=False)
    stage.request("tools/call", CALL)
    stage.request("something/new", id_=2)
    assert [m["method"] for m in stage.wrote] == ["tools/call", "something/new"]


def test_no_more_questions_wait_than_a_person_can_answer():
    stage = ready()
    calls = [stage.request("tools/call", CALL, id_=f"x{n}") for n in range(1000)]
    assert len(stage.asks) == mcp.QUESTIONS_MAX
    assert all(stage.error(call) == REFUSED for call in calls[mcp.QUESTIONS_MAX :])
    stage.answer(yes=False)
    stage.request("tools/call", CALL, id_="y")
    assert len(stage.asks) == mcp.QUESTIONS_MAX + 1


def test_a_call_too_long_to_be_shown_is_refused_unasked():
    stage = ready()
    call = stage.request("tools/call", {"name": "f", "arguments": {"x": "y" * 70_000}})
    assert stage.error(call) == REFUSED
    assert stage.asks == []
    assert stage.wrote == []


def test_what_the_server_says_of_a_call_is_shown():
    stage = ready()
    stage.request("tools/list", id_="l")
    said = {"name": "f", "title": "T", "annotations": {"destructiveHint": False}}
    stage.result("l", {"tools": [said, {"name": 7}, 7]})
    stage.request("tools/call", CALL, id_="x")
    assert "destroys nothing" in stage.asks[0].text
    stage.request("resources/read", {"uri": "f"}, id_="y")
    assert "destroys nothing" not in stage.asks[1].text
    stage.request("tools/list", id_="m")
    stage.result("m", ["odd"])
    stage.request("tools/list", id_="n")
    stage.result("n", {"tools": 7})


def test_no_more_hints_are_kept_than_a_bound(monkeypatch):
    monkeypatch.setattr(mcp, "HINTS_MAX", 1)
    stage = ready()
    stage.request("tools/list", id_="l")
    hints = [{"name": "f", "title": "one"}, {"name": "g", "title": "two"}, {"name": "f"}]
    stage.result("l", {"tools": hints})
    stage.request("tools/call", {"name": "g"}, id_="x")
    assert "two" not in stage.asks[0].text


def test_no_hint_is_kept_of_a_name_that_no_call_has():
    stage = ready()
    stage.request("tools/list", id_="l")
    stage.result("l", {"tools": [{"name": "n" * 257, "title": "one"}, {"name": "n" * 256}]})
    assert list(stage.hub._hints) == ["n" * 256]


def test_long_ids_go_on_as_they_came_until_their_letters_are_too_many(monkeypatch):
    monkeypatch.setattr(mcp_server, "USED_MAX_CHARS", 3000)
    stage = ready("f")
    for id_, ours in (
        ("\U000e0001" * 256, False),
        ("x" * 256, False),
        ("y" * 256, True),
        (5, False),
    ):
        call = stage.request("tools/call", CALL, id_=id_)
        sent = stage.take()["id"]
        assert sent == id_ or (ours and sent.startswith("link-"))
        stage.result(sent, {})
        assert stage.body(call)["id"] == id_
    assert sum(map(len, stage.hub._server._used)) <= mcp_server.USED_MAX_CHARS


def test_a_request_whose_id_is_still_open_is_refused():
    stage = ready("f")
    stage.request("tools/call", CALL, id_=1)
    assert stage.status(stage.request("tools/call", CALL, id_=1)) == 400
    other = stage.begin("b")
    stage.request("tools/call", CALL, id_=1, session=other)
    assert len(stage.wrote) == 1


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "f", "arguments": {}}},
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "2.0", "method": "initialize", "params": {}},
    ],
)
def test_what_wants_no_answer_never_passes_unasked(message):
    stage = ready("f")
    assert stage.status(stage.post(message, "s1")) == 400
    assert stage.wrote == []


def test_other_methods_and_too_many_calls_are_turned_away(monkeypatch):
    stage = ready("f")
    assert stage.status(put := stage.send("PUT")) == 405
    assert stage.field(put, "Allow") == "GET, POST, DELETE"
    assert stage.status(stage.send("POST", origin="http://localhost")) == 403
    monkeypatch.setattr(mcp, "CALLS_MAX", 1)
    stage.request("tools/call", CALL)
    assert stage.status(stage.request("tools/call", CALL, id_=2)) == 503


# Ids and progress.


def test_an_id_goes_on_as_it_is_unless_the_server_has_seen_it():
    stage = ready("f")
    other = stage.begin("b")
    one = stage.request("tools/call", CALL, id_=1)
    two = stage.request("tools/call", CALL, id_=1, session=other)
    first, second = stage.take()["id"], stage.take()["id"]
    assert first == 1
    assert second != 1
    stage.result(second, {"n": 2})
    stage.result(first, {"n": 1})
    assert (stage.body(one)["result"], stage.body(two)["result"]) == ({"n": 1}, {"n": 2})
    assert (stage.body(one)["id"], stage.body(two)["id"]) == (1, 1)
    stage.request("tools/call", CALL, id_=1)
    assert stage.take()["id"] not in (first, second)
    stage.request("tools/call", CALL, id_="1")
    assert stage.take()["id"] == "1"
    stage.request("tools/call", CALL, id_="link-7")
    assert stage.take()["id"] != "link-7"


def test_past_a_bound_every_id_is_ours(monkeypatch):
    monkeypatch.setattr(mcp_server, "USED_MAX", 2)
    stage = ready("f")
    for number in range(4):
        stage.request("tools/call", CALL, id_=f"x{number}")
    assert [m["id"] for m in stage.wrote][1:] == ["link-1", "link-2", "link-3"]


def test_an_answer_that_is_nobodys_is_left_out():
    stage = ready("f")
    call = stage.request("tools/call", CALL, id_=5)
    stage.hub.read(b"starting up\n[]\n", stage.now)
    stage.result(4)
    stage.say({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "m"}})
    stage.result("5")
    assert call not in stage.ended
    stage.result(5)
    stage.result(5, {"again": True})
    assert stage.body(call)["result"] == {}


UNREAD = [
    b'{"jsonrpc":"2.0","id":5,"result":{"text":"half a pair: \\ud83d"}}\n',
    b'{"jsonrpc":"2.0","id":5,"result":{"a":1,"a":2}}\n',
    b'{"jsonrpc":"2.0","id":5,"result":%b}\n' % (b"[" * 120 + b"]" * 120),
    b'{"jsonrpc":"2.0","id":5,"result":{"n":%b}}\n' % (b"9" * 5000),
    b'{"jsonrpc":"2.0","id":5,"result":"caf\xe9"}\n',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":5,"result":{}}\n',
    b'{"jsonrpc":"2.0","id":5,"error":{"code":"x","message":"y"}}\n',
    b'{"id":5,"result":{}}\n',
    b'{"jsonrpc":"2.0","id":5}\n',
]


@pytest.mark.parametrize("said", UNREAD)
def test_an_answer_that_is_not_read_is_an_error_and_no_wait_for_ever(said: bytes):
    stage = ready("f")
    call = stage.request("tools/call", CALL, id_=5)
    stage.hub.read(said, stage.now)
    stage.hub.read(said, stage.now)
    stage.wait(mcp_server.SPOILT_S - 0.5)
    assert call not in stage.ended
    stage.wait(0.5)
    assert stage.error(call) == -32603
    assert "can't be read" in stage.body(call)["error"]["message"]
    stage.result(5)
    stage.wait(60)


@pytest.mark.parametrize("said", UNREAD)
def test_an_answer_behind_one_that_is_not_read_counts(said: bytes):
    stage = ready("f")
    call = stage.request("tools/call", CALL, id_=5)
    stage.hub.read(said, stage.now)
    stage.result(5, {"n": 1})
    assert stage.body(call)["result"] == {"n": 1}
    stage.wait(60)


def test_what_is_not_read_is_nobodys_answer_where_it_names_no_call():
    stage = ready("f")
    call = stage.request("tools/call", CALL, id_=5)
    for said in (
        b'{"jsonrpc":"2.0","id":6,"result":{},"result":{}}\n',
        b'{"jsonrpc":"2.0","id":5.0,"result":{}}\n',
        b'{"jsonrpc":"2.0","id":5,"method":"x","method":"y"}\n',
        b'{"jsonrpc":"2.0","id":5,"result":%b}\n' % (b"[" * 100_000 + b"]" * 100_000),
    ):
        stage.hub.read(said, stage.now)
    stage.wait(4)
    assert call not in stage.ended
    stage.result(5)
    assert stage.body(call)["result"] == {}


def test_a_greeting_that_is_not_read_has_a_time_of_its_own():
    stage = Stage()
    call = stage.request("initialize", {}, id_=7, session=None)
    stage.hub.read(b'{"id":7,"result":{}}\n', stage.now)
    stage.wait(60)
    assert call not in stage.ended
    stage.wait(mcp_server.START_S)
    assert stage.events(call)[0]["error"]["message"] == "the tool's server doesn't answer."


def test_progress_reaches_the_call_whose_it_is_with_its_own_token():
    stage = ready("f")
    other = stage.begin("b")
    params = CALL | {"_meta": {"progressToken": 1, "k": "v"}}
    one = stage.request("tools/call", params, id_=1)
    two = stage.request("tools/call", params, id_=1, session=other)
    first, second = stage.take(), stage.take()
    assert first["params"] == params
    token = second["params"]["_meta"]["progressToken"]
    assert token != 1
    assert second["params"]["_meta"]["k"] == "v"
    stage.notify("notifications/progress", {"progressToken": token, "progress": 1})
    stage.notify("notifications/progress", {"progressToken": "nobody's", "progress": 1})
    stage.notify("notifications/progress", {"progressToken": [1], "progress": 1})
    assert stage.replies.get(one) is None
    assert stage.events(two)[0]["params"] == {"progressToken": 1, "progress": 1}
    stage.result(second["id"])
    assert stage.events(two)[1]["result"] == {}
    assert stage.replies[two].endswith(b"0\r\n\r\n")
    stage.leave(one)
    stage.notify("notifications/progress", {"progressToken": 1, "progress": 1})
    stage.result(first["id"])


# Streams.


def test_a_client_that_waits_long_gets_its_stream_and_signs_of_life():
    stage = ready("f")
    call = stage.request("tools/call", CALL)
    assert not stage.hub.idle
    stage.wait(4)
    assert call not in stage.replies
    stage.wait(2)
    assert stage.status(call) == 200
    assert stage.events(call) == []
    before = len(stage.replies[call])
    stage.wait(4)
    assert len(stage.replies[call]) == before
    stage.wait(2)
    assert b": still here" in stage.replies[call]
    stage.result(1)
    assert stage.events(call) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert stage.hub.idle


def test_a_client_that_takes_only_json_gets_only_its_answer():
    stage = ready("f")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
               "params": CALL | {"_meta": {"progressToken": 1}}}  # fmt: skip
    call = stage.post(message, "s1", accept="application/json")
    stage.notify("notifications/progress", {"progressToken": 1, "progress": 1})
    stage.notify("notifications/tools/list_changed", {})
    stage.wait(600)
    assert call not in stage.replies
    stage.result(1)
    assert stage.body(call)["result"] == {}


def test_a_client_that_takes_only_a_stream_gets_one():
    stage = ready("f")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}
    call = stage.post(message, "s1", accept="text/event-stream")
    stage.result(1)
    assert stage.events(call)[0]["result"] == {}


def test_what_the_server_says_unasked_reaches_each_session_once():
    stage = ready("f")
    second = stage.begin("b")
    third = stage.begin("c")
    call = stage.request("tools/call", CALL, session=second)
    stream = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    stage.notify("notifications/tools/list_changed", {})
    assert len(stage.events(stream)) == len(stage.events(call)) == 1
    late = stage.send("GET", accept="text/event-stream", mcp_session_id=third)
    assert [e["method"] for e in stage.events(late)] == ["notifications/tools/list_changed"]
    stage.leave(late)
    for number in range(mcp.WAITING_MAX + 5):
        stage.notify("notifications/message", {"data": number})
    stage.notify("notifications/message", {"data": "x" * mcp.WAITING_MAX_BYTES})
    later = stage.send("GET", accept="text/event-stream", mcp_session_id=third)
    kept = [e["params"]["data"] for e in stage.events(later)]
    assert kept == list(range(5, mcp.WAITING_MAX + 5))


def test_a_newer_stream_takes_the_place_of_an_older_one():
    stage = ready()
    old = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    new = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    assert old in stage.ended
    stage.leave(old)
    stage.notify("notifications/tools/list_changed", {})
    assert len(stage.events(new)) == 1


@pytest.mark.parametrize("accept", ["application/json", "text/html", None])
def test_a_stream_must_be_wanted(accept):
    stage = ready()
    fields = {} if accept is None else {"accept": accept}
    assert stage.status(stage.send("GET", mcp_session_id="s1", **fields)) == 406


# The server's own requests.


def test_a_request_of_the_servers_reaches_the_client_it_is_about_and_comes_back():
    stage = ready("f")
    other = stage.begin("b")
    stage.send("GET", accept="text/event-stream", mcp_session_id=other)
    call = stage.request("tools/call", CALL, id_="x")
    stage.wrote.clear()
    stage.say({"jsonrpc": "2.0", "id": "x", "method": "sampling/createMessage", "params": {"m": 1}})
    asked = stage.events(call)[0]
    assert asked["params"] == {"m": 1}
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"role": "assistant"}}
    stage.post(answer, other)
    assert stage.wrote == []
    assert stage.status(stage.post(answer, "s1")) == 202
    assert stage.take() == {"jsonrpc": "2.0", "id": "x", "result": {"role": "assistant"}}
    stage.post(answer, "s1")
    stage.post({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": ""}}, "s1")
    assert stage.wrote == []


def test_a_request_of_the_servers_is_answered_where_nobody_listens():
    stage = ready()
    stage.begin("b")
    stage.say({"jsonrpc": "2.0", "id": 9, "method": "sampling/createMessage", "params": {}})
    assert stage.take()["error"]["code"] == -32601
    stage.say({"jsonrpc": "2.0", "id": 10, "method": "ping"})
    assert stage.take() == {"jsonrpc": "2.0", "id": 10, "result": {}}


def test_no_more_requests_of_the_servers_wait_than_a_bound(monkeypatch):
    monkeypatch.setattr("proto.verbs.mcp_server.THEIRS_MAX", 2)
    stage = ready()
    stream = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    for id_ in (7, 8, 9):
        stage.say({"jsonrpc": "2.0", "id": id_, "method": "sampling/createMessage"})
    assert len(stage.events(stream)) == 2
    refused = stage.take()
    assert (refused["id"], refused["error"]["code"]) == (9, -32603)
    stage.post({"jsonrpc": "2.0", "id": stage.events(stream)[0]["id"], "result": {}}, "s1")
    stage.say({"jsonrpc": "2.0", "id": 10, "method": "sampling/createMessage"})
    assert len(stage.events(stream)) == 3


def test_a_request_that_the_server_takes_back_is_taken_back():
    stage = ready()
    stream = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    for id_ in (8, 9):
        stage.say({"jsonrpc": "2.0", "id": id_, "method": "elicitation/create"})
    ours = stage.events(stream)[1]["id"]
    stage.notify("notifications/cancelled", {"requestId": 9, "reason": "r"})
    assert stage.events(stream)[2]["params"] == {"requestId": ours, "reason": "r"}
    stage.post({"jsonrpc": "2.0", "id": ours, "result": {}}, "s1")
    stage.notify("notifications/cancelled", {"requestId": {}})
    assert stage.wrote == []


# What a server asks the person, whom the program answers for.

ELICITS = {"mode": "form", "message": "Delete all <b>notes</b>?\n\u202e", "requestedSchema": {}}
AGREED = {"action": "accept", "content": {"sure": True}}


def elicited(*allow: str, asks: bool = True, params: object = ELICITS) -> tuple[Stage, str]:
    """Return a stage whose server has asked its client, and the id by which that was."""
    stage = ready(*allow, asks=asks)
    stage.begin("b")
    stream = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    stage.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params})
    (asked,) = stage.events(stream)
    assert asked["params"] == params
    return stage, asked["id"]


def says(stage: Stage, id_: str, result: object, session: str = "s1") -> None:
    call = stage.post({"jsonrpc": "2.0", "id": id_, "result": result}, session)
    assert stage.status(call) == 202


def test_what_the_program_answers_for_the_person_is_shown_to_them():
    stage, id_ = elicited("f")
    says(stage, id_, AGREED)
    assert stage.wrote == []
    (ask,) = stage.asks
    assert ask.text == (
        "answer, in your name, what the server of a tool asks you\n"
        'of the tool "notes", which runs outside the sandbox\n'
        "\n"
        "It asks:\n"
        "  {\n"
        '    "mode": "form"\n'
        '    "message": "Delete all \\u003cb>notes\\u003c/b>?\\n\\u202e"\n'
        '    "requestedSchema": {}\n'
        "  }\n"
        "\n"
        "and the program's answer is:\n"
        "  {\n"
        '    "action": "accept"\n'
        '    "content": {\n'
        '      "sure": true\n'
        "    }\n"
        "  }"
    )
    stage.answer(yes=True)
    assert stage.take() == {"jsonrpc": "2.0", "id": "q", "result": AGREED}
    stage.answer(yes=True)
    says(stage, id_, AGREED)
    assert stage.wrote == []
    assert len(stage.asks) == 1


def test_what_the_person_has_not_said_is_a_no_to_the_server():
    stage, id_ = elicited()
    says(stage, id_, AGREED)
    stage.answer(yes=False)
    assert stage.take() == {"jsonrpc": "2.0", "id": "q", "result": {"action": "decline"}}


@pytest.mark.parametrize("result", [{"action": "decline"}, {"action": "cancel", "_meta": {}}])
def test_a_plain_no_needs_nobody(result):
    stage, id_ = elicited()
    says(stage, id_, result)
    assert stage.asks == []
    assert stage.take()["result"] == result


def test_an_error_needs_nobody():
    stage, id_ = elicited()
    error = {"code": -1, "message": "none here"}
    stage.post({"jsonrpc": "2.0", "id": id_, "error": error}, "s1")
    assert stage.asks == []
    assert stage.take()["error"] == error


@pytest.mark.parametrize(
    "result",
    [
        {"Action": "accept"},
        {"action": "decline", "Action": "accept"},
        {"action": "decline", "content": {"sure": True}},
        {"action": ["decline"]},
        {"action": "accept"},
        {},
        "accept",
        None,
        [{"action": "decline"}],
    ],
)
def test_whatever_is_no_plain_no_asks(result):
    stage, id_ = elicited()
    says(stage, id_, result)
    assert len(stage.asks) == 1
    assert stage.wrote == []


def test_a_tool_that_asks_nobody_is_answered_by_the_program():
    stage, id_ = elicited(asks=False)
    says(stage, id_, AGREED)
    assert stage.asks == []
    assert stage.take()["result"] == AGREED


def test_an_answer_is_not_said_anew_while_the_person_reads_it():
    stage, id_ = elicited()
    says(stage, id_, AGREED)
    says(stage, id_, {"action": "accept", "content": {"all": True}})
    says(stage, id_, {"action": "decline"})
    assert len(stage.asks) == 1
    assert stage.wrote == []
    stage.answer(yes=True)
    assert stage.take()["result"] == AGREED


def test_another_session_answers_for_nobody():
    stage, id_ = elicited()
    says(stage, id_, AGREED, "s2")
    assert (stage.asks, stage.wrote) == ([], [])


@pytest.mark.parametrize("ends", ["cancelled", "session", "server"])
def test_an_answer_that_nobody_waits_for_is_asked_about_no_more(ends):
    stage, id_ = elicited()
    says(stage, id_, AGREED)
    match ends:
        case "cancelled":
            stage.notify("notifications/cancelled", {"requestId": "q"})
        case "session":
            stage.send("DELETE", mcp_session_id="s1")
        case "server":
            stage.die()
    assert stage.withdrawn == [1]
    stage.wrote.clear()
    stage.answer(yes=True)
    assert stage.wrote == []


@pytest.mark.parametrize(
    ("params", "result"),
    [({"message": "x" * 70_000}, AGREED), (ELICITS, AGREED | {"content": {"a": "x" * 70_000}}),
     ({"message": ["x"] * 9_000}, AGREED)],
)  # fmt: skip
def test_what_is_too_long_to_be_shown_is_a_no(params, result):
    stage, id_ = elicited(params=params)
    says(stage, id_, result)
    assert stage.asks == []
    assert stage.take()["result"] == {"action": "decline"}


def test_of_what_is_too_long_to_be_shown_nothing_is_kept():
    stage, _ = elicited(params={"message": "x" * 70_000})
    stage.say({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": ELICITS})
    kept = stage.hub._server._theirs.values()
    assert [each.printed for each in kept] == [b"", b""]


def test_answers_and_calls_share_what_a_person_can_answer():
    stage, id_ = elicited()
    for number in range(mcp.QUESTIONS_MAX):
        stage.request("tools/call", CALL, id_=f"x{number}")
    says(stage, id_, AGREED)
    assert stage.take()["result"] == {"action": "decline"}
    stage, id_ = elicited()
    says(stage, id_, AGREED)
    calls = [stage.request("tools/call", CALL, id_=f"x{n}") for n in range(mcp.QUESTIONS_MAX)]
    assert stage.error(calls[-1]) == REFUSED


def test_a_server_that_asks_nothing_is_asked_about_all_the_same():
    stage, id_ = elicited(params={})
    says(stage, id_, AGREED)
    assert "It asks:\n  {}\n" in stage.asks[0].text


def test_an_answer_that_rides_on_a_call_is_shown_as_one():
    stage = ready("f")
    inputs = {"sure": AGREED}
    call = stage.modern("tools/call", CALL | {"inputResponses": inputs, "requestState": "s"})
    assert stage.wrote == []
    assert "and, as your answers to what its server asked:" in stage.asks[0].text
    assert '"accept"' in stage.asks[0].text
    stage.answer(yes=False)
    assert stage.error(call) == REFUSED


def test_other_words_of_a_client_reach_the_server():
    stage = ready()
    stage.tell("notifications/progress", {"progressToken": 1, "progress": 1})
    assert [m["method"] for m in stage.wrote] == ["notifications/progress"]
    stage.die()
    stage.wrote.clear()
    stage.tell("notifications/progress", {"progressToken": 1, "progress": 1})
    assert stage.wrote == []


def test_a_client_has_no_say_in_a_tools_folders():
    stage = Stage("f")
    hello = {"capabilities": {"roots": {"listChanged": True}, "sampling": {}}}
    stage.request("initialize", hello, id_="i", session=None)
    told = stage.take()
    assert told["params"] == {"capabilities": {"sampling": {}}}
    stage.result(told["id"], WELCOME)
    stage.tell("notifications/initialized")
    stage.wrote.clear()
    stream = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    stage.say({"jsonrpc": "2.0", "id": 9, "method": "roots/list"})
    assert stage.take()["error"]["code"] == -32601
    assert stage.events(stream) == []
    assert stage.status(stage.tell("notifications/roots/list_changed")) == 202
    assert stage.wrote == []
    # A server that is started again is told the same.
    stage.die()
    stage.request("tools/list", id_=1)
    assert stage.take()["params"] == {"capabilities": {"sampling": {}}}


def test_a_client_of_the_current_revision_has_no_roots_either():
    stage = Stage("f")
    key = "io.modelcontextprotocol/clientCapabilities"
    meta = {**MODERN_META, key: {"roots": {}, "elicitation": {}}}
    stage.modern("tools/call", {**CALL, "_meta": meta})
    probe = stage.take()
    assert probe["params"]["_meta"][key] == {"elicitation": {}}
    stage.result(probe["id"])
    assert stage.take()["params"]["_meta"][key] == {"elicitation": {}}
    stage.modern("tools/call", {**CALL, "_meta": {**meta, key: None}}, id_=2)
    assert stage.take()["params"]["_meta"][key] is None


# Cancelling and leaving.


def test_a_cancelled_request_is_cancelled_at_the_server_too():
    stage = ready("f")
    call = stage.request("tools/call", CALL | {"_meta": {"progressToken": 2}}, id_=1)
    stage.take()
    stage.tell("notifications/cancelled", {"requestId": 1, "reason": "late"})
    told = stage.take()
    assert told["params"] == {"requestId": 1, "reason": "late"}
    assert stage.events(call) == []
    assert call in stage.ended
    stage.result(1)
    for params in ({"requestId": 1}, {"requestId": 99}, {}, None):
        stage.tell("notifications/cancelled", params)
    assert stage.wrote == []


def test_a_cancelled_question_is_withdrawn():
    stage = ready()
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}
    call = stage.post(message, "s1", accept="application/json")
    stage.tell("notifications/cancelled", {"requestId": 1})
    assert stage.withdrawn == [1]
    assert stage.status(call) == 202
    stage.answer(yes=True)
    assert stage.wrote == []


def test_an_initialize_is_never_cancelled():
    stage = ready()
    stage.die()
    call = stage.request("initialize", {}, id_="j", session=None)
    stage.wrote.clear()
    stage.tell("notifications/cancelled", {"requestId": "j"})
    assert stage.wrote == []
    assert call not in stage.ended


def test_a_client_that_leaves_takes_its_question_along_but_not_its_call():
    stage = ready("f")
    sent = stage.request("tools/call", CALL, id_=1)
    asked = stage.request("tools/call", {"name": "g"}, id_=2)
    stage.leave(sent)
    stage.leave(asked)
    stage.leave(99)
    assert stage.withdrawn == [1]
    stage.result(1)
    assert [m["method"] for m in stage.wrote] == ["tools/call"]
    stream = stage.send("GET", accept="text/event-stream", mcp_session_id="s1")
    stage.leave(stream)
    stage.notify("notifications/tools/list_changed", {})


# A server that dies, says too much, or stays silent.


def test_a_server_that_dies_fails_its_calls_and_is_started_for_the_next():
    stage = ready("f")
    second = stage.begin("b")
    stage.tell("notifications/initialized", session=second)
    call = stage.request("tools/call", CALL, id_="x")
    asked = stage.request("tools/call", {"name": "g"}, id_="y")
    stage.die()
    assert stage.error(call) == -32603
    assert asked not in stage.ended
    stage.die()
    stage.wrote.clear()
    again = stage.request("tools/call", CALL, id_="x", session=second)
    third = stage.request("tools/call", CALL, id_="x")
    assert stage.starts == 2
    hello = stage.take()
    assert hello["method"] == "initialize"
    assert stage.wrote == []
    joined = stage.request("initialize", {}, id_=1, session=None)
    stage.result(hello["id"], WELCOME)
    assert stage.body(joined)["result"] == WELCOME
    assert [m["method"] for m in stage.wrote] == [
        "notifications/initialized", "tools/call", "tools/call",
    ]  # fmt: skip
    assert stage.wrote[1]["id"] == "x"
    stage.result("x")
    stage.result(stage.wrote[2]["id"])
    assert "result" in stage.body(again)
    assert "result" in stage.body(third)
    stage.wrote.clear()
    stage.answer(yes=True)
    assert stage.take()["id"] == "y"


def test_a_server_that_refuses_to_begin_again_fails_what_waited():
    stage = ready("f")
    stage.die()
    call = stage.request("tools/call", CALL, id_="x")
    joined = stage.request("initialize", {}, id_=1, session=None)
    stage.say({"jsonrpc": "2.0", "id": stage.take()["id"], "error": {"code": -7, "message": "n"}})
    assert stage.error(call) == -32603
    assert stage.error(joined) == -7


def test_a_server_that_refuses_a_new_client_fails_what_waited_for_it():
    stage = ready("f")
    stage.die()
    joined = stage.request("initialize", {}, id_=1, session=None)
    call = stage.request("tools/call", CALL, id_="x")
    stage.say({"jsonrpc": "2.0", "id": stage.take()["id"], "error": {"code": -7, "message": "n"}})
    assert (stage.error(joined), stage.error(call)) == (-7, -32603)


def test_what_waited_for_a_new_client_follows_it():
    stage = ready("f")
    stage.die()
    stage.request("initialize", {}, id_=1, session=None)
    stage.request("tools/call", CALL, id_="x")
    stage.result(stage.take()["id"], WELCOME)
    # The session is older, and its client said long ago that it was ready.
    assert [m["method"] for m in stage.wrote] == ["notifications/initialized", "tools/call"]
    stage.wrote.clear()
    stage.tell("notifications/initialized", session="s2")
    assert stage.wrote == []


def test_a_server_that_never_begins_is_stopped():
    stage = Stage()
    call = stage.request("initialize", {}, session=None)
    stage.wait(mcp_server.START_S - 1)
    assert stage.stops == 0
    stage.wait(2)
    assert stage.stops == 1
    assert stage.events(call)[0]["error"]["code"] == -32603
    stage.die()
    again = stage.request("initialize", {}, session=None)
    assert stage.starts == 2
    assert again not in stage.ended


def test_a_server_that_says_more_than_is_read_is_stopped():
    stage = ready("f")
    call = stage.request("tools/call", CALL)
    piece = b"x" * (1 << 22)
    for _ in range(MESSAGE_MAX_BYTES // len(piece) + 1):
        stage.hub.read(piece, stage.now)
    stage.play()
    assert stage.stops == 1
    assert stage.error(call) == -32603


def test_a_server_that_says_what_has_too_many_parts_is_stopped(monkeypatch):
    monkeypatch.setattr(jsonrpc, "PARTS_MAX", 60)
    stage = ready("f")
    calls = [stage.request("tools/call", CALL, id_=number) for number in (1, 2)]
    stage.say({"jsonrpc": "2.0", "id": 1, "result": {"a": [1] * 70}}, {"jsonrpc": "2.0", "id": 2})
    assert stage.stops == 1
    assert [stage.error(call) for call in calls] == [-32603, -32603]
    stage.request("tools/call", CALL, id_=3)
    assert stage.starts == 2


def test_a_client_may_call_before_it_says_that_it_is_ready():
    stage = Stage("f")
    stage.request("initialize", {}, id_="i", session=None)
    stage.result(stage.take()["id"], WELCOME)
    stage.request("ping", id_=1)
    assert [m["method"] for m in stage.wrote] == ["ping"]


def test_a_client_that_takes_only_json_is_asked_nothing():
    stage = ready("f")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}
    call = stage.post(message, "s1", accept="application/json")
    stage.wrote.clear()
    stage.say({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create"})
    assert "error" in stage.take()
    assert call not in stage.replies


def test_half_a_line_before_the_end_is_no_answer():
    stage = ready("f")
    call = stage.request("tools/call", CALL, id_=5)
    stage.hub.read(b'{"jsonrpc":"2.0","id":5,"result":{}}', stage.now)
    stage.die()
    assert "error" in stage.body(call)


# The current revision.


def test_the_current_revision_needs_no_session_and_is_asked_about_first():
    stage = Stage("f")
    one = stage.modern("tools/call", CALL)
    two = stage.modern("tools/list", id_=1)
    probe = stage.take()
    assert probe["method"] == "server/discover"
    assert probe["params"]["_meta"] == MODERN_META
    assert stage.wrote == []
    stage.result(probe["id"], {"resultType": "complete"})
    first, second = stage.take(), stage.take()
    assert (first["id"], second["id"] == 1) == (1, False)
    stage.result(second["id"], {"tools": []})
    stage.result(first["id"])
    assert stage.body(one)["id"] == stage.body(two)["id"] == 1
    assert stage.field(one, "Mcp-Session-Id") is None


def test_an_older_server_never_sees_a_request_of_the_current_revision():
    stage = Stage("f")
    call = stage.modern("tools/call", CALL)
    stage.say({"jsonrpc": "2.0", "id": stage.take()["id"],
               "error": {"code": -32601, "message": "no"}})  # fmt: skip
    assert stage.status(call) == 400
    assert stage.error(call) == -32600
    assert stage.status(stage.modern("tools/call", CALL)) == 400
    assert stage.wrote == []


def test_a_server_that_stays_silent_is_taken_for_an_older_one():
    stage = Stage("f")
    call = stage.modern("tools/call", CALL | {"_meta": MODERN_META | {"progressToken": 1}})
    assert stage.take()["params"]["_meta"] == MODERN_META
    stage.wait(4)
    stage.wait(mcp_server.PROBE_S)
    assert stage.events(call)[0]["error"]["code"] == -32600
    begun = stage.request("initialize", {}, session=None)
    stage.result(stage.take()["id"], WELCOME)
    assert stage.body(begun)["result"] == WELCOME


def test_an_error_of_the_current_revision_tells_that_the_server_speaks_it():
    stage = Stage()
    call = stage.modern("tools/list")
    stage.say({"jsonrpc": "2.0", "id": stage.take()["id"],
               "error": {"code": -32022, "message": "other"}})  # fmt: skip
    sent = stage.take()
    stage.say({"jsonrpc": "2.0", "id": sent["id"], "error": {"code": -32022, "message": "m"}})
    assert stage.status(call) == 400
    for code, status in ((-32601, 404), (-32602, 200), (-32600, 400), (10**20, 200)):
        call = stage.modern("tools/list")
        stage.say({"jsonrpc": "2.0", "id": stage.take()["id"],
                   "error": {"code": code, "message": "m"}})  # fmt: skip
        assert stage.status(call) == status


def test_a_client_of_the_current_revision_cancels_by_leaving():
    stage = Stage("f")
    call = stage.modern("tools/call", CALL, id_="x")
    stage.result(stage.take()["id"])
    stage.take()
    stage.leave(call)
    assert stage.take()["params"] == {"requestId": "x"}
    queued = Stage("f")
    call = queued.modern("tools/call", CALL)
    queued.take()
    queued.leave(call)
    queued.result("link-1")
    assert queued.wrote == []


def test_a_subscription_stays_open_and_its_notifications_reach_it():
    stage = Stage()
    call = stage.modern("subscriptions/listen", {"notifications": {}}, id_=1)
    other = stage.modern("subscriptions/listen", {"notifications": {}}, id_=1)
    stage.result(stage.take()["id"])
    first, second = stage.take()["id"], stage.take()["id"]
    key = "io.modelcontextprotocol/subscriptionId"
    stage.notify("notifications/tools/list_changed", {"_meta": {key: second}})
    stage.notify("notifications/tools/list_changed", {"_meta": {key: "nobody's"}})
    assert stage.events(other)[0]["params"]["_meta"] == {key: 1}
    assert call not in stage.replies
    stage.notify("notifications/cancelled", {"requestId": second})
    assert other in stage.ended
    stage.notify("notifications/cancelled", {"requestId": second})
    stage.leave(call)
    assert stage.take()["params"] == {"requestId": first}


def test_a_subscription_whose_client_has_left_may_end():
    stage = Stage()
    stage.modern("subscriptions/listen", id_="x")
    stage.result(stage.take()["id"])
    [pending] = stage.hub._open
    pending.call = None
    key = "io.modelcontextprotocol/subscriptionId"
    stage.notify("notifications/tools/list_changed", {"_meta": {key: "x"}})
    stage.notify("notifications/cancelled", {"requestId": "x"})
    assert stage.hub._open == []


def test_the_log_of_a_lone_call_reaches_it():
    stage = Stage("f")
    call = stage.modern("tools/call", CALL)
    stage.result(stage.take()["id"])
    stage.notify("notifications/message", {"data": 1})
    stage.notify("notifications/tools/list_changed", {})
    assert [e["method"] for e in stage.events(call)] == ["notifications/message"]
    stage.modern("tools/call", CALL)
    stage.notify("notifications/message", {"data": 2})
    assert len(stage.events(call)) == 1


def test_a_notification_of_the_current_revision_is_taken_and_goes_nowhere():
    stage = Stage()
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled",
               "params": {"requestId": 1, "_meta": MODERN_META}}  # fmt: skip
    call = stage.post(message, mcp_protocol_version="2026-07-28")
    assert stage.status(call) == 202
    assert stage.wrote == []


def test_a_dead_server_is_asked_again_what_it_speaks():
    stage = Stage("f")
    call = stage.modern("tools/call", CALL)
    stage.die()
    assert stage.error(call) == -32603
    stage.wrote.clear()
    stage.modern("tools/call", CALL)
    assert stage.take()["method"] == "server/discover"


@given(st.binary(max_size=300) | PLAYS)
def test_whatever_comes_the_hub_keeps_its_promises(data):
    one_input(data)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda p: p.name)
def test_the_corpus_holds(path):
    one_input(path.read_bytes())


def test_big_results_pass_whole():
    stage = ready("f")
    call = stage.request("tools/call", CALL, id_=1)
    big = {"content": [{"type": "text", "text": "é" * (4 << 20)}]}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": big}).encode() + b"\n"
    for at in range(0, len(line), 65536):
        stage.hub.read(line[at : at + 65536], stage.now)
    stage.play()
    assert stage.body(call)["result"] == big


# What a program may heap up.


def test_no_more_requests_are_open_than_may_be_whoever_has_left():
    stage = ready("f")
    for number in range(mcp.OPEN_MAX):
        stage.leave(stage.request("tools/call", CALL, id_=number))
    full = stage.request("tools/call", CALL, id_="full")
    assert stage.status(full) == 503
    stage.result(stage.take()["id"])
    stage.request("tools/call", CALL, id_="next")
    assert stage.wrote[-1]["id"] == "next"


@pytest.mark.parametrize("method", ["tools/call", "ping", "initialize"])
def test_what_a_request_said_is_forgotten_once_the_server_has_it(method):
    stage = ready("f")
    stage.modern("server/discover", id_="first")
    stage.result(stage.take()["id"])
    stage.wrote.clear()
    stage.modern(method, {"name": "f", "arguments": {"x": "y"}}, id_=1)
    assert stage.take()["params"]["arguments"] == {"x": "y"}
    assert stage.hub._open[-1].request.params is None


def test_what_the_server_has_not_had_yet_goes_with_its_client():
    stage = ready("f")
    stage.die()
    first = stage.request("tools/call", CALL, id_=1)
    again = stage.take()
    stage.leave(first)
    stage.result(again["id"], WELCOME)
    assert [m["method"] for m in stage.wrote] == ["notifications/initialized"] * len(stage.wrote)
    assert stage.hub._open == []


def test_a_client_that_leaves_while_its_server_starts_has_no_session():
    stage = Stage("f")
    stage.leave(stage.request("initialize", {}, id_="i", session=None))
    waits = stage.request("initialize", {}, id_="j", session=None)
    stage.leave(stage.request("initialize", {}, id_="k", session=None))
    stage.result(stage.take()["id"], WELCOME)
    assert stage.body(waits)["result"] == WELCOME
    assert stage.status(stage.request("ping", session="s1")) == 404
    assert stage.hub._open == []
