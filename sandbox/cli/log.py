"""`lnk sandbox log`: what went over the wires, as their proxies wrote it down (R38)."""

from __future__ import annotations

import os
import sys

from sandbox.cli.flags import Flag, UsageError, describe, read_flags
from sandbox.errors import LaunchError, SandboxError, one_line
from sandbox.marks import ENDING, LOG
from sandbox.state import State, settings_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Line = tuple[str, dict[str, object]]
    """A sandbox's name, and a line of its log."""

FLAGS = (
    Flag("--follow", "", "go on, and print each line as it comes; Ctrl-C ends it"),
    Flag("--json", "", 'print each line as JSON, its sandbox under "sandbox"'),
    Flag("--help", "", "print this"),
)

HELP = f"""\
The log of the wires: each call when it was allowed or refused, and when it ended.

usage: lnk sandbox log [NAME] [--follow] [--json]

{describe(FLAGS)}

NAME is a sandbox's (run-<pid> for a run); without it, all of them, by time.  A sandbox that has
logged nothing yet can be followed: that it hasn't is said on stderr, and its lines come once it
does.  A run that is over without a log has none to come, which is an error with or without
--follow.

  lnk sandbox log run-4711 --follow"""

LINE_MAX_BYTES = 64 * 1024
"""A line longer than any that a proxy writes; what follows of it is left out."""
READ_BYTES = 1 << 16
LOOK_AGAIN_S = 0.5


def main(words: list[str]) -> int:
    """Print the lines; return 0, 1 where there is no such log."""
    names = [word for word in words if not word.startswith("-")]
    flags = read_flags(FLAGS, [word for word in words if word.startswith("-")])
    if "--help" in flags:
        print(HELP)
        return 0
    if len(names) > 1:
        raise UsageError("it takes one sandbox's name, or none for all.")
    from sandbox.wires import check_name

    for name in names:
        check_name(name)
    state, follow = State(settings_folder()), "--follow" in flags
    logs = Logs(state, names[0] if names else None)
    if not logs.names():
        which = f" of {names[0]}" if names else ""
        if not follow or (names and _is_over(names[0])):
            raise SandboxError(f"there is no log{which} in {logs.folder}.", exit_code=1)
        print(f"lnk sandbox: there is no log{which} yet; {_what_comes(names)}.", file=sys.stderr)
    spell = as_json if "--json" in flags else as_words
    for line in logs.lines(follow=follow):
        print(spell(*line), flush=follow)
    return 0


def _is_over(name: str) -> bool:
    """Tell whether a name is that of a run whose process is gone: no other will bear it."""
    from sandbox.marks import pid_of, start_of

    pid = pid_of(name)
    return pid is not None and start_of(pid) is None and not _runs(name)


def _runs(name: str) -> bool:
    from sandbox.published import traffic

    return any(one.sandbox == name for one in traffic())


def _what_comes(names: list[str]) -> str:
    """Return what a person who follows waits for; a slip in the name looks like silence else."""
    if not names:
        return "lines are shown once a sandbox calls anything"
    if _runs(names[0]):
        return f"{names[0]} runs, and its lines are shown once it calls anything"
    return (
        f"nothing called {names[0]} runs now, and lines are shown once something does; look at the "
        "name"
    )


