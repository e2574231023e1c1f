"""Fuzz target: the line that binds a blank proxy (`sandbox.cli.blank`); corpus in `corpus/bind`."""

from __future__ import annotations

import json

from sandbox.cli.blank import read_bind, told_of
from sandbox.errors import SpecError
from sandbox.table import dump_table


def one_input(data: bytes) -> None:
    """Read a line: it is refused in one sentence, or means the same when it is said again."""
    try:
        bind = read_bind(data)
        told, given = told_of(bind, {})
    except SpecError as error:
        if "\n" in str(error) or not str(error).isprintable():
            raise
        return
    assert read_bind(json.dumps(dump_table(bind)).encode()) == bind
    assert (given is None) == (not bind.routes) == (told["routes"] is None)
    kept = json.dumps(told)
    for route in bind.routes:
        for name in ("secret", "secret_key"):
            secret = getattr(route, name, None)
            if secret is not None and secret not in dump_without(bind):
                assert secret not in kept, "a key reached the proxy"


def dump_without(bind: object) -> str:
    """Return a binding without its routes' secrets, as text: what it says elsewhere is known."""
    told = dump_table(bind)
    for route in told.get("routes", []):  # type: ignore[attr-defined]
        route.pop("secret", None)
        route.pop("key", None)
    return json.dumps(told)
