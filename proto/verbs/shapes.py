"""What a request's body may be made of: the words in which the providers' schemas are written.

A *shape* says what may stand at one place of a body.  It is data, and `proto.verbs.judging`
reads it.  A place is either understood or it isn't: of an object only the fields that its
shape names are taken, of a union only the types that it lists.  So a field that a provider
adds is refused until it is known here, rather than passed on unread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec


class Anything(msgspec.Struct, frozen=True):
    """The program's own data, or a setting that nothing is fetched or run by."""


class Plain(msgspec.Struct, frozen=True):
    """Text and numbers, alone or in lists, with no object among them."""


class Known(msgspec.Struct, frozen=True):
    """An object of these fields and no others.  `spelt` has other spellings of their names."""

    fields: Mapping[str, Shape]
    spelt: Mapping[str, str] = {}


class Each(msgspec.Struct, frozen=True):
    """A list of one shape.  `or_one`: its reader takes one object for a list of that alone."""

    item: Shape
    or_one: bool = False


class TextOr(msgspec.Struct, frozen=True):
    """Text, or another shape: `content` is either in most schemas."""

    other: Shape


class ByType(msgspec.Struct, frozen=True):
    """One of several objects, told apart by `type`; `untyped` is its value where it is missing."""

    types: Mapping[str, Known]
    untyped: str = ""


class Inline(msgspec.Struct, frozen=True):
    """Data in the request itself: a `data:` URL, and never an address to fetch.

    `bare`: or base64 alone, where the field takes no path; it has no colon, so no reader can
    take it for a URL.  With `other` an object may stand here too; `kept` are addresses of
    the provider's own, of what is kept there.
    """

    other: Shape | None = None
    bare: bool = False
    kept: re.Pattern[str] | None = None


class Schema(msgspec.Struct, frozen=True):
    """A JSON schema: any, but for a reference out of itself, which a reader would fetch."""


class Given(msgspec.Struct, frozen=True):
    """What a provider's tool once gave: any, but for a source, which would be fetched now."""


class ModelName(msgspec.Struct, frozen=True):
    """The name of a model, which may be one that searches by nature."""


class NoOther(msgspec.Struct, frozen=True):
    """Only this value: the others mean what can't be judged here, for the reason given."""

    value: object
    reason: str


class Refused(msgspec.Struct, frozen=True):
    """Nothing: the call is refused, for the reason given."""

    reason: str


class ServerSide(msgspec.Struct, frozen=True):
    """What asks for the provider's own tools by another way: taken out unless they are allowed."""


class Tools(msgspec.Struct, frozen=True):
    """A list of tools, of which those that run at the provider are taken out.

    `kinds` are those that the program runs itself, by their `type`; `dated` those whose type
    ends in a date.  `inside` are kinds that hold further tools.
    """

    kinds: Mapping[str, Known]
    dated: Known | None = None
    dated_types: re.Pattern[str] | None = None
    untyped: str = ""
    inside: frozenset[str] = frozenset()


class OneTool(msgspec.Struct, frozen=True):
    """One tool by itself: it can't be taken out, so one that runs at the provider is refused."""

    tools: Tools


class ToolsByKey(msgspec.Struct, frozen=True):
    """A list of tools that are told apart by the keys they have, as Google's are, or one alone."""

    keys: Known


class Choice(msgspec.Struct, frozen=True):
    """Which tool the model must use: a word, or an object.

    It goes when the tool that it names has gone; what is left of it is a `CHOSEN`.
    """

    tools: Tools


Shape = (
    Anything
    | Plain
    | Known
    | Each
    | TextOr
    | ByType
    | Inline
    | Schema
    | Given
    | ModelName
    | NoOther
    | Refused
    | ServerSide
    | Tools
    | OneTool
    | ToolsByKey
    | Choice
)

ANY, PLAIN = Anything(), Plain()

OBJECTS = frozenset(
    {
        # settings that are objects
        "audio", "audioTranscriptionConfig", "cache_control", "citations", "client_metadata",
        "context_management", "compaction", "diagnostics", "embedContentConfig", "environment",
        "functionCallingConfig", "guardrails", "image_config", "imageConfig", "labels",
        "logit_bias", "metadata", "moderation", "prompt_cache_breakpoint", "prompt_cache_options",
        "provider", "reasoning", "retrievalConfig", "safetySettings", "skills", "speechConfig",
        "stream_options", "task_budget", "thinking", "thinkingConfig", "trace", "transformations",
        "usage",
        # what the program's own tools are given, and gave
        "action", "actions", "arguments", "args", "caller", "function_call", "functionCall",
        "input", "input_examples", "operation", "output", "response", "tool_calls",
        # what a model, or a tool of a provider's, once said
        "acknowledged_safety_checks", "annotations", "audioMetadata", "audioTranscription",
        "codeExecutionResult", "content", "documentMetadata", "error", "executableCode",
        "logprobs", "mediaProcessing", "mediaResolution", "partMetadata",
        "pending_safety_checks", "reasoning_details", "results", "speechMetadata",
        "spreadsheetMetadata", "summary", "svg_usage", "toolCall", "toolResponse", "tools",
        "videoMetadata",
    }
)  # fmt: skip
"""The fields of no further shape that may hold objects; every other is text or numbers."""


_CAPITAL = re.compile(r"[A-Z]")


def known(names: str = "", /, **shapes: Shape) -> Known:
    """Return an object's shape; the fields of `names`, divided by spaces, have no further one."""
    own: dict[str, Shape] = {name: ANY if name in OBJECTS else PLAIN for name in names.split()}
    return Known({**own, **shapes})


def spelt_twice(shape: Known) -> Known:
    """Return a shape whose reader takes `fieldName` and `field_name` for the same (ProtoJSON)."""
    snakes = {
        _CAPITAL.sub(lambda found: f"_{found[0].lower()}", each): each for each in shape.fields
    }
    return Known(shape.fields, {name: each for name, each in snakes.items() if name != each})


def typed(types: Mapping[str, Known], untyped: str = "") -> ByType:
    """Return a union's shape; each of its objects has a `type` besides its own fields."""
    full = {name: Known({"type": PLAIN, **each.fields}) for name, each in types.items()}
    return ByType(full, untyped)


_NAMED = known("type name", function=known("name"), custom=known("name"))
CHOSEN = Known({**_NAMED.fields, "disable_parallel_tool_use": PLAIN})
"""A choice of a tool, in any of the schemas."""

SOME_CHOSEN = known(
    "type mode", tools=Each(_NAMED), allowed_tools=known("mode", tools=Each(_NAMED))
)
"""A choice of some: `allowed_tools`, as the two of OpenAI's schemas write it."""
