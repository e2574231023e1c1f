"""`lnk sandbox proxy --routes-handed VARIABLE`: routes that are never in a file.

The variable has the number of a descriptor, which is read to its end: `{"routes", "caller",
"secret"}`.  A process of its own reads it, for the proxy is to have no key in memory.
"""

from __future__ import annotations

import os

from sandbox.cli.flags import UsageError
from sandbox.cli.handing import apart
from sandbox.errors import LaunchError, SpecError, quoted
from sandbox.handed import RUN_WITH_MAX_BYTES, HandedRoutes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def taken(variable: str, state: str, desktop: dict[str, str]) -> dict[str, Any] | None:
    """Return a wire's routes as the proxy knows them; None where none were handed.

    Takes the variable out of the environment, and closes the descriptor.  Raises UsageError,
    SpecError for what is wrong with the routes.
    """
    text = os.environ.pop(variable, "") if variable else ""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 2):
        raise UsageError(
            f"--routes-handed {quoted(variable)}: there is no such variable with a descriptor's "
            "number."
        )
    fd = int(text)

    def read() -> tuple[dict[str, Any], bytes | None]:
        return told_of(_read(fd, variable), state, desktop)

    told, given = apart(read)
    try:
        os.close(fd)
    except OSError as error:
        raise UsageError(f"--routes-handed {variable}: {error.strerror}.") from None
    routes: dict[str, Any] | None = told["routes"]
    return None if routes is None else {**routes, "fd": given}


def _read(fd: int, variable: str) -> HandedRoutes:
    try:
        with open(fd, "rb", closefd=False) as source:
            return HandedRoutes.read(source.read(RUN_WITH_MAX_BYTES + 1))
    except SpecError as error:
        raise UsageError(f"--routes-handed {variable}: {error}") from None
    except OSError as error:
        why = f"its descriptor can't be read: {error.strerror}."
        raise LaunchError(
            "routes", error.errno or 0, f"--routes-handed {variable}: {why}"
        ) from None


def told_of(
    handed: HandedRoutes, state: str, desktop: dict[str, str]
) -> tuple[dict[str, Any], bytes | None]:
    """Return what a proxy may know of its routes, and what its bridges alone may."""
    from sandbox.mounts import mount_of, needs_secret
    from sandbox.routes_file import text_of

    if not handed.routes:
        return {"routes": None}, None
    if needs_secret(handed.routes) and handed.secret is None:
        raise SpecError("secret", "is missing; these routes' addresses carry it")
    routes = {
        "mounts": [mount_of(each) for each in handed.routes],
        "caller": handed.caller,
        "secret": handed.secret,
        "state": state,
        "desktop": desktop,
        "front": os.getpgrp(),
    }
    return {"routes": routes}, text_of(handed.caller, handed.routes)
