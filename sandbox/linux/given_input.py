"""A file that a program's standard input was opened from: the program gets a copy of it.

Where a descriptor came from outside, so did its mount: the program could open the file anew by
`/proc/self/fd/0`, to write it, or change its permissions, though it was given to be read.  No
mount inside stands in between.  So what was opened for reading alone is copied into a memory
file, at which the input then is, as far in as it was; the file is left where it was read to.

Imported at a start whose input is a file, so it imports no `os`.
"""

import posix
from fcntl import F_GETFL, fcntl

from sandbox.linux.libc import MFD_CLOEXEC, MFD_NOEXEC_SEAL

INPUT_MAX_BYTES = 256 << 20
"""It takes memory as long as the sandbox runs; who has more hands it over by a pipe."""
PIECE_BYTES = 1 << 20
EINVAL, EFBIG = 22, 27
ACCESS = posix.O_RDONLY | posix.O_WRONLY | posix.O_RDWR


def copy() -> None:
    """Put a copy in the place of this process's standard input, where that only reads a file.

    Raises LaunchError for a file that is too long, or can't be read.
    """
    if fcntl(0, F_GETFL) & ACCESS != posix.O_RDONLY:
        return  # it was opened to be written
    made = _memory()
    try:
        _fill(made)
        only = posix.open(f"/proc/self/fd/{made}", posix.O_RDONLY | posix.O_CLOEXEC)
        posix.lseek(only, posix.lseek(0, 0, 1), 0)
        posix.dup2(only, 0)
        posix.close(only)
    except OSError as error:
        raise _error(error.errno or 0, f"can't be read: {error.strerror}.") from None
    finally:
        posix.close(made)


def _fill(made: int) -> None:
    at = 0
    while data := posix.pread(0, PIECE_BYTES, at):
        at += len(data)
        if at > INPUT_MAX_BYTES:
            raise _error(
                EFBIG, f"is a file of more than {INPUT_MAX_BYTES >> 20} MiB, of which the program "
                "would get a copy: hand it over by a pipe (cat FILE | …).",
            )  # fmt: skip
        while data:
            data = data[posix.write(made, data) :]


def _memory() -> int:
    try:
        return posix.memfd_create("input", MFD_CLOEXEC | MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != EINVAL:
            raise
        return posix.memfd_create("input", MFD_CLOEXEC)  # before 6.3


def _error(errno: int, message: str) -> "LaunchError":
    from sandbox.errors import LaunchError

    return LaunchError("input", errno, f"the standard input {message}")


TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.errors import LaunchError
