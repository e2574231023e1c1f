"""A call to a hosted model, judged and rewritten: `proto/verbs/model.py` and `providers.py`."""

from __future__ import annotations

import json

import pytest

from proto.codecs.http1 import RequestHead, RequestReader
from proto.codecs.strict_json import NotJson
from proto.errors import (
    MalformedRequest,
    NoSuchMethod,
    NoSuchRoute,
    ProxyError,
    Refused,
    WrongMediaType,
    WrongPlaceholder,
)
from proto.verbs.judging import BodyRefused
from proto.verbs.model import ModelCall, ModelRoute
from proto.verbs.model import read_call as judged_call
from proto.verbs.providers import PROVIDERS, Usage
from sandbox.route import PROVIDERS as NAMES

KEY = "sk-REAL-key-for-tests"
HELD = "lnk-placeholder-7f3a9c2e"
JSON = ("content-type", "application/json")


def route(name: str, *, server_tools: bool = False, listed: bool = True) -> ModelRoute:
    return ModelRoute.of(PROVIDERS[name], KEY, HELD, server_tools=server_tools, listed=listed)


def head(method: str, target: str, *fields: tuple[str, str]) -> RequestHead:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    found = RequestReader().feed(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
    assert found is not None
    return found[0]


def read_call(to: ModelRoute, asked: RequestHead) -> ModelCall:
    return judged_call(to, asked, asked.target)


def held(name: str) -> tuple[str, str]:
    return {
        "anthropic": ("x-api-key", HELD),
        "google": ("x-goog-api-key", HELD),
    }.get(name, ("Authorization", f"Bearer {HELD}"))


def call(name: str, target: str, *fields: tuple[str, str], method: str = "POST") -> ModelCall:
    return read_call(route(name), head(method, target, held(name), JSON, *fields))


MESSAGES = "/v1/messages"
CHAT = "/v1/chat/completions"
GEMINI = "/v1beta/models/gemini-2.5-flash:generateContent"
# -- the key --------------------------------------------------------------------------------


def test_every_provider_of_a_route_is_there() -> None:
    assert set(PROVIDERS) == set(NAMES)
    assert all(name == each.name for name, each in PROVIDERS.items())


@pytest.mark.parametrize("name", NAMES)
def test_the_placeholder_becomes_the_key_in_its_one_field(name: str) -> None:
    provider = PROVIDERS[name]
    target = {
        "anthropic": MESSAGES,
        "google": GEMINI,
        "openrouter": "/api/v1/chat/completions",
        "groq": "/openai/v1/chat/completions",
    }.get(name, CHAT)
    lines = call(name, target).lines.decode()
    assert lines.count(KEY) == 1
    assert HELD not in lines
    assert any(
        line in (f"{provider.key_field.decode()}: {KEY}", f"authorization: Bearer {KEY}")
        for line in lines.splitlines()
    )


def test_a_key_shows_nowhere() -> None:
    assert KEY not in repr(route("openai"))
    assert HELD not in repr(route("openai"))
    assert KEY not in repr(call("openai", CHAT).route)


@pytest.mark.parametrize("key", ["", "a b", "a\n", "é", "a\r\nx: y", "\x00", "\x7f", "x" * 9000])
def test_a_key_that_is_no_word_makes_no_route(key: str) -> None:
    for pair in ((key, HELD), (KEY, key)):
        with pytest.raises(ValueError, match="visible"):
            ModelRoute.of(PROVIDERS["openai"], *pair, server_tools=False, listed=True)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [("x-api-key", "")],
        [("x-api-key", HELD + "x")],
        [("x-api-key", HELD[:-1])],
        [("x-api-key", HELD.upper())],
        [("x-api-key", f"Bearer {HELD}")],
        [("x-api-key", f"{HELD}, {HELD}")],
        [("x-api-key", f'"{HELD}"')],
        [("x-api-key", KEY)],
        [("x-api-key", HELD), ("x-api-key", HELD)],
        [("x-api-key", HELD), ("X-Api-Key", "sk-else")],
        [("x-api-key", HELD), ("authorization", "Bearer sk-else")],
        [("x-api-key", HELD), ("authorization", f"Basic {HELD}")],
        [("x-api-key", HELD), ("authorization", HELD)],
        [("x-api-key", "sk-else"), ("authorization", f"Bearer {HELD}")],
        [("x-api-key", HELD), ("x-goog-api-key", HELD)],
        [("x-api-key", HELD), ("api-key", "x")],
        [("x-api-key", "\xe9")],
        [("x_api_key", HELD)],
        [("authorization", f"Bearer  {HELD} x")],
        [("authorization", f"Bearer\t{HELD}")],
        [("proxy-authorization", f"Bearer {HELD}")],
        [("cookie", f"x-api-key={HELD}")],
    ],
)
def test_any_other_key_or_place_is_refused(fields: list[tuple[str, str]]) -> None:
    with pytest.raises(WrongPlaceholder) as error:
        read_call(route("anthropic"), head("POST", MESSAGES, JSON, *fields))
    assert error.value.status_hint == 401
    assert "sk-else" not in error.value.message


