"""The relay inside a sandbox that reaches proxies started apart (R42).

    proxy-inside --also <dir>=<port> …

    127.0.0.1:<port>   each connection is joined to `<dir>/out.sock`, at which a proxy listens
    <dir>/in.sock      each connection begins with a line, a port's number, and is joined to
                       that port of the sandbox's loopback: served ports, a login's callback

Bytes are moved by splice(2), each way through a pipe, and a half-close is passed on.  It holds
no policy and no secret: what it can reach the program beside it can reach too, and who ends
it ends nothing but the program's own way out.

It runs on the interpreter that the sandbox shows, so it imports the standard library's C
modules and what it uses of ours alone.
"""

import posix
import select
import sys

from sandbox.linux.wire_folder import IN, OUT, SHARED, listen_at

EAGAIN, EINPROGRESS = 11, 115
AF_UNIX, AF_INET, STREAM, NONBLOCK, CLOEXEC = 1, 2, 1, 0o4000, 0o2000000
SOL_SOCKET, SO_ERROR, SO_LINGER, SHUT_WR = 1, 4, 13, 1
RESET = b"\1\0\0\0\0\0\0\0"
"""SO_LINGER of no time: a close is a reset."""
MOVE_NONBLOCK = 3
PIECE_BYTES = 1 << 16
"""What a pipe holds: as much waits each way."""
PORT_LINE_MAX = 6
ACCEPTS_A_TURN = 32
BACKLOG = 4096
LOOPBACK = "127.0.0.1"
READS = select.EPOLLIN | select.EPOLLRDHUP
SHUT_FOR_S = 0.1
"""How long nobody is accepted where there are no descriptors left."""
PERMISSIONS = 0o7777


def main(words: "list[str]", ready: int = -1) -> "NoReturn":
    """Relay until this process is ended.

    words: `--also <dir>=<port>`, each.  ready: a pipe that is told once connections are
    accepted, -1 for none.  Raises OSError where a folder or a port can't be had, ValueError
    for words that are wrong.
    """
    relay = Relay()
    for folder, port in reached(words):
        relay.reach(folder, port)
    if ready >= 0:
        posix.write(ready, b"r")
        posix.close(ready)
    while True:
        relay.turn()


def reached(words: "list[str]") -> "list[tuple[str, int]]":
    """Read `--also <dir>=<port>` …; raise ValueError with one sentence."""
    found = []
    left = list(reversed(words))
    while left:
        flag = left.pop()
        folder, _, digits = (left.pop() if left else "").rpartition("=")
        if flag != "--also" or not folder.startswith("/") or not _is_port(digits):
            raise ValueError("proxy-inside takes --also DIR=PORT, the folder in full, for each")
        found.append((folder, int(digits)))
    if not found:
        raise ValueError("proxy-inside reaches nothing: add --also DIR=PORT")
    return found


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= 65535


class Relay:
    """One epoll set, and whom each descriptor in it wakes."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wakes: dict[int, Callable[[int], None]] = {}
        self._shut: list[int] = []

    def reach(self, folder: str, port: int) -> None:
        """Listen at a port for a folder's proxy, and at its `in.sock` for calls inward."""
        fd = posix.open(
            folder, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
        )
        about = posix.fstat(fd)
        shared = about.st_mode & PERMISSIONS == SHARED
        self._accept_at(_listener(port), lambda client: self._outward(client, fd))
        # Where another sandbox's relay has it, that one's stays.
        inward = listen_at(fd, IN, 0o660 if shared else 0o600, about.st_gid if shared else -1)
        if inward >= 0:
            self._accept_at(_socket_of(inward), self._inward)

    def turn(self) -> None:
        """Wait for news, and do what it asks for."""
        events = self._epoll.poll(SHUT_FOR_S if self._shut else -1)
        for fd in self._shut:
            self._epoll.modify(fd, select.EPOLLIN)
        self._shut.clear()
        for fd, mask in events:
            wake = self._wakes.get(fd)
            if wake is not None:  # else one before it has closed that
                wake(mask)

    def watch(self, fd: int, mask: int, wake: "Callable[[int], None]") -> None:
        """Wake somebody at what a descriptor tells."""
        if fd in self._wakes:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._wakes[fd] = wake

    def forget(self, fd: int) -> None:
        """Watch a descriptor no more."""
        if self._wakes.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _accept_at(
        self, listener: "_socket.socket", serve: "Callable[[_socket.socket], None]"
    ) -> None:
        def accept(_: int) -> None:
            for _turn in range(ACCEPTS_A_TURN):
                try:
                    fd, _where = listener._accept()  # type: ignore[attr-defined]  # accept4(2)
                except BlockingIOError:
                    return
                except OSError:
                    # Out of descriptors, most likely: those who wait stay in the backlog.
                    self._shut.append(listener.fileno())
                    self._epoll.modify(listener.fileno(), 0)
                    return
                client = _socket_of(fd)
                client.setblocking(False)
                try:
                    serve(client)
                except OSError:
                    _hang_up(client)

        self.watch(listener.fileno(), select.EPOLLIN, accept)

    def _outward(self, client: "_socket.socket", folder: int) -> None:
        """Join a connection of the program's to its proxy."""
        import _socket

        proxy = _socket.socket(AF_UNIX, STREAM | NONBLOCK | CLOEXEC)
        try:
            proxy.connect(f"/proc/self/fd/{folder}/{OUT}")
        except OSError:
            proxy.close()
            raise
        Pair(self, client, proxy)

    def _inward(self, client: "_socket.socket") -> None:
        """Read which port a connection from outside is for, a byte at a time, and join them."""
        line = b""

        def read(_: int) -> None:
            nonlocal line
            try:
                while not line.endswith(b"\n") and len(line) < PORT_LINE_MAX:
                    # No byte more than the line: what follows is the port's.
                    data = client.recv(1)
                    line += data or b"\n\n"
            except BlockingIOError:
                return
            except OSError:
                line = b""
            self.forget(client.fileno())
            digits = line.removesuffix(b"\n").decode("ascii", "replace")
            try:
                if not _is_port(digits):
                    raise OSError(EAGAIN, "no port")
                self._join_port(client, int(digits))
            except OSError:
                _hang_up(client)

        self.watch(client.fileno(), READS, read)
        read(0)

    def _join_port(self, client: "_socket.socket", port: int) -> None:
        import _socket

        server = _socket.socket(AF_INET, STREAM | NONBLOCK | CLOEXEC)
        code = server.connect_ex((LOOPBACK, port))
        if code not in (0, EINPROGRESS):
            server.close()
            raise OSError(code, posix.strerror(code))
        Pair(self, client, server, connects=code != 0)


