"""A verb of another plugin's, and local models, from inside a sandbox."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.net.servers import Server, http, listen
from tests.sandbox import lnk

pytestmark = [pytest.mark.timeout(600)]
EXAMPLE = Path(__file__).parent.parent / "examples" / "counting_bridge.py"


@pytest.fixture(scope="module")
def example(open_folder: str) -> str:
    """The example, where everybody may run it; it stands outside of the package."""
    path = os.path.join(open_folder, "counting_bridge.py")
    Path(path).write_text(EXAMPLE.read_text())
    os.chmod(path, 0o755)
    return path


def run(
    installed: lnk.Installed, who: lnk.Account, script: str, *routes: dict[str, Any], cwd: str
) -> subprocess.CompletedProcess[str]:
    proxy = {"upstream": "direct", "dir": f"{who.home}/.lnk/wires/box", "hosts": [],
             "routes": list(routes), "caller": "callers-key-0123456789"}  # fmt: skip
    net = {"proxied": {"proxy": proxy, "ports": []}}
    made = installed.wrap(who, ["sh", "-c", script], net=net, write=[cwd])
    return lnk.run(who, made["argv"], environ=made["env"], cwd=cwd)


def count(example: str, **more: Any) -> dict[str, Any]:
    argv = [lnk.public_python(), "-I", example]
    return {"kind": "bridge", "name": "count", "argv": argv, "env": {"COUNT_URL": "{url}"}, **more}


@pytest.mark.parametrize("closed", [False, True])
def test_another_plugins_bridge_serves_its_verb(
    installed: lnk.Installed, who: lnk.Account, folder: str, example: str, closed: bool
) -> None:
    script = """
    curl -s "$COUNT_URL/read?x=1"; echo; curl -s -d 3 "$COUNT_URL"; echo
    curl -s -d 30 -D head "$COUNT_URL" -o body -w '%{http_code}'; echo; curl -s "$COUNT_URL"; echo
    curl -s -o body -w '%{http_code}' http://127.0.0.1:40781/_link/count2; echo
    cat head; echo "$COUNT_URL"
    """
    done = run(installed, who, script, count(example, needs_secret=closed), cwd=folder)
    lines = done.stdout.splitlines()
    assert json.loads(lines[0]) == {"count": 0, "path": "/read?x=1", "for": "box"}, done.stderr
    assert json.loads(lines[1]) == {"count": 3}
    assert lines[2] == "403"
    assert json.loads(lines[3])["count"] == 3
    assert lines[4] == "404"
    assert "ink-" not in "".join(lines[5:-1])
    assert ("/_link/s/" in lines[-1]) is closed
    log = Path(f"{who.home}/.lnk/sandbox/log/box.jsonl").read_text()
    assert '"reason":"the counter is raised by 1 to 10"' in log
    assert "/read" not in log
    assert lines[-1].rpartition("/s/")[2].partition("/")[0] not in log


def test_a_bridge_that_does_not_start_is_a_502(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    route = {"kind": "bridge", "name": "count", "argv": ["/nowhere/bridge"], "env": {"U": "{url}"}}
    script = "curl -s -o body -w '%{http_code}' $U; cat body"
    done = run(installed, ordinary, script, route, cwd=ordinary_folder)
    assert done.stdout.startswith("502")
    assert "a bridge: the bridge count can't be run: No such file or directory" in done.stderr


def made_of(folder: str, kind: str) -> tuple[dict[str, object], str]:
    """Return a bridge that something in `folder`, or under it, decides; and what it names."""
    work, beside = f"{folder}/work", f"{folder}/beside"
    for path in (f"{work}/bin", beside):
        os.makedirs(path)
    for path in (f"{work}/bridge", f"{beside}/bridge"):
        Path(path).write_text("#!/bin/sh\n")
        os.chmod(path, 0o755)
    os.symlink("/usr/bin/python3", f"{work}/bin/python")
    os.symlink(beside, f"{work}/link")
    Path(f"{beside}/script").write_text(f"#!{work}/bin/python\n")
    Path(f"{beside}/by-env").write_text(f"#!/usr/bin/env -S {work}/bin/python -I\n")
    named = {
        "its program": f"{work}/bridge",
        "a virtual environment's": f"{work}/bin/python",
        "a link on the way": f"{work}/link/bridge",
        "a folder on the way": f"{work}/bin/../../beside/bridge",
        "an interpreter": f"{beside}/script",
        "what env finds": f"{beside}/by-env",
        "an argument": f"{work}/bridge",
        "an option's": f"{work}/bridge",
        "a socket": f"{work}/socket",
        "a link to a socket": f"{work}/link/socket",
    }[kind]
    if "socket" in kind:
        return {"kind": "bridge", "name": "count", "socket": named}, named
    argv = {"an argument": ["/usr/bin/env", named], "an option's": ["/bin/sh", f"--rcfile={named}"]}
    return {"kind": "bridge", "name": "count", "argv": argv.get(kind, [named])}, named


DECIDES = (
    "its program", "a virtual environment's", "a link on the way", "a folder on the way",
    "an interpreter", "what env finds", "an argument", "an option's", "a socket",
    "a link to a socket",
)  # fmt: skip


@pytest.mark.parametrize("kind", DECIDES)
def test_what_the_sandbox_writes_decides_nothing_that_runs_outside(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, kind: str
) -> None:
    """A link to the machine's python, in a project's `.venv`, would be anything the next time."""
    route, named = made_of(ordinary_folder, kind)
    proxy = {"upstream": "direct", "dir": f"{ordinary.home}/.lnk/w", "hosts": [],
             "routes": [route], "caller": "callers-key-0123456789"}  # fmt: skip
    net = {"proxied": {"proxy": proxy, "ports": []}}
    confinement: dict[str, object] = {"name": "box", "write": [f"{ordinary_folder}/work"],
                                      "read": [], "commands": "any", "net": net}  # fmt: skip
    request = {"confinement": confinement, "argv": ["true"]}
    done = installed.run(ordinary, "wrap", input=json.dumps(request))
    assert (done.returncode, done.stdout) == (125, "")
    does = "reaches" if "socket" in kind else "runs"
    assert f"a route {does} {named} outside, in {ordinary_folder}/work" in done.stderr
    assert done.stderr.count("\n") == 1
    confinement["write"] = []
    done = installed.run(ordinary, "wrap", input=json.dumps(request))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["a virtual environment's", "an interpreter"])
def test_nor_for_the_tools_of_a_run(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, kind: str
) -> None:
    _, named = made_of(ordinary_folder, kind)
    os.chmod(named, 0o755)
    added = installed.run(ordinary, "tool", "add", "notes", "--", named)
    assert added.returncode == 0, added.stderr
    spec = f"{ordinary_folder}/spec.toml"
    Path(spec).write_text(
        f'[files]\nwrite = ["{ordinary_folder}/work"]\n[tools]\nuse = ["notes"]\n'
    )
    done = installed.run(ordinary, "run", "--yes", "--spec", spec, "--", "true")
    installed.run(ordinary, "tool", "remove", "notes")
    assert (done.returncode, done.stdout) == (125, "")
    assert f"a route runs {named} outside, in {ordinary_folder}/work" in done.stderr


# Local models.


class Runtime:
    """A runtime's double, on this machine's loopback."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.server = Server(listen("127.0.0.1", 0), http(self.answer))

    @property
    def port(self) -> int:
        return self.server.address[1]

    def answer(self, head: bytes, body: bytes) -> bytes:
        self.asked.append(head.split(b"\r\n")[0])
        if b"/api/generate" in self.asked[-1]:
            pieces = b"".join(b'9\r\n{"n": %d}\n\r\n' % n for n in range(5))
            return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"
        said = b'{"models": []}'
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime()
    with closing(made.server):
        yield made


