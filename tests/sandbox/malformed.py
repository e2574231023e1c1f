"""Malformed requests made from the typed tables, each with the path that must be named.

For every key of every table that a request can reach: an unknown sibling, the key left
out, given twice, and every wrong value its kind has.  Nothing here lists a key by hand,
so a key that is added is tried too.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from typing import Any

from sandbox.confinement import (
    EXIT,
    MODES,
    Confinement,
    Listed,
    Programs,
    Proxy,
    RouteKind,
    Unwalled,
    WrapRequest,
)
from sandbox.handed import EnvName
from sandbox.kinds import (
    Argument,
    Argv,
    Flag,
    ListOf,
    MapOf,
    Nested,
    Number,
    PathTo,
    Tagged,
    Text,
    Word,
)
from sandbox.route import ROUTES
from sandbox.table import Kind, keys_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder the packages stand in."""

Case = tuple[str, str, str]
"""What was done, the request's text, the path its refusal must begin with."""

TEXTS = {
    "a sandbox's name": "box",
    "a host": "example.com",
    "an exit": "direct",
    "a secret": "a" * 16,
    "a caller's key": "k" * 16,
    "a placeholder": "placeholder",
    "a path's shape": "/bot{secret}/{name}",
    "a header's value": "Bearer {secret}",
    "where a key is": "env:KEY",
}


def sample(kind: Kind) -> Any:
    """Return a value that a kind takes."""
    match kind:
        case EnvName():
            return "GREETING"
        case Text():
            return TEXTS.get(kind.words, "name")
        case Flag():
            return True
        case Number():
            return kind.low + 7
        case Word():
            return kind.choices[0]
        case PathTo():
            return "/srv/work"
        case Programs():
            return "any"
        case Argv():
            return ["/bin/true", ""]
        case ListOf():
            return [sample(kind.item)]
        case Argument():
            return "word"
        case MapOf():
            return {sample(kind.name): sample(kind.item)}
        case Nested():
            return sample_table(kind.of())
        case Tagged():
            return "closed"
        case RouteKind():
            return {"kind": "local", "port": 11434}
    raise AssertionError(f"no sample of {kind!r}")


def sample_table(made: type[Any], *, whole: bool = False) -> dict[str, Any]:
    """Return a table with its required keys, or with all that can stand together."""
    return {
        name: sample(one.kind)
        for name, one in keys_of(made).items()
        if one.required or (whole and (made, name) not in APART)
    }


APART = {
    (Confinement, "write_dot_files"),
    (WrapRequest, "confinement"),
    (WrapRequest, "unwalled"),
    (Proxy, "no_internet"),
    (Proxy, "routes"),
}


def wrongs(kind: Kind) -> Iterator[tuple[str, Any, tuple[str | int, ...]]]:
    """Yield what was done, a value that a kind refuses, and the steps inside it to blame."""
    for value in (None, 1.5, {"no": "such"}, [["deep"]]):
        if not isinstance(kind, ListOf | MapOf | Nested | Tagged | Programs | RouteKind):
            yield f"{value!r}", value, ()
    match kind:
        case Text() | PathTo() | Argument():
            yield "a number", 7, ()
            yield "true", True, ()
            yield "a NUL", "a\0b", ()
            yield "half a character", "\ud800", ()
            yield "too long", "/" + "a/" * 200_000, ()
            if not isinstance(kind, Argument) and getattr(kind, "least", 1):
                yield "empty", "", ()
        case Flag():
            yield "a text", "true", ()
            yield "a number", 1, ()
        case Number():
            for value in (True, "8080", kind.low - 1, kind.high + 1, -1, 10**30, 8080.0):
                yield repr(value), value, ()
        case Word():
            yield "another word", kind.choices[0] + "s", ()
            yield "true", True, ()
    if isinstance(kind, PathTo):
        for path in ("relative", "./here", "~/home", "/a/../b", "/a/./b", "/", "/" + "a" * 256):
            yield path[:20], path, ()
    if kind is EXIT:
        yield "another scheme", "ftp://example.com", ()
    if isinstance(kind, ListOf):
        yield "no list", "text", ()
        yield "null", None, ()
        yield "an object", {}, ()
        if kind.least:
            yield "empty", [], ()
        yield "too many", [None] * (kind.most + 1), ()
        for said, value, steps in wrongs(kind.item):
            yield f"[{said}]", [value], (0, *steps)
    if isinstance(kind, Listed):
        yield "any and more", ["example.com", "*"], (1,)
    if isinstance(kind, Programs):
        yield "another word", "none", ()
        yield "a list", ["/bin/true"], ()
        yield "no programs", {"only": []}, ("only",)
        yield "nothing", {}, ("only",)
        yield "an unknown key", {"only": ["/bin/true"], "but": []}, ("but",)
        yield "a relative path", {"only": ["true"]}, ("only", 0)
    if isinstance(kind, MapOf | Nested | Tagged | RouteKind):
        for value in (7, True, [], None):
            yield f"{value!r}", value, ()
    if isinstance(kind, MapOf):
        yield "a bad name", {"a b": sample(kind.item)}, ("a b",)
        for said, value, steps in wrongs(kind.item):
            yield f"{{{said}}}", {sample(kind.name): value}, (sample(kind.name), *steps)
    if isinstance(kind, Tagged):
        yield "a text", "closd", ()
        yield "no mode", {}, ()
        yield "an unknown mode", {"prxied": {}}, ("prxied",)
        yield "a word as an object", {"closed": {}}, ("closed",)
        yield "two modes", {"host": {}, "loopback": {}}, ()
        yield "a mode with no keys", "proxied", ()
    if isinstance(kind, RouteKind):
        yield "no kind", {"port": 1}, ("kind",)
        yield "an unknown kind", {"kind": "hole"}, ("kind",)


