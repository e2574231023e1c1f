"""Which addresses may be dialled, whatever name led to them (R32).

A name on the list still resolves to what its owner says, and the owner of a name can
say 127.0.0.1.  So each address is judged twice before it is dialled: by its class,
from the tables below, and by where this machine's kernel says that it leads
(`proto.commands.Locate`).  An IPv6 address that carries an IPv4 one (NAT64, 6to4,
Teredo, ISATAP) is judged as both.  What passes is what is dialled: nothing is looked
up again in between.

All addresses are integers of 128 bits here, an IPv4 one as ::ffff:a.b.c.d, so that
both families and both spellings share one table.

Known limit: a network's own NAT64 prefix (RFC 6052 §2.2) looks like any other public
address; the IPv4 network behind such a translator is as open as the translator leaves
it.  The well-known prefix is judged by the IPv4 address inside.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from proto.errors import Refused
from proto.kinds import Place
from proto.policy.cures import SPEC, Cures, refusal, refusal_for_good
from proto.policy.literals import MAPPED, v4_of, v4_text, v6_of, v6_text
from proto.policy.target import Scope, Target, authority

ADDRESSES_MAX = 32
"""Of one name, at most this many are judged: a name with thousands (its owner's to
give) would hold up every other call while the kernel is asked about each."""

_V4_MASK = 0xFFFFFFFF


class Kind(NamedTuple):
    """A class of addresses that is not dialled.

    `words` completes "example.com:443 is …".  `local`: [lan] may open it.
    `here`: it is this machine, whose ports [localhost] may open one by one.
    """

    words: str
    local: bool = False
    here: bool = False
    metadata: bool = False


LOOPBACK = Kind("a loopback address, which is this machine", here=True)
UNSPECIFIED = Kind("an unspecified address, which is this machine", here=True)
OWN = Kind("this machine", here=True)
LINK_LOCAL = Kind("a link-local address")
PRIVATE = Kind("an address of a private network", local=True)
SHARED = Kind("an address of a carrier's shared network", local=True)
TEST_NETWORK = Kind("an address of a test network", local=True)
OWN_NETWORK = Kind("on a network that this machine stands on", local=True)
SITE_LOCAL = Kind("a site-local address")
MULTICAST = Kind("a multicast address")
BROADCAST = Kind("a broadcast address")
MANY = Kind("a broadcast, multicast or anycast address")
RESERVED = Kind("a reserved address")
NOT_GLOBAL = Kind("no address of the internet")
TRANSLATED = Kind("an IPv4 address behind a local translator")
COMPATIBLE = Kind("an IPv4 address in an obsolete IPv6 form")
ON_THE_INTERNET = Kind("an address of the internet, not of the local network")
UNREADABLE = Kind("without an address that could be read")


def _metadata(provider: str) -> Kind:
    return Kind(f"a cloud's metadata service ({provider})", metadata=True)


CLASSES: tuple[tuple[str, Kind | None, str], ...] = (
    # The longest prefix that holds an address decides; None is open.  Documentation
    # ranges are open (R32): nobody's network has them, and tests stand on them.
    ("0.0.0.0/8", UNSPECIFIED, "RFC 1122 §3.2.1.3; 0.0.0.0 reaches loopback on Linux"),
    ("10.0.0.0/8", PRIVATE, "RFC 1918"),
    ("100.64.0.0/10", SHARED, "RFC 6598"),
    ("127.0.0.0/8", LOOPBACK, "RFC 1122 §3.2.1.3"),
    ("169.254.0.0/16", LINK_LOCAL, "RFC 3927"),
    ("172.16.0.0/12", PRIVATE, "RFC 1918"),
    ("192.0.0.0/24", NOT_GLOBAL, "RFC 6890; 192.0.0.9 is the nearest NAT's own control port"),
    ("192.168.0.0/16", PRIVATE, "RFC 1918"),
    ("198.18.0.0/15", TEST_NETWORK, "RFC 2544"),
    ("224.0.0.0/4", MULTICAST, "RFC 5771"),
    ("240.0.0.0/4", RESERVED, "RFC 1112 §4, class E"),
    ("255.255.255.255/32", BROADCAST, "RFC 919 §7"),
    # IPv6 is the other way round: only 2000::/3 is the internet (RFC 4291 §2.4), so
    # that a range nobody has assigned yet isn't open by default.
    ("::/0", NOT_GLOBAL, "IANA IPv6 address space"),
    ("::/96", COMPATIBLE, "RFC 4291 §2.5.5.1"),
    ("::/128", UNSPECIFIED, "RFC 4291 §2.5.2"),
    ("::1/128", LOOPBACK, "RFC 4291 §2.5.3"),
    ("::ffff:0:0/96", None, "RFC 4291 §2.5.5.2; the IPv4 rows judge it"),
    ("::ffff:0:0:0/96", TRANSLATED, "RFC 2765 §2.1"),
    ("64:ff9b::/96", None, "RFC 6052 §2.1; the IPv4 address inside is judged"),
    (
        "64:ff9b:1::/48",
        TRANSLATED,
        "RFC 8215; where the IPv4 address stands is the network's choice",
    ),
    ("2000::/3", None, "RFC 4291 §2.4"),
    ("2001::/23", NOT_GLOBAL, "RFC 2928; protocol assignments, ORCHID, benchmarking"),
    ("2001::/32", None, "RFC 4380; the IPv4 addresses inside are judged"),
    ("fc00::/7", PRIVATE, "RFC 4193"),
    ("fe80::/10", LINK_LOCAL, "RFC 4291 §2.5.6"),
    ("fec0::/10", SITE_LOCAL, "RFC 3879"),
    ("ff00::/8", MULTICAST, "RFC 4291 §2.7"),
)

METADATA: tuple[tuple[str, str], ...] = (
    # A call to one of these hands out the machine's own credentials, so neither [lan]
    # nor a list opens them, nor the private range that some of them stand in.
    ("169.254.169.254/32", "AWS, Google, Azure and most others"),
    ("169.254.169.253/32", "AWS's resolver"),
    ("169.254.169.123/32", "AWS's clock"),
    ("169.254.170.2/32", "AWS ECS"),
    ("169.254.170.23/32", "AWS EKS"),
    ("169.254.0.23/32", "Tencent"),
    ("169.254.10.10/32", "Tencent"),
    ("169.254.42.42/32", "Scaleway"),
    ("100.100.100.200/32", "Alibaba"),
    ("192.0.0.192/32", "Oracle Classic"),
    ("168.63.129.16/32", "Azure's platform"),
    ("fd00:ec2::/32", "AWS"),
    ("fd20:ce::254/128", "Google"),
    ("fd00:c1::a9fe:a9fe/128", "Oracle"),
    ("fd00:42::42/128", "Scaleway"),
    ("fd00:a9fe:a9fe::1/128", "Akamai"),
    ("fd00:100::100:200/128", "Alibaba"),
    ("fe80::a9fe:a9fe/128", "OpenStack"),
)


def _value_of(text: str) -> int | None:
    """Return the 128 bits of an address, None for what is none (a zone, a name)."""
    quad = v4_of(text)
    return v6_of(text) if quad is None else MAPPED | quad


def _text_of(value: int) -> str:
    """Return the text that is dialled: an IPv4-mapped address as the IPv4 one it is."""
    return v4_text(value & _V4_MASK) if value >> 32 == MAPPED >> 32 else v6_text(value)


def _range_of(network: str) -> tuple[int, int]:
    """Return the first address of a network and its size."""
    text, _, digits = network.partition("/")
    first = _value_of(text)
    assert first is not None, network
    return first, 1 << (128 if ":" in text else 32) - int(digits)


def _flatten(rows: Iterable[tuple[str, Kind | None]]) -> tuple[list[int], list[Kind | None]]:
    """Turn nested networks into neighbouring ranges: where each begins, and its class."""
    starts: list[int] = [0]
    kinds: list[Kind | None] = [None]
    sized = [(*_range_of(network), kind) for network, kind in rows]
    # The largest first: each is cut out of the one range that holds it.
    for first, size, kind in sorted(sized, key=lambda row: -row[1]):
        at = bisect_right(starts, first) - 1
        if bisect_right(starts, first + size) - 1 == at:
            starts.insert(at + 1, first + size)
            kinds.insert(at + 1, kinds[at])
        if starts[at] != first:
            at += 1
            starts.insert(at, first)
            kinds.insert(at, kind)
        kinds[at] = kind
    return starts, kinds


_STARTS, _KINDS = _flatten(
    [(network, kind) for network, kind, _ in CLASSES]
    + [(network, _metadata(provider)) for network, provider in METADATA]
)


def _kind_of(value: int) -> Kind | None:
    """Return the class of the address itself, whatever it carries; None: it is open."""
    return _KINDS[bisect_right(_STARTS, value) - 1]


_NAT64 = 0x0064FF9B << 64
_SIX_TO_FOUR = 0x2002
_TEREDO = 0x20010000
_ISATAP = 0x00005EFE
_ISATAP_MASK = 0xFDFFFFFF  # the universal/local bit is either (RFC 5214 §6.1)


def _carried(value: int) -> tuple[int, ...]:
    """Return the IPv4 addresses inside an IPv6 one, as 128 bits.

    A translator or relay on the way takes them out and goes there: without this,
    64:ff9b::7f00:1 would be an open address that ends at a loopback.
    """
    high = value >> 32
    if high == MAPPED >> 32:
        return ()
    if high == _NAT64:  # RFC 6052 §2.2
        return (MAPPED | value & _V4_MASK,)
    if value >> 96 == _TEREDO:  # RFC 4380 §4: the server, and the client with its bits turned
        return (MAPPED | value >> 64 & _V4_MASK, MAPPED | value & _V4_MASK ^ _V4_MASK)
    # The one stands in an address's prefix and the other in its end, so one may have both.
    found: tuple[int, ...] = ()
    if value >> 112 == _SIX_TO_FOUR:  # RFC 3056 §2
        found = (MAPPED | value >> 80 & _V4_MASK,)
    if high & _ISATAP_MASK == _ISATAP:  # RFC 5214 §6.1
        found += (MAPPED | value & _V4_MASK,)
    return found


def _class_refusal(value: int, scope: Scope) -> Kind | None:
    """Return the class that refuses an address in a scope, by itself or by what it carries."""
    kind = _kind_of(value)
    if kind is not None and not (kind.local and scope is Scope.LAN):
        return kind
    for each in _carried(value):
        kind = _class_refusal(each, scope)
        if kind is not None:
            return kind
    return None


def refusal_of(address: str, scope: Scope) -> str | None:
    """Return the class that refuses an address, as words; None when none does.

    An address that can't be read is refused.
    """
    value = _value_of(address)
    kind = UNREADABLE if value is None else _class_refusal(value, scope)
    return None if kind is None else kind.words


def metadata_of(address: str) -> str | None:
    """Return the words for the metadata service that an address leads to, else None."""
    value = _value_of(address)
    kinds = () if value is None else map(_kind_of, (value, *_carried(value)))
    return next((kind.words for kind in kinds if kind is not None and kind.metadata), None)


def _in_order(addresses: Iterable[str]) -> list[int]:
    """Return addresses in the order to dial them, each once, at most ADDRESSES_MAX.

    The families take turns, the first address's family first, and each family keeps
    the resolver's order (RFC 8305 §4).  What can't be read is left out.
    """
    found = dict.fromkeys(map(_value_of, addresses))
    values = [value for value in found if value is not None]
    v4 = [value for value in values if value >> 32 == MAPPED >> 32]
    if not v4 or len(v4) == len(values):
        return values[:ADDRESSES_MAX]
    v6 = [value for value in values if value >> 32 != MAPPED >> 32]
    turns = zip_longest(v4, v6) if values[0] == v4[0] else zip_longest(v6, v4)
    return [value for pair in turns for value in pair if value is not None][:ADDRESSES_MAX]


def _with_carried(values: Iterable[int]) -> list[int]:
    """Return addresses and what they carry, each once."""
    return list(dict.fromkeys(each for value in values for each in (value, *_carried(value))))


REMEMBERED = 256
"""Verdicts that are kept: a program calls the same few hosts again and again, and a
verdict follows from the addresses and what the kernel has just said of them alone."""


def to_locate(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return what to ask the kernel about: the addresses and what each carries, once."""
    return _to_locate(tuple(addresses))


