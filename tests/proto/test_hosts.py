"""Hosts and the lists that admit them: `proto/policy/hosts.py`."""

from __future__ import annotations

import socket

import idna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies_hosts import addresses, labels, names, noise, spellings, v6_ints, v6_spellings
from proto.errors import MalformedRequest, Refused
from proto.policy.hosts import (
    NAME_MAX_CHARS,
    REMEMBERED,
    Policy,
    Scope,
    Target,
    canonical_host,
    is_literal,
)


def malformed(text: str | bytes) -> str:
    """Return the message that `text` is refused with."""
    with pytest.raises(MalformedRequest) as raised:
        canonical_host(text)
    assert raised.value.status_hint == 400
    return raised.value.message


def refused(policy: Policy, host: str, port: int = 443) -> Refused:
    with pytest.raises(Refused) as raised:
        policy.admit(host, port)
    assert raised.value.status_hint == 403
    return raised.value


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("EXAMPLE.com", "example.com"),
        ("example.com.", "example.com"),
        (b"Example.COM", "example.com"),
        ("com", "com"),
        ("-a-._dmarc.x--y", "-a-._dmarc.x--y"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("bücher.Example.", "xn--bcher-kva.example"),
        ("bücher.example".encode(), "xn--bcher-kva.example"),
        ("203.0.113.10", "203.0.113.10"),
        ("127.0.0.1.example.com", "127.0.0.1.example.com"),
        ("1e3", "1e3"),
        ("0xg", "0xg"),
        ("[2001:DB8:0:0:0::10]", "2001:db8::10"),
        ("[::ffff:203.0.113.10]", "203.0.113.10"),
        ("[0:0:0:0:0:FFFF:7F00:0001]", "127.0.0.1"),
        ("[::7f00:1]", "::127.0.0.1"),
    ],
)
def test_a_host_has_one_form(text: str | bytes, host: str) -> None:
    assert canonical_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0x",
        "0X7F.0x0.0x0.0x1",
        "0177.0.0.1",
        "127.000.000.001",
        "127.0.0.01",
        "127.0.0.1.",
        "0x7f.1.",
        "1.2.3.4.5",
        "example.com.127",
        "+127.0.0.1",
        "256.0.0.1",
        "١٢٧.0.0.1",
    ],
)
def test_an_ipv4_address_in_another_spelling_is_malformed(text: str) -> None:
    assert "is no IPv4 address" in malformed(text) or "no host name" in malformed(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        ".example.com",
        "example..com",
        "example.com..",
        "*.example.com",
        "example.com:443",
        "user@example.com",
        "example.com/",
        "example.com?",
        "example.com#",
        "exam\\ple.com",
        "exam%70le.com",
        "exam ple.com",
        "example.com\n",
        "example.com\0",
        "a,b",
        "x" * 64,
        "x." * 126 + "xx",
        "::1",
        "2001:db8::1",
    ],
)
def test_what_is_no_host_is_malformed(text: str) -> None:
    malformed(text)


@pytest.mark.parametrize(
    "text",
    ["[]", "[::1", "[::1%lo]", "[::1%25lo]", "[203.0.113.9]", "[example.com]", "[[::1]]", "[::1]x"],
)
def test_brackets_hold_an_ipv6_address_and_nothing_else(text: str) -> None:
    assert "no IPv6 address in brackets" in malformed(text)


@pytest.mark.parametrize(
    "text",
    [
        "example。com",
        "example．com",
        "example｡com",
        "example.coℳ",
        "\u212aelvin.example",
        "straße.de",
        "βόλος.com",
        "BÜCHER.example",
        "exam\u200bple.com",
        "exam\u00adple.com",
        "example.com\u200b",
        "１２７.0.0.1",
        "evil.test／.example.com",
        "½.com",
        "é..com",
        "é" * 64 + ".com",
        "\ud800.com",
        # Python's codec keeps these, and UTS #46 drops them or maps them to others.
        "exam\u115fple.com",
        "exam\u1160ple.com",
        "exam\u17b4ple.com",
        "exam\u180fple.com",
        "exam\u2064ple.com",
        "\u1c81.example",
        "\u13f8.example",
        "\u10fc.example",
        "\u2c00.example",
        # A symbol isn't IDNA2008's, and what isn't assigned may be mapped tomorrow.
        "\u2603.example",
        "\u0378.example",
        "\U0001f600.example",
    ],
)
def test_a_name_that_idna_would_change_is_refused_not_changed(text: str) -> None:
    assert "xn-- form" in malformed(text)


