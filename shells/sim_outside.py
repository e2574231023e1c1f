"""The state of a simulated outside: who was asked and dialled, and what is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network

from proto.commands import CLIENT, DATAGRAMS, OUT, UPSTREAM, Side, Way
from proto.events import Place, Reason
from shells.sim_wires import Peer, Pipe, Reactor, Signals, Socket, connection
from shells.sim_world import Addresses, Cut, Cutter, Dial, Saw, Steps, World


class Outside:
    """What a `World` has become in the course of one run.

    `sides` are our ends of the open connections; `closed` has each one's end in order.
    """

    def __init__(self, world: World, reactor: Reactor, on_signal: Callable[[str], None]) -> None:
        self._world, self._reactor = world, reactor
        self._signals = Signals(on_signal)
        self._peers: list[Peer] = []
        self._turns: dict[str, int] = {}
        self._dials: list[Dial] = []
        self._servers: dict[int, Peer] = {}
        self._datagrams = False
        self.sides: dict[Side, Socket] = {}
        self.asked: list[str] = []
        self.secured: list[str] = []
        self.listening: list[tuple[str, int]] = []
        self.closed: list[tuple[Side, float]] = []
        self.sides[CLIENT] = self._joined(world.client)[0]

    def poll(self) -> None:
        """Let every peer go on as far as it can."""
        for peer in self._peers:
            peer.poll()

    def socket(self, side: Side) -> Socket:
        """Return our end of an open side; a script that uses a closed one is at fault."""
        assert side in self.sides, f"the {side.value} side isn't open"
        return self.sides[side]

    def shut(self, side: Side, *, reset: bool = False) -> None:
        """Close our end, once; with a reset where its conversation was cut short."""
        if side in self.sides:
            socket = self.sides.pop(side)
            if reset:
                socket.reset()
            socket.close()
            self.closed.append((side, self._reactor.now))

    def look_up(self, host: str) -> Addresses | None:
        """Return what the resolver says this time: addresses, none, or never anything."""
        self.asked.append(host)
        self._signals.give(f"asked {host}")
        turns = self._world.names.get(host, (self._world.any_name,))
        turn = self._turns.get(host, 0)
        self._turns[host] = turn + 1
        return turns[min(turn, len(turns) - 1)]

    def place(self, text: str) -> Place:
        """Tell where an address leads."""
        address = ip_address(text)
        if address in map(ip_address, self._world.own_addresses):
            return Place.THIS_MACHINE
        if address in map(ip_address, self._world.many):
            return Place.MANY
        if any(address in ip_network(each) for each in self._world.own_networks):
            return Place.OWN_NETWORK
        return Place.ELSEWHERE

    def keeps_apart(self, side: Side) -> bool:
        """Tell whether what is sent to a side is a datagram, which is never cut."""
        return side is UPSTREAM and self._datagrams

    def dial(
        self, address: str, port: int, way: Way, tell: Callable[[int, Reason | None], None]
    ) -> None:
        """Begin one attempt; `tell` gets its number and why it failed, if it ever ends."""
        number = len(self._dials)
        self._dials.append(Dial(address, port, self._reactor.now, way=way))
        failing = address in self._world.connect_fails
        reason = None if self._steps(number) is not None else Reason.REFUSED
        if failing:
            reason = self._world.connect_fails[address]
        if not failing or reason is not None:
            self._reactor.soon(lambda: tell(number, reason))

    def connected(self, number: int) -> str:
        """Open the upstream side by the attempt of that number; return its address."""
        steps = self._steps(number)
        assert steps is not None
        self._datagrams = self._dials[number].way is DATAGRAMS
        self.sides[UPSTREAM], self._servers[number] = self._joined(steps, whole=self._datagrams)
        return self._dials[number].address

    def client_saw(self) -> Saw:
        """Return what the client heard."""
        return self._peers[0].saw()

    def dials(self) -> Iterator[Dial]:
        """Yield every attempt, with what the server heard where there was one."""
        for number, dial in enumerate(self._dials):
            server = self._servers.get(number)
            saw = None if server is None else server.saw()
            yield replace(dial, saw=saw)

    def _steps(self, number: int) -> Steps | None:
        dial = self._dials[number]
        if dial.way is not OUT:
            # A datagram to nobody is lost.
            nobody = () if dial.way is DATAGRAMS else None
            return self._world.ways.get((dial.way, dial.address, dial.port), nobody)
        return self._world.servers.get((dial.address, dial.port), self._world.any_server)

    def _joined(self, steps: Steps, *, whole: bool = False) -> tuple[Socket, Peer]:
        """Make a connection with a peer at its far end; return our end and the peer.

        whole: what is sent at once arrives at once, as a datagram does.
        """
        ours, theirs = connection(self._pipe(whole=whole), self._pipe(whole=whole))
        peer = Peer(self._reactor, theirs, steps, self._signals)
        self._peers.append(peer)
        self._reactor.soon()  # a peer moves only when something happens
        return ours, peer

    def _pipe(self, *, whole: bool) -> Pipe:
        cut, rng = Cut.WHOLE if whole else self._world.cut, self._reactor.rng
        arrivals = Cutter(Cut.RANDOM if cut is Cut.RANDOM else Cut.WHOLE, rng)
        reads = Cutter(Cut.BYTES if cut is Cut.BYTES else Cut.WHOLE, rng)
        return Pipe(self._reactor, self._world.window_bytes, arrivals, reads)
