"""TLS over a raw non-blocking socket, by memory: no transport and no stream reads ahead.

A `Tls` stands in a side's `End` where its socket stood, and answers as a non-blocking
socket does: with what there is, or BlockingIOError.  So every command of a shell goes on
as before, but for splice(2), which can't look inside.

Three things differ from a socket, and are kept from showing.  Bytes may lie decrypted here
while the kernel has none: a read that gives less than was asked for has met the kernel's
EAGAIN, or an end or an error, which the next read meets again and no edge tells of.  A write
counts only once its records have gone whole: until then it is refused, and must be offered
again.  And an end without TLS's own close is a reset, for anybody on the
way can send a FIN (RFC 8446 §6.1).
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from contextlib import suppress
from functools import cache

from shells.reasons import Untrusted

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
"""The machine's certificate authorities in one file; the first that is there."""

READ_BYTES = 64 * 1024
WRITE_MAX_BYTES = 64 * 1024
"""What is encrypted at once, and so the most that waits here for a slow server."""


def new_context() -> ssl.SSLContext:
    """Return a client's context without any authority: TLS 1.2 at least, HTTP/1.1 alone.

    No renegotiation: a server that asks for it could go on under another certificate than
    the one that was checked.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


@cache
def machine_context() -> ssl.SSLContext:
    """Return the context that trusts what this machine trusts.  Raises OSError."""
    context = new_context()
    bundle = next(filter(os.path.isfile, BUNDLES), None)
    if bundle is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(bundle)
    return context


class Tls:
    """A client's end of TLS with `host`, over a connected socket."""

    __slots__ = ("_failed", "_held", "_incoming", "_outgoing", "_owed", "_sock", "_tls", "_unsent")

    def __init__(
        self, sock: socket.socket, host: str, context: ssl.SSLContext | None = None
    ) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = context or machine_context()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._held = b""  # decrypted, and not asked for yet
        self._unsent = b""  # encrypted, and not gone yet
        self._owed = 0  # plain bytes whose records are among those
        self._failed: OSError | None = None

    @property
    def is_full(self) -> bool:
        """Whether room to write is waited for, and not something to read."""
        return bool(self._unsent)

    def handshake(self) -> None:
        """Go on with the handshake; return once it is done.

        Raises BlockingIOError where the server has to be waited for, Untrusted for its
        certificate, ConnectionResetError where it left, another OSError for what isn't TLS.
        """
        while True:
            self._flush()
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._take()
            except ssl.SSLError as error:
                with suppress(OSError):
                    self._flush()  # an alert, which tells the server why
                raise _plain(error) from None
            else:
                self._flush()
                return

    # -- what a socket has ----------------------------------------------------------------

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._sock.fileno()

    def recv(self, limit: int) -> bytes:
        """Return at most `limit` bytes; fewer only where the kernel has no more for now."""
        pieces, left = [self._held[:limit]], limit - len(self._held)
        self._held = self._held[limit:]
        while left > 0:
            try:
                piece = self._read(left)
            except OSError:
                if pieces == [b""]:
                    raise
                break  # it is met again by the next read
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def recv_into(self, view: memoryview) -> int:
        """Take bytes into a buffer; return how many."""
        data = self.recv(len(view))
        view[: len(data)] = data
        return len(data)

    def ready(self) -> bool:
        """Tell whether a read would be answered, by bytes, an end or an error.

        Asking the kernel wouldn't do: what it has may be TLS's own words and nothing inside.
        """
        if self._held:
            return True
        try:
            self._held = self._read(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def send(self, data: bytes | memoryview) -> int:
        """Send some of `data`; return how much has gone, in records that went whole.

        After BlockingIOError the same bytes must be offered first.
        """
        if not self._owed:
            self._flush()
            try:
                self._owed = self._tls.write(data[:WRITE_MAX_BYTES])
            except ssl.SSLError as error:
                raise _plain(error) from None
        self._flush()
        gone, self._owed = self._owed, 0
        return gone

    def shutdown(self, how: int) -> None:
        """End our direction: TLS's close, as far as it goes at once, then a FIN."""
        self._say_goodbye()
        self._sock.shutdown(how)

    def getsockopt(self, level: int, option: int) -> int:
        """Return a socket's option."""
        return self._sock.getsockopt(level, option)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Set a socket's option."""
        self._sock.setsockopt(level, option, value)

    def close(self) -> None:
        """Close the socket, and say so in TLS as far as that goes at once."""
        if not self._unsent:  # else it would be in the middle of a record
            self._say_goodbye()
        self._sock.close()

    def _say_goodbye(self) -> None:
        with suppress(OSError):
            try:
                self._tls.unwrap()
            finally:
                self._flush()

    # -- between the two ------------------------------------------------------------------

    def _read(self, limit: int) -> bytes:
        """Return what one record at most has inside; no bytes where the server has ended."""
        while True:
            try:
                return self._tls.read(limit)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLError as error:
                raise _plain(error) from None
            finally:
                with suppress(OSError):
                    self._flush()  # TLS's own answers, to a key update
            self._take()

    def _take(self) -> None:
        """Take what the kernel has, or raise BlockingIOError."""
        if self._failed is not None:
            raise self._failed  # the kernel tells an error once
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            raise
        except OSError as error:
            self._failed = error
            raise
        if not data:
            # Not told to OpenSSL, which would take it for TLS's own close.
            self._failed = _reset()
            raise self._failed
        self._incoming.write(data)

    def _flush(self) -> None:
        """Send what is encrypted, or raise BlockingIOError."""
        while True:
            self._unsent = self._unsent or self._outgoing.read(READ_BYTES)
            if not self._unsent:
                return
            self._unsent = self._unsent[self._sock.send(self._unsent) :]


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


def _plain(error: ssl.SSLError) -> OSError:
    """Return an error of TLS as what the shells know."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(errno.EPROTO, "the certificate is not trusted")
    return OSError(errno.EPROTO, os.strerror(errno.EPROTO))
