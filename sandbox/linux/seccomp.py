"""The system call filter: a table of calls, and its assembly into BPF (R62).

What container runtimes refuse too, each with an errno rather than a kill, so that a
program can fall back.  The filter is a linear list: the kernel remembers which call
numbers a filter always allows (seccomp's action cache), so a search tree gains
nothing.  It looks at three things of `struct seccomp_data`: the architecture, the
call's number, and for a few calls the low words of their arguments.

    order: a foreign architecture, a number past the last known, the calls refused
    whatever their arguments, then those judged by an argument; the rest is allowed.

Where programs are listed, the program gets a second filter (`watching`), which hands each
exec and memory file to the watch.  Of two filters' answers the kernel takes the stricter,
and an errno is stricter than a notification.

Numbers are per architecture and never change once given (the kernel's system call
tables, arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h).
"""

from __future__ import annotations

from sandbox.linux.libc import MFD_HUGETLB, MFD_NOEXEC_SEAL

EPERM, EACCES, EINVAL, ENOSYS, EPROTONOSUPPORT, EAFNOSUPPORT = 1, 13, 22, 38, 93, 97
"""As both architectures number them (include/uapi/asm-generic/errno.h)."""

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
COLUMNS = {"x86_64": 0, "aarch64": 1}
"""Which of a row's numbers is an architecture's."""
LAST_KNOWN = 469
"""The last call this table has judged.  What a later kernel adds, and every number of
the x32 ABI (from 0x40000000), is as if the kernel hadn't it: nobody has judged it yet."""

# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6]
NR, ARCH, ARGS = 0, 4, 16

# linux/bpf_common.h
LD_ABS, JEQ, JGT, JGE, JSET, JA, RET = 0x20, 0x15, 0x25, 0x35, 0x45, 0x05, 0x06
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
USER_NOTIF = 0x7FC00000
JUMP_MAX = 255

MODULES = "loads code into the kernel"
MOUNTS = "changes what is mounted; the view of the files is the wall"
SPACES = "enters or makes a namespace, with capabilities in it"
KEYS = "keyrings aren't in any namespace: they are shared with the machine"
OTHERS = "reads or changes another process, past what signals allow"
CLOCK = "sets the machine's clock"
MACHINE = "acts on the whole machine"
RING = "does calls that no filter sees"
MEMORY = "chooses the machine's memory nodes"
OLD = "obsolete, and old code in the kernel is seldom looked at"
HANDLES = "opens a file by its number, past every folder it lies in"
KERNEL = "a large surface in the kernel, with a history of holes"

REFUSED: dict[str, tuple[int | None, int | None, str]] = {
    # call: (x86_64, aarch64, why it is EPERM)
    "_sysctl": (156, None, OLD),
    "acct": (163, 89, MACHINE),
    "add_key": (248, 217, KEYS),
    "bpf": (321, 280, MODULES),
    "chroot": (161, 51, MOUNTS),
    "clock_settime": (227, 112, CLOCK),
    "create_module": (174, None, MODULES),
    "delete_module": (176, 106, MODULES),
    "fanotify_init": (300, 262, MACHINE),
    "finit_module": (313, 273, MODULES),
    "fsconfig": (431, 431, MOUNTS),
    "fsmount": (432, 432, MOUNTS),
    "fsopen": (430, 430, MOUNTS),
    "fspick": (433, 433, MOUNTS),
    "get_kernel_syms": (177, None, OLD),
    "get_mempolicy": (239, 236, MEMORY),
    "init_module": (175, 105, MODULES),
    "io_uring_enter": (426, 426, RING),
    "io_uring_register": (427, 427, RING),
    "io_uring_setup": (425, 425, RING),
    "ioperm": (173, None, MACHINE),
    "iopl": (172, None, MACHINE),
    "kcmp": (312, 272, OTHERS),
    "kexec_file_load": (320, 294, MODULES),
    "kexec_load": (246, 104, MODULES),
    "keyctl": (250, 219, KEYS),
    "lookup_dcookie": (212, 18, OLD),
    "lsm_set_self_attr": (460, 460, SPACES),
    "mbind": (237, 235, MEMORY),
    "migrate_pages": (256, 238, MEMORY),
    "mount": (165, 40, MOUNTS),
    "mount_setattr": (442, 442, MOUNTS),
    "move_mount": (429, 429, MOUNTS),
    "move_pages": (279, 239, MEMORY),
    "nfsservctl": (180, 42, OLD),
    "open_by_handle_at": (304, 265, HANDLES),
    "open_tree": (428, 428, MOUNTS),
    "open_tree_attr": (467, 467, MOUNTS),
    "perf_event_open": (298, 241, KERNEL),
    "pidfd_getfd": (438, 438, OTHERS),
    "pivot_root": (155, 41, MOUNTS),
    "process_madvise": (440, 440, OTHERS),
    "query_module": (178, None, OLD),
    "quotactl": (179, 60, MACHINE),
    "quotactl_fd": (443, 443, MACHINE),
    "reboot": (169, 142, MACHINE),
    "request_key": (249, 218, KEYS),
    "set_mempolicy": (238, 237, MEMORY),
    "set_mempolicy_home_node": (450, 450, MEMORY),
    "setdomainname": (171, 162, MACHINE),
    "sethostname": (170, 161, MACHINE),
    "setns": (308, 268, SPACES),
    "settimeofday": (164, 170, CLOCK),
    "swapoff": (168, 225, MACHINE),
    "swapon": (167, 224, MACHINE),
    "sysfs": (139, None, OLD),
    "syslog": (103, 116, MACHINE),
    "umount2": (166, 39, MOUNTS),
    "unshare": (272, 97, SPACES),
    "uselib": (134, None, OLD),
    "userfaultfd": (323, 282, KERNEL),
    "ustat": (136, None, OLD),
    "vhangup": (153, 58, MACHINE),
    "vserver": (236, None, OLD),
}

