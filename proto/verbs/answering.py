"""A provider's answer, as the program gets it: byte for byte, piece by piece.

The body's bytes are the provider's; only a key in it is struck out.  The fields that concern
the provider's own host stay outside: a cookie, another address for the same service, or an
order to speak TLS would all be taken for the proxy's.  A redirect isn't followed, and isn't
passed on: the call was for this provider, and its client would take the placeholder, and
what it has to say, to wherever the answer points.
"""

from __future__ import annotations

from proto.codecs.http1 import ResponseHead
from proto.errors import BadAnswer
from proto.verbs.masking import Mask
from proto.verbs.metering import Meter, Tokens
from proto.verbs.providers import Usage

KEPT_OUTSIDE = frozenset(
    {
        b"alt-svc",
        b"clear-site-data",
        b"content-location",
        b"link",
        b"location",
        b"nel",
        b"refresh",
        b"report-to",
        b"set-cookie",
        b"strict-transport-security",
    }
)


class ModelAnswer:
    """What becomes of one answer on its way.  It is as long as it was, byte for byte."""

    __slots__ = ("_mask", "_meter", "_usage")

    def __init__(self, usage: Usage, key: bytes) -> None:
        self._usage = usage
        self._mask = Mask(key)
        self._meter: Meter | None = None

    def head(self, head: ResponseHead) -> ResponseHead:
        """Return the answer's head as the program gets it.

        Raises BadAnswer (502) for one that isn't passed on.
        """
        if 300 <= head.status < 400:
            raise BadAnswer("the provider answered with a redirect, which isn't followed.")
        coding = head.one(b"content-encoding")
        if coding is not None and coding.lower() != b"identity":
            # It was asked for none.  In a coding, neither a key nor the usage can be seen.
            raise BadAnswer("the provider answered in a coding that it wasn't asked for.")
        if self._usage is not Usage.NONE and 200 <= head.status < 300:
            self._meter = Meter(self._usage, head)
        whole = self._mask.whole
        fields = tuple(
            (whole(name), whole(value))
            for name, value in head.fields
            if name.lower() not in KEPT_OUTSIDE
        )
        return ResponseHead(head.version, head.status, whole(head.reason), fields)

    def body(self, data: bytes) -> bytes:
        """Take what came of the body; return what goes on now."""
        if self._meter is not None:
            self._meter.feed(data)
        return self._mask.feed(data)

    def end(self) -> bytes:
        """Return what was held back at the body's end."""
        return self._mask.end()

    def tokens(self) -> Tokens:
        """Return what the answer took, as far as it came; nothing if it was none for one."""
        return Tokens() if self._meter is None else self._meter.tokens()
