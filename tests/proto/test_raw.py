"""Calls that don't begin with a request: `proto/calls/raw.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from fuzz.strategies_hello import hello_for, record
from proto.calls.limits import Limits
from proto.calls.raw import endpoint_call, local_call, served_call
from proto.calls.ways import PLAIN, Ways
from proto.commands import IN, OUT, Close, Command, Connect, Locate, Log, Look, Splice
from proto.events import Cancelled, Cause, Closed, Event, Failed, Logged, Looked, Reason
from proto.policy.admission import Admission
from proto.policy.exits import Exit
from proto.policy.hosts import Policy
from proto.policy.records import Allowed, Ending, Refusal
from proto.script import Call, Script
from shells.sim_shell import run
from shells.sim_world import End, Fin, Hear, HearEnd, Say, Transcript, World
from tests.proto.playbook import obliging

MakeScript = Callable[..., Script[None]]
LIMITS = Limits()
NAME, ADDRESS = "db.example.com", "203.0.113.10"
SERVER = (Hear(5), Say(b"world"), HearEnd(), Fin())
CLIENT = (Say(b"hello"), Hear(5), Fin())


def endpoint(
    world: World, port: int = 5432, *, policy: Policy | None = None, ways: Ways = PLAIN
) -> Transcript:
    allowed = policy or Policy.of([], tcp=[f"{NAME}:{port}"])
    return run(partial(endpoint_call, allowed, LIMITS, ways, NAME, port), world)


def told(transcript: Transcript) -> list[object]:
    return [
        (type(one), one.verb, one.host, one.port, getattr(one, "reason", ""))
        for one in transcript.log
    ]


def world(**more: object) -> World:
    whole = {"client": CLIENT, "names": {NAME: ((ADDRESS,),)}, "any_server": SERVER, **more}
    return World(**whole)  # type: ignore[arg-type]


def test_a_connection_to_an_endpoint_is_joined_with_its_name() -> None:
    seen = endpoint(world())
    assert seen.client.data == b"world"
    assert [dial.address for dial in seen.opened] == [ADDRESS]
    assert told(seen) == [
        (Allowed, "connect", NAME, 5432, ""), (Ending, "connect", NAME, 5432, "done"),
    ]  # fmt: skip


def test_an_endpoint_is_reached_by_the_wires_exit_which_is_told_the_checked_address() -> None:
    """Past the exit it would leave this machine on a way that the person has closed."""
    way_out = Exit.of("http://198.51.100.9:3128")
    hop = f"CONNECT {ADDRESS}:5432 HTTP/1.1\r\nHost: {ADDRESS}:5432\r\n\r\n".encode()
    there = (Hear(len(hop)), Say(b"HTTP/1.1 200 OK\r\n\r\n"), *SERVER)
    at_exit = {"any_server": None, "servers": {("198.51.100.9", 3128): there}}
    seen = endpoint(world(**at_exit), ways=Ways(exit=way_out))
    (dial,) = seen.dials
    assert (dial.address, dial.port) == ("198.51.100.9", 3128)
    assert dial.saw is not None
    assert (dial.saw.data, seen.client.data) == (hop + b"hello", b"world")
    ending = seen.log[-1]
    assert isinstance(ending, Ending)
    assert (ending.up, ending.down) == (5, 5)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.9", "169.254.169.254"])
def test_the_addresses_of_an_endpoint_are_guarded(address: str) -> None:
    seen = endpoint(world(names={NAME: ((address,),)}))
    assert (seen.client.data, seen.dials) == (b"", ())
    assert isinstance(seen.log[-1], Refusal)


def test_a_name_that_is_listed_no_more_is_refused_and_not_looked_up() -> None:
    seen = endpoint(world(), policy=Policy.of([], tcp=["other.example:1"]))
    assert (seen.asked, seen.dials, seen.client.data) == ((), (), b"")
    assert isinstance(seen.log[-1], Refusal)


def test_nothing_of_ours_is_said_where_the_server_cannot_be_reached() -> None:
    for more in ({"any_server": None}, {"names": {}}, {"connect_fails": {ADDRESS: Reason.RESET}}):
        seen = endpoint(world(**more))
        assert seen.client.data == b""
        assert isinstance(seen.log[-1], Ending)


def test_at_port_443_a_hello_has_to_name_the_endpoint() -> None:
    good, other = (record(hello_for(host)) for host in (NAME.encode(), b"evil.test"))
    server = (Hear(len(good)), Fin())
    for said, heard, last in (
        (good, good, Ending),
        (other, b"", Refusal),
        (b"SSH-2.0", b"", Refusal),
    ):
        seen = endpoint(world(client=(Say(said), Fin()), any_server=server), 443)
        (dial,) = seen.opened
        assert dial.saw is not None
        assert (dial.saw.data, seen.client.data) == (heard, b"")
        assert isinstance(seen.log[-1], last)


@pytest.mark.parametrize(
    ("call", "way", "verb"), [(local_call, OUT, "localhost"), (served_call, IN, "serve")]
)
def test_a_port_is_joined_with_the_one_of_its_number(call, way, verb) -> None:  # type: ignore[no-untyped-def]
    for address in ("127.0.0.1", "::1"):
        more = {"servers": {(address, 3000): SERVER}} if way is OUT else {
            "ways": {(IN, address, 3000): SERVER}}  # fmt: skip
        seen = run(partial(call, LIMITS, PLAIN, 3000), World(client=CLIENT, **more))
        assert seen.client.data == b"world"
        assert told(seen) == [
            (Allowed, verb, "localhost", 3000, ""), (Ending, verb, "localhost", 3000, "done"),
        ]  # fmt: skip
        assert seen.asked == ()
    (wanted,) = [one for one in seen.commands if isinstance(one, Connect)]
    assert (wanted.addresses, wanted.way) == (("127.0.0.1", "::1"), way)


def begun(call: MakeScript, ways: Ways = PLAIN) -> Call:
    """Return a call that begins, of an endpoint at port 1 or of port 1."""
    if call is endpoint_call:
        return Call(call(Policy.of([], tcp=[f"{NAME}:1"]), LIMITS, ways, NAME, 1, 1000.0))
    return Call(call(LIMITS, ways, 1, 1000.0))


CALLS = pytest.mark.parametrize("call", [local_call, served_call, endpoint_call])


@CALLS
def test_each_has_its_setup_to_connect_and_its_idle_time(call: MakeScript) -> None:
    """This machine's own port may be one whose queue is full: connecting takes for ever."""
    running = begun(call)
    waits = {Connect: 1000.0 + LIMITS.setup_s, Splice: LIMITS.idle_s}
    found = {}
    while (command := running.pending) is not None:
        if isinstance(command, Connect):
            found[Connect] = command.by
        elif isinstance(command, Splice):
            found[Splice] = command.idle_s
        running.answer(obliging(command, 1000.0))
    assert found == waits


