"""A bridge's side of a call: what every verb of Link's own that holds a key is built on (R56).

    the proxy -> HTTP/1.1, one call a connection -> this -> TLS to one provider

`bridge_connection` reads a head, and lets nobody on but who tells the caller's key.  Then the
verb has the call.  Most verbs make one call to a provider of it (`provider_verb`): they judge
the head, read the body if they have to, and say what goes out and what becomes of the answer;
the call goes by the same address guard as any other of the wire, over TLS, and is relayed as
it comes, chunk by chunk.

A refusal is answered with `Link-Refused`, which the proxy takes out and logs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from proto.calls.exchange import Edit, Exchange
from proto.calls.forward import carry
from proto.calls.ledger import Ledger
from proto.calls.limits import PIECE_BYTES, Limits
from proto.calls.reach import Link, open_upstream
from proto.calls.refuse import end_badly, plain
from proto.calls.rewrite import SAID_ANEW, SAID_ANEW_1_0, Onward, PlainRequest
from proto.calls.route import ours_of, without_ours
from proto.calls.serve import read_head
from proto.codecs.body import BodyReader
from proto.codecs.fields import Fields, print_fields
from proto.codecs.http1 import (
    Framing,
    Kind,
    RequestHead,
    ResponseHead,
    expects_continue,
    request_framing,
    write_response_head,
)
from proto.codecs.target import OriginTarget, read_target
from proto.commands import CLIENT, Close, Receive, Send, StartTls
from proto.errors import (
    MalformedRequest,
    NoSuchRoute,
    ProxyError,
    Refused,
    UpstreamError,
    UpstreamTimeout,
)
from proto.events import Received, Secured, Sent
from proto.policy.exits import Exit
from proto.policy.keys import Key
from proto.policy.target import Scope, Target
from proto.script import Script

HTTPS_PORT = 443
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class TooLarge(Refused):
    """A body longer than the verb reads (RFC 9110 §15.5.14)."""

    status_hint = 413
    phrase = "Content Too Large"


class Request(msgspec.Struct, frozen=True, gc=False):
    """A call as its bridge has it: `path` below the verb's mount, as it came, and the query.

    `question` is the "?" where there is one, so that what goes out can be as it came.
    """

    head: RequestHead
    framing: Framing
    path: bytes
    question: bytes
    query: bytes


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """The call that a verb makes to a provider.

    `target`: path and query.  `lines`: the field lines, without `Host` and what frames the
    body.  `body`: the whole body, or None: it passes as it comes.  `edit`: what becomes of
    the answer, None: nothing.
    """

    host: str
    target: bytes
    lines: bytes
    body: bytes | None = None
    edit: Edit | None = None


class Foreign:
    """A provider's answer without fields of the wire's own, then as its verb edits it.

    Else a provider could have its answers counted as refusals, until the wire is paused.
    """

    __slots__ = ("_edit",)

    def __init__(self, edit: Edit | None) -> None:
        self._edit = edit

    def head(self, head: ResponseHead) -> ResponseHead:
        """Return the head as the proxy gets it."""
        theirs = ResponseHead(head.version, head.status, head.reason, without_ours(head.fields))
        return theirs if self._edit is None else self._edit.head(theirs)

    def body(self, data: bytes) -> bytes:
        """Return what of the body goes on now."""
        return data if self._edit is None else self._edit.body(data)

    def end(self) -> bytes:
        """Return what of it was held back."""
        return b"" if self._edit is None else self._edit.end()


class Verb(Protocol):
    """What a verb says of a call; both raise ProxyError to refuse it."""

    def reads(self, request: Request) -> int:
        """Judge a head; return how many bytes of body are read first, 0 to pass it as it comes."""

    def call(self, request: Request, body: bytes) -> Outgoing:
        """Return the call to the provider; `body` is empty where none was read."""


Serve = Callable[[Link, Ledger, Request, Limits], Script[None]]
"""Serves one call whose caller is known; raises ProxyError before it has answered."""


def bridge_connection(
    serve: Serve, caller: Key, limits: Limits, now: float, exit_: Exit | None = None
) -> Script[None]:
    """Serve one connection of the proxy's, which carries one call.

    exit_: the proxy by which calls to a provider leave this machine, None: directly.
    """
    link, ledger = Link(exit=exit_), Ledger(now, "bridge")
    method = ""
    try:
        head = yield from read_head(link, ledger, limits, limits.head_s)
        if head is None:
            return
        method = head.method
        yield from serve(link, ledger, known(head, caller), limits)
    except ProxyError as error:
        yield from refuse(ledger, error, limits, method)


def known(head: RequestHead, caller: Key) -> Request:
    """Return a head's request, if who sends it tells the caller's key.

    Else anybody who finds the socket could have the keys used.  Raises Refused (403),
    MalformedRequest (400).
    """
    if not caller.is_told(head.one(b"link-caller")):
        raise Refused("this bridge serves its proxy alone.")
    framing, wanted = request_framing(head), read_target(head)
    expects_continue(head)
    if not isinstance(wanted, OriginTarget):
        raise NoSuchRoute("there is nothing here but paths.")
    path, question, query = wanted.path.partition(b"?")
    return Request(head, framing, path, question, query)


def refuse(ledger: Ledger, error: ProxyError, limits: Limits, method: str) -> Script[None]:
    """Answer a call that came to nothing, and close; what our policy refused says so."""
    more: Fields = ()
    if isinstance(error, Refused):
        more = ((b"Link-Refused", plain(error.message)),)
    yield from end_badly(ledger, error, limits, method, more)


def answer(
    ledger: Ledger, limits: Limits, status: int, fields: Fields, body: bytes, method: str = ""
) -> Script[None]:
    """Send one whole answer of the bridge's own, and close."""
    lengths = ((b"Content-Length", b"%d" % len(body)), (b"Connection", b"close"))
    words = write_response_head(status, b"", print_fields((*fields, *lengths)))
    ledger.answered = True
    yield from send_all(ledger, words if method == "HEAD" else words + body, limits)
    yield ledger.end()
    yield Close(CLIENT, ledger.now + limits.grace_s)


