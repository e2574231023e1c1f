"""The keeper: a process outside that sees to it that nothing of a sandbox outlives its launcher.

bubblewrap's --die-with-parent is a promise that its inner process makes last of all, just
before it becomes the program.  Killed while it still sets up, the launcher (or bubblewrap's
own first process) would leave behind a program that nobody watches, or an inner process
that waits for ever.  So there is a process that was there before bubblewrap and waits for
the launcher's end, by the end of a pipe.  It then ends what is left: its process group,
which bubblewrap was started in, and the sandbox's first process, which leaves that group
for a session of its own and is held by a descriptor.

With a proxy it is the socket maker too, which has to live as long: between the two it
waits for the launcher's end and for requests.
"""

import _signal  # type: ignore[import-not-found]
import posix

INFO_MAX_BYTES = 4096
DEAD_MS = 4000
"""How long a killed process may take to be gone, with all in its namespace."""


def fork(
    info: int,
    foreign: "tuple[int, ...]",
    prepare: "Prepare | None" = None,
    after: "After | None" = None,
    failed: int = -1,
) -> "tuple[int, int]":
    """Fork the keeper; return its pid, which is its group's, and the pipe that it waits on.

    info: where bubblewrap will tell of the sandbox.  foreign: descriptors that the keeper
    must let go.  prepare: returns what the keeper does for the sandbox first, given the
    sandbox's pid 1, and what it serves from then on; itself it has time while bubblewrap
    starts.  after: what is done once every process of the sandbox is dead.  failed: where to write
    `f` when it has to say why there is no sandbox.  Call this before there is a thread, and before
    bubblewrap.
    """
    ended, life = posix.pipe2(posix.O_CLOEXEC)
    pid = posix.fork()
    if pid:
        posix.close(ended)
        posix.setpgid(pid, pid)
        return pid, life
    try:
        posix.setpgid(0, 0)
        for fd in (life, *foreign):
            posix.close(fd)
        _keep(info, ended, prepare, after, failed)
    finally:
        posix._exit(1)  # a forked process ends here, whatever happens


def _keep(
    info: int, ended: int, prepare: "Prepare | None", after: "After | None", failed: int
) -> None:
    """Wait for the launcher's end, and end all that is left, ourselves included."""
    work = None if prepare is None else prepare()
    inner = first_process(info)
    held = _opened(inner) if inner else -1
    inner = inner if held >= 0 else 0
    try:
        if inner and work is not None:
            _serve_until(ended, work(inner))
        posix.read(ended, 1)
    except OSError as error:
        if not _is_over(ended, held):  # else nobody waits for it, or bubblewrap has said why
            if failed >= 0:
                posix.write(failed, b"f")
            said = f"lnk sandbox: the sandbox's network: {error}\n"
            posix.write(2, said.encode(errors="replace"))
    finally:
        if inner:
            _end(held)
        if after is not None and (not inner or is_dead(held)):
            do(after)
        posix.kill(0, _signal.SIGKILL)


def _serve_until(ended: int, serving: "Serving") -> None:
    """Answer requests until the launcher ends, or nobody is left to ask."""
    import select

    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    waiting.register(serving.fileno(), select.POLLIN)
    while ended not in (ready := {fd for fd, _ in waiting.poll()}):
        if ready and not serving.serve():
            return


def _opened(inner: int) -> int:
    """Return a descriptor of a process, or -1 where it has ended and been reaped already.

    A descriptor, not a number: by the time it is used the number may be another's.
    """
    try:
        return posix.pidfd_open(inner)
    except ProcessLookupError:
        return -1


def _end(held: int) -> None:
    try:
        _signal.pidfd_send_signal(held, _signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended by itself


def _is_over(ended: int, held: int) -> bool:
    """Tell whether the launcher has ended or let go, or the sandbox's pid 1 has ended."""
    import select

    waiting = select.poll()
    for fd in (ended, held):
        if fd >= 0:
            waiting.register(fd, select.POLLIN)
    return bool(waiting.poll(0))


def is_dead(held: int) -> bool:
    """Wait until a sandbox's pid 1 is dead, which all its processes are before it; not for long."""
    import select

    waiting = select.poll()
    waiting.register(held, select.POLLIN)
    return bool(waiting.poll(DEAD_MS))


def do(after: "After") -> None:
    """Do what is done last, and say what went wrong."""
    try:
        after()
    except Exception as error:  # noqa: BLE001 - the next command finds what is left
        posix.write(2, f"lnk sandbox: {error}\n".encode(errors="replace"))


def first_process(info: int) -> int:
    """Return the sandbox's pid 1 as bubblewrap tells it, by its number here; 0 for none.

    It is the first that is told, and bubblewrap is let get on with the rest: each piece of it
    that somebody waits for has its reader woken.
    """
    said = b""
    while b"," not in said and b"}" not in said:
        data = posix.read(info, INFO_MAX_BYTES)
        if not data:
            return 0
        said += data
    name, _, digits = said.replace(b"}", b",").partition(b",")[0].partition(b":")
    return int(digits) if name.strip(b"{ \n") == b'"child-pid"' else 0


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Serving(Protocol):
        """What answers requests, as `sandbox.linux.socket_maker.Maker` does."""

        def fileno(self) -> int:
            """Return what can be read once there is a request."""

        def serve(self) -> bool:
            """Answer one; tell whether there may be another."""

    Prepare = Callable[[], Callable[[int], Serving]]
    After = Callable[[], None]
