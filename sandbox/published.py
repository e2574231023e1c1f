"""What a running proxy has carried, as others read it: a file for each process (R39).

    <settings>/sandbox/traffic/<pid>.json           the wire's bytes: `Traffic`
    <settings>/sandbox/traffic/<pid>.<what>.json    of the same shape, what a bridge counts

Each holds `pid` and `start`, the marker of the process that wrote it: a number that another
process has by now is told from it.  A proxy writes its file anew when the counters have
changed, and removes it as it ends; what one that was killed leaves behind, the next proxy
and the command remove.  Reading changes nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress

from sandbox.errors import LaunchError, SandboxError
from sandbox.marks import start_of
from sandbox.state import State, looked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T", bound=Any)
    Fields = dict[str, object]

FOLDER = "traffic"


class Traffic:
    """The bytes that a sandbox's proxy has let through: from it (up) and to it (down)."""

    __slots__ = ("down", "pid", "sandbox", "up")

    def __init__(self, pid: int, sandbox: str, up: int, down: int) -> None:
        self.pid = pid
        self.sandbox = sandbox
        self.up = up
        self.down = down

    def as_json(self) -> dict[str, object]:
        """Return it as `lnk sandbox traffic --json` prints it."""
        return {"pid": self.pid, "sandbox": self.sandbox, "up": self.up, "down": self.down}


class Publication:
    """One process's file; `what` tells its files apart.

    The fields are written as they are given: names of letters, and numbers.
    """

    def __init__(self, state: State, what: str = "") -> None:
        self._state = state
        self._pid = os.getpid()
        self._name = f"{self._pid}.{what}.json" if what else f"{self._pid}.json"
        self._start = start_of(self._pid) or ""
        self._written: dict[str, str | int] | None = None

    def put(self, **fields: str | int) -> None:
        """Write what changed since the last time.  Raises LaunchError, OSError."""
        if fields == self._written:
            return
        told = {"pid": self._pid, "start": self._start, **fields}
        text = ", ".join(
            f'"{name}": "{value}"' if isinstance(value, str) else f'"{name}": {value}'
            for name, value in told.items()
        )
        self._state.write(f"{{{text}}}\n".encode(), FOLDER, self._name, flush=False)
        self._written = fields

    def withdraw(self) -> None:
        """Remove the file.  Raises LaunchError, OSError."""
        if self._written is not None:
            self._state.remove(FOLDER, self._name)


def traffic(settings: str | None = None) -> list[Traffic]:
    """Return what each running sandbox's proxy has carried, by pid; nothing is changed.

    settings: Link's folder, absolute; None: LNK_HOME's, else the home's.  Raises
    Unavailable where they can't be read, or others could have changed them.
    """
    return read_all(settings, lambda name: name.count(".") == 1, _traffic)


def read_all(
    settings: str | None, is_one: Callable[[str], bool], made: Callable[[Fields], T | None]
) -> list[T]:
    """Return what `made` makes of the files with such names, by pid; None is left out."""

    def look(state: State) -> list[Fields | None]:
        return [read(state, name) for name in state.names(FOLDER) if is_one(name)]

    found = [made(fields) for fields in looked(settings, look) if fields is not None]
    return sorted((one for one in found if one is not None), key=lambda one: one.pid)


def _traffic(fields: Fields) -> Traffic | None:
    match fields:
        case {"pid": int(pid), "sandbox": str(sandbox), "up": int(up), "down": int(down)}:
            return Traffic(pid, sandbox, up, down)
    return None


def read(state: State, name: str) -> Fields | None:
    """Return the fields of a file that a process still running has written, else None."""
    import json

    try:
        fields = json.loads(state.read(FOLDER, name) or b"")
        pid, start = fields["pid"], fields["start"]
    except (SandboxError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    ours = isinstance(pid, int) and name.partition(".")[0] == str(pid)
    return fields if ours and start == start_of(pid) else None


def sweep(state: State) -> None:
    """Remove what processes that are gone have left; what isn't theirs stays.

    Raises LaunchError where the folder can't be read.
    """
    for name in state.names(FOLDER):
        pid = name.removeprefix(".").partition(".")[0]
        if not (pid.isascii() and pid.isdigit()):
            continue
        # One with a dot is being written, or was when its writer was killed.
        writing = name.startswith(".") and start_of(int(pid)) is not None
        if not writing and read(state, name) is None:
            with suppress(LaunchError):  # it is a folder
                state.remove(FOLDER, name)
