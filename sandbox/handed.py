"""What is handed to a running command as JSON, on a descriptor or a socket, never in a file.

`RunWith` is what `lnk sandbox run --with-fd N` reads beside a spec; `ProxyBind` is what a
blank proxy is bound with.
"""

from __future__ import annotations

from sandbox.confinement import (
    CALLER,
    EXIT,
    FOLDERS,
    HOST,
    HOSTS,
    NAME,
    PORTS,
    URL_SECRET,
    Listed,
    Routes,
)
from sandbox.kinds import PER_MINUTE, Flag, ListOf, MapOf, Nested, PathTo, Text, Word
from sandbox.place import Place
from sandbox.route import NAME as ROUTE_NAME
from sandbox.route import SECRET, Route, Rule, check_secret, is_variable
from sandbox.strict_json import read_json
from sandbox.table import Table, key, read_table, refuse_unbuilt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

RUN_WITH_MAX_BYTES = 4 << 20
"""Of each value the kernel takes 128 KiB at most, and of all of them about 2 MiB."""

OWN_VARIABLES = frozenset(
    {
        "HOME", "PATH", "SHELL", "USER", "LOGNAME", "TERM", "COLORTERM", "LANG", "TZ", "TMPDIR",
        "PWD", "BROWSER", "GIT_SSH_COMMAND", "NODE_USE_ENV_PROXY", "SSL_CERT_FILE", "LANGUAGE",
        "NODE_EXTRA_CA_CERTS", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
    }
)  # fmt: skip
"""Those that `run` keeps or sets itself, on some machines or on each: a second value would be
another program's view.  What it sets for the routes of one spec is refused beside that spec."""

CODE_VARIABLES = frozenset(
    {
        "BASH_ENV", "ENV", "PROMPT_COMMAND", "PS4", "IFS", "SHELLOPTS", "BASHOPTS",
        "BASH_LOADABLES_PATH", "ZDOTDIR", "FPATH", "CDPATH",
        "NODE_OPTIONS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE", "NPM_CONFIG_NODE_OPTIONS",
        "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT",
        "PYTHONUSERBASE", "PYTHONWARNINGS", "PYTHONPYCACHEPREFIX", "PYTHONPLATLIBDIR",
        "PYTHONEXECUTABLE", "PERL5OPT", "PERL5LIB", "PERLLIB", "PERL5DB", "PERL5SHELL",
        "RUBYOPT", "RUBYLIB", "LUA_INIT", "LUA_PATH", "LUA_CPATH", "PHPRC", "PHP_INI_SCAN_DIR",
        "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "IBM_JAVA_OPTIONS",
        "OPENJ9_JAVA_OPTIONS", "CLASSPATH", "DOTNET_STARTUP_HOOKS", "DOTNET_ADDITIONAL_DEPS",
        "DOTNET_SHARED_STORE", "COR_PROFILER", "CORECLR_PROFILER", "COR_ENABLE_PROFILING",
        "CORECLR_ENABLE_PROFILING", "MONO_PATH", "R_PROFILE", "R_PROFILE_USER", "R_ENVIRON",
        "R_ENVIRON_USER", "ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS", "ERL_LIBS", "JULIA_LOAD_PATH",
        "GUILE_LOAD_PATH", "GUILE_LOAD_COMPILED_PATH", "TCL_LIBRARY", "TCLLIBPATH", "AWKLIBPATH",
        "EMACSLOADPATH", "MAKEFILES", "RUSTC_WRAPPER",
        "GCONV_PATH", "LOCPATH", "NLSPATH", "GETCONF_DIR", "HOSTALIASES", "NSS_WRAPPER_PASSWD",
        "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "GIO_EXTRA_MODULES", "GTK_MODULES",
        "QT_PLUGIN_PATH",
    }
)  # fmt: skip
"""Variables by which a loader, a shell or an interpreter runs or reads what they name,
before the program's first line: they would be code, handed as settings."""

CLOSED_PREFIXES = (
    "LD_", "DYLD_", "LNK_", "LC_", "BASH_FUNC_", "GLIBC_", "LUA_INIT_", "LUA_PATH_", "LUA_CPATH_",
)  # fmt: skip
"""The loader's, Link's own, those that `run` keeps, functions a shell takes over, and Lua's,
which a version of it may have for itself."""


class EnvName(Text):
    """The name of a variable that a caller may give."""

    def _read(self, value: object, place: Place) -> str:
        name = super()._read(value, place)
        upper = name.upper()
        if upper in OWN_VARIABLES or upper.startswith(("LNK_", "LC_")):
            place.refuse("is one that run keeps or sets itself; leave it out")
        if upper in CODE_VARIABLES or upper.startswith(CLOSED_PREFIXES):
            place.refuse("makes a loader, shell or interpreter run what it names; leave it out")
        if upper.endswith("_PROXY"):
            # The proxy is the one way out; a second address would only be a way to nothing.
            place.refuse("says which proxy is used, which run sets itself; leave it out")
        return name


ENV_NAME = EnvName("a variable's name", is_variable, most=256, cure="use letters, digits and _")
ENV_VALUE = Text("a value", least=0, most=131_000, show=False)


class GivenSecret(Table):
    """A secret as a route has it, but for the placeholder, which run makes for this run."""

    kind: str = key(Word("secret"), "`secret`, or left out.", default="secret")
    name: str = key(ROUTE_NAME, "Its name in the path, `/_link/secret/<name>/`.")
    rule: Rule = key(Nested(lambda: Rule, "a rule"), "Which host, which paths, where it goes.")
    secret: str = key(SECRET, "The secret, which the sandbox never sees.")

    def check(self, place: Place) -> None:
        """Refuse a secret that can't stand where it goes."""
        check_secret(self.rule, self.secret, place.at("secret"))


