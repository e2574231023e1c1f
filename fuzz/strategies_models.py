"""Strategies for calls to hosted models: what bodies and heads of them are made of."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from fuzz.case_files import Case
from proto.verbs.providers import PROVIDERS

TARGETS = {
    "anthropic": ["/v1/messages", "/v1/messages/count_tokens"],
    "openai": ["/v1/chat/completions", "/v1/responses", "/v1/embeddings"],
    "google": [f"/v1beta/models/x:{each}" for each in
               ("generateContent", "countTokens", "embedContent", "batchEmbedContents")],
    "mistral": ["/v1/chat/completions", "/v1/fim/completions"],
    "openrouter": ["/api/v1/chat/completions"],
    "xai": ["/v1/chat/completions", "/v1/responses"],
    "deepseek": ["/chat/completions"],
    "groq": ["/openai/v1/chat/completions"],
}  # fmt: skip

KEYS = [
    "type", "model", "models", "messages", "input", "contents", "parts", "content", "role", "text",
    "source", "url", "image_url", "file_data", "fileData", "file_data", "fileUri", "file_uri",
    "inlineData", "data", "tools", "functionDeclarations", "function_declarations", "function",
    "name", "parameters", "input_schema", "tool_choice", "mcp_servers", "container", "plugins",
    "search_parameters", "web_search_options", "file", "definition", "tool", "systemInstruction",
    "system_instruction", "output", "environment", "system", "fallbacks", "requests", "$ref",
    "tool_changes", "generateContentRequest", "Tools", "format", "schema", "response_format",
]  # fmt: skip
TYPES = [
    "text", "image", "document", "url", "base64", "content", "tool_result", "tool_addition",
    "tool_definition", "web_search_20250305", "bash_20250124", "custom", "function", "mcp", "shell",
    "namespace", "web_search", "image_url", "file", "input_audio", "input_image", "input_file",
    "input_text", "message", "additional_tools", "tool_search_output", "function_call_output",
    "local", "video_url", "document_url", "computer_call_output", "allowed_tools", "compaction",
    "web_fetch_tool_result", "mcp_tool_result", "search_result", "json_schema", "file_id",
]  # fmt: skip
TEXTS = [
    "https://evil.test/x", "data:image/png;base64,aGk=", "aGk=", "files/abc", "m", "x/y:online",
    "perplexity/sonar", "gpt-4o-search-preview", "", "#/a", "auto", "evil.test", "\u0000", "hi",
]  # fmt: skip

LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(TEXTS) | st.sampled_from(TYPES)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
        | st.builds(
            lambda kind, rest: {**rest, "type": kind},
            st.sampled_from(TYPES),
            st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
        )
    ),
    max_leaves=30,
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Draw a call's first line and a body that may well be one of its schema."""
    provider = draw(st.sampled_from(sorted(PROVIDERS)))
    path = draw(st.sampled_from(TARGETS[provider]))
    body = {"model": "m", **draw(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))}
    if provider == "google":
        del body["model"]
    return f"{provider} {path}\n".encode() + json.dumps(body).encode()


HEAD_PIECES = [
    "/", "/v1", "/v1beta", "/models", "/messages", "/chat/completions", "/x", ":generateContent",
    "?", "key=", "&", "alt=sse", "beta=true", "%2f", "%2e", "..", ".", ";", "\\", "#", "@",
    "lnk-placeholder", "/openai", "/api", "/responses", "=", "+", "%", "~", "*",
]  # fmt: skip
FIELD_LINES = [
    "x-api-key: lnk-placeholder", "authorization: Bearer lnk-placeholder",
    "x-goog-api-key: lnk-placeholder", "x-api-key: other", "content-type: application/json",
    "content-type: text/plain", "content-encoding: gzip", "user-agent: lnk-placeholder",
    "anthropic-beta: a", "x-stainless-a: b", "cookie: a", "content-length: 2",
]  # fmt: skip


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """Draw a provider, a method, a target and fields."""
    provider = draw(st.sampled_from(sorted(PROVIDERS)))
    method = draw(st.sampled_from(["POST", "GET", "DELETE"]))
    pieces = draw(st.lists(st.sampled_from(HEAD_PIECES), max_size=8))
    target = draw(st.sampled_from([*TARGETS[provider], "".join(pieces)]))
    target += draw(st.sampled_from(["", "".join(pieces)]))
    lines = draw(st.lists(st.sampled_from(FIELD_LINES), max_size=5))
    text = f"{provider} {method} {target}\n" + "".join(f"{line}\r\n" for line in lines)
    return text.encode("latin-1")


def changed_bodies(cases: list[Case]) -> st.SearchStrategy[bytes]:
    """Return a strategy of calls of these cases, some of whose parts are other cases' parts."""
    calls = [(case, body) for case in cases if (body := _body_of(case)) is not None]
    parts = [part for _, body in calls for part in _parts(body)]
    names = sorted({name for part in parts if isinstance(part, dict) for name in part})

    @st.composite
    def changed(draw: st.DrawFn) -> bytes:
        case, body = draw(st.sampled_from(calls))
        body = copy.deepcopy(body)
        for _ in range(draw(st.integers(1, 4))):
            holders = [part for part in _parts(body) if part and isinstance(part, dict | list)]
            if not holders:
                break
            _change(draw, draw(st.sampled_from(holders)), parts, names)
        about = f"{case['config']['provider']} {case['input']['path']}\n"
        return about.encode() + json.dumps(body).encode()

    return changed()


def _change(draw: st.DrawFn, holder: Any, parts: list[Any], names: list[str]) -> None:
    """Put another part into an object or a list, take one out, or give one another name."""
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    at = draw(st.sampled_from(list(keys)))
    part = copy.deepcopy(draw(st.sampled_from(parts)))
    match draw(st.integers(0, 3)):
        case 0:
            holder[at] = part
        case 1 if isinstance(holder, dict):
            holder[draw(st.sampled_from(names))] = part
        case 2 if isinstance(holder, dict):
            holder[draw(st.sampled_from(names))] = holder.pop(at)
        case 1 | 2:
            holder.insert(at, part)
        case _:
            del holder[at]


def _body_of(case: Case) -> Any:
    """Return the body of a case's call, if it is an object."""
    text = case["input"].get("body") or ""
    if case["input"]["method"] != "POST" or len(text) > 2000:
        return None
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value and all that is in it."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _parts(each)
