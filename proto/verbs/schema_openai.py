"""OpenAI's APIs, chat, responses and embeddings, and the dialects of those who speak chat too.

Each dialect adds its own fields to one table, so that a field of one provider's isn't taken
for another's.
"""

from __future__ import annotations

from proto.verbs.shapes import (
    ANY,
    Choice,
    Each,
    Inline,
    Known,
    ModelName,
    NoOther,
    Plain,
    Refused,
    Schema,
    ServerSide,
    Shape,
    TextOr,
    Tools,
    known,
    typed,
)

_NO_ANSWER = "the answer would have to be fetched later, which is no call that is let through"
_KEPT_PROMPT = Refused("a prompt that is kept at the provider can bring tools and models with it")
_PRESET = Refused("a preset that is kept at the provider can bring models and plugins with it")

# -- chat -----------------------------------------------------------------------------------

_MEDIA = Inline(known("detail", url=Inline()))
_PARTS = {
    "text": known("text cache_control prompt_cache_breakpoint"),
    "refusal": known("refusal"),
    "image_url": known("cache_control prompt_cache_breakpoint index", image_url=_MEDIA),
    "input_audio": known(
        "prompt_cache_breakpoint",
        input_audio=Inline(known("format", data=Inline(bare=True)), bare=True),
    ),
    "file": known(
        "file_id cache_control prompt_cache_breakpoint",
        file=known("file_id filename", file_data=Inline(bare=True)),
    ),
    "video_url": known(video_url=_MEDIA),
    "input_video": known(video_url=_MEDIA),
    "thinking": known(
        "signature closed",
        thinking=TextOr(
            Each(
                typed(
                    {
                        "text": known("text"),
                        "reference": known("reference_ids"),
                        "tool_reference": known("tool title url favicon description"),
                    }
                )
            )
        ),
    ),
}
_ANNOTATIONS = Each(
    typed(
        {
            "url_citation": known(url_citation=ANY),
            "file_citation": known(file_citation=ANY),
            "document_citation": known(document_citation=ANY),
            "function_citation": known(function_citation=ANY),
            # OpenRouter's, of what it read of a file: told again, it is read as the file is.
            "file": known(file=known("hash name", content=Each(typed(_PARTS)))),
        }
    )
)
"""What an answer was said to rest on."""

_MISTRALS_PARTS = {
    "document_url": known("document_name", document_url=Inline()),
    "reference": known("reference_ids"),
}

_GRAMMAR = known("type definition syntax", grammar=known("definition syntax"))
"""What a custom tool's input must be."""

_CHAT_KINDS = {
    "function": known(
        "type cache_control", function=known("name description strict", parameters=Schema())
    ),
    "custom": known("type", custom=known("name description", format=_GRAMMAR)),
}
CHAT_TOOLS = Tools(_CHAT_KINDS)
MISTRALS_TOOLS = Tools(_CHAT_KINDS, untyped="function")

_CHAT_FIELDS = (
    "frequency_penalty presence_penalty logit_bias logprobs top_logprobs max_tokens"
    " max_completion_tokens n seed stop stream stream_options temperature top_p user"
    " parallel_tool_calls reasoning_effort function_call metadata service_tier store"
)
_OPENAIS_FIELDS = (
    "audio modalities moderation prompt_cache_key prompt_cache_options prompt_cache_retention"
    " safety_identifier verbosity"
)


def chat(
    names: str,
    parts: dict[str, Known] | None = None,
    tools: Tools = CHAT_TOOLS,
    said: dict[str, Shape] | None = None,
    **shapes: Shape,
) -> Known:
    """Return the shape of a chat completion's request in one provider's dialect.

    `said`: what a message has beside the fields of all dialects.
    """
    content = TextOr(Each(typed({**_PARTS, **(parts or {})})))
    message = known(
        "role name tool_calls tool_call_id function_call refusal audio prefix reasoning"
        " reasoning_content reasoning_details cache_control",
        content=content,
        annotations=_ANNOTATIONS,
        **(said or {}),
    )
    form = known(
        "type",
        schema=Schema(),
        json_schema=known("name description strict", schema=Schema()),
    )
    return known(
        f"{_CHAT_FIELDS} {names}",
        model=ModelName(),
        messages=Each(message),
        tools=tools,
        tool_choice=Choice(tools),
        functions=Each(known("name description", parameters=Schema())),
        response_format=form,
        prediction=known("type", content=content),
        web_search_options=ServerSide(),
        **shapes,
    )


OPENAI_CHAT = chat(_OPENAIS_FIELDS)
MISTRAL_CHAT = chat(
    "random_seed safe_prompt min_tokens prompt_mode guardrails repetition_penalty top_k"
    " prompt_logprobs top_prompt_logprobs prompt_cache_key document_image_limit"
    " document_page_limit",
    _MISTRALS_PARTS,
    MISTRALS_TOOLS,
)
OPENROUTER_CHAT = chat(
    f"{_OPENAIS_FIELDS} route provider transforms usage reasoning include_reasoning top_k top_a"
    " min_p repetition_penalty structured_outputs session_id trace cache_control",
    said={"images": Each(known("type index", image_url=_MEDIA))},
    models=Each(ModelName()),
    plugins=ServerSide(),
    stop_server_tools_when=ServerSide(),
    preset=_PRESET,
    image_config=known("aspect_ratio image_size quality"),
)
XAI_CHAT = chat(
    "reasoning_effort", search_parameters=ServerSide(), deferred=NoOther(False, _NO_ANSWER)
)
DEEPSEEK_CHAT = chat("thinking user_id")
GROQ_CHAT = chat(
    "include_reasoning reasoning_format disable_tool_validation citation_options",
    {"document": known(document=known("id", data=ANY))},
    documents=Each(known("id", source=typed({"text": known("text"), "json": known(data=ANY)}))),
    compound_custom=ServerSide(),
    search_settings=ServerSide(),
    include_domains=ServerSide(),
    exclude_domains=ServerSide(),
)
FIM = known(
    "prompt suffix temperature top_p max_tokens min_tokens stream stop random_seed metadata"
    " prompt_cache_key",
    model=ModelName(),
)
"""Mistral's completion of code between a beginning and an end."""

