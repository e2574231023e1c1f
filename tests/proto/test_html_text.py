"""The text of an HTML page: `proto/codecs/html_text.py`."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.codecs.html_text import MARKUP_MAX_BYTES, HtmlText


def text_of(*pieces: bytes) -> bytes:
    made = HtmlText()
    return b"".join(map(made.feed, pieces)) + made.end()


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (b"", b""),
        (b"<p>logged in", b"logged in\n"),
        (b"<!DOCTYPE html><html><head><title>Done</title></head><body>\n <h1>All  set</h1>\n"
         b"<p>Close <b>this</b> page.</body></html>\n", b"All set\nClose this page.\n"),
        (b"<title>done</title>logged in", b"logged in\n"),
        (b"a<br>b<br/>c", b"a\nb\nc\n"),
        (b"1 &lt; 2 &amp;&amp; 3 &#62; 2 &quot;&apos;&nbsp;&#39;", b"1 < 2 && 3 > 2 \"' '\n"),
        (b"&#8217; &copy; &#10; &", b"&#8217; &copy; &#10; &\n"),
        (b"<SCRIPT>if (a < b) { c(); }</script x>yes", b"yes\n"),
        (b"<style>p { color: red }</style><template><p>no</template>yes", b"yes\n"),
        (b"<!-- a > b --><!---->x<!-- </p> -->y<!-- z", b"xy\n"),
        (b"<script>never closed", b""),
        (b'<a href="https://bank.example/?a>b" title=\'>\'>on</a>', b"on\n"),
        (b"<?xml version='1'?>x<![CDATA[y>z", b"xz\n"),
        (b"1<2 and 3 <4<", b"1<2 and 3 <4<\n"),
        (b"<p never closed", b"<p never closed\n"),
        (b'<p title="never closed>', b'<p title="never closed>\n'),
        (b"<" + b"a" * MARKUP_MAX_BYTES + b">", b"<" + b"a" * MARKUP_MAX_BYTES + b">\n"),
        ("Fertig: schließen".encode(), "Fertig: schließen\n".encode()),
    ],
)  # fmt: skip
def test_the_text_of_a_page_is_what_is_read_of_it(page: bytes, text: bytes) -> None:
    assert text_of(page) == text
    assert text_of(*(page[at : at + 1] for at in range(len(page)))) == text


PIECES = st.sampled_from(
    [b"<p>", b"</p", b">", b"<", b"<!--", b"-->", b"--", b"<script>", b"</script", b"&", b"amp;",
     b"&lt;", b'"', b"'", b" ", b"\n", b"x", b"<!", b"<?", b"<title>", b"</TITLE>", b"/", b"#39;",
     b"&nbsp", b"<a" * (MARKUP_MAX_BYTES // 2)]
)  # fmt: skip


@given(st.lists(PIECES | st.binary(max_size=4), max_size=20))
def test_how_a_page_is_cut_changes_nothing(pieces: list[bytes]) -> None:
    page = b"".join(pieces)
    whole = text_of(page)
    assert text_of(*pieces) == whole
    if len(page) < 200:
        assert text_of(*(page[at : at + 1] for at in range(len(page)))) == whole


@pytest.mark.parametrize(
    "again", [b"<a", b"<!--", b"<!a", b"<a '", b"<a \"<b '", b"&", b"<", b"x "]
)
def test_a_page_that_ends_nowhere_is_read_soon(again: bytes) -> None:
    page = again * ((1 << 20) // len(again))
    begun = time.process_time()
    text_of(*(page[at : at + 65536] for at in range(0, len(page), 65536)))
    assert time.process_time() - begun < 10
