"""Which address stands for which endpoint: `proto/policy/endpoints.py`."""

from __future__ import annotations

import pytest

from proto.errors import Refused
from proto.policy import endpoints
from proto.policy.endpoints import Endpoints
from proto.policy.hosts import Policy

TCP = ["db.example.com:5432", "db.example.com:6432", "*.mongo.example.net:27017", "dbhost:5432",
       "203.0.113.9:4", "localhost:3"]  # fmt: skip


def made(tcp: list[str] | None = None, **more: bool) -> Endpoints:
    return Endpoints(Policy.of([], tcp=TCP if tcp is None else tcp, **more))


def test_names_listed_whole_have_their_addresses_from_the_start_the_same_each_time() -> None:
    for _ in range(2):
        assert made().at_start() == [
            ("127.53.0.1", 5432), ("127.53.0.1", 6432), ("127.53.0.2", 5432),
        ]  # fmt: skip


def test_a_name_under_a_pattern_gets_the_next_and_keeps_it() -> None:
    found = made()
    first = found.address_of("a.mongo.example.net")
    assert first == "127.53.0.3"
    assert found.address_of("b.mongo.example.net") == "127.53.0.4"
    assert found.address_of("a.mongo.example.net") == first
    assert found.name_at(first) == "a.mongo.example.net"


def test_the_wire_is_to_listen_once_at_each_of_a_names_ports() -> None:
    found = made(["*.example.net:1", "*.example.net:2"])
    address = found.address_of("a.example.net")
    assert found.to_listen("a.example.net") == [(address, 1), (address, 2)]
    found.listens((address, 1))
    assert found.to_listen("a.example.net") == [(address, 2)]
    found.listens((address, 2))
    assert found.to_listen("a.example.net") == []
    assert made().to_listen("db.example.com") == []  # the launcher listens there


@pytest.mark.parametrize(
    "host", ["evil.test", "mongo.example.net", "x.db.example.com", "203.0.113.9", "localhost"]
)
def test_what_is_no_endpoint_has_no_address(host: str) -> None:
    with pytest.raises(Refused, match="no endpoint of this sandbox") as refused:
        made().address_of(host)
    assert refused.value.key == "internet.tcp"


def test_without_the_internet_there_is_none() -> None:
    found = made(no_internet=True)
    assert found.at_start() == []
    with pytest.raises(Refused):
        found.address_of("db.example.com")
    for tcp, has in (
        (TCP, True),
        (["*.a.example:1"], True),
        (["203.0.113.9:1"], False),
        ([], False),
    ):
        assert Policy.of([], tcp=tcp).has_dns() is has
        assert not Policy.of([], tcp=tcp, no_internet=True).has_dns()


def test_names_are_given_addresses_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "LISTENED_MOST", 5)
    found = made()
    found.address_of("a.mongo.example.net")
    found.address_of("b.mongo.example.net")
    with pytest.raises(Refused, match="has no address here"):
        found.address_of("c.mongo.example.net")
    assert found.address_of("a.mongo.example.net") == "127.53.0.3"


def test_addresses_go_on_past_255() -> None:
    found = made(["*.example.net:1"])
    given = [found.address_of(f"{number}.example.net") for number in range(600)]
    assert len(set(given)) == 600
    assert given[254:257] == ["127.53.0.255", "127.53.1.0", "127.53.1.1"]
