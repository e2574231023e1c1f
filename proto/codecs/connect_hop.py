"""CONNECT, the client's half: by an HTTP proxy to a server (RFC 9110 §9.3.6).

A plain request goes this way too.  Handed to the proxy whole, as `GET http://…`, it would
have to name the server by its checked address, and that is what the server would be told it
was asked for: a proxy makes the `Host` anew from the target (RFC 9112 §3.2.2).
"""

from __future__ import annotations

from proto.codecs.heads import write_request
from proto.codecs.http1 import AnswerReader
from proto.errors import BadAnswer, ExitError, ExitRefused, ExitTimeout

ANSWER_MAX_BYTES = 16 * 1024
"""The longest head of an answer to CONNECT; what is read past it is the tunnel's."""
INTERIM_MAX = 10


class ConnectHop:
    """From a connection to an HTTP proxy to the tunnel behind it; as `Socks5Hop`.

    `rest` is what the server behind it had already said.
    """

    __slots__ = ("_has_login", "_interims", "_reader", "needs", "rest", "to_send")

    def __init__(self, authority: str, authorization: bytes | None) -> None:
        lines = f"Host: {authority}\r\n".encode()
        if authorization is not None:
            lines += b"Proxy-Authorization: %b\r\n" % authorization
        self.to_send = write_request("CONNECT", authority.encode(), lines)
        self._reader = AnswerReader(ANSWER_MAX_BYTES)
        self._has_login = authorization is not None
        self._interims = 0
        self.needs = self._reader.room
        self.rest = b""

    def feed(self, data: bytes) -> None:
        """Take bytes, at most `needs`; none mean that the proxy has ended.

        Raises ExitError (502) for what is no answer or a login that isn't taken,
        ExitRefused (502) or ExitTimeout (504) for an address that it doesn't reach.
        """
        self.to_send = b""
        if not data:
            raise ExitError("the upstream proxy closed the connection before it answered.")
        while data and (found := self._read(data)) is not None:
            head, data = found
            if head.status >= 200:
                self._judge(head.status)
                self.needs, self.rest = 0, data
                return
            self._interims += 1
            if self._interims > INTERIM_MAX:
                raise ExitError("the upstream proxy sent interim answers without end.")
            self._reader = AnswerReader(ANSWER_MAX_BYTES)
        self.needs = self._reader.room

    def _read(self, data: bytes) -> tuple[ResponseHead, bytes] | None:
        try:
            return self._reader.feed(data)
        except BadAnswer:
            # Its own words tell of a server's answer; this is the person's proxy.
            raise ExitError("the upstream proxy's answer to CONNECT is no answer.") from None

    def _judge(self, status: int) -> None:
        """Let a 2xx pass: whatever its fields say, what follows is the tunnel."""
        if status < 300:
            return
        if status == 407:
            which = "another" if self._has_login else "a"
            raise ExitError(f"the upstream proxy wants {which} login.")
        kind = ExitTimeout if status in (408, 504) else ExitRefused
        raise kind(f"the upstream proxy could not reach the server: it answered {status}.")


TYPE_CHECKING = False
if TYPE_CHECKING:
    from proto.codecs.heads import ResponseHead
