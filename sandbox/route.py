"""Routes: ways out beside the network, mounted by a proxy under `/_link/` (the typed source).

A route is an object with a `kind`, which says what its other keys are.  The proxy only
mounts and admits; a bridge outside the sandbox serves what holds a secret or starts a
program.  `check_routes` refuses routes that can't be mounted together.

Imports the standard library alone, for the plugins that make routes.
"""

from __future__ import annotations

from sandbox.kinds import (
    DIGITS,
    GRAPHIC,
    LETTERS,
    LOWER,
    PORT,
    Argv,
    Flag,
    ListOf,
    MapOf,
    Nested,
    PathTo,
    Text,
    Word,
    made_of,
)
from sandbox.place import Place, an_object, shown
from sandbox.table import Table, dump_table, key, read_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, ClassVar

PROVIDERS = ("anthropic", "openai", "google", "mistral", "openrouter", "xai", "deepseek", "groq")
"""The hosted models' providers whose hosts the proxy knows: only they get a key."""

NAME = Text(
    "a route's name",
    made_of(LOWER + DIGITS + "_-", first=LOWER + DIGITS),
    most=64,
    cure="use small letters, digits, and _ - after the first",
)
SECRET = Text("a secret", made_of(GRAPHIC + " "), most=8192, show=False)
PLACEHOLDER = Text("a placeholder", made_of(GRAPHIC), least=8, show=False)
PATH_SHAPE = Text("a path's shape", made_of(GRAPHIC, first="/"), cure="write it from /")
is_variable = made_of(LETTERS + DIGITS + "_", first=LETTERS + "_")
VARIABLE = Text("a variable's name", is_variable, most=256, cure="use letters, digits and _")
ONE_HOST = Text("a host", made_of(LETTERS + DIGITS + ".-"), most=253)
HEADER_NAME = Text("a header's name", made_of(LETTERS + DIGITS + "!#$%&'*+.^_`|~-"))
"""RFC 9110 §5.6.2: a token."""
HEADER_VALUE = Text(
    "a header's value",
    lambda text: "{secret}" in text and made_of(GRAPHIC + " ")(text),
    cure="write {secret} where it goes",
    show=False,  # else a token that was pasted in its place
)

OWN_VERBS = frozenset({"model", "secret", "s", "local", "mcp", "open"})
"""The first steps of Link's own paths under `/_link/`: no bridge is mounted over one."""


FRAMING_HEADERS = frozenset(
    {
        "host", "connection", "content-length", "transfer-encoding", "expect", "keep-alive",
        "proxy-connection", "proxy-authorization", "te", "trailer", "upgrade", "http2-settings",
        "accept-encoding", "content-encoding", "range", "if-range",
    }
)  # fmt: skip
"""Headers that say whom a call is for, where it ends, how it is read, or how its answer is."""

SHAPE_WORDS = ("{secret}", "{name}", "{path}")
PLAIN = LETTERS + DIGITS + "._~-:@!$&'()+*,;="
"""What may stand in a path as it is (RFC 3986 §3.3): nothing encoded, nothing that ends it."""
is_plain = made_of(PLAIN)


class Header(Table):
    """Where a secret goes when it goes in a header."""

    name: str = key(HEADER_NAME, "Its name.")
    value: str = key(
        HEADER_VALUE,
        "Its value, `{secret}` standing for the secret.",
    )

    def check(self, place: Place) -> None:
        """Refuse a header that is another's, and a value with more than the secret to fill in."""
        if self.name.lower() in FRAMING_HEADERS or self.name.lower().startswith(("link-", "link_")):
            # In one of these the secret would be another call's end, or name another server.
            place.at("name").refuse(f"{self.name} is one that a secret can't go in; take another")
        rest = self.value.replace("{secret}", "", 1)
        if "{" in rest or "}" in rest or self.value != self.value.strip():
            place.at("value").refuse("has more in it than one {secret}; write that once")


class Rule(Table):
    """A secret's rule: data, from the plugin that owns the service."""

    host: str = key(ONE_HOST, "The one host it is sent to.")
    paths: tuple[str, ...] = key(
        ListOf(PATH_SHAPE, "shapes of paths", least=1, most=256),
        "The paths it may take: `{secret}`, `{name}` (letters and digits), `{path}` (relative).",
    )
    header: Header | None = key(
        Nested(lambda: Header, "a header"), "The header it goes in; missing: in the path.",
        default=None,
    )  # fmt: skip
    refused: tuple[str, ...] = key(
        ListOf(PATH_SHAPE, "shapes of paths", most=256), "Paths refused though a shape has them.",
        default=(),
    )  # fmt: skip

    def check(self, place: Place) -> None:
        """Refuse a rule of no one host, and one that leaves the secret no place, or two."""
        labels = self.host.lower().split(".")
        if (
            len(labels) < 2
            or not all(label.strip("-") == label != "" for label in labels)
            or labels[-1] == "localhost"
            or not labels[-1][0].isalpha()  # else it is an address, by some spelling
            or any(len(label) > 63 for label in labels)
        ):
            place.at("host").refuse("isn't one host on the internet; write its name in full, alone")
        for field in ("paths", "refused"):
            for at, shape in enumerate(getattr(self, field)):
                check_shape(shape, place.at(field, at))
        for at, shape in enumerate(self.paths):
            if "{secret}" not in shape and self.header is None:
                place.at("paths", at).refuse(
                    "has no {secret}, and no header has; say where it goes"
                )
            if "{secret}" in shape and self.header is not None:
                place.at("paths", at).refuse("has {secret}, and the header has it too; keep one")


