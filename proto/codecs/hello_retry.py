"""From a ClientHello to its server's answer, which may ask for another one (RFC 8446 §4.1.4).

A server that wants another key share says so (HelloRetryRequest), and the client sends its
hello again.  The second must repeat the first's name (§4.1.2), but servers in use go by
whatever name it has, and a program chooses whether there is one: a hello without a share
asks for it.  So the second hello of a tunnel is read too.
"""

from __future__ import annotations

from proto.codecs.client_hello import HELLO_MAX_BYTES, RAW_MAX_BYTES, server_name
from proto.errors import HelloRefused

_RECORD_HEAD = 5
_MESSAGE_HEAD = 4
_CHANGE, _ALERT, _HANDSHAKE, _DATA = 20, 21, 22, 23
_PASSED = frozenset({_CHANGE, _ALERT, _DATA})
"""Records that may stand before a handshake message: compatibility's, a warning, early data."""

_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_RANDOM_AT = _MESSAGE_HEAD + 2
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random of a ServerHello that is a HelloRetryRequest: SHA-256 of that word (§4.1.3)."""


class HelloAnswer:
    """Follows both sides of a tunnel whose first hello was read, until nothing is left to read.

    `settled`: the rest is the tunnel's.  `retried`: the server has asked for a second hello;
    what its client says from there on must not go on before `settled`.  Before that all of it
    may: a second hello that was sent ahead is judged once the server asks for it.
    """

    __slots__ = ("_client", "_host", "_server", "_taken", "retried", "settled")

    def __init__(self, host: str) -> None:
        self._host = host
        self._client = _Handshake()
        self._server = _Handshake()
        self._taken = 0
        self.retried = self.settled = False

    def hear_client(self, data: bytes) -> None:
        """Take what the client said behind its hello; HelloRefused as `hear_server`."""
        self._client.feed(data)
        if self.retried:
            self._taken += len(data)
            self._judge()

    def hear_server(self, data: bytes) -> None:
        """Take what the server said.

        Raises HelloRefused where it asks for a second hello and that is for another name, or
        can't be read.
        """
        if self.retried:
            return
        server = self._server
        server.feed(data)
        message = server.message
        said = bytes(message[_RANDOM_AT : _RANDOM_AT + len(_RETRY)])
        other = message and message[0] != _SERVER_HELLO
        if said == _RETRY:
            self.retried = True
            self._judge()
        elif server.lost or other or server.whole or not _RETRY.startswith(said):
            self.settled = True

    def _judge(self) -> None:
        """Read the second hello, if it is whole."""
        client = self._client
        message = bytes(client.message)
        other = message and message[0] != _CLIENT_HELLO
        if client.lost or other or client.overfull:
            raise HelloRefused("what follows the server's HelloRetryRequest is no ClientHello.")
        if client.whole:
            if server_name(message) != self._host:
                raise HelloRefused(
                    f"a tunnel to {self._host} must not ask for another name in its second "
                    "ClientHello."
                )
            self.settled = True
        elif client.needs > HELLO_MAX_BYTES or self._taken >= RAW_MAX_BYTES:
            raise HelloRefused("the second ClientHello takes too many bytes.")


class _Handshake:
    """Takes a side's next handshake message out of its records, cut anywhere.

    `message`: what has come of it, and of what stands behind it in its records.  `lost`: a
    record came that can't be a part of it, or none at all.
    """

    __slots__ = ("_head", "_left", "_wanted", "lost", "message")

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = 0
        self._wanted = False
        self.message = bytearray()
        self.lost = False

    @property
    def needs(self) -> int:
        """The message's whole length; its head's alone until that is there."""
        message = self.message
        if len(message) < _MESSAGE_HEAD:
            return _MESSAGE_HEAD
        return _MESSAGE_HEAD + int.from_bytes(message[1:_MESSAGE_HEAD], "big")

    @property
    def whole(self) -> bool:
        """Whether the message has come, and its last record with it."""
        return len(self.message) == self.needs and not (self._wanted and self._left)

    @property
    def overfull(self) -> bool:
        """Whether something stands behind the message in its record."""
        left = self._left if self._wanted else 0
        return len(self.message) >= _MESSAGE_HEAD and len(self.message) + left > self.needs

    def feed(self, data: bytes) -> None:
        """Take bytes; those behind the message's last record are left, and it is bounded."""
        at = 0
        while at < len(data) and not self.lost and not self._done():
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                if self._wanted:
                    self.message += piece
            else:
                piece = data[at : at + _RECORD_HEAD - len(self._head)]
                self._head += piece
                self._begin()
            at += len(piece)

    def _done(self) -> bool:
        """Tell whether nothing more need be taken."""
        return self.whole or len(self.message) > min(self.needs, HELLO_MAX_BYTES)

    def _begin(self) -> None:
        """Go on to a record's payload, once its head is whole."""
        head = self._head
        self._wanted = head[0] == _HANDSHAKE
        # Nothing stands between the records of one message (RFC 8446 §5.1).
        self.lost = not self._wanted and (head[0] not in _PASSED or bool(self.message))
        if len(head) == _RECORD_HEAD:
            self._left = head[3] << 8 | head[4]
            self.lost = self.lost or (self._wanted and not self._left)
            head.clear()
