"""Link's settings on disk: `$LNK_HOME`, else `~/.lnk` (part 10 of the system, R95).

Only commands that a person or a plugin runs look the folder up; what they start is given
its absolute path.  Nothing of it is ever open to a sandbox, so all a file here must fear
is another user and a crash: every folder is its user's alone and no link, looked at
through a descriptor so that what is checked is what is used, and every file is written
beside its name and renamed onto it, so that a reader sees the old or the new, whole.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox.errors import LaunchError, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    T = TypeVar("T")

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS_WRITE = 0o022
READ_MAX_BYTES = 16 << 20
"""No file of Link's is longer; one that is has not been written by Link."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def user_home(environ: Mapping[str, str] | None = None) -> str:
    """Return the user's home folder, its links followed; HOME, else the account's.

    Raises LaunchError where neither names a folder in full.
    """
    told = os.environ if environ is None else environ
    home = told.get("HOME") or _account_home()
    if not home.startswith("/") or "\0" in home:
        raise _error(errno.EINVAL, "HOME isn't an absolute path; set it to your home folder.")
    return os.path.realpath(home)


def _account_home() -> str:
    import pwd  # only where HOME isn't set

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def settings_folder(environ: Mapping[str, str] | None = None) -> str:
    """Return Link's settings folder, absolute; nothing is made or looked at.

    Raises LaunchError where LNK_HOME isn't an absolute path, or is `/`.
    """
    told = os.environ if environ is None else environ
    named = told.get("LNK_HOME")
    if not named:
        return os.path.join(user_home(told), ".lnk")
    if not named.startswith("/") or "\0" in named or ".." in named.split("/"):
        # Read from the working folder, it would be anybody's who chose that.
        raise _error(errno.EINVAL, "LNK_HOME isn't an absolute path without ..; write it in full.")
    plain = "/" + os.path.normpath(named).lstrip("/")  # it keeps two slashes
    if plain == "/":
        # No sandbox could be shown anything beside it.
        raise _error(errno.EINVAL, "LNK_HOME is the whole machine; name a folder in it.")
    return plain


class State:
    """The folder `sandbox/` of Link's settings.

    Names are plain file names; a path is given as its steps.  Raises LaunchError (125)
    where a folder isn't one, isn't its user's, or can be written by others.
    """

    def __init__(self, settings: str, *, itself: bool = False) -> None:
        """Stand for the folder `sandbox` in settings; `itself`: for the one that is named."""
        self.settings = settings
        self._steps = () if itself else ("sandbox",)
        self.path = os.path.join(settings, *self._steps)

    def folder(self, *steps: str) -> str:
        """Make a folder where it isn't, its user's alone; return its path."""
        with self._open(steps, make=True):
            return os.path.join(self.path, *steps)

    def write(self, data: bytes, *steps: str, flush: bool = True, new: bool = False) -> str:
        """Write a file whole, mode 0600; return its path.

        flush: to the disk too, which may take a while; for what outlives a power cut.
        new: raise FileExistsError where there is one of that name.
        """
        *above, name = steps
        path = os.path.join(self.path, *steps)
        try:
            with self._open(tuple(above), make=True) as folder:
                write_whole(folder, name, data, flush=flush, new=new)
        except FileExistsError:
            raise
        except OSError as error:
            raise _error(
                error.errno or 0, f"{path!r} can't be written: {error.strerror}."
            ) from None
        return path

    def read(self, *steps: str) -> bytes | None:
        """Return a file's bytes, None where it isn't there; nothing is made."""
        *above, name = steps
        try:
            with self._open(tuple(above), make=False) as folder:
                return _read(folder, name, os.path.join(self.path, *steps))
        except FileNotFoundError:
            return None

    def remove(self, *steps: str) -> None:
        """Remove a file; one that isn't there is no error."""
        *above, name = steps
        try:
            with self._open(tuple(above), make=False) as folder:
                _away(folder, _plain(name))
        except FileNotFoundError:
            return
        except OSError as error:
            path = os.path.join(self.path, *steps)
            raise _error(
                error.errno or 0, f"{path!r} can't be removed: {error.strerror}."
            ) from None

    def names(self, *steps: str) -> list[str]:
        """Return the names in a folder, sorted; none where it isn't there."""
        try:
            with self._open(steps, make=False) as folder:
                return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def _open(self, steps: tuple[str, ...], *, make: bool) -> _Opened:
        """Open a folder below `sandbox/`, each step checked; it closes with its block."""
        whole = self.settings
        if make:
            _made(whole, None, whole)
        folder = _checked(whole, None, whole)
        try:
            for name in (*self._steps, *steps):
                whole = os.path.join(whole, _plain(name))
                if make:
                    _made(name, folder, whole)
                inner = _checked(name, folder, whole)
                os.close(folder)
                folder = inner
        except BaseException:
            os.close(folder)
            raise
        return _Opened(folder)


