"""Addresses as texts and integers: `proto/policy/literals.py`."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies_hosts import noise, v4_ints, v6_ints, v6_spellings
from proto.policy.literals import MAPPED, unmapped, v4_of, v4_text, v6_of, v6_text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.2.3",
        "1.2.3.4.5",
        "127.1",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "256.0.0.1",
        "+1.0.0.1",
        "1_0.0.0.1",
        " 1.0.0.1",
        "１２７.0.0.1",
        "١٢٧.0.0.1",
        "1..0.1",
    ],
)
def test_only_four_plain_decimals_are_an_ipv4_address(text: str) -> None:
    assert v4_of(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        ":::",
        "1",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "1:2:3:4::5:6:7:8",
        "1::2::3",
        ":1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:",
        "12345::",
        "g::",
        "::1%lo",
        "::1%25lo",
        "[::1]",
        "::1/128",
        "+1::",
        "1_0::",
        " ::1",
        "::１",
        "1.2.3.4",
        "::1.2.3",
        "::1.2.3.04",
        "::256.2.3.4",
        "1.2.3.4::",
        "::1.2.3.4:5",
        "1:2:3:4:5:6:7:1.2.3.4",
    ],
)
def test_what_is_no_ipv6_address(text: str) -> None:
    assert v6_of(text) is None


@given(v4_ints)
def test_ipv4_texts_and_integers_are_inverse(value: int) -> None:
    assert v4_text(value) == str(ipaddress.IPv4Address(value))
    assert v4_of(v4_text(value)) == value


@given(v6_ints)
def test_ipv6_texts_are_inet_ntop_s_and_come_back(value: int) -> None:
    text = v6_text(value)
    assert text == socket.inet_ntop(socket.AF_INET6, value.to_bytes(16, "big"))
    assert v6_of(text) == value


@given(v6_ints.flatmap(lambda value: st.tuples(st.just(value), v6_spellings(value))))
def test_every_spelling_of_an_ipv6_address_is_the_address(both: tuple[int, str]) -> None:
    value, text = both
    assert v6_of(text) == value


@given(noise | st.text("0123456789abcdefABCDEF:.", max_size=45))
def test_an_address_that_is_read_is_read_alike_by_the_c_library(text: str) -> None:
    for read, family, size in ((v4_of, socket.AF_INET, 4), (v6_of, socket.AF_INET6, 16)):
        try:
            theirs = int.from_bytes(socket.inet_pton(family, text), "big")
        except (OSError, ValueError):
            theirs = None
        assert read(text) == theirs
        assert size


@given(v6_ints)
def test_an_ipv4_mapped_address_and_no_other_is_an_ipv4_one(value: int) -> None:
    theirs = ipaddress.IPv6Address(value).ipv4_mapped
    assert unmapped(value) == (None if theirs is None else int(theirs))


@given(v4_ints)
def test_unmapping_undoes_mapping(value: int) -> None:
    assert unmapped(MAPPED | value) == value
