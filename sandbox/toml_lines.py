"""On which line of a TOML text a key stands: `tomllib` reads values and keeps no lines.

Only texts that `tomllib` has read come here, so the scanner needs to tell tokens apart,
not to judge them: it walks headers, pairs, arrays and inline tables once, and tells of
each path of keys the line at which it is named.  What isn't wanted of that is kept
nowhere: a spec that nobody of us wrote may hold half a million paths.  It runs only when
a spec is refused.
"""

from __future__ import annotations

import re
import tomllib

from sandbox.errors import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

Steps = tuple[Step, ...]

_GAP = re.compile(r"[ \t]*+")
_GAPS = re.compile(r"(?:[ \t\r\n,]|#[^\n]*+)*")
_STRING = re.compile(
    r'"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*""""{0,2}'
    r"|'''[^']*+(?:'(?!'')[^']*+)*''''{0,2}"
    r'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"'
    r"|'[^'\n]*+'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]++")
_SCALAR = re.compile(r"[^,\]}#\r\n]++")
"""A number, a date or a word; a date may hold a space, none holds one of these."""


def line_of(text: str, steps: Steps) -> int | None:
    """Return the line, from 1, at which a path of keys is named; None where it isn't.

    A path that isn't there (a missing key) has the line of the longest part that is.
    """
    longest = 0
    found: int | None = None

    def named(path: Steps, line: int) -> None:
        """Keep the line of a path that has more of the wanted one than any before it."""
        nonlocal longest, found
        shared = 0
        for step, wanted in zip(path, steps, strict=False):
            if step != wanted:
                break
            shared += 1
        if shared > longest:
            longest, found = shared, line

    Scanner(text, named).scan()
    return found


class Scanner:
    """One walk over a TOML text; `named` is told each path that is named, and its line.

    A path stands for those above it too: `a.b` names `a`.
    """

    def __init__(self, text: str, named: Callable[[Steps, int], None]) -> None:
        self.text = text
        self.at = 0
        self.named = named
        self._counted_to = 0
        self._line = 1
        self._tables: dict[Steps, int] = {}
        """How many tables each array of tables has so far."""

    def scan(self) -> None:
        """Walk the whole text; stop where nothing is understood any more."""
        base: Steps = ()
        self._skip(_GAPS)
        while self.at < len(self.text):
            start = self.at
            if self.text.startswith("[", start):
                base = self._header()
            else:
                self._pair(base)
            self._skip(_GAPS)
            if self.at == start:
                return

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()

    def _note(self, path: Steps) -> None:
        self._line += self.text.count("\n", self._counted_to, self.at)
        self._counted_to = self.at
        self.named(path, self._line)

    def _header(self) -> Steps:
        """Read `[a.b]` or `[[a.b]]`; return the path of the table it opens."""
        many = self.text.startswith("[[", self.at)
        self.at += 2 if many else 1
        *above, last = self._keys() or [""]
        path: Steps = ()
        for name in above:
            path = self._newest((*path, name))
        path = (*path, last)
        if many:
            self._tables[path] = self._tables.get(path, 0) + 1
        path = self._newest(path)
        self._note(path)
        self.at += 2 if many else 1
        return path

    def _newest(self, path: Steps) -> Steps:
        """Return an array of tables' newest table, or the path as it is."""
        count = self._tables.get(path)
        return path if count is None else (*path, count - 1)

    def _keys(self) -> list[str]:
        """Read a dotted key."""
        names = []
        while True:
            self._skip(_GAP)
            quoted = self._skip(_STRING)
            names.append(tomllib.loads(f"k={quoted}")["k"] if quoted else self._skip(_BARE_KEY))
            self._skip(_GAP)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def _pair(self, base: Steps) -> None:
        """Read `key = value`."""
        path = (*base, *self._keys())
        self._note(path)
        self.at += 1  # the equals sign
        self._skip(_GAP)
        self._value(path)

    def _value(self, path: Steps) -> None:
        match self.text[self.at : self.at + 1]:
            case "[":
                self._array(path)
            case "{":
                self._inline_table(path)
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_SCALAR)

    def _array(self, path: Steps) -> None:
        self.at += 1
        index = 0
        self._skip(_GAPS)
        while self.at < len(self.text) and not self.text.startswith("]", self.at):
            start = self.at
            self._note((*path, index))
            self._value((*path, index))
            index += 1
            self._skip(_GAPS)
            if self.at == start:
                return
        self.at += 1

    def _inline_table(self, path: Steps) -> None:
        self.at += 1
        self._skip(_GAPS)
        while self.at < len(self.text) and not self.text.startswith("}", self.at):
            start = self.at
            self._pair(path)
            self._skip(_GAPS)
            if self.at == start:
                return
        self.at += 1
