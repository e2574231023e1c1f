"""Run inside: steer the sandbox's first process by ptrace, to have it say that all has ended.

It drops its death signal, tells bubblewrap outside of the program's end, and lives on, as
does this.  Standard library alone; on a machine that isn't x86_64 it only stays behind.
"""

import ctypes
import os
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
ATTACH, GETREGS, SETREGS, SINGLESTEP, POKEDATA = 16, 12, 13, 9, 5
REGISTERS = (
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx",
    "rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds",
    "es", "fs", "gs",
)  # fmt: skip


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in REGISTERS]


def trace(request, address=None, data=None):
    if libc.ptrace(request, 1, address, data) == -1:
        raise OSError(ctypes.get_errno(), "ptrace")


def called(stopped, number, *arguments):
    """Have the first process, stopped in a system call, make another one."""
    registers = Registers.from_buffer_copy(stopped)
    registers.rip -= 2  # the syscall instruction
    registers.rax, registers.orig_rax = number, 2**64 - 1
    for name, value in zip(("rdi", "rsi", "rdx", "r10"), arguments, strict=False):
        setattr(registers, name, value)
    trace(SETREGS, None, ctypes.byref(registers))
    trace(SINGLESTEP)
    os.waitpid(1, 0)


def steer():
    events = [int(fd) for fd in os.listdir("/proc/1/fd")
              if os.readlink(f"/proc/1/fd/{fd}").endswith("[eventfd]")]  # fmt: skip
    trace(ATTACH)
    os.waitpid(1, 0)
    stopped = Registers()
    trace(GETREGS, None, ctypes.byref(stopped))
    called(stopped, 157, 1, 0, 0, 0)  # prctl(PR_SET_PDEATHSIG, 0)
    room = stopped.rsp - 512
    trace(POKEDATA, room, 1)  # status 0, as bubblewrap tells it
    for fd in events:
        called(stopped, 1, fd, room, 8)


if os.fork() == 0:
    os.setsid()
    print("ready", flush=True)
    if os.uname().machine == "x86_64":
        steer()
    time.sleep(float(sys.argv[1]))
else:
    time.sleep(float(sys.argv[1]) if os.uname().machine == "x86_64" else 1)
