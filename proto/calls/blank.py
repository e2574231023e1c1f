"""A connection to a proxy that isn't bound yet: each call is told so, and nothing else (R42)."""

from __future__ import annotations

from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.reach import Link
from proto.calls.refuse import end_badly
from proto.calls.serve import read_head
from proto.errors import NotBound, ProxyError
from proto.script import Script


def blank_connection(limits: Limits, now: float) -> Script[None]:
    """Answer one call with a 503.  Nothing of what it is for is read, or logged."""
    link, ledger, method = Link(), Ledger(now), ""
    try:
        head = yield from read_head(link, ledger, limits, limits.head_s)
        if head is None:
            return
        method = head.method
        raise NotBound("this proxy is bound to no sandbox yet; try again once it is.")
    except ProxyError as error:
        yield from end_badly(ledger, error, limits, method)
