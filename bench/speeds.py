"""How fast: tunnels, calls and plain requests, each proxy beside a direct connection.

Every round asks every proxy for every kind of work, the order turned by one each time;
ratios are made within a round.  CPU is the proxy's own, from /proc/PID/stat.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.load import Load
from bench.peers import Peer
from bench.table import Row, progress, ratios

GIB = 1 << 30

DIRECT, SQUID, HAPROXY, HAPROXY_SPLICE = "direct", "squid", "HAProxy", "HAProxy, splice"
BARE = "bare uvloop"
SHELLS = ("uvloop", "trio")


@dataclass(frozen=True)
class Work:
    """A load: its kind, how many at once, and how much of it (bytes each, or seconds)."""

    what: str
    kind: str
    count: int
    amount: float


@dataclass(frozen=True)
class Sample:
    """What one run gave: a rate a second, and the proxy's CPU seconds for one unit of it."""

    rate: float
    cpu_s: float


Samples = dict[tuple[str, str], list[Sample]]
"""By the work's and the proxy's name, a sample a round."""

TUNNEL_1, TUNNEL_16 = "tunnel, 1 connection", "tunnel, 16 connections"
CALLS_1, CALLS_8 = "calls a second, one by one", "calls a second, 8 at once"
CALLS_NAMED = "calls a second by name, one by one"
REQUESTS = "plain requests a second, 8 connections"


def works(quick: bool) -> list[Work]:
    """Return what is measured."""
    size, seconds = (GIB // 4, 0.3) if quick else (GIB, 0.7)
    return [
        Work(TUNNEL_1, "tunnels", 1, size),
        Work(TUNNEL_16, "tunnels", 16, size // 16),
        Work(CALLS_1, "calls", 1, seconds),
        Work(CALLS_8, "calls", 8, seconds),
        Work(CALLS_NAMED, "calls by name", 1, seconds),
        Work(REQUESTS, "requests", 8, seconds),
    ]


def measure(load: Load, peers: list[Peer], rounds: int, quick: bool) -> Samples:
    """Run every work on every proxy, round by round."""
    samples: Samples = {}
    for number in range(rounds):
        turn = number % len(peers)
        for work in works(quick):
            for peer in peers[turn:] + peers[:turn]:
                if work.what == CALLS_NAMED and peer.name not in (*SHELLS, SQUID):
                    continue  # the others look no name up
                if work.kind == "tunnels" and peer.name == BARE:
                    continue  # it drops what a full socket doesn't take
                progress(f"round {number + 1} of {rounds}: {work.what}, {peer.name}")
                samples.setdefault((work.what, peer.name), []).append(_run(load, peer, work))
    return samples


def _run(load: Load, peer: Peer, work: Work) -> Sample:
    before = peer.cpu_s()
    rate, seconds = load.measure(work.kind, peer.at, work.count, work.amount)
    return Sample(rate, (peer.cpu_s() - before) / (rate * seconds))


def rows(samples: Samples) -> list[Row]:
    """Return the table's rows about speed."""
    return [
        *_tunnel_rows(samples, TUNNEL_1, 0.75),
        *_tunnel_rows(samples, TUNNEL_16, 0.80),
        *_cpu_rows(samples),
        *_call_rows(samples, CALLS_1),
        *_call_rows(samples, CALLS_8),
        *_named_rows(samples),
        *_request_rows(samples),
    ]


def _rates(samples: Samples, what: str, name: str) -> list[float]:
    return [sample.rate for sample in samples[what, name]]


def _row(samples: Samples, what: str, name: str, of: str, goal: float | None = None) -> Row:
    values = ratios(_rates(samples, what, name), _rates(samples, what, of))
    return Row(f"{what}: {name}", values, f"× {of}", goal)


def _tunnel_rows(samples: Samples, what: str, goal: float) -> list[Row]:
    return [
        _row(samples, what, "uvloop", DIRECT, goal),
        _row(samples, what, "uvloop", HAPROXY, 1.5),
        _row(samples, what, "uvloop", SQUID, 1.3),
        _row(samples, what, "trio", DIRECT, 0.75),
        *(_row(samples, what, peer, DIRECT) for peer in (SQUID, HAPROXY, HAPROXY_SPLICE)),
    ]


def _cpu_rows(samples: Samples) -> list[Row]:
    """CPU seconds for a GiB, over both kinds of tunnels.

    The goal is 0.30 s where HAProxy without splice takes 1.1, so a ratio.
    """

    def cost(name: str) -> list[float]:
        both = zip(samples[TUNNEL_1, name], samples[TUNNEL_16, name], strict=True)
        return [(one.cpu_s + many.cpu_s) / 2 * GIB for one, many in both]

    what = "CPU for a GiB"
    return [
        *(
            Row(f"{what}: {shell}", ratios(cost(shell), cost(HAPROXY)), f"× {HAPROXY}", goal, True)
            for shell, goal in (("uvloop", 0.30 / 1.1), ("trio", None))
        ),
        *(
            Row(f"{what}: {name}", cost(name), "s")
            for name in (*SHELLS, SQUID, HAPROXY, HAPROXY_SPLICE)
        ),
    ]


def _call_rows(samples: Samples, what: str) -> list[Row]:
    return [
        _row(samples, what, "uvloop", SQUID, 1.2),
        _row(samples, what, "trio", SQUID, 0.7),
        *_least_rows(samples, what),
        *_compared(samples, what, ("uvloop", "trio", SQUID, HAPROXY)),
        *(_cpu_each(samples, what, name) for name in (*SHELLS, BARE, SQUID, HAPROXY)),
    ]


def _named_rows(samples: Samples) -> list[Row]:
    """By name, as nearly all calls are: squid keeps what it has looked up, we ask each time."""
    return [
        *(_row(samples, CALLS_NAMED, name, SQUID) for name in SHELLS),
        *(_cpu_each(samples, CALLS_NAMED, name) for name in (*SHELLS, SQUID)),
    ]


def _request_rows(samples: Samples) -> list[Row]:
    return [
        _row(samples, REQUESTS, "uvloop", SQUID, 2.0),
        _row(samples, REQUESTS, "trio", SQUID),
        *_least_rows(samples, REQUESTS),
        *_compared(samples, REQUESTS, ("uvloop", "trio", SQUID, HAPROXY)),
        *(_cpu_each(samples, REQUESTS, name) for name in (*SHELLS, BARE, SQUID, HAPROXY)),
    ]


def _least_rows(samples: Samples, what: str) -> list[Row]:
    """Return how near ours is to the least that Python can do, and how near that is to squid."""
    return [_row(samples, what, "uvloop", BARE), _row(samples, what, BARE, SQUID)]


def _compared(samples: Samples, what: str, names: tuple[str, ...]) -> list[Row]:
    return [_row(samples, what, name, DIRECT) for name in names]


def _cpu_each(samples: Samples, what: str, name: str) -> Row:
    values = [sample.cpu_s * 1e6 for sample in samples[what, name]]
    return Row(f"{what}: CPU of {name}", values, "µs each")
