"""Fuzz target: pages asked about (`proto.verbs.open_page`); its corpus is `corpus/open_page`."""

from __future__ import annotations

from proto.verbs.open_page import PORT_MIN, PageRefused, question, read_page


def one_input(data: bytes) -> None:
    """Judge a page: what is shown is plain, whole, and reads the same again."""
    try:
        page = read_page(data)
    except PageRefused:
        return
    text = question(page)
    assert page.url in text
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert "<" not in text
    assert not set("$'") & set(page.url), "a shell that opens it could read more in it"
    assert page.url.startswith(("http://", "https://"))
    assert "@" not in page.url.split("/")[2]
    assert read_page(page.url.encode()) == page
    if page.callback is not None:
        assert page.callback.port >= PORT_MIN
