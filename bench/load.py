"""The load's two ends (`load.c`), compiled, and started on the two sides of a test network.

The server stands in the server's namespace, the clients and the proxies in the other:
the address guard refuses loopback targets, so "direct" is the same clients by the same
veth pair with no proxy between.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.needs import Missing
from tests.net.namespaces import SERVERS_V4, Network

HOST = SERVERS_V4[0]
NAME = "server.example"
"""The same host by name: it stands in the client side's /etc/hosts."""

FIRST_PORT = 8000
PORTS = 16
"""Each proxy has a port of the server's own, or their old connections (TIME_WAIT) would
stand in each other's way."""

SECONDS_MOST = 110

_KERNEL = (
    "net.ipv4.tcp_tw_reuse=1",  # else a minute's calls are all that the ports allow
    "net.ipv4.ip_local_port_range=10000 60999",
)


class Load:
    """A compiled load and its running server, on a network of its own.  A context manager."""

    def __init__(self, tag: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lnk-bench-")
        self.folder = self._folder.name
        self._program = str(Path(self.folder) / "load")
        _compile(self._program)
        self.network = Network(tag)
        try:
            self._settle()
            self._server = self._start_server()
        except BaseException:
            self.network.close()
            raise

    def measure(
        self, kind: str, at: tuple[int, int], count: int, amount: float
    ) -> tuple[float, float]:
        """Run a client to its end; return what it did a second, and for how many seconds.

        What it does are bytes, calls or requests.  `at`: the server's port and the
        proxy's, 0 for none.
        """
        run = subprocess.run(
            self._client(kind, at, count, amount), capture_output=True, text=True,
            timeout=SECONDS_MOST, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if run.returncode != 0:
            raise RuntimeError(f"{kind} by proxy port {at[1]}: {run.stderr.strip()}")
        done, seconds = run.stdout.split()
        return float(done) / float(seconds), float(seconds)

    @contextmanager
    def held(
        self, kind: str, at: tuple[int, int], count: int, amount: float = 0
    ) -> Iterator[float]:
        """Hold `count` tunnels open (`idle`, `stall`); give what opening took, in seconds."""
        with subprocess.Popen(
            self._client(kind, at, count, amount), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as client:  # fmt: skip
            assert client.stdout is not None
            assert client.stdin is not None
            assert client.stderr is not None
            line = client.stdout.readline()
            if not line:
                raise RuntimeError(f"{kind} by proxy port {at[1]}: {client.stderr.read().strip()}")
            yield float(line.split()[1])
            client.stdin.close()
            client.wait(SECONDS_MOST)

    def client(self, kind: str, at: tuple[int, int], count: int, amount: float) -> list[str]:
        """Return the command of a client, to be run on the client side, or in a sandbox there."""
        host = HOST
        if kind.endswith(" by name"):
            kind, host = kind.removesuffix(" by name"), NAME
        return [self._program, kind, host, *map(str, at), str(count), str(amount)]

    def _client(self, kind: str, at: tuple[int, int], count: int, amount: float) -> list[str]:
        return self.network.argv(*self.client(kind, at, count, amount))

    def _settle(self) -> None:
        """Give the client side its name for the server, and both sides room for many calls."""
        etc = Path("/etc/netns") / self.network.client
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{HOST} {NAME}\n")
        for side in (self.network.client, self.network.server):
            command = ["ip", "netns", "exec", side, "sysctl", "-q", "-w", *_KERNEL]
            subprocess.run(command, check=True, capture_output=True, timeout=60)

    def _start_server(self) -> subprocess.Popen[str]:
        words = ["serve", HOST, str(FIRST_PORT), str(PORTS)]
        server = subprocess.Popen(
            ["ip", "netns", "exec", self.network.server, self._program, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.stdout is not None
        if server.stdout.readline() != "ready\n":
            server.kill()
            server.wait()
            raise RuntimeError("the bench's server did not start")
        return server

    def close(self) -> None:
        """End the server, and take the network down."""
        self._server.communicate()
        self.network.close()
        self._folder.cleanup()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _compile(program: str) -> None:
    source = str(Path(__file__).with_suffix(".c"))
    try:
        subprocess.run(["gcc", "-O2", "-pthread", "-o", program, source], check=True, timeout=150)
    except FileNotFoundError:
        raise Missing("gcc", "gcc") from None
