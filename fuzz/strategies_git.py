"""Strategies for git's settings: files made of what they are made of, and files that are meant."""

from __future__ import annotations

from hypothesis import strategies as st

PIECES = [
    b"[core]", b"[core", b"]", b'"', b"\\", b"\n", b"\r\n", b"\r", b" ", b"\t", b"=", b"#", b";",
    b"hooksPath", b"a", b"B-1", b'[include "x"]', b'[a.b "c\\"d"]', b"[A.b]", b"path", b"~/",
    b"\\n", b'\\"', b"\\x", b"\xef\xbb\xbf", b"\xc3\xa9", b".", b"[", b"\\\n", b"k = v\n",
    b"[s]\n", b"\x0b", b"\x00", b"-", b"1", b"[]", b'[""]', b'[s ""]', b"= ; x", b'"a;b"',
    b" \\\n ",
]  # fmt: skip

FILES = st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join)
"""Files that are made of what settings are made of, in any order."""

NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9-]{0,8}", fullmatch=True)
SUBSECTIONS = st.text(
    st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), max_size=10
)
VALUES = st.none() | st.text(
    st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), max_size=20
)
VARIABLES = st.lists(st.tuples(NAMES, st.none() | SUBSECTIONS, NAMES, VALUES), max_size=6)
"""Variables as a person means them: section, subsection, key, value."""

ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"}


def written(variables: list[tuple[str, str | None, str, str | None]]) -> bytes:
    """Return a settings file that holds these variables, each value quoted."""
    lines = []
    for section, subsection, key, value in variables:
        name = ""
        if subsection is not None:
            name = subsection.replace("\\", "\\\\").replace('"', '\\"')
            name = f' "{name}"'
        lines.append(f"[{section}{name}]")
        quoted = "" if value is None else "".join(ESCAPED.get(char, char) for char in value)
        lines.append(f"\t{key}" if value is None else f'\t{key} = "{quoted}"')
    return "\n".join(lines).encode()


def meant(
    variables: list[tuple[str, str | None, str, str | None]],
) -> list[tuple[bytes, bytes | None]]:
    """Return the same as the parser has it."""
    return [
        (
            ".".join(
                [section.lower(), *([] if subsection is None else [subsection]), key.lower()]
            ).encode(),
            None if value is None else value.encode(),
        )
        for section, subsection, key, value in variables
    ]
