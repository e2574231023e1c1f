"""The tokens that a wire's hosted models took, as its bridge publishes them.

    <settings>/sandbox/traffic/<pid>.tokens.json

holds `pid`, `start` and `sandbox` as a proxy's own file does, and `requests`, `unmetered`,
`input`, `output`, `cached` and `written` since the bridge was started.  A bridge is started
at its wire's first call to a model, so before that there is none.
"""

from __future__ import annotations

from contextlib import suppress

from sandbox.errors import LaunchError
from sandbox.published import Publication, read_all
from sandbox.state import State

WHAT = "tokens"
COUNTS = ("requests", "unmetered", "input", "output", "cached", "written")


class Tokens:
    """What one wire's models took, as its bridge `pid` counts it.

    requests: for a model's answer, that were answered; unmetered: of them, those whose answer
    gave no usage.  Of the others the prompt's tokens, cached or not (input), the answer's
    (output), and of the prompt those read from the provider's cache and those written to it.
    """

    __slots__ = (
        "cached",
        "input",
        "output",
        "pid",
        "requests",
        "sandbox",
        "unmetered",
        "written",
    )

    def __init__(self, pid: int, sandbox: str, counts: dict[str, int]) -> None:
        self.pid = pid
        self.sandbox = sandbox
        self.requests = counts["requests"]
        self.unmetered = counts["unmetered"]
        self.input = counts["input"]
        self.output = counts["output"]
        self.cached = counts["cached"]
        self.written = counts["written"]

    def as_json(self) -> dict[str, object]:
        """Return it as it is published, without its process's marker."""
        return {name: getattr(self, name) for name in ("pid", "sandbox", *COUNTS)}


class Tally:
    """A bridge's sums, written anew with each answer.

    state: Link's settings; None: they are published nowhere.
    """

    def __init__(self, state: str | None, sandbox: str) -> None:
        self._sandbox = sandbox
        self._sums = dict.fromkeys(COUNTS, 0)
        self._file = None if state is None else Publication(State(state), WHAT)

    def add(self, **counts: int) -> None:
        """Add what one answer took.  A call goes on where that can't be written: it is no wall."""
        for name, count in counts.items():
            self._sums[name] += count
        if self._file is not None:
            with suppress(LaunchError, OSError):
                self._file.put(sandbox=self._sandbox, **self._sums)

    def withdraw(self) -> None:
        """Remove the file: the bridge ends."""
        if self._file is not None:
            with suppress(LaunchError, OSError):
                self._file.withdraw()


def tokens(settings: str | None = None) -> list[Tokens]:
    """Return what each running wire's models took, by the bridge's pid; nothing is changed.

    settings: Link's folder, absolute; None: LNK_HOME's, else the home's.  Raises
    Unavailable where they can't be read, or others could have changed them.
    """
    return read_all(settings, lambda name: name.endswith(f".{WHAT}.json"), _tokens)


def _tokens(fields: dict[str, object]) -> Tokens | None:
    match fields:
        case {"pid": int(pid), "sandbox": str(sandbox)}:
            told = {name: fields.get(name) for name in COUNTS}
            counts = {name: n for name, n in told.items() if type(n) is int}
            return Tokens(pid, sandbox, counts) if len(counts) == len(COUNTS) else None
    return None
