"""Answers to the calls of a tool's clients: JSON, or a stream of events (MCP, streamable HTTP).

An answer is JSON where it is the first thing there is to say and comes soon; else it is a
stream, begun when something must be said before it, or when a client would take silence
for a dead server.
"""

from __future__ import annotations

from proto.calls.refuse import plain
from proto.codecs.body import chunk, last_chunk
from proto.codecs.fields import Fields, print_fields
from proto.codecs.http1 import write_response_head
from proto.codecs.jsonrpc import Message, write
from proto.verbs.mcp_rules import JSON, SSE

SSE_AFTER_S = 5.0
"""How long a client waits before its stream begins: clients give up on a silent server
after as little as 30 s, and a person is asked for two minutes."""
KEEPALIVE_S = 5.0
"""Between two comments on a silent stream; they also tell that a client has left."""

ALIVE = chunk(b": still here\n\n")

PHRASES = {
    200: b"OK",
    202: b"Accepted",
    204: b"No Content",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    415: b"Unsupported Media Type",
    503: b"Service Unavailable",
}


def refusal(why: str) -> Fields:
    """Return the field by which the wire's log has it that an answer refuses, and why."""
    return ((b"Link-Refused", plain(why)),) if why else ()


def whole(status: int, message: Message | None, extra: Fields = ()) -> bytes:
    """Print a whole answer, of one message or none."""
    body = b"" if message is None else write(message)
    fields = [(b"Connection", b"close"), *extra]
    if message is not None:
        fields.append((b"Content-Type", JSON.encode()))
    if status != 204:
        fields.append((b"Content-Length", b"%d" % len(body)))
    return write_response_head(status, PHRASES[status], print_fields(tuple(fields))) + body


def stream_head(extra: Fields = ()) -> bytes:
    """Print the head of a stream of events, whose chunks follow."""
    fields = (
        (b"Connection", b"close"),
        *extra,
        (b"Content-Type", SSE.encode()),
        (b"Cache-Control", b"no-store"),
        (b"X-Accel-Buffering", b"no"),
        (b"Transfer-Encoding", b"chunked"),
    )
    return write_response_head(200, b"OK", print_fields(fields))


def event(message: Message) -> bytes:
    """Print one message as an event, in a chunk of its own."""
    return chunk(b"event: message\ndata: " + write(message) + b"\n\n")


class Call:
    """One request's answer as it goes out.

    `json`, `sse`: what its client takes.  `opened`: its stream has begun.  Every method
    returns the bytes to send; after `end` there are no more.  refused: why the call was
    refused, for the wire's log: in the head, or where that has gone, behind the body.
    """

    __slots__ = ("extra", "json", "number", "opened", "silent_since", "sse")

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.json = self.sse = True
        self.opened = False
        self.extra: Fields = ()
        self.silent_since = now

    def open(self, now: float) -> bytes:
        """Begin the stream, if it hasn't."""
        self.silent_since = now
        if self.opened:
            return b""
        self.opened = True
        return stream_head(self.extra)

    def say(self, message: Message, now: float) -> bytes:
        """Say something before the answer; nothing to a client that takes no stream."""
        return self.open(now) + event(message) if self.sse else b""

    def end(self, message: Message, status: int, now: float, refused: str = "") -> bytes:
        """Answer."""
        if not self.opened and self.json:
            return whole(status, message, (*self.extra, *refusal(refused)))
        return self.open(now) + event(message) + last_chunk(refusal(refused))

    def hang_up(self, now: float, refused: str = "") -> bytes:
        """End without an answer, as a cancelled request does."""
        if not self.opened and not self.sse:
            return whole(202, None, (*self.extra, *refusal(refused)))
        return self.open(now) + last_chunk(refusal(refused))

    def late(self, now: float) -> bytes:
        """Return what must be said so that the client goes on waiting."""
        silent = now - self.silent_since
        if not self.opened:
            return self.open(now) if self.sse and silent >= SSE_AFTER_S else b""
        if silent < KEEPALIVE_S:
            return b""
        self.silent_since = now
        return ALIVE
