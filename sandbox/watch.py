"""What a proxy sees of the flags outside, and where it publishes its counters (R36-R39).

Each call asks for both flags, by a system call each.  Each second, while anything runs,
they are looked at strictly: the folders they stand in must be their user's alone, and no
links, or whoever could change them could lower a flag.  What is odd, or can't be read,
closes the wire.

A wire that is to be paused is closed from then on, also where the flag can't be written
(a full disk): that is tried again each second, and only the flag's being there, and its
removal by a person, opens the wire again.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from proto.kinds import Cause
from sandbox import runs
from sandbox.errors import SandboxError
from sandbox.marks import unmark
from sandbox.published import Publication, sweep
from sandbox.state import OTHERS_WRITE, State
from sandbox.wires import PAUSED, STOPPED, pause, resume

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Told = tuple[int, ...] | str
    """What tells one raising of the flags from another: the files' numbers and times."""


class Watch:
    """The flags of one wire (`shells.env.Flags`), and the publication of its counters.

    settings: Link's, or the folder itself that the flags are in.
    say: says a sentence on stderr, without waiting.  notify: shows a title and a text on
    the person's screen, where there is one, without waiting.
    """

    def __init__(
        self,
        settings: str | State,
        name: str,
        say: Callable[[str], None],
        notify: Callable[[str, str], None],
    ) -> None:
        self._state = settings if isinstance(settings, State) else State(settings)
        self._name = name
        self._say, self._notify = say, notify
        folder = self._state.path
        self._folders = (self._state.settings, folder, f"{folder}/{PAUSED}")
        self._stopped = f"{folder}/{STOPPED}"
        self._paused = f"{folder}/{PAUSED}/{name}"
        self._odd: Told = ""
        self._unwritten = ""
        """Why the wire is paused, where the flag doesn't say so yet."""
        self._told: Told | None = None
        self._traffic = Publication(self._state)
        self._said_unpublished = False
        self._is_run = name == f"run-{os.getppid()}"
        """The name is that of a run, whose pid it holds, and no other sandbox's."""

    def begin(self) -> None:
        """Publish that this process is there, and remove what others left.

        A run that was killed leaves its pause behind; it isn't this one's, whose process has
        the same number.
        """
        try:
            sweep(self._state)
            if self._is_run:
                resume(self._state, self._name)
            else:
                unmark(self._state, self._name)
        except (SandboxError, OSError):
            return  # the first call finds out, and says so
        self._publish(0, 0)
        self._strictly()
        with suppress(SandboxError, OSError):  # what is left is for the next
            runs.sweep(self._state)

    def end(self) -> None:
        """Publish nothing any more; a run's pause ends with it: its number will be another's."""
        try:
            self._traffic.withdraw()
            if self._is_run:
                resume(self._state, self._name)
        except (SandboxError, OSError):
            return  # the next proxy removes it

    def look(self) -> Cause | None:
        """Tell why the wire is closed, None where it is open."""
        if os.access(self._stopped, os.F_OK, follow_symlinks=False):
            return Cause.STOPPED
        if self._unwritten or os.access(self._paused, os.F_OK, follow_symlinks=False):
            return Cause.PAUSED
        return Cause.UNSEEN if self._odd else None

    def watch(self, up: int, down: int) -> Cause | None:
        """Look strictly, publish; tell why the wire was closed since the last time."""
        self._publish(up, down)
        if self._unwritten:
            self._write_pause()
        found = self._strictly()
        told, self._told = self._told, found
        return None if found is None or found == told else self.look()

    def pause(self, why: str) -> None:
        """Close this wire until a person resumes it, and tell them."""
        self._unwritten = why
        self._write_pause()
        cure = f"look at lnk sandbox log {self._name}, then lnk sandbox resume {self._name}"
        self._say(f"the wire of {self._name} is paused, since {why}; {cure}.")
        self._notify(f"The wire of {self._name} is paused", f"{why.capitalize()}: {cure}.")

    def _write_pause(self) -> None:
        try:
            pause(self._state, self._name, self._unwritten)
        except (SandboxError, OSError):
            return
        self._unwritten = ""

    def _publish(self, up: int, down: int) -> None:
        try:
            self._traffic.put(sandbox=self._name, up=up, down=down)
        except (SandboxError, OSError) as error:
            if not self._said_unpublished:
                self._said_unpublished = True
                self._say(f"what this wire carries can't be published ({error}).")

    def _strictly(self) -> Told | None:
        """Return what tells this closing of the wire from others; None where it is open."""
        try:
            odd = next(filter(None, map(_what_is_odd, self._folders)), "")
            flags = [*_told_of(self._stopped), *_told_of(self._paused)]
        except OSError as error:
            odd, flags = error.strerror or "unknown error", []
        if odd and odd != self._odd:
            self._say(f"calls are refused: {odd}.")
        self._odd = odd
        return odd or self._unwritten or tuple(flags) or None


def _what_is_odd(folder: str) -> str:
    """Return what is wrong with a folder of Link's, or nothing; a missing one is fine."""
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return ""
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is a link or no folder"
    if found.st_uid != os.geteuid():
        return f"{folder} is another user's"
    if found.st_mode & OTHERS_WRITE:
        return f"others can write {folder}"
    return ""


def _told_of(flag: str) -> tuple[int, ...]:
    """Return what tells a flag that is up from one raised again; nothing for one that isn't."""
    try:
        found = os.lstat(flag)
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_ctime_ns