class Pair:
    """Two joined connections: what each says goes to the other, until both have ended."""

    __slots__ = ("_connects", "_down", "_one", "_other", "_relay", "_up")

    def __init__(
        self,
        relay: Relay,
        one: "_socket.socket",
        other: "_socket.socket",
        *,
        connects: bool = False,
    ) -> None:
        self._relay = relay
        self._one, self._other = one, other
        self._connects = connects
        """Whether the other is still being connected: then what is wrong with it is told late."""
        try:
            self._up = Way(one, other)
            self._down = Way(other, one)
        except OSError:
            other.close()
            raise
        self._watch()

    def wake(self, mask: int) -> None:
        """Move what can be moved, and wait for more; or end both."""
        try:
            if self._connects:
                self._connects = False
                code = self._other.getsockopt(SOL_SOCKET, SO_ERROR)
                if code:
                    raise OSError(code, posix.strerror(code))
            self._up.move()
            self._down.move()
            # An error is told whatever is waited for, and must not be told for ever.
            if mask & select.EPOLLERR and not (self._up.over and self._down.over):
                for end in (self._one, self._other):
                    code = end.getsockopt(SOL_SOCKET, SO_ERROR)
                    if code:
                        raise OSError(code, posix.strerror(code))
        except OSError:
            self._end(reset=True)
            return
        if self._up.over and self._down.over:
            self._end(reset=False)
        else:
            self._watch()

    def _watch(self) -> None:
        for end, reads, writes in (
            (self._one, self._up, self._down),
            (self._other, self._down, self._up),
        ):
            mask = 0 if reads.over or reads.held else READS
            if writes.held or (end is self._other and self._connects):
                mask |= select.EPOLLOUT
            if mask:
                self._relay.watch(end.fileno(), mask, self.wake)
            else:
                # A peer that has left for good would wake us for ever, for nothing.
                self._relay.forget(end.fileno())

    def _end(self, *, reset: bool) -> None:
        for end in (self._one, self._other):
            self._relay.forget(end.fileno())
            _hang_up(end, reset=reset)
        self._up.close()
        self._down.close()


class Way:
    """One direction.  `held`: bytes wait in its pipe.  `over`: its end was passed on."""

    __slots__ = ("_ended", "_out", "_pipe", "_source", "_target", "held", "over")

    def __init__(self, source: "_socket.socket", target: "_socket.socket") -> None:
        self._source, self._target = source, target
        self._pipe, self._out = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
        self._ended = False
        self.held = 0
        self.over = False

    def move(self) -> None:
        """Move all that can be moved now; pass the end on once nothing waits before it."""
        while not self.over:
            if self.held:
                try:
                    self.held -= posix.splice(
                        self._pipe, self._target.fileno(), self.held, flags=MOVE_NONBLOCK
                    )
                except BlockingIOError:
                    return
            elif self._ended:
                self.over = True
                self._target.shutdown(SHUT_WR)
            else:
                try:
                    moved = posix.splice(
                        self._source.fileno(), self._out, PIECE_BYTES, flags=MOVE_NONBLOCK
                    )
                except BlockingIOError:
                    return
                self.held, self._ended = moved, moved == 0

    def close(self) -> None:
        """Give the pipe back."""
        posix.close(self._pipe)
        posix.close(self._out)


def _listener(port: int) -> "_socket.socket":
    import _socket

    made = _socket.socket(AF_INET, STREAM | NONBLOCK | CLOEXEC)
    try:
        made.bind((LOOPBACK, port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"port {port} inside: {error.strerror}") from None
    return made


def _socket_of(fd: int) -> "_socket.socket":
    import _socket

    return _socket.socket(fileno=fd)


def _hang_up(end: "_socket.socket", *, reset: bool = True) -> None:
    """Close a connection; with a reset where it was cut short (on TCP, which has one)."""
    try:
        if reset and end.family == AF_INET:
            end.setsockopt(SOL_SOCKET, SO_LINGER, RESET)
    except OSError:
        pass  # its peer has reset it
    finally:
        end.close()


def run(words: "list[str]", ready: int = -1) -> "NoReturn":
    """Relay until ended; where it can't, say so and end with 125."""
    try:
        main(words, ready)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        if getattr(error, "filename", None):
            said = f"{error.filename}: {said}"  # type: ignore[union-attr]
        posix.write(2, f"lnk sandbox: the relay inside: {said}.\n".encode(errors="replace"))
    except KeyboardInterrupt:
        posix._exit(130)
    sys.stderr.flush()
    posix._exit(125)


TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable
    from typing import NoReturn
