"""Anthropic's Messages API: what of a request's body is understood.

A block of an earlier turn may be what a server-side tool once gave.  It stays: nobody fetches
what it tells of, and without the tool nothing of it runs.  A block that would bring a tool
of its own is judged as the list of tools is.
"""

from __future__ import annotations

import re

from proto.verbs.shapes import (
    ANY,
    ByType,
    Choice,
    Each,
    Given,
    Known,
    ModelName,
    OneTool,
    Refused,
    Schema,
    ServerSide,
    TextOr,
    Tools,
    known,
    typed,
)

FETCHED = Refused("the provider would fetch it from its URL; send the data itself")

_CUSTOM = known(
    "type name description cache_control strict defer_loading allowed_callers"
    " eager_input_streaming input_examples",
    input_schema=Schema(),
)
_RUN_INSIDE = known(
    "type name cache_control strict defer_loading allowed_callers input_examples max_characters"
    " display_width_px display_height_px display_number enable_zoom"
)
TOOLS = Tools(
    {"custom": _CUSTOM},
    _RUN_INSIDE,
    re.compile(r"(?:bash|text_editor|computer|memory)_[0-9]{8}"),
    untyped="custom",
)

_BLOCKS: dict[str, Known] = {}
BLOCK = ByType(_BLOCKS)
CONTENT = TextOr(Each(BLOCK))

SOURCE = typed(
    {
        "base64": known("media_type data"),
        "text": known("media_type data"),
        "file": known("file_id"),
        "content": known(content=CONTENT),
        "url": known(url=FETCHED),
    }
)
_FETCH_RESULT = typed(
    {
        "web_fetch_result": known("url retrieved_at", content=BLOCK),
        "web_fetch_tool_result_error": known("error_code"),
    }
)
_CHANGED_TOOL = typed(
    {"tool_reference": known("name"), "tool_definition": known(definition=OneTool(TOOLS))}
)
_HOP = known("model")
_RESULT = known("tool_use_id cache_control caller", content=Given())

_BLOCKS |= typed(
    {
        "text": known("text cache_control citations"),
        "image": known("cache_control transformations", source=SOURCE),
        "document": known("cache_control citations context title", source=SOURCE),
        "search_result": known("source title cache_control citations", content=CONTENT),
        "thinking": known("thinking signature"),
        "redacted_thinking": known("data"),
        "tool_use": known("id name input cache_control caller toolset_name"),
        "tool_result": known("tool_use_id is_error cache_control toolset_name", content=CONTENT),
        "tool_reference": known("tool_name cache_control"),
        "server_tool_use": known("id name input cache_control caller"),
        "web_search_tool_result": _RESULT,
        "web_fetch_tool_result": known("tool_use_id cache_control caller", content=_FETCH_RESULT),
        "code_execution_tool_result": _RESULT,
        "bash_code_execution_tool_result": _RESULT,
        "text_editor_code_execution_tool_result": _RESULT,
        "advisor_tool_result": _RESULT,
        "tool_search_tool_result": _RESULT,
        "mcp_tool_use": known("id name input server_name cache_control"),
        "mcp_tool_result": known("tool_use_id is_error cache_control", content=CONTENT),
        "container_upload": known("file_id cache_control"),
        "compaction": known(
            "content encrypted_content signature cache_control", tool_changes=Each(BLOCK)
        ),
        "mid_conv_system": known("cache_control", content=CONTENT),
        # Where another model went on: the answer's turn goes back as it came.
        "fallback": Known({"from": _HOP, "to": _HOP, "trigger": ANY}),
        "tool_addition": known("cache_control", tool=_CHANGED_TOOL),
        "tool_removal": known("cache_control", tool=_CHANGED_TOOL),
    }
).types

_FORMAT = known("type", schema=Schema())
_OUTPUT = known("effort task_budget", format=_FORMAT)

MESSAGES = known(
    "max_tokens stop_sequences stream temperature top_p top_k metadata thinking service_tier"
    " cache_control inference_geo speed context_management compaction",
    model=ModelName(),
    messages=Each(known("role clear_at", content=CONTENT, output_config=_OUTPUT)),
    system=CONTENT,
    tools=TOOLS,
    tool_choice=Choice(TOOLS),
    output_config=_OUTPUT,
    output_format=_FORMAT,
    fallbacks=Each(known("max_tokens speed thinking", model=ModelName(), output_config=_OUTPUT)),
    mcp_servers=ServerSide(),
    container=ServerSide(),
    diagnostics=ANY,
)
"""`thread`, `workspace_id`, `user_profile_id` and the like name what is kept at the provider,
or whose account pays: they aren't listed, and so are refused."""
