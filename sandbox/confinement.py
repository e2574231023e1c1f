"""What a program may touch: the tables of a wrap request (the typed source of R11).

A `Confinement` says everything about one sandbox but what runs in it.  Its `net` is
one of five modes, each holding only its own keys.  Every key, its kind, what a missing
one means and its effect stand in these classes and nowhere else; `sandbox.table` reads
them, `sandbox.built` says which aren't built yet.

All of it is the shape of a request: whether a folder exists, or a host's name means
anything, is for those who use it.
"""

from __future__ import annotations

import sys

from sandbox.kinds import (
    DIGITS,
    FOLDER,
    GRAPHIC,
    LETTERS,
    PER_MINUTE,
    PORT,
    Argv,
    Flag,
    ListOf,
    Nested,
    PathTo,
    Tagged,
    Text,
    made_of,
)
from sandbox.place import Place, an_object, shown
from sandbox.table import Kind, Table, dump_table, key, read_table, refuse_unbuilt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from sandbox.route import Route
    from sandbox.spec import Spec

ANY_HOST = "*"
UNPRIVILEGED = 1024
"""The first port at which a relay inside may listen."""
PATHS_MAX = 512
"""Of each list: bubblewrap takes 9,000 arguments in all, and each path is three."""


def _is_exit(text: str) -> bool:
    scheme, mark, rest = text.partition("://")
    return text == "direct" or (
        scheme in ("http", "socks5") and mark != "" and made_of(GRAPHIC)(rest)
    )


NAME = Text(
    "a sandbox's name",
    made_of(LETTERS + DIGITS + "._-", first=LETTERS + DIGITS),  # it names a file of the log
    most=64,
    cure="use letters, digits, and . _ - after the first",
)
PREFIX = Text(
    "a prefix",
    made_of(LETTERS + DIGITS + "._-", first=LETTERS + DIGITS),
    most=64,
    cure="use letters, digits, and . _ - after the first",
)
FOLDERS = ListOf(FOLDER, "folders", most=PATHS_MAX)
PATHS = ListOf(PathTo("a file or folder"), "files and folders", most=PATHS_MAX)
WRITE_EFFECT = (
    "The folders it reads and writes, but for the dot files at their top (.git, .envrc, .vscode, "
    ".idea, .husky, and what git's settings name), which are read only."
)
DOT_FILES_EFFECT = (
    "Those of `write` whose dot files it writes too; in a worktree, its repository's as well."
)
PORTS = ListOf(PORT, "ports", most=1024)
HOST = Text(
    "a host",
    lambda text: text.isprintable() and " " not in text,
    most=300,
    cure="write its name or address alone",
)
HOSTS = ListOf(HOST, "hosts", most=100_000)
URL_SECRET = Text(
    "a secret",
    made_of(LETTERS + DIGITS),
    least=16,
    most=64,
    cure="use 16 to 64 letters and digits",
    show=False,
)
EXIT = Text(
    "an exit",
    _is_exit,
    cure='write "direct", http://HOST:PORT or socks5://HOST:PORT',
    show=False,  # its URL can hold a login
)
CALLER = Text("a caller's key", made_of(GRAPHIC), least=16, most=256, show=False)


class Listed(ListOf):
    """The hosts a sandbox reaches, or `["*"]`, which is any: held as None."""

    def _read(self, value: object, place: Place) -> Any:
        hosts = super()._read(value, place)
        if ANY_HOST not in hosts:
            return hosts
        if len(hosts) > 1:
            place.at(hosts.index(ANY_HOST)).refuse(
                '"*" is any host, so the others beside it say nothing; keep it or them'
            )
        return None

    def _dump(self, value: Any) -> object:
        return [ANY_HOST] if value is None else super()._dump(value)


