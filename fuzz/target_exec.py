"""Fuzz target: what a list of programs reads of files, and what is heard from inside.

The first byte chooses the reader; the corpus is `corpus/exec`.
"""

from __future__ import annotations

import io
import os

from sandbox.linux import commands
from sandbox.linux.names import heard, quoted
from sandbox.linux.program import script_line


def one_input(data: bytes) -> None:
    """Read a file's head as the kernel would, or words from inside: neither raises."""
    kind, rest = data[:1], data[1:]
    match kind:
        case b"e":
            _elf(rest)
        case b"s":
            name, argument = script_line(b"#!" + rest)
            assert not {*b" \t\n\0"} & {*name}
            assert not {*b"\n\0"} & {*argument}
            assert commands.run_by_env(os.fsdecode(argument)) in os.fsdecode(argument)
        case b"n":
            _heard(rest)
        case _:
            text = quoted(rest.decode(errors="surrogateescape"))
            assert text.isascii()
            assert text.isprintable()


def _elf(data: bytes) -> None:
    try:
        name = commands._interp(io.BytesIO(data))
    except (ValueError, OverflowError):
        return  # which its caller takes for none
    assert "\0" not in name


class _Heard:
    def __init__(self) -> None:
        self.paths: list[bytes] = []
        self.program = 0
        self.stopped = False

    def tell(self, called: bytes, real: bytes) -> None:
        self.paths += [called, real]


def _heard(data: bytes) -> None:
    whole, parts = _Heard(), _Heard()
    left = heard(data, whole)
    assert b"\0" not in b"".join(whole.paths)
    assert len(left) <= len(data)
    # However it comes, it says the same; but behind what is nothing of ours all is dropped.
    cut = len(data) // 2
    before = heard(data[:cut], parts)
    if before or data[:cut].endswith(b"\0"):
        assert heard(before + data[cut:], parts) == left
        assert vars(parts) == vars(whole)
