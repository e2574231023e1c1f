"""Tries at files and folders (see `prober`)."""

from __future__ import annotations

import os
import time

from sandbox.linux.tries import name_of


def reads(path: str) -> None:
    """Read of a file, or list a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.path.isdir(path):
            os.listdir(fd)
        else:
            os.read(fd, 1)
    except BlockingIOError:
        return  # it is open, and has nothing to say
    finally:
        os.close(fd)


def sees(path: str) -> None:
    """Tell whether something stands at a path."""
    os.lstat(path)


def lists_more_than(path: str, *known: str) -> str:
    """List a folder; that there is no more than is known is as good as closed."""
    if not set(os.listdir(path)) - set(known):
        return "empty"
    return "open"


def writes(path: str) -> None:
    """Open a file for writing, and leave it as it is."""
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))


def makes(folder: str) -> None:
    """Make a file in a folder, and take it away again."""
    path = f"{folder}/.lnk-check-{os.getpid()}-{time.monotonic_ns()}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    os.unlink(path)


def moves(path: str) -> None:
    """Rename something, and rename it back."""
    beside = f"{path}.lnk-check"
    os.rename(path, beside)
    os.rename(beside, path)


def takes_place(path: str) -> None:
    """Move something away and back; where nothing stands, put a folder there."""
    if os.path.lexists(path):
        moves(path)
    else:
        os.mkdir(path)
        os.rmdir(path)


def changes(path: str) -> None:
    """Make a file in a folder, or open a file for writing."""
    if os.path.isdir(path):
        makes(path)
    elif os.path.lexists(path):
        writes(path)
    else:
        takes_place(path)


def changes_any(path: str) -> str | None:
    """Open anything in a folder of /proc for writing."""
    if not os.path.isdir(path):
        writes(path)
        return None
    refused = "EROFS"
    for above, _, names in os.walk(path):
        for name in names:
            try:
                writes(os.path.join(above, name))
            except OSError as error:
                refused = name_of(error)
            else:
                return "open"
    return refused


def opens_terminal() -> None:
    """Make a terminal of its own."""
    for fd in os.openpty():
        os.close(fd)


def renames_across(folder: str) -> None:
    """Rename a file from one folder into another."""
    above = f"{folder}/.lnk-check-{os.getpid()}"
    os.mkdir(above)
    try:
        os.close(os.open(f"{above}/file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            os.rename(f"{above}/file", f"{above}-file")
        except OSError:
            os.unlink(f"{above}/file")
            raise
        os.unlink(f"{above}-file")
    finally:
        os.rmdir(above)


def changes_owner(folder: str) -> None:
    """Give a file of its own away to another user."""
    path = f"{folder}/.lnk-check-{os.getpid()}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        os.chown(path, 1 if os.getuid() != 1 else 2, -1)
    finally:
        os.unlink(path)


def makes_device(folder: str, major: int, minor: int) -> None:
    """Make a device's file."""
    path = f"{folder}/.lnk-check-{os.getpid()}"
    os.mknod(path, 0o600 | 0o020000, os.makedev(major, minor))
    os.unlink(path)
