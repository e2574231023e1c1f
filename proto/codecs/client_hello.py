"""The first message of a TLS client, and which server it asks for (RFC 8446 §4.1.2).

A CDN serves the site that the ClientHello names, so a tunnel to one listed host could
ask for another.  What is read here must be read alike by every server: anything that
one server could take for another name, or pass over, is refused, and nothing is
cleaned.  The bytes themselves go on as they came.

A hello comes as one handshake message cut into TLS records, the records cut into
segments, each at any byte.  The verdict is a function of the bytes so far, however
they were cut: "more", a name, or a refusal, as soon as it is certain.

What this can't see: a name inside an encrypted hello (ECH), whose outer name counts; the
hello of a renegotiation, which TLS 1.2 encrypts; and a `Host` inside the tunnel that differs
from the hello, which some CDNs serve.  A second hello, which a server may ask for, is
`hello_retry`'s.
"""

from __future__ import annotations

import re
import struct
from typing import NoReturn

from proto.errors import HelloRefused

HELLO_MAX_BYTES = 16384
"""Of the handshake message: ten times a hello with a post-quantum key share."""

RAW_MAX_BYTES = 65536
"""Of the stream up to the message's end, its records' heads included: a record for
each byte of an ordinary hello still fits, and memory stays bounded."""

_RECORD_HEAD = 5
_HANDSHAKE = 22
_RECORD_MAX = 16384  # RFC 8446 §5.1: a longer one is no plaintext record
_MESSAGE_HEAD = 4
_CLIENT_HELLO = 1
_MAJOR = 3  # the minor byte is legacy: clients send 03 01 to 03 04

_SESSION_ID_AT = _MESSAGE_HEAD + 2 + 32  # after legacy_version and random
_SESSION_ID_MAX = 32

_U16_U16 = struct.Struct(">HH").unpack_from
_LIST_HEAD = struct.Struct(">HBH").pack

_SERVER_NAME = 0
_PRE_SHARED_KEY = 41
_ENCRYPTED_HELLO = 0xFE0D

_NAME_MAX = 253
_NAME = re.compile(
    rb"(?:[a-z0-9_-]{1,63}+\.)*(?![0-9]++\Z|0x[0-9a-f]*+\Z)[a-z0-9_-]{1,63}+"
).fullmatch
"""A DNS name as RFC 6066 §3 has it: no trailing dot, no address (a last label that is a
number makes one), letters of international names in their xn-- form."""