LETTERS = st.one_of(
    st.characters(codec="utf-8"),
    st.characters(codec="utf-8", categories=["Ll", "Lo", "Lm", "Mn", "Mc"]),
    st.sampled_from("az09-"),
)


@given(st.lists(LETTERS, min_size=1, max_size=4))
def test_a_browser_reads_no_name_otherwise(letters: list[str]) -> None:
    """UTS #46 is the other reading: of a name that is taken it makes the same labels."""
    label = "a" + "".join(letters)
    try:
        host = canonical_host(f"{label}.test")
    except MalformedRequest:
        return
    mapped = idna.uts46_remap(f"{label}.test", std3_rules=False, transitional=False)
    labels = mapped.split(".")
    assert host == ".".join(
        each if each.isascii() else "xn--" + each.encode("punycode").decode() for each in labels
    )


def test_bytes_that_are_no_text_are_malformed() -> None:
    assert "no text" in malformed(b"\xff.com")


def test_the_longest_name_is_a_name_and_a_longer_one_is_none() -> None:
    longest = "x" * 63 + "." + "y" * 63 + "." + "z" * 63 + "." + "w" * 61
    assert len(longest) == NAME_MAX_CHARS
    assert canonical_host(longest + ".") == longest
    malformed(longest + "w")


@pytest.mark.parametrize("text", ["é" * 300, "x." * 200, "[" + ":" * 300 + "]", b"\xff" * 300])
def test_a_text_longer_than_any_name_is_refused_unread(text: str | bytes) -> None:
    assert "longer" in malformed(text)


def test_a_message_is_short_and_harmless_whatever_the_host() -> None:
    assert len(malformed("\r\nSet-Cookie: x" * 1000)) < 200
    assert "\n" not in malformed("a\r\nb")


@pytest.mark.parametrize("host", ["203.0.113.10", "2001:db8::1", "::127.0.0.1"])
def test_an_address_is_a_literal(host: str) -> None:
    assert is_literal(host)


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1.example.com", "a1", "x.1e3"])
def test_a_name_is_no_literal(host: str) -> None:
    assert not is_literal(host)


def test_no_list_is_any_host_and_an_empty_one_is_none() -> None:
    assert Policy.of(None).admit("example.com", 80).scope is Scope.INTERNET
    assert refused(Policy.of([]), "example.com").key == "internet.hosts"


def test_a_listed_name_is_admitted_at_any_port_and_its_neighbours_are_not() -> None:
    policy = Policy.of(["EXAMPLE.com."])
    for port in (1, 443, 65535):
        assert policy.admit("example.com", port).host == "example.com"
    for host in ("www.example.com", "com", "xexample.com", "example.com.evil.test", "example.comm"):
        refused(policy, host)


def test_a_pattern_covers_what_is_below_it_and_not_itself() -> None:
    policy = Policy.of(["*.Example.com"])
    for host in ("a.example.com", "b.a.example.com", "*x.example.com".replace("*", "_")):
        assert policy.admit(host, 443).host == host
    for host in ("example.com", "xexample.com", "a-example.com", "a.example.com.evil.test", "com"):
        refused(policy, host)


def test_a_pattern_never_covers_an_address() -> None:
    policy = Policy.of(["*.113.10", "*.10"])
    refused(policy, "203.0.113.10", 22)
    refused(Policy.of(["*.0"]), "2001:db8::10", 22)


