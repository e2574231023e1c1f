"""One suite of conversations over all three shells (R2): what each peer saw is the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from proto.commands import CLIENT, UPSTREAM, Close, Log, Receive, Send
from proto.events import Sent
from proto.policy.records import Ending
from proto.script import Script
from shells.sim_world import (
    Await,
    Cut,
    End,
    Fin,
    Hear,
    HearEnd,
    Pause,
    Reset,
    Saw,
    Say,
    Signal,
    Steps,
)
from tests.shells.contract import (
    Conversation,
    Due,
    Talk,
    over_simulation,
    over_trio,
    over_uvloop,
)
from tests.shells.conversations import (
    CONVERSATIONS,
    DONE,
    DOWN,
    ONE,
    broken_close_of_an_ended,
    connect,
)

every_conversation = pytest.mark.parametrize(
    "conversation", CONVERSATIONS, ids=[each.name.replace(" ", "_") for each in CONVERSATIONS]
)


@every_conversation
@pytest.mark.parametrize("run", [over_uvloop, over_trio])
def test_real_peers_see_what_is_due(
    run: Callable[[Conversation], Due], conversation: Conversation
) -> None:
    assert run(conversation) == conversation.due


@pytest.mark.parametrize("server", [(Hear(1), Reset()), (Hear(1), Say(b"y"), HearEnd())])
@pytest.mark.parametrize("run", [over_uvloop, over_trio])
def test_what_a_broken_close_keeps_from_leaving_is_not_counted(
    run: Callable[[Conversation], Due], server: Steps
) -> None:
    """A reset drops megabytes: the log has what the client saw, whoever cut the call short."""
    sent: list[int] = []

    def script(talk: Talk) -> Script[None]:
        yield from connect(talk)
        event = yield Send(talk.by, DOWN * 20, b"x", heed=(UPSTREAM,))
        assert isinstance(event, Sent)
        sent.append(event.to_client)
        yield from talk.ask(Receive((UPSTREAM,), 1, talk.by))
        yield from talk.ask(Close(CLIENT, talk.soon, broken=True))
        yield Log(replace(DONE, down=event.to_client))

    seen = run(
        Conversation(
            name="cut off",
            script=script,
            client=(Await("over"), HearEnd()),
            servers={ONE: (*server, Signal("over"))},
            due=Due(Saw(b"", End.RESET)),
        )
    )
    last = seen.log[-1]
    assert isinstance(last, Ending)
    assert 0 < last.down == len(seen.client.data) <= sent[0]


@pytest.mark.parametrize("run", [over_uvloop, over_trio])
def test_a_client_that_has_half_closed_reads_all_before_a_broken_close_s_reset(
    run: Callable[[Conversation], Due],
) -> None:
    sent: list[int] = []

    def script(talk: Talk) -> Script[None]:
        yield from connect(talk)
        yield from talk.ask(Receive((CLIENT,), 1, talk.by))
        event = yield Send(talk.by, DOWN * 20, b"x", heed=(UPSTREAM,))
        assert isinstance(event, Sent)
        sent.append(event.to_client)
        yield from talk.ask(Close(CLIENT, talk.by, broken=True))

    client = Fin(), Await("go"), HearEnd()
    server = Hear(1), Say(b"y"), Signal("go"), HearEnd()
    seen = run(Conversation("", script, Due(Saw(b"", End.RESET)), client, {ONE: server}))
    assert (len(seen.client.data), seen.client.end) == (sent[0], End.RESET)


@pytest.mark.parametrize("cut", Cut)
def test_a_simulated_one_does_so_too(cut: Cut) -> None:
    client = Fin(), Pause(1.0), HearEnd()
    due = Due(Saw(b"half", End.RESET), notes=("received client b''", "closed"))
    talk = Conversation("", broken_close_of_an_ended, due, client)
    for seed in range(6):
        assert over_simulation(talk, cut, seed) == due, f"seed {seed}"


@every_conversation
@pytest.mark.parametrize("cut", Cut)
def test_simulated_peers_see_what_is_due(cut: Cut, conversation: Conversation) -> None:
    for seed in range(6):
        assert over_simulation(conversation, cut, seed) == conversation.due, f"seed {seed}"
