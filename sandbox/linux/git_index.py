"""Which submodules git's index names: the places where git looks into another repository.

`git status` in a work tree runs git in each of its submodules, with that one's own
settings.  Which paths are submodules, the index alone says; `.gitmodules` is a file of the
project's, and a program may have changed it.  An index can hold hundreds of thousands of
files, so it isn't parsed: its entries are looked at where a submodule's mode stands.
Imported only where there is an index.
"""

from sandbox.linux.program import text_of

INDEX_MAX_BYTES = 256 << 20
SUBMODULE_MODE = b"\x00\x00\xe0\x00"
"""Of an entry (gitformat-index(5)): 0160000, big-endian."""
MODE_AT, FLAGS_AT = 24, 60
"""Where mode and flags stand in an entry; the flags behind a SHA-1 (20 bytes)."""
EXTENDED, NAME_MAX = 0x4000, 0xFFF
SHA1_BYTES, SHA256_BYTES = 20, 32


def submodules(index: bytes) -> "list[str]":
    """Return the paths of an index's submodules, empty for what is no index.

    Where the objects' names may be SHA-256, both lengths are tried: an entry says how long
    its path is, so the wrong one doesn't fit.
    """
    if index[:4] != b"DIRC" or SUBMODULE_MODE not in index:
        return []
    if int.from_bytes(index[4:8], "big") == 4:
        return _compressed(index, SHA1_BYTES) or _compressed(index, SHA256_BYTES)
    found = []
    at = index.find(SUBMODULE_MODE, 12 + MODE_AT)
    while at != -1:
        path = _path(index, at - MODE_AT, SHA1_BYTES) or _path(index, at - MODE_AT, SHA256_BYTES)
        if path:
            found.append(path)
        at = index.find(SUBMODULE_MODE, at + 1)
    return found


def _path(index: bytes, entry: int, hash_bytes: int) -> str:
    """Return the path of the entry that begins here, empty where none does."""
    flags, start = _flags(index, entry, hash_bytes)
    name = index[start : index.find(b"\0", start)]
    if not name or flags & NAME_MAX != min(len(name), NAME_MAX):
        return ""
    return text_of(name)


def _flags(index: bytes, entry: int, hash_bytes: int) -> "tuple[int, int]":
    """Return an entry's flags, and where its name begins."""
    at = entry + FLAGS_AT - SHA1_BYTES + hash_bytes
    flags = int.from_bytes(index[at : at + 2], "big")
    return flags, at + (4 if flags & EXTENDED else 2)


def _compressed(index: bytes, hash_bytes: int) -> "list[str]":
    """Read version 4, whose names each say how much of the one before they keep."""
    found = []
    name, entry = b"", 12
    for _ in range(int.from_bytes(index[8:12], "big")):
        flags, at = _flags(index, entry, hash_bytes)
        cut, at = _number(index, at)
        end = index.find(b"\0", at)
        if end == -1 or cut > len(name):
            return []  # objects' names of another length
        name = name[: len(name) - cut] + index[at:end]
        if flags & NAME_MAX != min(len(name), NAME_MAX):
            return []
        if index[entry + MODE_AT : entry + MODE_AT + 4] == SUBMODULE_MODE:
            found.append(text_of(name))
        entry = end + 1
    return found


def _number(index: bytes, at: int) -> "tuple[int, int]":
    """Read a number of a pack's kind, seven bits a byte; return it and where to go on."""
    value = -1
    while at < len(index):
        value = (value + 1) << 7 | index[at] & 0x7F
        at += 1
        if not index[at - 1] & 0x80:
            break
    return max(value, 0), at