def test_an_address_is_matched_by_the_same_address_alone() -> None:
    policy = Policy.of(["203.0.113.10", "2001:DB8::0:10", "[2001:db8::20]", "::ffff:203.0.113.30"])
    for host in ("203.0.113.10", "2001:db8::10", "2001:db8::20", "203.0.113.30"):
        assert policy.admit(host, 22).literal
    for host in ("203.0.113.11", "2001:db8::11", "example.com"):
        refused(policy, host, 22)


def test_an_international_name_is_listed_in_either_form() -> None:
    policy = Policy.of(["bücher.example", "*.bücher.example"])
    assert policy.admit("xn--bcher-kva.example", 443).host == "xn--bcher-kva.example"
    assert policy.admit("www.xn--bcher-kva.example", 443)


def test_an_endpoint_is_admitted_at_its_port_alone() -> None:
    tcp = [
        "DB.example.com:5432",
        "db.example.com:5433",
        "*.mongo.example.net:27017",
        "[2001:db8::1]:22",
    ]
    policy = Policy.of([], tcp=tcp)
    for host, port in (
        ("db.example.com", 5432),
        ("db.example.com", 5433),
        ("s0.mongo.example.net", 27017),
        ("2001:db8::1", 22),
    ):
        assert policy.admit(host, port).scope is Scope.INTERNET
    for host, port in (
        ("db.example.com", 5434),
        ("x.db.example.com", 5432),
        ("mongo.example.net", 27017),
        ("s0.mongo.example.net", 27018),
        ("other.test", 5432),
    ):
        refused(policy, host, port)


def test_a_listed_machine_of_the_lan_is_admitted_to_the_lan() -> None:
    policy = Policy.of([], lan=["192.168.1.20:8080", "Printer.local:631", "[fd12::20]:80"])
    for host, port in (("192.168.1.20", 8080), ("printer.local", 631), ("fd12::20", 80)):
        assert policy.admit(host, port).scope is Scope.LAN
    for host, port in (("192.168.1.20", 22), ("printer.local", 80), ("192.168.1.30", 631)):
        refused(policy, host, port)


def test_the_lan_wins_only_for_its_very_port() -> None:
    policy = Policy.of(["box.example.com"], lan=["box.example.com:8080"])
    assert policy.admit("box.example.com", 8080).scope is Scope.LAN
    assert policy.admit("box.example.com", 443).scope is Scope.INTERNET


def test_no_internet_leaves_the_lan_and_nothing_else() -> None:
    policy = Policy.of(None, lan=["192.168.1.20:80"], tcp=["db.example.com:5432"], no_internet=True)
    assert policy.admit("192.168.1.20", 80).scope is Scope.LAN
    for host, port in (("example.com", 443), ("db.example.com", 5432), ("203.0.113.10", 80)):
        error = refused(policy, host, port)
        assert error.key == "internet.hosts"
        assert "closed" in error.message


@pytest.mark.parametrize("host", ["localhost", "foo.localhost"])
def test_localhost_is_refused_by_name_whatever_lists_it(host: str) -> None:
    for policy in (Policy.of(None), Policy.of([host]), Policy.of([], tcp=[f"{host}:8080"])):
        error = refused(policy, host, 8080)
        assert error.key == "localhost.ports"
        assert "add 8080 to [localhost] ports" in error.message


def test_the_hello_is_read_at_port_443_of_a_tunnel_under_a_list() -> None:
    listed = Policy.of(["example.com", "203.0.113.10"], tcp=["db.test:443"], lan=["nas.local:443"])
    assert listed.admit("example.com", 443).reads_hello
    assert listed.admit("203.0.113.10", 443).reads_hello
    assert listed.admit("db.test", 443).reads_hello
    assert not listed.admit("example.com", 8443).reads_hello
    assert not listed.admit("example.com", 443, "forward").reads_hello
    assert not listed.admit("nas.local", 443).reads_hello
    assert not Policy.of(None).admit("example.com", 443).reads_hello


