"""Where addresses lead: `shells/machine.py`, on loopback and in a namespace of its own."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, cast

import pytest

from proto.events import Place
from shells import machine
from shells.machine import Machine, locate
from tests.net import namespaces

ELSEWHERE, OWN_NETWORK = Place.ELSEWHERE, Place.OWN_NETWORK
THIS_MACHINE, MANY = Place.THIS_MACHINE, Place.MANY


class Namespace:
    """A network of its own, on documentation addresses."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ip(self, line: str) -> None:
        """Run one `ip` command inside."""
        words = ["ip", "-n", self.name, *line.split()]
        subprocess.run(words, check=True, capture_output=True, timeout=60)

    def sysctl(self, key: str, value: str) -> None:
        """Set one of the network's settings."""
        self.run(lambda: _write(f"/proc/sys/net/{key}", value))

    def run(self, make: Callable[[], Any]) -> Any:
        """Return what a function returns on a thread inside."""
        return namespaces._inside(self.name, make)

    def places(self, *addresses: str) -> list[Place]:
        """Locate addresses from inside."""
        return list(self.run(lambda: locate(addresses)))


def _write(path: str, value: str) -> None:
    with open(path, "w") as file:
        file.write(value)


@pytest.fixture
def net() -> Iterator[Namespace]:
    name = f"lnk-m-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True, timeout=60)
    try:
        net = Namespace(name)
        net.ip("link set lo up")
        net.ip("link add d0 type veth peer name p0")
        net.ip("link set p0 up")
        net.ip("link set d0 up")
        net.ip("addr add 198.51.100.7/26 brd + dev d0")
        net.ip("addr add 2001:db8:5::7/64 dev d0 nodad")
        net.ip("route add default via 198.51.100.1")
        net.ip("route add default via 2001:db8:5::1")
        yield net
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True, capture_output=True, timeout=60)


def test_loopback_is_this_machine_by_all_its_addresses() -> None:
    addresses = ("127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1")
    assert set(locate(addresses)) == {THIS_MACHINE}


def test_broadcast_and_multicast_are_many() -> None:
    assert set(locate(("255.255.255.255", "224.0.0.1", "ff02::1", "127.255.255.255"))) == {MANY}


def test_nothing_asked_is_nothing_answered() -> None:
    assert locate(()) == ()


def test_no_descriptor_is_left_open() -> None:
    locate(("127.0.0.1", "198.51.100.1", "::1"))
    before = len(os.listdir("/proc/self/fd"))
    locate(("127.0.0.1", "198.51.100.1", "::1"))
    assert len(os.listdir("/proc/self/fd")) == before


def test_sockets_that_stay_open_are_two_and_are_given_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with closing(Machine()) as asked:
        for _ in range(3):
            assert asked.locate(("198.18.0.1", "127.0.0.1")) == (ELSEWHERE, THIS_MACHINE)
            assert len(os.listdir("/proc/self/fd")) == before + 2
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_a_failed_answer_left_is_not_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Machine()) as asked:
        assert asked.locate(("127.0.0.1",)) == (THIS_MACHINE,)
        with monkeypatch.context() as patch:
            patch.setattr(machine, "_read", _fail)  # its answers are never read
            with pytest.raises(OSError, match="no answer"):
                asked.locate(("198.18.0.1",))
        assert asked.locate(("127.0.0.1",)) == (THIS_MACHINE,)


def _fail(*_: object) -> None:
    raise OSError(errno.EIO, "no answer")


@pytest.mark.netns
def test_one_machine_sees_each_change_at_once(net: Namespace) -> None:
    asked = Machine()

    def places() -> tuple[Place, ...]:
        return cast("tuple[Place, ...]", net.run(lambda: asked.locate(("203.0.113.9",))))

    with closing(asked):
        assert places() == (ELSEWHERE,)
        net.ip("addr add 203.0.113.9/24 dev d0")
        assert places() == (THIS_MACHINE,)
        net.ip("addr del 203.0.113.9/24 dev d0")
        assert places() == (ELSEWHERE,)
        net.ip("route add local 203.0.113.0/24 dev lo")
        assert places() == (THIS_MACHINE,)


