"""Where git keeps a repository: its folder, a worktree's or submodule's file, what they share.

Only names and small files are looked at, the way git itself finds a repository; nothing
of git's is run.  Imported at every start, so it imports no `os`.
"""

import posix

from sandbox.linux.git_config import Reader, joined
from sandbox.linux.program import text_of
from sandbox.linux.walk import FOLDER, Unreadable, inside, kind_of, read_file, walk

LAYOUT_FILE_MAX_BYTES = 16 << 10
"""`.git`, `HEAD`, `commondir`, `gitdir` hold one path or one name each."""
HEAD_BYTES = 256
"""What git reads of a HEAD."""
HEXADECIMAL = b"0123456789abcdefABCDEF"


class Repository:
    """One repository as seen from a work tree.

    top: the work tree's folder.  folder: git's own (`GIT_DIR`).  common: what it shares
    with the repository's other worktrees, else the same.  All without links.
    ways: the paths by which git gets to folder and common, as they are written.
    """

    __slots__ = ("common", "folder", "top", "ways")

    def __init__(self, top: str, folder: str, common: str, ways: "tuple[str, ...]") -> None:
        self.top = top
        self.folder = folder
        self.common = common
        self.ways = ways


def repository_at(top: str) -> "Repository | None":
    """Return the repository whose work tree git finds at a folder, by its `.git`."""
    way = f"{top}/.git"
    if walk(way).kind != FOLDER:
        named = _line(way)
        if not named.startswith("gitdir: "):
            return None
        way = joined(top, named.removeprefix("gitdir: "))
    folder = walk(way).real
    if not is_repository(folder):
        return None
    shared = _common(folder)
    return Repository(top, folder, walk(shared).real, (way, shared))


def repositories_above(folder: str) -> "list[Repository]":
    """Return those whose work tree a folder lies in, the nearest first."""
    found = []
    while folder != "/":
        folder = folder.rpartition("/")[0] or "/"
        repository = repository_at(folder.rstrip("/"))
        if repository is not None:
            found.append(repository)
    return found


def is_repository(folder: str) -> bool:
    """Tell whether git takes a folder for one of its own: a HEAD, objects and refs."""
    if not _is_head(f"{folder}/HEAD"):
        return False
    common = walk(_common(folder)).real
    return all(posix.access(f"{common}/{name}", posix.X_OK) for name in ("objects", "refs"))


def own_folder_around(path: str) -> "str | None":
    """Return the folder of git's own that a folder is or lies in, None for none."""
    while path != "/":
        if is_repository(path):
            return path
        path = path.rpartition("/")[0] or "/"
    return None


def opened_with(top: str, home: str) -> "tuple[str, ...]":
    """Return the folders outside that git writes for a commit in `top`, a work tree.

    They are those that a worktree's or a submodule's `.git` file leads to, and the file may
    be a sandbox's own work: it could name any repository, to be given that.  So each has
    to lead back to `top`, and what is shared has to hold the worktree's own folder: who
    can't write a repository can't make it say so.  Raises Unreadable for one that doesn't.
    """
    if walk(f"{top}/.git").kind == FOLDER or kind_of(f"{top}/.git") == 0:
        return ()
    repository = repository_at(top)
    if repository is None or inside(repository.folder, top):
        return ()
    folder, common = repository.folder, repository.common
    if folder == common:
        trees = Reader(home).read(f"{folder}/config")[1]
        if not any(_leads_back(folder, tree, top) for tree in trees):
            raise Unreadable(f"{top}/.git", f"leads to {folder}, whose settings don't lead back")
        return (folder,)
    back = _line(f"{folder}/gitdir")
    holder, _, name = back.rpartition("/")
    if name != ".git" or not _leads_back(folder, holder, top):
        raise Unreadable(f"{top}/.git", f"leads to {folder}, whose gitdir doesn't lead back")
    if folder.rpartition("/")[0] != f"{common}/worktrees":
        raise Unreadable(f"{top}/.git", f"leads to {folder}, which isn't a worktree of {common}")
    return (common,)


def _leads_back(folder: str, path: str, top: str) -> bool:
    """Tell whether a path in a folder of git's is that to `top`, by no link: git writes none.

    A sandbox that writes the folder above another work tree could put a link in its place, or
    in that of a folder which the path leaves again.
    """
    way = walk(joined(folder, path))
    return way.real == top and not way.links and all(inside(folder, place) for place in way.left)


def _common(folder: str) -> str:
    """Return the path to what a folder of git's shares, as it is written."""
    named = _line(f"{folder}/commondir")
    return joined(folder, named) if named else folder


def _line(path: str) -> str:
    """Return the one line of a small file, empty where there is none to be read.

    It ends at a NUL, as C's texts do for git.
    """
    try:
        data = read_file(path, LAYOUT_FILE_MAX_BYTES)
    except (PermissionError, Unreadable):
        return ""  # git can't read it either
    return text_of(data.rstrip(b"\r\n").partition(b"\0")[0]) if data else ""


def _is_head(path: str) -> bool:
    """Tell whether a file could be a HEAD: a reference's name or a commit's number."""
    try:
        return posix.readlink(path).startswith("refs/")
    except OSError:
        pass  # no link
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError:
        return False
    try:
        head = posix.read(fd, HEAD_BYTES)
    except OSError:
        return False  # a folder
    finally:
        posix.close(fd)
    if head.startswith(b"ref:"):
        return head.removeprefix(b"ref:").lstrip().startswith(b"refs/")
    return len(head) >= 40 and all(byte in HEXADECIMAL for byte in head[:40])
