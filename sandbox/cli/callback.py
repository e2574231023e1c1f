"""A login's answer: one request to a port of this machine's localhost, handed in (R54).

The first request that is a login's answer (`proto.verbs.open_page.is_answer`) is passed into
the sandbox, to the same port there, and what the program answers goes back, as text to be read
(`proto.verbs.login_answer`); then the port is closed.  Whatever else comes is answered here, and
never reaches the program: any page that the browser has open can call a port of localhost.
"""

from __future__ import annotations

import errno
import os
import socket

from proto.codecs.body import BodyReader
from proto.codecs.http1 import RequestHead, RequestReader, request_framing, write_response_head
from proto.errors import MalformedRequest, ProxyError
from proto.verbs.login_answer import Shown, inward
from proto.verbs.open_page import Callback, is_answer
from shells.bridges import DOOR_FD
from shells.poll_loop import Loop, Stream, accept_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.cli.bridge import Told

INWARD_FD = DOOR_FD
"""The proxy's door inward: whoever connects there is joined to a port inside."""
ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
"""What a browser takes localhost for.  Both are held: else another program could listen at
the one that is tried first, and get the login's code."""
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
BODY_MAX_BYTES = 1 << 20
CALLS_MAX = 32
ANSWER_S = 60.0


class PortTaken(Exception):
    """A port that somebody has: the answer carries the login's code, so it isn't shared."""


class Callbacks:
    """The ports that are held for pages, one a page."""

    def __init__(self, loop: Loop, told: Told) -> None:
        self._loop, self._told = loop, told
        self._ports: list[Port] = []

    def hold(self, callback: Callback) -> Port:
        """Hold a page's port; raises PortTaken."""
        port = Port(self._loop, callback, self._told.caller, self._ports)
        self._ports.append(port)
        return port

    def end(self) -> None:
        """Let all go."""
        for port in list(self._ports):
            port.close()


class Port:
    """One page's port: held, then listened at, then closed."""

    def __init__(self, loop: Loop, callback: Callback, caller: str, others: list[Port]) -> None:
        self._loop, self.callback, self._caller, self._others = loop, callback, caller, others
        self._sockets: list[socket.socket] = []
        self._calls: set[Answer] = set()
        self.taken = False
        for family, address in ADDRESSES:
            try:
                self._sockets.append(bound(family, address, callback.port))
            except OSError as error:
                if family == socket.AF_INET6 and error.errno in NO_IPV6:
                    continue
                for sock in self._sockets:
                    sock.close()
                raise PortTaken(
                    f"port {callback.port}, where the page's answer would go, is taken."
                ) from None

    def listen(self, seconds: float) -> None:
        """Let the answer come for so long."""
        for sock in self._sockets:
            sock.listen(CALLS_MAX)
            accept_on(self._loop, sock, self._took)
        self._loop.after(seconds, self.close)

    def close(self) -> None:
        """Let the port go."""
        for sock in self._sockets:
            self._loop.unwatch(sock.fileno())
            sock.close()
        self._sockets = []
        if self in self._others:
            self._others.remove(self)

    def _took(self, fd: int) -> None:
        if len(self._calls) >= CALLS_MAX:
            os.close(fd)
            return
        call = Answer(self._loop, fd, self)
        self._calls.add(call)

    def over(self, call: Answer) -> None:
        """Forget a connection."""
        self._calls.discard(call)

    def inward(self) -> socket.socket:
        """Return a connection that the proxy is asked to join with the port inside."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.connect(f"/proc/self/fd/{INWARD_FD}")
        port = self.callback.port
        sock.sendall(
            f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n"
            f"Link-Caller: {self._caller}\r\n\r\n".encode()
        )
        return sock


def bound(family: int, address: str, port: int) -> socket.socket:
    """Return a socket that holds a port, and shares it with nobody."""
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock


class Answer:
    """One connection to the port: perhaps the login's answer."""

    def __init__(self, loop: Loop, fd: int, port: Port) -> None:
        self._loop, self._port = loop, port
        self._reader = RequestReader()
        self._size = 0
        self._head: RequestHead | None = None
        self._body: BodyReader | None = None
        self._pieces: list[bytes] = []
        self._inside: Stream | None = None
        self._heard: bytes | None = b""
        self._shown: Shown | None = None
        self._said = False
        self._browser = Stream(loop, fd, on_data=self._hear, on_end=self._over)
        loop.after(ANSWER_S, self._over)

    def _hear(self, data: bytes) -> None:
        if self._inside is not None:
            return  # one request was let in, and no more
        self._size += len(data)
        try:
            if self._body is None:
                found = self._reader.feed(data)
                if found is None:
                    return
                head, data = found
                if self._port.taken or not is_answer(head, self._port.callback):
                    self._refuse(404)
                    return
                self._head = head
                self._body = BodyReader(request_framing(head), MalformedRequest)
            self._pieces += self._body.feed(data)
        except ProxyError:
            self._refuse(400)
            return
        if self._size > BODY_MAX_BYTES:
            self._refuse(413)
        elif self._body.done:
            self._let_in()

    def _let_in(self) -> None:
        """Pass the request in, and close the port: nothing else comes after it."""
        if self._port.taken:
            self._refuse(404)
            return
        self._port.taken = True
        assert self._head is not None
        request = inward(self._head, b"".join(self._pieces))
        self._shown = Shown(self._head.method)
        try:
            sock = self._port.inward()
        except OSError:
            self._refuse(502)
            return
        finally:
            self._port.close()
        self._inside = Stream(
            self._loop, sock.detach(), on_data=self._inside_said, on_end=self._end
        )
        self._inside.write(request)

    def _inside_said(self, data: bytes) -> None:
        """Pass the program's answer on, behind the proxy's word that it was reached."""
        if self._heard is None:
            self._show(data)
            return
        self._heard += data
        head, end, rest = self._heard.partition(b"\r\n\r\n")
        if end:
            reached = head.startswith(b"HTTP/1.1 200 ")
            self._heard = None
            if reached:
                self._show(rest)
            else:
                self._refuse(502)

    def _show(self, data: bytes) -> None:
        assert self._shown is not None
        if self._shown.over:
            return
        try:
            said = self._shown.feed(data)
        except ProxyError:
            if self._said:
                self._over()  # cut short, and it must look so
            else:
                self._refuse(502)
            return
        self._said = self._said or bool(said)
        self._browser.write(said)
        if self._shown.over:
            self._end()

    def _end(self) -> None:
        if self._said:
            if self._shown is not None and not self._shown.over:
                self._browser.write(self._shown.ended())
            self._browser.finish()
        else:
            self._refuse(502)
        if self._inside is not None:
            self._inside.close()
        self._port.over(self)

    def _over(self) -> None:
        self._browser.close()
        if self._inside is not None:
            self._inside.close()
        self._port.over(self)

    def _refuse(self, status: int) -> None:
        self._said = True
        words = WORDS[status] + b"\n"
        lines = b"Content-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n"
        head = write_response_head(status, b"Refused", lines % len(words))
        self._browser.write(head + words)
        self._browser.finish()
        self._port.over(self)


WORDS = {
    400: b"That is no request.",
    404: b"Nothing waits here for that.",
    413: b"That is too long for a login's answer.",
    502: b"The program that asked for the login doesn't listen.",
}