CLONE3 = (435, 435)
"""ENOSYS: its flags lie behind a pointer, where no filter can read them.  The C library
then falls back to clone."""

CLONE = (56, 220)
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET: a new user
namespace gives its maker every capability in it, and with them the kernel's surface."""

IOCTL = (16, 29)
TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: they type into the terminal, for the shell that reads it next.
The kernel takes the request as 32 bits, so the high ones mustn't hide it."""

DISCIPLINES = (0x5423,)
"""TIOCSETD: it has the kernel load what speaks over a terminal (n_gsm, n_hdlc), code with a
history of holes, and what it sets stays with a terminal of the person's."""

SOCKET, SOCKETPAIR = (41, 198), (53, 199)
FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6.  Each other family is code in the kernel that no sandboxed
program needs, and some (AF_VSOCK, AF_ALG, AF_PACKET) lead past the network's wall."""
NETLINK, ROUTE = 16, 0
"""Only NETLINK_ROUTE, in the sandbox's own network: Node 22 dies without it."""

PERSONALITY = (135, 92)
PERSONAS = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
"""PER_LINUX, PER_LINUX32, UNAME26 with either, and the question which it is.  The others
switch off address randomisation or make all memory executable."""

PTRACE, PROCESS_VM_WRITEV = (101, 117), (311, 271)
FIRST = 1
"""The sandbox's first process, bubblewrap's own where no stage of ours runs inside.  Whoever
steers it takes from it the signal by which it dies with who started it.  (`/proc/1/mem` is
closed by a mount.)  The kernel takes a process's number as 32 bits."""

EXECVE, EXECVEAT = (59, 221), (322, 281)
EMPTY_PATH = 0x1000
"""AT_EMPTY_PATH: it runs what a descriptor holds, a memory file too, which is in no folder
for Landlock to judge."""

SECCOMP = (317, 277)
MEMFD_CREATE = (319, 279)
"""A file of huge pages takes the seal that keeps it from being run, and doesn't keep to it."""

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false (both forward, counted from the next), operand"""


def refused(arch: str) -> dict[int, str]:
    """Return the numbers refused whatever their arguments, with their calls' names."""
    at = COLUMNS[arch]
    numbers = {name: row[at] for name, row in REFUSED.items()}
    return {number: name for name, number in numbers.items() if isinstance(number, int)}


def assemble(arch: str) -> list[Instruction]:
    """Return the filter for `x86_64` or `aarch64`.  KeyError for any other."""
    at = COLUMNS[arch]
    program: list[Instruction] = [
        (LD_ABS, 0, 0, ARCH),
        # The same number is another call on another architecture (int 0x80 on x86_64).
        (JEQ, 1, 0, AUDIT_ARCH[arch]),
        (RET, 0, 0, ERRNO | ENOSYS),
        (LD_ABS, 0, 0, NR),
        (JGT, 0, 1, LAST_KNOWN),
        (RET, 0, 0, ERRNO | ENOSYS),
    ]
    program += _listed(sorted(refused(arch)))
    program += _call(CLONE3[at], [(RET, 0, 0, ERRNO | ENOSYS)])
    program += _call(CLONE[at], _any_bit(NEW_NAMESPACES, EPERM))
    program += _call(IOCTL[at], _one_of(1, (*TERMINAL_INPUT, *DISCIPLINES), ERRNO | EPERM, ALLOW))
    program += _call(SOCKET[at], _families())
    program += _call(SOCKETPAIR[at], _families())
    program += _call(PERSONALITY[at], _one_of(0, PERSONAS, ALLOW, ERRNO | EPERM))
    program += _call(PTRACE[at], _one_of(1, (FIRST,), ERRNO | EPERM, ALLOW))
    program += _call(PROCESS_VM_WRITEV[at], _one_of(0, (FIRST,), ERRNO | EPERM, ALLOW))
    program.append((RET, 0, 0, ALLOW))
    return program


