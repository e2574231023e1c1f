"""What tries to get out of a sandbox, run inside: it prints as JSON what became of each attempt.

Standard library alone, one argument: a JSON object that says what stands outside.  An attempt
is a function that raises OSError or returns nothing where it was refused, and returns True where
it got through; each runs in a process of its own.  Where a call with odd arguments would be
refused by any kernel, only the wall's own errno counts as a refusal.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
told = json.loads(sys.argv[1])
ARCH = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
BAD = 2**64 - 1
ATTEMPTS = {}
SECONDS = 15

# Written backwards: these words stand in the attacker's own command line too.
command, marker = told["command"][::-1], told["marker"][::-1]
project, read_only, hidden, state = (told[name] for name in ("project", "read", "hidden", "state"))


def attempt(group, name):
    """Register an attempt."""

    def register(function):
        key = f"{group}: {name}"
        assert key not in ATTEMPTS, key
        ATTEMPTS[key] = function
        return function

    return register


def number(*row):
    return row[ARCH]


def syscall(call, *arguments):
    words = [one if isinstance(one, bytes) else ctypes.c_ulong(one & BAD)
             for one in (*arguments, *[0] * (6 - len(arguments)))]  # fmt: skip
    answer = libc.syscall(ctypes.c_long(call), *words)
    if answer == -1:
        raise OSError(ctypes.get_errno(), "")
    return answer


def called(answer):
    if answer == -1:
        raise OSError(ctypes.get_errno(), "")
    return True


def unless(*refusals):
    """Have a call count as let through where it fails by anything but the wall's own errno."""

    def decorate(function):
        def judged():
            try:
                function()
            except OSError as error:
                return error.errno not in refusals
            return True

        return judged

    return decorate


