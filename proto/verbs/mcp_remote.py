"""A tool at a URL, spoken to as a stdio server (the decision on a tool at a URL).

A `Remote` is a pure machine between lines of JSON-RPC and HTTP calls of one URL.  Each
message becomes a POST on a connection of its own; what the server answers, JSON or a
stream of events, becomes lines.  A server before 2026-07-28 also gets a GET, on which it
speaks by itself.

A session ends when its server says so or begins anew (404, "Session Management").  Another is
begun then, by what its client said at first, and what the server didn't know is asked again.
A stream that ends before it answers, and whose events have names, is taken up where it ended
("Resumability and Redelivery"); so is the one on which the server speaks by itself.

The token goes to the URL's own origin and nowhere else: the shell connects there alone,
and a redirect is an error, wherever it leads.
"""

from __future__ import annotations

import binascii

import msgspec

from proto.codecs.body import BodyReader
from proto.codecs.fields import print_fields
from proto.codecs.http1 import AnswerReader, ResponseHead, answer_framing, write_request
from proto.codecs.jsonrpc import (
    INTERNAL,
    MESSAGE_MAX_BYTES,
    Answer,
    Id,
    MalformedMessage,
    Message,
    Notification,
    Request,
    error,
    read,
    write,
)
from proto.codecs.sse import SseReader
from proto.codecs.url import MalformedUrl, Url, read_url
from proto.errors import BadAnswer, ProxyError
from proto.verbs.mcp_rules import JSON, MODERN, SSE, VERSION_KEY, meta_of, name_of
from proto.verbs.mcp_token import Token
from proto.verbs.open_page import is_loopback

CALLS_MAX = 256
SAID_MAX_BYTES = 32 << 20
"""Of all that its client says and that isn't answered.  It is kept, to be asked again in another
session, and a program may make many long calls, wait for none, and so fill the machine."""
HEARD_MAX_BYTES = 2 * MESSAGE_MAX_BYTES
"""Of all answers that aren't whole: a server may begin one to each call."""
POLLS_MAX = 1000
"""So often the stream of one call is taken up: a server that works at length closes it each
time, and one that has forgotten the call does too."""
AGAIN_S, AGAIN_MOST_S = 1.0, 600.0
"""How long a server is left alone in between, where it doesn't say, and the most it may say."""
LISTEN_AGAIN_S = 5.0
""""And one that ended the stream of its own."""

OWN_FIELDS = frozenset(
    {
        "host",
        "connection",
        "content-length",
        "content-type",
        "transfer-encoding",
        "accept",
        "expect",
        "upgrade",
        "te",
        "trailer",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
    }
)
"""Fields that are the protocol's, and not a person's to set."""


class Open(msgspec.Struct, frozen=True):
    """Connect to the URL's origin and send these bytes; what comes is told by `hear`.

    `after_s`: not before so many seconds have gone by.
    """

    call: int
    data: bytes
    after_s: float = 0.0


class Line(msgspec.Struct, frozen=True):
    """Write a message to standard output, with its line's end."""

    data: bytes


class Drop(msgspec.Struct, frozen=True):
    """Close a call's connection: nothing of it is wanted any more."""

    call: int


Effect = Open | Line | Drop


def check_url(text: str) -> Url:
    """Judge the URL of a tool; raises MalformedUrl.

    https anywhere, http on this machine alone: a token never crosses a network in the clear.
    """
    url = read_url(text)
    if url.fragment is not None:
        raise MalformedUrl("it has a fragment, which no server sees")
    if url.scheme == "http" and not is_loopback(url.host):
        raise MalformedUrl("http is for this machine alone; write https")
    if not text.isascii():
        raise MalformedUrl("it holds a letter that isn't ASCII")
    return url


def check_field(name: str, value: str) -> None:
    """Judge a header field that a person sets; raises ValueError."""
    token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    if not token:
        # It isn't shown: a secret may hold a colon, and stand there without its field's name.
        raise ValueError("what stands before the colon is no name for a header field")
    if name.lower() in OWN_FIELDS:
        raise ValueError(f"{name!r} is no name for a header field of yours")
    if not value or not value.isascii() or not value.isprintable() or value != value.strip():
        raise ValueError(f"the value of {name} must be printable ASCII")