CALLS = """
at=$1
curl -s $at/api/tags; echo
curl -s -d '{}' $at/api/generate
curl -s -o body -w '%{http_code}\\n' -X DELETE $at/api/delete
curl -s -o body -w '%{http_code}\\n' --path-as-is $at/api/../api/tags
curl -s $at/api/tags $at/v1/models; echo
"""


@pytest.mark.parametrize("way", ["its own port", "the proxy's path"])
def test_a_local_model_infers_and_does_nothing_else(
    installed: lnk.Installed, who: lnk.Account, folder: str, runtime: Runtime, way: str
) -> None:
    at = (
        f"http://localhost:{runtime.port}"
        if way == "its own port"
        else (f"$LNK_LOCAL_MODEL_{runtime.port}")
    )
    script = CALLS.replace("$1", at)
    done = run(installed, who, script, {"kind": "local", "port": runtime.port}, cwd=folder)
    lines = done.stdout.splitlines()
    assert lines[0] == '{"models": []}', done.stderr
    assert [json.loads(line)["n"] for line in lines[1:6]] == list(range(5))
    assert lines[6:8] == ["403", "403"]
    assert lines[8] == '{"models": []}{"models": []}'
    assert runtime.asked == [
        b"GET /api/tags HTTP/1.1", b"POST /api/generate HTTP/1.1",
        b"GET /api/tags HTTP/1.1", b"GET /v1/models HTTP/1.1",
    ]  # fmt: skip
    assert runtime.server.accepted == 4  # one request a connection


def test_a_spec_has_local_models_and_refuses_them_raw_beside(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, runtime: Runtime
) -> None:
    spec = Path(ordinary_folder, "box.toml")
    spec.write_text(f"[models]\nlocal = [{runtime.port}]\n")
    url = f"http://localhost:{runtime.port}/api/tags"
    done = installed.run(ordinary, "run", "--yes", "--spec", str(spec), "--", "curl", "-s", url)
    assert done.stdout == '{"models": []}', done.stderr
    for key in ("ports", "serve"):
        spec.write_text(
            f"[models]\nlocal = [{runtime.port}]\n[localhost]\n{key} = [{runtime.port}]\n"
        )
        done = installed.run(ordinary, "run", "--yes", "--spec", str(spec), "--", "true")
        assert done.returncode == 2
        assert "models.local[0]: " in done.stderr


def test_a_wire_that_is_stopped_stops_local_models_too(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, runtime: Runtime
) -> None:
    installed.run(ordinary, "stop")
    try:
        script = f"curl -s -o body -w '%{{http_code}}' http://localhost:{runtime.port}/api/tags"
        route = {"kind": "local", "port": runtime.port}
        done = run(installed, ordinary, script, route, cwd=ordinary_folder)
    finally:
        installed.run(ordinary, "start")
    assert done.stdout == "503"
    assert runtime.asked == []
