"""Placeholders: what holds a missing dot file's place while sandboxes run (R71).

A mount covers only what is there.  So an empty folder is made where a dot file is missing,
mounted read only inside, and taken away with the last sandbox that rests on it: taken away
earlier, its mount would be gone from every sandbox at once.  Which runs rest on which is
kept in Link's settings, in `sandbox/placeholders/`:

    lock        held while the folder is looked at or changed; never across a fork
    <run>.sock  a listening socket: the run is alive while that accepts
    <run>.json  [[path, device, inode, mode], …]: what the run rests on; zeros before it is made

The socket is held by the launcher, and by the keeper until all inside are dead, and by nobody
inside: a program may steer the sandbox's first process by ptrace, and one shutdown(2) there
would make a living run look dead.  Nor can a number of a process that is used again make a
dead one look alive.  Nobody accepts: a full backlog is as good a sign of life as a connection.

A placeholder is written down before it is made, and made with the sticky bit, which nobody
gives such a folder; so after a crash at any moment the next command knows what to take
away, and takes away nothing that isn't the empty thing that was made: the same inode and
mode, and still empty.  Where another user's run, whose journal is another, rests on it
too, that run holds a lock on it, and it stays until a later command.

Imported at every start, so it imports no `os`.
"""

import _socket
import posix
import sys
import time

from sandbox.linux.kept import read_json
from sandbox.linux.walk import FILE, FOLDER, KIND

EPERM, ENOENT, ENXIO, EACCES, EEXIST, ENFILE, EMFILE, EROFS = 1, 2, 6, 13, 17, 23, 24, 30
ENAMETOOLONG, ENOTEMPTY, ELOOP = 36, 39, 40
STICKY = 0o1000
FOLDER_MODE, FILE_MODE = STICKY | 0o755, STICKY | 0o644
JOURNAL_MAX_BYTES = 4 << 20
OTHERS_WRITE = 0o022
STEPS = ("sandbox", "placeholders")
LOCK_S = 10.0
"""How long to wait for the journal: others hold it for about a millisecond each."""
LOCK_STEP_S = 0.001
DYING_S = 0.5
"""How long a dead run's processes may still be there: its launcher's end kills them at once."""

Made = tuple[int, int, int]
"""What was made: its device, inode and mode; zeros before it is known."""
Entry = tuple[str, Made]
"""A placeholder's path, and what was made there."""
UNKNOWN = (0, 0, 0)


class Raced(Exception):
    """Something came to be, or went, between the look and the making: look again."""


class Run:
    """What one sandbox rests on.

    listener: the descriptor of its listening socket, for launcher and keeper to hold alone.
    entries: its placeholders, those others made too.  folders: the folders they lie in,
    open, for one may be moved meanwhile.  shared: other users' placeholders, open and locked
    for as long.
    """

    __slots__ = ("_journal", "entries", "folders", "listener", "name", "shared", "unmade")

    def __init__(self, journal: "Journal", name: str, listener: int) -> None:
        self._journal = journal
        self.name = name
        self.listener = listener
        self.entries: list[Entry] = []
        self.folders: dict[str, int] = {}
        self.shared: list[int] = []
        self.unmade: set[str] = set()

    def end(self) -> None:
        """Take away what nobody else rests on.  Every process of the sandbox is dead."""
        self._journal.sweep(self)

    def close(self) -> None:
        """Let go of all that is open, in a process that goes on without the sandbox."""
        for fd in (self.listener, *self.folders.values(), *self.shared):
            posix.close(fd)


