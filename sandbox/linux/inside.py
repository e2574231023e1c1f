"""The stage inside: what runs first in a sandbox that needs more than bubblewrap sets up (R63).

    <python> -I -S inside_start.py <settings> <names> <front> -- <program> <argument>…

It is the sandbox's pid 1, and stays it: it starts the program as its first child, and ends as
that ends, whereupon the kernel ends all that is left.  bubblewrap has put the system call
filter on before.  By what its settings say:

    a list of programs  the program is put into a Landlock domain, and its execs are watched
    a terminal          the program is put into the terminal's foreground; where it stops, the
                        launcher outside is told
    proxies apart       a relay joins their ports to their folders' sockets (`relay`), a process
                        of its own that is there before the program

A process that shuts itself in must be another than the one that watches it.  Forking Python
for that costs half a bare sandbox in copied pages alone.  But both walls, Landlock's domain
and the filter, are a thread's, and what a thread starts has them from the start.  So there
are three threads:

    main     reaps, and ends as the program ends
    starter  puts the walls on itself, starts the program (posix_spawn, which copies nothing),
             and ends
    watch    outside the domain: answers the program's calls (`exec_watch`)

settings: a descriptor with what `Settings` reads, by marshal, for the launcher runs on the same
interpreter: JSON's module is a library of its own to load.  names: the pipe by which the launcher
outside is told, which this process alone holds.  front: 1 where the launcher has the terminal.
Where a wall can't be built the program isn't started, and the status is 125.

It runs at each start, on the interpreter that the sandbox shows, so it imports the standard
library's C modules and what it uses of ours alone.
"""

import _signal  # type: ignore[import-not-found]
import marshal
import posix
import sys

from sandbox.linux.libc import PR_SET_DUMPABLE, Libc

COULD_NOT, NOT_RUN, NOT_FOUND = 125, 126, 127
ENOENT, ENOEXEC, EACCES, ENOSYS = 2, 8, 13, 38
SHELL = b"/bin/sh"
SETTINGS_MAX = 4 << 20
CHANGED = (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ)
"""What Python changed.  The program gets them as a machine starts with them, and pid 1 gets no
signal that it has no handler for, its own SIGPIPE too."""
RELAY = "proxy-inside"
STOPPED = b"s\0"
"""Told to the launcher: the program was stopped from its terminal."""


class Settings:
    """What the stage does.

    only: the paths of the files that may run, None for any.  watch: the notifying filter,
    empty for none.  numbers: the watched calls' numbers, and seccomp(2)'s.  terminal: whether
    the program keeps one.  scoped: whether the machine's abstract sockets are closed with
    what isn't listed.  reached: proxies apart, each a folder and a port inside.
    """

    __slots__ = ("numbers", "only", "reached", "scoped", "terminal", "watch")

    def __init__(self, fields: "dict[str, Any]") -> None:
        self.only: list[str] | None = fields["only"]
        self.watch = bytes.fromhex(fields["watch"])
        self.numbers: list[int] = fields["numbers"]
        self.terminal: bool = fields["terminal"]
        self.scoped: bool = fields["scoped"]
        self.reached: list[tuple[str, int]] = fields["reached"]


