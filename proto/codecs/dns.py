"""DNS messages (RFC 1035 §4, RFC 6891): strict in what is read, plain in what is written.

Two sides of one format.  A query comes from the program inside, and anything in it that
two readers could take for two things is answered with FORMERR or not at all.  An answer
comes from a resolver outside, or from who forges one: what doesn't match the question is
nothing (`read_answer` returns None), only its answer section is read, and nothing of it is
passed on as it came: a record is taken apart and written anew.

    header      id, flags, four counts             RFC 1035 §4.1.1
    question    a name, a type, a class            §4.1.2; goes back byte for byte
    record      a name, type, class, ttl, data     §4.1.3
    OPT         what EDNS adds                      RFC 6891 §6.1

A name is labels of 1 to 63 octets, 255 in all; a pointer (§4.1.4) may only lead back.
"""

from __future__ import annotations

import struct

import msgspec

from proto.errors import MalformedRequest

A, CNAME, TXT, AAAA, SRV, OPT, SVCB, HTTPS = 1, 5, 16, 28, 33, 41, 64, 65
IN = 1
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16

RESPONSE, OPCODE, CUT, RECURSE, CAN_RECURSE, UNCHECKED, RCODE = (
    0x8000, 0x7800, 0x0200, 0x0100, 0x0080, 0x0010, 0x000F,
)  # fmt: skip
DNSSEC_OK = 0x8000
"""Of the OPT record's flags (RFC 3225 §3): it comes back as it came."""

HEADER_BYTES = 12
MESSAGE_MAX_BYTES = 65_535
NAME_MAX_BYTES, LABEL_MAX_BYTES = 255, 63
PLAIN_ROOM_BYTES = 512
"""What every client takes in a datagram (RFC 1035 §4.2.1)."""
ROOM_MAX_BYTES = 4096
"""What we send in one at most, however much a client would take."""
OUR_ROOM_BYTES = 1232
"""What our OPT record says that we take: what fits any path's packet."""
ALIASES_MAX = 16
"""CNAMEs followed in one answer."""
POINTERS_MAX = 16
"""Pointers followed in one name: each of a real one has labels before it.  A message of nothing
but pointers, each to the one before, would take half a minute to read."""
ANSWERS_MAX = 1024
"""Records of one answer; more than 64 KiB hold of any that is asked for."""
TTL_MAX_S = 86_400

_HEADER = struct.Struct("!6H")
_FIELDS = struct.Struct("!HHIH")
_PLACES = struct.Struct("!HHH")
_QUESTION_NAME = b"\xc0\x0c"
"""A pointer to the name behind the header: the question's."""


class NoQuery(MalformedRequest):
    """A message that gets no answer: it is too short for one, or is an answer itself."""


class UnfitQuery(MalformedRequest):
    """A query that is refused as it stands; `answer` is the whole message that says so."""

    def __init__(self, message: str, answer: bytes) -> None:
        super().__init__(message)
        self.answer = answer


class BadMessage(MalformedRequest):
    """A resolver's answer that can't be read."""


class Query(msgspec.Struct, frozen=True):
    """One question.

    `question` is its bytes as they came, letters' case and all.  `room` is how many bytes
    its client takes in one datagram.  `edns`: it has an OPT record, and so will its answer.
    """

    ident: int
    flags: int
    question: bytes
    labels: tuple[bytes, ...]
    kind: int
    group: int
    """Its class; `IN` but for what nobody asks."""
    room: int = PLAIN_ROOM_BYTES
    edns: bool = False
    dnssec: bool = False


class Record(msgspec.Struct, frozen=True):
    """A record of the question's name: its type, seconds to keep it, and its data."""

    kind: int
    ttl_s: int
    data: bytes


class Reply(msgspec.Struct, frozen=True):
    """What a resolver answered; `cut`: not all of it, so that TCP has to be asked."""

    rcode: int
    cut: bool
    records: tuple[Record, ...]


# -- what comes from inside -----------------------------------------------------------------


def read_query(data: bytes) -> Query:
    """Read one query.

    Raises NoQuery where no answer may be given: two programs that answered each other's
    answers would never end.  Raises UnfitQuery, with its answer, for what isn't one plain
    question: another opcode (NOTIMP), a later EDNS (BADVERS), anything else (FORMERR).
    """
    if len(data) < HEADER_BYTES:
        raise NoQuery("a DNS message is shorter than its header.")
    ident, flags, *counts = _HEADER.unpack_from(data)
    if flags & RESPONSE:
        raise NoQuery("a DNS answer came where queries are taken.")
    if flags & OPCODE:
        raise _unfit(ident, flags, NOTIMP, "only DNS queries are answered.")
    try:
        return _read_query(data, ident, flags, counts)
    except BadMessage as error:
        raise _unfit(ident, flags, FORMERR, error.message) from None