@lru_cache(maxsize=REMEMBERED)
def _to_locate(addresses: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_text_of, _with_carried(_in_order(addresses))))


def reachable(
    addresses: Iterable[str], places: Sequence[Place], target: Target, cures: Cures = SPEC
) -> tuple[str, ...]:
    """Return those of a target's addresses that may be dialled, in the order to dial them.

    `places` answers `to_locate(addresses)`.  A listed name may have good and bad
    addresses: only the good ones are left, and none of the bad is ever dialled.
    Raises Refused (403) with the first one's class when none is left.
    """
    found = _judged(tuple(addresses), tuple(places), target.scope)
    if isinstance(found, Kind):
        raise refused(target.host, target.port, found, cures)
    return found


@lru_cache(maxsize=REMEMBERED)
def _judged(
    addresses: tuple[str, ...], places: tuple[Place, ...], scope: Scope
) -> tuple[str, ...] | Kind:
    """Return the addresses that may be dialled, or the first one's class where none may."""
    values = _in_order(addresses)
    where = dict(zip(_with_carried(values), places, strict=True))
    first: Kind | None = None
    good: list[str] = []
    for value in values:
        kind = _refusal(value, where, scope)
        if kind is None:
            good.append(_text_of(value))
        first = first or kind
    return tuple(good) or first or UNREADABLE


