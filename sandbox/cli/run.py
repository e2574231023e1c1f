"""`lnk sandbox run`: a program in a sandbox of flags or a spec, as a person starts it (R21)."""

from __future__ import annotations

import os
import sys

from sandbox.cli.flags import Flag, Flags, UsageError, describe, full_path, read_flags
from sandbox.errors import LaunchError, SandboxError, SpecError, quoted
from sandbox.state import State, settings_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.cli.handing import Handed
    from sandbox.confinement import Confinement
    from sandbox.linux.facts import Facts
    from sandbox.linux.own import Own
    from sandbox.linux.plan import Plan
    from sandbox.linux.running import Serve
    from sandbox.linux.socket_maker import Doors
    from sandbox.spec import Spec

FLAGS = (
    Flag("--write", "FOLDER", "a folder that it may write", many=True),
    Flag("--read", "PATH", "a file or folder that it may read", many=True),
    Flag("--internet-host", "HOST", "a host on the internet that it may call; *.HOST: those below",
         many=True),
    Flag("--spec", "FILE", "a TOML file that says what it may touch"),
    Flag("--yes", "", "don't ask about a spec, or flags, not agreed to before"),
    Flag("--write-dot-files", "FOLDER", "one of --write whose .git and the like it may write too",
         many=True),
    Flag("--with-fd", "N", "read more of what it gets, as JSON, from this descriptor"),
    Flag("--help", "", "print this"),
)  # fmt: skip

HELP = f"""\
Run a program that may touch only what the flags, or a spec, name.

usage: lnk sandbox run [flags] -- PROGRAM [ARGUMENT…]

{describe(FLAGS)}

It ends with the program's status; 125 where the sandbox could not start, 126 where the
program can't be run, 127 where there is none.

  lnk sandbox run --yes --write . --internet-host example.com -- curl https://example.com/"""


def main(words: list[str]) -> int:
    """Run the program and end as it ended; raise SandboxError where it doesn't start."""
    flags = read_flags(FLAGS, words, takes_rest=True)
    if "--help" in flags:
        print(HELP)
        return 0
    start(flags)
    return 125  # pragma: no cover - it ends the process


def start(flags: Flags, *, learns: bool = False) -> None:
    """Run what flags say; return never, but by a SandboxError.

    learns: whether any program may run, and each that does is told in the end.
    """
    argv = flags.rest
    if not argv or not argv[0]:
        raise UsageError("there is no program to run: write it after --.")
    spec = spec_of(flags)
    state = settings_folder()
    try:
        made, facts, spec, handed = _planned(flags, spec, state, learns=learns)
    except SandboxError as error:
        raise _of_who_wrote_it(error, flags) from None
    if "--yes" not in flags:
        _agree(spec, State(state), learns=learns)
    if made.logs:
        _begin_log(State(state), made)
    _start(made, facts.own, argv, spec, handed)


def _planned(
    flags: Flags, spec: Spec, state: str, *, learns: bool
) -> tuple[Plan, Facts, Spec, Handed | None]:
    """Plan a run; return also its spec with what it is handed beside it."""
    from sandbox.cli.planned import planned

    handed = _handed(flags, spec, state)
    if handed is not None:
        spec = _with(spec, handed)
    confinement = confinement_of(spec, asked_network="--spec" not in flags)
    made, facts = planned(confinement, state, learns=learns)
    if handed is not None:
        handed.check_outside(made)
        handed.check_ports(made)
        if spec.desktop.open:
            from sandbox.linux.plan import opening_pages

            made = opening_pages(made, facts)
    return made, facts, spec, handed


def _of_who_wrote_it(error: SandboxError, flags: Flags) -> SandboxError:
    """Return a refusal with the line of the spec, or the flag, that it is about."""
    from sandbox.spec_file import placed

    found = placed(error, flags.one("--spec"))
    if found is error and isinstance(error, LaunchError) and error.about is not None:
        key, named = error.about
        if key in ("read", "write") and named in _paths(flags, f"--{key}"):
            said = f"--{error.message}"
            return LaunchError(error.step, error.errno, said, exit_code=error.exit_code)
    return found


def _begin_log(state: State, made: Plan) -> None:
    """Make the folder of logs, and note that the one of this name in it is a run's."""
    from sandbox.marks import FOLDER, LOGS_MOST, mark

    state.folder("log")
    try:
        mark(state, made.name)
        # A proxy does too, which imports it beside the program's start, where it comes to serve:
        # a program that has ended by then has none, and leaves its mark.
        most = LOGS_MOST if made.proxy is None else 2 * LOGS_MOST
        if len(state.names(FOLDER)) > most:
            from sandbox.runs import sweep

            sweep(state)
    except (LaunchError, OSError):
        return  # then its log is kept for good