@pytest.mark.netns
def test_its_own_addresses_their_networks_and_what_is_beyond(net: Namespace) -> None:
    assert net.places("198.51.100.7", "198.51.100.20", "198.51.100.64", "203.0.113.10") == [
        THIS_MACHINE,
        OWN_NETWORK,
        ELSEWHERE,
        ELSEWHERE,
    ]
    assert net.places("2001:db8:5::7", "2001:db8:5::8", "2001:db8:6::7", "::ffff:198.51.100.7") == [
        THIS_MACHINE,
        OWN_NETWORK,
        ELSEWHERE,
        THIS_MACHINE,
    ]


@pytest.mark.netns
def test_the_ends_of_its_network_are_broadcast(net: Namespace) -> None:
    assert net.places("198.51.100.63") == [MANY]


@pytest.mark.netns
def test_an_address_without_a_network_is_only_itself(net: Namespace) -> None:
    net.ip("addr add 203.0.113.5/32 dev d0")
    net.ip("addr add 2001:db8:9::5/128 dev d0 nodad")
    assert net.places("203.0.113.5", "203.0.113.4", "2001:db8:9::5", "2001:db8:9::4") == [
        THIS_MACHINE,
        ELSEWHERE,
        THIS_MACHINE,
        ELSEWHERE,
    ]


@pytest.mark.netns
def test_a_route_to_a_network_is_none_that_it_stands_on(net: Namespace) -> None:
    net.ip("route add 203.0.113.77/32 dev d0")
    net.ip("route add 192.0.2.0/24 dev d0")
    assert net.places("203.0.113.77", "192.0.2.1") == [ELSEWHERE, ELSEWHERE]


@pytest.mark.netns
def test_the_far_end_of_a_point_to_point_link_is_its_network(net: Namespace) -> None:
    net.ip("addr add 192.0.2.1 peer 192.0.2.9/32 dev d0")
    net.ip("addr add 2001:db8:8::1 peer 2001:db8:8::9/128 dev d0 nodad")
    assert net.places("192.0.2.1", "192.0.2.9", "192.0.2.8") == [
        THIS_MACHINE,
        OWN_NETWORK,
        ELSEWHERE,
    ]
    assert net.places("2001:db8:8::1", "2001:db8:8::9", "2001:db8:8::8") == [
        THIS_MACHINE,
        OWN_NETWORK,
        ELSEWHERE,
    ]


@pytest.mark.netns
def test_local_routes_are_this_machine_also_where_no_address_says_so(net: Namespace) -> None:
    net.ip("route add local 203.0.113.128/25 dev lo")
    net.ip("route add local 2001:db8:77::/64 dev lo")
    assert net.places("203.0.113.200", "2001:db8:77::1") == [THIS_MACHINE, THIS_MACHINE]


@pytest.mark.netns
def test_an_anycast_address_is_many(net: Namespace) -> None:
    net.sysctl("ipv6/conf/all/forwarding", "1")
    assert net.places("2001:db8:5::") == [MANY]


@pytest.mark.netns
def test_a_binding_that_says_yes_to_all_is_not_believed(net: Namespace) -> None:
    net.sysctl("ipv4/ip_nonlocal_bind", "1")
    net.sysctl("ipv6/ip_nonlocal_bind", "1")
    assert net.places("203.0.113.10", "198.51.100.7", "2001:db8:6::1", "2001:db8:5::7") == [
        ELSEWHERE,
        THIS_MACHINE,
        ELSEWHERE,
        THIS_MACHINE,
    ]
    net.ip("route add local 203.0.113.128/25 dev lo")
    assert net.places("203.0.113.200", "198.51.100.20") == [THIS_MACHINE, OWN_NETWORK]


