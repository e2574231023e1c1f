"""`lnk sandbox wrap`: a request on stdin, the command that runs it confined on stdout (R10).

Everything that can be wrong is found before anything is printed: a refusal is one line
on stderr, its status 2, with nothing on stdout and nothing written.
"""

from __future__ import annotations

import json
import os
import sys

from sandbox.cli.flags import Flag, Flags, UsageError, describe, read_flags
from sandbox.confinement import Proxied, Proxy, Reaching, WrapRequest
from sandbox.errors import LaunchError, SpecError
from sandbox.exits import has_login
from sandbox.marks import unmark
from sandbox.place import Place
from sandbox.state import State, settings_folder
from sandbox.strict_json import read_json
from sandbox.table import read_table, refuse_unbuilt, replaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.linux.dot_mounts import Guard
    from sandbox.linux.facts import Facts
    from sandbox.linux.plan import Plan

REQUEST_MAX_BYTES = 4 << 20
"""Ten thousand hosts are a tenth of it, and a command line the kernel takes a half."""

COMMAND_MAX_BYTES = 1_500_000
"""The kernel takes two mebibytes (a quarter of the stack), the environment among them."""

FLAGS = (
    Flag("--explain", "", "print the plan of the sandbox instead of the command"),
    Flag("--json", "", "with --explain: the plan as JSON"),
    Flag("--help", "", "print this"),
)

USAGE = """usage: lnk sandbox wrap [--explain [--json]]

Reads {"confinement", "argv"} as JSON on stdin and prints {"argv", "env"}: the command that
runs argv confined, and what to add to its environment.  With {"unwalled", "argv"} there is no
wall: the program runs as it is under its proxy.

  echo '{"confinement": {"name": "box", "write": [], "read": [], "commands": "any",
    "net": "closed"}, "argv": ["id"]}' | lnk sandbox wrap"""


def main(words: list[str]) -> int:
    """Run `lnk sandbox wrap`; raise SandboxError for what is refused."""
    flags = read_flags(FLAGS, words)
    if "--help" in flags:
        print(f"{USAGE}\n\n{describe(FLAGS)}")
        return 0
    if "--json" in flags and "--explain" not in flags:
        raise UsageError("--json says how --explain prints: write --explain --json.")
    asked = read_request(read_input())
    try:
        return _wrapped(completed(asked), flags)
    except FileExistsError:
        # Another wrap of this name has made the secret of its routes meanwhile: it is ours too.
        return _wrapped(completed(asked), flags)


def _wrapped(request: WrapRequest, flags: Flags) -> int:
    """Print what a request asks for; raise FileExistsError as `write` does."""
    if request.unwalled is not None:
        from sandbox.cli.wrap_apart import wrap_unwalled

        return wrap_unwalled(request, explain="--explain" in flags, as_json="--json" in flags)
    proxy = proxy_of(request)
    if proxy is not None and proxy.hold:
        from sandbox.cli.wrap_apart import wrap_held

        return wrap_held(request, explain="--explain" in flags, as_json="--json" in flags)
    made, facts = planned(request)
    guards = dot_files(made)
    if "--explain" in flags:
        text = explained(made, guards, as_json="--json" in flags)
        print(without_secrets(text, () if proxy is None else (proxy.secret,)))
        return 0
    text = json.dumps(answer(made, facts, list(request.argv)))
    if made.logs:
        write(request, made.name, facts.state)
    _make_reached(request)
    print(text)
    return 0


def read_input() -> bytes:
    """Return a request's bytes from standard input; raises UsageError where it can't be read."""
    try:
        return sys.stdin.buffer.read(REQUEST_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"the request can't be read from standard input: {error.strerror}; open it to be read."
        ) from None


def _make_reached(request: WrapRequest) -> None:
    """Make the folders of proxies apart that aren't there yet, their user's alone."""
    assert request.confinement is not None
    net = request.confinement.net
    for one in net.reached if isinstance(net, Reaching) else ():
        try:
            os.makedirs(one.dir, 0o700, exist_ok=True)
        except OSError as error:
            raise LaunchError(
                "dir", error.errno or 0, f"reached names {one.dir}, which isn't there and can't be "
                f"made: {error.strerror}.",
            ) from None  # fmt: skip


def write(request: WrapRequest, name: str, state: str) -> None:
    """Write what a kept command needs: the last thing that can be refused, and all we write.

    Raises FileExistsError, having written no routes, where their new secret isn't the name's.
    """
    State(state).folder("log")
    unmark(State(state), name)
    proxy = proxy_of(request)
    if proxy is None:
        return
    if has_login(proxy.upstream):
        State(state).write(proxy.upstream.encode(), f"{name}.upstream")
    if proxy.routes:
        _write_routes(proxy, name, state)


def _write_routes(proxy: Proxy, name: str, state: str) -> None:
    from sandbox.routes_file import Made, kept_secret, routes_file, secret_file, text_of

    assert proxy.caller is not None, "routes come with their caller's key"
    folder = State(state)
    if proxy.secret is not None:
        is_made = isinstance(proxy.secret, Made)
        if is_made and kept_secret(folder, name) is not None:
            raise FileExistsError
        path = secret_file(state, name)
        new = is_made and not os.path.lexists(path)  # a damaged one is replaced
        folder.write(proxy.secret.encode(), os.path.basename(path), new=new)
    folder.write(text_of(proxy.caller, proxy.routes), os.path.basename(routes_file(state, name)))