def _handed(flags: Flags, spec: Spec, state: str) -> Handed | None:
    """Return what the run is handed beside its spec, its keys not among it; None for nothing."""
    from sandbox.spec_routes import has_routes

    fd = _descriptor(flags)
    if fd is None and not has_routes(spec):
        return None
    from sandbox.cli.handing import hand

    return hand(spec, fd, state, flags.one("--spec"))


def _descriptor(flags: Flags) -> int | None:
    """Return the descriptor of --with-fd; raises UsageError for one that isn't there."""
    text = flags.one("--with-fd")
    if text is None:
        return None
    fd = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if fd <= 2:
        raise UsageError(
            f"--with-fd {quoted(text)} is no descriptor of its own: open one from 3 up."
        )
    try:
        os.fstat(fd)
    except OSError:
        raise UsageError(f"--with-fd {fd}: no such descriptor is open.") from None
    return fd


def _with(spec: Spec, handed: Handed) -> Spec:
    """Return a spec with what a run is handed beside it.

    A proxy that reaches nothing is made where the spec has none and there is a route, or a
    port to serve.
    """
    from sandbox.table import replaced

    files = replaced(spec.files, write=_joined(spec.files.write, handed.write))
    for port in handed.serve:
        if port in (*spec.localhost.ports, *spec.models.local):
            raise UsageError(
                f"--with-fd serves {port}, which the spec has in [localhost] ports or [models] "
                "local: inside, one port can't be both; take one of the two out."
            )
    serve = (*spec.localhost.serve, *(p for p in handed.serve if p not in spec.localhost.serve))
    localhost = replaced(spec.localhost, serve=serve)
    network = spec.network
    if handed.routes is not None or handed.serve:
        if network.mode == "host":
            raise UsageError(
                "--with-fd adds secrets or ports, which a proxy carries, and the spec says "
                '[network] mode = "host": take one of the two out.'
            )
        network = replaced(network, mode="proxy")
    return replaced(spec, files=files, localhost=localhost, network=network)


def spec_of(flags: Flags) -> Spec:
    """Return the spec that flags stand for, beside a spec's file where one is given.

    Raises SpecError for a file that can't be read, UsageError for a flag's value.
    """
    from sandbox.cli.host_lists import check_spec
    from sandbox.spec import Spec
    from sandbox.table import replaced

    file = flags.one("--spec")
    if file == "":
        raise UsageError("--spec names no file: write --spec FILE.")
    spec = Spec() if file is None else Spec.read(file, judge=check_spec)
    files = replaced(
        spec.files,
        write=_joined(spec.files.write, _paths(flags, "--write")),
        read=_joined(spec.files.read, _paths(flags, "--read")),
        write_dot_files=_joined(spec.files.write_dot_files, _paths(flags, "--write-dot-files")),
    )
    for folder in files.write_dot_files:
        if folder not in files.write:
            raise UsageError(
                f"--write-dot-files names {folder}, which isn't written: add --write {folder}."
            )
    hosts = flags.all("--internet-host")
    _check_hosts(hosts)
    internet = spec.internet
    if hosts and internet.hosts is not None:
        internet = replaced(internet, hosts=_joined(internet.hosts, hosts))
    spec = replaced(spec, files=files, internet=internet)
    if hosts and spec.network.mode not in (None, "proxy"):
        raise UsageError(
            f"--internet-host opens nothing where {file} says "
            f'[network] mode = "{spec.network.mode}": take one of the two out.'
        )
    return spec


def confinement_of(spec: Spec, *, asked_network: bool) -> Confinement:
    """Return the confinement of a run.

    asked_network: whether a run that names no host has a proxy all the same, which lets
    nothing through and says for each host which flag would.
    """
    from sandbox.confinement import Closed, Confinement, Proxied, Proxy
    from sandbox.spec_routes import without_routes
    from sandbox.table import replaced

    # Its routes go to the proxy by a descriptor (`sandbox.cli.handing`), and no key comes here.
    made = Confinement.of(without_routes(spec), name=f"run-{os.getpid()}")
    if asked_network and isinstance(made.net, Closed):
        folder = os.path.join(settings_folder(), "sandbox", "wires", made.name)
        proxy = Proxy(upstream="direct", dir=folder, hosts=())
        made = replaced(made, net=Proxied(proxy=proxy, ports=()))
    return made


def _paths(flags: Flags, name: str) -> list[str]:
    """Return a flag's paths, absolute; a relative one is read from the working folder."""
    from sandbox.kinds import FOLDER
    from sandbox.place import Place

    value = "PATH" if name == "--read" else "FOLDER"
    paths = [full_path(name, path, value) for path in flags.all(name)]
    if "/" in paths or "//" in paths:
        raise UsageError(f"{name} names the whole machine: name the folders it needs.")
    for path in paths:
        try:
            FOLDER.read(path, Place())
        except SpecError as error:
            why = f"is none: {error.message}" if error.message[0] == '"' else error.message
            raise UsageError(f"{name} names a path that {why}.") from None
    return paths


