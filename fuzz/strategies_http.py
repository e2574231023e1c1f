"""HTTP requests as strategies, ways to spoil them, and readers that take what we refuse.

`Request` prints a request as a client sends it to a proxy.  `spoilt` bends valid bytes the
way smugglers do.  `lenient` reads a stream as servers that were talked past did, and
`read_by_h11` and `read_by_httptools` as two libraries do, so that a test can ask of what
goes out whether each of them sees the one request that was meant.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import h11
import httptools
from hypothesis import strategies as st

from proto.calls.rewrite import PlainRequest, request_for_server
from proto.codecs.body import LAST_CHUNK, BodyReader, chunk
from proto.codecs.fields import Fields
from proto.codecs.http1 import CHUNKED, RequestReader, expects_continue, request_framing
from proto.codecs.target import AbsoluteTarget, read_target
from proto.errors import MalformedRequest

TCHARS = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Seen:
    """One request as some reader saw it."""

    method: bytes
    target: bytes
    host: bytes | None
    body: bytes


@dataclass(frozen=True)
class Request:
    """A request for an http URL, as a client means it."""

    method: str = "GET"
    host: str = "example.com"
    port: int = 80
    path: bytes = b"/"
    fields: Fields = ()
    body: bytes = b""
    chunks: Sequence[int] | None = None
    """Where a chunked body is cut, None for one with a length."""

    @property
    def authority(self) -> bytes:
        """The host and port as the URL and `Host` have them."""
        return f"{self.host}:{self.port}".encode() if self.port != 80 else self.host.encode()

    @property
    def head(self) -> bytes:
        """The head as it is sent to the proxy."""
        lines = [
            b"%b http://%b%b HTTP/1.1" % (self.method.encode(), self.authority, self.path),
            b"Host: " + self.authority,
            *(b"%b: %b" % pair for pair in self.fields),
        ]
        if self.chunks is not None:
            lines.append(b"Transfer-Encoding: chunked")
        elif self.body:
            lines.append(b"Content-Length: %d" % len(self.body))
        return b"\r\n".join([*lines, b"", b""])

    @property
    def data(self) -> bytes:
        """The whole request as it is sent to the proxy."""
        if self.chunks is None:
            return self.head + self.body
        pieces = cut(self.body, self.chunks)
        chunks = (b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        return self.head + b"".join(chunks) + b"0\r\n\r\n"

    @property
    def seen(self) -> Seen:
        """What the server should see."""
        return Seen(self.method.encode(), self.path, self.authority, self.body)


def cut(data: bytes, points: Sequence[int]) -> list[bytes]:
    """Cut bytes at points, each taken modulo their length; no piece is empty."""
    edges = sorted({0, len(data), *(point % len(data) for point in points)} if data else {0})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


points = st.lists(st.integers(0, 1 << 17), max_size=12)
tokens = st.text(TCHARS, min_size=1, max_size=20).map(str.encode)
methods = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "QUERY"])
labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
hosts = st.builds(lambda label: f"{label}.example.com", labels)
ports = st.one_of(st.just(80), st.integers(1, 65535))
values = st.binary(max_size=40).map(
    lambda raw: bytes(b for b in raw if b == 9 or (b >= 32 and b != 127)).strip(b" \t")
)
"""Field values, bytes over 0x7f included."""

_OURS = {
    b"connection", b"content-length", b"expect", b"host", b"http2-settings", b"keep-alive",
    b"te", b"trailer", b"transfer-encoding", b"upgrade", b"content_length", b"transfer_encoding",
}  # fmt: skip
names = tokens.filter(lambda name: name.lower() not in _OURS and not name.startswith(b"Proxy-"))
"""Names that mean nothing to a proxy."""

fields = st.lists(st.tuples(names, values), max_size=8).map(tuple)
paths = st.binary(max_size=30).map(
    lambda raw: b"/" + bytes(b for b in raw if 0x21 <= b <= 0x7E and b not in b"#\\")
)

plain_paths = st.from_regex(
    rb"/[a-z0-9_~!$&'()*+,;=:@/-]{0,20}(\?([a-z0-9=&]|%20){0,9})?", fullmatch=True
)
"""Paths that no server finds fault with: no dot segments, no broken percent-encoding."""


def requests_for(paths: st.SearchStrategy[bytes]) -> st.SearchStrategy[Request]:
    """Draw well-formed requests for such paths."""
    return st.builds(
        Request,
        method=methods,
        host=hosts,
        port=ports,
        path=paths,
        fields=fields,
        body=st.binary(max_size=200),
        chunks=st.one_of(st.none(), points),
    )


requests = requests_for(paths)

_SNIPPETS = [
    *(bytes([code]) for code in b"\n\r\x00\x0b\x0c\x7f\x85\xa0 \t:,;#\\@%?[]_-+0"),
    *(b"\r\n", b"\r\n\r\n", b"\n\n", b"\r\n ", b"\r\n\t", b"0x", b"0\r\n\r\n", b"5\r\nhello\r\n"),
    b"\r\nContent-Length: 5",
    b"\r\nContent-Length: 0",
    b"\r\nContent-Length : 5",
    b"\r\nContent_Length: 5",
    b"\r\nTransfer-Encoding: chunked",
    b"\r\nTransfer-Encoding:\x0bchunked",
    b"\r\nTransfer-Encoding: chunked, identity",
    b"\r\nHost: evil.test",
    b"\nHost: evil.test",
    b"\r\nConnection: close, Host, Content-Length",
    b"\r\nExpect: 100-continue",
    b"\r\nProxy-Authorization: Basic eDp5",
    b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
]


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """Draw a valid request with a few bytes inserted, dropped, doubled or replaced."""
    data = draw(requests).data
    for _ in range(draw(st.integers(1, 3))):
        # Ends of lines are where readers differ most.
        ends = [0, *(match.start() for match in re.finditer(b"\r\n", data))]
        at = draw(st.one_of(st.sampled_from(ends), st.integers(0, len(data))))
        end = min(len(data), at + draw(st.integers(0, 8)))
        snippet = draw(st.one_of(st.sampled_from(_SNIPPETS), st.binary(max_size=3)))
        data = (
            data[:at] + draw(st.sampled_from([snippet, snippet + data[at:end], b""])) + data[end:]
        )
    return data


def onward(data: bytes) -> tuple[AbsoluteTarget, bytes] | None:
    """Return what goes out for the first request of a stream, None if it isn't whole or ours.

    Raises MalformedRequest for one that is refused.
    """
    found = RequestReader().feed(data)
    if found is None:
        return None
    head, rest = found
    url, framing = read_target(head), request_framing(head)
    expects_continue(head)
    if not isinstance(url, AbsoluteTarget):
        return None
    body = BodyReader(framing, MalformedRequest)
    payload = b"".join(body.feed(rest))
    if not body.done:
        return None
    out = request_for_server(PlainRequest(head, url, framing), upgrade=False, last=True)
    if framing == CHUNKED:
        return url, out + (chunk(payload) if payload else b"") + LAST_CHUNK
    return url, out + payload


_WHITE = b" \t\x0b\x0c\r\x85\xa0"
_FOLD = re.compile(rb"\r*\n[ \t]+")


def lenient(data: bytes, *, cr_ends: bool = False, length_wins: bool = False) -> list[Seen]:
    """Read a stream as the laxest servers do; what isn't read to its end is a request too.

    A bare LF ends a line (with `cr_ends` a bare CR too), lines that begin with white space
    go on, empty lines before a request are skipped, any white space parts the request line
    and is taken off names and values, of two fields the first counts, numbers may have signs.
    """
    seen = []
    while data.strip(b"\r\n"):
        data = data.lstrip(b"\r\n")
        head, data = _lenient_head(data, cr_ends=cr_ends)
        method, target, *_ = [*head[0].split(), b"", b""]
        pairs: dict[bytes, bytes] = {}
        for line in head[1:]:
            name, _, value = line.partition(b":")
            pairs.setdefault(name.strip(_WHITE).lower().replace(b"_", b"-"), value.strip(_WHITE))
        coding, length = pairs.get(b"transfer-encoding", b""), pairs.get(b"content-length")
        if b"chunked" in coding.lower() and not (length_wins and length):
            body, data = _lenient_chunks(data)
        else:
            number = max(0, int(length or b"0"))
            body, data = data[:number], data[number:]
        seen.append(Seen(method, target, pairs.get(b"host"), body))
    return seen


def _lenient_head(data: bytes, *, cr_ends: bool) -> tuple[list[bytes], bytes]:
    ends = re.compile(rb"\r\n|\n|\r(?=[^\r\n])" if cr_ends else rb"\r*\n")
    lines: list[bytes] = []
    at = 0
    while (end := ends.search(data, at)) is not None:
        line, at = data[at : end.start()], end.end()
        if not line.strip(b"\r"):
            break
        if line[:1] in b" \t" and lines:
            lines[-1] += b" " + line.strip(_WHITE)
        else:
            lines.append(line)
    else:
        return [*lines, data[at:]], b""
    return lines, data[at:]


def _lenient_chunks(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        line, _, data = data.partition(b"\n")
        size = int(line.split(b";")[0].strip(_WHITE) or b"0", 16)
        if not size:
            break
        body, data = body + data[:size], data[size:].lstrip(b"\r").removeprefix(b"\n")
    while line := data.partition(b"\n")[0].strip(b"\r"):
        data = data.partition(b"\n")[2]
        if not data:
            return body, b""
    return body, data.partition(b"\n")[2]


def read_by_h11(data: bytes) -> list[Seen]:
    """Read a stream with h11, as a server."""
    seen: list[Seen] = []
    while data:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(data)
        head = connection.next_event()
        if not isinstance(head, h11.Request):
            return [*seen, Seen(b"", b"", None, data)]
        body = b""
        while isinstance(event := connection.next_event(), h11.Data):
            body += bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            return [*seen, Seen(b"", b"", None, data)]
        host = dict(head.headers).get(b"host")
        seen.append(Seen(head.method, head.target, host, body))
        data = connection.trailing_data[0]
    return seen


@dataclass
class _Collector:
    """Takes httptools' callbacks."""

    seen: list[Seen] = field(default_factory=list)
    method: Callable[[], bytes] = bytes
    target: bytes = b""
    host: bytes | None = None
    body: bytes = b""

    def on_message_begin(self) -> None:
        self.target, self.host, self.body = b"", None, b""

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"host":
            self.host = value

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.seen.append(Seen(self.method(), self.target, self.host, self.body))


def read_by_httptools(data: bytes) -> list[Seen]:
    """Read a stream with httptools, which is Node's parser.

    Raises httptools.HttpParserError for what it refuses: methods that it doesn't know.
    """
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    collector.method = parser.get_method
    parser.feed_data(data)
    return collector.seen