def main(words: "list[str]") -> "NoReturn":
    """Run `<settings> <names> <front> -- <program> <argument>…`; end as the program ends."""
    try:
        # Both as they came: Python adds to the environment (LC_CTYPE, where there is no locale),
        # and reads words by a locale in which not every one is the same when it is written again.
        environ = _read("/proc/self/environ").split(b"\0")[:-1]
        command = _read("/proc/self/cmdline").split(b"\0")[:-1]
        argv = command[command.index(b"--") + 1 :]
        told = Settings(marshal.loads(_taken(int(words[0]))))  # noqa: S302 - the launcher's own
        names = int(words[1])
        posix.set_inheritable(names, False)
        for number in CHANGED:
            # Python leaves a SIGINT alone that was ignored, as the launcher has it for `&`.
            if number != _signal.SIGINT or _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, _signal.SIG_DFL)
        libc = Libc()
        libc.call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
        if told.reached:
            _start_relay(told.reached)
        if told.terminal:
            _take_terminal(front=words[2] == "1")
        program = _Program(libc, argv, environ)
        if told.watch:
            _start_watched(told, libc, program, names)
        else:
            program.start(is_named=False)
        _tell(names, b"p%d\0" % program.pid)
        _reap(program.pid, names if told.terminal else -1)
    except BaseException as error:  # noqa: BLE001 - whatever it is, nothing runs
        _say(f"the stage inside: {_why(error)}")
    finally:
        posix._exit(COULD_NOT)


def _start_relay(reached: "list[tuple[str, int]]") -> None:
    """Start the relay, in a session of its own, and wait until it accepts connections.

    It has no part in the list of programs: it is there before that.
    """
    script = sys.modules["__main__"].__file__
    assert script is not None
    ready, tell = posix.pipe2(posix.O_CLOEXEC)
    posix.set_inheritable(tell, True)
    also = [word for folder, port in reached for word in ("--also", f"{folder}={port}")]
    words = [sys.executable, "-I", "-S", script, RELAY, str(tell), *also]
    posix.posix_spawn(sys.executable, words, {}, setsid=True)
    posix.close(tell)
    begun = posix.read(ready, 1)
    posix.close(ready)
    if not begun:
        posix._exit(COULD_NOT)  # it has said why


class _Program:
    """The program: started by whichever thread has its walls on."""

    __slots__ = ("_argv", "_environ", "_pid", "_room", "_shell", "_spawn", "path")

    def __init__(self, libc: Libc, argv: "list[bytes]", environ: "list[bytes]") -> None:
        self.path = argv[0]
        self._argv, self._environ = libc.texts(argv), libc.texts(environ)
        self._shell = libc.texts([SHELL, *argv])
        # Python's own would hold its lock until the exec is done, for which the watch needs it.
        self._spawn = libc.function("posix_spawn")
        self._room = bytearray(4)
        self._pid = libc.array(self._room)

    @property
    def pid(self) -> int:
        """Its number, once it was started."""
        return int.from_bytes(self._room, sys.byteorder)

    def start(self, *, is_named: bool) -> None:
        """Start it, or end this process with a status that says why not.

        is_named: whether the watch has said it, where it was refused.
        """
        error = self._try(self.path, self._argv)
        if error == ENOEXEC:
            # A script without `#!` is the shell's, as bubblewrap has it (execvp(3)).
            error = self._try(SHELL, self._shell)
        if error:
            if error != EACCES or not is_named:
                path = self.path.decode("ascii", "backslashreplace")
                _say(f"{path} can't be run: {posix.strerror(error)}.")
            posix._exit(NOT_FOUND if error == ENOENT else NOT_RUN)

    def _try(self, path: bytes, argv: "Any") -> int:
        """Return 0 where it was started, else the errno."""
        return self._spawn(self._pid, path, None, None, argv, self._environ) & 0xFFFFFFFF


def _start_watched(told: Settings, libc: Libc, program: _Program, names: int) -> None:
    """Start the program from a thread that shuts itself in, and the watch in another."""
    from _thread import allocate_lock, start_new_thread

    from sandbox.linux.exec_watch import Numbers, Watch, listen

    numbers = Numbers(*told.numbers)
    files = None if told.only is None else [path for path in told.only if _is_there(path)]
    watch = Watch(numbers, program.path, files, names, libc)
    listeners: list[int] = []
    shut_in, watched, started = allocate_lock(), allocate_lock(), allocate_lock()
    for step in (shut_in, watched, started):
        step.acquire()  # each is released once, when its step is done

    def start() -> None:
        if files is not None:
            _list_programs(libc, files, scoped=told.scoped)
        listeners.append(listen(libc, told.watch, numbers))
        shut_in.release()
        watched.acquire()
        program.start(is_named=True)
        started.release()

    start_new_thread(_or_end(start), ())
    shut_in.acquire()
    start_new_thread(_or_end(lambda: watch.run(listeners[0])), ())
    watched.release()
    started.acquire()