def test_a_placeholder_in_both_of_a_providers_fields_will_do() -> None:
    fields = ("x-api-key", HELD), ("authorization", f"bearer   {HELD}")
    lines = read_call(route("anthropic"), head("POST", MESSAGES, JSON, *fields)).lines
    assert b"authorization" not in lines.lower()
    assert lines.count(KEY.encode()) == 1


def test_googles_former_sdk_asks_for_json_in_its_own_way() -> None:
    asked = f"{GEMINI}?%24alt=json%3Benum-encoding%3Dint"
    assert call("google", asked).target == asked.encode()
    for query in ("%24alt=media", "%24alt=json%0d%0a", "%24fields=x", "alt=json%3Benum-encoding"):
        with pytest.raises(Refused):
            call("google", f"{GEMINI}?{query}")


def test_googles_placeholder_may_come_in_the_query_and_the_key_never_goes_there() -> None:
    made = read_call(route("google"), head("POST", f"{GEMINI}?key={HELD}", JSON))
    assert made.target == GEMINI.encode()
    assert f"x-goog-api-key: {KEY}".encode() in made.lines
    stream = "/v1beta/models/x:streamGenerateContent"
    made = read_call(route("google"), head("POST", f"{stream}?key={HELD}&alt=sse", JSON))
    assert made.target == f"{stream}?alt=sse".encode()
    for query in (f"key={HELD}x", "key=", f"key={HELD[:-1]}", f"key={KEY}"):
        with pytest.raises(WrongPlaceholder):
            read_call(route("google"), head("POST", f"{GEMINI}?{query}", JSON))
    with pytest.raises(WrongPlaceholder):
        call("google", f"{GEMINI}?key=another")


# -- where a call may go --------------------------------------------------------------------

