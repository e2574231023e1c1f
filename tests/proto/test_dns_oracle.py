"""dnslib as the oracle: it reads what is read here the same, and what is written here as meant.

It is laxer than `proto.codecs.dns` (pointers that lead on, bytes behind the end), so the other
way round doesn't hold, and needn't.
"""

from __future__ import annotations

import pytest
from dnslib import CNAME, EDNS0, QTYPE, RR, SRV, TXT, A, DNSHeader, DNSQuestion, DNSRecord
from hypothesis import given
from hypothesis import strategies as st

from proto.codecs import dns
from proto.errors import MalformedRequest

LABEL = st.from_regex(r"[a-zA-Z0-9_]([a-zA-Z0-9-]{0,20}[a-zA-Z0-9])?", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=6).map(".".join)
KIND = st.sampled_from([dns.A, dns.AAAA, dns.SRV, dns.TXT, dns.SVCB, dns.HTTPS, 255])
IDENT = st.integers(0, 0xFFFF)
TTL = st.integers(0, 100_000)
HOSTS = st.lists(NAME, min_size=1, max_size=4)


def name_of(labels: tuple[bytes, ...]) -> str:
    return b".".join(labels).decode()


@given(IDENT, NAME, KIND, st.booleans(), st.integers(0, 0xFFFF))
def test_a_query_of_dnslib_reads_as_it_was_meant(ident, name, kind, edns, room):
    made = DNSRecord(DNSHeader(id=ident, rd=1), q=DNSQuestion(name, kind))
    if edns:
        made.add_ar(EDNS0(udp_len=room))
    query = dns.read_query(made.pack())
    assert (query.ident, name_of(query.labels), query.kind) == (ident, name, kind)
    assert (query.group, query.edns) == (dns.IN, edns)


@given(st.binary(max_size=120))
def test_whatever_reads_here_reads_the_same_there(data):
    try:
        query = dns.read_query(data)
    except MalformedRequest:
        return
    theirs = DNSRecord.parse(data)
    assert len(theirs.questions) == 1
    assert (theirs.header.id, theirs.q.qtype) == (query.ident, query.kind)
    assert theirs.q.qname.label == query.labels


@given(
    IDENT, NAME, st.lists(st.ip_addresses(v=4).map(str), max_size=30), TTL, st.integers(512, 4096)
)
def test_an_answer_reads_there_as_it_was_meant(ident, name, addresses, ttl_s, room):
    asked = DNSRecord(DNSHeader(id=ident, rd=1), q=DNSQuestion(name, QTYPE.A)).pack()
    query = dns.read_query(asked)
    records = tuple(dns.address_record(each, ttl_s) for each in addresses)
    data = dns.write_answer(query, dns.NOERROR, records, room=room)
    theirs = DNSRecord.parse(data)
    assert len(data) <= room
    assert (theirs.header.id, theirs.header.qr, theirs.header.rcode) == (ident, 1, 0)
    assert str(theirs.q.qname) == name + "."
    if theirs.header.tc:
        assert theirs.rr == []
        return
    found = [(str(each.rname), str(each.rdata), each.ttl) for each in theirs.rr]
    assert found == [(name + ".", each, ttl_s) for each in addresses]


@given(IDENT, NAME, KIND)
def test_what_is_asked_outside_reads_there_as_it_was_meant(ident, name, kind):
    theirs = DNSRecord.parse(dns.write_query(ident, dns.question_of(name, kind)))
    assert (theirs.header.id, theirs.header.rd, len(theirs.questions)) == (ident, 1, 1)
    assert (str(theirs.q.qname), theirs.q.qtype) == (name + ".", kind)


@given(IDENT, NAME, HOSTS, TTL, st.booleans())
def test_records_of_dnslib_are_read_where_aliases_lead(ident, name, hosts, ttl_s, alias):
    made = DNSRecord(DNSHeader(id=ident, qr=1, ra=1), q=DNSQuestion(name, QTYPE.SRV))
    owner = "alias.example" if alias else name
    if alias:
        made.add_answer(RR(name, QTYPE.CNAME, rdata=CNAME(owner), ttl=ttl_s))
    for number, host in enumerate(hosts):
        made.add_answer(RR(owner, QTYPE.SRV, rdata=SRV(1, number, 27017, host), ttl=ttl_s))
    made.add_answer(RR("other.example", QTYPE.SRV, rdata=SRV(0, 0, 1, "stray.example")))
    reply = dns.read_answer(made.pack(), ident, dns.question_of(name, QTYPE.SRV))
    assert reply is not None
    assert [each.data[:6] for each in reply.records] == [
        (1).to_bytes(2, "big") + number.to_bytes(2, "big") + (27017).to_bytes(2, "big")
        for number in range(len(hosts))
    ]
    for record, host in zip(reply.records, hosts, strict=True):
        assert name_of(dns._read_name(record.data, 6)[0]) == host


@given(IDENT, NAME, st.lists(st.binary(min_size=0, max_size=255), min_size=1, max_size=4))
def test_strings_of_a_txt_record_come_as_they_are(ident, name, strings):
    made = DNSRecord(DNSHeader(id=ident, qr=1), q=DNSQuestion(name, QTYPE.TXT))
    made.add_answer(RR(name, QTYPE.TXT, rdata=TXT(strings), ttl=5))
    made.add_ar(RR("x.example", QTYPE.A, rdata=A("203.0.113.1")))
    reply = dns.read_answer(made.pack(), ident, dns.question_of(name, QTYPE.TXT))
    assert reply is not None
    assert [each.data for each in reply.records] == [
        b"".join(bytes([len(one)]) + one for one in strings)
    ]


@given(st.binary(max_size=200), IDENT, NAME)
def test_no_answer_raises_anything_but_what_is_said(data, ident, name):
    question = dns.question_of(name, dns.SRV)
    head = ident.to_bytes(2, "big") + b"\x81\x80\0\1\0\2\0\0\0\0"
    for each in (data, head + question + data):
        try:
            dns.read_answer(each, ident, question)
        except dns.BadMessage:
            continue


def test_what_dnslib_takes_and_we_do_not():
    """Two readers could differ over each of these."""
    plain = DNSRecord(DNSHeader(id=1, rd=1), q=DNSQuestion("a.example", QTYPE.A)).pack()
    DNSRecord.parse(plain + b"more")
    with pytest.raises(dns.UnfitQuery):
        dns.read_query(plain + b"more")
