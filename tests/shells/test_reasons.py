"""Errors of the kernel and of lookups in the seam's words."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from proto.events import Reason
from shells.reasons import reason_for


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ETIMEDOUT, Reason.TIMED_OUT),
        (errno.ECONNRESET, Reason.RESET),
        (errno.EPIPE, Reason.RESET),
        (errno.ENOTCONN, Reason.RESET),
        (errno.ECONNREFUSED, Reason.REFUSED),
        (errno.ENETUNREACH, Reason.UNREACHABLE),
        (errno.EHOSTUNREACH, Reason.UNREACHABLE),
        (errno.EADDRNOTAVAIL, Reason.UNREACHABLE),
        (errno.EACCES, Reason.UNREACHABLE),
        (errno.EMFILE, Reason.EXHAUSTED),
        (errno.ENFILE, Reason.EXHAUSTED),
        (errno.ENOBUFS, Reason.EXHAUSTED),
        (errno.EIO, Reason.BROKEN),
    ],
)
def test_an_errno_has_its_reason(code: int, reason: Reason) -> None:
    assert reason_for(OSError(code, os.strerror(code))) is reason


def test_an_error_without_an_errno_is_broken() -> None:
    assert reason_for(OSError("illegal IP address string passed to inet_pton")) is Reason.BROKEN


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (socket.EAI_NONAME, Reason.UNRESOLVED),
        (socket.EAI_AGAIN, Reason.UNRESOLVED),
        (socket.EAI_MEMORY, Reason.EXHAUSTED),
    ],
)
def test_a_lookup_error_is_about_names(code: int, reason: Reason) -> None:
    """gaierror's numbers overlap errno's, and mean something else."""
    assert reason_for(socket.gaierror(code, "no")) is reason
