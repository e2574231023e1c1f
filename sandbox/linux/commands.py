"""What the programs of `[commands] only` are on this machine, and what each needs to run.

An exec wants the right on the file, on its loader, and for a script on its interpreter, which
may be a script too: all of them are looked up here, once, by the bytes that the kernel reads.
A script that names `env` runs what env then looks for on PATH.
"""

from __future__ import annotations

import os
import stat

from sandbox.linux.values import Value

HEAD_BYTES = 256
"""What the kernel reads of a file to see what it is (BINPRM_BUF_SIZE)."""
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


def look(named: str, search: str) -> Program:
    """Look at a listed program; search: PATH, for scripts that are run by `env`."""
    real = os.path.realpath(named)
    lack = lack_of(real)
    if lack:
        return Program(named, real, lack)
    needs: dict[str, Needed] = {}
    missing = _follow(named, real, search, needs, CHAIN_MAX)
    return Program(named, real, missing, tuple(needs.values()))


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


def _follow(named: str, real: str, search: str, needs: dict[str, Needed], left: int) -> str:
    """Add what a file needs; return what is missing of it, in words, or nothing."""
    head = _head(real)
    if not head.startswith(b"#!"):
        loader = loader_of(real)
        if loader:
            path = os.path.realpath(loader)
            needs.setdefault(path, Needed(path, f"the loader of {named}", False))
        return ""
    for interpreter in interpreters(head, search):
        path = os.path.realpath(interpreter)
        lack = lack_of(path) if left else "is one interpreter too many"
        if lack:
            return f"is a script for {interpreter}, which {lack}"
        if path not in needs:
            needs[path] = Needed(path, f"the interpreter of {named}", True)
            missing = _follow(interpreter, path, search, needs, left - 1)
            if missing:
                return f"is a script for {interpreter}, which {missing}"
    return ""


def interpreters(head: bytes, search: str) -> list[str]:
    """Return what a script's first line runs: its interpreter, and behind `env` the program."""
    words = [os.fsdecode(word) for word in head[2:].split(b"\n", 1)[0].split()]
    if not words or not words[0].startswith("/"):
        return []
    found = [words[0]]
    if os.path.basename(words[0]) == "env":
        # Of its own words it has options and variables first (`-S` splits one).
        rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if rest:
            found.append(_on_path(rest[0], search))
    return found


def _on_path(name: str, search: str) -> str:
    if "/" in name:
        return name
    for folder in search.split(":"):
        path = os.path.join(folder, name)
        if folder.startswith("/") and not lack_of(os.path.realpath(path)):
            return path
    return name  # which is then missing


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


def _head(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""  # a program may be run that can't be read


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO
