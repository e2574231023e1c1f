"""From a spec's keys to its routes: where each key is, and what the program holds in its place.

Whoever calls this has the keys in memory from then on; `run` does so in a process of its own
(`sandbox.cli.handing`).
"""

from __future__ import annotations

import os

from sandbox.place import Place, shown
from sandbox.route import (
    PROVIDERS,
    Local,
    Model,
    Open,
    Rule,
    Secret,
    Tool,
    check_model_key,
    check_routes,
    check_secret,
)
from sandbox.routes_file import new_key
from sandbox.state import State, settings_folder, user_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sandbox.route import Route
    from sandbox.spec import Spec

    Seen = tuple[tuple[str, str], ...]

KEY_MAX_BYTES = 8192


def has_routes(spec: Spec) -> bool:
    """Tell whether a spec opens anything beside the network."""
    models = spec.models
    named = (getattr(models, provider) for provider in PROVIDERS)
    opened = (models.local, spec.secrets, spec.tools.use, spec.desktop.open, *named)
    return any(opened)


def without_routes(spec: Spec) -> Spec:
    """Return a spec without its routes, in the network mode that it has with them."""
    if not has_routes(spec):
        return spec
    from sandbox.spec import Desktop, Models, Tools
    from sandbox.table import replaced

    network = replaced(spec.network, mode=spec.mode)
    return replaced(
        spec, network=network, models=Models(), secrets={}, tools=Tools(), desktop=Desktop()
    )


def sources_of(spec: Spec) -> Iterator[tuple[Place, str]]:
    """Yield where each key of a spec is, as it is written, and the place that says so."""
    root = Place(root="spec")
    for provider in PROVIDERS:
        if (made := getattr(spec.models, provider)) is not None:
            yield root.at("models", provider, "key"), made.source
    for name, secret in spec.secrets.items():
        yield root.at("secrets", name, "key"), secret.source


def variables_named(spec: Spec) -> set[str]:
    """Return the variables that hold a spec's keys: no program of it gets one (R21)."""
    sources = (source for _, source in sources_of(spec))
    return {source[4:] for source in sources if source.startswith("env:")}


def routes_of(spec: Spec, environ: Mapping[str, str] | None = None) -> tuple[Route, ...]:
    """Return a spec's routes, its keys looked up in the environment or a file.

    Raises SpecError for a key that isn't there, or that can't go where its rule puts it.
    """
    told = os.environ if environ is None else environ
    placed = tuple(_routes(spec, told))
    routes = tuple(route for _, route in placed)
    check_routes(routes, places=[place for place, _ in placed])
    return routes


def _routes(spec: Spec, environ: Mapping[str, str]) -> Iterator[tuple[Place, Route]]:
    """Yield each route, and the key that asks for it."""
    root = Place(root="spec")
    seen = _seen(spec)
    for provider in PROVIDERS:
        if (made := getattr(spec.models, provider)) is not None:
            place = root.at("models", provider, "key")
            secret_key = _key(seen, made.source, environ, place)
            check_model_key(secret_key, place)
            yield (
                root.at("models", provider),
                Model(
                    provider=provider,
                    secret_key=secret_key,
                    placeholder=new_key(),
                    server_tools=spec.models.server_tools,
                ),
            )
    for at, port in enumerate(spec.models.local):
        yield root.at("models", "local", at), Local(port=port)
    for name, one in spec.secrets.items():
        place = root.at("secrets", name, "key")
        rule = Rule(host=one.host, paths=one.paths, header=one.header, refused=one.refused)
        secret = _key(seen, one.source, environ, place)
        check_secret(rule, secret, place)
        made = Secret(name=name, rule=rule, secret=secret, placeholder=new_key())
        yield root.at("secrets", name), made
    for at, name in enumerate(spec.tools.use):
        place = root.at("tools", "use", at)
        yield place, _tool(name, place)
    if spec.desktop.open:
        yield root.at("desktop", "open"), Open()


def _tool(name: str, place: Place) -> Tool:
    """Return a tool as its person defined it, outside."""
    from sandbox.tools import load

    tool = load(State(settings_folder()), name)
    if tool is None:
        place.refuse(f"names {name}, which isn't defined; lnk sandbox tool add {name} -- PROGRAM")
    return tool


def _key(seen: Seen, source: str, environ: Mapping[str, str], place: Place) -> str:
    where, _, name = source.partition(":")
    if where == "env":
        found = environ.get(name, "")
        if not found:
            why = "is empty" if name in environ else "isn't set"
            place.refuse(f"names the variable {name}, which {why}; set it, or use file:")
    else:
        found = _from_file(seen, name, place)
        if not found:
            place.refuse(f"names {shown(name)}, which is empty; write the key into it")
    if not (found.isascii() and found.isprintable() and found == found.strip()):
        place.refuse("leads to what is no key: one line of visible ASCII characters")
    if len(found) > KEY_MAX_BYTES:
        place.refuse("leads to what is longer than any key")
    return found


SYSTEM = ("/usr", "/opt")
"""What every sandbox is shown of the machine."""


def _seen(spec: Spec) -> Seen:
    """Return what the program is shown, each by its name and its real one.

    Empty where no key is in a file.  There may be a thousand folders, and as many keys, so it is
    looked up once for all.
    """
    if not any(source.startswith("file:") for _, source in sources_of(spec)):
        return ()
    home = [user_home()] if spec.files.read_home else []
    folders = (*spec.files.write, *spec.files.read, *home, *SYSTEM)
    return tuple((folder, os.path.realpath(folder)) for folder in folders)


def _check_unshown(seen: Seen, real: str, place: Place) -> None:
    """Refuse a key's file that the program itself could read, by whatever name and grant.

    `Spec.check` judges what is written; here links are followed, and flags have been added.
    """
    for folder, its in seen:
        if f"{real}/".startswith(f"{its}/"):
            place.refuse(
                f"leads to a file in {shown(folder)}, which the sandbox reads; keep it elsewhere"
            )


def _from_file(seen: Seen, path: str, place: Place) -> str:
    from sandbox.regular import NotRegular, opened

    try:
        with open(opened(path), "rb") as file:
            _check_unshown(seen, os.path.realpath(path), place)
            data = file.read(KEY_MAX_BYTES + 2)
    except NotRegular as kind:
        place.refuse(f"names {shown(path)}, which is {kind}; name the file that the key is in")
    except OSError as error:
        place.refuse(f"names {shown(path)}, which can't be read: {error.strerror}")
    return data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
