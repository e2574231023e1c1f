"""Judges a body by its shape, and returns it as it may go on.

Nothing is passed that isn't understood: what an object has beside the fields that are known
is refused, with its place.  What runs at the provider is taken out, so that a program that
asks for it as a matter of course still gets its answer; what the provider would fetch is
refused, so that the program learns why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec

from proto.codecs.strict_json import NotJson
from proto.errors import Refused as Refusal
from proto.verbs.shapes import (
    CHOSEN,
    SOME_CHOSEN,
    Anything,
    ByType,
    Choice,
    Each,
    Given,
    Inline,
    Known,
    ModelName,
    NoOther,
    OneTool,
    Plain,
    Refused,
    Schema,
    ServerSide,
    Shape,
    TextOr,
    Tools,
    ToolsByKey,
)

FETCHED = "the provider would fetch it; send the data itself"
NAME_SHOWN_CHARS = 40

_BASE64 = r"[0-9A-Za-z+/=_\r\n-]*"
_BARE = re.compile(_BASE64)
"""Base64 of either alphabet: without `:` and `.` no reader can find a scheme or a host in it."""
_WORD = r"[0-9A-Za-z.+_-]+"
_DATA_URL = re.compile(
    rf"[Dd][Aa][Tt][Aa]:(?:{_WORD}/{_WORD})?(?:;{_WORD}(?:={_WORD})?)*," + _BASE64
)
"""A `data:` URL (RFC 2397), of base64.  No `//host/` stands where its media type does, which a
reader that doesn't know the scheme in capitals would take for a server."""

_NAME = re.compile(r"~?[0-9A-Za-z][0-9A-Za-z._:/+-]{0,254}")
"""A model's name: no space that a provider would trim, and no `@`, which names a preset."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class BodyRefused(Refusal):
    """A body that can't go on as it is.

    The message holds no word of the program's own, for it is logged.  `shown` is the name
    that it is about, for the answer alone.
    """

    def __init__(self, place: str, why: str, shown: str = "") -> None:
        super().__init__(f"the request's {place}: {why}.")
        self.aside = f"({shown[:NAME_SHOWN_CHARS]})" if shown else ""


class UnknownField(BodyRefused):
    """A field, or a type, that isn't understood here: the request is malformed to us."""

    status_hint = 400
    phrase = "Bad Request"