def proxy_of(request: WrapRequest) -> Proxy | None:
    """Return the proxy that a request asks for, None for none."""
    if request.unwalled is not None:
        return request.unwalled.proxy
    net = None if request.confinement is None else request.confinement.net
    return net.proxy if isinstance(net, Proxied) else None


def completed(request: WrapRequest) -> WrapRequest:
    """Return a request with what Link's settings add to its routes; raise SpecError."""
    proxy = proxy_of(request)
    if proxy is None or not proxy.routes:
        return request
    return with_secret(_with_tools(request, proxy))


def _with_tools(request: WrapRequest, proxy: Proxy) -> WrapRequest:
    """Return a request whose tools are whole, though they came from what is listed."""
    from sandbox.route import Tool

    if not any(isinstance(route, Tool) for route in proxy.routes):
        return request
    from sandbox.tools import whole_argv

    state = State(settings_folder())
    above = ("unwalled",) if request.unwalled is not None else ("confinement", "net", "proxied")
    routes = []
    for at, route in enumerate(proxy.routes):
        if isinstance(route, Tool):
            place = Place((*above, "proxy", "routes", at, "argv"))
            route = replaced(route, argv=whole_argv(route, state, place))
        routes.append(route)
    return _with_proxy(request, replaced(proxy, routes=tuple(routes)))


def with_secret(request: WrapRequest) -> WrapRequest:
    """Return a request whose routes' addresses have a secret, where they carry one.

    A sandbox that has had one keeps it: a command that was made before may run at any time.
    """
    proxy = proxy_of(request)
    if proxy is None or not proxy.routes or proxy.secret is not None:
        return request
    from sandbox.mounts import needs_secret
    from sandbox.routes_file import Made, kept_secret, new_key

    if not needs_secret(proxy.routes):
        return request
    made = request.unwalled or request.confinement
    assert made is not None
    secret = kept_secret(State(settings_folder()), made.name) or Made(new_key())
    return _with_proxy(request, replaced(proxy, secret=secret))


def _with_proxy(request: WrapRequest, proxy: Proxy) -> WrapRequest:
    if request.unwalled is not None:
        return replaced(request, unwalled=replaced(request.unwalled, proxy=proxy))
    assert request.confinement is not None
    assert isinstance(request.confinement.net, Proxied)
    net = replaced(request.confinement.net, proxy=proxy)
    return replaced(request, confinement=replaced(request.confinement, net=net))


def read_request(data: bytes) -> WrapRequest:
    """Return the request that bytes hold; raise SpecError for the first key that is wrong."""
    request = read_table(WrapRequest, read_json(data, REQUEST_MAX_BYTES), Place())
    refuse_unbuilt(request, Place())
    net = None if request.confinement is None else request.confinement.net
    if request.unwalled is not None or isinstance(net, Proxied):
        from sandbox.cli.host_lists import check_request  # only a proxy has lists

        check_request(request)
    return request


def planned(request: WrapRequest) -> tuple[Plan, Facts]:
    """Return the plan of a request on this machine, and what this machine is like.

    Raises LaunchError or Unsupported (125) where no such sandbox can be made here.
    """
    from sandbox.cli.planned import planned as planned_here

    assert request.confinement is not None  # an unwalled request is wrapped by itself
    return planned_here(request.confinement)


def dot_files(made: Plan) -> list[Guard]:
    """Return what would be closed were the sandbox started now; raise LaunchError as a start would.

    What runs left that were killed is taken away, as by every command (R71).
    """
    from sandbox.linux.packing import fields_of

    if os.path.isdir(os.path.join(made.state, "sandbox", "placeholders")):
        from sandbox.linux.placeholders import Journal

        Journal(made.state).sweep()
    if made.dots is None:
        return []
    from sandbox.linux.dot_files import look
    from sandbox.linux.dot_mounts import Layout
    from sandbox.linux.kept import Kept

    kept = Kept(fields_of(made, ()))
    assert kept.dots is not None
    return look(*kept.dots, Layout(kept.arguments), kept.home)


def answer(made: Plan, facts: Facts, argv: list[str]) -> dict[str, object]:
    """Return what `wrap` prints."""
    from sandbox.linux.packing import command

    kept = command(made, facts.own, argv)
    check_length(kept, "confinement")
    return {"argv": kept, "env": made.environment}


def check_length(command: list[str], key: str) -> None:
    """Refuse a command that the kernel would refuse to start, whenever that is."""
    if sum(len(word.encode()) + 1 for word in command) > COMMAND_MAX_BYTES:
        raise SpecError(key, "is too long for a command line; name fewer hosts or folders")


def without_secrets(text: str, secrets: Iterable[str | None]) -> str:
    """Return what is shown of a plan, a word in each secret's place."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "<secret>")
    return text


def explained(made: Plan, guards: list[Guard], *, as_json: bool) -> str:
    """Return a plan as a person reads it, or as JSON with the filter in hex."""
    if not as_json:
        from sandbox.linux.bubblewrap import explain

        return explain(made, [(g.at, g.kind != 0, g.why) for g in guards if not g.written])
    from sandbox.linux.values import plain

    return json.dumps(plain(made), indent=2)
