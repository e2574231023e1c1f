"""One conversation over any of the three shells: its script, its peers, what each saw.

A conversation is data but for its script.  Its peers are the simulation's; over the real
shells threads play them on loopback sockets.  Addresses are 127.0.0.x, since the address
guard is the policy's and not the shell's.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from time import monotonic

import trio
import trustme
import uvloop
from msgspec.structs import replace

from proto.commands import DATAGRAMS, IN, Command
from proto.events import (
    Cancelled,
    Cause,
    Connected,
    Event,
    Failed,
    Located,
    Looked,
    Place,
    Reason,
    Received,
    Resolved,
    Sent,
    Spliced,
)
from proto.policy.records import Ending, Record
from proto.script import Script
from shells.env import Env, MakeScript
from shells.sim_shell import run as simulate
from shells.sim_world import BRIDGE_PORT, SILENT, TRUSTED, Addresses, Cut, Reply, Saw, Steps, World
from shells.tls import Tls, new_context
from tests.shells import single
from tests.shells.peers import SOON_S, Peer, Signals, Wrap

REFUSED = "refused"
SECURE_HOST = "secure.example.com"
"""The host for which servers that speak TLS have a certificate."""


class Secured(Enum):
    """How a server speaks TLS."""

    RIGHT = TRUSTED
    OTHER_NAME = Reason.UNTRUSTED
    UNKNOWN_AUTHORITY = Reason.UNTRUSTED, "unknown"
    NOT_AT_ALL = Reason.BROKEN
    LEAVES = Reason.RESET
    NEVER_ANSWERS = SILENT


Server = Steps | str | None
"""A server's steps, or `REFUSED` (nobody listens there), or SILENT (it never answers)."""

SMALL_WINDOW_BYTES = 4096


class Talk:
    """What a conversation's script is given: times, the servers' port, and a notebook."""

    def __init__(self, now: float, port: int) -> None:
        self.port = port
        self.now = now
        self.by = now + SOON_S
        self.past = now - 1.0
        self.notes: list[str] = []

    @property
    def soon(self) -> float:
        """A moment after the last answer that was asked for here."""
        return self.now + 0.2

    @property
    def later(self) -> float:
        """Time enough for a thread to begin what it was given."""
        return self.now + 3.0

    def ask(self, command: Command) -> Script[Event]:
        """Yield a command, and note down its answer as far as every shell gives the same."""
        event = yield command
        self.now = event.now
        self.notes.append(noted(event))
        return event


def noted(event: Event) -> str:
    """Return an event in words, without its time and the counts that depend on buffers."""
    match event:
        case Received(side=side, data=data):
            return f"received {side.value} {data!r}"
        case Sent():
            return "sent"
        case Resolved(addresses=addresses):
            return f"resolved {' '.join(addresses)}"
        case Located(places=places):
            return f"located {' '.join(place.name for place in places)}"
        case Looked(cause=cause):
            return f"looked {cause.name if cause else 'open'}"
        case Connected(address=address):
            return f"connected {address}"
        case Spliced(up=up, down=down):
            return f"spliced {up} {down}"
        case Failed(reason=reason, side=side, up=up, down=down):
            blamed = side.value if side else "nobody"
            return f"failed {reason.name} {blamed} {up} {down}"
        case Cancelled(cause=cause, up=up, down=down):
            return f"cancelled {cause.name} {up} {down}"
        case _:
            return type(event).__name__.lower()


def timeless(record: Record) -> Record:
    """Return a line of the log without its time."""
    return replace(record, seconds=0.0) if isinstance(record, Ending) else record


