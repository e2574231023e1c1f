"""Real clients through the real proxy, pointed at it by HTTPS_PROXY alone."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import Nodes
from tests.e2e.proxy import SHELLS, Proxy
from tests.e2e.run_indexes import INDEX_S, got
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import http, ok, on_network

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1200)]
HOST = "203.0.113.12"
NAME = "packages.example.org"
HELLO = b"hello from the server\n"
Files = dict[str, bytes]


def git_repository(folder: Path) -> Files:
    """Return the files of a small repository, as a plain web server shows them."""
    work, bare = folder / "work", folder / "repo.git"
    environment = {
        **os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
        **{f"GIT_{who}_{what}": "tests@example.com"
           for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }  # fmt: skip

    def git(*words: str, cwd: Path) -> None:
        subprocess.run(
            ["git", *words], cwd=cwd, env=environment, check=True, capture_output=True, timeout=150
        )

    work.mkdir()
    git("init", "-q", "-b", "main", cwd=work)
    (work / "file.txt").write_bytes(HELLO)
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", "first", cwd=work)
    git("clone", "-q", "--bare", str(work), str(bare), cwd=folder)
    git("update-server-info", cwd=bare)
    files = (path for path in bare.rglob("*") if path.is_file())
    return {f"/repo.git/{path.relative_to(bare)}": path.read_bytes() for path in files}


def wheel() -> bytes:
    """Return a wheel of nothing, named demo 1.0."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("demo.py", "")
        info = "demo-1.0.dist-info/"
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr(
            info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(info + "RECORD", "")
    return out.getvalue()


def tarball() -> bytes:
    """Return an npm package of nothing, named demo 1.0.0."""
    out = io.BytesIO()
    manifest = json.dumps({"name": "demo", "version": "1.0.0"}).encode()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(manifest)
        archive.addfile(entry, io.BytesIO(manifest))
    return out.getvalue()


def site(folder: Path, scheme: str) -> Files:
    """Return everything that the package host shows: a page, a repository, two indexes."""
    packed = tarball()
    digest = base64.b64encode(hashlib.sha512(packed).digest()).decode()
    manifest = {
        "name": "demo", "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {
            "name": "demo", "version": "1.0.0",
            "dist": {"tarball": f"{scheme}://{NAME}/demo/-/demo-1.0.0.tgz",
                     "integrity": f"sha512-{digest}"},
        }},
    }  # fmt: skip
    return {
        "/hello.txt": HELLO,
        "/simple/demo/": b'<a href="/files/demo-1.0-py3-none-any.whl">demo</a>',
        "/files/demo-1.0-py3-none-any.whl": wheel(),
        "/demo": json.dumps(manifest).encode(),
        "/demo/-/demo-1.0.0.tgz": packed,
        **git_repository(folder),
    }


def serving(files: Files) -> Callable[[bytes, bytes], bytes]:
    """Answer GET and HEAD from a table of files."""

    def answer(head: bytes, _: bytes) -> bytes:
        method, target, _ = head.split(b"\r\n")[0].split(b" ")
        path = target.decode().partition("?")[0]
        if path not in files:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        kind = "text/html" if path.startswith("/simple/") else "application/octet-stream"
        kind = "application/json" if path == "/demo" else kind
        whole = ok(files[path], f"Content-Type: {kind}")
        return whole[: -len(files[path])] if method == b"HEAD" and files[path] else whole

    return answer


