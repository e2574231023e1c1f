"""The routes' file: all that bridges are to know, in one file or descriptor of Link's.

    {"caller": "…", "routes": […]}

The caller's key stands first, so that a proxy can read that and nothing behind it.
"""

from __future__ import annotations

import os

from sandbox.errors import SandboxError
from sandbox.kinds import DIGITS, LETTERS, made_of
from sandbox.route import dump_route
from sandbox.table import replaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.handed import HandedRoutes
    from sandbox.route import Route
    from sandbox.state import State

KEY_CHARS = 32


class Made(str):
    """A secret that a wrap has made: it gives way to one that its name has by then."""

    __slots__ = ()


def new_key() -> str:
    """Return a new key or placeholder: letters and digits that nobody can guess."""
    alphabet = LETTERS + DIGITS
    found = ""
    while len(found) < KEY_CHARS:
        # Of a byte's 256 values the first 248 are four of each letter and digit.
        found += "".join(alphabet[byte % 62] for byte in os.urandom(KEY_CHARS) if byte < 248)
    return found[:KEY_CHARS]


def routes_file(state: str, name: str) -> str:
    """Return the file of a sandbox's routes in Link's settings."""
    return os.path.join(state, "sandbox", f"{name}.routes.json")


def secret_file(state: str, name: str) -> str:
    """Return the file of the secret in its routes' addresses."""
    return os.path.join(state, "sandbox", f"{name}.url-secret")


def kept_secret(state: State, name: str) -> str | None:
    """Return the secret that a sandbox's addresses have had; None where there is none."""
    found = (state.read(os.path.basename(secret_file("", name))) or b"").decode("ascii", "replace")
    return found if 16 <= len(found) <= 64 and made_of(LETTERS + DIGITS)(found) else None


def as_kept(
    routes: tuple[Route, ...], caller: str, settings: str, name: str
) -> tuple[tuple[Route, ...], str]:
    """Return a sandbox's routes and their caller's key, as far as both are like those it has had.

    A command that was kept holds their placeholders: with new ones it would be refused.
    """
    kept = _kept_routes(settings, name)
    if kept is None:
        return routes, caller
    held = {_which(route): getattr(route, "placeholder", "") for route in kept.routes}
    made = []
    for route in routes:
        placeholder = held.get(_which(route), "")
        if len(placeholder) == KEY_CHARS and made_of(LETTERS + DIGITS)(placeholder):
            route = replaced(route, placeholder=placeholder)
        made.append(route)
    return tuple(made), kept.caller


def _which(route: Route) -> tuple[str, str]:
    """Return what tells a route from the others of its sandbox that have a placeholder."""
    return route.kind, getattr(route, "provider", getattr(route, "name", ""))


def _kept_routes(settings: str, name: str) -> HandedRoutes | None:
    from sandbox.handed import HandedRoutes
    from sandbox.state import State

    try:
        data = State(settings).read(os.path.basename(routes_file(settings, name)))
        return None if data is None else HandedRoutes.read(data)
    except (SandboxError, OSError):
        return None  # `wrap` says what is wrong with them, or writes others


def head_of(caller: str) -> bytes:
    """Return what a routes' file begins with; with a brace behind it is JSON too."""
    import json

    return b'{"caller": ' + json.dumps(caller).encode()


def text_of(caller: str, routes: Iterable[Route]) -> bytes:
    """Return a routes' file."""
    import json

    every = json.dumps([dump_route(each) for each in routes]).encode()
    return head_of(caller) + b', "routes": ' + every + b"}\n"