def looked(settings: str | None, look: Callable[[State], T]) -> T:
    """Return what a look at Link's settings finds, which only shows it; nothing is changed.

    settings: Link's folder, absolute; None: LNK_HOME's, else the home's.  Raises
    Unavailable where they can't be read, or others could have changed them.
    """
    try:
        return look(State(settings_folder() if settings is None else settings))
    except LaunchError as error:
        raise Unavailable(error.message) from None
    except OSError as error:
        raise Unavailable(f"Link's settings can't be read: {error.strerror}.") from None


class _Opened:
    """A folder's descriptor for the length of a block."""

    __slots__ = ("folder",)

    def __init__(self, folder: int) -> None:
        self.folder = folder

    def __enter__(self) -> int:
        return self.folder

    def __exit__(self, *raised: object) -> None:
        os.close(self.folder)


def write_whole(
    folder: int, name: str, data: bytes, *, flush: bool = True, new: bool = False
) -> None:
    """Write a file in an open folder: beside its name, flushed, then renamed onto it.

    new: raise FileExistsError where the name is taken, also by one who writes it just now.
    """
    beside = f".{_plain(name)[:200]}.{os.urandom(8).hex()}"
    file = os.open(beside, _NEW_FILE_FLAGS, FILE_MODE, dir_fd=folder)
    try:
        with open(file, "wb") as target:
            os.fchmod(file, FILE_MODE)
            target.write(data)
            target.flush()
            if flush:
                os.fsync(file)  # else a power cut could leave the new name with no bytes
        if new:
            os.link(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.unlink(beside, dir_fd=folder)
        else:
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _away(folder, beside)  # unless a Ctrl-C came when it had its name already
        raise


def _away(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def was_run(state: State, digest: str) -> bool:
    """Tell whether a spec of this digest was run, and agreed to, before."""
    return state.read("specs", digest) is not None


def remember_run(state: State, digest: str, resolved: bytes) -> None:
    """Keep that a spec was agreed to, with what it opens."""
    state.write(resolved, "specs", digest)


def _plain(name: str) -> str:
    """Return a name that stays in its folder; anything else is a bug of ours."""
    assert name not in ("", ".", "..")
    assert "/" not in name
    return name


def _made(path: str, above: int | None, whole: str) -> None:
    try:
        os.mkdir(path, FOLDER_MODE, dir_fd=above)
    except FileExistsError:
        return
    except OSError as error:
        raise _error(error.errno or 0, f"{whole!r} can't be made: {error.strerror}.") from None


def _checked(path: str, above: int | None, whole: str) -> int:
    """Open a folder of Link's, or refuse it by its whole path."""
    try:
        folder = os.open(path, _FOLDER_FLAGS, dir_fd=above)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _error(error.errno or 0, f"{whole!r} {_why(error)}.") from None
    found = os.fstat(folder)
    wrong = ""
    if found.st_uid != os.geteuid():
        # Its owner could put any rule, key or command of theirs in it.
        wrong = "is another user's; make one of your own"
    elif stat.S_IMODE(found.st_mode) & OTHERS_WRITE:
        cure = "run chmod go-w on it"
        if found.st_mode & stat.S_ISVTX:  # everybody's, as /tmp is: closed, a machine would break
            cure = "it is everybody's, so name one of your own"
        wrong = f"can be written by others; {cure}"
    if wrong:
        os.close(folder)
        raise _error(errno.EPERM, f"{whole!r} {wrong}.")
    return folder


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        # A link could lead anywhere, and be led elsewhere after it was looked at.
        return "isn't a folder, or is a link to one; Link keeps its settings in a folder"
    return f"can't be opened: {error.strerror}"


def _read(folder: int, name: str, whole: str) -> bytes | None:
    try:
        file = os.open(_plain(name), _READ_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _error(error.errno or 0, f"{whole!r} {_why(error)}.") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _error(errno.EINVAL, f"{whole!r} isn't a file: take it away.")
    with open(file, "rb") as source:
        data = source.read(READ_MAX_BYTES + 1)
    if len(data) > READ_MAX_BYTES:
        raise _error(errno.EFBIG, f"{whole!r} is longer than any file of Link's.")
    return data


def _error(number: int, message: str) -> LaunchError:
    return LaunchError("Link's settings", number, f"Link's settings: {message}")
