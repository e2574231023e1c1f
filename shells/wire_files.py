"""The wire's log (R38): JSON lines in a file that only its owner can touch.

Each line is one `os.write` on an O_APPEND descriptor, so lines of several proxies that
share a file never mix, and a proxy that is killed leaves no half of a line behind.  A
line holds host and port, never a path, a header or a body.

Every call is on the log, so **a call that can't be logged doesn't happen**: `write`
answers False, and the shell answers the call's next waiting command with
`Cancelled(Cause.UNLOGGED)`.  Filling the disk must not buy a way out that nobody sees.
The next line that can be written is preceded by one that counts what was lost.

Rotation renames `NAME.jsonl` to `NAME.jsonl.1` and so on up.  It holds flock(2) on the
file and looks whether the name still leads to it, so two proxies of one name never
rotate the same file twice.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import select
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, assert_never

import msgspec

from proto.policy.records import Allowed, Ending, Paused, Record, Refusal

MAX_BYTES = 16 * 1024 * 1024
"""A file's size at which it is rotated: about 100,000 lines, opened by any editor."""

KEEP = 8
"""Rotated files kept: 144 MiB a name at most.  A program that wants an early line gone
must make some 400,000 calls first, which the log's last files then show."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A log's name: no separator, no leading dot, nothing that a terminal would act on."""

NAME_RULE = "use 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"

_OPEN = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


Tell = Callable[[Refusal | Ending], None]


class Line(msgspec.Struct, frozen=True, gc=False):
    """What every line begins with; `time` is RFC 3339 in UTC with milliseconds."""

    time: str
    call: str
    verb: str
    host: str
    port: int
    verdict: str


class RefusedLine(Line, frozen=True, gc=False):
    """`status` is what was answered, 0 for nothing."""

    reason: str
    status: int


class PausedLine(Line, frozen=True, gc=False):
    """Why the wire is paused from here on."""

    reason: str


class EndedLine(Line, frozen=True, gc=False):
    """Bytes from the client (up) and to it (down)."""

    reason: str
    up: int
    down: int
    seconds: float


class Sink(Protocol):
    """Where lines go, whole, or an OSError comes back; neither method waits."""

    name: str

    def check(self) -> None:
        """Look whether lines still get where they are read; called once a second at most."""

    def put(self, lines: bytes) -> None:
        """Write `lines`, each ended by a line feed."""

    def close(self) -> None:
        """Give the descriptors back."""


class WireLog:
    """Turns records into lines and gives them to a sink.

    `clock` gives seconds since the epoch.  `tell` sees what a person should hear of, written
    or not (`run` prints it): each refusal, and each call that the exit failed.  It must not
    raise.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        clock: Callable[[], float] = time.time,
        tell: Tell | None = None,
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._tell = tell
        self._encode = msgspec.json.Encoder().encode
        self._second, self._prefix = -1, ""
        self._lost, self._why = 0, ""

    def write(self, record: Record, call_id: str) -> bool:
        """Log one record; False when it couldn't be, and then the call must not go on."""
        if self._tell is not None:
            match record:
                case Refusal() | Ending(at_exit=True):
                    self._tell(record)
        try:
            now = self._clock()
            second = int(now)
            if second != self._second:
                self._turn(second)
            stamp = f"{self._prefix}{int((now - second) * 1000):03d}Z"
            line = self._encode(line_of(record, stamp, call_id)) + b"\n"
            self._sink.put(self._gap(stamp) + line if self._lost else line)
        except OSError as error:
            self._count_lost(error)
            return False
        self._lost = 0
        return True

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()

    def _turn(self, second: int) -> None:
        """Do what is done once a second: all of the stamp but its milliseconds, a check."""
        self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
        self._sink.check()
        self._second = second

    def _gap(self, stamp: str) -> bytes:
        """Return a line that counts those lost, so that a gap never looks like silence."""
        reason = f"lines that could not be written: {self._lost} ({self._why})"
        return self._encode(RefusedLine(stamp, "", "", "", 0, "lost", reason, 0)) + b"\n"

    def _count_lost(self, error: OSError) -> None:
        self._lost += 1
        self._why = error.strerror or "unknown error"
        if self._lost == 1 and self._sink.name:
            warn(f"{self._sink.name} can't be written ({self._why}): calls are refused meanwhile.")


