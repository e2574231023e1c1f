"""The official clients of hosted models, once a session, and how a test runs a program of them."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e import run_indexes
from tests.e2e.model_doubles import Double, doubles
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import SERVERS_V4
from tests.net.outside import TrustingNetwork
from tests.net.servers import Server, on_network
from tests.sandbox import lnk

HERE = Path(__file__).parent / "sdks"
PYTHON_SDKS = ("anthropic", "openai", "google-genai", "mistralai")
NODE_SDKS = ("@anthropic-ai/sdk", "openai")

SPEC = """
[models]
anthropic = {{ key = "env:REAL_ANTHROPIC" }}
openai = {{ key = "file:{folder}/openai" }}
google = {{ key = "env:REAL_GOOGLE" }}
mistral = {{ key = "env:REAL_MISTRAL" }}
server_tools = {server_tools}
[internet]
hosts = {hosts}
"""


@dataclass(frozen=True)
class Sdks:
    """A folder that everybody may read, with the clients and the programs that use them."""

    folder: str

    @property
    def packages(self) -> str:
        """Where Python's packages are."""
        return f"{self.folder}/python"

    def program(self, name: str) -> list[str]:
        """Return the command line of one of the programs."""
        if name.endswith(".mjs"):
            return ["node", f"{self.folder}/{name}"]
        environ = f"PYTHONPATH={self.packages}"
        return ["env", environ, lnk.public_python(), "-B", f"{self.folder}/{name}"]


def install(folder: str) -> Sdks:
    """Get the clients from the indexes that pip and npm are set up with."""
    made = Sdks(folder)
    run_indexes.install(folder, made.packages, *PYTHON_SDKS)
    npm = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder)
    run_indexes.get(*npm, *NODE_SDKS, cwd=folder)
    for path in HERE.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True, timeout=150)
    return made


@dataclass
class Providers:
    """Doubles of the providers on a network of their own, and the keys that lead to them."""

    network: TrustingNetwork
    doubles: dict[str, Double]
    servers: list[Server]
    keys: dict[str, str] = field(
        default_factory=lambda: {
            host: f"sk-real-{secrets.token_hex(16)}"
            for host in ("anthropic", "openai", "google", "mistral")
        }
    )

    def run(
        self,
        who: lnk.Account,
        installed: lnk.Installed,
        folder: str,
        sdks: Sdks,
        *argv: str,
        hosts: str = '["example.com"]',
        server_tools: str = "false",
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a sandbox that has routes to the providers, by placeholders alone."""
        keys = Path(folder, "keys")
        work = Path(folder, "work")
        for path in (keys, work):
            path.mkdir(exist_ok=True)
        (keys / "openai").write_text(f"{self.keys['openai']}\n")
        (keys / "spec.toml").write_text(
            SPEC.format(folder=keys, hosts=hosts, server_tools=server_tools)
        )
        for path in (keys, work, keys / "openai", keys / "spec.toml"):
            os.chown(path, who.uid, who.gid)
        flags = ["--yes", "--spec", str(keys / "spec.toml"), "--write", str(work)]
        flags += ["--read", sdks.folder]
        command = installed.argv("run", *flags, "--", *argv)
        real = {f"REAL_{name.upper()}": key for name, key in self.keys.items() if name != "openai"}
        return self.start(who, command, real, str(work))

    def start(
        self, who: lnk.Account, command: Sequence[str], environ: Mapping[str, str], cwd: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as somebody, where the providers are the doubles."""
        other = ["setpriv", "--reuid", str(who.uid), "--regid", str(who.gid), "--clear-groups"]
        argv = self.network.argv(*(other if who.uid != os.geteuid() else []), *command)
        path = f"/usr/sbin:/sbin:{lnk.PATH}"
        return subprocess.run(
            argv, env={**who.environ, **environ, "PATH": path}, cwd=cwd,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip


@contextmanager
def providers(authority: Authority) -> Iterator[Providers]:
    """Start a double of each provider, at its own name and a documentation address."""
    with ExitStack() as stack:
        network = TrustingNetwork(f"m{os.getpid()}", authority)
        stack.callback(network.close)
        made = doubles()
        names = {host: [address] for host, address in zip(made, SERVERS_V4, strict=True)}
        resolver = DnsDouble(network, names)
        stack.callback(resolver.close)
        servers = [
            stack.enter_context(
                on_network(network, names[host][0], 443, double, authority.context(host))
            )
            for host, double in made.items()
        ]
        yield Providers(network, made, servers)
