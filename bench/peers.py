"""The proxies that are measured: ours on both shells, squid, HAProxy with and without splice.

    apt-get install --no-install-recommends squid haproxy

Each runs on the client side of the load's network, with its settings in a folder of its
own and as little changed from its defaults as a forward proxy needs; each is ended by
its pid.  All write a log but HAProxy, which knows only syslog's and gets none.

HAProxy has no CONNECT of its own: it reads the head, passes it on, and becomes a tunnel
when the server says 200.  The load's server does.

Beside them runs a bare forwarder on uvloop, which tells what any proxy in Python must cost.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.load import FIRST_PORT, HOST, NAME, Load

LNK = Path(sys.executable).parent / "lnk"
START_S = 15
_TICKS = os.sysconf("SC_CLK_TCK")


class Peer:
    """A running proxy.  `at`: the server's port for it, and its own (0 where there is none)."""

    def __init__(self, name: str, at: tuple[int, int]) -> None:
        self.name = name
        self.at = at

    def cpu_s(self) -> float:
        """Return the CPU time it has used, in seconds."""
        return 0.0

    def close(self) -> None:
        """End it."""


class Running(Peer):
    """A proxy that was started; `argv` may name its folder as `{folder}`."""

    def __init__(
        self, load: Load, name: str, at: tuple[int, int], argv: list[str], settings: str = ""
    ) -> None:
        super().__init__(name, at)
        self._folder = tempfile.TemporaryDirectory(prefix="lnk-peer-")
        folder = Path(self._folder.name)
        if settings:
            (folder / "settings").write_text(settings.format(folder=folder))
            shutil.chown(folder, "proxy")  # squid's own user, which its master becomes
        words = [word.format(folder=folder) for word in argv]
        self._said = (folder / "said").open("w+")
        self._process = subprocess.Popen(
            load.network.argv(*words), stdin=subprocess.DEVNULL,
            stdout=self._said, stderr=self._said,
        )  # fmt: skip
        try:
            load.network.on_client_side(self._wait_until_it_accepts)
        except BaseException:
            self.close()
            raise

    def _wait_until_it_accepts(self) -> None:
        until = time.monotonic() + START_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.at[1])) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > until:
                said = Path(self._said.name).read_text()[-500:]
                raise RuntimeError(f"{self.name} did not start: {said}")
            time.sleep(0.02)

    def cpu_s(self) -> float:
        """Return user and system time of all its threads, as /proc/PID/stat has it (10 ms)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        """Return its resident memory in MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def close(self) -> None:
        """End it in good order, or else at once."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()
        self._folder.cleanup()


def all_of(load: Load) -> Iterator[Running]:
    """Start one proxy after the other, as each is asked for."""
    yield ours(load, 1, "uvloop")
    yield ours(load, 2, "trio")
    yield squid(load, 3)
    yield haproxy(load, 4, splice=False)
    yield haproxy(load, 5, splice=True)
    yield bare(load, 6)


def direct(number: int) -> Peer:
    """No proxy: the baseline."""
    return Peer("direct", (FIRST_PORT + number, 0))


def ours(
    load: Load, number: int, shell: str, hosts: int = 10, lnk: Sequence[str] = (str(LNK),)
) -> Running:
    """Our proxy with a list of `hosts` hosts, its log in a file as every sandbox's is."""
    at = _ports(number)
    listed = [f"h{n}.example.com" for n in range(hosts - 2)] + [HOST, NAME]
    flags = []
    for first in range(0, len(listed), 1_000):  # an argument has at most 128 KiB
        flags += ["--hosts", ",".join(listed[first : first + 1_000])]
    argv = [*lnk, "sandbox", "proxy", "--listen", f"127.0.0.1:{at[1]}",
            "--shell", shell, "--log", "{folder}/log", "--state", "{folder}/lnk",
            *flags]  # fmt: skip
    return Running(load, shell, at, argv)


def squid(load: Load, number: int) -> Running:
    """Squid as Debian sets it up, but as one process, without its cache and open to the load."""
    at = _ports(number)
    argv = [_sbin("squid"), "-N", "-f", "{folder}/settings"]
    settings = f"""\
http_port 127.0.0.1:{at[1]}
http_access allow all
cache deny all
access_log stdio:{{folder}}/access.log squid
cache_log {{folder}}/cache.log
pid_filename {{folder}}/pid
coredump_dir {{folder}}
visible_hostname bench
pinger_enable off
netdb_filename none
shutdown_lifetime 0 seconds
max_filedescriptors 20000
"""
    return Running(load, "squid", at, argv, settings)


def haproxy(load: Load, number: int, *, splice: bool) -> Running:
    """HAProxy with its default threads; `splice` lets the kernel move a tunnel's bytes.

    `splice-auto` would leave these tunnels to copies.
    """
    at = _ports(number)
    name = "HAProxy, splice" if splice else "HAProxy"
    argv = [_sbin("haproxy"), "-db", "-f", "{folder}/settings"]
    options = "option splice-request\n    option splice-response" if splice else ""
    settings = f"""\
global
    maxconn 4000
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout tunnel 1h
    {options}
listen bench
    bind 127.0.0.1:{at[1]}
    server load {HOST}:{at[0]}
"""
    return Running(load, name, at, argv, settings)


def bare(load: Load, number: int) -> Running:
    """Return no proxy, but what each on uvloop costs at least (`bench.bare`)."""
    at = _ports(number)
    program = str(Path(__file__).with_name("bare.py"))
    return Running(
        load, "bare uvloop", at, [sys.executable, "-I", program, str(at[1]), HOST, str(at[0])]
    )


def _ports(number: int) -> tuple[int, int]:
    """Return the ports of the number-th proxy: the server's for it, and its own."""
    return FIRST_PORT + number, 9000 + number


def _sbin(command: str) -> str:
    return shutil.which(command) or f"/usr/sbin/{command}"
