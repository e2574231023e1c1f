"""What runs leave behind, and how much of it is kept (R38).

    <settings>/sandbox/runs/run-<pid>           a run's mark: its process (`sandbox.marks`)
    <settings>/sandbox/log/run-<pid>.jsonl      its log, and what was turned over of it
    <settings>/sandbox/wires/run-<pid>/         its proxy's sockets; `proxy/` for a run of a spec
    <settings>/sandbox/paused/run-<pid>         its pause

A named sandbox's log is one for good, but each run has a name of its own, so the logs of those
that are over are kept up to a bound.  What a run that was killed couldn't take away goes too.

A run counts as alive while its process is there, told by the mark from a later one of that
number, or a proxy that bears its name still publishes.  Of one whose mark says that it was begun
elsewhere, in a container or on another machine that shares the settings, nobody here can tell:
its log goes by the bound alone, and its pause, which may be a living wire's, stays.  A sandbox that
is only called like a run has no mark, and nothing of it is touched.  The folder of the marks is
locked for as long as they are looked at, so that a run which begins with the number of one that
is over is never taken for that.
"""

from __future__ import annotations

import os
from contextlib import suppress

from sandbox import published
from sandbox.errors import SandboxError
from sandbox.marks import ENDING, FOLDER, LOG, LOGS_MOST, Locked, pid_of, place, start_of
from sandbox.wires import resume

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.state import State

SOCKETS = ("wires", "proxy")
"""Where the folders of proxies' sockets are: of those that are none's of a spec, and of others."""

LOGS_MAX_BYTES = 1 << 30
"""Of runs that are over, as LOGS_MOST.  Who wants an earlier run's log gone must have a person
start two hundred more, or seven with a million calls each: their logs then show that."""


def sweep(state: State) -> None:
    """Remove what runs that are over have left, but the logs within the bound.

    Raises LaunchError, OSError where a folder can't be read.
    """
    if not os.path.isdir(f"{state.path}/{FOLDER}"):
        return  # there was none, and nothing is made for them
    with suppress(BlockingIOError), Locked(state, wait_s=0):  # else another is at it
        _sweep(state)


def _sweep(state: State) -> None:
    marks = [name for name in state.names(FOLDER) if pid_of(name) is not None]
    found = _Found(state)
    logs = _logs(state, set(marks))
    kept = kept_bytes = 0
    for name, (_, size, files) in sorted(logs.items(), key=lambda one: one[1][0], reverse=True):
        fits = size > 0 and kept < LOGS_MOST and kept_bytes + size <= LOGS_MAX_BYTES
        if not fits and (found.is_over(name) or (size > 0 and found.is_elsewhere(name))):
            for file in files:
                _try(lambda file=file: state.remove(LOG, file))  # type: ignore[misc]
            del logs[name]
        elif size > 0:
            kept, kept_bytes = kept + 1, kept_bytes + size
    _sockets_away(state, set(marks), found)
    paused = set(state.names("paused"))
    for name in paused & set(marks):
        if found.is_over(name):
            _try(lambda name=name: resume(state, name))  # type: ignore[misc]
    for name in marks:
        left = found.is_over(name) or (name not in paused and found.is_elsewhere(name))
        if name not in logs and left:
            _try(lambda name=name: state.remove(FOLDER, name))  # type: ignore[misc]


def _logs(state: State, marks: set[str]) -> dict[str, tuple[int, int, list[str]]]:
    """Return, of each marked run with a log, when it last logged, its bytes and its files."""
    found: dict[str, tuple[int, int, list[str]]] = {}
    for file in state.names(LOG):
        name, ending, turned = file.partition(ENDING)
        if not ending or name not in marks or not (turned == "" or turned[1:].isdecimal()):
            continue  # a sandbox may be called `run-1.jsonl`
        try:
            about = os.lstat(f"{state.path}/{LOG}/{file}")
        except FileNotFoundError:
            continue  # it has just been renamed
        newest, size, files = found.get(name, (0, 0, []))
        found[name] = max(newest, about.st_mtime_ns), size + about.st_size, [*files, file]
    return found


class _Found:
    """Which runs are over, looked up once each."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[str, bool] = {}
        self._marks: dict[str, tuple[str | None, str]] = {}
        self._place = place()
        self._publish: frozenset[str] | None = None

    def is_over(self, name: str) -> bool:
        """Tell whether no process of a run is there any more."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._looked(name)
        return known

    def is_elsewhere(self, name: str) -> bool:
        """Tell whether a run was begun where its process's number says nothing here."""
        return self._marked(name)[1] not in ("", self._place)

    def _marked(self, name: str) -> tuple[str | None, str]:
        """Return what a run's mark says: when it was begun, and where; None without a mark."""
        found = self._marks.get(name)
        if found is None:
            data = self._state.read(FOLDER, name)
            start, _, where = (data or b"").decode(errors="replace").partition(" ")
            found = self._marks[name] = None if data is None else start, where
        return found

    def _looked(self, name: str) -> bool:
        pid = pid_of(name)
        assert pid is not None
        if self.is_elsewhere(name):
            return False
        start = start_of(pid)
        marked, _ = self._marked(name)
        if start is not None and (marked is None or marked == start):
            return False
        if self._publish is None:  # its launcher was killed, and its proxy may be about to end
            self._publish = frozenset(
                one.sandbox for one in published.traffic(self._state.settings)
            )
        return name not in self._publish


def _sockets_away(state: State, marks: set[str], found: _Found) -> None:
    for above in SOCKETS:
        for name in state.names(above):
            # In `wires` no sandbox has a folder but a run and a check.
            ours = name in marks or (above == SOCKETS[0] and pid_of(name) is not None)
            if ours and found.is_over(name):
                _try(lambda path=f"{state.path}/{above}/{name}": _folder_away(path))  # type: ignore[misc]


def _folder_away(path: str) -> None:
    """Remove a folder of sockets; one that holds anything else stays."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in os.listdir(folder):
            if name.lstrip(".").startswith(("out.sock", "in.sock")):
                os.unlink(name, dir_fd=folder)
        os.rmdir(path)
    finally:
        os.close(folder)


def _try(act: Callable[[], object]) -> None:
    with suppress(SandboxError, OSError):  # another has just removed it, or it isn't ours to
        act()
