"""The filter, run in an interpreter; test_walls runs it for real."""

from __future__ import annotations

import errno
import itertools
import os
import re

import pytest

from sandbox.linux import seccomp
from tests.sandbox import bpf

ARCHES = ("x86_64", "aarch64")
NUMBER = {"x86_64": 0, "aarch64": 1}
HIGH = 0xDEADBEEF << 32

# Calls that real programs can't do without, x86_64 and aarch64.
NEEDED = {
    "read": (0, 63), "write": (1, 64), "openat": (257, 56), "mmap": (9, 222),
    "mprotect": (10, 226), "futex": (202, 98), "execve": (59, 221), "execveat": (322, 281),
    "memfd_create": (319, 279), "seccomp": (317, 277), "prctl": (157, 167),
    "close_range": (436, 436), "ptrace": (101, 117), "sendto": (44, 206),
    "epoll_pwait2": (441, 441), "landlock_create_ruleset": (444, 444), "openat2": (437, 437),
    "statx": (332, 291), "rseq": (334, 293), "faccessat2": (439, 439), "futex_wait": (455, 455),
    "pidfd_open": (434, 434), "exit_group": (231, 94), "getrandom": (318, 278),
}  # fmt: skip


CLOSED = """\
acct:163/89 add_key:248/217 bpf:321/280 chroot:161/51 clock_settime:227/112
create_module:174/- delete_module:176/106 fanotify_init:300/262 finit_module:313/273
fsconfig:431/431 fsmount:432/432 fsopen:430/430 fspick:433/433 get_kernel_syms:177/-
get_mempolicy:239/236 init_module:175/105 io_uring_enter:426/426 io_uring_register:427/427
io_uring_setup:425/425 ioperm:173/- iopl:172/- kcmp:312/272 kexec_file_load:320/294
kexec_load:246/104 keyctl:250/219 lookup_dcookie:212/18 lsm_set_self_attr:460/460
mbind:237/235 migrate_pages:256/238 mount:165/40 mount_setattr:442/442 move_mount:429/429
move_pages:279/239 nfsservctl:180/42 open_by_handle_at:304/265 open_tree:428/428
open_tree_attr:467/467 perf_event_open:298/241 pidfd_getfd:438/438 pivot_root:155/41
process_madvise:440/440 query_module:178/- quotactl:179/60 quotactl_fd:443/443
reboot:169/142 request_key:249/218 set_mempolicy:238/237 set_mempolicy_home_node:450/450
setdomainname:171/162 sethostname:170/161 setns:308/268 settimeofday:164/170 swapoff:168/225
swapon:167/224 _sysctl:156/- sysfs:139/- syslog:103/116 umount2:166/39 unshare:272/97
uselib:134/- userfaultfd:323/282 ustat:136/- vhangup:153/58 vserver:236/-
"""
"""What is refused, with its numbers on x86_64 and aarch64: the table written once more, so that a
row which goes, or a number mistyped, is seen.  All other tries of it, real ones too, go by it."""


@pytest.fixture(params=ARCHES)
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def judge(arch: str):
    program = seccomp.encode(seccomp.assemble(arch))
    return lambda number, *arguments: bpf.verdict(
        program, seccomp.AUDIT_ARCH[arch], number, *arguments
    )


def test_each_listed_call_is_refused_and_each_other_number_is_as_the_table_says(arch, judge):
    at = NUMBER[arch]
    refused = seccomp.refused(arch)
    by_argument = {
        row[at]
        for row in (
            seccomp.CLONE,
            seccomp.IOCTL,
            seccomp.SOCKET,
            seccomp.SOCKETPAIR,
            seccomp.PERSONALITY,
            seccomp.PTRACE,
            seccomp.PROCESS_VM_WRITEV,
        )
    }
    for number in range(seccomp.LAST_KNOWN + 1):
        if number in refused:
            assert judge(number) == errno.EPERM, refused[number]
        elif number == seccomp.CLONE3[at]:
            assert judge(number) == errno.ENOSYS
        elif number not in by_argument:
            assert judge(number) == 0, number


def test_the_calls_that_programs_need_are_allowed(arch, judge):
    for name, row in NEEDED.items():
        assert judge(row[NUMBER[arch]]) == 0, name


def test_the_table_is_what_was_decided():
    rows = (re.fullmatch(r"(\w+):(\d+|-)/(\d+|-)", row) for row in CLOSED.split())
    due = {row[1]: tuple(None if n == "-" else int(n) for n in row.groups()[1:]) for row in rows}
    assert {name: row[:2] for name, row in seccomp.REFUSED.items()} == due
    by_argument = (seccomp.CLONE3, seccomp.CLONE, seccomp.IOCTL, seccomp.SOCKET,
                   seccomp.SOCKETPAIR, seccomp.PERSONALITY, seccomp.SECCOMP, seccomp.MEMFD_CREATE,
                   seccomp.PTRACE, seccomp.PROCESS_VM_WRITEV)  # fmt: skip
    assert by_argument == ((435, 435), (56, 220), (16, 29), (41, 198), (53, 199), (135, 92),
                           (317, 277), (319, 279), (101, 117), (311, 271))  # fmt: skip


