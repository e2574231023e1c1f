"""Start the real `lnk sandbox proxy` on the client side of a test network."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.net.namespaces import Network

LNK = Path(sys.executable).parent / "lnk"
SHELLS = ("uvloop", "trio")
SOON_S = 60.0
"""Longer than anything here takes: only a fault waits for it."""
CLIENT_S = 150.0
"""The same for a whole client, such as npm."""


class Proxy:
    """A running proxy: `url`, its log as values, and its end."""

    def __init__(
        self,
        network: Network | None,
        *flags: str,
        shell: str = "uvloop",
        state: Path | None = None,
        program: Sequence[str] = (str(LNK),),
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lnk-proxy-")
        self.network = network
        self.logs = Path(self._folder.name) / "log"
        self.state = state or Path(self._folder.name) / "lnk"
        self._stderr = (Path(self._folder.name) / "stderr").open("w+b")
        argv = [*program, "sandbox", "proxy", "--listen", "127.0.0.1:0", "--name", "test",
                "--log", str(self.logs), "--state", str(self.state), "--shell", shell,
                *flags]  # fmt: skip
        if network is not None:
            argv = network.argv(*argv)
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        if not line.startswith("listening on "):
            said = self.stderr()
            self.close()
            raise AssertionError(f"the proxy did not start: {line!r} {said}")
        self.port = int(line.rsplit(":", 1)[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def stderr(self) -> str:
        """Return what it has said on stderr."""
        return Path(self._stderr.name).read_text()

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of its log so far, but for one that is being written."""
        path = self.logs / "test.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def ended_log(self, calls: int = 1) -> list[dict[str, Any]]:
        """Return its log once so many calls have had their last line: it comes after the bytes."""
        until = time.monotonic() + SOON_S
        while sum(line["verdict"] == "ended" for line in self.log()) < calls:
            assert time.monotonic() < until, self.log()
            time.sleep(0.02)
        return self.log()

    def connect(self) -> socket.socket:
        """Return a connection to the proxy, made where its clients are."""

        def make() -> socket.socket:
            return socket.create_connection(("127.0.0.1", self.port), SOON_S)

        return self.network.on_client_side(make) if self.network else make()

    def tunnel(self, authority: str) -> tuple[socket.socket, bytes]:
        """Ask for a tunnel; return the connection and the head of the answer."""
        sock = self.connect()
        sock.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        return sock, read_head(sock)

    def rss_kib(self) -> int:
        """Return its resident memory in KiB."""
        status = Path(f"/proc/{self.pid()}/status").read_text()
        return int(next(line for line in status.splitlines() if "VmRSS" in line).split()[1])

    def descriptors(self) -> int:
        """Return how many descriptors it holds."""
        return len(os.listdir(f"/proc/{self.pid()}/fd"))

    def pid(self) -> int:
        """Return the proxy's own pid: `ip netns exec` becomes it."""
        return self.process.pid

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment that points clients at it, and little else."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
        urls = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), self.url)
        return {**kept, "HOME": self._folder.name, **urls, "NODE_USE_ENV_PROXY": "1", **more}

    def run(
        self, *argv: str, timeout: float = CLIENT_S, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a client beside the proxy, with the environment that points at it."""
        command = self.network.argv(*argv) if self.network else list(argv)
        return subprocess.run(
            command, env=self.environment(**more), capture_output=True, text=True,
            timeout=timeout, check=False, stdin=subprocess.DEVNULL, cwd=self._folder.name,
        )  # fmt: skip

    def lnk(self, *words: str) -> str:
        """Run `lnk sandbox <words>` as the person whose settings it has; return what it prints."""
        done = subprocess.run(
            [str(LNK), "sandbox", *words],
            capture_output=True, text=True, timeout=SOON_S, check=True,
            env={"LNK_HOME": str(self.state), "HOME": self._folder.name, "PATH": os.defpath},
        )  # fmt: skip
        return done.stdout

    def end(self) -> int:
        """End the process in good order; return its exit status.  Its files stay."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SOON_S)

    def close(self) -> int:
        """End it in good order; return its exit status."""
        try:
            status = self.end()
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait(SOON_S)
            raise AssertionError("the proxy did not end within a minute") from None
        finally:
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    stream.close()
            self._stderr.close()
            with contextlib.suppress(OSError):
                self._folder.cleanup()
        return status

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_head(sock: socket.socket) -> bytes:
    """Read an answer's head a byte at a time, so that nothing behind it is taken."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and (byte := sock.recv(1)):
        head += byte
    return head


def read_all(sock: socket.socket) -> bytes:
    """Read to the end."""
    parts = []
    while data := sock.recv(1 << 18):
        parts.append(data)
    return b"".join(parts)
