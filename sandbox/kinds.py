"""The kinds of value a key can take: each reads strictly, and says in words what it takes.

A refusal names what was found and the cure.  Shapes only: nothing here looks at a file,
a name or an address of this machine.
"""

from __future__ import annotations

import os

from sandbox.place import Bases, Pairs, Place, a_text, an_object, as_found, guess, shown
from sandbox.table import Kind, dump_table, keys_of, read_table, refuse_unbuilt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Judge = Callable[[str], bool]

LOWER = "abcdefghijklmnopqrstuvwxyz"
LETTERS = LOWER + LOWER.upper()
DIGITS = "0123456789"
GRAPHIC = "".join(map(chr, range(0x21, 0x7F)))
"""ASCII's visible characters: no space, nothing that acts on a terminal or ends a line."""

PATH_MAX_BYTES = 4095
"""Linux's PATH_MAX without its NUL: a longer path can't be given to the kernel."""
NAME_MAX_BYTES = 255
"""NAME_MAX of every file system in use: a longer component can't exist."""
ARGUMENT_MAX_BYTES = 131_071
"""Linux's MAX_ARG_STRLEN without its NUL: no program can be given a longer argument."""


def made_of(rest: str, first: str = "") -> Judge:
    """Return a judge of texts of some characters, the first one perhaps of fewer."""
    allowed, begin = frozenset(rest), frozenset(first or rest)
    return lambda text: text[:1] in begin and allowed.issuperset(text)


class Text(Kind):
    """A text that `judge` takes, of `least` to `most` characters."""

    def __init__(
        self,
        words: str = "a text",
        judge: Judge | None = None,
        *,
        least: int = 1,
        most: int = 1024,
        cure: str = "",
        show: bool = True,
    ) -> None:
        self.words = words
        self.judge = judge
        self.least = least
        self.most = most
        self.cure = cure
        self.show = show

    def _read(self, value: object, place: Place) -> str:
        text = a_text(value, place, self.words, show=self.show)
        if not text and self.least:
            place.refuse(f"is empty; it takes {self.words}{self._or()}")
        if len(text) < self.least:
            place.refuse(f"is {len(text)} characters long; {self.least} is the least")
        if len(text) > self.most:
            place.refuse(f"is {len(text)} characters long; {self.most} is the most")
        if text and self.judge is not None and not self.judge(text):
            place.refuse(f"{as_found(text, self.show)} isn't {self.words}{self._or()}")
        return text

    def _or(self) -> str:
        return f"; {self.cure}" if self.cure else ""


class Flag(Kind):
    """True or false."""

    words = "true or false"

    def _read(self, value: object, place: Place) -> bool:
        if not isinstance(value, bool):
            place.refuse(f"{shown(value)} isn't true or false; write one of them, unquoted")
        return value


class Number(Kind):
    """A whole number in a range; true and false are none."""

    def __init__(self, words: str, low: int, high: int) -> None:
        self.words = words
        self.low = low
        self.high = high

    def _read(self, value: object, place: Place) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            place.refuse(
                f"{shown(value)} isn't {self.words}; write a whole number "
                f"from {self.low} to {self.high}"
            )
        if not self.low <= value <= self.high:
            place.refuse(f"{shown(value)} isn't {self.words}; it is {self.low} to {self.high}")
        return value


class Word(Kind):
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.choices = words
        self.words = " or ".join(f'"{word}"' for word in words)

    def _read(self, value: object, place: Place) -> str:
        if not isinstance(value, str) or value not in self.choices:
            place.refuse(f"{shown(value)} isn't {self.words}{guess(value, self.choices)}")
        return value


class PathTo(Kind):
    """A path: absolute in a request; in a spec, read from its folder or the user's home.

    Only its shape is judged here.  Whether it exists, and what it is, is looked at when
    the sandbox starts: a kept command may run long after, when both may have changed.
    """

    def __init__(self, words: str = "a folder") -> None:
        self.words = words

    def _read(self, value: object, place: Place) -> str:
        path = a_text(value, place, "a path")
        if not path:
            place.refuse(f"is empty; it takes {self.words}'s path")
        if place.bases is not None:
            path = from_bases(path, place, place.bases)
        elif not path.startswith("/"):
            place.refuse(f"{shown(path)} isn't an absolute path; write it in full, from /")
        parts = [part for part in path.split("/") if part]
        if any(part in (".", "..") for part in parts):
            # `..` after a link isn't the folder the text says: what is checked would differ.
            place.refuse(f"{shown(path)} goes through . or ..; write the path without them")
        if any(len(os.fsencode(part)) > NAME_MAX_BYTES for part in parts):
            place.refuse(f"has a name longer than {NAME_MAX_BYTES} bytes; no file can have it")
        plain = "/" + "/".join(parts)
        if len(os.fsencode(plain)) > PATH_MAX_BYTES:
            place.refuse(f"is longer than {PATH_MAX_BYTES} bytes; no path can be")
        if not parts:
            # Everything, Link's settings and the wall's own parts included, is no grant.
            place.refuse("is the whole machine; name the folders it needs")
        return plain


def from_bases(path: str, place: Place, bases: Bases) -> str:
    """Return a spec's path as an absolute one, its dots taken out."""
    if path == "~" or path.startswith("~/"):
        return os.path.normpath(bases.home + path[1:])
    if path.startswith("~"):
        # Another user's home is a lookup in the machine's accounts, and never meant.
        place.refuse(f"{shown(path)} is another user's home; write the path in full")
    return os.path.normpath(os.path.join(bases.folder, path))


