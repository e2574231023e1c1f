"""A small BPF interpreter: what the kernel would answer for one system call."""

from __future__ import annotations

import struct

ALLOW = 0x7FFF0000
ERRNO = 0x00050000


def data(arch: int, number: int, *arguments: int) -> bytes:
    """Pack a `struct seccomp_data`: 64 bytes."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    return struct.pack("<iIQ6Q", number - (1 << 32) * (number >> 31), arch, 0, *words)


def run(program: bytes, seen: bytes) -> int:
    """Run an encoded filter as the kernel does, its checks of the program included."""
    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    assert len(program) % 8 == 0
    assert len(code) <= 4096
    at, word = 0, 0
    while True:
        assert at < len(code), "a jump past the end: the kernel takes no such filter"
        op, true, false, operand = code[at]
        at += 1
        match op:
            case 0x20:
                assert operand % 4 == 0
                assert operand < 64
                (word,) = struct.unpack_from("<I", seen, operand)
            case 0x15:
                at += true if word == operand else false
            case 0x25:
                at += true if word > operand else false
            case 0x35:
                at += true if word >= operand else false
            case 0x45:
                at += true if word & operand else false
            case 0x05:
                at += operand
            case 0x54:
                word &= operand
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"no such instruction: {op:#x}")


def verdict(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """Return the errno, or 0 where the call is allowed."""
    answer = run(program, data(arch, number, *arguments))
    if answer == ALLOW:
        return 0
    assert answer & 0xFFFF0000 == ERRNO
    return answer & 0xFFFF
