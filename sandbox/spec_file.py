"""From a spec's file to a `Spec`, and from a `Spec` to what a sandbox is made of.

`parse` reads strictly, each refusal with its key and line; `confinement_of` and
`unwalled_of` say what a spec opens; `digest` is how a spec that was run before is known
again, and `in_words` what a person is shown of one that wasn't.
"""

from __future__ import annotations

import os

from sandbox.confinement import Closed, Confinement, Host, Loopback, Net, Proxied, Proxy, Unwalled
from sandbox.errors import LaunchError, SandboxError, SpecError, one_line
from sandbox.kinds import DIGITS, LETTERS
from sandbox.place import Bases, Place
from sandbox.regular import NotRegular, opened
from sandbox.spec import SPEC_MAX_BYTES, Commands, Spec
from sandbox.state import settings_folder, user_home
from sandbox.table import dump_table, read_table, refuse_unbuilt, replaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandbox.errors import Step
    from sandbox.route import Route
    from sandbox.spec import Judge


def parse(
    data: bytes, *, folder: str, home: str | None, file: str | None, judge: Judge | None
) -> Spec:
    """Read a spec's bytes; see `Spec.parse`."""
    text = _text_of(data, file)
    values = _values_of(text, file)
    place = Place(bases=Bases(home or user_home(), folder), root="spec")
    try:
        spec = read_table(Spec, values, place)
        refuse_unbuilt(spec, place)
        if judge is not None:
            judge(spec, place)
    except SpecError as error:
        from sandbox.toml_lines import line_of  # only a refusal needs it

        line = line_of(text, error.steps)
        raise SpecError(error.key, error.message, steps=error.steps, line=line, file=file) from None
    return replaced(spec, file=None if file is None else os.path.abspath(file))


def placed(error: SandboxError, file: str | None) -> SandboxError:
    """Return a refusal that came after a spec was read with the line that it is about, if one is.

    file: the spec's, as it was named.  It is read again, for a refusal alone: what was piped in
    is gone, and has no lines any more.
    """
    try:
        if file is None:
            return error
        with open(opened(file), "rb") as source:
            text = source.read(SPEC_MAX_BYTES).decode()
        steps = _steps_of(error, file)
    except (OSError, NotRegular, UnicodeDecodeError, SandboxError):
        return error  # it has changed meanwhile
    from sandbox.toml_lines import line_of

    line = line_of(text, steps)
    match error:
        case _ if line is None:
            return error
        case SpecError():
            return SpecError(error.key, error.message, steps=steps, line=line, file=file)
        case LaunchError():
            said = f"{file}:{line}: {error.message}"
            return LaunchError(error.step, error.errno, said, exit_code=error.exit_code)
    return error


def _steps_of(error: SandboxError, file: str) -> tuple[Step, ...]:
    """Return the path of the key in a spec's file that an error is about, empty for none."""
    if isinstance(error, SpecError):
        return error.steps if error.line is None else ()
    if not isinstance(error, LaunchError) or error.about is None:
        return ()
    key, named = error.about
    spec = Spec.read(file)
    if key == "read" and spec.files.read_home and named == user_home():
        return ("files", "read_home")
    lists: dict[str, tuple[tuple[str, str], Iterable[object]]] = {
        "write": (("files", "write"), spec.files.write),
        "read": (("files", "read"), spec.files.read),
        "hide": (("files", "hide"), spec.files.hide),
        "only": (("commands", "only"), resolved(spec).commands.only or ()),
        "ports": (("localhost", "ports"), spec.localhost.ports),
        "serve": (("localhost", "serve"), spec.localhost.serve),
        "a local model": (("models", "local"), spec.models.local),
    }
    steps, listed = lists.get(key, ((), ()))
    found = [at for at, one in enumerate(listed) if str(one) == named]
    return (*steps, found[0]) if found else ()


def _text_of(data: bytes, file: str | None) -> str:
    if len(data) > SPEC_MAX_BYTES:
        said = f"is longer than {SPEC_MAX_BYTES} bytes; no spec needs as many, name the right file"
        raise SpecError("spec", said, file=file)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError("spec", "isn't UTF-8", line=line, file=file) from None


