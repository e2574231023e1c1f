"""What `lnk sandbox check` runs inside: it makes each try, and tells what came of it.

It reads JSON on its standard input, a list of probes, each a list of tries, each a verb of
`VERBS` with its arguments.  For each probe it sends one line of JSON on its standard output: the
probe's number, and for each try a word:

    "open"          it got through
    "EPERM" …       the errno by which it was refused
    "failed: …"     it could not be made, so it says nothing
    another word    what was found instead (`own`, `403`)

The verbs are the functions of `tries_files`, `tries_processes`, `tries_network` and
`tries_programs`.  Nothing of Link's is shown inside, so all these modules come in the command
line of its process, which `LOADER` reads: they use the standard library and one another alone.

Each probe runs in a process of its own, so that what one gets through to changes nothing for
the next, and is given its time.  The output is a socket: it can't be opened anew through /proc,
and this process, which alone holds it, can't be traced.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from sandbox.linux import tries_files, tries_network, tries_processes, tries_programs
from sandbox.linux.tries import PROBE_S, libc, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PARTS = ("tries", "tries_files", "tries_processes", "tries_network", "tries_programs", "prober")
"""The modules that go inside, each behind those that it imports."""
LOADER = """\
import sys, types
package = sys.modules["sandbox.linux"] = types.ModuleType("sandbox.linux")
for part, source in zip(sys.argv[1::2], sys.argv[2::2]):
    name = f"sandbox.linux.{part}"
    made = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), vars(made))
    setattr(package, part, made)
made.main()
"""
DESCRIPTORS = 1024
"""How many numbers are looked at for descriptors that it was given."""
PR_SET_DUMPABLE = 4

VERBS: dict[str, Callable[..., str | None]] = {
    name: value
    for module in (tries_files, tries_processes, tries_network, tries_programs)
    for name, value in vars(module).items()
    if callable(value) and getattr(value, "__module__", "") == module.__name__
    if not name.startswith("_")
}


def command(python: str) -> list[str]:
    """Return the command that runs the prober, wherever nothing of Link's can be read."""
    words = [python, "-I", "-S", "-c", LOADER]
    for part in PARTS:
        with open(os.path.join(os.path.dirname(__file__), f"{part}.py")) as file:
            words += [part, file.read()]
    return words


def answer_of(verb: str, arguments: list[Any]) -> str:
    """Make one try; return its word."""
    try:
        found = VERBS[verb](*arguments)
    except OSError as error:
        return name_of(error)
    except Exception as error:  # noqa: BLE001 - a probe that breaks says nothing
        return f"failed: {type(error).__name__}: {error}"
    return "open" if found is None else found


def answers(tries: list[list[Any]]) -> list[str]:
    """Make a probe's tries in a process of their own; return a word for each."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(told)
            os.dup2(2, 1)  # the result is the parent's alone to tell
            libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
            for verb, *arguments in tries:
                os.write(tell, json.dumps(answer_of(verb, arguments)).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(tell)
    said = b""
    until = time.monotonic() + PROBE_S
    while (left := until - time.monotonic()) > 0 and select.select([told], [], [], left)[0]:
        data = os.read(told, 4096)
        if not data:
            break
        said += data
    os.close(told)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    found = [json.loads(line) for line in said.splitlines()]
    return found + ["failed: it took too long"] * (len(tries) - len(found))


def main() -> None:
    """Read the probes, try each, and tell of each."""
    tries_processes.given.update(filter(tries_processes.is_open, range(DESCRIPTORS)))
    probes = json.load(sys.stdin)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    for number, tries in enumerate(probes):
        os.write(1, json.dumps([number, answers(tries)]).encode() + b"\n")
