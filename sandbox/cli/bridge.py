"""`lnk sandbox bridge <kind>`: a bridge of Link's own, as a proxy starts it (hidden; R56).

It has descriptor 0, one line of JSON that says whose it is, and then its wire's life;
descriptor 3, the socket that it listens on; descriptor 4, the routes with all that is secret
in them, which no other process of the wire reads.  `start NAME` becomes another plugin's
bridge, whose command line is among the routes too.
"""

from __future__ import annotations

import os
import resource
import sys

from sandbox.cli.flags import UsageError
from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from proto.policy.records import Record
    from proto.verbs.bridge import Serve
    from sandbox.route import Route

    Loops = Callable[["Told", tuple[Route, ...]], None]

LIFE_FD, LISTENER_FD, ROUTES_FD = 0, 3, 4
LINE_MAX_BYTES = 64 * 1024
ROUTES_MAX_BYTES = 16 << 20


class Told:
    """What a bridge is told of its wire.

    name: the wire's.  caller: the key by which the proxy is known.  upstream: the exit, as it
    is written, and by whom (`proto.policy.cures`).  state: Link's settings, or None.
    listed: whether the sandbox doesn't reach every host by itself, for its wire has a list of
    them, or no internet.
    desktop: the environment that leads to the person's screen.  front: the process group of
    the run, which has the person's terminal while it is in front.  launcher: whose program is
    stopped while they are asked there, 0 for none.
    """

    __slots__ = (
        "by", "caller", "desktop", "front", "imports", "launcher", "listed", "name", "state",
        "upstream",
    )  # fmt: skip

    def __init__(self, told: dict[str, Any]) -> None:
        self.name: str = told["name"]
        self.caller: str = told["caller"]
        self.imports: list[str] = told["imports"]
        self.upstream: str = told["upstream"]
        self.by: str = told["by"]
        self.state: str | None = told["state"]
        self.listed: bool = told["listed"]
        self.desktop: dict[str, str] = told["desktop"]
        self.front: int = told["front"]
        self.launcher: int = told["launcher"]


def main(words: list[str]) -> int:
    """Serve until the wire ends; raise SandboxError where it can't."""
    kind, *rest = words or [""]
    if kind not in (*SERVES, *LOOPS, "start"):
        raise UsageError("this command is for Link's proxy alone, which starts it.")
    if kind == "start":
        return _become(rest[0])
    import json

    _keep_to_itself()
    told = Told(json.loads(read_line(LIFE_FD)))
    sys.path += [folder for folder in told.imports if folder not in sys.path]
    routes = read_routes(ROUTES_FD)
    if kind in LOOPS:
        LOOPS[kind]()(told, routes)
    else:
        serve(SERVES[kind](told, routes), told)
    return 0


def read_line(fd: int, most: int = LINE_MAX_BYTES) -> bytes:
    """Read one line, and no byte behind it."""
    line = b""
    while not line.endswith(b"\n") and len(line) < most:
        byte = os.read(fd, 1)
        if not byte:
            raise SandboxError("the bridge was told nothing.", exit_code=1)
        line += byte
    return line


def read_routes(fd: int) -> tuple[Route, ...]:
    """Read the routes from their descriptor, which others read too, and close it."""
    from sandbox.place import Place
    from sandbox.route import read_route
    from sandbox.strict_json import read_json

    data, at = b"", 0
    while piece := os.pread(fd, ROUTES_MAX_BYTES, at):
        data, at = data + piece, at + len(piece)
    os.close(fd)
    told = read_json(data, ROUTES_MAX_BYTES)
    assert isinstance(told, dict), "the routes' file is Link's own"
    place = Place(("routes",))
    return tuple(read_route(each, place.at(at)) for at, each in enumerate(told["routes"]))


