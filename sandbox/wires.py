"""The flags that close wires, outside every sandbox: the kill switch and pauses (R36, R37).

    <settings>/sandbox/stopped          while it is there, every wire is closed
    <settings>/sandbox/paused/<name>    while it is there, that sandbox's wire is, and why

A flag is up by being there, whatever it is: a link or an empty file closes too.  Nothing
here makes a folder but what raises a flag.  Whoever looks sees the files as they are, so
there is no process to reach, no signal to send, and nothing that a sandbox can undo.
"""

from __future__ import annotations

from sandbox.errors import SandboxError, quoted
from sandbox.state import State, looked

STOPPED, PAUSED = "stopped", "paused"
WHY_UNKNOWN = "its flag doesn't say why"
WHY_MAX_CHARS = 400
NAME_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
NAME_MAX_CHARS = 64


class PausedWire:
    """A sandbox whose wire is paused, by its name (`run-<pid>` for a run), and why."""

    __slots__ = ("sandbox", "why")

    def __init__(self, sandbox: str, why: str) -> None:
        self.sandbox = sandbox
        self.why = why


class Wires:
    """Whether every wire is stopped, and those that are paused, by name."""

    __slots__ = ("paused", "stopped")

    def __init__(self, stopped: bool, paused: tuple[PausedWire, ...]) -> None:
        self.stopped = stopped
        self.paused = paused

    def as_json(self) -> dict[str, object]:
        """Return it as `lnk sandbox paused --json` prints it."""
        paused = [{"sandbox": one.sandbox, "why": one.why} for one in self.paused]
        return {"stopped": self.stopped, "paused": paused}


def wires(settings: str | None = None) -> Wires:
    """Read the flags afresh; what isn't there is open, and nothing is made.

    settings: Link's folder, absolute; None: LNK_HOME's, else the home's.  Raises
    Unavailable where they can't be read, or others could have changed them.  This only
    shows: each proxy looks for itself.
    """
    return looked(settings, _wires)


def _wires(state: State) -> Wires:
    stopped = STOPPED in state.names()
    names = [name for name in state.names(PAUSED) if not name.startswith(".")]
    return Wires(stopped, tuple(PausedWire(name, _why(state, name)) for name in names))


def stop(state: State) -> None:
    """Close every wire; LaunchError where the flag can't be raised."""
    state.write(b"", STOPPED)


def start(state: State) -> bool:
    """Open them again; tell whether they were closed."""
    return _lowered(state, STOPPED)


def pause(state: State, sandbox: str, why: str) -> None:
    """Close one wire, and leave why; not flushed to the disk, since nothing survives it anyway."""
    import json

    text = json.dumps({"why": why})
    state.write(text.encode() + b"\n", PAUSED, sandbox, flush=False)


def resume(state: State, sandbox: str) -> bool:
    """Open one again; tell whether it was paused."""
    return _lowered(state, PAUSED, sandbox)


def _lowered(state: State, *steps: str) -> bool:
    if steps[-1] not in state.names(*steps[:-1]):
        return False
    state.remove(*steps)
    return True


def _why(state: State, sandbox: str) -> str:
    """Return a pause's reason in one line; a flag without one is a flag all the same."""
    import json

    try:
        data = state.read(PAUSED, sandbox)
        said = json.loads(data or b"")["why"]
    except (SandboxError, OSError, ValueError, TypeError, KeyError, RecursionError):
        return WHY_UNKNOWN
    if not isinstance(said, str) or not said:
        return WHY_UNKNOWN
    return "".join(c if c.isprintable() else "?" for c in said[:WHY_MAX_CHARS])


def is_name(name: str) -> bool:
    """Tell whether a text can be a sandbox's name, which becomes a file's."""
    is_plain = set(name) <= set(NAME_LETTERS) and name[:1].isalnum()
    return is_plain and len(name) <= NAME_MAX_CHARS


def check_name(name: str) -> None:
    """Raise SandboxError (2) for what is no sandbox's name."""
    if not is_name(name):
        raise SandboxError(
            f"{quoted(name)} is no sandbox's name: use 1 to {NAME_MAX_CHARS} letters, digits, '.', "
            "'_' or '-', a letter or digit first.",
            exit_code=2,
        )