def line_of(record: Record, stamp: str, call_id: str) -> Line:
    """Return a record as the line that is printed."""
    verb, host = record.verb, plain(record.host)
    match record:
        case Allowed(port=port):
            return Line(stamp, call_id, verb, host, port, "allowed")
        case Ending(port=port, up=up, down=down, seconds=seconds, reason=reason):
            why, took = plain(reason), round(seconds, 3)
            return EndedLine(stamp, call_id, verb, host, port, "ended", why, up, down, took)
        case Refusal(port=port, status=status, reason=reason):
            return RefusedLine(stamp, call_id, verb, host, port, "refused", plain(reason), status)
        case Paused(port=port, reason=reason):
            return PausedLine(stamp, call_id, verb, host, port, "paused", plain(reason))
        case _:
            assert_never(record)


def plain(text: str) -> str:
    r"""Return `text` in ASCII, with anything else spelled as `\u202e`.

    Lines are read in terminals, where a control character past ASCII or a change of
    writing direction could hide or forge what is read.  (Below ASCII's 32 JSON escapes.)
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return text.encode("ascii", "backslashreplace").decode().replace("\x7f", "\\x7f")


def warn(sentence: str) -> None:
    """Say one sentence on stderr, where somebody may be reading."""
    with suppress(OSError):
        StderrSink().put(f"lnk sandbox: {sentence}\n".encode())


class UnsafeLog(PermissionError):
    """The place named for a log is one that others can change; `strerror` is the sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EPERM, sentence)


class _Appender:
    """Writes lines whole; a line that was cut short is ended before the next one."""

    _torn = False

    def _append(self, fd: int, lines: bytes) -> int:
        """Write at the end of `fd`; return the bytes that went, or raise OSError."""
        whole = b"\n" + lines if self._torn else lines
        sent = os.write(fd, whole)
        self._torn = sent < len(whole)
        if self._torn:  # a full disk takes what still fits
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return sent


class StderrSink(_Appender):
    """Lines to a descriptor that isn't ours alone: a terminal, or a pipe to somebody.

    It can't be made non-blocking (that would hold for everybody who shares it), so each
    write asks poll(2) first: a pipe that has room takes PIPE_BUF bytes without waiting,
    and a line is shorter.  A reader who stands still stops the calls, never the loop.
    """

    name = ""

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def check(self) -> None:
        """Know nothing of who reads it."""

    def put(self, lines: bytes) -> None:
        """Write `lines` now, or raise BlockingIOError."""
        ready = self._poll.poll(0)
        if not ready or not ready[0][1] & select.POLLOUT:
            raise BlockingIOError(errno.EAGAIN, "nobody reads it")
        self._append(self._fd, lines)

    def close(self) -> None:
        """Leave the descriptor open: it is everybody's."""


class NoSink:
    """Lines to nowhere, for who keeps no log."""

    name = ""

    def check(self) -> None:
        """Know nothing of who reads it."""

    def put(self, lines: bytes) -> None:
        """Forget `lines`."""

    def close(self) -> None:
        """Hold nothing."""


