"""Which hosts a call may name, decided by name and before any lookup (R31).

A host has one canonical form (`canonical_host`), and that text alone is matched,
logged, looked up and dialled: two readings of one text are how a filter is talked
past.  A name is never matched by its address, nor an address by a name's pattern.

The policy is made once (`Policy.of`) into sets, so that a verdict costs the same
with ten entries and with ten thousand: one look-up for the name, one for each of its
labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from proto.errors import MalformedRequest, Refused
from proto.policy.addresses import literal_refusal
from proto.policy.cures import SPEC, Cures, refusal, refusal_for_good
from proto.policy.literals import unmapped, v4_of, v4_text, v6_of, v6_text
from proto.policy.target import Scope, Target, authority

__all__ = [
    "NAME_MAX_CHARS",
    "Policy",
    "Scope",
    "Target",
    "authority",
    "canonical_host",
    "is_literal",
]

NAME_MAX_CHARS = 253
"""The longest name that fits the 255 octets of RFC 1035 §2.3.4, written without its dot."""

HTTPS_PORT = 443
PORT_MAX = 65535

_LABELS = r"(?:[a-z0-9_-]{1,63}+\.)*"
_LABEL = r"[a-z0-9_-]{1,63}+"
_NAME = re.compile(_LABELS + r"(?![0-9]++\Z|0x[0-9a-f]*+\Z)" + _LABEL)
"""A name whose last label is no number.

Letters, digits, hyphens anywhere (real hosts have them at either end) and underscores.
A last label that reads as a number makes the whole an address to inet_aton(3), to
browsers (WHATWG URL, "ends in a number") and to getaddrinfo(3): `127.1`, `0x7f.1`.
"""
_BASE = re.compile(_LABELS + _LABEL)
"""What may follow `*.` in a pattern; `*.113.10` is one that no name can match."""

_IGNORED = frozenset("\u115f\u1160\u17b4\u17b5")
"""Letters that aren't shown: the codec keeps them, and a browser drops them (UTS #46)."""

_DIGITS = re.compile(r"[1-9][0-9]{0,4}")
_V6_BARE = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


def canonical_host(text: str | bytes) -> str:
    """Return the one form of a host as it stands in a request or a policy.

    Small letters, one trailing dot dropped, an IPv6 address in its shortest form and
    without its brackets, an IPv4-mapped one as the IPv4 address that it is.

    Raises MalformedRequest (400) for anything that two readers could take for two
    hosts: an IPv4 address in any spelling but four plain decimals, a zone, an
    encoded character, letters that IDNA would change into others.
    """
    if len(text) > NAME_MAX_CHARS + 1:  # bounded before it is worked on
        raise MalformedRequest("the host is longer than any host name.")
    if isinstance(text, bytes):
        text = _decoded(text)
    if text.startswith("["):
        return _bracketed(text)
    name = (text if text.isascii() else _a_labels(text)).lower()
    host = name.removesuffix(".")
    if len(host) <= NAME_MAX_CHARS and _NAME.fullmatch(host):
        return host
    if v4_of(name) is not None:  # with its dot it is none: resolvers differ on that
        return name
    raise MalformedRequest(_why_no_host(text))


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MalformedRequest("the host is no text.") from None


def _bracketed(text: str) -> str:
    """Read `[v6]`.  A zone names an interface of this machine, which no caller chooses."""
    value = v6_of(text[1:-1]) if text.endswith("]") else None
    if value is None:
        raise MalformedRequest(f"{_shown(text)} is no IPv6 address in brackets.")
    quad = unmapped(value)
    return v6_text(value) if quad is None else v4_text(quad)