def _refusal(value: int, where: dict[int, Place], scope: Scope) -> Kind | None:
    """Return why an address may not be dialled, by the kernel's word and by its class."""
    places = [where[each] for each in (value, *_carried(value))]
    # This machine first: no list opens it, so another class's cure would mislead.
    if Place.THIS_MACHINE in places:
        return OWN
    kind = _class_refusal(value, scope)
    if kind is not None:
        return kind
    if Place.MANY in places:
        return MANY
    if scope is Scope.INTERNET:
        # What stands beside this machine may trust it, whatever range they share.
        return OWN_NETWORK if Place.OWN_NETWORK in places else None
    # [lan] is no second list of internet hosts: a name of it that moves there is refused.
    near = places[0] is Place.OWN_NETWORK or _kind_of(value) is not None
    return None if near else ON_THE_INTERNET


def literal_refusal(host: str, port: int, cures: Cures = SPEC) -> Refused | None:
    """Return the refusal of an address that its class alone closes; None for any other host."""
    value = _value_of(host)
    kind = None if value is None else _class_refusal(value, Scope.INTERNET)
    return None if kind is None else refused(host, port, kind, cures)


def refused(host: str, port: int, kind: Kind, cures: Cures = SPEC) -> Refused:
    """Return the error for a host whose addresses are of one class, with its cure if any."""
    named = authority(host, port)
    what = f"{named} is {kind.words}"
    if kind.local:
        return refusal(what, cures.lan, "lan.hosts", named)
    if kind.here and cures.ports is not None:
        return refusal(what, cures.ports, "localhost.ports", port)
    if kind is ON_THE_INTERNET:
        if cures.tcp is None:
            return refusal(what, cures.hosts, "internet.hosts", host)
        return refusal(what, cures.tcp, "internet.tcp", named)
    return refusal_for_good(what, kind.words.partition(" (")[0], metadata=kind.metadata)
