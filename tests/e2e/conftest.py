"""Nodes of our choosing, from the npm registry, once a session."""

from __future__ import annotations

import json
import os
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import run_indexes

MACHINE = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
OLD, NEW = "22.20.0", "24"
"""The last Node 22 whose fetch knows no proxy, and one that does."""


@dataclass(frozen=True)
class Nodes:
    """Two Nodes, an npm and an undici that everybody may read, in one folder."""

    folder: str

    @property
    def old(self) -> str:
        """The path of the one that doesn't know NODE_USE_ENV_PROXY."""
        return f"{self.folder}/old/bin/node"

    @property
    def new(self) -> str:
        """The path of the one that does."""
        return f"{self.folder}/new/bin/node"

    @property
    def npm(self) -> str:
        """The folder of npm's package."""
        return f"{self.folder}/npm"

    @property
    def modules(self) -> str:
        """The folder in which undici's package is."""
        return f"{self.folder}/node_modules"


@pytest.fixture(scope="session")
def nodes(open_folder: str, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    """Both Nodes, npm and undici."""
    made = Nodes(os.path.join(open_folder, "nodes"))
    packed = tmp_path_factory.mktemp("packed")
    node = f"node-linux-{MACHINE}"
    wanted = [f"{node}@{OLD}", f"{node}@{NEW}", "npm@11", "undici@6"]
    told = run_indexes.get("npm", "pack", "--json", *wanted, cwd=packed)
    into = (f"{made.folder}/old", f"{made.folder}/new", made.npm, f"{made.modules}/undici")
    only = ("bin/node", "bin/node", "", "")
    for about, folder, part in zip(json.loads(told), into, only, strict=True):
        unpack(packed / about["filename"], folder, part)
        (packed / about["filename"]).unlink()
    return made


def unpack(file: Path, folder: str, part: str) -> None:
    """Unpack what of a package begins with `part` into a folder."""
    with tarfile.open(file) as archive:
        for entry in archive:
            entry.name = entry.name.partition("/")[2]
            if entry.name.startswith(part) and entry.isfile():
                # By hand: extract(filter=) is Python 3.11.4's, and Debian 12 has 3.11.2.
                target = Path(folder) / entry.name
                assert target.resolve().is_relative_to(Path(folder).resolve())
                target.parent.mkdir(parents=True, exist_ok=True)
                content = archive.extractfile(entry)
                assert content is not None
                target.write_bytes(content.read())
                target.chmod(entry.mode & 0o777)
                if part:
                    return
