"""The suite of `local_model`: a request to a local model's runtime, by either way in."""

from __future__ import annotations

import base64

from fuzz.case_calls import LIMITS, at_first, by_verdict, compare, compare_fields, compare_refusal
from fuzz.case_files import (
    Case,
    Outcome,
    Suite,
    Way,
    right_outcomes,
    says,
    segments,
    unknown,
)
from fuzz.http_reading import answer_reader, request_reader
from proto.calls.mounts import Mount, Mounts
from proto.calls.serve import serve_connection
from proto.calls.ways import Ways
from proto.policy.hosts import Policy
from proto.policy.keys import Key
from proto.script import Script
from proto.verbs.local_model import ADDRESSES, relayed_connection
from shells.sim_shell import run
from shells.sim_world import Fin, HearUntil, Leave, Say, Transcript, World

DUE = frozenset(
    {
        "verdict", "status", "or_close", "port", "upstream", "body", "after", "stage",
        "upstream_complete", "also_ok", "never_dials",
    }
)  # fmt: skip
UPSTREAM = frozenset({"method", "target", "host", "has", "lacks"})
BODY = frozenset({"framing", "data_b64"})
AFTER = frozenset({"close", "refuse_or_close", "own_connection_or_close"})
"""What may become of bytes behind the request: closing, as is asked of every case, is each."""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def perform(case: Case, way: Way) -> Outcome:
    """Send a case's bytes to the runtime's port or to the proxy, and say what came of it."""
    config, port = case["config"], _relayed(case)
    answered = (HearUntil(lambda: request_reader().feed), Say(ANSWER), Leave())
    world = World(
        client=(*says(case, way), *((Fin(),) if case.get("eof") else ())),
        servers={
            (each, at): answered for each in ADDRESSES for at in {port, *config["local_ports"]}
        },
        any_name=("203.0.113.10",),
        cut=way.cut,
    )
    match case["way"]:
        case "relay":

            def script(now: float) -> Script[None]:
                return relayed_connection(port, LIMITS, now)

        case "proxy":
            mounts = [
                Mount(b"local/%d" % at, "local", needs_secret=True, host="localhost", port=at)
                for at in config["local_ports"]
            ]
            secret = Key(config["url_secret"])
            ways = Ways(mounts=Mounts(mounts, caller=Key("c" * 16), secret=secret))

            def script(now: float) -> Script[None]:
                return serve_connection(Policy.of([]), LIMITS, None, now, ways)

        case other:
            raise ValueError(f"unknown way: {other!r}")
    return _outcome(case, run(script, world, way.seed))


def _relayed(case: Case) -> int:
    """Return the port that a relayed case came to: where it names one of the policy's, that.

    Nothing in the input says it; else it is the first that the policy names.
    """
    ports: list[int] = case["config"]["local_ports"] or [11434]
    due = [each.get("port") for each in right_outcomes(case)] if "expect" in case else []
    return next((each for each in due if each in ports), ports[0])


def _outcome(case: Case, seen: Transcript) -> Outcome:
    method = b"".join(segments(case)).partition(b" ")[0]
    reader = answer_reader(method)
    reader.feed(seen.client.data)
    finals = [message.status for message in reader.messages if message.status >= 200]
    heard = request_reader()
    heard.feed(b"".join(dial.saw.data for dial in seen.opened if dial.saw is not None))
    whole = [message for message in heard.messages if message.complete]
    outcome: Outcome = {
        "verdict": "accept" if whole and finals == [200] else "refuse",
        "status": finals[0] if finals else None,
        "answers": len(finals),
        "asks": list(seen.asked),
        "dials": [dial.address for dial in seen.dials],
        "ports": sorted({dial.port for dial in seen.opened}),
        "upstream_complete": bool(whole),
        "requests": len(heard.messages),
        "behind": bool(heard.rest),
        "closed": seen.client.end.name,
    }
    if whole:
        first = whole[0]
        outcome["upstream"] = {
            "method": first.words[0].decode("latin-1"),
            "target": first.words[1].decode("latin-1"),
            "host": first.values("host"),
            "fields": sorted(first.fields),
            "tidy": first.tidy,
        }
        outcome["body"] = {
            "framing": first.framing,
            "data_b64": base64.b64encode(first.body).decode(),
        }
    return outcome


def differences(came: Outcome, due: Outcome) -> list[str]:
    """Name each difference between what came and one right outcome."""
    unknown(due, DUE, "field of an outcome")
    found = at_first(came, due) + compare("asks", came["asks"], [])
    if found:
        return found
    found += compare("answers", came["answers"] > 1, False)
    return found + by_verdict(came, due, _refused, _accepted)


def _refused(came: Outcome, due: Outcome) -> list[str]:
    found = compare_refusal(came, due)
    match due.get("stage"):
        case None:
            return found + compare("dials", came["dials"], [])
        case "body":
            complete = due.get("upstream_complete", False)
            return found + compare("upstream_complete", came["upstream_complete"], complete)
        case other:
            raise ValueError(f"unknown stage: {other!r}")


def _accepted(came: Outcome, due: Outcome) -> list[str]:
    got, wanted = came["upstream"], due.get("upstream", {})
    unknown(wanted, UPSTREAM, "field of upstream")
    found = compare("port", came["ports"], [due["port"]] if "port" in due else came["ports"])
    # One request a connection, whatever comes behind it: that holds for every case.
    found += compare("requests", came["requests"], 1) + compare(
        "bytes behind", came["behind"], False
    )
    found += compare("a lenient reader reads one", got["tidy"], True)
    found += compare("closed", came["closed"], "FIN")
    for key in ("method", "target"):
        found += compare(f"upstream.{key}", got[key], wanted.get(key, got[key]))
    if "host" in wanted and (len(got["host"]) != 1 or got["host"][0] not in wanted["host"]):
        found.append(f"upstream.host: came {got['host']}, due one of {wanted['host']}")
    found += compare_fields(got, wanted)
    body = due.get("body", {})
    unknown(body, BODY, "field of body")
    if body.get("framing") == "none":
        return found + compare("body", came["body"]["data_b64"], "")
    if "data_b64" in body:
        found += compare("body", came["body"]["data_b64"], body["data_b64"])
    if due.get("after", "close") not in AFTER:
        raise ValueError(f"unknown after: {due['after']!r}")
    return found


SUITE = Suite(
    name="local_model",
    kinds=frozenset({"admin", "inference", "listing", "method", "path", "proxy_path", "request"}),
    needs=frozenset({"local_ports", "url_secret"}),
    config=frozenset(),
    fields=frozenset({"way"}),
    perform=perform,
    differences=differences,
)