def test_a_refusal_names_the_host_and_the_key_that_would_allow_it() -> None:
    error = refused(Policy.of(["example.com"]), "example.org")
    assert error.message == (
        'example.org:443 is not among this sandbox\'s hosts; add "example.org" to '
        "[internet] hosts (--internet-host example.org)."
    )
    assert error.phrase == "Forbidden: add example.org to internet.hosts"


def test_a_refused_address_of_a_private_network_is_pointed_at_the_lan() -> None:
    for policy in (Policy.of([]), Policy.of(None, no_internet=True)):
        error = refused(policy, "192.168.1.20", 22)
        assert error.key == "lan.hosts"
        assert '"192.168.1.20:22"' in error.message
    assert refused(Policy.of([]), "127.0.0.1", 22).key == "localhost.ports"
    assert refused(Policy.of([]), "169.254.169.254", 80).key is None


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (["*"], "stands alone"),
        (["example.com", "*"], "stands alone"),
        (["example.com:443"], "write 'example.com' there"),
        (["[2001:db8::1]:443"], "write '[2001:db8::1]' there"),
        (["*.example.com:443"], "write '*.example.com' there"),
        (["https://example.com/"], "in [internet] hosts is a URL: write its host alone"),
        (["example.com:0"], "'example.com:0' in [internet] hosts is no host. Write a name"),
        (["*.exam ple.com"], "'*.exam ple.com' in [internet] hosts is no host. Write a name"),
        (["exam ple.com"], "is no host"),
        (["*."], "is no host"),
        (["*.*.example.com"], "is no host"),
        (["a.*.example.com"], "is no host"),
        (["*.a..b"], "is no host"),
        (["*." + "x." * 126 + "x"], "is no host"),
        (["*.straße.de"], "is no host"),
        (["127.1"], "is no host: '127.1' is no IPv4 address of four plain decimal numbers. Write"),
        (["10.0.0.0/8"], "is no host"),
        ([""], "is no host"),
        ("example.com", "is a list"),
    ],
)
def test_a_bad_entry_of_the_hosts_is_named_with_its_cure(hosts: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=r"\[internet\] hosts") as raised:
        Policy.of(hosts)
    assert said in str(raised.value)
    assert str(raised.value).endswith(".")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("db.example.com", "has no port"),
        ("db.example.com:", "has no port"),
        ("db.example.com:0", "has no port"),
        ("db.example.com:080", "has no port"),
        ("db.example.com:65536", "has no port"),
        ("db.example.com:*", "has no port"),
        ("2001:db8::1:443", "[address]:port"),
        ("https://example.com:443", 'is a URL: write its host, as "host:port"'),
        (":443", "is no host"),
        ("*:443", "is no host"),
    ],
)
def test_a_bad_endpoint_is_named_with_its_cure(entry: str, said: str) -> None:
    for key, lists in (("tcp", {"tcp": [entry]}), ("lan", {"lan": [entry]})):
        with pytest.raises(ValueError, match=key) as raised:
            Policy.of([], **lists)
        assert said in str(raised.value)


def test_a_pattern_in_the_lan_is_refused() -> None:
    with pytest.raises(ValueError, match="name each machine"):
        Policy.of([], lan=["*.local:631"])


@given(names.flatmap(lambda name: st.tuples(st.just(name), spellings(name))))
def test_every_spelling_of_a_name_is_the_name(both: tuple[str, str]) -> None:
    name, text = both
    assert canonical_host(text) == canonical_host(text.encode()) == name


@given(v6_ints.flatmap(lambda value: st.tuples(st.just(value), v6_spellings(value))))
def test_every_spelling_of_an_ipv6_address_is_one_host(both: tuple[int, str]) -> None:
    value, text = both
    plain = socket.inet_ntop(socket.AF_INET6, value.to_bytes(16, "big"))
    assert canonical_host(f"[{text}]") == plain.removeprefix(
        "::ffff:" if "::ffff:" in plain and "." in plain else "#"
    )


