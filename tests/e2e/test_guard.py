"""This machine's own services can't be reached, by any spelling of its addresses."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.proxy import SHELLS, Proxy, read_head
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import CLIENT_V4, CLIENT_V6, Network
from tests.net.servers import Server, collect, listen

pytestmark = [pytest.mark.netns, pytest.mark.parametrize("shell", SHELLS)]
PORT = 8099


def v4_spellings(address: str) -> list[str]:
    """Return every way to write an IPv4 address that some program reads."""
    number = struct.unpack(">I", socket.inet_aton(address))[0]
    a, b, c, d = address.split(".")
    high, low = number >> 16, number & 0xFFFF
    return [
        address,
        f"{address}.",
        str(number),
        hex(number),
        f"0{number:o}",
        f"{a}.{number & 0xFFFFFF}",
        f"{a}.{b}.{low}",
        ".".join(f"0{int(part):o}" for part in (a, b, c, d)),
        ".".join(hex(int(part)) for part in (a, b, c, d)),
        ".".join(f"{int(part):03d}" for part in (a, b, c, d)),
        f"[::ffff:{address}]",
        f"[::ffff:{high:x}:{low:x}]",
        f"[0:0:0:0:0:ffff:{address}]",
        f"[::{address}]",
        f"[::{high:x}:{low:x}]",
        f"[64:ff9b::{address}]",
        f"[64:ff9b::{high:x}:{low:x}]",
        f"[64:ff9b:1::{address}]",
        f"[2002:{high:x}:{low:x}::1]",
        f"[2001:0:{high:x}:{low:x}::1]",
        f"[2001::{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}]",
    ]


SPELLINGS = [
    *v4_spellings("127.0.0.1"),
    *v4_spellings(CLIENT_V4),
    "127.0.0.2", "127.255.255.254", "0.0.0.0", "0", "127.1", "localhost", "localhost.",
    "LOCALHOST", "x.localhost", "inside.example.net", "here.example.net", "here6.example.net",
    "mapped.example.net", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", f"[{CLIENT_V6}]",
    "[2001:DB8:1:0:0:0:0:2]", "[fe80::1]",
]  # fmt: skip
METADATA = ["169.254.169.254", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"]


@pytest.fixture(scope="module")
def canaries(network: Network) -> Iterator[list[Server]]:
    """Services on every address of the machine that the proxy stands on."""
    addresses = ("0.0.0.0", "::")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Server(network.on_client_side(lambda a=address: listen(a, PORT)), collect)
            )
            for address in addresses
        ]


@pytest.mark.parametrize("form", ["connect", "absolute"])
def test_no_spelling_reaches_a_canary(
    shell: str, form: str, network: Network, dns: DnsDouble, canaries: list[Server]
) -> None:
    dns.names.update(
        {
            "here.example.net": [CLIENT_V4],
            "here6.example.net": [CLIENT_V6],
            "mapped.example.net": ["::ffff:c633:6402"],
        }
    )
    with Proxy(network, "--any-host", shell=shell) as proxy:
        for spelling in SPELLINGS:
            authority = f"{spelling}:{PORT}"
            line = (
                f"CONNECT {authority}" if form == "connect" else f"GET http://{authority}/"
            ) + f" HTTP/1.1\r\nHost: {authority}\r\n\r\n"
            with proxy.connect() as sock:
                sock.sendall(line.encode())
                head = read_head(sock)
            status = head.split(b" ")[1] if head else b"closed"
            assert status in {b"400", b"403", b"502"}, (spelling, head)
    assert [canary.accepted for canary in canaries] == [0, 0]


def test_the_canaries_are_alive(
    shell: str, network: Network, dns: DnsDouble, canaries: list[Server]
) -> None:
    """Else the test above could not fail."""
    for address in (CLIENT_V4, "127.0.0.1", CLIENT_V6):
        network.on_client_side(lambda a=address: socket.create_connection((a, PORT), 60)).close()
    until = time.monotonic() + 60
    while not all(canary.accepted for canary in canaries):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("spelling", METADATA)
def test_a_call_to_metadata_is_refused_and_the_last_for_now(
    shell: str, spelling: str, network: Network, canaries: list[Server]
) -> None:
    """No program needs it by accident, so one call pauses the wire (R36)."""
    with Proxy(network, "--any-host", shell=shell) as proxy:
        for status in (b"403", b"503"):
            with proxy.connect() as sock:
                sock.sendall(
                    f"CONNECT {spelling}:80 HTTP/1.1\r\nHost: {spelling}:80\r\n\r\n".encode()
                )
                assert read_head(sock).split(b" ")[1] == status
