"""One call to a hosted model: judged, and rewritten as it goes to the provider (R50).

The program holds a placeholder, and speaks HTTP to a path on its proxy.  What goes out is
made anew from what was understood: a path of the provider's table, the few fields that
concern the model, the key in the one field it belongs in, and the body written from what
was read of it.  So nothing that the program says beside that reaches the provider, and the
provider reads just what was judged.
"""

from __future__ import annotations

import hmac
import re

import msgspec

from proto.codecs.fields import Field, print_fields
from proto.codecs.http1 import Kind, RequestHead, request_framing
from proto.codecs.strict_json import read_json, write_json
from proto.errors import (
    MalformedRequest,
    NoSuchMethod,
    NoSuchRoute,
    Refused,
    WrongMediaType,
    WrongPlaceholder,
)
from proto.verbs.judging import BodyRefused, Judge
from proto.verbs.providers import Endpoint, Place, Provider

BODY_MAX_BYTES = 32 * 1024 * 1024
"""The longest body that is read: Anthropic's own limit, and more than the others' images and
documents take."""

_KEY = re.compile(r"[\x21-\x7e]{1,8192}")
_BEARER = re.compile(rb"(?i:bearer) +([\x21-\x7e]+)")
_PAIR = re.compile(r"((?:%24)?[a-z]+)=([0-9A-Za-z._%-]*)")
_JSON = re.compile(rb'(?i:application/json)(?:[ \t]*;[ \t]*(?i:charset)=(?i:"?utf-8"?))?')

CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key"})
"""Fields in which a key may come to some provider.  One with anything but the placeholder is
a call on somebody else's account, and carries data to them."""

PASSED = frozenset(
    {
        b"accept",
        b"anthropic-beta",
        b"anthropic-dangerous-direct-browser-access",
        b"anthropic-version",
        b"http-referer",
        b"idempotency-key",
        b"openai-beta",
        b"user-agent",
        b"x-app",
        b"x-client-request-id",
        b"x-goog-api-client",
        b"x-title",
    }
)
"""Fields that go on.  What names an account or an organisation, another method, another
address or another host is none of them: `OpenAI-Organization` could be one of the key's
owner's that somebody else reads."""

PASSED_BEGINNING = b"x-stainless-"
"""Of these the SDKs send a dozen, and providers tell versions by them."""

LISTED = frozenset({b"anthropic-beta", b"accept", b"openai-beta"})
"""Of the fields that go on, those that are lists, so that they may come in several lines."""


class ModelRoute(msgspec.Struct, frozen=True):
    """A route to one provider.  `listed`: the policy has a list of hosts.

    Neither the key nor the placeholder shows in a message, a log or a traceback.
    """

    provider: Provider
    key: bytes
    placeholder: bytes
    server_tools: bool
    listed: bool

    def __repr__(self) -> str:
        return f"ModelRoute({self.provider.name})"

    @classmethod
    def of(
        cls, provider: Provider, key: str, placeholder: str, *, server_tools: bool, listed: bool
    ) -> ModelRoute:
        """Make a route; ValueError for a key or a placeholder that is no word of ASCII."""
        if not _KEY.fullmatch(key) or not _KEY.fullmatch(placeholder):
            raise ValueError("a key and its placeholder are visible ASCII characters.")
        return cls(provider, key.encode(), placeholder.encode(), server_tools, listed)

    def judge(self) -> Judge:
        """Return what judges the bodies of this route's calls."""
        minds = self.listed and not self.server_tools
        return Judge(self.server_tools, self.provider.searches if minds else lambda _: False)


class ModelCall(msgspec.Struct, frozen=True):
    """A call whose head was judged: what goes to the provider, but for the body.

    `target`: path and query.  `lines`: the field lines, the key's among them, without `Host`
    and what frames the body.
    """

    route: ModelRoute
    endpoint: Endpoint
    target: bytes
    lines: bytes

    def body(self, sent: bytes) -> bytes | None:
        """Return the body as the provider gets it, None where the call has none.

        Raises NotJson, UnknownField (400), BodyRefused (403).
        """
        shape = self.endpoint.body
        if shape is None:
            return None
        named = not self.endpoint.model
        return write_json(self.route.judge().body(read_json(sent), shape, names_model=named))


