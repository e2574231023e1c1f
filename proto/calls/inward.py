"""A call from outside in, of a bridge's: a login's answer to a port of the sandbox's own (R54).

A bridge connects to a door that the proxy keeps for it, tells the caller's key and a port, as
a CONNECT to localhost, and is joined with what listens there inside.
"""

from __future__ import annotations

from proto.calls.connect import join
from proto.calls.gate import pass_gate
from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.reach import Link
from proto.calls.refuse import end_badly
from proto.calls.serve import read_head
from proto.calls.ways import Ways
from proto.codecs.target import ConnectTarget, read_target
from proto.commands import IN, Connect, Send
from proto.errors import ProxyError, Refused
from proto.events import Connected, Sent
from proto.policy.keys import Key
from proto.script import Script

REACHED = b"HTTP/1.1 200 OK\r\n\r\n"


def inward_call(caller: Key, limits: Limits, ways: Ways, now: float) -> Script[None]:
    """Serve one connection of a bridge's."""
    link, ledger = Link(), Ledger(now, "callback", admission=ways.admission)
    try:
        head = yield from read_head(link, ledger, limits, limits.head_s)
        if head is None:
            return
        target = read_target(head)
        told = caller.is_told(head.one(b"link-caller"))
        if not (told and isinstance(target, ConnectTarget) and target.host == "localhost"):
            raise Refused("this door is for the wire's own bridges.")
        ledger.host, ledger.port = target.host, target.port
        yield from pass_gate(ledger)
        yield ledger.allow()
        by = ledger.now + limits.setup_s
        yield from ledger.ask(Connect(("127.0.0.1",), target.port, by, IN), Connected)
        yield from ledger.ask(Send(by, to_client=REACHED), Sent)
    except ProxyError as error:
        yield from end_badly(ledger, error, limits)
        return
    yield from join(ledger, b"", link.early, limits)
