"""The real package indexes, as pip and npm are set up here, and clients that get from them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.e2e.run_clients import FETCH, Call
from tests.sandbox import lnk

INDEX_S = 600.0
"""Longer than an index takes that answers at all, however slowly."""
ASKED_AT_MOST = 3
"""An index of the world's that fails is asked again: it isn't what is tested."""
HOSTS_SCRIPT = os.path.join(lnk.REPOSITORY, ".ci", "index_hosts.py")


@dataclass(frozen=True)
class Indexes:
    """Where packages come from, and the programs that are no part of the machine.

    pip, uv: their paths, in folders that everybody may read.  index: pip's index where its
    settings name one.  hosts: the index's, and where its files lie.  registry: npm's URL.
    """

    pip: str
    uv: str
    index: str
    hosts: Sequence[str]
    registry: str

    @property
    def registry_host(self) -> str:
        """The registry's host."""
        return urlsplit(self.registry).hostname or ""


def environment_with_pip(folder: str) -> str:
    """Make a virtual environment with the pip that Python brings; return its pip."""
    subprocess.run(
        [lnk.public_python(), "-I", "-m", "venv", folder], check=True, capture_output=True,
        timeout=INDEX_S,
    )  # fmt: skip
    return os.path.join(folder, "bin", "pip")


def got(ask: Callable[[], subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
    """Return how a command ended that gets something from an index, once one has ended well."""
    for _ in range(ASKED_AT_MOST):
        done = ask()
        if done.returncode == 0:
            break
    return done


def get(*argv: str, cwd: str | os.PathLike[str] | None = None) -> str:
    """Run a command that gets something from an index; return what it prints."""
    done = got(
        lambda: subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, timeout=INDEX_S, check=False
        )
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def uv_in(folder: str) -> str:
    """Put uv in a folder, from the package index; return its path."""
    pip = (sys.executable, "-I", "-m", "pip", "install", "-q", "--no-deps")
    get(*pip, "--target", folder, "uv")
    return os.path.join(folder, "bin", "uv")


def install(folder: str, target: str, *packages: str) -> None:
    """Get packages for everybody's Python from the index pip is set up with (uv in folder)."""
    asked = subprocess.run(
        [sys.executable, "-I", "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    index = ["--default-index", asked.stdout.strip()] if asked.returncode == 0 else []
    argv = [uv_in(f"{folder}/uv"), "pip", "install", "-q", *index]
    into = ["--python", lnk.public_python(), "--target", target]
    get(*argv, *into, *packages)


def indexes(pip: str, uv: str, who: lnk.Account) -> Indexes:
    """Ask pip and npm, as this person, where they get packages from."""

    def ask(*argv: str, **more: object) -> str:
        ran = lnk.run(who, argv, **more)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    python = os.path.join(os.path.dirname(pip), "python")
    with open(HOSTS_SCRIPT) as file:
        flags = ask(python, "-I", "-", input=file.read())
    settings = dict(
        line.partition("=")[::2] for line in ask(pip, "config", "list").splitlines() if "=" in line
    )
    return Indexes(
        pip, uv, settings.get("global.index-url", "").strip("'"),
        [word for word in flags.split() if not word.startswith("--")],
        ask("npm", "config", "get", "registry").strip(),
    )  # fmt: skip


def pip(at: Indexes) -> Call:
    argv = [at.pip, "download", "-q", "--no-deps", "--retries=0", "-d", "got", "six==1.17.0"]
    return Call(
        argv, "got/six-1.17.0-py2.py3-none-any.whl", (os.path.dirname(os.path.dirname(at.pip)),)
    )


def uv(at: Indexes) -> Call:
    index = ["--default-index", at.index] if at.index else []
    argv = ["env", "UV_HTTP_RETRIES=0", at.uv, "pip", "install", "-q", "--python", "python3",
            *index, "--target", "got", "six"]  # fmt: skip
    return Call(argv, "got/six.py", (os.path.dirname(os.path.dirname(at.uv)),))


def npm(at: Indexes) -> Call:
    return Call(["npm", "pack", "--fetch-retries=0", "is-number@7.0.0"], "is-number-7.0.0.tgz")


def page(at: Indexes) -> str:
    return at.registry + "is-number/7.0.0"


def fetch(at: Indexes) -> Call:
    return Call(["node", "-e", FETCH, page(at)], prints='"is-number"')


def curl(at: Indexes) -> Call:
    return Call(["curl", "-sS", "-f", page(at)], prints='"is-number"')


def wget(at: Indexes) -> Call:
    return Call(["wget", "-q", "-t", "1", "-O", "-", page(at)], prints='"is-number"')


FROM_PIP: dict[str, Callable[[Indexes], Call]] = {"pip": pip, "uv": uv}
FROM_NPM: dict[str, Callable[[Indexes], Call]] = {
    "npm": npm, "fetch": fetch, "curl": curl, "wget": wget,
}  # fmt: skip


def call_and_hosts(name: str, at: Indexes) -> tuple[Call, Sequence[str]]:
    """Return a client's call, and the hosts that it needs, the first one first."""
    if name in FROM_PIP:
        return FROM_PIP[name](at), at.hosts
    return FROM_NPM[name](at), [at.registry_host]
