"""What the kernel says went wrong, in the seam's words: OSError to `Reason`."""

from __future__ import annotations

import errno
import socket

from proto.events import Reason

_BY_ERRNO: dict[int, Reason] = {
    errno.ETIMEDOUT: Reason.TIMED_OUT,
    errno.ECONNRESET: Reason.RESET,
    errno.EPIPE: Reason.RESET,
    errno.ECONNABORTED: Reason.RESET,
    errno.ESHUTDOWN: Reason.RESET,
    errno.ENOTCONN: Reason.RESET,  # shutdown(2) of a socket that was reset
    errno.ECONNREFUSED: Reason.REFUSED,
    errno.ENETUNREACH: Reason.UNREACHABLE,
    errno.EHOSTUNREACH: Reason.UNREACHABLE,
    errno.ENETDOWN: Reason.UNREACHABLE,
    errno.EHOSTDOWN: Reason.UNREACHABLE,
    errno.EADDRNOTAVAIL: Reason.UNREACHABLE,  # no source address of this family
    errno.EAFNOSUPPORT: Reason.UNREACHABLE,  # a machine without IPv6
    errno.EACCES: Reason.UNREACHABLE,  # a firewall's answer to connect(2)
    errno.EPERM: Reason.UNREACHABLE,
    errno.EMFILE: Reason.EXHAUSTED,
    errno.ENFILE: Reason.EXHAUSTED,
    errno.ENOBUFS: Reason.EXHAUSTED,
    errno.ENOMEM: Reason.EXHAUSTED,
}


class Untrusted(OSError):
    """A server's certificate isn't for its name, or of no authority that is trusted."""


def reason_for(error: OSError) -> Reason:
    """Return the `Reason` of an error; one that isn't in the table is `BROKEN`.

    A lookup's error is `UNRESOLVED`, whether the name doesn't exist or nobody could
    say: the message then points at names, where the cure is.
    """
    if isinstance(error, socket.gaierror):
        return Reason.EXHAUSTED if error.errno == socket.EAI_MEMORY else Reason.UNRESOLVED
    if isinstance(error, Untrusted):
        return Reason.UNTRUSTED
    return _BY_ERRNO.get(error.errno or 0, Reason.BROKEN)
