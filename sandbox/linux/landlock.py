"""Landlock: what a process gives up for itself and all that it starts (landlock(7)).

A ruleset names the rights that it handles; what it handles and no rule grants is closed.
Rights on files are for `[commands] only`, scopes for what no namespace keeps apart where a
sandbox shares the machine's network.  Each kernel knows an ABI: what is newer than it is an
error here, never left out, so who asks looks at `abi` first.

Imported where a sandbox starts and inside it, so it imports no `os`.
"""

import posix

from sandbox.linux.libc import PR_SET_NO_NEW_PRIVS, Libc

CREATE, ADD, RESTRICT = 444, 445, 446
"""On every architecture."""
ASK_ABI = 1
PATH_BENEATH = 1

EXECUTE, REFER = 1, 1 << 13
"""Running a file; linking or renaming across folders.  Where files are handled, REFER must be
too, and granted on `/`: else each rename across folders is EXDEV."""
REFER_ABI = 2

ABSTRACT_SOCKETS = 1
"""A scope: connecting to an abstract unix socket that is outside."""
SCOPE_ABI = 6

ENOSYS, EOPNOTSUPP = 38, 95


def abi(libc: "Libc | None" = None) -> int:
    """Return this kernel's Landlock ABI, 0 where it has none or it is switched off."""
    try:
        return (libc or Libc()).syscall(CREATE, None, 0, ASK_ABI)
    except OSError as error:
        if error.errno in (ENOSYS, EOPNOTSUPP):
            return 0
        raise


def ruleset(libc: Libc, *, files: int = 0, scoped: int = 0) -> int:
    """Return a ruleset's descriptor; raise OSError where the kernel is too old for it.

    files: the rights on files that it handles.  scoped: its scopes.
    """
    # struct landlock_ruleset_attr: u64 fs, net (ABI 4), scoped (ABI 6).  A kernel takes a
    # longer one whose rest is zero, but an older one must never be asked for a scope.
    words = (files, 0, scoped) if scoped else (files,)
    return libc.syscall(CREATE, b"".join(word.to_bytes(8, "little") for word in words),
                        8 * len(words), 0)  # fmt: skip


def allow(libc: Libc, rules: int, path: str, rights: int) -> None:
    """Grant rights on a file, or on a folder and all that lies in it."""
    fd = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
    try:
        # struct landlock_path_beneath_attr, packed: u64 access, s32 fd.
        attr = rights.to_bytes(8, "little") + fd.to_bytes(4, "little")
        libc.syscall(ADD, rules, PATH_BENEATH, attr, 0)
    finally:
        posix.close(fd)


def restrict(libc: Libc, rules: int) -> None:
    """Hold this thread, and what it starts from now on, to a ruleset; close it."""
    libc.call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.syscall(RESTRICT, rules, 0)
    posix.close(rules)


def scope_abstract_sockets() -> None:
    """Close the machine's abstract unix sockets to this process and what it starts (ABI 6).

    A ruleset that handles no files leaves mounting to bubblewrap.  Raises OSError where the
    kernel can't.
    """
    libc = Libc()
    restrict(libc, ruleset(libc, scoped=ABSTRACT_SOCKETS))
