"""Pages that a sandbox asks to be opened in the person's browser (R54).

A page opens with the person's cookies and logins, and its URL can carry data out: so each
one asks, whole and in ASCII, and none is allowed in advance.  A login's page names where
its answer goes, `redirect_uri`; where that is a port of the sandbox's own localhost, a
listener outside hands the first answer in.
"""

from __future__ import annotations

import re

import msgspec

from proto.codecs.http1 import RequestHead
from proto.codecs.url import MalformedUrl, Url, read_url
from proto.policy.literals import v4_of

CALLBACK_S = 300.0
"""How long a login may take."""
PORT_MIN = 1024
"""Lower ports are the machine's."""
_QUOTED = str.maketrans({"$": "%24", "'": "%27"})
"""What other shells than sh run or end a text by: wslview hands a URL to PowerShell, in quotes."""
NAVIGATION = ((b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document"))
"""What a browser says of a request (Fetch Metadata) that shows its answer in a window: a frame
is a navigation too, and any page has one of any address."""
REDIRECT = "redirect_uri"
"""RFC 6749 §4.1.1."""


class PageRefused(Exception):
    """A page that nobody is asked about; the message says why."""


class Callback(msgspec.Struct, frozen=True):
    """Where a login's answer goes: a port of localhost, and the path that it comes to."""

    port: int
    path: str


class Page(msgspec.Struct, frozen=True):
    """A page that may be asked about.  `url` is what is shown, and what is opened."""

    url: str
    host: str
    callback: Callback | None


def read_page(body: bytes) -> Page:
    """Read a page's URL, the whole of a request's body; raises PageRefused."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise PageRefused("the page's URL is not UTF-8.") from None
    try:
        url = read_url(text)
    except MalformedUrl as error:
        raise PageRefused(f"the page's URL is refused: {error}.") from None
    return Page(str(url).translate(_QUOTED), url.host, _callback(url))


def _callback(url: Url) -> Callback | None:
    """Return where the page's answer goes, if that is a port of localhost."""
    values = [value for name, value in _parameters(url) if name == REDIRECT]
    if len(values) > 1:
        # The login's server goes by one of them, and the listener by another.
        raise PageRefused(f"the page's URL has more than one {REDIRECT}.")
    if not values:
        return None
    try:
        target = read_url(values[0])
    except MalformedUrl:
        return None  # an app's own scheme, urn:ietf:wg:oauth:2.0:oob
    if target.scheme != "http" or not is_loopback(target.host):
        return None
    if target.port < PORT_MIN:
        raise PageRefused(f"its answer would go to port {target.port}; take one from {PORT_MIN}.")
    return Callback(target.port, target.target.partition("?")[0])


def is_loopback(host: str) -> bool:
    """Tell whether a canonical host is this machine by name or by address."""
    value = v4_of(host)
    return host in ("localhost", "::1") or (value is not None and value >> 24 == 127)


def _parameters(url: Url) -> list[tuple[str, str]]:
    """Return a query's parameters (WHATWG URL §5.1); what isn't UTF-8 in one is left out."""
    query = url.target.partition("?")[2]
    found = []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        try:
            found.append((_decoded(name), _decoded(value)))
        except UnicodeDecodeError:
            continue
    return found


def _decoded(text: str) -> str:
    spaced = text.replace("+", " ").encode("ascii")
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes([int(m[1], 16)]), spaced).decode()


def question(page: Page) -> str:
    """Return what the person is asked."""
    lines = ["open a page in your browser, with your logins:", "", f"  {page.url}", ""]
    lines.append(f"It is of the host {page.host}.")
    if page.callback is not None:
        lines.append(
            f"Its answer may come in once, at localhost:{page.callback.port}, "
            f"for {CALLBACK_S / 60:.0f} minutes."
        )
    return "\n".join(lines)


def is_answer(head: RequestHead, callback: Callback) -> bool:
    """Tell whether a request to the listener is the login's answer.

    Any page that the browser has open can call a port of localhost: only a navigation of a
    window is let in, to the path that the login names.
    """
    if head.method not in ("GET", "POST"):
        return False
    if head.target.partition(b"?")[0] != callback.path.encode("ascii"):
        return False
    for name, wanted in NAVIGATION:
        told = head.get_all(name)
        if told and told != [wanted]:
            return False
    host, colon, port = (head.one(b"host") or b"").decode("latin-1").lower().rpartition(":")
    # By another name that leads here, a page would come by DNS rebinding.
    return is_loopback(host.strip("[]")) and colon == ":" and port == str(callback.port)
