"""A plan kept in a command line, to be run later, from anywhere, any number of times.

    <python> -I -S <script> <plan as compact JSON>… -- <program> <argument>…

The plan is cut into as many arguments as it needs, for the kernel takes 128 KiB of each.
It carries no descriptor and needs no file of Link's.  Its reader uses json's scanner in C
alone: `import json` brings `re` and `enum`, which cost half of a bare sandbox.  This module
is imported at every start, so it has no `__future__` and no dataclass.
"""

FROM_FD = "fd:"
"""Before the number of a descriptor that holds a plan: a run's, which is in no command line."""
PART_MAX = 120_000
"""Of a plan's text in one argument: the kernel takes 131,071 bytes (MAX_ARG_STRLEN)."""
VERSION = 2
"""Of the form below: a command kept by another version is refused, not misread."""


class Kept:
    """A plan as a launcher needs it; every path is absolute.

    bwrap: bubblewrap.  arguments: texts, and one-item lists [path] for what is opened and
    handed over.  copies: files copied in first.  checks: folders looked at first.
    filter: the seccomp filter.  wire: the proxy's settings, or None.  port: its port
    inside.  home: the program's home.  imports: folders of what ours depends on.  state:
    Link's settings.  dots: what dot files are looked for by, `sandbox.linux.dot_files.look`'s
    first three, or None where none are closed.  scoped: whether the launcher closes the
    machine's abstract sockets by Landlock; where programs are listed the stage inside does.
    sockets: folders in which path sockets are masked.  uid: whom it was made for.  inside: the
    stage inside, or None: python, script, name, log, places, terminal and learns as
    `exec_list.Inside` has them, and settings, the JSON that it is given.  run: of a
    run's plan alone, the program's `environ`, and `tell`, the spec's file that refusals are told
    with.
    """

    __slots__ = (
        "arguments",
        "bwrap",
        "checks",
        "copies",
        "dots",
        "filter",
        "home",
        "imports",
        "inside",
        "port",
        "run",
        "scoped",
        "sockets",
        "state",
        "uid",
        "wire",
    )

    def __init__(self, fields: "dict[str, object]") -> None:
        self.bwrap: str = fields["bwrap"]  # type: ignore[assignment]
        self.arguments: list[str | list[str]] = fields["args"]  # type: ignore[assignment]
        self.copies: list[str] = fields["copy"]  # type: ignore[assignment]
        self.checks: list[str] = fields["check"]  # type: ignore[assignment]
        self.filter = bytes.fromhex(fields["bpf"])  # type: ignore[arg-type]
        self.wire: dict[str, object] | None = fields["wire"]  # type: ignore[assignment]
        self.port: int = fields["port"]  # type: ignore[assignment]
        self.home: str = fields["home"]  # type: ignore[assignment]
        self.imports: list[str] = fields["path"]  # type: ignore[assignment]
        self.state: str = fields["state"]  # type: ignore[assignment]
        self.uid: int = fields["uid"]  # type: ignore[assignment]
        self.dots: tuple[list[str], dict[str, str], list[str]] | None
        self.dots = fields["dots"]  # type: ignore[assignment]
        self.inside: dict[str, Any] | None = fields["inside"]  # type: ignore[assignment]
        self.scoped: bool = fields["scoped"]  # type: ignore[assignment]
        self.sockets: list[str] = fields["sockets"]  # type: ignore[assignment]
        self.run: dict[str, object] | None = fields.get("run")  # type: ignore[assignment]


