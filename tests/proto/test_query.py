"""The script of a DNS query: `proto/calls/query.py`, simulated, with a resolver that fails."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import partial

import pytest
from dnslib import QTYPE, RR, TXT, DNSRecord

from fuzz.strategies_dns import name
from proto.calls.limits import Limits
from proto.calls.query import (
    ENTROPY_BYTES,
    QUERIES_A_CONNECTION,
    TRY_S,
    Desk,
    serve_datagram,
    serve_stream,
)
from proto.codecs import dns
from proto.commands import (
    CLIENT,
    DATAGRAMS,
    OUT,
    Connect,
    Listen,
    Log,
    Look,
    Receive,
    Resolve,
    Send,
)
from proto.events import Cancelled, Cause, Failed, Logged, Looked, Reason, Received, Sent
from proto.policy.admission import Admission
from proto.policy.endpoints import Endpoints
from proto.policy.hosts import Policy
from proto.policy.records import Allowed, Ending, Paused, Refusal
from proto.script import Call
from shells.sim_shell import run
from shells.sim_world import Cut, Fin, HearEnd, Reply, Say, Transcript, World
from tests.proto.test_dns import query

LIMITS = Limits()
TCP = ["db.example.com:5432", "*.mongo.example.net:27017", "*.mongo.example.net:27018"]
TOLD = "c0.mongo.example.net"
ENTROPY = bytes(range(ENTROPY_BYTES % 256)) * 2
FIRST, SECOND, THIRD = "203.0.113.53", "203.0.113.54", "203.0.113.55"
Make = Callable[[bytes], bytes | tuple[bytes, ...] | None]


def desk(*servers: str, **more: object) -> Desk:
    return Desk(Endpoints(Policy.of([], tcp=TCP)), servers or (FIRST,), LIMITS, **more)  # type: ignore[arg-type]


def resolver(strings: Iterable[bytes] = (b"x",), rcode: int = 0, cut: bool = False) -> Make:
    def make(asked: bytes) -> bytes:
        reply = DNSRecord.parse(asked).reply()
        reply.header.rcode = rcode
        reply.header.tc = int(cut)
        if not cut:
            for each in strings:
                reply.add_answer(RR(reply.q.qname, QTYPE.TXT, rdata=TXT([each]), ttl=5))
        return bytes(reply.pack())

    return make


def framed(make: Make) -> Make:
    def whole(data: bytes) -> bytes | None:
        if len(data) < 2 or len(data) < 2 + int.from_bytes(data[:2], "big"):
            return None
        answer = make(data[2:])
        assert isinstance(answer, bytes)
        return dns.framed(answer)

    return whole


def silent(_: bytes) -> None:
    return None


def by_datagrams(*makes: Make) -> dict[str, object]:
    addresses = (FIRST, SECOND, THIRD)
    return {"ways": {(DATAGRAMS, each, 53): (Reply(make),)
                     for each, make in zip(addresses, makes, strict=False)}}  # fmt: skip


def asked(data: bytes, at: Desk | None = None, seed: int = 0, **more: object) -> Transcript:
    world = World(client=(Say(data),), **more)  # type: ignore[arg-type]
    return run(partial(serve_datagram, at or desk(), ENTROPY), world, seed)


def streamed(data: bytes, at: Desk | None = None, **more: object) -> Transcript:
    world = World(client=(Say(data), HearEnd()), **more)  # type: ignore[arg-type]
    return run(partial(serve_stream, at or desk(), ENTROPY), world)


def read(transcript: Transcript) -> tuple[int, list[str]]:
    answer = DNSRecord.parse(transcript.client.data)
    return answer.header.rcode, [str(one.rdata) for one in answer.rr]


def told(transcript: Transcript) -> list[tuple[type, str, str]]:
    return [(type(one), one.host, getattr(one, "reason", "")) for one in transcript.log]


def test_a_name_listed_whole_is_answered_without_a_listener_more() -> None:
    seen = asked(query())
    assert read(seen) == (0, ["127.53.0.1"])
    assert seen.listening == ()
    assert told(seen) == [(Allowed, "db.example.com", ""), (Ending, "db.example.com", "done")]


def test_a_name_under_a_pattern_is_listened_at_once_at_each_of_its_ports() -> None:
    at = desk()
    for known in ((("127.53.0.2", 27017), ("127.53.0.2", 27018)), ()):
        seen = asked(query(TOLD), at)
        assert read(seen) == (0, ["127.53.0.2"])
        assert seen.listening == known


def test_an_address_that_is_taken_is_a_failure_and_tried_again() -> None:
    at = desk()
    seen = asked(query(TOLD), at, listen_fails=(("127.53.0.2", 27018),))
    assert read(seen) == (dns.SERVFAIL, [])
    again = asked(query(TOLD), at)
    assert read(again) == (0, ["127.53.0.2"])
    assert again.listening == (("127.53.0.2", 27018),)


def test_a_query_counts_only_when_it_asks_outside_and_once() -> None:
    admission = Admission(1)
    at = desk(FIRST, SECOND, admission=admission)
    failing = by_datagrams(resolver(rcode=2), resolver())
    for data in (query(), query(kind=dns.AAAA), query("evil.test"), query(TOLD)):
        asked(data, at)
    once = asked(query(TOLD, dns.TXT), at, **failing)
    assert read(once) == (0, ['"x"'])
    heard = [dial.saw.data for dial in once.opened if dial.saw is not None]
    assert len(heard) == 2
    assert isinstance(once.log[-1], Ending)
    assert once.log[-1].up == sum(map(len, heard))
    assert once.log[-1].down > 2 * len(heard[0])
    over = asked(query(TOLD, dns.TXT), at, **failing)
    assert read(over) == (dns.REFUSED, [])
    assert over.dials == ()
    assert isinstance(over.log[-1], Refusal)
    assert read(asked(query(), at)) == (0, ["127.53.0.1"])  # it asks nobody


def test_refused_names_pause_the_wire_as_any_refused_target_does() -> None:
    at = desk(admission=Admission(None))
    lines = [one for number in range(150) for one in asked(query(f"n{number}.evil.test"), at).log]
    assert sum(isinstance(one, Paused) for one in lines) >= 1
    assert all(one.verb == "dns" for one in lines)
    at = desk(admission=Admission(None))
    lines = [one for number in range(150)
             for one in asked(query(f"n{number}.evil.test", dns.AAAA), at).log]  # fmt: skip
    assert {type(one) for one in lines} == {Refusal}


def test_the_next_resolver_is_asked_where_one_fails() -> None:
    def late(_: bytes) -> None:
        return None

    for first in (resolver(rcode=2), resolver(rcode=5), late, lambda data: data[:2] + b"\x81"):
        seen = asked(query(TOLD, dns.TXT), desk(FIRST, SECOND), **by_datagrams(first, resolver()))
        assert read(seen) == (0, ['"x"'])
        assert [dial.address for dial in seen.dials] == [FIRST, SECOND]


def test_no_such_name_is_an_answer_and_the_next_is_not_asked() -> None:
    answers = by_datagrams(resolver((), 3), resolver())
    seen = asked(query(TOLD, dns.TXT), desk(FIRST, SECOND), **answers)
    assert read(seen) == (dns.NXDOMAIN, [])
    assert [dial.address for dial in seen.dials] == [FIRST]
    assert told(seen)[-1] == (Ending, TOLD, "there is no such name")


def test_all_that_are_silent_take_no_longer_than_the_setup() -> None:
    servers = (FIRST, SECOND, THIRD, "203.0.113.56")
    seen = asked(query(TOLD, dns.TXT), desk(*servers))
    assert read(seen) == (dns.SERVFAIL, [])
    assert [dial.address for dial in seen.dials] == list(servers[:3])
    assert seen.ended - seen.started <= 3 * TRY_S + 1


def test_a_machine_without_a_resolver_fails_the_query() -> None:
    at = Desk(Endpoints(Policy.of([], tcp=TCP)), (), LIMITS)
    assert read(asked(query(TOLD, dns.TXT), at)) == (dns.SERVFAIL, [])


def test_what_is_cut_is_asked_by_tcp_of_the_same_resolver() -> None:
    long = [b"y" * 250] * 4
    world = {
        **by_datagrams(resolver(cut=True)),
        "servers": {(FIRST, 53): (Reply(framed(resolver(long))),)},
    }
    seen = streamed(dns.framed(query(TOLD, dns.TXT)), **world)
    assert seen.client.data.count(b"y" * 250) == 4
    assert [(dial.way, dial.address) for dial in seen.dials] == [(DATAGRAMS, FIRST), (OUT, FIRST)]
    bad: list[tuple[object, ...]] = [
        (Fin(),),
        (Reply(framed(resolver(cut=True))),),
        (Reply(framed(lambda data: data)),),
        (Reply(framed(lambda data: data[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + data[12:])),),
    ]
    for steps in bad:
        world = {**by_datagrams(resolver(cut=True)), "servers": {(FIRST, 53): steps}}
        assert read(asked(query(TOLD, dns.TXT), **world)) == (dns.SERVFAIL, [])
    refused = by_datagrams(resolver(cut=True))
    assert read(asked(query(TOLD, dns.TXT), **refused)) == (dns.SERVFAIL, [])


def test_each_question_of_a_connection_has_an_id_of_its_own() -> None:
    heard: list[bytes] = []

    def make(data: bytes) -> bytes:
        heard.append(data[:2])
        answer = resolver()(data)
        assert isinstance(answer, bytes)
        return answer

    streamed(dns.framed(query(TOLD, dns.TXT)) * 3, **by_datagrams(make))
    assert heard == [ENTROPY[:2], ENTROPY[2:4], ENTROPY[4:6]]


def test_a_connection_answers_so_many_queries_and_is_then_closed() -> None:
    seen = streamed(dns.framed(query()) * (QUERIES_A_CONNECTION + 5))
    size = len(dns.framed(dns.write_answer(dns.read_query(query()), 0)))
    assert seen.client.data.count(struct.pack("!H", 0x1234)) >= QUERIES_A_CONNECTION
    assert len(seen.client.data) >= size * QUERIES_A_CONNECTION


def test_a_connection_that_says_nothing_is_ended() -> None:
    for steps in ((), (Say(b"\0"),), (Say(dns.framed(query())[:-1]),)):
        world = World(client=steps)
        seen = run(partial(serve_stream, desk(), ENTROPY), world)
        assert seen.client.data == b""
        assert seen.ended - seen.started <= LIMITS.head_s + 1


def test_one_that_trickles_its_query_has_no_longer_for_it() -> None:
    call, data = Call(serve_stream(desk(), ENTROPY, 1000.0)), dns.framed(query())
    for at in range(5):
        assert isinstance(call.pending, Receive)
        assert call.pending.by == 1000.0 + LIMITS.head_s
        call.answer(Received(CLIENT, data[at : at + 1], 1001.0 + at))
    call.answer(Failed(Reason.TIMED_OUT, 1030.0))
    assert call.pending is None


def test_a_stopped_wire_asks_nobody() -> None:
    script = serve_datagram(desk(), ENTROPY, 1000.0)
    call = Call(script)
    call.answer(Received(CLIENT, query(TOLD, dns.TXT), 1000.0))
    assert call.pending == Look()
    call.answer(Looked(Cause.STOPPED, 1000.0))
    assert isinstance(call.pending, Log)
    call.answer(Logged(1000.0))
    assert isinstance(call.pending, Send)
    assert DNSRecord.parse(call.pending.to_client).header.rcode == dns.REFUSED
    call.answer(Sent(len(call.pending.to_client), 0, 1000.0))
    assert call.pending is None


TALKS: dict[str, tuple[bytes, dict[str, object]]] = {
    "an address": (query(), {}),
    "a new address": (query(TOLD), {}),
    "asked outside": (query(TOLD, dns.TXT), by_datagrams(resolver())),
    "cut": (query(TOLD, dns.TXT), {
        **by_datagrams(resolver(cut=True)),
        "servers": {(FIRST, 53): (Reply(framed(resolver())),)},
    }),
    "refused": (query("evil.test"), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", TALKS)
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_every_failure_and_cancel_at_every_command_is_logged_and_opens_nothing(
    name: str, transport: str
) -> None:
    data, more = TALKS[name]

    def talk(**fate: object) -> Transcript:
        if transport == "udp":
            return asked(data, desk(FIRST, SECOND), **more, **fate)
        return streamed(dns.framed(data), desk(FIRST, SECOND), **more, **fate)

    count = len(talk().performed)
    fates = [{"faults": {number: reason}} for number in range(count) for reason in Reason]
    fates += [{"cancels_before": {number: cause}} for number in range(count) for cause in Cause]
    fates += [{"ends_from": number} for number in range(count)]
    for fate in fates:
        seen = talk(**fate)
        assert len([one for one in seen.log if not isinstance(one, Allowed)]) <= 1, fate
        allowed = sum(isinstance(one, Allowed) for one in seen.log)
        assert allowed <= 1
        assert not allowed or isinstance(seen.log[-1], Ending), fate
        cancelled = False
        for step in seen.performed:
            assert not (cancelled and isinstance(step.command, Connect | Listen | Resolve)), fate
            cancelled = cancelled or isinstance(step.event, Cancelled)


@pytest.mark.parametrize("cut", Cut)
def test_however_a_stream_is_cut_its_answers_are_the_same(cut: Cut) -> None:
    data = b"".join(map(dns.framed, (query(), query("evil.test"), query(TOLD), query(kind=15))))
    whole = streamed(data).client.data
    for seed in range(4):
        world = World(client=(Say(data), HearEnd()), cut=cut)
        seen = run(partial(serve_stream, desk(), ENTROPY), world, seed)
        assert seen.client.data == whole


def of_labels(*labels: bytes, kind: int = dns.A, group: int = 1) -> bytes:
    return query()[:12] + name(list(labels)) + struct.pack("!HH", kind, group)


@pytest.mark.parametrize(
    ("data", "rcode"),
    [
        (query()[:20], dns.FORMERR),
        (query() + b"\0", dns.FORMERR),
        (query()[:2] + b"\x29" + query()[3:], dns.NOTIMP),
        (of_labels(b"db", b"example", b"com", group=3), dns.REFUSED),
        (of_labels(), dns.REFUSED),
        (of_labels(b"db.example", b"com"), dns.NXDOMAIN),
        (of_labels(b"caf\xc3\xa9", b"mongo", b"example", b"net"), dns.NXDOMAIN),
        (of_labels(b"a b", b"mongo", b"example", b"net"), dns.NXDOMAIN),
        (query(kind=15), dns.REFUSED),
    ],
)
def test_what_is_refused_says_how_and_is_logged(data: bytes, rcode: int) -> None:
    for seen in (asked(data), streamed(dns.framed(data))):
        answer = seen.client.data[2:] if seen.client.data[:2] != b"\x12\x34" else seen.client.data
        assert DNSRecord.parse(answer[:4] + b"\0" * 8).header.rcode == rcode
        assert isinstance(seen.log[-1], Refusal)
        assert seen.dials == ()


def test_what_gets_no_answer_ends_its_connection() -> None:
    answer = query()[:2] + b"\x81\x80" + query()[4:]
    assert asked(answer).client.data == b""
    seen = streamed(dns.framed(answer) + dns.framed(query()))
    assert seen.client.data == b""
    assert [type(one) for one in seen.log] == [Refusal]


def test_a_datagram_that_is_cancelled_before_it_is_read_is_nothing() -> None:
    assert asked(query(), cancels_before={0: Cause.SHUTDOWN}).log == ()


@pytest.mark.parametrize(
    ("host", "kind"), [("printer.local", dns.TXT), ("_x._tcp.dbhost", dns.SRV), ("dbhost", dns.TXT)]
)
def test_names_of_the_local_network_are_asked_of_nobody(host: str, kind: int) -> None:
    local = Desk(Endpoints(Policy.of([], tcp=["printer.local:1", "dbhost:2"])), (FIRST,), LIMITS)
    seen = asked(query(host, kind), local, **by_datagrams(resolver()))
    assert read(seen) == (dns.REFUSED, [])
    assert seen.dials == ()


def test_a_services_records_are_those_of_its_host() -> None:
    seen = asked(query("_pg._tcp.db.example.com", dns.SRV), **by_datagrams(resolver(())))
    assert read(seen) == (0, [])
    assert [dial.address for dial in seen.dials] == [FIRST]


def test_names_beyond_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proto.policy.endpoints.LISTENED_MOST", 1)
    seen = asked(query(TOLD))
    assert read(seen) == (dns.REFUSED, [])
    assert isinstance(seen.log[-1], Refusal)


def test_guesses_of_a_forger_have_the_question_asked_by_tcp() -> None:
    def guessed(data: bytes) -> tuple[bytes, ...]:
        wrong = resolver((b"lie",))(bytes(2) + data[2:])
        assert isinstance(wrong, bytes)
        return (wrong,) * 40

    world = {**by_datagrams(guessed), "servers": {(FIRST, 53): (Reply(framed(resolver())),)}}
    assert read(asked(query(TOLD, dns.TXT), **world)) == (0, ['"x"'])
