"""Official clients of MCP, inside a sandbox, with official servers outside (R53).

`mcp` comes from the package index, `@modelcontextprotocol/…` from npm's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import run_indexes
from tests.sandbox import lnk
from tests.sandbox.test_tools import Person

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
SCOPE = "@modelcontextprotocol"
JS = [f"{SCOPE}/sdk", f"{SCOPE}/server-everything", f"{SCOPE}/server-filesystem"]
ALLOWED = ("echo", "trigger-long-running-operation", "trigger-sampling-request")
SAYS = {'"a": 2': "yes", '"a": 4': "no"}

Steps = dict[str, dict[str, Any]]


class Tools:
    """The official servers as a person's tools, and a spec that reaches them."""

    def __init__(self, installed: lnk.Installed, who: lnk.Account, folder: str) -> None:
        self.installed, self.who, self.folder = installed, who, folder
        self.spec = f"{who.home}/mcp-spec.toml"
        self.file = f"{folder}/docs/a.txt"
        os.mkdir(f"{folder}/docs")
        with open(self.file, "w") as file:
            file.write("content")
        for name in ("mcp_client.py", "mcp_client.mjs", "mcp_server.py"):
            shutil.copy(HERE / name, f"{folder}/js")
        allow = [word for name in ALLOWED for word in ("--allow", name)]
        servers = f"{folder}/js/node_modules/{SCOPE}"
        every = f"{servers}/server-everything/dist/index.js"
        self._add("everything", *allow, "--", "node", every, "stdio")
        files = f"{servers}/server-filesystem/dist/index.js"
        self._add("files", "--allow", "read_text_file", "--", "node", files, f"{folder}/docs")
        # A tool gets nothing of a person's environment: where its packages are, it says itself.
        own = f"import sys; sys.path.append({folder!r} + '/site'); sys.argv[0:] = ['s']; "
        own += f"exec(open({folder!r} + '/js/mcp_server.py').read())"
        self._add("modern", "--ask", "none", "--", "/usr/bin/python3", "-c", own)
        with open(self.spec, "w") as file:
            file.write(f'[files]\nread = ["{folder}"]\n')
            file.write('[tools]\nuse = ["everything", "files", "modern"]\n')

    def _add(self, name: str, *words: str) -> None:
        done = self.installed.run(self.who, "tool", "add", name, *words)
        assert done.returncode == 0, done.stderr

    def run(self, *argv: str) -> Steps:
        """Run a client inside; return what it told of each step."""
        words = ["run", "--yes", "--spec", self.spec, "--", *argv]
        with Person(self.installed, self.who, SAYS) as person:
            done = self.installed.run(self.who, *words, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(person.asked) == len(SAYS), person.asked
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return {line.pop("what"): line for line in lines}


@pytest.fixture(scope="module")
def outside(
    installed: lnk.Installed, open_folder: str, people: dict[str, lnk.Account]
) -> Iterator[Tools]:
    folder = os.path.join(open_folder, "mcp")
    os.makedirs(f"{folder}/js")
    pip = (sys.executable, "-I", "-m", "pip", "install", "-q")
    run_indexes.get(*pip, "--target", f"{folder}/site", "mcp")
    npm = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", f"{folder}/js")
    run_indexes.get(*npm, *JS)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    who = people[list(people)[-1]]
    made = Tools(installed, who, folder)
    yield made
    for name in ("everything", "files", "modern"):
        installed.run(who, "tool", "remove", name)


def check_steps(told: Steps) -> None:
    assert {"echo", "get-sum"} <= set(told["tools"]["names"])
    assert told["allowed"]["text"] == "Echo: hello"
    assert told["approved"]["text"] == "The sum of 2 and 3 is 5."
    assert told["refused"]["error"] == 403
    assert "person refused" in told["refused"]["message"]
    assert "completed" in told["progress"]["text"]
    assert "cancelled" in told
    assert told["stopped"]["waited"]["text"] == "1 begun, 1 cancelled"  # at the server too
    assert told["resources"]["count"] > 0


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_the_python_client_calls_tools_outside(outside: Tools, mode: str, version: str) -> None:
    client = f"{outside.folder}/js/mcp_client.py"
    site = f"PYTHONPATH={outside.folder}/site"
    told = outside.run("/usr/bin/env", site, "/usr/bin/python3", client, mode)
    check_steps(told)
    assert told["version"]["version"] == "2025-11-25"  # all that this server speaks
    assert told["progress"]["steps"] == [[1, 4], [2, 4], [3, 4], [4, 4]]
    assert told["after"]["text"] == "Echo: still"
    assert told["own version"]["version"] == version
    assert told["own"]["text"] == "3"
    assert told["big"]["size"] == 2_000_000
    assert told["dying"]["error"] == -32603
    assert told["risen"]["text"] == "7"


def test_the_javascript_client_calls_tools_outside(outside: Tools) -> None:
    client = f"{outside.folder}/js/mcp_client.mjs"
    told = outside.run("/usr/bin/node", client, outside.file)
    check_steps(told)
    assert told["version"]["version"] == "2025-11-25"
    assert told["progress"]["steps"] == [1, 2, 3, 4]
    assert told["late"]["error"] == -32001
    assert told["sampling"]["asked"].endswith("p")
    assert "sampled" in told["sampled"]["text"]
    assert told["read"]["text"] == "content"
    assert told["outside"]["isError"]
