"""What the suites of calls by a bridge share.

Three conversations under the simulated shell are one call: the program's with the proxy, as
far as its bridge; the bridge's with the provider; and the program's again, its bridge saying
what the provider's answer became.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass

from fuzz.case_calls import (
    LIMITS,
    at_first,
    compare,
    compare_fields,
    compare_refusal,
    policy_of,
    values,
)
from fuzz.case_files import Case, Outcome, Way, unknown
from fuzz.http_reading import Message, answer_reader, request_reader
from proto.calls.mounts import Mount, Mounts
from proto.calls.serve import serve_connection
from proto.calls.ways import Ways
from proto.policy.keys import Key
from proto.script import Script
from proto.verbs.bridge import Serve, bridge_connection
from shells.sim_shell import run
from shells.sim_world import BRIDGE_PORT, TRUSTED, HearUntil, Leave, Say, Steps, Transcript, World

ADDRESS = "203.0.113.10"
HEARD = HearUntil(lambda: request_reader().feed)
"""A server's step: it has a whole request."""

CALLER = "C" * 32
ANSWER = {"status": 200, "headers": [["content-type", "application/json"]], "body": "{}"}
"""What the provider says where the case doesn't."""

HOST = "127.0.0.1:3128"
"""The `Host` of a program's calls, where the case has none."""

FRAMES = frozenset({"content-length", "transfer-encoding"})
NO_BODY = frozenset({204, 304})
"""Statuses whose answers have no body, nor a length of one (RFC 9110 §8.6)."""

UPSTREAM = frozenset({"host", "method", "path", "has", "lacks", "nowhere", "body"})
CLIENT = frozenset({"status_any", "body", "nowhere"})


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire with one bridge: its routes, what serves them, and the hosts of the two.

    `secret` is the one in the URLs of those routes that need it.
    """

    mounts: tuple[Mount, ...]
    serve: Serve | None = None
    providers: tuple[str, ...] = ()
    hosts: list[str] | None = None
    secret: str = ""


def call(case: Case, way: Way, wire: Wire, target: str) -> Outcome:
    """Make a case's call at a target of the proxy's, and say what came of it."""
    request = asked(case, target)
    to_bridge = _by_proxy(way, wire, request, ())
    heard = _heard(to_bridge)
    if not heard:
        return _outcome(case, to_bridge, None)
    by_bridge = _by_bridge(case, way, wire, heard)
    steps = (HearUntil(lambda: request_reader().feed), Say(by_bridge.client.data), Leave())
    return _outcome(case, _by_proxy(way, wire, request, steps), by_bridge)


def asked(case: Case, target: str) -> bytes:
    """Return the request as the program sends it to its proxy.

    What the case says of its host and its framing stands there alone, nothing of ours beside
    it: else every such call would be refused for having it twice.
    """
    given = case["input"]
    body = body_of(given)
    said = {name.lower() for name, _ in given["headers"]}
    lines = [f"{given['method']} {target} HTTP/1.1"]
    lines += [] if "host" in said else [f"Host: {HOST}"]
    lines += [f"{name}: {value}" for name, value in given["headers"]]
    if said & FRAMES == {"transfer-encoding"}:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    elif not said & FRAMES and ("body" in given or "body_b64" in given):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass") + body


def body_of(given: Outcome) -> bytes:
    """Return the body of an input that is taken apart."""
    if "body_b64" in given:
        return base64.b64decode(given["body_b64"])
    return (given.get("body") or "").encode("utf-8", "surrogatepass")


def bridge_hears(way: Way, wire: Wire, request: bytes) -> tuple[bytes, int | None]:
    """Return what a wire's bridge hears of a request; nothing, and the status, if it is refused."""
    seen = _by_proxy(way, wire, request, ())
    if heard := _heard(seen):
        return heard, None
    reader = answer_reader(request.partition(b" ")[0])
    reader.feed(seen.client.data)
    finals = [message.status for message in reader.messages if message.status >= 200]
    return b"", finals[0] if finals else None


def _by_proxy(way: Way, wire: Wire, request: bytes, bridge: Steps) -> Transcript:
    """Run the program's conversation with its proxy, the bridge doing these steps."""
    secret = Key(wire.secret) if wire.secret else None
    ways = Ways(mounts=Mounts(wire.mounts, caller=Key(CALLER), secret=secret))
    policy = policy_of({"hosts": wire.hosts})
    names = {mount.bridge for mount in wire.mounts}
    world = World(
        client=(Say(request),),
        servers={(name, BRIDGE_PORT): bridge for name in names},
        cut=way.cut,
    )

    def script(now: float) -> Script[None]:
        return serve_connection(policy, LIMITS, None, now, ways)

    return run(script, world, way.seed)


def _by_bridge(case: Case, way: Way, wire: Wire, heard: bytes) -> Transcript:
    """Run the bridge's conversation: what the proxy sent it, and what the provider answers."""
    world = World(
        client=(Say(heard),),
        any_name=(ADDRESS,),
        any_server=(HEARD, Say(said(case)), Leave()),
        tls=dict.fromkeys(wire.providers, TRUSTED),
        cut=way.cut,
    )

    serve = wire.serve
    assert serve is not None, "a wire whose calls are only heard has no bridge"

    def script(now: float) -> Script[None]:
        return bridge_connection(serve, Key(CALLER), LIMITS, now)

    return run(script, world, way.seed)