PATHS = [
    "/v1/messages/",
    "/v1//messages",
    "//v1/messages",
    "/V1/messages",
    "/v1/Messages",
    "/v1/messages%2fbatches",
    "/v1/%6dessages",
    "/v1/./messages",
    "/v1/x/../messages",
    "/v1/messages;x",
    "/v1/messages\\",
    "/v1/messages%00",
    "/v1/messages.",
    "/v1/messagesx",
    "/v1/messages/batches",
    "/v1/messages/x",
    "/",
    "/v1",
    "/v1/complete",
    "/v1/files",
    "/v1/models/claude",
    "/v1/models/",
    "/x/v1/messages",
    "/v1/messages%3Fbeta=true",
    "/v1/messages:x",
    "/v1/messages@x",
    "/v1/messages,",
    "/v1/messages%20",
    "/v1/organizations",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_other_path_is_let_through(path: str) -> None:
    for method in ("POST", "GET"):
        with pytest.raises(NoSuchRoute) as error:
            call("anthropic", path, method=method)
        assert error.value.status_hint == 404


@pytest.mark.parametrize(
    "method",
    [
        "GET",
        "PUT",
        "PATCH",
        "DELETE",
        "HEAD",
        "OPTIONS",
        "TRACE",
        "post",
        "Post",
        "QUERY",
        "PROPFIND",
    ],
)
def test_no_other_method_is_let_through(method: str) -> None:
    with pytest.raises(NoSuchMethod) as error:
        call("anthropic", MESSAGES, method=method)
    assert error.value.status_hint == 405


@pytest.mark.parametrize(
    "query",
    [
        "",
        "beta=false",
        "beta=true&beta=true",
        "Beta=true",
        "beta",
        "beta=",
        "beta=true&",
        "&",
        "beta=true&x=1",
        "key=x",
        "beta=tru%65",
        "beta=true#x",
        "=true",
        "beta==true",
        "beta=true?",
        "alt=sse",
        f"key={HELD}",
        "access_token=x",
        "beta=true;x",
        "beta[]=true",
    ],
)
def test_no_other_query_is_let_through(query: str) -> None:
    with pytest.raises(Refused) as error:
        call("anthropic", f"{MESSAGES}?{query}")
    assert error.value.status_hint == 403


@pytest.mark.parametrize(
    "query",
    [
        "fields=x",
        "$fields=x",
        "callback=x",
        "access_token=x",
        "oauth_token=x",
        "uploadType=media",
        "prettyPrint=true",
        "alt=media",
        "alt=proto",
        "$alt=json",
        "quotaUser=x",
        "userProject=x",
        "%24alt=sse",
        "alt=sse&alt=json",
        "$.xgafv=1",
        "key=x&key=y",
        "upload_protocol=raw",
    ],
)
def test_nor_one_that_all_of_googles_apis_take(query: str) -> None:
    with pytest.raises(Refused):
        call("google", f"{GEMINI}?{query}")


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/../x:generateContent",
        "/v1beta/models/a/b:generateContent",
        "/v1beta/models/:generateContent",
        "/v1beta/models/.x:generateContent",
        "/v1beta/models/x:generatecontent",
        "/v1beta/models/x:generateContent:x",
        "/v1beta/models/x%2Fy:generateContent",
        "/v1beta/tunedModels/x:generateContent",
        "/v1beta/models/x:predict",
        "/v1beta/models/x:batchGenerateContent",
        "/v1beta/models/x",
        "/v1alpha/models/x:generateContent",
        "/upload/v1beta/files",
        "/v1beta/files",
        "/v1beta/models/x:generateAnswer",
        "/v1beta/cachedContents",
        "/v1beta/corpora",
    ],
)
def test_nor_another_of_googles_paths(path: str) -> None:
    with pytest.raises(NoSuchRoute):
        call("google", path)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("anthropic", "/v1/models"),
        ("openai", "/v1/models"),
        ("google", "/v1beta/models"),
        ("google", "/v1/models"),
        ("mistral", "/v1/models"),
        ("openrouter", "/api/v1/models"),
        ("xai", "/v1/models"),
        ("deepseek", "/models"),
        ("deepseek", "/v1/models"),
        ("groq", "/openai/v1/models"),
    ],
)
def test_every_providers_models_are_listed(name: str, target: str) -> None:
    made = call(name, target, method="GET")
    assert made.target == target.encode()
    assert made.lines.decode().count(KEY) == 1


def test_the_list_of_models_has_no_body() -> None:
    for fields in ((), (("content-length", "0"),)):
        made = call("openai", "/v1/models", *fields, method="GET")
        assert made.body(b"") is None
        assert b"content-type" not in made.lines.lower()
    for fields in ((("content-length", "2"),), (("transfer-encoding", "chunked"),)):
        with pytest.raises(MalformedRequest):
            call("openai", "/v1/models", *fields, method="GET")


# -- which fields go on ---------------------------------------------------------------------


