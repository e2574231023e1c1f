"""What a call to a tool may be: its HTTP request, its message, whether the person is asked.

Everything here is judged from the request alone.  The protocol's revisions are told apart
by how a client begins: up to 2025-11-25 by `initialize` and a session, since 2026-07-28 by
what each request says of itself (its `_meta`, repeated in header fields).

Which calls ask is an allow-list: what is known to look at nothing but lists, and to change
nothing, asks nobody; whatever else there is, or will be, does (the decision on tools that
run outside).  A server's own word on a call is never heard here.
"""

from __future__ import annotations

import binascii
import re
import unicodedata

import msgspec

from proto.codecs.http1 import RequestHead
from proto.codecs.jsonrpc import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Answer,
    Id,
    MalformedMessage,
    Message,
    Notification,
    Number,
    Object,
    Request,
    Value,
    read,
    text_of,
)

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions that begin with `initialize`.  Two before the current one are kept up; the
older ones differ in nothing that passes here, and servers of theirs are still about."""

JSON, SSE = "application/json", "text/event-stream"

META = "_meta"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

HEADER_MISMATCH, UNSUPPORTED_VERSION, INVALID_PARAMS = -32020, -32022, -32602
"""The protocol's own codes (2026-07-28, error codes), and JSON-RPC's."""
REFUSED = 403
"""Our code for what the person, or their policy, said no to; outside every reserved range."""

QUIET = frozenset(
    {
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "subscriptions/listen",
        "completion/complete",
        "logging/setLevel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/cancel",
    }
)
"""Requests that ask nobody: they list, or follow up what was asked about."""

ROOTS, ROOTS_CHANGED = "roots/list", "notifications/roots/list_changed"
"""What a server asks of a client's folders, and what a client says of them: neither goes on."""

ELICITATION = "elicitation/create"
"""What a server asks its client's person, who is told by nobody here but their program."""
INPUTS = "inputResponses"
"""A request's answers to what its server asked before (2026-07-28, multi round-trip requests)."""
ACTION, SAYS_NO = "action", ("decline", "cancel")

FROM_CLIENT = frozenset(
    {
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/progress",
        ROOTS_CHANGED,
    }
)
"""The notifications a client may send.  A call without an id is none of them: nobody could
tell the program that it was refused, so it never reaches the tool."""

NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Requests that are for one thing, and the parameter that says which."""

JUDGED = ("name", "arguments", "uri", "requestId", "capabilities", INPUTS, META)
"""The parameters that decide what a call is, and what its client may be asked."""

METHOD_MAX_CHARS = 128
NAME_MAX_CHARS = 256
TOKEN_MAX_CHARS = 256


class Turned(Exception):
    """A request that goes no further: the answer's status, and JSON-RPC's error in its body."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int = INVALID_REQUEST,
        id_: Id | None = None,
        allow: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.id = id_
        self.allow = allow

    @property
    def refuses(self) -> bool:
        """Whether it is a no of the person's policy, which the wire's log has as one."""
        return self.code == REFUSED


class Rule(msgspec.Struct, frozen=True):
    """What a person said of a tool: which calls ask, `all` but those allowed or `none`."""

    asks: bool
    allow: frozenset[str]


class Post(msgspec.Struct, frozen=True):
    """A POST that may be acted on.  `json`, `sse`: what the client takes for an answer."""

    message: Message
    modern: bool
    session: str | None
    json: bool
    sse: bool


def check_origin(head: RequestHead) -> None:
    """Refuse a request from a page: by a name that leads here, any site could call.

    A program sends no Origin, so none is right, not even this machine's.
    """
    if head.get_all(b"origin"):
        raise Turned(403, "pages may not call a tool.", code=REFUSED)


def read_post(head: RequestHead, body: bytes) -> Post:
    """Judge a POST; raises Turned."""
    _check_content_type(head)
    json, sse = accepted(head)
    if not json and not sse:
        raise Turned(406, f"the answer is {JSON} or {SSE}, and the request accepts neither.")
    version = _single(head, b"mcp-protocol-version")
    session = _single(head, b"mcp-session-id")
    try:
        message = read(body)
    except MalformedMessage as error:
        raise Turned(400, error.message, code=error.code, id_=error.id) from None
    _check_spelling(message)
    _check_headers(head, message)
    modern = _is_modern(message, version)
    if not modern and version is not None and version not in LEGACY:
        known = ", ".join((MODERN, *LEGACY))
        raise Turned(
            400,
            f"that revision of the protocol isn't known here: {known} are.",
            code=UNSUPPORTED_VERSION,
            id_=_id_of(message),
        )
    return Post(message, modern, session, json, sse)


