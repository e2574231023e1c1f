"""DNS messages: `proto/codecs/dns.py`, its fuzz target, and dnslib as the other reader."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest
from dnslib import CNAME, QTYPE, RR, SRV, TXT, A, DNSQuestion, DNSRecord
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies_dns import messages, name
from fuzz.target_dns import one_input
from proto.codecs import dns

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "dns"
IDENT = 0x1234
DB = "db.example.com"
QUESTION = dns.question_of(DB, dns.TXT)


def query(host: str = DB, kind: int = dns.A, tail: bytes = b"", more: int = 0) -> bytes:
    head = struct.pack("!6H", IDENT, 0x0100, 1, 0, 0, more)
    return head + name(host.encode().split(b".")) + struct.pack("!HH", kind, 1) + tail


def answer(*found: RR, flags: int = 0x8180, host: str = DB, kind: str = "TXT") -> bytes:
    made = DNSRecord(q=DNSQuestion(host, getattr(QTYPE, kind)))
    made.header.id = IDENT
    for one in found:
        made.add_answer(one)
    packed: bytes = made.pack()
    return packed[:2] + struct.pack("!H", flags) + packed[4:]


def text(*strings: bytes, owner: str = DB, ttl: int = 60) -> RR:
    return RR(owner, QTYPE.TXT, rdata=TXT(list(strings)), ttl=ttl)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_the_corpus_holds(path: Path) -> None:
    one_input(path.read_bytes())


@given(messages())
def test_whatever_comes_only_documented_errors_go(data: bytes) -> None:
    one_input(data)


@given(st.binary(max_size=600))
def test_any_bytes_are_read_so_too(data: bytes) -> None:
    one_input(data)


def test_a_query_is_read_as_it_came() -> None:
    read = dns.read_query(query("dB.eXample.com", dns.SRV))
    assert read.labels == (b"dB", b"eXample", b"com")
    assert (read.ident, read.kind, read.group, read.room) == (IDENT, dns.SRV, dns.IN, 512)
    assert read.question == query("dB.eXample.com", dns.SRV)[12:]


def test_edns_says_how_much_room_there_is() -> None:
    for room, taken in ((0, 512), (512, 512), (1232, 1232), (65535, 4096)):
        opt = b"\0" + struct.pack("!HHIH", dns.OPT, room, 0x8000, 0)
        read = dns.read_query(query(tail=opt, more=1))
        assert (read.room, read.edns, read.dnssec) == (taken, True, True)


@pytest.mark.parametrize("data", [b"", query()[:11], query()[:2] + b"\x81\x80" + query()[4:]])
def test_what_may_get_no_answer_gets_none(data: bytes) -> None:
    with pytest.raises(dns.NoQuery):
        dns.read_query(data)


def test_an_answer_is_what_another_reader_takes_for_one() -> None:
    opt = b"\0" + struct.pack("!HHIH", dns.OPT, 1232, 0x8000, 0)
    asked = dns.read_query(query(tail=opt, more=1))
    made = dns.write_answer(asked, dns.NOERROR, (dns.address_record("127.53.0.1", 60),))
    read = DNSRecord.parse(made)
    assert (read.header.id, read.header.qr, read.header.ra, read.header.rd) == (IDENT, 1, 1, 1)
    assert (str(read.rr[0].rname), read.rr[0].rdata, read.rr[0].ttl) == (
        f"{DB}.", A("127.53.0.1"), 60,
    )  # fmt: skip
    assert read.ar[0].rtype == QTYPE.OPT
    assert read.ar[0].edns_do


def test_a_code_above_fifteen_stands_in_both_its_places() -> None:
    opt = b"\0" + struct.pack("!HHIH", dns.OPT, 1232, 1 << 16, 0)
    with pytest.raises(dns.UnfitQuery) as refused:
        dns.read_query(query(tail=opt, more=1))
    read = DNSRecord.parse(refused.value.answer)
    assert (read.header.rcode, read.ar[0].ttl >> 24) == (0, 1)


def test_an_answer_without_room_has_no_record_and_says_that_it_is_cut() -> None:
    asked = dns.read_query(query(kind=dns.TXT))
    records = (dns.Record(dns.TXT, 60, b"\xff" + b"x" * 255),) * 2
    whole = dns.write_answer(asked, dns.NOERROR, records)
    cut = dns.write_answer(asked, dns.NOERROR, records, room=len(whole) - 1)
    assert DNSRecord.parse(whole).header.tc == 0
    assert (DNSRecord.parse(cut).header.tc, DNSRecord.parse(cut).rr) == (1, [])
    assert dns.write_answer(asked, dns.NOERROR, records, room=len(whole)) == whole


def test_what_is_asked_outside_is_one_plain_question() -> None:
    read = DNSRecord.parse(dns.write_query(IDENT, QUESTION))
    assert (read.header.id, read.header.rd, len(read.questions)) == (IDENT, 1, 1)
    assert (str(read.q.qname), read.q.qtype, read.q.qclass) == (f"{DB}.", QTYPE.TXT, 1)
    assert not read.ar


@given(
    st.lists(st.lists(st.binary(max_size=255), min_size=1, max_size=3), max_size=4),
    st.integers(0, 2**32 - 1),
)
def test_texts_are_read_as_another_wrote_them(texts: list[list[bytes]], ttl: int) -> None:
    made = answer(*(text(*strings, ttl=ttl) for strings in texts))
    reply = dns.read_answer(made, IDENT, QUESTION)
    assert reply is not None
    wanted = [b"".join(bytes([len(each)]) + each for each in strings) for strings in texts]
    assert [record.data for record in reply.records] == wanted
    kept = 0 if ttl >> 31 else min(ttl, dns.TTL_MAX_S)
    assert {record.ttl_s for record in reply.records} <= {kept}


@given(st.lists(st.from_regex(r"\A[a-z]{1,9}(\.[a-z]{1,9}){0,3}\Z"), min_size=1, max_size=5))
def test_services_are_read_as_another_wrote_them(targets: list[str]) -> None:
    question = dns.question_of(DB, dns.SRV)
    found = [RR(DB, QTYPE.SRV, rdata=SRV(1, 2, 3, each), ttl=60) for each in targets]
    reply = dns.read_answer(answer(*found, kind="SRV"), IDENT, question)
    assert reply is not None
    places = struct.pack("!HHH", 1, 2, 3)
    wanted = [places + name(each.encode().split(b".")) for each in targets]
    assert [record.data for record in reply.records] == wanted


@pytest.mark.parametrize(
    "change",
    [
        lambda made: b"\0\0" + made[2:],
        lambda made: made[:2] + b"\x01\x00" + made[4:],
        lambda made: made[:2] + b"\x91\x80" + made[4:],
        lambda made: made[:4] + b"\0\2" + made[6:],
        lambda made: made.replace(b"\x02db", b"\x02dc"),
        lambda made: made.replace(b"\0\x10\0\1", b"\0\x21\0\1", 1),
        lambda made: made[:11],
    ],
)
def test_what_does_not_match_its_question_is_no_answer(change) -> None:  # type: ignore[no-untyped-def]
    made = answer(text(b"x"))
    assert dns.read_answer(made, IDENT, QUESTION) is not None
    assert dns.read_answer(change(made), IDENT, QUESTION) is None


def test_a_cut_answer_is_known_without_being_read() -> None:
    assert dns.read_answer(answer(flags=0x8380) + b"\xff", IDENT, QUESTION) == dns.Reply(
        0, cut=True, records=()
    )


def test_names_beyond_ascii_are_no_host_and_fold_no_letter() -> None:
    """RFC 4343 folds ASCII's letters alone: 0xC1 and 0xE1 are two."""
    question = name([b"\xc1"]) + struct.pack("!HH", dns.TXT, 1)
    other = name([b"\xe1"]) + struct.pack("!HH", dns.TXT, 1)
    head = struct.pack("!6H", IDENT, 0x8180, 1, 0, 0, 0)
    assert dns.read_answer(head + question, IDENT, question) is not None
    assert dns.read_answer(head + other, IDENT, question) is None


