"""What a call was admitted to: `proto/policy/target.py`."""

from __future__ import annotations

from proto.policy.target import authority


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert authority("2001:db8::1", 443) == "[2001:db8::1]:443"


def test_a_name_and_an_ipv4_address_stand_as_they_are() -> None:
    assert authority("203.0.113.10", 80) == "203.0.113.10:80"
    assert authority("example.com", 443) == "example.com:443"
