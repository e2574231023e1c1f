"""`lnk sandbox check`: try a sandbox from inside, and say what holds (R65).

The probes are made from the very confinement that is checked: each thing it closes is tried,
and each thing it opens.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile

from sandbox.cli.flags import Flag, UsageError, describe, read_flags
from sandbox.confinement import Confinement, Proxied, Reaching
from sandbox.errors import LaunchError, SandboxError, one_line
from sandbox.kinds import Nested
from sandbox.place import Place, an_object
from sandbox.spec_file import placed
from sandbox.table import Table, key, read_table, refuse_unbuilt, replaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from sandbox.linux.plan import Plan
    from sandbox.linux.probes import Guarded, Outside, Probe

FLAGS = (
    Flag("--spec", "FILE", "the sandbox of a TOML file, as run would make it"),
    Flag("--policy", "", 'the sandbox of {"confinement"}, read as JSON on standard input'),
    Flag("--json", "", "print a list of {probe, result, why} instead of lines"),
    Flag("--help", "", "print this"),
)
HELP = f"""\
Try a sandbox from inside: each thing it closes, and each thing it opens.

usage: lnk sandbox check [--spec FILE | --policy] [--json]

{describe(FLAGS)}

Without a flag it is the sandbox that run makes with one folder to write. A line a probe:

  blocked  it is closed, and held         allowed  it is open, and worked
  leaked   it is closed, and got through  missed   it is open, and was refused
  open     a gap that we know of          failed   it could not be tried

Exit status 1 where something leaked, 125 where the sandbox does not start.

  lnk sandbox check --spec box.toml"""


class CheckRequest(Table):
    """What `check --policy` reads."""

    confinement: Confinement = key(
        Nested(lambda: Confinement, "a confinement"), "What is checked, as wrap takes it."
    )
    RETIRED: ClassVar[dict[str, str | None]] = {
        "policy": 'policies became confinements; send {"confinement"}',
        "unwalled": "has no wall to check; send a confinement",
    }


def main(words: list[str]) -> int:
    """Run the check; return 1 where something leaked."""
    flags = read_flags(FLAGS, words)
    if "--help" in flags:
        print(HELP)
        return 0
    if "--spec" in flags and "--policy" in flags:
        raise UsageError("--spec and --policy are both given: write the one you mean.")
    folder = None
    unopened: list[str] = []
    _end_in_good_order()
    try:
        if "--policy" in flags:
            from sandbox.cli.wrap import read_input

            confinement = read_request(read_input())
        elif "--spec" in flags:
            confinement, unopened = _of_spec(flags.one("--spec") or "")
        else:
            folder = os.path.realpath(tempfile.mkdtemp(prefix="lnk-check-"))
            confinement = _plain(folder)
        results, notes = check(confinement)
        notes += unopened
    except SandboxError as error:
        raise placed(error, flags.one("--spec")) from None
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        said = f"check: {where}{error.strerror}."
        raise LaunchError("check", error.errno or 0, said) from None
    finally:
        if folder is not None:
            shutil.rmtree(folder)
    if "--json" in flags:
        rows = [{"probe": what, "result": word, "why": why} for what, word, why in results]
        print(json.dumps(rows, indent=1))
    else:
        # A submodule's path is the choice of whoever made the repository.
        print("\n".join(map(one_line, lines(results, notes))))
    return 1 if any(word == "leaked" for _, word, _ in results) else 0


def _end_in_good_order() -> None:
    """Have what ends this process take away what it made first: canaries stand on the machine."""
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is not signal.SIG_IGN:  # nohup(1) asks for that
            signal.signal(each, lambda number, _: sys.exit(128 + number))


def read_request(data: bytes) -> Confinement:
    """Return the confinement that bytes hold; raise SpecError for the first key that is wrong."""
    from sandbox.cli.wrap import REQUEST_MAX_BYTES
    from sandbox.strict_json import read_json

    value = read_json(data, REQUEST_MAX_BYTES)
    an_object(value, Place())
    request = read_table(CheckRequest, value, Place())
    refuse_unbuilt(request, Place())
    net = request.confinement.net
    if isinstance(net, Proxied):
        from sandbox.cli.host_lists import check_proxy

        place = Place(("confinement", "net", "proxied", "proxy"))
        check_proxy(net.proxy, place)
        if net.proxy.hold:
            # wrap makes no sandbox of it: what was tried would hold nobody's program.
            place.at("hold").refuse(
                "makes a proxy alone, which has no wall to check; send the confinement that "
                "reaches it"
            )
    return request.confinement


def _of_spec(file: str) -> tuple[Confinement, list[str]]:
    """Return what run would make of a spec, but for its routes; and what that leaves out."""
    from sandbox.cli.host_lists import check_spec
    from sandbox.spec import Spec

    if not file:
        raise UsageError("--spec names no file: write --spec FILE.")
    from sandbox.cli.run import confinement_of
    from sandbox.spec_routes import has_routes

    spec = Spec.read(file, judge=check_spec)
    left = ["not tried: its models, secrets, tools and pages"] if has_routes(spec) else []
    return confinement_of(spec, asked_network=False), left


def _plain(folder: str) -> Confinement:
    """Return what `run --write FOLDER` makes."""
    from sandbox.confinement import Proxy
    from sandbox.state import settings_folder

    name = f"check-{os.getpid()}"
    wires = os.path.join(settings_folder(), "sandbox", "wires", name)
    net = Proxied(proxy=Proxy(upstream="direct", dir=wires, hosts=()), ports=())
    return Confinement(name=name, write=(folder,), read=(), commands=None, net=net)


Result = tuple[str, str, str]
"""A probe's words, what became of it, and what shows that."""