class RunSecret(Table):
    """A secret its proxy adds for this run, and the variables that lead to it."""

    secret: GivenSecret = key(
        Nested(lambda: GivenSecret, "a secret"), "The secret, as a route's without placeholder."
    )
    url: str = key(ENV_NAME, "The variable that holds its address.")
    placeholder: str = key(ENV_NAME, "The variable that holds its placeholder.")
    git: bool = key(
        Flag(), "Whether git's settings, for a secret in a header, are given too.", default=False
    )

    def check(self, place: Place) -> None:
        """Refuse git's settings for a secret that is in no header: git has nowhere to put it."""
        if self.git and self.secret.rule.header is None:
            place.at("git").refuse("is for a secret in a header; this one goes into the path")


class RunWith(Table):
    """What a run is given beside its spec."""

    env: dict[str, str] = key(
        MapOf(ENV_NAME, ENV_VALUE, "an object of variables", most=4096),
        "Variables the program gets; none that run sets, and none that makes another program "
        "run code.",
        default={},
    )
    secrets: tuple[RunSecret, ...] = key(
        ListOf(Nested(lambda: RunSecret, "a secret"), "secrets", most=256),
        "Secrets its proxy adds, never in a file.",
        default=(),
    )
    serve: tuple[int, ...] = key(
        PORTS, "The sandbox's own ports, opened on this machine's loopback too.", default=()
    )
    write: tuple[str, ...] = key(FOLDERS, "Folders, in full, it writes too.", default=())

    def check(self, place: Place) -> None:
        """Refuse two values for one variable, and git's settings beside the caller's own."""
        taken = set(self.env)
        for at, one in enumerate(self.secrets):
            for field in ("url", "placeholder"):
                name = getattr(one, field)
                if name in taken:
                    place.at("secrets", at, field).refuse(f"{name} is given already; take another")
                taken.add(name)
        if not any(one.git for one in self.secrets):
            return
        for name in taken:
            if name.startswith("GIT_CONFIG_"):
                # Git reads one count of settings: each would take the other's away.
                place.at("env", name).refuse("stands beside a secret's git; leave one of them out")

    def variables(self) -> Iterator[tuple[Place, str]]:
        """Yield each variable that it gives the program, and the key that says so."""
        for name in self.env:
            yield Place(("env", name)), name
        for at, one in enumerate(self.secrets):
            for field in ("url", "placeholder"):
                yield Place(("secrets", at, field)), getattr(one, field)

    @classmethod
    def read(cls, data: bytes) -> RunWith:
        """Read the bytes that came on a descriptor; raise SpecError for what is wrong."""
        handed = read_table(cls, read_json(data, RUN_WITH_MAX_BYTES), Place())
        refuse_unbuilt(handed, Place())
        return handed


APART = (
    ("tcp", "needs DNS in the sandbox's own network, which a proxy apart isn't in; leave it out"),
    ("reach", "opens ports in the sandbox's own network, which a proxy apart isn't in; name them "
              "in the ports of the net that reaches it"),
)  # fmt: skip


class HandedRoutes(Table):
    """The routes of a proxy that stands by itself, with all that is secret in them."""

    routes: tuple[Route, ...] = key(Routes(), "Ways out beside the network.")
    caller: str = key(CALLER, "The key by which its bridges know it.")
    secret: str | None = key(
        URL_SECRET, "The secret in the addresses of those that carry one.", default=None
    )

    @classmethod
    def read(cls, data: bytes) -> HandedRoutes:
        """Read the bytes that came on a descriptor; raise SpecError for what is wrong."""
        handed = read_table(cls, read_json(data, RUN_WITH_MAX_BYTES), Place())
        refuse_unbuilt(handed, Place())
        return handed


class ProxyBind(Table):
    """What a blank proxy is bound with: its arguments, and its secrets inline."""

    name: str | None = key(NAME, "The sandbox's name, in the log.", default=None)
    wire: str | None = key(
        PathTo("a folder"),
        "The folder of its log and flags, in which tools work and questions wait; missing: none.",
        default=None,
    )
    upstream: str = key(EXIT, 'How calls leave the machine: "direct", or another proxy.')
    host: tuple[str, ...] | None = key(
        Listed(HOST, "hosts", most=100_000),
        'The internet hosts it reaches; `[]` none; missing or `["*"]` any.',
        default=None,
        always=True,
    )
    tcp: tuple[str, ...] = key(HOSTS, "Endpoints reached without HTTP.", default=())
    serve: tuple[int, ...] = key(PORTS, "The sandbox's own ports, opened outside.", default=())
    reach: tuple[int, ...] = key(PORTS, "The machine's ports, opened inside.", default=())
    desktop: bool = key(Flag(), "Whether pages may be opened outside.", default=False)
    lan: tuple[str, ...] = key(HOSTS, "The local network's machines it reaches.", default=())
    no_internet: bool = key(Flag(), "Reach no host of the internet.", default=False)
    per_minute: int | None = key(PER_MINUTE, "The most calls a minute.", default=None)
    routes: tuple[Route, ...] = key(Routes(), "Ways out beside the network.", default=())
    caller: str | None = key(CALLER, "The key by which its bridges know it.", default=None)
    url_secret: str | None = key(URL_SECRET, "The secret in its routes' URLs.", default=None)

    def check(self, place: Place) -> None:
        """Refuse keys that can't hold together, or that a proxy apart has no network for."""
        if self.no_internet and self.host:
            place.at("no_internet").refuse("closes what host opens; leave one of the two out")
        if self.routes and self.caller is None:
            # A bridge serves whoever holds the key: with none it would serve anybody.
            place.at("caller").refuse("is missing; routes need their caller's key")
        for name, cure in APART:
            if getattr(self, name):
                place.at(name).refuse(cure)
