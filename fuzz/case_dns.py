"""The suite of `dns`: a query to the sandbox's own DNS, what it is answered, who outside is asked.

The resolver outside is a simulated one, that speaks UDP and TCP, cuts what doesn't fit a
datagram, and may be made to say more before its answer (`forged`).
"""

from __future__ import annotations

import base64
import struct
from functools import partial
from typing import Any

from dnslib import QTYPE, RCODE, RR, SRV, TXT, DNSRecord

from fuzz.case_calls import HELD_MAX_BYTES, LIMITS, compare, policy_of
from fuzz.case_files import Case, Outcome, Suite, Way, right_outcomes, says, segments, unknown
from proto.calls.query import ENTROPY_BYTES, Desk, serve_datagram, serve_stream
from proto.commands import DATAGRAMS, Receive, Send
from proto.policy.endpoints import Endpoints
from shells.sim_shell import run
from shells.sim_world import Cut, Fin, Reply, Say, Transcript, World

RESOLVER = "203.0.113.53"
IDENT = b"\x5a\xc3"
"""What chance gives the queries outside for their id; `forged` names it."""

DUE = frozenset(
    {"verdict", "rcode", "answer", "asks", "may_ask", "tc", "echo", "outside_lacks_b64", "each",
     "or_drop", "also_ok", "never_dials"}
)  # fmt: skip
UDP_ROOM_BYTES = 512


class Resolver:
    """The resolver outside: what it was asked, and the bytes that it heard.

    It says each of `forged` before its own answer to a datagram.
    """

    def __init__(self, outside: dict[str, Any], forged: list[str]) -> None:
        self._outside = {_plain(each): says for each, says in outside.items()}
        self._forged = tuple(map(base64.b64decode, forged))
        self.asked: list[str] = []
        self.heard = b""

    def datagram(self, query: bytes) -> tuple[bytes, ...]:
        """Answer a datagram, cut where it doesn't fit; nothing of its own for silence."""
        answer = self._answer(query)
        if answer is None:
            return self._forged
        if len(answer) > UDP_ROOM_BYTES:
            flags = struct.unpack_from("!H", answer, 2)[0] | 0x0200
            answer = query[:2] + struct.pack("!5H", flags, 1, 0, 0, 0) + query[12:]
        return (*self._forged, answer)

    def stream(self, data: bytes) -> bytes | None:
        """Answer a message of a stream once it is whole."""
        if len(data) < 2 or len(data) < 2 + int.from_bytes(data[:2], "big"):
            return None
        answer = self._answer(data[2:], again=True)
        return None if answer is None else len(answer).to_bytes(2, "big") + answer

    def _answer(self, query: bytes, *, again: bool = False) -> bytes | None:
        self.heard += query
        asked = DNSRecord.parse(query)
        if len(asked.questions) != 1 or asked.rr or asked.ar or query[:2] != IDENT:
            raise ValueError(f"more than one question went outside: {query.hex()}")
        name = f"{QTYPE[asked.q.qtype]} {str(asked.q.qname).rstrip('.')}"
        if not again:
            self.asked.append(name)
        says = self._outside.get(_plain(name), "NXDOMAIN")
        if says == "silence":
            return None
        reply = asked.reply()
        if isinstance(says, str):
            reply.header.rcode = getattr(RCODE, says)
        else:
            for one in says:
                reply.add_answer(RR(asked.q.qname, asked.q.qtype, ttl=60, rdata=_data(one)))
        return bytes(reply.pack())


def _plain(question: str) -> str:
    """Return a type and a name as the product asks: in small letters, without the root's dot."""
    kind, space, name = question.partition(" ")
    return kind + space + name.rstrip(".").lower()


def _data(one: Any) -> Any:
    if isinstance(one, list):
        return TXT([each.encode() for each in one]) if isinstance(one[0], str) else SRV(*one)
    return TXT(_strings(one))


def _strings(text: str) -> list[bytes]:
    """Return a long text as the strings of one TXT record (RFC 1035 §3.3)."""
    data = text.encode()
    return [data[at : at + 255] for at in range(0, len(data), 255)] or [b""]


def perform(case: Case, way: Way) -> Outcome:
    """Ask a case's query, and say what came of it."""
    config = case["config"]
    in_datagrams = _transport(case) == "udp"
    if in_datagrams:
        way = Way(way.name, Cut.WHOLE, way.seed)
    resolver = Resolver(config["outside"], config.get("forged", []))
    endpoints = Endpoints(policy_of({"hosts": [], "tcp": config["tcp"]}))
    known = [address for address, _ in endpoints.at_start()]
    desk = Desk(endpoints, (RESOLVER,), LIMITS)
    script = serve_datagram if in_datagrams else serve_stream
    entropy = (IDENT * ENTROPY_BYTES)[:ENTROPY_BYTES]
    transcript = run(partial(script, desk, entropy), _world(case, way, resolver), way.seed)
    _check_bounds(transcript)
    heard = transcript.client.data
    return {
        "answers": [_read(message) for message in _messages(heard, in_datagrams)],
        "queries": [query.hex() for query in _queries(case, in_datagrams)],
        "asks": resolver.asked,
        "outside": resolver.heard.hex(),
        "connects": [dial.address for dial in transcript.dials if dial.address != RESOLVER],
        "listens": [address for address, _ in transcript.listening],
        "known": known,
    }


