"""Files that a person, or a spec, names, opened without waiting for anybody.

A named pipe waits for a writer, a device for what it is, and a folder that came with a
clone may hold either: only a regular file is read, told apart once it is open.
"""

from __future__ import annotations

import os
import stat

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotRegular(Exception):
    """What a name leads to is no regular file; says what it is."""


def opened(path: str, *, piped: bool = False) -> int:
    """Return a descriptor of a regular file.  Raises OSError, NotRegular.

    piped: whether a pipe will do that is open already, as `/dev/stdin` or a shell's `<(…)`
    names it.  Its writer is the caller's own, so reading it waits.
    """
    file = os.open(path, _OPEN)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    # Nothing lies at the real name of a pipe that is in no folder (`/proc/7/fd/pipe:[9]`).
    if piped and stat.S_ISFIFO(mode) and not os.path.lexists(os.path.realpath(path)):
        os.set_blocking(file, True)
        return file
    os.close(file)
    raise NotRegular(next((words for is_one, words in _KINDS if is_one(mode)), "a device"))