def said(case: Case) -> bytes:
    """Return the provider's answer as it says it."""
    answer = case.get("answer", ANSWER)
    unknown(answer, {"status", "headers", "body", "body_b64"}, "key of the answer")
    body, fields = body_of(answer), answer.get("headers", ())
    framed = any(name.lower() in FRAMES for name, _ in fields)
    lines: list[str] = [f"HTTP/1.1 {answer['status']} x"]
    if not framed and answer["status"] not in NO_BODY:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in fields]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _heard(transcript: Transcript) -> bytes:
    """Return what a conversation's server heard, where there was one."""
    return b"".join(dial.saw.data for dial in transcript.opened if dial.saw is not None)


def _outcome(case: Case, back: Transcript, by_bridge: Transcript | None) -> Outcome:
    """Return what was seen of the call, in the words of `expect`."""
    reader = answer_reader(case["input"]["method"].encode())
    reader.feed(back.client.data)
    finals = [message for message in reader.messages if message.status >= 200]
    outcome: Outcome = {
        "verdict": "refuse",
        "status": finals[0].status if finals else None,
        "asks": list(by_bridge.asked) if by_bridge else [],
        "dials": [dial.address for dial in by_bridge.dials] if by_bridge else [],
        "secured": list(by_bridge.secured) if by_bridge else [],
        "client": {
            "status": finals[0].status if finals else None,
            "body": finals[0].body.decode("latin-1") if finals else "",
            "complete": bool(finals) and finals[0].complete,
            "raw": back.client.data.decode("latin-1"),
        },
        "answers": len(finals),
    }
    if by_bridge is not None and (sent := _heard(by_bridge)):
        outcome["verdict"] = "accept"
        outcome["upstream"] = _upstream(sent)
    return outcome


def _upstream(sent: bytes) -> Outcome:
    """Return the call to the provider, as a lenient server reads it."""
    server = request_reader()
    server.feed(sent)
    first: Message = server.messages[0]
    return {
        "method": first.words[0].decode("latin-1"),
        "path": first.words[1].decode("latin-1"),
        "fields": sorted(first.fields),
        "body": first.body.decode("utf-8", "surrogateescape"),
        "tidy": first.tidy and first.complete and len(server.messages) == 1 and not server.rest,
        "raw": sent.decode("latin-1"),
    }


def reached(came: Outcome, due: Outcome) -> list[str]:
    """Compare how far the call came: an answer that is refused is one to a call that was made."""
    made = due.get("stage") == "response"
    return at_first(came, {**due, "verdict": "accept"} if made else due)


def refused(came: Outcome, due: Outcome) -> list[str]:
    """Compare a refusal: nobody outside is asked or dialled, and there is one answer.

    With the stage `response` the call was made, and it is its answer that is refused.
    """
    found = compare_refusal(came, due)
    match due.get("stage"):
        case "response":
            return found + compare("answers", came["answers"], 1)
        case "body" | None:
            pass
        case other:
            raise ValueError(f"unknown stage: {other!r}")
    found += compare("asks", came["asks"], []) + compare("dials", came["dials"], [])
    return found + compare("answers", came["answers"], 1)


def accepted(came: Outcome, due: Outcome) -> list[str]:
    """Compare the call that the provider got, and the answer that the program got."""
    found = upstream(came["upstream"], came, due.get("upstream", {}))
    found += lacking("the body holds", due.get("body_lacks", []), came["upstream"]["body"])
    return found + client(came["client"], due.get("client", {}))


def upstream(got: Outcome, came: Outcome, due: Outcome) -> list[str]:
    """Compare the call that the provider got."""
    found = [] if got["tidy"] else ["a lenient reader reads another request"]
    unknown(due, UPSTREAM, "field of upstream")
    if "host" in due:
        host = due["host"]
        found += compare("asks", came["asks"], [host])
        found += compare("host spoken TLS with", came["secured"], [host])
        found += compare("Host", values(got, "host"), [host])
    for key in ("method", "path", "body"):
        found += compare(f"upstream.{key}", got[key], due.get(key, got[key]))
    found += compare_fields(got, due)
    return found + [
        f"upstream holds {each}" for each in due.get("nowhere", []) if each in got["raw"]
    ]


def client(got: Outcome, due: Outcome) -> list[str]:
    """Compare the answer that the program got."""
    unknown(due, CLIENT, "field of client")
    found = [] if got["complete"] else ["the program got no whole answer"]
    if "status_any" in due and got["status"] not in due["status_any"]:
        found.append(f"client.status: came {got['status']}, due one of {due['status_any']}")
    if "body" in due:
        found += compare("client.body", got["body"], due["body"].encode().decode("latin-1"))
    return found + lacking("the program got", due.get("nowhere", []), got["raw"])


def lacking(what: str, texts: Iterable[str], where: str) -> list[str]:
    """Name each text that is somewhere it must not be."""
    return [f"{what} {each}" for each in texts if each in where]
