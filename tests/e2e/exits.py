"""Real proxies that stand as exits on the client side of a test network: squid, microsocks."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.net.namespaces import Network

USER, PASSWORD = "someone", "treasure-7f3a"
SQUID, MICROSOCKS = "/usr/sbin/squid", "microsocks"
READY_S = 120
PORTS = itertools.count(20_000)
"""Below the kernel's ephemeral ports, so that nobody else comes by one meanwhile."""
SQUID_CONF = """\
http_port 127.0.0.1:{port}
pid_filename {folder}/pid
cache_log {folder}/cache.log
access_log stdio:{folder}/access.log
cache deny all
coredump_dir {folder}
visible_hostname exit.test
pinger_enable off
shutdown_lifetime 0 seconds
{access}
"""
SQUID_LOGIN = """\
auth_param basic program /usr/lib/squid/basic_ncsa_auth {folder}/passwd
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
"""


@dataclass(frozen=True)
class Exit:
    """A running exit: its URL, with its login if it wants one, and its folder."""

    url: str
    port: int
    folder: Path

    def asked(self) -> str:
        """Return what squid has logged of the calls it was asked for: a line at the end of each."""
        path = self.folder / "access.log"
        return path.read_text() if path.exists() else ""

    def asked_for(self, what: str) -> str:
        """Return the same once it has `what`."""
        until = time.monotonic() + READY_S
        while what not in (text := self.asked()):
            assert time.monotonic() < until, text
            time.sleep(0.05)
        return text


def free_port(network: Network) -> int:
    """Return a port of the client side's loopback that nobody has, nor will have unasked."""

    def find() -> int:
        while True:
            port = next(PORTS)
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                return port

    return network.on_client_side(find)


@contextlib.contextmanager
def squid(network: Network, *, login: bool) -> Iterator[Exit]:
    """Run squid, which lets everybody everywhere, or those with the login."""
    with _folder() as folder:
        port = free_port(network)
        access = SQUID_LOGIN.format(folder=folder) if login else "http_access allow all"
        conf = folder / "squid.conf"
        conf.write_text(SQUID_CONF.format(port=port, folder=folder, access=access))
        hashed = subprocess.run(
            ["openssl", "passwd", "-apr1", PASSWORD], check=True, capture_output=True, text=True
        ).stdout
        (folder / "passwd").write_text(f"{USER}:{hashed}")
        (folder / "passwd").chmod(0o644)
        with _running(network, [SQUID, "-N", "-f", str(conf)], port):
            yield Exit(_url("http", port, login), port, folder)


@contextlib.contextmanager
def microsocks(network: Network, *, login: bool) -> Iterator[Exit]:
    """Run a SOCKS5 server."""
    with _folder() as folder:
        port = free_port(network)
        words = ["-u", USER, "-P", PASSWORD] if login else []
        argv = [MICROSOCKS, "-i", "127.0.0.1", "-p", str(port), *words]
        with _running(network, argv, port):
            yield Exit(_url("socks5", port, login), port, folder)


def _url(scheme: str, port: int, login: bool) -> str:
    return f"{scheme}://{f'{USER}:{PASSWORD}@' if login else ''}127.0.0.1:{port}"


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lnk-exit-"))
    folder.chmod(0o777)  # squid runs as a user of its own
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def _running(network: Network, argv: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(
        network.argv(*argv), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + READY_S
        while not network.on_client_side(lambda: _accepts(port)):
            assert process.poll() is None, f"{argv[0]} ended"
            assert time.monotonic() < until, f"{argv[0]} doesn't listen"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(READY_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(READY_S)


def _accepts(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
