"""What would allow a call, in the words of whoever started its wire (5.1, 9).

A spec, flags, a request of `wrap` and a binding have names of their own for the same thing.
A refusal that named another one's would send a person to look for what isn't there.
"""

from __future__ import annotations

from typing import NamedTuple

from proto.errors import Refused


class Name(NamedTuple):
    """How a key, or a flag, is called in a sentence and, `short`, in a reason phrase.

    `said` and `phrase` are formats of how something is added to it.
    """

    long: str
    short: str
    said: str
    phrase: str


class Cures(NamedTuple):
    """The names that somebody knows; None for what nothing of theirs opens.

    `closed`: what they have to undo first where `no_internet` closes the internet.
    """

    hosts: Name
    tcp: Name | None
    lan: Name
    ports: Name | None
    per_minute: str
    upstream: str
    closed: str = ""


def _key(long: str, short: str = "", *, quotes: str = '"') -> Name:
    short = short or long
    return Name(long, short, f"add {quotes}{{0}}{quotes} to {long}", f"add {{0}} to {short}")


def _flag(flag: str) -> Name:
    return Name(flag, flag, f"add {flag} {{0}}", f"add {flag} {{0}}")


_HOSTS = _key("[internet] hosts", "internet.hosts")
_TCP = _key("[internet] tcp", "internet.tcp")
_LAN = _key("[lan] hosts", "lan.hosts")
_PORTS = _key("[localhost] ports", "localhost.ports", quotes="")

SPEC = Cures(
    _HOSTS._replace(said=f"{_HOSTS.said} (--internet-host {{0}})"),
    _TCP,
    _LAN,
    _PORTS,
    "[network] per_minute",
    "[network] upstream",
)
"""A run's of a spec; its flag adds hosts too."""


def _of_a_spec(name: Name) -> Name:
    return name._replace(said=f"{name.said} of a spec (--spec)")


RUN = SPEC._replace(
    hosts=_flag("--internet-host"),
    tcp=_of_a_spec(_TCP),
    lan=_of_a_spec(_LAN),
    ports=_of_a_spec(_PORTS),
)
"""A run's of flags alone: the one flag that opens something, and else a spec."""

PROXY = Cures(
    _flag("--hosts"),
    _flag("--tcp"),
    _flag("--lan"),
    None,
    "--per-minute",
    "--upstream",
    "drop --no-internet and ",
)
"""A proxy's by itself, which opens no port of this machine to anybody."""

WRAP = Cures(
    _key("proxy.hosts"),
    _key("proxy.tcp"),
    _key("proxy.lan"),
    _key("net.proxied.ports", quotes=""),
    "proxy.per_minute",
    "proxy.upstream",
    "take proxy.no_internet out and ",
)
"""A `wrap` request's: the ends of its keys' paths."""

UNWALLED = WRAP._replace(ports=None)
HELD = UNWALLED._replace(tcp=None)

BIND = Cures(
    _key("host"), None, _key("lan"), None, "per_minute", "upstream", "take no_internet out and "
)
"""A blank proxy's binding's."""

CURES = {
    "spec": SPEC,
    "run": RUN,
    "proxy": PROXY,
    "wrap": WRAP,
    "unwalled": UNWALLED,
    "held": HELD,
    "bind": BIND,
}
"""Of each way to start a wire, by the name that its settings have for it."""


def refusal(what: str, name: Name, key: str, added: object, *, before: str = "") -> Refused:
    """Return the refusal of a call that something added to a key would allow.

    what: what it is, a sentence's beginning.  key: the spec's key, by which the rest of us
    knows it.  before: what else is to be done first.
    """
    return Refused(
        f"{what}; {before}{name.said.format(added)}.",
        phrase=f"Forbidden: {name.phrase.format(added)}",
        key=key,
        named=name.short,
    )


def refusal_for_good(what: str, short: str, *, metadata: bool = False) -> Refused:
    """Return the refusal of a call that nothing opens."""
    return Refused(f"{what}; nothing opens it.", phrase=f"Forbidden: {short}", metadata=metadata)