class Judge(msgspec.Struct):
    """Judges one body.  `searches` tells of a model's name whether it searches by nature.

    `server_tools`: the policy allows what runs at the provider.
    """

    server_tools: bool
    searches: Callable[[str], bool]

    def body(self, value: object, shape: Known, *, names_model: bool) -> dict[str, object]:
        """Return the body as it may go on; UnknownField, NotJson (400), BodyRefused (403).

        `names_model`: it must name the model, which the path doesn't.
        """
        if not isinstance(value, dict):
            raise NotJson("the body is no JSON object.")
        if names_model:
            self._model(value.get("model"), "model")
        try:
            judged = self._known(value, shape, "body")
        except RecursionError:
            raise NotJson("the body is nested too deeply.") from None
        tools = judged.get("tools")
        if tools == [] and value["tools"] != []:
            # A list that has become empty is an error to some, and so is a choice from none.
            for name in ("tools", "tool_choice", "parallel_tool_calls"):
                judged.pop(name, None)
        return judged

    def _judge(self, value: object, shape: Shape, place: str) -> object:  # noqa: C901
        """Return a value as it may stand at a place.  Null is as good as nothing everywhere."""
        if value is None:
            return None
        match shape:
            case Anything():
                return value
            case Known():
                return self._known(_object(value, place), shape, place)
            case Each(item, or_one):
                inside = f"{place}[]"
                every = [value] if or_one and isinstance(value, dict) else _list(value, place)
                return [self._present(each, item, inside) for each in every]
            case TextOr(other):
                return value if isinstance(value, str) else self._judge(value, other, place)
            case ByType():
                return self._by_type(_object(value, place), shape, place)
            case Inline():
                return self._inline(value, shape, place)
            case Schema():
                _check_references(value, place)
                return value
            case Given():
                _check_sources(value, place)
                return value
            case Plain():
                _check_plain(value, place)
                return value
            case ModelName():
                return self._model(value, place)
            case NoOther(only, reason):
                if value is not only:
                    raise BodyRefused(place, reason)
                return value
            case Refused(reason):
                raise BodyRefused(place, reason)
            case Tools():
                return self._tools(value, shape, place)
            case OneTool(tools):
                return self._one_tool(value, tools, place)
            case ToolsByKey():
                return self._tools_by_key(value, shape, place)
            case Choice() | ServerSide():
                return value  # `_known` judges the one, and has taken the other out
            case _:
                assert_never(shape)

    def _present(self, value: object, shape: Shape, place: str) -> object:
        if value is None:
            raise UnknownField(place, "null stands where there must be something")
        return self._judge(value, shape, place)

    def _known(self, value: dict[str, object], shape: Known, place: str) -> dict[str, object]:
        judged: dict[str, object] = {}
        seen: set[str] = set()
        for name, inner in value.items():
            field = _field_of(name, shape)
            if field is None:
                raise UnknownField(place, "it has a field that isn't known here", name)
            if field in seen:
                raise UnknownField(f"{place}.{field}", "it stands there twice, spelt in two ways")
            seen.add(field)
            wanted = shape.fields[field]
            if isinstance(wanted, ServerSide) and not self.server_tools:
                continue
            inside = field if place == "body" else f"{place}.{field}"
            judged[name] = self._judge(inner, wanted, inside)
        self._choose(value, judged, shape)
        return judged

    def _by_type(self, value: dict[str, object], shape: ByType, place: str) -> dict[str, object]:
        kind = value.get("type", shape.untyped)
        if not isinstance(kind, str) or kind not in shape.types:
            shown = kind if isinstance(kind, str) else ""
            raise UnknownField(place, "it has a type that isn't known here", shown)
        return self._known(value, shape.types[kind], place)

    def _inline(self, value: object, shape: Inline, place: str) -> object:
        if isinstance(value, dict) and shape.other is not None:
            return self._judge(value, shape.other, place)
        if not isinstance(value, str):
            raise UnknownField(place, "it is no text")
        if _DATA_URL.fullmatch(value) or (shape.bare and _BARE.fullmatch(value)):
            return value
        if shape.kept is not None and shape.kept.fullmatch(value):
            return value
        raise BodyRefused(place, FETCHED)

    def _model(self, value: object, place: str) -> object:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise BodyRefused(place, "it must be a model's name, so that it can be judged")
        if self.searches(value.lower()):
            raise BodyRefused(
                place,
                "this model searches the web whatever it is asked, or chooses another by itself;"
                " it needs server_tools, or no list of hosts",
            )
        return value

    # -- tools ------------------------------------------------------------------------------

    def _tools(self, value: object, shape: Tools, place: str) -> object:
        if self.server_tools:
            return value
        found: list[object] = []
        for tool in _list(value, place):
            kind = kind_of(tool, shape)
            if kind is None or not isinstance(tool, dict):
                continue
            judged = self._known(tool, kind, f"{place}[]")
            if tool.get("type") not in shape.inside or judged.get("tools"):
                found.append(judged)
        return found

    def _one_tool(self, value: object, shape: Tools, place: str) -> object:
        if self.server_tools:
            return value
        kind = kind_of(value, shape)
        if kind is None:
            raise BodyRefused(place, "this tool runs at the provider; it needs server_tools")
        return self._known(_object(value, place), kind, place)

    def _tools_by_key(self, value: object, shape: ToolsByKey, place: str) -> object:
        if self.server_tools:
            return value
        found: list[object] = []
        for tool in [value] if isinstance(value, dict) else _list(value, place):
            if isinstance(tool, dict):
                kept = {key: tool[key] for key in tool if _field_of(key, shape.keys)}
                if kept:
                    found.append(self._known(kept, shape.keys, f"{place}[]"))
        return found

    def _choose(self, before: dict[str, object], after: dict[str, object], shape: Known) -> None:
        """Drop a choice of a tool that has gone: the model is then free to choose."""
        choice = before.get("tool_choice")
        wanted = shape.fields.get("tool_choice")
        if self.server_tools or choice is None or not isinstance(wanted, Choice):
            return
        if isinstance(choice, str):
            return
        named = _object(choice, "tool_choice")
        kept = _choice(named, wanted.tools, gone=_names(before) - _names(after))
        if kept is None:
            del after["tool_choice"]
        else:
            some = kept.get("type") == SOME
            after["tool_choice"] = self._known(kept, SOME_CHOSEN if some else CHOSEN, "tool_choice")


