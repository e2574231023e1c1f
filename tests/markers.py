"""Requests that hold markers where nothing may ever be told of: paths, headers, bodies, logins.

Each part is one place of a request; each case is a whole request with a marker there.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Make = Callable[[str, str, str], bytes]
"""Makes a request of a host, a port and a marker."""


def _head(*lines: str, body: str = "") -> bytes:
    return "\r\n".join([*lines, "", body]).encode()


def _get(target: str, host: str, *fields: str, body: str = "", method: str = "GET") -> bytes:
    return _head(f"{method} {target} HTTP/1.1", f"Host: {host}", *fields, body=body)


def _basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


PARTS: dict[str, Make] = {
    "path": lambda h, p, m: _get(f"http://{h}:{p}/{m}", f"{h}:{p}"),
    "query": lambda h, p, m: _get(f"http://{h}:{p}/?q={m}", f"{h}:{p}"),
    "fragment": lambda h, p, m: _get(f"http://{h}:{p}/#{m}", f"{h}:{p}"),
    "a URL's login": lambda h, p, m: _get(f"http://u:{m}@{h}:{p}/", f"{h}:{p}"),
    "a field": lambda h, p, m: _get(f"http://{h}:{p}/", f"{h}:{p}", f"X-Key: {m}"),
    "a field's name": lambda h, p, m: _get(f"http://{h}:{p}/", f"{h}:{p}", f"{m}: x"),
    "a cookie": lambda h, p, m: _get(f"http://{h}:{p}/", f"{h}:{p}", f"Cookie: a={m}"),
    "a login": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", f"Authorization: {_basic(m)}"
    ),
    "the proxy's login": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", f"Proxy-Authorization: {_basic('lnk:' + m)}"
    ),
    "two logins": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", *[f"Proxy-Authorization: {_basic('lnk:' + m)}"] * 2
    ),
    "another Host": lambda h, p, m: _get(f"http://{h}:{p}/", f"{m}.test"),
    "the method": lambda h, p, m: _get(f"http://{h}:{p}/", f"{h}:{p}", method=m.upper()),
    "the version": lambda h, p, m: _head(f"GET http://{h}:{p}/ HTTP/{m}", f"Host: {h}:{p}"),
    "the scheme": lambda h, p, m: _get(f"{m}://{h}:{p}/", f"{h}:{p}"),
    "a body": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", f"Content-Length: {len(m)}", body=m, method="POST"
    ),
    "half a body": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", "Content-Length: 999", body=m, method="POST"
    ),
    "a chunk": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", "Transfer-Encoding: chunked",
        body=f"{len(m):x}\r\n{m}\r\n0\r\n\r\n", method="POST",
    ),
    "a chunk's extension": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", "Transfer-Encoding: chunked",
        body=f"1;a={m}\r\nx\r\n0\r\n\r\n", method="POST",
    ),
    "a bad chunk": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", "Transfer-Encoding: chunked", body=f"{m}\r\n",
        method="POST",
    ),
    "a trailer": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", "Transfer-Encoding: chunked",
        body=f"0\r\nX-Key: {m}\r\n\r\n", method="POST",
    ),
    "a coding": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", f"Transfer-Encoding: {m}, chunked", method="POST"
    ),
    "a length": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", f"Content-Length: {m}", method="POST"
    ),
    "an expectation": lambda h, p, m: _get(f"http://{h}:{p}/", f"{h}:{p}", f"Expect: {m}"),
    "an upgrade": lambda h, p, m: _get(
        f"http://{h}:{p}/", f"{h}:{p}", "Connection: Upgrade", "Upgrade: websocket",
        f"Sec-WebSocket-Key: {m}",
    ),
    "a control character": lambda h, p, m: _get(f"http://{h}:{p}/{m}\x01", f"{h}:{p}"),
    "a bare line feed": lambda h, p, m: f"GET http://{h}:{p}/{m} HTTP/1.1\nHost: {h}\n\n".encode(),
    "a folded field": lambda h, p, m: _get(f"http://{h}:{p}/", f"{h}:{p}", "X: y", f" {m}"),
    "no colon": lambda h, p, m: _get(f"http://{h}:{p}/", f"{h}:{p}", m),
    "letters past ASCII": lambda h, p, m: _get(f"http://{h}:{p}/{m}é", f"{h}:{p}", f"X: {m}ü"),
    "too much": lambda h, p, m: _get(f"http://{h}:{p}/{m * 5000}", f"{h}:{p}"),
    "an origin form": lambda h, p, m: _get(f"/{m}?{m}", f"{h}:{p}"),
    "a route": lambda h, p, m: _get(f"/_link/secret/{m}/x", f"{h}:{p}"),
    "a route's secret": lambda h, p, m: _get(f"/_link/s/{m}/mcp/notes", f"{h}:{p}"),
    "a tunnel's field": lambda h, p, m: _head(
        f"CONNECT {h}:{p} HTTP/1.1", f"Host: {h}:{p}", f"X-Key: {m}",
        f"Proxy-Authorization: {_basic('lnk:' + m)}",
    ),
    "a tunnel's bytes": lambda h, p, m: _head(
        f"CONNECT {h}:{p} HTTP/1.1", f"Host: {h}:{p}", body=m
    ),
    "a tunnel with a path": lambda h, p, m: _head(
        f"CONNECT {h}:{p}/{m} HTTP/1.1", f"Host: {h}:{p}"
    ),
    "no HTTP": lambda h, p, m: f"{m}\r\n\r\n".encode(),
    "TLS": lambda h, p, m: b"\x16\x03\x01\x00\x20" + m.encode() + b"\r\n\r\n",
}  # fmt: skip


@dataclass(frozen=True)
class Marked:
    """A request with a marker, and the spellings in which that must not be told."""

    part: str
    request: bytes
    spellings: tuple[bytes, ...]

    def found_in(self, *texts: bytes) -> bool:
        """Tell whether a text tells the marker in any spelling."""
        return any(s in text for s in self.spellings for text in map(bytes.lower, texts))


def marked(part: str, host: str, port: str, marker: str) -> Marked:
    """Return a request with a marker in one part."""
    shifted = [marker.encode(), ("lnk:" + marker).encode()]
    spellings = (marker.encode(), *(b64encode(each)[4:-4] for each in shifted))
    request = PARTS[part](host, port, marker)
    return Marked(part, request, tuple(each.lower() for each in spellings))


def every(host: str, port: str) -> Iterator[Marked]:
    """Yield a request for each part, each with a marker of its own."""
    for number, part in enumerate(PARTS):
        yield marked(part, host, port, f"m4rk3r{number:02d}zqxj")
