"""The exec watch: it names each program that a list refuses, and makes the memory files (R63, R64).

The program's filter (`seccomp.watching`) hands each of its execs, and each memory file that
it makes, to this watch before it happens (seccomp_unotify(2)).  The two are not alike:

    an exec         always goes on: Landlock alone refuses, by the file that the kernel opens.
                    What the watch reads meanwhile can be changed under it (the path's bytes,
                    a link, the working folder), so it only tells, and what it tells is advice.
    a memory file   never goes on as it is: the watch makes it, sealed so that it can never be
                    run, and puts it into the program as the call's answer.  Of a process that
                    it can't read it only loses the name.

It runs as the sandbox's first process, which nothing inside can kill, isn't dumpable, so
that nothing can look into it or reach its descriptors, and is outside the program's Landlock
domain, so that nothing can trace it.  When it ends the sandbox ends, and without it a call
that is handed to it fails (ENOSYS): nothing opens.

It answers each call in turn, and what it does for one is a few system calls: a build makes
thousands of execs a second.  So numbers are read from, and written to, buffers that are kept.
"""

import posix
import sys
from fcntl import fcntl, ioctl

from sandbox.linux.libc import (
    MFD_ALLOW_SEALING,
    MFD_CLOEXEC,
    MFD_EXEC,
    MFD_NOEXEC_SEAL,
    Libc,
)

RECV, SEND, ADDFD = 0xC0502100, 0xC0182101, 0x40182103
"""SECCOMP_IOCTL_NOTIF_RECV, _SEND, _ADDFD."""
SET_FLAGS, SYNC_WAKE_UP = 0x40082104, 1
"""SECCOMP_IOCTL_NOTIF_SET_FLAGS (6.6)."""
NOTIF_BYTES, ANSWER_BYTES, ADDFD_BYTES = 80, 24, 24
CONTINUE = 1
ADDFD_SEND = 2
"""The descriptor is the call's answer (Linux 5.14): no moment in which a signal could leave
the program one that it doesn't know of."""
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE_RECV = 1, 8, 32

F_ADD_SEALS, F_SEAL_SEAL = 1033, 1
MEMORY_NAME_MAX = 249
"""As the kernel has it (MFD_NAME_MAX_LEN)."""
MEMORY_FLAGS = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC

ENOENT, EINTR, EINVAL = 2, 4, 22
AT_FDCWD = 0xFFFFFF9C
"""-100, as a filter sees it: the low 32 bits."""
PATH_MAX, PAGE = 4096, 4096
"""A read never crosses a page: the next one may not be there, and nothing is read then."""
LOW = 0xFFFFFFFF

TOLD_MAX = 1024
"""How many programs are told of: one that makes them up must not fill our memory."""
TOLD_BYTES = 1500
"""Of a path; two of them are less than a pipe takes in one piece (PIPE_BUF)."""


class Numbers:
    """The calls that are watched, by this machine's numbers; `seccomp` is what asks for it."""

    __slots__ = ("execve", "memfd_create", "seccomp")

    def __init__(self, execve: int, memfd_create: int, seccomp: int) -> None:
        self.execve = execve
        self.memfd_create = memfd_create
        self.seccomp = seccomp