def _a_labels(text: str) -> str:
    """Return an international name in its ASCII form (RFC 3490), if it has just one.

    IDNA maps many letters to others (`ℳ` to m, `ß` to ss, `。` to a dot, a zero-width
    space to nothing), and its versions differ in which.  A name that any of that
    would change could be one host here and another elsewhere: only a name that comes
    back from its ASCII form as it was is taken.  Case too is only ASCII's.  Python's
    codec knows the letters of Unicode 3.2; what came later it leaves as it is, where a
    browser maps it (UTS #46), so that is looked at here.
    """
    small = "".join(char.lower() if char.isascii() else char for char in text)
    try:
        ascii_form = small.encode("idna")
        if ascii_form.decode("idna") == small and _is_plain(small):
            return ascii_form.decode("ascii")
    except UnicodeError:
        pass  # an empty or too long label, a forbidden letter: refused as the rest is
    raise MalformedRequest(f"{_shown(text)} has more than one reading: write it in its xn-- form.")


def _is_plain(text: str) -> bool:
    """Tell whether a name is of letters, marks and digits that no version of IDNA changes.

    All were there in Unicode 3.2, and none is mapped by today's tables.
    """
    import unicodedata  # only a name beyond ASCII needs the tables

    category = unicodedata.ucd_3_2_0.category
    return (
        unicodedata.normalize("NFKC", text).casefold() == text
        and _IGNORED.isdisjoint(text)
        and all(char.isascii() or category(char)[0] in "LMN" for char in text)
    )


def _why_no_host(text: str) -> str:
    """Say what is wrong with a host; the caller has found that something is."""
    last = text.removesuffix(".").rpartition(".")[2].lower()
    if last and _BASE.fullmatch(last) and not _NAME.fullmatch(last):
        return f"{_shown(text)} is no IPv4 address of four plain decimal numbers."
    return f"{_shown(text)} is no host name."


def _shown(text: str) -> str:
    """Return a short, harmless form of a peer's text for a message."""
    return ascii(text if len(text) <= 80 else text[:80] + "...")


def is_literal(host: str) -> bool:
    """Tell whether a canonical host is an address rather than a name.

    No canonical name has a colon, or a number as its last label.
    """
    return ":" in host or host[host.rfind(".") + 1 :].isdigit()


class _Rules(NamedTuple):
    """A list of names: those it holds, and those whose names below it covers.

    Each maps to its ports: None where every port is meant.
    """

    exact: dict[str, frozenset[int] | None]
    below: dict[str, frozenset[int] | None]

    def match(self, host: str, port: int) -> bool:
        """Tell whether an entry covers a canonical host at a port."""
        ports = self.exact.get(host, _NONE)
        if ports is None or port in ports:
            return True
        # A pattern covers names, never addresses: 203.0.113.10 isn't below 113.10.
        if not self.below or is_literal(host):
            return False
        at = host.find(".") + 1
        while at:  # b.c.d is below c.d, and below d
            ports = self.below.get(host[at:], _NONE)
            if ports is None or port in ports:
                return True
            at = host.find(".", at) + 1
        return False

    def ports_of(self, host: str) -> frozenset[int]:
        """Return every port at which entries that have one cover a canonical name."""
        found = self.exact.get(host) or _NONE
        at = host.find(".") + 1
        while at:
            found |= self.below.get(host[at:]) or _NONE
            at = host.find(".", at) + 1
        return found


_NONE: frozenset[int] = frozenset()


REMEMBERED = 1024
"""Targets that are kept once admitted, for a program calls the same few hosts again and
again, and what the lists say of one never changes.  Refusals are judged anew."""


