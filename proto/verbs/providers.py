"""The hosted models' providers, as data: only they are ever given a key (R50).

A provider has one host, the fields in which its key may come and the one in which it goes,
the calls that ask a model for an answer (and the list of its models), and the names of
models that search the web whatever they are asked.  A call that isn't listed doesn't exist:
what keeps files, makes keys, runs what a file says or tells of the account is none of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

import msgspec

from proto.verbs import schema_anthropic, schema_google, schema_openai
from proto.verbs.shapes import Known

ONE_NAME = r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}"
"""A model's name where it is a step of a path."""


class Usage(Enum):
    """How an answer tells of the tokens it took."""

    NONE = "none"
    ANTHROPIC = "anthropic"
    CHAT = "chat"
    RESPONSES = "responses"
    GOOGLE = "google"


class Place(Enum):
    """Where a key stands in a request."""

    BARE = "the field's value"
    BEARER = "a bearer's (RFC 6750)"


class Endpoint(msgspec.Struct, frozen=True):
    """One call: its method, its path's pattern, and what its body may be (None: it has none).

    `model` is the pattern's group that names the model, where the body doesn't.
    """

    method: str
    path: re.Pattern[str]
    body: Known | None = None
    usage: Usage = Usage.NONE
    model: str = ""


class Provider(msgspec.Struct, frozen=True):
    """One provider.  `sent` are the fields in which a program may send its placeholder.

    `queries` has the parameters that a call may have, each with the pattern of its value;
    `key_query` is the one in which a key may come.  `searching` matches, in small letters,
    the models that search by nature, or choose another model by themselves.
    """

    name: str
    host: str
    sent: Mapping[bytes, Place]
    key_field: bytes
    endpoints: tuple[Endpoint, ...]
    key_place: Place = Place.BEARER
    queries: Mapping[str, re.Pattern[str]] = {}
    key_query: str = ""
    searching: re.Pattern[str] | None = None

    def searches(self, model: str) -> bool:
        """Tell whether a model, in small letters, searches by nature."""
        return self.searching is not None and self.searching.fullmatch(model) is not None


def _post(path: str, body: Known, usage: Usage = Usage.NONE, model: str = "") -> Endpoint:
    return Endpoint("POST", re.compile(path), body, usage, model)


def _list(path: str) -> Endpoint:
    return Endpoint("GET", re.compile(re.escape(path)))


_BEARER = {b"authorization": Place.BEARER}

_OPENAIS_SEARCHING = (
    r"(?:ft:)?(?:gpt-[a-z0-9.-]*-search(?:-(?:preview|api))?|o[0-9]+(?:-[a-z]+)*-deep-research)"
    r"(?:[-:][a-z0-9._:-]*)?"
)

ANTHROPIC = Provider(
    name="anthropic",
    host="api.anthropic.com",
    sent={b"x-api-key": Place.BARE, b"authorization": Place.BEARER},
    key_field=b"x-api-key",
    key_place=Place.BARE,
    endpoints=(
        _post("/v1/messages", schema_anthropic.MESSAGES, Usage.ANTHROPIC),
        _post("/v1/messages/count_tokens", schema_anthropic.MESSAGES),
        _list("/v1/models"),
    ),
    queries={"beta": re.compile("true")},
)

OPENAI = Provider(
    name="openai",
    host="api.openai.com",
    sent=_BEARER,
    key_field=b"authorization",
    endpoints=(
        _post("/v1/chat/completions", schema_openai.OPENAI_CHAT, Usage.CHAT),
        _post("/v1/responses", schema_openai.OPENAI_RESPONSES, Usage.RESPONSES),
        _post("/v1/responses/input_tokens", schema_openai.OPENAI_RESPONSES),
        _post("/v1/embeddings", schema_openai.EMBEDDINGS, Usage.CHAT),
        _list("/v1/models"),
    ),
    searching=re.compile(_OPENAIS_SEARCHING),
)

_GEMINI = rf"/v1(?:beta)?/models/(?P<model>{ONE_NAME})"

