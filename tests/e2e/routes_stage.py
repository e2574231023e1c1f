"""A machine whose services are doubles over TLS, and runs with routes to them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tests.e2e import run_indexes
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.outside import TrustingNetwork
from tests.net.servers import Connection, Handler, http, on_network
from tests.sandbox import lnk

TELEGRAM, GITHUB = "api.telegram.org", "github.com"
PLACES = {TELEGRAM: "203.0.113.10", GITHUB: "203.0.113.11"}
BOT_RULE = {
    "host": TELEGRAM,
    "paths": ["/bot{secret}/{name}", "/file/bot{secret}/{path}"],
    "refused": ["/bot{secret}/setWebhook", "/bot{secret}/logOut", "/bot{secret}/close"],
}
"""As `lnk-telegram rule --json` prints it."""
GIT_RULE = {
    "host": GITHUB,
    "paths": ["/{path}"],
    "header": {"name": "Authorization", "value": "Basic {secret}"},
}
FD = "the descriptor"
"""The word of a command line in whose place its number is put."""
Answer = Callable[[bytes, bytes], bytes]


@dataclass
class Service:
    """One double: its answer may be changed, and it keeps what it got."""

    answer: Answer
    calls: list[tuple[bytes, bytes]] = field(default_factory=list)

    def __call__(self, connection: Connection) -> None:
        """Serve one connection."""
        serve: Handler = http(self._answer)
        serve(connection)

    def _answer(self, head: bytes, body: bytes) -> bytes:
        self.calls.append((head, body))
        return self.answer(head, body)


@dataclass
class Outside:
    """The network, and a service for each host."""

    network: TrustingNetwork
    services: dict[str, Service]

    def command(self, who: lnk.Account, argv: Sequence[str]) -> list[str]:
        """Return a command that somebody runs there."""
        other = ["setpriv", "--reuid", str(who.uid), "--regid", str(who.gid), "--clear-groups"]
        return self.network.argv(*(other if who.uid != os.geteuid() else []), *argv)

    def start(
        self,
        who: lnk.Account,
        argv: Sequence[str],
        given: object = None,
        environ: Mapping[str, str] | None = None,
        **more: Any,
    ) -> subprocess.Popen[str]:
        """Start a command there; `given` is what descriptor FD holds, as JSON."""
        passed: tuple[int, ...] = ()
        if given is not None:
            source, target = os.pipe()
            with open(target, "w") as told:
                json.dump(given, told)
            passed = (source,)
            argv = [str(source) if word == FD else word for word in argv]
        try:
            return subprocess.Popen(
                self.command(who, argv),
                env={**who.environ, "PATH": f"/usr/sbin:/sbin:{lnk.PATH}", **(environ or {})},
                **{"cwd": who.home, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, "text": True, "pass_fds": passed, **more},
            )  # fmt: skip
        finally:
            for fd in passed:
                os.close(fd)

    def run(
        self, who: lnk.Account, argv: Sequence[str], given: object = None, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end."""
        started = self.start(who, argv, given, **more)
        try:
            out, err = started.communicate(timeout=300)
        finally:
            started.kill()
        return subprocess.CompletedProcess(argv, started.returncode, out, err)


@contextmanager
def outside(authority: Authority, tag: str, **services: Answer) -> Iterator[Outside]:
    """Start a double for each host; a service is named by the first part of its host's name."""
    with ExitStack() as stack:
        network = TrustingNetwork(f"{tag}{os.getpid()}", authority)
        stack.callback(network.close)
        resolver = DnsDouble(network, {host: [place] for host, place in PLACES.items()})
        stack.callback(resolver.close)
        made = {TELEGRAM: Service(services["telegram"]), GITHUB: Service(services["github"])}
        for host, service in made.items():
            context = authority.context(host)
            stack.enter_context(on_network(network, PLACES[host], 443, service, context))
        yield Outside(network, made)


def said(value: object, status: str = "200 OK", *lines: str) -> bytes:
    """Return an answer whose body is JSON."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


def telegram(secret: str) -> Answer:
    """Return the Bot API's double, which knows one bot."""
    updates = [{"update_id": 7, "message": {"message_id": 1, "date": 1, "text": "hello",
                "chat": {"id": 5, "type": "private"}}}]  # fmt: skip
    bot = {"id": 123456789, "is_bot": True, "first_name": "b", "username": "b_bot"}

    def answer(head: bytes, body: bytes) -> bytes:
        _, path, _ = head.split(b"\r\n")[0].decode().split(" ")
        if path == f"/file/bot{secret}/documents/a.txt":
            return said(b"the file's bytes")
        found = re.fullmatch(rf"/bot{re.escape(secret)}/(\w+)(?:\?.*)?", path)
        if found is None:
            # A service that says back what it was told, as many do.
            return said({"ok": False, "error_code": 401, "description": path}, "401 Unauthorized")
        match found[1].lower():
            case "getme":
                return said({"ok": True, "result": bot})
            case "getupdates":
                return said({"ok": True, "result": updates})
            case "sendmessage":
                message = {
                    "message_id": 2,
                    "date": 1,
                    "text": "x",
                    "chat": {"id": 5, "type": "private"},
                }
                return said({"ok": True, "result": message})
            case "senddocument":
                message = {"message_id": 3, "date": 1, "chat": {"id": 5, "type": "private"}}
                return said({"ok": b"a.txt" in body, "result": message})
            case "getfile":
                return said({"ok": True, "result": {"file_id": "f", "file_unique_id": "u",
                             "file_path": "documents/a.txt"}})  # fmt: skip
            case "echo":
                return said(
                    {"ok": False, "error_code": 404, "description": head.decode()}, "404 No"
                )
            case "moved":
                return said(b"", "302 Found", f"Location: https://{TELEGRAM}/bot{secret}/getMe")
        return said({"ok": False, "error_code": 404, "description": "no such"}, "404 Not Found")

    return answer


def python_packages(folder: str, *names: str) -> str:
    """Get packages from the index that pip is set up with, for everybody; return their folder."""
    target = f"{folder}/packages"
    run_indexes.install(folder, target, *names)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True, timeout=150)
    return target


def processes(pid: int) -> dict[int, str]:
    """Return a process and all below it, each with its command line."""
    found: dict[int, str] = {}
    with suppress(FileNotFoundError, ProcessLookupError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        found[pid] = line.replace(b"\0", b" ").decode()
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                found |= processes(int(child))
    return found


def holds(pid: int, text: bytes) -> bool:
    """Tell whether a process has some bytes anywhere in its memory; one that has ended has none."""
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            return any(text in piece for piece in _memory(maps, memory))
    except (FileNotFoundError, ProcessLookupError):
        return False


def _memory(maps: Iterable[str], memory: BinaryIO) -> Iterator[bytes]:
    for line in maps:
        first, last = (int(word, 16) for word in line.split()[0].split("-"))
        with suppress(OSError, ValueError, OverflowError):  # the kernel's own pages
            memory.seek(first)
            yield memory.read(last - first)
