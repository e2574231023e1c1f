"""What stands outside while a sandbox is checked, so that a leak has something to find.

Canaries are put up for the length of a check: an abstract socket, a port at each address of
this machine's, System V objects, a message queue, files in /tmp and /dev/shm.  Beside them it is
looked up what is there anyway: files of other places, devices, sockets that somebody listens
on, resolvers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile

from sandbox.linux.commands import loader_of
from sandbox.linux.probes import Outside
from sandbox.linux.tries import number_of, syscall
from sandbox.linux.tries_processes import MQ_OPEN, MSGGET, SEMGET, SHMGET

SHMCTL, SEMCTL, MSGCTL, MQ_UNLINK = (31, 195), (66, 191), (71, 187), (241, 181)
IPC_CREAT, IPC_EXCL, IPC_RMID = 0o1000, 0o2000, 0
IPC_MODE = 0o600
KINDS = {"memory": (SHMGET, SHMCTL), "semaphores": (SEMGET, SEMCTL), "messages": (MSGGET, MSGCTL)}

PLACES = (
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/machine-id", "/etc/crontab",
    "/etc/ssl/private", "/etc/ssh", "/var/log", "/var/lib", "/var/spool", "/srv", "/mnt", "/media",
    "/run", "/sys", "/boot", "/root", "/home", "/lost+found",
)  # fmt: skip
"""Of each folder one entry is looked for inside."""
USUAL_DEVICES = frozenset(
    {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "fd",
     "stdin", "stdout", "stderr", "core"}
)  # fmt: skip
LISTENS = "00010000"
"""Of the flags in /proc/net/unix: somebody listens (SO_ACCEPTCON)."""
DEVICES_MAX = 24
SOCKETS_MAX = 24
HOME_FILES_MAX = 3
PROGRAMS = ("/usr/bin/true", "/usr/bin/env", "/usr/bin/id", "/usr/bin/ls")
CLOSED_VARIABLES = {"LD_LNK_CHECK": "1", "GETCONF_DIR": "/"}
"""What a loader or the C library reads, set for the launcher: neither may come in."""


class Canaries:
    """Puts canaries up for a block, and takes them away."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Outside:
        try:
            return self._put_up()
        except BaseException:
            self._stack.close()
            raise

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def _put_up(self) -> Outside:
        word = os.urandom(8).hex()
        abstract = f"lnk-check-{word}"
        self._listen(socket.AF_UNIX, f"\0{abstract}")
        addresses, port = self._ports()
        there = [os.path.realpath(path) for path in PROGRAMS if os.access(path, os.X_OK)]
        programs = tuple(dict.fromkeys(there)) or (os.path.realpath("/bin/sh"),)
        with open("/proc/self/cmdline") as file:
            command = max(file.read().split("\0"), key=len)
        return Outside(
            arch=os.uname().machine,
            spaces={name: _link(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")},
            pid=os.getpid(),
            command=command,
            marker=word,
            abstract=abstract,
            port=port,
            addresses=addresses,
            nameservers=nameservers(),
            keys={kind: key for kind, calls in KINDS.items() if (key := self._key(*calls))},
            queue=self._queue(f"lnk-check-{word}"),
            files=tuple(filter(None, map(_in_place, PLACES))),
            home_files=tuple(_some(self._home, HOME_FILES_MAX)),
            temp_file=self._file(tempfile.gettempdir()),
            shared_file=self._file("/dev/shm") if os.path.isdir("/dev/shm") else "",  # noqa: S108
            devices=tuple(devices()),
            sockets=tuple(listening_sockets()[:SOCKETS_MAX]),
            programs=programs,
            loader=loader_of(programs[0]),
            closed_variables=tuple(CLOSED_VARIABLES),
        )

    def _listen(self, family: int, address: str | tuple[str, int]) -> socket.socket:
        made = self._stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen()
        return made

    def _ports(self) -> tuple[tuple[str, ...], int]:
        """Listen at each of this machine's addresses, and at no others."""
        port = self._listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        found = ["127.0.0.1"]
        for host in own_addresses():
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with contextlib.suppress(OSError):
                self._listen(family, (host, port))
                found.append(host)
        return tuple(found), port

    def _key(self, make: tuple[int, int], control: tuple[int, int]) -> int:
        """Make a System V object; return its key, 0 where this kernel makes none."""
        key = int.from_bytes(os.urandom(3), "little") + 1
        flags = IPC_CREAT | IPC_EXCL | IPC_MODE
        arguments = (key, flags) if make == MSGGET else (key, 1, flags)
        try:
            made = syscall(number_of(make), *arguments)
        except OSError:
            return 0
        remove = (made, 0, IPC_RMID) if control == SEMCTL else (made, IPC_RMID, 0)
        self._stack.callback(syscall, number_of(control), *remove)
        return key

    def _queue(self, name: str) -> str:
        """Make a message queue; "" where this kernel has none."""
        flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL
        try:
            os.close(syscall(number_of(MQ_OPEN), name.encode() + b"\0", flags, 0o600, 0))
        except OSError:
            return ""
        self._stack.callback(syscall, number_of(MQ_UNLINK), name.encode() + b"\0")
        return name

    def _file(self, folder: str) -> str:
        file = tempfile.NamedTemporaryFile(prefix="lnk-check-", dir=folder)  # noqa: SIM115
        return str(self._stack.enter_context(file).name)


def own_addresses() -> list[str]:
    """Return this machine's addresses beyond its IPv4 loopback, those of links left out."""
    found: dict[str, None] = {}
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_:
            import fcntl

            # SIOCGIFADDR: the address lies at 20 of the answer's struct ifreq.
            told = fcntl.ioctl(any_, 0x8915, name.encode()[:15].ljust(40, b"\0"))
            found[socket.inet_ntoa(told[20:24])] = None
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:
        for line in file:
            packed = bytes.fromhex(line.split()[0])
            if packed[0] != 0xFE:
                found[socket.inet_ntop(socket.AF_INET6, packed)] = None
    found.pop("127.0.0.1", None)
    return list(found)


def nameservers() -> tuple[str, ...]:
    """Return the resolvers that this machine asks, but those at its own loopback."""
    try:
        with open("/etc/resolv.conf") as file:
            words = [line.split() for line in file]
    except OSError:
        return ()
    found = [w[1] for w in words if len(w) > 1 and w[0] == "nameserver" and "%" not in w[1]]
    return tuple(host for host in found if not host.startswith("127.") and host != "::1")


def devices() -> list[str]:
    """Return devices of this machine's that no sandbox shows."""
    found = []
    for name in sorted(os.listdir("/dev")):
        path = f"/dev/{name}"
        with contextlib.suppress(OSError):
            mode = os.lstat(path).st_mode
            if name not in USUAL_DEVICES and (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
                found.append(path)
    return found[:DEVICES_MAX]


def listening_sockets() -> list[str]:
    """Return the path sockets of this machine that somebody listens on, by their real paths."""
    found: dict[str, None] = {}
    with contextlib.suppress(OSError), open("/proc/net/unix", errors="surrogateescape") as file:
        for line in file:
            # Num RefCount Protocol Flags Type St Inode Path
            words, path = line.split(" ", 7), line.rstrip("\n").partition(" /")[2]
            real = os.path.realpath("/" + path)
            if path and words[3:4] == [LISTENS] and is_socket(real):
                found[real] = None
    return list(found)


def is_socket(path: str) -> bool:
    """Tell whether a socket stands at a path."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _in_place(path: str) -> str:
    """Return a place that is there: a file itself, of a folder one entry; "" for none."""
    if not os.path.isdir(path):
        return path if os.path.lexists(path) else ""
    return next(iter(_some(path, 1)), "")


def _some(folder: str, most: int) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))[:most]]
    except OSError:
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
