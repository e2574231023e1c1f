"""Flags, read from one table a command.

Not argparse: its import costs more than two bare sandboxes, it takes abbreviations (so
a new flag changes what an old command means), and its refusals are usage texts where
one sentence should say what is wrong and what to write instead.
"""

from __future__ import annotations

import os

from sandbox.errors import SandboxError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class UsageError(SandboxError):
    """A command line that can't be followed; the message names the flag, value and cure."""

    exit_code = 2


class Flag:
    """One flag: `--name VALUE`, or a switch where `value` is empty.

    `help_text` is what it does; `many` lets it be given more than once.
    """

    __slots__ = ("help_text", "many", "name", "value")

    def __init__(self, name: str, value: str, help_text: str, *, many: bool = False) -> None:
        self.name = name
        self.value = value
        self.help_text = help_text
        self.many = many


class Flags:
    """What was given: each flag's values in order, and the words after `--`."""

    __slots__ = ("_given", "rest")

    def __init__(self, given: dict[str, list[str]], rest: list[str] | None) -> None:
        self._given = given
        self.rest = rest

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def one(self, name: str, default: str | None = None) -> str | None:
        """Return a flag's value, or `default` where it wasn't given."""
        return self._given[name][0] if name in self._given else default

    def all(self, name: str) -> list[str]:
        """Return a flag's values as they were given, in order; none where it wasn't."""
        return self._given.get(name, [])

    def items(self, name: str) -> list[str] | None:
        """Return the comma-separated items of a flag, None where it wasn't given.

        An empty value is the empty list; an empty item among others is a mistake.
        """
        if name not in self._given:
            return None
        found: list[str] = []
        for value in self._given[name]:
            items = value.split(",") if value else []
            if "" in items:
                raise UsageError(f"{name} {quoted(value)} has an empty item: write {name} a,b.")
            found += items
        return found


def read_flags(flags: tuple[Flag, ...], words: list[str], *, takes_rest: bool = False) -> Flags:
    """Read a command's words; raises UsageError (exit 2) with one sentence."""
    known = {flag.name: flag for flag in flags}
    given: dict[str, list[str]] = {}
    left = list(reversed(words))
    while left:
        word = left.pop()
        if word == "--" and takes_rest:
            return Flags(given, left[::-1])
        name, equals, value = ("--help" if word == "-h" else word).partition("=")
        flag = known.get(name)
        if flag is None:
            cure = "--help lists them"
            if takes_rest and not word.startswith("-"):
                cure = "write the program and its arguments after --"
            raise UsageError(f"{quoted(word)} is not one of its flags{meant(name, known)}: {cure}.")
        if name in given and not flag.many:
            raise UsageError(f"{name} is given twice: give it once.")
        if flag.value and not equals:
            if not left or left[-1].startswith("--"):
                raise UsageError(f"{name} needs a value: write {name} {flag.value}.")
            value = left.pop()
        elif equals and not flag.value:
            raise UsageError(f"{name} takes no value: write {name} alone.")
        given.setdefault(name, []).append(value)
    return Flags(given, None)


def meant(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean …?)` where a known word is near, else nothing."""
    from sandbox.place import near  # only a refusal needs it

    bare = {each.lstrip("-"): each for each in known}  # two dashes make no two flags alike
    found = near(name.lstrip("-"), bare) if name.strip("-") else None
    return "" if found is None else f" (did you mean {bare[found]}?)"


def full_path(name: str, path: str, value: str = "FOLDER") -> str:
    """Return a flag's path in full; a relative one is read from the working folder.

    Raises UsageError for an empty one, and where that folder is gone.
    """
    if not path or "\0" in path:
        raise UsageError(f"{name} names no {value.lower()}: write {name} {value}.")
    try:
        return os.path.abspath(path)
    except OSError:
        raise UsageError(
            f"{name} {path} is read from the working folder, which is gone: "
            "go to one that is there (cd), or write the path in full."
        ) from None


def describe(flags: tuple[Flag, ...]) -> str:
    """Return the flags as the lines of a help text."""
    spelled = [f"{flag.name} {flag.value}".strip() for flag in flags]
    width = max(len(text) for text in spelled) + 2
    return "\n".join(
        f"  {text:<{width}}{flag.help_text}" for text, flag in zip(spelled, flags, strict=True)
    )
