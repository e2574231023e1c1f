"""Serve a wire: its settings, and the assembly of core and shell that serves them.

`run_wire` is what everything that serves a wire calls: plain settings and listening
sockets in, calls served until told to stop.  What it serves with costs several bare
sandboxes to import, so nothing here imports it before `run_wire` does: the launcher starts
the sandboxed program first.  And the program's first call waits for that, so what only the
command `proxy` needs is imported there alone.
"""

from __future__ import annotations

import gc
import sys

from sandbox.errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from proto.calls.limits import Limits
    from proto.calls.mounts import Mounts
    from proto.calls.ways import Ways
    from proto.policy.hosts import Policy
    from proto.policy.records import Ending, Refusal
    from proto.policy.secret import Secret
    from sandbox.cli.doors import SandboxNetwork
    from sandbox.cli.inward import Inward
    from sandbox.linux.socket_maker import Doors
    from sandbox.linux.wire_folder import Folder
    from sandbox.watch import Watch
    from shells.bridges import Bridges
    from shells.env import MakeScript, NoBridges
    from shells.wire_files import WireLog


RUNS = ("run", "spec")
"""How a run's wire is started, of `WireSettings.by`: its name is its own alone."""


class WireSettings:
    """What one wire may do, as plain data (the launcher's plan carries the same).

    `hosts` None is any host on the internet, an empty list none.  `log` is an absolute
    folder, None for lines on stderr.  `secret` is required as Proxy-Authorization, where
    there is one; it is never printed, nor is `upstream`, the exit, which may hold a login.
    `routes`: where each is mounted, and what leads to the rest of them
    (`sandbox.cli.wire_routes`); None without any.
    `state` is Link's settings, absolute: their flags close the wire; None: nothing does.
    `wire` is the folder of the flags itself, for who has no settings.  `logged`: calls are.
    `serve`: the sandbox's ports, opened outside by a proxy that it reaches.
    `by`: how it was started, of `proto.policy.cures.CURES`: in whose words it refuses.
    `per_minute` is the most calls a minute, None any number.
    """

    __slots__ = (
        "by", "hosts", "lan", "log", "logged", "name", "no_internet", "per_minute", "routes",
        "secret", "serve", "state", "tcp", "upstream", "wire",
    )  # fmt: skip

    def __init__(
        self,
        hosts: list[str] | None,
        *,
        lan: list[str] | None = None,
        tcp: list[str] | None = None,
        no_internet: bool = False,
        secret: str | None = None,
        log: str | None = None,
        name: str = "proxy",
        upstream: str = "direct",
        routes: dict[str, Any] | None = None,
        state: str | None = None,
        per_minute: int | None = None,
        wire: str | None = None,
        logged: bool = True,
        serve: list[int] | None = None,
        by: str = "proxy",
    ) -> None:
        self.hosts = hosts
        self.lan = lan or []
        self.tcp = tcp or []
        self.no_internet = no_internet
        self.secret = secret
        self.log = log
        self.name = name
        self.upstream = upstream
        self.routes = routes
        self.state = state
        self.per_minute = per_minute
        self.wire = wire
        self.logged = logged
        self.serve = serve or []
        self.by = by


class LogRefused(LaunchError):
    """The log can't be begun: without one no call is served."""

    def __init__(self, folder: str | None, error: OSError) -> None:
        where = f" in {folder}" if folder else ""
        super().__init__(
            "log", error.errno or 0, f"the log{where} can't be begun: {error.strerror}."
        )


def run_wire(
    settings: WireSettings,
    listeners: list[socket.socket],
    *,
    shell: str = "uvloop",
    stop_fd: int | None = None,
    tell: Callable[[Refusal | Ending], None] | None = None,
    on_ready: Callable[[], None] | None = None,
    group: int = 0,
    runtimes: dict[int, socket.socket] | None = None,
    beside: tuple[dict[str, Any], Doors] | None = None,
    folder: Folder | None = None,
) -> None:
    """Serve a wire on listening sockets, which it takes over, until `stop_fd` can be read.

    Imports what serves: call it once the sandboxed program has been started.  Every
    call ends with its last log line before this returns.  `tell` sees each refusal, and
    each call that the exit failed, as it is logged, `on_ready` is called when calls are about to
    be accepted.  `group`: the process group that bridges are started in, 0 for one of their
    own.  `runtimes`: listeners that stand for local models', by their ports.  `beside`: what
    else is served, by the plan and where its sockets are.  `folder`: where a sandbox that
    reaches this wire is reached itself.  Raises UsageError where the settings or the log's
    folder are no good, LogRefused where the log can't be made, another OSError for the rest.
    """
    from proto.calls.limits import Limits
    from proto.calls.serve import serve_connection
    from proto.calls.ways import Ways
    from proto.policy.admission import Admission
    from proto.policy.exits import Exit
    from shells.env import Env, NoFlags
    from shells.listen import raise_descriptor_limit
    from shells.machine import Machine
    from shells.resolve import lookup

    __import__(f"shells.{shell}_shell")  # importlib costs a start half a millisecond
    serve = sys.modules[f"shells.{shell}_shell"].serve
    try:
        policy, limits = policy_of(settings), Limits()
        cures = policy.cures
        door, place = _door(settings)
        mounts, bridges = _routes(settings, group, place)
        ways = Ways(
            exit=Exit.of(settings.upstream, cures.upstream),
            mounts=mounts,
            admission=Admission(settings.per_minute, cures.per_minute),
            cures=cures,
        )
        secret = None if settings.secret is None else _secret_of(settings.secret)
    except ValueError as error:
        from sandbox.cli.flags import UsageError

        raise UsageError(str(error)) from None
    log = _log_of(settings, tell)
    machine = Machine()
    watch = _watch(settings)
    try:
        raise_descriptor_limit()
        inside: SandboxNetwork | Inward | None
        inside, more = (None, []) if beside is None else _beside(*beside, policy, limits, ways)
        if folder is not None:
            inside, more = _by_folder(folder, settings.serve, limits, ways)
        # Off since the start, which leaves no garbage: what it has made is never looked through,
        # which would take a tenth of all that serving takes to begin.
        gc.freeze()
        gc.enable()
        if on_ready is not None:
            on_ready()  # the kernel queues what comes from here on
        if watch is not None:
            watch.begin()
        serve(
            listeners,
            lambda now: serve_connection(policy, limits, secret, now, ways),
            Env(
                lookup=lookup,
                locate=machine.locate,
                log=log,
                bridges=bridges,
                inside=inside,
                flags=watch or NoFlags(),
            ),
            more=[*_relayed(runtimes or {}, limits, ways), *_inward(door, limits, ways), *more],
            stop_fd=stop_fd,
        )
    finally:
        bridges.close()
        if watch is not None:
            watch.end()
        machine.close()
        log.close()


