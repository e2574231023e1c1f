"""What every try of `lnk sandbox check` is made with (see `prober`): errors as words, raw calls."""

from __future__ import annotations

import ctypes
import errno
import os

ARCH = {"x86_64": 0, "aarch64": 1}
PROBE_S = 15.0
"""How long one probe may take; most take a millisecond."""
CONNECT_S = 3.0

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def name_of(error: Exception) -> str:
    """Return an error as a word: the errno's name where there is one."""
    name = errno.errorcode.get(getattr(error, "errno", None) or 0)
    return name or f"failed: {error}"


def number_of(row: tuple[int, int]) -> int:
    """Return a system call's number on this machine."""
    return row[ARCH[os.uname().machine]]


def syscall(number: int, *arguments: int | bytes) -> int:
    """Make a system call as it is; raise OSError where it fails."""
    words = [one if isinstance(one, bytes) else ctypes.c_ulong(one & (2**64 - 1))
             for one in (*arguments, *[0] * (6 - len(arguments)))]  # fmt: skip
    answer: int = libc.syscall(ctypes.c_long(number), *words)
    if answer == -1:
        raise OSError(ctypes.get_errno(), "")
    return answer