def read_call(route: ModelRoute, head: RequestHead, target: bytes) -> ModelCall:
    """Judge the head of a call; `target` is what follows the route's own path.

    Raises NoSuchRoute (404), NoSuchMethod (405), Refused (403) for the query or the model,
    WrongPlaceholder (401), MalformedRequest (400), WrongMediaType (415).
    """
    path, mark, query = target.decode("latin-1").partition("?")
    endpoint = _endpoint(route.provider, head.method, path)
    kept, keys = _query(route.provider, query) if mark else ([], [])
    _check_keys(route, head, keys)
    _check_model(route, endpoint, path)
    if endpoint.body is None:
        framing = request_framing(head)
        if framing.kind is Kind.CHUNKED or framing.length:
            raise MalformedRequest("this call has no body.")
    else:
        _check_media_type(head)
    onward = f"{path}?{'&'.join(kept)}" if kept else path
    lines = print_fields(tuple(_fields(route, head, endpoint)))
    return ModelCall(route, endpoint, onward.encode(), lines)


def _endpoint(provider: Provider, method: str, path: str) -> Endpoint:
    """Find a call by its exact path: an encoded, relative or doubled one is none."""
    there = [each for each in provider.endpoints if each.path.fullmatch(path)]
    for endpoint in there:
        if endpoint.method == method:
            return endpoint
    if there:
        raise NoSuchMethod(f"{provider.name} has no such call by this method.")
    raise NoSuchRoute(f"only the calls that ask {provider.name} for an answer are let through.")


def _query(provider: Provider, query: str) -> tuple[list[str], list[bytes]]:
    """Return the parameters that go on, and the keys among them; Refused (403) for others."""
    kept: list[str] = []
    keys: list[bytes] = []
    seen: set[str] = set()
    for part in query.split("&"):
        pair = _PAIR.fullmatch(part)
        name, value = pair.groups() if pair else ("", "")
        if name in seen:
            raise Refused("the query has a parameter twice.")
        seen.add(name)
        if name and name == provider.key_query:
            keys.append(value.encode())
        elif name in provider.queries and provider.queries[name].fullmatch(value):
            kept.append(part)
        else:
            raise Refused("the query has a parameter that isn't known here.")
    return kept, keys


def _check_keys(route: ModelRoute, head: RequestHead, keys: list[bytes]) -> None:
    """Refuse a call that doesn't hold the placeholder, or that holds anything beside it.

    Compared in constant time: how long a wrong answer takes must not tell how much of a
    guess was right.
    """
    for name in CREDENTIALS:
        for value in head.get_all(name):
            place = route.provider.sent.get(name)
            found = _BEARER.fullmatch(value) if place is Place.BEARER else None
            keys.append(value if place is Place.BARE else found[1] if found else b"")
    right = [hmac.compare_digest(key, route.placeholder) for key in keys]
    if not right or not all(right) or _repeats(head, CREDENTIALS):
        raise WrongPlaceholder(
            f"this call must hold the placeholder that stands for {route.provider.name}'s key,"
            " and no other key."
        )


def _repeats(head: RequestHead, names: frozenset[bytes]) -> bool:
    return any(len(head.get_all(name)) > 1 for name in names)


def _check_model(route: ModelRoute, endpoint: Endpoint, path: str) -> None:
    """Refuse a model that searches by nature where the path names it."""
    if endpoint.model:
        found = endpoint.path.fullmatch(path)
        assert found is not None, "the endpoint was found by its path"
        if route.judge().searches(found[endpoint.model].lower()):
            raise BodyRefused("model", "this model searches the web whatever it is asked")


def _check_media_type(head: RequestHead) -> None:
    """Refuse a body that isn't plain JSON: in a coding, or as a form, two would read it apart."""
    coding = head.one(b"content-encoding")
    if coding is not None and coding.lower() != b"identity":
        raise WrongMediaType("the body must come without a coding (Content-Encoding).")
    if not _JSON.fullmatch(head.one(b"content-type") or b""):
        raise WrongMediaType("the body must come as application/json, in UTF-8.")


def _fields(route: ModelRoute, head: RequestHead, endpoint: Endpoint) -> list[Field]:
    """Return the fields that go on, and the key's.

    The answer comes without a coding, so that its usage can be read and a key in it be seen.
    """
    key = route.key if route.provider.key_place is Place.BARE else b"Bearer " + route.key
    fields = [(route.provider.key_field, key), (b"Accept-Encoding", b"identity")]
    if endpoint.body is not None:
        fields.append((b"Content-Type", b"application/json"))
    for name, value in head.fields:
        small = name.lower()
        if small not in PASSED and not small.startswith(PASSED_BEGINNING):
            continue
        if small not in LISTED:
            head.one(small)  # of two, one server takes the first and another the last
        if route.placeholder not in value:
            fields.append((name, value))
    return fields