def reads(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.read(fd, 1)
    os.close(fd)
    return True


def writes(path, flags=os.O_WRONLY):
    os.close(os.open(path, flags | os.O_NONBLOCK))
    return True


def makes(folder):
    path = f"{folder}/attack-{os.getpid()}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(path)
    return True


def many(group, names, make):
    """Register an attempt for each of some names."""
    for name, *arguments in names:
        attempt(group, name)(make(*arguments))


# -- files -----------------------------------------------------------------------------------

secret = f"{hidden}/key"
file = f"{read_only}/file"

many("files", [
    ("read a file of a folder that nobody names", told["unnamed"]),
    ("read a hidden folder's file", secret),
    ("read it through its own root", f"/proc/self/root{secret}"),
    ("read it through the first process's root", f"/proc/1/root{secret}"),
    ("read it by a way through the folder above", f"{project}/../{os.path.basename(project)}"
     f"{secret[len(project):]}"),
    ("read /etc/shadow", "/etc/shadow"), ("read /etc/gshadow", "/etc/gshadow"),
    ("read /etc/sudoers", "/etc/sudoers"), ("read the machine's id", "/etc/machine-id"),
    ("read Link's settings", f"{state}/key"),
    ("read Link's settings through its root", f"/proc/self/root{state}/key"),
    ("read the person's own files", told["home_file"]),
    ("read a log", told["log_file"]),
], lambda path: lambda: reads(path))  # fmt: skip

many("files", [
    ("list a hidden folder", hidden), ("list Link's settings", state),
    ("list /run", "/run"), ("list /sys", "/sys"), ("list /boot", "/boot"), ("list /srv", "/srv"),
    ("list /mnt", "/mnt"), ("list /var/log", "/var/log"),
], lambda path: lambda: bool(set(os.listdir(path)) - {"mine"}))  # fmt: skip

many("files", [
    ("make a file in /", "/"), ("make a file in /etc", "/etc"), ("make a file in /usr", "/usr"),
    ("make a file in /usr/bin", "/usr/bin"), ("make a file in /opt", "/opt"),
    ("make a file where it reads", read_only), ("make a file in a hidden folder", hidden),
    ("make a file in Link's settings", state),
    ("make a file in /proc", "/proc"), ("make a file in /proc/self", "/proc/self"),
], lambda path: lambda: makes(path))  # fmt: skip

many("files", [
    ("write a file that it reads", os.O_WRONLY), ("append to it", os.O_WRONLY | os.O_APPEND),
    ("read and write it", os.O_RDWR), ("cut it short", os.O_WRONLY | os.O_TRUNC),
], lambda flags: lambda: writes(file, flags))  # fmt: skip


many("files", [
    ("see the machine's /tmp", told["temp_file"]),
    ("see the machine's /dev/shm", told["shared_file"]),
    ("see its way to a folder that nobody names", os.path.dirname(told["unnamed"])),
], lambda path: lambda: os.lstat(path) and True)  # fmt: skip


@attempt("files", "write what any mount shows that no key names")
def _():
    granted = {project, f"{hidden}/mine", "/tmp", "/dev", "/dev/pts", "/dev/shm", "/proc",
               *told["pins"], told["home"]}  # fmt: skip
    with open("/proc/self/mountinfo") as mounts:
        points = [line.split()[4].replace("\\040", " ") for line in mounts]
    for point in points:
        if point in granted or point.startswith("/dev/"):
            continue
        try:
            if os.path.isdir(point) and not point.startswith("/proc"):
                return makes(point)
            if os.path.isfile(point) and not point.startswith("/proc"):
                return writes(point)
        except OSError:
            continue
    return False


@attempt("files", "reopen it for writing through /proc")
def _():
    fd = os.open(file, os.O_RDONLY)
    return writes(f"/proc/self/fd/{fd}", os.O_RDWR)


@attempt("files", "reopen an O_PATH descriptor of it for writing")
def _():
    fd = os.open(file, os.O_PATH)
    return writes(f"/proc/self/fd/{fd}", os.O_RDWR)


@attempt("files", "map it shared and write it")
def _():
    fd = os.open(file, os.O_RDONLY)
    mmap.mmap(fd, 1, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE | mmap.PROT_READ)[0] = 65
    return True


many("files", [
    ("change its mode", lambda: os.chmod(file, 0o600)),
    ("change its owner", lambda: os.chown(file, os.getuid(), os.getgid())),
    ("change its times", lambda: os.utime(file)),
    ("cut it by its name", lambda: os.truncate(file, 1)),
    ("give it an attribute", lambda: os.setxattr(file, "user.attack", b"x")),
    ("remove it", lambda: removed_and_back(file)),
    ("rename it", lambda: moved_and_back(file)),
    ("move it where it writes", lambda: moved_and_back(file, f"{project}/stolen")),
    ("link it where it writes", lambda: linked(os.link, file, f"{project}/linked")),
    ("put a link beside it", lambda: linked(os.symlink, "/", f"{read_only}/link")),
    ("put a pipe beside it", lambda: linked(lambda _, to: os.mkfifo(to), "", f"{read_only}/pipe")),
    ("rename the folder that it reads", lambda: moved_and_back(read_only)),
    ("rename its own folder", lambda: moved_and_back(project)),
    ("rename a hidden folder", lambda: moved_and_back(hidden)),
    ("rename the folder above a hidden one", lambda: moved_and_back(os.path.dirname(hidden))),
    ("remove a hidden folder", lambda: os.rmdir(hidden)),
    ("rename Link's settings", lambda: moved_and_back(state)),
    ("remove Link's settings", lambda: os.rmdir(state)),
    ("mount over a hidden folder",
     lambda: called(libc.mount(b"/tmp", hidden.encode(), None, 4096, None))),
    ("unmount what hides", lambda: called(libc.umount2(hidden.encode(), 2))),
    ("unmount what hides Link's settings", lambda: called(libc.umount2(state.encode(), 2))),
    ("remount the root to write", lambda: called(libc.mount(None, b"/", None, 32 | 4096, None))),
    ("remount what it reads to write",
     lambda: called(libc.mount(None, read_only.encode(), None, 32 | 4096, None))),
    ("detach the root", lambda: called(libc.umount2(b"/", 2))),
    ("take another root", lambda: os.chroot(project)),
    ("make a file nobody sees where it reads", lambda: os.close(
        os.open(read_only, os.O_TMPFILE | os.O_RDWR, 0o600))),
], lambda act: lambda: act() or True)  # fmt: skip


def moved_and_back(path, to=None):
    os.rename(path, to or path + "-moved")
    os.rename(to or path + "-moved", path)


def removed_and_back(path):
    with open(path, "rb") as opened:
        data = opened.read()
    os.unlink(path)
    with open(path, "wb") as opened:
        opened.write(data)


def linked(act, path, to):
    act(path, to)
    os.unlink(to)


@attempt("files", "exchange Link's settings for a folder of its own")
def _():
    os.mkdir(f"{project}/forged")
    try:
        for _ in range(2):
            syscall(number(316, 276), -100, f"{project}/forged".encode() + b"\0", -100,
                    state.encode() + b"\0", 2)  # fmt: skip
    finally:
        os.rmdir(f"{project}/forged")
    return True


@attempt("files", "open a file by a handle")
@unless(errno.EPERM)
def _():
    syscall(number(304, 265), -100, bytes(136), 0)


@attempt("files", "follow a link that it made to a secret")
def _():
    path = f"{project}/way-{os.getpid()}"
    os.symlink(told["unnamed"], path)
    try:
        return reads(path)
    finally:
        os.unlink(path)


@attempt("files", "walk up by a descriptor of its folder")
def _():
    here = os.open(project, os.O_RDONLY)
    for _ in range(20):
        here = os.open("..", os.O_RDONLY, dir_fd=here)
    return reads_at(here, told["unnamed"].lstrip("/"))


def reads_at(folder, path):
    os.read(os.open(path, os.O_RDONLY, dir_fd=folder), 1)
    return True


# -- dot files -------------------------------------------------------------------------------

DOTS = told["dots"]


def beside(path):
    return os.path.join(os.path.dirname(path), f"attack-{os.path.basename(path).strip('.')}")


def changes(path):
    return makes(path) if os.path.isdir(path) else writes(path)


def replaces(path):
    if os.path.isdir(path) or not os.path.exists(path):
        os.mkdir(beside(path))
        try:
            os.rename(path, beside(path) + "-kept")
            os.rename(beside(path), path)
            os.rmdir(path)
            os.rename(beside(path) + "-kept", path)
        finally:
            if os.path.isdir(beside(path)):
                os.rmdir(beside(path))
        return True
    os.link(path, beside(path) + "-kept")
    with open(beside(path), "w") as made:
        made.write("evil")
    os.rename(beside(path), path)
    os.rename(beside(path) + "-kept", path)
    return True


def exchanges(path):
    os.mkdir(beside(path))
    try:
        for _ in range(2):
            syscall(number(316, 276), -100, beside(path).encode() + b"\0", -100,
                    path.encode() + b"\0", 2)  # fmt: skip
    finally:
        os.rmdir(beside(path))
    return True


def links(path):
    if os.path.lexists(path):
        moved_and_back(path)
    else:
        os.symlink("/tmp", path)
        os.unlink(path)
    return True


def sets_mode(path):
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
    return True


def reopens(path):
    fd = os.open(path, os.O_RDONLY)
    return changes(f"/proc/self/fd/{fd}")


def through_root(path):
    return changes(f"/proc/1/root{path}")


def takes_place(path):
    """Make what is missing: the launcher holds its place while it runs."""
    os.mkdir(path)
    os.rmdir(path)
    return True


def binds_over(path):
    return called(libc.mount(b"/tmp", path.encode(), None, 4096, None))


def remounts(path):
    return called(libc.mount(None, path.encode(), None, 4096 | 32, None))


for at in DOTS:
    name = at[len(project) + 1 :]
    for words, act in (("change", changes), ("replace", replaces), ("exchange", exchanges),
                       ("put a link in the place of", links), ("set the mode of", sets_mode),
                       ("reopen for writing", reopens), ("change through /proc/1/root",
                       through_root), ("make anew", takes_place), ("mount over", binds_over),
                       ("remount", remounts)):  # fmt: skip
        attempt("dot files", f"{words} {name}")(lambda act=act, at=at: act(at))
for at in told["pins"]:
    attempt("dot files", f"rename {at[len(project) + 1 :]}")(
        lambda at=at: moved_and_back(at) or True
    )

# -- /proc -----------------------------------------------------------------------------------

many("/proc", [(f"write {path}", path) for path in (
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/drop_caches",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ping_group_range",
    "/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/user/max_user_namespaces",
    "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger", "/proc/mtrr", "/proc/irq",
    "/proc/pressure/memory", "/proc/1/mem", "/proc/1/task/1/mem",
)], lambda path: lambda: writes(path))  # fmt: skip
many("/proc", [(f"read {path}", path) for path in (
    "/proc/keys", "/proc/kmsg", "/proc/kcore", "/proc/vmcore", "/proc/1/environ",
)], lambda path: lambda: bool(text(path)))  # fmt: skip


many("/proc", [("map other users", "uid_map", "0 0 1"), ("map other groups", "gid_map", "0 0 1"),
               ("have groups set again", "setgroups", "allow")],
     lambda name, words: lambda: puts(f"/proc/self/{name}", words))  # fmt: skip


def puts(path, words):
    with open(path, "w") as opened:
        opened.write(words)
    return True


@attempt("/proc", "write anything of it beside processes")
def _():
    for above, names, files in os.walk("/proc"):
        if above == "/proc":
            names[:] = [n for n in names if not n.isdigit() and n not in ("self", "thread-self")]
        for name in files:
            try:
                return writes(os.path.join(above, name))
            except OSError:
                continue
    return False


@attempt("/proc", "see the kernel's addresses")
def _():
    with open("/proc/kallsyms") as symbols:
        return any(int(line.split()[0], 16) for _, line in zip(range(50), symbols, strict=False))


@attempt("/proc", "see a process outside by its number")
def _():
    with open(f"/proc/{told['pid']}/cmdline") as opened:
        return command in opened.read()


@attempt("/proc", "see any process that it hasn't started")
def _():
    return any(command in text(f"/proc/{n}/cmdline")
               for n in os.listdir("/proc") if n.isdigit())  # fmt: skip


def text(path):
    try:
        with open(path, errors="replace") as opened:
            return opened.read()
    except OSError:
        return ""


@attempt("/proc", "find the outside environment in any process")
def _():
    mine = os.getpid(), os.getppid()
    names = [n for n in os.listdir("/proc") if n.isdigit() and int(n) not in mine]
    return any(marker in text(f"/proc/{n}/environ") for n in names if n == "1")


@attempt("/proc", "signal a process outside")
def _():
    os.kill(told["pid"], 0)
    return command in text(f"/proc/{told['pid']}/cmdline")


@attempt("/proc", "trace the sandbox's first process")
def _():
    called(libc.ptrace(0x4206, 1, None, None))
    return True


@attempt("/proc", "trace a process outside")
def _():
    called(libc.ptrace(0x4206, told["pid"], None, None))  # PTRACE_SEIZE stops nobody
    return command in text(f"/proc/{told['pid']}/cmdline")


# -- devices ---------------------------------------------------------------------------------

many("devices", [(f"open {path}", path) for path in dict.fromkeys((
    "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/net/tun",
    "/dev/loop-control", "/dev/loop0", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/dm-0",
    "/dev/input/event0", "/dev/uinput", "/dev/dri/card0", "/dev/snd/controlC0", "/dev/hpet",
    "/dev/vhost-net", "/dev/vsock", "/dev/rfkill", "/dev/userfaultfd", "/dev/vcs", "/dev/tty0",
    "/dev/watchdog", *told["devices"],
))], lambda path: lambda: os.lstat(path) and True)  # fmt: skip
many("devices", [
    ("make null", 0o020000, 1, 3), ("make the memory", 0o020000, 1, 1),
    ("make a disk", 0o060000, 8, 0), ("make a virtual disk", 0o060000, 254, 0),
], lambda kind, major, minor: lambda: (
    os.mknod("/tmp/device", kind | 0o600, os.makedev(major, minor)) or True))  # fmt: skip

# -- capabilities ----------------------------------------------------------------------------


def status(field):
    with open("/proc/self/status") as lines:
        return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))