def test_a_chain_of_aliases_is_followed_so_far() -> None:
    def chain(length: int) -> list[RR]:
        names = [DB, *(f"{number}.example" for number in range(length))]
        found = [RR(one, QTYPE.CNAME, rdata=CNAME(other), ttl=60)
                 for one, other in pairwise(names)]  # fmt: skip
        return [*found, text(b"x", owner=names[-1])]

    for length, count in ((1, 1), (dns.ALIASES_MAX, 1), (dns.ALIASES_MAX + 1, 0)):
        reply = dns.read_answer(answer(*chain(length)), IDENT, QUESTION)
        assert reply is not None
        assert len(reply.records) == count


def pointing(pointers: int) -> bytes:
    """An answer in which a name is found by so many pointers, one after the other."""
    chain = b"".join(struct.pack("!H", 0xC000 | at) for at in chained(pointers - 1))
    records = [(b"\xc0\x0c", chain), (struct.pack("!H", 0xC000 | chained(pointers)[-1]), b"")]
    packed = b"".join(
        owner + struct.pack("!HHIH", 99, 1, 60, len(data)) + data for owner, data in records
    )
    return struct.pack("!6H", IDENT, 0x8180, 1, 2, 0, 0) + QUESTION + packed


def chained(pointers: int) -> list[int]:
    """Where each pointer of the chain leads: to the question's name, then to the one before."""
    data_at = dns.HEADER_BYTES + len(QUESTION) + 12
    return [dns.HEADER_BYTES, *range(data_at, data_at + 2 * (pointers - 1), 2)]


