"""A sandbox that is started in its terminal's background doesn't get the terminal.

The program isn't in the terminal's session, so that nothing it types there is the shell's; but
then job control doesn't hold it either: from the background it would read what is typed for the
shell, a password too, by any of its descriptors, for a terminal's is opened to be read and
written.  So its input is empty there, and what it writes goes to the terminal by a pipe.  One
that was stopped in front goes on only there (`launcher`).

Imported at a start on a terminal, so it imports no `os`.
"""

import posix

PIECE_BYTES = 1 << 16


def leave_terminal() -> None:
    """Take the terminal out of this process's standard streams, where it is behind there.

    Call it before there is a thread.
    """
    streams = behind()
    if 0 in streams:
        null = posix.open("/dev/null", posix.O_RDONLY | posix.O_CLOEXEC)
        posix.dup2(null, 0)
        posix.close(null)
    out = [fd for fd in streams if fd]
    if not out:
        return
    given, taken = posix.pipe2(posix.O_CLOEXEC)
    pid = posix.fork()
    if pid == 0:
        try:
            # Nobody's child, and it ends as the last writer does.
            if posix.fork() == 0:
                posix.chdir("/")
                _keep_only(given, out[0])
                _pass_on(given, out[0])
        finally:
            posix._exit(0)
    posix.waitpid(pid, 0)
    posix.close(given)
    for fd in out:
        posix.dup2(taken, fd)
    posix.close(taken)


def behind() -> "list[int]":
    """Return which of the standard streams are a terminal that others are in front of."""
    return [fd for fd in (0, 1, 2) if _is_behind(fd)]


def _is_behind(fd: int) -> bool:
    """Tell whether a descriptor is this process's terminal, and others are in its foreground."""
    try:
        return posix.isatty(fd) and posix.tcgetpgrp(fd) not in (0, posix.getpgrp())
    except OSError:
        return False  # another session's: nobody says who reads there


def _keep_only(*kept: int) -> None:
    for name in posix.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                posix.close(int(name))
            except OSError:
                continue  # the one that listed them


def _pass_on(given: int, terminal: int) -> None:
    while data := posix.read(given, PIECE_BYTES):
        while data:
            data = data[posix.write(terminal, data) :]