class Programs(Kind):
    """Any program, held as None, or the list of those that may run."""

    words = '"any" or {"only": [<path>]}'
    only = ListOf(PathTo("a program"), "programs", least=1)

    def _read(self, value: object, place: Place) -> tuple[str, ...] | None:
        if value == "any":
            return None
        if isinstance(value, str):
            place.refuse(f"{shown(value)} isn't {self.words}")
        pairs = an_object(value, place, self.words)
        for name in pairs:
            if name != "only":
                place.at(name).refuse("unknown key; there is only")
        if not pairs:
            place.at("only").refuse("is missing; it takes programs")
        programs: tuple[str, ...] = self.only.read(pairs["only"], place.at("only"))
        return programs

    def _dump(self, value: Any) -> object:
        return "any" if value is None else {"only": list(value)}


class Routes(ListOf):
    """A proxy's routes, checked to be mountable together."""

    def __init__(self) -> None:
        super().__init__(RouteKind(), "routes", most=1024)

    def _read(self, value: object, place: Place) -> tuple[Any, ...]:
        routes = super()._read(value, place)
        if routes:
            from sandbox.route import check_routes

            check_routes(routes, place)
        return routes


class RouteKind(Kind):
    """One route, of the kind its `kind` names."""

    words = "a route"

    def refuse_unbuilt(self, value: Any, place: Place) -> None:
        """Refuse a kind that isn't built, or a key of it."""
        refuse_unbuilt(value, place)

    def _read(self, value: object, place: Place) -> Any:
        from sandbox.route import read_route

        return read_route(value, place)

    def _dump(self, value: Any) -> object:
        from sandbox.route import dump_route

        return dump_route(value)


class Proxy(Table):
    """The filtering proxy that is a sandbox's one way out."""

    upstream: str = key(
        EXIT,
        'How calls leave this machine: "direct", or another proxy (http://…, socks5://…).',
    )
    dir: str = key(FOLDER, "The folder of its sockets, its user's alone.")
    serve: tuple[int, ...] = key(
        PORTS, "The sandbox's own ports, opened on this machine's loopback.", default=()
    )
    hosts: tuple[str, ...] | None = key(
        Listed(HOST, "hosts", most=100_000),
        'The internet hosts it reaches, at any port: names, `*.name` (those below it) and '
        'addresses; `[]` none; missing or `["*"]` any.',
        default=None,
        always=True,
    )  # fmt: skip
    tcp: tuple[str, ...] = key(
        HOSTS, "Endpoints (`host:port`) reached without HTTP, by DNS of its own.", default=()
    )
    listen: int | None = key(
        PORT,
        "The port it listens on: in the sandbox's own network, or unwalled on this machine's "
        "loopback (missing there: any that is free).",
        default=None,
    )
    per_minute: int | None = key(
        PER_MINUTE, "The most calls a minute; missing: no limit.", default=None
    )
    routes: tuple[Route, ...] = key(
        Routes(), "Ways out beside the network, mounted under `/_link/`.", default=()
    )
    caller: str | None = key(
        CALLER, "The key by which its bridges know it; routes need one.", default=None
    )
    secret: str | None = key(
        URL_SECRET, "The secret in its routes' URLs; missing: one of the wrap's own.", default=None
    )
    lan: tuple[str, ...] = key(
        HOSTS, "The local network's machines (`host:port`) it reaches; never this one.", default=()
    )
    no_internet: bool = key(
        Flag(), "Reach no host of the internet, whatever `hosts` would open.", default=False
    )
    hold: bool = key(
        Flag(), "The command is the proxy's alone, for a sandbox started apart.", default=False
    )

    def check(self, place: Place) -> None:
        """Refuse keys that can't hold together."""
        if self.no_internet and self.hosts:
            place.at("no_internet").refuse("closes what hosts opens; leave one of the two out")
        if self.routes and self.caller is None:
            # A bridge serves whoever holds the key: with none it would serve anybody.
            place.at("caller").refuse("is missing; routes need their caller's key")


class Closed(Table):
    """No network at all."""


class Loopback(Table):
    """Some ports of this machine's loopback and nothing else, without a proxy."""

    ports: tuple[int, ...] = key(PORTS, "This machine's ports, at the same `localhost:<port>`.")
    dir: str = key(FOLDER, "The folder of the sockets they are relayed through (Linux).")