def check(confinement: Confinement) -> tuple[list[Result], list[str]]:
    """Try a sandbox of this confinement; return a result for each probe, and notes."""
    from sandbox.cli.planned import planned
    from sandbox.linux.canaries import Canaries
    from sandbox.linux.checker import run, with_interpreter
    from sandbox.linux.probes import verdict

    made, facts = planned(confinement)
    with Reached(confinement) as theirs:
        if theirs is not confinement:
            made, facts = planned(theirs)
        made, notes = with_interpreter(apart(made, confinement), facts.own)
        with Login(confinement, made), Canaries(made.home) as outside:
            tried = probes_of(confinement, made, outside)
            answers = run(made, facts.own, tried, outside)
    results = [
        (probe.what, *verdict(probe, told)) for probe, told in zip(tried, answers, strict=True)
    ]
    notes += [f"note: {words}" for words in thinner(made)]
    return results, notes + [f"not tried: {words}" for words in routes_of(confinement)]


def thinner(plan: Plan) -> list[str]:
    """Return which walls this machine holds in one way, where others hold them in two."""
    found = []
    if not plan.holds_folders:
        found.append(
            "this bubblewrap mounts folders by their names, looked at just before "
            "(newer ones by descriptors, from --bind-fd on): a moment remains between the two"
        )
    if "--disable-userns" not in plan.namespaces:
        found.append("new user namespaces are kept from being made by the filter alone")
    return found


def apart(plan: Plan, confinement: Confinement) -> Plan:
    """Return a plan whose wire is the check's own: its calls are no conduct of the sandbox's.

    It has a name and a folder of its own, no log, no limit and no routes, and nothing pauses it.
    """
    from sandbox.exits import login_file
    from sandbox.linux.values import replaced as changed

    if plan.proxy is None:
        return plan
    name = f"check-{os.getpid()}"
    wire = {
        **plan.proxy, "name": name, "dir": os.path.join(plan.state, "sandbox", "wires", name),
        "log": None, "state": None, "per_minute": None, "routes": None, "serve": [],
        "login": login_file(plan.state, name) if plan.proxy["login"] else "",
    }  # fmt: skip
    net = confinement.net
    if isinstance(net, Proxied) and net.proxy.routes:
        from sandbox.mounts import mount_of, relayed

        theirs = relayed(mount_of(route) for route in net.proxy.routes)
        wire["inside"] = [one for one in plan.proxy["inside"] if one not in theirs]  # type: ignore[attr-defined]
    return changed(plan, proxy=wire)


