"""Descriptors that only name lookups use: without one, a lookup says "no such name".

getaddrinfo(3) opens files and sockets on its way, and where it can't, glibc gives the
answer that it gives for a name that doesn't exist.  Asking afterwards whether there were
any is asking too late: another call has ended by then.  So the last of the numbers below
the limit are the lookups' own.  The kernel hands out the lowest number that is free, and
whoever is handed one of theirs gives it back and does without.
"""

from __future__ import annotations

import errno
import os
import resource

from shells.workers import WORKERS_MOST

EACH_LOOKUP = 2
"""What glibc holds at once: a file or a socket of its own, and a service's beside it."""

KEPT = EACH_LOOKUP * WORKERS_MOST


def is_spare(fd: int) -> bool:
    """Tell whether a descriptor just opened may be kept: it isn't one of the lookups'."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A limit so low that they would be half of it leaves the calls the other half.
    return limit == resource.RLIM_INFINITY or fd < limit - min(KEPT, limit // 2)


def has_spare() -> bool:
    """Tell whether one more could be opened and kept."""
    try:
        fd = os.dup(0)
    except OSError:
        return False
    os.close(fd)
    return is_spare(fd)


def none_left() -> OSError:
    """Return the error of one who isn't given a descriptor."""
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))