def watching(arch: str, *, seals: bool) -> list[Instruction]:
    """Return the filter that hands execs and memory files to the watch.

    seals: whether the kernel can make memory files that are never run (MFD_NOEXEC_SEAL,
    6.3).  Where it can't, they are left as they are: the watch could add nothing.
    """
    at = COLUMNS[arch]
    program: list[Instruction] = [
        (LD_ABS, 0, 0, ARCH),
        (JEQ, 1, 0, AUDIT_ARCH[arch]),
        (RET, 0, 0, ERRNO | ENOSYS),
        (LD_ABS, 0, 0, NR),
    ]
    program += _call(EXECVE[at], [(RET, 0, 0, USER_NOTIF)])
    program += _call(
        EXECVEAT[at],
        [
            _argument(4),
            (JSET, 0, 1, EMPTY_PATH),
            (RET, 0, 0, ERRNO | EACCES),
            (RET, 0, 0, USER_NOTIF),
        ],
    )
    sealed = USER_NOTIF if seals else ALLOW
    program += _call(
        MEMFD_CREATE[at],
        [
            _argument(1),
            (JSET, 0, 1, MFD_HUGETLB),
            (RET, 0, 0, ERRNO | EINVAL),
            (JSET, 0, 1, MFD_NOEXEC_SEAL),
            (RET, 0, 0, ALLOW),
            (RET, 0, 0, sealed),
        ],
    )
    program.append((RET, 0, 0, ALLOW))
    return program


def watched(arch: str) -> tuple[int, int, int]:
    """Return the numbers of execve, memfd_create and seccomp, for the watch."""
    at = COLUMNS[arch]
    return EXECVE[at], MEMFD_CREATE[at], SECCOMP[at]


def encode(program: list[Instruction]) -> bytes:
    """Return a program as an array of `struct sock_filter`, which --seccomp reads.

    Eight bytes each, little-endian: u16 code, u8 jt, u8 jf, u32 k.
    """
    return b"".join(
        code.to_bytes(2, "little") + bytes((true, false)) + operand.to_bytes(4, "little")
        for code, true, false, operand in program
    )


def _listed(numbers: list[int]) -> list[Instruction]:
    """Refuse each number, neighbours as one range; the number is what is loaded."""
    tests: list[Instruction] = []
    ranges = _ranges(numbers)
    length = sum(1 if low == high else 2 for low, high in ranges)
    for low, high in ranges:
        if low == high:
            tests.append((JEQ, length - len(tests), 0, low))
        else:
            tests.append((JGE, 0, 1, low))
            tests.append((JGT, 0, length - len(tests), high))
    assert length <= JUMP_MAX
    # All tests fall through to the jump over the refusal that they share.
    return [*tests, (JA, 0, 0, 1), (RET, 0, 0, ERRNO | EPERM)]


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _call(number: int, body: list[Instruction]) -> list[Instruction]:
    """Run `body`, which ends the program on every path, for one call alone."""
    assert len(body) <= JUMP_MAX
    return [(JEQ, 0, len(body), number), *body]


def _argument(index: int) -> Instruction:
    """Load the low 32 bits of an argument: all that the kernel takes of an `int`."""
    return (LD_ABS, 0, 0, ARGS + 8 * index)


def _any_bit(mask: int, errno: int) -> list[Instruction]:
    return [
        _argument(0),
        (JSET, 0, 1, mask),
        (RET, 0, 0, ERRNO | errno),
        (RET, 0, 0, ALLOW),
    ]


def _one_of(index: int, values: tuple[int, ...], then: int, other: int) -> list[Instruction]:
    """Judge an argument against a few values."""
    tests: list[Instruction] = [
        (JEQ, len(values) - at, 0, value) for at, value in enumerate(values)
    ]
    return [_argument(index), *tests, (RET, 0, 0, other), (RET, 0, 0, then)]


def _families() -> list[Instruction]:
    """Judge a socket's family, and of netlink its protocol."""
    family: list[Instruction] = [
        (JEQ, len(FAMILIES) - at + 1, 0, value) for at, value in enumerate(FAMILIES)
    ]
    return [
        _argument(0),
        *family,
        (JEQ, 2, 0, NETLINK),
        (RET, 0, 0, ERRNO | EAFNOSUPPORT),
        (RET, 0, 0, ALLOW),
        _argument(2),
        (JEQ, 1, 0, ROUTE),
        (RET, 0, 0, ERRNO | EPROTONOSUPPORT),
        (RET, 0, 0, ALLOW),
    ]