class ListOf(Kind):
    """A list of one kind of thing."""

    def __init__(self, item: Kind, words: str, *, least: int = 0, most: int = 4096) -> None:
        self.item = item
        self.show = item.show
        self.words = words
        self.least = least
        self.most = most

    def _read(self, value: object, place: Place) -> tuple[Any, ...]:
        if not isinstance(value, list):
            # Where tables belong, a text is often a key that was pasted.
            show = self.show and not (isinstance(self.item, Nested) and isinstance(value, str))
            found = as_found(value, show)
            place.refuse(f"{found} isn't a list; write {self.words} between [ and ]")
        if len(value) < self.least:
            place.refuse(f"is an empty list; it takes {self.words}")
        if len(value) > self.most:
            place.refuse(f"has {len(value)} entries; {self.most} is the most")
        return tuple(self.item.read(entry, place.at(at)) for at, entry in enumerate(value))

    def refuse_unbuilt(self, value: Any, place: Place) -> None:
        """Refuse an entry that isn't built."""
        for at, entry in enumerate(value):
            self.item.refuse_unbuilt(entry, place.at(at))

    def _dump(self, value: Any) -> object:
        return [self.item.dump(entry) for entry in value]


class MapOf(Kind):
    """An object whose keys are names and whose values are all of one kind."""

    def __init__(self, name: Text, item: Kind, words: str, *, most: int = 1024) -> None:
        self.name = name
        self.item = item
        self.show = item.show
        self.words = words
        self.most = most

    def _read(self, value: object, place: Place) -> dict[str, Any]:
        pairs = an_object(value, place, self.words)
        if len(pairs) > self.most:
            place.refuse(f"has {len(pairs)} entries; {self.most} is the most")
        return {
            self.name.read(name, place.at(name)): self.item.read(entry, place.at(name))
            for name, entry in pairs.items()
        }

    def refuse_unbuilt(self, value: Any, place: Place) -> None:
        """Refuse an entry that isn't built."""
        for name, entry in value.items():
            self.item.refuse_unbuilt(entry, place.at(name))

    def _dump(self, value: Any) -> object:
        return {name: self.item.dump(entry) for name, entry in value.items()}


class Nested(Kind):
    """An object that is a table of its own; `of` gives the table when it is first needed."""

    def __init__(self, of: Callable[[], type[Any]], words: str) -> None:
        self.of = of
        self.words = words

    def refuse_unbuilt(self, value: Any, place: Place) -> None:
        """Refuse a key of the table that isn't built."""
        refuse_unbuilt(value, place)

    def _read(self, value: object, place: Place) -> Any:
        return read_table(self.of(), value, place)

    def _dump(self, value: Any) -> object:
        return dump_table(value)


NO_KEYS: object = Pairs()


class Tagged(Kind):
    """One of several tables: a bare word, or an object whose one key says which."""

    def __init__(self, of: Callable[[], Mapping[str, type[Any]]], words: str) -> None:
        self.of = of
        self.words = words

    def _read(self, value: object, place: Place) -> Any:
        tables = self.of()
        bare = [name for name, made in tables.items() if not keys_of(made)]
        if isinstance(value, str):
            if value in tables and value not in bare:
                place.refuse(f'{shown(value)} has keys of its own; write {{"{value}": {{...}}}}')
            if value not in bare:
                place.refuse(f"{shown(value)} isn't {self.words}{guess(value, tables)}")
            name, told, inside = value, NO_KEYS, place
        else:
            pairs = an_object(value, place, self.words)
            name = _only_name(pairs, tables, bare, place)
            told, inside = pairs[name], place.at(name)
        return read_table(tables[name], told, inside)

    def refuse_unbuilt(self, value: Any, place: Place) -> None:
        """Refuse a mode that isn't built, or a key of it."""
        name = next(name for name, made in self.of().items() if isinstance(value, made))
        refuse_unbuilt(value, place.at(name) if keys_of(type(value)) else place)

    def _dump(self, value: Any) -> object:
        for name, made in self.of().items():
            if isinstance(value, made):
                return {name: dump_table(value)} if keys_of(made) else name
        raise AssertionError(f"{value!r} is none of {self.words}")


def _only_name(pairs: Pairs, tables: Mapping[str, type[Any]], bare: list[str], place: Place) -> str:
    for name in pairs:
        if name not in tables:
            place.at(name).refuse(f"unknown key{guess(name, tables)}")
        if name in bare:
            place.at(name).refuse(f'holds no keys; write it as the word "{name}"')
    if len(pairs) != 1:
        modes = ", ".join(tables)
        place.refuse(f"names {len(pairs)} modes; it is one of {modes}")
    return next(iter(pairs))


class Argument(Kind):
    """One argument of a program; it may be empty, and is never shown."""

    words = "an argument"

    def _read(self, value: object, place: Place) -> str:
        text: str = ARGUMENT_TEXT.read(value, place)
        if len(text.encode()) > ARGUMENT_MAX_BYTES:
            place.refuse(f"is longer than {ARGUMENT_MAX_BYTES} bytes; no argument can be")
        return text


ARGUMENT_TEXT = Text("an argument", least=0, most=ARGUMENT_MAX_BYTES, show=False)


class Argv(ListOf):
    """A program and its arguments."""

    def __init__(self) -> None:
        super().__init__(Argument(), "a program and its arguments", least=1, most=65_536)

    def _read(self, value: object, place: Place) -> tuple[Any, ...]:
        argv = super()._read(value, place)
        if not argv[0]:
            place.at(0).refuse("is empty; it takes the program to run")
        return argv


PORT = Number("a port", 1, 65535)
PER_MINUTE = Number("a limit", 1, 1_000_000)
FOLDER = PathTo("a folder")
