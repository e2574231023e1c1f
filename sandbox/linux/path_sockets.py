"""Path sockets in folders that are read: masked, where they are known.

A read-only mount doesn't stop connecting to a socket in it, and who listens (an agent with
keys, a desktop's bus) may do what it is told.  The kernel lists the bound sockets of its
network; each that lies where a sandbox reads has /dev/null mounted over it.  The list has the
names they were bound by: who binds one name and then renames or links it (OpenSSH's
ControlMaster) stands in the same folder, so of a folder where a name is gone all sockets count;
and a relative name is looked for in the processes' working folders.  One that is bound later, or
in another network (a container's), isn't known.

Imported at a start that reads a folder, so it imports no `os`.
"""

import posix

from sandbox.linux.dot_mounts import Layout, inserted
from sandbox.linux.program import text_of
from sandbox.linux.walk import inside, walk

LIST = "/proc/net/unix"
BEFORE_NAME = 6
"""How many words stand before an inode and a name, in a line of it."""
SOCKET = 0o140000
BY_FD = "--ro-bind-fd"
MASKS_MAX = 512
"""Each costs a start about 0.3 ms; a home folder has a dozen."""


def mask(arguments: "list[str | list[str]]", folders: "list[str]") -> "list[str | list[str]]":
    """Return bubblewrap's arguments with a mask over each known socket in some folders.

    Where a folder that is written holds it, it is left: whoever writes may connect too.
    Raises LaunchError where there are too many.
    """
    paths = [path for path in bound(folders) if _is_socket(path)]
    if not paths:
        return arguments
    layout = Layout(arguments)
    read = {
        str(arguments[at + 2]) for at, one in enumerate(arguments) if one in ("--ro-bind", BY_FD)
    }
    shown = [path for path in paths if layout.nearest(path) in read]
    if len(shown) > MASKS_MAX:
        from sandbox.errors import LaunchError

        raise LaunchError(
            "sockets", 0, f"there are more than {MASKS_MAX} sockets in the folders it reads: name "
            "fewer of them, or what of them the program needs.",
        )  # fmt: skip
    return inserted(arguments, layout, {path: ["--ro-bind", "/dev/null", path] for path in shown})


def bound(folders: "list[str]") -> "list[str]":
    """Return the places in some folders at which this network's sockets were bound, without links.

    A desktop has hundreds, most in a few folders: so a folder's way is walked once.
    """
    found: dict[str, None] = {}
    ways: dict[str, str] = {}
    for path in _named():
        above, _, name = path.rpartition("/")
        if above not in ways:
            ways[above] = walk(above).real
        found[f"{ways[above].rstrip('/')}/{name}"] = None
    within = [path for path in found if any(inside(path, folder) for folder in folders)]
    gone = dict.fromkeys(path.rpartition("/")[0] for path in within if not _is_socket(path))
    return list(dict.fromkeys([*within, *(path for folder in gone for path in _sockets(folder))]))


def _named() -> "list[str]":
    """Return the names in the kernel's list, in full; a relative one once for each folder."""
    found: list[str] = []
    relative: list[str] = []
    for line in _list().split(b"\n")[1:]:
        # Num RefCount Protocol Flags Type St Inode Path; an abstract name begins with @.
        words = line.split(None, BEFORE_NAME)
        name = text_of(words[-1].partition(b" ")[2]) if len(words) > BEFORE_NAME else ""
        if name.startswith("/"):
            found.append(name)
        elif name and not name.startswith("@"):
            relative.append(name)
    if relative:
        found += [f"{folder}/{name}" for folder in _working_folders() for name in relative]
    return found


def _working_folders() -> "set[str]":
    """Return the processes' working folders, of those that may be looked at."""
    found = set()
    for pid in posix.listdir("/proc"):
        if pid.isdigit():
            try:
                found.add(posix.readlink(f"/proc/{pid}/cwd"))
            except OSError:
                continue  # it is another user's, or has just ended
    return {folder for folder in found if folder.startswith("/")}


def _sockets(folder: str) -> "list[str]":
    try:
        names = posix.listdir(folder)
    except OSError:
        return []
    return [path for name in names if _is_socket(path := f"{folder}/{name}")]


def _list() -> bytes:
    try:
        fd = posix.open(LIST, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return b""  # this kernel has no unix sockets
    try:
        found = b""
        while data := posix.read(fd, 1 << 16):
            found += data
        return found
    finally:
        posix.close(fd)


def _is_socket(path: str) -> bool:
    try:
        return posix.lstat(path).st_mode & 0o170000 == SOCKET
    except OSError:
        return False
