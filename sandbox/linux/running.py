"""A sandbox that has been started, seen from outside: signals, its proxy, and its end.

The launcher itself has no event loop and no second thread: it waits for signals, and its
program's end is its own at once, whatever the proxy is busy with.

Imported at each start while bubblewrap works, so it imports what is built into the interpreter
alone (see `launcher`).
"""

import _signal  # type: ignore[import-not-found]
import posix
import time

from sandbox.linux.keeper import do, is_dead
from sandbox.linux.kept import read_json
from sandbox.linux.signals import TO_GROUP, TO_PROGRAM, WATCHED

STATUS_MAX_BYTES = 1 << 16
FIONREAD = 0x541B
HELPERS_END_S = 5.0
"""How long keeper and proxy may take to end once the program has, last log lines included."""
LOOK_S, HEAD_START_S, HEAD_START_MOST_S = 0.001, 0.003, 0.1
"""How often it is looked whether the program has started, and what it has to itself from then on.
Only then is the proxy forked, for it imports its event loop, which keeps a processor busy for ten
bare sandboxes.  A program that has ended by then, or that only starts to think of the network,
doesn't feel it; one that connects at once waits so much longer.  In any case it is forked after
HEAD_START_MOST_S: the maker waits for it where there are more sockets than fit into their pair."""
COULD_NOT = (
    "the sandbox could not be made; the line above says why, "
    "and `lnk sandbox ready` what this machine lacks."
)
PART_ENDED = "a part of the sandbox outside ended, so all of it ends."


class Sandbox:
    """One running sandbox.

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
        "_word",
        "keeper",
        "pid",
    )  # fmt: skip

    def __init__(self, made: "Started") -> None:
        """Take over what a start has made."""
        self.pid = made.pid
        self.keeper = made.keeper
        self._life = made.life
        self._gate = made.gate
        self._word = made.word
        self._status = made.status
        self._listener = made.listener
        self._step = made.step
        self._steps = made.steps
        self._served = made.served
        self._names = made.names
        self._terminal = made.terminal
        self._held = made.held
        self._stop = self._inner_end = -1
        self._proxy = self._code = 0
        self._proxied: tuple[Serve, dict[str, object], int] | None = None
        self._left: tuple[str, str, bool] | None = None
        self._fork_at = 0.0
        self._seen = self._was_killed = False
        self._said = self._taken = b""

    def go_ahead(self) -> None:
        """Let the program start, once all that bubblewrap and the maker do is done."""
        try:
            posix.write(self._word, b"x")
        except BrokenPipeError:
            return  # the maker has ended, and with it all does
        finally:
            posix.close(self._word)

    def give_up(self) -> None:
        """End what hasn't had its go-ahead, and let go of all that was made for it.

        Ends this process where it couldn't be made anyway, which has been said then.  (What fails
        just as it is ended may say so, and the next one again.)
        """
        failed = self._keeper_has_ended()
        # Its own end of any of these may be what the keeper waits for.
        self._close(self._word, self._listener)
        self._let_go()  # the keeper ends it, and takes away what was held
        self._await_keeper()
        code = self._await(self.pid)
        failed = failed or b"f" in self._steps_taken()
        if self._held is not None:
            self._take_held(self._held)
        if failed or code not in (-_signal.SIGKILL, 128 + _signal.SIGKILL):
            # The maker, or bubblewrap, has said why; a keeper that makes nothing was killed.
            _say(PART_ENDED if failed and self._steps < 0 else COULD_NOT)
            posix._exit(125)
        self._close(
            self._gate, self._status, self._steps, self._step, self._inner_end, *self._served
        )
        for shared in (self._names, self._terminal):
            if shared is not None:
                shared.close()

    @staticmethod
    def _close(*fds: int) -> None:
        for fd in fds:
            if fd >= 0:
                posix.close(fd)

    def _take_held(self, held: "Run") -> None:
        """Take away what was held, where the keeper was killed before it could; let go of it.

        bubblewrap is dead.  Had it not told of its inner process, that had mounted nothing.
        """
        inner = self._inner()
        if inner and self._inner_end < 0:
            self._inner_end = _process(inner)
        if self._inner_end < 0 or is_dead(self._inner_end):
            do(held.end)
        held.close()

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
                _say(PART_ENDED if released else COULD_NOT)
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
        # Its group is there while bubblewrap is, and holds all that hasn't had its go-ahead.
        self._signal(-self.keeper, _signal.SIGKILL)
        if self._life >= 0:
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
            # to say so and live on, the keeper makes sure.  This process's end tells it, for it
            # takes longer where both free the memory at once that they share; and nobody waits for
            # it: the program's end is ours.
            if self._proxy:
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
        self._end_proxy(serves=b"s" in steps)
        self._await_keeper()
        if self._held is not None and not ended:
            self._take_held(self._held)
        if self._was_killed and self._left is not None:
            self._take_left(*self._left)
        posix._exit(code)

    def _end_proxy(self, *, serves: bool) -> None:
        """Have the proxy end, in good order where it serves somebody."""
        if not serves:
            self._signal(self._proxy, _signal.SIGKILL)  # there is nothing to log
            if b"s" not in self._steps_taken():
                self._proxy = 0  # else it has just come to, and may have made its folder
        if self._stop >= 0:
            posix.close(self._stop)
        if self._await(self._proxy) < 0:
            self._was_killed = True

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

    def _await_keeper(self) -> None:
        """Wait until the keeper has ended what was left; end it, where it was killed before.

        What hasn't had its go-ahead is in its group, whose number is nobody else's until the
        keeper is reaped.
        """
        while not self._keeper_has_ended():
            if _signal.sigtimedwait((_signal.SIGCHLD,), HELPERS_END_S) is None:
                break
        self._signal(-self.keeper, _signal.SIGKILL)
        self._await(self.keeper)

    def _keeper_has_ended(self) -> bool:
        """Tell whether the keeper has ended, or there is none any more; it isn't reaped."""
        how = posix.WEXITED | posix.WNOHANG | posix.WNOWAIT
        return not self.keeper or posix.waitid(posix.P_PID, self.keeper, how) is not None

    def _await(self, pid: int) -> int:
        """Wait until a process has ended, or a proxy has written its last log lines.

        Returns its exit code as `waitstatus_to_exitcode` has it, 0 where there is none.
        """
        while pid:
            ended, status = posix.waitpid(pid, posix.WNOHANG)
            if ended:
                return posix.waitstatus_to_exitcode(status)
            if _signal.sigtimedwait((_signal.SIGCHLD,), HELPERS_END_S) is None:
                self._signal(pid, _signal.SIGKILL)
                posix.waitpid(pid, 0)
                return -int(_signal.SIGKILL)
        return 0

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
        """Return what was told: r, the program may go on; f, why not was said; s, it is served."""
        if self._steps >= 0:
            self._taken += self._read(self._steps)
        return self._taken

    def _read(self, fd: int) -> bytes:
        try:
            return posix.read(fd, STATUS_MAX_BYTES)
        except BlockingIOError:
            return b""


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
    from typing import NoReturn

    from sandbox.linux.launcher import Started
    from sandbox.linux.placeholders import Run
    from sandbox.linux.socket_maker import Doors

    Serve = Callable[[Doors, int, Callable[[], None]], None]
    """Takes its sockets, what can be read once to stop, and what to call when serving."""