@pytest.fixture(scope="session", params=["https", "http"])
def package_host(
    request: pytest.FixtureRequest,
    network: Network,
    resolver: DnsDouble,
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The base URL of a package host, over TLS and plain."""
    scheme: str = request.param
    files = site(tmp_path_factory.mktemp("site"), scheme)
    context, port = (authority.context(NAME), 443) if scheme == "https" else (None, 80)
    with on_network(network, HOST, port, http(serving(files)), context):
        yield f"{scheme}://{NAME}"


@pytest.fixture(scope="session")
def node(nodes: Nodes) -> str:
    """A Node whose fetch can be told of a proxy (22.21 and later)."""
    return nodes.new


FETCH = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))"


def client(name: str, base: str, ca: Path, into: Path, node: str) -> list[str]:
    """Return the command that gets something from the package host with one client."""
    page = f"{base}/hello.txt"
    pip = [sys.executable, "-I", "-m", "pip", "download", "-v", "--no-deps", "--no-cache-dir",
           "--disable-pip-version-check", "--retries", "1", "--cert", str(ca), "-d", str(into),
           "--trusted-host", NAME, "--index-url", f"{base}/simple/", "demo"]  # fmt: skip
    return {
        "curl": ["curl", "-sSv", "-f", "--cacert", str(ca), "-o", str(into / "out"), page],
        "wget": ["wget", "-nv", "-t", "1", "--no-config", f"--ca-certificate={ca}",
                 "--server-response", "-O", str(into / "out"), page],
        "git": ["git", "-c", f"http.sslCAInfo={ca}", "clone", "-q", f"{base}/repo.git",
                str(into / "repo")],
        "pip": pip,
        "npm": ["npm", "pack", "--loglevel=http", "--registry", f"{base}/", f"--cafile={ca}",
                "--fetch-retries=0", "--update-notifier=false",
                "--cache", str(into / "cache"), "--pack-destination", str(into), "demo"],
        "fetch": [node, "-e", FETCH, page],
    }[name]  # fmt: skip


RESULT = {"curl": "out", "wget": "out", "git": "repo/file.txt", "npm": "demo-1.0.0.tgz",
          "pip": "demo-1.0-py3-none-any.whl", "fetch": None}  # fmt: skip
CLEAN = {
    "PIP_CONFIG_FILE": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
}


def environment_for(ca: Path) -> dict[str, str]:
    """Return what a client needs beside the proxy's address."""
    return {**CLEAN, "NODE_EXTRA_CA_CERTS": str(ca)}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", list(RESULT))
def test_a_client_reaches_a_listed_host(
    name: str, shell: str, package_host: str, network: Network, dns: DnsDouble,
    authority: Authority, tmp_path: Path, node: str,
) -> None:  # fmt: skip
    with Proxy(network, "--hosts", NAME, shell=shell) as proxy:
        argv = client(name, package_host, authority.pem, tmp_path, node)
        ran = proxy.run(*argv, **environment_for(authority.pem))
        assert ran.returncode == 0, ran.stderr + proxy.stderr() + str(proxy.log())
        hosts = {line["host"] for line in proxy.log()}
    result = RESULT[name]
    if result is None:
        assert ran.stdout == HELLO.decode()
    else:
        assert (tmp_path / result).stat().st_size > 0
    assert hosts == {NAME}
    assert dns.names_asked() == {NAME}


# What shows a refused CONNECT's or request's reason phrase to its user.
SHOWS_PHRASE = {"https": ("curl", "wget", "pip"), "http": ("curl", "wget")}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", list(RESULT))
def test_a_client_is_refused_at_an_unlisted_host_and_told_the_key(
    name: str, shell: str, package_host: str, network: Network, dns: DnsDouble,
    authority: Authority, tmp_path: Path, node: str,
) -> None:  # fmt: skip
    with Proxy(network, "--hosts", "example.com", shell=shell) as proxy:
        argv = client(name, package_host, authority.pem, tmp_path, node)
        ran = proxy.run(*argv, **environment_for(authority.pem))
        lines = proxy.log()
    result = RESULT[name]
    if result is None:
        assert HELLO.decode() not in ran.stdout
    else:
        assert ran.returncode != 0
        assert not (tmp_path / result).exists() or name == "wget"
    assert dns.asked == []
    assert {line["verdict"] for line in lines} == {"refused"}
    assert {line["host"] for line in lines} == {NAME}
    assert all(f"add --hosts {NAME}." in line["reason"] for line in lines)
    if name in SHOWS_PHRASE[package_host.partition(":")[0]]:
        assert f"add --hosts {NAME}" in ran.stderr + ran.stdout


def index_hosts() -> list[str]:
    """Return the hosts of pip's own package index, as pip is set up here."""
    script = Path(__file__).parents[2] / ".ci" / "index_hosts.py"
    ran = subprocess.run(
        [sys.executable, "-I", str(script)], capture_output=True, text=True, check=True, timeout=150
    )
    return [word for word in ran.stdout.split() if not word.startswith("--")]


@pytest.mark.parametrize("shell", SHELLS)
def test_pip_downloads_from_the_real_package_index(shell: str, tmp_path: Path) -> None:
    pip = [sys.executable, "-I", "-m", "pip", "download", "--no-deps", "--no-cache-dir", "-q",
           "--disable-pip-version-check", "-d", str(tmp_path), "six"]  # fmt: skip
    with Proxy(None, "--hosts", ",".join(index_hosts()), shell=shell) as proxy:
        ran = got(lambda: proxy.run(*pip, timeout=INDEX_S))
        assert ran.returncode == 0, ran.stderr + str(proxy.log())
        assert any(line["verdict"] == "allowed" for line in proxy.log())
    assert [path.name for path in tmp_path.glob("six-*")]


@pytest.mark.parametrize("shell", SHELLS)
def test_npm_packs_from_the_real_registry(shell: str, tmp_path: Path) -> None:
    registry = subprocess.run(
        ["npm", "config", "get", "registry"],
        capture_output=True,
        text=True,
        check=True,
        timeout=150,
    ).stdout.strip()
    host = urlsplit(registry).hostname
    assert host
    npm = ["npm", "pack", "--registry", registry, "--cache", str(tmp_path / "cache"),
           "--pack-destination", str(tmp_path), "is-number@7.0.0"]  # fmt: skip
    with Proxy(None, "--hosts", host, shell=shell) as proxy:
        ran = got(lambda: proxy.run(*npm, timeout=INDEX_S))
        assert ran.returncode == 0, ran.stderr + str(proxy.log())
        assert any(line["verdict"] == "allowed" for line in proxy.log())
    assert (tmp_path / "is-number-7.0.0.tgz").exists()