class _Scan:
    """What json's scanner in C reads its settings from."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: "dict[str, str]" = {}  # noqa: RUF012


def read_json(text: str) -> object:
    """Return the JSON value that a text begins with; raise ValueError for none."""
    from _json import make_scanner

    try:
        value, _ = make_scanner(_Scan)(text, 0)  # type: ignore[arg-type]
    except StopIteration:
        raise ValueError("no JSON") from None
    found: object = value
    return found


def unpacked(text: str) -> Kept:
    """Read what `packed` wrote; raise LaunchError where another version did."""
    try:
        fields = read_json(text)
        if isinstance(fields, dict) and fields.get("v") == VERSION:
            return Kept(fields)
    except (ValueError, KeyError, TypeError):
        pass  # it says the same: this isn't a plan of ours
    from sandbox.errors import LaunchError

    raise LaunchError(
        "plan", 0, "this command was kept by another version of Link: make it anew with wrap."
    )


def taken_from(text: str) -> str:
    """Return the plan in the descriptor that a text names, and close it."""
    import posix

    fd = int(text.removeprefix(FROM_FD))
    data = posix.read(fd, posix.fstat(fd).st_size) if posix.lseek(fd, 0, 0) == 0 else b""
    posix.close(fd)
    return data.decode()


def environ_of(run: "dict[str, object]") -> "dict[bytes, bytes]":
    """Return the program's environment as a run has it."""
    import sys

    told: dict[str, str] = run["environ"]  # type: ignore[assignment]
    coding = sys.getfilesystemencoding()
    return {
        name.encode(coding, "surrogateescape"): value.encode(coding, "surrogateescape")
        for name, value in told.items()
    }


def packed(plan: "Plan", imports: "tuple[str, ...]") -> str:
    """Return a plan in its compact form: JSON on one line, ASCII alone."""
    import json

    return json.dumps(fields_of(plan, imports), separators=(",", ":"))


def fields_of(plan: "Plan", imports: "tuple[str, ...]") -> "dict[str, object]":
    """Return what `Kept` is made of, as JSON has it; `run` makes one without the text."""
    from sandbox.linux import bubblewrap

    arguments = [
        [str(one)] if isinstance(one, bubblewrap.Held) else one
        for one in bubblewrap.arguments(plan)
    ]
    return {
        "v": VERSION,
        "bwrap": plan.bubblewrap,
        "args": arguments,
        "copy": bubblewrap.copies(plan),
        "check": list(plan.checks),
        "bpf": plan.filter.hex(),
        "wire": plan.proxy,
        "port": plan.port,
        "home": plan.home,
        "path": list(imports),
        "state": plan.state,
        "uid": plan.uid,
        "dots": plan.dots and [list(plan.dots.closed), plan.dots.written, list(plan.dots.settings)],
        "scoped": plan.scoped and not _lists(plan),
        "sockets": list(plan.sockets),
        "inside": _inside_of(plan),
    }


def _lists(plan: "Plan") -> bool:
    """Tell whether the stage inside lists programs, and so has a Landlock ruleset of its own."""
    return plan.inside is not None and plan.inside.programs is not None


def _inside_of(plan: "Plan") -> "dict[str, object] | None":
    if plan.inside is None:
        return None
    stage = plan.inside
    settings = {
        "only": None if stage.programs is None else list(stage.programs.files),
        "watch": stage.watch.hex(),
        "numbers": list(stage.numbers),
        "terminal": stage.terminal,
        "scoped": plan.scoped and _lists(plan),
        "reached": [list(one) for one in stage.reached],
    }
    return {
        "python": stage.python,
        "script": stage.script,
        "name": plan.name,
        "log": stage.log,
        "places": stage.places,
        "learns": None if stage.learns is None else list(stage.learns),
        "terminal": stage.terminal,
        "settings": settings,
    }


def command(plan: "Plan", own: "Own", argv: "list[str]") -> "list[str]":
    """Return the command that runs `argv` in a sandbox of this plan."""
    return [own.python, "-I", "-S", own.script, *parts(packed(plan, own.imports)), "--", *argv]


def parts(text: str) -> "list[str]":
    """Cut a plan's text into arguments.  None of them is `--`: the last ends with a brace."""
    return [text[at : at + PART_MAX] for at in range(0, len(text), PART_MAX)]


def taken_apart(words: "list[str]") -> "tuple[str, list[str]] | None":
    """Return the plan's text and the program with its arguments; None where one is missing."""
    try:
        end = words.index("--")
    except ValueError:
        return None
    return ("".join(words[:end]), words[end + 1 :]) if 0 < end < len(words) - 1 else None


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandbox.linux.own import Own
    from sandbox.linux.plan import Plan
