"""Two network namespaces joined by a veth pair: one for the proxy, one for its servers.

    client namespace                         server namespace
    c0 198.51.100.2/32  ---- veth ----  s0   203.0.113.10 … /32, 203.0.113.53 (DNS)
       2001:db8:1::2/128                     2001:db8::10 …/128

The client side reaches each server by a /32 (or /128) route alone: no server's address is
on a network that the client side stands on.  `ip netns exec` binds /etc/netns/<name>/ over
/etc, which gives programs there a resolv.conf that names the DNS double.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

CLIENT_V4, CLIENT_V6 = "198.51.100.2", "2001:db8:1::2"
DNS_V4 = "203.0.113.53"
SERVERS_V4 = ("203.0.113.10", "203.0.113.11", "203.0.113.12", "203.0.113.13")
SERVERS_V6 = ("2001:db8::10", "2001:db8::11")
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=60)


class Network:
    """The pair of namespaces; `close` takes both down, whatever was made in them."""

    def __init__(self, tag: str) -> None:
        self.client, self.server = f"lnk-c-{tag}", f"lnk-s-{tag}"
        self._etc = Path("/etc/netns") / self.client
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        for name in (self.client, self.server):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", self.client, "link", "add", "c0", "type", "veth",
            "peer", "name", "s0", "netns", self.server)  # fmt: skip
        for name, link in ((self.client, "c0"), (self.server, "s0")):
            _ip("-n", name, "link", "set", link, "up")
        _ip("-n", self.client, "address", "add", f"{CLIENT_V4}/32", "dev", "c0")
        _ip("-n", self.client, "address", "add", f"{CLIENT_V6}/128", "dev", "c0", "nodad")
        _ip("-n", self.server, "route", "add", f"{CLIENT_V4}/32", "dev", "s0")
        _ip("-n", self.server, "-6", "route", "add", f"{CLIENT_V6}/128", "dev", "s0")
        for address in (*SERVERS_V4, DNS_V4):
            _ip("-n", self.server, "address", "add", f"{address}/32", "dev", "s0")
            _ip("-n", self.client, "route", "add", f"{address}/32", "dev", "c0", "src", CLIENT_V4)
        for address in SERVERS_V6:
            _ip("-n", self.server, "address", "add", f"{address}/128", "dev", "s0", "nodad")
            _ip("-n", self.client, "-6", "route", "add", f"{address}/128", "dev", "c0")
        self._etc.mkdir(parents=True)
        # A double that is busy is waited for: a second query of one name would be counted.
        (self._etc / "resolv.conf").write_text(
            f"nameserver {DNS_V4}\noptions timeout:10 attempts:2\n"
        )

    def argv(self, *argv: str) -> list[str]:
        """Return `argv` as a command that runs on the client side."""
        return ["ip", "netns", "exec", self.client, *argv]

    def on_server_side(self, make: Callable[[], T]) -> T:
        """Return what `make` made in the server's namespace: a socket stays where it was made."""
        return _inside(self.server, make)

    def on_client_side(self, make: Callable[[], T]) -> T:
        """Return what `make` made in the client's namespace."""
        return _inside(self.client, make)

    def close(self) -> None:
        """Take the namespaces down."""
        for name in (self.client, self.server):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)
        shutil.rmtree(self._etc, ignore_errors=True)


def _inside(name: str, make: Callable[[], T]) -> T:
    """Run `make` on a thread of its own that has joined the namespace, and return its result."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            descriptor = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _libc.setns(descriptor, CLONE_NEWNET) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, f"setns: {os.strerror(code)}")
            finally:
                os.close(descriptor)
            outcome.extend((True, make()))
        except BaseException as error:
            outcome.extend((False, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    worked, value = outcome
    if not worked:
        raise value
    result: T = value
    return result
