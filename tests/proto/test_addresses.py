"""Addresses that are never dialled: `proto/policy/addresses.py`."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fuzz.strategies_hosts import addresses, noise, v4_ints, v6_ints
from proto.errors import Refused
from proto.events import Place
from proto.policy.addresses import (
    ADDRESSES_MAX,
    CLASSES,
    METADATA,
    literal_refusal,
    metadata_of,
    reachable,
    refusal_of,
    to_locate,
)
from proto.policy.target import Scope, Target

INTERNET, LAN = Scope.INTERNET, Scope.LAN
ELSEWHERE = Place.ELSEWHERE


def target(scope: Scope = INTERNET) -> Target:
    return Target("listed.test", 443, scope, literal=False, reads_hello=False)


def embedded(address: str) -> tuple[str, ...]:
    """Return the IPv4 addresses that an address carries, which are looked at as well."""
    return to_locate([address])[1:]


def dialled(*found: str, scope: Scope = INTERNET, **places: Place) -> tuple[str, ...]:
    """Return what is dialled of `found`; `places` by address, its dots and colons as _."""
    asked = to_locate(found)
    where = [places.get(_key(address), ELSEWHERE) for address in asked]
    return reachable(found, where, target(scope))


def _key(address: str) -> str:
    return "a" + address.replace(".", "_").replace(":", "_")


def refused(*found: str, scope: Scope = INTERNET, **places: Place) -> Refused:
    with pytest.raises(Refused) as raised:
        dialled(*found, scope=scope, **places)
    assert raised.value.status_hint == 403
    assert "listed.test:443" in raised.value.message
    return raised.value


REFUSED = [
    ("0.0.0.0", "unspecified"),
    ("0.255.255.255", "unspecified"),
    ("10.0.0.0", "private"),
    ("10.255.255.255", "private"),
    ("100.64.0.0", "shared"),
    ("100.127.255.255", "shared"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.255", "loopback"),
    ("169.254.0.0", "link-local"),
    ("169.254.255.255", "link-local"),
    ("172.16.0.0", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.1", "no address of the internet"),
    ("192.168.0.0", "private"),
    ("192.168.255.255", "private"),
    ("198.18.0.1", "test network"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.255", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.254", "reserved"),
    ("255.255.255.255", "broadcast"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("::7f00:1", "obsolete"),
    ("::203.0.113.10", "obsolete"),
    ("::ffff:127.0.0.1", "loopback"),
    ("::ffff:10.0.0.1", "private"),
    ("::ffff:0:203.0.113.10", "translator"),
    ("64:ff9b::127.0.0.1", "loopback"),
    ("64:ff9b::a00:1", "private"),
    ("64:ff9b:1::cb00:710a", "translator"),
    ("64:ff9b:1:7f00:0:100::", "translator"),
    ("64:ff9b:0:1::cb00:710a", "no address of the internet"),
    ("100::1", "no address of the internet"),
    ("2002:7f00:1::", "loopback"),
    ("2002:c0a8:101::1", "private"),
    ("2001:0:c000:201:0:0:80ff:fffe", "loopback"),
    ("2001:0:a00:1::34ff:8ef5", "private"),
    ("2001:2::1", "no address of the internet"),
    ("2001:10::1", "no address of the internet"),
    ("2001:20::1", "no address of the internet"),
    ("2001:db8::5efe:10.0.0.1", "private"),
    ("2001:db8::200:5efe:127.0.0.1", "loopback"),
    ("2002:cb00:710a::5efe:127.0.0.1", "loopback"),
    ("2002:7f00:1::5efe:203.0.113.10", "loopback"),
    ("4000::1", "no address of the internet"),
    ("5f00::1", "no address of the internet"),
    ("fc00::1", "private"),
    ("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private"),
    ("fe80::1", "link-local"),
    ("febf:ffff::1", "link-local"),
    ("fec0::1", "site-local"),
    ("ff02::1", "multicast"),
    ("ff0e::1", "multicast"),
    ("fe80::1%eth0", "could be read"),
    ("127.1", "could be read"),
    ("example.com", "could be read"),
]


@pytest.mark.parametrize(("address", "words"), REFUSED)
def test_an_address_of_a_refused_class_is_refused_in_its_words(address: str, words: str) -> None:
    said = refusal_of(address, INTERNET)
    assert said is not None
    assert words in said


OPEN = [
    "1.0.0.0",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "168.63.129.15",
    "168.63.129.17",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.0",
    "192.0.2.1",
    "192.88.99.1",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "198.51.100.1",
    "203.0.113.255",
    "223.255.255.255",
    "2000::1",
    "2001:200::1",
    "2001:db8::1",
    "2001:4860::1",
    "2003::1",
    "2606:4700::1111",
    "2a00:1450::1",
    "3fff::1",
    "3fff:ffff::1",
    "64:ff9b::cb00:710a",
    "2002:cb00:710a::1",
    "2001:0:c000:201::34ff:8ef5",
    "2001:db8::5efe:203.0.113.10",
    "2001:db8::5efd:10.0.0.1",
    "::ffff:203.0.113.10",
]


@pytest.mark.parametrize("address", OPEN)
def test_an_address_of_the_internet_or_of_documentation_is_open(address: str) -> None:
    assert refusal_of(address, INTERNET) is None


@pytest.mark.parametrize(("network", "provider"), METADATA)
def test_metadata_is_refused_in_either_scope_by_its_provider_s_name(
    network: str, provider: str
) -> None:
    address = network.partition("/")[0]
    address = "fd00:ec2::254" if address == "fd00:ec2::" else address
    for scope in (INTERNET, LAN):
        said = refusal_of(address, scope)
        assert said is not None
        assert provider in said
    words = metadata_of(address)
    assert words is not None
    assert provider in words


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "2001:0:c000:201::5601:5601",
        "2002:a83f:8110::",
    ],
)
def test_metadata_inside_another_address_is_metadata(address: str) -> None:
    for scope in (INTERNET, LAN):
        said = refusal_of(address, scope)
        assert said is not None
        assert "metadata" in said
    assert metadata_of(address) is not None


@pytest.mark.parametrize("address", ["203.0.113.10", "2001:db8::1", "10.0.0.1", "example.com"])
def test_what_is_no_metadata_service_has_no_words_for_one(address: str) -> None:
    assert metadata_of(address) is None


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("203.0.113.10", ()),
        ("2001:db8::1", ()),
        ("::ffff:203.0.113.10", ()),
        ("64:ff9b::cb00:710a", ("203.0.113.10",)),
        ("2002:cb00:710a::1", ("203.0.113.10",)),
        ("2001:0:c000:201::34ff:8ef5", ("192.0.2.1", "203.0.113.10")),
        ("2001:db8::5efe:203.0.113.10", ("203.0.113.10",)),
        ("2001:db8::200:5efe:203.0.113.10", ("203.0.113.10",)),
        ("2001:db8::300:5efe:203.0.113.10", ()),
        ("2002:cb00:710a::5efe:203.0.113.11", ("203.0.113.10", "203.0.113.11")),
        ("no address", ()),
    ],
)
def test_the_ipv4_addresses_inside_an_ipv6_one(address: str, inside: tuple[str, ...]) -> None:
    assert embedded(address) == inside


def test_the_lan_opens_private_networks_and_nothing_else_that_is_refused() -> None:
    for address in (
        "10.0.0.1",
        "192.168.1.20",
        "172.16.0.1",
        "100.64.0.1",
        "fd12::20",
        "198.18.0.1",
    ):
        assert refusal_of(address, LAN) is None
    for address, words in REFUSED:
        said = refusal_of(address, LAN)
        if not any(word in words for word in ("private", "shared", "test network")):
            assert said is not None, address


def test_families_take_turns_the_resolver_s_first_one_first() -> None:
    v4, v6 = ["203.0.113.1", "203.0.113.2", "203.0.113.3"], ["2001:db8::1", "2001:db8::2"]
    assert to_locate(v6 + v4) == (v6[0], v4[0], v6[1], v4[1], v4[2])
    assert to_locate(v4 + v6) == (v4[0], v6[0], v4[1], v6[1], v4[2])
    assert to_locate(v4) == tuple(v4)
    assert to_locate([]) == ()


def test_each_address_is_dialled_once_and_a_mapped_one_as_what_it_is() -> None:
    assert to_locate(["::ffff:203.0.113.1", "203.0.113.1", "fe80::1%2", "name"]) == ("203.0.113.1",)


def test_of_a_name_with_thousands_of_addresses_a_few_of_both_families_are_judged() -> None:
    many = [f"2001:db8::{n:x}" for n in range(1, 500)] + [f"203.0.113.{n}" for n in range(1, 250)]
    asked = to_locate(many)
    assert len(asked) == ADDRESSES_MAX
    assert "203.0.113.1" in asked


def test_what_an_address_carries_is_located_too() -> None:
    assert to_locate(["64:ff9b::cb00:710a", "203.0.113.10"]) == (
        "64:ff9b::cb00:710a",
        "203.0.113.10",
    )
    assert to_locate(["2002:cb00:710a::1"]) == ("2002:cb00:710a::1", "203.0.113.10")


def test_only_the_good_ones_of_a_mixture_are_dialled() -> None:
    assert dialled("10.0.0.5", "203.0.113.10", "192.168.1.9") == ("203.0.113.10",)
    assert dialled("::ffff:10.0.0.1", "2001:db8::10") == ("2001:db8::10",)


def test_a_name_without_a_good_address_is_refused_by_the_first_one_s_class() -> None:
    error = refused("10.0.0.5", "127.0.0.1")
    assert "private network" in error.message
    assert "10.0.0.5" not in error.message
    assert error.key == "lan.hosts"
    assert error.phrase == "Forbidden: add listed.test:443 to lan.hosts"


def test_no_readable_address_at_all_is_a_refusal() -> None:
    assert "could be read" in refused("fe80::1%eth0").message
    assert refused().key is None


def test_this_machine_is_refused_in_any_range_and_scope() -> None:
    for scope in (INTERNET, LAN):
        error = refused("203.0.113.7", a203_0_113_7=Place.THIS_MACHINE, scope=scope)
        assert "is this machine" in error.message
        assert error.key == "localhost.ports"
    assert "is this machine" in refused("10.1.2.3", a10_1_2_3=Place.THIS_MACHINE).message


def test_this_machine_inside_another_address_is_this_machine() -> None:
    for address in ("64:ff9b::c633:6407", "2002:c633:6407::1", "::ffff:198.51.100.7"):
        error = refused(address, a198_51_100_7=Place.THIS_MACHINE)
        assert "is this machine" in error.message


def test_broadcast_and_anycast_are_refused_in_either_scope() -> None:
    for scope in (INTERNET, LAN):
        assert "anycast" in refused("203.0.113.63", a203_0_113_63=Place.MANY, scope=scope).message


def test_what_stands_on_its_networks_is_refused_to_the_internet_and_open_to_the_lan() -> None:
    error = refused("203.0.113.20", a203_0_113_20=Place.OWN_NETWORK)
    assert error.key == "lan.hosts"
    assert "stands on" in error.message
    own = {"a203_0_113_20": Place.OWN_NETWORK}
    assert dialled("203.0.113.20", scope=LAN, **own) == ("203.0.113.20",)
    assert dialled("192.168.1.20", scope=LAN) == ("192.168.1.20",)


def test_the_lan_never_opens_loopback_link_local_or_metadata() -> None:
    for address in (
        "127.0.0.1",
        "169.254.1.1",
        "fe80::1",
        "100.100.100.200",
        "224.0.0.1",
        "0.0.0.0",
    ):
        refused(address, scope=LAN)


def test_a_name_of_the_lan_that_moves_to_the_internet_is_refused() -> None:
    error = refused("203.0.113.10", scope=LAN)
    assert error.key == "internet.tcp"
    assert '"listed.test:443" to [internet] tcp' in error.message
    refused("64:ff9b::c0a8:114", scope=LAN)
    assert dialled("203.0.113.10", "192.168.1.30", scope=LAN) == ("192.168.1.30",)


def test_a_metadata_service_has_no_cure() -> None:
    error = refused("169.254.169.254")
    assert error.key is None
    assert "nothing opens it" in error.message
    assert error.phrase == "Forbidden: a cloud's metadata service"


def test_an_answer_of_the_wrong_length_is_a_bug() -> None:
    with pytest.raises(ValueError, match="zip"):
        reachable(["203.0.113.10"], [], target())


def test_a_literal_is_refused_by_its_class_alone() -> None:
    error = literal_refusal("fd00::1", 80)
    assert error is not None
    assert error.message.startswith("[fd00::1]:80 is an address of a private network")
    assert literal_refusal("203.0.113.10", 80) is None
    assert literal_refusal("example.com", 80) is None


def test_the_tables_hold_networks_in_their_plain_form() -> None:
    rows = [(network, None) for network, _, _ in CLASSES] + [(row[0], row[1]) for row in METADATA]
    assert all(str(ipaddress.ip_network(network)) == network for network, _ in rows)
    assert len({network for network, _ in rows}) == len(rows)


ROWS = [(ipaddress.ip_network(network), kind and kind.words) for network, kind, _ in CLASSES] + [
    (ipaddress.ip_network(network), f"a cloud's metadata service ({provider})")
    for network, provider in METADATA
]


@given(addresses)
def test_the_longest_prefix_that_holds_an_address_decides(text: str) -> None:
    address = _plain(text)
    holding = [(net.prefixlen, words) for net, words in ROWS if address in net]
    words = max(holding, default=(0, None), key=lambda row: row[0])[1]
    if words is not None or not embedded(text):
        assert refusal_of(text, INTERNET) == words


DOCUMENTATION = [
    ipaddress.ip_network(network)
    for network in (
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
        "3fff::/20",
    )
]
EVERYWHERE = ipaddress.ip_network("2000::/3")
PLATFORM = ipaddress.ip_address("168.63.129.16")
GLOBAL_BUT_REFUSED = [
    # Globally reachable says IANA's registry, and refused here: the NAT's own port control
    # and relays (192.0.0.9, .10, 2001:1::), IETF's assignments below 2001::/23.
    ipaddress.ip_network(network)
    for network in ("192.0.0.0/24", "2001::/23", "224.0.0.0/4")
]


def judged_by_the_library(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool | None:
    """Tell whether `ipaddress` calls an address open; None where it has no say."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return judged_by_the_library(address.ipv4_mapped)
    if any(address in network for network in DOCUMENTATION):
        return True
    if address == PLATFORM:
        return False
    if any(address in network for network in GLOBAL_BUT_REFUSED):
        return None
    if address.version == 6 and address not in EVERYWHERE:
        return False if int(address) >> 32 != 0x0064FF9B << 64 else None
    return address.is_global and not address.is_multicast