@pytest.mark.netns
def test_an_address_is_its_own_as_soon_as_it_is_there_and_no_longer(net: Namespace) -> None:
    addresses = ("203.0.113.9", "2001:db8:7::9")
    assert net.places(*addresses) == [ELSEWHERE, ELSEWHERE]
    net.ip("addr add 203.0.113.9/24 dev d0")
    net.ip("addr add 2001:db8:7::9/64 dev d0")  # still tentative: bind(2) says no
    assert net.places(*addresses) == [THIS_MACHINE, THIS_MACHINE]
    assert net.places("203.0.113.8", "2001:db8:7::8") == [OWN_NETWORK, OWN_NETWORK]
    net.ip("addr del 203.0.113.9/24 dev d0")
    net.ip("addr del 2001:db8:7::9/64 dev d0")
    assert net.places(*addresses) == [ELSEWHERE, ELSEWHERE]


@pytest.mark.netns
def test_an_address_of_an_interface_that_is_down_is_still_its_own(net: Namespace) -> None:
    net.ip("link add d1 type veth peer name p1")
    net.ip("addr add 203.0.113.5/24 dev d1")
    assert net.places("203.0.113.5", "203.0.113.6") == [THIS_MACHINE, OWN_NETWORK]


@pytest.mark.netns
def test_an_address_that_other_rules_route_away_is_still_its_own(net: Namespace) -> None:
    # A VPN's rules may stand before the local table; the address remains the machine's.
    net.ip("route add default via 198.51.100.1 table 7")
    net.ip("rule add pref 5 lookup 7")
    net.ip("rule add pref 9 lookup local")
    net.ip("rule del pref 0")
    assert net.places("198.51.100.7", "203.0.113.10") == [THIS_MACHINE, ELSEWHERE]


@pytest.mark.netns
def test_an_address_without_a_route_is_elsewhere(net: Namespace) -> None:
    net.ip("route del default")
    net.ip("-6 route del default")
    net.ip("route add unreachable 192.0.2.0/26")
    net.ip("route add prohibit 192.0.2.64/26")
    net.ip("route add blackhole 192.0.2.128/26")
    net.ip("route add unreachable 2001:db8:11::/64")
    net.ip("route add prohibit 2001:db8:12::/64")
    net.ip("route add blackhole 2001:db8:13::/64")
    addresses = ("203.0.113.10", "192.0.2.1", "192.0.2.65", "192.0.2.129")
    more = ("2001:db8:6::1", "2001:db8:11::1", "2001:db8:12::1", "2001:db8:13::1")
    assert set(net.places(*addresses, *more)) == {ELSEWHERE}


@pytest.mark.netns
def test_a_network_without_ipv6_is_no_error(net: Namespace) -> None:
    net.sysctl("ipv6/conf/all/disable_ipv6", "1")
    assert net.places("2001:db8:6::1", "198.51.100.7") == [ELSEWHERE, THIS_MACHINE]


@pytest.mark.netns
def test_hundreds_of_addresses_are_all_read(net: Namespace) -> None:
    lines = (f"addr add 203.0.{n}.1/24 dev d0\n" for n in range(200, 256))
    more = (f"addr add 2001:db8:{n:x}::1/64 dev d0 nodad\n" for n in range(0x100, 0x200))
    subprocess.run(
        ["ip", "-n", net.name, "-batch", "-"],
        input="".join([*lines, *more]).encode(),
        check=True,
        capture_output=True,
        timeout=60,
    )
    own = tuple(f"203.0.{n}.1" for n in range(200, 256))
    assert set(net.places(*own)) == {THIS_MACHINE}
    beside = tuple(f"2001:db8:{n:x}::2" for n in range(0x100, 0x180))
    assert set(net.places(*beside)) == {OWN_NETWORK}


class _Refusing(socket.socket):
    """A socket that a system call filter would refuse for netlink."""

    def __init__(self, family: int, *rest: int) -> None:
        if family == socket.AF_NETLINK:
            raise PermissionError(errno.EPERM, "refused")
        super().__init__(family, *rest)


def test_a_kernel_that_may_not_be_asked_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", _Refusing)
    with pytest.raises(PermissionError):
        locate(("203.0.113.10",))


