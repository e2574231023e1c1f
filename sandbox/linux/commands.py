"""What the programs of `[commands] only` are on this machine, and what each needs to run.

An exec wants the right on the file, on its loader, and for a script on its interpreter, which
may be a script too: all of them are looked up here, once, by the bytes that the kernel reads.
A script that names `env` runs what env then looks for on PATH.
"""

from __future__ import annotations

import os
import re
import stat

from sandbox.linux.program import HEAD_BYTES, script_line
from sandbox.linux.values import Value
from sandbox.linux.walk import walk

CHAIN_MAX = 5
"""How many interpreters the kernel follows from one to the next."""
PT_INTERP = 3
LOADER_MAX_BYTES = 4096
HEADERS_MAX = 512


class Needed(Value):
    """A file that a listed program needs to run."""

    path: str
    """Without its links."""
    why: str
    is_interpreter: bool
    """Whether it is a script's interpreter rather than a loader."""


class Program(Value):
    """A program as it is listed."""

    named: str
    real: str
    """Without its links."""
    lack: str
    """What keeps it from being run, empty for nothing: `does not exist`, …"""
    needs: tuple[Needed, ...] = ()
    found: tuple[Program, ...] = ()
    """What `env` finds of the program that a script has it run, in PATH's order: inside, the
    first of them that is shown."""
    ways: tuple[str, ...] = ()
    """What decides which program it is (`decided_by`), of one that is listed."""


def look(named: str, search: str, left: int = CHAIN_MAX) -> Program:
    """Look at a program; search: PATH, for scripts that are run by `env`.

    left: how many interpreters the kernel would still follow.
    """
    real = os.path.realpath(named)
    lack = lack_of(real)
    if lack:
        return Program(named, real, lack)
    head = head_of(real)
    if head.startswith(b"#!"):
        return _script(named, real, head, search, left)
    loader = loader_of(real)
    needs = (Needed(os.path.realpath(loader), f"the loader of {named}", False),) if loader else ()
    return Program(named, real, "", needs)


def _script(named: str, real: str, head: bytes, search: str, left: int) -> Program:
    word, argument = script_line(head)
    path = os.fsdecode(word)
    if not path.startswith("/"):
        return Program(named, real, "")  # it would run from the program's working folder
    if left == 0:
        return Program(named, real, f"is a script for {path}, which is one interpreter too many")
    interpreter = look(path, search, left - 1)
    needs = {interpreter.real: Needed(interpreter.real, f"the interpreter of {named}", True)}
    for need in interpreter.needs:
        needs.setdefault(need.path, need)
    lack, found = interpreter.lack, interpreter.found
    if not lack and os.path.basename(path) == "env":
        path = run_by_env(os.fsdecode(argument))
        found = tuple(look(each, search, left - 1) for each in _on_path(path, search))
        lack = "" if found or not path else "does not exist"
    lack = f"is a script for {path}, which {lack}" if lack else ""
    return Program(named, real, lack, tuple(needs.values()), found)


SEARCH = "/usr/local/bin:/usr/bin:/bin"
"""Where scripts for `env` are looked up in what has no PATH: the launcher, and what a route runs
outside, for which its own folder comes first."""


def decided_by(
    path: str,
    search: str = "",
    known: dict[str, tuple[str, ...]] | None = None,
    left: int = CHAIN_MAX,
) -> tuple[str, ...]:
    """Return the places that decide what a path leads to, and what runs where that is run.

    They are the file itself, the folders that hold a link on the way to it or one that the way
    goes into and back out of, and the same of a script's interpreters or a program's loader.
    search: PATH; empty for what a route runs outside.  known: what was found before: all
    programs have one loader.
    """
    known = {} if known is None else known
    if path not in known:
        known[path] = tuple(dict.fromkeys(_decided_by(path, search, known, left)))
    return known[path]


def _decided_by(
    path: str, search: str, known: dict[str, tuple[str, ...]], left: int
) -> Iterator[str]:
    way = walk(path)
    yield way.real
    yield from (os.path.dirname(place) for place in (*way.links, *way.left))
    head = head_of(path)
    if not head.startswith(b"#!"):
        needs = [loader_of(path)]
    else:
        word, argument = script_line(head)
        needs = [os.fsdecode(word)]
        if os.path.basename(needs[0]) == "env":
            looked = search or f"{os.path.dirname(path)}:{SEARCH}"
            needs += _on_path(run_by_env(os.fsdecode(argument)), looked)[:1]
    for need in needs if left else ():
        if need.startswith("/"):
            yield from decided_by(need, search, known, left - 1)


def lack_of(real: str) -> str:
    """Return why a file can't be run as a program, empty where it can."""
    try:
        mode = os.stat(real).st_mode
    except OSError:
        return "does not exist"
    if stat.S_ISDIR(mode):
        return "is a folder"
    if not stat.S_ISREG(mode):
        return "is no file"
    return "" if os.access(real, os.X_OK) else "can't be run: it isn't marked as a program"


def run_by_env(argument: str) -> str:
    """Return the name of what `env` runs for a script, empty where that is nothing else.

    The kernel hands it all behind its name as one argument; `-S` has it take that apart (env(1)).
    """
    split = _SPLIT.match(argument)
    if split is None:
        return "" if argument.startswith("-") else argument
    words = argument[split.end() :].split()
    while words:
        word = words.pop(0)
        if word in _WITH_ARGUMENT:
            del words[:1]
        elif not word.startswith("-") and "=" not in word:
            return word.strip("\"'")
    return ""


_SPLIT = re.compile(r"-[iv0]*S|--split-string=")
_WITH_ARGUMENT = frozenset({"-u", "--unset", "-C", "--chdir"})


def _on_path(name: str, search: str) -> list[str]:
    """Return where a program is found by its name, in PATH's order."""
    if "/" in name or not name:
        return [name] if name.startswith("/") else []
    paths = [os.path.join(folder, name) for folder in search.split(":") if folder.startswith("/")]
    return [path for path in paths if not lack_of(os.path.realpath(path))]


def loader_of(path: str) -> str:
    """Return the loader that an ELF file names (PT_INTERP), empty where it has none.

    Of a file that can't be read, only run, it is the one that this interpreter has: there is
    one for each architecture on a machine.
    """
    try:
        with open(path, "rb") as file:
            return _interp(file)
    except PermissionError:
        return loader_of("/proc/self/exe")
    except (OSError, ValueError, OverflowError):
        return ""  # no such file, or one whose numbers lead nowhere


def _interp(file: BinaryIO) -> str:
    head = file.read(64)
    if head[:6] != b"\x7fELF\x02\x01":
        return ""  # 64 bits, little-endian: no filter lets any other run
    at, size, count = _number(head[32:40]), _number(head[54:56]), _number(head[56:58])
    file.seek(at)
    table = file.read(size * min(count, HEADERS_MAX))
    for start in range(0, len(table), max(size, 1)):
        header = table[start : start + size]
        if _number(header[:4]) == PT_INTERP:
            file.seek(_number(header[8:16]))
            name = file.read(min(_number(header[32:40]), LOADER_MAX_BYTES))
            return os.fsdecode(name.partition(b"\0")[0])
    return ""


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def head_of(path: str) -> bytes:
    """Return what the kernel reads of a file to see what it is; nothing where it can't be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""  # a program may be run that can't be read


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO
