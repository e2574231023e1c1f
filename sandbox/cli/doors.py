"""The sockets of a sandbox's wire beside its listener: endpoints, their DNS, local ports.

What a socket is for stands in the plan (`sandbox.linux.local`), beside where it is.  Here
each gets the script that serves it.
"""

from __future__ import annotations

import os
import resource
import socket

from proto.calls.query import ENTROPY_BYTES, Desk, serve_datagram, serve_stream
from proto.calls.raw import endpoint_call, local_call, served_call
from proto.policy.endpoints import Endpoints
from sandbox.linux import local
from shells.descriptors import is_spare, none_left
from shells.resolve import Resolvers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from proto.calls.limits import Limits
    from proto.calls.ways import Ways
    from proto.policy.hosts import Policy
    from proto.script import Script
    from sandbox.linux.socket_maker import Doors
    from shells.env import MakeScript


class SandboxNetwork:
    """The sandbox's network as a shell needs it (`shells.env.Inside`)."""

    def __init__(self, doors: Doors, policy: Policy, limits: Limits, ways: Ways) -> None:
        self._doors = doors
        self._policy, self._limits, self._ways = policy, limits, ways
        self._endpoints = Endpoints(policy)
        self._resolvers = Resolvers()

    def listener(self, address: str, port: int) -> socket.socket:
        """Return a socket that listens there, inside; raise OSError."""
        made = socket.socket(fileno=self._doors.maker.listener(address, port))
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY and made.fileno() >= limit // 2:
            # Each name that a program makes up would take one from the calls, for good.
            made.close()
            raise none_left()
        return made

    def connector(self, address: str) -> socket.socket:
        """Return a socket with which to connect to the program inside; raise OSError."""
        made = socket.socket(fileno=self._doors.maker.connector(address))
        made.setblocking(False)
        if not is_spare(made.fileno()):
            made.close()
            raise none_left()
        return made

    def script_at(self, address: str, port: int) -> MakeScript:
        """Return what serves an endpoint's address."""
        host = self._endpoints.name_at(address)
        policy, limits, ways = self._policy, self._limits, self._ways
        return lambda now: endpoint_call(policy, limits, ways, host, port, now)

    def sockets(self, wire: dict[str, Any]) -> list[tuple[socket.socket, MakeScript]]:
        """Return each socket that the plan names, with what serves it; takes them over."""
        found: list[tuple[socket.socket, MakeScript]] = []
        for (_, address, port, *use), fd in zip(wire["inside"], self._doors.inside, strict=True):
            if fd is not None and use:  # else it is a route's own
                made = socket.socket(fileno=fd)
                found.append((made, self._script_for(made, use[0], address, port)))
        for port, fd in zip(wire["serve"], self._doors.served, strict=True):
            found.append((socket.socket(fileno=fd), self._served(port)))
        return found

    def _script_for(self, made: socket.socket, use: str, address: str, port: int) -> MakeScript:
        match use:
            case local.DNS:
                return self._query(in_datagrams=made.type == socket.SOCK_DGRAM)
            case local.ENDPOINT:
                return self.script_at(address, port)
            case local.PORT:
                limits, ways = self._limits, self._ways
                return lambda now: local_call(limits, ways, port, now)
            case _:
                raise AssertionError(use)

    def _served(self, port: int) -> MakeScript:
        limits, ways = self._limits, self._ways
        return lambda now: served_call(limits, ways, port, now)

    def _query(self, *, in_datagrams: bool) -> MakeScript:
        serve = serve_datagram if in_datagrams else serve_stream

        def make(now: float) -> Script[None]:
            servers, ways = self._resolvers.servers(), self._ways
            desk = Desk(self._endpoints, servers, self._limits, ways.admission)
            return serve(desk, os.urandom(ENTROPY_BYTES), now)

        return make
