"""Apply a plan: start bubblewrap, watch over it, and end with the program's status.

The launcher stays in front of every sandbox, with a proxy and without.  As bubblewrap's
parent it forwards signals to the program rather than ending everything, tells a sandbox
that couldn't start (125) from a program that failed, and its one thread is the one whose
death ends the sandbox, whatever becomes of the thread of whoever started it.

    1. look at what the plan rests on; find the program
    2. fork the keeper, which ends what would outlive the launcher; with a proxy it is the
       socket maker too
    3. start bubblewrap, its arguments, filter and files on descriptors
    4. wait for the program; end with its status
    5. with a proxy: fork it meanwhile, once the program has had its head start; the maker has
       its listeners for it, and has let bubblewrap go on by itself

The launcher itself has no event loop and no second thread: it waits for signals, and its
program's end is its own at once, whatever the proxy is busy with.

It runs at each start of a kept command, so it imports what is built into the interpreter
alone: `posix`, for `os` costs a third of a bare sandbox, and `_signal`, for `signal`
brings `enum`.
"""

import _signal  # type: ignore[import-not-found]
import marshal
import posix
import time

from sandbox.linux import program
from sandbox.linux.given import (
    arguments_of,
    hold_standard_streams,
    launch_error,
    memory,
    not_started,
    stand_apart,
)
from sandbox.linux.keeper import fork as fork_keeper
from sandbox.linux.keeper import is_dead
from sandbox.linux.kept import Kept, read_json
from sandbox.linux.program import text_of

