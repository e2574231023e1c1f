"""The probes of the system call filter: one for each reason of its table, and for what it judges.

An EPERM is the filter's own only where the kernel by itself would say something else, so each
call is tried with arguments for which it would.
"""

from __future__ import annotations

from sandbox.linux import seccomp
from sandbox.linux.probes import CLOSED, GRANTED, Probe

BAD = 2**64 - 1
ODD = (BAD,) * 6
"""Arguments that are wrong for every call.  A kernel that looks at them says so, and only
then is EPERM the filter's own; where it looks at a capability first, two walls hold."""


GROUPS = {
    seccomp.MODULES: "load code into the kernel",
    seccomp.MOUNTS: "change what is mounted",
    seccomp.SPACES: "make or enter namespaces",
    seccomp.KEYS: "use keyrings",
    seccomp.OTHERS: "look into other processes",
    seccomp.CLOCK: "set the clock",
    seccomp.MACHINE: "act on the whole machine",
    seccomp.RING: "use io_uring",
    seccomp.MEMORY: "choose memory nodes",
    seccomp.OLD: "make obsolete calls",
    seccomp.HANDLES: "open files by handle",
    seccomp.KERNEL: "use perf and userfaultfd",
}
"""A probe for each reason of the filter's table."""


def of_filter(arch: str) -> list[Probe]:
    """Return the probes of every call that the filter refuses or judges."""
    at = seccomp.COLUMNS[arch]
    found = []
    for reason, words in GROUPS.items():
        tries = tuple(
            ("calls", row[at], *ODD)
            for row in seccomp.REFUSED.values()
            if row[2] == reason and row[at] is not None
        )
        if tries:
            found.append(Probe(words, CLOSED, tries, f"filter {words}", ("EPERM",)))
    return found + _judged_calls(arch, at)


def _judged_calls(arch: str, at: int) -> list[Probe]:
    """Try the calls that the filter judges by an argument, and those it doesn't know."""
    found = [*_of_namespaces(at), *_of_terminals(at), *_of_sockets(), *_of_others(at)]
    return found + _of_x86() if arch == "x86_64" else found


def _closed(
    what: str, tries: tuple[tuple[object, ...], ...], wall: str, errno: str = "EPERM"
) -> Probe:
    return Probe(what, CLOSED, tries, f"filter {wall}", (errno,))


def _of_namespaces(at: int) -> list[Probe]:
    spaces = [1 << bit for bit in range(32) if seccomp.NEW_NAMESPACES >> bit & 1]
    # CLONE_SIGHAND without CLONE_VM: were it let through, the kernel would refuse it.
    clones = tuple(("calls", seccomp.CLONE[at], space | 0x800, 0, 0, 0, 0) for space in spaces)
    clone3 = (("calls", seccomp.CLONE3[at], *ODD),)
    return [
        _closed("make namespaces by clone", clones, "clone"),
        _closed("make namespaces by clone3", clone3, "clone3", "ENOSYS"),
    ]


def _of_terminals(at: int) -> list[Probe]:
    ioctl = seccomp.IOCTL[at]
    named = zip(("TIOCSTI", "TIOCLINUX"), seccomp.TERMINAL_INPUT, strict=True)
    hidden = tuple(("calls", ioctl, BAD, 0xDEADBEEF << 32 | n, 0) for n in seccomp.TERMINAL_INPUT)
    spoken = tuple(("calls", ioctl, BAD, one, 0) for one in seccomp.DISCIPLINES)
    return [
        *(_closed(f"type into a terminal by {name}", (("types", number),), "terminals")
          for name, number in named),
        _closed("hide a terminal's request behind high bits", hidden, "terminals"),
        _closed("change what a terminal speaks", spoken, "disciplines"),
    ]  # fmt: skip


def _of_sockets() -> list[Probe]:
    strange = tuple(f for f in range(46) if f not in (*seccomp.FAMILIES, seccomp.NETLINK))
    families = tuple(("makes_socket", family, 1, 0) for family in strange)
    pairs = tuple(("makes_pair", family, 1, 0) for family in strange)
    netlinks = tuple(("makes_socket", seccomp.NETLINK, 3, n) for n in range(1, 22))
    usual = tuple(("makes_socket", family, 1, 0) for family in seccomp.FAMILIES)
    routes = (("makes_socket", seccomp.NETLINK, 3, seccomp.ROUTE),)
    return [
        _closed("make sockets of other families", families, "sockets", "EAFNOSUPPORT"),
        _closed("make pairs of sockets of other families", pairs, "pairs", "EAFNOSUPPORT"),
        _closed("speak other netlink than routes", netlinks, "sockets", "EPROTONOSUPPORT"),
        Probe("make sockets of the usual families", GRANTED, usual, "filter sockets"),
        Probe("ask netlink for routes", GRANTED, routes, "filter sockets"),
    ]


def _of_others(at: int) -> list[Probe]:
    personality = seccomp.PERSONALITY[at]
    personas = tuple(("calls", personality, flag) for flag in (0x40000, 0x400000, 0x100000, 1))
    # Asked of who isn't traced, and with a flag that the kernel hasn't.
    first = (
        ("calls", seccomp.PTRACE[at], 4, seccomp.FIRST, 0, 0),
        ("calls", seccomp.PROCESS_VM_WRITEV[at], seccomp.FIRST, 0, 0, 0, 0, 1),
    )
    unknown = tuple(("calls", number) for number in (seccomp.LAST_KNOWN + 1, 511, 1023))
    return [
        _closed("switch off what protects memory", personas, "personality"),
        _closed("steer the first process", first, "first"),
        _closed("make calls that nobody has judged", unknown, "unknown", "ENOSYS"),
    ]


def _of_x86() -> list[Probe]:
    twins = tuple(("calls", 0x40000000 | number) for number in (39, 59, 322))
    # getpid, uname and mount, by the numbers of 32-bit programs; a kernel without them ends
    # the process, or answers the same.
    foreign = tuple(("calls_foreign", number) for number in (20, 122, 21))
    return [
        _closed("make the calls of x32", twins, "unknown", "ENOSYS"),
        Probe("make the calls of 32-bit programs", CLOSED, foreign, "filter architecture"),
    ]
