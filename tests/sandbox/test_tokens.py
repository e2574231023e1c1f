"""The tokens that a wire's models took, as they are published: `sandbox/tokens.py`."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from proto.verbs.metering import Tokens
from sandbox.errors import Unavailable
from sandbox.published import sweep, traffic
from sandbox.state import State
from sandbox.tokens import COUNTS, Tally, tokens


@pytest.fixture
def settings(tmp_path: Path) -> str:
    return str(tmp_path / "lnk")


def file_of(settings: str) -> Path:
    return Path(settings, "sandbox", "traffic", f"{os.getpid()}.tokens.json")


def test_what_answers_took_is_summed_and_read_while_the_bridge_runs(settings: str) -> None:
    tally = Tally(settings, "box")
    assert tokens(settings) == []
    tally.add(**Tokens(1, 0, 10, 5, 3, 2).counts())
    tally.add(**Tokens(1, 1).counts())
    due = {"requests": 2, "unmetered": 1, "input": 10, "output": 5, "cached": 3, "written": 2}
    (one,) = tokens(settings)
    assert one.as_json() == {"pid": os.getpid(), "sandbox": "box", **due}
    assert (one.requests, one.unmetered, one.input) == (2, 1, 10)
    assert (one.output, one.cached, one.written) == (5, 3, 2)
    assert tuple(due) == COUNTS
    assert stat.S_IMODE(file_of(settings).stat().st_mode) == 0o600
    assert traffic(settings) == []  # it is no proxy's file
    sweep(State(settings))
    assert tokens(settings)
    tally.withdraw()
    assert tokens(settings) == []
    assert not file_of(settings).exists()


@pytest.mark.parametrize(
    "change", [{"input": "3"}, {"sandbox": 3}, {"written": True}, {"start": ""}]
)
def test_a_file_that_is_not_a_running_bridges_is_passed_over(
    settings: str, change: dict[str, object]
) -> None:
    tally = Tally(settings, "box")
    tally.add(requests=1)
    path = file_of(settings)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert tokens(settings) == []


def test_a_call_goes_on_where_nothing_can_be_written(settings: str) -> None:
    Path(settings).write_text("no folder")
    tally = Tally(settings, "box")
    tally.add(requests=1)
    tally.withdraw()
    with pytest.raises(Unavailable):
        tokens(settings)
    nowhere = Tally(None, "box")
    nowhere.add(requests=1)
    nowhere.withdraw()