def _read_query(data: bytes, ident: int, flags: int, counts: list[int]) -> Query:
    if counts[:3] != [1, 0, 0] or counts[3] > 1 or flags & RCODE:
        raise BadMessage("a DNS query has one question and at most an OPT record.")
    # There is nothing yet for a pointer to lead back to.
    labels, at = _read_name(data, HEADER_BYTES, pointers=False)
    if len(data) < at + 4:
        raise BadMessage("a DNS question is cut short.")
    kind, group = struct.unpack_from("!HH", data, at)
    question = data[HEADER_BYTES : at + 4]
    query = Query(ident, flags, question, labels, kind, group)
    return _with_edns(query, data, at + 4) if counts[3] else _to_the_end(query, data, at + 4)


def _to_the_end(query: Query, data: bytes, at: int) -> Query:
    if at != len(data):
        raise BadMessage("bytes follow a DNS query.")
    return query


def _with_edns(query: Query, data: bytes, at: int) -> Query:
    """Read an OPT record (RFC 6891 §6.1.2); its options are walked over and left behind."""
    if data[at : at + 1] != b"\0" or len(data) < at + 1 + _FIELDS.size:
        raise BadMessage("a DNS query's additional record is no whole OPT record.")
    kind, room, more, size = _FIELDS.unpack_from(data, at + 1)
    at += 1 + _FIELDS.size
    if kind != OPT or size != len(data) - at:
        raise BadMessage("a DNS query's additional record is no whole OPT record.")
    while at < len(data):
        at += 4 + int.from_bytes(data[at + 2 : at + 4], "big")
        if at > len(data):
            raise BadMessage("an EDNS option runs past its record.")
    taken = msgspec.structs.replace(
        query,
        room=min(max(room, PLAIN_ROOM_BYTES), ROOM_MAX_BYTES),
        edns=True,
        dnssec=bool(more & DNSSEC_OK),
    )
    if more >> 16 & 0xFF:
        raise UnfitQuery("only EDNS version 0 is spoken.", write_answer(taken, BADVERS))
    return taken


def _unfit(ident: int, flags: int, rcode: int, message: str) -> UnfitQuery:
    """Return the error for a query whose question can't be given back."""
    kept = flags & (OPCODE | RECURSE | UNCHECKED)
    return UnfitQuery(message, _HEADER.pack(ident, RESPONSE | kept | rcode, 0, 0, 0, 0))


# -- what goes back in ----------------------------------------------------------------------


def write_answer(
    query: Query, rcode: int, records: tuple[Record, ...] = (), *, room: int = MESSAGE_MAX_BYTES
) -> bytes:
    """Return the answer to a query: whole, or cut (TC) where it would be more than `room` bytes.

    A cut one has no records: half of a list would be taken for the list (RFC 2181 §9).
    """
    flags = RESPONSE | CAN_RECURSE | query.flags & (RECURSE | UNCHECKED) | rcode & RCODE
    extra = _our_opt(query, rcode) if query.edns else b""
    body = b"".join(
        _QUESTION_NAME + _FIELDS.pack(each.kind, IN, each.ttl_s, len(each.data)) + each.data
        for each in records
    )
    count = len(records)
    if HEADER_BYTES + len(query.question) + len(body) + len(extra) > room:
        flags, body, count = flags | CUT, b"", 0
    head = _HEADER.pack(query.ident, flags, 1, count, 0, 1 if extra else 0)
    return head + query.question + body + extra


def _our_opt(query: Query, rcode: int) -> bytes:
    more = (rcode >> 4) << 24 | (DNSSEC_OK if query.dnssec else 0)
    return b"\0" + _FIELDS.pack(OPT, OUR_ROOM_BYTES, more, 0)


def address_record(address: str, ttl_s: int) -> Record:
    """Return the A record of an IPv4 address."""
    return Record(A, ttl_s, bytes(map(int, address.split("."))))


# -- what is asked outside ------------------------------------------------------------------


def question_of(host: str, kind: int) -> bytes:
    """Return a canonical name and a type as a question: nothing of the program's own bytes."""
    labels = tuple(label.encode("ascii") for label in host.split("."))
    return _name_bytes(labels) + struct.pack("!HH", kind, IN)


def write_query(ident: int, question: bytes) -> bytes:
    """Return a query that asks for recursion, without EDNS: every resolver takes it.

    An answer that doesn't fit 512 bytes is asked for by TCP, which nobody can forge blindly.
    """
    return _HEADER.pack(ident, RECURSE, 1, 0, 0, 0) + question


def read_answer(data: bytes, ident: int, question: bytes) -> Reply | None:
    """Read the answer to a query; None for what is none of its: another id, another question.

    The records are those of the asked type at the asked name, or where its aliases lead,
    in class IN.  Raises BadMessage for an answer to it that can't be read.
    """
    if len(data) < HEADER_BYTES + len(question):
        return None
    number, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    asked = data[HEADER_BYTES : HEADER_BYTES + len(question)]
    # A resolver may change the letters' case; its numbers have none.
    if number != ident or questions != 1 or asked.lower() != question.lower():
        return None
    if not flags & RESPONSE or flags & OPCODE:
        return None
    if flags & CUT:
        return Reply(flags & RCODE, cut=True, records=())
    if answers > ANSWERS_MAX:
        raise BadMessage("a DNS answer has more records than any.")
    at = HEADER_BYTES + len(question)
    found: list[tuple[tuple[bytes, ...], int, int, int, int]] = []
    for _ in range(answers):
        owner, at = _read_name(data, at)
        if len(data) < at + _FIELDS.size:
            raise BadMessage("a DNS record is cut short.")
        kind, group, ttl_s, size = _FIELDS.unpack_from(data, at)
        at += _FIELDS.size
        if len(data) < at + size:
            raise BadMessage("a DNS record's data runs past the message.")
        if group == IN:
            found.append((_small(owner), kind, ttl_s, at, at + size))
        at += size
    wanted = int.from_bytes(question[-4:-2], "big")
    return Reply(flags & RCODE, cut=False, records=_records(data, question, wanted, found))


