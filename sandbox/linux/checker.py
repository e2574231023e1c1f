"""Run probes in a sandbox of a plan, and hear what came of them.

The sandbox is started as any is, by its kept command.  Its program is `prober`, run by Link's
own interpreter, which is shown inside for the check where nothing else shows it.  What it
tells comes on a socket that it alone holds (see there).
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time

from sandbox.errors import LaunchError
from sandbox.linux import packing, prober
from sandbox.linux import plan as p
from sandbox.linux import view as v
from sandbox.linux.canaries import CLOSED_VARIABLES
from sandbox.linux.own import Own
from sandbox.linux.probes import Outside, Probe
from sandbox.linux.values import replaced

CHECK_S = 300
"""How long all probes may take together; they take about a second."""
END_S = 10
"""How long an interrupted sandbox may take to end; it takes milliseconds."""
SAID_MAX_BYTES = 1 << 20
PASSED = ("HOME", "PATH", "LANG")


def with_interpreter(plan: p.Plan, own: Own) -> tuple[p.Plan, list[str]]:
    """Return a plan in which Link's interpreter runs, and what that opens, in words."""
    library = os.path.realpath(os.path.dirname(os.__file__))
    needed = [own.python, library, *(path for path in own.guarded if "/libpython" in path)]
    needed += [os.path.realpath(path) for path in sys.path if path.endswith("/lib-dynload")]
    notes = []
    for path in dict.fromkeys(needed):
        if os.path.exists(path) and not is_shown(plan, path):
            notes.append(f"shown inside for the check alone: {path}")
            plan = replaced(
                plan,
                mounts=(*plan.mounts, v.Mount(v.READ, path, "Link's interpreter, for the check")),
            )
    if plan.inside is not None and plan.inside.programs is not None:
        lists = plan.inside.programs
        notes += [f"counts as listed: {path}, which {why}" for path, why in lists.helpers]
        notes.append(f"counts as listed for the check alone: {own.python}")
        helpers = (*lists.helpers, (own.python, "runs the check"))
        inside = replaced(plan.inside, log=None, programs=replaced(lists, helpers=helpers))
        plan = replaced(plan, inside=inside)
    return plan, notes


def is_shown(plan: p.Plan, path: str) -> bool:
    """Tell whether a path of the machine's is there inside."""
    held = v.nearest({mount.at: mount for mount in plan.mounts}, path, itself=True)
    return held is not None and held.how in v.REAL


def run(plan: p.Plan, own: Own, probes: list[Probe], outside: Outside) -> list[list[str]]:
    """Return for each probe its tries' answers; raise LaunchError where no sandbox starts."""
    command = packing.command(plan, own, prober.command(own.python))
    ours, its = socket.socketpair()
    tries = os.memfd_create("lnk-check")
    os.write(tries, json.dumps([probe.tries for probe in probes]).encode())
    os.lseek(tries, 0, os.SEEK_SET)
    crossing = os.dup(tries)  # one that must not cross
    environ = {name: os.environ[name] for name in PASSED if name in os.environ}
    environ |= {**CLOSED_VARIABLES, **plan.environment, "LNK_CHECK": outside.marker}
    try:
        with subprocess.Popen(
            command, stdin=tries, stdout=its.fileno(), stderr=subprocess.PIPE, cwd="/", env=environ,
            pass_fds=(crossing,),
        ) as process:  # fmt: skip
            its.close()
            try:
                said, words = _hear(ours, process)
            finally:
                _end(process)
    finally:
        for fd in (tries, crossing):
            os.close(fd)
        its.close()
        ours.close()
    return _answers(probes, said, words)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the sandbox in good order, so that what was held in its folders is taken away."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _hear(ours: socket.socket, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return what the prober told, and what was said on stderr, until both have ended."""
    assert process.stderr is not None
    heard = {ours.fileno(): b"", process.stderr.fileno(): b""}
    open_ = list(heard)
    until = time.monotonic() + CHECK_S
    while open_ and (left := until - time.monotonic()) > 0:
        for fd in select.select(open_, [], [], left)[0]:
            data = os.read(fd, 1 << 16)
            heard[fd] += data
            if not data or len(heard[fd]) > SAID_MAX_BYTES:
                open_.remove(fd)
    return heard[ours.fileno()], heard[process.stderr.fileno()]


def _answers(probes: list[Probe], said: bytes, words: bytes) -> list[list[str]]:
    """Return the answers by their probes; one of which nothing was told says so."""
    found: dict[int, list[str]] = {}
    for line in said.splitlines():
        number, answers = json.loads(line)
        found[number] = answers
    last = words.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    if not found:
        raise LaunchError("check", 0, f"the sandbox to check did not start: {last[0]}")
    untold = f"failed: nothing was told of it ({last[0]})"
    return [found.get(number) or [untold] * len(probe.tries) for number, probe in enumerate(probes)]
