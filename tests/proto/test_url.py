"""URLs: `proto/codecs/url.py`."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.codecs.url import URL_MAX_CHARS, MalformedUrl, Url, read_url

READ = [
    ("https://example.com", "https://example.com/"),
    ("HTTPS://Example.COM:443/A?b#C", "https://example.com/A?b#C"),
    ("http://example.com:80", "http://example.com/"),
    ("https://example.com:8443?q=1", "https://example.com:8443/?q=1"),
    ("http://[::1]:8080/x", "http://[::1]:8080/x"),
    ("https://bücher.example/", "https://xn--bcher-kva.example/"),
    ("https://example.com/ü?ä#ö", "https://example.com/%C3%BC?%C3%A4#%C3%B6"),
    ('https://example.com/"<>^`{|}', "https://example.com/%22%3C%3E%5E%60%7B%7C%7D"),
    ("https://example.com/a%20b", "https://example.com/a%20b"),
    ("https://example.com.", "https://example.com/"),
    ("https://example.com/@x:y", "https://example.com/@x:y"),
]
REFUSED = [
    "",
    "example.com",
    "//example.com/",
    "http:/example.com/",
    "http:example.com",
    "https://",
    "https:///x",
    "ftp://example.com/",
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "view-source:https://example.com/",
    "https://a@example.com/",
    "https://a:b@example.com/",
    "https://example.com@evil.test/",
    "https://example.com\\@evil.test/",
    "https://example.com\\x",
    "https://exa mple.com/",
    " https://example.com/",
    "https://example.com/ ",
    "https://example.com/a\tb",
    "https://example.com/a\nb",
    "https://example.com/\x00",
    "https://example.com/\x7f",
    "https://example.com/\u202ex",
    "https://example.com/\u200b",
    "https://example.com/\u3000",
    "https://example.com/\ud800",
    "https://example.com/%",
    "https://example.com/%zz",
    "https://example.com:",
    "https://example.com:0/",
    "https://example.com:080/",
    "https://example.com:65536/",
    "https://example.com:1x/",
    "https://example.com:٣/",
    "https://2130706433/",
    "https://127.1/",
    "https://0x7f000001/",
    "https://[::1/",
    "https://[::1%25lo]/",
    "https://example%2ecom/",
    "https://ⓔxample.com/",
    "https://example。com/",
    "https://a,b/",
    "https://" + "a" * URL_MAX_CHARS,
]


@pytest.mark.parametrize(("text", "shown"), READ)
def test_a_url_is_printed_in_ascii_as_a_browser_reads_it(text, shown):
    url = read_url(text)
    assert str(url) == shown
    assert read_url(shown) == url
    assert urlsplit(shown).hostname == url.host


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_browser_would_mend_is_refused(text):
    with pytest.raises(MalformedUrl):
        read_url(text)


def test_the_port_is_the_schemes_where_none_is_given():
    assert read_url("http://a.example").port == 80
    assert read_url("https://a.example").port == 443
    assert read_url("https://a.example:80/") == Url("https", "a.example", 80, "/", None)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_what_is_read_is_plain_and_reads_the_same_again(text):
    for start in ("", "https://example.com/", "http://"):
        try:
            url = read_url(start + text)
        except MalformedUrl:
            continue
        assert str(url).isascii()
        assert str(url).isprintable()
        assert read_url(str(url)) == url