class Part:
    """One file of a log, and how far it has been read.

    It is known by its inode: a proxy renames NAME.jsonl to .1, .1 to .2 and so on, at
    any moment.  It is open only while it is read, since there may be thousands.
    """

    __slots__ = ("_log", "inode", "offset", "size")

    def __init__(self, log: Log, inode: int) -> None:
        self._log = log
        self.inode = inode
        self.offset = self.size = 0

    def lines(self) -> Iterator[dict[str, object]]:
        """Yield the whole lines that have come since the last time; others are left out."""
        import json

        for data in self._read():
            try:
                line = json.loads(data)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and isinstance(line.get("time"), str):
                yield line

    def first_time(self) -> str:
        """Return the time of its first line, which none of its others comes before."""
        at = self.offset
        try:
            return next((str(line["time"]) for line in self.lines()), "")
        finally:
            self.offset = at

    def _read(self) -> Iterator[bytes]:
        file = self._log.open(self.inode)
        if file is None:
            return  # it was the oldest, and has gone
        try:
            os.lseek(file, self.offset, os.SEEK_SET)
            rest, skipping = b"", False
            while data := os.read(file, READ_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self.offset += len(line) + 1
                    if not skipping:
                        yield line
                    skipping = False
                if len(rest) > LINE_MAX_BYTES:
                    self.offset += len(rest)
                    rest, skipping = b"", True
        finally:
            os.close(file)


class Log:
    """One sandbox's log: its parts, the oldest first."""

    def __init__(self, folder: str, name: str) -> None:
        self.name = name
        self._folder = folder
        self.parts: list[Part] = []

    def look(self, files: list[str]) -> None:
        """Find the parts that are new, among the files that bear its name."""
        known = {part.inode: part for part in self.parts}
        self.parts = []
        for file in sorted(files, key=_number, reverse=True):
            try:
                about = os.lstat(os.path.join(self._folder, file))
            except FileNotFoundError:
                continue  # it has just been renamed: the next look finds it
            part = known.get(about.st_ino) or Part(self, about.st_ino)
            part.size = about.st_size
            if part.size < part.offset:
                part.offset = 0  # another file has the number by now
            self.parts.append(part)

    def open(self, inode: int) -> int | None:
        """Open the file of an inode, whatever name of the log it bears by now."""
        for file in (f"{self.name}{ENDING}", *self._rotated()):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            try:
                found = os.open(os.path.join(self._folder, file), flags)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _error(f"{self._folder}/{file}", error) from None
            if os.fstat(found).st_ino == inode:
                return found
            os.close(found)
        return None

    def _rotated(self) -> list[str]:
        start = f"{self.name}{ENDING}."
        return sorted((each for each in os.listdir(self._folder) if each.startswith(start)),
                      key=_number)  # fmt: skip


class Logs:
    """The logs of Link's settings, or the one of a name."""

    def __init__(self, state: State, name: str | None) -> None:
        self.folder = os.path.join(state.path, LOG)
        self._state = state
        self._name = name
        self._logs: dict[str, Log] = {}

    def names(self) -> dict[str, list[str]]:
        """Return the files of each log.  Raises LaunchError for a folder that isn't safe."""
        try:
            files = self._state.names(LOG)
        except OSError as error:
            raise _error(self.folder, error) from None
        found: dict[str, list[str]] = {}
        for file in files:
            name, ending, rest = file.rpartition(ENDING)
            if ending and self._name in (None, name) and (not rest or _number(file)):
                found.setdefault(name, []).append(file)
        return found

    def lines(self, *, follow: bool) -> Iterator[Line]:
        """Yield the lines that are there by time, then, if told so, those that come."""
        self._look()
        yield from self._by_time()
        while follow:
            import time

            time.sleep(LOOK_AGAIN_S)
            self._look()
            yield from self._by_time()

    def _look(self) -> None:
        for name, files in self.names().items():
            log = self._logs.setdefault(name, Log(self.folder, name))
            log.look(files)

    def _by_time(self) -> Iterator[Line]:
        """Merge what is new in all parts; each is opened when its first line is due."""
        import heapq

        waiting = [
            (part.first_time(), number, log.name, part)
            for number, (log, part) in enumerate(
                (log, part)
                for log in self._logs.values()
                for part in log.parts
                if part.size > part.offset
            )
        ]
        waiting.sort(key=lambda one: (one[0], one[1]), reverse=True)
        begun: list[tuple[str, int, str, dict[str, object], Iterator[dict[str, object]]]] = []
        while waiting or begun:
            while waiting and (not begun or waiting[-1][:2] <= begun[0][:2]):
                _, number, name, part = waiting.pop()
                _push(begun, number, name, part.lines())
            if begun:
                _, number, name, line, rest = heapq.heappop(begun)
                yield name, line
                _push(begun, number, name, rest)


def _push(heap: list[Any], number: int, name: str, lines: Iterator[dict[str, object]]) -> None:
    """Put the next line of a part into a heap of such, by its time and the part's number."""
    import heapq

    line = next(lines, None)
    if line is not None:
        heapq.heappush(heap, (str(line["time"]), number, name, line, lines))


def _number(file: str) -> int:
    """Return which rotated file it is, 0 for none."""
    digits = file.rpartition(".")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _error(what: str, error: OSError) -> LaunchError:
    return LaunchError("log", error.errno or 0, f"{what}: {error.strerror}.")


def as_json(name: str, line: dict[str, object]) -> str:
    """Return a line as JSON, in ASCII."""
    import json

    return json.dumps({"sandbox": name, **line})


def as_words(name: str, line: dict[str, object]) -> str:
    """Return a line as a person reads it, safe for a terminal."""
    told = {key: str(value) for key, value in line.items()}
    host, port = told.get("host", ""), told.get("port", "0")
    shown = f"[{host}]" if ":" in host else host
    # A tool, or another plugin's verb, has a name and no port.
    target = "" if not host else f" {shown}" if port == "0" else f" {shown}:{port}"
    text = f"{told['time']} {name} {told.get('verdict', '')} {told.get('verb', '')}{target}"
    if "up" in told:
        text += f" up {told['up']} down {told.get('down', '')} in {told.get('seconds', '')} s"
    if told.get("reason", "done") != "done":
        text += f": {told['reason']}"
    return one_line(text)