class HelloReader:
    """Collects the ClientHello at the head of a tunnel, and returns the name it asks for.

    `raw`: every byte taken, for the server.  `room`: how many more it takes.
    """

    __slots__ = ("_at", "_left", "_message", "_need", "_raw")

    def __init__(self) -> None:
        self._raw = bytearray()
        self._at = 0  # of _raw: what is before it has been read
        self._left = 0  # bytes of the current record that are still to come
        self._message = bytearray()
        self._need = 0  # the message's whole length, 0 until its head is there

    @property
    def raw(self) -> bytes:
        """Every byte taken so far: the hello, and what came behind it."""
        return bytes(self._raw)

    @property
    def behind(self) -> bytes:
        """What came behind the hello, once its name was returned."""
        return bytes(self._raw[self._at :])

    @property
    def room(self) -> int:
        """How many bytes may be taken at once; at least one while `feed` returns None."""
        return RAW_MAX_BYTES - len(self._raw)

    def feed(self, data: bytes) -> str | None:
        """Take bytes; return the server name in small letters once the hello is whole.

        None: more is needed.  Raises HelloRefused for anything but one well-formed
        ClientHello with one DNS name.  Not to be called again after a name or an error.
        """
        raw, message = self._raw, self._message
        raw += data
        at, end = self._at, len(raw)
        while at < end:
            if not self._left:
                if end - at < _RECORD_HEAD:
                    _check_head(raw[at:])
                    break
                self._left = _payload_of(raw, at)
                at += _RECORD_HEAD
            piece = raw[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            message += piece
            if not self._need and message:
                self._read_message_head()
            if self._need and len(message) + self._left >= self._need:
                # A server may read the next message of the record as a second hello.
                if len(message) + self._left > self._need:
                    _refuse("something stands behind the ClientHello in its record")
                if not self._left:
                    self._at = at
                    return self._finish()
        self._at = at
        if end >= RAW_MAX_BYTES:
            _refuse("the ClientHello takes too many bytes")
        return None

    def _read_message_head(self) -> None:
        """Read the type and length of the message (RFC 8446 §4), as far as they have come."""
        if self._message[0] != _CLIENT_HELLO:
            _refuse("the tunnel's first message is no ClientHello")
        if len(self._message) < _MESSAGE_HEAD:
            return
        self._need = _MESSAGE_HEAD + int.from_bytes(self._message[1:_MESSAGE_HEAD], "big")
        if self._need > HELLO_MAX_BYTES:
            _refuse(f"the ClientHello is longer than {HELLO_MAX_BYTES} bytes")

    def _finish(self) -> str:
        """Read the whole message; what stands behind it stays in `raw`."""
        if self._at > RAW_MAX_BYTES:
            _refuse("the ClientHello takes too many bytes")
        if self._raw[self._at : self._at + 1] == b"\x16":
            # No client has more to say before the server answers: a second hello, sent
            # ahead, is what a server that asks for another key share would read next.
            _refuse("a second handshake record stands behind the ClientHello")
        return server_name(bytes(self._message))


def _check_head(head: bytearray) -> None:
    """Refuse what has come of a record's head, if no TLS record begins so."""
    if head[0] != _HANDSHAKE:
        # Alerts, early data or a change of ciphers before the hello: some servers skip
        # them, some don't.
        _refuse("the tunnel doesn't begin with a TLS handshake")
    if len(head) > 1 and head[1] != _MAJOR:
        _refuse("the tunnel's first record is of no version of TLS")


def _payload_of(raw: bytearray, at: int) -> int:
    """Return the length of the record whose whole head stands at `at` (RFC 8446 §5.1)."""
    if raw[at] != _HANDSHAKE or raw[at + 1] != _MAJOR:
        _check_head(raw[at : at + 2])
    size = raw[at + 3] << 8 | raw[at + 4]
    if not 0 < size <= _RECORD_MAX:
        _refuse("the tunnel's first record has a length that TLS forbids")
    return size


def server_name(hello: bytes) -> str:
    """Return the DNS name that a whole ClientHello message asks for, in small letters.

    Raises HelloRefused when the message isn't exactly what RFC 8446 §4.1.2 describes,
    with one server_name extension of one host_name (RFC 6066 §3).
    """
    try:
        at = _extensions_at(hello)
        size = hello[at] << 8 | hello[at + 1]
        if at + 2 + size != len(hello):
            _refuse("the ClientHello's extensions don't end where it does")
        return _name_in(hello, _extensions(hello, at + 2))
    except (IndexError, struct.error):
        _refuse("the ClientHello ends inside one of its fields")


def _extensions_at(hello: bytes) -> int:
    """Return where the length of the extensions stands; IndexError when it ends before."""
    if hello[_MESSAGE_HEAD] != _MAJOR:
        _refuse("the ClientHello is of no version of TLS")
    size = hello[_SESSION_ID_AT]
    if size > _SESSION_ID_MAX:
        _refuse("the ClientHello's session id is too long")
    at = _SESSION_ID_AT + 1 + size
    size = hello[at] << 8 | hello[at + 1]
    if size == 0 or size % 2:
        _refuse("the ClientHello's cipher suites are no list of suites")
    at += 2 + size
    if hello[at] == 0:
        _refuse("the ClientHello has no compression method")
    at += 1 + hello[at]
    if at == len(hello):
        _refuse("the ClientHello names no server")  # no block of extensions at all
    return at


def _extensions(hello: bytes, at: int) -> dict[int, int]:
    """Return where the data of each type of extension begins; struct.error for half a head."""
    starts: dict[int, int] = {}
    count, end = 0, len(hello)
    while at < end:
        kind, size = _U16_U16(hello, at)
        starts[kind] = at + 4
        at += 4 + size
        count += 1
    if at != end:
        _refuse("an extension of the ClientHello runs past its end")
    if len(starts) != count:
        # Forbidden (RFC 8446 §4.2), and two servers could take either.
        _refuse("the ClientHello has one extension twice")
    if _PRE_SHARED_KEY in starts and next(reversed(starts)) != _PRE_SHARED_KEY:
        # It covers all that stands before it (RFC 8446 §4.2.11): servers that don't check
        # stop there, or go on.
        _refuse("an extension stands behind the ClientHello's pre-shared key")
    return starts


def _name_in(hello: bytes, starts: dict[int, int]) -> str:
    """Return the one name of the server_name extension, given where extensions' data begin."""
    at = starts.get(_ENCRYPTED_HELLO)
    if at is not None and (hello[at - 2 : at] == b"\0\0" or hello[at] != 0):
        # Only an outer hello (0) travels in the open; an inner one would have a server
        # that decrypts hellos look for the name elsewhere.
        _refuse("the ClientHello's encrypted part is no outer one")
    at = starts.get(_SERVER_NAME)
    if at is None:
        _refuse("the ClientHello names no server")
    # The data's size stands before it.  In it: the list's size, then one entry of type 0
    # (host_name), its size, the name.  The sizes must nest exactly.
    size = hello[at - 2] << 8 | hello[at - 1]
    name = hello[at + 5 : at + size]
    if not name or hello[at : at + 5] != _LIST_HEAD(size - 2, 0, size - 5):
        _refuse("the ClientHello's list of server names isn't one host name")
    name = name.lower()
    if len(name) > _NAME_MAX or _NAME(name) is None:
        _refuse("the ClientHello's server name is no DNS name")
    return name.decode("ascii")


def _refuse(what: str) -> NoReturn:
    raise HelloRefused(f"{what}.")
