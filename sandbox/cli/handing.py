"""What a run is handed, keys among it: read in a process of its own, which then ends.

The proxy is forked from the launcher, so whatever the launcher has ever had in memory the
proxy has too.  So a child reads the descriptor of `--with-fd` and the keys that a spec names.
What bridges are to know it puts into a sealed memory file, whose descriptor alone comes back;
beside it comes what everybody may know.  Then the launcher becomes a fresh process, which
keeps nothing of the environment either that the person started it in.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import socket
import sys

from sandbox.cli.flags import UsageError
from sandbox.errors import LaunchError, SandboxError, SpecError
from sandbox.place import Place
from sandbox.route import Secret
from sandbox.routes_file import new_key, text_of
from sandbox.spec_file import placed
from sandbox.table import replaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

    from sandbox.handed import RunSecret, RunWith
    from sandbox.linux.own import Own
    from sandbox.linux.plan import Plan
    from sandbox.route import Route
    from sandbox.spec import Spec

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class Handed:
    """What came of it.

    routes: a plan's, for its proxy; None where there is no route.  outside: what they do
    outside with which file (`mounts.outside_of`).  variables: what leads the program to them.
    env, write, serve: as `--with-fd` has them.
    """

    __slots__ = ("env", "outside", "routes", "serve", "variables", "write")

    def __init__(self, told: dict[str, Any], fd: int | None) -> None:
        self.outside: list[tuple[str, str]] = told["outside"]
        self.routes: dict[str, Any] | None = told["routes"]
        if self.routes is not None:
            self.routes["fd"] = fd
        self.variables: dict[str, str] = told["variables"]
        self.env: dict[str, str] = told["env"]
        self.write: list[str] = told["write"]
        self.serve: list[int] = told["serve"]

    def check_outside(self, made: Plan) -> None:
        """Refuse a route that runs or reaches outside what the sandbox writes (LaunchError).

        (Where a plan is made with its routes, it sees to that: `sandbox.linux.plan`.)
        """
        from sandbox.linux.commands import decided_by
        from sandbox.linux.view import check_outside, nearest

        table = {mount.at: mount for mount in made.mounts}
        for does, path in self.outside:
            for place in decided_by(path):
                check_outside(does, path, place, nearest(table, place, itself=True))

    def check_ports(self, made: Plan) -> None:
        """Refuse what would listen where the wire does itself; raises LaunchError."""
        from sandbox.linux import local
        from sandbox.linux.environment import PROXY_PORT

        if made.proxy is None:
            return
        mounts = [] if self.routes is None else self.routes["mounts"]
        models = [each["port"] for each in mounts if each["kind"] == "local"]
        dns = any(kind == local.DNS for *_, kind in made.proxy["inside"])  # type: ignore[attr-defined]
        taken = local.taken_inside(PROXY_PORT, dns=dns)
        local.check_ports("a local model", models, taken)


def hand(spec: Spec, with_fd: int | None, state: str, file: str | None) -> Handed:
    """Read what a run is handed; raise SandboxError as its reader did.

    file: the spec's, as it was named.
    """

    def read() -> tuple[dict[str, Any], bytes | None]:
        given = _with(with_fd)
        try:
            return told_of(spec, given, state, with_fd)
        except SandboxError as error:
            raise placed(error, file) from None

    told, fd = apart(read)
    if with_fd is not None:
        os.close(with_fd)
    return Handed(told, fd)


def _with(fd: int | None) -> RunWith:
    from sandbox.handed import RUN_WITH_MAX_BYTES, RunWith

    if fd is None:
        return RunWith()
    try:
        with open(fd, "rb", closefd=False) as source:
            return RunWith.read(source.read(RUN_WITH_MAX_BYTES + 1))
    except SpecError as error:
        raise UsageError(f"--with-fd {fd}: {error}") from None
    except OSError as error:
        raise LaunchError(
            "--with-fd",
            error.errno or 0,
            f"--with-fd {fd} can't be read: {error.strerror}: open it on a file ({fd}< FILE) or a "
            "pipe.",
        ) from None


def told_of(
    spec: Spec, given: RunWith, state: str, with_fd: int | None = None
) -> tuple[dict[str, Any], bytes | None]:
    """Return what everybody may know of what a run is handed, and what bridges alone may.

    with_fd: where it was read from, for what is refused of it.
    """
    from sandbox.linux.environment import proxy_url, to_the_desktop
    from sandbox.mounts import mount_of, outside_of, path_of, variables_of
    from sandbox.spec_routes import routes_of

    files = replaced(spec.files, write=(*spec.files.write, *given.write))
    routes = list(routes_of(replaced(spec, files=files)))
    caller, secret = new_key(), new_key()
    variables = variables_of(routes, proxy_url(), secret)
    try:
        _check_beside(spec, given, routes, variables)
    except SpecError as error:
        raise UsageError(f"--with-fd {with_fd}: {error}") from None
    theirs: list[tuple[RunSecret, Secret]] = []
    for one in given.secrets:
        made = Secret(
            name=one.secret.name,
            rule=one.secret.rule,
            secret=one.secret.secret,
            placeholder=new_key(),
        )
        theirs.append((one, made))
        variables[one.url] = proxy_url() + path_of(made, secret)
        variables[one.placeholder] = made.placeholder
    routes += [made for _, made in theirs]
    variables.update(git_settings((made, proxy_url() + path_of(made, secret))
                                  for one, made in theirs if one.git))  # fmt: skip
    told: dict[str, Any] = {
        "routes": None,
        "outside": [each for route in routes for each in outside_of(route)],
        "variables": variables,
        "env": given.env,
        "write": list(given.write),
        "serve": list(given.serve),
    }
    if not routes:
        return told, None
    told["routes"] = {
        "mounts": [mount_of(each) for each in routes],
        "caller": caller,
        "secret": secret,
        "state": state,
        "desktop": to_the_desktop(os.environb),
    }
    return told, text_of(caller, routes)


def _check_beside(
    spec: Spec, given: RunWith, routes: list[Route], variables: dict[str, str]
) -> None:
    """Refuse what can't stand beside a spec; raises SpecError with a key of what was handed.

    variables: what `run` sets for the spec's routes: a caller's value would lead the program
    round them.
    """
    from sandbox.spec_routes import variables_named

    keys = variables_named(spec)
    for place, name in given.variables():
        if name in variables:
            place.refuse(f"{name} is one that run sets itself, for the spec; leave it out")
        if name in keys:
            place.refuse(f"{name} holds a key of the spec, and no program gets it; leave it out")
    taken = {route.name for route in routes if isinstance(route, Secret)}
    for at, one in enumerate(given.secrets):
        name = one.secret.name
        if name in taken:
            Place(("secrets", at, "secret", "name")).refuse(
                f"/_link/secret/{name}/ is another's already; take another name"
            )
        taken.add(name)


def git_settings(secrets: Iterator[tuple[Secret, str]]) -> dict[str, str]:
    """Return git's settings for secrets in a header, as the environment has them.

    Git then asks the route wherever it would have asked the host, with the placeholder.
    """
    settings: list[tuple[str, str]] = []
    for made, url in secrets:
        header = made.rule.header
        assert header is not None, "its reader sees to that"
        value = header.value.replace("{secret}", made.placeholder)
        settings.append((f"url.{url}/.insteadOf", f"https://{made.rule.host}/"))
        settings.append((f"http.{url}/.extraHeader", f"{header.name}: {value}"))
    found = {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}
    for at, (name, value) in enumerate(settings):
        found[f"GIT_CONFIG_KEY_{at}"] = name
        found[f"GIT_CONFIG_VALUE_{at}"] = value
    return found


# -- a process of its own ----------------------------------------------------------------------


def apart(read: Callable[[], tuple[dict[str, Any], bytes | None]]) -> tuple[Any, int | None]:
    """Read in a child: return what everybody may know, and the rest as a descriptor."""
    ours, its = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            _tell(its, read)
        finally:
            os._exit(0)
    its.close()
    try:
        data, fds = received(ours, 1)
        with open(ours.detach(), "rb") as rest:
            text = rest.read()
    finally:
        os.waitpid(pid, 0)
    if not data or not text:
        raise LaunchError("routes", 0, "what the run was handed could not be read.")
    told = json.loads(text)
    if "error" in told:
        raise SandboxError(told["error"], exit_code=told["code"])
    return told, fds[0] if fds else None


def _tell(its: socket.socket, read: Callable[[], tuple[dict[str, Any], bytes | None]]) -> None:
    fds: list[int] = []
    try:
        told, given = read()
        if given is not None:
            fds.append(sealed(given))
    except SandboxError as error:
        told = {"error": str(error), "code": error.exit_code}
    socket.send_fds(its, [b"x"], fds)
    its.sendall(json.dumps(told).encode())


def received(sock: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """Receive one byte and at most so many descriptors, which no program that is started gets.

    (`socket.recv_fds` of Python 3.11 leaves out the flag that says so.)
    """
    fds = array.array("i")
    data, told, _, _ = sock.recvmsg(
        1, socket.CMSG_LEN(most * fds.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, content in told:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


def sealed(data: bytes) -> int:
    """Return a memory file that holds `data` and can't be written any more."""
    fd = os.memfd_create("lnk-routes", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


# -- a fresh process ---------------------------------------------------------------------------


def become(
    made: Plan, own: Own, argv: list[str], environ: dict[bytes, bytes], tell: str | None
) -> NoReturn:
    """Become the sandbox's launcher as a kept command does, its plan in a descriptor.

    tell: the spec's file, for what is said of refusals.
    """
    from sandbox.linux import packing

    fields = packing.fields_of(made, own.imports)
    wire = fields["wire"]
    assert isinstance(wire, dict)
    fields["run"] = {
        "environ": {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()},
        "tell": tell,
    }
    plan = sealed(packing.written(fields).encode())
    for fd in (plan, wire["routes"]["fd"]):
        os.set_inheritable(fd, True)
    sys.stdout.flush()
    os.execve(own.python, [own.python, "-I", "-S", own.script, f"fd:{plan}", "--", *argv], {})