def check_shape(shape: str, place: Place) -> None:
    """Refuse a path's shape that two readers could take for two."""
    if shape == "/":
        return
    pieces = shape.split("/")[1:]
    for at, piece in enumerate(pieces):
        rest = piece
        for word in SHAPE_WORDS:
            rest = rest.replace(word, "\0")
        if "\0\0" in rest or not (is_plain(rest.replace("\0", "") or "x")):
            place.refuse(
                f"has the step {shown(piece)}, which is no plain letters with "
                "{secret}, {name} or {path} apart from each other; write one that is"
            )
        if piece == "" or (piece and not piece.strip(".")):
            place.refuse(
                f"has an empty step, or one of dots alone, in {shown(shape)}; write it without, "
                "and without a / at its end"
            )
        if "{path}" in piece and (piece != "{path}" or at != len(pieces) - 1):
            place.refuse("has something beside or after {path}, which takes all there is")
    if shape.count("{secret}") > 1:
        place.refuse("has {secret} twice; the secret goes to one place")


class Model(Table):
    """A hosted model: the placeholder is exchanged for the provider's key outside."""

    kind: ClassVar[str] = "model"
    provider: str = key(Word(*PROVIDERS), "The provider, whose host is fixed.")
    secret_key: str = key(SECRET, "The provider's key, which the sandbox never sees.", name="key")
    placeholder: str = key(PLACEHOLDER, "What the program holds in its place.")
    server_tools: bool = key(
        Flag(), "Whether the provider may run its own tools (search, fetch, code).", default=False
    )

    def check(self, place: Place) -> None:
        """Refuse a key that can't stand in a field, or that the program holds already."""
        check_model_key(self.secret_key, place.at("key"))
        if self.placeholder == self.secret_key:
            place.at("placeholder").refuse("is the key itself; make one up")


def check_model_key(key: str, place: Place) -> None:
    """Refuse a model's key that is no one word: a field would end it at its first space."""
    if " " in key:
        place.refuse("holds a space, which no provider's key has")


def check_secret(rule: Any, secret: str, place: Place) -> None:
    """Refuse a secret, or a placeholder, that can't stand where its rule puts it."""
    if rule.header is None and not is_plain(secret):
        # A slash or a question mark in it would end the path that was checked.
        place.refuse("holds what can't stand in a path; take one of letters, digits and ._~-:")
    if secret != secret.strip():
        place.refuse("begins or ends with a space; take it out")


class Secret(Table):
    """A secret added to the calls of one service, by its rule."""

    kind: ClassVar[str] = "secret"
    name: str = key(NAME, "Its name in the path, `/_link/secret/<name>/`.")
    rule: Rule = key(Nested(lambda: Rule, "a rule"), "Which host, which paths, where it goes.")
    secret: str = key(SECRET, "The secret, which the sandbox never sees.")
    placeholder: str = key(PLACEHOLDER, "What the program holds in its place.")

    def check(self, place: Place) -> None:
        """Refuse a secret that can't stand where it goes, or that the program holds already."""
        check_secret(self.rule, self.secret, place.at("secret"))
        check_secret(self.rule, self.placeholder, place.at("placeholder"))
        if self.placeholder == self.secret:
            place.at("placeholder").refuse("is the secret itself; make another")


class Local(Table):
    """A local model's runtime, its inference paths alone."""

    kind: ClassVar[str] = "local"
    port: int = key(PORT, "The runtime's port on this machine.")


class Tool(Table):
    """An MCP server that runs outside; each call asks, but those allowed."""

    kind: ClassVar[str] = "tool"
    name: str = key(NAME, "Its name, and `LNK_TOOL_<NAME>`, where the program finds it.")
    argv: tuple[str, ...] = key(Argv(), "The server's command, run outside.")
    ask: str = key(Word("all", "none"), "Which calls ask the person.")
    allow: tuple[str, ...] = key(
        ListOf(Text("a call's name", made_of(GRAPHIC), most=256), "names of calls", most=1024),
        "The calls that don't ask.",
    )

    def check(self, place: Place) -> None:
        """Refuse a command that is named by no path, but Link's own `mcp-remote`.

        Link's own is never looked for: whoever starts it runs what it is itself.
        """
        if remote_words(self.argv) is None:
            _check_program(self.argv, place)


NAMES_OF_OURS = ("lnk", "lnk-sandbox")
REMOTE = "mcp-remote"


