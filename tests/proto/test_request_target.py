"""Targets and hosts of requests: `proto/codecs/target.py`."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies_http import hosts, paths, ports
from proto.codecs.heads import RequestHead
from proto.codecs.target import (
    AbsoluteTarget,
    AsteriskTarget,
    ConnectTarget,
    OriginTarget,
    RequestTarget,
    parse_absolute,
    read_target,
    split_authority,
)
from proto.errors import MalformedRequest, NotImplementedHere


def target_of(method: str, target: bytes, *hosts: bytes) -> RequestTarget:
    fields = tuple((b"Host", host) for host in hosts)
    return read_target(RequestHead(method, target, (1, 1) if hosts else (1, 0), fields))


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [
        (b"example.com:443", "example.com", 443),
        (b"EXAMPLE.com.:1", "example.com", 1),
        (b"XN--BCHER-KVA.example:443", "xn--bcher-kva.example", 443),
        (b"my_bucket.example.com:65535", "my_bucket.example.com", 65535),
        (b"203.0.113.9:80", "203.0.113.9", 80),
        (b"[2001:DB8:0::1]:8443", "2001:db8::1", 8443),
        (b"[::ffff:203.0.113.9]:80", "203.0.113.9", 80),
    ],
)
def test_an_authority_is_a_canonical_host_and_a_port(target: bytes, host: str, port: int) -> None:
    assert split_authority(target) == (host, port)
    assert target_of("CONNECT", target, target) == ConnectTarget(host, port)
    assert target_of("CONNECT", target) == ConnectTarget(host, port)


NO_AUTHORITIES = [
    b"example.com",
    b"example.com:",
    b":443",
    b"example.com:0",
    b"example.com:65536",
    b"example.com:99999",
    b"example.com:0443",
    b"example.com:+443",
    b"example.com:-443",
    b"example.com:4_43",
    b"example.com:0x1bb",
    b"example.com:443.0",
    b"example.com:https",
    b"example.com:443:443",
    b"example.com:80,443",
    b"example.com:\xb2",
    b"user@example.com:443",
    b"@example.com:443",
    b"example.com:443@evil.test:443",
    b"example.com%00.evil.test:443",
    b"exam%70le.com:443",
    b"evil.test?.example.com:443",
    b"evil.test#.example.com:443",
    b"evil.test/.example.com:443",
    b"evil.test\\.example.com:443",
    b"a,b.example.com:443",
    b"a;b.example.com:443",
    b".example.com:443",
    b"a..example.com:443",
    b"example.com..:443",
    b"*.example.com:443",
    b"[203.0.113.9]:443",
    b"[2001:db8::1]",
    b"[2001:db8::1:443",
    b"2001:db8::1]:443",
    b"2001:db8::1:443",
    b"[2001:db8::1%eth0]:443",
    b"[2001:db8::1%25eth0]:443",
    b"[]:443",
    b"[2001:db8::1]]:443",
    b"[[2001:db8::1]:443",
    b"[2001:db8:::1]:443",
    b"[2001:db8::1]x:443",
    b"example\xe3\x80\x82com:443",
    b"ex\xd0\xb0mple.com:443",
    b"127.1:443",
    b"0x7f.1:443",
    b"http://example.com:443/",
    b"/example.com:443",
    b"*",
    b"example.com:443/",
    b"example.com:443?x",
]


@pytest.mark.parametrize("target", NO_AUTHORITIES)
def test_what_two_readers_could_take_for_two_hosts_is_no_authority(target: bytes) -> None:
    with pytest.raises(MalformedRequest):
        split_authority(target)
    with pytest.raises(MalformedRequest):
        target_of("CONNECT", target)


@pytest.mark.parametrize(
    ("target", "read"),
    [
        (b"http://example.com/", AbsoluteTarget("example.com", 80, b"/")),
        (b"HTTP://EXAMPLE.COM/A", AbsoluteTarget("example.com", 80, b"/A")),
        (b"http://example.com", AbsoluteTarget("example.com", 80, b"/")),
        (b"http://example.com?q=1", AbsoluteTarget("example.com", 80, b"/?q=1")),
        (b"http://example.com/?a=b@c:1/", AbsoluteTarget("example.com", 80, b"/?a=b@c:1/")),
        (b"http://example.com:8080/x", AbsoluteTarget("example.com", 8080, b"/x")),
        (b"http://example.com//evil.test/", AbsoluteTarget("example.com", 80, b"//evil.test/")),
        (b"http://example.com/%2e%2e/%00%0d", AbsoluteTarget("example.com", 80, b"/%2e%2e/%00%0d")),
        (b'http://example.com/{a}|"b"', AbsoluteTarget("example.com", 80, b'/{a}|"b"')),
        (b"http://[2001:db8::1]/", AbsoluteTarget("2001:db8::1", 80, b"/")),
        (b"http://[2001:db8::1]:81?x", AbsoluteTarget("2001:db8::1", 81, b"/?x")),
    ],
)
def test_a_url_is_a_server_and_what_it_is_asked_for(target: bytes, read: AbsoluteTarget) -> None:
    assert parse_absolute(target) == read
    assert target_of("GET", target, read.authority) == read


@pytest.mark.parametrize(
    "target",
    [
        b"http://",
        b"http:///x",
        b"http:/example.com/",
        b"http:example.com/",
        b"http://?@example.com/",
        b"http://#@example.com/",
        b"http://example.com/#f",
        b"http://example.com#f",
        b"http://example.com\\@evil.test/",
        b"http://example.com/a\\b",
        b"http://user:pw@example.com/",
        b"http://@example.com/",
        b"http://example.com:/",
        b"http://example.com:080/",
        b"http://example.com:0/",
        b"http://example.com:65536/",
        b"http://example.com:80:80/",
        b"http://*.example.com/",
        b"http://[2001:db8::1/",
        b"http://[2001:db8::1]x/",
        b"http://[::ffff:127.0.0.1%25lo]/",
        b"http://[]/",
        b"http://[203.0.113.9]/",
        b'"http://example.com/"',
        b"<http://example.com/>",
        b"example.com:443",
        b"example.com",
        b"://example.com/",
        b"1http://example.com/",
        b"mailto:a@example.com",
    ],
)
def test_what_two_readers_could_take_for_two_urls_is_refused(target: bytes) -> None:
    with pytest.raises(MalformedRequest) as caught:
        target_of("GET", target, b"example.com")
    assert caught.type is MalformedRequest


@pytest.mark.parametrize("scheme", [b"https", b"ftp", b"ws", b"file", b"gopher", b"httpx", b"X"])
def test_only_http_is_forwarded(scheme: bytes) -> None:
    with pytest.raises(NotImplementedHere):
        target_of("GET", scheme + b"://example.com/#x", b"example.com")


def test_only_options_asks_about_the_server_itself() -> None:
    asked = AbsoluteTarget("example.com", 80, b"*")
    assert target_of("OPTIONS", b"http://example.com", b"example.com") == asked
    assert target_of("OPTIONS", b"*", b"example.com") == AsteriskTarget()


@pytest.mark.parametrize("method", ["GET", "POST", "options", "TRACE", "PRI"])
def test_only_options_may_ask_about_the_proxy_itself(method: str) -> None:
    """RFC 9112 §3.2.4: the asterisk is no target of any other method."""
    with pytest.raises(MalformedRequest):
        target_of(method, b"*", b"example.com")
    path = AbsoluteTarget("example.com", 80, b"/")
    assert target_of("OPTIONS", b"http://example.com/", b"example.com") == path


def test_a_path_is_the_proxy_s_own_whatever_host_it_names() -> None:
    assert target_of("GET", b"/_link/x", b"example.com") == OriginTarget(b"/_link/x")
    assert target_of("GET", b"//example.com/", b"x") == OriginTarget(b"//example.com/")


@pytest.mark.parametrize("target", [("GET", b"/_link/x"), ("OPTIONS", b"*")])
@pytest.mark.parametrize(
    "host", [b"a b", b"user@x", b"x:0", b"x:", b"x/y", b"x,y", b"[::1", b"127.1"]
)
def test_what_the_proxy_itself_is_asked_for_names_a_host_or_none(
    target: tuple[str, bytes], host: bytes
) -> None:
    """RFC 9112 §3.2: an invalid `Host` is refused whatever the target is; an empty one isn't."""
    with pytest.raises(MalformedRequest):
        target_of(*target, host)
    assert target_of(*target, b"") == target_of(*target, b"[::1]:8080")