def _transport(case: Case) -> str:
    if case["transport"] not in ("udp", "tcp"):
        raise ValueError(f"unknown transport: {case['transport']!r}")
    return str(case["transport"])


def _world(case: Case, way: Way, resolver: Resolver) -> World:
    client = (Say(b"".join(segments(case))),) if case["transport"] == "udp" else says(case, way)
    return World(
        client=(*client, Fin()) if case.get("eof") else client,
        ways={(DATAGRAMS, RESOLVER, 53): (Reply(resolver.datagram),)},
        servers={(RESOLVER, 53): (Reply(resolver.stream),)},
        cut=way.cut,
    )


def _check_bounds(transcript: Transcript) -> None:
    for command in transcript.commands:
        held = command.limit if isinstance(command, Receive) else 0
        if isinstance(command, Send):
            held = max(len(command.to_client), len(command.to_upstream))
        if held > HELD_MAX_BYTES:
            raise ValueError(f"{held} bytes are held in one {type(command).__name__}")


def _messages(heard: bytes, in_datagrams: bool) -> list[bytes]:
    """Return the messages that a client got; of a stream, all of it has to be messages."""
    if in_datagrams:
        return [heard] if heard else []
    found = []
    while heard:
        size = int.from_bytes(heard[:2], "big")
        if len(heard) < 2 + size:
            raise ValueError("an answer over TCP is cut short")
        found.append(heard[2 : 2 + size])
        heard = heard[2 + size :]
    return found


def _queries(case: Case, in_datagrams: bool) -> list[bytes]:
    """Return the queries of a case's input, those of a stream by their lengths."""
    data = b"".join(segments(case))
    if in_datagrams:
        return [data]
    found = []
    while len(data) >= 2:
        size = int.from_bytes(data[:2], "big")
        found.append(data[2 : 2 + size])
        data = data[2 + size :]
    return found


def _read(message: bytes) -> Outcome:
    """Read an answer as a client does, by another library than ours."""
    answer = DNSRecord.parse(_legible(message))
    opt = [one for one in answer.ar if one.rtype == QTYPE.OPT]
    if len(answer.ar) != len(opt) or len(opt) > 1 or answer.auth:
        raise ValueError(f"an answer has more than answers: {message.hex()}")
    code = answer.header.rcode | (opt[0].ttl >> 24 << 4 if opt else 0)
    return {
        "id": answer.header.id,
        "response": bool(answer.header.qr),
        "rcode": "BADVERS" if code == 16 else RCODE[code],
        "tc": bool(answer.header.tc),
        "question": _question(message.hex()) if answer.questions else "",
        "records": [_shown(one) for one in answer.rr],
        "size": len(message),
        "edns": bool(opt),
    }


def _legible(message: bytes) -> bytes:
    """Return a message with only ASCII in its question: the other library reads no more."""
    size = len(_question(message.hex())) // 2 if message[4:6] != b"\0\0" else 0
    question = bytes(each if each < 0x80 else 0x78 for each in message[12 : 12 + size])
    return message[:12] + question + message[12 + size :]


def _shown(record: Any) -> list[Any]:
    """Return a record's type, and its data as the files write it."""
    data = record.rdata
    match QTYPE[record.rtype]:
        case "A":
            return ["A", str(data)]
        case "SRV":
            return ["SRV", [data.priority, data.weight, data.port, str(data.target).rstrip(".")]]
        case "TXT":
            return ["TXT", b"".join(data.data).decode("latin-1")]
        case other:
            return [other, str(data)]


def differences(came: Outcome, due: Outcome) -> list[str]:
    """Name each difference between what came and one right outcome."""
    unknown(due, DUE, "field of an outcome")
    if due["verdict"] == "answers":
        return _several(came, due)
    found = _asked(came, due)
    return found + _one(came, came["answers"], came["queries"], due)