SOME = "allowed_tools"
_CHOICES = frozenset({"auto", "any", "none", "required", "tool", SOME})
"""What `tool_choice` may have for a type, beside the kinds of tools themselves."""


def _choice(
    choice: dict[str, object], tools: Tools, gone: frozenset[str]
) -> dict[str, object] | None:
    """Return a choice of tools without those that have gone; None where none is left."""
    kind = choice.get("type")
    if not isinstance(kind, str) or (kind not in _CHOICES and kind not in tools.kinds):
        return None
    if kind == "tool" and any(choice.get("name") == each for each in gone):
        return None
    if kind != SOME:
        return choice
    if isinstance(inner := choice.get("allowed_tools"), dict):  # chat's way to write it
        kept = _choice({**inner, "type": kind}, tools, gone)
        return None if kept is None else {**choice, "allowed_tools": _without_type(kept, inner)}
    listed = choice.get("tools")
    if not isinstance(listed, list):
        return None
    left = [each for each in listed if kind_named(each) in tools.kinds]
    return {**choice, "tools": left} if left else None


def kind_named(tool: object) -> str:
    """Return the type that a tool's entry names; empty for none."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    return kind if isinstance(kind, str) else ""


def _without_type(made: dict[str, object], like: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in made.items() if name in like}


def _names(body: dict[str, object]) -> frozenset[str]:
    """Return the names of a body's tools."""
    tools = body.get("tools")
    named = [each.get("name") for each in tools if isinstance(each, dict)] if isinstance(
        tools, list) else []  # fmt: skip
    return frozenset(name for name in named if isinstance(name, str))


def kind_of(tool: object, shape: Tools) -> Known | None:
    """Return the shape of a tool that the program runs itself; None for any other."""
    if not isinstance(tool, dict):
        return None
    kind = tool.get("type", shape.untyped)
    if not isinstance(kind, str):
        return None
    if shape.dated_types is not None and shape.dated_types.fullmatch(kind):
        return shape.dated
    if kind == "shell" and not _is_local(tool):
        return None
    return shape.kinds.get(kind)


def _is_local(tool: Mapping[str, object]) -> bool:
    """Tell whether a shell is the program's own, not a container's of the provider's."""
    environment = tool.get("environment")
    return isinstance(environment, dict) and environment.get("type") == "local"


def _field_of(name: str, shape: Known) -> str | None:
    """Return which of a shape's fields a key is; None for none of them."""
    return name if name in shape.fields else shape.spelt.get(name)


def _object(value: object, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise UnknownField(place, "it is no object")
    return value


def _list(value: object, place: str) -> list[object]:
    if not isinstance(value, list):
        raise UnknownField(place, "it is no list")
    return value


def _check_plain(value: object, place: str) -> None:
    if isinstance(value, dict):
        raise UnknownField(place, "an object stands where text or numbers must")
    if isinstance(value, list):
        for each in value:
            _check_plain(each, place)


def _check_references(value: object, place: str) -> None:
    """Refuse a schema that points out of itself: some checkers of schemas fetch what it names."""
    if isinstance(value, list):
        for each in value:
            _check_references(each, place)
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in _REFERENCES and isinstance(inner, str) and not inner.startswith("#"):
                raise BodyRefused(place, f"a reference out of the schema: {FETCHED}")
            _check_references(inner, place)


def _check_sources(value: object, place: str) -> None:
    """Refuse an image or a document, wherever it stands in what is no place for one."""
    if isinstance(value, list):
        for each in value:
            _check_sources(each, place)
    if isinstance(value, dict):
        if isinstance(value.get("source"), dict):
            raise BodyRefused(place, FETCHED)
        for inner in value.values():
            _check_sources(inner, place)