@CALLS
def test_whatever_fails_or_is_cancelled_is_its_last_line_and_opens_nothing(
    call: MakeScript,
) -> None:
    def steps(fault: Event | None, number: int) -> list[Command]:
        running, seen = begun(call), []
        while (command := running.pending) is not None:
            seen.append(command)
            here = len(seen) == number + 1 and not isinstance(command, Log | Look | Locate)
            running.answer(fault if here and fault is not None else obliging(command, 1000.0))
        return seen

    whole = steps(None, -1)
    faults: list[Event] = [Failed(reason, 1000.0) for reason in Reason]
    faults += [Cancelled(cause, 1000.0) for cause in Cause]
    for number, command in enumerate(whole):
        if isinstance(command, Log | Look | Locate | Close):
            continue
        for fault in faults:
            seen = steps(fault, number)
            lines = [one.record for one in seen if isinstance(one, Log)]
            assert [type(line) for line in lines] == [Allowed, Ending], (command, fault)
            assert getattr(lines[-1], "reason", "done") != "done"
            assert not any(isinstance(one, Connect | Splice) for one in seen[number + 1 :])


@pytest.mark.parametrize("call", [local_call, served_call])
def test_where_nobody_listens_the_connection_ends(call) -> None:  # type: ignore[no-untyped-def]
    seen = run(partial(call, LIMITS, PLAIN, 3000), World(client=CLIENT))
    assert seen.client.data == b""
    assert seen.client.end is not End.OPEN
    assert isinstance(seen.log[-1], Ending)


@CALLS
@pytest.mark.parametrize("stopped", [Cause.STOPPED, Cause.PAUSED, None])
def test_a_stopped_wire_and_a_limit_hold_for_them_too(call, stopped) -> None:  # type: ignore[no-untyped-def]
    admission = Admission(1)
    if stopped is None:
        admission.count(1000.0)
    ways = Ways(admission=admission)
    running = begun(call, ways)
    assert running.pending == Look()
    running.answer(Looked(stopped, 1000.0))
    assert isinstance(running.pending, Log)
    assert isinstance(running.pending.record, Refusal)
    running.answer(Logged(1000.0))
    assert isinstance(running.pending, Close)
    running.answer(Closed(1000.0))
    assert running.pending is None