@given(noise)
def test_a_canonical_host_is_its_own_canonical_host(text: str) -> None:
    try:
        host = canonical_host(text)
    except MalformedRequest:
        assert malformed(text).isascii()
        return
    assert host.isascii()
    assert host == host.lower()
    assert canonical_host(f"[{host}]" if ":" in host else host) == host
    assert is_literal(host) == _is_address(host)


@given(noise)
def test_a_host_that_is_read_is_no_address_to_anybody_but_us(text: str) -> None:
    """What inet_aton(3) would take for an address is one in its plain form, or refused."""
    try:
        host = canonical_host(text)
    except MalformedRequest:
        return
    try:
        quad = socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return
    assert host == quad


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False


_entries = names | st.builds(lambda name: f"*.{name}", names) | addresses


def allowed_by_the_book(entries: list[str], host: str) -> bool:
    """Match the slow way: an entry a time, and nothing shared with what is tested."""
    for entry in entries:
        if entry.startswith("*."):
            if not _is_address(host) and host.endswith(entry[1:]) and host != entry[2:]:
                return True
        elif _same_host(entry, host):
            return True
    return False


def _same_host(entry: str, host: str) -> bool:
    return canonical_host(f"[{entry}]" if ":" in entry else entry) == host


@st.composite
def lists_and_hosts(draw: st.DrawFn) -> tuple[list[str], str]:
    """Draw a list, and a host that is on it, near it or far from it."""
    entries = draw(st.lists(_entries, max_size=6))
    near = [entry.removeprefix("*.") for entry in entries]
    base = draw(st.sampled_from(near) | names if near else names | addresses)
    host = draw(
        st.just(base)
        | labels.map(lambda label: f"{label}.{base}")
        | labels.map(lambda label: f"{label}{base}")
        | st.just(base.partition(".")[2] or base)
    )
    return entries, host


@given(lists_and_hosts())
def test_a_list_admits_what_its_entries_say(both: tuple[list[str], str]) -> None:
    entries, text = both
    try:
        host = canonical_host(f"[{text}]" if ":" in text else text)
    except MalformedRequest:
        return
    try:
        target: Target | None = Policy.of(entries).admit(host, 443)
    except Refused:
        target = None
    localhost = host == "localhost" or host.endswith(".localhost")
    assert (target is not None) == (allowed_by_the_book(entries, host) and not localhost)
    if target is not None:
        assert (target.host, target.literal) == (host, _is_address(host))


@given(lists_and_hosts(), st.integers(1, 65535), st.integers(1, 65535))
def test_an_endpoint_list_admits_its_port_alone(
    both: tuple[list[str], str], port: int, asked: int
) -> None:
    entries, text = both
    try:
        host = canonical_host(f"[{text}]" if ":" in text else text)
    except MalformedRequest:
        return
    tcp = [f"[{entry}]:{port}" if ":" in entry else f"{entry}:{port}" for entry in entries]
    try:
        Policy.of([], tcp=tcp).admit(host, asked)
    except Refused:
        localhost = host == "localhost" or host.endswith(".localhost")
        assert asked != port or localhost or not allowed_by_the_book(entries, host)
    else:
        assert asked == port
        assert allowed_by_the_book(entries, host)


def test_a_host_is_judged_by_its_port_and_by_what_asks_however_often_it_was_admitted() -> None:
    policy = Policy.of([], tcp=["example.com:443"])
    for _ in range(2):
        assert policy.admit("example.com", 443, "connect").reads_hello
        assert not policy.admit("example.com", 443, "http").reads_hello
        for verb in ("connect", "http"):
            with pytest.raises(Refused):
                policy.admit("example.com", 80, verb)


def test_admitted_hosts_are_remembered_within_bounds() -> None:
    policy = Policy.of(None)
    for number in range(2 * REMEMBERED + 1):
        assert policy.admit(f"h{number}.example.com", 80).host == f"h{number}.example.com"
        assert len(policy._admitted) <= REMEMBERED