class Reached:
    """Gives a sandbox that reaches proxies empty folders in the place of theirs, for a block.

    Its relay inside would listen there for the calls of a sandbox that is running.
    """

    def __init__(self, confinement: Confinement) -> None:
        self._confinement = confinement
        self._folders: list[str] = []

    def __enter__(self) -> Confinement:
        net = self._confinement.net
        if not isinstance(net, Reaching):
            return self._confinement
        reached = []
        for one in net.reached:
            self._folders.append(os.path.realpath(tempfile.mkdtemp(prefix="lnk-check-")))
            reached.append(replaced(one, dir=self._folders[-1]))
        return replaced(self._confinement, net=replaced(net, reached=tuple(reached)))

    def __exit__(self, *raised: object) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


class Login:
    """Writes the login of an exit where the check's proxy reads it, for the length of a block."""

    def __init__(self, confinement: Confinement, plan: Plan) -> None:
        net = confinement.net
        self._upstream = net.proxy.upstream if isinstance(net, Proxied) else ""
        self._wire = plan.proxy
        self._settings = plan.state

    def __enter__(self) -> None:
        if self._wire is None:
            return
        from sandbox.state import State

        State(self._settings).folder("wires")
        if self._wire["login"]:
            State(self._settings).write(self._upstream.encode(), f"{self._wire['name']}.upstream")

    def __exit__(self, *raised: object) -> None:
        if self._wire is not None and self._wire["login"]:
            from sandbox.state import State

            State(self._settings).remove(f"{self._wire['name']}.upstream")


def routes_of(confinement: Confinement) -> list[str]:
    """Return the routes in words: what they reach has effects outside, so none is tried."""
    net = confinement.net
    if not isinstance(net, Proxied):
        return []
    routes = [(route.kind, getattr(route, "name", "")) for route in net.proxy.routes]
    return [f"the route {kind} {name}".rstrip() for kind, name in routes]


def probes_of(confinement: Confinement, plan: Plan, outside: Outside) -> list[Probe]:
    """Return the probes of a confinement on this machine."""
    from sandbox.linux.probing import probes

    net = confinement.net
    return probes(
        plan,
        outside,
        hosts=net.proxy.hosts if isinstance(net, Proxied) else (),
        ports=net.proxy.serve if isinstance(net, Proxied) else (),
        dot_files=tuple(closed_dot_files(plan)),
        open_dot_files=tuple(open_dot_files(confinement)),
    )


def closed_dot_files(plan: Plan) -> list[Guarded]:
    """Return what a start would close now, and the folders above that keep their names."""
    from sandbox.cli.wrap import dot_files
    from sandbox.linux.dot_mounts import Layout, Needed
    from sandbox.linux.kept import Kept
    from sandbox.linux.packing import fields_of
    from sandbox.linux.probes import Guarded

    needed = Needed(dot_files(plan), Layout(Kept(fields_of(plan, ())).arguments))
    return [Guarded(guard.at) for guard in needed.guards] + [
        Guarded(pin, True) for pin in needed.pins
    ]


def open_dot_files(confinement: Confinement) -> list[str]:
    """Return the dot files that are there and that it writes."""
    from sandbox.linux.dot_files import WHOLE

    paths = [f"{folder}/{name}" for folder in confinement.write_dot_files for name in WHOLE]
    return [path for path in paths if os.path.isdir(path)]


def lines(results: list[Result], notes: list[str]) -> list[str]:
    """Return a check as a person reads it: a line a probe, and their sum."""
    found = [f"{word:<8} {what}{f'  ({why})' if why else ''}" for what, word, why in results]
    counts: dict[str, int] = {}
    for _, word, _ in results:
        counts[word] = counts.get(word, 0) + 1
    words = ", ".join(f"{counts[word]} {word}" for word in sorted(counts))
    return [*found, *notes, f"{len(results)} probes: {words}"]
