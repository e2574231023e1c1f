"""The text of an HTML page, for a reader who may follow none of its links.

What comes out is shown as plain text, so nothing here keeps anybody safe: a tag that is
missed is seen as it is written.  Markup is told from text as WHATWG HTML §13.2.5 does where
pages are well formed, in any coding that has ASCII in it.
"""

from __future__ import annotations

import re

MARKUP_MAX_BYTES = 8 * 1024
"""The longest tag that is waited for; a longer one is text."""

_MARKUP = re.compile(
    rb"<(!)--|<(/?)([A-Za-z][^\s/<>]*+)(?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*>|<(?:\?|!(?!--))[^<>]*+>"
)
"""A comment's beginning, a tag, or what only a parser is told.  A `<` ends each: else of many
that end nowhere each would be looked for to the end of the page."""
_BEGINS_MARKUP = re.compile(rb"<(?:[A-Za-z/!?]|\Z)")
_COMMENT = re.compile(rb"-->")
_RAW = {
    name: re.compile(rb"</%b" % name, re.IGNORECASE)
    for name in (b"script", b"style", b"template", b"title")
}
"""Elements whose content is no text of the page, and where each ends."""
_RAW_MAX_BYTES = len(b"</template")
_LINES = frozenset(
    b"address article aside blockquote body br dd div dl dt fieldset footer form h1 h2 h3 h4 h5"
    b" h6 head header hr html li main nav ol p pre section table td th tr ul".split()
)
"""Elements that stand on lines of their own."""

_CHARACTER = re.compile(rb"&(?:#([0-9]{1,3})|(amp|apos|gt|lt|nbsp|quot));")
_NAMED = {b"amp": b"&", b"apos": b"'", b"gt": b">", b"lt": b"<", b"nbsp": b" ", b"quot": b'"'}
_BEGUN = re.compile(rb"&[#0-9a-z]{0,4}\Z")
SPACES = b" \t\r\n\f"
"""What separates words; bytes.isspace() takes a vertical tab too."""
_WORDS = re.compile(rb"[%b]+|[^%b]+" % (SPACES, SPACES))


class HtmlText:
    """Takes a page in pieces, and gives its text in pieces; how it is cut changes nothing."""

    __slots__ = ("_begun", "_ended", "_gap", "_held", "_raw")

    def __init__(self) -> None:
        self._held = b""
        self._raw: re.Pattern[bytes] | None = None
        self._gap = b""
        self._begun = self._ended = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes; return the text that they complete."""
        page, at = self._held + data, 0
        said: list[bytes] = []
        while True:
            at = self._past_raw(page, at)
            if self._raw is not None:
                break
            begins = _BEGINS_MARKUP.search(page, at)
            text = page[at : begins.start()] if begins else page[at:]
            if begins is None and not self._ended and (half := _BEGUN.search(text)):
                text = text[: half.start()]
            self._say(text, said)
            at += len(text)
            if begins is None:
                break
            markup = _MARKUP.match(page, at, at + MARKUP_MAX_BYTES)
            if markup is not None:
                self._markup(markup)
                at = markup.end()
            elif self._ended or len(page) - at >= MARKUP_MAX_BYTES:
                self._say(b"<", said)
                at += 1
            else:
                break
        self._held = page[at:]
        return b"".join(said)

    def end(self) -> bytes:
        """Return what was held back: the page has ended."""
        self._ended = True
        return self.feed(b"") + (b"\n" if self._begun else b"")

    def _past_raw(self, page: bytes, at: int) -> int:
        """Go past a comment, or an element that is no text, as far as it has come."""
        if self._raw is None:
            return at
        end = self._raw.search(page, at)
        if end is None:
            return max(at, len(page) - _RAW_MAX_BYTES)
        comment, self._raw = self._raw is _COMMENT, None
        return end.end() if comment else end.start()

    def _markup(self, markup: re.Match[bytes]) -> None:
        comment, closes, name = markup[1], markup[2], (markup[3] or b"").lower()
        if name in _LINES:
            self._gap = b"\n"
        if comment:
            self._raw = _COMMENT
        elif not closes and name in _RAW:
            self._raw, self._gap = _RAW[name], b"\n"

    def _say(self, text: bytes, said: list[bytes]) -> None:
        for word in _WORDS.findall(_CHARACTER.sub(_character, text)):
            if word[:1] in SPACES:
                self._gap = self._gap or b" "
                continue
            said += (self._gap if self._begun else b"", word)
            self._gap, self._begun = b"", True


def _character(written: re.Match[bytes]) -> bytes:
    """Return the character that a reference is for, where it is one of ASCII (§13.5)."""
    if written[2]:
        return _NAMED[written[2]]
    number = int(written[1])
    return bytes([number]) if 0x20 <= number < 0x7F else written[0]
