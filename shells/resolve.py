"""Names to addresses, by this machine's own resolver and its /etc/hosts.

A name is asked for as it is written, as an absolute name: with a search list
`db.example.com` could become `db.example.com.evil.test`, which nobody listed.  The C
library takes its search list from resolv.conf and, over that, from the environment, so
the proxy's environment is settled before the first look-up: a search list of one domain
that can't exist, which glibc tries only after the name itself and for which it sends
nothing.  A trailing dot would do on its own, but a dotted name is never found in
/etc/hosts.

Where nsswitch.conf hands names to systemd-resolved's own module, that service still
searches for names of a single label, and for no others.

getaddrinfo(3) blocks and can't be cancelled; with a dead resolver it lasts for timeout
times attempts times servers (resolv.conf(5)), half a minute by default.  A shell runs it
in a bounded set of daemon threads (`shells.workers`, trio's limiter with
`abandon_on_cancel`), gives up waiting at the command's deadline, and leaves the thread to
end by itself; look-ups beyond the bound wait their turn and their deadline.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache

_NO_DOMAIN = "x" * 64
"""A label too long for DNS (RFC 1035 §2.3.4): no query can be made of it.

An empty list would be one too, but glibc takes it for the root, and asks for each name
that isn't found a second time.
"""

_SETTLED = {"LOCALDOMAIN": _NO_DOMAIN, "RES_OPTIONS": "ndots:0"}
"""`ndots:0`: the name as it is comes first, however few dots it has."""

_DROPPED = (
    "HOSTALIASES",  # a file that renames hosts
    "RESOLV_HOST_CONF",
    "RESOLV_MULTI",
    "RESOLV_REORDER",
    "RESOLV_ADD_TRIM_DOMAINS",
    "RESOLV_OVERRIDE_TRIM_DOMAINS",
)


@cache
def settle_environment() -> None:
    """Make this process's environment say nothing about names.

    Done once, before the first look-up; a program that the process starts gets an
    environment of its own, which is never made from this one.
    """
    for name in _DROPPED:
        os.environ.pop(name, None)
    os.environ.update(_SETTLED)


@cache
def _is_glibc() -> bool:
    """Tell whether the C library reads the variables of `settle_environment`."""
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        return False


def lookup(host: str) -> tuple[str, ...]:
    """Return the addresses of a canonical name, each once, in the resolver's order.

    Both families are asked for.  Texts are inet_ntop(3)'s; a zone is dropped, since the
    name's owner has no say in this machine's interfaces.  Blocks.  Raises OSError:
    socket.gaierror when the name has no address or nobody could say.
    """
    settle_environment()
    # As bytes: a str would pass through Python's IDNA codec, which has rules of its own.
    name = host.encode("ascii") if _is_glibc() else host.encode("ascii") + b"."
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        _check_descriptors()
        raise
    addresses = (str(address[0]).partition("%")[0] for *_, address in found)
    return tuple(dict.fromkeys(addresses))


def _check_descriptors() -> None:
    """Raise OSError (EMFILE, ENFILE) where a lookup has had no descriptors.

    glibc says then that there is no such name, though it has asked nobody: the person
    would look for the fault in the name.  Lookups have descriptors of their own
    (`shells.descriptors`); this is for a whole machine without any, and for a limit that
    was lowered below what is open already.
    """
    for descriptor in os.pipe2(os.O_CLOEXEC):  # two, as many as a lookup holds at once
        os.close(descriptor)


RESOLV_CONF = "/etc/resolv.conf"
RESOLV_CONF_MAX_BYTES = 1 << 16
HERE = ("127.0.0.1",)
"""Whom a machine asks whose file names nobody (resolv.conf(5))."""


class Resolvers:
    """The addresses of the resolvers that this machine asks, as its file says now.

    The file is read again once it has changed: a machine moves between networks while a
    sandbox runs.
    """

    def __init__(self, path: str = RESOLV_CONF) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._servers: tuple[str, ...] = HERE

    def servers(self) -> tuple[str, ...]:
        """Return their addresses in the order to ask them; never none."""
        try:
            about = os.stat(self._path)
            seen = about.st_ino, about.st_mtime_ns, about.st_size
            if seen != self._seen:
                with open(self._path, "rb") as file:
                    text = file.read(RESOLV_CONF_MAX_BYTES)
                self._seen, self._servers = seen, nameservers(text) or HERE
        except OSError:
            self._seen, self._servers = None, HERE
        return self._servers


def nameservers(text: bytes) -> tuple[str, ...]:
    """Return the addresses of a resolv.conf's `nameserver` lines, each once.

    One with a zone is left out, as everywhere: it is a neighbour's on one interface.
    """
    found = []
    for line in text.decode("ascii", "replace").splitlines():
        words = line.split()
        if len(words) < 2 or words[0] != "nameserver":
            continue
        for family in (socket.AF_INET, socket.AF_INET6):
            with suppress(OSError):
                found.append(socket.inet_ntop(family, socket.inet_pton(family, words[1])))
    return tuple(dict.fromkeys(found))