def test_only_fields_that_concern_the_model_go_on() -> None:
    passed = {
        "accept": "application/json",
        "user-agent": "anthropic-python/1",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "a,b",
        "x-stainless-lang": "python",
        "x-app": "cli",
    }
    dropped = {
        "cookie": "a=b",
        "x-forwarded-for": "192.0.2.1",
        "forwarded": "for=x",
        "openai-project": "p",
        "x-http-method-override": "DELETE",
        "x-method-override": "DELETE",
        "openai-organization": "o",
        "x-goog-user-project": "p",
        "accept-encoding": "gzip",
        "content-encoding": "identity",
        "range": "bytes=0-1",
        "if-none-match": "x",
        "link-caller": "x",
        "te": "trailers",
        "x-original-url": "/v1/files",
        "x-rewrite-url": "/v1/files",
        "x-host": "evil.test",
        "x-forwarded-host": "evil.test",
        "groq-model-version": "latest",
        "origin": "https://evil.test",
        "referer": "https://evil.test",
        "content-type_": "x",
        "x-goog-fieldmask": "x",
        "via": "x",
    }
    lines = call("anthropic", MESSAGES, *passed.items(), *dropped.items()).lines.decode()
    names = [line.partition(":")[0].lower() for line in lines.splitlines()]
    ours = ["x-api-key", "accept-encoding", "content-type"]
    assert sorted(names) == sorted([*passed, *ours])
    assert "Accept-Encoding: identity" in lines
    assert "Content-Type: application/json" in lines


def test_a_field_that_holds_the_placeholder_stays_here() -> None:
    lines = call("anthropic", MESSAGES, ("user-agent", f"x {HELD}")).lines
    assert HELD.encode() not in lines


def test_a_field_that_comes_twice_is_refused_but_a_list() -> None:
    with pytest.raises(MalformedRequest):
        call("anthropic", MESSAGES, ("anthropic-version", "a"), ("anthropic-version", "b"))
    with pytest.raises(MalformedRequest):
        call("anthropic", MESSAGES, ("x-stainless-lang", "a"), ("X-Stainless-Lang", "b"))
    lines = call("anthropic", MESSAGES, ("anthropic-beta", "a"), ("anthropic-beta", "b")).lines
    assert lines.count(b"anthropic-beta: ") == 2


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "",
        "application/jsonx",
        "application/json; charset=utf-16",
        "application/json;",
        "application/json, text/plain",
        "multipart/form-data; boundary=x",
        "application/json; a=b",
        "application/json; charset=utf-8; charset=utf-16",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-7",
        "application/vnd.api+json",
    ],
)
def test_a_body_that_is_not_called_json_is_refused(kind: str) -> None:
    with pytest.raises(WrongMediaType) as error:
        read_call(route("openai"), head("POST", CHAT, held("openai"), ("content-type", kind)))
    assert error.value.status_hint == 415


def test_a_body_without_a_type_or_with_two_is_refused() -> None:
    with pytest.raises(WrongMediaType):
        read_call(route("openai"), head("POST", CHAT, held("openai")))
    with pytest.raises(MalformedRequest):
        call("openai", CHAT, JSON)


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON ; charset=UTF-8", 'application/json;charset="utf-8"'],
)
def test_json_in_utf_8_is_taken(kind: str) -> None:
    assert read_call(route("openai"), head("POST", CHAT, held("openai"), ("content-type", kind)))


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity, gzip", "", "x"])
def test_a_body_in_a_coding_is_refused(coding: str) -> None:
    with pytest.raises(WrongMediaType):
        call("openai", CHAT, ("content-encoding", coding))
    assert call("openai", CHAT, ("content-encoding", "Identity"))


# -- the body -------------------------------------------------------------------------------


def test_the_body_goes_on_as_what_was_read_of_it() -> None:
    made = call("openai", CHAT)
    sent = b' {"model" : "gpt-\\u0034o", "messages":[ ], "tools":[{"type":"web_search"}]}\n'
    assert made.body(sent) == b'{"model":"gpt-4o","messages":[]}'
    for wrong in (b"", b"[]", b'{"model":"a","model":"b"}'):
        with pytest.raises(NotJson):
            made.body(wrong)


