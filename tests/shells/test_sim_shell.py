"""The simulated shell: the clock, the seed, the network it plays, and how it fails loudly."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from proto.commands import (
    ATTEMPT_DELAY_S,
    BOTH,
    CLIENT,
    UPSTREAM,
    Close,
    Command,
    Connect,
    Locate,
    Log,
    Receive,
    Resolve,
    Send,
    Splice,
)
from proto.events import (
    Cancelled,
    Cause,
    Closed,
    Connected,
    Event,
    Failed,
    Located,
    Logged,
    Place,
    Reason,
    Received,
    Resolved,
    Sent,
    Spliced,
)
from proto.policy.records import Allowed, Refusal
from proto.script import Script
from shells.sim_shell import SimulationError, run
from shells.sim_world import (
    CUT_MAX_BYTES,
    SILENT,
    Await,
    Cut,
    Cutter,
    Deaf,
    Echo,
    End,
    Fin,
    Hear,
    HearEnd,
    HearUntil,
    Leave,
    Pause,
    Reset,
    Saw,
    Say,
    Signal,
    Trade,
    Transcript,
    World,
)

LATER = 1_000_000.0
FOREVER = float("inf")
SEEDS = range(6)
RECORD = Allowed("connect", "example.com", 22)


def performing(*commands: Command) -> Callable[[float], Script[None]]:
    """Return a script that yields these commands, whatever is answered."""

    def script(_: float) -> Script[None]:
        for command in commands:  # noqa: UP028  # a tuple can't be sent the answers
            yield command

    return script


def events(transcript: Transcript) -> list[Event]:
    return [each.event for each in transcript.performed]


def one(command: Command, world: World, seed: int = 0) -> Event:
    """Return the answer to one command."""
    (event,) = events(run(performing(command), world, seed))
    return event


def upstream(*commands: Command) -> Callable[[float], Script[None]]:
    """Return a script that has connected to 203.0.113.10:80 before these commands."""
    return performing(Connect(("203.0.113.10",), 80, LATER), *commands)


def test_hours_pass_in_no_time_and_the_deadline_is_exact() -> None:
    event = one(Receive((CLIENT,), 10, 1000.0 + 86_400), World())
    assert event == Failed(Reason.TIMED_OUT, 1000.0 + 86_400)


def test_a_seed_replays_a_run_and_another_differs() -> None:
    world = World(client=(Say(bytes(5000)), Fin()), cut=Cut.RANDOM)

    def script(now: float) -> Script[None]:
        data = b"x"
        while data:
            event = yield Receive((CLIENT,), 4096, now + 60)
            assert isinstance(event, Received)
            data = event.data

    transcripts = [run(script, world, seed) for seed in (7, 7, 8)]
    assert transcripts[0] == transcripts[1]
    assert transcripts[0].performed != transcripts[2].performed


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cut", Cut)
def test_no_read_gives_more_than_its_limit_and_all_comes_in_order(cut: Cut, seed: int) -> None:
    data = Random(seed).randbytes(3000)
    heard = bytearray()

    def script(now: float) -> Script[None]:
        while True:
            event = yield Receive((CLIENT,), 700, now + 60)
            assert isinstance(event, Received)
            assert len(event.data) <= 700
            if not event.data:
                return
            heard.extend(event.data)

    run(script, World(client=(Say(data[:10]), Say(data[10:]), Fin()), cut=cut), seed)
    assert heard == data


def test_a_stream_is_cut_byte_by_byte_past_every_limit_on_a_head() -> None:
    cutter = Cutter(Cut.BYTES, Random(0))
    sizes = [cutter.size(100_000) for _ in range(CUT_MAX_BYTES + 1)]
    assert set(sizes[:-1]) == {1}
    assert sizes[-1] > 1


def test_random_cuts_are_of_every_size_and_then_none() -> None:
    cutter = Cutter(Cut.RANDOM, Random(1))
    sizes = [cutter.size(1000) for _ in range(60)]
    assert min(sizes) < 4
    assert max(sizes) > 300
    while sum(sizes) < CUT_MAX_BYTES:
        sizes.append(cutter.size(1000))
    assert cutter.size(1000) == 1000


def test_an_end_is_read_again_and_again() -> None:
    receive = Receive((CLIENT,), 10, LATER)
    transcript = run(performing(receive, receive), World(client=(Fin(),)))
    assert [e.data for e in events(transcript) if isinstance(e, Received)] == [b"", b""]


def test_either_of_two_sides_that_speak_is_heard_first() -> None:
    world = World(client=(Say(b"c"), Say(b"c")), any_server=(Say(b"s"),))
    script = upstream(Resolve("a-moment.test", LATER), Receive(BOTH, 9, LATER))
    heard = {events(run(script, world, seed))[2] for seed in range(20)}
    assert {event.side for event in heard if isinstance(event, Received)} == {CLIENT, UPSTREAM}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_send_waits_for_a_slow_reader_and_heeds_the_other_side(seed: int) -> None:
    world = World(
        client=(Deaf(),), any_server=(Pause(5), Say(b"enough")), window_bytes=1000, cut=Cut.RANDOM
    )
    transcript = run(upstream(Send(LATER, bytes(5000), heed=(UPSTREAM,))), world, seed)
    sent = events(transcript)[1]
    assert isinstance(sent, Sent)
    assert 750 <= sent.to_client <= 1000
    assert 5 <= sent.now - 1000 < 5.1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_send_is_answered_when_one_of_two_buffers_has_gone(seed: int) -> None:
    world = World(client=(Deaf(),), any_server=(), window_bytes=100)
    sent = events(run(upstream(Send(LATER, bytes(500), b"short")), world, seed))[1]
    assert isinstance(sent, Sent)
    assert sent.to_upstream == 5
    assert sent.to_client <= 100


def test_a_late_send_tells_what_had_gone() -> None:
    event = one(Send(1002.0, bytes(500)), World(client=(Deaf(),), window_bytes=100))
    assert event == Failed(Reason.TIMED_OUT, 1002.0, None, up=0, down=100)


def test_bytes_for_a_peer_that_has_left_come_back_as_a_reset() -> None:
    def script(_: float) -> Script[None]:
        yield Receive((CLIENT,), 1, LATER)  # its end
        yield Send(LATER, b"x")
        yield Resolve("silent.test", 1001.0)
        yield Send(LATER, b"y")

    world = World(client=(Leave(),), names={"silent.test": (SILENT,)})
    end, sent, _, failed = events(run(script, world))
    assert isinstance(end, Received)
    assert isinstance(sent, Sent)
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.side) == (Reason.RESET, CLIENT)


def test_a_reset_is_told_of_its_side_and_passed_on_when_the_script_ends() -> None:
    world = World(client=(Hear(2),), any_server=(Hear(1), Reset()))
    transcript = run(upstream(Splice(b"ok", b"x", 60)), world)
    assert transcript.performed[-1].event == Failed(
        Reason.RESET, transcript.ended, UPSTREAM, up=1, down=2
    )
    assert transcript.client == Saw(b"ok", End.RESET)


def test_closing_with_bytes_unread_is_a_reset_that_destroys_the_answer() -> None:
    world = World(client=(Say(b"GET"), Say(b"more"), HearEnd()))
    transcript = run(performing(Receive((CLIENT,), 1, LATER), Send(LATER, b"403")), world)
    assert transcript.client.end is End.RESET
    assert transcript.client.data in (b"", b"403")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_close_drains_so_that_the_answer_arrives(seed: int) -> None:
    world = World(client=(Say(bytes(300_000)), HearEnd(), Leave()), cut=Cut.RANDOM)
    script = performing(
        Receive((CLIENT,), 1, LATER), Send(LATER, b"403"), Close(CLIENT, 1000.0 + 9)
    )
    transcript = run(script, world, seed)
    assert transcript.client == Saw(b"403", End.FIN)
    assert transcript.ended < 1000.0 + 9
    assert [side for side, _ in transcript.closed] == [CLIENT]


def test_a_close_ends_at_its_deadline_whatever_the_peer_does() -> None:
    assert one(Close(CLIENT, 1003.0), World(client=(Deaf(),))) == Closed(1003.0)


def test_a_side_that_is_not_open_is_closed_at_once() -> None:
    assert isinstance(one(Close(UPSTREAM, FOREVER), World()), Closed)


def test_a_closed_upstream_side_may_be_opened_again() -> None:
    connect = Connect(("203.0.113.10",), 80, LATER)
    world = World(any_server=(Say(b"hello"), HearEnd(), Fin()))
    script = performing(connect, Close(UPSTREAM, LATER), connect, Receive((UPSTREAM,), 9, LATER))
    transcript = run(script, world)
    assert len(transcript.opened) == 2
    assert isinstance(events(transcript)[3], Received)


def test_names_have_turns_and_each_address_comes_once() -> None:
    ask = Resolve("example.com", LATER)
    names = {"example.com": (("203.0.113.1", "203.0.113.1"), ("203.0.113.2",))}
    transcript = run(performing(ask, ask, ask), World(names=names))
    resolved = [event for event in events(transcript) if isinstance(event, Resolved)]
    turns = [("203.0.113.1",), ("203.0.113.2",), ("203.0.113.2",)]
    assert [event.addresses for event in resolved] == turns
    assert transcript.asked == ("example.com",) * 3


def test_a_name_without_addresses_is_unresolved_and_a_silent_one_is_late() -> None:
    world = World(names={"silent.test": (SILENT,)})
    event = one(Resolve("nowhere.test", LATER), world)
    assert isinstance(event, Failed)
    assert (event.reason, event.side) == (Reason.UNRESOLVED, UPSTREAM)
    assert one(Resolve("silent.test", 1004.0), world) == Failed(Reason.TIMED_OUT, 1004.0, UPSTREAM)


def test_addresses_are_tried_in_order_each_a_moment_after_the_one_before() -> None:
    world = World(
        any_server=(), connect_fails={"203.0.113.1": SILENT, "203.0.113.2": Reason.REFUSED}
    )
    addresses = ("203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4")
    transcript = run(performing(Connect(addresses, 80, LATER)), world)
    connected = events(transcript)[0]
    assert isinstance(connected, Connected)
    assert connected.address == "203.0.113.3"
    assert [dial.address for dial in transcript.dials] == list(addresses[:3])
    first, second, third = (dial.at for dial in transcript.dials)
    assert second - first == pytest.approx(ATTEMPT_DELAY_S)
    assert third - second < ATTEMPT_DELAY_S  # the second had failed
    assert [dial.address for dial in transcript.opened] == ["203.0.113.3"]


def test_a_connect_fails_as_its_last_attempt_did() -> None:
    world = World(connect_fails={"203.0.113.1": Reason.UNREACHABLE})
    event = one(Connect(("203.0.113.1", "203.0.113.2"), 80, LATER), world)
    assert isinstance(event, Failed)
    assert (event.reason, event.side) == (Reason.REFUSED, UPSTREAM)


def test_the_past_asks_nobody_and_dials_nobody() -> None:
    world = World(any_name=("203.0.113.1",), any_server=())
    script = performing(Resolve("example.com", 1.0), Connect(("203.0.113.1",), 80, 1.0))
    transcript = run(script, world)
    assert events(transcript) == [Failed(Reason.TIMED_OUT, 1000.0, UPSTREAM)] * 2
    assert (transcript.asked, transcript.dials) == ((), ())


def test_servers_are_known_by_their_address_and_port() -> None:
    world = World(servers={("203.0.113.10", 80): (Say(b"here"),)})
    assert isinstance(one(Connect(("203.0.113.10",), 80, LATER), world), Connected)
    assert isinstance(one(Connect(("203.0.113.10",), 81, LATER), world), Failed)


def test_places_are_told_in_the_order_asked() -> None:
    world = World(
        own_addresses=("127.0.0.1", "2001:db8::7"),
        own_networks=("192.168.1.0/24",),
        many=("224.0.0.1",),
    )
    asked = ("192.168.1.9", "203.0.113.1", "2001:db8:0::7", "224.0.0.1")
    assert one(Locate(asked), world) == Located(
        (Place.OWN_NETWORK, Place.ELSEWHERE, Place.THIS_MACHINE, Place.MANY), 1000.0
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cut", Cut)
def test_a_tunnel_carries_both_ways_at_once_byte_for_byte(cut: Cut, seed: int) -> None:
    up, down = Random(1).randbytes(300_000), Random(2).randbytes(200_000)
    world = World(
        client=(Hear(2), Trade(up, len(down)), Fin()),
        any_server=(Trade(down, len(up) + 5), Fin()),
        cut=cut,
        window_bytes=9000,
    )
    transcript = run(upstream(Splice(b"ok", b"early", 60)), world, seed)
    spliced = events(transcript)[1]
    assert isinstance(spliced, Spliced)
    assert (spliced.up, spliced.down) == (len(up) + 5, len(down) + 2)
    assert transcript.client == Saw(b"ok" + down, End.FIN)
    assert transcript.opened[0].saw == Saw(b"early" + up, End.FIN)


def test_a_half_close_passes_through_and_a_late_answer_comes_back() -> None:
    world = World(
        client=(Say(b"question"), Fin(), HearEnd()),
        any_server=(HearEnd(), Pause(100), Say(b"answer"), Leave()),
    )
    transcript = run(upstream(Splice(b"", b"", 200)), world)
    assert isinstance(events(transcript)[1], Spliced)
    assert transcript.client == Saw(b"answer", End.FIN)


def test_an_idle_tunnel_ends_and_a_byte_starts_the_time_anew() -> None:
    world = World(client=(Pause(50), Say(b"x"), Pause(50), Say(b"y")), any_server=())
    event = events(run(upstream(Splice(b"", b"", 60)), world))[1]
    assert isinstance(event, Failed)
    assert (event.reason, event.up) == (Reason.TIMED_OUT, 2)
    assert event.now == pytest.approx(1000 + 100 + 60, abs=0.1)


def test_a_deadlock_of_two_that_only_speak_is_found() -> None:
    """Nobody hears, both windows are full, and nothing will ever change that."""
    world = World(client=(Say(bytes(500_000)),), any_server=(Echo(),), window_bytes=1000)
    with pytest.raises(SimulationError, match="nothing can ever answer Splice") as caught:
        run(upstream(Splice(b"", b"", FOREVER)), world, 3)
    assert caught.value.__notes__ == ["simulation: seed 3, cut whole"]


def test_a_hang_names_the_command_and_the_seed() -> None:
    with pytest.raises(SimulationError, match="nothing can ever answer Receive") as caught:
        one(Receive((CLIENT,), 10, FOREVER), World(cut=Cut.RANDOM), 42)
    assert caught.value.__notes__ == ["simulation: seed 42, cut at random"]


def test_a_script_that_never_ends_is_an_error() -> None:
    def script(_: float) -> Script[None]:
        while True:
            yield Log(RECORD)

    with pytest.raises(SimulationError, match="never ends: still at Log"):
        run(script, World(commands_max=50))


def test_an_error_of_the_script_passes_with_the_seed_in_a_note() -> None:
    def script(_: float) -> Script[None]:
        yield Log(RECORD)
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug") as caught:
        run(script, World(), 5)
    assert caught.value.__notes__ == ["simulation: seed 5, cut whole"]


@pytest.mark.parametrize(
    "command",
    [
        Receive((), 1, LATER),
        Receive((CLIENT,), 0, LATER),
        Receive((UPSTREAM,), 1, LATER),
        Send(LATER),
        Send(LATER, to_upstream=b"x"),
        Connect((), 80, LATER),
        Splice(b"", b"", 1),
    ],
)
def test_a_command_that_makes_no_sense_is_an_error(command: Command) -> None:
    with pytest.raises(AssertionError):
        one(command, World())


def test_an_open_upstream_side_is_not_opened_again() -> None:
    with pytest.raises(AssertionError, match="open already"):
        run(upstream(Connect(("203.0.113.10",), 80, LATER)), World(any_server=()))


@pytest.mark.parametrize("reason", Reason)
def test_a_fault_fails_the_command_of_that_number(reason: Reason) -> None:
    world = World(client=(Say(b"abc"),), faults={1: reason})
    receive = Receive((CLIENT,), 1, LATER)
    first, second = events(run(performing(receive, receive), world))
    assert isinstance(first, Received)
    assert isinstance(second, Failed)
    assert second.reason is reason
    assert (second.now >= LATER) is (reason is Reason.TIMED_OUT)


def test_a_fault_blames_a_side_that_the_command_touched_or_none() -> None:
    world = World(any_server=(), faults={1: Reason.RESET})
    sides = {
        UPSTREAM: Send(LATER, to_upstream=b"x"),
        CLIENT: Send(LATER, to_client=b"x"),
    }
    for side, command in sides.items():
        blamed = {events(run(upstream(command), world, seed))[1].side for seed in range(12)}  # type: ignore[union-attr]
        assert blamed == {None, side}
    both = {events(run(upstream(Splice(b"", b"", 9)), world, s))[1].side for s in range(20)}  # type: ignore[union-attr]
    assert both == {None, CLIENT, UPSTREAM}
    looked_up = World(faults={0: Reason.EXHAUSTED})
    event = one(Resolve("example.com", LATER), looked_up)
    assert isinstance(event, Failed)
    assert event.side is UPSTREAM


def test_what_was_reset_stays_so() -> None:
    receive = Receive((CLIENT,), 1, LATER)
    for seed in range(20):
        answers = events(run(performing(receive, receive), World(faults={0: Reason.RESET}), seed))
        assert isinstance(answers[0], Failed)
        if answers[0].side is CLIENT:
            assert isinstance(answers[1], Failed)
            assert answers[1].reason is Reason.RESET
            return
    pytest.fail("no seed blames the client")


def test_a_close_and_a_log_never_fail() -> None:
    world = World(client=(Fin(),), faults={0: Reason.BROKEN, 1: Reason.BROKEN})
    log, close = events(run(performing(Log(RECORD), Close(CLIENT, LATER)), world))
    assert isinstance(log, Logged)
    assert isinstance(close, Closed)


def test_a_fault_rate_fails_some_and_a_seed_replays_it() -> None:
    world = World(fault_rate=0.5)
    script = performing(*[Locate(())] * 40)
    answers = events(run(script, world, 9))
    assert {type(event) for event in answers} == {Failed, Located}
    assert answers == events(run(script, world, 9))


def test_a_cancel_between_two_commands_answers_the_next_that_waits() -> None:
    world = World(client=(Say(b"ab"),), cancels_before={1: Cause.PAUSED})
    receive = Receive((CLIENT,), 1, LATER)
    script = performing(receive, Log(RECORD), Locate(()), receive, receive)
    answers = events(run(script, world))
    assert [type(event) for event in answers] == [Received, Logged, Located, Cancelled, Received]


def test_the_first_cause_stands() -> None:
    world = World(cancels_before={0: Cause.STOPPED, 1: Cause.PAUSED})
    script = performing(Log(RECORD), Log(RECORD), Receive((CLIENT,), 1, LATER))
    last = events(run(script, world))[-1]
    assert isinstance(last, Cancelled)
    assert last.cause is Cause.STOPPED


def test_a_cancel_comes_at_its_time_or_at_a_signal() -> None:
    receive = Receive((CLIENT,), 1, LATER)
    timed = one(receive, World(cancels_at=((3.5, Cause.STOPPED),)))
    assert timed == Cancelled(Cause.STOPPED, 1003.5)
    told = World(
        client=(Pause(2), Signal("stop"), Signal("other")), cancels_on={"stop": Cause.PAUSED}
    )
    event = one(receive, told)
    assert isinstance(event, Cancelled)
    assert event.cause is Cause.PAUSED


def test_a_cancelled_splice_tells_what_it_moved() -> None:
    world = World(client=(Say(b"abc"),), any_server=(), cancels_at=((5.0, Cause.STOPPED),))
    event = events(run(upstream(Splice(b"hello", b"", FOREVER)), world))[1]
    assert event == Cancelled(Cause.STOPPED, 1005.0, up=3, down=5)


def test_a_cancelled_close_closes() -> None:
    world = World(client=(Deaf(),), cancels_at=((1.0, Cause.SHUTDOWN),))
    transcript = run(performing(Close(CLIENT, LATER)), world)
    assert isinstance(events(transcript)[0], Cancelled)
    assert transcript.closed == ((CLIENT, 1001.0),)


def test_from_the_end_on_every_command_that_waits_is_cancelled() -> None:
    receive = Receive((CLIENT,), 1, LATER)
    script = performing(receive, Log(RECORD), receive, receive)
    answers = events(run(script, World(client=(Say(b"abc"),), ends_from=1)))
    assert [type(event) for event in answers] == [Received, Logged, Cancelled, Cancelled]


def test_a_call_that_cannot_be_logged_is_cancelled_and_a_refusal_is_not() -> None:
    receive = Receive((CLIENT,), 1, LATER)
    world = World(client=(Say(b"ab"),), log_full=True)
    refusal = Log(Refusal("connect", "", 0, 403, "no"))
    answers = events(run(performing(refusal, receive, Log(RECORD), receive), world))
    assert isinstance(answers[1], Received)
    assert isinstance(answers[3], Cancelled)
    assert answers[3].cause is Cause.UNLOGGED


def test_the_log_keeps_its_order() -> None:
    records = [Allowed("connect", f"h{n}.test", n) for n in range(5)]
    assert run(performing(*map(Log, records)), World()).log == tuple(records)


def test_peers_wait_for_each_others_signals() -> None:
    world = World(
        client=(Await("served"), Say(b"late")),
        any_server=(Pause(7), Signal("served")),
    )
    event = events(run(upstream(Receive((CLIENT,), 9, LATER)), world))[1]
    assert isinstance(event, Received)
    assert event.now == pytest.approx(1007, abs=0.1)


def test_a_peer_hears_until_it_has_enough_or_the_end() -> None:
    def make() -> Callable[[bytes], bool]:
        heard = bytearray()

        def enough(data: bytes) -> bool:
            heard.extend(data)
            return b"\n" in heard

        return enough

    world = World(client=(HearUntil(make), Signal("line"), HearUntil(make), Signal("end")))
    transcript = run(performing(Send(LATER, b"ab\n"), Send(LATER, b"cd")), world)
    assert transcript.client == Saw(b"ab\ncd", End.FIN)
    empty = run(performing(), World(client=(Hear(0), Hear(5), HearUntil(make))))
    assert empty.client == Saw(b"", End.FIN)


def test_a_peer_that_is_reset_stops_speaking() -> None:
    world = World(client=(Say(bytes(200_000)), HearEnd()), window_bytes=1000)
    transcript = run(performing(Receive((CLIENT,), 5, LATER)), world)
    assert transcript.client.end is End.RESET


def test_an_echo_says_back_what_it_hears_and_ends_when_it_ends() -> None:
    world = World(client=(Say(b"hello"), Hear(5), Fin(), HearEnd()), any_server=(Echo(),))
    transcript = run(upstream(Splice(b"", b"", 60)), world)
    assert isinstance(events(transcript)[1], Spliced)
    assert transcript.client == Saw(b"hello", End.FIN)


def test_deliveries_of_one_direction_keep_their_order_and_take_time() -> None:
    times: list[float] = []

    def script(_: float) -> Script[None]:
        for _ in range(50):
            event = yield Receive((CLIENT,), 1, LATER)
            assert isinstance(event, Received)
            times.append(event.now)

    run(script, World(client=tuple(Say(b"x") for _ in range(50)), delay_s=0.2), 4)
    assert all(before <= after for before, after in pairwise(times))
    assert times[-1] > times[0]


def test_the_transcript_lists_the_commands() -> None:
    commands = (Log(RECORD), Receive((CLIENT,), 1, LATER))
    assert run(performing(*commands), World(client=(Fin(),))).commands == commands
