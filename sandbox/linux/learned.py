"""What a run of `lnk sandbox learn` has run, as lines to add to `[commands] only` (R64).

It writes nothing: what a spec runs stays what a person wrote.  A program that the sandbox could
replace is never offered, however it was called, and one that runs any code is marked.
"""

from __future__ import annotations

import os

from sandbox.linux.commands import SEARCH, Program, look
from sandbox.linux.names import quoted, replaceable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 1024
INTERPRETERS = frozenset({
    "ash", "awk", "bash", "bun", "busybox", "csh", "dash", "deno", "elvish", "emacs", "erl",
    "escript", "expect", "fish", "gawk", "gdb", "ghci", "gmake", "groovy", "guile", "iex", "irb",
    "java", "jimsh", "jshell", "julia", "kotlin", "ksh", "lua", "luajit", "make", "mawk", "mksh",
    "nawk", "node", "nodejs", "nu", "ocaml", "octave", "perl", "php", "pypy", "python", "racket",
    "rscript", "ruby", "runghc", "sbcl", "scala", "sh", "sqlite", "swipl", "tclsh", "ts-node",
    "vi", "vim", "wine", "wish", "zsh",
})  # fmt: skip
"""Programs that run what they are told, by their names without a version.  A name can't say it
for certain: whatever a script names behind `#!` is marked as well."""


class Learned:
    """Hears of each program that runs, and prints in the end what to add."""

    __slots__ = ("_inside", "_ran")

    def __init__(self, inside: dict[str, Any]) -> None:
        self._inside = inside
        self._ran: dict[str, str] = {}

    def __call__(self, called: bytes, real: bytes) -> None:
        """Hear of one program."""
        if len(self._ran) < MOST:
            self._ran.setdefault(os.fsdecode(real), os.fsdecode(called))

    def end(self) -> None:
        """Print the lines, on standard output, behind all that the program has said."""
        lines = lines_of(self._ran, self._inside["learns"], self._inside["places"])
        data = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            return  # nobody reads them


def lines_of(ran: dict[str, str], listed: list[str], places: dict[str, bool]) -> list[str]:
    """Return the lines to add.

    ran: by each program's path without links, the path that it was called by.  listed: what the
    spec lists.  places: where the sandbox writes, as `names.replaceable` takes it.
    """
    known = {path for one in listed for path in _files(look(one, SEARCH))}
    offered: list[str] = []
    kept_out: list[str] = []
    for real, called in sorted(ran.items()):
        folder = replaceable(os.fsencode(real), places)
        if real in known:
            continue
        if folder is not None or real.endswith(" (deleted)"):
            where = folder or "no folder any more"
            kept_out.append(f"# not offered: {quoted(real)} lies in {quoted(where)}: "
                            "the sandbox could replace it")  # fmt: skip
            continue
        through = replaceable(os.fsencode(called), places) is not None
        path = real if through or os.path.realpath(called) != real else called
        if not _is_text(path):
            kept_out.append(f"# not offered: {quoted(path)} has a name that no spec can hold")
            continue
        offered.append(f"    {quoted(path)},{_mark(look(path, SEARCH))}")
    if not offered:
        return ["# nothing to add to [commands] only", *kept_out]
    if listed:
        return ["# to be added to [commands] only", *offered, *kept_out]
    return ["[commands]", "only = [", *offered, "]", *kept_out]


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _files(program: Program) -> list[str]:
    found = [path for each in program.found[:1] for path in _files(each)]
    return [program.real, *(need.path for need in program.needs), *found]


def _mark(program: Program) -> str:
    """Return what a person should know of a program before listing it."""
    brought = [need.path for need in program.needs if need.is_interpreter]
    brought += [each.real for each in program.found[:1]]
    if brought:
        return f"  # a script: it brings {' and '.join(map(quoted, brought))}, which runs any code"
    if is_interpreter(program.real) or is_interpreter(program.named):
        return "  # an interpreter: it runs any code"
    if os.path.basename(program.real).startswith(("ld-linux", "ld-musl", "ld.so", "ld-2")):
        return "  # a loader: it runs any file"
    return ""


def is_interpreter(path: str) -> bool:
    """Tell by a program's name whether it runs code that it is given."""
    name = os.path.basename(path).lower()
    plain = name.rstrip("0123456789.-") or name
    return plain in INTERPRETERS or name in INTERPRETERS or name.startswith("qemu-")