@given(v4_ints)
def test_ipv4_classes_agree_with_the_standard_library(value: int) -> None:
    address = ipaddress.IPv4Address(value)
    theirs = judged_by_the_library(address)
    assume(theirs is not None)
    assert (refusal_of(str(address), INTERNET) is None) == theirs


@given(v6_ints)
def test_ipv6_classes_agree_with_the_standard_library(value: int) -> None:
    address = ipaddress.IPv6Address(value)
    theirs = judged_by_the_library(address)
    carried = embedded(str(address))
    if theirs is not None and not carried:
        assert (refusal_of(str(address), INTERNET) is None) == theirs
    for inside in carried:
        if judged_by_the_library(ipaddress.IPv4Address(inside)) is False:
            assert refusal_of(str(address), INTERNET) is not None


@given(v6_ints)
def test_what_the_library_finds_inside_an_address_we_find_too(value: int) -> None:
    address = ipaddress.IPv6Address(value)
    inside = set(embedded(str(address)))
    if address.sixtofour is not None:
        assert str(address.sixtofour) in inside
    if address.teredo is not None:
        assert {str(each) for each in address.teredo} <= inside


_places = st.sampled_from(Place)


@given(st.lists(addresses, max_size=8), st.data(), st.sampled_from(Scope))
def test_nothing_is_dialled_but_what_every_rule_lets_through(
    found: list[str], data: st.DataObject, scope: Scope
) -> None:
    asked = to_locate(found)
    places = data.draw(st.lists(_places, min_size=len(asked), max_size=len(asked)))
    where = dict(zip(asked, places, strict=True))
    try:
        good = reachable(found, places, target(scope))
    except Refused as error:
        good = ()
        said = error.message
        assert not any(address in said for address in found if len(address) > 6)
    same = {str(_plain(address)) for address in found}
    for address in good:
        assert address in same
        assert refusal_of(address, scope) is None
        for each in (address, *embedded(address)):
            assert where[each] not in (Place.THIS_MACHINE, Place.MANY)
            assert scope is LAN or where[each] is not Place.OWN_NETWORK
    assert len(set(good)) == len(good)


def _plain(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


@given(noise)
def test_anything_that_is_no_address_is_refused(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        assert refusal_of(text, INTERNET) is not None
        assert refusal_of(text, LAN) is not None
        assert to_locate([text]) == ()
