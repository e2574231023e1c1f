"""What an answer says of the tokens it took: `proto/verbs/metering.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proto.codecs.http1 import ResponseHead
from proto.verbs import metering
from proto.verbs.metering import UNMETERED, Meter, Tokens
from proto.verbs.providers import Usage

PLAIN = ResponseHead((1, 1), 200, b"OK", ((b"Content-Type", b"application/json"),))
STREAM = ResponseHead((1, 1), 200, b"OK", ((b"Content-Type", b"Text/Event-Stream; charset=utf-8"),))
BARE = ResponseHead((1, 1), 200, b"OK", ())


def plain(usage: Usage, body: object) -> Tokens:
    meter = Meter(usage, PLAIN)
    meter.feed(json.dumps(body).encode())
    return meter.tokens()


def streamed(usage: Usage, *events: object) -> Tokens:
    text = (
        "".join(f"event: e\ndata: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n"
    )
    meter = Meter(usage, STREAM)
    for at in range(0, len(text), 5):
        meter.feed(text.encode()[at : at + 5])
    return meter.tokens()


ANTHROPICS = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 200,
    "cache_read_input_tokens": 3000,
    "output_tokens": 40,
    "service_tier": "standard",
    "cache_creation": {"ephemeral_5m_input_tokens": 200},
}


def test_of_a_stream_no_count_is_kept_that_nobody_reads() -> None:
    meter = Meter(Usage.CHAT, STREAM)
    for number in range(100):
        meter.feed(f'data: {{"usage": {{"x{number}": 1, "prompt_tokens": 2}}}}\n\n'.encode())
    assert meter._counts == {"prompt_tokens": 2}
    assert plain(Usage.CHAT, {"usage": {"x": 1}}) == UNMETERED


def test_anthropics_three_parts_are_summed() -> None:
    due = Tokens(1, 0, 3210, 40, 3000, 200)
    assert plain(Usage.ANTHROPIC, {"type": "message", "usage": ANTHROPICS}) == due
    start = {"type": "message_start", "message": {"usage": {**ANTHROPICS, "output_tokens": 1}}}
    delta = {"type": "message_delta", "usage": {"output_tokens": 40}}
    assert streamed(Usage.ANTHROPIC, start, {"type": "ping"}, delta) == due


def test_a_stream_that_is_cut_counts_as_far_as_it_told() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}
    meter = Meter(Usage.ANTHROPIC, STREAM)
    meter.feed(f"data: {json.dumps(start)}\n\ndata: {{".encode())
    assert meter.tokens() == Tokens(1, 0, 7, 1)


def test_chats_usage() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    due = Tokens(1, 0, 100, 20, 64)
    assert plain(Usage.CHAT, {"usage": usage}) == due
    assert streamed(Usage.CHAT, {"usage": None}, {"choices": [], "usage": usage}) == due
    assert streamed(Usage.CHAT, {"x_groq": {"usage": usage}}) == due


def test_what_was_thought_beside_the_answer_counts_as_the_answers() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 42}
    assert plain(Usage.CHAT, {"usage": usage}) == Tokens(1, 0, 10, 32)


def test_deepseek_and_openrouter_tell_of_the_cache_in_their_own_words() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}
    assert plain(Usage.CHAT, {"usage": usage}) == Tokens(1, 0, 10, 2, 8)
    details = {"cached_tokens": 3, "cache_write_tokens": 4}
    written = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": details}
    assert plain(Usage.CHAT, {"usage": written}) == Tokens(1, 0, 9, 1, 3, 4)


def test_embeddings_have_no_answer_to_count() -> None:
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    assert plain(Usage.CHAT, {"data": [], "usage": usage}) == Tokens(1, 0, 8)


def test_responses_usage() -> None:
    usage = {"input_tokens": 9, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}
    due = Tokens(1, 0, 9, 3, 4)
    assert plain(Usage.RESPONSES, {"object": "response", "usage": usage}) == due
    done = {"type": "response.completed", "response": {"usage": usage}}
    created = {"type": "response.created", "response": {"usage": None}}
    assert streamed(Usage.RESPONSES, created, done) == due


def test_googles_usage_stands_in_each_piece_and_the_last_one_counts() -> None:
    def piece(**counts: int) -> dict[str, Any]:
        return {"candidates": [], "usageMetadata": {"promptTokenCount": 5, **counts}}

    last = piece(
        candidatesTokenCount=7,
        thoughtsTokenCount=2,
        cachedContentTokenCount=3,
        toolUsePromptTokenCount=1,
    )
    due = Tokens(1, 0, 6, 9, 3)
    assert plain(Usage.GOOGLE, last) == due
    assert streamed(Usage.GOOGLE, piece(), last) == due
    assert plain(Usage.GOOGLE, [piece(), last]) == due


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"usage": None},
        {"usage": 3},
        {"usage": {"prompt_tokens": "3"}},
        {"usage": {"prompt_tokens": -3}},
        {"usage": {"prompt_tokens": True}},
        {"usage": {"prompt_tokens": 2**60}},
        {"usage": {"prompt_tokens": 1.5}},
        {"message": 3},
        [3, "usage"],
        "usage",
    ],
)
def test_an_answer_without_usage_is_unmetered(body: object) -> None:
    for usage in (Usage.ANTHROPIC, Usage.CHAT, Usage.RESPONSES, Usage.GOOGLE):
        assert plain(usage, body) == UNMETERED
        assert streamed(usage, body) == UNMETERED


@pytest.mark.parametrize("body", [b"", b"{", b"usage \xff", b"[" * 100_000, b"<html>usage"])
def test_an_answer_that_can_not_be_read_is_unmetered(body: bytes) -> None:
    for head in (PLAIN, BARE, STREAM):
        meter = Meter(Usage.CHAT, head)
        meter.feed(body)
        assert meter.tokens() == UNMETERED
    stream = Meter(Usage.CHAT, STREAM)
    stream.feed(b"data: " + body.replace(b"usage", b'"usage"') + b"\n\n")
    assert stream.tokens() == UNMETERED


def test_an_answer_that_is_too_long_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "PLAIN_MAX_BYTES", 100)
    meter = Meter(Usage.CHAT, PLAIN)
    meter.feed(b'{"usage":{"prompt_tokens":1},"x":"' + b"x" * 100)
    meter.feed(b'"}')
    assert meter.tokens() == UNMETERED


def test_tokens_have_the_names_that_they_are_published_by() -> None:
    assert Tokens(1, 0, 3210, 40, 3000, 200).counts() == {
        "requests": 1,
        "unmetered": 0,
        "input": 3210,
        "output": 40,
        "cached": 3000,
        "written": 200,
    }
