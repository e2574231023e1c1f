"""Files of a person's that hold a secret, read only where nobody else could read or write them."""

from __future__ import annotations

import os
import stat


class NotAlone(Exception):
    """Somebody else may read or write the file, or it is none; says what to do, behind its path."""

    def __init__(self) -> None:
        super().__init__("isn't a file of yours alone: chmod 600 it")


def read_alone(path: str, most: int) -> bytes:
    """Return a file's first bytes, at most `most`.  Raises OSError, NotAlone."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o77:
            raise NotAlone
        return os.read(file, most)
    finally:
        os.close(file)
