"""http and https URLs, read so that a browser reads them alike (RFC 3986, WHATWG URL).

What differs between the two standards is refused, not mended: a backslash that a browser
takes for a slash, a tab that it drops, a host in numbers that it works out.  What is left
is printed in ASCII, so that what a person reads is what opens.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec

from proto.errors import MalformedRequest
from proto.policy.hosts import canonical_host

URL_MAX_CHARS = 8192
"""Longer than any login's page, and as much as servers take in a line."""
PORT_MAX = 65535
DEFAULT_PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#(.*))?", re.IGNORECASE | re.DOTALL)
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'(),;=%*+]")


class MalformedUrl(Exception):
    """A text that is no URL here; the message says why."""


class Url(msgspec.Struct, frozen=True):
    """A URL taken apart.  `host` is canonical; `target` is its path and query, as it goes out."""

    scheme: str
    host: str
    port: int
    target: str
    fragment: str | None

    @property
    def authority(self) -> str:
        """The host as a URL has it, and the port where it isn't the scheme's."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        """Print it, in ASCII."""
        end = "" if self.fragment is None else f"#{self.fragment}"
        return f"{self.scheme}://{self.authority}{self.target}{end}"


def read_url(text: str) -> Url:
    """Read a URL; raises MalformedUrl.

    Letters that a URL can't hold are percent-encoded, as a browser does, and a host in
    letters is put in its ASCII form.
    """
    if len(text) > URL_MAX_CHARS:
        raise MalformedUrl(f"it is longer than {URL_MAX_CHARS} letters")
    _check_letters(text)
    match = _URL.fullmatch(text)
    if match is None:
        raise MalformedUrl("it is no http:// or https:// URL")
    scheme, authority, target, fragment = match.groups()
    scheme = scheme.lower()
    if "@" in authority:
        # http://known.example@other.example/ is other.example's, whatever it looks like.
        raise MalformedUrl("it holds a user name or a password")
    name, port = _split(authority)
    try:
        host = canonical_host(name)
    except MalformedRequest as error:
        raise MalformedUrl(f"its host: {error.message.rstrip('.')}") from None
    target = _encoded(target if target.startswith("/") else f"/{target}")
    ended = None if fragment is None else _encoded(fragment)
    return Url(scheme, host, DEFAULT_PORTS[scheme] if port is None else port, target, ended)


def _check_letters(text: str) -> None:
    """Refuse what a browser drops, turns, or doesn't show."""
    if "\\" in text:
        raise MalformedUrl("it holds a backslash")
    # Controls, marks of direction, surrogates and whatever isn't assigned; every space.
    if any(unicodedata.category(letter)[0] in "CZ" for letter in text):
        raise MalformedUrl("it holds a space, or a letter that isn't shown")
    if _LONE_PERCENT.search(text):
        raise MalformedUrl("it holds a % that encodes nothing")


def _split(authority: str) -> tuple[str, int | None]:
    """Take the port off."""
    head, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        return authority, None
    if not _PORT.fullmatch(port) or int(port) > PORT_MAX:
        raise MalformedUrl(f"its port is none of 1 to {PORT_MAX}")
    return head, int(port)


def _encoded(text: str) -> str:
    return _NOT_PLAIN.sub(lambda found: "".join(f"%{b:02X}" for b in found[0].encode()), text)
