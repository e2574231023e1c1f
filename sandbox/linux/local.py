"""Which sockets a wire has beside its listener: data of a plan, made before the program starts.

    udp, tcp 127.0.0.1:53        where `tcp` names endpoints: their DNS
    tcp 127.53.x.y:PORT          each endpoint that is named whole
    tcp 127.0.0.1:PORT, ::1      each of `ports`: this machine's, at the same port of localhost

Names under a `*.` pattern get theirs as they are looked up (`proto.policy.endpoints`).
"""

from __future__ import annotations

from sandbox.errors import LaunchError

TCP, UDP = "tcp", "udp"
"""As the socket maker has them, which a command that only plans doesn't import."""
DNS, ENDPOINT, PORT = "dns", "endpoint", "port"
DNS_PORT = 53
DNS_TAKES = {DNS_PORT: "its DNS's"}
LOOPBACK, LOOPBACK_6 = "127.0.0.1", "::1"

Sockets = list[list[object]]
"""Of each its kind, address and port, and what it is for."""


def has_dns(tcp: Sequence[str], *, no_internet: bool) -> bool:
    """Tell whether there is a name to look up."""
    if not tcp or no_internet:
        return False
    from proto.policy.hosts import Policy

    return Policy.of((), tcp=tcp).has_dns()


def of_endpoints(tcp: Sequence[str], *, no_internet: bool) -> Sockets:
    """Return the sockets of endpoints and their DNS; raise LaunchError for too many."""
    if not has_dns(tcp, no_internet=no_internet):
        return []
    from proto.errors import Refused
    from proto.policy.endpoints import LISTENED_MOST, Endpoints
    from proto.policy.hosts import Policy

    try:
        places = Endpoints(Policy.of((), tcp=tcp)).at_start()
    except Refused:
        raise LaunchError(
            "tcp", 0, f"tcp names more than {LISTENED_MOST} endpoints: a wire listens at each."
        ) from None
    dns: Sockets = [[kind, LOOPBACK, DNS_PORT, DNS] for kind in (UDP, TCP)]
    return dns + [[TCP, address, port, ENDPOINT] for address, port in places]


def of_ports(ports: Sequence[int]) -> Sockets:
    """Return the sockets at which this machine's ports are reached inside."""
    loopback = (LOOPBACK, LOOPBACK_6)
    return [[TCP, address, port, PORT] for port in dict.fromkeys(ports) for address in loopback]


def taken_inside(listen: int, *, dns: bool) -> dict[int, str]:
    """Return the ports inside that a wire has itself, and what each is."""
    return {listen: "the proxy's own"} | (DNS_TAKES if dns else {})


def check_ports(key: str, ports: Sequence[int], taken: Mapping[int, str]) -> None:
    """Refuse a port inside that the wire has itself; raise LaunchError."""
    for port in ports:
        if port in taken:
            said = f"{key} names {port}, which is {taken[port]} inside: take another port."
            raise LaunchError(key, 0, said, about=(key, str(port)))


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
