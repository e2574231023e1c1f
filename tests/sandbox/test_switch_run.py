"""The kill switch, pauses, limits, log and traffic of `run`, and of `wrap`'s kept commands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.sandbox import lnk
from tests.sandbox.test_run import HOST, Net, as_other, net

__all__ = ["net"]  # a fixture

ASKS = """
import os, socket, sys, urllib.parse
where = urllib.parse.urlsplit(os.environ["HTTP_PROXY"])
for line in sys.stdin:
    host = line.strip()
    with socket.create_connection((where.hostname, where.port), 30) as sock:
        sock.sendall(f"GET http://{host}/ HTTP/1.1\\r\\nHost: {host}\\r\\n"
                     "Connection: close\\r\\n\\r\\n".encode())
        said = b""
        while data := sock.recv(4096):
            said += data
    print(said.split(b"\\r\\n")[0].decode(), flush=True)
"""


class Asking:
    """A program in a sandbox that makes a call a line, and prints what was answered."""

    def __init__(self, net: Net, who: lnk.Account, argv: list[str], **environ: str) -> None:
        self._net, self._who = net, who
        self.process = subprocess.Popen(
            net.network.argv(*as_other(who), *argv),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=who.home, env={**who.environ, "PATH": "/usr/sbin:/sbin:" + lnk.PATH, **environ},
        )  # fmt: skip

    @property
    def name(self) -> str:
        """A run's own name."""
        return f"run-{self.process.pid}"

    def ask(self, host: str = HOST) -> str:
        """Make a call; return the status and the reason phrase."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{host}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip().removeprefix("HTTP/1.1 ")

    def lnk(self, *words: str) -> str:
        """Run `lnk sandbox <words>` as the person outside."""
        done = self._net.installed.run(self._who, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self) -> str:
        """End the program; return what was said on stderr."""
        return self.process.communicate(timeout=lnk.LONG_S)[1]


@pytest.fixture
def running(net: Net, who: lnk.Account) -> Iterator[Callable[..., Asking]]:
    made: list[Asking] = []

    def start(*words: str) -> Asking:
        inside = [net.installed.python, "-I", "-S", "-c", ASKS]
        made.append(Asking(net, who, net.installed.argv("run", "--yes", *words, "--", *inside)))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.end()
    net.installed.run(who, "start")


def test_a_run_is_stopped_shown_and_started_again(running: Callable[..., Asking]) -> None:
    began = lnk.now()
    box = running("--internet-host", HOST)
    assert box.ask() == "200 OK"
    name = box.name
    assert len(carried(box)) == 1
    box.lnk("stop")
    assert box.ask() == "503 The wire is stopped"
    box.lnk("start")
    assert box.ask() == "200 OK"
    lines = lnk.logged_since(box.lnk("log", name, "--json"), began)
    assert [(one["verdict"], one["host"]) for one in lines] == [
        ("allowed", HOST), ("ended", HOST), ("refused", HOST), ("allowed", HOST), ("ended", HOST),
    ]  # fmt: skip
    assert {one["sandbox"] for one in lines} == {name}
    assert "the wire is stopped; outside, `lnk sandbox start` opens it again" in box.end()
    assert carried(box) == []


def carried(box: Asking) -> list[dict[str, object]]:
    """Return what `traffic` tells of a run; another test's may still be ending."""
    told = json.loads(box.lnk("traffic", "--json"))
    return [one for one in told if one["sandbox"] == box.name]


def paused_runs(*boxes: Asking) -> list[dict[str, str]]:
    """Return what `paused` tells of some runs; what another test has paused stays so."""
    told = json.loads(boxes[0].lnk("paused", "--json"))["paused"]
    return [one for one in told if one["sandbox"] in {box.name for box in boxes}]


def test_a_run_that_calls_a_metadata_service_is_paused_until_it_is_resumed(
    running: Callable[..., Asking],
) -> None:
    box, other = running("--internet-host", HOST), running("--internet-host", HOST)
    assert other.ask() == "200 OK"
    assert box.ask("169.254.169.254").startswith("403 ")
    assert box.ask() == "503 The wire is paused"
    assert other.ask() == "200 OK"
    (told,) = paused_runs(box, other)
    assert told["sandbox"] == box.name
    assert "169.254.169.254" in told["why"]
    box.lnk("resume", told["sandbox"])
    assert box.ask() == "200 OK"
    assert box.ask("169.254.169.254").startswith("403 ")
    assert f"lnk sandbox resume {told['sandbox']}" in box.end()
    assert paused_runs(box, other) == []  # a run's ends with it


def test_a_spec_limits_the_calls_a_minute(
    running: Callable[..., Asking], who: lnk.Account, folder: str
) -> None:
    spec = f"{folder}/box.toml"
    with open(spec, "w") as file:
        file.write(f'[network]\nper_minute = 2\n[internet]\nhosts = ["{HOST}"]\n')
    box = running("--spec", spec)
    answers = [box.ask(), box.ask("evil.test"), box.ask()]
    assert [answer.split()[0] for answer in answers] == ["200", "403", "429"]


def test_a_kept_command_looks_at_the_settings_it_was_made_with(net: Net, who: lnk.Account) -> None:
    """Whatever the environment says when it is run: that may be the program's own."""
    proxy = {"upstream": "direct", "dir": f"{who.home}/wires/kept", "hosts": [HOST],
             "per_minute": 3}  # fmt: skip
    made = net.installed.wrap(
        who, [net.installed.python, "-I", "-S", "-c", ASKS], name="kept",
        net={"proxied": {"proxy": proxy, "ports": []}},
    )  # fmt: skip
    elsewhere = {"HOME": "/nonexistent", "LNK_HOME": "/nonexistent/lnk", **made["env"]}
    box = Asking(net, who, made["argv"], **elsewhere)
    try:
        assert box.ask() == "200 OK"
        box.lnk("stop")
        assert box.ask() == "503 The wire is stopped"
        box.lnk("start")
        assert [box.ask().split()[0] for _ in range(3)] == ["200", "200", "429"]
        told = json.loads(box.lnk("traffic", "--json"))
        assert [one["sandbox"] for one in told if one["sandbox"] in ("kept", box.name)] == ["kept"]
        assert box.ask("169.254.169.254").startswith("429 ")  # it is over the limit first
    finally:
        box.end()
        box.lnk("start")
