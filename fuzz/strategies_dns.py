"""Strategies for DNS messages: well-formed ones, and what is one byte away from them."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

LABELS = st.lists(
    st.one_of(
        st.sampled_from([b"db", b"example", b"com", b"DB", b"mongo", b"net", b"_x", b"_tcp", b"*"]),
        st.binary(min_size=1, max_size=63),
    ),
    max_size=6,
)
KINDS = st.one_of(st.sampled_from([1, 5, 16, 28, 33, 41, 65, 255]), st.integers(0, 65535))
GROUPS = st.one_of(st.just(1), st.integers(0, 65535))
COUNTS = st.one_of(st.sampled_from([0, 1]), st.integers(0, 65535))


def name(labels: list[bytes]) -> bytes:
    """Return labels as a name on the wire."""
    return b"".join(bytes([len(each)]) + each for each in labels) + b"\0"


@st.composite
def names(draw: st.DrawFn) -> bytes:
    """Draw a name, or what ends in a pointer."""
    labels = name(draw(LABELS))
    pointer = draw(st.one_of(st.none(), st.integers(0, 0x3FFF)))
    return labels if pointer is None else labels[:-1] + struct.pack("!H", 0xC000 | pointer)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Draw a record: its data is text, a service, a name, or anything."""
    data = draw(
        st.one_of(
            st.binary(max_size=40),
            st.binary(max_size=40).map(lambda text: bytes([len(text)]) + text),
            names(),
            names().map(lambda target: b"\0\0\0\1\0\2" + target),
        )
    )
    ttl_s = draw(st.integers(0, 2**32 - 1))
    head = struct.pack("!HHIH", draw(KINDS), draw(GROUPS), ttl_s, len(data))
    return draw(st.one_of(names(), st.just(b"\xc0\x0c"))) + head + data


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Draw a query or an answer, whole or with some of its bytes changed, cut or doubled."""
    flags = draw(st.one_of(st.sampled_from([0x0100, 0x8180]), st.integers(0, 65535)))
    found = draw(st.lists(records(), max_size=4))
    counts = draw(
        st.one_of(st.just((1, len(found), 0, 0)), st.tuples(COUNTS, COUNTS, COUNTS, COUNTS))
    )
    whole = struct.pack("!6H", draw(st.integers(0, 65535)), flags, *counts)
    whole += draw(names()) + struct.pack("!HH", draw(KINDS), draw(GROUPS)) + b"".join(found)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(whole) - 1)))
        whole = whole[:at] + draw(st.binary(max_size=3)) + whole[at + draw(st.integers(0, 2)) :]
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole
