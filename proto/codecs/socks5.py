"""SOCKS version 5, the client's half of CONNECT (RFC 1928), with or without a login (RFC 1929).

A `Socks5Hop` is asked what to send and how many bytes it needs, and is fed just those: what
comes behind the reply belongs to the tunnel, and is never read here.
"""

from __future__ import annotations

from proto.errors import ExitError, ExitRefused, ExitTimeout

VERSION, LOGIN_VERSION = 5, 1
NO_LOGIN, BY_LOGIN, NONE_FITS = 0x00, 0x02, 0xFF
CONNECT, RESERVED = 1, 0
IPV4, NAME, IPV6 = 1, 3, 4
SIZES = {IPV4: 4, IPV6: 16}
PORT_BYTES = 2

REPLIES: dict[int, str] = {
    1: "it failed",
    2: "its rules don't allow it",
    3: "the network is unreachable",
    4: "the host is unreachable",
    5: "connection refused",
    6: "it took too long",
    7: "it knows no CONNECT",
    8: "it knows no such address",
}
"""RFC 1928 §6."""
TTL_EXPIRED = 6


def greeting(*, login: bool) -> bytes:
    """Print the methods of authentication that we offer (RFC 1928 §3)."""
    methods = (NO_LOGIN, BY_LOGIN) if login else (NO_LOGIN,)
    return bytes((VERSION, len(methods), *methods))


def login_request(user: bytes, password: bytes) -> bytes:
    """Print a login of 1 to 255 bytes each (RFC 1929 §2)."""
    return bytes((LOGIN_VERSION, len(user))) + user + bytes((len(password),)) + password


def connect_request(packed: bytes, port: int) -> bytes:
    """Print the request for a connection to an address of 4 or 16 bytes (RFC 1928 §4)."""
    kind = IPV4 if len(packed) == SIZES[IPV4] else IPV6
    return bytes((VERSION, CONNECT, RESERVED, kind)) + packed + port.to_bytes(PORT_BYTES, "big")


class Socks5Hop:
    """From a connection to a SOCKS5 server to the tunnel behind it.

    `to_send` is what goes out next, `needs` how many bytes are to be read and fed then, 0 once
    the tunnel stands.  `rest` is always empty.
    """

    __slots__ = ("_held", "_login", "_request", "_step", "needs", "to_send")

    rest = b""

    def __init__(self, packed: bytes, port: int, login: tuple[bytes, bytes] | None = None) -> None:
        self._login = login
        self._request = connect_request(packed, port)
        self._step: Step = self._method
        self.to_send = greeting(login=login is not None)
        self.needs = 2
        self._held = b""

    def feed(self, data: bytes) -> None:
        """Take bytes, at most `needs`; none mean that the server has ended.

        Raises ExitError (502) for what isn't SOCKS5 or a login that isn't taken,
        ExitRefused (502) or ExitTimeout (504) for an address that it doesn't reach.
        """
        self.to_send = b""
        assert len(data) <= self.needs, "more was read than was needed"
        if not data:
            raise ExitError("the upstream proxy closed the connection before it answered.")
        self._held += data
        self.needs -= len(data)
        if not self.needs:
            whole, self._held = self._held, b""
            self._step(whole)

    def _method(self, whole: bytes) -> None:
        version, method = whole
        if version != VERSION:
            raise ExitError("the upstream proxy doesn't speak SOCKS5.")
        if method == BY_LOGIN and self._login is not None:
            self._go_on(login_request(*self._login), self._logged_in, 2)
        elif method == NO_LOGIN:
            self._go_on(self._request, self._replied, 2)
        elif method == NONE_FITS:
            raise _no_login(given=self._login is not None)
        else:
            raise ExitError("the upstream proxy chose a login that wasn't offered.")

    def _logged_in(self, whole: bytes) -> None:
        # Only the status counts: some servers answer with SOCKS's own version.
        if whole[1] != 0:
            raise ExitError("the upstream proxy doesn't take the login it was given.")
        self._go_on(self._request, self._replied, 2)

    def _replied(self, whole: bytes) -> None:
        version, reply = whole
        if version != VERSION:
            raise ExitError("the upstream proxy doesn't speak SOCKS5.")
        if reply:
            kind = ExitTimeout if reply == TTL_EXPIRED else ExitRefused
            said = REPLIES.get(reply, "it doesn't say why")
            raise kind(f"the upstream proxy could not reach the server: {said}.")
        self._go_on(b"", self._kind, 2)

    def _kind(self, whole: bytes) -> None:
        kind = whole[1]
        if kind == NAME:
            self._go_on(b"", self._name, 1)
        elif kind in SIZES:
            self._go_on(b"", self._end, SIZES[kind] + PORT_BYTES)
        else:
            raise ExitError("the upstream proxy answered with an address of no known kind.")

    def _name(self, whole: bytes) -> None:
        self._go_on(b"", self._end, whole[0] + PORT_BYTES)

    def _end(self, whole: bytes) -> None:
        """Pass over the address by which the server left: nobody needs it."""

    def _go_on(self, to_send: bytes, step: Step, needs: int) -> None:
        self.to_send, self._step, self.needs = to_send, step, needs


def _no_login(*, given: bool) -> ExitError:
    which = "another" if given else "a"
    return ExitError(f"the upstream proxy wants {which} login.")


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[bytes], None]