def accepted(head: RequestHead) -> tuple[bool, bool]:
    """Tell whether an answer may be JSON, and a stream of events (RFC 9110 §12.5.1)."""
    ranges: dict[str, bool] = {}
    for value in head.get_all(b"accept"):
        for each in value.decode("latin-1").lower().split(","):
            name, _, told = each.partition(";")
            ranges[name.strip()] = _NOT_AT_ALL.search(told) is None
    if not ranges:
        return True, True
    return _takes(ranges, JSON), _takes(ranges, SSE)


_NOT_AT_ALL = re.compile(r"(?:^|;)[ \t]*q[ \t]*=[ \t]*0(?:\.0*)?[ \t]*(?:;|$)")
"""A weight of nothing (RFC 9110 §12.4.2): this is what the client doesn't take."""


def _takes(ranges: dict[str, bool], kind: str) -> bool:
    """Tell whether a client takes a type: the range that names it most closely says so."""
    for name in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        if name in ranges:
            return ranges[name]
    return False


def _check_content_type(head: RequestHead) -> None:
    """Take JSON alone: a page may send other types without being asked (Fetch §3.2.3)."""
    kind, _, rest = (_single(head, b"content-type") or "").partition(";")
    charset = rest.replace(" ", "").lower()
    if kind.strip().lower() != JSON or charset not in ("", "charset=utf-8", 'charset="utf-8"'):
        raise Turned(415, f"the body must be {JSON}, in UTF-8.")
    coding = _single(head, b"content-encoding")
    if coding is not None and coding.lower() != "identity":
        raise Turned(415, "the body must come without a coding (Content-Encoding).")


def _single(head: RequestHead, name: bytes) -> str | None:
    """Return a field's value; a second one, for another reader to take, is refused."""
    values = head.get_all(name)
    if len(values) > 1:
        raise Turned(400, f"the field {name.decode()} came more than once.")
    return values[0].decode("latin-1") if values else None


def _id_of(message: Message) -> Id | None:
    return message.id if isinstance(message, Request) else None


def _check_spelling(message: Message) -> None:
    """Refuse a parameter that a reader who ignores case would take for one that is judged.

    `Name` beside `name`: Go's readers take the last of the two.  So do those that fold
    what only looks alike, a long s or a full-width letter.
    """
    if isinstance(message, Answer) or message.params is None:
        return
    for name in message.params:
        if name not in JUDGED and _folded(name) in JUDGED:
            raise Turned(400, "a parameter is spelled nearly as another.", id_=_id_of(message))


def _folded(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name).casefold()
    return next((each for each in JUDGED if each.casefold() == folded), folded)


def _check_headers(head: RequestHead, message: Message) -> None:
    """Refuse header fields that say of the call something else than its body does.

    Whoever goes by the fields must see what the tool sees (2026-07-28, server validation).
    """
    if isinstance(message, Answer):
        return
    id_ = _id_of(message)
    method = _single(head, b"mcp-method")
    if method is not None and method != message.method:
        raise _mismatch("mcp-method", id_)
    name = _single(head, b"mcp-name")
    if name is not None and _decoded(name, id_) != name_of(message):
        raise _mismatch("mcp-name", id_)


def _mismatch(name: str, id_: Id | None) -> Turned:
    message = f"the field {name} isn't what the body says."
    return Turned(400, message, code=HEADER_MISMATCH, id_=id_)


