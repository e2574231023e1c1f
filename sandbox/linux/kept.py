"""A plan kept in a command line, to be run later, from anywhere, any number of times.

    <python> -I -S <script> <plan>… -- <program> <argument>…

The plan is cut into as many arguments as it needs, for the kernel takes 128 KiB of each.
It carries no descriptor and needs no file of Link's.

It is one line of printable ASCII: `plan 3`, a word and its value for each thing that it holds, and
`end` with how many characters stand before, with a semicolon between.

    plan 3;bwrap /usr/bin/bwrap;arg --unshare-user;…;copy /etc/passwd;…;wire {"dir":…};end 9182

What was cut is refused, an argument that was lost from the middle too: it would be a sandbox with
fewer walls.

A value is a text, in which a semicolon, a backslash and what isn't printable ASCII are written
as Python's string literals have them; `wire`, `dots` and `inside` are JSON in such a text.  It is
no JSON as a whole, for its parser is a library of its own to load, and that costs each start a
fourteenth of a bare sandbox.  This module is imported at every start, so it has no `__future__`
and no dataclass; what writes a plan is `packing`.
"""

HEAD, END = "plan 3", "end"
"""A command kept by another version is refused, not misread."""
LISTS = ("check", "copy", "path", "sockets")
VALUES = ("dots", "inside", "run", "wire")
"""JSON; `run` stands in a run's plan alone."""
FROM_FD = "fd:"
"""Before the number of a descriptor that holds a plan: a run's, which is in no command line."""


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
        self.scoped = bool(fields["scoped"])
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


def _read_table(text: str) -> "dict[str, object]":
    return _is(dict, read_json(text))


def _read_dots(text: str) -> "list[object]":
    closed, written, settings = _is(list, read_json(text))
    return [_is(list, closed), _is(dict, written), _is(list, settings)]


def _is(kind: "type[T]", value: object) -> "T":
    if isinstance(value, kind):
        return value
    raise ValueError("a value of another shape")


READERS: "dict[str, Callable[[str], object]]" = {
    **dict.fromkeys(("bpf", "bwrap", "home", "state"), str),
    **dict.fromkeys(("port", "scoped", "uid"), int),
    **dict.fromkeys(VALUES, _read_table),
    "dots": _read_dots,
}
"""By a field's name, what its value is read by."""


def read(text: str) -> "dict[str, object]":
    """Return the fields of a plan, as `Kept` takes them; raise ValueError for no whole plan."""
    whole, _, length = text.rpartition(f";{END} ")
    head, *lines = whole.split(";")
    if head != HEAD or length != str(len(whole)) or "\0" in text:
        raise ValueError("no whole plan")
    arguments: list[str | list[str]] = []
    lists: dict[str, list[str]] = {name: [] for name in LISTS}
    fields: dict[str, object] = {}
    for line in lines:
        name, _, value = line.partition(" ")
        if "\\" in value:
            value = value.encode("ascii").decode("unicode_escape")
            # bubblewrap's arguments are parted by it, and no path can hold one.
            if "\0" in value:
                raise ValueError("a text with a NUL")
        if name == "arg":
            arguments.append(value)
        elif name == "open":
            arguments.append([value])
        elif name in lists:
            lists[name].append(value)
        elif name in fields or name not in READERS:
            raise ValueError("a plan with a field twice, or one that is none")
        else:
            fields[name] = READERS[name](value)
    return {**dict.fromkeys(VALUES), **fields, **lists, "args": arguments}


def unpacked(text: str) -> Kept:
    """Read what `packing.packed` wrote; raise LaunchError where another version did."""
    try:
        return Kept(read(text))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _of_another_version() from None


def _of_another_version() -> "LaunchError":
    from sandbox.errors import LaunchError

    return LaunchError(
        "plan", 0, "this command was kept by another version of Link, or isn't whole: make it anew "
        "with wrap.",
    )  # fmt: skip


def taken_from(text: str) -> str:
    """Return the plan in the descriptor that a text names, and close it.

    Raises LaunchError where there is none.
    """
    import posix

    try:
        fd = int(text.removeprefix(FROM_FD))
        data = posix.read(fd, posix.fstat(fd).st_size) if posix.lseek(fd, 0, 0) == 0 else b""
        posix.close(fd)
        return data.decode()
    except (OSError, ValueError, OverflowError):
        raise _of_another_version() from None


def environ_of(run: "dict[str, object]") -> "dict[bytes, bytes]":
    """Return the program's environment as a run has it."""
    import sys

    told: dict[str, str] = run["environ"]  # type: ignore[assignment]
    coding = sys.getfilesystemencoding()
    return {
        name.encode(coding, "surrogateescape"): value.encode(coding, "surrogateescape")
        for name, value in told.items()
    }


def taken_apart(words: "list[str]") -> "tuple[str, list[str]] | None":
    """Return the plan's text and the program with its arguments; None where one is missing."""
    try:
        end = words.index("--")
    except ValueError:
        return None
    return ("".join(words[:end]), words[end + 1 :]) if 0 < end < len(words) - 1 else None


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from sandbox.errors import LaunchError

    T = TypeVar("T")
