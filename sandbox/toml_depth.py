"""Whether a TOML text is nested too deeply to be worth reading, told before `tomllib` reads it.

`tomllib` reads a key of many parts in the square of their number, minutes for one of a
mebibyte, and a spec may have come with a clone.  No key of ours stands deeper than four.
One pattern walks the text once; up to the first fault of a text it sees the same tokens
as any reader, and behind that nobody reads on.
"""

from __future__ import annotations

import re

DEPTH_MAX = 16
"""The parts of a key, and the brackets around a value, that are read at most."""

# Groups aren't possessive: before 3.11.5 such a one skips what it may not (CPython 106052).
# They needn't be, for no two of their alternatives begin alike; and each round takes all that is
# plain at once, so a mebibyte of text is one round and not a million to be remembered.
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"|'[^'\n]*+')"""
_NEXT = rf"(?:[ \t]*+\.[ \t]*+{_PART})"
_TOKEN = re.compile(
    r'"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*""""{0,2}'
    r"|'''[^']*+(?:'(?!'')[^']*+)*''''{0,2}"
    r"|(?P<fault>\"\"\"|''')"  # a text that never ends
    rf"|(?P<deep>{_PART}{_NEXT}{{{DEPTH_MAX}}})"
    rf"|{_PART}{_NEXT}*"
    r"|#[^\n]*+"
    r"|(?P<open>[\[{])"
    r"|(?P<close>[\]}])"
    r"|(?P<unended>[\"'])",
    re.DOTALL,
)


def too_deep(text: str) -> int | None:
    """Return the line, from 1, of the first key or value that is nested too deeply."""
    around = 0
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "open":
                around += 1
            case "close":
                around -= 1
            case "fault" | "unended":
                return None  # what tomllib says of it names the line
        if token.lastgroup == "deep" or around > DEPTH_MAX:
            return text.count("\n", 0, token.start()) + 1
    return None
