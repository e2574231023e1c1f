"""What the benches need of the machine, and one sentence where it is missing."""

from __future__ import annotations

import os
import shutil

PEERS = {"squid": "squid", "haproxy": "haproxy", "gcc": "gcc", "ip": "iproute2"}
"""Commands that `python -m bench.proxy` runs, and the package that brings each."""


class Missing(Exception):
    """A program isn't installed; says which, and the apt line that installs it."""

    def __init__(self, command: str, package: str) -> None:
        super().__init__(f"{command} is not installed: run `apt-get install {package}`.")


class NotRoot(Exception):
    """Network namespaces are root's to make."""

    def __init__(self) -> None:
        super().__init__("this bench makes network namespaces: run it as root.")


def check() -> None:
    """Raise Missing or NotRoot unless everything is there."""
    if os.geteuid() != 0:
        raise NotRoot
    missing = {command: package for command, package in PEERS.items() if not _has(command)}
    if missing:
        raise Missing(" and ".join(missing), " ".join(missing.values()))


def _has(command: str) -> bool:
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None
