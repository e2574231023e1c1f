"""Where addresses lead from this machine, asked of its kernel without a packet (R32).

Three questions, since each alone misses something:

- bind(2) of a UDP socket to port 0.  Only EADDRNOTAVAIL means "not ours"; it misses local
  IPv6 routes, anycast and addresses that are still being checked, and with
  `ip_nonlocal_bind` it says yes to everything.
- RTM_GETROUTE (rtnetlink(7)), whose `rtm_type` says local, broadcast, anycast or multicast.
- RTM_GETADDR, the machine's interfaces: its own addresses once more, and the networks
  that they stand on.  A route to a network is none of those: that network is elsewhere.

No answer is kept from one call to the next: an address that a VPN or a container has just
brought is this machine's at once.  Only the sockets are, since making them would be half
of the cost.  If the kernel doesn't answer, OSError: the call fails, and nothing is dialled
unchecked.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import closing
from functools import lru_cache

import msgspec

from proto.events import Place

_NETLINK_ROUTE = 0
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_NLM_F_REQUEST, _NLM_F_DUMP_INTR, _NLM_F_DUMP = 0x01, 0x10, 0x300
_RTA_DST = 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_ROUTE = struct.Struct("=8BI")  # rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type
_ADDRESS = struct.Struct("=4BI")  # ifaddrmsg: family, prefixlen, flags, scope, index
_ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
_ERROR = struct.Struct("=i")

_UNICAST, _LOCAL, _UNREACHABLE = 1, 2, 7
_MANY = (3, 4, 5)  # broadcast, anycast, multicast
_NOWHERE = (6, _UNREACHABLE, 8, 9)  # blackhole, prohibit, throw: connect(2) fails
_NO_ROUTE = (
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.EACCES,  # a prohibit route
    errno.EINVAL,  # a blackhole route
    errno.EOPNOTSUPP,  # a kernel without IPv6
)
"""Errors that speak of the address: connecting to it fails, whatever else is known of it."""

_REPLY_MAX_BYTES = 65536
"""More than the kernel puts into one datagram of a dump (32 KiB)."""
_TRIES = 4
"""A dump during which addresses changed is asked for again."""


class _Network(msgspec.Struct, frozen=True, gc=False):
    """The network that an interface stands on: its leading bits, and what is `rest`."""

    size: int  # of its addresses, in bytes
    prefix: int
    rest: int


class _Answers(msgspec.Struct):
    """What the kernel said: a route's type by the number of its address, and the interfaces."""

    routes: dict[int, int] = msgspec.field(default_factory=dict)
    own: set[bytes] = msgspec.field(default_factory=set)
    networks: set[_Network] = msgspec.field(default_factory=set)