def send_all(ledger: Ledger, data: bytes, limits: Limits) -> Script[None]:
    """Send bytes to the proxy, however slowly it takes them.  Raises ProxyError."""
    while data:
        piece = data[:PIECE_BYTES]
        sent = yield from ledger.ask(Send(ledger.now + limits.idle_s, to_client=piece), Sent)
        data = data[sent.to_client :]


def read_body(
    link: Link, ledger: Ledger, request: Request, most: int, limits: Limits
) -> Script[bytes]:
    """Read a request's body whole.

    Raises TooLarge (413) past `most` bytes, MalformedRequest (400) where it is cut short.
    """
    if request.framing.length > most:
        raise _too_large(most)
    reader = BodyReader(request.framing, MalformedRequest)
    if expects_continue(request.head) and not reader.done:
        yield from ledger.ask(Send(ledger.now + limits.grace_s, to_client=CONTINUE), Sent)
    data, link.early = link.early, b""
    body = bytearray()  # a list of pieces would take many times as much of small chunks
    while True:
        for piece in reader.feed(data):
            body += piece
        if len(body) > most:
            raise _too_large(most)
        if reader.done:
            return bytes(body)
        command = Receive((CLIENT,), PIECE_BYTES, ledger.now + limits.idle_s)
        data = (yield from ledger.ask(command, Received)).data
        if not data:
            reader.ended()


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is longer than the {most} bytes that are read here.")


def provider_verb(verb: Verb) -> Serve:
    """Return what serves a verb that makes one call to a provider of each of its own."""

    def serve(link: Link, ledger: Ledger, request: Request, limits: Limits) -> Script[None]:
        most = verb.reads(request)
        body = b""
        if most:
            body = yield from read_body(link, ledger, request, most, limits)
        yield from relay(link, ledger, request, verb.call(request, body), limits)

    return serve


def relay(
    link: Link, ledger: Ledger, request: Request, outgoing: Outgoing, limits: Limits
) -> Script[None]:
    """Make a call to a provider, and give its answer to the proxy as it comes."""
    host = ledger.host = outgoing.host
    ledger.port = HTTPS_PORT
    exchange = _exchange(link, request, outgoing)
    del outgoing  # its body is the exchange's now, and goes as it is sent
    yield from open_provider(link, ledger, host, limits)
    yield from carry(ledger, exchange, limits)
    yield ledger.end()
    yield Close(CLIENT, ledger.now + limits.grace_s)


def _exchange(link: Link, request: Request, outgoing: Outgoing) -> Exchange:
    early = link.take_early()
    framing = request.framing
    if outgoing.body is not None:
        framing, early = Framing(Kind.LENGTH, len(outgoing.body)), outgoing.body
    url = Onward(outgoing.host.encode("ascii"), outgoing.target)
    onward = PlainRequest(request.head, url, framing, outgoing.lines, alone=True, last=True)
    return Exchange(onward, early, Foreign(outgoing.edit))


def open_provider(link: Link, ledger: Ledger, host: str, limits: Limits) -> Script[None]:
    """Connect to a provider by its checked addresses, and speak TLS with it.

    Raises Refused (403) by address, UpstreamError (502), UpstreamTimeout (504).
    """
    by = ledger.now + limits.setup_s
    target = Target(host, HTTPS_PORT, Scope.INTERNET, literal=False, reads_hello=False)
    yield from open_upstream(link, ledger, target, by)
    if link.take_said():
        raise UpstreamError(f"{host} spoke before its TLS handshake.")
    try:
        yield from ledger.ask(StartTls(host, by), Secured)
    except UpstreamTimeout:
        raise UpstreamTimeout(f"{host} did not finish its TLS handshake in time.") from None
    except UpstreamError as error:
        raise UpstreamError(f"{host} could not be spoken TLS with: {_why(error)}") from None


def _why(error: UpstreamError) -> str:
    return error.message.rpartition(": ")[2]


def onward_lines(request: Request, dropped: frozenset[bytes] = frozenset()) -> bytes:
    """Return a request's field lines as a provider gets them, without those `dropped`.

    What concerns one connection, frames the body, or is the wire's own, never goes on.
    """
    head = request.head
    said_anew = SAID_ANEW if head.version == (1, 1) else SAID_ANEW_1_0
    return head.lines_without(said_anew | ours_of(head) | dropped)
