"""Every case of `http_head` and `client_hello` over real sockets, through the real proxy.

The outcomes are put together of what the program, the servers and the resolver saw and
compared as `python -m fuzz.cases` does: the same cases, the same comparison, other shells.
"""

from __future__ import annotations

import re
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from fuzz.case_calls import Observed, first_final
from fuzz.case_client_hello import outcome_of as hello_outcome
from fuzz.case_files import Case, Outcome, Suite, load, right_outcomes, segments
from fuzz.case_http_head import ADDRESS, method_of, server_of
from fuzz.case_http_head import outcome_of as http_outcome
from fuzz.cases import SUITES
from fuzz.http_reading import answer_reader
from shells.sim_world import End, HearEnd, Saw, Steps
from tests.e2e.proxy import SHELLS, Proxy, read_head
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network, _ip
from tests.net.servers import listen
from tests.shells.peers import SOON_S, Peer, Signals

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("shell", SHELLS),
]
FILES = Path(__file__).parent.parent / "cases"
PORTS = (22, 80, 443, 5432, 8080, 8443)
LITERAL = "2606:2800:220:1:248:1893:25c8:1946"
"""The one address that the cases name themselves."""

HELLO_LIMIT_S = 10.0
"""A tunnel that is closed so long after it was asked for was closed by the time limit."""
LATE_S = 20.0
"""By so much a busy machine may be late with that."""


class Everything(dict[str, list[str]]):
    """Every name has the one address."""

    def get(self, name: str, default: object = None) -> list[str]:  # type: ignore[override]
        return [ADDRESS]


class Servers:
    """Listens wherever a case may connect to, and plays one case's steps at a time."""

    def __init__(self, network: Network) -> None:
        places = [(address, port) for address in (ADDRESS, LITERAL) for port in PORTS]
        self._doors = [
            network.on_server_side(lambda place=place: listen(*place))  # type: ignore[misc]
            for place in places
        ]
        self._lock = threading.Lock()
        self._steps: Steps = ()
        self._peers: list[tuple[str, Peer]] = []
        self._over = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._wake, woken = socket.socketpair()
        for door in (*self._doors, woken):
            door.setblocking(False)
            self._selector.register(door, selectors.EVENT_READ)
        self._woken = woken
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def begin(self, steps: Steps) -> None:
        """Play these steps on each connection that comes from now on."""
        with self._lock:
            self._steps, self._peers = steps, []

    def heard(self) -> int:
        """Return how many bytes have come so far."""
        with self._lock:
            return sum(peer.heard() for _, peer in self._peers)

    def finish(self) -> tuple[tuple[str, Saw], ...]:
        """Take in who still waits at a door, and return what each connection brought."""
        self._accept()
        with self._lock:
            peers = list(self._peers)
        return tuple((address, peer.saw()) for address, peer in peers)

    def close(self) -> None:
        self._wake.close()
        self._thread.join(SOON_S)
        self._selector.close()
        for door in (*self._doors, self._woken):
            door.close()

    def _serve(self) -> None:
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._woken in ready:
                return
            self._accept()

    def _accept(self) -> None:
        with self._lock:
            for door in self._doors:
                with suppress(BlockingIOError):
                    while True:
                        sock, _ = door.accept()
                        peer = Peer(sock, self._steps, Signals(lambda _: None), self._over)
                        self._peers.append((door.getsockname()[0], peer))
                        peer.start()


