"""Files of a person's that hold a secret, read only where nobody else could read or write them."""

from __future__ import annotations

import errno
import os
import stat


class NotAlone(Exception):
    """Somebody else may read or write the file, or it is none; says what to do, behind its path."""

    def __init__(self, why: str = "isn't a file of yours alone: chmod 600 it") -> None:
        super().__init__(why)


def read_alone(path: str, most: int) -> bytes:
    """Return a file's first bytes, at most `most`.  Raises OSError, NotAlone."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NotAlone("is a link: name the file that it leads to") from None
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise NotAlone("is no file: name one that holds it")
        if about.st_uid != os.geteuid() or about.st_mode & 0o77:
            raise NotAlone
        return os.read(file, most)
    finally:
        os.close(file)