def _decoded(value: str, id_: Id | None) -> str:
    """Decode a field's value (2026-07-28, value encoding)."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return binascii.a2b_base64(value[9:-2], strict_mode=True).decode()
    except ValueError:
        raise _mismatch("mcp-name", id_) from None


def name_of(message: Request | Notification) -> Value:
    """Return what a request is for, where its method is for one thing."""
    key = NAMED.get(message.method)
    return None if key is None or message.params is None else message.params.get(key)


def _is_modern(message: Message, version: str | None) -> bool:
    """Tell whether a request is one of the current revision; raises Turned where it is half.

    Its field and its `_meta` must say the same.
    """
    meta = None if isinstance(message, Answer) or message.params is None else (
        message.params.get(META)
    )  # fmt: skip
    said = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    if said is None and version != MODERN:
        return False
    id_ = _id_of(message)
    if said != version:
        raise _mismatch("mcp-protocol-version", id_)
    return version == MODERN


def check_request(request: Request) -> None:
    """Refuse a request that isn't whole: two servers would make two things of it."""
    method, params = request.method, request.params
    if not _is_word(method) or method.startswith("notifications/"):
        raise Turned(400, "there is no such method.", code=METHOD_NOT_FOUND, id_=request.id)
    if method in NAMED:
        name = name_of(request)
        if not isinstance(name, str) or not name or len(name) > NAME_MAX_CHARS:
            raise _wrong(f"{method} needs its {NAMED[method]}, as text.", request.id)
    if params is None:
        return
    if not isinstance(params.get("arguments", {}), dict) and method in NAMED:
        raise _wrong("arguments are an object.", request.id)
    if not isinstance(params.get(META, {}), dict):
        raise _wrong("_meta is an object.", request.id)
    token = meta_of(params).get("progressToken", "")
    if not (isinstance(token, str | Number) and len(text_of(token)) <= TOKEN_MAX_CHARS):
        # It isn't shown, so it must have no room for what should be.
        raise _wrong("a progressToken is text or a number, and short.", request.id)
    if any(_is_spelled(each, "roots") for each in _inputs_of(params, request.id)):
        raise _wrong("a tool's client has no roots here.", request.id)


def _is_word(method: str) -> bool:
    """Tell whether a method could be one: what can't be printed would hide in the question."""
    return 0 < len(method) <= METHOD_MAX_CHARS and method.isascii() and (
        method.isprintable() and " " not in method
    )  # fmt: skip


def _wrong(message: str, id_: Id) -> Turned:
    return Turned(400, message, code=INVALID_PARAMS, id_=id_)


def asks(rule: Rule, request: Request) -> bool:
    """Tell whether the person is asked about a request.

    `allow` names calls, exactly as they are written; a name with a slash may be a method's
    too (`resources/read`).  What would say that the person has agreed asks them, always.
    """
    if not rule.asks:
        return False
    inputs = _inputs_of(request.params, request.id)
    if any(_is_spelled(each, ACTION) and not is_plain_no(each) for each in inputs):
        return True
    if request.method in QUIET:
        return False
    if request.method == "tools/call":
        assert request.params is not None, "check_request has seen its name"
        return request.params["name"] not in rule.allow
    # A call's name without one is none of a method's: a server may do anything by that.
    return "/" not in request.method or request.method not in rule.allow


def is_plain_no(result: Value) -> bool:
    """Tell whether an answer to what a server asks its person says no, and nothing else."""
    return (
        isinstance(result, dict)
        and result.get(ACTION) in SAYS_NO
        and result.keys() <= {ACTION, META}
    )


def _is_spelled(value: Value, key: str) -> bool:
    """Tell whether an object has a key, or one that a reader might take for it."""
    return isinstance(value, dict) and any(_folded(name) == key for name in value)


def _inputs_of(params: Object | None, id_: Id) -> list[Value]:
    """Return a request's answers to what its server asked; raises Turned where they are none."""
    inputs = (params or {}).get(INPUTS)
    if inputs is None:
        return []
    if not isinstance(inputs, dict):
        raise _wrong(f"{INPUTS} are an object.", id_)
    return list(inputs.values())


def meta_of(params: Object | None) -> Object:
    """Return a request's `_meta`; empty where it has none."""
    meta = (params or {}).get(META)
    return meta if isinstance(meta, dict) else {}


def claims(request: Request) -> Object | None:
    """Return a request's parameters without its client's claim to have roots."""
    params = request.params
    if params is None:
        return None
    meta = params.get(META)
    if isinstance(meta, dict) and CAPABILITIES_KEY in meta:
        said = {**meta, CAPABILITIES_KEY: _rootless(meta[CAPABILITIES_KEY])}
        params = {**params, META: said}
    if request.method == "initialize" and "capabilities" in params:
        params = {**params, "capabilities": _rootless(params["capabilities"])}
    return params


def _rootless(capabilities: Value) -> Value:
    if not isinstance(capabilities, dict):
        return capabilities
    return {name: value for name, value in capabilities.items() if name.casefold() != "roots"}
