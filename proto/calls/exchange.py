"""One plain request and its answer: bytes of either side in, bytes for the other out.

Both directions move at once and hold at most one piece each: a side is listened to only
while nothing waits for the other, which is how a slow reader slows its sender.  An
answer that begins before the request has gone whole is passed on as it comes.

What is read is never handed on as it was framed: each body is taken apart by the strict
codec and framed anew, so that the server and the client read just what was read here.
"""

from __future__ import annotations

from typing import Protocol

from proto.calls.limits import INTERIM_MAX
from proto.calls.rewrite import (
    PlainRequest,
    answer_for_client,
    asks_for_websocket,
    became_websocket,
    framing_for_client,
    request_for_server,
    switch_for_client,
)
from proto.codecs.body import LAST_CHUNK, BodyReader, chunk
from proto.codecs.http1 import (
    NONE,
    AnswerReader,
    Kind,
    ResponseHead,
    answer_framing,
    wants_close,
)
from proto.commands import CLIENT, UPSTREAM, Side
from proto.errors import BadAnswer, MalformedRequest

REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that ask for nothing to be done (RFC 9110 §9.2.1)."""

SERVER, CLIENT_ONLY, BOTH = (UPSTREAM,), (CLIENT,), (UPSTREAM, CLIENT)


class Edit(Protocol):
    """What a verb does to an answer on its way; as long as it was, byte for byte of its body."""

    def head(self, head: ResponseHead) -> ResponseHead:
        """Return the final answer's head as its client gets it; its framing is said anew."""

    def body(self, data: bytes) -> bytes:
        """Take what came of the body; return what goes on now, perhaps less."""

    def end(self) -> bytes:
        """Return what of the body was held back; it has ended in good order."""


