"""The suite of `client_hello`: what comes first down a tunnel."""

from __future__ import annotations

import base64

from fuzz.case_calls import (
    Observed,
    answers,
    compare,
    first_final,
    observed,
    outside,
    policy_of,
    serve,
    touched,
)
from fuzz.case_files import Case, Outcome, Suite, Way, says, segments, unknown
from fuzz.http_reading import answer_reader
from proto.codecs.client_hello import HelloReader
from proto.commands import CLIENT, Connect, Receive, Splice
from proto.errors import HelloRefused
from proto.events import Failed, Reason, Received
from shells.sim_world import Fin, HearUntil, Say, Transcript, World

ADDRESS = "203.0.113.10"

DUE = frozenset({"verdict", "sni", "also_ok", "never_dials"})


def perform(case: Case, way: Way) -> Outcome:
    """Open a case's tunnel, send what comes first down it, and say what came of that."""
    config = case["config"]
    target = config["connect"].encode()
    head = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, target)
    established = HearUntil(lambda: answer_reader(b"CONNECT").feed)
    ended = (Fin(),) if case.get("eof") else ()
    world = World(
        client=(Say(head), established, *says(case, way), *ended),
        any_name=(ADDRESS,),
        any_server=(),
        cut=way.cut,
    )
    transcript = serve(policy_of(config), world, way.seed)
    joined = any(isinstance(command, Splice) for command in transcript.commands)
    outcome = outcome_of(case, observed(transcript), waited=_waited(transcript), joined=joined)
    read = _after_connecting(transcript)
    return outcome | {"sni": _name_of(read) if read else None}


def outcome_of(case: Case, seen: Observed, *, waited: bool, joined: bool = False) -> Outcome:
    """Return what is compared.

    `waited`: the proxy closed only at its time limit.  `joined`: the tunnel was seen to open,
    so it counts though nothing went down it: where nothing is read, the server may speak first.
    """
    sent = b"".join(segments(case))
    reader = answers(seen, b"CONNECT")
    first = first_final(reader)
    reached = b"".join(saw.data for _, saw in seen.servers)
    verdict = "wait" if waited and not reached else "refuse"
    return {
        "verdict": "accept" if reached == sent and (sent or joined) else verdict,
        "status": first.status if first else None,
        "said_after_b64": base64.b64encode(reader.rest).decode(),
        "reached_b64": base64.b64encode(reached).decode(),
        **outside(seen),
    }


def _waited(transcript: Transcript) -> bool:
    """Tell whether the last of the client's bytes was waited for in vain."""
    heard = [each.event for each in transcript.performed if isinstance(each.command, Receive)]
    return isinstance(heard[-1], Failed) and heard[-1].reason is Reason.TIMED_OUT


def _after_connecting(transcript: Transcript) -> list[bytes]:
    """Return what the proxy read of the tunnel by itself, piece by piece."""
    commands = transcript.commands
    connected = next(n for n, each in enumerate(commands) if isinstance(each, Connect))
    events = [each.event for each in transcript.performed[connected:]]
    return [e.data for e in events if isinstance(e, Received) and e.side is CLIENT]


def _name_of(pieces: list[bytes]) -> str | None:
    """Return the name that the codec reads of these pieces; None for more or for none."""
    reader = HelloReader()
    name = None
    try:
        for piece in pieces:
            if name is None:  # what came later was only followed
                name = reader.feed(piece)
    except HelloRefused:
        return None
    return name


def differences(came: Outcome, due: Outcome) -> list[str]:
    """Name each difference between what came and one right outcome."""
    unknown(due, DUE, "field of an outcome")
    if due["verdict"] not in ("accept", "refuse", "wait"):
        raise ValueError(f"unknown verdict: {due['verdict']!r}")
    found = compare("verdict", came["verdict"], due["verdict"])
    found += [f"touched: {each}" for each in touched(came, due.get("never_dials", []))]
    # The tunnel stands before its first byte is judged, and then nothing is answered.
    found += compare("status", came["status"], 200)
    found += compare("said after the 200", came["said_after_b64"], "")
    found += compare("connections", len(came["connects"]), 1)
    if due["verdict"] != "accept":
        found += compare("reached the server", came["reached_b64"], "")
    if "sni" in due:
        found += compare("sni", came["sni"], due["sni"])
    return found


SUITE = Suite(
    name="client_hello",
    kinds=frozenset(
        {
            "body",
            "cut",
            "extension",
            "message",
            "name",
            "not_read",
            "not_tls",
            "pattern",
            "real",
            "record",
        }
    ),
    needs=frozenset({"connect", "hosts"}),
    config=frozenset(),
    fields=frozenset(),
    perform=perform,
    differences=differences,
)
