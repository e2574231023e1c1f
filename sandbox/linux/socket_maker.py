"""The socket maker: a process outside that makes sockets inside a sandbox's network.

A socket belongs to the network it was made in, wherever its descriptor goes.  So a
helper joins the sandbox's user and network namespaces, binds there, and hands the bound
socket out: the proxy accepts the sandbox's connections itself, and no relay runs inside.

Joining takes a process with one thread, so it is forked before there is another.  It is
the keeper (`sandbox.linux.keeper`), which lives as long as the sandbox.  It can't be looked
at from inside: it isn't dumpable, and is in no process namespace of the sandbox's.

The two ends are a pair of SOCK_SEQPACKET, whose other end the proxy alone holds.  The
maker speaks first: the proxy's listener.  Then each request is one message, and so is its
answer:

    "tcp 127.0.0.1 8080"   a socket that listens there       errno (4 bytes), and the socket
    "udp 127.0.0.1 53"     one that is bound there
    "in 127.0.0.1 0"       one of that family, to connect with

One that is connected in is connected by who asked for it: a program that accepts nobody
would hold up the maker, and with it the next name that is looked up.
"""

import posix
import sys

from sandbox.linux.libc import PR_SET_DUMPABLE, Libc

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NS_GET_USERNS = 0xB701
IPPROTO_IPV6, IPV6_FREEBIND = 41, 78
EACCES, EINVAL, EPIPE, EAFNOSUPPORT, EADDRINUSE, EADDRNOTAVAIL = 13, 22, 32, 97, 98, 99
NO_IPV6 = (EAFNOSUPPORT,)
BACKLOG = 4096
LOOPBACK, ANY_PORT, PORT_MAX = "127.0.0.1", 0, 65535
TCP, UDP, IN = "tcp", "udp", "in"
REQUEST_MAX_BYTES = 64
ANSWER_S = 3.0
"""How long a request may take; it takes a tenth of a millisecond on an idle machine."""
LOOPBACK_S = 5.0
"""How long the sandbox's loopback may take to come up; it takes under a millisecond."""
LOOPBACK_STEP_S = 0.0002


def pair() -> "tuple[int, int]":
    """Return the two ends by which sockets are handed over: the proxy's, the maker's."""
    import _socket

    ours, its = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    return ours.detach(), its.detach()


def maker(
    end: int, port: int, wanted: "list[list[object]]", release: "Callable[[], None]"
) -> "Callable[[int], Maker]":
    """Return what joins the network of a process and hands over the first sockets.

    That is a listener at 127.0.0.1:`port`, or none where `port` is 0, and all that is
    `wanted` before the program starts.  release: lets it start.  What is slow, the imports,
    is done before that process is there.
    """
    import _socket
    import fcntl  # noqa: F401 - for `join`
    import time  # noqa: F401 - for `made`

    libc = Libc()
    libc.call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    its = _socket.socket(fileno=end)

    def make(inner: int) -> "Maker":
        join(inner, libc)
        working = Maker(its)
        if port == ANY_PORT:
            working.answer(0, None)
        else:
            working.make(TCP, LOOPBACK, port)
        for kind, address, number, *_ in wanted:
            working.make(kind, address, number)  # type: ignore[arg-type]
        release()
        return working

    return make


class Maker:
    """The maker's end, once it has joined the sandbox's network.  It keeps no socket."""

    def __init__(self, its: "_socket.socket") -> None:
        self.fileno = its.fileno
        self._its = its

    def make(self, kind: str, address: str, port: int) -> None:
        """Hand over a socket unasked; raise OSError, but where this machine has no IPv6."""
        try:
            sock = made(kind, address, port)
        except OSError as error:
            if ":" not in address or error.errno not in NO_IPV6:
                raise
            self.answer(error.errno, None, wait=True)
            return
        self.answer(0, sock, wait=True)
        sock.close()

    def serve(self) -> bool:
        """Answer one request; tell whether there may be another."""
        try:
            request = self._its.recv(REQUEST_MAX_BYTES)
        except OSError:
            return False
        if not request:
            return False  # whoever asked has ended
        try:
            sock = made(*_read(request))
        except OSError as error:
            return self.answer(error.errno or EINVAL, None)
        with_it = self.answer(0, sock)
        sock.close()
        return with_it

    def answer(self, errno: int, sock: "_socket.socket | None", *, wait: bool = False) -> bool:
        """Send an answer; tell whether anybody is there to take it.

        wait: for the proxy, which may still be importing what it serves with.
        """
        import _socket

        rights = [] if sock is None else [sock.fileno().to_bytes(4, sys.byteorder)]
        control = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, one) for one in rights]
        try:
            # Who asks waits for the answer, so there is room; one that doesn't is not waited for.
            flags = 0 if wait else _socket.MSG_DONTWAIT
            self._its.sendmsg([errno.to_bytes(4, "little")], control, flags)
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


class Doors:
    """What a proxy is started with.

    main: the descriptor of its own listener inside, None without one.  inside: those of the
    sockets that its plan names, in that order, None for one that this machine can't have.
    served: listeners on this machine's loopback, for ports of the sandbox's.  maker: more.
    """

    __slots__ = ("inside", "main", "maker", "served")

    def __init__(self, end: int, wanted: "list[list[object]]", served: "list[int]") -> None:
        """Take the proxy's end of the pair over, and what the maker hands over unasked.

        Raises BrokenPipeError where there will be no sandbox.
        """
        self.maker = MakerClient(end)
        self.main = self.maker.first()
        self.inside = [self.maker.given() for _ in wanted]
        self.served = served


