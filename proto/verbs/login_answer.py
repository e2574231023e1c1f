"""A login's answer between the person's browser and the program inside (R54).

The browser takes whatever listens at a port of localhost for one site with all that the person
runs there, and keeps one set of cookies for them.  So neither side gets more of the other than
the login needs: of the request no cookie and no password goes in, and of what the program says
there is text to be read, which can neither run nor fetch anything, nor lead to another page:
nobody was asked about one.  A page of HTML in a CSP's sandbox has links, and one may be as large
as the window: so of HTML the text alone is shown.
"""

from __future__ import annotations

import re

from proto.codecs.body import BodyReader
from proto.codecs.fields import HOP_BY_HOP, print_fields
from proto.codecs.html_text import HtmlText
from proto.codecs.http1 import (
    AnswerReader,
    RequestHead,
    answer_framing,
    write_request,
    write_response_head,
)
from proto.errors import BadAnswer

THE_PERSONS = frozenset({b"authorization", b"cookie", b"cookie2"})
"""What a browser tells every port of localhost."""

SAID_ANEW = HOP_BY_HOP | {b"content-length", b"expect", b"accept-encoding"}

TYPES = re.compile(rb"text/(html|plain)(; ?charset=[0-9A-Za-z_-]{1,32})?", re.IGNORECASE)
"""What is read: HTML, of which the text is shown, and text, as anything else is."""
UTF_8 = b"; charset=utf-8"
"""The charset of HTML that doesn't say its own here."""

INERT = (
    (b"Cache-Control", b"no-store"),
    (b"Connection", b"close"),
    (
        b"Content-Security-Policy",
        b"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        b"form-action 'none'",
    ),
    (b"Referrer-Policy", b"no-referrer"),
    (b"X-Content-Type-Options", b"nosniff"),
)

DONE = b"The program has the login's answer. You can close this page.\n"
"""Instead of where the program would lead the browser."""


def inward(head: RequestHead, body: bytes) -> bytes:
    """Return the browser's request as the program gets it; its connection ends with it."""
    lines = head.lines_without(SAID_ANEW | THE_PERSONS)
    framing = ((b"Content-Length", b"%d" % len(body)),) if body or head.method == "POST" else ()
    fields = print_fields((*framing, (b"Connection", b"close")))
    return write_request(head.method, head.target, lines + fields) + body


class Shown:
    """The program's answer as the browser gets it; `over` once there is no more of it."""

    __slots__ = ("_body", "_heads", "_html", "_method", "over")

    def __init__(self, method: str) -> None:
        self._method = method
        self._heads = AnswerReader()
        self._body: BodyReader | None = None
        self._html: HtmlText | None = None
        self.over = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes; return what goes to the browser.  Raises BadAnswer (502)."""
        said = b""
        while self._body is None and not self.over:
            found = self._heads.feed(data)
            if found is None:
                return b""
            head, data = found
            self._heads = AnswerReader()
            if head.status < 200:
                continue
            if any(each.lower() != b"identity" for each in head.get_all(b"content-encoding")):
                raise BadAnswer("the program encoded its answer, which wasn't asked for.")
            if 300 <= head.status < 400:
                self.over = True
                return _head(200, b"text/plain") + DONE
            said = _head(head.status, self._kind(head.one(b"content-type") or b""))
            self._body = BodyReader(answer_framing(head, self._method), BadAnswer)
        if self._body is None:
            return b""
        text = b"".join(self._body.feed(data))
        said += text if self._html is None else self._html.feed(text)
        if self._body.done:
            said += self.ended()
        return said

    def ended(self) -> bytes:
        """Return what is left for the browser: there is no more of the answer."""
        html, self._html, self.over = self._html, None, True
        return b"" if html is None else html.end()

    def _kind(self, kind: bytes) -> bytes:
        """Return the type that a body is shown as, and note how it is read."""
        found = TYPES.fullmatch(kind)
        if found is None:
            return b"text/plain"
        if found[1].lower() == b"html":
            self._html = HtmlText()
            return b"text/plain" + (found[2] or UTF_8)
        return kind


def _head(status: int, kind: bytes) -> bytes:
    return write_response_head(status, b"", print_fields(((b"Content-Type", kind), *INERT)))
