"""Fuzz target: DNS messages (`proto.codecs.dns`); its corpus is `corpus/dns`."""

from __future__ import annotations

from dnslib import DNSRecord

from proto.codecs import dns


def one_input(data: bytes) -> None:
    """Read bytes as a query and as an answer: only documented errors, and what is read is there."""
    _query(data)
    _answer(data)
    frames = dns.Frames()
    for at in range(0, len(data), 7):
        frames.feed(data[at : at + 7])
        while (message := frames.next()) is not None:
            assert message in data
            assert frames.room > 0


def _query(data: bytes) -> None:
    try:
        query = dns.read_query(data)
    except dns.NoQuery:
        return
    except dns.UnfitQuery as error:
        _is_answer(error.answer, data)
        return
    assert query.question in data
    assert len(query.question) <= dns.NAME_MAX_BYTES + 4
    assert dns.PLAIN_ROOM_BYTES <= query.room <= dns.ROOM_MAX_BYTES
    many = (dns.Record(dns.TXT, 60, b"\xff" + b"x" * 255),) * 3
    for rcode, found in ((dns.NOERROR, many), (dns.REFUSED, ())):
        answer = dns.write_answer(query, rcode, found, room=query.room)
        assert len(answer) <= query.room
        _is_answer(answer, data)
        assert answer[12 : 12 + len(query.question)] == query.question


def _is_answer(answer: bytes, data: bytes) -> None:
    """Check that another library reads an answer as one, of the query's id."""
    assert answer[:2] == data[:2]
    assert answer[2] & 0x80
    if answer[4:6] == b"\0\1" and answer[12:].isascii():
        assert DNSRecord.parse(answer).header.id == int.from_bytes(data[:2], "big")


def _answer(data: bytes) -> None:
    ident, question = int.from_bytes(data[:2], "big"), dns.question_of("db.example.com", dns.TXT)
    for message in (data, data[:12] + question + data[12:]):
        try:
            reply = dns.read_answer(message, ident, question)
        except dns.BadMessage:
            continue
        if reply is None:
            continue
        for record in reply.records:
            assert record.kind == dns.TXT
            assert 0 <= record.ttl_s <= dns.TTL_MAX_S
            assert record.data in message