class Proxied(Table):
    """A network of its own whose one way out is its proxy."""

    proxy: Proxy = key(Nested(lambda: Proxy, "a proxy"), "Its proxy.")
    ports: tuple[int, ...] = key(PORTS, "This machine's ports, at the same `localhost:<port>`.")

    def check(self, place: Place) -> None:
        """Refuse a port that would have to be two, and what a proxy apart has no network for."""
        if self.proxy.hold and self.proxy.tcp:
            place.at("proxy", "tcp").refuse(
                "needs DNS in the sandbox's own network, which a proxy that hold has stand apart "
                "isn't in; leave one of the two out"
            )
        if self.proxy.hold and self.ports:
            place.at("ports").refuse(
                "are opened in the sandbox's own network, which a proxy that hold has stand apart "
                "isn't in; name them in the net that reaches it"
            )
        for at, port in enumerate(self.ports):
            if port in self.proxy.serve:
                place.at("ports", at).refuse(
                    f"{port} is also in proxy.serve; inside, one port can't be both"
                )
        for at, route in enumerate(self.proxy.routes):
            runtime = getattr(route, "port", None)
            if runtime in (*self.ports, *self.proxy.serve):
                # Raw, all of the runtime's interface would be open beside the filter.
                place.at("proxy", "routes", at, "port").refuse(
                    f"{runtime} is also in ports or proxy.serve; take it out there"
                )
        listen = self.proxy.listen
        if listen is not None and (listen in self.ports or listen in self.proxy.serve):
            place.at("proxy", "listen").refuse(
                f"{listen} is also among ports or proxy.serve; inside, one port can't be both"
            )


class Reached(Table):
    """One proxy that stands apart, and its port inside."""

    dir: str = key(FOLDER, "The folder of that proxy's sockets.")
    port: int = key(PORT, "The port inside at which it is reached.")


class Reaching(Table):
    """A network of its own whose only ways out are proxies that stand apart (Linux)."""

    reached: tuple[Reached, ...] = key(
        ListOf(Nested(lambda: Reached, "a proxy's dir and port"), "proxies", least=1, most=256),
        "The proxies, each by its `dir` and its `port` inside.",
    )
    ports: tuple[int, ...] = key(PORTS, "This machine's ports, at the same `localhost:<port>`.")

    def check(self, place: Place) -> None:
        """Refuse a port that would have to be two."""
        taken = set(self.ports)
        for at, one in enumerate(self.reached):
            if one.port < UNPRIVILEGED:
                place.at("reached", at, "port").refuse(
                    f"{one.port} is for a privileged program, and none is inside; "
                    f"take one from {UNPRIVILEGED} up"
                )
            if one.port in taken:
                place.at("reached", at, "port").refuse(
                    f"{one.port} is taken already; give each its own port inside"
                )
            taken.add(one.port)


class Host(Table):
    """The machine's network as it is: no wall, no proxy, no log."""

    ports: tuple[int, ...] = key(PORTS, "This machine's ports it reaches where localhost is false.")
    localhost: bool = key(
        Flag(),
        "Whether it reaches every port of this machine's loopback; on Linux always: nothing there "
        "keeps a program on this machine's network from it.",
    )

    def check(self, place: Place) -> None:
        """Refuse a wall that Linux doesn't have."""
        if not self.localhost and sys.platform == "linux":
            place.at("localhost").refuse(
                "false can't be held on Linux: nothing keeps a program on this machine's network "
                "from its loopback; write true, or take proxied or loopback with these ports"
            )


Net = Closed | Loopback | Proxied | Reaching | Host
MODES: dict[str, type[Any]] = {
    "closed": Closed,
    "loopback": Loopback,
    "proxied": Proxied,
    "reaching": Reaching,
    "host": Host,
}


