"""What the test network's host shows to programs in a sandbox: a page, git, cargo, go."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.net.servers import Connection, http, ok

NAME, ADDRESS = "run.example.org", "203.0.113.13"
HELLO = b"hello from the server\n"
BIG = bytes(range(256)) * 4096 * 8
"""8 MiB, more than any buffer on the way holds."""

TOML = '[package]\nname = "demo"\nversion = "1.0.0"\nedition = "2021"\n'


def git_repository(folder: Path) -> dict[str, bytes]:
    """Return the files of a small repository, as a plain web server shows them."""
    work, bare = folder / "work", folder / "repo.git"
    nobody = {f"GIT_{who}_{what}": "tests@example.com"
              for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip
    quiet = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def git(*words: str, cwd: Path) -> None:
        environ = {**os.environ, **quiet, **nobody}
        subprocess.run(["git", *words], cwd=cwd, env=environ, check=True, timeout=150)

    work.mkdir()
    git("init", "-q", "-b", "main", cwd=work)
    (work / "file.txt").write_bytes(HELLO)
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", "first", cwd=work)
    git("clone", "-q", "--bare", str(work), str(bare), cwd=folder)
    git("update-server-info", cwd=bare)
    files = (path for path in bare.rglob("*") if path.is_file())
    return {f"/repo.git/{path.relative_to(bare)}": path.read_bytes() for path in files}


def cargo_registry() -> dict[str, bytes]:
    """Return a sparse registry that holds one crate, demo 1.0.0."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in (("Cargo.toml", TOML), ("src/lib.rs", "")):
            entry = tarfile.TarInfo(f"demo-1.0.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    crate = out.getvalue()
    about = {"name": "demo", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
             "cksum": hashlib.sha256(crate).hexdigest()}  # fmt: skip
    return {
        "/index/config.json": json.dumps({"dl": f"https://{NAME}/crates"}).encode(),
        "/index/de/mo/demo": json.dumps(about).encode() + b"\n",
        "/crates/demo/1.0.0/download": crate,
    }


def go_proxy() -> dict[str, bytes]:
    """Return a module proxy that holds one module, run.example.org/demo v1.0.0."""
    module = f"module {NAME}/demo\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{NAME}/demo@v1.0.0/go.mod", module)
        archive.writestr(f"{NAME}/demo@v1.0.0/demo.go", "package demo\n")
    at = f"/go/{NAME}/demo/@v/"
    return {
        at + "list": b"v1.0.0\n",
        at + "v1.0.0.info": b'{"Version": "v1.0.0", "Time": "2024-01-01T00:00:00Z"}',
        at + "v1.0.0.mod": module,
        at + "v1.0.0.zip": out.getvalue(),
    }


def files(folder: Path) -> dict[str, bytes]:
    """Return everything that the host shows, by its path."""
    return {
        "/hello.txt": HELLO,
        "/big": BIG,
        **git_repository(folder),
        **cargo_registry(),
        **go_proxy(),
    }


class Site:
    """Serves the files; `/to-https/…` leads on, `/echo` sends back, `/never` says nothing.

    `answered` counts the answers.
    """

    def __init__(self, shown: Mapping[str, bytes]) -> None:
        self.shown = shown
        self.answered = 0
        self.serve = http(self._answer)

    def __call__(self, connection: Connection) -> None:
        """Serve one connection."""
        self.serve(connection)

    def _answer(self, head: bytes, body: bytes) -> bytes:
        self.answered += 1
        method, target, _ = head.split(b"\r\n")[0].split(b" ")
        path = target.decode().partition("?")[0]
        if path.startswith("/to-https/"):
            to = f"https://{NAME}/{path.removeprefix('/to-https/')}"
            return f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()
        if path == "/never":
            return b""
        if path == "/echo":
            return ok(body)
        if path not in self.shown:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        whole = ok(self.shown[path])
        return whole[: len(whole) - len(self.shown[path])] if method == b"HEAD" else whole
