"""What stands outside an attacked sandbox, and the sandbox: one of everything."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator

from sandbox.linux import seccomp
from sandbox.linux.canaries import Canaries
from sandbox.linux.environment import PROXY_PORT
from tests.sandbox import lnk
from tests.sandbox.test_walls import COLUMN, Canary

HERE = os.path.dirname(os.path.abspath(__file__))


class World:
    """A person's project, their secrets and their machine, and what an attacker is told of it."""

    def __init__(
        self, who: lnk.Account, folder: str, canary: Canary, outside: object, python: str
    ) -> None:
        self.who = who
        self.python = python
        self.project = f"{folder}/project"
        self.read = f"{folder}/read"
        self.hidden = f"{self.project}/deep/hidden"
        self.outside = outside
        self.told = {
            "project": self.project, "read": self.read, "hidden": self.hidden,
            "state": f"{who.home}/.lnk", "home": who.home, "unnamed": f"{folder}/unnamed/key",
            "home_file": f"{who.home}/private", "temp_file": outside.temp_file,
            "shared_file": outside.shared_file, "log_file": "/var/log/dpkg.log",
            "dots": [f"{self.project}/{name}" for name in (
                ".git", ".git/config", ".git/hooks", ".envrc", ".vscode", ".idea", ".husky",
                "tools/git/hooks", "tools/git/more")],
            "pins": [f"{self.project}/{name}" for name in ("deep", "tools", "tools/git")],
            "pid": os.getpid(), "command": "pytest"[::-1], "marker": outside.marker[::-1],
            "devices": list(outside.devices), "spaces": outside.spaces,
            "cgroup": "never" if not _cgroup() else _cgroup(),
            "calls": {name: row[COLUMN] for name, row in seccomp.REFUSED.items()
                      if row[COLUMN] is not None},
            "key": outside.keys["memory"], "queue": outside.queue,
            "spellings": canary.spellings(), "nameservers": list(outside.nameservers),
            "path_socket": canary.path, "read_socket": f"{self.read}/agent.sock",
            "abstract": canary.abstract.lstrip("@"), "port": canary.port, "proxy": PROXY_PORT,
        }  # fmt: skip

    def confinement(self, net: str) -> dict[str, object]:
        """Return the sandbox that is attacked."""
        proxy = {"upstream": "direct", "dir": f"{self.who.home}/wire", "hosts": ["listed.example"]}
        nets = {
            "closed": "closed",
            "proxied": {"proxied": {"proxy": proxy, "ports": []}},
            "host": {"host": {"ports": [], "localhost": True}},
        }
        # With a list of programs a process of Link's is the sandbox's first.
        commands = {"only": [self.python]} if net == "listed" else "any"
        return {
            "name": "attacked", "write": [self.project, f"{self.hidden}/mine"], "read": [self.read],
            "hide": [self.hidden], "commands": commands,
            "net": nets.get(net, "closed"),
        }  # fmt: skip


def _cgroup() -> str:
    with open("/proc/self/cgroup") as file:
        return file.read().strip().split("::")[-1].lstrip("/")


@contextlib.contextmanager
def world(
    installed: lnk.Installed, who: lnk.Account, folder: str, canary: Canary
) -> Iterator[World]:
    """Build it, and take it away."""
    for name in ("project/deep/hidden/mine", "project/.vscode", "project/.idea", "project/.husky",
                 "project/tools/git/hooks", "read", "unnamed"):  # fmt: skip
        os.makedirs(f"{folder}/{name}")
    subprocess.run(["git", "init", "-q", f"{folder}/project"], check=True)
    for name, words in {
        "project/.envrc": "x", "project/deep/hidden/key": "secret", "read/file": "theirs",
        "unnamed/key": "secret", "project/tools/git/more": "[x]\n",
    }.items():  # fmt: skip
        with open(f"{folder}/{name}", "w") as file:
            file.write(words)
    with open(f"{folder}/project/.git/config", "a") as file:
        file.write("[core]\n\thooksPath = tools/git/hooks\n[include]\n\tpath = ../tools/git/more\n")
    os.makedirs(f"{who.home}/.lnk", 0o700, exist_ok=True)
    for path in (f"{who.home}/.lnk/key", f"{who.home}/private"):
        with open(path, "w") as file:
            file.write("secret")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/read/agent.sock")
    listener.listen()
    os.chmod(f"{folder}/read/agent.sock", 0o777)
    subprocess.run(["chown", "-R", f"{who.uid}:{who.gid}", folder, f"{who.home}/.lnk",
                    f"{who.home}/private"], check=True)  # fmt: skip
    try:
        with Canaries(who.home) as outside:
            yield World(who, folder, canary, outside, os.path.realpath(installed.python))
    finally:
        listener.close()
        os.unlink(f"{who.home}/.lnk/key")
        os.unlink(f"{who.home}/private")


def argv(installed: lnk.Installed, told: dict[str, object]) -> list[str]:
    """Return the program that attacks: its source lies where anybody may read it."""
    path = os.path.join(installed.folder, "attempts.py")
    if not os.path.exists(path):
        with open(os.path.join(HERE, "attempts.py")) as source, open(path, "w") as copy:
            copy.write(source.read())
    with open(path) as file:
        return [installed.python, "-I", "-S", "-c", file.read(), json.dumps(told)]
