"""Apply a plan: start bubblewrap, and see that its program may run.

The launcher stays in front of every sandbox, with a proxy and without.  As bubblewrap's
parent it forwards signals to the program rather than ending everything, tells a sandbox
that couldn't start (125) from a program that failed, and its one thread is the one whose
death ends the sandbox, whatever becomes of the thread of whoever started it.

    1. look at what the plan rests on; find the program
    2. fork the keeper, which ends what would outlive the launcher; with a proxy it is the
       socket maker too
    3. start bubblewrap, its arguments, filter and files on descriptors
    4. look, while it works, at what no plan can know; give the program its go-ahead
    5. wait for the program, and end with its status (`running`)
    6. with a proxy: fork it meanwhile, once the program has had its head start; the maker has
       its listeners for it, and has let bubblewrap go on by itself

It runs at each start of a kept command, so it imports what is built into the interpreter
alone: `posix`, for `os` costs a third of a bare sandbox, and `_signal`, for `signal`
brings `enum`.
"""

import _signal  # type: ignore[import-not-found]
import marshal
import posix

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
from sandbox.linux.kept import Kept
from sandbox.linux.program import text_of
from sandbox.linux.signals import DEFAULTED, WATCHED, ignored

SYSTEM = ("/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec")
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
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
    heeded = [number for number in WATCHED if number not in ignored()]
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
    shown, argv = kept.arguments, [path, *argv[1:]]
    sandbox = _made(kept, argv, environ, here)
    if posix.geteuid() == 0 and (covered := _covered(shown, kept.checks, sandbox)) is not shown:
        sandbox.give_up()
        kept.arguments = covered
        sandbox = _made(kept, argv, environ, here)
    if kept.wire is not None:
        assert serve is not None
        sandbox.have_proxy(serve, kept.wire, kept.state)
    sandbox.go_ahead()
    return sandbox


def _made(kept: Kept, argv: "list[str]", environ: "dict[bytes, bytes]", cwd: str) -> "Sandbox":
    """Return a sandbox that is being set up, and waits for its go-ahead."""
    held = _hold(kept)
    try:
        made = Started(kept, argv, environ, cwd, held)
        from sandbox.linux.running import Sandbox
    except BaseException:
        if held is not None:
            held.end()
        raise
    return Sandbox(made)


def _covered(
    shown: "list[str | list[str]]", named: "list[str]", sandbox: "Sandbox"
) -> "list[str | list[str]]":
    """Return the arguments by which what is root's alone in /etc is covered too.

    They are the same where there is no such thing, which is nearly everywhere: so it is looked
    for while bubblewrap works, for the look takes a fifth of a bare sandbox.
    """
    from sandbox.linux.etc_closed import mask

    try:
        return mask(shown, named)
    except BaseException:
        sandbox.give_up()
        raise


class Started:
    """What a start makes, for who watches over it from then on (`running.Sandbox`).

    pid: bubblewrap's first process, our child.  keeper: the keeper's, and its group's.  life: it
    ends all when this is closed.  word: where to write that the program may start.  gate: where
    bubblewrap reads that.  status: where it tells of the program.  listener, steps, step: of the
    maker, its pair and the pipe by which it and the proxy tell how far they are.  served: the
    listeners outside.  Descriptors are -1 where there is none.
    """

    __slots__ = (
        "gate", "held", "keeper", "life", "listener", "names", "pid", "served", "status", "step",
        "steps", "terminal", "word",
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
        self.held = held
        self.listener = self.step = self.steps = -1
        self.served: list[int] = []
        self.names: Names | None = None
        self.terminal: Terminal | None = None
        try:
            arguments = arguments_of(kept, environ, cwd, given)
            told, info = posix.pipe2(posix.O_CLOEXEC)
            self.gate, go = posix.pipe2(posix.O_CLOEXEC)
            self.status, status = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
            # The run's socket stays out of it: were the first process inside steered
            # (`seccomp.FIRST`), one shutdown(2) there would have a living run taken for a dead one.
            # bubblewrap's own; ours is to look at it in the end.  Opened to be written as well, by
            # nobody: else the end of launcher and keeper, killed at once, would be a go-ahead.
            gate = posix.open(f"/proc/self/fd/{self.gate}", posix.O_RDWR | posix.O_CLOEXEC)
            given += [info, status, gate]
            flags = ["--info-fd", str(info), "--json-status-fd", str(status)]
            flags += ["--args", str(memory(b"\0".join(arguments) + b"\0", given))]
            flags += ["--seccomp", str(memory(kept.filter, given))]
            flags += ["--block-fd", str(gate)]
            for fd in given:
                posix.set_inheritable(fd, True)
            # Forked late: each page that either writes to from now on is copied.
            self.keeper, self.life = self._fork_keeper(kept, told, go, tuple(given))
            posix.close(told)
            if kept.inside is not None:
                argv = self._by_stage(kept, kept.inside, argv, given)
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

            self.terminal = Terminal()
        front = "1" if self.terminal is not None and self.terminal.is_ours else "0"
        self.names = Names(teller(kept))
        settings = memory(marshal.dumps(stage["settings"]), given)
        given.append(self.names.inner)
        for fd in (settings, self.names.inner):
            posix.set_inheritable(fd, True)
        words = [stage["python"], "-I", "-S", stage["script"]]
        return [*words, str(settings), str(self.names.inner), front, "--", *argv]

    def _fork_keeper(
        self, kept: Kept, told: int, go: int, foreign: "tuple[int, ...]"
    ) -> "tuple[int, int]":
        """Fork it.  go: where bubblewrap is let go on; with a proxy the maker does that."""
        after = None if self.held is None else self.held.end
        if kept.wire is None:
            self.word = go
            return fork_keeper(told, (*foreign, go), after=after)
        from sandbox.linux import socket_maker

        self.served = socket_maker.serve_outside(kept.wire.get("serve", []))  # type: ignore[arg-type]
        self.listener, its = socket_maker.pair()
        self.steps, self.step = posix.pipe2(posix.O_CLOEXEC)
        posix.set_blocking(self.steps, False)
        heard, self.word = posix.pipe2(posix.O_CLOEXEC)
        wanted: list[list[object]] = kept.wire.get("inside", [])  # type: ignore[assignment]
        forked = fork_keeper(
            told,
            (*foreign, self.listener, self.steps, self.word, *self.served),
            lambda: socket_maker.maker(
                its, kept.port, wanted, lambda: _released(heard, go, self.step)
            ),
            after,
            self.step,
        )
        for fd in (its, heard, go):
            posix.close(fd)
        return forked


def _could_be_opened_anew(fd: int) -> bool:
    """Tell whether a stream is of a file or a device: by /proc/self/fd it could be written."""
    about = posix.fstat(fd)
    match about.st_mode & 0o170000:
        case 0o100000 | 0o060000:
            return True
        case 0o020000:
            return posix.major(about.st_rdev) != MEMORY_DEVICES and not posix.isatty(fd)
    return False


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
    still = ignored()
    defaulted = [number for number in DEFAULTED if number not in still]
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


def _released(word: int, gate: int, step: int) -> None:
    """Let bubblewrap become the program, which has its sockets, once the launcher lets it too."""
    if not posix.read(word, 1):
        return  # it has given up, or ended
    posix.write(step, b"r")
    posix.write(gate, b"x")
    posix.close(step)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from sandbox.linux.names import Names
    from sandbox.linux.placeholders import Run
    from sandbox.linux.running import Sandbox, Serve
    from sandbox.linux.terminal import Terminal
