"""Which address of the sandbox's own stands for which endpoint (R34).

The sandbox has no route out, so a name's real address reaches nothing.  Each name of an
endpoint gets an address in 127/8 at which the wire listens; a connection there is a call
to the name.  A name that `tcp` lists whole has its address from the start, the same at each
start; one under a `*.` pattern gets the next at its first look-up and keeps it for as long
as the sandbox lives: given to another name, it would lead a program that remembers it there.
"""

from __future__ import annotations

from proto.errors import Refused
from proto.policy.cures import Cures
from proto.policy.hosts import Policy

NETWORK = "127.53"
"""A name's address is in here; what listens on `localhost` is at 127.0.0.1."""

LISTENED_MOST = 1024
"""Addresses and ports in all: each is a descriptor of the wire's."""

Place = tuple[str, int]
"""An address and a port."""


class Endpoints:
    """The names that have an address, and where the wire listens for them.

    Shared by all calls of a wire.  Its methods don't wait, so none sees another's half.
    """

    __slots__ = ("_addresses", "_listened", "_names", "_waiting", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._waiting: set[Place] = set()
        self._listened = 0
        for host in policy.endpoints():
            self._give(host)
        self._waiting.clear()

    def at_start(self) -> list[Place]:
        """Return where to listen before the program starts, for the names that are known."""
        return [
            (address, port)
            for host, address in self._addresses.items()
            for port in self.policy.endpoint_ports(host)
        ]

    def address_of(self, host: str) -> str:
        """Return a canonical name's address, given now if it has none.

        Raises Refused where the name is no endpoint, or too many have been looked up.
        """
        address = self._addresses.get(host)
        if address is not None:
            return address
        if not self.policy.endpoint_ports(host):
            raise no_endpoint(host, self.policy.cures)
        return self._give(host)

    def to_listen(self, host: str) -> list[Place]:
        """Return where the wire doesn't listen yet for a name that has its address."""
        address = self._addresses[host]
        places = [(address, port) for port in self.policy.endpoint_ports(host)]
        return [place for place in places if place in self._waiting]

    def listens(self, place: Place) -> None:
        """Note that the wire listens there."""
        self._waiting.discard(place)

    def name_at(self, address: str) -> str:
        """Return the name that an address stands for; it was given to one."""
        return self._names[address]

    def _give(self, host: str) -> str:
        ports = self.policy.endpoint_ports(host)
        number = len(self._addresses) + 1
        if self._listened + len(ports) > LISTENED_MOST:
            raise Refused(
                f"{host} has no address here: {LISTENED_MOST} are given to other names.",
                phrase="Forbidden: too many names",
            )
        address = f"{NETWORK}.{number >> 8}.{number & 0xFF}"
        self._addresses[host], self._names[address] = address, host
        self._listened += len(ports)
        self._waiting |= {(address, port) for port in ports}
        return address


def no_endpoint(host: str, cures: Cures) -> Refused:
    """Return the refusal of a name that isn't listed: it is looked up by nobody."""
    assert cures.tcp is not None, "a wire that answers look-ups has endpoints"
    return Refused(
        f"{host} is no endpoint of this sandbox, so it has no address here; programs that go by "
        f'HTTPS_PROXY need none, others need "{host}:PORT" in {cures.tcp.long}.',
        phrase=f"Forbidden: {cures.tcp.phrase.format(host)}",
        key="internet.tcp",
        named=cures.tcp.short,
    )