class Policy:
    """Who may be called.  Make one with `Policy.of`."""

    __slots__ = ("_admitted", "cures", "hosts", "lan", "no_internet", "tcp")

    def __init__(
        self, hosts: _Rules | None, tcp: _Rules, lan: _Rules, *, no_internet: bool, cures: Cures
    ) -> None:
        self.hosts = hosts
        self.tcp = tcp
        self.lan = lan
        self.no_internet = no_internet
        self.cures = cures
        self._admitted: dict[tuple[str, int, str], Target] = {}

    @classmethod
    def of(
        cls,
        hosts: Iterable[str] | None,
        lan: Iterable[str] = (),
        tcp: Iterable[str] = (),
        *,
        no_internet: bool = False,
        cures: Cures = SPEC,
    ) -> Policy:
        """Make a policy of the lists of a sandbox.

        hosts: names, `*.` patterns and addresses, at any port; None is any host on
        the internet, an empty list none.  lan: `host:port` of the local network.
        tcp: `host:port` and `*.base:port` on the internet.  no_internet closes hosts
        and tcp, whatever they hold.  cures: what refusals tell a person to change.

        Raises ValueError with one sentence that names the entry and its cure.
        """
        return cls(
            None if hosts is None else _rules(hosts, cures.hosts.long, _host_reader(cures)),
            _rules(tcp, (cures.tcp or cures.hosts).long, _tcp_entry),
            _rules(lan, cures.lan.long, _lan_entry),
            no_internet=no_internet,
            cures=cures,
        )

    def admit(self, host: str, port: int, verb: str = "connect") -> Target:
        """Let a canonical host and port through, or raise Refused (403) naming the key.

        `lan` wins where it lists just this host and port; everything else is held to
        the internet's addresses.  Only a tunnel (`verb` "connect") has its hello read.
        """
        asked = host, port, verb
        target = self._admitted.get(asked)
        if target is None:
            target = self._judge(host, port, verb)
            if len(self._admitted) >= REMEMBERED:
                self._admitted.clear()
            self._admitted[asked] = target
        return target

    def endpoint_ports(self, host: str) -> tuple[int, ...]:
        """Return the ports at which a canonical name is an endpoint (`tcp`), the least first.

        None for an address: nobody looks one up.
        """
        if self.no_internet or is_literal(host) or _is_localhost(host):
            return ()
        return tuple(sorted(self.tcp.ports_of(host)))

    def endpoints(self) -> tuple[str, ...]:
        """Return the names that `tcp` lists whole, in its order."""
        return tuple(host for host in self.tcp.exact if self.endpoint_ports(host))

    def has_dns(self) -> bool:
        """Tell whether a name of `tcp` can be looked up at all."""
        return not self.no_internet and bool(self.endpoints() or self.tcp.below)

    def _judge(self, host: str, port: int, verb: str) -> Target:
        if self.lan.match(host, port):
            return Target(host, port, Scope.LAN, is_literal(host), reads_hello=False)
        if _is_localhost(host):
            raise _refused_localhost(host, port, self.cures)
        if self.no_internet:
            raise literal_refusal(host, port, self.cures) or _closed(host, port, self.cures)
        if self.hosts is not None and not (
            self.hosts.match(host, port) or self.tcp.match(host, port)
        ):
            raise literal_refusal(host, port, self.cures) or _unlisted(host, port, self.cures)
        # Behind a CDN one address serves many sites: under a list the hello decides.
        reads = port == HTTPS_PORT and self.hosts is not None and verb == "connect"
        return Target(host, port, Scope.INTERNET, is_literal(host), reads)


def _is_localhost(host: str) -> bool:
    """RFC 6761 §6.3: these names are this machine, whatever a resolver says."""
    return host == "localhost" or host.endswith(".localhost")


def _refused_localhost(host: str, port: int, cures: Cures) -> Refused:
    what = f"{authority(host, port)} is this machine, which the proxy never reaches"
    if cures.ports is None:
        return refusal_for_good(what, "this machine")
    return refusal(what, cures.ports, "localhost.ports", port)


def _closed(host: str, port: int, cures: Cures) -> Refused:
    what = f"{authority(host, port)} is on the internet, which is closed to this sandbox"
    return refusal(what, cures.hosts, "internet.hosts", host, before=cures.closed)


def _unlisted(host: str, port: int, cures: Cures) -> Refused:
    what = f"{authority(host, port)} is not among this sandbox's hosts"
    return refusal(what, cures.hosts, "internet.hosts", host)


