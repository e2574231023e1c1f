"""One suite of conversations over all three shells (R2): what each peer saw is the same."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from time import monotonic

import pytest
import trio
import uvloop
from msgspec.structs import replace

from proto.commands import CLIENT, UPSTREAM, Close, Connect, Log, Receive, Send, Splice
from proto.events import Sent
from proto.policy.records import Ending
from proto.script import Script
from shells.env import INTERNAL_ERROR, Env
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
from tests.shells import single
from tests.shells.contract import (
    Conversation,
    Due,
    MemoryLog,
    Talk,
    over_simulation,
    over_trio,
    over_uvloop,
)
from tests.shells.conversations import (
    ALLOWED,
    CONVERSATIONS,
    DONE,
    DOWN,
    ONE,
    broken_close_of_an_ended,
    connect,
)
from tests.shells.peers import SOON_S

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


@pytest.mark.parametrize("shell", ["uvloop", "trio"])
def test_a_call_that_a_bug_ends_counts_what_it_had_carried(shell: str) -> None:
    ours, program = socket.socketpair()
    log, said = MemoryLog(full=False), list[str]()
    env = Env(lookup=lambda _: (), locate=lambda _: (), log=log, say=said.append)

    def script(port: int) -> Script[None]:
        by = monotonic() + SOON_S
        yield Connect((ONE,), port, by)
        yield Log(ALLOWED)
        yield Send(by, to_client=b"12")
        yield Splice(b"345", b"up", SOON_S)
        raise RuntimeError

    def serve(door: socket.socket) -> None:
        with door.accept()[0] as sock:
            assert sock.recv(9) == b"up"

    with socket.create_server((ONE, 0)) as door, ours, program:
        program.shutdown(socket.SHUT_WR)
        server = threading.Thread(target=serve, args=(door,))
        server.start()
        call = script(door.getsockname()[1])
        if shell == "uvloop":
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(single.by_uvloop(call, ours, env))
        else:
            trio.run(single.by_trio, call, ours, env)
        assert program.recv(9) == b"12345"
        server.join(SOON_S)
    last = log.records[-1]
    assert isinstance(last, Ending)
    assert (last.up, last.down, last.reason) == (2, 5, INTERNAL_ERROR)
    assert said


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
