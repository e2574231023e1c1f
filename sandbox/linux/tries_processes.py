"""Tries at processes, at what the sandbox was given, and at system calls (see `prober`)."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal

from sandbox.linux.tries import number_of, syscall
from sandbox.linux.tries_files import writes

SHMGET, SEMGET, MSGGET, MQ_OPEN = (29, 194), (64, 190), (68, 186), (240, 180)
NS_GET_USERNS = 0xB701
TIOCSCTTY = 0x540E

given: set[int] = set()
"""The descriptors that the prober was given, which it looks for first of all."""


def writes_proc() -> str:
    """Look for anything of /proc, beside processes, that can be opened for writing."""
    for above, names, files in os.walk("/proc"):
        if above == "/proc":
            names[:] = [n for n in names if not n.isdigit() and n not in ("self", "thread-self")]
        for name in files:
            try:
                writes(os.path.join(above, name))
            except OSError:
                continue
            return "open"
    return "EROFS"


def finds_process(pid: int, marker: str) -> str:
    """Look for a process outside by its number and what its command line holds."""
    with open(f"/proc/{pid}/cmdline") as file:
        return "open" if marker in file.read() else "own"


def counts_processes() -> str:
    """Count the processes that it can see beside its own."""
    ours = {1, os.getpid(), os.getppid()}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in ours:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            if parent not in ours:
                return "open"
    return "own"


def finds_in_first(file: str, marker: str) -> str:
    """Look for some words in what /proc tells of the first process."""
    with open(f"/proc/1/{file}", errors="replace") as told:
        return "open" if marker in told.read() else "own"


def reopens_of_first() -> str:
    """Open anew any descriptor of the first process beside the standard streams."""
    found = "own"
    for name in os.listdir("/proc/1/fd"):
        if int(name) > 2:
            try:
                os.close(os.open(f"/proc/1/fd/{name}", os.O_RDONLY | os.O_NONBLOCK))
            except OSError:
                continue
            return "open"
    return found


def shares(space: str, outside: str) -> str:
    """Tell whether a namespace is the one outside."""
    return "open" if os.readlink(f"/proc/self/ns/{space}") == outside else "own"


def reaches_owner() -> None:
    """Ask for the namespace that owns its network: one above its own is out of reach."""
    network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    os.close(fcntl.ioctl(network, NS_GET_USERNS))


def has_capabilities() -> str:
    """Look for a capability in any of a process's five sets."""
    for line in status():
        if line.startswith("Cap") and line.split()[1].strip("0"):
            return "open"
    return "none"


def lacks(field: str, value: str) -> str:
    """Tell whether a line of its status says something else than it should."""
    found = next((line.split()[1] for line in status() if line.startswith(f"{field}:")), "")
    return "own" if found == value else "open"


def status() -> list[str]:
    """Return the lines of its own status."""
    with open("/proc/self/status") as file:
        return file.readlines()


def session_is_outside() -> str:
    """Tell whether its session is one of somebody outside, whose number isn't known here."""
    return "open" if os.getsid(0) == 0 else "own"


def descriptors() -> str:
    """Look for a descriptor that it was given, beside the standard streams and the listing."""
    return "open" if given - {0, 1, 2} else "none"


def is_open(fd: int) -> bool:
    """Tell whether a number is an open descriptor's."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def finds_variable(*names: str) -> str:
    """Look for variables that must not have come in."""
    return "open" if set(names) & os.environ.keys() else "none"


def calls(number: int, *arguments: int | bytes) -> None:
    """Make a system call as it is."""
    syscall(number, *arguments)


def calls_foreign(number: int) -> None:
    """Make a call by the gate of 32-bit programs (int 0x80), which has numbers of its own."""
    code = b"\x53\xb8" + number.to_bytes(4, "little") + b"\xcd\x80\x5b\xc3"
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    answer = ctypes.CFUNCTYPE(ctypes.c_int)(start)()
    if answer < 0:
        raise OSError(-answer, "")


def types(request: int) -> None:
    """Type into a terminal of its own; whoever may, may into one that is shared."""
    control, terminal = os.openpty()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which closing it brings
    os.setsid()
    fcntl.ioctl(terminal, TIOCSCTTY, 0)  # it is this session's now
    fcntl.ioctl(terminal, request, b"x")
    os.close(control)


def finds_shared(kind: str, key: int) -> None:
    """Look for the machine's System V object of a key."""
    row, arguments = {
        "memory": (SHMGET, (key, 1, 0)), "semaphores": (SEMGET, (key, 1, 0)),
        "messages": (MSGGET, (key, 0)),
    }[kind]  # fmt: skip
    syscall(number_of(row), *arguments)


def finds_queue(name: str) -> None:
    """Look for a POSIX message queue of the machine's."""
    os.close(syscall(number_of(MQ_OPEN), name.encode() + b"\0", os.O_RDONLY, 0, 0))