class Journal:
    """The folder of all runs' placeholders; opened anew for each use, whichever process it is."""

    __slots__ = ("_folder", "path", "settings")

    def __init__(self, settings: str) -> None:
        self.settings = settings
        self.path = "/".join((settings, *STEPS))
        self._folder = -1

    def sweep(self, ended: "Run | None" = None) -> None:
        """Take away what dead runs left; `ended` is one that is known to be over."""
        if self._is_idle():
            return
        with _Locked(self, make=False):
            self.living(ended)

    def _is_idle(self) -> bool:
        """Tell whether there is nothing to look at, as there is at most starts."""
        try:
            return all(name == "lock" for name in posix.listdir(self.path))
        except OSError:
            return True  # nothing was ever held, or what is wrong here shows at the next hold

    def locked(self) -> "_Locked":
        """Return the folder, made where it is missing, as ours alone for a block."""
        return _Locked(self, make=True)

    # -- what is called in a locked block

    def living(self, ended: "Run | None" = None) -> "set[Made]":
        """Return what living runs rest on, once what dead ones alone did has been taken away."""
        names = posix.listdir(self._folder)
        held: set[Made] = set()
        left: dict[str, list[Entry]] = {}
        for run in sorted({name.partition(".")[0] for name in names} - {"lock", ""}):
            over = ended is not None and run == ended.name
            if over or not self._is_alive(run):
                left[run] = self._read(run)
            else:
                held |= {made for _, made in self._read(run)}
        for run in [run for run in left if ended is None or run != ended.name]:
            # What a living run rests on stays, whoever has it mounted.
            if _are_mounted([one for one in left[run] if one[1] not in held]):
                held |= {made for _, made in left.pop(run)}
        for run, entries in left.items():
            folders = ended.folders if ended is not None and run == ended.name else {}
            kept = [one for one in sorted(entries)[::-1] if not _away(one, held, folders)]
            if kept:
                self._write(run, kept)
            else:
                self._forget(run, names)
        for name in names:
            if name.startswith("."):
                self._unlink(name)  # half written: whoever wrote it held the lock, and died
        return held

    def begin(self, missing: "dict[str, int]", standing: "list[str]") -> Run:
        """Begin a run: make what is missing, and rest on those of `standing` that others made.

        missing: paths with what they are made as, folders above first.  The run's `unmade`
        is what could not be made because the program can't make it either.  Raises Raced,
        having undone all, where something was made or went meanwhile; LaunchError where
        one can't be made and the program could.
        """
        others = self.living()
        name = posix.urandom(8).hex()
        run = Run(self, name, self._listen(name))
        try:
            for path in standing:
                _rest_on(run, path, others)
            if missing:
                self._write(name, [*run.entries, *((path, UNKNOWN) for path in missing)])
            for path, kind in missing.items():
                _make(run, path, kind)
            self._write(name, run.entries)
        except BaseException:
            self.living(run)
            run.close()
            raise
        return run

    def _listen(self, name: str) -> int:
        made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        try:
            # By the folder's descriptor: a socket's address holds no more than 108 bytes.
            made.bind(f"/proc/self/fd/{self._folder}/{name}.sock")
        except OSError as error:
            made.close()
            raise _error(
                error.errno or 0,
                f"Link's settings: {self.path} takes no socket ({error.strerror}): have LNK_HOME "
                "name a folder on a disk of this machine's own.",
            ) from None
        made.listen(0)
        posix.chmod(f"{name}.sock", 0o600, dir_fd=self._folder)  # whatever the umask
        return made.detach()

    def _is_alive(self, run: str) -> bool:
        asked = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        try:
            asked.setblocking(False)
            asked.connect(f"/proc/self/fd/{self._folder}/{run}.sock")
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # its backlog is full; what can't be told counts as alive
        finally:
            asked.close()
        return True

    def _read(self, run: str) -> "list[Entry]":
        try:
            fd = posix.open(
                f"{run}.json", posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC,
                dir_fd=self._folder,
            )  # fmt: skip
        except OSError:
            return []
        try:
            rows: list[tuple[str, int, int, int]] = read_json(  # type: ignore[assignment]
                posix.read(fd, JOURNAL_MAX_BYTES).decode()
            )
            return [(path, (device, inode, mode)) for path, device, inode, mode in rows]
        except (ValueError, TypeError):
            return []  # cut short by a power cut
        finally:
            posix.close(fd)

    def _write(self, run: str, entries: "list[Entry]") -> None:
        """Write a run's file beside its name, then onto it.

        It isn't flushed to the disk: a power cut that loses it leaves empty folders.
        """
        from _json import encode_basestring_ascii

        rows = (f"[{encode_basestring_ascii(path)},{','.join(map(str, m))}]" for path, m in entries)
        fd = posix.open(
            f".{run}", posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600,
            dir_fd=self._folder,
        )  # fmt: skip
        try:
            posix.fchmod(fd, 0o600)
            _write_all(fd, f"[{','.join(rows)}]".encode())
        finally:
            posix.close(fd)
        posix.rename(f".{run}", f"{run}.json", src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _forget(self, run: str, names: "list[str]") -> None:
        for name in names:
            if name.partition(".")[0] == run:
                self._unlink(name)

    def _unlink(self, name: str) -> None:
        try:
            posix.unlink(name, dir_fd=self._folder)
        except FileNotFoundError:
            return


class _Locked:
    """The journal's folder, open and locked for a block.

    The lock is the kernel's own (fcntl), held by this process alone: a fork doesn't share
    it, and it goes when the process does.
    """

    def __init__(self, journal: Journal, *, make: bool) -> None:
        self._journal = journal
        self._make = make
        self._lock = -1

    def __enter__(self) -> Journal:
        journal = self._journal
        try:
            journal._folder = _open_folder(journal.settings, make=self._make)
            self._lock = posix.open(
                "lock", posix.O_RDWR | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_CLOEXEC, 0o600,
                dir_fd=journal._folder,
            )  # fmt: skip
            _lock(self._lock)
        except OSError as error:
            self.__exit__()
            raise _error(
                error.errno or 0,
                f"Link's settings: {journal.path} can't be used: {error.strerror}.",
            ) from None
        return journal

    def __exit__(self, *raised: object) -> None:
        for fd in (self._lock, self._journal._folder):
            if fd >= 0:
                posix.close(fd)
        self._lock = self._journal._folder = -1


def _open_folder(settings: str, *, make: bool) -> int:
    """Open the journal's folder, each step its user's alone and no link (R95)."""
    folder = None
    for name in (settings, *STEPS):
        if make:
            _make_folder(name, folder)
        flags = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
        try:
            inner = posix.open(name, flags, dir_fd=folder)
        finally:
            if folder is not None:
                posix.close(folder)
        folder = inner
        about = posix.fstat(folder)
        if about.st_uid != posix.geteuid() or about.st_mode & OTHERS_WRITE:
            # Whoever else writes there says what is taken away, and what is held.
            posix.close(folder)
            raise PermissionError(EPERM, "it is another user's, or others can write it")
    assert folder is not None
    return folder


def _make_folder(name: str, above: "int | None") -> None:
    try:
        posix.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        return


def _lock(fd: int) -> None:
    """Lock a file against other processes; raise OSError where it isn't to be had in time."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            posix.lockf(fd, posix.F_TLOCK, 0)
        except (BlockingIOError, PermissionError):
            if time.monotonic() > until:
                raise
            time.sleep(LOCK_STEP_S)
        else:
            return


def _rest_on(run: Run, path: str, others: "set[Made]") -> None:
    """Rest on what stands at a path, where another run made it."""
    try:
        about = posix.lstat(path)
        if _made(about) in others:
            _held_folder(run, path)
            run.entries.append((path, _made(about)))
        elif about.st_mode & STICKY and _is_empty(path, about):
            _share(run, path, _made(about))
    except FileNotFoundError:
        raise Raced from None


def _share(run: Run, path: str, made: Made) -> None:
    """Keep what looks like another user's placeholder from being taken away meanwhile.

    It is that user's: by now it may be a pipe that would never open, or lead elsewhere.
    """
    import fcntl  # only where two users' sandboxes meet

    flags = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC | posix.O_NONBLOCK
    try:
        fd = posix.open(path, flags)
        run.shared.append(fd)
        if _made(posix.fstat(fd)) != made:
            raise Raced
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Raced from None  # it is being taken away
    except PermissionError:
        raise _error(
            EACCES,
            f"{path} belongs to another user, who may take it away: have them remove it.",
        ) from None
    except OSError as error:
        if error.errno in (ELOOP, ENXIO):  # a link, or a socket
            raise Raced from None
        raise


def _make(run: Run, path: str, kind: int) -> None:
    """Make a placeholder and write it down, or that nobody inside can make it."""
    above, _, name = path.rpartition("/")
    if above in run.unmade:
        run.unmade.add(path)
        return
    folder = _held_folder(run, path)
    # Another user's run has to see that it is empty, or it can't rest on it.
    before = posix.umask(0o022)
    try:
        if kind == FOLDER:
            posix.mkdir(name, FOLDER_MODE, dir_fd=folder)
        else:
            flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC
            posix.close(posix.open(name, flags, FILE_MODE, dir_fd=folder))
        about = posix.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise Raced from None
    except OSError as error:
        # Its owner could let itself into a folder, and then make what isn't held.
        theirs = posix.fstat(folder).st_uid != posix.geteuid()
        if error.errno in (EROFS, ENAMETOOLONG) or (theirs and error.errno in (EACCES, EPERM)):
            run.unmade.add(path)
            return
        cure = ": make it writable (chmod u+wx), or give it by read" * (error.errno == EACCES)
        raise _error(
            error.errno or 0,
            f"{path} can't be held while the sandbox runs: {above} can't be written "
            f"({error.strerror}){cure}.",
        ) from None
    finally:
        posix.umask(before)
    run.entries.append((path, _made(about)))


def _held_folder(run: Run, path: str) -> int:
    """Return the folder that a path lies in, open until the run ends."""
    above = path.rpartition("/")[0]
    if above not in run.folders:
        folder = _folder(above)
        if folder < 0:
            raise Raced
        run.folders[above] = folder
    return run.folders[above]


def _are_mounted(entries: "list[Entry]") -> bool:
    """Tell whether a process has a run's placeholders mounted, though the run itself is dead.

    Where everything outside was killed while bubblewrap set up, what is inside may live on; a
    placeholder that is taken away would take its mount along.  Whoever is inside can't hide it.
    """
    marks = [mark for path, made in entries if made != UNKNOWN for mark in _marks(path)]
    until = time.monotonic() + DYING_S
    while marks and _find(marks):
        if time.monotonic() > until:
            return True
        time.sleep(LOCK_STEP_S)
    return False


def _marks(path: str) -> "list[bytes]":
    """Return how a mount at a path is listed, once bubblewrap has set up and before."""
    data = path.encode(sys.getfilesystemencoding(), "surrogateescape")
    for byte in (b"\\", b" ", b"\t", b"\n"):
        data = data.replace(byte, b"\\%03o" % ord(byte))
    return [b" " + data + b" ", b" /newroot" + data + b" "]


def _find(marks: "list[bytes]") -> bool:
    """Look for mounts in every process's list, whoever's it is: one may hide its owner."""
    for name in posix.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/mountinfo", "rb", buffering=0) as file:
                mounts = file.read()
        except OSError:
            continue  # it has just ended
        if any(mark in mounts for mark in marks):
            return True
    return False


def _away(entry: Entry, held: "set[Made]", folders: "dict[str, int]") -> bool:
    """Take a placeholder away; False where it has to stay for now.

    What isn't the empty thing that was made is left, and is nobody's placeholder any more.
    """
    path, made = entry
    above, _, name = path.rpartition("/")
    folder = folders.get(above, -1)
    opened = -1
    try:
        if folder < 0:
            folder = opened = _folder(above)
        return folder < 0 or _removed(name, folder, made, held)
    except OSError as error:
        return error.errno in (ENOENT, ENOTEMPTY, EEXIST, EROFS)
    finally:
        if opened >= 0:
            posix.close(opened)


def _removed(name: str, folder: int, made: Made, held: "set[Made]") -> bool:
    about = posix.stat(name, dir_fd=folder, follow_symlinks=False)
    if made == UNKNOWN and about.st_mode & STICKY and about.st_uid == posix.geteuid():
        made = _made(about)  # it was about to be made, and is known by the bit alone
    if _made(about) != made or made in held:
        return True
    if _is_shared(name, folder):
        return False
    if about.st_mode & KIND == FOLDER:
        posix.rmdir(name, dir_fd=folder)  # which takes away only an empty one
    elif about.st_mode & KIND == FILE and about.st_size == 0:
        posix.unlink(name, dir_fd=folder)
    return True


def _is_shared(name: str, folder: int) -> bool:
    """Tell whether a run whose journal is another rests on a placeholder."""
    import fcntl

    flags = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC | posix.O_NONBLOCK
    fd = posix.open(name, flags, dir_fd=folder)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # there are no such locks on this kind of disk
    finally:
        posix.close(fd)
    return False


def _made(about: posix.stat_result) -> Made:
    return about.st_dev, about.st_ino, about.st_mode


def _is_empty(path: str, about: posix.stat_result) -> bool:
    if about.st_mode & KIND == FILE:
        return about.st_size == 0
    if about.st_mode & KIND != FOLDER:
        return False
    try:
        return not posix.listdir(path)
    except PermissionError:
        return False  # another user's, and nothing that Link has made
    except NotADirectoryError:
        raise Raced from None


def _folder(path: str) -> int:
    """Open the folder that a placeholder lies in, -1 where its name leads elsewhere now."""
    try:
        fd = posix.open(path, posix.O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    except OSError as error:
        if error.errno in (EMFILE, ENFILE):
            raise  # of the folder it says nothing
        return -1
    if posix.readlink(f"/proc/self/fd/{fd}") != path:
        posix.close(fd)
        return -1
    return fd


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[posix.write(fd, data) :]


def _error(errno: int, message: str) -> "LaunchError":
    from sandbox.errors import LaunchError

    return LaunchError("placeholders", errno, message)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.errors import LaunchError