STATUS_MAX_BYTES = 1 << 16
SYSTEM = ("/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec")
FIONREAD = 0x541B
HELPERS_END_S = 5.0
"""How long keeper and proxy may take to end once the program has, last log lines included."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
LOOK_S, HEAD_START_S, HEAD_START_MOST_S = 0.002, 0.006, 0.1
"""How often it is looked whether the program has started, and what it has to itself from then on.
Only then is the proxy forked, for it imports its event loop, which keeps a processor busy for ten
bare sandboxes.  A program that has ended by then, or that only starts to think of the network,
doesn't feel it; one that connects at once waits so much longer.  In any case it is forked after
HEAD_START_MOST_S: the maker waits for it where there are more sockets than fit into their pair."""
COULD_NOT = (
    "the sandbox could not be made; the line above says why, "
    "and `lnk sandbox ready` what this machine lacks."
)

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
MEMORY_DEVICES = 1
"""The major number of null, zero, full and random."""


def run(
    kept: Kept,
    argv: "list[str]",
    environ: "dict[bytes, bytes]",
    serve: "Serve | None",
) -> "NoReturn":
    """Run a program in a sandbox, and end this process with its status.

    environ: the program's whole environment.  serve: what serves the proxy, in a process
    of its own; None without one.  Raises LaunchError where the sandbox can't be started (125),
    or the program found (127) or run (126).
    """
    if kept.uid and posix.geteuid() == 0:
        # Its walls don't hold root: files of /proc that root alone may write, for one.
        raise launch_error(
            "plan", 0, "this command was made by an ordinary user, and its walls are for one: make "
            "it anew with wrap as root, or run it as that user.",
        )  # fmt: skip
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # an ignored one would never be waited for
    heeded = [number for number in WATCHED if number not in _ignored()]
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (*heeded, _signal.SIGTTOU))
    try:
        sandbox = _started(kept, argv, environ, serve)
    except OSError as error:
        raise not_started(error) from None
    sandbox.wait()


def _started(
    kept: Kept,
    argv: "list[str]",
    environ: "dict[bytes, bytes]",
    serve: "Serve | None",
) -> "Sandbox":
    """Return a sandbox that starts; raise as `run` does, and OSError for what a process lacks."""
    cwd = _working_folder()
    hold_standard_streams()
    for fd in (0, 1, 2):
        if _could_be_opened_anew(fd):
            from sandbox.linux.given_input import copy

            copy(fd)
    keeps_terminal = kept.inside is not None and kept.inside["terminal"]
    if not keeps_terminal and any(map(posix.isatty, (0, 1, 2))):
        from sandbox.linux.background import leave_terminal

        leave_terminal()
    stand_apart()
    if kept.wire is not None:
        _look_at_wire(kept.wire, listens=kept.port != 0)
    view = program.View(kept.arguments, kept.copies)
    search = environ.get(b"PATH")
    path = program.find(
        argv[0], DEFAULT_PATH if search is None else text_of(search), cwd, view, kept.home
    )
    here = next((folder for folder in (cwd, kept.home) if view.stands(folder)), "/")
    if _may_hold_sockets(kept.sockets):
        from sandbox.linux.path_sockets import mask

        kept.arguments = mask(kept.arguments, kept.sockets)
    if posix.geteuid() == 0:
        from sandbox.linux.etc_closed import mask as mask_closed

        kept.arguments = mask_closed(kept.arguments, kept.checks)
    held = _hold(kept)
    try:
        sandbox = Sandbox(kept, [path, *argv[1:]], environ, here, held)
    except BaseException:
        if held is not None:
            held.end()
        raise
    if kept.wire is not None:
        assert serve is not None
        sandbox.have_proxy(serve, kept.wire, kept.state)
    return sandbox


class Sandbox:
    """One running sandbox, seen from outside.

    pid: bubblewrap's first process, our child.  keeper: the keeper's, and its group's.
    _left: what a killed proxy would leave: Link's settings, its folder, and whether it made that.
    """

    __slots__ = (
        "_code",
        "_fork_at",
        "_gate",
        "_held",
        "_inner_end",
        "_left",
        "_life",
        "_listener",
        "_names",
        "_proxied",
        "_proxy",
        "_said",
        "_seen",
        "_served",
        "_status",
        "_step",
        "_steps",
        "_stop",
        "_taken",
        "_terminal",
        "_was_killed",
        "keeper",
        "pid",
    )  # fmt: skip

    def __init__(
        self,
        kept: Kept,
        argv: "list[str]",
        environ: "dict[bytes, bytes]",
        cwd: str,
        held: "Run | None",
    ) -> None:
        given: list[int] = []
        self._held = held
        self._listener = self._step = self._steps = self._stop = self._inner_end = -1
        self._proxy = self._code = 0
        self._served: list[int] = []
        self._names: Names | None = None
        self._terminal: Terminal | None = None
        self._proxied: tuple[Serve, dict[str, object], int] | None = None
        self._left: tuple[str, str, bool] | None = None
        self._fork_at = 0.0
        self._seen = self._was_killed = False
        self._said = self._taken = b""
        try:
            arguments = arguments_of(kept, environ, cwd, given)
            told, info = posix.pipe2(posix.O_CLOEXEC)
            self._gate, go = posix.pipe2(posix.O_CLOEXEC)
            self.keeper, self._life = self._fork_keeper(kept, told, go, (*given, info))
            posix.close(told)
            self._status, status = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
            given += [info, status]
            flags = ["--info-fd", str(info), "--json-status-fd", str(status)]
            flags += ["--args", str(memory(b"\0".join(arguments) + b"\0", given))]
            flags += ["--seccomp", str(memory(kept.filter, given))]
            # The run's socket stays out of it: were the first process inside steered
            # (`seccomp.FIRST`), one shutdown(2) there would have a living run taken for a dead one.
            gate = posix.dup(self._gate)  # bubblewrap's; ours is to look at it in the end
            given.append(gate)
            flags += ["--block-fd", str(gate)]
            if kept.wire is None:
                posix.write(go, b"x")  # there is nobody to wait for
            posix.close(go)
            if kept.inside is not None:
                argv = self._by_stage(kept, kept.inside, argv, given)
            for fd in given:
                posix.set_inheritable(fd, True)
            if kept.scoped:
                _scope()
            self.pid = _spawn(kept.bwrap, [kept.bwrap, *flags, "--", *argv], self.keeper)
        finally:
            for fd in given:
                posix.close(fd)

    def _by_stage(
        self,
        kept: Kept,
        stage: "dict[str, Any]",
        argv: "list[str]",
        given: "list[int]",
    ) -> "list[str]":
        """Return the command by which the stage inside starts a program."""
        from sandbox.linux.names import Names, teller

        if stage["terminal"]:
            from sandbox.linux.terminal import Terminal

            self._terminal = Terminal()
        front = "1" if self._terminal is not None and self._terminal.is_ours else "0"
        self._names = Names(teller(kept))
        given.append(self._names.inner)
        settings = memory(marshal.dumps(stage["settings"]), given)
        words = [stage["python"], "-I", "-S", stage["script"]]
        return [*words, str(settings), str(self._names.inner), front, "--", *argv]

    def _fork_keeper(
        self, kept: Kept, told: int, go: int, foreign: "tuple[int, ...]"
    ) -> "tuple[int, int]":
        after = None if self._held is None else self._held.end
        if kept.wire is None:
            return fork_keeper(told, (*foreign, go), after=after)
        from sandbox.linux import socket_maker

        self._served = socket_maker.serve_outside(kept.wire.get("serve", []))  # type: ignore[arg-type]
        self._listener, its = socket_maker.pair()
        self._steps, self._step = posix.pipe2(posix.O_CLOEXEC)
        posix.set_blocking(self._steps, False)
        wanted: list[list[object]] = kept.wire.get("inside", [])  # type: ignore[assignment]
        forked = fork_keeper(
            told,
            (*foreign, self._listener, self._steps, *self._served),
            lambda: socket_maker.maker(its, kept.port, wanted, lambda: _released(go, self._step)),
            after,
        )
        posix.close(its)
        return forked

    def have_proxy(self, serve: "Serve", wire: "dict[str, object]", state: str) -> None:
        """Have the proxy forked when the program has had its head start, if it runs then."""
        stopped, self._stop = posix.pipe2(posix.O_CLOEXEC)
        folder = wire.get("dir")
        if isinstance(folder, str):
            self._left = state, folder, not _is_there(folder)
        self._proxied = serve, wire, stopped
        self._fork_at = time.monotonic() + HEAD_START_MOST_S

    def _fork_proxy(self, serve: "Serve", wire: "dict[str, object]", stopped: int) -> None:
        group = posix.getpgrp()
        theirs = [self._listener, self._step, stopped, *self._served]
        refused: OSError | None = None
        try:
            self._proxy = posix.fork()
        except OSError as error:
            refused = error
        else:
            self._take_in_proxy()
        if self._proxy == 0 and refused is None:
            self._let_go_of_ours()
            serve_handed(serve, wire, theirs, group)
        for fd in theirs:
            posix.close(fd)  # the maker may wait until somebody takes its sockets
        if refused is not None:
            # The program runs by now, and may have taken every process that its user may have.
            why = refused.strerror
            _say(f"the proxy could not be started ({why}), so all of the sandbox ends.")
            self._code = 125
            self._let_go()

    def _take_in_proxy(self) -> None:
        """Have the keeper end it too: until it serves, it has nothing to end in good order."""
        try:
            posix.setpgid(self._proxy, self.keeper)
        except OSError:
            if self._proxy == 0:
                posix._exit(1)  # the keeper has ended, so all does

    def _let_go_of_ours(self) -> None:
        """Close what the launcher alone must hold: its death ends proxy and keeper."""
        for fd in (self._stop, self._life, self._steps, self._status):
            posix.close(fd)
        if self._held is not None:
            posix.close(self._held.listener)
        for shared in (self._names, self._terminal):
            if shared is not None:
                shared.close()

    def wait(self) -> "NoReturn":
        """Reap children and forward signals until bubblewrap has ended; then end."""
        while True:
            number = self._next_signal()
            if number == _signal.SIGCHLD:
                self._reap()
            elif number == _signal.SIGIO:
                self._hear()
            elif number == _signal.SIGCONT:
                if self._terminal is not None and self._inner():
                    self._terminal.go_on(self._inner())
            else:
                self._forward(number)

    def _next_signal(self) -> int:
        """Wait for a signal; fork the proxy meanwhile, when that is due."""
        while self._proxied is not None:
            now = time.monotonic()
            if not self._seen and self._has_started():
                self._seen = True
                self._fork_at = min(self._fork_at, now + HEAD_START_S)
            if now >= self._fork_at:
                proxied, self._proxied = self._proxied, None
                self._fork_proxy(*proxied)
                break
            left = self._fork_at - now
            found = _signal.sigtimedwait(WATCHED, left if self._seen else min(left, LOOK_S))
            if found is not None:
                return int(found.si_signo)
        return int(_signal.sigwait(WATCHED))

    def _hear(self) -> None:
        if self._names is None:
            return
        self._names.hear()
        if self._names.stopped and self._terminal is not None:
            self._names.stopped = False
            self._terminal.stop()

    def _reap(self) -> None:
        while True:
            pid, status = posix.waitpid(-1, posix.WNOHANG)
            if pid == self.pid:
                self._end(status)
            if pid == 0:
                return
            if self._life >= 0:
                # Nothing may run on that the launcher no longer holds whole.  Before there is a
                # program, what ended most often ended because bubblewrap just has.
                released = self._stop < 0 or b"r" in self._steps_taken()
                _say("a part of the sandbox outside ended, so all of it ends." if released
                     else COULD_NOT)  # fmt: skip
                self._code = self._code or 125
            if pid == self._proxy:
                self._proxy = 0
                self._was_killed = posix.WIFSIGNALED(status)
                self._let_go()
            else:
                self._kill_without_keeper()

    def _let_go(self) -> None:
        """Have the keeper end all that is left of the sandbox, and itself."""
        if self._life >= 0:
            posix.close(self._life)
            self._life = -1
            if self._proxied is not None:
                self._proxied = None
                posix.close(self._listener)  # the maker may wait until somebody takes its sockets

    def _kill_without_keeper(self) -> None:
        """End all that is left, where the keeper was killed before it could."""
        if self._life >= 0:
            self._signal(-self.keeper, _signal.SIGKILL)  # its group is there while bubblewrap is
            inner = self._inner()
            if inner and self._held is not None:
                self._inner_end = _process(inner)
            self._signal(inner, _signal.SIGKILL)
            self._let_go()
        self.keeper = 0

    def _end(self, status: int) -> "NoReturn":
        """End this process as the program ended."""
        if self._names is not None:
            self._names.end()
        if self._terminal is not None:
            self._terminal.take_back()
        code = posix.waitstatus_to_exitcode(status)
        steps = self._steps_taken()
        # What was let go is killed, and bubblewrap may still find the time to tell of that.
        ended = self._life >= 0 and code >= 0 and b'"exit-code"' in self._status_text()
        if ended and self._held is None:
            # bubblewrap says that all has ended; were its inner process steered (`seccomp.FIRST`)
            # to say so and live on, the keeper makes sure.  Nobody waits for it:
            # the program's end is ours, and the memory of an event loop takes a while to free.
            self._let_go()
            self.keeper = 0
        elif ended:
            self._let_go()  # it takes away what was held, once all inside are dead
        else:
            self._let_go()
            # Where bubblewrap itself was killed, maybe by us, it has said nothing.  Before there
            # is a program, it was ended by the keeper, which couldn't make what was wanted.
            released = self._stop < 0 or b"r" in steps
            killed = code < 0 and released
            code = self._code or (128 - code if killed else self._explain(released=released))
        if b"s" not in steps:
            self._signal(self._proxy, _signal.SIGKILL)  # it serves nobody yet: nothing to log
            self._proxy = 0
        if self._stop >= 0:
            posix.close(self._stop)
        self._await(self._proxy)
        self._await(self.keeper)
        if self._inner_end >= 0 and self._held is not None and is_dead(self._inner_end):
            self._held.end()  # the keeper was killed before it could
        if self._was_killed and self._left is not None:
            self._take_left(*self._left)
        posix._exit(code)

    def _take_left(self, state: str, folder: str, made: bool) -> None:
        """Take away what a proxy that was killed couldn't: its socket, and what it published."""
        from sandbox import published
        from sandbox.errors import SandboxError
        from sandbox.linux.wire_folder import Folder
        from sandbox.state import State

        try:
            published.sweep(State(state))
            left = Folder(folder, make=False)
            left.take_over(made=made)
            left.close()
        except (SandboxError, OSError):
            return  # it had made none, or the next proxy takes it away

    def _await(self, pid: int) -> None:
        """Wait until a helper has ended what was left, or written its last log lines."""
        while pid and posix.waitpid(pid, posix.WNOHANG)[0] == 0:
            if _signal.sigtimedwait((_signal.SIGCHLD,), HELPERS_END_S) is None:
                self._signal(pid, _signal.SIGKILL)
                return

    def _explain(self, *, released: bool) -> int:
        """Return the code of a sandbox or a program that didn't start, having said so.

        bubblewrap has said why, in a line of its own.  It takes its go-ahead last of all
        before it becomes the program: if that still lies there, it didn't get so far.
        """
        if released and self._is_taken():
            _say("the program could not be run; the line above says why.")
            return 126
        _say(COULD_NOT)
        return 125

    def _has_started(self) -> bool:
        """Tell whether bubblewrap has become the program, or is just about to."""
        return b"r" in self._steps_taken() and self._is_taken()

    def _is_taken(self) -> bool:
        """Tell whether bubblewrap has taken its go-ahead, given that it has been written."""
        from fcntl import ioctl

        return ioctl(self._gate, FIONREAD, b"0000") == b"\0\0\0\0"

    def _forward(self, number: int) -> None:
        inner = self._inner()
        target = self._program(inner)
        if target == 0:
            # The program hasn't started, so there is nobody else to end.
            if number not in (_signal.SIGWINCH, _signal.SIGTSTP):
                self._code = 128 + number
                self._let_go()
        elif number == _signal.SIGTSTP:
            self._stop_whole(inner)
        else:
            if number != _signal.SIGWINCH:
                self._code = 128 + number  # counts where it isn't the program yet that gets it
            self._signal(-inner if number in TO_GROUP else target, number)

    def _stop_whole(self, inner: int) -> None:
        """Stop with the whole program, whatever sessions it has made, and go on with it."""
        from sandbox.linux.freezing import Frozen

        frozen = Frozen.of(posix.getpid())
        if frozen is None:
            _say("the program doesn't let itself be stopped, so all of it ends.")
            self._code = 128 + _signal.SIGTSTP
            self._let_go()
            return
        # A group in a session of its own would not stop by SIGTSTP.
        self._signal(-inner, _signal.SIGSTOP)
        self._stop_in_turn()
        self._signal(-inner, _signal.SIGCONT)
        frozen.thaw()

    def _stop_in_turn(self) -> None:
        """Stop; go on in the terminal's foreground alone: behind it the program would read on."""
        posix.kill(posix.getpid(), _signal.SIGSTOP)
        if self._terminal is not None:
            return  # its job control holds the program
        from sandbox.linux.background import behind

        while behind() and not _signal.sigpending() & {*TO_PROGRAM, *TO_GROUP[:2]}:
            _say("it would read what you type: bring it to the front again (fg).")
            posix.kill(posix.getpid(), _signal.SIGSTOP)

    def _signal(self, pid: int, number: int) -> None:
        """Signal a process, or a group by its negative; 0 stands for one that isn't there."""
        assert pid not in (-1, 1), "that would be everybody"
        try:
            if pid:
                posix.kill(pid, number)
        except ProcessLookupError:
            return  # it has just ended

    def _program(self, inner: int) -> int:
        """Return the program's number here, 0 where it hasn't started."""
        children = _children(inner) if inner else []
        if self._names is None:
            return children[0] if children else 0
        self._names.hear()
        told = self._names.program

        def is_program(one: int) -> bool:
            # The stage inside may have started something else before, in a session of its own.
            return _number_inside(one) == told if told else _session(one) == _session(inner)

        return next(filter(is_program, children), 0)

    def _inner(self) -> int:
        """Return the sandbox's pid 1, by its number here; 0 until bubblewrap has told it."""
        first, brace, _ = self._status_text().partition(b"}")
        told = read_json((first + brace).decode()) if brace else None
        return int(told["child-pid"]) if isinstance(told, dict) else 0

    def _status_text(self) -> bytes:
        self._said += self._read(self._status)
        return self._said

    def _steps_taken(self) -> bytes:
        """Return what the proxy has told: r, it let the program go on; s, it serves."""
        if self._steps >= 0:
            self._taken += self._read(self._steps)
        return self._taken

    def _read(self, fd: int) -> bytes:
        try:
            return posix.read(fd, STATUS_MAX_BYTES)
        except BlockingIOError:
            return b""


