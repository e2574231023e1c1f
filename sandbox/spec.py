"""A sandbox's spec: the TOML file a person writes, and what it opens (the typed source of R20).

Every key is optional.  A missing key is the least that still does the job, and that
holds of `[network] mode` too: a spec that names hosts gets the proxy that reaches them,
one that names nothing of the network has none.  Paths are read from the spec's folder,
`~` from the user's home, and kept absolute: what a spec opens doesn't depend on where a
later command stands.
"""

from __future__ import annotations

import os

from sandbox.confinement import (
    DOT_FILES_EFFECT,
    EXIT,
    FOLDERS,
    HOST,
    HOSTS,
    PATHS,
    PORTS,
    WRITE_EFFECT,
    Listed,
)
from sandbox.errors import SpecError, quoted
from sandbox.kinds import (
    PATH_MAX_BYTES,
    PER_MINUTE,
    PORT,
    Flag,
    ListOf,
    MapOf,
    Nested,
    PathTo,
    Text,
    Word,
)
from sandbox.place import Place, shown
from sandbox.route import NAME as ROUTE_NAME
from sandbox.route import Rule, is_variable
from sandbox.table import Table, beside, dump_table, key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar

    Judge = Callable[["Spec", Place], None]

SPEC_MAX_BYTES = 1 << 20
"""A spec is written by a person; ten thousand hosts are a third of this."""
NAME_IT = "name the file that the spec is in"


def _is_source(text: str) -> bool:
    where, _, name = text.partition(":")
    return name != "" and (where == "file" or (where == "env" and is_variable(name)))


class KeySource(Text):
    """Where a key is; a file's path is read as every path of a spec is."""

    def _read(self, value: object, place: Place) -> str:
        source = super()._read(value, place)
        where, _, name = source.partition(":")
        if where == "env":
            return source
        path: str = KEY_FILE.read(name, place)
        return f"file:{path}"


KEY_FILE = PathTo("a key's file")
KEY_SOURCE = KeySource(
    "where a key is",
    _is_source,
    most=4096,
    cure='write "env:VARIABLE" or "file:PATH"',
    show=False,  # the commonest slip is to paste the key itself
)


class Program(PathTo):
    """A program: a path, or a bare name that is looked for on PATH when it is used."""

    def _read(self, value: object, place: Place) -> str:
        if isinstance(value, str) and value and "/" not in value and value[0] not in "~.\0":
            name: str = PROGRAM_NAME.read(value, place)
            return name
        return super()._read(value, place)


class LocalPorts(ListOf):
    """Ports of this machine, each named."""

    def _read(self, value: object, place: Place) -> tuple[int, ...]:
        if value == "*" or (isinstance(value, list) and "*" in value):
            # Other sandboxes' proxies listen there too, each with another one's keys and exit.
            place.refuse('"*" would open other sandboxes\' proxies too; name each port')
        return super()._read(value, place)


PROGRAM_NAME = Text("a program's name", most=255)
LOCAL_PORTS = LocalPorts(PORT, "ports", most=1024)


class Files(Table):
    """What of the machine's files it sees; nothing of home unless named."""

    write: tuple[str, ...] = key(FOLDERS, WRITE_EFFECT, default=())
    write_dot_files: tuple[str, ...] = key(
        FOLDERS,
        DOT_FILES_EFFECT,
        default=(),
    )
    read: tuple[str, ...] = key(PATHS, "The files and folders it reads.", default=())
    read_home: bool = key(Flag(), "Whether it reads the whole home folder.", default=False)
    hide: tuple[str, ...] = key(
        FOLDERS, "Folders that stay closed, but for what write and read name in them.", default=()
    )


class Commands(Table):
    """Which programs may run."""

    only: tuple[str, ...] | None = key(
        ListOf(Program("a program"), "programs", least=1),
        "The programs that may run; missing: any.",
        default=None,
    )


class Network(Table):
    """How it reaches anything at all."""

    mode: str | None = key(
        Word("none", "proxy", "host"),
        '"none"; "proxy": a filtering proxy is its one way out; "host": this machine\'s network '
        "as it is. Missing: the proxy where a key needs it, else none.",
        default=None,
    )
    per_minute: int | None = key(
        PER_MINUTE, "The most calls a minute; missing: no limit.", default=None
    )
    upstream: str = key(
        EXIT,
        'How calls leave this machine: "direct", or another proxy (http://…, socks5://…).',
        default="direct",
    )


