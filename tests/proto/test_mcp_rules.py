"""What a call to a tool may be, and whether it asks: `mcp_rules.py` and `mcp_question.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proto.codecs.jsonrpc import Answer, Notification, Number, Request, parse
from proto.verbs import mcp_question
from proto.verbs.mcp_question import QUESTION_MAX_CHARS, hint_of, question
from proto.verbs.mcp_rules import (
    HEADER_MISMATCH,
    LEGACY,
    MODERN,
    QUIET,
    UNSUPPORTED_VERSION,
    Rule,
    Turned,
    accepted,
    asks,
    check_origin,
    check_request,
    meta_of,
    read_post,
)
from tests.proto.hub_stage import MODERN_META, head_of

ALL = Rule(asks=True, allow=frozenset({"read_note", "resources/read"}))
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def post(message: object, **fields: str):
    fields = {"content_type": "application/json"} | fields
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return read_post(head_of("POST", **fields), body)


def turned(message: object, **fields: str) -> Turned:
    with pytest.raises(Turned) as caught:
        post(message, **fields)
    return caught.value


def call(name: object, **more: object) -> dict[str, object]:
    params = {"name": name} | more
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.mark.parametrize(
    ("accept", "takes"),
    [
        (None, (True, True)),
        ("*/*", (True, True)),
        ("application/json, text/event-stream", (True, True)),
        ("application/json;q=0.9,TEXT/Event-Stream", (True, True)),
        ("application/*", (True, False)),
        ("text/*", (False, True)),
        ("application/json", (True, False)),
        ("text/html", (False, False)),
        ("application/jsonx, xtext/event-stream", (False, False)),
        ("application/json;q=0, text/event-stream", (False, True)),
        ("*/*, text/event-stream; Q=0.000", (True, False)),
        ("application/json;q=0.001, text/*;charset=utf-8;q=0", (True, False)),
    ],
)
def test_what_a_client_takes_is_read_off_its_accept(accept, takes):
    assert accepted(head_of("POST", **({} if accept is None else {"accept": accept}))) == takes


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "",
        "application/jsonx",
        "application/json; charset=utf-16",
        "application/json, text/plain",
        "multipart/form-data",
    ],
)
def test_only_json_is_taken(kind):
    assert turned(LIST, content_type=kind).status == 415


def test_a_body_in_a_coding_isnt_taken():
    assert turned(LIST, content_encoding="gzip").status == 415
    assert post(LIST, content_encoding="Identity").json


@pytest.mark.parametrize(
    "kind",
    [
        "application/json; charset=utf-8",
        "APPLICATION/JSON;Charset=UTF-8",
        'application/json; charset="utf-8"',
    ],
)
def test_json_in_utf_8_is_taken(kind):
    assert post(LIST, content_type=kind).message == Request(Number("1"), "tools/list", None)


def test_an_answer_that_isnt_taken_is_not_made():
    assert turned(LIST, accept="text/html").status == 406


def test_a_second_content_type_is_refused():
    fields = {"content_type": "application/json", "Content-Type": "text/plain"}
    assert turned(LIST, **fields).status == 400


@pytest.mark.parametrize("origin", ["https://evil.test", "http://localhost", "null", "x"])
def test_no_page_may_call(origin):
    with pytest.raises(Turned) as caught:
        check_origin(head_of("POST", origin=origin))
    assert caught.value.status == 403


def test_malformed_bodies_are_told_with_their_id():
    wrong = turned({"jsonrpc": "2.0", "id": "x", "method": 7})
    assert (wrong.status, wrong.id) == (400, "x")


@pytest.mark.parametrize("version", LEGACY)
def test_older_revisions_are_known(version):
    made = post(LIST, mcp_protocol_version=version)
    assert not made.modern


@pytest.mark.parametrize(
    "version", ["1999-01-01", "", "2025-06-18, 2025-11-25", "2027-01-01", "latest"]
)
def test_a_revision_that_isnt_known_is_refused(version):
    assert turned(LIST, mcp_protocol_version=version).code == UNSUPPORTED_VERSION
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert turned(note, mcp_protocol_version=version).id is None


def test_the_current_revision_says_so_in_field_and_body_alike():
    message = LIST | {"params": {"_meta": MODERN_META}}
    assert post(message, mcp_protocol_version=MODERN).modern
    assert turned(message).code == HEADER_MISMATCH
    assert turned(LIST, mcp_protocol_version=MODERN).code == HEADER_MISMATCH
    assert turned(message, mcp_protocol_version="2025-11-25").code == HEADER_MISMATCH
    answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert turned(answer, mcp_protocol_version=MODERN).code == HEADER_MISMATCH


def test_fields_that_repeat_the_body_must_agree_with_it():
    assert post(call("a b"), mcp_method="tools/call", mcp_name="=?base64?YSBi?=")
    assert post(call("read_note"), mcp_name="read_note")
    for fields in (
        {"mcp_method": "tools/list"},
        {"mcp_method": "TOOLS/CALL"},
        {"mcp_name": "read_note"},
        {"mcp_name": "=?base64?cmVhZF9ub3Rl?="},
        {"mcp_name": "=?base64?*?="},
        {"mcp_name": "=?base64?/w==?="},
    ):
        assert turned(call("delete_note"), **fields).code == HEADER_MISMATCH, fields
    assert turned(LIST, mcp_name="x").code == HEADER_MISMATCH
    assert post({"jsonrpc": "2.0", "id": 1, "result": {}}, mcp_method="x").message == Answer(
        Number("1"), result={}
    )


@pytest.mark.parametrize(
    "key",
    [
        "Name",
        "NAME",
        "ｎame",
        "nam\u0065\u200d".rstrip("\u200d").title(),
        "argumentſ",
        "URI",
        "_META",
        "RequestID",
        "inputresponses",
        "InputResponses",
        "Capabilities",
    ],
)
def test_a_parameter_spelled_nearly_as_another_is_refused(key):
    assert turned(call("read_note", **{key: "delete_note"})).status == 400


def test_other_parameters_may_be_spelled_as_they_like():
    assert post(call("read_note", Names=1, task={"ttl": 1}))


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("", None),
        ("tools/call ", {"name": "f"}),
        ("tools/call\0", {"name": "f"}),
        ("töols", None),
        ("a" * 129, None),
        ("notifications/initialized", None),
        ("tools/call", None),
        ("tools/call", {}),
        ("tools/call", {"name": 7}),
        ("tools/call", {"name": ""}),
        ("tools/call", {"name": ["f"]}),
        ("tools/call", {"name": "f" * 257}),
        ("tools/call", {"name": "f", "arguments": []}),
        ("tools/call", {"name": "f", "arguments": None}),
        ("tools/call", {"name": "f", "_meta": 7}),
        ("tools/call", {"name": "f", "_meta": {"progressToken": {"run": "x"}}}),
        ("tools/call", {"name": "f", "_meta": {"progressToken": "x" * 300}}),
        ("tools/call", {"name": "f", "_meta": {"progressToken": None}}),
        ("resources/read", {"name": "f"}),
        ("prompts/get", {"uri": "f"}),
        ("tools/call", {"name": "f", "inputResponses": [{"action": "accept"}]}),
        ("tools/call", {"name": "f", "inputResponses": {"a": {"roots": []}}}),
        ("tools/call", {"name": "f", "inputResponses": {"a": {}, "b": {"ROOTS": [{"uri": "/"}]}}}),
    ],
)
def test_a_request_that_isnt_whole_is_refused(method, params):
    with pytest.raises(Turned) as caught:
        check_request(Request(Number("1"), method, params))
    assert caught.value.status == 400
    assert caught.value.id == Number("1")


@pytest.mark.parametrize(
    ("method", "params", "is_asked"),
    [
        ("tools/call", {"name": "read_note"}, False),
        ("tools/call", {"name": "read_note "}, True),
        ("tools/call", {"name": "Read_note"}, True),
        ("tools/call", {"name": "re\u0430d_note"}, True),
        ("tools/call", {"name": "*"}, True),
        ("tools/call", {"name": "tools/list"}, True),
        ("resources/read", {"uri": "file:///x"}, False),
        ("prompts/get", {"name": "read_note"}, True),
        ("something/new", None, True),
        ("Tools/List", None, True),
        ("tasks/update", {}, True),
        ("read_note", {}, True),
        ("tools/call", {"name": "read_note", "inputResponses": None}, False),
        ("tools/call", {"name": "read_note", "inputResponses": {"a": {"model": "m"}}}, False),
        (
            "tools/call",
            {"name": "read_note", "inputResponses": {"a": {"action": "decline"}}},
            False,
        ),
        ("tools/call", {"name": "read_note", "inputResponses": {"a": {"action": "accept"}}}, True),
        (
            "tools/call",
            {
                "name": "read_note",
                "inputResponses": {"a": {"action": "cancel"}, "b": {"Action": "accept"}},
            },
            True,
        ),
        ("tools/list", {"inputResponses": {"a": {"action": "accept"}}}, True),
        *[(method, {}, False) for method in sorted(QUIET)],
    ],
)
def test_all_that_isnt_allowed_asks(method, params, is_asked):
    request = Request(Number("1"), method, params)
    check_request(request)
    assert asks(ALL, request) is is_asked
    assert asks(Rule(asks=False, allow=frozenset()), request) is False


def test_meta_is_what_is_there():
    assert meta_of(None) == meta_of({}) == meta_of({"_meta": 7}) == {}
    assert meta_of({"_meta": {"a": True}}) == {"a": True}


# The question.


def text_of(params: str, method: str = "tools/call", hint: str = "null") -> str:
    read, said = parse(params.encode()), parse(hint.encode())
    known = hint_of(said) if isinstance(said, dict) else None
    text = question("notes", Request(Number("1"), method, read), known)
    assert text is not None
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert "<" not in text
    return text


def test_a_question_shows_the_call_and_all_its_arguments():
    text = text_of(
        '{"name":"save","arguments":{"a":{"b":[1.50,{"c":true}],"d":{},"e":[]},"f":null}}'
    )
    assert text == (
        'call "save"\nof the tool "notes", which runs outside the sandbox\n\nwith:\n'
        '  {\n    "a": {\n      "b": [\n        1.50,\n        {\n          "c": true\n        }\n'
        '      ]\n      "d": {}\n      "e": []\n    }\n    "f": null\n  }'
    ).replace("1.50,", "1.50")


def test_a_question_says_where_there_are_no_arguments():
    assert "with no arguments" in text_of('{"name":"save"}')
    assert "with no arguments" in text_of('{"name":"save","arguments":{}}')
    assert "arguments" not in text_of("{}", "something/new")
    request = Request(Number("1"), "something/new", None)
    assert question("notes", request, None) == (
        '"something/new"\nof the tool "notes", which runs outside the sandbox'
    )


def test_nothing_in_a_question_can_look_like_something_else():
    argument = '"a\\nSandbox: b":"\\u007f<b>\\r\\u001b[2J\u2028é"'
    text = text_of(f'{{"name":"re\\u0430d\\u202e","arguments":{{{argument}}}}}')
    assert '"re\\u0430d\\u202e"' in text
    assert '"a\\nSandbox: b": "\\u007f\\u003cb>\\r\\u001b[2J\\u2028\\u00e9"' in text


def test_what_stands_beside_the_arguments_is_shown_too():
    text = text_of('{"name":"f","task":{"ttl":1},"_meta":{"progressToken":1,"x":2}}')
    assert '"ttl": 1' in text
    assert '"x": 2' in text
    assert "progressToken" not in text
    plain = text_of(json.dumps({"name": "f", "_meta": MODERN_META}))
    assert "beside" not in plain


def test_of_the_protocols_own_words_only_those_that_say_who_calls_are_not_shown():
    text = text_of('{"name":"f","_meta":{"io.modelcontextprotocol/run":"rm"}}')
    assert '"io.modelcontextprotocol/run": "rm"' in text


def test_arguments_are_shown_whatever_they_are_where_a_call_is_for_nothing_named():
    assert '"arguments": false' in text_of('{"arguments":false}', "something/new")
    assert '"x": 1' in text_of('{"arguments":{"x":1}}', "something/new")


def test_a_servers_hints_are_shown_as_its_own_word():
    said = '"readOnlyHint":true,"destructiveHint":false,"x":1,"idempotentHint":"y"'
    hint = f'{{"title":"T\\n","annotations":{{{said}}}}}'
    text = text_of('{"name":"f"}', hint=hint)
    assert "nobody has checked" in text
    assert '"T\\n"' in text
    assert "it changes nothing" in text
    assert "it destroys nothing" in text
    assert "twice" not in text
    for untitled in ('{"annotations":7,"title":7}', '{"annotations":{"readOnlyHint":true}}'):
        assert "its title" not in text_of('{"name":"f"}', hint=untitled)
    long = text_of('{"name":"f"}', hint=json.dumps({"annotations": {"title": "t" * 999}}))
    assert "t" * 201 not in long


def test_of_a_servers_word_no_more_is_kept_than_is_shown():
    said = {"title": "t" * 9999, "annotations": {"readOnlyHint": True, "x": ["y"] * 99}, "z": "z"}
    assert hint_of(parse(json.dumps(said).encode())) == {"title": "t" * 200, "readOnlyHint": True}
    assert hint_of({}) == {}


def test_a_call_that_nobody_would_read_whole_is_no_question():
    request = Request(Number("1"), "tools/call", {"name": "f", "arguments": {"a": "x" * 70_000}})
    assert question("notes", request, None) is None


def test_a_call_that_is_too_long_is_no_tree_first(monkeypatch):
    monkeypatch.setattr(mcp_question, "_tree", lambda *_: pytest.fail("it was made a tree"))
    deep = parse(b"[" * 80 + b",".join([b"1"] * QUESTION_MAX_CHARS) + b"]" * 80)
    params: dict[str, Any] = {"name": "f", "arguments": {"a": deep}}
    assert question("notes", Request(Number("1"), "tools/call", params), None) is None


def test_a_notification_has_no_id():
    assert post({"jsonrpc": "2.0", "method": "a"}).message == Notification("a", None)
