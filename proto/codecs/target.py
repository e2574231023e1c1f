"""What a request is for: its target and its `Host` (RFC 9112 §3.2, RFC 9110 §7.2).

The host is in canonical form, the port a number; nothing is decided here.  The `Host` must
name the same authority as the target: a server behind that goes by the other would
serve a site that nobody allowed.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from proto.codecs.heads import RequestHead
from proto.errors import MalformedRequest, NotImplementedHere
from proto.policy.hosts import canonical_host

HTTP_PORT = 80
PORT_MAX = 65535

REMEMBERED = 1024
"""Authorities that are kept, for a program calls the same few hosts again and again."""

_AUTHORITY = re.compile(
    # An address in brackets, or what has none of the bytes that end or change a host
    # for some reader: user@host, host/path, host%00, host\@other, a list.
    rb"(\[[0-9A-Fa-f:.]++\]|[^\x00-\x20\x7f-\xff\[\]:@/?#%\\,;]++)"
    # A port in plain decimals: int() takes a sign, an underscore and leading zeros too.
    rb":([1-9][0-9]{0,4}+)"
)
_URL = re.compile(rb"http://([^/?#]++)([^#\\]*+)", re.IGNORECASE)
_OTHER_SCHEME = re.compile(rb"(?!http:)[A-Za-z][A-Za-z0-9+.\-]*+://", re.IGNORECASE)


class ConnectTarget(msgspec.Struct, frozen=True, gc=False):
    """Authority-form: the two ends of a tunnel."""

    host: str
    port: int


class AbsoluteTarget(msgspec.Struct, frozen=True, gc=False):
    """Absolute-form: the server, and the target in the form that it gets."""

    host: str
    port: int
    origin_form: bytes

    @property
    def authority(self) -> bytes:
        """The `Host` that the server gets (RFC 9110 §7.2)."""
        return _authority_of(self.host, self.port)


class OriginTarget(msgspec.Struct, frozen=True, gc=False):
    """Origin-form: a path and query on the proxy itself."""

    path: bytes


class AsteriskTarget(msgspec.Struct, frozen=True, gc=False):
    """Asterisk-form: the proxy itself, asked by OPTIONS."""


@lru_cache(maxsize=REMEMBERED)
def _authority_of(host: str, port: int) -> bytes:
    """Print a canonical host, and its port where it isn't http's."""
    host = f"[{host}]" if ":" in host else host
    return host.encode() if port == HTTP_PORT else f"{host}:{port}".encode()


RequestTarget = ConnectTarget | AbsoluteTarget | OriginTarget | AsteriskTarget


def read_target(head: RequestHead) -> RequestTarget:
    """Return a request's target, once its `Host` agrees with it.

    The forms can't be mistaken for one another: a CONNECT has an authority and nothing
    else has one (RFC 9112 §3.2).  Raises MalformedRequest (400), NotImplementedHere (501)
    for a scheme other than http.
    """
    host = head.one(b"host")
    if head.method == "CONNECT":
        name, port = split_authority(head.target)
        if host != head.target:
            _check_host(host, name, port, port)
        return ConnectTarget(name, port)
    own = head.target.startswith(b"/")
    # Of another method than OPTIONS * is no target (§3.2.4).
    if own or (head.target == b"*" and head.method == "OPTIONS"):
        if host:  # it may be empty, but never what is no authority (§3.2)
            _split_default(host, HTTP_PORT)
        return OriginTarget(head.target) if own else AsteriskTarget()
    target = parse_absolute(head.target, head.method)
    if host != target.authority:
        _check_host(host, target.host, target.port, HTTP_PORT)
    return target


@lru_cache(maxsize=REMEMBERED)
def split_authority(target: bytes) -> tuple[str, int]:
    """Return the canonical host and the port of `host:port` (RFC 9112 §3.2.3).

    Raises MalformedRequest (400).
    """
    match = _AUTHORITY.fullmatch(target)
    if match is None or int(match[2]) > PORT_MAX:
        raise MalformedRequest(f"an authority is host:port, with a port of 1 to {PORT_MAX}.")
    return canonical_host(match[1]), int(match[2])


def parse_absolute(target: bytes, method: str = "GET") -> AbsoluteTarget:
    """Take an absolute http target apart (RFC 9112 §3.2.2).

    The path and query go on byte for byte, percent-encodings too.  Raises
    MalformedRequest (400), NotImplementedHere (501) for a scheme other than http.
    """
    match = _URL.fullmatch(target)
    if match is None:
        if _OTHER_SCHEME.match(target):
            raise NotImplementedHere("only http:// is forwarded; https goes through CONNECT.")
        # No fragment, which is never sent (RFC 9110 §4.2.5), and no backslash, which ends a
        # host for browsers and not for others: http://listed\\@other/.
        raise MalformedRequest("the request's target is no http:// URL, path or host:port.")
    authority, rest = match.groups()
    host, port = _split_default(authority, HTTP_PORT)
    if not rest and method == "OPTIONS":
        return AbsoluteTarget(host, port, b"*")  # RFC 9112 §3.2.4
    return AbsoluteTarget(host, port, rest if rest.startswith(b"/") else b"/" + rest)


@lru_cache(maxsize=REMEMBERED)
def _split_default(authority: bytes, default: int) -> tuple[str, int]:
    """Return an authority's host and port: only one that has no colon gets the default."""
    has_port = b":" in authority.rpartition(b"]")[2]
    return split_authority(authority if has_port else b"%b:%d" % (authority, default))


def _check_host(value: bytes | None, host: str, port: int, default: int) -> None:
    """Refuse a `Host` that names another authority than the target.

    A server that serves several sites goes by the one or the other (RFC 9112 §3.2.2 tells
    it to take the target's, and many don't): the other could be a site not allowed.
    """
    if value is not None and _split_default(value, default) != (host, port):
        raise MalformedRequest("the Host differs from the request's target.")