class _Kernel:
    """Answers with datagrams made by the test."""

    def __init__(self, *datagrams: tuple[bytes, int]) -> None:
        self.datagrams = list(datagrams)

    def recvfrom(self, _size: int, _flags: int) -> tuple[bytes, tuple[int, int]]:
        if not self.datagrams:
            raise BlockingIOError(errno.EAGAIN, "nothing there")
        data, sender = self.datagrams.pop(0)
        return data, (sender, 0)


def told(kind: int, body: bytes = b"", *, flags: int = 0, number: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, number, 0) + body


def route(kind: int, number: int) -> bytes:
    return told(24, struct.pack("=8BI", 2, 32, 0, 0, 254, 0, 0, kind, 0), number=number)


def error(code: int, number: int) -> bytes:
    return told(2, struct.pack("=i", -code), number=number)


DONE = told(3, bytes(4))


def read(*datagrams: tuple[bytes, int], count: int = 1) -> Any:
    return machine._read(_Kernel(*datagrams), count)  # type: ignore[arg-type]


def test_only_the_kernel_is_believed() -> None:
    answers = read((route(1, 1), 4711), (route(2, 1) + DONE, 0))
    assert answers.routes == {1: 2}


def test_an_answer_that_is_missing_fails_the_call() -> None:
    with pytest.raises(BlockingIOError):
        read((DONE, 0))
    with pytest.raises(BlockingIOError):
        read((route(1, 1), 0))


def test_an_answer_cut_short_fails_the_call() -> None:
    for datagram in (DONE[:-1], struct.pack("=IHHII", 3, 3, 0, 0, 0)):
        with pytest.raises(OSError, match="cut short"):
            read((datagram, 0))
    with pytest.raises(OSError, match="cut short"):
        read((told(20, struct.pack("=4BI", 2, 24, 0, 0, 1) + struct.pack("=HH", 3, 1)), 0))


def test_an_error_that_is_not_the_address_s_fails_the_call() -> None:
    with pytest.raises(PermissionError):
        read((error(errno.EPERM, 1), 0))
    with pytest.raises(OSError, match=os.strerror(errno.ENETUNREACH)):
        read((error(errno.ENETUNREACH, 0), 0))  # number 0 is the interfaces


def test_a_dump_that_changed_meanwhile_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = told(3, bytes(4), flags=0x10)
    assert read((route(1, 1), 0), (changed, 0)) is None
    answers = [None, machine._Answers(routes={1: 1})]
    monkeypatch.setattr(machine, "_read", lambda _netlink, _count: answers.pop(0))
    assert locate(("203.0.113.10",)) == (ELSEWHERE,)
    monkeypatch.setattr(machine, "_read", lambda _netlink, _count: None)
    with pytest.raises(OSError, match="change faster"):
        locate(("203.0.113.10",))


def test_an_unknown_type_of_route_is_no_place_to_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = machine._Answers(routes={1: 200})
    monkeypatch.setattr(machine, "_read", lambda _netlink, _count: answers)
    assert locate(("203.0.113.10",)) == (MANY,)


class _WithoutV6(socket.socket):
    def __init__(self, family: int, *rest: int) -> None:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no IPv6")
        super().__init__(family, *rest)


class _Exhausted(socket.socket):
    def __init__(self, family: int, *rest: int) -> None:
        if family != socket.AF_NETLINK:
            raise OSError(errno.EMFILE, "no descriptor")
        super().__init__(family, *rest)


def test_a_kernel_without_ipv6_has_no_such_address(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = machine._Answers(routes={1: 7})
    monkeypatch.setattr(machine, "_read", lambda _netlink, _count: answers)
    monkeypatch.setattr(socket, "socket", _WithoutV6)
    assert locate(("2001:db8:6::1",)) == (ELSEWHERE,)


def test_no_descriptor_left_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", _Exhausted)
    with pytest.raises(OSError, match="no descriptor"):
        locate(("198.18.0.1",))


def test_a_setting_that_can_t_be_read_leaves_the_binding_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Machine, "_binds", lambda _self, _address: True)
    assert locate(("198.18.0.1",)) == (THIS_MACHINE,)

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(os, "open", refuse)
    assert locate(("198.18.0.1",)) == (THIS_MACHINE,)