class _Call(msgspec.Struct, eq=False):
    """One HTTP call.  `request`: what it is to answer; None for a GET or what needs no answer.

    `size`: how long what it says was, as it came.  `session` is the one that it was made in;
    `again`: it was made before, in another.  `renews`: it begins another session, and its answer is
    nobody's.  `last_id`: the event behind which it takes up an earlier stream, `polls` how often
    that was done.  `cancelled`: its client waits no more.  `refused`, `failed`: why it comes to
    nothing, whatever its body says, and where that says nothing.
    """

    request: Request | None
    listens: bool = False
    size: int = 0
    session: bytes | None = None
    again: bool = False
    renews: bool = False
    unknown: bool = False
    last_id: bytes = b""
    polls: int = 0
    cancelled: bool = False
    answered: bool = False
    first: bool = False
    refused: str = ""
    failed: str = ""
    heads: AnswerReader = msgspec.field(default_factory=AnswerReader)
    body: BodyReader | None = None
    events: SseReader | None = None
    text: bytearray = msgspec.field(default_factory=bytearray)

    @property
    def held(self) -> int:
        """How many bytes of its answer wait for their message to be whole."""
        return len(self.text) if self.events is None else self.events.held


class Remote:
    """The lines of one client, and the calls of one URL."""

    def __init__(self, url: Url, fields: tuple[tuple[str, str], ...] = ()) -> None:
        self._url = url
        self._fields = tuple((name.encode(), value.encode()) for name, value in fields)
        self._token = Token(fields)
        self._effects: list[Effect] = []
        self._calls: dict[int, _Call] = {}
        self._made = 0
        self._session: bytes | None = None
        self._version: str | None = None
        """What `initialize` came to; None before it, and in the current revision."""
        self._hello: Request | None = None
        self._renewing = self._lost = False
        self._waiting: list[tuple[Message, int]] = []
        """What is said once there is a session again, and how long it is."""

    def take(self) -> list[Effect]:
        """Return what is to be done, in order, and forget it."""
        effects, self._effects = self._effects, []
        return effects

    def line(self, data: bytes) -> None:
        """Take a line of standard input; what is no message is left out."""
        try:
            message = read(data)
        except MalformedMessage as wrong:
            if wrong.id is not None:
                self._say(error(wrong.id, wrong.code, wrong.message))
            return
        if self._is_full(len(data)):
            if isinstance(message, Request):
                self._say(error(message.id, INTERNAL, "too many calls are open."))
        elif self._renewing:
            self._waiting.append((message, len(data)))
        elif self._lost and isinstance(message, Request) and message.method != "initialize":
            self._begin_again(message, len(data))
        elif not (self._version is None and _is_modern(message) and self._cancelled(message)):
            for call in self._of_cancelled(message):
                self._calls[call].cancelled = True
            self._send(message, len(data))

    def _is_full(self, size: int) -> bool:
        """Whether too much is open for a message of so many bytes more."""
        said = sum(call.size for call in self._calls.values()) + sum(n for _, n in self._waiting)
        many = len(self._calls) + len(self._waiting) >= CALLS_MAX
        return many or (said > 0 and said + size > SAID_MAX_BYTES)

    def _send(self, message: Message, size: int = 0, *, again: bool = False) -> None:
        request = message if isinstance(message, Request) else None
        first = request is not None and request.method == "initialize"
        if first:
            self._hello, self._lost = request, False
            self._session = self._version = None  # a session begins in none
        call = _Call(request, size=size, first=first, session=self._session, again=again)
        self._open(call, self._post(message))
        if isinstance(message, Notification) and message.method == "notifications/initialized":
            self._open(_Call(None, listens=True), self._get())

    def hear(self, number: int, data: bytes) -> None:
        """Take bytes of a call's answer; none mean that its connection has ended in order."""
        call = self._calls.get(number)
        if call is None:
            return
        try:
            self._read(call, data)
        except ProxyError:
            self._broke(number, "the server's answer can't be read.")
            return
        if call.unknown:
            self._renew(number, call)
        elif call.refused:
            self._end(number, call.refused)
        elif call.answered:
            self._end(number, "")
        elif call.body is not None and call.body.done:
            self._broke(number, call.failed or "the server ended its answer without a result.")
        elif not data:
            self._broke(number, "the server closed the connection before it answered.")

    def failed(self, number: int, why: str) -> None:
        """Take that a call's connection failed."""
        if number in self._calls:
            self._broke(number, why)

    def _open(self, call: _Call, data: bytes, after_s: float = 0.0) -> None:
        self._made += 1
        self._calls[self._made] = call
        self._effects.append(Open(self._made, data, after_s))

    def _say(self, message: Message) -> None:
        self._effects.append(Line(self._token.out_of(message)))

    def _broke(self, number: int, why: str) -> None:
        """Take up a stream that has ended too soon where it can be, and else end its call."""
        call = self._calls[number]
        if not _can_go_on(call):
            self._end(number, why)
            return
        assert call.events is not None, "only a stream goes on"
        del self._calls[number]
        self._effects.append(Drop(number))
        least_s = LISTEN_AGAIN_S if call.listens else AGAIN_S
        after_s = max(least_s, min((call.events.retry_ms or 0) / 1000, AGAIN_MOST_S))
        next_one = _Call(
            call.request, call.listens, call.size, call.session, first=call.first,
            polls=call.polls + 1, last_id=call.events.last_id,
        )  # fmt: skip
        self._open(next_one, self._get(call.events.last_id), after_s)

    def _end(self, number: int, why: str) -> None:
        """Close a call; one that owes an answer gets an error."""
        call = self._calls.pop(number)
        self._effects.append(Drop(number))
        if call.renews:
            self._renewed(begun=call.answered)
        elif call.request is not None and not call.answered:
            self._say(error(call.request.id, INTERNAL, f"the tool at {self._url.host}: {why}"))

    def _renew(self, number: int, call: _Call) -> None:
        """Ask again, in another session, what the server doesn't know the session of."""
        del self._calls[number]
        self._effects.append(Drop(number))
        assert call.request is not None, "only a request's call is unknown"
        if self._renewing:
            self._waiting.append((call.request, call.size))
        elif call.session != self._session:
            self._send(call.request, call.size, again=True)  # there is another by now
        else:
            self._begin_again(call.request, call.size)

    def _begin_again(self, request: Request, size: int) -> None:
        """Begin another session, and have a request wait for it."""
        assert self._hello is not None, "a session begins with it"
        self._waiting.append((request, size))
        self._renewing = True
        self._session = self._version = None
        self._open(_Call(self._hello, first=True, renews=True), self._post(self._hello))

    def _renewed(self, *, begun: bool) -> None:
        """Say what waited for a session, or that there is none: the next request tries again."""
        self._renewing, self._lost = False, not begun
        waiting, self._waiting = self._waiting, []
        if begun:
            self._send(Notification("notifications/initialized", None))
        for message, size in waiting:
            if begun:
                self._send(message, size, again=True)
            elif isinstance(message, Request):
                why = f"the tool at {self._url.host}: its session ended, and it begins no other."
                self._say(error(message.id, INTERNAL, why))

    def _of_cancelled(self, message: Message) -> list[int]:
        """Return the calls that a message takes back."""
        if not isinstance(message, Notification) or message.method != "notifications/cancelled":
            return []
        wanted = (message.params or {}).get("requestId")
        return [n for n, call in self._calls.items() if call.request and call.request.id == wanted]

    def _cancelled(self, message: Message) -> bool:
        """Take back a request of the current revision: there, the connection's end says so."""
        if not isinstance(message, Notification):
            return False
        for number in self._of_cancelled(message):
            self._calls[number].answered = True
            self._end(number, "")
        return True

    # Requests.

    def _post(self, message: Message) -> bytes:
        body = write(message)
        fields = [
            *self._common(),
            (b"Accept", f"{JSON}, {SSE}".encode()),
            (b"Content-Type", JSON.encode()),
            (b"Content-Length", b"%d" % len(body)),
        ]
        if _is_modern(message) and isinstance(message, Request):
            fields.append((b"Mcp-Protocol-Version", MODERN.encode()))
            fields.append((b"Mcp-Method", _encoded(message.method)))
            name = name_of(message)
            if isinstance(name, str):
                fields.append((b"Mcp-Name", _encoded(name)))
        else:
            fields += self._of_session()
        return write_request("POST", self._target(), print_fields(tuple(fields))) + body

    def _get(self, last_id: bytes = b"") -> bytes:
        fields = [*self._common(), (b"Accept", SSE.encode()), *self._of_session()]
        if last_id:
            fields.append((b"Last-Event-ID", last_id))
        return write_request("GET", self._target(), print_fields(tuple(fields)))

    def _target(self) -> bytes:
        return self._url.target.encode("ascii")

    def _common(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"Host", self._url.authority.encode("ascii")),
            (b"Connection", b"close"),
            *self._fields,
        ]

    def _of_session(self) -> list[tuple[bytes, bytes]]:
        fields = []
        if self._session is not None:
            fields.append((b"Mcp-Session-Id", self._session))
        if self._version is not None:
            fields.append((b"Mcp-Protocol-Version", _encoded(self._version)))
        return fields

    # Answers.

    def _read(self, call: _Call, data: bytes) -> None:
        ended = not data
        if call.body is None:
            rest = self._read_head(call, data)
            if rest is None or call.unknown:
                return
            data = rest
        assert call.body is not None
        if ended and not call.body.done:
            call.body.ended()
        for piece in call.body.feed(data):
            self._take(call, piece)
        if call.body.done and call.text:
            self._message(call, bytes(call.text))
            call.text.clear()

    def _read_head(self, call: _Call, data: bytes) -> bytes | None:
        """Read the head of the final answer; return the bytes behind it."""
        while data:
            found = call.heads.feed(data)
            if found is None:
                return None
            head, data = found
            if head.status >= 200:
                self._begin(call, head)
                return data
            call.heads = AnswerReader()
        return None

    def _begin(self, call: _Call, head: ResponseHead) -> None:
        takes_up = call.listens or bool(call.last_id)
        call.body = BodyReader(answer_framing(head, "GET" if takes_up else "POST"), BadAnswer)
        kind = (head.one(b"content-type") or b"").partition(b";")[0].strip().lower()
        asked = call.request is not None and call.session is not None
        if head.status == 404 and asked and not call.again and not takes_up:
            call.unknown = True
        elif 300 <= head.status < 400:
            # The token would go where the server says, in the clear or to anybody.
            call.refused = f"it redirects ({head.status}), which is never followed."
        elif head.status >= 400 and kind != JSON.encode():
            call.refused = _failure(head.status)
        elif kind == SSE.encode():
            call.events = SseReader(MESSAGE_MAX_BYTES, call.last_id)
        elif takes_up:
            call.refused = "it offers no stream."
        if head.status >= 400:
            call.failed = _failure(head.status)  # where its JSON is none of the protocol's
        session = head.one(b"mcp-session-id")
        if call.first and head.status == 200 and session is not None:
            self._session = session

    def _take(self, call: _Call, piece: bytes) -> None:
        if len(piece) + sum(each.held for each in self._calls.values()) > HEARD_MAX_BYTES:
            raise BadAnswer("too much of answers is held that aren't whole.")
        if call.events is not None:
            for each in call.events.feed(piece):
                self._message(call, each)
            if call.events.lost:
                raise BadAnswer("an event of the answer is too long.")
            return
        call.text += piece
        if len(call.text) > MESSAGE_MAX_BYTES:
            raise BadAnswer("the answer is too long.")

    def _message(self, call: _Call, data: bytes) -> None:
        """Take one message of the server's.

        An answer counts only where it was asked for; an error's status with no answer in it
        ends its call all the same.
        """
        try:
            message = read(data)
        except MalformedMessage:
            return
        if isinstance(message, Answer):
            request = call.request
            if request is None or call.answered:
                return
            id_: Id | None = message.id
            if id_ is None and message.error is not None:
                message = Answer(request.id, error=message.error)
            elif id_ != request.id:
                return
            if call.renews and message.error is not None:
                call.refused = "it begins no other session."
                return
            call.answered = True
            if call.first and isinstance(message.result, dict):
                version = message.result.get("protocolVersion")
                self._version = version if isinstance(version, str) else None
        if not call.renews:
            self._say(message)


def _failure(status: int) -> str:
    cure = ": its token is missing, old or wrong; add the tool again with --header-file"
    return f"it answers {status}{cure if status in (401, 403) else ''}."


def _can_go_on(call: _Call) -> bool:
    """Tell whether a call's stream may be taken up where it ended."""
    if call.events is None or call.events.lost or call.cancelled or call.renews:
        return False
    if call.request is None:
        return call.listens
    named = call.events.last_id != b"" and not _is_modern(call.request)
    return named and call.polls < POLLS_MAX


def _is_modern(message: Message) -> bool:
    """Tell whether a message is of the current revision; a notification doesn't say."""
    if isinstance(message, Request):
        return meta_of(message.params).get(VERSION_KEY) == MODERN
    return True


def _encoded(value: str) -> bytes:
    """Print a value as a header field's (2026-07-28, value encoding)."""
    plain = value.isascii() and value.isprintable() and value == value.strip() and value != ""
    if plain and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value.encode("ascii")
    return b"=?base64?" + binascii.b2a_base64(value.encode(), newline=False) + b"?="