def listen(libc: Libc, program: bytes, numbers: Numbers) -> int:
    """Install a notifying filter for this thread and all it starts; return its listener.

    From the moment a call was received only a kill interrupts it (5.19): else each signal
    has it begin anew.
    """
    code = bytearray(program)
    # struct sock_fprog: u16 length, and the instructions' address.
    given = (len(code) // 8).to_bytes(8, "little") + libc.address(code).to_bytes(8, "little")
    for flags in (NEW_LISTENER | WAIT_KILLABLE_RECV, NEW_LISTENER):
        try:
            return libc.syscall(numbers.seccomp, SET_MODE_FILTER, flags, given)
        except OSError as error:
            if error.errno != EINVAL or flags == NEW_LISTENER:
                raise
    raise AssertionError("one of the two returns or raises")


class Watch:
    """Answers the calls of one listener.

    first: the program that the sandbox is for, whose exec comes first, from a process that
    shares this one's memory and can't be read either.  programs: the files that may run; None
    for any, and then each that runs is told of.  tell: where to, a pipe that is never waited
    for.  A program is told as `x`, its path as it was called, NUL, its path without links, NUL.
    """

    __slots__ = (
        "_addfd", "_addfd_words", "_answer", "_answer_words", "_buffer", "_exec", "_files",
        "_first", "_libc", "_listener", "_local", "_memfd", "_notif", "_notif_words", "_paths",
        "_readv", "_remote", "_remote_words", "_tell", "_told",
    )  # fmt: skip

    def __init__(
        self, numbers: Numbers, first: bytes, programs: "list[str] | None", tell: int, libc: Libc
    ) -> None:
        self._exec, self._memfd = numbers.execve, numbers.memfd_create
        self._first: bytes | None = first
        self._listener, self._tell, self._libc = -1, tell, libc
        self._notif, self._notif_words = _words(NOTIF_BYTES)
        self._answer, self._answer_words = _words(ANSWER_BYTES)
        self._addfd, self._addfd_words = _words(ADDFD_BYTES)
        self._told: set[tuple[int, int]] = set()
        self._paths = frozenset(_bytes(path) for path in programs or ())
        self._files: frozenset[tuple[int, int]] | None = None
        if programs is not None:
            self._files = frozenset(_identity(posix.stat(path)) for path in programs)
        # process_vm_readv(2) takes two lists of one `struct iovec` each: address, length.
        self._readv = libc.function("process_vm_readv")
        self._buffer = bytearray(PAGE)
        local, words = _words(16)
        words[0], words[1] = libc.address(self._buffer), PAGE
        self._local = libc.array(local)
        remote, self._remote_words = _words(16)
        self._remote = libc.array(remote)

    def run(self, listener: int) -> None:
        """Answer calls for ever; raise OSError where the kernel no longer has it."""
        self._listener = listener
        _wake_in_turn(listener)
        zero, notif, words = bytes(NOTIF_BYTES), self._notif, self._notif_words
        memfd = self._memfd
        while True:
            notif[:] = zero  # the kernel takes no buffer with something in it
            try:
                ioctl(listener, RECV, notif)
                if words[2] & LOW == memfd:
                    self._make_memory(words[0], words[1] & LOW, words[4], words[5] & LOW)
                else:
                    self._look(words)
                    self._send(words[0], 0, CONTINUE)
            except OSError as error:
                # It was killed, or a signal took it out of its call: nobody waits for us.
                if error.errno not in (ENOENT, EINTR):
                    raise

    def _send(self, call: int, error: int, flags: int) -> None:
        words = self._answer_words
        words[0], words[1], words[2] = call, 0, flags << 32 | (-error & LOW)
        ioctl(self._listener, SEND, self._answer)

    # -- memory files ---------------------------------------------------------------------

    def _make_memory(self, call: int, pid: int, name: int, flags: int) -> None:
        """Answer a memfd_create(2) with a file that can be written and mapped, and never run."""
        try:
            made = self._memory(pid, name, flags)
            try:
                words = self._addfd_words
                words[0], words[1] = call, ADDFD_SEND | made << 32
                words[2] = (posix.O_CLOEXEC if flags & MFD_CLOEXEC else 0) << 32
                ioctl(self._listener, ADDFD, self._addfd)
            finally:
                posix.close(made)
        except OSError as error:
            if error.errno == ENOENT:
                raise
            self._send(call, error.errno or EINVAL, 0)

    def _memory(self, pid: int, name: int, flags: int) -> int:
        """Return the file that a program asked for, sealed; raise OSError as the kernel would."""
        if flags & ~MEMORY_FLAGS:
            raise OSError(EINVAL, "flags")
        try:
            called = self._read(pid, name, MEMORY_NAME_MAX + 1)
        except PermissionError:
            called = b""  # it can't be read, and must not run memory for that
        sealing = flags & MFD_ALLOW_SEALING
        kinds = MFD_CLOEXEC | MFD_NOEXEC_SEAL | sealing
        made = self._libc.syscall(self._memfd, called, kinds)
        if not sealing:
            # The seal brings sealing with it, for which this program didn't ask.
            fcntl(made, F_ADD_SEALS, F_SEAL_SEAL)
        return made

    def _read(self, pid: int, address: int, most: int) -> bytes:
        """Return a C string of a process, without its NUL.

        Raises OSError: EPERM where the process can't be read, EFAULT for a bad address, EINVAL
        where it is longer than `most` bytes, its NUL among them.
        """
        found = b""
        while len(found) < most:
            size = min(PAGE - address % PAGE, most - len(found))
            self._remote_words[0], self._remote_words[1] = address, size
            got = self._readv(pid, self._local, 1, self._remote, 1, 0)
            if got == -1:
                raise self._libc.error("process_vm_readv")
            end = self._buffer.find(0, 0, got)
            if end >= 0:
                return found + self._buffer[:end]
            found += self._buffer[:got]
            address += got
        raise OSError(EINVAL, "too long")

    # -- execs ----------------------------------------------------------------------------

    def _look(self, words: memoryview) -> None:
        """Tell of a program that is about to be refused, or where any may run, of each."""
        pid, folder, address = words[1] & LOW, AT_FDCWD, words[4]
        if words[2] & LOW != self._exec:
            folder, address = words[4] & LOW, words[5]
        try:
            path, self._first = self._first or self._read(pid, address, PATH_MAX), None
            if path in self._paths:
                return
            reached = _reached(pid, folder, path)
            about = posix.stat(reached)
            if self._is_told(about):
                self._say(path, reached, _identity(about))
        except (OSError, ValueError):
            return  # it can't be read, or isn't there: the exec says so itself

    def _is_told(self, about: "posix.stat_result") -> bool:
        if about.st_mode & 0o170000 != 0o100000 or not about.st_mode & 0o111:
            return False  # no list would let it run
        one = _identity(about)
        if self._files is not None and one in self._files:
            return False
        return one not in self._told and len(self._told) < TOLD_MAX

    def _say(self, path: bytes, reached: bytes, one: "tuple[int, int]") -> None:
        fd = posix.open(reached, posix.O_PATH | posix.O_CLOEXEC)
        try:
            real = posix.readlink(b"/proc/self/fd/%d" % fd)
        finally:
            posix.close(fd)
        called = path if path == reached else real
        posix.write(self._tell, b"x%b\0%b\0" % (called[:TOLD_BYTES], real[:TOLD_BYTES]))
        self._told.add(one)  # where the pipe was full, it is told the next time


def _reached(pid: int, folder: int, path: bytes) -> bytes:
    """Return a process's path as the watch reaches it.

    Both have the same root: no call that changes one is let through.
    """
    if not path.startswith(b"/"):
        at = b"cwd" if folder == AT_FDCWD else b"fd/%d" % folder
        return b"/proc/%d/%b/%b" % (pid, at, path)
    for own, theirs in ((b"/proc/self/", b"/proc/%d/"), (b"/proc/thread-self/", b"/proc/%d/")):
        if path.startswith(own):
            return theirs % pid + path[len(own) :]
    return path


def _wake_in_turn(listener: int) -> None:
    """Have the caller and the watch wake each other on one processor, where the kernel can.

    Only one of the two runs at a time, so a second processor has to be woken for nothing.
    """
    try:
        ioctl(listener, SET_FLAGS, SYNC_WAKE_UP)
    except OSError:
        return  # before 6.6 it is slower


def _identity(about: "posix.stat_result") -> "tuple[int, int]":
    return about.st_dev, about.st_ino


def _words(size: int) -> "tuple[bytearray, memoryview]":
    """Return a buffer, and the same as 64-bit words."""
    made = bytearray(size)
    return made, memoryview(made).cast("Q")


def _bytes(text: str) -> bytes:
    return text.encode(sys.getfilesystemencoding(), "surrogateescape")