class Confinement(Table):
    """What one sandbox may touch."""

    name: str = key(NAME, "Its name, in the log and in what it shows.")
    write: tuple[str, ...] = key(FOLDERS, WRITE_EFFECT)
    write_dot_files: tuple[str, ...] = key(
        FOLDERS,
        DOT_FILES_EFFECT,
        default=(),
    )
    read: tuple[str, ...] = key(PATHS, "The files and folders it reads.")
    read_home: bool = key(Flag(), "Whether it reads the whole home folder.", default=False)
    hide: tuple[str, ...] = key(
        FOLDERS, "Folders that stay closed, but for what write and read name in them.", default=()
    )
    tmp_prefix: str | None = key(
        PREFIX,
        "macOS, whose temp folder is shared: the names in it that begin so are the sandbox's "
        "too; on Linux all of /tmp is its own, so each is already.",
        default=None,
    )
    terminal: bool = key(
        Flag(), "Whether it keeps the terminal it is started on, for job control.", default=False
    )
    commands: tuple[str, ...] | None = key(
        Programs(), 'The programs that may run: "any", or only the listed files.'
    )
    developer_tools: bool = key(
        Flag(), "macOS: whether it reads Apple's developer tools.", default=False
    )
    net: Net = key(
        Tagged(lambda: MODES, "a network mode"), "Its network: one mode with its own keys."
    )

    def check(self, place: Place) -> None:
        """Refuse dot files of a folder it doesn't write: nothing would be opened."""
        for at, folder in enumerate(self.write_dot_files):
            if folder not in self.write:
                place.at("write_dot_files", at).refuse(
                    f"{shown(folder)} isn't one of write; name it there too"
                )

    @classmethod
    def read_json(cls, value: object, place: Place | None = None) -> Confinement:
        """Read one from JSON's values; raise SpecError for the first key that is wrong."""
        return read_table(cls, value, place or Place(("confinement",)))

    def as_json(self) -> dict[str, object]:
        """Return it as a wrap request has it."""
        return dump_table(self)

    @classmethod
    def of(
        cls, spec: Spec, *, name: str | None = None, proxy_dir: str | None = None
    ) -> Confinement:
        """Return what a spec opens; see `sandbox.spec_file.confinement_of`."""
        from sandbox.spec_file import confinement_of  # readers of JSON need no spec

        return confinement_of(spec, name=name, proxy_dir=proxy_dir)


class Unwalled(Table):
    """No wall: a program run as it is under its proxy, which nothing holds it to."""

    name: str = key(NAME, "Its name, in the log and in what it shows.")
    proxy: Proxy = key(
        Nested(lambda: Proxy, "a proxy"), "Its proxy, on this machine's loopback at `listen`."
    )
    pointed: bool = key(
        Flag(),
        "Whether the environment points it at the proxy, which then requires a secret; else only "
        "at Link's ways out on it.",
    )

    def check(self, place: Place) -> None:
        """Refuse an exit: nothing holds the program to leaving by it."""
        if self.proxy.upstream != "direct":
            place.at("proxy", "upstream").refuse(
                'is an exit, which nothing holds an unwalled program to; write "direct", or send a '
                "confinement"
            )

    def as_json(self) -> dict[str, object]:
        """Return it as a wrap request has it."""
        return dump_table(self)

    @classmethod
    def of(
        cls,
        spec: Spec,
        *,
        name: str | None = None,
        proxy_dir: str | None = None,
        pointed: bool = True,
    ) -> Unwalled:
        """Return a spec's proxy without its wall; see `sandbox.spec_file.unwalled_of`."""
        from sandbox.spec_file import unwalled_of

        return unwalled_of(spec, name=name, proxy_dir=proxy_dir, pointed=pointed)


class WrapRequest(Table):
    """What `lnk sandbox wrap` reads: one confinement, or one unwalled, and a program."""

    confinement: Confinement | None = key(
        Nested(lambda: Confinement, "a confinement"), "What the program may touch.", default=None
    )
    unwalled: Unwalled | None = key(
        Nested(lambda: Unwalled, "an unwalled"), "Or: no wall, only a proxy.", default=None
    )
    argv: tuple[str, ...] = key(Argv(), "The program and its arguments.")
    RETIRED: ClassVar[dict[str, str | None]] = {
        "policy": 'policies became confinements; send {"confinement", "argv"}'
    }

    def check(self, place: Place) -> None:
        """Refuse a request for no sandbox, or for two."""
        if self.confinement is not None and self.unwalled is not None:
            place.at("unwalled").refuse("stands beside confinement; send one of the two")
        if self.confinement is None and self.unwalled is None:
            place.at("confinement").refuse("is missing; it takes a confinement")
