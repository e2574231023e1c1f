"""What every call of every verb passes before it is judged: the flags, the limit (5.1)."""

from __future__ import annotations

from proto.calls.ledger import Ledger
from proto.commands import Look
from proto.errors import WirePaused
from proto.events import Looked
from proto.script import Script


def pass_gate(ledger: Ledger) -> Script[None]:
    """Let one more call begin, and count it.

    Raises WirePaused (503) where the kill switch or a pause closes the wire, RateLimited
    (429) where the last minute has as many calls as it may.
    """
    looked = yield from ledger.ask(Look(), Looked)
    if looked.cause is not None:
        raise WirePaused(looked.cause)
    if ledger.admission is not None:
        ledger.admission.count(ledger.now)
