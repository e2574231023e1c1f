"""Bodies judged by their shapes: `proto/verbs/judging.py`, `shapes.py` and the schemas."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from proto.codecs.strict_json import NotJson
from proto.errors import Refused
from proto.verbs import schema_anthropic, schema_google, schema_openai
from proto.verbs.judging import BodyRefused, Judge, UnknownField
from proto.verbs.shapes import (
    ANY,
    Each,
    Given,
    Inline,
    Known,
    NoOther,
    OneTool,
    Plain,
    TextOr,
    Tools,
    known,
    spelt_twice,
    typed,
)
from proto.verbs.shapes import Refused as RefusedShape

CLOSED = Judge(False, lambda _: False)
OPEN = Judge(True, lambda _: False)


def judged(body: object, shape: Known, judge: Judge = CLOSED) -> Any:
    before = copy.deepcopy(body)
    found = judge.body(body, shape, names_model=False)
    assert body == before  # what was read is never changed
    return found


def only(**shapes: Any) -> Known:
    return known(**shapes)


# -- shapes, one by one ---------------------------------------------------------------------


def test_a_field_that_is_not_known_is_refused_by_its_place_and_its_name_is_not_in_the_log() -> None:
    shape = only(a=Each(only(b=ANY)))
    with pytest.raises(UnknownField) as error:
        judged({"a": [{"b": 1, "secret-word": 2}]}, shape)
    assert error.value.message == "the request's a[]: it has a field that isn't known here."
    assert error.value.aside == "(secret-word)"
    assert error.value.status_hint == 400
    with pytest.raises(UnknownField):
        judged({"x" * 1000: 1}, shape)


@pytest.mark.parametrize("body", [[], "{}", None, 1, True])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(NotJson):
        CLOSED.body(body, only(), names_model=False)


def test_null_is_as_good_as_nothing_but_in_a_list() -> None:
    shape = only(a=Each(ANY), b=only(), c=RefusedShape("no"), d=Inline(), e=Plain())
    body = dict.fromkeys("abcde")
    assert judged(body, shape) == body
    with pytest.raises(UnknownField):
        judged({"a": [None]}, shape)


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        (Each(ANY), {}),
        (Each(ANY), "x"),
        (only(), []),
        (only(), "x"),
        (TextOr(Each(ANY)), 1),
        (typed({"t": only()}), {"type": "u"}),
        (typed({"t": only()}), {"type": None}),
        (typed({"t": only()}), {"type": ["t"]}),
        (typed({"t": only()}), {}),
        (typed({"t": only()}), {"type": "t", "x": 1}),
        (Inline(), 1),
        (Inline(), {}),
        (Plain(), {}),
        (Plain(), [[{}]]),
        (Tools({}), {}),
        (Tools({}), "x"),
    ],
)
def test_what_is_not_of_a_places_shape_is_refused(shape: Any, value: object) -> None:
    with pytest.raises(UnknownField):
        judged({"a": value}, only(a=shape))


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        (TextOr(Each(ANY)), "x"),
        (TextOr(Each(ANY)), ["x"]),
        (typed({"t": only(x=ANY)}, untyped="t"), {"x": 1}),
        (Plain(), ["a", 1, [2.5, True, None]]),
        (NoOther(False, "no"), False),
        (Inline(only(url=Inline())), {"url": "data:,"}),
    ],
)
def test_what_is_of_a_places_shape_passes(shape: Any, value: object) -> None:
    assert judged({"a": value}, only(a=shape)) == {"a": value}


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        (NoOther(False, "w"), True),
        (NoOther(False, "w"), 0),
        (RefusedShape("w"), "x"),
        (RefusedShape("w"), False),
    ],
)
def test_a_place_that_takes_nothing_says_why(shape: Any, value: object) -> None:
    with pytest.raises(BodyRefused, match=r"^the request's a: w\.$") as error:
        judged({"a": value}, only(a=shape))
    assert isinstance(error.value, Refused)
    assert error.value.status_hint == 403


def test_one_object_stands_for_a_list_of_it_where_its_reader_takes_it_so() -> None:
    alone = only(a=Each(only(b=Inline()), or_one=True))
    assert judged({"a": {"b": "data:,"}}, alone) == {"a": [{"b": "data:,"}]}
    assert judged({"a": [{"b": "data:,"}]}, alone) == {"a": [{"b": "data:,"}]}
    for value, error in (
        ({"b": "//a.test"}, BodyRefused),
        ({"c": 1}, UnknownField),
        ("x", UnknownField),
    ):
        with pytest.raises(error):
            judged({"a": value}, alone)


def test_what_a_tool_once_gave_holds_no_source_to_fetch_now() -> None:
    given = {"url": "https://a.test", "source": "a.test", "inner": [{"type": "x"}, None, 1]}
    assert judged({"a": given}, only(a=Given())) == {"a": given}
    for value in ({"source": {}}, [{"x": [{"source": {"type": "url"}}]}], {"x": {"source": {}}}):
        with pytest.raises(BodyRefused, match="would fetch"):
            judged({"a": value}, only(a=Given()))


@pytest.mark.parametrize(
    ("schema", "turn"),
    [
        (
            schema_openai.OPENROUTER_CHAT,
            {
                "annotations": [
                    {
                        "type": "file",
                        "file": {"content": [{"type": "image_url", "image_url": "URL"}]},
                    }
                ]
            },
        ),
        (
            schema_openai.MISTRAL_CHAT,
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "image_url", "image_url": "URL"}]}
                ]
            },
        ),
    ],
)
def test_no_address_passes_in_what_was_once_read_or_thought(schema: Known, turn: object) -> None:
    assert isinstance(turn, dict)
    with pytest.raises((BodyRefused, UnknownField)):
        judged({"messages": [{"role": "assistant", **turn}]}, schema)


def test_nor_in_an_image_that_an_interpreter_once_drew() -> None:
    def drew(url: str) -> object:
        outputs = [{"type": "logs", "logs": "1"}, {"type": "image", "url": url}]
        call = {"type": "code_interpreter_call", "id": "c", "code": "1", "outputs": outputs}
        return {"input": [call]}

    inline = drew("data:image/png;base64,aGk=")
    assert judged(inline, schema_openai.OPENAI_RESPONSES) == inline
    for judge in (CLOSED, OPEN):
        with pytest.raises(BodyRefused, match="would fetch"):
            judged(drew("https://a.test/x.png"), schema_openai.OPENAI_RESPONSES, judge)


def test_an_answer_by_several_models_goes_back_as_it_came() -> None:
    hop = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    said = {"type": "mid_conv_system", "content": [{"type": "text", "text": "s"}]}
    advised = {"type": "advisor_tool_result", "tool_use_id": "t", "content": {"type": "x"}}
    body = {"messages": [{"role": "assistant", "content": [hop, said, advised]}]}
    assert judged(body, schema_anthropic.MESSAGES) == body
    more = {**hop, "to": {"model": "b", "tools": []}}
    with pytest.raises(UnknownField):
        judged({"messages": [{"role": "user", "content": [more]}]}, schema_anthropic.MESSAGES)


def test_what_was_once_read_of_a_file_is_told_again() -> None:
    told = {"type": "file", "file": {"hash": "h", "content": [{"type": "text", "text": "x"}]}}
    body = {"messages": [{"role": "assistant", "annotations": [told]}]}
    assert judged(body, schema_openai.OPENROUTER_CHAT) == body


def test_with_the_last_tool_goes_what_is_an_error_without_any() -> None:
    gone = {"tools": [{"type": "web_search"}], "tool_choice": "auto", "parallel_tool_calls": True}
    assert judged(gone, schema_openai.OPENAI_CHAT) == {}
    kept = {"tools": [], "parallel_tool_calls": True}
    assert judged(kept, schema_openai.OPENAI_CHAT) == kept


def test_one_tool_at_google_is_a_list_of_it() -> None:
    mine = {"functionDeclarations": [{"name": "f"}]}
    body = {"tools": {**mine, "googleSearch": {}}}
    assert judged(body, schema_google.GENERATE) == {"tools": [mine]}
    assert judged({"tools": {"googleSearch": {}}}, schema_google.GENERATE) == {}
    assert judged(body, schema_google.GENERATE, OPEN) == body


def test_googles_own_example_of_one_content_with_one_part_is_a_request() -> None:
    said = {"parts": {"text": "hi"}}
    assert judged({"contents": said, "system_instruction": said}, schema_google.GENERATE) == {
        "contents": [{"parts": [{"text": "hi"}]}],
        "system_instruction": {"parts": [{"text": "hi"}]},
    }


def test_a_field_spelt_in_two_ways_is_one_field() -> None:
    shape = spelt_twice(only(fileData=ANY, role=ANY))
    assert judged({"file_data": 1, "role": 2}, shape) == {"file_data": 1, "role": 2}
    for body in ({"file_data": 1, "fileData": 1}, {"fileData": 1, "file_data": 1}):
        with pytest.raises(UnknownField, match="twice"):
            judged(body, shape)
    for name in ("FileData", "file-data", "filedata", "file_Data", "FILE_DATA", "_role", "Role"):
        with pytest.raises(UnknownField):
            judged({name: 1}, shape)


# -- data in the request, and what would be fetched -----------------------------------------

ADDRESSES = [
    "https://evil.test/x.png",
    "HTTPS://EVIL.TEST/",
    " https://evil.test/",
    "\thttps://evil.test",
    "https:\\\\evil.test\\x",
    "https:evil.test",
    "ftp://evil.test/",
    "gs://bucket/x",
    "s3://b/x",
    "file:///etc/passwd",
    "blob:x",
    "javascript:1",
    "data",
    "data:",
    "data:text/html",
    "evil.test",
    "evil.test/x",
    "192.0.2.1",
    "[::1]",
    "localhost",
    "x:y",
    "datа:image/png;base64,aGk=",
    " data:,x",
    "data :,x",
    "data:,https://evil.test",
    "data:x,y:z",
    "data:image/png;base64,aGk=\n:",
    "view-source:data:,x",
    "data:,x\thttps:",
    "data:,x y",
    "data://evil.test/x",
    "Data://evil.test/x,",
    "data:evil.test,x",
    "data:a/b/c,x",
    "data:;,x",
    "data:image/png;/evil.test,x",
    "data:,\x00",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_address_passes_for_data(address: str) -> None:
    with pytest.raises(BodyRefused, match="would fetch"):
        judged({"a": address}, only(a=Inline()))


@pytest.mark.parametrize("address", [each for each in ADDRESSES if re.search(r"[^\w]", each)])
def test_nor_for_bare_base64(address: str) -> None:
    with pytest.raises(BodyRefused):
        judged({"a": address}, only(a=Inline(bare=True)))


@pytest.mark.parametrize(
    "data",
    [
        "data:image/png;base64,iVBORw0KGgo=",
        "DATA:text/plain;charset=utf-8,aGk",
        "data:image/svg+xml;base64,PHN2Zz4=",
        "data:application/pdf;name=a.pdf;base64,JVBERi0=",
        "data:;base64,aGk=",
        "data:,",
    ],
)
def test_data_in_the_request_passes(data: str) -> None:
    assert judged({"a": data}, only(a=Inline())) == {"a": data}
    assert judged({"a": data}, only(a=Inline(bare=True))) == {"a": data}


def test_bare_base64_passes_only_where_the_field_takes_no_address() -> None:
    for data in ("aGk=", "/9j/4AAQ", "aG-k_", "aGk=\r\naGk=", ""):
        assert judged({"a": data}, only(a=Inline(bare=True))) == {"a": data}
        with pytest.raises(BodyRefused):
            judged({"a": data}, only(a=Inline()))


def test_only_what_is_kept_with_the_providers_own_files_passes_by_its_address() -> None:
    shape = only(a=Inline(kept=schema_google.KEPT_FILE))
    base = "https://generativelanguage.googleapis.com/v1beta/files/"
    for kept in (base + "abc-123", "files/abc", base.replace("v1beta", "v1") + "x"):
        assert judged({"a": kept}, shape)
    for other in (
        base,
        base + "a/b",
        base + "..",
        base + "a?x",
        base + "A",
        base + "a\n",
        base[:-6] + "x/a",
        "http" + base[5:] + "a",
        base.replace("googleapis.com", "googleapis.com.evil.test") + "a",
        base.replace("https://", "https://x@") + "a",
        "files/../x",
        "https://youtu.be/x",
    ):
        with pytest.raises(BodyRefused):
            judged({"a": other}, shape)


# -- schemas of the program's own -----------------------------------------------------------


@pytest.mark.parametrize("word", ["$ref", "$dynamicRef", "$recursiveRef"])
@pytest.mark.parametrize(
    "to", ["https://evil.test/s.json", "//evil.test", "other.json", "", "x#/a"]
)
def test_a_schema_that_points_out_of_itself_is_refused(word: str, to: str) -> None:
    schema = {"type": "object", "properties": {"a": [{word: to}]}}
    for shape, body in (
        (schema_anthropic.MESSAGES, {"tools": [{"name": "f", "input_schema": schema}]}),
        (schema_anthropic.MESSAGES, {"output_format": {"type": "json_schema", "schema": schema}}),
        (schema_openai.OPENAI_CHAT, {"response_format": {"json_schema": {"schema": schema}}}),
        (schema_openai.OPENAI_RESPONSES, {"text": {"format": {"schema": schema}}}),
        (schema_google.GENERATE, {"generationConfig": {"response_json_schema": schema}}),
    ):
        with pytest.raises(BodyRefused, match="would fetch"):
            judged(body, shape)


def test_a_schema_that_points_into_itself_passes_and_so_do_properties_of_that_name() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/a",
        "required": ["url"],
        "properties": {"$ref": {"type": "string"}, "url": {"format": "uri"}},
    }
    body = {"tools": [{"name": "f", "input_schema": schema}]}
    assert judged(body, schema_anthropic.MESSAGES) == body


# -- models ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        " x",
        "x ",
        "x\n",
        "x y",
        "x\u00a0",
        "é",
        "x@preset/y",
        "@preset/y",
        1,
        [],
        {},
        True,
        "x" * 300,
        "../x",
        "x\x00",
        "x?y",
        "x#y",
        "x,y",
        "x%20",
    ],
)
def test_a_model_that_can_not_be_judged_is_refused(name: object) -> None:
    for body in ({"model": name}, {}):
        with pytest.raises(BodyRefused, match="model's name"):
            CLOSED.body(body, schema_openai.OPENAI_CHAT, names_model=True)


def test_models_are_judged_wherever_they_are_named_and_in_small_letters() -> None:
    judge = Judge(False, lambda name: name == "finder")
    for shape, body in (
        (schema_openai.OPENAI_CHAT, {"model": "Finder"}),
        (schema_openai.OPENROUTER_CHAT, {"models": ["x", "FINDER"]}),
        (schema_anthropic.MESSAGES, {"fallbacks": [{"model": "finder"}]}),
        (schema_google.COUNT, {"generateContentRequest": {"model": "finder"}}),
        (schema_google.EMBED_MANY, {"requests": [{"model": "finder"}]}),
    ):
        with pytest.raises(BodyRefused, match="searches"):
            judged(body, shape, judge)
    for names in ([None], "x", {}):
        with pytest.raises(Refused):
            judged({"models": names}, schema_openai.OPENROUTER_CHAT, judge)


# -- tools ----------------------------------------------------------------------------------

FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FLAT = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CUSTOM = {"name": "f", "input_schema": {"type": "object"}}


def tools_left(tools: list[Any], shape: Known, **more: Any) -> Any:
    return judged({"tools": tools, **more}, shape)


@pytest.mark.parametrize(
    "kind", [1, None, [], {}, True, "", "mcp", "FUNCTION", "function ", "code"]
)
def test_a_tool_of_any_other_type_goes(kind: object) -> None:
    other = {**FUNCTION, "type": kind}
    assert tools_left([other, FUNCTION], schema_openai.OPENAI_CHAT) == {"tools": [FUNCTION]}
    assert tools_left([other], schema_openai.OPENAI_CHAT) == {}


@pytest.mark.parametrize("tool", ["web_search", 1, None, ["function"], [FUNCTION]])
def test_a_tool_that_is_no_object_goes(tool: object) -> None:
    for shape, mine in (
        (schema_openai.OPENAI_CHAT, FUNCTION),
        (schema_anthropic.MESSAGES, CUSTOM),
        (schema_google.GENERATE, {"functionDeclarations": [{"name": "f"}]}),
    ):
        assert tools_left([tool, mine], shape) == {"tools": [mine]}


@pytest.mark.parametrize(
    ("kind", "stays"),
    [
        ("bash_20241022", True),
        ("text_editor_20250728", True),
        ("computer_20251124", True),
        ("memory_20250818", True),
        ("bash_99991231", True),
        ("custom", True),
        ("bash", False),
        ("bash_2025012", False),
        ("bash_202501244", False),
        ("xbash_20250124", False),
        ("bash_20250124 ", False),
        ("bash_2025012\u0664", False),
        ("computer_toolset_20260801", False),
        ("browser_toolset_20260801", False),
        ("code_execution_20250825", False),
        ("tool_search_tool_regex_20251119", False),
        ("advisor_20260301", False),
        ("mcp_toolset", False),
    ],
)
def test_of_anthropics_tools_those_stay_that_the_program_runs(kind: str, stays: bool) -> None:
    tool = {"type": kind, "name": "x"}
    left = tools_left([tool, CUSTOM], schema_anthropic.MESSAGES)
    assert left == {"tools": [tool, CUSTOM] if stays else [CUSTOM]}


def test_a_tool_that_stays_has_no_field_that_is_not_known() -> None:
    for more in ("Type", "server_url", "TYPE", "environment"):
        with pytest.raises(UnknownField):
            tools_left([{**FUNCTION, more: "mcp"}], schema_openai.OPENAI_CHAT)
        with pytest.raises(UnknownField):
            tools_left([{**CUSTOM, more: "web_search_20250305"}], schema_anthropic.MESSAGES)


def test_where_server_side_tools_are_allowed_all_stay() -> None:
    body = {
        "tools": [{"type": "mcp", "server_url": "https://mcp.example.com"}, "x"],
        "tool_choice": {"type": "mcp"},
        "web_search_options": {},
    }
    assert judged(body, schema_openai.OPENAI_CHAT, OPEN) == body
    body = {"mcp_servers": [{"url": "https://mcp.example.com"}], "container": "c", "tools": []}
    assert judged(body, schema_anthropic.MESSAGES, OPEN) == body
    body = {"tools": [{"googleSearch": {}}]}
    assert judged(body, schema_google.GENERATE, OPEN) == body
    block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": "x"}}
    message = {"messages": [{"role": "system", "content": [block]}]}
    assert judged(message, schema_anthropic.MESSAGES, OPEN) == message


def test_but_a_source_that_would_be_fetched_does_not() -> None:
    source = {"type": "url", "url": "https://evil.test/x.png"}
    body = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    with pytest.raises(BodyRefused):
        judged(body, schema_anthropic.MESSAGES, OPEN)


def test_what_asks_for_a_search_by_another_way_goes() -> None:
    for shape, names in (
        (schema_openai.OPENAI_CHAT, ["web_search_options"]),
        (schema_openai.XAI_CHAT, ["search_parameters", "web_search_options"]),
        (schema_openai.XAI_RESPONSES, ["search_parameters"]),
        (schema_openai.OPENROUTER_CHAT, ["plugins", "web_search_options"]),
        (schema_openai.GROQ_CHAT, ["compound_custom", "search_settings", "include_domains"]),
        (schema_anthropic.MESSAGES, ["mcp_servers", "container"]),
    ):
        for name in names:
            assert judged({name: {"x": 1}}, shape) == {}


def test_a_shell_stays_where_it_is_the_programs_own() -> None:
    local = {"type": "shell", "environment": {"type": "local"}}
    assert tools_left([local], schema_openai.OPENAI_RESPONSES) == {"tools": [local]}
    for environment in (None, {}, "local", {"type": "container_auto"}, {"type": ["local"]}):
        other = {"type": "shell", "environment": environment}
        assert tools_left([other], schema_openai.OPENAI_RESPONSES) == {}
    assert tools_left([{"type": "shell"}], schema_openai.OPENAI_RESPONSES) == {}
    two = {"type": "local", "container_id": "c"}
    with pytest.raises(UnknownField):
        tools_left([{**local, "environment": two}], schema_openai.OPENAI_RESPONSES)


def test_a_namespace_keeps_the_programs_own_tools_and_goes_without_any() -> None:
    mcp = {"type": "mcp", "server_url": "https://mcp.example.com"}
    space = {"type": "namespace", "name": "n", "tools": [mcp, FLAT]}
    left = {**space, "tools": [FLAT]}
    assert tools_left([space], schema_openai.OPENAI_RESPONSES) == {"tools": [left]}
    assert tools_left([{**space, "tools": [mcp]}], schema_openai.OPENAI_RESPONSES) == {}
    assert tools_left([{"type": "namespace", "name": "n"}], schema_openai.OPENAI_RESPONSES) == {}
    inner = {**space, "tools": [{**space, "tools": [mcp]}, FLAT]}
    assert tools_left([inner], schema_openai.OPENAI_RESPONSES) == {"tools": [left]}


@pytest.mark.parametrize("item", ["additional_tools", "tool_search_output"])
def test_an_item_that_brings_tools_is_judged_as_the_list_is(item: str) -> None:
    body = {"input": [{"type": item, "tools": [{"type": "web_search"}, FLAT]}]}
    left = {"input": [{"type": item, "tools": [FLAT]}]}
    assert judged(body, schema_openai.OPENAI_RESPONSES) == left


def test_a_block_that_brings_one_tool_is_refused_where_that_runs_at_the_provider() -> None:
    def body(definition: object) -> dict[str, Any]:
        tool = {"type": "tool_definition", "definition": definition}
        block = {"type": "tool_addition", "tool": tool}
        return {"messages": [{"role": "system", "content": [block]}]}

    assert judged(body(CUSTOM), schema_anthropic.MESSAGES) == body(CUSTOM)
    for definition in ({"type": "web_search_20250305"}, "x", []):
        with pytest.raises(BodyRefused, match="runs at the provider"):
            judged(body(definition), schema_anthropic.MESSAGES)
    assert judged({"a": None}, only(a=OneTool(schema_anthropic.TOOLS))) == {"a": None}


def test_of_googles_tools_only_declarations_stay() -> None:
    mine = {"function_declarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}
    mixed = {**mine, "googleSearch": {}, "codeExecution": {}}
    assert tools_left([mixed], schema_google.GENERATE) == {"tools": [mine]}
    assert tools_left([{"googleSearch": {}}, {}], schema_google.GENERATE) == {}
    both = {**mine, "functionDeclarations": []}
    with pytest.raises(UnknownField):
        tools_left([both], schema_google.GENERATE)


# -- which tool must be used ----------------------------------------------------------------

GONE = {"type": "web_search_20250305", "name": "web_search"}


def test_a_choice_of_a_tool_that_has_gone_goes() -> None:
    choice = {"type": "tool", "name": "web_search"}
    left = tools_left([GONE, CUSTOM], schema_anthropic.MESSAGES, tool_choice=choice)
    assert left == {"tools": [CUSTOM]}
    assert tools_left([GONE], schema_anthropic.MESSAGES, tool_choice={"type": "any"}) == {}
    for name in ([], None, 1):
        odd = {"type": "tool", "name": name}
        left = tools_left([GONE, CUSTOM], schema_anthropic.MESSAGES, tool_choice=odd)
        assert left == {"tools": [CUSTOM], "tool_choice": odd}
    for odd in ([], 1, True, {"type": "tool", "name": {}}, {"type": "any", "x": 1}):
        with pytest.raises(UnknownField):
            tools_left([GONE, CUSTOM], schema_anthropic.MESSAGES, tool_choice=odd)
    both = {"name": "web_search", "input_schema": {}}
    left = tools_left([GONE, both], schema_anthropic.MESSAGES, tool_choice=choice)
    assert left == {"tools": [both], "tool_choice": choice}
    assert tools_left([GONE], schema_openai.OPENAI_CHAT, tool_choice="required") == {}
    assert judged({"tool_choice": choice}, schema_anthropic.MESSAGES) == {"tool_choice": choice}
    assert judged({"tools": [], "tool_choice": "auto"}, schema_openai.OPENAI_CHAT) == {
        "tools": [],
        "tool_choice": "auto",
    }


@pytest.mark.parametrize(
    "choice",
    [
        "auto",
        "none",
        "required",
        {"type": "function", "name": "f"},
        {"type": "auto"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        None,
    ],
)
def test_a_choice_of_what_is_left_stays(choice: object) -> None:
    left = tools_left([FLAT], schema_openai.OPENAI_RESPONSES, tool_choice=choice)
    assert left == {"tools": [FLAT], "tool_choice": choice}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "web_search"},
        {"type": "mcp", "server_label": "s"},
        {"type": 1},
        {},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
        {"type": "allowed_tools", "tools": []},
        {"type": "allowed_tools", "tools": "x"},
        {"type": "allowed_tools", "tools": [1]},
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "tools": [{"type": {}}, {"type": []}, {}]},
        {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "web_search"}]}},
    ],
)
def test_any_other_choice_goes(choice: object) -> None:
    left = tools_left([FLAT], schema_openai.OPENAI_RESPONSES, tool_choice=choice)
    assert left == {"tools": [FLAT]}


def test_a_list_of_allowed_tools_loses_those_that_have_gone() -> None:
    mine, other = {"type": "function", "name": "f"}, {"type": "web_search"}
    flat = {"type": "allowed_tools", "mode": "auto", "tools": [other, mine]}
    left = tools_left([FLAT], schema_openai.OPENAI_RESPONSES, tool_choice=flat)
    assert left["tool_choice"] == {**flat, "tools": [mine]}
    nested = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [mine, other]}}
    left = tools_left([FUNCTION], schema_openai.OPENAI_CHAT, tool_choice=nested)
    assert left["tool_choice"]["allowed_tools"] == {"mode": "auto", "tools": [mine]}


# -- depth ----------------------------------------------------------------------------------


def test_a_body_nested_too_deeply_is_refused_and_nothing_breaks() -> None:
    block: Any = {"type": "text", "text": "x"}
    for _ in range(400):
        block = {"type": "tool_result", "content": [block]}
    with pytest.raises(NotJson, match="deeply"):
        CLOSED.body(
            {"messages": [{"content": [block]}]}, schema_anthropic.MESSAGES, names_model=False
        )


def test_what_is_passed_is_what_was_judged() -> None:
    body = json.loads(
        '{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],'
        '"system":[{"type":"text","text":"y","cache_control":{"type":"ephemeral"}}]}'
    )
    assert CLOSED.body(body, schema_anthropic.MESSAGES, names_model=True) == body


def test_codexs_calls_pass() -> None:
    """As its 0.171 sends them; an empty namespace of tools goes, as any without the program's."""
    tools = {"type": "additional_tools", "role": "developer", "id": "at_1", "tools": []}
    space = {"type": "namespace", "name": "collaboration", "description": "d", "tools": [FLAT]}
    empty = {**space, "tools": []}
    body = {
        "model": "m", "input": [tools], "tools": [FLAT, space], "tool_choice": "auto",
        "parallel_tool_calls": True, "reasoning": {"summary": "auto"}, "store": False,
        "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
        "client_metadata": {"x": "y"},
    }  # fmt: skip
    asked = {**body, "input": [{**tools, "tools": [empty]}]}
    assert judged(asked, schema_openai.OPENAI_RESPONSES) == body
