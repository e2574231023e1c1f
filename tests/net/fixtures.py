"""Fixtures: one test network a session, with a DNS double and a certificate authority."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network

NAMES = {
    "example.com": ["203.0.113.10"],
    "www.example.com": ["203.0.113.10"],
    "both.example.com": ["203.0.113.11", "2001:db8::11"],
    "six.example.com": ["2001:db8::10"],
    "packages.example.org": ["203.0.113.12"],
    "run.example.org": ["203.0.113.13"],
    "inside.example.net": ["127.0.0.1"],
    "evil.test": ["203.0.113.10"],
}


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    """The session's pair of namespaces."""
    made = Network(str(os.getpid()))
    yield made
    made.close()


@pytest.fixture(scope="session")
def resolver(network: Network) -> Iterator[DnsDouble]:
    """The network's resolver."""
    double = DnsDouble(network, NAMES)
    yield double
    double.close()


@pytest.fixture
def dns(resolver: DnsDouble) -> DnsDouble:
    """The network's resolver, counting from nothing."""
    resolver.forget()
    return resolver


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority of the session's own."""
    return Authority(tmp_path_factory.mktemp("authority"))
