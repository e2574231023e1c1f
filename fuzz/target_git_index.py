"""Fuzz target: git's index (`sandbox.linux.git_index`); its corpus is `corpus/git_index`."""

from __future__ import annotations

from sandbox.linux.git_index import submodules


def one_input(data: bytes) -> None:
    """Look for an index's submodules: no path is empty, or more than one."""
    for path in submodules(data):
        assert path
        assert "\0" not in path
