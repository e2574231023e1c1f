"""What a verdict costs: by name over lists of any length, by address, by the kernel.

    pytest bench/bench_policy.py

Groups compare like with like: the curve of a host rule over 10 to 10,000 entries is flat,
and an address's class costs less than the standard library's reading of its text.
"""

from __future__ import annotations

import ipaddress
import statistics
import timeit
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from proto.errors import Refused
from proto.events import Place
from proto.policy.addresses import reachable, refusal_of, to_locate
from proto.policy.hosts import Policy, canonical_host
from proto.policy.target import Scope, Target
from shells.machine import locate

ENTRIES = [10, 100, 1_000, 10_000]


def policy_of(entries: int) -> Policy:
    """Return a policy of `entries` hosts, half of them patterns."""
    half = entries // 2
    return Policy.of(
        [f"h{n}.example.com" for n in range(half)] + [f"*.s{n}.example.org" for n in range(half)]
    )


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.benchmark(group="host rule: a listed name")
def test_listed_name(benchmark: BenchmarkFixture, entries: int) -> None:
    benchmark(policy_of(entries).admit, "h3.example.com", 443)


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.benchmark(group="host rule: a name under a pattern")
def test_name_under_a_pattern(benchmark: BenchmarkFixture, entries: int) -> None:
    benchmark(policy_of(entries).admit, "a.s3.example.org", 443)


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.benchmark(group="host rule: a name that isn't listed, and its refusal")
def test_refused_name(benchmark: BenchmarkFixture, entries: int) -> None:
    policy = policy_of(entries)

    def refuse() -> None:
        try:
            policy.admit("www.example.net", 443)
        except Refused:
            return
        raise AssertionError

    benchmark(refuse)


def test_the_curve_over_the_entries_is_flat() -> None:
    """The median of nine runs over 10,000 entries is less than twice that over ten."""

    def cost(policy: Policy) -> float:
        run: Callable[[], object] = lambda: policy.admit("a.s3.example.org", 443)  # noqa: E731
        return statistics.median(timeit.repeat(run, number=2_000, repeat=9))

    few, many = cost(policy_of(ENTRIES[0])), cost(policy_of(ENTRIES[-1]))
    print(f"\n10,000 entries cost {many / few:.2f} of ten")
    assert many < 2 * few


@pytest.mark.parametrize("host", ["www.Example.com", "203.0.113.10", "[2001:DB8::0:1]"])
@pytest.mark.benchmark(group="a host in its canonical form")
def test_canonical_host(benchmark: BenchmarkFixture, host: str) -> None:
    benchmark(canonical_host, host)


ADDRESSES = ["203.0.113.10", "2606:4700::1111", "64:ff9b::cb00:710a"]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.benchmark(group="an address's class")
def test_class_of_an_address(benchmark: BenchmarkFixture, address: str) -> None:
    benchmark(refusal_of, address, Scope.INTERNET)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.benchmark(group="an address's class")
def test_class_of_an_address_by_the_standard_library(
    benchmark: BenchmarkFixture, address: str
) -> None:
    benchmark(lambda: ipaddress.ip_address(address).is_global)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.benchmark(group="a name's addresses: what a call pays")
def test_reachable(benchmark: BenchmarkFixture, count: int) -> None:
    found = ["203.0.113.10", "2001:db8::10", "203.0.113.11", "2001:db8::11"][:count]
    target = Target("example.com", 443, Scope.INTERNET, literal=False, reads_hello=True)

    def judge() -> tuple[str, ...]:
        places = [Place.ELSEWHERE] * len(to_locate(found))
        return reachable(found, places, target)

    benchmark(judge)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.benchmark(group="a name's addresses: what a call pays")
def test_locate(benchmark: BenchmarkFixture, count: int) -> None:
    found = ("203.0.113.10", "2001:db8::10", "203.0.113.11", "2001:db8::11")[:count]
    benchmark(locate, found)
