"""What a sandbox costs to start, as multiples of bare bubblewrap running `true`.

    apt-get install --no-install-recommends bubblewrap gcc iproute2 curl npm nodejs socat ripgrep
    python -m bench.start            # as root: it makes network namespaces; some three minutes
    python -m bench.start --quick    # half a minute, to see whether something broke
    python -m bench.start --json     # every value, for another program

Bare bubblewrap has a plain sandbox's namespaces, /usr, /proc and /dev.  Each round starts
every command in turn, some times each, and keeps the median; ratios are made within a
round.  Beside the time to the end stands the CPU that all of a start's processes used: where
others are busy on the machine, it is the steadier of the two.

Then the memory of a sandbox's idle proxy, and the tunnel into a sandbox beside the same
proxy with none.  srt is measured where npm installs it.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from bench import peers, sandboxes, srt
from bench.load import FIRST_PORT, HOST, NAME, Load
from bench.needs import NotRoot
from bench.report import Measured, run
from bench.sandboxes import PROXY_PORT, TRUE, Copies
from bench.started import Start, adopt, started
from bench.table import Row, progress, ratios

ROUNDS, QUICK_ROUNDS = 9, 2
TIMES, QUICK_TIMES = 5, 2
"""How often a round starts each command (srt, which takes long, half as often)."""
AGAIN = 5
CLONE_NEWNS = 0x20000
GIB = 1 << 30
CARRIED, QUICK_CARRIED = 4 * GIB, GIB // 4
"""Bytes of a round's tunnels; with a quarter of it, sixteen connections measure the scheduler."""
TUNNEL_ROUNDS = 15

BARE = "bare bubblewrap"
KEPT, CLOSED = "kept command, with a proxy", "kept command, without a network"
LISTED = "kept command, with an exec list"
LISTED_KEPT = "kept command, with an exec list and a proxy"
RUN, RUN_BARE = "run, with a proxy", "run, with a proxy, by python -I -S"
FIRST, SRT_FIRST = "first byte by curl, from run", "first byte by curl, from srt"
SRT, FURNISHED, PYTHON = "srt", "bubblewrap with all our mounts", "python -I -S alone"
CURL = "first byte by curl, no sandbox"


@dataclass(frozen=True)
class Command:
    """What is started.

    first: its first byte counts, not its end.  again: how often it is started anew after
    it failed; srt's program may run before its relay listens.
    """

    argv: list[str]
    environ: Mapping[str, str]
    first: bool = False
    again: int = 0


Samples = dict[str, list[Start]]
"""By the command's name, the medians of a round."""


def measure(quick: bool) -> Measured:
    """Return every row, and what is to be said of them."""
    if os.geteuid() != 0:
        raise NotRoot
    adopt()
    with tempfile.TemporaryDirectory(prefix="lnk-start-") as folder, Load(str(os.getpid())) as load:
        os.chmod(folder, 0o755)
        progress("installing")
        copies = sandboxes.install(folder)
        said = [f"Sandboxes: {copies.installed.python}, the package compiled."]
        commands = ours(copies)
        try:
            commands |= theirs(folder)
        except srt.CannotRun as error:
            said.append(f"srt is left out: {error}")
        failed: list[str] = []

        def on_client_side() -> Samples:
            name_the_server(load)
            return rounds_of(commands, quick, failed)

        samples = load.network.on_client_side(on_client_side)
        if failed:
            said.append(f"srt's program failed {len(failed)} times, and was started again.")
        rows = start_rows(samples) + cpu_rows(samples)
        rows += [memory_row(load, copies), *tunnel_rows(load, copies, quick)]
    return rows, said


