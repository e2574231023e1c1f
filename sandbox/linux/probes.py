"""What `check` tries in a sandbox, as data: each closed thing, each open one, what became of it.

`probing` makes the probes from a plan and from what stands outside.  A probe
is one or more tries, which `prober` makes inside, and what is due of them:

    CLOSED   it must not get through           blocked, or leaked
    GRANTED  it must work                      allowed, or missed
    GAP      it gets through, and we say so    open, or blocked where the kernel does better

A try that couldn't be made says nothing either way: failed.  A refusal counts only if it is
the wall's own: most calls with odd arguments are refused for those, wall or no wall, so a
probe names the `answers` by which its wall is known where others would hide its absence.
"""

from __future__ import annotations

from sandbox.linux import plan as p
from sandbox.linux import view as v
from sandbox.linux.values import Value

CLOSED, GRANTED, GAP = "closed", "granted", "gap"
BLOCKED, ALLOWED, FAILED, OPEN, MISSED, LEAKED = (
    "blocked", "allowed", "failed", "open", "missed", "leaked",
)  # fmt: skip

ELSEWHERE_FAILED = ("502", "503", "504")
"""What a proxy says of a host that it lets through and can't reach.  Of one that it should
refuse they are a leak: it was looked up."""


class Outside(Value):
    """What stands outside while a sandbox is checked: canaries, and what was there anyway."""

    arch: str
    spaces: dict[str, str]
    """Each namespace, as its link in /proc names it."""
    pid: int
    command: str
    """A word of that process's command line."""
    marker: str
    """A word in the environment of what the sandbox is started with."""
    abstract: str
    port: int
    addresses: tuple[str, ...]
    """This machine's, at each of which a canary listens at `port`."""
    nameservers: tuple[str, ...]
    keys: dict[str, int]
    """Of System V objects: memory, semaphores, messages."""
    queue: str
    files: tuple[str, ...]
    """Files that are there outside and that nobody names, one of each place."""
    home_files: tuple[str, ...]
    temp_file: str
    shared_file: str
    devices: tuple[str, ...]
    sockets: tuple[str, ...]
    """Path sockets that somebody listens on."""
    programs: tuple[str, ...]
    """Some that everybody has, without links; the first does nothing."""
    loader: str
    closed_variables: tuple[str, ...]
    """Variables of the caller's that must not cross."""


class Probe(Value):
    """One line of a check."""

    what: str
    """In words; no two probes say the same."""
    due: str
    tries: tuple[tuple[object, ...], ...]
    """Each a verb of the prober's with its arguments."""
    wall: str = ""
    """What of the plan it rests on, "" for what the launcher or the kernel does whatever the
    plan: `mount PATH`, `flag --NAME`, `filter GROUP`, `view`, `dots`, `scope`, `proxy`."""
    answers: tuple[str, ...] = ()
    """The answers by which a wall is known; () for any but "open"."""


class Guarded(Value):
    """A dot file that is closed at a start; or a folder above one, which only keeps its name."""

    at: str
    pinned: bool = False


def verdict(probe: Probe, answers: list[str]) -> tuple[str, str]:
    """Return what became of a probe, and the words that show it."""
    through = [
        a for a in answers
        if a == "open" or (probe.answers and a not in probe.answers and not _is_failed(a))
    ]  # fmt: skip
    failed = next((a for a in answers if _is_failed(a)), "")
    if probe.due == CLOSED:
        if through:
            return LEAKED, _shown(probe, answers, through[0])
        return (FAILED, failed) if failed else (BLOCKED, ", ".join(dict.fromkeys(answers)))
    if probe.due == GAP:
        return (OPEN, "") if "open" in answers else (BLOCKED, ", ".join(dict.fromkeys(answers)))
    refused = next((a for a in answers if a != "open" and not _is_elsewhere(a)), "")
    if refused:
        return MISSED, _shown(probe, answers, refused)
    failed = next((a for a in answers if _is_elsewhere(a)), "")
    return (FAILED, failed) if failed else (ALLOWED, "")


def _is_failed(answer: str) -> bool:
    return answer.startswith("failed: ")


def _is_elsewhere(answer: str) -> bool:
    """Tell whether an open thing was let through, and failed further on."""
    return _is_failed(answer) or answer in ELSEWHERE_FAILED


def _shown(probe: Probe, answers: list[str], answer: str) -> str:
    """Return which try it was, where a probe has several."""
    if len(probe.tries) == 1:
        return "" if answer == "open" else answer
    words = probe.tries[answers.index(answer)]
    return f"{' '.join(map(str, words))}: {answer}"


class View:
    """How a path stands in a plan."""

    def __init__(self, plan: p.Plan) -> None:
        self.table = {mount.at: mount for mount in plan.mounts}

    def how(self, path: str) -> str:
        """Return how the nearest entry that holds a path shows it, "" for none."""
        while path not in self.table:
            if path in ("", "/"):
                return ""
            path = path.rpartition("/")[0] or "/"
        return self.table[path].how

    def stands(self, path: str) -> bool:
        """Tell whether something of the machine's is at a path inside."""
        return self.how(path) in (*v.REAL, v.COPY) or any(at.startswith(path) for at in self.table)

    def writable(self) -> list[str]:
        """Return the folders of the machine's that can be written."""
        return [m.at for m in self.table.values() if m.how == v.WRITE]
