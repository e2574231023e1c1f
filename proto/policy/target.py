"""What a call was admitted to: one host, one port, and how far it reaches."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Scope(Enum):
    """Which addresses a target may have."""

    INTERNET = "internet"
    """Addresses of the internet; never a private network's, never this machine's."""

    LAN = "lan"
    """Addresses of a private network or of one this machine stands on; nothing else."""


class Target(NamedTuple):
    """A host and port that the policy let through by name.

    `host` is canonical (`proto.policy.hosts.canonical_host`), without brackets: the
    one form that is matched, logged, looked up and dialled.  `literal`: it is an
    address, so nobody is asked for one.  `reads_hello`: the tunnel must begin with a
    ClientHello that names `host` (R33).
    """

    host: str
    port: int
    scope: Scope
    literal: bool
    reads_hello: bool


def authority(host: str, port: int) -> str:
    """Return `host:port`, an IPv6 address in brackets (RFC 3986 §3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
