"""The kill switch, pauses and the limit of a real proxy, with calls open and others coming."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from tests.e2e.calls import counts
from tests.e2e.proxy import SHELLS, SOON_S, Proxy, read_all, read_head
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Server, echo, on_network

pytestmark = [pytest.mark.netns, pytest.mark.parametrize("shell", SHELLS)]
HOST = "203.0.113.10"
AUTHORITY = "example.com:9000"
TUNNELS = 200
CALLS_A_SECOND, CALLERS = 200, 4
WITHIN_S = 2.0
"""What open calls may take to end (R37); on a machine that takes longer to open them, as long."""
TRIES = 3
"""A machine that is busy with others may be late once."""


def eventually(what: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + SOON_S
    while not what():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.02)


class Callers:
    """Threads that make whole calls, 200 a second if the machine lets them, until told to stop."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._over = threading.Event()
        self._turn = itertools.count()
        self._lock = threading.Lock()
        self.statuses: list[tuple[float, int]] = []
        """When each call was begun, and its status; 0 where it was cut off."""
        self.down = 0
        self._threads = [threading.Thread(target=self._run) for _ in range(CALLERS)]
        self._began = time.monotonic()

    def _run(self) -> None:
        while not self._over.is_set():
            due = self._began + next(self._turn) / CALLS_A_SECOND
            if self._over.wait(max(0.0, due - time.monotonic())):
                return
            at = time.monotonic()
            status, down = self._call()
            with self._lock:
                self.statuses.append((at, status))
                self.down += down

    def _call(self) -> tuple[int, int]:
        """Make one call; return its status, and the bytes that came."""
        status = down = 0
        try:
            with self._proxy.connect() as sock:
                sock.sendall(f"CONNECT {AUTHORITY} HTTP/1.1\r\nHost: {AUTHORITY}\r\n\r\n".encode())
                head = read_head(sock)
                status = int(head.split()[1]) if head else 0
                if status == 200:
                    sock.sendall(b"ping")
                    while down < 4 and (data := sock.recv(4)):
                        down += len(data)
                    sock.shutdown(socket.SHUT_WR)
                    read_all(sock)
        except OSError:
            pass
        return status, down

    def since(self, at: float) -> list[int]:
        """Return the statuses of calls begun since a moment."""
        with self._lock:
            return [status for begun, status in self.statuses if begun >= at]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@contextlib.contextmanager