_Entry = tuple[bool, str, int | None]
"""Is it a pattern, its name, its port (None for any)."""


def _rules(entries: Iterable[str], key: str, read: Callable[[str, str], _Entry]) -> _Rules:
    if isinstance(entries, str):
        raise ValueError(f"{key} is a list: write {_shown(entries)} in brackets.")
    ports: tuple[dict[str, frozenset[int] | None], ...] = ({}, {})
    for entry in entries:
        pattern, name, port = read(entry, key)
        known = ports[pattern].get(name, _NONE)
        ports[pattern][name] = None if known is None or port is None else known | {port}
    return _Rules(*ports)


def _host_reader(cures: Cures) -> Callable[[str, str], _Entry]:
    """Return what reads a host, and knows where one with a port belongs."""
    whole = "" if cures.tcp is None else f", or the whole in {cures.tcp.long}"
    return lambda entry, key: _host_entry(entry, key, whole)


def _host_entry(entry: str, key: str, whole: str) -> _Entry:
    """Read a host without a port."""
    if entry == "*":
        raise ValueError(f'"*" stands for any host, so it stands alone or not at all in {key}.')
    host, colon, digits = entry.rpartition(":")
    if colon and _DIGITS.fullmatch(digits) and (":" not in host or host.endswith("]")):
        raise ValueError(
            f"{_shown(entry)} has a port, and {key} opens every port: "
            f"write {_shown(host)} there{whole}."
        )
    return (*_named(entry, key), None)


def _tcp_entry(entry: str, key: str) -> _Entry:
    """Read `host:port` or `*.base:port`."""
    host, colon, digits = entry.rpartition(":")
    if not colon or not _DIGITS.fullmatch(digits) or int(digits) > PORT_MAX:
        raise ValueError(
            f'{_shown(entry)} in {key} has no port: write it as "host:port", 1 to {PORT_MAX}.'
        )
    if "://" in entry:
        raise ValueError(f'{_shown(entry)} in {key} is a URL: write its host, as "host:port".')
    if ":" in host and not host.startswith("["):
        raise ValueError(f'{_shown(entry)} in {key}: write an IPv6 address as "[address]:port".')
    return (*_named(host, key), int(digits))


def _lan_entry(entry: str, key: str) -> _Entry:
    """Read `host:port`: a local network's machines are named one by one."""
    found = _tcp_entry(entry, key)
    if found[0]:
        raise ValueError(f"{_shown(entry)} in {key} is a pattern: name each machine there.")
    return found


def _named(text: str, key: str) -> tuple[bool, str]:
    """Read the host of an entry: whether it is a pattern, and the name it holds or covers."""
    pattern = text.startswith("*.")
    if "://" in text:
        raise ValueError(f'{_shown(text)} in {key} is a URL: write its host alone ("example.com").')
    try:
        return pattern, _base(text[2:]) if pattern else _plain(text)
    except MalformedRequest as error:
        # That it is no host's name is said once.
        known = f"{_shown(text)} is no host name.", f"{_shown(text[2:])} is no name."
        bare = error.message in known
        why = "" if bare else f": {error.message.removesuffix('.')}"
        raise ValueError(
            f"{_shown(text)} in {key} is no host{why}. "
            'Write a name ("example.com"), the names below one ("*.example.com") or an address.'
        ) from None


def _plain(text: str) -> str:
    """Read a host of a list, where an IPv6 address may go without its brackets."""
    return canonical_host(f"[{text}]" if _V6_BARE.fullmatch(text) else text)


def _base(text: str) -> str:
    """Read what follows `*.`."""
    base = (text if text.isascii() else _a_labels(text)).lower().removesuffix(".")
    if len(base) >= NAME_MAX_CHARS or _BASE.fullmatch(base) is None:
        raise MalformedRequest(f"{_shown(text)} is no name.")
    return base