many("capabilities", [(f"hold any of {field}", field) for field in
                      ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
     lambda field: lambda: bool(status(field).strip("0")))  # fmt: skip
many("capabilities", [
    ("run without no_new_privs", lambda: status("NoNewPrivs") != "1"),
    ("run without a filter", lambda: status("Seccomp") != "2"),
    ("be another user", lambda: os.setuid(12345) or True),
    ("be another group", lambda: os.setgid(12345) or True),
    ("be in other groups", lambda: os.setgroups([12345]) or True),
    ("give a file away", lambda: os.chown(own_file(), 12345, -1) or True),
    ("be the first at every turn", lambda: os.sched_setscheduler(
        0, os.SCHED_FIFO, os.sched_param(1)) or True),
    ("be nicer than nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -20) or True),
    ("raise a hard limit", lambda: raises_limit()),
    ("set a file's capability", lambda: os.setxattr(
        own_file(), "security.capability", struct.pack("<5I", 0x2000001, 1, 0, 0, 0)) or True),
    ("take the network's interface down", lambda: sets_flags()),
    ("make a raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) and True),
    ("listen on a port below 1024", lambda: binds(80)),
    ("mark its packets", lambda: marks()),
    ("lower its own refusal to be killed", lambda: lowers_score()),
    ("enter a namespace of the first process", lambda: enters("user")),
    ("read as anybody", lambda: reads_closed()),
], lambda act: act)  # fmt: skip


def own_file():
    path = f"/tmp/own-{os.getpid()}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    return path


def raises_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard + 1))
    except ValueError:
        return False  # as Python has EPERM here
    return True


def sets_flags():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        fcntl.ioctl(made, 0x8914, struct.pack("16sH14x", b"lo", 0x1002))  # SIOCSIFFLAGS
    return True


def binds(port):
    with socket.socket() as made:
        made.bind(("127.0.0.1", port))
    return True


def marks():
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, 36, 1)  # SO_MARK
    return True


