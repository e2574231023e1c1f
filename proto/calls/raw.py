"""Calls that don't begin with a request: what a connection is for follows from where it came in.

    endpoint_call   at an endpoint's address inside: a CONNECT to its name, without the words
    local_call      at a port of `localhost` inside: this machine's port of the same number
    served_call     at a port of this machine's: the sandbox's own port of the same number

Nothing can be answered, so what fails is logged and closed.
"""

from __future__ import annotations

from proto.calls.connect import Due, hear_answer, join, read_hello
from proto.calls.gate import pass_gate
from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.reach import Link, open_upstream
from proto.calls.refuse import end_badly
from proto.calls.ways import Ways
from proto.commands import IN, OUT, Connect, Way
from proto.errors import ProxyError
from proto.events import Connected
from proto.policy.hosts import Policy
from proto.script import Script

LOCALHOST = "localhost"
LOOPBACK = ("127.0.0.1", "::1")
"""A server of either family is `localhost` to its clients."""


def endpoint_call(
    policy: Policy, limits: Limits, ways: Ways, host: str, port: int, now: float
) -> Script[None]:
    """Serve a connection to an endpoint's address as a CONNECT to its name, checked as any."""
    ledger = _begun(now, ways, "connect", host, port)
    link = Link(exit=ways.exit, cures=ways.cures)
    due: Due | None
    try:
        yield from pass_gate(ledger)
        target = policy.admit(host, port, "connect")
        yield from open_upstream(link, ledger, target, now + limits.setup_s)
        due = link.take_said(), b""
        if target.reads_hello:
            hello = yield from read_hello(ledger, host, b"", limits)
            due = yield from hear_answer(ledger, host, hello, due[0], limits)
    except ProxyError as error:
        yield from end_badly(ledger, error, limits)
        return
    if due is not None:
        yield from join(ledger, *due, limits)


def local_call(limits: Limits, ways: Ways, port: int, now: float) -> Script[None]:
    """Join a connection inside to this machine's port, which `localhost.ports` names.

    No name is looked up and no address guarded: it is this machine's loopback and that port.
    """
    yield from _join(_begun(now, ways, "localhost", LOCALHOST, port), limits, OUT)


def served_call(limits: Limits, ways: Ways, port: int, now: float) -> Script[None]:
    """Join a connection to this machine's port to the sandbox's own, which `serve` names."""
    yield from _join(_begun(now, ways, "serve", LOCALHOST, port), limits, IN)


def _join(ledger: Ledger, limits: Limits, way: Way) -> Script[None]:
    try:
        yield from pass_gate(ledger)
        yield ledger.allow()
        by = ledger.now + limits.setup_s
        yield from ledger.ask(Connect(LOOPBACK, ledger.port, by, way), Connected)
    except ProxyError as error:
        yield from end_badly(ledger, error, limits)
        return
    yield from join(ledger, b"", b"", limits)


def _begun(now: float, ways: Ways, verb: str, host: str, port: int) -> Ledger:
    return Ledger(
        now, verb=verb, host=host, port=port, began=now, answered=True, admission=ways.admission
    )