@pytest.mark.parametrize("header", ["asm-generic/unistd.h", "x86_64-linux-gnu/asm/unistd_64.h"])
def test_the_numbers_are_the_kernels_own(header):
    """Read from its headers, which a compiler brings; calls newer than they are left out."""
    if os.uname().machine != "x86_64" and header.startswith("x86_64"):
        pytest.skip("kernel: another machine's")
    with open(f"/usr/include/{header}") as file:
        lines = re.findall(r"(?m)^#define __NR(?:3264)?_(\w+)\s+(\d+)$", file.read())
    known = {call: int(number) for call, number in lines}
    at = NUMBER["x86_64" if header.startswith("x86_64") else "aarch64"]
    found = {call: row[at] for call, row in seccomp.REFUSED.items() if call in known}
    assert found == {call: known[call] for call in found}
    assert len(found) > 40


def test_every_call_has_a_reason_and_a_number():
    for name, (x86_64, aarch64, reason) in seccomp.REFUSED.items():
        assert x86_64 is not None or aarch64 is not None, name
        assert re.fullmatch(r"[^\n]{8,99}", reason), name
    for arch in ARCHES:
        known = [row[NUMBER[arch]] for row in seccomp.REFUSED.values()]
        given = [number for number in known if number is not None]
        assert len(given) == len(set(given))
        assert max(given) <= seccomp.LAST_KNOWN


@pytest.mark.parametrize("number", [470, 471, 512, 1023, 0x3FFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_call_that_nobody_has_judged_is_absent(judge, number):
    assert judge(number) == errno.ENOSYS


def test_the_x32_twin_of_every_call_is_absent(judge):
    for number in range(seccomp.LAST_KNOWN + 1):
        assert judge(0x40000000 | number) == errno.ENOSYS


@pytest.mark.parametrize(
    "foreign", [0x40000003, 0x40000028, 0xC000003E ^ 1, 0, 0xFFFFFFFF, 0xC00000F3]
)
def test_another_architecture_is_absent_whatever_the_call(arch, foreign):
    program = seccomp.encode(seccomp.assemble(arch))
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[arch]
    for number in (0, 1, 26, 59, 101, 200):
        assert bpf.verdict(program, foreign, number) == errno.ENOSYS
        assert bpf.verdict(program, seccomp.AUDIT_ARCH[other], number) == errno.ENOSYS


def test_clone_makes_threads_and_processes_but_no_namespace(arch, judge):
    number = seccomp.CLONE[NUMBER[arch]]
    thread, fork, vfork = 0x3D0F00, 0x01200011, 0x4111
    for flags in (thread, fork, vfork, 17, HIGH | fork):
        assert judge(number, flags) == 0
    for space in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        for flags in (space, space | 17, space | thread, HIGH | space):
            assert judge(number, flags) == errno.EPERM


def test_terminal_input_and_disciplines_are_refused_whatever_the_high_bits_say(arch, judge):
    number = seccomp.IOCTL[NUMBER[arch]]
    for request in (0x5412, 0x541C, 0x5423, HIGH | 0x5412, HIGH | 0x541C, (1 << 32) | 0x5412):
        assert judge(number, 0, request) == errno.EPERM
    for request in (0x5401, 0x5413, 0x5411, 0x541B, 0x541D, 0x5424, 0x5412 << 32, 0x80045430):
        assert judge(number, 0, request) == 0
    assert judge(number, 0x5412, 0x5401, 0x5412) == 0, "the descriptor and the argument don't count"


def test_sockets_are_of_three_families_and_route_netlink(arch, judge):
    calls = (seccomp.SOCKET[NUMBER[arch]], seccomp.SOCKETPAIR[NUMBER[arch]])
    for number, family, high in itertools.product(calls, range(60), (0, HIGH)):
        expected = 0 if family in (1, 2, 10, 16) else errno.EAFNOSUPPORT
        assert judge(number, high | family, 1, 0) == expected, family
    for number, protocol in itertools.product(calls, range(1, 32)):
        assert judge(number, 16, 3, protocol) == errno.EPROTONOSUPPORT
        assert judge(number, 2, 1, protocol) == 0
    for number in calls:
        assert judge(number, 16, 3, HIGH) == 0, "the protocol is an int"
        assert judge(number, 0xFFFFFFFF, 1, 0) == errno.EAFNOSUPPORT


def test_personality_keeps_addresses_random_and_memory_not_executable(arch, judge):
    number = seccomp.PERSONALITY[NUMBER[arch]]
    for persona in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF):
        assert judge(number, persona) == 0
    for persona in (0x40000, 0x400000, 0x40008, 0x100000, 0x800000, 1, 9, 0xFFFFFFFE, 0x60000):
        assert judge(number, persona) == errno.EPERM


def test_the_first_process_is_not_steered_and_each_other_may_be_traced(arch, judge):
    trace, write = seccomp.PTRACE[NUMBER[arch]], seccomp.PROCESS_VM_WRITEV[NUMBER[arch]]
    for request, high in itertools.product((0, 4, 12, 16, 0x4206), (0, HIGH)):
        assert judge(trace, request, high | 1) == errno.EPERM
        assert judge(trace, request, high | 2) == 0
    assert judge(write, 1) == judge(write, HIGH | 1) == errno.EPERM
    assert judge(write, 11) == 0


def test_every_jump_fits_its_byte(arch):
    for code, true, false, _ in seccomp.assemble(arch):
        assert 0 <= true <= seccomp.JUMP_MAX
        assert 0 <= false <= seccomp.JUMP_MAX
        assert code in (0x20, 0x15, 0x25, 0x35, 0x45, 0x05, 0x06)


def test_the_filter_fits_a_short_list(arch):
    assert len(seccomp.assemble(arch)) <= 110


def test_an_architecture_without_a_table_has_no_filter():
    with pytest.raises(KeyError):
        seccomp.assemble("riscv64")