def _records(
    data: bytes,
    question: bytes,
    wanted: int,
    found: list[tuple[tuple[bytes, ...], int, int, int, int]],
) -> tuple[Record, ...]:
    """Return the records of the wanted type, where the question's aliases lead."""
    name = _small(_read_name(question, 0, pointers=False)[0])
    for _ in range(ALIASES_MAX):
        alias = next((one for one in found if one[0] == name and one[1] == CNAME), None)
        if alias is None:
            break
        name = _small(_whole_name(data, alias[3], alias[4]))
    return tuple(
        Record(kind, _ttl(ttl_s), _DATA[wanted](data, start, end))
        for owner, kind, ttl_s, start, end in found
        if owner == name and kind == wanted
    )


def _ttl(ttl_s: int) -> int:
    """Return how long a record may be kept; with its top bit set, not at all (RFC 2181 §8)."""
    return 0 if ttl_s >> 31 else min(ttl_s, TTL_MAX_S)


def _service(data: bytes, start: int, end: int) -> bytes:
    """Return an SRV record's data, its target written whole (RFC 2782)."""
    if end - start < _PLACES.size:
        raise BadMessage("an SRV record is cut short.")
    target = _whole_name(data, start + _PLACES.size, end)
    return data[start : start + _PLACES.size] + _name_bytes(target)


def _text(data: bytes, start: int, end: int) -> bytes:
    """Return a TXT record's data: strings that fill it just so (RFC 1035 §3.3.14)."""
    at = start
    while at < end:
        at += 1 + data[at]
    if at != end or start == end:
        raise BadMessage("a TXT record's strings don't fill it.")
    return data[start:end]


_DATA = {SRV: _service, TXT: _text}


# -- names ----------------------------------------------------------------------------------


def _read_name(data: bytes, at: int, *, pointers: bool = True) -> tuple[tuple[bytes, ...], int]:
    """Read a name; return its labels and where it ends.

    Each pointer leads back to before all that was read of the name, so there is no loop, and
    never into the header, whose bytes are nobody's name.
    """
    labels: list[bytes] = []
    size, start, end, followed = 1, at, -1, 0
    while True:
        if at >= len(data):
            raise BadMessage("a DNS name runs past the message.")
        length = data[at]
        if length & 0xC0 == 0xC0 and pointers:
            to = int.from_bytes(data[at : at + 2], "big") & 0x3FFF
            if at + 2 > len(data) or not HEADER_BYTES <= to < start:
                raise BadMessage("a pointer of a DNS name leads nowhere.")
            followed += 1
            if followed > POINTERS_MAX:
                raise BadMessage("a DNS name has pointers without end.")
            end = at + 2 if end < 0 else end
            at = start = to
            continue
        if length > LABEL_MAX_BYTES:
            raise BadMessage("a DNS label is of no known kind.")
        at += 1
        if not length:
            return tuple(labels), at if end < 0 else end
        size += 1 + length
        if size > NAME_MAX_BYTES or at + length > len(data):
            raise BadMessage("a DNS name is longer than any, or than its message.")
        labels.append(data[at : at + length])
        at += length


def _whole_name(data: bytes, start: int, end: int) -> tuple[bytes, ...]:
    """Read a name that fills a record's data."""
    labels, at = _read_name(data, start)
    if at != end:
        raise BadMessage("a DNS name doesn't fill its record.")
    return labels


def _name_bytes(labels: tuple[bytes, ...]) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _small(labels: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return labels in small letters, as they are compared (RFC 4343: ASCII's alone)."""
    return tuple(label.lower() for label in labels)


# -- over a stream --------------------------------------------------------------------------


def framed(message: bytes) -> bytes:
    """Return a message as TCP carries it (RFC 1035 §4.2.2)."""
    return len(message).to_bytes(2, "big") + message


class Frames:
    """Takes messages out of a stream, each behind its length."""

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def room(self) -> int:
        """How many more bytes may be held: a whole message, its length and no more."""
        return 2 + MESSAGE_MAX_BYTES - len(self._held)

    def feed(self, data: bytes) -> None:
        """Take what came; at most `room` bytes."""
        self._held += data

    def next(self) -> bytes | None:
        """Return the next message that is whole, None where there is none yet."""
        if len(self._held) < 2:
            return None
        end = 2 + int.from_bytes(self._held[:2], "big")
        if len(self._held) < end:
            return None
        message = bytes(self._held[2:end])
        del self._held[:end]
        return message