def name_the_server(load: Load) -> None:
    """Give this thread, and what it starts, the network's own /etc/hosts.

    As `ip netns exec` does, whose own start would count here.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    hosts = f"/etc/netns/{load.network.client}/hosts"
    for words in (["--make-rprivate", "/"], ["--bind", hosts, "/etc/hosts"]):
        subprocess.run(["mount", *words], check=True, timeout=20)


def ours(copies: Copies) -> dict[str, Command]:
    """Return our commands, and those they are compared with.

    The host is listed by name, as nearly all are: `run` has to judge an address, and imports
    some twenty modules for it.
    """
    environ = dict(copies.who.environ)
    closed = copies.closed("true")
    only = {"commands": {"only": [TRUE]}}
    kept, within = copies.proxied([NAME], "true")
    kept_listed, _ = copies.proxied([NAME], "true", **only)
    page = ["curl", "-sSf", f"http://{NAME}:{FIRST_PORT}/"]
    return {
        BARE: Command(sandboxes.bare(closed), {}),
        FURNISHED: Command(sandboxes.furnished(closed), {}),
        PYTHON: Command([copies.installed.python, "-I", "-S", "-c", "pass"], {}),
        CLOSED: Command(closed, environ),
        LISTED: Command(copies.closed("true", **only), environ),
        LISTED_KEPT: Command(kept_listed, within),
        KEPT: Command(kept, within),
        RUN_BARE: Command(copies.run_bare("--internet-host", NAME, "--", "true"), environ),
        RUN: Command(copies.run("--internet-host", NAME, "--", "true"), environ),
        FIRST: Command(copies.run("--internet-host", NAME, "--", *page), environ, first=True),
        CURL: Command(["/usr/bin/curl", *page[1:]], {}, first=True),
    }


def theirs(folder: str) -> dict[str, Command]:
    """Return srt's commands."""
    place = os.path.join(folder, "srt")
    os.mkdir(place)
    command, version = srt.install(place, [NAME])
    environ = {"HOME": place, "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    page = f"curl -sSf http://{NAME}:{FIRST_PORT}/"
    progress(f"srt {version}")
    return {
        SRT: Command([*command, TRUE], environ),
        SRT_FIRST: Command([*command, page], environ, first=True, again=AGAIN),
    }


def rounds_of(commands: dict[str, Command], quick: bool, failed: list[str]) -> Samples:
    """Start every command, round by round, the order turned by one each time.

    Starts that failed and were made anew are named in `failed`.
    """
    names = list(commands)
    rounds, times = (QUICK_ROUNDS, QUICK_TIMES) if quick else (ROUNDS, TIMES)
    samples: Samples = {name: [] for name in names}
    for name in names:
        _started(commands[name], failed)  # what it reads is cached now
    for number in range(rounds):
        turn = number % len(names)
        taken: dict[str, list[Start]] = {name: [] for name in names}
        for again in range(times):
            progress(f"round {number + 1} of {rounds}: start {again + 1} of {times}")
            for name in names[turn:] + names[:turn]:
                if name in (SRT, SRT_FIRST) and again % 2:
                    continue
                taken[name].append(_started(commands[name], failed))
        for name in names:
            samples[name].append(_median(taken[name]))
    return samples


def _started(command: Command, failed: list[str]) -> Start:
    for _ in range(command.again):
        try:
            return started(command.argv, command.environ)
        except RuntimeError as error:
            failed.append(str(error))
    return started(command.argv, command.environ)


def _median(starts: list[Start]) -> Start:
    return Start(
        statistics.median(one.first_s for one in starts),
        statistics.median(one.end_s for one in starts),
        statistics.median(one.cpu_s for one in starts),
    )


def start_rows(samples: Samples) -> list[Row]:
    """Return how long each takes, by bare bubblewrap and by srt."""
    bare = [one.end_s for one in samples[BARE]]

    def row(name: str, goal: float | None = None) -> Row:
        first = name in (FIRST, SRT_FIRST, CURL)
        values = [one.first_s if first else one.end_s for one in samples[name]]
        return Row(name, ratios(values, bare), "× bare", goal, at_most=True)

    rows = [row(KEPT, 4.5), row(CLOSED, 3.5), row(LISTED, 7.5), row(RUN, 8), row(FIRST)]
    if SRT in samples:
        for what, name, other, goal in ((RUN, RUN, SRT, 1 / 6), (FIRST, FIRST, SRT_FIRST, 1 / 3)):
            pairs = zip(samples[name], samples[other], strict=True)
            values = [
                a.first_s / b.first_s if name == FIRST else a.end_s / b.end_s for a, b in pairs
            ]
            rows.append(Row(what, values, "× srt", goal, at_most=True))
        rows += [row(SRT), row(SRT_FIRST)]
    rows += [row(name) for name in (LISTED_KEPT, RUN_BARE, FURNISHED, PYTHON, CURL)]
    return [*rows, Row(BARE, [one * 1000 for one in bare], "ms")]


def cpu_rows(samples: Samples) -> list[Row]:
    """Return the CPU each uses, all its processes together, by that of bare bubblewrap."""
    bare = [one.cpu_s for one in samples[BARE]]
    rows = [
        Row(f"CPU: {name}", ratios([one.cpu_s for one in starts], bare), "× bare")
        for name, starts in samples.items()
        if name != BARE
    ]
    return [*rows, Row(f"CPU: {BARE}", [one * 1000 for one in bare], "ms")]


def memory_row(load: Load, copies: Copies) -> Row:
    """Return the memory of the proxy of a sandbox that has made its first calls and is idle."""
    progress("memory of an idle proxy")
    call = load.client("calls", (FIRST_PORT, PROXY_PORT), 1, 0.05)
    script = '"$@" && exec cat'
    argv = copies.run("--read", load.folder, "--internet-host", HOST,
                      "--", "sh", "-c", script, "sh", *call)  # fmt: skip
    with subprocess.Popen(
        load.network.argv(*argv), env=_environ(copies), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as launcher:  # fmt: skip
        assert launcher.stdout is not None
        assert launcher.stdin is not None
        if not launcher.stdout.readline():
            raise RuntimeError("the sandbox whose proxy is weighed did not start")
        rss = _rss_mib(_proxy_of(launcher.pid))
        launcher.stdin.close()
    return Row("RSS of a sandbox's idle proxy", [rss], "MiB", 30, at_most=True)


def _proxy_of(launcher: int) -> int:
    """Return the child that has an event loop."""
    with open(f"/proc/{launcher}/task/{launcher}/children") as children:
        for pid in map(int, children.read().split()):
            with open(f"/proc/{pid}/maps") as maps:
                if "/uvloop/" in maps.read():
                    return pid
    raise RuntimeError("the launcher has no proxy")


def _rss_mib(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        return int(status.read().partition("VmRSS:")[2].split()[0]) / 1024


def tunnel_rows(load: Load, copies: Copies, quick: bool) -> list[Row]:
    """Return the rate of tunnels into a sandbox, by that of the same proxy with none."""
    rows = []
    rounds, size = (QUICK_ROUNDS, QUICK_CARRIED) if quick else (TUNNEL_ROUNDS, CARRIED)
    lnk = copies.installed.argv()[:-1]
    with closing(peers.ours(load, 1, "uvloop", lnk=lnk)) as proxy:
        for count, what in ((1, "1 connection"), (16, "16 connections")):
            inside, outside = [], []
            for number in range(rounds):
                progress(f"tunnel into a sandbox, {what}: round {number + 1} of {rounds}")
                for within in (True, False) if number % 2 else (False, True):
                    if within:
                        inside.append(_rate_inside(load, copies, proxy.at[0], count, size // count))
                    else:
                        outside.append(load.measure("tunnels", proxy.at, count, size // count)[0])
            values = ratios(inside, outside)
            rows.append(Row(f"tunnel into a sandbox, {what}", values, "× no sandbox", 0.9))
    return rows


def _rate_inside(load: Load, copies: Copies, port: int, count: int, amount: float) -> float:
    """Return bytes a second that a client in a sandbox gets; its proxy starts with it."""
    client = load.client("tunnels", (port, PROXY_PORT), count, amount)
    argv = copies.run("--read", load.folder, "--internet-host", HOST, "--", *client)
    done = subprocess.run(
        load.network.argv(*argv), env=_environ(copies), capture_output=True, text=True,
        timeout=110, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    size, seconds = done.stdout.split()
    return float(size) / float(seconds)


def _environ(copies: Copies) -> dict[str, str]:
    return {**copies.who.environ, "PATH": "/usr/sbin:/usr/bin:/bin"}


if __name__ == "__main__":
    sys.exit(run("bench.start", measure))
