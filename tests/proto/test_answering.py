"""A provider's answer, as the program gets it: `proto/verbs/answering.py`."""

from __future__ import annotations

import pytest

from proto.codecs.http1 import ResponseHead
from proto.errors import BadAnswer
from proto.verbs.answering import KEPT_OUTSIDE, ModelAnswer
from proto.verbs.metering import Tokens
from proto.verbs.providers import Usage

KEY = b"sk-REAL-key"


def answer(usage: Usage = Usage.CHAT) -> ModelAnswer:
    return ModelAnswer(usage, KEY)


def head(status: int = 200, *fields: tuple[bytes, bytes]) -> ResponseHead:
    return ResponseHead((1, 1), status, b"", fields)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_is_not_passed_on(status: int) -> None:
    with pytest.raises(BadAnswer):
        answer().head(head(status, (b"Location", b"https://evil.test/")))


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"identity, gzip", b""])
def test_an_answer_in_a_coding_is_not_passed_on(coding: bytes) -> None:
    with pytest.raises(BadAnswer):
        answer().head(head(200, (b"Content-Encoding", coding)))
    assert answer().head(head(200, (b"Content-Encoding", b"Identity")))


@pytest.mark.parametrize("status", [200, 201, 204, 400, 401, 403, 429, 500, 503, 529])
def test_a_status_and_its_fields_pass_without_what_concerns_the_providers_host(status: int) -> None:
    passed = ((b"Retry-After", b"3"), (b"request-id", b"r"), (b"anthropic-ratelimit-x", b"1"))
    outside = tuple((name.title(), b"x") for name in KEPT_OUTSIDE)
    assert answer().head(head(status, *passed, *outside)).fields == passed


def test_the_key_is_struck_out_of_fields_reason_and_body() -> None:
    made = answer()
    said = ResponseHead((1, 1), 401, b"no " + KEY, ((b"X-Echo", b"Bearer " + KEY),))
    found = made.head(said)
    assert found.reason == b"no ***********"
    assert found.fields == ((b"X-Echo", b"Bearer ***********"),)
    went = made.body(b'{"error":"wrong key sk-RE') + made.body(b'AL-key"}') + made.end()
    assert went == b'{"error":"wrong key ***********"}'


def test_only_an_answer_of_a_models_is_counted() -> None:
    body = b'{"usage":{"prompt_tokens":3,"completion_tokens":1}}'
    counted = answer()
    counted.head(head(200, (b"Content-Type", b"application/json")))
    assert counted.body(body) == body
    assert counted.end() == b""
    assert counted.tokens() == Tokens(1, 0, 3, 1)
    for usage, status in ((Usage.CHAT, 429), (Usage.CHAT, 529), (Usage.NONE, 200)):
        other = answer(usage)
        other.head(head(status))
        other.body(body)
        assert other.tokens() == Tokens()
    assert answer().tokens() == Tokens()
