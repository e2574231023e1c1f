"""From a wire's settings to its routes: where they are mounted, and how their bridges start.

The proxy reads only what is its own: the caller's key, which stands first in the routes' file,
and the URL secret, which has a file for itself.  The rest of the routes, keys among it, it
passes on to each bridge as a descriptor, unread.
"""

from __future__ import annotations

import json
import os
import sys

from proto.calls.mounts import Mount, Mounts
from proto.policy.keys import Key
from sandbox.errors import LaunchError
from sandbox.linux.routes_look import check, failed
from shells.bridges import Bridges, Program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

START = os.path.join(os.path.dirname(os.path.realpath(__file__)), "kept_start.py")
OTHER = "bridge "
"""Before the name of another plugin's bridge: no such bridge is taken for one of Link's own."""

SECRET_MAX_BYTES = 64
HTTPS_PORT = 443


class Given:
    """What of the routes was handed to a wire: `fd` for the bridges, and its own two keys."""

    __slots__ = ("caller", "fd", "secret")

    def __init__(self, fd: int, caller: str, secret: str | None) -> None:
        self.fd = fd
        self.caller = caller
        self.secret = secret


def taken(routes: dict[str, Any]) -> Given:
    """Take what a plan's routes lead to: files of Link's, or a descriptor that is open.

    Raises LaunchError where a file isn't its user's alone.
    """
    if "fd" in routes:
        return Given(routes["fd"], routes["caller"], routes["secret"])
    fd = _opened(routes["file"])
    # Never more than these bytes: behind them stand the keys.
    try:
        told = json.loads(os.pread(fd, routes["head"], 0) + b"}")
    except ValueError:
        raise failed(routes["file"], "is another caller's by now") from None
    secret = None
    if routes["url_secret"] is not None:
        with open(_opened(routes["url_secret"]), "rb") as file:
            secret = file.read(SECRET_MAX_BYTES).decode("ascii", "replace")
    return Given(fd, told["caller"], secret)


def mounts_of(routes: dict[str, Any], given: Given, sandbox: str) -> Mounts:
    """Return where a wire's routes are mounted."""
    secret = None if given.secret is None else Key(given.secret)
    every = [_mount(each) for each in routes["mounts"]]
    return Mounts(every, caller=Key(given.caller), secret=secret, sandbox=sandbox)


def bridges_of(
    routes: dict[str, Any],
    given: Given,
    wire: dict[str, Any],
    *,
    group: int,
    place: int | None = None,
    say: Callable[[str], None],
) -> Bridges:
    """Return a wire's bridges, none of them started yet.

    wire: what each of Link's own is told of the wire, as JSON has it.  place: the inode of the
    door inward, for the bridge of pages.
    """
    told = {**wire, "caller": given.caller, "imports": _imports()}
    programs: dict[str, Program] = {}
    sockets: dict[str, str] = {}
    for each in routes["mounts"]:
        name = _mount(each).bridge
        if "socket" in each:
            sockets[name] = each["socket"]
        elif each["kind"] == "bridge":
            theirs = {"link": 1, "sandbox": wire["name"], "name": each["name"]}
            said = _line(told) + _line({**theirs, "caller": given.caller})
            programs[name] = Program(_argv("start", each["name"]), said, given.fd)
        elif name and name not in programs:
            door = place if name == "open" else None
            programs[name] = Program(_argv(name), _line(told), given.fd, door)
    return Bridges(programs, sockets, group=group, say=say)


def _mount(one: dict[str, Any]) -> Mount:
    match one["kind"]:
        case "model":
            name = one["provider"].encode()
            return Mount(b"model/" + name, "model", "model", b"/" + name, **_place(one))
        case "secret":
            name = one["name"].encode()
            return Mount(b"secret/" + name, "secret", "secret", b"/" + name, **_place(one))
        case "tool":
            name = one["name"].encode()
            return Mount(b"mcp/" + name, "tool", "tool", b"/" + name, True, one["name"])
        case "open":
            return Mount(b"open", "open", "open", needs_secret=True)
        case "local":
            port = one["port"]
            return Mount(
                b"local/%d" % port, "local", needs_secret=True, host="localhost", port=port
            )
        case "bridge":
            name = one["name"]
            return Mount(
                name.encode(), "bridge", OTHER + name, needs_secret=one["needs_secret"], host=name
            )
    raise ValueError(f"{one['kind']!r} is no kind of route.")


def _place(one: dict[str, Any]) -> dict[str, Any]:
    """Return whom a route's calls reach, for the log."""
    return {"host": one["host"], "port": HTTPS_PORT} if "host" in one else {}


def _argv(*words: str) -> tuple[str, ...]:
    """Return the command line of a bridge: isolated, and known by its absolute path (R3)."""
    return (sys.executable, "-I", "-S", START, "bridge", *words)


def _imports() -> list[str]:
    """Return the folders that what ours depends on was imported from."""
    files = [sys.modules[name].__file__ for name in ("msgspec", "uvloop") if name in sys.modules]
    found = (os.path.dirname(os.path.dirname(file)) for file in files if file)
    return list(dict.fromkeys(found))


def _line(told: dict[str, Any]) -> bytes:
    return json.dumps(told).encode() + b"\n"


def _opened(path: str) -> int:
    """Open a file of Link's, its user's alone, to be passed on or read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise failed(path, f"can't be opened: {error.strerror}", error.errno or 0) from None
    try:
        check(path, os.fstat(fd))
    except LaunchError:
        os.close(fd)
        raise
    return fd