def test_a_message_of_pointers_holds_nobody_up() -> None:
    """Each name of 4,096 by way of 8,000 pointers took half a minute, in which no call moved."""
    assert dns.read_answer(pointing(dns.POINTERS_MAX), IDENT, QUESTION) is not None
    with pytest.raises(dns.BadMessage, match="pointers without end"):
        dns.read_answer(pointing(dns.POINTERS_MAX + 1), IDENT, QUESTION)


def test_an_answer_has_so_many_records_at_most() -> None:
    record = b"\xc0\x0c" + struct.pack("!HHIH", 99, 1, 60, 0)
    for count, fits in ((dns.ANSWERS_MAX, True), (dns.ANSWERS_MAX + 1, False)):
        data = struct.pack("!6H", IDENT, 0x8180, 1, count, 0, 0) + QUESTION + record * count
        if fits:
            assert dns.read_answer(data, IDENT, QUESTION) is not None
        else:
            with pytest.raises(dns.BadMessage, match="more records than any"):
                dns.read_answer(data, IDENT, QUESTION)


@given(st.lists(st.binary(max_size=70), max_size=5), st.data())
def test_messages_come_out_of_a_stream_however_it_is_cut(
    sent: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(map(dns.framed, sent))
    frames, came = dns.Frames(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        frames.feed(stream[:size])
        stream = stream[size:]
        while (message := frames.next()) is not None:
            came.append(message)
    assert came == sent
    assert frames.room == 2 + dns.MESSAGE_MAX_BYTES


@pytest.mark.parametrize(
    "tail",
    [b"", b"\0", b"\1a\0" + b"\0" * 10, b"\0" + struct.pack("!HHIH", dns.A, 1, 0, 0),
     b"\0" + struct.pack("!HHIH", dns.OPT, 1232, 0, 4),
     b"\0" + struct.pack("!HHIH3s", dns.OPT, 1, 0, 3, b"abc")],
)  # fmt: skip
def test_an_additional_record_is_a_whole_opt_record_or_malformed(tail: bytes) -> None:
    with pytest.raises(dns.UnfitQuery) as refused:
        dns.read_query(query(tail=tail, more=1))
    assert refused.value.answer == struct.pack("!6H", IDENT, 0x8101, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (dns.TXT, b""), (dns.TXT, b"\2a"), (dns.SRV, b"\0" * 5), (dns.SRV, b"\0" * 8),
        (dns.SRV, b"\0" * 6 + b"\1a"), (dns.CNAME, b"\0\0"),
    ],
)  # fmt: skip
def test_data_that_does_not_fill_its_record_just_so_is_malformed(kind: int, data: bytes) -> None:
    wanted = dns.TXT if kind == dns.CNAME else kind
    question = dns.question_of(DB, wanted)
    record = b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(data)) + data
    made = struct.pack("!6H", IDENT, 0x8180, 1, 1, 0, 0) + question + record
    with pytest.raises(dns.BadMessage):
        dns.read_answer(made, IDENT, question)