def test_connect_has_case() -> None:
    with pytest.raises(MalformedRequest):
        target_of("connect", b"example.com:443", b"example.com:443")


@pytest.mark.parametrize("host", [b"example.com", b"EXAMPLE.com:8443", b"example.com.:8443"])
def test_a_connect_s_host_may_leave_the_port_out(host: bytes) -> None:
    wanted = ConnectTarget("example.com", 8443)
    assert target_of("CONNECT", b"example.com:8443", host) == wanted


@pytest.mark.parametrize("host", [b"example.com", b"EXAMPLE.com", b"example.com:80"])
def test_the_default_port_may_be_spelt_out_or_not(host: bytes) -> None:
    for target in (b"http://example.com/", b"http://example.com:80/"):
        assert target_of("GET", target, host) == AbsoluteTarget("example.com", 80, b"/")


@pytest.mark.parametrize(
    "host",
    [
        b"evil.test",
        b"www.example.com",
        b"example.com:8080",
        b"example.com:443",
        b"example.com/evil",
        b"example.com:80:80",
        b"example.com:",
        b"",
        b"example.com, evil.test",
        b"example.com evil.test",
        b"user@example.com",
        b"[::1]",
        b"example.com\xa0",
        b"\xe9xample.com",
        b"http://example.com",
    ],
)
def test_a_host_that_differs_from_the_target_is_refused(host: bytes) -> None:
    with pytest.raises(MalformedRequest):
        target_of("GET", b"http://example.com/", host)
    with pytest.raises(MalformedRequest):
        target_of("CONNECT", b"example.com:22", host)


def test_two_hosts_are_refused_though_they_agree() -> None:
    with pytest.raises(MalformedRequest, match="more than once"):
        target_of("GET", b"/", b"example.com", b"example.com")


@given(hosts, ports, paths)
def test_any_url_is_read_as_it_was_written(host: str, port: int, path: bytes) -> None:
    read = AbsoluteTarget(host, port, path)
    assert parse_absolute(b"http://%b:%d%b" % (host.encode(), port, path)) == read
    assert parse_absolute(b"http://%b%b" % (read.authority, path)) == read


@given(st.from_regex(rb"(http://)?[\x21-\x7e]{1,40}", fullmatch=True), st.binary(max_size=20))
def test_only_documented_errors_come_of_any_target(target: bytes, host: bytes) -> None:
    for method in ("GET", "CONNECT", "OPTIONS"):
        with suppress(MalformedRequest, NotImplementedHere):
            target_of(method, target, host)