class Internet(Table):
    """The internet, through the proxy."""

    hosts: tuple[str, ...] | None = key(
        Listed(HOST, "hosts", most=100_000),
        "The hosts it reaches, at any port: names, `*.name` (those below it) and addresses; "
        '`["*"]` any, missing none.',
        default=(),
    )
    tcp: tuple[str, ...] = key(
        HOSTS, "Endpoints (`host:port`) reached without HTTP, by DNS of its own.", default=()
    )


class Lan(Table):
    """The local network, through the proxy."""

    hosts: tuple[str, ...] = key(
        HOSTS, "The machines (`host:port`) it reaches; never this one.", default=()
    )


class Localhost(Table):
    """Ports of this machine's loopback."""

    ports: tuple[int, ...] = key(
        LOCAL_PORTS, "This machine's ports, at the same `localhost:<port>`.", default=()
    )
    serve: tuple[int, ...] = key(
        PORTS, "The sandbox's own ports, opened on this machine's loopback.", default=()
    )


class Provider(Table):
    """A hosted model's provider."""

    source: str = key(KEY_SOURCE, "Where its key is: `env:VARIABLE` or `file:PATH`.", name="key")


def _provider(name: str) -> Any:
    return key(Nested(lambda: Provider, "a table with its key"), f"{name}'s models.", default=None)


class Models(Table):
    """Models on the wire; their keys stay outside."""

    local: tuple[int, ...] = key(
        PORTS, "Local runtimes' ports, their inference paths alone.", default=()
    )
    anthropic: Provider | None = _provider("Anthropic")
    openai: Provider | None = _provider("OpenAI")
    google: Provider | None = _provider("Google")
    mistral: Provider | None = _provider("Mistral")
    openrouter: Provider | None = _provider("OpenRouter")
    xai: Provider | None = _provider("xAI")
    deepseek: Provider | None = _provider("DeepSeek")
    groq: Provider | None = _provider("Groq")
    server_tools: bool = key(
        Flag(), "Whether a provider may run its own tools (search, fetch, code).", default=False
    )


class SpecSecret(Rule):
    """A secret its proxy adds: one host, its paths, and where the secret goes."""

    source: str = key(KEY_SOURCE, "Where the secret is: `env:VARIABLE` or `file:PATH`.", name="key")


class Tools(Table):
    """Tools that run outside."""

    use: tuple[str, ...] = key(
        ListOf(ROUTE_NAME, "tools' names", most=256), "The tools it reaches, by name.", default=()
    )


class Desktop(Table):
    """The person's desktop."""

    open: bool = key(
        Flag(), "Whether it may ask to open a page in your browser; each asks.", default=False
    )


class Macos(Table):
    """What only macOS has."""

    developer_tools: bool = key(Flag(), "Whether it reads Apple's developer tools.", default=False)
    RETIRED: ClassVar[dict[str, str | None]] = {"keychain": None}


def _section(of: Any) -> Any:
    return key(Nested(lambda: of, "a table"), of.__doc__, default=of())