def serve_outside(ports: "list[int]") -> "list[int]":
    """Return listeners at these ports of this machine's loopback; raise LaunchError."""
    import _socket

    found: list[int] = []
    for port in ports:
        sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        try:
            # Without it a port is taken for a minute after a run that served it.
            sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            sock.bind((LOOPBACK, port))
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise _not_served(port, error) from None
        sock.setblocking(False)
        found.append(sock.detach())
    return found


def _not_served(port: int, error: OSError) -> "LaunchError":
    from sandbox.errors import LaunchError

    why = {
        EADDRINUSE: "is taken: end what listens there, or serve another.",
        EACCES: "is for root alone: serve one from 1024 up.",
    }
    said = why.get(error.errno or 0, f"can't be opened: {error.strerror}.")
    return LaunchError("serve", error.errno or 0, f"port {port} of this machine {said}")


def _read(request: bytes) -> "tuple[str, str, int]":
    """Read a request; raise OSError (EINVAL) for one that is none."""
    import _socket

    words = request.decode("ascii", "replace").split(" ")
    kind, address, digits = words if len(words) == 3 else ("", "", "")
    if kind not in (TCP, UDP, IN) or not (digits.isascii() and digits.isdigit()):
        raise OSError(EINVAL, "no request")
    if len(digits) > 5 or int(digits) > PORT_MAX:
        raise OSError(EINVAL, "no port")
    if address != "::1":
        # Nothing but its loopback: there is nothing else in its network, and never should be.
        # Python would look up what is no address.
        try:
            its = _socket.inet_pton(_socket.AF_INET, address)
        except OSError:
            its = b"\0"
        if its[0] != 127:
            raise OSError(EINVAL, "no address of the loopback")
    return kind, address, int(digits)


class MakerClient:
    """The proxy's end: what makes sockets in the sandbox's network, whose loopback alone it has.

    Each call waits for the maker, at most ANSWER_S; what it returns is a descriptor that
    doesn't block, CLOEXEC.  Raises OSError: EADDRINUSE where the program has that port, and
    EPIPE once the maker has ended.  For one thread.
    """

    def __init__(self, end: int) -> None:
        """Take the descriptor over."""
        import _socket

        self._maker = _socket.socket(fileno=end)
        self._maker.settimeout(ANSWER_S)

    def first(self) -> "int | None":
        """Return the proxy's listener, None where it has none; waits for the sandbox.

        Raises BrokenPipeError where there will be no sandbox; the maker has said why.
        """
        self._maker.settimeout(None)
        try:
            return self._take()
        finally:
            self._maker.settimeout(ANSWER_S)

    def given(self) -> "int | None":
        """Return the next of the sockets that are handed over unasked, None without IPv6."""
        try:
            return self._take()
        except OSError as error:
            if error.errno in NO_IPV6:
                return None
            raise

    def listener(self, address: str, port: int) -> int:
        """Return a TCP socket that listens at an address inside."""
        return self._made(TCP, address, port)

    def connector(self, address: str) -> int:
        """Return a TCP socket of an address's family, with which to connect in."""
        return self._made(IN, address, ANY_PORT)

    def _made(self, kind: str, address: str, port: int) -> int:
        try:
            self._maker.send(f"{kind} {address} {port}".encode())
            found = self._take()
        except TimeoutError:
            self._maker.close()  # its late answer would be taken for the next request's
            raise OSError(EPIPE, "the sandbox's network doesn't answer") from None
        if found is None:
            raise OSError(EPIPE, "the sandbox's network has ended")
        return found

    def _take(self) -> "int | None":
        import _socket

        data, control, _, _ = self._maker.recvmsg(
            4, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, payload in control:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                return int.from_bytes(payload[:4], sys.byteorder)
        errno = int.from_bytes(data, "little") if data else EPIPE
        if errno:
            raise OSError(errno, posix.strerror(errno))
        return None


def join(inner: int, libc: Libc) -> None:
    """Join the network of a process, as the owner of the user namespace that owns it.

    The process's own user namespace may be one nested in that (--disable-userns), whose
    capabilities don't reach the network: so it is the network that is asked for its owner.
    """
    import fcntl

    network = posix.open(f"/proc/{inner}/ns/net", posix.O_RDONLY | posix.O_CLOEXEC)
    if _setns(libc, network, CLONE_NEWNET):  # by root
        posix.close(network)
        return
    owner = fcntl.ioctl(network, NS_GET_USERNS)
    libc.call("setns", owner, CLONE_NEWUSER)
    libc.call("setns", network, CLONE_NEWNET)
    posix.close(owner)
    posix.close(network)


def made(kind: str, address: str, port: int) -> "_socket.socket":
    """Return a new socket in the network that this process is in, once its loopback is up."""
    import _socket

    family = _socket.AF_INET6 if ":" in address else _socket.AF_INET
    sock = _socket.socket(family, _socket.SOCK_DGRAM if kind == UDP else _socket.SOCK_STREAM)
    try:
        if kind != IN:
            _bind(sock, address, port)
        if kind == TCP:
            sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _bind(sock: "_socket.socket", address: str, port: int) -> None:
    import time

    if ":" in address:
        # ::1 comes later than 127.0.0.1, and not at all to a machine without IPv6.
        sock.setsockopt(IPPROTO_IPV6, IPV6_FREEBIND, 1)
    until = time.monotonic() + LOOPBACK_S
    while True:
        try:
            sock.bind((address, port))
            return
        except OSError as error:
            if error.errno != EADDRNOTAVAIL or time.monotonic() > until:
                raise
            time.sleep(LOOPBACK_STEP_S)


def _setns(libc: Libc, fd: int, kind: int) -> bool:
    """Join a namespace (setns(2)) if this process may."""
    try:
        libc.call("setns", fd, kind)
    except PermissionError:
        return False
    return True


TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable

    from sandbox.errors import LaunchError