def _ignored() -> "list[int]":
    """Return the signals that whoever started us ignores, and wants ignored."""
    return [number for number in IGNORABLE if _signal.getsignal(number) == _signal.SIG_IGN]


def _could_be_opened_anew(fd: int) -> bool:
    """Tell whether a stream is of a file or a device: by /proc/self/fd it could be written."""
    about = posix.fstat(fd)
    match about.st_mode & 0o170000:
        case 0o100000 | 0o060000:
            return True
        case 0o020000:
            return posix.major(about.st_rdev) != MEMORY_DEVICES and not posix.isatty(fd)
    return False


def _is_there(path: str) -> bool:
    try:
        posix.lstat(path)
    except OSError:
        return False
    return True


def _process(pid: int) -> int:
    """Return a process's descriptor, -1 where it has just ended."""
    try:
        return posix.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def _children(pid: int) -> "list[int]":
    """Return a process's children, those of its first thread first."""
    found: list[int] = []
    try:
        for thread in posix.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as children:
                found += map(int, children.read(4096).split())
    except OSError:
        return found  # it ends
    return found


def _number_inside(pid: int) -> int:
    """Return a process's number in its own namespace, 0 where it has just ended."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as status:
            words = status.read(4096).partition(b"\nNSpid:")[2].split(b"\n", 1)[0].split()
    except OSError:
        return 0
    return int(words[-1]) if words else 0


def _session(pid: int) -> int:
    try:
        return posix.getsid(pid)
    except OSError:
        return -1


def _hold(kept: Kept) -> "Run | None":
    """Close the dot files of what it writes, and take away what dead runs left."""
    if kept.dots is not None:
        from sandbox.linux import dot_files

        return dot_files.hold(kept)
    try:
        names = posix.listdir(f"{kept.state}/sandbox/placeholders")
    except OSError:
        return None  # nothing was ever held
    if names in ([], ["lock"]):
        return None
    from sandbox.linux.placeholders import Journal

    Journal(kept.state).sweep()
    return None


def _look_at_wire(wire: "dict[str, Any]", *, listens: bool) -> None:
    """Raise LaunchError for what the proxy would refuse once the program runs.

    That is its folder, where it listens in one, and the files of its routes.
    """
    if wire.get("routes"):
        from sandbox.linux.routes_look import look

        look(wire["routes"])
    if not listens:
        return
    try:
        found = posix.lstat(wire["dir"])
    except OSError:
        return  # it is made
    if found.st_uid != posix.geteuid() or found.st_mode & 0o170077 != 0o040000:
        from sandbox.linux.wire_folder import Folder

        Folder(wire["dir"], make=False).close()  # it says what is wrong


def _may_hold_sockets(folders: "list[str]") -> bool:
    """Tell whether some folders are worth looking through for sockets, which most aren't.

    In the system's own hardly anybody listens, and who does was bound there by that name.
    """
    if any(folder not in SYSTEM for folder in folders):
        return True
    try:
        with open("/proc/net/unix", "rb", buffering=0) as file:
            known = file.read()
    except OSError:
        return False  # this kernel has no unix sockets
    return any(f" {folder}/".encode() in known for folder in folders)


def _working_folder() -> str:
    try:
        return posix.getcwd()
    except OSError:
        return "/"  # it was removed


def _spawn(path: str, argv: "list[str]", group: int) -> int:
    """Start bubblewrap in the keeper's process group, its environment empty.

    A terminal's Ctrl-C then reaches the launcher alone, which forwards it.
    """
    ignored = _ignored()
    defaulted = [number for number in DEFAULTED if number not in ignored]
    try:
        return posix.posix_spawn(
            path, argv, {}, setpgroup=group, setsigmask=(), setsigdef=defaulted
        )
    except OSError as error:
        raise launch_error(
            "bubblewrap",
            error.errno or 0,
            f"bubblewrap could not be started ({path}: {error.strerror}): run `lnk sandbox ready`.",
        ) from None


def _scope() -> None:
    """Close the machine's abstract sockets to the sandbox, and to this process.

    The keeper was forked before, and stays free.
    """
    from sandbox.linux.landlock import scope_abstract_sockets

    try:
        scope_abstract_sockets()
    except OSError as error:
        raise launch_error(
            "Landlock",
            error.errno or 0,
            "this kernel doesn't close the machine's abstract sockets any more "
            f"({error.strerror}): make the command anew with wrap.",
        ) from None


def serve_handed(
    serve: "Serve", wire: "dict[str, object]", fds: "list[int]", group: int
) -> "NoReturn":
    """Serve a wire in the proxy's own process, and end with it.

    fds: the end that the socket maker speaks to, where to tell of steps, what can be read
    once to stop, and the listeners outside.  group: the launcher's.
    """
    from sandbox.linux import socket_maker

    listener, step, stopped, *served = fds
    try:
        wanted: list[list[object]] = wire.get("inside", [])  # type: ignore[assignment]
        doors = socket_maker.Doors(listener, wanted, served)
        serve(doors, stopped, lambda: _serving(step, group))
        posix._exit(0)
    except BrokenPipeError:
        pass  # the maker has said why there is no sandbox
    except BaseException as error:  # noqa: BLE001 - a forked process ends here, whatever happens
        from sandbox.errors import sentence

        _say(f"the proxy: {sentence(error) if str(error) else repr(error)}")
    finally:
        posix._exit(1)


def _released(gate: int, step: int) -> None:
    """Let bubblewrap become the program, which has its sockets, and tell the launcher."""
    posix.write(step, b"r")
    posix.write(gate, b"x")
    posix.close(step)
    posix.close(gate)


def _serving(step: int, group: int) -> None:
    """Tell the launcher that calls are accepted: from now on the proxy ends in good order."""
    posix.setpgid(0, group)
    posix.write(step, b"s")


def _say(sentence: str) -> None:
    try:
        posix.write(2, f"lnk sandbox: {sentence}\n".encode(errors="replace"))
    except OSError:
        return  # nobody listens


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from sandbox.linux.names import Names
    from sandbox.linux.placeholders import Run
    from sandbox.linux.socket_maker import Doors
    from sandbox.linux.terminal import Terminal

    Serve = Callable[[Doors, int, Callable[[], None]], None]
    """Takes its sockets, what can be read once to stop, and what to call when serving."""