class Program:
    """The client of one case: says what the case has it say, and hears on to the end."""

    def __init__(self, sock: socket.socket, pieces: list[bytes], *, ends: bool) -> None:
        self._sock = sock
        self._ends = ends
        self._speaking = threading.Thread(target=self._say, args=(pieces,))
        self._speaking.start()

    def _say(self, pieces: list[bytes]) -> None:
        with suppress(ConnectionResetError, BrokenPipeError):  # it was refused meanwhile
            for piece in pieces:
                self._sock.sendall(piece)
        if self._ends:
            self.end()

    def end(self) -> None:
        """Say that nothing more comes."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def hear(self, method: bytes) -> Saw:
        """Hear to the end; once there is a whole answer, end too."""
        reader, data, ended = answer_reader(method), b"", False
        try:
            while piece := self._sock.recv(65536):
                data += piece
                reader.feed(piece)
                final = first_final(reader)
                if final is not None and final.complete and not ended:
                    self._speaking.join(SOON_S)
                    self.end()
                    ended = True
        except ConnectionResetError:
            return Saw(data, End.RESET)
        finally:
            self._speaking.join(SOON_S)
        return Saw(data, End.FIN)

    def hear_tunnel(self, servers: Servers, size: int) -> Saw:
        """Hear to the end; once the server has heard as much as was sent, end too."""
        data = b""
        self._sock.settimeout(0.02)
        late, ended = monotonic() + SOON_S, False
        while monotonic() < late:
            if size and servers.heard() >= size and not ended:
                self.end()
                ended = True
            try:
                piece = self._sock.recv(65536)
            except TimeoutError:
                continue
            except ConnectionResetError:
                return Saw(data, End.RESET)
            if not piece:
                return Saw(data, End.FIN)
            data += piece
        raise AssertionError("the tunnel never ends")


@pytest.fixture(scope="module")
def servers(network: Network) -> Iterator[Servers]:
    _ip("-n", network.server, "address", "add", f"{LITERAL}/128", "dev", "s0", "nodad")
    _ip("-n", network.client, "-6", "route", "add", f"{LITERAL}/128", "dev", "c0")
    made = Servers(network)
    yield made
    made.close()


@pytest.fixture
def names(dns: DnsDouble) -> Iterator[DnsDouble]:
    before, dns.names = dns.names, Everything()
    yield dns
    dns.names = before


class Wires:
    """A running proxy for each policy that the cases have."""

    def __init__(self, network: Network, shell: str, stack: ExitStack) -> None:
        self._network, self._shell, self._stack = network, shell, stack
        self._proxies: dict[tuple[str, ...], Proxy] = {}
        self._monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())

    def proxy(self, config: dict[str, object]) -> Proxy:
        hosts, secret = config["hosts"], config.get("pointed_secret")
        flags: tuple[str, ...] = ("--any-host",)
        if isinstance(hosts, list):
            flags = ("--hosts", ",".join(hosts))
        if secret is not None:
            self._monkeypatch.setenv("TEST_WIRE", f"http://lnk:{secret}@127.0.0.1:0")
            flags += ("--pointed-by", "TEST_WIRE")
        if flags not in self._proxies:
            started = Proxy(self._network, *flags, shell=self._shell)
            self._proxies[flags] = self._stack.enter_context(started)
        return self._proxies[flags]

    def check_no_bug(self) -> None:
        """A bug of ours ends its own call alone, and tells so on stderr."""
        for proxy in self._proxies.values():
            assert proxy.stderr() == ""


Lines = list[dict[str, Any]]


def let_through(lines: Lines) -> tuple[tuple[str, str, int], ...]:
    allowed = [line for line in lines if line["verdict"] == "allowed"]
    return tuple((line["verb"], line["host"], line["port"]) for line in allowed)


def lines_since(proxy: Proxy, since: int) -> Lines:
    """Return the lines of a case, once each call that was let through has its last."""
    late = monotonic() + SOON_S
    while True:
        lines = proxy.log()[since:]
        begun = {line["call"] for line in lines if line["verdict"] == "allowed"}
        over = {line["call"] for line in lines if line["verdict"] in ("ended", "refused")}
        if begun <= over or monotonic() > late:
            return lines
        sleep(0.005)


def answered_itself(lines: Lines) -> int:
    """Return the status that the proxy says it gave the first call itself."""
    for line in lines:
        if line["verdict"] == "refused":
            return int(line["status"])
        if line["verdict"] == "ended":
            return int(re.match(r"(\d{3}): |", line["reason"])[1] or 0)  # type: ignore[index]
    return 0


def asked(names: DnsDouble) -> tuple[str, ...]:
    """Return the names asked for, each once whatever the families."""
    return tuple(dict.fromkeys(name.lower() for name, _ in names.asked))


def differing(suite: Suite, case: Case, outcome: Outcome) -> list[str]:
    found = [suite.differences(outcome, due) for due in right_outcomes(case)]
    return [] if any(not each for each in found) else [f"{case['id']}: {'; '.join(found[0])}"]


def run_http(proxy: Proxy, servers: Servers, names: DnsDouble, case: Case) -> Outcome:
    """Send one case's bytes to the proxy, and return what came of them."""
    names.forget()
    servers.begin(server_of(case))
    since = len(proxy.log())
    with proxy.connect() as sock:
        program = Program(sock, segments(case), ends=bool(case.get("eof")))
        client = program.hear(method_of(case))
    reached = servers.finish()
    lines = lines_since(proxy, since)
    allowed, dialled = let_through(lines), tuple(address for address, _ in reached)
    own_status = answered_itself(lines)
    seen = Observed(client, reached, asked(names), dialled, allowed, own_status)
    # What a tunnel to 443 begins with is read under a list, and isn't judged here.
    reads = case["config"]["hosts"] is not None and allowed[:1] and allowed[0][2] == 443
    return http_outcome(case, seen, b"" if reads else None)


