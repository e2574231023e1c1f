"""The signals of a sandbox's launcher: whom each is for, and what the program gets them as."""

import _signal  # type: ignore[import-not-found]

TO_GROUP = (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGWINCH)
"""What a terminal sends to all of the foreground: so to all of the program's group."""
TO_PROGRAM = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
"""What somebody sends to one process: so to the program."""
WATCHED = (
    *TO_GROUP, *TO_PROGRAM, _signal.SIGCHLD, _signal.SIGTSTP, _signal.SIGCONT, _signal.SIGIO,
)  # fmt: skip
DEFAULTED = (*WATCHED, _signal.SIGPIPE, _signal.SIGXFSZ)
"""What Python or the caller changed: the program gets them as a machine starts with them."""
IGNORABLE = (*TO_GROUP, *TO_PROGRAM, _signal.SIGTSTP)
"""Of them, what stays ignored for both where the caller ignores it, as nohup(1) and `&` have it."""


def ignored() -> "list[int]":
    """Return the signals that whoever started us ignores, and wants ignored."""
    return [number for number in IGNORABLE if _signal.getsignal(number) == _signal.SIG_IGN]
