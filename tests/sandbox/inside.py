"""What tries to get out: run inside a sandbox, it prints what happened to each try as JSON.

Standard library alone, one argument: a JSON object that says what stands outside.  Each
try is "open" where it got through, else the errno's name or what kept it.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)
told = json.loads(sys.argv[1])
found = {}


def name_of(error):
    return (
        errno.errorcode.get(error.errno, str(error)) if isinstance(error, OSError) else str(error)
    )


def tried(what, *arguments):
    """Return "open", or what a call raised."""
    try:
        what(*arguments)
    except (OSError, ValueError) as error:
        return name_of(error)
    return "open"


def syscall(number, *arguments):
    """Return "done" or the errno's name of a system call made as it is."""
    words = [ctypes.c_ulong(word) for word in (*arguments, *[0] * (6 - len(arguments)))]
    result = libc.syscall(ctypes.c_long(number), *words)
    return "done" if result != -1 else errno.errorcode[ctypes.get_errno()]


def writes(path):
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


def makes(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def reads(path):
    with open(path, "rb") as file:
        file.read(1)


def connects(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        made.connect(address)
        if kind == socket.SOCK_DGRAM:
            made.send(b"canary")


def sends(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.sendto(b"\x00" * 12, address)


def writable_of_proc():
    """Return what of /proc beside processes can be opened for writing."""
    got = []
    for above, names, files in os.walk("/proc"):
        if above == "/proc":
            names[:] = [n for n in names if not n.isdigit() and n not in ("self", "thread-self")]
        got += [p for n in files if tried(writes, p := os.path.join(above, n)) == "open"]
    return got


def status():
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def processes():
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def descriptors():
    """Return what this process was given: its descriptors and what they are."""
    listing = os.open("/proc/self/fd", os.O_RDONLY)
    numbers = [int(n) for n in os.listdir(listing) if int(n) != listing]
    os.close(listing)
    return {n: os.readlink(f"/proc/self/fd/{n}") for n in numbers if is_open(n)}


def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def executable_memory():
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC | mmap.PROT_WRITE).close()


def types_into(terminal, request):
    return tried(fcntl.ioctl, terminal, request, b"x")


def text_of(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


found["fds"] = descriptors()
found["root"] = sorted(os.listdir("/"))
found["status"] = status()
found["pids"] = processes()
found["environ"] = dict(os.environ)
found["fds_of_1"] = sorted(
    os.readlink(f"/proc/1/fd/{n}") for n in os.listdir("/proc/1/fd") if int(n) > 2
)
found["environ_of_1"] = text_of("/proc/1/environ")
found["cmdline_of_1"] = text_of("/proc/1/cmdline")
found["ids"] = [os.getuid(), os.geteuid(), os.getgid()]
found["cwd"] = os.getcwd()
found["umask"] = os.umask(0o022)
found["proc"] = writable_of_proc()
found["reads"] = {path: tried(reads, path) for path in told.get("reads", [])}
found["lists"] = {path: tried(os.listdir, path) for path in told.get("lists", [])}
found["makes"] = {path: tried(makes, path) for path in told.get("makes", [])}
found["writes"] = {path: tried(writes, path) for path in told.get("writes", [])}
found["renames"] = {a: tried(os.rename, a, b) for a, b in told.get("renames", [])}
found["removes"] = {path: tried(os.rmdir, path) for path in told.get("removes", [])}
found["connects"] = {
    repr(address): tried(connects, getattr(socket, family), tuple(address))
    for family, address in told.get("connects", [])
}
found["datagrams"] = {
    repr(address): tried(connects, getattr(socket, family), tuple(address), socket.SOCK_DGRAM)
    for family, address in told.get("datagrams", [])
}
found["unix"] = {
    path: tried(connects, socket.AF_UNIX, path.replace("@", "\0", 1))
    for path in told.get("unix", [])
}
found["names"] = {name: tried(socket.getaddrinfo, name, 443) for name in told.get("names", [])}
found["calls"] = {str(n): syscall(n, *arguments) for n, arguments in told.get("calls", [])}
found["signals"] = {str(pid): tried(os.kill, pid, 0) for pid in told.get("pids", [])}
found["tty"] = tried(reads, "/dev/tty")
found["tiocsti"] = {hex(r): types_into(0, r) for r in (0x5412, 0x541C)}
found["shm"] = {str(key): syscall(29, key, 1, 0o400) for key in told.get("shm", [])}
found["executable"] = tried(executable_memory)
found["caps"] = {k: v for k, v in found["status"].items() if k.startswith("Cap")}
print(json.dumps(found))