def _values_of(text: str, file: str | None) -> dict[str, object]:
    import tomllib

    from sandbox.toml_depth import DEPTH_MAX, too_deep

    if text.startswith("\ufeff"):
        raise SpecError("spec", "begins with a byte order mark; save it without", line=1, file=file)
    if (line := too_deep(text)) is not None:
        said = f"is nested more than {DEPTH_MAX} deep here, and no key of a spec is; take it out"
        raise SpecError("spec", said, line=line, file=file)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, line = _what_and_where(str(error), text)
        raise SpecError("spec", f"isn't TOML: {reason}", line=line, file=file) from None
    except ValueError:
        raise SpecError("spec", "holds a number too long for any key", file=file) from None


def _what_and_where(said: str, text: str) -> tuple[str, int | None]:
    """Take tomllib's `… (at line 3, column 5)` or `… (at end of document)` apart."""
    reason, _, place = said.partition(" (at ")
    plain = reason.encode("ascii", "backslashreplace").decode().replace("\n", "\\n")[:100]
    if place.startswith("line "):
        return plain, int(place.removeprefix("line ").partition(",")[0])
    return plain, text.count("\n") + 1 if place else None


def resolved(spec: Spec) -> Spec:
    """Return a spec whose programs are paths: which file a bare name is depends on PATH."""
    return replaced(spec, commands=Commands(only=_programs(spec)))