def _log_of(settings: WireSettings, tell: Callable[[Refusal | Ending], None] | None) -> WireLog:
    """Open a wire's log; raises UsageError for a folder that others can change, LogRefused."""
    from shells.wire_files import UnsafeLog, open_log

    try:
        return open_log(
            settings.log,
            settings.name,
            tell=tell,
            kept=settings.logged,
            keeps_empty=settings.by not in RUNS,
        )
    except UnsafeLog as error:
        from sandbox.cli.flags import UsageError

        raise UsageError(str(error.strerror)) from None
    except OSError as error:
        raise LogRefused(settings.log, error) from None


def _beside(
    wire: dict[str, Any], doors: Doors, policy: Policy, limits: Limits, ways: Ways
) -> tuple[SandboxNetwork, list[tuple[socket.socket, MakeScript]]]:
    """Return the sandbox's network, and the sockets beside the listener with their scripts."""
    from sandbox.cli.doors import SandboxNetwork

    inside = SandboxNetwork(doors, policy, limits, ways)
    return inside, inside.sockets(wire)


def _by_folder(
    folder: Folder, ports: list[int], limits: Limits, ways: Ways
) -> tuple[Inward, list[tuple[socket.socket, MakeScript]]]:
    """Return the network of the sandbox that reaches a folder, and what serves its ports."""
    from sandbox.cli.inward import Inward, served

    return Inward(folder), served(ports, limits, ways)


def _relayed(
    runtimes: dict[int, socket.socket], limits: Limits, ways: Ways
) -> list[tuple[socket.socket, MakeScript]]:
    """Return what serves each local model's runtime that is carried in."""
    from proto.verbs.local_model import relayed_connection

    def at(port: int) -> MakeScript:
        return lambda now: relayed_connection(port, limits, now, ways)

    return [(listener, at(port)) for port, listener in runtimes.items()]


def _door(settings: WireSettings) -> tuple[socket.socket | None, int | None]:
    """Return the door inward, and its inode, where pages may be opened."""
    if settings.routes is None or {"kind": "open"} not in settings.routes["mounts"]:
        return None, None
    from shells.bridges import nameless_listener

    return nameless_listener()


def _inward(
    door: socket.socket | None, limits: Limits, ways: Ways
) -> list[tuple[socket.socket, MakeScript]]:
    if door is None:
        return []
    from proto.calls.inward import inward_call

    caller = ways.mounts.caller
    assert caller is not None, "routes come with their caller's key"
    return [(door, lambda now: inward_call(caller, limits, ways, now))]


def _routes(
    settings: WireSettings, group: int, place: int | None
) -> tuple[Mounts, Bridges | NoBridges]:
    """Return where a wire's routes are mounted, and their bridges, none started yet."""
    if settings.routes is None:
        from proto.calls.mounts import NO_MOUNTS
        from shells.env import NoBridges

        return NO_MOUNTS, NoBridges()
    from sandbox.cli.wire_routes import bridges_of, mounts_of, taken
    from shells.wire_files import warn

    given = taken(settings.routes)
    told = {
        "name": settings.name,
        "upstream": settings.upstream,
        "by": settings.by,
        "state": settings.routes["state"],
        "listed": settings.hosts is not None or settings.no_internet,
        "desktop": settings.routes.get("desktop", {}),
        "front": settings.routes.get("front", 0),
        "launcher": settings.routes.get("launcher", 0),
    }
    mounts = mounts_of(settings.routes, given, settings.name)
    return mounts, bridges_of(settings.routes, given, told, group=group, place=place, say=warn)


def _watch(settings: WireSettings) -> Watch | None:
    """Return what looks at the flags of a wire, None where there are none."""
    folder = settings.state or settings.wire
    if folder is None:
        return None
    from sandbox.notify import notify
    from sandbox.state import State
    from sandbox.watch import Watch
    from shells.wire_files import warn

    state = State(folder, itself=settings.state is None)
    return Watch(state, settings.name, warn, notify)


def _secret_of(text: str) -> Secret:
    """Return a secret; its module brings hashlib, which a sandbox's own wire never needs."""
    from proto.policy.secret import Secret

    return Secret(text)


def policy_of(settings: WireSettings) -> Policy:
    """Make the policy; raises ValueError with one sentence."""
    from proto.policy.cures import CURES
    from proto.policy.hosts import Policy

    return Policy.of(
        settings.hosts,
        settings.lan,
        settings.tcp,
        no_internet=settings.no_internet,
        cures=CURES[settings.by],
    )