def lowers_score():
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("-1000")
    return True


def enters(space):
    fd = os.open(f"/proc/1/ns/{space}", os.O_RDONLY)
    return called(libc.setns(fd, 0))


def reads_closed():
    path = own_file()
    os.chmod(path, 0)
    return reads(path)


# -- namespaces ------------------------------------------------------------------------------

SPACES = {"user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000,
          "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000, "time": 0x80}  # fmt: skip
many("namespaces", [(f"unshare {name}", flag) for name, flag in SPACES.items()],
     lambda flag: unless(errno.EPERM)(lambda: syscall(number(272, 97), flag)))  # fmt: skip
many("namespaces", [(f"clone into a new {name}", flag) for name, flag in SPACES.items()
                    if name != "time"],
     # CLONE_SIGHAND alone: a kernel that looks says EINVAL
     lambda flag: unless(errno.EPERM)(lambda: syscall(number(56, 220), flag | 0x800)))  # fmt: skip
many("namespaces", [(f"clone3 into a new {name}", flag) for name, flag in SPACES.items()],
     lambda flag: unless(errno.ENOSYS)(
         lambda: syscall(435, struct.pack("<11Q", flag, *[0] * 3, 999, *[0] * 6), 88)))  # fmt: skip
many("namespaces", [(f"join the first process's {name}", name) for name in SPACES],
     lambda name: unless(errno.EPERM, errno.ENOENT, errno.EACCES)(lambda: joins(name)))  # fmt: skip
many("namespaces", [(f"be in the machine's {name}", name) for name in
                    ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")],
     lambda name: lambda: os.readlink(f"/proc/self/ns/{name}") == told["spaces"][name])  # fmt: skip


def joins(name):
    fd = os.open(f"/proc/1/ns/{name}", os.O_RDONLY)
    syscall(number(308, 268), fd, 0)


@attempt("namespaces", "reach the namespace that owns the others")
def _():
    fd = os.open("/proc/self/ns/ipc", os.O_RDONLY)
    return fcntl.ioctl(fd, 0xB701) >= 0


@attempt("namespaces", "see the name of its place among control groups")
def _():
    return len(text("/proc/self/cgroup").strip().split("::")[-1]) > 1 and told["cgroup"] in text(
        "/proc/self/cgroup"
    )


# -- system calls ----------------------------------------------------------------------------

many("calls", [(name, call) for name, call in told["calls"].items()],
     lambda call: unless(errno.EPERM)(lambda: syscall(call, *[BAD] * 6)))  # fmt: skip
many("calls", [(f"a call that nobody knows: {n}", n) for n in (470, 600, 0x7FFFFFFF)],
     lambda call: unless(errno.ENOSYS)(lambda: syscall(call)))  # fmt: skip
many("calls", [(f"personality {flag:#x}", flag) for flag in (0x40000, 0x400000, 0x100000)],
     lambda flag: unless(errno.EPERM)(lambda: syscall(number(135, 92), flag)))  # fmt: skip
if ARCH == 0:
    many("calls", [(f"x32's {n}", n) for n in (0, 59, 322)],
         lambda call: unless(errno.ENOSYS)(lambda: syscall(0x40000000 | call)))  # fmt: skip

    @attempt("calls", "by the gate of 32-bit programs")
    def _():
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3")  # getpid
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return ctypes.CFUNCTYPE(ctypes.c_int)(start)() > 0

# -- ipc -------------------------------------------------------------------------------------

many("ipc", [
    ("the machine's shared memory", number(29, 194), told["key"], 1, 0),
    ("the machine's semaphores", number(64, 190), told["key"], 1, 0),
    ("the machine's messages", number(68, 186), told["key"], 0, 0),
], lambda call, *arguments: lambda: syscall(call, *arguments) >= 0)  # fmt: skip


@attempt("ipc", "a message queue of the machine's")
def _():
    os.close(syscall(number(240, 180), told["queue"].encode() + b"\0", 0, 0, 0))
    return bool(told["queue"])


@attempt("ipc", "put a key on a keyring")
@unless(errno.EPERM)
def _():
    syscall(number(248, 217), b"user\0", b"attack\0", b"x", 1, -5)


@attempt("ipc", "look for a key")
@unless(errno.EPERM)
def _():
    syscall(number(249, 218), b"user\0", b"attack\0", 0, -5)


# -- sockets ---------------------------------------------------------------------------------


def connects(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        made.connect(address)
        if kind == socket.SOCK_DGRAM:
            made.send(b"x")
    return True


for family, address in told["spellings"]:
    attempt("sockets", f"{family} {address[0]}")(
        lambda family=family, address=address: connects(getattr(socket, family), tuple(address))
    )
many("sockets", [(f"a way to {host}", host) for host in (
    "192.0.2.1", "198.51.100.1", "10.0.0.1", "172.17.0.1", "192.168.1.1", "169.254.169.254",
    "100.100.100.200", "8.8.8.8", "2001:db8::1", "fd00:ec2::254", "2606:4700:4700::1111",
    *(set(told["nameservers"]) - {"8.8.8.8"}),
)], lambda host: lambda: connects(
    socket.AF_INET6 if ":" in host else socket.AF_INET, (host, 53), socket.SOCK_DGRAM))  # fmt: skip
many("sockets", [(f"unix {path}", path) for path in (
    told["path_socket"], told["read_socket"], "/run/dbus/system_bus_socket", "/var/run/docker.sock",
    "/run/systemd/private", "/run/systemd/notify", "/tmp/.X11-unix/X0", "/run/user/0/bus",
)], lambda path: lambda: connects(socket.AF_UNIX, path))  # fmt: skip
many("sockets", [(f"family {n}", n) for n in (*range(3, 10), *range(11, 16), *range(17, 46))],
     lambda n: unless(errno.EAFNOSUPPORT)(
         lambda: socket.socket(n, socket.SOCK_RAW, 0)))  # fmt: skip
many("sockets", [(f"netlink {n}", n) for n in range(1, 22)],
     lambda n: unless(errno.EPROTONOSUPPORT)(
         lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, n)))  # fmt: skip
many("sockets", [(f"a pair of family {n}", n) for n in (3, 15, 17, 38, 40)],
     lambda n: unless(errno.EAFNOSUPPORT)(
         lambda: syscall(number(53, 199), n, 1, 0, bytes(8))))  # fmt: skip


@attempt("sockets", "the machine's abstract socket")
def _():
    return connects(socket.AF_UNIX, "\0" + told["abstract"])


@attempt("sockets", "look up a name")
def _():
    socket.getaddrinfo("example.com", 80)
    return True


@attempt("sockets", "a host that isn't listed, through the proxy")
def _():
    return asks("CONNECT not-listed.lnk-check.example:443", "not-listed.lnk-check.example:443")


@attempt("sockets", "this machine, through the proxy")
def _():
    return asks(f"CONNECT 127.0.0.1:{told['port']}", f"127.0.0.1:{told['port']}")


@attempt("sockets", "metadata, through the proxy")
def _():
    return asks("GET http://169.254.169.254/latest/", "169.254.169.254")


def asks(line, host):
    """Ask the proxy; that a listed check was passed and the host then failed counts too."""
    with socket.create_connection(("127.0.0.1", told["proxy"]), 5) as made:
        made.sendall(f"{line} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return made.recv(4096).split()[1] not in (b"403", b"400")


# -- descriptors -----------------------------------------------------------------------------


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


given = [fd for fd in range(1024) if is_open(fd)]


@attempt("descriptors", "be given more than the standard streams")
def _():
    return bool(set(given) - {0, 1, 2})


@attempt("descriptors", "open one of the first process's anew")
def _():
    for name in os.listdir("/proc/1/fd"):
        try:
            if int(name) > 2:
                return reads(f"/proc/1/fd/{name}")
        except OSError:
            continue
    return False


@attempt("descriptors", "take one of the first process's")
@unless(errno.EPERM)
def _():
    syscall(438, os.pidfd_open(1), 0, 0)


@attempt("descriptors", "a folder outside by the first process's working folder")
def _():
    return reads(f"/proc/1/cwd/..{told['unnamed']}")


# -- terminals -------------------------------------------------------------------------------

many("terminals", [
    (f"{words} by {name}", request) for words, high in (("type", 0), ("type behind high bits", 7))
    for name, request in (("TIOCSTI", high << 32 | 0x5412), ("TIOCLINUX", high << 32 | 0x541C))
], lambda request: unless(errno.EPERM)(
    lambda: syscall(number(16, 29), 0, request, b"x")))  # fmt: skip


@attempt("terminals", "open the terminal that it was started on")
def _():
    return writes("/dev/tty", os.O_RDWR)


@attempt("terminals", "be in the session of whoever started it")
def _():
    return os.getsid(0) == 0


@attempt("terminals", "take the terminal for itself")
def _():
    os.setsid()
    fcntl.ioctl(0, 0x540E, 1)
    return True


@attempt("terminals", "say who is in its foreground")
def _():
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpgrp())
    return True


# -- run -------------------------------------------------------------------------------------


def outcome(function):
    try:
        return "open" if function() else "refused"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    except Exception as error:
        return f"broken: {type(error).__name__}: {error}"


def tried(name):
    """Make an attempt in a process of its own."""
    told_, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(tell, outcome(ATTEMPTS[name]).encode())
        finally:
            os._exit(0)
    os.close(tell)
    ready = select.select([told_], [], [], SECONDS)[0]
    said = os.read(told_, 4096).decode() if ready else "broken: it took too long"
    os.close(told_)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return said or "broken: it died"


groups = told.get("groups")
names = [n for n in ATTEMPTS if groups is None or n.partition(":")[0] in groups]
print(json.dumps({name: tried(name) for name in names}))