def serve(verb: Serve, told: Told) -> None:
    """Serve a verb on the bridge's socket for as long as the wire lives."""
    from proto.calls.limits import Limits
    from proto.policy.cures import CURES
    from proto.policy.exits import Exit
    from proto.policy.keys import Key
    from proto.verbs.bridge import bridge_connection
    from shells.env import Env
    from shells.listen import adopt_listener, raise_descriptor_limit
    from shells.machine import Machine
    from shells.resolve import lookup
    from shells.uvloop_shell import serve as serve_listeners

    limits, caller = Limits(), Key(told.caller)
    exit_ = Exit.of(told.upstream, CURES[told.by].upstream)
    machine = Machine()
    try:
        raise_descriptor_limit()
        serve_listeners(
            [adopt_listener(LISTENER_FD)],
            lambda now: bridge_connection(verb, caller, limits, now, exit_),
            Env(lookup=lookup, locate=machine.locate, log=OfTheExit(told.upstream)),
            stop_fd=LIFE_FD,
        )
    finally:
        machine.close()


class OfTheExit:
    """A bridge's log: the proxy has each of its calls on the wire's own.

    That the exit fails is said here, once for each way, for the proxy doesn't hear of it.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._said: set[str] = set()

    def write(self, record: Record, call_id: str) -> bool:
        """Write nothing."""
        from proto.policy.records import Ending

        if isinstance(record, Ending) and record.at_exit and record.reason not in self._said:
            from sandbox.exits import exit_failed
            from shells.wire_files import warn

            self._said.add(record.reason)
            warn(exit_failed(record.reason, self._upstream))
        return True


def _keep_to_itself() -> None:
    """Let nobody look at what is in here: no core is dumped, no debugger attached."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        from sandbox.linux.libc import PR_SET_DUMPABLE, Libc

        Libc().call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


def _become(name: str) -> int:
    """Become another plugin's bridge, which gets the socket and a line of its own."""
    from sandbox.route import Bridge

    read_line(LIFE_FD)
    for route in read_routes(ROUTES_FD):
        if isinstance(route, Bridge) and route.name == name and route.argv is not None:
            try:
                os.execve(route.argv[0], route.argv, {})
            except OSError as error:
                raise SandboxError(
                    f"the bridge {name} can't be run: {error.strerror}.", exit_code=126
                ) from None
    raise SandboxError(f"there is no bridge {name}.", exit_code=127)


def _secret(_: Told, routes: tuple[Route, ...]) -> Serve:
    from proto.verbs.bridge import provider_verb
    from proto.verbs.secret import Held, SecretVerb
    from sandbox.route import Secret

    return provider_verb(
        SecretVerb(
            Held(
                each.name,
                each.rule.host,
                each.rule.paths,
                each.rule.refused,
                (each.rule.header.name, each.rule.header.value) if each.rule.header else None,
                each.placeholder,
                each.secret,
            )
            for each in routes
            if isinstance(each, Secret)
        )
    )


def _model(told: Told, routes: tuple[Route, ...]) -> Serve:
    import atexit

    from proto.verbs.hosted import hosted_models
    from proto.verbs.model import ModelRoute
    from proto.verbs.providers import PROVIDERS
    from sandbox.route import Model
    from sandbox.tokens import Tally

    made = (
        ModelRoute.of(
            PROVIDERS[each.provider],
            each.secret_key,
            each.placeholder,
            server_tools=each.server_tools,
            listed=told.listed,
        )
        for each in routes
        if isinstance(each, Model)
    )
    tally = Tally(told.state, told.name)
    atexit.register(tally.withdraw)
    return hosted_models(made, lambda tokens: tally.add(**tokens.counts()))


SERVES: dict[str, Callable[[Told, tuple[Route, ...]], Serve]] = {
    "secret": _secret,
    "model": _model,
}
"""Link's own kinds: each makes what serves its calls of its routes."""


def _tools() -> Loops:
    from sandbox.cli.tool_bridge import serve

    return serve


def _pages() -> Loops:
    from sandbox.cli.page_bridge import serve

    return serve


LOOPS: dict[str, Callable[[], Loops]] = {"tool": _tools, "open": _pages}
"""Link's own kinds that start programs, or ask: each with a loop of its own."""
