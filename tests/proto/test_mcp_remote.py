"""A tool at a URL: `proto/verbs/mcp_remote.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_mcp_remote import one_input
from proto.codecs.http1 import RequestReader
from proto.codecs.url import MalformedUrl
from proto.verbs import mcp_remote
from proto.verbs.mcp_remote import Drop, Line, Open, Remote, check_field, check_url
from tests.proto.hub_stage import MODERN_META, WELCOME

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "mcp_remote"
URL = "https://tools.example.com/mcp?team=1"
TOKEN = (("Authorization", "Bearer tok-REAL"),)


class Play:
    """A remote, its lines out, and its calls by number."""

    def __init__(self) -> None:
        self.remote = Remote(check_url(URL), TOKEN)
        self.opened: dict[int, bytes] = {}
        self.after: dict[int, float] = {}
        self.lines: list[dict] = []
        self.dropped: list[int] = []

    def on(self) -> None:
        for effect in self.remote.take():
            match effect:
                case Open(call=call, data=data, after_s=after_s):
                    self.opened[call], self.after[call] = data, after_s
                case Line(data=data):
                    assert data.endswith(b"\n")
                    self.lines.append(json.loads(data))
                case Drop(call=call):
                    self.dropped.append(call)

    def line(self, **message: object) -> int:
        """Send a line; return the call that it opened."""
        self.remote.line(json.dumps({"jsonrpc": "2.0"} | message).encode())
        self.on()
        return max(self.opened, default=0)

    def hear(self, call: int, data: bytes) -> None:
        self.remote.hear(call, data)
        self.on()

    def json(self, call: int, message: object, status: int = 200, more: str = "") -> None:
        body = json.dumps(message).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}"
        self.hear(call, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def begin(self, **welcome: object) -> None:
        call = self.line(id="i", method="initialize", params={})
        self.json(call, {"jsonrpc": "2.0", "id": "i", "result": WELCOME | welcome},
                  more="Mcp-Session-Id: s\r\n")  # fmt: skip
        self.lines.clear()

    def fields(self, call: int) -> dict[str, str]:
        found = RequestReader().feed(self.opened[call])
        assert found is not None
        return {name.decode().lower(): value.decode() for name, value in found[0].fields}


def test_a_message_becomes_a_post_and_its_answer_a_line():
    play = Play()
    call = play.line(id=1, method="initialize", params={})
    assert play.opened[call].startswith(b"POST /mcp?team=1 HTTP/1.1\r\nHost: tools.example.com\r\n")
    assert play.fields(call)["authorization"] == "Bearer tok-REAL"
    assert "mcp-session-id" not in play.fields(call)
    play.json(call, {"jsonrpc": "2.0", "id": 1, "result": WELCOME}, more="Mcp-Session-Id: s\r\n")
    assert play.lines == [{"jsonrpc": "2.0", "id": 1, "result": WELCOME}]
    assert play.dropped == [call]
    after = play.line(id=2, method="tools/list")
    assert play.fields(after)["mcp-session-id"] == "s"
    assert play.fields(after)["mcp-protocol-version"] == "2025-11-25"


def test_a_server_that_repeats_its_token_tells_no_program():
    play = Play()
    play.begin()
    call = play.line(id=1, method="tools/call", params={"name": "f"})
    play.json(
        call, {"jsonrpc": "2.0", "id": 1, "result": {"headers": {"Authorization": TOKEN[0][1]}}}
    )
    assert play.lines[-1]["result"] == {"headers": {"Authorization": "*" * len(TOKEN[0][1])}}


@pytest.mark.parametrize(
    ("status", "why"),
    [(401, "it answers 401: its token is missing, old or wrong; add the tool again with "
           "--header-file."),
     (403, "--header-file"), (500, "it answers 500.")],
)  # fmt: skip
def test_a_status_is_told_though_its_json_says_nothing(status, why):
    for kind in ("application/json", "text/html"):
        play = Play()
        play.begin()
        call = play.line(id=1, method="tools/call", params={"name": "f"})
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: 17\r\n\r\n"
        play.hear(call, head.encode() + b'{"error":"token"}')
        assert why in play.lines[-1]["error"]["message"]


def test_what_the_server_says_on_the_stream_of_a_call_becomes_lines():
    play = Play()
    play.begin()
    call = play.line(id=1, method="tools/call", params={"name": "f"})
    play.hear(
        call, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n: hi\n\n"
    )
    play.hear(call, b'data: {"jsonrpc":"2.0","method":"notifications/progress"}\n\ndata: x\n\n')
    play.hear(call, b'data: {"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"}\n\n')
    play.hear(call, b'data: {"jsonrpc":"2.0","id":9,"result":{}}\n\n')
    assert [line.get("method") for line in play.lines] == [
        "notifications/progress", "sampling/createMessage",
    ]  # fmt: skip
    play.hear(call, b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n')
    assert play.lines[-1]["result"] == {}
    assert play.dropped[-1] == call
    play.hear(call, b"more")


def test_a_server_that_speaks_by_itself_is_listened_to():
    play = Play()
    play.begin()
    listens = play.line(method="notifications/initialized")
    assert play.opened[listens].startswith(b"GET /mcp?team=1 ")
    assert play.fields(listens)["accept"] == "text/event-stream"
    told = listens - 1
    play.hear(told, b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    assert told in play.dropped
    play.hear(listens, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    play.hear(listens, b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n')
    play.hear(listens, b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n')
    assert [line["method"] for line in play.lines] == ["notifications/tools/list_changed"]
    play.hear(listens, b"")
    assert listens in play.dropped
    assert len(play.lines) == 1


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
])  # fmt: skip
def test_a_server_that_offers_no_stream_is_let_be(answer):
    play = Play()
    play.begin()
    listens = play.line(method="notifications/initialized")
    play.hear(listens, answer)
    assert listens in play.dropped
    assert play.lines == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["http://tools.example.com/mcp", "https://evil.test/", "/other"])
def test_a_redirect_is_an_error_wherever_it_leads(status, where):
    play = Play()
    call = play.line(id=1, method="initialize", params={})
    head = f"HTTP/1.1 {status} X\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n"
    play.hear(call, head.encode())
    assert play.dropped == [call]
    assert list(play.opened) == [call]
    assert str(status) in play.lines[0]["error"]["message"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_call_is_always_answered(answer):
    play = Play()
    call = play.line(id=1, method="tools/list")
    if answer:
        play.hear(call, answer)
    play.hear(call, b"")
    assert [line["id"] for line in play.lines] == [1]
    assert play.lines[0]["error"]["code"] == -32603


@pytest.mark.parametrize("head", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nno",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {",
])  # fmt: skip
def test_an_answer_that_is_cut_is_an_error(head):
    play = Play()
    call = play.line(id=1, method="tools/list")
    play.hear(call, head)
    play.hear(call, b"")
    assert "error" in play.lines[0]


def test_a_connection_that_fails_is_an_error():
    play = Play()
    call = play.line(id=1, method="tools/list")
    play.remote.failed(call, "it could not be reached.")
    play.remote.failed(call, "again")
    play.on()
    assert len(play.lines) == 1
    assert "tools.example.com" in play.lines[0]["error"]["message"]


def test_an_error_in_json_passes_whatever_its_status():
    play = Play()
    call = play.line(id=1, method="x/y")
    play.json(call, {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "m"}}, 404)
    assert play.lines == [{"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "m"}}]


def gone(play: Play, call: int) -> None:
    play.hear(call, b"HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\nno")


def welcomed(play: Play, call: int, more: str = "Mcp-Session-Id: t\r\n") -> None:
    play.json(call, {"jsonrpc": "2.0", "id": "i", "result": WELCOME}, more=more)


def test_a_server_that_knows_the_session_no_more_gets_another_and_the_call_again():
    play = Play()
    play.begin()
    call = play.line(id=1, method="tools/call", params={"name": "f"})
    gone(play, call)
    again = max(play.opened)
    assert play.opened[again].endswith(
        b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}'
    )
    assert "mcp-session-id" not in play.fields(again)
    late = play.line(id=2, method="tools/list")
    assert late == again  # it waits
    welcomed(play, again)
    assert play.lines == []
    initialized, listens, first, second = sorted(play.opened)[-4:]
    assert b"notifications/initialized" in play.opened[initialized]
    assert play.opened[listens].startswith(b"GET ")
    assert b'"id":1,"method":"tools/call"' in play.opened[first]
    assert b'"id":2,"method":"tools/list"' in play.opened[second]
    assert {play.fields(each)["mcp-session-id"] for each in (initialized, listens, first)} == {"t"}
    play.json(first, {"jsonrpc": "2.0", "id": 1, "result": {"ok": True}})
    assert play.lines == [{"jsonrpc": "2.0", "id": 1, "result": {"ok": True}}]
    gone(play, second)  # once is enough
    assert "404" in play.lines[-1]["error"]["message"]


def test_calls_of_one_session_get_one_other():
    play = Play()
    play.begin()
    one = play.line(id=1, method="tools/list")
    two = play.line(id=2, method="tools/list")
    three = play.line(id=3, method="tools/list")
    gone(play, one)
    again = max(play.opened)
    gone(play, two)
    assert max(play.opened) == again
    welcomed(play, again, more="")  # a server may keep none
    count = len(play.opened)
    gone(play, three)
    assert len(play.opened) == count + 1
    assert b'"id":3' in play.opened[max(play.opened)]
    assert "mcp-session-id" not in play.fields(max(play.opened))


@pytest.mark.parametrize("status", [200, 400, 404, 503])
def test_where_no_other_session_is_begun_each_call_that_waits_is_told(status):
    play = Play()
    play.begin()
    gone(play, play.line(id=1, method="tools/list"))
    again = max(play.opened)
    play.line(method="notifications/progress", params={})
    play.line(id=2, method="tools/list")
    play.json(again, {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "m"}}, status)
    assert [line["id"] for line in play.lines] == [1, 2]
    assert all("begins no other" in line["error"]["message"] for line in play.lines)
    assert max(play.opened) == again
    tried = play.line(id=3, method="tools/list")
    assert b'"method":"initialize"' in play.opened[tried]
    welcomed(play, tried)
    assert b'"id":3,"method":"tools/list"' in play.opened[max(play.opened)]
    assert play.fields(max(play.opened))["mcp-session-id"] == "t"


def test_a_session_is_begun_in_none():
    play = Play()
    play.begin()
    call = play.line(id="j", method="initialize", params={})
    assert {"mcp-session-id", "mcp-protocol-version"}.isdisjoint(play.fields(call))


def test_a_client_that_begins_anew_isnt_begun_for():
    play = Play()
    play.begin()
    gone(play, play.line(id=1, method="tools/list"))
    play.remote.failed(max(play.opened), "it could not be reached.")
    play.on()
    assert len(play.lines) == 1
    play.begin()
    call = play.line(id=2, method="tools/list")
    assert b'"id":2,"method":"tools/list"' in play.opened[call]


def test_a_404_to_what_needs_no_answer_begins_nothing():
    play = Play()
    play.begin()
    told = play.line(method="notifications/initialized")
    gone(play, told)
    gone(play, told - 1)
    assert max(play.opened) == told
    assert play.lines == []


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
CHUNKED = STREAM.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")


@pytest.mark.parametrize("ends", ["closed", "broken", "failed"])
def test_a_stream_that_ends_too_soon_is_taken_up_where_it_ended(ends):
    play = Play()
    play.begin()
    call = play.line(id=1, method="tools/call", params={"name": "f"})
    if ends == "broken":
        play.hear(call, CHUNKED + b"d\r\nid: a\ndata:\n\n\r\n5\r\nid")
    else:
        play.hear(call, STREAM + b"id: a\ndata:\n\n")
    if ends == "failed":
        play.remote.failed(call, "its connection failed.")
        play.on()
    else:
        play.hear(call, b"")
    again = max(play.opened)
    assert play.lines == []
    assert play.dropped[-1] == call
    assert play.opened[again].startswith(b"GET ")
    assert play.fields(again)["last-event-id"] == "a"
    assert play.fields(again)["mcp-session-id"] == "s"
    assert play.after[again] == mcp_remote.AGAIN_S
    play.hear(again, STREAM + b"retry: 9000\nid: b\n\n")
    play.hear(again, b"")
    third = max(play.opened)
    assert play.fields(third)["last-event-id"] == "b"
    assert play.after[third] == 9.0
    play.hear(third, STREAM)
    play.hear(third, b"")
    fourth = max(play.opened)
    assert play.fields(fourth)["last-event-id"] == "b"
    play.hear(fourth, STREAM + b'data: {"jsonrpc":"2.0","id":1,"result":{"ok":1}}\n\n')
    assert play.lines == [{"jsonrpc": "2.0", "id": 1, "result": {"ok": 1}}]
    assert play.dropped[-1] == fourth


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 405 X\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 307 X\r\nLocation: https://evil.test/\r\nContent-Length: 0\r\n\r\n",
        b"",
    ],
)
def test_a_stream_that_cant_be_taken_up_ends_its_call(answer):
    play = Play()
    play.begin()
    call = play.line(id=1, method="tools/call", params={"name": "f"})
    play.hear(call, STREAM + b"id: a\ndata:\n\n")
    play.hear(call, b"")
    again = max(play.opened)
    play.hear(again, answer)
    play.hear(again, b"")
    assert [line["id"] for line in play.lines] == [1]
    assert "error" in play.lines[0]
    assert max(play.opened) == again


def test_a_stream_isnt_taken_up_without_end(monkeypatch):
    monkeypatch.setattr(mcp_remote, "POLLS_MAX", 2)
    play = Play()
    play.begin()
    play.line(id=1, method="tools/call", params={"name": "f"})
    for _ in range(3):
        play.hear(max(play.opened), STREAM + b"id: a\ndata:\n\n")
        play.hear(max(play.opened), b"")
    assert [line["id"] for line in play.lines] == [1]
    assert "error" in play.lines[0]


def test_what_nobody_waits_for_isnt_taken_up():
    play = Play()
    play.begin()
    call = play.line(id=1, method="tools/call", params={"name": "f"})
    play.hear(call, STREAM + b"id: a\ndata:\n\n")
    count = play.line(method="notifications/cancelled", params={"requestId": 1})
    play.hear(call, b"")
    assert max(play.opened) == count
    modern = Play()
    call = modern.line(id=1, method="tools/list", params={"_meta": MODERN_META})
    modern.hear(call, STREAM + b"id: a\ndata:\n\n")
    modern.hear(call, b"")
    assert max(modern.opened) == call
    assert "error" in modern.lines[0]


def test_the_servers_own_stream_is_opened_again():
    play = Play()
    play.begin()
    listens = play.line(method="notifications/initialized")
    play.hear(listens, STREAM + b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n')
    play.hear(listens, b"")
    again = max(play.opened)
    assert again > listens
    assert play.after[again] == mcp_remote.LISTEN_AGAIN_S
    assert "last-event-id" not in play.fields(again)
    play.hear(again, b"HTTP/1.1 405 X\r\nContent-Length: 0\r\n\r\n")
    assert max(play.opened) == again


def test_an_answer_of_another_id_is_not_an_answer():
    play = Play()
    call = play.line(id=1, method="x/y")
    play.json(call, {"jsonrpc": "2.0", "id": 2, "result": {}})
    assert "error" in play.lines[0]


def test_interim_answers_are_passed_over():
    play = Play()
    call = play.line(id=1, method="x/y")
    play.hear(call, b"HTTP/1.1 103 Hints\r\n\r\n")
    play.json(call, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert play.lines[0]["result"] == {}


def test_a_welcome_without_a_version_leaves_none():
    play = Play()
    play.begin(protocolVersion=7)
    assert "mcp-protocol-version" not in play.fields(play.line(id=1, method="tools/list"))
    plain = Play()
    call = plain.line(id="i", method="initialize", params={})
    plain.json(call, {"jsonrpc": "2.0", "id": "i", "result": []})
    assert "mcp-session-id" not in plain.fields(plain.line(id=1, method="tools/list"))


def test_the_current_revision_repeats_itself_in_fields():
    play = Play()
    params = {"name": "naïve", "_meta": MODERN_META}
    call = play.line(id=1, method="tools/call", params=params)
    fields = play.fields(call)
    assert fields["mcp-protocol-version"] == "2026-07-28"
    assert fields["mcp-method"] == "tools/call"
    assert fields["mcp-name"] == "=?base64?bmHDr3Zl?="
    plain = play.fields(play.line(id=2, method="tools/list", params={"_meta": MODERN_META}))
    assert "mcp-name" not in plain
    odd = {"name": "=?base64?x?=", "_meta": MODERN_META}
    assert play.fields(play.line(id=3, method="tools/call", params=odd))["mcp-name"] != odd["name"]


def test_a_call_of_the_current_revision_is_cancelled_by_its_connections_end():
    play = Play()
    call = play.line(id=1, method="tools/call", params={"name": "f", "_meta": MODERN_META})
    play.line(method="notifications/cancelled", params={"requestId": 9})
    play.line(method="notifications/other")
    assert play.dropped == []
    play.line(method="notifications/cancelled", params={"requestId": 1})
    assert play.dropped == [call]
    assert play.lines == []
    assert list(play.opened) == [call]


def test_what_is_no_message_goes_nowhere():
    play = Play()
    play.remote.line(b"hello")
    play.line(id=1, method=7)
    assert play.opened == {}
    assert [line["id"] for line in play.lines] == [1]


def test_no_more_calls_are_open_than_a_bound(monkeypatch):
    monkeypatch.setattr(mcp_remote, "CALLS_MAX", 1)
    play = Play()
    play.begin()
    play.line(id=1, method="x/y")
    play.line(id=2, method="x/y")
    play.line(method="notifications/progress")
    assert [line["id"] for line in play.lines] == [2]


def test_no_more_is_said_without_an_answer_than_a_bound(monkeypatch):
    monkeypatch.setattr(mcp_remote, "SAID_MAX_BYTES", 1000)
    play = Play()
    play.begin()
    calls = [play.line(id=n, method="x/y", params={"a": "x" * 400}) for n in range(4)]
    assert [line["id"] for line in play.lines] == [2, 3]
    # Who waits for a call no more has it cancelled, and it is open still.
    play.line(method="notifications/cancelled", params={"requestId": 0})
    play.line(id=4, method="x/y", params={"a": "x" * 400})
    assert [line["id"] for line in play.lines] == [2, 3, 4]
    play.json(calls[0], {"jsonrpc": "2.0", "id": 0, "result": {}})
    play.lines.clear()
    play.line(id=5, method="x/y", params={"a": "x" * 400})
    assert play.lines == []


def test_what_waits_for_another_session_counts_too(monkeypatch):
    monkeypatch.setattr(mcp_remote, "SAID_MAX_BYTES", 1000)
    play = Play()
    play.begin()
    lost = play.line(id=1, method="x/y", params={"a": "x" * 400})
    play.hear(lost, b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
    renews = max(play.opened)
    for number in (2, 3):
        play.line(id=number, method="x/y", params={"a": "x" * 400})
    assert [line["id"] for line in play.lines] == [3]
    play.json(renews, {"jsonrpc": "2.0", "id": "i", "result": WELCOME})
    play.line(id=4, method="x/y", params={"a": "x" * 400})
    assert [line["id"] for line in play.lines] == [3, 4]


def test_a_message_alone_may_be_longer_than_what_is_said_at_once(monkeypatch):
    monkeypatch.setattr(mcp_remote, "SAID_MAX_BYTES", 100)
    play = Play()
    play.line(id=1, method="x/y", params={"a": "x" * 400})
    assert len(play.opened) == 1


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_no_more_of_answers_is_held_than_a_bound(monkeypatch, kind):
    monkeypatch.setattr(mcp_remote, "HEARD_MAX_BYTES", 1000)
    play = Play()
    calls = [play.line(id=n, method="x/y") for n in range(3)]
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\ndata: ".encode()
    for call in calls:
        play.hear(call, head + b'"' + b"x" * 300)
    assert play.lines == []
    play.hear(calls[0], b"x" * 300)
    (told,) = play.lines
    assert (told["id"], told["error"]["code"]) == (0, -32603)
    play.hear(calls[1], b"x" * 300)
    assert len(play.lines) == 1


def test_an_answer_without_an_end_is_an_error(monkeypatch):
    monkeypatch.setattr(mcp_remote, "MESSAGE_MAX_BYTES", 10)
    play = Play()
    call = play.line(id=1, method="x/y")
    play.hear(call, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b"1" * 11)
    assert "error" in play.lines[0]
    call = play.line(id=2, method="x/y")
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "
    play.hear(call, stream + b"1" * 11)
    assert "error" in play.lines[1]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://tools.example.com/", "this machine"),
        ("https://tools.example.com/#x", "fragment"),
        ("https://bücher.example/", "ASCII"),
        ("https://u:p@tools.example.com/", "password"),
        ("http://0.0.0.0/", "this machine"),
    ],
)
def test_a_url_that_would_leak_the_token_is_refused(url, why):
    with pytest.raises(MalformedUrl, match=why):
        check_url(url)


@pytest.mark.parametrize("url", ["http://127.0.0.9:80/", "http://[::1]/", "http://localhost/x",
                                 "https://10.0.0.1/", "HTTPS://A.example"])  # fmt: skip
def test_https_goes_anywhere_and_http_to_this_machine(url):
    assert check_url(url)


def test_a_persons_own_fields_are_not_the_protocols():
    check_field("Authorization", "Bearer x")
    check_field("X_Key-1", "a b")
    for name, value in (
        ("Host", "x"), ("Mcp-Session-Id", "x"), ("a b", "x"), ("", "x"), ("é", "x"), ("A", ""),
        ("A", "x\r\nB: y"), ("A", " x"), ("A", "é"), ("A:", "x"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"field|value"):
            check_field(name, value)


@given(st.binary(max_size=200))
def test_whatever_the_server_says_one_answer_comes(data):
    one_input(data)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda p: p.name)
def test_the_corpus_holds(path):
    one_input(path.read_bytes())
