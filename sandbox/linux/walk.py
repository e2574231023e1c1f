"""Paths walked step by step, as the kernel walks them, and files read within bounds.

`realpath` says where a path ends.  Where a sandbox writes, it matters as well which links
it passes on its way: each is a place where the sandbox could lead it elsewhere.  Imported
at every start, so it imports no `os`.
"""

import posix

LINKS_MAX = 40
"""As the kernel has it (MAXSYMLINKS)."""
FOLDER, FILE, LINK, DEVICE = 0o040000, 0o100000, 0o120000, 0o020000
KIND = 0o170000


class Unreadable(Exception):
    """A file that decides what has to be closed, and can't be read; so nothing starts."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path


class Walked:
    """Where a path leads.

    real: the place without links; what doesn't exist of it stands as it was written.
    kind: of what is there, 0 for nothing.  links: the links on the way, each where it is.
    left: the folders that the path goes into and back out of (`tools/../hooks`); a link in the
    place of one would lead elsewhere.
    """

    __slots__ = ("kind", "left", "links", "real")

    def __init__(
        self, real: str, kind: int, links: "tuple[str, ...]", left: "tuple[str, ...]"
    ) -> None:
        self.real = real
        self.kind = kind
        self.links = links
        self.left = left


def walk(path: str) -> Walked:
    """Walk an absolute path; whatever can't be looked at counts as missing.

    What is missing and left again counts as there, though it isn't to the kernel: it can be
    made, and then the path leads on.
    """
    ahead = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    here, kind, missing = "", FOLDER, False
    links: list[str] = []
    left: list[str] = []
    while ahead:
        part = ahead.pop()
        if part == "..":
            if here:
                left.append(here)
            here = here.rpartition("/")[0]
            kind = kind_of(here or "/")
            missing = kind in (0, LINK)
            continue
        step = f"{here}/{part}"
        kind = 0 if missing else kind_of(step)
        if kind == LINK and len(links) < LINKS_MAX:
            target = _led_to(step)
            if target is not None:
                links.append(step)
                if target.startswith("/"):
                    here = ""
                ahead += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                continue
            kind = 0
        missing = kind in (0, LINK)
        here = step
    return Walked(here or "/", 0 if missing else kind, tuple(links), tuple(left))


def _led_to(link: str) -> "str | None":
    """Return where a link leads; None where a sandbox that runs has just taken it away."""
    try:
        return posix.readlink(link)
    except OSError:
        return None


def kind_of(path: str) -> int:
    """Return the kind of what is at a path (FOLDER, FILE, LINK …), 0 for nothing."""
    try:
        return posix.lstat(path).st_mode & KIND
    except OSError:
        return 0


def read_file(path: str, most: int) -> "bytes | None":
    """Return a file's bytes, None where there is none.

    Raises PermissionError, and Unreadable for what is no file or longer than `most`.
    """
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except PermissionError:
        raise
    except OSError:
        return None
    try:
        about = posix.fstat(fd)
        if about.st_mode & KIND == DEVICE:
            return b""  # /dev/null, by which a person says that there are none
        if about.st_mode & KIND != FILE:
            raise Unreadable(path, "is no file")
        if about.st_size > most:
            raise Unreadable(path, f"is longer than the {most} bytes that are looked through")
        return _read(fd, most)
    finally:
        posix.close(fd)


def _read(fd: int, most: int) -> bytes:
    found = b""
    while len(found) < most and (data := posix.read(fd, most - len(found))):
        found += data
    return found


def inside(path: str, folder: str) -> bool:
    """Tell whether a path lies in a folder, or is it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
