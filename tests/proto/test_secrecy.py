"""What a program sends is never told of: no marker reaches a log line or an answer of ours."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.calls.limits import Limits
from proto.calls.serve import serve_connection
from proto.calls.ways import Ways
from proto.events import Cause, Reason
from proto.policy.admission import Admission
from proto.policy.hosts import Policy
from proto.policy.secret import Secret
from proto.script import Script
from shells.sim_shell import run
from shells.sim_world import Cut, Hear, HearEnd, Reset, Say, Steps, World
from tests.markers import PARTS, Marked, marked

LIMITS = Limits(idle_s=60.0)
HOSTS = ("example.com", "evil.test", "127.0.0.1", "missing.example.com", "169.254.169.254")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SERVERS: tuple[Steps, ...] = (
    (Hear(10), Say(OK), HearEnd()),
    (Hear(10), Reset()),
    (Say(b"no HTTP at all\r\n\r\n"), HearEnd()),
    (HearEnd(),),
)
MARKERS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=16, max_size=16).map(
    lambda text: f"m4rk3r{text}"
)


def told(request: Marked, *, secret: bool, seed: int = 0, **world: object) -> list[bytes]:
    """Return all that a connection with a request leaves: log lines, and what its client heard."""
    policy = Policy.of(["example.com", "*.example.com"])
    ways = Ways(admission=Admission(1 if seed % 3 == 0 else None))
    if seed % 6 == 0:
        ways.admission.count(1000.0)  # type: ignore[union-attr]  # the next is one too many

    def script(now: float) -> Script[None]:
        return serve_connection(policy, LIMITS, Secret("s" * 16) if secret else None, now, ways)

    made = World(
        client=(Say(request.request), HearEnd()),
        names={"example.com": (("203.0.113.10",),)},
        **world,  # type: ignore[arg-type]
    )
    seen = run(script, made, seed)
    return [*map(msgspec.json.encode, seen.log), seen.client.data]


CLOSED = ((), ((0.0, Cause.STOPPED),))


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_a_request_is_told_of_whatever_comes_of_it(part: str) -> None:
    ways = itertools.product(HOSTS, SERVERS, (False, True), CLOSED)
    for seed, (host, server, secret, closed) in enumerate(ways):
        request = marked(part, host, "80", f"m4rk3r{seed:03d}zqxj")
        texts = told(request, secret=secret, seed=seed, any_server=server, closed_at=closed)
        assert not request.found_in(*texts), texts


@given(data=st.data())
def test_no_request_is_told_of_however_it_is_cut_and_whatever_fails(data: st.DataObject) -> None:
    host = data.draw(st.sampled_from(HOSTS))
    port = data.draw(st.sampled_from(["80", "443", "9000"]))
    request = marked(data.draw(st.sampled_from(list(PARTS))), host, port, data.draw(MARKERS))
    texts = told(
        request,
        secret=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 1000)),
        any_server=data.draw(st.sampled_from(SERVERS)),
        cut=Cut.RANDOM if len(request.request) > 4096 else data.draw(st.sampled_from(Cut)),
        faults=data.draw(st.dictionaries(st.integers(0, 8), st.sampled_from(Reason), max_size=1)),
        closed_at=data.draw(st.sampled_from(CLOSED)),
    )
    assert not request.found_in(*texts), texts


def test_the_property_can_fail() -> None:
    request = marked("path", "example.com", "80", "m4rk3r" + "a" * 16)
    assert request.found_in(b"GET /M4RK3R" + b"A" * 16)
    assert request.found_in(*told(
        marked("path", "example.com", "80", "m4rk3r" + "a" * 16), secret=False, seed=1,
        any_server=(Hear(10), Say(OK[:-2] + b"m4"), HearEnd()),
    ), request.request)  # fmt: skip