def test_an_answer_is_counted_where_a_model_is_asked_for_one() -> None:
    assert call("anthropic", MESSAGES).endpoint.usage is Usage.ANTHROPIC
    assert call("anthropic", MESSAGES + "/count_tokens").endpoint.usage is Usage.NONE
    assert call("openai", "/v1/models", method="GET").endpoint.usage is Usage.NONE
    assert call("google", GEMINI).endpoint.usage is Usage.GOOGLE


# -- models that search by nature -----------------------------------------------------------

SEARCHING = {
    "openai": [
        "gpt-4o-search-preview",
        "gpt-4o-mini-search-preview",
        "GPT-4O-Search-Preview",
        "gpt-4o-search-preview-2025-03-11",
        "gpt-5-search-api",
        "gpt-5-search-api-2025-10-14",
        "gpt-5.2-search",
        "o3-deep-research",
        "o4-mini-deep-research-2025-06-26",
        "ft:gpt-4o-search-preview:org::id",
    ],
    "groq": ["compound", "groq/compound", "groq/compound-mini", "compound-beta", "Groq/Compound"],
    "openrouter": [
        "perplexity/sonar",
        "perplexity/sonar-deep-research",
        "~perplexity/sonar",
        "x/y:online",
        "x/y:free:online",
        "x/y:online:free",
        "openai/gpt-4o-search-preview",
        "gpt-5-search-api",
        "openai/o3-deep-research",
        "openrouter/auto",
        "openrouter/fusion",
        "switchpoint/router",
        "openai/gpt-4o-mini-search-preview:free",
        "X/Y:ONLINE",
    ],
}
PLAIN = {
    "openai": [
        "gpt-4o",
        "gpt-5",
        "o3",
        "research-notes-7b",
        "gpt-4o-researcher",
        "my-search-preview",
        "ft:gpt-4o:org:search-preview:id",
        "gpt-4.1-searching",
    ],
    "groq": ["llama-3.3-70b-versatile", "openai/gpt-oss-120b", "compounds", "groq/other"],
    "openrouter": [
        "openai/gpt-4o",
        "x/y:nitro",
        "x/y:onlines",
        "x/online",
        "x/y-perplexity",
        "anthropic/claude-sonnet-4.5",
    ],
    "mistral": ["gpt-4o-search-preview"],
}


@pytest.mark.parametrize(("name", "model"), [(n, m) for n, each in SEARCHING.items() for m in each])
def test_a_model_that_searches_by_nature_needs_its_policys_leave(name: str, model: str) -> None:
    target = {"openrouter": "/api", "groq": "/openai"}.get(name, "") + CHAT
    body = json.dumps({"model": model, "messages": []}).encode()
    with pytest.raises(BodyRefused, match="searches"):
        call(name, target).body(body)
    asked = head("POST", target, held(name), JSON)
    for free in (route(name, listed=False), route(name, server_tools=True)):
        assert read_call(free, asked).body(body)


@pytest.mark.parametrize(("name", "model"), [(n, m) for n, each in PLAIN.items() for m in each])
def test_another_model_does_not(name: str, model: str) -> None:
    target = {"openrouter": "/api", "groq": "/openai"}.get(name, "") + CHAT
    assert call(name, target).body(json.dumps({"model": model, "messages": []}).encode())


def test_a_model_in_the_path_is_judged_too() -> None:
    with pytest.raises(BodyRefused):
        call("google", "/v1beta/models/deep-research-pro-preview:generateContent")


def test_every_refusal_has_a_status_and_names_no_secret() -> None:
    for target, fields in (
        ("/x", ()),
        (MESSAGES, (("x-api-key", KEY),)),
        (f"{MESSAGES}?{KEY}", ()),
    ):
        with pytest.raises(ProxyError) as error:
            read_call(route("anthropic"), head("POST", target, JSON, *fields))
        assert error.value.status_hint in (401, 403, 404)
        assert KEY not in error.value.message