def _several(came: Outcome, due: Outcome) -> list[str]:
    """Compare answers with those due, each by its query's id, those of one id in their order."""
    found: list[str] = []
    if len(came["queries"]) < len(due["each"]):
        found.append(f"{len(due['each'])} answers are due to {len(came['queries'])} queries")
    left, took = list(came["answers"]), []
    # One query more than answers are due to may stand there: the last, cut short.
    for query, one in zip(came["queries"], due["each"], strict=False):
        at = next((n for n, each in enumerate(left) if each["id"] == int(query[:4], 16)), None)
        mine = [] if at is None else [left.pop(at)]
        right = [
            (_one(came, mine, [query], each), each) for each in right_outcomes({"expect": one})
        ]
        differing, outcome = next((each for each in right if not each[0]), right[0])
        found += differing
        took.append(outcome)
    asks, may = ([a for one in took for a in one.get(key, [])] for key in ("asks", "may_ask"))
    found += _asked(came, {"asks": asks, "may_ask": may, **due})
    return found + compare("answers beyond those due", left, [])


def _asked(came: Outcome, due: Outcome) -> list[str]:
    """Check who was asked outside, and that nobody else was reached."""
    found = compare("connects", came["connects"], [])
    if "asks" in due:
        right, may = (sorted(map(_plain, due.get(key, ()))) for key in ("asks", "may_ask"))
        found += compare("asks", sorted(each for each in came["asks"] if each not in may), right)
    if "outside_lacks_b64" in due:
        lacks = base64.b64decode(due["outside_lacks_b64"])
        if lacks in bytes.fromhex(came["outside"]):
            found.append("outside: it has bytes that it must not have")
    touched = {_plain(each).partition(" ")[2] for each in came["asks"]}
    never = due.get("never_dials", ())
    return found + [f"asked: {each}" for each in never if each.rstrip(".").lower() in touched]


def _one(came: Outcome, answers: list[Outcome], queries: list[str], due: Outcome) -> list[str]:
    match due["verdict"]:
        case "drop":
            return compare("answers", answers, [])
        case "refuse":
            return _refusal(answers, queries, due)
        case "answer":
            return _answer(came, answers, queries, due)
        case other:
            raise ValueError(f"unknown verdict: {other!r}")


def _refusal(answers: list[Outcome], queries: list[str], due: Outcome) -> list[str]:
    if not answers and due.get("or_drop"):
        return []
    if len(answers) != 1:
        return [f"answers: came {len(answers)}, due 1"]
    found = _of_query(answers[0], queries) + _rcode(answers[0], due)
    return found + compare("records", answers[0]["records"], [])


def _answer(came: Outcome, answers: list[Outcome], queries: list[str], due: Outcome) -> list[str]:
    if len(answers) != 1:
        return [f"answers: came {len(answers)}, due 1"]
    (answer,) = answers
    found = _of_query(answer, queries) + _rcode(answer, due)
    if "tc" in due:
        found += compare("tc", answer["tc"], due["tc"])
    found += compare("question", answer["question"], _question(queries[0]))
    return found + _records(came, answer["records"], due.get("answer", "any"))


def _question(query: str) -> str:
    """Return a well-formed message's question, in hex, letters' case and all."""
    data, at = bytes.fromhex(query), 12
    while data[at]:
        at += 1 + data[at]
    return data[12 : at + 5].hex()


def _of_query(answer: Outcome, queries: list[str]) -> list[str]:
    """Check that an answer is one, and its query's: by id, and with EDNS where that had it."""
    found = compare("id", answer["id"], int(queries[0][:4], 16))
    return found + compare("response", answer["response"], True)


def _rcode(answer: Outcome, due: Outcome) -> list[str]:
    right = due.get("rcode", [answer["rcode"]])
    return (
        [] if answer["rcode"] in right else [f"rcode: came {answer['rcode']}, due one of {right}"]
    )


def _records(came: Outcome, records: list[Any], due: Any) -> list[str]:
    if due == "any":
        return []
    if due == "none":
        return compare("records", records, [])
    if due == "own_address":
        own = [*came["known"], *came["listens"]]
        good = len(records) == 1 and records[0][0] == "A" and records[0][1] in own
        inside = good and records[0][1].startswith("127.") and records[0][1] != "127.0.0.1"
        return [] if inside else [f"records: came {records!r}, due one address of its own"]
    if not isinstance(due, list):
        raise ValueError(f"unknown answer: {due!r}")
    found, right = [data for _, data in records], [_joined(each) for each in due]
    return compare("records", sorted(found), sorted(right))


def _joined(data: Any) -> Any:
    """Return a record's data as `_shown` does: a text's strings are one."""
    texts = isinstance(data, list) and all(isinstance(each, str) for each in data)
    return "".join(data) if texts else data


SUITE = Suite(
    name="dns",
    kinds=frozenset(
        {
            "address",
            "class",
            "edns",
            "forged",
            "header",
            "local_name",
            "malformed",
            "not_listed",
            "service",
            "tcp",
            "type",
        }
    ),
    needs=frozenset({"tcp", "outside"}),
    config=frozenset({"forged"}),
    fields=frozenset({"transport"}),
    perform=perform,
    differences=differences,
)