class Exchange:
    """The state of one request and its answer.  It asks for nothing: `carry` moves its bytes.

    `to_upstream`, `to_client`: bytes that wait to be sent.  `early`: bytes that came
    behind the request, at most one piece; they never go to its server, but behind a
    switch to a WebSocket.  `whole`: the request has been read whole.  `heard`: the server
    has said something.  `answered`: its final answer has begun; `ended`: it has been read
    whole.  `switched`: both sides are a WebSocket's from here on.

    `repeatable`: the request may be sent twice.  `closing`: the client's connection ends
    with the answer.  `until_close`: nothing but that end tells the client where its body ends.
    """

    __slots__ = (
        "_answer",
        "_chunks",
        "_chunks_down",
        "_chunks_up",
        "_client_ended",
        "_edit",
        "_heads",
        "_interims",
        "_method",
        "_request",
        "_upstream_kept",
        "answered",
        "closing",
        "early",
        "ended",
        "heard",
        "repeatable",
        "switched",
        "to_client",
        "to_upstream",
        "until_close",
        "upgrade",
        "whole",
    )

    def __init__(self, request: PlainRequest, early: bytes, edit: Edit | None = None) -> None:
        """Begin; MalformedRequest (400) where `early` can't begin the request's body."""
        head, framing = request.head, request.framing
        bare = framing.kind is Kind.NONE
        self._method = head.method
        self._chunks = head.version == (1, 1)
        self._request = None if bare else BodyReader(framing, MalformedRequest)
        self._chunks_up = framing.kind is Kind.CHUNKED
        self._client_ended = False
        self._heads = AnswerReader()
        self._interims = 0
        self._answer: BodyReader | None = None
        self._chunks_down = False
        self._edit = edit
        self._upstream_kept = not request.alone
        self.upgrade = not request.alone and asks_for_websocket(head, framing)
        self.repeatable = bare and head.method in REPEATABLE and not self.upgrade
        self.closing = wants_close(head) or self.upgrade or request.last
        self.to_upstream = request_for_server(request, upgrade=self.upgrade, last=self.closing)
        self.to_client = b""
        self.early = b""
        self.whole = framing.length == 0 and framing.kind in (Kind.NONE, Kind.LENGTH)
        self.heard = self.answered = self.ended = self.switched = self.until_close = False
        if early:
            self._hear_client(early)

    @property
    def over(self) -> bool:
        """Whether nothing is left to move."""
        return self.switched or (self.ended and not self.to_client)

    @property
    def reusable(self) -> bool:
        """Whether the server's connection may carry another request.

        Not with bytes behind its answer: they would be taken for the next one's.  Nor with
        bytes behind its request, which came unasked: what smuggles a request puts it there,
        and a server that took the first one's end elsewhere gets nothing more to read.
        """
        assert self._answer is not None
        behind = self.early or self._answer.rest
        return self._upstream_kept and self.whole and not self.to_upstream and not behind

    @property
    def trailers(self) -> bytes:
        """The field lines behind the answer's body, as they came, where any have."""
        return b"" if self._answer is None else self._answer.trailers

    @property
    def listening(self) -> tuple[Side, ...]:
        """The sides that may speak now.

        Behind its request a client is heard too, until it says something: so its
        leaving is seen while the server thinks.
        """
        server = not self.to_client and not self.ended
        if self._client_ended or (self.early if self.whole else self.to_upstream):
            return SERVER if server else ()
        return BOTH if server else CLIENT_ONLY

    def hear(self, side: Side, data: bytes) -> None:
        """Take what a side says; no bytes mean that it has ended.

        Raises MalformedRequest (400) for a request that is malformed or cut short,
        BadAnswer (502) for such an answer.
        """
        if side is UPSTREAM:
            self._hear_upstream(data)
        elif data:
            self._hear_client(data)
        else:
            # The end of a whole request is a half-close: its answer is still due.
            self._client_ended = True
            if self._request is not None:
                self._request.ended()

    def sent(self, to_client: int, to_upstream: int) -> None:
        """Take the counts of bytes that have gone."""
        self.to_client = self.to_client[to_client:]
        self.to_upstream = self.to_upstream[to_upstream:]

    def stop_upload(self) -> None:
        """Give the rest of the request up: its server reads no more, but may still answer."""
        self.to_upstream = b""
        self._client_ended = True
        self._upstream_kept = False
        self.closing = True

    def _hear_client(self, data: bytes) -> None:
        if self._request is None or self.whole:
            self.early += data
            return
        pieces = self._request.feed(data)
        if pieces:
            payload = b"".join(pieces)
            self.to_upstream += chunk(payload) if self._chunks_up else payload
        if self._request.done:
            self.whole, self.early = True, self._request.rest
            self.to_upstream += LAST_CHUNK if self._chunks_up else b""

    def _hear_upstream(self, data: bytes) -> None:
        if self._answer is None:
            if not data:
                raise BadAnswer("the server closed the connection before it answered.")
            self.heard = True
            data = self._read_heads(data)
            if self._answer is None:
                return
        elif not data:
            self._answer.ended()
        payload = b"".join(self._answer.feed(data))
        if self._edit is not None:
            payload = self._edit.body(payload) if payload else b""
            payload += self._edit.end() if self._answer.done else b""
        if payload:
            self.to_client += chunk(payload) if self._chunks_down else payload
        if self._answer.done:
            self.ended = True
            self.to_client += LAST_CHUNK if self._chunks_down else b""

    def _read_heads(self, data: bytes) -> bytes:
        """Read heads up to the final answer's; return the bytes behind the last one read."""
        while self._answer is None and not self.switched:
            found = self._heads.feed(data)
            if found is None:
                return b""
            head, data = found
            if head.status == 101:
                self._switch(head, data)
            elif head.status < 200:
                self._pass_interim(head)
            else:
                self._begin(head)
        return data

    def _switch(self, head: ResponseHead, data: bytes) -> None:
        """Go over to a WebSocket, if the client asked for one and the server agreed to that.

        Otherwise a server could turn the client's connection, and what it says next,
        into anything (RFC 9110 §7.8).
        """
        if not self.upgrade or not became_websocket(head):
            raise BadAnswer("the server switched to a protocol that nobody asked for.")
        self.switched = True
        self.to_client += switch_for_client(head) + data
        self.to_upstream += self.early

    def _pass_interim(self, head: ResponseHead) -> None:
        """Pass a 1xx on, but to a client of HTTP/1.0, which knows none (RFC 9110 §15.2)."""
        self._interims += 1
        if self._interims > INTERIM_MAX:
            raise BadAnswer("the server sent interim answers without end.")
        if self._edit is not None:  # what a field of it says, nobody has looked at
            head = ResponseHead(head.version, head.status, b"", ())
        if self._chunks:
            self.to_client += answer_for_client(head, NONE, last=False)
        self._heads = AnswerReader()

    def _begin(self, head: ResponseHead) -> None:
        """Begin the final answer.

        Where the request isn't whole yet the connection ends with the answer: what would
        come then is a body, and must not be read as a request.
        """
        framing = answer_framing(head, self._method)
        if self._edit is not None:
            head = self._edit.head(head)
        onward = framing_for_client(framing, chunks=self._chunks)
        self.answered = True
        self.closing = self.closing or not self.whole
        if framing.kind is Kind.UNTIL_CLOSE or wants_close(head):
            self._upstream_kept = False
        self._chunks_down = onward.kind is Kind.CHUNKED
        self.until_close = onward.kind is Kind.UNTIL_CLOSE
        self._answer = BodyReader(framing, BadAnswer)
        self.to_client += answer_for_client(head, onward, last=self.closing)
