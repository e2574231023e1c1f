"""Run a kept command whose launcher is disturbed at chosen moments of its start.

    <python> -I -S -c <this> <moments> <kept command's script> <plan>… -- <program>…

moments, with a semicolon between: <call>/<made>=<word>,<word>….  It is the launcher's next call of
that name (`posix`) once it has made so many processes: the keeper first, bubblewrap, the proxy.
Just before it the words are done in turn:

    keeper, bwrap, inner, proxy, self   that process is killed
    15, …                               the launcher gets that signal; 0 is none
    stop, go                            the proxy is stopped, or goes on
    born, gone                          it is waited for that there is a first process inside, or
                                        that bubblewrap has ended
    gate:<path>                         … that it waits for its go-ahead, or the path exists
    made:<path>                         … that it exists
"""

import posix
import runpy
import sys
import time

moments = [one.partition("=")[::2] for one in sys.argv[1].split(";")]
LAUNCHER, KILL, STOP, GO = posix.getpid(), 9, 19, 18
LONG_S = 60.0
READ = ("0", "63")
"""The numbers of read(2)."""
kill, opened, read, readlink, exists = (
    posix.kill, posix.open, posix.read, posix.readlink, posix.access
)  # fmt: skip
made: "list[int]" = []


def text_of(path: str) -> str:
    try:
        fd = opened(path, posix.O_RDONLY | posix.O_CLOEXEC)
        return read(fd, 4096).decode()
    except OSError:
        return ""


def inner() -> int:
    """Return the sandbox's first process, 0 where there is none yet."""
    children = text_of(f"/proc/{made[1]}/task/{made[1]}/children").split()
    return int(children[0]) if children else 0


def waits() -> bool:
    """Tell whether it waits for something by a pipe, which it does at the gate alone."""
    words = text_of(f"/proc/{inner()}/syscall").split()
    try:
        return len(words) > 1 and words[0] in READ and readlink(
            f"/proc/{inner()}/fd/{int(words[1], 16)}"
        ).startswith("pipe:")  # fmt: skip
    except OSError:
        return False


def wait_for(holds) -> None:
    until = time.monotonic() + LONG_S
    while not holds():
        if time.monotonic() > until:
            kill(LAUNCHER, KILL)
        time.sleep(0.0002)


def disturb(word: str) -> None:
    what, _, path = word.partition(":")
    if what.isdigit():
        kill(LAUNCHER, int(what))
    elif what in ("stop", "go"):
        kill(made[2], STOP if what == "stop" else GO)
    elif what == "born":
        wait_for(inner)
    elif what == "gone":
        stat = f"/proc/{made[1]}/stat"
        wait_for(lambda: text_of(stat).rpartition(")")[2].startswith(" Z"))
    elif what == "gate":
        wait_for(lambda: waits() or exists(path, 0))
    elif what == "made":
        wait_for(lambda: exists(path, 0))
    else:
        pids = {"keeper": made[:1], "bwrap": made[1:2], "proxy": made[2:3], "self": [LAUNCHER]}
        for pid in [inner()] if what == "inner" else pids[what]:
            if pid:
                kill(pid, KILL)


def hooked(name: str, real):
    def hook(*args, **named):
        if posix.getpid() != LAUNCHER:
            return real(*args, **named)
        if moments and moments[0][0] == f"{name}/{len(made)}":
            for word in moments.pop(0)[1].split(","):
                disturb(word)
        found = real(*args, **named)
        if name in ("fork", "posix_spawn") and found:
            made.append(found)
        return found

    return hook


for name in {one.partition("/")[0] for one, _ in moments} | {"fork", "posix_spawn"}:
    setattr(posix, name, hooked(name, getattr(posix, name)))
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
