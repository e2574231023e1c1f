"""What tries to change dot files from inside: it prints, as JSON, what became of each attempt.

Standard library alone, one argument: a JSON object with `paths`, each to be changed, and
`top`, the folder that is written.  An attempt is "open" where it got through, else the
errno's name.  What it changed it changes back, so that each attempt stands alone.
"""

import contextlib
import ctypes
import errno
import json
import os
import shutil
import sys

libc = ctypes.CDLL(None, use_errno=True)
told = json.loads(sys.argv[1])
top = told["top"]
AT_FDCWD, EXCHANGE = -100, 2
RENAMEAT2, OPEN_TREE, MOVE_MOUNT = {"x86_64": (316, 428, 429), "aarch64": (276, 428, 429)}[
    os.uname().machine
]


def tried(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "open"


def called(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "")


def beside(path):
    return os.path.join(os.path.dirname(path), "attack-" + os.path.basename(path).strip("."))


def opens(path, flags):
    if os.path.isdir(path):
        os.close(os.open(os.path.join(path, "made"), flags | os.O_CREAT, 0o644))
        os.unlink(os.path.join(path, "made"))
    else:
        os.close(os.open(path, flags))


def makes_folder(path):
    os.mkdir(os.path.join(path, "made"))
    os.rmdir(os.path.join(path, "made"))


def renames(path):
    os.rename(path, beside(path))
    os.rename(beside(path), path)


def replaces(path):
    """Put something else of the same kind in its place."""
    kept = beside(path) + "-kept"
    if os.path.isdir(path):
        os.mkdir(beside(path))
    else:
        with open(beside(path), "w") as file:
            file.write("evil")
    try:
        os.rename(beside(path), path)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        os.rename(path, kept)
        os.rename(kept, path)
    finally:
        shutil.rmtree(beside(path), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(beside(path))


def exchanges(path):
    os.mkdir(beside(path))
    arguments = (AT_FDCWD, beside(path).encode(), AT_FDCWD, path.encode(), EXCHANGE)
    try:
        called(libc.syscall(RENAMEAT2, *arguments))
        called(libc.syscall(RENAMEAT2, *arguments))
    finally:
        os.rmdir(beside(path))


def removes_inside(path):
    if not os.path.isdir(path) or not os.listdir(path):
        raise OSError(errno.ENOENT, "")
    path = os.path.join(path, os.listdir(path)[0])
    os.rename(path, path + "-gone")
    os.rename(path + "-gone", path)


def unlinks(path):
    """Remove it; a folder as a whole, by what a program would use."""
    if os.path.isdir(path):
        if not os.listdir(path):
            os.rmdir(path)
            os.mkdir(path)
            return
        shutil.copytree(path, beside(path), symlinks=True)
        try:
            shutil.rmtree(path)
            os.rename(beside(path), path)
        finally:
            shutil.rmtree(beside(path), ignore_errors=True)
        return
    with open(path, "rb") as file:
        data = file.read()
    os.unlink(path)
    with open(path, "wb") as file:
        file.write(data)


def hard_links(path):
    """Give a file in it a second name, by which it could be written."""
    if os.path.isdir(path):
        files = [os.path.join(a, n) for a, _, names in os.walk(path) for n in names]
        if not files:
            raise OSError(errno.ENOENT, "")
        path = files[0]
    os.link(path, beside(path))
    os.unlink(beside(path))


def symlinks(path):
    """Put a link in its place."""
    data = None
    if os.path.isfile(path):
        with open(path, "rb") as file:
            data = file.read()
    os.symlink("/tmp", beside(path))
    try:
        if data is None:
            os.rename(path, beside(path) + "-kept")
            os.rename(beside(path), path)
            os.unlink(path)
            os.rename(beside(path) + "-kept", path)
        else:
            os.rename(beside(path), path)
            os.unlink(path)
            with open(path, "wb") as file:
                file.write(data)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside(path))


def changes_mode(path):
    os.chmod(path, os.stat(path).st_mode & 0o7777)


def changes_times(path):
    os.utime(path)


def sets_attribute(path):
    os.setxattr(path, "user.attack", b"x")
    os.removexattr(path, "user.attack")


def reopens(path):
    """Open it for reading, then that descriptor for writing."""
    if os.path.isdir(path):
        fd = os.open(path, os.O_RDONLY)
        path = f"/proc/self/fd/{fd}/made"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
        os.unlink(path)
    else:
        fd = os.open(path, os.O_RDONLY)
        os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR))
    os.close(fd)


def through(root):
    def opens_there(path):
        opens(root + path, os.O_WRONLY)

    return opens_there


def truncates(path):
    if os.path.isdir(path):
        raise OSError(errno.EISDIR, "")
    os.truncate(path, os.stat(path).st_size)


def mounts_over(path):
    called(libc.mount(b"/tmp", path.encode(), None, 4096, None))


def remounts(path):
    called(libc.mount(None, path.encode(), None, 4096 | 32, None))


def unmounts(path):
    called(libc.umount2(path.encode(), 2))


def clones_the_mount(path):
    called(libc.syscall(OPEN_TREE, AT_FDCWD, top.encode(), 1))


def unshares(path):
    called(libc.unshare(0x10000000 | 0x20000))


def above(what):
    """Try it on each folder between the top and the path."""

    def tries(path):
        path = os.path.dirname(path)
        if path == top:
            raise OSError(errno.ENOENT, "")
        while path != top:
            what(path)
            path = os.path.dirname(path)

    return tries


ATTEMPTS = {
    "write": lambda path: opens(path, os.O_WRONLY),
    "read and write": lambda path: opens(path, os.O_RDWR),
    "append": lambda path: opens(path, os.O_WRONLY | os.O_APPEND),
    "mkdir": makes_folder,
    "rename": renames,
    "replace": replaces,
    "exchange": exchanges,
    "remove in it": removes_inside,
    "unlink": unlinks,
    "hard link": hard_links,
    "symlink": symlinks,
    "chmod": changes_mode,
    "utime": changes_times,
    "setxattr": sets_attribute,
    "reopen": reopens,
    "through /proc/1/root": through("/proc/1/root"),
    "through /proc/self/root": through("/proc/self/root"),
    "truncate": truncates,
    "mount over": mounts_over,
    "remount": remounts,
    "unmount": unmounts,
    "open_tree": clones_the_mount,
    "unshare": unshares,
    "rename above": above(renames),
    "replace above": above(replaces),
    "exchange above": above(exchanges),
}


found = {
    path: {name: tried(what, path) for name, what in ATTEMPTS.items()} for path in told["paths"]
}
print(json.dumps(found))
