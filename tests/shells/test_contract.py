"""One suite of conversations over all three shells (R2): what each peer saw is the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shells.sim_world import Cut
from tests.shells.contract import (
    Conversation,
    Due,
    over_simulation,
    over_trio,
    over_uvloop,
)
from tests.shells.conversations import CONVERSATIONS

every_conversation = pytest.mark.parametrize(
    "conversation", CONVERSATIONS, ids=[each.name.replace(" ", "_") for each in CONVERSATIONS]
)


@every_conversation
@pytest.mark.parametrize("run", [over_uvloop, over_trio])
def test_real_peers_see_what_is_due(
    run: Callable[[Conversation], Due], conversation: Conversation
) -> None:
    assert run(conversation) == conversation.due


@every_conversation
@pytest.mark.parametrize("cut", Cut)
def test_simulated_peers_see_what_is_due(cut: Cut, conversation: Conversation) -> None:
    for seed in range(6):
        assert over_simulation(conversation, cut, seed) == conversation.due, f"seed {seed}"