class FileSink(_Appender):
    """`FOLDER/NAME.jsonl`, rotated by size.

    Raises UnsafeLog where the folder is no safe place for it, and another OSError where
    the file can't be made.  keeps_empty: whether the file stays in the end though nothing was
    written: nobody will look for the log of a run that called nothing.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        *,
        max_bytes: int = MAX_BYTES,
        keep: int = KEEP,
        keeps_empty: bool = True,
    ) -> None:
        if NAME.fullmatch(name) is None:
            raise UnsafeLog(f"{name!r} is no name for a log: {NAME_RULE}.")
        self.name = f"the log {folder}/{name}.jsonl"
        self._path, self._file = folder, f"{name}.jsonl"
        self._max_bytes, self._keep = max_bytes, keep
        self._keeps_empty = keeps_empty
        self._size, self._rotate_at = 0, max_bytes
        self._folder = open_folder(folder)
        try:
            self._fd = self._open()
        except BaseException:
            os.close(self._folder)
            raise

    def check(self) -> None:
        """Begin again where somebody has removed the file: nobody sees what goes there."""
        if os.fstat(self._fd).st_nlink == 0:
            self._reopen()

    def put(self, lines: bytes) -> None:
        """Append `lines` with one write."""
        if self._size + len(lines) > self._rotate_at:
            self._rotate()
        self._size += self._append(self._fd, lines)

    def close(self) -> None:
        """Close both descriptors."""
        if not self._keeps_empty and os.fstat(self._fd).st_size == 0 and self._is_current():
            with suppress(OSError):
                os.unlink(self._file, dir_fd=self._folder)
        os.close(self._fd)
        os.close(self._folder)

    def _open(self) -> int:
        """Open the file that bears the name, made if missing, and start counting there."""
        try:
            fd = os.open(self._file, _OPEN | os.O_CREAT, 0o600, dir_fd=self._folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link, a pipe, a folder
                raise self._not_ours() from None
            raise
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            os.close(fd)
            raise self._not_ours()
        os.fchmod(fd, 0o600)
        self._size, self._rotate_at, self._torn = found.st_size, self._max_bytes, False
        return fd

    def _not_ours(self) -> UnsafeLog:
        return UnsafeLog(f"{self.name} is a link or no file of ours: move it away.")

    def _reopen(self) -> None:
        """Go over to the file that now bears the name; where none can be had, keep ours."""
        try:
            new = self._open()
        except FileNotFoundError:  # the folder was removed too
            folder = open_folder(self._path)
            os.close(self._folder)
            self._folder = folder
            new = self._open()
        os.close(self._fd)
        self._fd = new

    def _rotate(self) -> None:
        """Rename the files one up and begin a new one; go on in the old one where that fails."""
        self._rotate_at = self._size + self._max_bytes // 8  # not again at each line, if it fails
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another proxy of this name is at it
        try:
            if self._is_current():
                self._shift()
            self._reopen()
        except OSError:  # a log that grows beats a line that is lost
            return
        finally:
            with suppress(OSError):  # ours, if it was kept; closing it let go of the lock
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _is_current(self) -> bool:
        """Tell whether the name still leads to our file, and not to one begun since."""
        with suppress(FileNotFoundError):
            named = os.stat(self._file, dir_fd=self._folder, follow_symlinks=False)
            return os.path.samestat(named, os.fstat(self._fd))
        return False

    def _shift(self) -> None:
        """Rename NAME.jsonl to .1, .1 to .2 …; the last one is written over."""
        names = [self._file, *(f"{self._file}.{number}" for number in range(1, self._keep + 1))]
        for old, new in reversed(list(itertools.pairwise(names))):
            with suppress(FileNotFoundError):
                os.rename(old, new, src_dir_fd=self._folder, dst_dir_fd=self._folder)


def open_folder(path: str) -> int:
    """Return a descriptor of a folder that only we can write, made 0700 if it is missing.

    Raises UnsafeLog where it is a link, somebody else's, or writable by others (R95):
    they could put a link or a file of theirs in the log's place.
    """
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise UnsafeLog(
                f"the log's folder {path} is a link or no folder: name another."
            ) from None
        raise
    found = os.fstat(fd)
    if found.st_uid != os.geteuid():
        os.close(fd)
        raise UnsafeLog(f"the log's folder {path} is somebody else's: name one of your own.")
    if found.st_mode & 0o022:
        os.close(fd)
        cure = "run chmod go-w on it"
        if found.st_mode & stat.S_ISVTX:  # everybody's, as /tmp is: closed, a machine would break
            cure = "it is everybody's, so name one of your own"
        raise UnsafeLog(f"others can write the log's folder {path}: {cure}.")
    return fd


def open_log(
    folder: str | None,
    name: str,
    *,
    tell: Tell | None = None,
    kept: bool = True,
    keeps_empty: bool = True,
) -> WireLog:
    """Return the log of the proxy `name`: a file in `folder`, or lines on stderr.

    kept: False where nothing keeps lines.  keeps_empty: as `FileSink` has it.
    """
    sink: Sink = NoSink()
    if kept:
        sink = StderrSink() if folder is None else FileSink(folder, name, keeps_empty=keeps_empty)
    return WireLog(sink, tell=tell)