GOOGLE = Provider(
    name="google",
    host="generativelanguage.googleapis.com",
    sent={b"x-goog-api-key": Place.BARE},
    key_field=b"x-goog-api-key",
    key_place=Place.BARE,
    key_query="key",
    endpoints=(
        _post(_GEMINI + ":generateContent", schema_google.GENERATE, Usage.GOOGLE, "model"),
        _post(_GEMINI + ":streamGenerateContent", schema_google.GENERATE, Usage.GOOGLE, "model"),
        _post(_GEMINI + ":countTokens", schema_google.COUNT, model="model"),
        _post(_GEMINI + ":embedContent", schema_google.EMBED, Usage.GOOGLE, "model"),
        _post(_GEMINI + ":batchEmbedContents", schema_google.EMBED_MANY, Usage.GOOGLE, "model"),
        _list("/v1beta/models"),
        _list("/v1/models"),
    ),
    queries={
        "alt": re.compile("sse|json"),
        # As Google's SDK before the present one asks for JSON, `$alt=json;enum-encoding=int`.
        "%24alt": re.compile("json(?:%3Benum-encoding%3Dint)?"),
    },
    searching=re.compile(r"(?:models/)?(?:deep-research-.*|aqa)"),
)

MISTRAL = Provider(
    name="mistral",
    host="api.mistral.ai",
    sent=_BEARER,
    key_field=b"authorization",
    endpoints=(
        _post("/v1/chat/completions", schema_openai.MISTRAL_CHAT, Usage.CHAT),
        _post("/v1/fim/completions", schema_openai.FIM, Usage.CHAT),
        _post("/v1/embeddings", schema_openai.EMBEDDINGS, Usage.CHAT),
        _list("/v1/models"),
    ),
)

OPENROUTER = Provider(
    name="openrouter",
    host="openrouter.ai",
    sent=_BEARER,
    key_field=b"authorization",
    endpoints=(
        _post("/api/v1/chat/completions", schema_openai.OPENROUTER_CHAT, Usage.CHAT),
        _post("/api/v1/embeddings", schema_openai.EMBEDDINGS, Usage.CHAT),
        _list("/api/v1/models"),
    ),
    # `:online` may stand beside other suffixes; a router chooses among models that search.
    searching=re.compile(
        r".*:online(?::.*)?|~?perplexity/.*|~?openrouter/.*|switchpoint/router(?::.*)?"
        rf"|(?:~?[a-z0-9_.-]+/)?{_OPENAIS_SEARCHING}"
    ),
)

XAI = Provider(
    name="xai",
    host="api.x.ai",
    sent=_BEARER,
    key_field=b"authorization",
    endpoints=(
        _post("/v1/chat/completions", schema_openai.XAI_CHAT, Usage.CHAT),
        _post("/v1/responses", schema_openai.XAI_RESPONSES, Usage.RESPONSES),
        _list("/v1/models"),
    ),
)

DEEPSEEK = Provider(
    name="deepseek",
    host="api.deepseek.com",
    sent=_BEARER,
    key_field=b"authorization",
    endpoints=(
        _post("(?:/v1)?/chat/completions", schema_openai.DEEPSEEK_CHAT, Usage.CHAT),
        _list("/models"),
        _list("/v1/models"),
    ),
)

GROQ = Provider(
    name="groq",
    host="api.groq.com",
    sent=_BEARER,
    key_field=b"authorization",
    endpoints=(
        _post("/openai/v1/chat/completions", schema_openai.GROQ_CHAT, Usage.CHAT),
        _post("/openai/v1/responses", schema_openai.GROQ_RESPONSES, Usage.RESPONSES),
        _list("/openai/v1/models"),
    ),
    searching=re.compile(r"(?:groq/)?compound(?:-[a-z0-9.-]*)?"),
)

PROVIDERS = {
    each.name: each
    for each in (ANTHROPIC, OPENAI, GOOGLE, MISTRAL, OPENROUTER, XAI, DEEPSEEK, GROQ)
}
