"""What the kill switch runs beside closing the wires: a command of Link's for each name (R37).

    <settings>/sandbox/on-stop/<name>.json    {"lnk": its path, "args": [...]}

A sandbox with the machine's own network has no wire to close, so whoever runs one in the
background registers what stops it.  What is run is named by the path it had when it was
registered, works in a folder of Link's, and gets an environment of our own choice (R3).
"""

from __future__ import annotations

import os
import sys

from sandbox.errors import SandboxError
from sandbox.state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen

FOLDER = "on-stop"
LIMIT_S = 60
"""How long a command may take; all run at once."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED = (
    "HOME", "LNK_HOME", "USER", "LOGNAME", "LANG", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip
"""Of the person's environment; the last two lead to their service manager."""


def register(state: State, name: str, args: list[str]) -> None:
    """Have `lnk <args>` run for a name when the wires are stopped, in place of what was."""
    import json

    if args[0] in ("", "sandbox") or args[0].startswith("-"):
        # The kill switch would run what it stands for, or what undoes it.
        raise SandboxError(
            "on-stop runs a command of another plugin's, never lnk sandbox: "
            "write its name first after --.",
            exit_code=2,
        )
    text = json.dumps({"lnk": find_lnk(), "args": args})
    state.write(text.encode() + b"\n", FOLDER, f"{name}.json")


def forget(state: State, name: str) -> None:
    """Have nothing run for a name any more; one that isn't registered is no error."""
    state.remove(FOLDER, f"{name}.json")


def find_lnk() -> str:
    """Return the path of `lnk`: the one that runs now, else the one on PATH."""
    import shutil

    started = sys.argv[0]
    ours = os.path.basename(started) == "lnk" and shutil.which(started)
    found = ours or shutil.which("lnk")
    if not found:
        raise SandboxError("there is no lnk on PATH for the kill switch to run.", exit_code=1)
    return os.path.abspath(found)


def run_all(state: State) -> list[tuple[str, str]]:
    """Run what is registered, all at once; return the names that failed, and why."""
    files = [name for name in state.names(FOLDER) if name.endswith(".json") and name[0] != "."]
    failed: list[tuple[str, str]] = []
    started: list[tuple[str, Popen[bytes]]] = []
    for file in files:
        name = file.removesuffix(".json")
        try:
            started.append((name, _started(state, file)))
        except (SandboxError, OSError, ValueError, KeyError, TypeError) as error:
            failed.append((name, f"it could not be run ({error})"))
    return [*failed, *_waited_for(started)]


def _started(state: State, file: str) -> Popen[bytes]:
    """Start what a file registers.  Raises what it may, for whatever is wrong with it."""
    import json
    import subprocess

    told = json.loads(state.read(FOLDER, file) or b"")
    lnk, args = told["lnk"], told["args"]
    if not isinstance(lnk, str) or not lnk.startswith("/") or not isinstance(args, list):
        raise TypeError("its registration is malformed")
    environ = {name: os.environ[name] for name in PASSED if name in os.environ}
    return subprocess.Popen(
        [lnk, *map(str, args)],
        env={**environ, "PATH": PATH},
        cwd=state.path,
        stdin=subprocess.DEVNULL,
        stdout=2,
    )


def _waited_for(started: list[tuple[str, Popen[bytes]]]) -> list[tuple[str, str]]:
    import subprocess
    import time

    deadline = time.monotonic() + LIMIT_S
    failed = []
    for name, process in started:
        try:
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            failed.append((name, f"it took more than {LIMIT_S} seconds and was ended"))
        else:
            if status:
                failed.append((name, f"it ended with status {status}"))
    return failed
