"""What each call passes before it is judged: `proto/calls/gate.py`."""

from __future__ import annotations

import pytest

from proto.calls.gate import pass_gate
from proto.calls.ledger import Ledger
from proto.commands import Look
from proto.errors import RateLimited, WirePaused
from proto.events import Cause, Looked
from proto.policy.admission import Admission
from tests.proto.playbook import goes, play

CLOSED = (Cause.STOPPED, Cause.PAUSED, Cause.UNSEEN)


@pytest.mark.parametrize("admission", [None, Admission(), Admission(5)], ids=repr)
def test_an_open_wire_lets_a_call_begin(admission: Admission | None) -> None:
    ledger = Ledger(1.0, admission=admission)
    assert play(pass_gate(ledger), [goes(Look(), 2.0)]) is None
    assert ledger.now == 2.0


@pytest.mark.parametrize("cause", CLOSED)
def test_a_closed_wire_says_why_and_counts_nothing(cause: Cause) -> None:
    ledger = Ledger(1.0, admission=Admission(1))
    with pytest.raises(WirePaused) as closed:
        play(pass_gate(ledger), [(Look(), Looked(cause, 1.0))])
    assert closed.value.cause is cause
    assert closed.value.status_hint == 503
    assert closed.value.message.startswith(f"{cause.value}; outside, `lnk sandbox ")
    assert closed.value.phrase == cause.value.capitalize()
    assert not closed.value.looks_wrong
    play(pass_gate(ledger), [goes(Look(), 1.0)])  # it had counted for nothing


def test_the_limit_counts_calls_by_the_time_of_the_look() -> None:
    ledger = Ledger(1.0, admission=Admission(1))
    play(pass_gate(ledger), [goes(Look(), 10.0)])
    with pytest.raises(RateLimited) as over:
        play(pass_gate(ledger), [goes(Look(), 20.0)])
    assert over.value.retry_after_s == 50
    play(pass_gate(ledger), [goes(Look(), 70.0)])
