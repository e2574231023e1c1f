"""Tries at programs, and at memory that is run (see `prober`)."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import time

from sandbox.linux.tries import libc, number_of, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MEMFD_CREATE, EXECVEAT = (319, 279), (322, 281)
AT_EMPTY_PATH = 0x1000
PTRACE_TRACEME = 0


def runs(path: str) -> None:
    """Start a program and end it before its first instruction, by tracing it."""
    _started(lambda: os.execv(path, [path]))


def runs_copy(folder: str, program: str) -> None:
    """Start a copy of a program that it has put in a folder itself."""
    path = f"{folder}/.lnk-check-{os.getpid()}"
    with open(program, "rb") as source:
        data = source.read()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    try:
        os.write(fd, data)
        os.close(fd)
        _started(lambda: os.execv(path, [path]))
    finally:
        os.unlink(path)


def runs_memory(program: str, how: str) -> None:
    """Start a copy of a program in a memory file: by its descriptor, or through /proc."""
    fd = syscall(number_of(MEMFD_CREATE), b"lnk-check\0", 0)
    with open(program, "rb") as source:
        os.write(fd, source.read())
    if how == "descriptor":
        _started(lambda: _runs_descriptor(fd, program))
    else:
        _started(lambda: os.execv(f"/proc/self/fd/{fd}", [program]))


def runs_descriptor(program: str) -> None:
    """Start a program by a descriptor of its file."""
    fd = os.open(program, os.O_RDONLY)
    _started(lambda: _runs_descriptor(fd, program))


def _runs_descriptor(fd: int, program: str) -> None:
    words = (ctypes.c_char_p * 2)(program.encode(), None)
    syscall(number_of(EXECVEAT), fd, b"\0", ctypes.addressof(words), 0, AT_EMPTY_PATH)


def _started(become: Callable[[], object]) -> None:
    """Run `become`, which execs, in a traced child; raise what kept it from it."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            libc.ptrace(PTRACE_TRACEME, 0, None, None)
            become()
        except OSError as error:
            os.write(tell, str(error.errno).encode())
        finally:
            os._exit(1)
    os.close(tell)
    os.waitpid(pid, 0)
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
    with open(told) as file:
        number = file.read()
    if number:
        raise OSError(int(number), "")


def maps_code(folder: str) -> None:
    """Map a file that it wrote itself as code."""
    path = f"{folder}/.lnk-check-{os.getpid()}"
    with open(path, "w+b") as file:
        os.unlink(path)
        file.write(b"\xc3" * 4096)
        file.flush()
        mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC,
                  flags=mmap.MAP_PRIVATE).close()  # fmt: skip


def makes_memory() -> None:
    """Make a memory file, write it, seal it, and map it."""
    fd = os.memfd_create("lnk-check", os.MFD_ALLOW_SEALING)
    os.write(fd, b"\xc3" * 4096)
    mmap.mmap(fd, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE).close()
    fcntl.fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK


def makes_threads() -> str | None:
    """Start a thread and a process."""
    import threading

    thread = threading.Thread(target=time.monotonic)
    try:
        thread.start()
    except RuntimeError:
        return "EAGAIN"
    thread.join()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return None
