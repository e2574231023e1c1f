"""Names asked for as absolute names: `shells/resolve.py`, before a DNS double."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shells import resolve
from shells.resolve import Resolvers, lookup, nameservers, settle_environment
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import DNS_V4, Network

NAMES = {
    "example.com": ["203.0.113.10"],
    "both.example.com": ["203.0.113.11", "2001:db8::11", "203.0.113.12"],
    "six.example.com": ["2001:db8::10"],
    "linked.example.com": ["fe80::1"],
    "one": ["203.0.113.10"],
    "nowhere.example.com": [],
    "db.example.com.evil.test": ["203.0.113.11"],
    "evil.test": ["203.0.113.11"],
    "one.evil.test": ["203.0.113.11"],
}

ROOT = Path(__file__).parents[2]
LOOK_UP = """
import json, socket, sys
from shells.resolve import lookup
for name in sys.argv[1:]:
    try:
        print(json.dumps(lookup(name)))
    except socket.gaierror as error:
        print(json.dumps(error.errno))
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network(f"r{os.getpid()}")
    etc = Path("/etc/netns") / made.client
    (etc / "resolv.conf").write_text(
        f"nameserver {DNS_V4}\nsearch evil.test\noptions ndots:5 timeout:20 attempts:1\n"
    )
    (etc / "hosts").write_text(
        "127.0.0.1 localhost\n203.0.113.77 printer.local\n203.0.113.78 alone\n"
    )
    yield made
    made.close()


@pytest.fixture
def double(network: Network) -> Iterator[DnsDouble]:
    double = DnsDouble(network, NAMES)
    yield double
    double.close()


def looked_up(network: Network, *names: str, **env: str) -> list[object]:
    """Look names up in a process of its own; an error is its EAI code."""
    done = subprocess.run(
        network.argv(sys.executable, "-c", LOOK_UP, *names),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **env},
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.netns
def test_a_name_is_asked_for_as_it_is_and_both_families_are(
    network: Network, double: DnsDouble
) -> None:
    assert looked_up(network, "example.com") == [["203.0.113.10"]]
    assert sorted(double.asked) == [("example.com", "A"), ("example.com", "AAAA")]


@pytest.mark.netns
def test_no_search_list_is_gone_through_whatever_the_outcome(
    network: Network, double: DnsDouble
) -> None:
    names = ["example.com", "one", "db.example.com", "nowhere.example.com", "missing"]
    found = looked_up(network, *names)
    assert found[:2] == [["203.0.113.10"], ["203.0.113.10"]]
    assert all(isinstance(code, int) for code in found[2:])
    assert double.names_asked() == set(names)
    assert len(double.asked) == 2 * len(names), "a name that isn't found is asked for once"


@pytest.mark.netns
def test_the_caller_s_environment_has_no_say(
    network: Network, double: DnsDouble, tmp_path: Path
) -> None:
    aliases = tmp_path / "aliases"
    aliases.write_text("one evil.test\n")
    found = looked_up(
        network,
        "one",
        "missing",
        LOCALDOMAIN="evil.test",
        RES_OPTIONS="ndots:9 debug",
        HOSTALIASES=str(aliases),
    )
    assert found[0] == ["203.0.113.10"]
    assert double.names_asked() == {"one", "missing"}


@pytest.mark.netns
def test_the_hosts_file_still_holds_and_asks_nobody(network: Network, double: DnsDouble) -> None:
    found = looked_up(network, "printer.local", "alone", "localhost")
    assert found[:2] == [["203.0.113.77"], ["203.0.113.78"]]
    assert set(found[2]) <= {"127.0.0.1", "::1"}  # type: ignore[call-overload]
    assert double.asked == []


@pytest.mark.netns
def test_addresses_come_each_once_and_without_a_zone(network: Network, double: DnsDouble) -> None:
    both, six, linked = looked_up(
        network, "both.example.com", "six.example.com", "linked.example.com"
    )
    assert isinstance(both, list)
    assert sorted(both) == ["2001:db8::11", "203.0.113.11", "203.0.113.12"]
    assert six == ["2001:db8::10"]
    assert linked == ["fe80::1"]


