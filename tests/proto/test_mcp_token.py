"""A remote tool's token never comes back: `proto/verbs/mcp_token.py`."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from proto.codecs.jsonrpc import Message, Object, read
from proto.verbs.mcp_token import Token, holds_secret

SECRET = "tok/REAL+0123456789=="


def said(message: Message, *fields: tuple[str, str]) -> Any:
    line = Token(fields).out_of(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return json.loads(line)


def result(value: object) -> Message:
    return read(json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode())


@pytest.mark.parametrize(
    "echo",
    [
        {"content": [{"type": "text", "text": f"you sent Bearer {SECRET}!"}]},
        {SECRET: [1, True, None, 1.5]},
        [[f"x{SECRET}{SECRET}"]],
        {"text": json.dumps({"authorization": f"Bearer {SECRET}"}).replace("/", "\\/")},
        {"text": "?token=tok%2FREAL%2b0123456789%3D%3D"},
        {"text": f"\n{SECRET}\u00e9"},
    ],
)
def test_a_server_that_repeats_the_token_is_not_heard(echo: object) -> None:
    found = said(result(echo), ("Authorization", f"Bearer {SECRET}"))
    assert "0123456789" not in json.dumps(found)
    assert "*" in json.dumps(found)
    assert found["id"] == 1


def test_errors_requests_and_notifications_neither() -> None:
    fields = ("X-Api-Key", SECRET)
    params: Object = {"a": SECRET, "b": 2}  # type: ignore[dict-item]
    for text in (
        {"id": 7, "error": {"code": -1, "message": f"no {SECRET}", "data": SECRET}},
        {"id": 7, "method": "sampling/createMessage", "params": params},
        {"method": "notifications/message", "params": params},
        {"method": "notifications/message"},
    ):
        message = read(json.dumps({"jsonrpc": "2.0"} | text).encode())
        found = said(message, fields)
        assert SECRET not in json.dumps(found)
        assert found.keys() == {"jsonrpc", *text}


@pytest.mark.parametrize(
    ("field", "echo"),
    [
        (("Authorization", "Basic " + base64.b64encode(b"me:passw\xc3\xb6rd-1").decode()),
         "it is passw\u00f6rd-1, of me:passw\u00f6rd-1"),
        (("Authorization", "Basic " + base64.b64encode(b"me:\xb6rd-longer").decode()),
         "passw\u00f6rd-longer"),
        (("Cookie", "session=abcdef0123456789"), "it is abcdef0123456789"),
        (("Cookie", "a=b; session=abcdef0123456789;"), "it is abcdef0123456789"),
    ],
)  # fmt: skip
def test_what_a_secret_is_made_of_is_one_too(field: tuple[str, str], echo: str) -> None:
    found = said(result({"text": echo}), field)["result"]["text"]
    assert "*" in found
    assert not any(each in found for each in ("rd-1", "rd-longer", "0123456789"))


@pytest.mark.parametrize(
    "fields", [(), (("X-Team", "engineering"),), (("Authorization", "short"),),
               (("Authorization", "Basic no-base64"),)]
)  # fmt: skip
def test_everything_else_stays_as_it_was(fields: tuple[tuple[str, str], ...]) -> None:
    value = {"text": "engineering, in short: Basic \u00e9\n", "n": 1}
    assert said(result(value), *fields)["result"] == value


def test_a_token_shows_nowhere() -> None:
    assert repr(Token((("Authorization", SECRET),))) == "Token(...)"
    assert holds_secret("X-API-KEY")
    assert not holds_secret("X-Team")