@dataclass(frozen=True, slots=True)
class Due:
    """What must have been seen in the end, on every shell."""

    client: Saw
    servers: Mapping[str, tuple[Saw, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    log: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A script, its peers, and what is due.

    `bridges` are servers that `Open` reaches by a name; `secured` says by address how a
    server speaks TLS.  `cancels_before` land between two commands, `cancels_on` when a peer
    signals that name, and `closes_on` closes the wire (None: opens it).  `small`: the
    windows between the shell and its peers are.  The servers are reached from this machine
    and inside.  `datagrams` answer, each its own address; at `listen_fails` somebody listens
    inside already.
    """

    name: str
    script: Callable[[Talk], Script[None]]
    due: Due
    client: Steps = ()
    servers: Mapping[str, Server] = field(default_factory=dict)
    names: Mapping[str, Addresses | None] = field(default_factory=dict)
    datagrams: Mapping[str, Callable[[bytes], bytes | None]] = field(default_factory=dict)
    listen_fails: tuple[str, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    cancels_before: Mapping[int, Cause] = field(default_factory=dict)
    cancels_on: Mapping[str, Cause] = field(default_factory=dict)
    closes_on: Mapping[str, Cause | None] = field(default_factory=dict)
    log_full: bool = False
    small: bool = False
    bridges: Mapping[str, Server] = field(default_factory=dict)
    secured: Mapping[str, Secured] = field(default_factory=dict)


# -- the simulated shell --------------------------------------------------------------------

SIM_PORT = 8080


def over_simulation(conversation: Conversation, cut: Cut, seed: int) -> Due:
    """Run a conversation under the simulated shell; return what was seen."""
    talks: list[Talk] = []

    def make_script(now: float) -> Script[None]:
        talks.append(Talk(now, SIM_PORT))
        return conversation.script(talks[0])

    transcript = simulate(make_script, _world(conversation, cut), seed)
    named = {**conversation.servers, **conversation.bridges}
    servers: dict[str, list[Saw]] = {address: [] for address in named}
    for dial in transcript.opened:
        assert dial.saw is not None
        if dial.way is DATAGRAMS:
            continue
        servers[dial.address].append(dial.saw)
    return Due(
        transcript.client,
        {address: tuple(saws) for address, saws in servers.items()},
        tuple(talks[0].notes),
        transcript.asked,
        tuple(map(timeless, transcript.log)),
    )


def _world(conversation: Conversation, cut: Cut) -> World:
    of_place = {
        place: tuple(a for a, p in conversation.places.items() if p is place) for place in Place
    }
    return World(
        client=conversation.client,
        names={name: (addresses,) for name, addresses in conversation.names.items()},
        servers={
            (address, SIM_PORT): steps
            for address, steps in conversation.servers.items()
            if isinstance(steps, tuple)
        }
        | {
            (name, BRIDGE_PORT): steps
            for name, steps in conversation.bridges.items()
            if isinstance(steps, tuple)
        },
        tls=dict.fromkeys([SECURE_HOST], *map(_end, conversation.secured.values())),
        connect_fails={a: SILENT for a, steps in conversation.servers.items() if steps is SILENT},
        ways={
            **{
                (IN, address, SIM_PORT): steps
                for address, steps in conversation.servers.items()
                if isinstance(steps, tuple)
            },
            **{
                (DATAGRAMS, address, SIM_PORT): (Reply(make),)
                for address, make in conversation.datagrams.items()
            },
        },
        listen_fails=tuple((address, SIM_PORT) for address in conversation.listen_fails),
        own_addresses=of_place[Place.THIS_MACHINE],
        own_networks=of_place[Place.OWN_NETWORK],
        many=of_place[Place.MANY],
        cancels_before=conversation.cancels_before,
        cancels_on=conversation.cancels_on,
        closes_on=conversation.closes_on,
        log_full=conversation.log_full,
        cut=cut,
        window_bytes=SMALL_WINDOW_BYTES if conversation.small else 64 * 1024,
    )


def _end(how: Secured) -> str | Reason | None:
    return how.value[0] if isinstance(how.value, tuple) else how.value


# -- the real shells ------------------------------------------------------------------------


class MemoryLog:
    """A log in memory, which can be full."""

    def __init__(self, *, full: bool) -> None:
        self.records: list[Record] = []
        self._full = full

    def write(self, record: Record, call_id: str) -> bool:
        if not self._full:
            self.records.append(record)
        return not self._full


class Switch:
    """A wire's flags in memory, raised and lowered from any thread."""

    def __init__(self) -> None:
        self._cause: Cause | None = None
        self._told = True

    def set(self, cause: Cause | None) -> None:
        self._cause, self._told = cause, False

    def look(self) -> Cause | None:
        return self._cause

    def watch(self, up: int, down: int) -> Cause | None:
        told, self._told = self._told, True
        return None if told else self._cause

    def pause(self, why: str) -> None:
        assert why
        self.set(Cause.PAUSED)


class Lookups:
    """A resolver double: a table, and names for which no answer comes until all is over."""

    def __init__(
        self, names: Mapping[str, Addresses | None], signals: Signals, over: threading.Event
    ) -> None:
        self._names = names
        self._signals = signals
        self._over = over
        self.asked: list[str] = []

    def __call__(self, host: str) -> Addresses:
        self.asked.append(host)
        self._signals.give(f"asked {host}")
        addresses = self._names.get(host, ())
        if addresses is None:
            assert self._over.wait(SOON_S)
            return ()
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return addresses


class Listener(threading.Thread):
    """Accepts a server's connections one after the other; each is a peer of its own."""

    def __init__(
        self,
        door: socket.socket,
        steps: Steps,
        signals: Signals,
        over: threading.Event,
        wrap: Wrap | None = None,
    ) -> None:
        super().__init__()
        self._door = door
        self._wrap = wrap
        self._steps = steps
        self._signals = signals
        self._over = over
        self._last: tuple[str, int] | None = None
        self.peers: list[Peer] = []

    def run(self) -> None:
        while True:
            sock, address = self._door.accept()
            if address == self._last:
                sock.close()
                return
            self.peers.append(Peer(sock, self._steps, self._signals, self._over, self._wrap))
            self.peers[-1].start()

    def finish(self) -> tuple[Saw, ...]:
        """Accept all that have come, by way of one more that is known; return what they saw."""
        with socket.socket() as last:
            last.bind(("127.0.0.1", 0))
            self._last = last.getsockname()
            last.connect(self._door.getsockname())
            self.join(SOON_S)
        assert not self.is_alive()
        return tuple(peer.saw() for peer in self.peers)


Runner = Callable[[Conversation], Due]


def over_uvloop(conversation: Conversation) -> Due:
    """Run a conversation under the uvloop shell; return what was seen."""

    def play(stage: Stage) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            stage.begin(lambda cause: loop.call_soon_threadsafe(stage.env.cancel_all, cause))
            async with asyncio.timeout(SOON_S):
                await single.by_uvloop(stage.script(), stage.served, stage.env)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    return _over_sockets(conversation, play)


def over_trio(conversation: Conversation) -> Due:
    """Run a conversation under the trio shell; return what was seen."""

    def play(stage: Stage) -> None:
        async def main() -> None:
            token = trio.lowlevel.current_trio_token()
            stage.begin(lambda cause: token.run_sync_soon(stage.env.cancel_all, cause))
            with trio.fail_after(SOON_S):
                await single.by_trio(stage.script(), stage.served, stage.env)

        trio.run(main)

    return _over_sockets(conversation, play)


@cache
def authorities() -> tuple[trustme.CA, trustme.CA]:
    """Return the authority that the shells trust here, and one that nobody knows."""
    return trustme.CA(), trustme.CA()


def speak_tls(sock: socket.socket, how: Secured) -> socket.socket | None:
    """Do a server's part of a handshake; None where nothing comes of it."""
    known, unknown = authorities()
    names = {Secured.OTHER_NAME: "other.example.com"}
    issuer = unknown if how is Secured.UNKNOWN_AUTHORITY else known
    if how is Secured.LEAVES:
        return None
    if how is Secured.NOT_AT_ALL:
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    if how in (Secured.NOT_AT_ALL, Secured.NEVER_ANSWERS):
        with suppress(ConnectionResetError):
            while sock.recv(4096):
                pass
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issuer.issue_cert(names.get(how, SECURE_HOST)).configure_cert(context)
    try:
        return context.wrap_socket(sock, server_side=True)
    except (ssl.SSLError, ConnectionResetError):
        return None  # the client didn't like the certificate


def secure(sock: socket.socket, host: str) -> Tls:
    """Return TLS that trusts the known authority alone."""
    context = new_context()
    authorities()[0].configure_trust(context)
    return Tls(sock, host, context)


class DoubleBridges:
    """Bridges that are there already, each at a door."""

    def __init__(self) -> None:
        self.doors: dict[str, tuple[str, int]] = {}

    def connect(self, name: str) -> socket.socket:
        if name not in self.doors:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        return socket.create_connection(self.doors[name], SOON_S)


class Stage:
    """A conversation's sockets, peers and doubles, ready to be played by a shell."""

    def __init__(self, conversation: Conversation, stack: ExitStack) -> None:
        self._conversation = conversation
        self._over = threading.Event()
        stack.callback(self._over.set)
        self.log = MemoryLog(full=conversation.log_full)
        self._signals = Signals(self._signalled)
        self.lookups = Lookups(conversation.names, self._signals, self._over)
        self.said: list[str] = []
        self.switch = Switch()
        self._bridges = DoubleBridges()
        self.env = Env(
            lookup=self.lookups,
            locate=lambda addresses: tuple(
                conversation.places.get(each, Place.ELSEWHERE) for each in addresses
            ),
            log=self.log,
            flags=self.switch,
            bridges=self._bridges,
            secure=secure,
            say=self.said.append,
        )
        self._cancel: Callable[[Cause], object] | None = None
        self._listeners: dict[str, Listener] = {}
        self._port = 0
        self._stack = stack
        if conversation.secured:
            authorities()  # before there is a second thread to make others
        for address, server in conversation.servers.items():
            self._serve(address, server, stack, conversation.secured.get(address))
        for number, (name, server) in enumerate(conversation.bridges.items()):
            self._bridges.doors[name] = self._serve(f"127.0.0.{99 + number}", server, stack, None)
            self._listeners[name] = self._listeners.pop(f"127.0.0.{99 + number}")
        for address, make in conversation.datagrams.items():
            self._answer(address, make, stack)
        self.env.inside = self
        self.served, program = self._connected(stack)
        self._program = Peer(program, conversation.client, self._signals, self._over)
        self.talk: Talk | None = None

    # What stands for the sandbox's own network.

    def listener(self, address: str, port: int) -> socket.socket:
        if address in self._conversation.listen_fails:
            raise OSError(errno.EADDRINUSE, "taken")
        return self._stack.enter_context(socket.create_server((address, port)))

    def connector(self, address: str) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        return sock

    def script_at(self, address: str, port: int) -> MakeScript:
        def nobody_comes(_: float) -> Script[None]:
            raise AssertionError("somebody connected")

        return nobody_comes

    def begin(self, cancel: Callable[[Cause], object]) -> None:
        """Let the program speak; `cancel` cancels what runs, from any thread."""
        self._cancel = cancel
        self._program.start()

    def script(self) -> Script[None]:
        """Return the conversation's script, with its cancels between two commands."""
        self.talk = Talk(monotonic(), self._port)
        script, event = self._conversation.script(self.talk), None
        for number in range(1_000_000):
            try:
                command = script.send(event)  # type: ignore[arg-type]
            except StopIteration:
                return
            if number in self._conversation.cancels_before:
                self.env.cancel_all(self._conversation.cancels_before[number])
            event = yield command

    def seen(self) -> Due:
        """Wait for the peers to end; return what everybody saw."""
        self._over.set()
        client = self._program.saw()
        named = (*self._conversation.servers, *self._conversation.bridges)
        servers: dict[str, tuple[Saw, ...]] = dict.fromkeys(named, ())
        for address, listener in self._listeners.items():
            servers[address] = listener.finish()
        assert self.talk is not None
        assert not self.said, self.said
        return Due(
            client,
            servers,
            tuple(self.talk.notes),
            tuple(self.lookups.asked),
            tuple(map(timeless, self.log.records)),
        )

    def _signalled(self, name: str) -> None:
        if name in self._conversation.cancels_on:
            assert self._cancel is not None
            self._cancel(self._conversation.cancels_on[name])
        if name in self._conversation.closes_on:
            self.switch.set(self._conversation.closes_on[name])

    def _serve(
        self, address: str, server: Server, stack: ExitStack, how: Secured | None
    ) -> tuple[str, int]:
        """Bind one server's address, all at one port, and listen where somebody answers."""
        door = stack.enter_context(socket.socket())
        if self._conversation.small:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW_BYTES)
        door.bind((address, self._port))
        self._port = door.getsockname()[1]
        if server is SILENT:
            door.listen(0)
            waiting = [stack.enter_context(socket.socket()) for _ in range(4)]
            for each in waiting:  # its queue is full: the kernel drops who comes then
                each.setblocking(False)
                each.connect_ex(door.getsockname())
            assert select.select([], waiting, [], SOON_S)[1]
        elif not isinstance(server, str):
            door.listen()
            wrap = None if how is None else partial(speak_tls, how=how)
            self._listeners[address] = Listener(door, server, self._signals, self._over, wrap)
            self._listeners[address].start()
        return address, self._port

    def _answer(
        self, address: str, make: Callable[[bytes], bytes | None], stack: ExitStack
    ) -> None:
        """Answer datagrams at an address, at the port of all."""
        door = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        door.bind((address, self._port))
        self._port = door.getsockname()[1]
        over = self._over

        def answer() -> None:
            with suppress(OSError):
                while True:
                    data, peer = door.recvfrom(65535)
                    if over.is_set():
                        return
                    if (said := make(data)) is not None:
                        door.sendto(said, peer)

        def end(thread: threading.Thread) -> None:
            over.set()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", door.getsockname())
            thread.join(SOON_S)

        thread = threading.Thread(target=answer)
        thread.start()
        stack.callback(end, thread)

    def _connected(self, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
        """Return the two ends of the program's connection, the shell's first."""
        with socket.socket() as door:
            program = stack.enter_context(socket.socket())
            if self._conversation.small:
                door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_WINDOW_BYTES)
                program.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW_BYTES)
            door.bind(("127.0.0.1", 0))
            door.listen()
            program.connect(door.getsockname())
            return door.accept()[0], program


def _over_sockets(conversation: Conversation, play: Callable[[Stage], None]) -> Due:
    with ExitStack() as stack:
        stage = Stage(conversation, stack)
        play(stage)
        return stage.seen()
