"""A proxy's folder: `out.sock`, by which sandboxes started apart reach it, and `in.sock` (R42).

    out.sock   the proxy listens; who may open the folder goes out by its wire
    in.sock    a relay inside a sandbox listens; calls from outside are carried in by it

The folder is its user's alone (0700).  Where the proxy runs as another user than its agent,
it is theirs together (`Shared`): 2770, of a group that both are in.  Then the agent's sandbox
can put anything in the place of `in.sock`, a link to another socket among it; so that is
never connected to by its name, but by a descriptor that was looked at.

The relay inside imports it too, so it imports no `os`.
"""

import posix

EEXIST, ENOTDIR, ECONNREFUSED, ELOOP = 17, 20, 111, 40
OUT, IN = "out.sock", "in.sock"
ALONE, SHARED = 0o700, 0o2770
PERMISSIONS, KIND, SOCKET = 0o7777, 0o170000, 0o140000
BACKLOG = 4096
ADDRESS_MAX_BYTES = 107
"""Of a path socket's (unix(7)), its NUL left out."""
O_PATH = 0o10000000
MAKING_S = 10.0
"""Longer than anybody takes from a socket's first name to its own."""
LOCK_S, LOCK_STEP_S = 1.0, 0.001
"""How long the making of another's socket is waited for; it takes less than a millisecond."""


class Shared:
    """An agent whose user isn't the proxy's: their folder is of a group that both are in."""

    __slots__ = ("agent", "group")

    def __init__(self, agent: int, group: int) -> None:
        self.agent = agent
        self.group = group


class Folder:
    """An open folder of a proxy's sockets, looked at."""

    __slots__ = ("_made", "_out", "fd", "path", "shared")

    def __init__(self, path: str, shared: "Shared | None" = None, *, make: bool = True) -> None:
        """Open a folder, having made it where it is the proxy's own and isn't there.

        Raises LaunchError where it isn't what it has to be.
        """
        self.path = path
        self.shared = shared
        self._made = shared is None and make and _make(path)
        self._out: tuple[int, int] | None = None
        self.fd = _opened(path, shared)

    def listen(self) -> int:
        """Return a descriptor that listens at `out.sock`; -1 where another proxy already does.

        Raises LaunchError.
        """
        group = -1 if self.shared is None else self.shared.group
        try:
            made = listen_at(self.fd, OUT, 0o600 if self.shared is None else 0o660, group)
            if made >= 0:
                found = posix.stat(OUT, dir_fd=self.fd, follow_symlinks=False)
                self._out = found.st_dev, found.st_ino
        except OSError as error:
            why = "is there and is no socket: remove it"
            if error.errno != EEXIST:
                why = f"can't be made: {error.strerror}"
            raise _error(error.errno or 0, f"{self.path}/{OUT} {why}.") from None
        return made

    def inside(self) -> int:
        """Return a descriptor of `in.sock`, to be connected to by `/proc/self/fd/<it>`.

        Raises OSError where it isn't there, or is no socket of the agent's.
        """
        fd = posix.open(IN, O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=self.fd)
        found = posix.fstat(fd)
        agent = posix.geteuid() if self.shared is None else self.shared.agent
        if found.st_mode & KIND != SOCKET or found.st_uid != agent:
            posix.close(fd)
            # A link, or another user's socket: what it leads to would be given the call.
            raise OSError(ECONNREFUSED, f"{IN} is no socket of the sandbox's user")
        return fd

    def close(self) -> None:
        """Take `out.sock` away where it is still ours, and the folder where we made it.

        `in.sock` goes too where no relay listens there any more: a sandbox is killed whole, and
        takes nothing away.
        """
        try:
            if self._out is not None:
                found = posix.stat(OUT, dir_fd=self.fd, follow_symlinks=False)
                if (found.st_dev, found.st_ino) == self._out:
                    posix.unlink(OUT, dir_fd=self.fd)
                    if self._is_left():
                        posix.unlink(IN, dir_fd=self.fd)
            if self._made:
                _sweep(self.fd, OUT)
                posix.rmdir(self.path)
        except OSError:
            return  # it is gone already, or something else is in the folder
        finally:
            posix.close(self.fd)

    def take_over(self, *, made: bool) -> None:
        """Have `close` take away what a killed proxy left, where none listens here.

        made: whether the folder was that proxy's.  Raises OSError.
        """
        if _is_served(self.fd, OUT):
            return
        self._made = made
        if OUT in posix.listdir(self.fd):
            found = posix.stat(OUT, dir_fd=self.fd, follow_symlinks=False)
            self._out = found.st_dev, found.st_ino

    def _is_left(self) -> bool:
        """Tell whether `in.sock` is one of a relay that has ended."""
        import _socket

        try:
            fd = self.inside()
        except OSError:
            return False  # none, or not the agent's: it isn't for us to remove
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.connect(f"/proc/self/fd/{fd}")
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        finally:
            sock.close()
            posix.close(fd)
        return False


def listen_at(folder: int, name: str, mode: int, group: int = -1) -> int:
    """Return a descriptor that listens at a name in an open folder; -1 where another does.

    It is made under another name and renamed, so that nobody finds it half made, and a
    socket that a killed process left behind is replaced.  Raises OSError, EEXIST for what is
    there and is no socket.
    """
    import fcntl

    locked = _lock(folder)
    try:
        return -1 if _is_served(folder, name) else _made_at(folder, name, mode, group)
    finally:
        if locked:
            fcntl.flock(folder, fcntl.LOCK_UN)