def remote_words(argv: Sequence[str]) -> list[str] | None:
    """Return what follows `mcp-remote` in a command of Link's own; None in another's."""
    program, *words = argv
    if program.rpartition("/")[2] not in NAMES_OF_OURS:
        return None
    words = words[1:] if words[:1] == ["sandbox"] else words
    return words[1:] if words[:1] == [REMOTE] else None


def _check_program(argv: Sequence[str], place: Place) -> None:
    """Refuse a command whose program is named by no absolute path.

    Looked for on PATH, or where its bridge works, it could be found in a folder that a
    sandbox writes.
    """
    if not argv[0].startswith("/"):
        place.at("argv", 0).refuse("isn't an absolute path; write it in full, from /")


class Open(Table):
    """Pages opened in the person's browser; each asks, whole."""

    kind: ClassVar[str] = "open"


class Bridge(Table):
    """A verb of another plugin's, served by its own bridge."""

    kind: ClassVar[str] = "bridge"
    name: str = key(NAME, "Its name in the path, `/_link/<name>/`.")
    argv: tuple[str, ...] | None = key(
        Argv(), "The bridge's command, started at the first call.", default=None
    )
    socket: str | None = key(
        PathTo("a socket"), "Or: the unix socket of one that runs.", default=None
    )
    env: dict[str, str] = key(
        MapOf(VARIABLE, Text("a value", least=0, most=8192, show=False), "variables", most=64),
        "Variables the program gets, `{url}` standing for the route's address.",
        default={},
    )
    needs_secret: bool = key(
        Flag(), "Whether its address carries the proxy's URL secret.", default=False
    )

    def check(self, place: Place) -> None:
        """Refuse a bridge of no program, of two, or over one of Link's own verbs."""
        if self.name in OWN_VERBS:
            # Its calls would be another verb's, with that verb's placeholder in them.
            place.at("name").refuse(f'"{self.name}" is one of Link\'s own; take another name')
        if self.argv is not None and self.socket is not None:
            place.at("socket").refuse("stands beside argv; give one of the two")
        if self.argv is None and self.socket is None:
            place.at("argv").refuse("is missing; give argv or socket")
        if self.argv is not None:
            _check_program(self.argv, place)


Route = Model | Secret | Local | Tool | Open | Bridge
ROUTES: dict[str, type[Any]] = {
    "model": Model,
    "secret": Secret,
    "local": Local,
    "tool": Tool,
    "open": Open,
    "bridge": Bridge,
}


def read_route(value: object, place: Place) -> Route:
    """Read one route; raise SpecError for the first key that is wrong."""
    pairs = an_object(value, place)
    if "kind" not in pairs:
        place.at("kind").refuse(f"is missing; it is one of {', '.join(ROUTES)}")
    kind = Word(*ROUTES).read(pairs["kind"], place.at("kind"))
    rest = {name: entry for name, entry in pairs.items() if name != "kind"}
    route: Route = read_table(ROUTES[kind], rest, place)
    return route


def dump_route(route: Route) -> dict[str, object]:
    """Return a route as JSON has it."""
    return {"kind": route.kind, **dump_table(route)}


def variable_of(name: str) -> str:
    """Return the end of the variable that holds a tool's address: `A_B` for `a-b`."""
    return name.upper().replace("-", "_")


def check_routes(
    routes: Iterable[Route], place: Place | None = None, *, places: Sequence[Place] = ()
) -> None:
    """Refuse routes that can't be mounted together: two at one path or in one variable.

    place: where their list stands.  places: where each is asked for instead, by a spec's keys.
    Raises SpecError with the later one's key.
    """
    where = place or Place(("routes",))
    taken: dict[str, str] = {}
    for at, route in enumerate(routes):
        for field, claim in _claims(route):
            if claim in taken:
                # The second would answer for the first, or the first for the second.
                step = places[at] if places else where.at(at, field) if field else where.at(at)
                step.refuse(f"{claim} is {taken[claim]}'s already; take another")
            taken[claim] = str(places[at]) if places else f"routes[{at}]"


def _claims(route: Route) -> Iterator[tuple[str, str]]:
    """Yield what a route takes for itself, with the key that says so: its path, its variables."""
    match route:
        case Model():
            from sandbox.hosted import SDKS

            yield "provider", f"/_link/model/{route.provider}/"
            for variable in (*SDKS[route.provider].keys, *SDKS[route.provider].addresses):
                yield "provider", variable
        case Secret():
            yield "name", f"/_link/secret/{route.name}/"
            variable = f"LNK_SECRET_{variable_of(route.name)}"
            yield "name", variable
            yield "name", f"{variable}_PLACEHOLDER"
        case Local():
            yield "port", f"/local/{route.port}/"
            yield "port", f"LNK_LOCAL_MODEL_{route.port}"
        case Tool():
            yield "name", f"LNK_TOOL_{variable_of(route.name)}"
        case Open():
            yield "", "/open"
            yield "", "LNK_SANDBOX_OPEN"
            yield "", "BROWSER"
        case Bridge():
            yield "name", f"/_link/{route.name}/"
            for variable in route.env:
                yield "env", variable
