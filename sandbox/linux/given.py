"""What bubblewrap is given at a start: arguments, files on descriptors, and nothing else of ours.

What its caller has left lying about (descriptors, variables, a working folder) steers neither
it nor what stands beside it.  What a wall rests on is opened here and handed over, so that what
was looked at is what is mounted.

A part of the launcher, and so of each start: it imports what is built into the interpreter alone.
"""

import posix
import sys

ENOENT, E2BIG, EAGAIN, ENOMEM, ENOTDIR, ELOOP = 2, 7, 11, 12, 20, 40
ENFILE, EMFILE, EFBIG, ENOSPC = 23, 24, 27, 28
CURES = {
    EAGAIN: "end some of your processes, or raise their limit (ulimit -u)",
    ENOMEM: "end some of your processes, or raise the limit of memory (ulimit -v)",
    ENFILE: "end something that holds many open",
    EMFILE: "raise the limit of them (ulimit -n)",
    EFBIG: "raise the limit of a file's length (ulimit -f)",
    ENOSPC: "make room",
}
"""What to do where a process gets no more of something; each start takes some of all of them."""
CODING = sys.getfilesystemencoding()
COPIED = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK
ARGUMENTS_MAX = 9000
"""bubblewrap's own MAX_ARGS."""

LOADER = (
    b"GCONV_PATH", b"GETCONF_DIR", b"GLIBC_TUNABLES", b"LOCPATH", b"MALLOC_TRACE", b"NLSPATH",
)  # fmt: skip
"""Beside LD_*, what the dynamic loader and the C library load code or settings from: cleared
before the program starts."""

COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")
"""What Python sets LC_CTYPE to as it starts, where there is no locale (PEP 538)."""


def hold_standard_streams() -> None:
    """Open what of 0, 1 and 2 is closed: else a pipe of ours would get its number."""
    while (fd := posix.open("/dev/null", posix.O_RDWR)) <= 2:
        posix.set_inheritable(fd, True)
    posix.close(fd)


def as_it_came(environ: "dict[bytes, bytes]") -> "dict[bytes, bytes]":
    """Return an environment without what this interpreter has put in: it is the caller's to choose.

    The kernel still shows the one that the process was started with.
    """
    if environ.get(b"LC_CTYPE") not in COERCED:
        return environ
    made = {name: value for name, value in environ.items() if name != b"LC_CTYPE"}
    with open("/proc/self/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(b"LC_CTYPE="):
                made.setdefault(b"LC_CTYPE", entry.partition(b"=")[2])
    return made


def stand_apart() -> None:
    """Keep nothing of the program's environment, nor its folder: they steer what stands outside.

    The resolver reads variables, and so do OpenSSL and the event loop.  And let no descriptor
    of the caller's but 0, 1 and 2 reach what is started from here.
    """
    _keep_descriptors()
    for name in posix.environ:
        posix.unsetenv(name)
    posix.environ.clear()  # which is os.environ, where that is imported
    posix.chdir("/")


def _keep_descriptors() -> None:
    """Let no descriptor of the caller's but 0, 1 and 2 reach bubblewrap, or what it runs."""
    for name in posix.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2:
            try:
                posix.set_inheritable(fd, False)
            except OSError:
                continue  # the one that listed them


def arguments_of(
    kept: "Kept", environ: "dict[bytes, bytes]", cwd: str, given: "list[int]"
) -> "list[bytes]":
    """Return bubblewrap's arguments; opens what they hand over, into `given`."""
    found: list[bytes] = []
    for path in kept.copies:
        fd = _open_copy(path)
        if fd >= 0:
            given.append(fd)
            found += (b"--perms", b"0644", b"--file", b"%d" % fd, _bytes(path))
    for path in kept.checks:
        posix.close(_opened(path))
    for one in kept.arguments:
        if isinstance(one, str):
            found.append(_bytes(one))
        else:
            fd = _opened(one[0])
            given.append(fd)
            found.append(b"%d" % fd)
    found += (b"--chdir", _bytes(cwd), b"--clearenv")
    for name, value in environ.items():
        if not (name.startswith(b"LD_") or name in LOADER):
            found += (b"--setenv", name, value)
    if len(found) > ARGUMENTS_MAX - 16:
        raise launch_error(
            "arguments",
            E2BIG,
            "there are too many variables and folders to pass on "
            f"(bubblewrap takes {ARGUMENTS_MAX} words): unset some, or name fewer.",
        )
    return found


def _open_copy(path: str) -> int:
    """Open a file whose content is copied in, if it is one that everybody may read; else -1."""
    try:
        fd = posix.open(path, COPIED)
    except OSError:
        return -1
    # Root's own eyes don't count: inside they are the program's.
    if posix.fstat(fd).st_mode & 0o170004 == 0o100004:
        return fd
    posix.close(fd)
    return -1


def _opened(path: str) -> int:
    """Open a file or folder that a wall rests on, and see that it is where its name says.

    A folder that a sandbox writes can hold a link put there to be given what it leads
    to.  The descriptor is what is mounted, so nothing can take its place after this look.
    """
    try:
        fd = posix.open(path, posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    except OSError as error:
        if error.errno in (ENOENT, ENOTDIR):
            raise launch_error("files", ENOENT, f"{path} does not exist any more.") from None
        raise launch_error(
            "files", error.errno or 0, f"{path} can't be opened: {said(error)}."
        ) from None
    if posix.readlink(f"/proc/self/fd/{fd}") != path or _is_link(fd):
        raise launch_error(
            "files", ELOOP, f"{path} leads elsewhere by a link: name what it leads to."
        )
    return fd


def _is_link(fd: int) -> bool:
    return posix.fstat(fd).st_mode & 0o170000 == 0o120000


def memory(data: bytes, given: "list[int]") -> int:
    """Return a descriptor from which `data` is read."""
    fd = posix.memfd_create("lnk", posix.MFD_CLOEXEC)
    given.append(fd)
    left = memoryview(data)
    while left:
        # A limit of a file's length (ulimit -f) has the first write end early, and not fail: what
        # was cut would be a sandbox with fewer walls.  The next one fails.
        left = left[posix.write(fd, left) :]
    posix.lseek(fd, 0, 0)
    return fd


def _bytes(text: str) -> bytes:
    return text.encode(CODING, "surrogateescape")


def said(error: OSError) -> str:
    """Return the kernel's words for an error, with what to do where that can be told."""
    cure = CURES.get(error.errno or 0)
    return f"{error.strerror}: {cure}" if cure else str(error.strerror)


def not_started(error: OSError) -> "LaunchError":
    """Return what a start is refused with that lacks something every process needs."""
    words = f"the sandbox could not be started: {said(error)}."
    return launch_error("start", error.errno or 0, words)


def launch_error(step: str, errno: int, message: str) -> "LaunchError":
    """Return what a start is refused with; its class is imported here, for most aren't."""
    from sandbox.errors import LaunchError

    return LaunchError(step, errno, message)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.errors import LaunchError
    from sandbox.linux.kept import Kept