def tunnels(proxy: Proxy) -> Iterator[list[socket.socket]]:
    """Hold open tunnels that have carried eight bytes each way."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(TUNNELS):
            sock, head = proxy.tunnel(AUTHORITY)
            stack.enter_context(sock)
            assert head.startswith(b"HTTP/1.1 200 "), head
            made.append(sock)
        for sock in made:
            sock.sendall(b"eight by")
        for sock in made:
            assert sock.recv(8, socket.MSG_WAITALL) == b"eight by"
        yield made


def all_ended(socks: list[socket.socket]) -> None:
    """Wait until each tunnel has ended for its client; not a byte comes on the way."""
    for sock in socks:
        sock.settimeout(SOON_S)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""


def seconds_from(flag: float, proxy: Proxy, reason: str) -> list[float]:
    """Return when each call that a flag ended had ended, in seconds after it was raised."""
    return [
        datetime.fromisoformat(line["time"]).timestamp() - flag
        for line in proxy.log()
        if line["verdict"] == "ended" and line["reason"].endswith(reason)
    ]


@contextlib.contextmanager
def running(network: Network, shell: str, *flags: str) -> Iterator[tuple[Server, Proxy]]:
    with (
        on_network(network, HOST, 9000, echo) as server,
        Proxy(network, "--hosts", "example.com", *flags, shell=shell) as proxy,
    ):
        yield server, proxy


def stopped(proxy: Proxy) -> float:
    """Raise the kill switch; return when its flag was there."""
    proxy.lnk("stop")
    return os.stat(proxy.state / "sandbox" / "stopped").st_ctime


def closes(
    proxy: Proxy, server: Server, callers: Callers, close: Callable[[], float], reason: str
) -> float:
    """Close the wire with 200 tunnels open and 200 calls a second coming, see nothing pass.

    Returns how long the slowest tunnel took to end, from the flag on, by what it may take: in
    time it is less than 1.
    """
    began = time.monotonic()
    with tunnels(proxy) as socks:
        may_take = max(WITHIN_S, time.monotonic() - began)
        flag = close()
        after = time.monotonic()
        all_ended(socks)
        eventually(lambda: len(callers.since(after)) > 20)
        accepted, at = server.accepted, time.monotonic()
        eventually(lambda: len(callers.since(at)) > 20)
        # Whoever begins a call once the flag is there is told why it goes nowhere.
        assert set(callers.since(after)) == {503}
        assert server.accepted == accepted
        return max(seconds_from(flag, proxy, reason)[-TUNNELS:]) / may_take


def opens(callers: Callers, open_again: Callable[[], object]) -> None:
    open_again()
    at = time.monotonic()
    eventually(lambda: 200 in callers.since(at))


def test_stop_ends_every_call_within_two_seconds_and_nothing_passes_until_start(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with running(network, shell) as (server, proxy):
        took = [float("inf")]
        with Callers(proxy) as callers:
            while took[-1] >= 1 and len(took) <= TRIES:
                took.append(
                    closes(proxy, server, callers, lambda: stopped(proxy), "the wire is stopped")
                )
                assert json.loads(proxy.lnk("paused", "--json"))["stopped"] is True
                opens(callers, lambda: proxy.lnk("start"))
        assert took[-1] < 1, took
        proxy.end()
        check_counts(proxy, server, callers, rounds=len(took) - 1)


def check_counts(proxy: Proxy, server: Server, callers: Callers, rounds: int) -> None:
    """Hold the log to one first and one last line a call, and to what the peers saw."""
    first: dict[str, dict[str, object]] = {}
    up = down = 0
    for line in proxy.log():
        if line["verdict"] == "allowed":
            assert line["call"] not in first
            first[line["call"]] = line
        elif line["verdict"] == "ended":
            begun = first.pop(line["call"])
            assert (begun["host"], begun["port"]) == (line["host"], line["port"])
            up, down = up + line["up"], down + line["down"]
    assert first == {}
    server.close()  # it has read whatever came
    assert up == sum(map(len, server.received))
    assert down == callers.down + 8 * TUNNELS * rounds


def test_a_wire_that_looks_wrong_ends_its_calls_and_stays_closed_until_it_is_resumed(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    def call_metadata() -> float:
        sock, head = proxy.tunnel("169.254.169.254:80")
        sock.close()
        assert head.startswith(b"HTTP/1.1 403 ")
        return os.stat(proxy.state / "sandbox" / "paused" / "test").st_ctime

    with running(network, shell) as (server, proxy):
        took = [float("inf")]
        with Callers(proxy) as callers:
            while took[-1] >= 1 and len(took) <= TRIES:
                took.append(closes(proxy, server, callers, call_metadata, "the wire is paused"))
                (told,) = json.loads(proxy.lnk("paused", "--json"))["paused"]
                assert told["sandbox"] == "test"
                assert "169.254.169.254:80" in told["why"]
                opens(callers, lambda: proxy.lnk("resume", "test"))
        assert took[-1] < 1, took
        proxy.end()
        pausing = [line for line in proxy.log() if line["verdict"] == "paused"]
        assert len(pausing) == len(took) - 1
        assert all("metadata service" in line["reason"] for line in pausing)
        assert "lnk sandbox resume test" in proxy.stderr()
        check_counts(proxy, server, callers, rounds=len(took) - 1)


@pytest.mark.parametrize("pattern", ["refusals", "targets"])
def test_a_burst_of_refusals_or_of_targets_pauses_the_wire(
    shell: str, network: Network, dns: DnsDouble, pattern: str
) -> None:
    with running(network, shell) as (_, proxy):
        count = 300 if pattern == "refusals" else 100
        statuses = []
        for number in range(count + 1):
            host = "evil.test" if pattern == "refusals" else f"h{number}.test"
            sock, head = proxy.tunnel(f"{host}:443")
            sock.close()
            statuses.append(head.split()[1])
        assert statuses == [b"403"] * count + [b"503"]
        assert str(count) in json.loads(proxy.lnk("paused", "--json"))["paused"][0]["why"]
        assert dns.names_asked() == set()
        proxy.lnk("resume", "test")
        sock, head = proxy.tunnel(AUTHORITY)
        sock.close()
        assert head.startswith(b"HTTP/1.1 200 ")


def test_one_call_over_the_limit_is_told_when_to_try_again(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with running(network, shell, "--per-minute", "3") as (_, proxy):
        heads = []
        for authority in (AUTHORITY, "evil.test:1", AUTHORITY, AUTHORITY, "evil.test:2"):
            sock, head = proxy.tunnel(authority)
            sock.close()
            heads.append(head)
        assert [head.split()[1] for head in heads] == [b"200", b"403", b"200", b"429", b"429"]
        for head in heads[3:]:
            after = int(head.split(b"Retry-After: ")[1].split(b"\r\n")[0])
            assert 0 < after <= 60
        refused = [line for line in proxy.log() if line["verdict"] == "refused"]
        assert [line["status"] for line in refused] == [403, 429, 429]


def test_a_plain_request_that_is_under_way_is_ended_and_the_next_is_refused(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    """A connection without a call stays, and its next request is told why it goes nowhere."""
    request = b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n"
    with (
        on_network(network, HOST, 80, lambda connection: connection.until(b"never")) as server,
        Proxy(network, "--hosts", "example.com", shell=shell) as proxy,
        proxy.connect() as waiting,
        proxy.connect() as begun,
        proxy.connect() as idle,
    ):
        begun.sendall(request[:20])
        waiting.sendall(request)
        eventually(lambda: any(b"\r\n\r\n" in heard for heard in server.received))
        stopped(proxy)
        assert read_all(waiting).startswith(b"HTTP/1.1 503 The wire is stopped\r\n")
        begun.sendall(request[20:])
        idle.sendall(request)
        for sock in (begun, idle):
            assert read_all(sock).startswith(b"HTTP/1.1 503 The wire is stopped\r\n")
        proxy.end()
        server.close()
        let_through = [line for line in proxy.log() if line["verdict"] != "refused"]
        assert counts(let_through, "http") == [(len(server.received[0]), 0)]
        assert len(proxy.log()) == len(let_through) + 2


@pytest.mark.parametrize("odd", ["open", "link"])
def test_settings_that_others_can_change_close_the_wire(
    shell: str, network: Network, dns: DnsDouble, odd: str
) -> None:
    with running(network, shell) as (_, proxy):
        sock, head = proxy.tunnel(AUTHORITY)
        with sock:
            assert head.startswith(b"HTTP/1.1 200 ")
            folder = proxy.state / "sandbox"
            if odd == "open":
                folder.chmod(0o777)
            else:
                folder.rename(proxy.state / "moved")
                folder.symlink_to(proxy.state / "moved")
            all_ended([sock])
            refused, head = proxy.tunnel(AUTHORITY)
            refused.close()
            assert head.startswith(b"HTTP/1.1 503 Whether the wire is stopped can't be read\r\n")
            assert "calls are refused" in proxy.stderr()
            if odd == "open":
                folder.chmod(0o700)
            else:
                folder.unlink()
                (proxy.state / "moved").rename(folder)
            eventually(lambda: serves(proxy))


def serves(proxy: Proxy) -> bool:
    sock, head = proxy.tunnel(AUTHORITY)
    sock.close()
    return head.startswith(b"HTTP/1.1 200 ")


def test_what_was_carried_is_published_and_goes_with_the_proxy(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    def told() -> dict[str, object]:
        (one,) = json.loads(proxy.lnk("traffic", "--json"))
        return one

    with running(network, shell) as (_, proxy):
        nothing = {"pid": proxy.pid(), "sandbox": "test", "up": 0, "down": 0}
        assert told() == nothing
        sock, _ = proxy.tunnel(AUTHORITY)
        with sock:
            sock.sendall(b"x" * 70_000)
            left = 70_000
            while left:
                left -= len(sock.recv(left))
            eventually(lambda: told()["up"] == 70_000)  # while the call is open
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock) == b""
        refused, _ = proxy.tunnel("evil.test:443")
        refused.close()
        eventually(lambda: told() == {**nothing, "up": 70_000, "down": 70_000})
        file = proxy.state / "sandbox" / "traffic" / f"{proxy.pid()}.json"
        assert set(json.loads(file.read_text())) == {"pid", "start", "sandbox", "up", "down"}
        proxy.end()
        assert not file.exists()


def test_a_stopped_proxys_own_start_is_closed_too(
    shell: str, network: Network, dns: DnsDouble
) -> None:
    with running(network, shell) as (_, proxy):
        stopped(proxy)
        with Proxy(network, "--hosts", "example.com", shell=shell, state=proxy.state) as later:
            sock, head = later.tunnel(AUTHORITY)
            sock.close()
            assert head.startswith(b"HTTP/1.1 503 The wire is stopped\r\n")
            proxy.lnk("start")
            assert serves(later)
