"""The mounts that close dot files, each in its place among a plan's own.

A mount keeps its own place from being renamed, not the folders above it, so those are
mounted on themselves: they can be written, and stay where they are.  Imported at every
start, so it imports no `os`.
"""

from sandbox.linux.walk import FOLDER, inside, kind_of


class Guard:
    """One path that the program must not change, or put anything else in the place of.

    kind: of what is there, 0 for nothing.  by: what a missing one is held by (FOLDER or
    FILE), 0 where it isn't held.  why: what reads it.  written: it only stays where it is, a
    folder in which the program may write.
    """

    __slots__ = ("at", "by", "kind", "why", "written")

    def __init__(self, at: str, kind: int, by: int, why: str, *, written: bool = False) -> None:
        self.at = at
        self.kind = kind
        self.by = by
        self.why = why
        self.written = written


class Layout:
    """What a sandbox's bubblewrap arguments mount where.

    mounts: each path with whether it is a real file or folder that can be written, and
    where in the arguments its mount ends.
    """

    __slots__ = ("by_descriptor", "mounts")

    def __init__(self, arguments: "list[str | list[str]]") -> None:
        self.mounts: dict[str, tuple[bool, int]] = {}
        self.by_descriptor = False
        for at, flag in enumerate(arguments):
            match flag:
                case "--bind" | "--bind-fd":
                    self.mounts[str(arguments[at + 2])] = (True, at + 3)
                    self.by_descriptor = self.by_descriptor or flag == "--bind-fd"
                case "--ro-bind" | "--ro-bind-fd" | "--symlink":
                    self.mounts[str(arguments[at + 2])] = (False, at + 3)
                case "--tmpfs" | "--proc" | "--dev":
                    self.mounts[str(arguments[at + 1])] = (False, at + 2)

    def holder(self, path: str) -> "str | None":
        """Return the mount that a path is or lies in where that can be written, else None."""
        at = self.nearest(path)
        return at if at is not None and self.mounts[at][0] else None

    def nearest(self, path: str) -> "str | None":
        """Return the mount that a path is or lies in, None where none holds it."""
        while path not in self.mounts:
            if path in ("", "/"):
                return None
            path = path.rpartition("/")[0] or "/"
        return path

    def above(self, path: str) -> "list[str]":
        """Return the folders between a path and the writable mount that holds it, deepest first."""
        holder = self.holder(path)
        found: list[str] = []
        while holder is not None and len(path := path.rpartition("/")[0]) > len(holder):
            found.append(path)
        return found


class Needed:
    """What a start has to make and mount.

    guards: what is mounted read only.  pins: folders mounted on themselves.  missing: what
    is made first, each with what it is made as, the folders above first.
    """

    __slots__ = ("guards", "missing", "pins")

    def __init__(self, guards: "list[Guard]", layout: Layout) -> None:
        self.guards = [guard for guard in guards if not guard.written]
        pins = {guard.at for guard in guards if guard.written}
        self.missing: dict[str, int] = {}
        for guard in guards:
            pins.update(layout.above(guard.at))
            if not guard.kind:
                self.missing[guard.at] = guard.by
        self.pins = sorted(pins)
        self.missing |= {pin: FOLDER for pin in self.pins if not kind_of(pin)}
        self.missing = dict(sorted(self.missing.items()))

    def standing(self) -> "list[str]":
        """Return what is there already, of all that is mounted."""
        paths = [*self.pins, *(guard.at for guard in self.guards)]
        return [path for path in paths if path not in self.missing]

    def without(self, unmade: "set[str]") -> None:
        """Leave out what could not be made, since the program can't make it either."""
        self.guards = [g for g in self.guards if not any(inside(g.at, path) for path in unmade)]
        self.pins = [pin for pin in self.pins if not any(inside(pin, path) for path in unmade)]


def merged(
    arguments: "list[str | list[str]]", layout: Layout, needed: Needed
) -> "list[str | list[str]]":
    """Return the arguments with the mounts of what is needed, each behind all that hold it."""
    flags = dict.fromkeys(needed.pins, "--bind")
    flags |= {guard.at: "--ro-bind" for guard in needed.guards}
    by_descriptor = layout.by_descriptor
    return inserted(
        arguments,
        layout,
        {
            path: [f"{flag}-fd", [path], path] if by_descriptor else [flag, path, path]
            for path, flag in flags.items()
        },
    )


def inserted(
    arguments: "list[str | list[str]]", layout: Layout, mounts: "dict[str, list[str | list[str]]]"
) -> "list[str | list[str]]":
    """Return the arguments with more mounts, each behind all that hold its path."""
    added: dict[int, list[str | list[str]]] = {}
    for path in sorted(mounts, key=lambda path: (path.count("/"), path)):
        behind = max(end for at, (_, end) in layout.mounts.items() if inside(path, at))
        added.setdefault(behind, []).extend(mounts[path])
    found: list[str | list[str]] = []
    begin = 0
    for behind in sorted(added):
        found += arguments[begin:behind]
        found += added[behind]
        begin = behind
    return found + arguments[begin:]
