"""Hosts, addresses and policies: strategies that dwell on the edges of the rules."""

from __future__ import annotations

import ipaddress
import socket

from hypothesis import strategies as st

from proto.policy.addresses import CLASSES, METADATA

labels = st.from_regex(r"[a-z0-9_-]{1,12}", fullmatch=True) | st.sampled_from(
    [
        "example",
        "com",
        "www",
        "evil",
        "test",
        "localhost",
        "xn--bcher-kva",
        "x" * 63,
        "-a-",
        "_dmarc",
    ]
)
top_labels = labels.filter(lambda label: not label.isdigit() and not _is_hex(label))


def _is_hex(label: str) -> bool:
    return label.startswith("0x") and all(char in "0123456789abcdef" for char in label[2:])


names = st.builds(
    lambda start, top: ".".join([*start, top]), st.lists(labels, max_size=4), top_labels
).filter(lambda name: len(name) <= 253)
"""Names in canonical form."""


@st.composite
def spellings(draw: st.DrawFn, name: str) -> str:
    """Draw another spelling of a canonical name: other case, a trailing dot."""
    caps = draw(st.lists(st.booleans(), min_size=len(name), max_size=len(name)))
    spelt = "".join(char.upper() if up else char for char, up in zip(name, caps, strict=True))
    return spelt + draw(st.sampled_from(["", "."]))


_EDGES = [
    edge
    for network in map(
        ipaddress.ip_network, [row[0] for row in CLASSES] + [row[0] for row in METADATA]
    )
    for edge in (int(network.network_address), int(network.broadcast_address))
    for edge in (edge - 1, edge, edge + 1)
]
v4_ints = st.integers(0, 2**32 - 1) | st.sampled_from(
    [edge for edge in _EDGES if 0 <= edge < 2**32]
)
v4_texts = v4_ints.map(lambda value: str(ipaddress.IPv4Address(value)))

_carriers = (
    lambda v4: 0xFFFF << 32 | v4,
    lambda v4: v4,
    lambda v4: 0xFFFF << 48 | v4,
    lambda v4: 0x0064FF9B << 96 | v4,
    lambda v4: 0x0064FF9B0001 << 80 | v4,
    lambda v4: 0x2002 << 112 | v4 << 80 | 1,
    lambda v4: 0x20010000 << 96 | 0xC0000201 << 64 | v4 ^ 0xFFFFFFFF,
    lambda v4: 0x20010000 << 96 | v4 << 64 | 0x34FFFEF5,
    lambda v4: 0x20010DB8 << 96 | 0x5EFE << 32 | v4,
    lambda v4: 0xFE80 << 112 | 0x02005EFE << 32 | v4,
)
carrying = st.builds(lambda carrier, v4: carrier(v4), st.sampled_from(_carriers), v4_ints)
"""IPv6 addresses, as integers, that carry an IPv4 one in one of ten ways."""

v6_ints = (
    st.integers(0, 2**128 - 1)
    | st.integers(0x2000 << 112, (0x4000 << 112) - 1)
    | st.sampled_from([edge for edge in _EDGES if 2**32 < edge < 2**128])
    | st.integers(0, 2**20).map(lambda low: 0x20010DB8 << 96 | low)
    | carrying
)
v6_texts = v6_ints.map(lambda value: socket.inet_ntop(socket.AF_INET6, value.to_bytes(16, "big")))
addresses = v4_texts | v6_texts


@st.composite
def v6_spellings(draw: st.DrawFn, value: int) -> str:
    """Draw any RFC 4291 spelling of an IPv6 address."""
    groups = [f"{value >> shift & 0xFFFF:x}" for shift in range(112, -16, -16)]
    groups = [group.rjust(draw(st.integers(1, 4)), "0") for group in groups]
    if draw(st.booleans()):
        groups[6:] = [str(ipaddress.IPv4Address(value & 0xFFFFFFFF))]
    runs = [
        (start, end)
        for start in range(8)
        for end in range(start + 1, len(groups) + 1)
        if all(set(group) == {"0"} for group in groups[start:end])
    ]
    shorten = draw(st.booleans())
    if runs and shorten:
        start, end = draw(st.sampled_from(runs))
        text = ":".join(groups[:start]) + "::" + ":".join(groups[end:])
    else:
        text = ":".join(groups)
    return text.upper() if draw(st.booleans()) else text


noise = st.text(
    st.sampled_from("aAzZ09.-_:[]%*/@#? \t\0\r\nx\\ßℳ。．Kıé\u200bxn") | st.characters(),
    max_size=40,
)
"""Texts that are hosts now and then."""
