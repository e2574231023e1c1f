"""JSON-RPC 2.0 messages, read so that no two readers could read them differently.

A message is judged here and acted on elsewhere, by a server in any language.  So JSON in
which one reader sees another call than the next (a key twice, a byte order mark, UTF-16,
a number that is none) is malformed, and what goes on is printed anew from what was read:
ASCII, one line, the numbers with the digits they came with.

Model Context Protocol revisions since 2025-06-18 have no batches, and a list is malformed.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import TypeAlias

import msgspec

MESSAGE_MAX_BYTES = 64 << 20
"""The longest line that is read from a server: results hold whole files, in base64."""
PARTS_MAX = 2 << 20
"""The most texts, and signs between values, that are read as a message: each takes some 65 bytes
once it is read, so that 64 MiB of empty lists would take three gigabytes.  A thousand calls
with all their schemas have some hundred thousand."""
DEPTH_MAX = 100
"""How deep lists and objects may be nested; the readers behind recurse."""
ID_MAX_CHARS = 256
NUMBER_MAX_CHARS = 1000
"""Readers fail on longer ones, Python's at 4300 digits."""

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL = -32700, -32600, -32601, -32603

_PART = re.compile(rb'"[^"]*+"|[,:\[{]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
"""No `-0`: a server would answer to 0, which is another id by its text."""


class Number(msgspec.Struct, frozen=True):
    """A number, by the text it was written as: no digit of it is lost."""

    text: str


Value: TypeAlias = "bool | str | Number | list[Value] | dict[str, Value] | None"
Object: TypeAlias = dict[str, Value]
Id = str | Number
"""Of a request: text or a whole number.  `1` and `"1"` are two."""


class MalformedMessage(Exception):
    """Bytes that are no message; `code` is JSON-RPC's, `id` the request's where it is known."""

    def __init__(self, message: str, code: int = INVALID_REQUEST, id_: Id | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.id = id_


class TooManyParts(MalformedMessage):
    """Bytes that would take too much memory as a message; they aren't read."""


class Request(msgspec.Struct, frozen=True):
    """A request, which is answered with its id."""

    id: Id
    method: str
    params: Object | None


class Notification(msgspec.Struct, frozen=True):
    """A request without an id: nobody answers it."""

    method: str
    params: Object | None


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request: a result, or an error's object where `error` is set.

    An error that answers what could not be read has no id.
    """

    id: Id | None
    result: Value = None
    error: Object | None = None


Message = Request | Notification | Answer

_SHAPES: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    (frozenset({"jsonrpc", "id", "method"}), frozenset({"params"})),
    (frozenset({"jsonrpc", "method"}), frozenset({"params"})),
    (frozenset({"jsonrpc", "id", "result"}), frozenset()),
    (frozenset({"jsonrpc", "error"}), frozenset({"id"})),
)
"""The members each kind of message has, and may have."""


def read(data: bytes) -> Message:
    """Read one message.  Raises MalformedMessage, with the id where that can be told."""
    return message_of(parse(data))


def parse(data: bytes) -> Value:
    """Parse JSON (RFC 8259) strictly; raises MalformedMessage (-32700).

    Keys are unique in each object, text is UTF-8 without a mark and without halves of
    surrogate pairs, and nothing is nested deeper than DEPTH_MAX.  What has more than PARTS_MAX
    parts is TooManyParts.
    """
    if _has_too_many_parts(data):
        raise TooManyParts("the message has more parts than are read here.", PARSE_ERROR)
    try:
        text = data.decode()
        value: Value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_no_number,
        )
    except UnicodeDecodeError:
        raise MalformedMessage("the message is not UTF-8.", PARSE_ERROR) from None
    except json.JSONDecodeError:
        raise MalformedMessage("the message is not one JSON text.", PARSE_ERROR) from None
    except RecursionError:
        raise MalformedMessage("the message is nested too deeply.", PARSE_ERROR) from None
    _check(value)
    return value


def _has_too_many_parts(data: bytes) -> bool:
    """Tell whether JSON has more texts, and signs between values, than PARTS_MAX.

    A text that holds signs, a table or a program, has one part however many they are.
    """
    signs = sum(data.count(sign) for sign in (b",", b":", b"[", b"{"))
    if 2 * signs + 1 <= PARTS_MAX:
        return False  # a text stands before or behind a sign, but for the only value
    # Without what is escaped, a text ends at the next quotation mark.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return next(islice(_PART.finditer(bare), PARTS_MAX, None), None) is not None


def _object(items: list[tuple[str, Value]]) -> Object:
    made = dict(items)
    if len(made) != len(items):
        # One reader takes the first of two, another the last: what was shown would not be
        # what is done.
        raise MalformedMessage("a key of the message is given twice.", PARSE_ERROR)
    return made


def _number(text: str) -> Number:
    if len(text) > NUMBER_MAX_CHARS:
        raise MalformedMessage("the message holds a number of too many digits.", PARSE_ERROR)
    return Number(text)


def _no_number(_: str) -> Value:
    raise MalformedMessage("the message holds a number that JSON hasn't.", PARSE_ERROR)


def _check(value: Value) -> None:
    """Refuse what is nested too deeply, and halves of surrogate pairs."""
    level: list[Value] = [value]
    for _ in range(DEPTH_MAX):
        inner: list[Value] = []
        for each in level:
            if isinstance(each, str):
                _check_text(each)
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, dict):
                for name in each:
                    _check_text(name)
                inner += each.values()
        if not inner:
            return
        level = inner
    raise MalformedMessage("the message is nested too deeply.", PARSE_ERROR)


def _check_text(text: str) -> None:
    # No UTF-8 can hold one, so a reader replaces it, drops it or fails.
    if not text.isascii() and _SURROGATE.search(text):
        raise MalformedMessage("the message holds half a pair of surrogates.", PARSE_ERROR)


def message_of(value: Value) -> Message:
    """Return the message that a parsed value is; raises MalformedMessage (-32600)."""
    if isinstance(value, list):
        raise MalformedMessage("batches are no part of the protocol: send one message.")
    if not isinstance(value, dict):
        raise MalformedMessage("a message is an object.")
    known = _id_of(value.get("id"))
    keys = value.keys()
    shape = next((n for n, (has, may) in enumerate(_SHAPES) if has <= keys <= has | may), None)
    if value.get("jsonrpc") != "2.0" or shape is None:
        raise MalformedMessage("the message is no request, notification or answer.", id_=known)
    if "id" in value and known is None and not (shape == 3 and value["id"] is None):
        raise MalformedMessage("an id is text or a whole number.")
    if shape == 3:
        return Answer(known, error=_error_of(value["error"], known))
    if shape == 2:
        return Answer(known, result=value["result"])
    method, params = value["method"], value.get("params")
    if not isinstance(method, str):
        raise MalformedMessage("a method is text.", id_=known)
    if "params" in value and not isinstance(params, dict):
        # By place (a list) is JSON-RPC's, not this protocol's: nothing says what is what.
        raise MalformedMessage("params are an object.", id_=known)
    assert params is None or isinstance(params, dict)
    if known is None:
        return Notification(method, params)
    return Request(known, method, params)


def answered_by(data: bytes) -> Id | None:
    """Return the id of the request that bytes would answer, were they a message.

    For bytes that `read` refuses: whoever waits for that answer waits for nothing.  None where
    it can't be told.
    """
    if _has_too_many_parts(data):
        return None
    try:
        text = data.decode("utf-8-sig", "replace")
        value = json.loads(text, parse_int=Number, parse_float=Number)
    except (ValueError, RecursionError):
        return None
    return _id_of(value.get("id")) if isinstance(value, dict) and "method" not in value else None


def _id_of(value: Value) -> Id | None:
    """Return an id, None for what is none."""
    if isinstance(value, Number):
        return value if len(value.text) <= ID_MAX_CHARS and _INTEGER.fullmatch(value.text) else None
    return value if isinstance(value, str) and len(value) <= ID_MAX_CHARS else None


def _error_of(value: Value, known: Id | None) -> Object:
    if (
        isinstance(value, dict)
        and isinstance(value.get("code"), Number)
        and isinstance(value.get("message"), str)
    ):
        return value
    raise MalformedMessage("an error has a code and a message.", id_=known)


def write(message: Message) -> bytes:
    """Print a message: ASCII, on one line, without its end."""
    made: Object = {"jsonrpc": "2.0"}
    match message:
        case Answer(id=id_, error=None):
            made |= {"id": id_, "result": message.result}
        case Answer(id=id_, error=error):
            made |= {"id": id_, "error": error}
        case Request(id=id_, method=method, params=params):
            made |= {"id": id_, "method": method} | _with(params)
        case _:
            method, params = message.method, message.params
            made |= {"method": method} | _with(params)
    return text_of(made).encode("ascii")


def _with(params: Object | None) -> Object:
    return {} if params is None else {"params": params}


def text_of(value: Value) -> str:
    """Print a value as JSON on one line, in ASCII."""
    match value:
        case str():
            return encode_basestring_ascii(value)
        case Number(text=text):
            return text
        case dict():
            pairs = [f"{encode_basestring_ascii(k)}:{text_of(v)}" for k, v in value.items()]
            return "{" + ",".join(pairs) + "}"
        case list():
            return "[" + ",".join([text_of(each) for each in value]) + "]"
        case None:
            return "null"
        case _:
            return "true" if value else "false"


def error(id_: Id | None, code: int, message: str) -> Answer:
    """Return an answer that is an error."""
    return Answer(id_, error={"code": Number(str(code)), "message": message})


class LineReader:
    """Cuts a stream into its lines, one message each (stdio's framing).

    Only LF ends a line; a CR before it goes with it.  A line longer than the bound is
    never kept: `overlong` tells that one came, and nothing more is read.
    """

    __slots__ = ("_held", "_max_bytes", "overlong")

    def __init__(self, max_bytes: int = MESSAGE_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()  # a list of pieces would take many times as much of small ones
        self.overlong = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the lines that are whole now, empty ones left out."""
        *whole, rest = data.split(b"\n")
        lines: list[bytes] = []
        for each in whole:
            self._keep(each)
            if self.overlong:
                break
            lines.append(bytes(self._held).removesuffix(b"\r"))
            self._held.clear()
        else:
            self._keep(rest)
        return [line for line in lines if line]

    def _keep(self, piece: bytes) -> None:
        if self.overlong or len(self._held) + len(piece) > self._max_bytes:
            self.overlong, self._held = True, bytearray()
        else:
            self._held += piece