def digest(spec: Spec) -> str:
    """Return the SHA-256 of what a spec opens, in hex: its resolved keys, not its text.

    A comment changes nothing; a moved folder, whose relative paths lead elsewhere, does.
    """
    import hashlib
    import json

    plain = json.dumps(dump_table(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def confinement_of(
    spec: Spec, *, name: str | None = None, proxy_dir: str | None = None
) -> Confinement:
    """Return the confinement that a spec opens.

    name: the sandbox's; None is the spec's file's.  proxy_dir: the folder of its proxy's
    sockets; None is one of that name in Link's settings.  A spec's file that the sandbox could
    write is among what it reads, and so read only.  Placeholders are those that commands of the
    name which were kept have, where there are any.  Raises SpecError where the spec,
    however it was made, has a key that is malformed or not built yet.
    """
    spec = _checked(spec)
    named = name or _name_of(spec)
    return Confinement(
        name=named,
        write=spec.files.write,
        write_dot_files=spec.files.write_dot_files,
        read=tuple(dict.fromkeys((*spec.files.read, *_own_file(spec)))),
        read_home=spec.files.read_home,
        hide=spec.files.hide,
        commands=_programs(spec),
        developer_tools=spec.macos.developer_tools,
        net=_net(spec, named, proxy_dir),
    )


def _own_file(spec: Spec) -> list[str]:
    """Return a spec's own file where the sandbox could write it: it is read only (R20).

    It is looked for by its real name, for who goes by a link could write what that leads to; a
    link on the way, in a folder that is written, is refused as every path that is one: it could
    lead to another spec the next time.
    """
    if spec.file is None:
        return []
    from sandbox.linux.walk import walk

    way = walk(spec.file)
    paths = (*way.links, way.real)
    written = tuple(f"{folder}/" for folder in spec.files.write)
    return [path for path in paths if path.startswith(written)]


def unwalled_of(
    spec: Spec, *, name: str | None = None, proxy_dir: str | None = None, pointed: bool = True
) -> Unwalled:
    """Return a spec's proxy without its wall; see `confinement_of`."""
    spec = _checked(spec)
    named = name or _name_of(spec)
    proxy = _proxy(spec, named, proxy_dir)
    return Unwalled(name=named, proxy=proxy, pointed=pointed)


def _checked(spec: Spec) -> Spec:
    """Read a spec again: one made in Python was never judged, and is held to the same."""
    place = Place(root="spec")
    again = read_table(Spec, dump_table(spec), place)
    refuse_unbuilt(again, place)
    return replaced(again, file=spec.file)


def _name_of(spec: Spec) -> str:
    stem = os.path.splitext(os.path.basename(spec.file or ""))[0]
    plain = "".join(char if char in LETTERS + DIGITS + "._-" else "-" for char in stem)
    return plain.lstrip("-._")[:64] or "sandbox"


def _proxy_dir(name: str) -> str:
    return os.path.join(settings_folder(), "sandbox", "proxy", name)


def _net(spec: Spec, name: str, proxy_dir: str | None) -> Net:
    match spec.mode:
        case "host":
            return Host(ports=(), localhost=True)
        case "proxy":
            return Proxied(proxy=_proxy(spec, name, proxy_dir), ports=spec.localhost.ports)
    if spec.localhost.ports:
        return Loopback(ports=spec.localhost.ports, dir=proxy_dir or _proxy_dir(name))
    return Closed()


def _proxy(spec: Spec, name: str, proxy_dir: str | None) -> Proxy:
    from sandbox.spec_routes import has_routes, routes_of

    routes: tuple[Route, ...] = ()
    caller = None
    if has_routes(spec):
        from sandbox.routes_file import as_kept, new_key

        routes, caller = as_kept(routes_of(spec), new_key(), settings_folder(), name)
    return Proxy(
        routes=routes,
        caller=caller,
        upstream=spec.network.upstream,
        dir=proxy_dir or _proxy_dir(name),
        serve=spec.localhost.serve,
        hosts=spec.internet.hosts,
        tcp=spec.internet.tcp,
        per_minute=spec.network.per_minute,
        lan=spec.lan.hosts,
    )


def _programs(spec: Spec) -> tuple[str, ...] | None:
    """Return the programs that may run as absolute paths, bare names found on PATH."""
    if spec.commands.only is None:
        return None
    return tuple(
        _found(program, Place(("commands", "only", at), root="spec"))
        for at, program in enumerate(spec.commands.only)
    )


def _found(program: str, place: Place) -> str:
    if program.startswith("/"):
        return program
    # A relative folder on PATH is the working folder's, which is anybody's.
    folders = [folder for folder in os.get_exec_path() if folder.startswith("/")]
    for path in (os.path.join(folder, program) for folder in folders):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise place.refusal(f"{one_line(program)} is on no folder of PATH; write its path")


WHOLE_HOME = ", all of your home, so what runs when you log in too (.profile, .bashrc, .ssh)"


def in_words(spec: Spec) -> list[str]:
    """Return what a spec opens, a line each, for the person who is asked about it."""
    return [one_line(line) for line in _lines(spec)]


def _lines(spec: Spec) -> Iterator[str]:
    files = spec.files
    for folder in files.write:
        dots = ", its dot files too" if folder in files.write_dot_files else ""
        whole = WHOLE_HOME if f"{user_home()}/".startswith(f"{folder}/") else ""
        yield f"writes {folder}{dots}{whole}"
    if files.read_home:
        yield "reads the whole home folder"
    for path in files.read:
        yield f"reads {path}"
    for folder in files.hide:
        yield f"keeps {folder} closed"
    if spec.commands.only is not None:
        yield f"runs only {', '.join(spec.commands.only)}"
    yield from list(_network_lines(spec)) or ["reaches nothing on the network"]


def _network_lines(spec: Spec) -> Iterator[str]:
    if spec.mode == "host":
        yield "has this machine's network as it is: every host, this machine's ports too, no log"
        return
    if spec.internet.hosts is None:
        yield "reaches any host on the internet"
    elif spec.internet.hosts:
        yield f"reaches on the internet {', '.join(spec.internet.hosts)}"
    if spec.internet.tcp:
        yield f"reaches without HTTP {', '.join(spec.internet.tcp)}"
    if spec.lan.hosts:
        yield f"reaches on the local network {', '.join(spec.lan.hosts)}"
    if spec.network.upstream != "direct":
        from sandbox.exits import without_login  # a login isn't for the screen

        yield f"leaves this machine through another proxy, {without_login(spec.network.upstream)}"
    yield from _route_lines(spec)
    for port in spec.localhost.ports:
        yield f"reaches this machine's port {port}"
    for port in spec.localhost.serve:
        yield f"opens its port {port} on this machine"


def _route_lines(spec: Spec) -> Iterator[str]:
    """Yield what each route opens, and where its key is; the key itself isn't looked up."""
    from sandbox.route import PROVIDERS

    for provider in PROVIDERS:
        if (made := getattr(spec.models, provider)) is not None:
            tools = ", which may run tools of its own" if spec.models.server_tools else ""
            yield f"asks {provider}'s models with the key in {made.source}{tools}"
    for port in spec.models.local:
        yield f"asks the model at this machine's port {port}"
    for name, secret in spec.secrets.items():
        paths = ", ".join(secret.paths)
        yield f"calls {secret.host} with the secret {name} in {secret.source}, at {paths}"
    for name in spec.tools.use:
        yield f"calls the tool {name}, which runs outside and asks as it was defined"
    if spec.desktop.open:
        yield "may ask you to open a page in your browser"