class Twice(dict[str, Any]):
    """An object whose key `twice` is printed two times."""

    def __init__(self, pairs: dict[str, Any], twice: str) -> None:
        super().__init__(pairs)
        self.twice = twice


def text_of(value: Any) -> str:
    """Return JSON, a `Twice`'s key two times in it."""
    if isinstance(value, dict):
        pairs = [f"{json.dumps(name)}:{text_of(entry)}" for name, entry in value.items()]
        if isinstance(value, Twice):
            pairs.append(f"{json.dumps(value.twice)}:{text_of(value[value.twice])}")
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value)


def path_of(steps: tuple[str | int, ...]) -> str:
    text = ""
    for step in steps:
        plain = isinstance(step, str) and step.replace("_", "").isalnum()
        if plain:
            text += f".{step}" if text else str(step)
        else:
            text += f"[{json.dumps(step)}]"
    return text


def put(root: Any, steps: tuple[str | int, ...], value: Any) -> Any:
    """Return a copy of a request with a value put at some steps."""
    if not steps:
        return value
    copied = copy.copy(root)
    inner = copied.get(steps[0]) if isinstance(copied, dict) else copied[int(steps[0])]
    copied[steps[0]] = put(inner, steps[1:], value)
    return copied


Steps = tuple[str | int, ...]
Reach = tuple[type[Any], dict[str, Any], Steps]
"""A table, a request that reaches it, and where in the request it stands."""


def reached() -> Iterator[Reach]:
    """Yield each table that a request can reach."""
    base = {"confinement": sample_table(Confinement), "argv": ["/bin/true"]}
    yield WrapRequest, base, ()
    whole = {**base, "confinement": sample_table(Confinement, whole=True)}
    yield Confinement, whole, ("confinement",)
    net: Steps = ("confinement", "net")
    for mode, made in MODES.items():
        if keys_of(made):
            yield from below(made, put(base, net, {mode: sample_table(made)}), (*net, mode))
    proxy: Steps = (*net, "proxied", "proxy")
    filled = sample_table(Proxy, whole=True)
    proxied = put(base, net, {"proxied": {"proxy": filled, "ports": []}})
    yield Proxy, proxied, proxy
    for kind, made in ROUTES.items():
        route = {"kind": kind, **sample_table(made)}
        request = put(proxied, proxy, {**filled, "routes": [route]})
        yield from below(made, request, (*proxy, "routes", 0))
    yield from below(Unwalled, {"unwalled": sample_table(Unwalled), "argv": ["id"]}, ("unwalled",))


def below(made: type[Any], request: dict[str, Any], steps: Steps) -> Iterator[Reach]:
    """Yield a table and each table in it, put there where it is optional."""
    yield made, request, steps
    for name, one in keys_of(made).items():
        kind, at = one.kind, (*steps, name)
        value = sample(kind)
        if isinstance(kind, ListOf):
            kind, at = kind.item, (*at, 0)
        if isinstance(kind, Nested):
            yield from below(kind.of(), put(request, (*steps, name), value), at)


def cases() -> Iterator[Case]:
    """Yield every malformed request."""
    for made, request, steps in reached():
        at: Any = request
        for step in steps:
            at = at[step]
        strange = {**at, "strangest": 1}
        where = f"{made.__name__} at {path_of(steps) or 'the top'}"
        yield (
            f"{where}: unknown",
            text_of(put(request, steps, strange)),
            path_of((*steps, "strangest")),
        )
        for name, one in keys_of(made).items():
            here = (*steps, name)
            if name in at:
                twice = put(request, steps, Twice(at, name))
                yield f"{where}: {name} twice", text_of(twice), path_of(here)
            if one.required:
                without = {key: value for key, value in at.items() if key != name}
                yield f"{where}: no {name}", text_of(put(request, steps, without)), path_of(here)
            near = {**at, name[:-1] + "X": 1}
            yield (
                f"{where}: near {name}",
                text_of(put(request, steps, near)),
                path_of((*steps, name[:-1] + "X")),
            )
            for said, value, inside in wrongs(one.kind):
                wrong = put(request, steps, {**at, name: value})
                yield f"{where}: {name} {said}", text_of(wrong), path_of((*here, *inside))