EMBEDDINGS = known(
    "dimensions encoding_format user metadata output_dimension output_dtype",
    model=ModelName(),
    input=Plain(),
)

# -- responses ------------------------------------------------------------------------------

_SHELL = known("type allowed_callers", environment=typed({"local": known("skills")}))
_FUNCTION = known(
    "type name description strict async defer_loading allowed_callers",
    parameters=Schema(),
    output_schema=Schema(),
)
_KINDS = {
    "function": _FUNCTION,
    "custom": known("type name description async defer_loading allowed_callers", format=_GRAMMAR),
    "local_shell": known("type"),
    "apply_patch": known("type allowed_callers"),
    "shell": _SHELL,
}
RESPONSES_TOOLS = Tools(_KINDS, inside=frozenset({"namespace"}))
_KINDS["namespace"] = known("type name description", tools=RESPONSES_TOOLS)

_INPUT_PARTS = typed(
    {
        "input_text": known("text prompt_cache_breakpoint"),
        "output_text": known("text annotations logprobs"),
        "text": known("text"),
        "refusal": known("refusal"),
        "summary_text": known("text"),
        "reasoning_text": known("text"),
        "input_image": known("file_id detail prompt_cache_breakpoint", image_url=Inline()),
        "input_file": known(
            "file_id filename detail prompt_cache_breakpoint",
            file_data=Inline(bare=True),
            file_url=Inline(),
        ),
        "input_audio": known(input_audio=known("format", data=Inline(bare=True))),
        "computer_screenshot": known("file_id", image_url=Inline()),
    }
)
_PARTS_OR_TEXT = TextOr(Each(_INPUT_PARTS))
_CALL = "id call_id status caller"

_ITEMS = typed(
    {
        "message": known("role id status phase", content=_PARTS_OR_TEXT),
        "function_call": known(f"{_CALL} name arguments namespace async"),
        "function_call_output": known(f"{_CALL} name namespace", output=_PARTS_OR_TEXT),
        "custom_tool_call": known(f"{_CALL} name input namespace async"),
        "custom_tool_call_output": known(_CALL, output=_PARTS_OR_TEXT),
        "reasoning": known("id summary content encrypted_content status"),
        "local_shell_call": known(f"{_CALL} action"),
        "local_shell_call_output": known(f"{_CALL} output"),
        "shell_call": known(f"{_CALL} action environment"),
        "shell_call_output": known(f"{_CALL} output max_output_length"),
        "apply_patch_call": known(f"{_CALL} operation"),
        "apply_patch_call_output": known(f"{_CALL} output"),
        "computer_call": known(f"{_CALL} action actions pending_safety_checks"),
        "computer_call_output": known(
            f"{_CALL} acknowledged_safety_checks", output=_INPUT_PARTS
        ),
        "web_search_call": known("id action status"),
        "file_search_call": known("id queries status results"),
        "code_interpreter_call": known(
            "id code container_id status",
            outputs=Each(typed({"logs": known("logs"), "image": known(url=Inline())})),
        ),
        "image_generation_call": known(
            "id status revised_prompt size quality background action output_format svg_usage error",
            result=Inline(bare=True),
        ),
        "mcp_list_tools": known("id server_label tools error"),
        "mcp_call": known(
            "id arguments name server_label output error status approval_request_id"
        ),
        "item_reference": known("id"),
        "compaction": known("id encrypted_content"),
        "additional_tools": known("id role", tools=RESPONSES_TOOLS),
        "tool_search_call": known(f"{_CALL} arguments execution"),
        "tool_search_output": known(f"{_CALL} execution", tools=RESPONSES_TOOLS),
    },
    untyped="message",
)  # fmt: skip
"""An item without a type is a message (`EasyInputMessage`).  What a server-side tool once gave
stays, as in Anthropic's turns; an approval that would run one doesn't."""


def responses(names: str = "", **shapes: Shape) -> Known:
    """Return the shape of a request for a response."""
    form = known("type name description strict", schema=Schema())
    return known(
        "include max_output_tokens max_tool_calls metadata parallel_tool_calls prompt_cache_key"
        " prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier"
        " store stream stream_options temperature top_logprobs top_p truncation user moderation"
        f" context_management previous_response_id client_metadata {names}",
        model=ModelName(),
        input=TextOr(Each(_ITEMS)),
        instructions=Plain(),
        text=known("verbosity", format=form),
        tools=RESPONSES_TOOLS,
        tool_choice=Choice(RESPONSES_TOOLS),
        prompt=_KEPT_PROMPT,
        conversation=Refused("a conversation that is kept at the provider can't be judged here"),
        background=NoOther(False, _NO_ANSWER),
        **shapes,
    )


OPENAI_RESPONSES = responses(image=known("context_compression"))
XAI_RESPONSES = responses(search_parameters=ServerSide())
GROQ_RESPONSES = responses()
