"""Fuzz target: git's settings (`sandbox.linux.git_config`); its corpus is `corpus/git_config`."""

from __future__ import annotations

from sandbox.linux.git_config import GitConfigError, parse


def one_input(data: bytes) -> None:
    """Parse a file: a name is never empty, and a refusal names a line that is there."""
    try:
        found = parse(data)
    except GitConfigError as error:
        if not 1 <= error.line <= data.count(b"\n") + 2:
            raise
        return
    for name, value in found:
        assert name
        assert value is None or b"\r\n" not in value