def _or_end(what: "Callable[[], None]") -> "Callable[[], None]":
    """Return what a thread does, whose failure is everything's end."""

    def run() -> None:
        try:
            what()
        except BaseException as error:  # noqa: BLE001 - no wall may be missing
            _say(f"the stage inside: {_why(error)}")
            posix._exit(COULD_NOT)

    return run


def _reap(program: int, names: int) -> "NoReturn":
    """Reap all that ends inside until the program has; tell where it stops, if there is whom to."""
    while True:
        pid, status = posix.waitpid(-1, posix.WUNTRACED if names >= 0 else 0)
        if pid != program:
            continue
        if posix.WIFSTOPPED(status):
            _tell(names, STOPPED)
            continue
        code = posix.waitstatus_to_exitcode(status)
        posix._exit(128 - code if code < 0 else code)


def _tell(names: int, what: bytes) -> None:
    try:
        posix.write(names, what)
    except BlockingIOError:
        return  # the launcher has enough to read


def _list_programs(libc: Libc, files: "list[str]", *, scoped: bool) -> None:
    """Refuse this thread, and all it starts, every program that isn't listed (Landlock).

    scoped: the machine's abstract sockets too.  That takes the same ruleset: a second one that
    handles no files would refuse what this grants, each rename across folders.
    """
    from sandbox.linux import landlock

    level = landlock.abi(libc)
    if level == 0:
        raise OSError(
            ENOSYS, "this kernel has no Landlock any more, which the list of programs needs"
        )
    rights = landlock.EXECUTE
    if level >= landlock.REFER_ABI:
        rights |= landlock.REFER
    scopes = landlock.ABSTRACT_SOCKETS if scoped else 0
    rules = landlock.ruleset(libc, files=rights, scoped=scopes)
    if rights & landlock.REFER:
        landlock.allow(libc, rules, "/", landlock.REFER)
    for path in files:
        landlock.allow(libc, rules, path, landlock.EXECUTE)
    landlock.restrict(libc, rules)


def _take_terminal(*, front: bool) -> None:
    """Put this process into a group of its own, and that into the terminal's foreground.

    The program is started in it.  Ctrl-C and Ctrl-Z then reach it, and neither bubblewrap nor
    the launcher; pid 1 is in no danger of them.
    """
    posix.setpgid(0, 0)
    if not front:
        return
    try:
        terminal = posix.open("/dev/tty", posix.O_RDWR | posix.O_NOCTTY | posix.O_CLOEXEC)
    except OSError:
        return  # there is none
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTTOU,))
    posix.tcsetpgrp(terminal, posix.getpid())
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGTTOU,))
    posix.close(terminal)


def _is_there(path: str) -> bool:
    """Tell whether a listed file still is one.

    One that was removed can't be run anyway; in a folder that took its place, all would.
    """
    try:
        return posix.stat(path).st_mode & 0o170000 == 0o100000
    except OSError:
        return False


def _taken(fd: int) -> bytes:
    """Return all that a descriptor holds, and close it."""
    data = posix.read(fd, SETTINGS_MAX)
    posix.close(fd)
    return data


def _read(path: str) -> bytes:
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    found = b""
    while data := posix.read(fd, 1 << 17):
        found += data
    posix.close(fd)
    return found


def _why(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    return str(error) or repr(error)


def _say(sentence: str) -> None:
    try:
        posix.write(2, f"lnk sandbox: {sentence}\n".encode(errors="replace"))
    except OSError:
        return  # nobody listens


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn
