"""Answers of the proxy's own, and the end of a call that went wrong.

A refusal says in one sentence what was refused and which key would allow it: in its
body, and short in the reason phrase, since few clients show a refused CONNECT's body.
"""

from __future__ import annotations

import re

from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.codecs.fields import Fields, print_fields
from proto.codecs.http1 import write_response_head
from proto.commands import CLIENT, Close, Send
from proto.errors import (
    AuthenticationRequired,
    CallCancelled,
    ProxyError,
    RateLimited,
    UpstreamError,
)
from proto.events import Cancelled, Failed, Sent
from proto.script import Script

PHRASE_MAX_CHARS = 120
"""A client that prints a status line prints about this much of it."""

_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")

CHALLENGE = (b"Proxy-Authenticate", b'Basic realm="lnk sandbox"')
CLOSE = (b"Connection", b"close")


def answer_for(
    error: ProxyError, method: str = "", *, keep: bool = False, more: Fields = ()
) -> bytes:
    """Return the whole answer that tells a client of an error, with its length.

    An answer to HEAD has no body (RFC 9110 §9.3.2): the bytes would be taken for the
    next answer.  Without `keep` it says that the connection ends with it.  `more`: fields
    beside its own.
    """
    assert error.status_hint is not None, f"nobody to tell of {error!r}"
    words = plain(f"{error.message} {error.aside}") + b"\n"
    kind, body = error.told or (b"text/plain", words)
    fields = [(b"Content-Type", kind), (b"Content-Length", b"%d" % len(body)), *more]
    if isinstance(error, AuthenticationRequired):
        fields.append(CHALLENGE)
    if isinstance(error, RateLimited):
        fields.append((b"Retry-After", b"%d" % error.retry_after_s))
    if not keep:
        fields.append(CLOSE)
    head = write_response_head(error.status_hint, _phrase_of(error), print_fields(tuple(fields)))
    return head if method == "HEAD" else head + body


def _phrase_of(error: ProxyError) -> bytes:
    """Return the reason phrase; one too long to be shown gives way to its key's name."""
    if len(error.phrase) <= PHRASE_MAX_CHARS:
        return plain(error.phrase)
    named = getattr(error, "named", None)
    return plain(f"{type(error).phrase}: see {named}" if named else type(error).phrase)


def plain(text: str) -> bytes:
    """Return text as printable ASCII: a line ending in it would be a field of its own."""
    return _UNPRINTABLE.sub("?", text).strip().encode("ascii")


def end_badly(
    ledger: Ledger, error: ProxyError, limits: Limits, method: str = "", more: Fields = ()
) -> Script[None]:
    """Log a call's last line, tell the client what went wrong if it can be told, and close.

    A refusal that makes the wire look wrong pauses it, which is logged first.

    Where an answer has begun, what is due of it still goes, before the last line, which counts
    it; where the server cut it short, the shell then ends the client's connection as the
    server ended its own, so that a reset stays one.  Where the connection's end is all that
    tells of the answer's (HTTP/1.0), it ends in a reset whoever cut it.  A cancelled call says
    only what nobody has said yet, and shortly.
    """
    status = 0 if ledger.answered else error.status_hint or 0
    cancelled = isinstance(error, CallCancelled)
    by = ledger.now + (limits.parting_s if cancelled else limits.grace_s)
    heard = bool(status) or (ledger.answered and not cancelled)
    if heard and ledger.due:
        heard = isinstance((yield from send_due(ledger, by)), Sent)
    cut = ledger.answered and ledger.until_close
    if cut:  # before the last line, which doesn't count what the reset keeps from leaving
        closed = yield Close(CLIENT, by if heard else ledger.now + limits.parting_s, broken=True)
        ledger.now = closed.now
    pause = ledger.pause(error)
    if pause is not None:
        yield pause
    yield ledger.fail(error, status)
    if cut or not heard:
        return
    if status:
        words = answer_for(error, method, more=more)
        if not isinstance((yield Send(by, to_client=words)), Sent):
            return
    if status or not isinstance(error, UpstreamError):
        yield Close(CLIENT, by)


def send_due(ledger: Ledger, by: float) -> Script[Sent | Failed | Cancelled]:
    """Send what is due of an answer, as much as goes by then; the ledger is told how much."""
    event = yield Send(by, to_client=ledger.due)
    assert isinstance(event, Sent | Failed | Cancelled), f"Send answered by {event!r}"
    gone = event.to_client if isinstance(event, Sent) else event.down
    ledger.now = event.now
    ledger.down += gone
    ledger.due = ledger.due[gone:]
    return event