def _lock(folder: int) -> bool:
    """Have a folder's sockets made by one at a time: of two, the second would replace the first.

    Who shares the folder may hold it, so it is waited for only for a while; False where it isn't
    had.
    """
    import fcntl
    import time

    by = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= by:
                return False
        except OSError:
            return False  # there are no locks in that file system
        time.sleep(LOCK_STEP_S)


def _made_at(folder: int, name: str, mode: int, group: int) -> int:
    import _socket

    _sweep(folder, name)
    beside = f".{name}.{posix.getpid()}"
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    before = posix.umask(0o777 & ~mode)
    try:
        _remove(folder, beside)
        sock.bind(_address(folder, beside, shared=group >= 0))
        if group >= 0 and posix.stat(beside, dir_fd=folder, follow_symlinks=False).st_gid != group:
            posix.chown(beside, -1, group, dir_fd=folder, follow_symlinks=False)
        sock.listen(BACKLOG)
        posix.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        sock.close()
        _remove(folder, beside)
        raise
    finally:
        posix.umask(before)
    sock.setblocking(False)
    return sock.detach()


def _sweep(folder: int, name: str) -> None:
    """Remove the sockets that processes have left beside a name which were killed making it.

    One that is just being made isn't: its process may have its number in another namespace.
    """
    import time

    old = time.time() - MAKING_S
    for left in posix.listdir(folder):
        start, dot, pid = left.rpartition(".")
        if start + dot != f".{name}." or not pid.isdecimal() or _is_there(f"/proc/{pid}"):
            continue
        try:
            found = posix.stat(left, dir_fd=folder, follow_symlinks=False)
            if found.st_mode & KIND == SOCKET and found.st_mtime < old:
                posix.unlink(left, dir_fd=folder)
        except OSError:
            continue  # another has just removed it


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except FileNotFoundError:
        return False
    return True


def _address(folder: int, name: str, *, shared: bool) -> str:
    """Return a socket's address in an open folder.

    By the folder's own path where it is its user's alone: the kernel lists a socket by the name
    that it was bound by, and a sandbox that reads the folder masks what is listed there
    (`path_sockets`).  Else through the descriptor, which fits an address, however long the path
    is, and leads nowhere else where another user has the folders above.
    """
    through = f"/proc/self/fd/{folder}"
    path = f"{posix.readlink(through)}/{name}"
    return (
        path
        if not shared and len(path.encode(errors="surrogateescape")) <= ADDRESS_MAX_BYTES
        else f"{through}/{name}"
    )


def _is_served(folder: int, name: str) -> bool:
    """Tell whether a living process listens at a name."""
    import _socket

    try:
        found = posix.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if found.st_mode & KIND != SOCKET:
        raise FileExistsError(EEXIST, posix.strerror(EEXIST))
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(f"/proc/self/fd/{folder}/{name}")
    except BlockingIOError:
        return True  # so many wait there that no more can
    except OSError:
        return False
    finally:
        sock.close()
    return True


def _remove(folder: int, name: str) -> None:
    try:
        posix.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _make(path: str) -> bool:
    """Make a folder and those above it, their user's alone; tell whether it wasn't there."""
    try:
        posix.mkdir(path, ALONE)
    except FileExistsError:
        return False
    except FileNotFoundError:
        _make(path.rpartition("/")[0])
        posix.mkdir(path, ALONE)
    except OSError as error:
        raise _error(error.errno or 0, f"{path} can't be made: {error.strerror}.") from None
    return True


def _opened(path: str, shared: "Shared | None") -> int:
    try:
        fd = posix.open(
            path, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
        )
    except OSError as error:
        why = error.strerror
        if error.errno in (ELOOP, ENOTDIR):
            # A link could lead anywhere, and be led elsewhere after it was looked at.
            why = "it isn't a folder, or is a link to one"
        raise _error(error.errno or 0, f"{path} can't be opened: {why}; name a folder.") from None
    found = posix.fstat(fd)
    wrong = _wrong(found, path) if shared is None else _wrong_together(found, path, shared)
    if wrong:
        posix.close(fd)
        raise _error(0, wrong)
    return fd


def _wrong(found: "posix.stat_result", path: str) -> str:
    if found.st_uid != posix.geteuid():
        return f"{path} is another user's: name a folder of your own."
    if found.st_mode & 0o077:
        # Whoever may open it goes out by this wire; whoever writes it stands in for the proxy.
        return f"{path} is open to others: run chmod 700 on it."
    return ""


def _wrong_together(found: "posix.stat_result", path: str, shared: Shared) -> str:
    if found.st_uid not in (posix.geteuid(), shared.agent, 0):
        return f"{path} is of user {found.st_uid}: it has to be the proxy's or its agent's."
    if found.st_gid != shared.group:
        return f"{path} is of group {found.st_gid}: run chgrp {shared.group} on it."
    if found.st_mode & PERMISSIONS != SHARED:
        mode = found.st_mode & PERMISSIONS
        return f"{path} has mode {mode:04o}: run chmod {SHARED:o} on it."
    return ""


def _error(errno: int, message: str) -> "LaunchError":
    from sandbox.errors import LaunchError

    return LaunchError("dir", errno, f"the proxy's dir: {message}")


TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.errors import LaunchError
