"""ClientHellos: a printer for the message and its records, and strategies that use it.

The printer knows nothing of the parser: it writes RFC 8446 §4.1.2 and RFC 6066 §3 down,
and takes any value for any field, so that a test can bend one at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

Extension = tuple[int, bytes]

SERVER_NAME, PRE_SHARED_KEY, ENCRYPTED_HELLO = 0, 41, 0xFE0D


def sized(width: int, data: bytes, *, off: int = 0) -> bytes:
    """Print a vector: its length in `width` bytes, told wrongly by `off`, and its data."""
    return (len(data) + off).to_bytes(width, "big") + data


def server_name(name: bytes, *, kind: int = 0) -> Extension:
    """Print a server_name extension of one name."""
    return SERVER_NAME, sized(2, bytes([kind]) + sized(2, name))


@dataclass(frozen=True)
class Hello:
    """The fields of a ClientHello; `message` prints them."""

    extensions: Sequence[Extension] = ()
    version: bytes = b"\x03\x03"
    random: bytes = bytes(range(32))
    session_id: bytes = b"s" * 32
    suites: bytes = b"\x13\x01\x13\x02"
    compression: bytes = b"\x00"

    def block(self) -> bytes:
        """Print the block of extensions, with its length."""
        parts = (kind.to_bytes(2, "big") + sized(2, data) for kind, data in self.extensions)
        return sized(2, b"".join(parts))

    def message(self) -> bytes:
        """Print the handshake message."""
        return message(
            self.version
            + self.random
            + sized(1, self.session_id)
            + sized(2, self.suites)
            + sized(1, self.compression)
            + self.block()
        )


def message(body: bytes, *, kind: int = 1, off: int = 0) -> bytes:
    """Print a handshake message round a body."""
    return bytes([kind]) + sized(3, body, off=off)


def hello_for(name: bytes) -> bytes:
    """Print a small hello that asks for one name."""
    return Hello(
        [(43, b"\x02\x03\x04"), server_name(name), (16, sized(2, sized(1, b"h2")))]
    ).message()


def record(payload: bytes, *, kind: int = 22, version: bytes = b"\x03\x01") -> bytes:
    """Print one TLS record."""
    return bytes([kind]) + version + sized(2, payload)


def cut(data: bytes, points: Sequence[int]) -> list[bytes]:
    """Cut bytes at points, each taken modulo their length; no piece is empty."""
    edges = sorted({0, len(data), *(point % len(data) for point in points)} if data else {0})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@dataclass(frozen=True)
class Stream:
    """What comes down a tunnel: records of one hello, and what follows them."""

    name: str
    hello: bytes
    behind: bytes = field(default=b"")

    @property
    def data(self) -> bytes:
        """All bytes of the stream."""
        return self.hello + self.behind


_label = st.from_regex(rb"[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,14}[a-zA-Z0-9_])?", fullmatch=True)
_last_label = st.from_regex(rb"[a-zA-Z]([a-zA-Z-]{0,10}[a-zA-Z])?", fullmatch=True)
dns_names = st.builds(
    lambda labels, last: b".".join([*labels, last]), st.lists(_label, max_size=4), _last_label
)
_other_kinds = st.integers(1, 65535).filter(
    lambda kind: kind not in (PRE_SHARED_KEY, ENCRYPTED_HELLO)
)
_others = st.lists(
    st.tuples(_other_kinds, st.binary(max_size=40)), max_size=8, unique_by=lambda each: each[0]
)


@st.composite
def hellos(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Draw a well-formed ClientHello message and the name that it asks for."""
    name = draw(dns_names)
    extensions = draw(_others)
    extensions.insert(draw(st.integers(0, len(extensions))), server_name(name))
    if draw(st.booleans()):
        outer = b"\x00" + draw(st.binary(max_size=20))
        extensions.insert(draw(st.integers(0, len(extensions))), (ENCRYPTED_HELLO, outer))
    if draw(st.booleans()):
        extensions.append((PRE_SHARED_KEY, draw(st.binary(max_size=20))))
    hello = Hello(
        extensions,
        version=b"\x03" + draw(st.binary(min_size=1, max_size=1)),
        random=draw(st.binary(min_size=32, max_size=32)),
        session_id=draw(st.binary(max_size=32)),
        suites=draw(st.binary(min_size=1, max_size=20)) * 2,
        compression=draw(st.binary(min_size=1, max_size=3)),
    )
    return hello.message(), name


points = st.lists(st.integers(0, 1 << 20), max_size=12)


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Draw a hello cut into records, and bytes behind it that begin no handshake record."""
    hello, name = draw(hellos())
    versions = st.integers(0, 255).map(lambda minor: bytes([3, minor]))
    payloads = cut(hello, draw(points))
    records = b"".join(record(payload, version=draw(versions)) for payload in payloads)
    behind = draw(st.binary(max_size=60).filter(lambda data: data[:1] != b"\x16"))
    return Stream(name.decode().lower(), records, behind)


@st.composite
def bent(draw: st.DrawFn) -> bytes:
    """Draw a stream with a few bytes changed, dropped or doubled, most of it as it was."""
    data = bytearray(draw(streams()).data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["change", "drop", "double", "insert"])):
            case "change":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "drop":
                del data[at : at + draw(st.integers(1, 4))]
            case "double":
                data[at:at] = data[at : at + draw(st.integers(1, 8))]
            case _:
                data[at:at] = draw(st.binary(max_size=4))
    return bytes(data)
