"""The commands whose start is measured, all with the project as it is installed.

Two copies: the project and what it needs below one folder, compiled, with a script that
runs it by `python -I -S` (as the tests have it); and a virtual environment of the
distribution's Python, with the script that pip writes, which is how a person has it.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import Any

from sandbox.linux import kept
from sandbox.linux.environment import PROXY_PORT
from tests.sandbox import lnk

TRUE = "/usr/bin/true"
PIP_SCRIPT = """\
#!{python}
import sys
from sandbox.cli.main import main
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit(main())
"""


@dataclass(frozen=True)
class Copies:
    """The installed project: as a script without site folders, and as pip's script."""

    installed: lnk.Installed
    pip: str
    who: lnk.Account

    def run(self, *words: str) -> list[str]:
        """Return `lnk sandbox run --yes …`, as pip's script has it."""
        return [self.pip, "sandbox", "run", "--yes", *words]

    def run_bare(self, *words: str) -> list[str]:
        """Return the same without a site folder, as the tests have it."""
        return self.installed.argv("run", "--yes", *words)

    def closed(self, *argv: str, **keys: object) -> list[str]:
        """Return a kept command without a network."""
        return self.installed.wrapped(self.who, argv, **keys)

    def proxied(
        self, hosts: list[str], *argv: str, **keys: object
    ) -> tuple[list[str], dict[str, str]]:
        """Return a kept command whose one way out is its proxy, and its environment."""
        folder = os.path.join(self.who.home, "wires", "box")
        proxy = {"upstream": "direct", "dir": folder, "hosts": hosts}
        net = {"proxied": {"proxy": proxy, "ports": []}}
        made = self.installed.wrap(self.who, argv, net=net, **keys)
        return made["argv"], {**self.who.environ, **made["env"]}


def install(folder: str) -> Copies:
    """Install both copies below a folder."""
    os.mkdir(os.path.join(folder, "copy"), 0o755)
    installed = lnk.install(os.path.join(folder, "copy"))
    place = os.path.join(folder, "venv")
    command = [installed.python, "-m", "venv", "--without-pip", place]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    found = os.listdir(os.path.join(place, "lib"))
    site = os.path.join(place, "lib", found[0], "site-packages")
    subprocess.run(["cp", "-a", f"{installed.folder}/.", site], check=True, timeout=60)
    script = os.path.join(place, "bin", "lnk")
    with open(script, "w") as file:
        file.write(PIP_SCRIPT.format(python=os.path.join(place, "bin", "python")))
    os.chmod(script, 0o755)
    home = os.path.join(folder, "home")
    os.mkdir(home, 0o700)
    return Copies(installed, script, lnk.Account("self", os.getuid(), os.getgid(), home))


def bare(closed: list[str]) -> list[str]:
    """Return bubblewrap by itself running `true`: a plain sandbox's namespaces, and /usr."""
    plan = _plan(closed)
    words = plan["args"]
    namespaces = words[: words.index("--new-session") + 1]
    return [
        plan["bwrap"], *namespaces, "--ro-bind", "/usr", "/usr",
        "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
        "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
        "--tmpfs", "/tmp", "--", TRUE,
    ]  # fmt: skip


def furnished(closed: list[str]) -> list[str]:
    """Return bubblewrap by itself with all mounts of a plan: what no launcher can be below."""
    plan = _plan(closed)
    return [plan["bwrap"], *(word for word in plan["args"] if isinstance(word, str)), "--", TRUE]


def _plan(command: list[str]) -> dict[str, Any]:
    taken = kept.taken_apart(command[command.index("-S") + 2 :])
    assert taken is not None, "a kept command has a plan"
    return kept.read(taken[0])


__all__ = ["PROXY_PORT", "TRUE", "Copies", "bare", "furnished", "install"]
