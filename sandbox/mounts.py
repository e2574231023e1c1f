"""What of a wire's routes its proxy and its program may know: no key, no secret, no argv.

The proxy gets the mounts, plain data; the program gets variables that lead to them.  The rest
of a route is for its bridge alone, which reads it from a descriptor that the proxy passes on.
"""

from __future__ import annotations

from sandbox import hosted
from sandbox.hosted import SDKS
from sandbox.route import Bridge, Local, Model, Open, Secret, Tool, variable_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandbox.route import Route

NEED_SECRET = (Local, Tool, Open)
"""Routes without a placeholder: their addresses carry the proxy's URL secret."""


def mount_of(route: Route) -> dict[str, object]:
    """Return a route's mount, as JSON has it."""
    match route:
        case Model():
            host = SDKS[route.provider].host
            return {"kind": "model", "provider": route.provider, "host": host}
        case Secret():
            return {"kind": "secret", "name": route.name, "host": route.rule.host}
        case Local():
            return {"kind": "local", "port": route.port}
        case Tool():
            return {"kind": "tool", "name": route.name}
        case Open():
            return {"kind": "open"}
        case Bridge():
            found: dict[str, object] = {"kind": "bridge", "name": route.name}
            found["needs_secret"] = route.needs_secret
            return found if route.socket is None else {**found, "socket": route.socket}
    raise AssertionError(route)


def relayed(mounts: Iterable[dict[str, object]]) -> list[list[object]]:
    """Return the sockets inside at which local models are reached, as the socket maker has them.

    A program keeps its runtime's own address; what comes there is held to the same filter.
    """
    return [["tcp", "127.0.0.1", each["port"]] for each in mounts if each["kind"] == "local"]


def needs_secret(routes: Iterable[Route]) -> bool:
    """Tell whether an address of these carries the URL secret."""
    return any(
        isinstance(each, NEED_SECRET) or (isinstance(each, Bridge) and each.needs_secret)
        for each in routes
    )


RUNS, REACHES = "runs", "reaches"


def outside_of(route: Route) -> Iterator[tuple[str, str]]:
    """Yield what a route RUNS outside, as far as its command line names it, and REACHES there."""
    argv = getattr(route, "argv", None) or ()
    words = (word.partition("=")[2] if word.startswith("-") else word for word in argv)
    yield from ((RUNS, word) for word in words if word.startswith("/"))
    if isinstance(route, Bridge) and route.socket is not None:
        yield REACHES, route.socket


def path_of(route: Route, secret: str) -> str:
    """Return where a route is mounted, without a slash behind."""
    match route:
        case Model():
            return f"/_link/model/{route.provider}"
        case Secret():
            return f"/_link/secret/{route.name}"
        case Local():
            return f"/_link/s/{secret}/local/{route.port}"
        case Tool():
            return f"/_link/s/{secret}/mcp/{route.name}"
        case Open():
            return f"/_link/s/{secret}/open"
        case Bridge():
            closed = f"s/{secret}/" if route.needs_secret else ""
            return f"/_link/{closed}{route.name}"
    raise AssertionError(route)


def variables_of(routes: Iterable[Route], base: str, secret: str) -> dict[str, str]:
    """Return what a program's environment gets for its routes.

    base: the proxy as the program reaches it, `http://127.0.0.1:<port>`.
    """
    found: dict[str, str] = {}
    for route in routes:
        found.update(_variables(route, base + path_of(route, secret)))
    return found


def _variables(route: Route, url: str) -> Iterator[tuple[str, str]]:
    match route:
        case Secret():
            name = f"LNK_SECRET_{variable_of(route.name)}"
            yield name, url
            yield f"{name}_PLACEHOLDER", route.placeholder
        case Local():
            yield f"LNK_LOCAL_MODEL_{route.port}", url
        case Tool():
            yield f"LNK_TOOL_{variable_of(route.name)}", url
        case Open():
            yield "LNK_SANDBOX_OPEN", url
        case Bridge():
            for name, value in route.env.items():
                yield name, value.replace("{url}", url)
        case Model():
            yield from hosted.variables_of(route.provider, url, route.placeholder)