class Machine:
    """Asks the kernel of the network that it was first used in.  Not for use by two threads."""

    __slots__ = ("_binders", "_netlink")

    def __init__(self) -> None:
        self._netlink: socket.socket | None = None
        self._binders: dict[int, socket.socket] = {}

    def locate(self, addresses: tuple[str, ...]) -> tuple[Place, ...]:
        """Return a `Place` for each address, in the same order.

        Raises OSError when the kernel can't be asked.  An address without a route is
        elsewhere: connecting to it fails.
        """
        packed, request = _request(addresses)
        answers = self._ask(request, len(packed))
        return tuple(
            [
                self._place(address, answers.routes[number], answers)
                for number, address in enumerate(packed, 1)
            ]
        )

    def close(self) -> None:
        """Give the sockets back."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None
        while self._binders:
            self._binders.popitem()[1].close()

    def _place(self, address: bytes, kind: int, answers: _Answers) -> Place:
        if kind in _MANY:
            return Place.MANY
        if kind == _LOCAL or address in answers.own:
            return Place.THIS_MACHINE
        if self._binds(address) and not _binds_all(address):
            return Place.THIS_MACHINE
        if kind != _UNICAST and kind not in _NOWHERE:
            return Place.MANY  # a type that we don't know is no place to dial
        value, size = int.from_bytes(address, "big"), len(address)
        for network in answers.networks:
            if network.size == size and value >> network.rest == network.prefix:
                return Place.OWN_NETWORK
        return Place.ELSEWHERE

    def _binds(self, address: bytes) -> bool:
        """Tell whether a UDP socket binds to an address: no packet, and the port is the kernel's.

        A socket that was refused is as it was before, and serves the next address.
        """
        family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
        try:
            sock = self._binders.pop(family, None) or socket.socket(family, socket.SOCK_DGRAM)
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT:  # a kernel without IPv6 has no such address
                return False
            raise
        try:
            sock.bind((socket.inet_ntop(family, address), 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                self._binders[family] = sock
                return False
        sock.close()
        return True

    def _ask(self, request: bytes, count: int) -> _Answers:
        """Ask for the route to each of `count` addresses and for the interfaces.

        Raises OSError for any answer but a full one.
        """
        # While an answer is due the socket isn't ours to keep: what an answer that failed
        # has left in it would be taken for the next one's.
        netlink, self._netlink = self._netlink, None
        if netlink is None:
            netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
        try:
            for _ in range(_TRIES):
                netlink.sendto(request, (0, 0))
                answers = _read(netlink, count)
                if answers is not None:
                    self._netlink = netlink
                    return answers
        finally:
            if self._netlink is None:
                netlink.close()
        raise OSError(errno.EBUSY, "this machine's addresses change faster than they can be read")


def locate(addresses: tuple[str, ...]) -> tuple[Place, ...]:
    """Locate addresses once (`Machine.locate`)."""
    with closing(Machine()) as machine:
        return machine.locate(addresses)


def _packed(text: str) -> bytes:
    """Return an address as bytes, 4 or 16; an IPv4-mapped one is the IPv4 one it leads to."""
    if ":" not in text:
        return socket.inet_pton(socket.AF_INET, text)
    packed = socket.inet_pton(socket.AF_INET6, text)
    return packed[12:] if packed[:12] == bytes(10) + b"\xff\xff" else packed


@lru_cache(maxsize=256)
def _request(addresses: tuple[str, ...]) -> tuple[tuple[bytes, ...], bytes]:
    """Return addresses as bytes, and the one message that asks for them and the interfaces."""
    packed = tuple(map(_packed, addresses))
    routes = [_route_request(each, at) for at, each in enumerate(packed, 1)]
    return packed, b"".join([_INTERFACES, *routes])


def _binds_all(address: bytes) -> bool:
    """Tell whether bind(2) takes any address here, so that its yes says nothing.

    Asked only where it contradicts the route, which hardly ever happens.
    """
    family = "ipv4" if len(address) == 4 else "ipv6"
    try:
        descriptor = os.open(f"/proc/sys/net/{family}/ip_nonlocal_bind", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # then the yes counts
    try:
        return os.read(descriptor, 16).strip() not in (b"", b"0")
    finally:
        os.close(descriptor)


def _route_request(address: bytes, number: int) -> bytes:
    family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
    route = _ROUTE.pack(family, len(address) * 8, 0, 0, 0, 0, 0, 0, 0)
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(address), _RTA_DST) + address
    return _message(_RTM_GETROUTE, _NLM_F_REQUEST, number, route + attribute)


def _message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, number, 0) + body


_INTERFACES = _message(_RTM_GETADDR, _NLM_F_REQUEST | _NLM_F_DUMP, 0, _ADDRESS.pack(0, 0, 0, 0, 0))


def _read(netlink: socket.socket, count: int) -> _Answers | None:
    """Read the answers to `count` routes and one dump; None: the dump must be asked again."""
    answers = _Answers()
    dumped, intact = False, True
    while not dumped or len(answers.routes) < count:
        # Answers are there when sendto(2) returns, and a dump goes on as it is read, so
        # there is nothing to wait for: EAGAIN is an answer that is missing.
        data, (sender, _) = netlink.recvfrom(_REPLY_MAX_BYTES, socket.MSG_DONTWAIT)
        if sender != 0:
            continue  # not from the kernel
        told = _told(data)
        answers.routes.update(told.routes)
        if told.own:
            answers.own.update(told.own)
            answers.networks.update(told.networks)
        dumped |= told.done
        intact &= told.intact
    return answers if intact else None


class _Told(_Answers):
    """What one datagram says; `done`: the dump ends in it, not `intact`: it changed meanwhile."""

    done: bool = False
    intact: bool = True


@lru_cache(maxsize=16)
def _told(data: bytes) -> _Told:
    """Read one datagram.

    Its bytes alone decide what it says, so the same bytes needn't be read twice: hardly
    any dump differs from the one before.  The kernel is asked each time all the same.
    """
    told = _Told()
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind, flags, number, _ = _HEADER.unpack_from(data, at)
        if size < _HEADER.size or at + size > len(data):
            raise OSError(errno.EBADMSG, "the kernel's answer is cut short")
        body = data[at + _HEADER.size : at + size]
        told.intact &= not flags & _NLM_F_DUMP_INTR
        if kind == _NLMSG_DONE:
            told.done = True
        elif kind == _NLMSG_ERROR:
            told.routes[number] = _error(body, number)
        elif kind == _RTM_NEWROUTE:
            told.routes[number] = _ROUTE.unpack_from(body)[7]
        elif kind == _RTM_NEWADDR:
            _note_interface(body, told)
        at += size + 3 & ~3
    return told


def _error(body: bytes, number: int) -> int:
    """Return the type of route that an error stands for; raise what isn't about the address."""
    code = -_ERROR.unpack_from(body)[0]
    if number and code in _NO_ROUTE:
        return _UNREACHABLE
    raise OSError(code, os.strerror(code))


def _note_interface(body: bytes, told: _Told) -> None:
    """Note one interface's address, and the network it stands on.

    On a point-to-point link the local address is this machine and the other one, with
    the prefix, is what stands at the far end.
    """
    bits = _ADDRESS.unpack_from(body)[1]
    found: dict[int, bytes] = {}
    at = _ADDRESS.size
    while at + _ATTRIBUTE.size <= len(body):
        size, kind = _ATTRIBUTE.unpack_from(body, at)
        if size < _ATTRIBUTE.size:
            raise OSError(errno.EBADMSG, "the kernel's answer is cut short")
        if kind in (_IFA_ADDRESS, _IFA_LOCAL):
            found[kind] = body[at + _ATTRIBUTE.size : at + size]
        at += size + 3 & ~3
    network = found.get(_IFA_ADDRESS) or found.get(_IFA_LOCAL)
    if network is not None:
        told.own.add(found.get(_IFA_LOCAL) or network)
        rest = len(network) * 8 - bits
        prefix = int.from_bytes(network, "big") >> rest
        told.networks.add(_Network(len(network), prefix, rest))
