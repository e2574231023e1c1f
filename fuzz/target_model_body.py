"""Fuzz target: bodies of calls to hosted models (`proto.verbs.judging`).

Its corpus is `corpus/model_body`: a line with the provider and the path, then the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from proto.codecs.http1 import RequestHead
from proto.errors import ProxyError
from proto.verbs.model import ModelCall, ModelRoute, read_call
from proto.verbs.providers import PROVIDERS, Place

KEY, HELD = "sk-real-key", "lnk-placeholder"
RUNS_INSIDE = re.compile(
    r"function|custom|local_shell|apply_patch|shell|namespace"
    r"|(?:bash|text_editor|computer|memory)_[0-9]{8}"
)
SOURCES = ("image_url", "url", "document_url", "file_url", "video_url", "file_data", "fileUri",
           "file_uri")  # fmt: skip
DATA = re.compile(r"(?i)data:|[0-9a-z+/=_\r\n-]*\Z|(?:https://generativelanguage\.g.*/)?files/")
OPAQUE = frozenset(
    {"input", "input_schema", "parameters", "schema", "citations", "annotations", "metadata",
     "arguments", "functionCall", "function_call", "response", "results", "action", "content_"}
)  # fmt: skip
"""What the program hands to its own tools, or was told by a provider: nobody fetches from it."""


SAID = re.compile(
    r"(?:web_search|code_execution|bash_code_execution|text_editor_code_execution|tool_search)"
    r"_tool_result|[a-z_]*_call|mcp_list_tools|reasoning|tool_use|server_tool_use|mcp_tool_use"
)
"""Blocks and items that tell what a model, or a tool of a provider's, once said."""


def call_of(provider: str, path: str) -> ModelCall:
    """Return a call to a provider, as its bridge has it once the head is judged."""
    name, place = next(iter(PROVIDERS[provider].sent.items()))
    value = HELD if place is Place.BARE else f"Bearer {HELD}"
    fields = ((name, value.encode()), (b"Content-Type", b"application/json"), (b"Host", b"x"))
    head = RequestHead("POST", path.encode(), (1, 1), fields)
    route = ModelRoute.of(PROVIDERS[provider], KEY, HELD, server_tools=False, listed=True)
    return read_call(route, head, path.encode())


def one_input(data: bytes) -> None:
    """Judge a body: what goes on reads alike to others, stays as it is, and asks for nothing."""
    about, _, body = data.partition(b"\n")
    provider, _, path = about.decode("latin-1").partition(" ")
    if provider not in PROVIDERS:
        return
    try:
        call = call_of(provider, path)
        sent = call.body(body)
    except ProxyError:
        return
    assert sent is not None
    said = json.loads(sent)
    assert call.body(sent) == sent
    for place, tool in tools_in(said):
        assert RUNS_INSIDE.fullmatch(str(tool.get("type", "function"))), (place, tool)
        if "type" not in tool:
            assert not set(tool) - {
                "name", "description", "input_schema", "cache_control", "strict", "defer_loading",
                "allowed_callers", "eager_input_streaming", "input_examples", "function",
                "functionDeclarations", "function_declarations",
            }, tool  # fmt: skip
    for place, address in addresses_in(said, ""):
        assert DATA.match(address), (place, address)


def tools_in(value: object, place: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Yield every tool, wherever a list of that name stands."""
    if isinstance(value, list):
        for each in value:
            yield from tools_in(each, place)
    if isinstance(value, dict) and not SAID.fullmatch(str(value.get("type", ""))):
        for name, inner in value.items():
            if name in OPAQUE and not (name == "input" and place == ""):
                continue
            if name == "tools" and isinstance(inner, list):
                for tool in inner:
                    assert isinstance(tool, dict), (place, tool)
                    yield f"{place}.{name}", tool
            if name == "mcp_servers":
                raise AssertionError("MCP servers of the provider's")
            yield from tools_in(inner, f"{place}.{name}")


def addresses_in(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield every text that stands where a source's address would."""
    if isinstance(value, list):
        for each in value:
            yield from addresses_in(each, place)
    if isinstance(value, dict):
        if SAID.fullmatch(str(value.get("type", ""))):
            return
        for name, inner in value.items():
            if name in OPAQUE and not (name == "input" and place == ""):
                continue
            if value.get("type") == "web_fetch_result" and name == "url":
                continue  # where an earlier answer was from
            if name in SOURCES and isinstance(inner, str):
                yield f"{place}.{name}", inner
            yield from addresses_in(inner, f"{place}.{name}")