class Spec(Table):
    """What a sandbox opens.  `file` is where it was read from, or None."""

    files: Files = _section(Files)
    commands: Commands = _section(Commands)
    network: Network = _section(Network)
    internet: Internet = _section(Internet)
    lan: Lan = _section(Lan)
    localhost: Localhost = _section(Localhost)
    models: Models = _section(Models)
    secrets: dict[str, SpecSecret] = key(
        MapOf(ROUTE_NAME, Nested(lambda: SpecSecret, "a secret's rule"), "a table of secrets"),
        "Secrets its proxy adds, each by its name.",
        default={},
    )
    tools: Tools = _section(Tools)
    desktop: Desktop = _section(Desktop)
    macos: Macos = _section(Macos)
    file: str | None = beside(default=None)
    RETIRED: ClassVar[dict[str, str | None]] = {"keychain": None}
    """No sandbox reaches the keychain any more: a stored key is read as nothing."""

    def check(self, place: Place) -> None:
        """Refuse keys that can't hold together: each would be a wall or a door not there."""
        for at, folder in enumerate(self.files.write_dot_files):
            if folder not in self.files.write:
                place.at("files", "write_dot_files", at).refuse(
                    f"{shown(folder)} isn't one of write; name it there too"
                )
        self._check_key_files(place)
        for at, port in enumerate(self.models.local):
            if port in (*self.localhost.ports, *self.localhost.serve):
                # Raw, all of the runtime's interface would be open beside the filter.
                place.at("models", "local", at).refuse(
                    f"{port} is also in [localhost] ports or serve; take it out there"
                )
        for at, port in enumerate(self.localhost.serve):
            if port in self.localhost.ports:
                # Inside it would lead out, and outside in: one call would never end.
                place.at("localhost", "serve", at).refuse(
                    f"{port} is also in [localhost] ports; inside, one port can't be both"
                )
        needs = self._needs_wire()
        if needs and self.network.mode == "none":
            place.at(*needs).refuse(
                'needs the proxy, and [network] mode is "none"; write mode = "proxy"'
            )
        if self.network.mode == "host":
            needs = needs or (("localhost", "ports") if self.localhost.ports else ())
            if needs:
                # A list that nothing holds the program to would look like a wall.
                place.at(*needs).refuse(
                    'limits nothing where [network] mode is "host"; write mode = "proxy"'
                )

    def _check_key_files(self, place: Place) -> None:
        """Refuse a key's file that the program itself could read."""
        from sandbox.spec_routes import sources_of

        shown_ = [*self.files.write, *self.files.read]
        if self.files.read_home and place.bases is not None:
            shown_.append(place.bases.home)
        for where, source in sources_of(self):
            path = source.removeprefix("file:")
            for folder in shown_:
                if path != source and (path == folder or path.startswith(f"{folder}/")):
                    place.at(*where.steps).refuse(
                        f"names a file in {shown(folder)}, which the sandbox reads; "
                        "keep it elsewhere"
                    )

    def _needs_wire(self) -> tuple[str, ...]:
        """Return the first key that only a proxy can do."""
        told: tuple[tuple[tuple[str, ...], object], ...] = (
            (("internet", "hosts"), self.internet.hosts != ()),
            (("internet", "tcp"), self.internet.tcp),
            (("lan", "hosts"), self.lan.hosts),
            (("localhost", "serve"), self.localhost.serve),
            (("network", "per_minute"), self.network.per_minute),
            (("network", "upstream"), self.network.upstream != "direct"),
            (("models",), self.models != Models()),
            (("secrets",), self.secrets),
            (("tools", "use"), self.tools.use),
            (("desktop", "open"), self.desktop.open),
        )
        return next((steps for steps, given in told if given), ())

    @property
    def mode(self) -> str:
        """The network's mode: as written, else the least that does the job."""
        return self.network.mode or ("proxy" if self._needs_wire() else "none")

    @classmethod
    def read(cls, file: str, *, home: str | None = None, judge: Judge | None = None) -> Spec:
        """Read a spec's file; raise SpecError with the key and its line.

        home: the user's, absolute; None is that of the process.  judge: what else the
        spec must hold to; it raises SpecError, and the line is added.
        """
        from sandbox.regular import NotRegular, opened

        try:
            path = os.path.abspath(file)
            with open(opened(path, piped=True), "rb") as source:
                data = source.read(SPEC_MAX_BYTES + 1)
        except (OSError, NotRegular) as error:
            said = f"is {error}" if isinstance(error, NotRegular) else error.strerror
            named = file if len(file) <= PATH_MAX_BYTES else quoted(file)
            raise SpecError("", f"{said}; {NAME_IT}", file=named) from None
        folder = os.path.realpath(os.path.dirname(path))
        return cls.parse(data, folder=folder, home=home, file=file, judge=judge)

    @classmethod
    def parse(
        cls,
        data: bytes,
        *,
        folder: str,
        home: str | None = None,
        file: str | None = None,
        judge: Judge | None = None,
    ) -> Spec:
        """Read a spec's bytes; its relative paths are read from `folder`, absolute."""
        from sandbox.spec_file import parse  # only a spec's reader needs TOML

        return parse(data, folder=folder, home=home, file=file, judge=judge)

    def as_json(self) -> dict[str, object]:
        """Return it as JSON has it, its paths absolute."""
        return dump_table(self)
