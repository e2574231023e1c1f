"""The exit of a wire: another proxy, by which calls leave this machine (R40).

The person names it, so it alone may stand where no call goes, on this machine or its
network.  Whom a call reaches is looked up and checked here as ever; the exit is told the
address that was checked, never a name.
"""

from __future__ import annotations

import binascii
import re
from enum import Enum
from typing import NamedTuple

from proto.errors import MalformedRequest
from proto.policy.cures import SPEC
from proto.policy.hosts import canonical_host, is_literal

DIRECT = "direct"
LOGIN_MAX_BYTES = 255
"""Of a user and of a password: a byte of SOCKS5 tells their length (RFC 1929 §2)."""

# Compiled where there is an exit: each wire imports this, and its program's first call waits.
_URL = r"(http|socks5)://(?:([^@]*)@)?([^@]+):([1-9][0-9]{0,4})/?"
_BAD_ESCAPE = r"%(?![0-9A-Fa-f]{2})"
_ESCAPE = rb"%([0-9A-Fa-f]{2})"
_CONTROL = rb"[\x00-\x1f\x7f]"
PORT_MAX = 65535


class Protocol(Enum):
    """What an exit speaks."""

    HTTP = "http"
    SOCKS5 = "socks5"


class Login(NamedTuple):
    """A user and a password, as bytes; neither ever shows."""

    user: bytes
    password: bytes

    def __repr__(self) -> str:
        return "Login(...)"

    @property
    def basic(self) -> bytes:
        """The credentials of Basic authentication (RFC 7617 §2)."""
        whole = self.user + b":" + self.password
        return b"Basic " + binascii.b2a_base64(whole, newline=False)


class Exit(NamedTuple):
    """Another proxy: what it speaks, where it stands, who we are to it.

    `named`: what the person who named it calls the place where it is written.
    """

    protocol: Protocol
    host: str
    port: int
    login: Login | None = None
    named: str = SPEC.upstream

    @classmethod
    def of(cls, text: str, named: str = SPEC.upstream) -> Exit | None:
        """Read an exit as it is written; None is `direct`.

        Raises ValueError with one sentence, which never shows the text: it may hold a login,
        and the commonest slip is to write one in the wrong place.
        """
        if text == DIRECT:
            return None
        found = re.fullmatch(_URL, text) if not set(text) & set(" \\?#") else None
        if found is None or int(found[4]) > PORT_MAX:
            raise ValueError(
                f"the exit isn't one: write {DIRECT}, http://HOST:PORT or socks5://HOST:PORT, a "
                "login before the host as USER:PASSWORD@, its own : / ? # @ % as %3A and so on."
            )
        scheme, userinfo, host, port = found.groups()
        try:
            where = canonical_host(host)
        except MalformedRequest:
            raise ValueError(
                "the exit's host is no name or address: write HOST:PORT, an IPv6 address as "
                "[ADDRESS]:PORT."
            ) from None
        protocol = Protocol(scheme)
        login = None if userinfo is None else _login(userinfo, protocol)
        return cls(protocol, where, int(port), login, named)

    @property
    def literal(self) -> bool:
        """Whether it is named by its address, so that nobody is asked for one."""
        return is_literal(self.host)


def _login(userinfo: str, protocol: Protocol) -> Login:
    """Read `user:password`, percent-encoded (RFC 3986 §3.2.1)."""
    user, _, password = userinfo.partition(":")
    if "/" in userinfo or ":" in password or re.search(_BAD_ESCAPE, userinfo):
        raise ValueError(
            "the exit's login isn't USER:PASSWORD: write its own : / ? # @ % as %3A and so on."
        )
    login = Login(_decoded(user), _decoded(password))
    for each in (login.user, login.password):
        if len(each) > LOGIN_MAX_BYTES or re.search(_CONTROL, each):
            raise ValueError(
                f"the exit's login has more than {LOGIN_MAX_BYTES} bytes in a part, or a control "
                "character: ask for another."
            )
    if not login.user or (protocol is Protocol.SOCKS5 and not login.password):
        raise ValueError("the exit's login has an empty part: write USER:PASSWORD@, or no login.")
    if b":" in login.user:
        # Basic ends the user at the first colon: another user would be logged in.
        raise ValueError(
            "the exit's user holds a colon, which no proxy can be told: ask for another."
        )
    return login


def _decoded(text: str) -> bytes:
    return re.sub(_ESCAPE, lambda found: bytes([int(found[1], 16)]), text.encode())
