"""Whether a kept command's routes are where it left them, looked at before its sandbox is made.

The proxy opens them later, and looks again: then the program may have started.  Imported at a
start, so it imports no `os` (see `launcher`).
"""

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.errors import LaunchError

FILE, TYPE, OTHERS = 0o100000, 0o170000, 0o077


def look(routes: "dict[str, object]") -> None:
    """Raise LaunchError where a file of a wire's routes isn't there, or isn't its user's alone.

    And where another wrap of the name has written another caller's there: the proxy would read
    past the key, or not to its end.
    """
    for name in ("file", "url_secret"):
        path = routes.get(name)
        if isinstance(path, str):
            _look(path)
            if name == "file" and not _ends_at(path, routes["head"]):
                raise failed(path, "is another caller's by now")


def _look(path: str) -> None:
    try:
        found = posix.lstat(path)
    except OSError as error:
        raise failed(path, f"can't be opened: {error.strerror}", error.errno or 0) from None
    check(path, found)


def _ends_at(path: str, head: object) -> bool:
    """Tell whether the caller's key ends where a file's first `head` bytes do."""
    assert isinstance(head, int)
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
        try:
            return posix.pread(fd, 2, head - 1) == b'",'
        finally:
            posix.close(fd)
    except OSError:
        return False


def check(path: str, found: posix.stat_result) -> None:
    """Raise LaunchError where what was found isn't a file, and its user's alone."""
    if found.st_uid != posix.geteuid() or found.st_mode & TYPE != FILE or found.st_mode & OTHERS:
        # Whoever else reads it has the keys; whoever writes it chooses where they go.
        raise failed(path, "isn't its user's alone")


def failed(path: str, why: str, number: int = 0) -> "LaunchError":
    """Return the error that says what became of a routes' file."""
    from sandbox.errors import LaunchError

    cure = "make the command anew with wrap"
    return LaunchError("routes", number, f"the routes' file {path} {why}; {cure}.")