def test_every_http_head(shell: str, network: Network, names: DnsDouble, servers: Servers) -> None:
    found: list[str] = []
    with ExitStack() as stack:
        wires = Wires(network, shell, stack)
        for case in load(FILES / "http_head.jsonl"):
            outcome = run_http(wires.proxy(case["config"]), servers, names, case)
            found += differing(SUITES[0], case, outcome)
        wires.check_no_bug()
    assert not found, "\n".join(found)


def test_a_wrong_case_is_noticed(
    shell: str, network: Network, names: DnsDouble, servers: Servers
) -> None:
    case = next(load(FILES / "http_head.jsonl"))
    with ExitStack() as stack:
        proxy = Wires(network, shell, stack).proxy(case["config"])
        outcome = run_http(proxy, servers, names, case)
    assert not differing(SUITES[0], case, outcome)
    for wrong in (
        {"request": case["expect"]["request"] | {"port": 81}},
        {"upstream": case["expect"]["upstream"] | {"target": "/other"}},
        {"never_dials": [ADDRESS]},
        {"verdict": "refuse", "status": [403]},
    ):
        assert differing(SUITES[0], case | {"expect": case["expect"] | wrong}, outcome)


def run_hello(servers: Servers, case: Case, sock: socket.socket) -> tuple[Saw, float]:
    """Open a tunnel and send one case's bytes down it; return what was heard, and how long.

    The proxy's own time began later, so what its limit ends has taken no less here.
    """
    began = monotonic()
    target = case["config"]["connect"].encode()
    sock.sendall(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, target))
    head = read_head(sock)
    pieces = segments(case)
    program = Program(sock, pieces, ends=bool(case.get("eof")))
    rest = program.hear_tunnel(servers, len(b"".join(pieces)))
    return Saw(head + rest.data, rest.end), monotonic() - began


def may_wait(case: Case) -> bool:
    return any(due["verdict"] == "wait" for due in right_outcomes(case))


def without_name(case: Case) -> Case:
    """Drop the name that was read: from outside it can't be seen."""
    expect = {key: value for key, value in case["expect"].items() if key not in ("sni", "also_ok")}
    also = [
        {k: v for k, v in each.items() if k != "sni"} for each in case["expect"].get("also_ok", [])
    ]
    return case | {"expect": expect | {"also_ok": also}}


def test_every_client_hello(
    shell: str, network: Network, names: DnsDouble, servers: Servers
) -> None:
    found: list[str] = []
    with ExitStack() as stack:
        wires = Wires(network, shell, stack)
        for case in load(FILES / "client_hello.jsonl"):
            if may_wait(case):
                continue  # they take ten seconds each: below, all at once
            names.forget()
            servers.begin((HearEnd(),))
            with wires.proxy(case["config"]).connect() as sock:
                client, _ = run_hello(servers, case, sock)
            reached = servers.finish()
            dialled = tuple(address for address, _ in reached)
            seen = Observed(client, reached, asked(names), dialled, ())
            found += differing(
                SUITES[2], without_name(case), hello_outcome(case, seen, waited=False)
            )
    assert not found, "\n".join(found)


def test_every_client_hello_that_may_be_waited_for(
    shell: str, network: Network, names: DnsDouble, servers: Servers
) -> None:
    """None of them lets a byte through, so what the servers heard needs no sorting."""
    cases = [case for case in load(FILES / "client_hello.jsonl") if may_wait(case)]
    heard: dict[str, tuple[Saw, float]] = {}
    servers.begin((HearEnd(),))
    with ExitStack() as stack:
        wires = Wires(network, shell, stack)

        def run(case: Case, sock: socket.socket) -> None:
            heard[case["id"]] = run_hello(servers, case, sock)

        threads = []
        for case in cases:
            sock = stack.enter_context(wires.proxy(case["config"]).connect())
            threads.append(threading.Thread(target=run, args=(case, sock)))
            threads[-1].start()
        for thread in threads:
            thread.join(SOON_S)
        reached = servers.finish()
        wires.check_no_bug()
    assert [saw.data for _, saw in reached] == [b""] * len(cases)
    found: list[str] = []
    for case in cases:
        client, took = heard[case["id"]]
        seen = Observed(client, ((ADDRESS, Saw(b"", End.FIN)),), (), (ADDRESS,), ())
        outcome = hello_outcome(case, seen, waited=took >= HELLO_LIMIT_S)
        assert took < HELLO_LIMIT_S + LATE_S
        found += differing(SUITES[2], without_name(case), outcome)
    assert not found, "\n".join(found)
