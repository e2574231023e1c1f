"""A file that a program's standard input was opened from: the program gets a copy of it.

Where a descriptor came from outside, so did its mount: the program could open the file anew by
`/proc/self/fd/0`, to write it, or change its permissions, though it was given to be read.  No
mount inside stands in between.  So what was opened for reading alone is copied into a memory
file, at which the input then is, as far in as it was; the file is left where it was read to.
A device has no end to copy up to, and is refused.  The other two streams are held the same way.

Imported at a start one of whose streams is a file, so it imports no `os`.
"""

import posix
from fcntl import F_GETFL, fcntl

from sandbox.linux.given import said

INPUT_MAX_BYTES = 256 << 20
"""It takes memory as long as the sandbox runs; who has more hands it over by a pipe."""
PIECE_BYTES = 1 << 20
EINVAL, EFBIG = 22, 27
ACCESS = posix.O_RDONLY | posix.O_WRONLY | posix.O_RDWR
KIND, FILE = 0o170000, 0o100000
STREAMS = ("input", "output", "error")


def copy(fd: int = 0) -> None:
    """Put a copy in the place of a standard stream, where that only reads a file.

    Raises LaunchError for a file that is too long, or can't be read, and for a device.
    """
    if fcntl(fd, F_GETFL) & ACCESS != posix.O_RDONLY:
        return  # it was opened to be written
    if posix.fstat(fd).st_mode & KIND != FILE:
        raise _error(
            fd, EINVAL, "is a device, given to be read, which the program could open to be "
            "written: hand it over by a pipe (cat DEVICE | …).",
        )  # fmt: skip
    made = _memory()
    try:
        _fill(made, fd)
        only = posix.open(f"/proc/self/fd/{made}", posix.O_RDONLY | posix.O_CLOEXEC)
        posix.lseek(only, posix.lseek(fd, 0, 1), 0)
        posix.dup2(only, fd)
        posix.close(only)
    except OSError as error:
        raise _error(fd, error.errno or 0, f"can't be copied: {said(error)}.") from None
    finally:
        posix.close(made)


def _fill(made: int, fd: int) -> None:
    at = 0
    while data := posix.pread(fd, PIECE_BYTES, at):
        at += len(data)
        if at > INPUT_MAX_BYTES:
            raise _error(
                fd, EFBIG, f"is a file of more than {INPUT_MAX_BYTES >> 20} MiB, of which the "
                "program would get a copy: hand it over by a pipe (cat FILE | …).",
            )  # fmt: skip
        while data:
            data = data[posix.write(made, data) :]


def _memory() -> int:
    from sandbox.linux.libc import MFD_CLOEXEC, MFD_NOEXEC_SEAL

    try:
        return posix.memfd_create("input", MFD_CLOEXEC | MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != EINVAL:
            raise
        return posix.memfd_create("input", MFD_CLOEXEC)  # before 6.3


def _error(fd: int, errno: int, message: str) -> "LaunchError":
    from sandbox.errors import LaunchError

    return LaunchError(STREAMS[fd], errno, f"the standard {STREAMS[fd]} {message}")


TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.errors import LaunchError