def _check_hosts(hosts: list[str]) -> None:
    from sandbox.cli.host_lists import is_plain_name, is_this_machine, never_reached

    for host in hosts:
        if why := never_reached(host):
            of = " of a spec" if is_this_machine(host) else ""
            raise UsageError(f"--internet-host {host} {why}{of}.")
        if is_plain_name(host):
            continue
        if host == "*":
            raise UsageError(
                "--internet-host '*' would be any host: write that into a spec, "
                '[internet] hosts = ["*"].'
            )
        from proto.policy.cures import RUN
        from proto.policy.hosts import Policy

        try:
            Policy.of([host], cures=RUN)
        except ValueError as error:
            raise UsageError(str(error)) from None  # which names the flag


def _joined(first: tuple[str, ...], more: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *more]))


def _agree(spec: Spec, state: State, *, learns: bool = False) -> None:
    """Show what wasn't run before, and go on only if the person at the terminal says so."""
    from sandbox.spec import Commands
    from sandbox.spec_file import digest, in_words, resolved
    from sandbox.state import remember_run, was_run
    from sandbox.table import replaced

    # While it learns any program may run: that is more than its list, and asked about as such.
    spec = replaced(spec, commands=Commands()) if learns else resolved(spec)
    known = digest(spec)
    if was_run(state, known):
        return
    lines = [*in_words(spec), *["runs any program, once, to learn which"] * learns]
    if not _ask(["The sandbox:", *(f"  {line}" for line in lines), "Run it? [y/N] "]):
        raise LaunchError("asking", 0, "nothing was run: it was not agreed to.")
    remember_run(state, known, "\n".join(lines).encode() + b"\n")


def _ask(lines: list[str]) -> bool:
    """Ask on the terminal itself: stdin and stdout are the program's."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        raise LaunchError(
            "asking",
            0,
            "what it may touch was not agreed to before, and there is no terminal to ask on: "
            "look at it and add --yes.",
        ) from None
    import termios

    try:
        termios.tcflush(terminal, termios.TCIFLUSH)  # what was typed before answers nothing
        os.write(terminal, "\n".join(lines).encode())
        answer = os.read(terminal, 100)
        if not answer.endswith(b"\n"):
            os.write(terminal, b"\n")  # Ctrl-D leaves the line begun
    finally:
        os.close(terminal)
    return answer.strip().lower() in (b"y", b"yes")


def _start(
    made: Plan,
    own: Own,
    argv: list[str],
    spec: Spec,
    handed: Handed | None,
) -> None:
    """Become the sandbox's launcher; return never."""
    from sandbox.linux import kept, launcher, packing
    from sandbox.linux.environment import passed_by_run
    from sandbox.linux.given import as_it_came

    environ = passed_by_run(as_it_came(dict(os.environb))) | {
        name.encode(): value.encode() for name, value in made.environment.items()
    }
    if handed is not None:
        from sandbox.spec_routes import variables_named

        for name in variables_named(spec):
            environ.pop(os.fsencode(name), None)
        for name, value in (*handed.variables.items(), *handed.env.items()):
            environ[os.fsencode(name)] = os.fsencode(value)
        if handed.routes is not None:
            from sandbox.cli.handing import become
            from sandbox.linux.values import replaced
            from sandbox.mounts import relayed

            assert made.proxy is not None, "routes have a proxy"
            inside = [*made.proxy["inside"], *relayed(handed.routes["mounts"])]  # type: ignore[misc]
            wire = {**made.proxy, "routes": handed.routes, "inside": inside, **_of_a_run(spec)}
            become(replaced(made, proxy=wire), own, argv, environ, spec.file)
    plan = kept.Kept(packing.fields_of(made, own.imports))
    serve = None
    if plan.wire is not None:
        wire = {**plan.wire, **_of_a_run(spec)}
        serve = _server(wire, spec.file)
    isolate(own)
    sys.stdout.flush()
    launcher.run(plan, argv, environ, serve)


def _of_a_run(spec: Spec) -> dict[str, object]:
    """Return what a run's wire has otherwise than a kept command's: the login by memory alone."""
    by = "run" if spec.file is None else "spec"
    return {"upstream": spec.network.upstream, "login": "", "by": by}


def isolate(own: Own) -> None:
    """Import from now on only what no sandbox writes: the standard library, and our own.

    A person's `sys.path` may hold the very folder that the sandbox is given.
    """
    from sandbox.finder import Ours

    library = os.path.dirname(os.__file__)
    kept = [f for f in sys.path if f == library or f.startswith(f"{library}/lib-dynload")]
    sys.path[:] = [*kept, *own.imports]
    sys.path_importer_cache.clear()
    sys.meta_path.insert(0, Ours)  # type: ignore[arg-type]


def _server(wire: dict[str, object], spec: str | None) -> Serve:
    def serve(doors: Doors, stopped: int, ready: Callable[[], None]) -> None:
        from sandbox.cli.wire import Teller, serve_wire

        serve_wire(wire, doors, stopped, ready, Teller(spec, str(wire["upstream"])))

    return serve