@pytest.mark.netns
def test_a_resolver_that_says_nothing_is_an_error_of_its_own(network: Network) -> None:
    (code,) = looked_up(network, "example.com")
    assert code == socket.EAI_AGAIN


def test_the_environment_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF"):
        monkeypatch.setenv(name, "evil")
    settle_environment.cache_clear()
    settle_environment()
    assert "HOSTALIASES" not in os.environ
    assert "RESOLV_HOST_CONF" not in os.environ
    assert os.environ["RES_OPTIONS"] == "ndots:0"
    assert os.environ["LOCALDOMAIN"] not in ("", "evil")
    settle_environment.cache_clear()  # the variables go with this test


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Answer in the resolver's place, and tell what it was asked."""
    asked: list[object] = []

    def getaddrinfo(host: object, port: object, **hints: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(0, 0, 0, "", (text, 0)) for text in ("fe80::1%eth0", "192.0.2.1", "192.0.2.1")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    resolve._is_glibc.cache_clear()
    yield asked
    resolve._is_glibc.cache_clear()


def test_a_name_is_handed_over_as_bytes_and_zones_and_doubles_are_dropped(
    asked: list[object],
) -> None:
    assert lookup("xn--bcher-kva.example") == ("fe80::1", "192.0.2.1")
    assert asked == [b"xn--bcher-kva.example"]


@pytest.mark.parametrize("error", [ValueError, OSError, None])
def test_another_c_library_gets_a_dot_that_makes_the_name_absolute(
    asked: list[object], monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None
) -> None:
    def confstr(_name: str) -> str:
        if error is not None:
            raise error
        return ""

    monkeypatch.setattr(os, "confstr", confstr)
    lookup("example.com")
    assert asked == [b"example.com."]


NO_DESCRIPTORS = """
import os, resource
from shells.resolve import lookup
try:
    lookup("nowhere.invalid")
except OSError as error:
    print(type(error).__name__)
most = max(map(int, os.listdir("/proc/self/fd"))) + 20
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    os.close(held.pop())
try:
    lookup("nowhere.invalid")
except OSError as error:
    print(type(error).__name__, error.errno)
"""


def test_a_lookup_that_has_no_descriptors_says_that_and_not_that_there_is_no_such_name() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTORS],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert ran.stdout.split() == ["gaierror", "OSError", str(errno.EMFILE)]


def test_resolvers_are_those_of_the_machines_file(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    resolvers = Resolvers(str(path))
    assert resolvers.servers() == ("127.0.0.1",)
    path.write_text("search example.com\nnameserver 203.0.113.53 # first\n")
    assert resolvers.servers() == ("203.0.113.53",)
    assert resolvers.servers() == ("203.0.113.53",)
    path.write_text("nameserver 2001:DB8:0::53\nnameserver 203.0.113.53\n")
    assert resolvers.servers() == ("2001:db8::53", "203.0.113.53")
    path.unlink()
    assert resolvers.servers() == ("127.0.0.1",)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        (b"", ()),
        (b"nameserver\n", ()),
        (b"nameserver example.com\nnameserver 300.1.1.1\n", ()),
        (b"nameserver fe80::1%eth0\nnameserver 203.0.113.53\n", ("203.0.113.53",)),
        (b"#nameserver 203.0.113.1\n;nameserver 203.0.113.1\n options x\n", ()),
        (b"nameserver 203.0.113.53\n\tnameserver  203.0.113.53\r\n", ("203.0.113.53",)),
        (b"nameserver \xff\n\xfe\nnameserver ::1\n", ("::1",)),
    ],
)
def test_a_resolvers_address_is_an_address_and_no_zone(
    text: bytes, servers: tuple[str, ...]
) -> None:
    assert nameservers(text) == servers
