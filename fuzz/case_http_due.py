"""What came of a case of `http_head`, beside what was due."""

from __future__ import annotations

import base64

from fuzz.case_calls import (
    at_first,
    by_verdict,
    compare,
    compare_fields,
    compare_refusal,
    same_authority,
)
from fuzz.case_files import Outcome, unknown
from proto.policy.hosts import is_literal

DUE = frozenset(
    {
        "verdict",
        "status",
        "or_close",
        "request",
        "upstream",
        "body",
        "tunnel_b64",
        "also_ok",
        "stage",
        "upstream_complete",
        "never_dials",
        "answer_has",
        "client",
        "after",
        "asks",
    }
)
UPSTREAM = frozenset({"method", "target", "host", "has", "lacks"})
CLIENT = frozenset({"status", "body_b64", "content_length", "lacks", "complete"})
AFTER = frozenset({"refuse_or_close", "own_connection_or_close", "close"})


def differences(came: Outcome, due: Outcome) -> list[str]:
    """Name each difference between what came and one right outcome."""
    unknown(due, DUE, "field of an outcome")
    found = at_first(came, due)
    found += [f"a lenient reader reads otherwise: {each}" for each in came["untidy"]]
    if found:
        return found
    found += _after(came, due)
    lacking = [n for n in due.get("answer_has", []) if n.lower() not in came["answer_has"]]
    found += [f"answer lacks {name}" for name in lacking]
    return found + by_verdict(came, due, _refusal, _acceptance)


def _refusal(came: Outcome, due: Outcome) -> list[str]:
    found = compare_refusal(came, due)
    asked_again = came["status"] == 407 and due.get("after") == "own_connection_or_close"
    match due.get("stage"):
        case None if asked_again:
            pass  # with the secret, on the connection that a 407 keeps: another call
        case None:
            found += _asks(came, due.get("asks", []))
            found += compare("dials", came["dials"], [])
        case "body":
            if came["upstream_complete"] is not due.get("upstream_complete", False):
                found.append(f"upstream_complete: came {came['upstream_complete']}")
        case "response":
            pass
        case other:
            raise ValueError(f"unknown stage: {other!r}")
    if len(came["connects"]) > 1:
        found.append(f"opened {len(came['connects'])} connections")
    if len(came["answers"]) > 1 and "after" not in due and came["status"] != 407:
        found.append(f"acted on what came after it: {came['answers']}")
    return found


def _acceptance(came: Outcome, due: Outcome) -> list[str]:
    found: list[str] = []
    request = due.get("request", {})
    for key, value in request.items():
        got = came["request"].get(key)
        if key != "host" or not same_authority(str(got), value):
            found += compare(f"request.{key}", got, value)
    if "host" in request and "after" not in due:
        host = request["host"]
        found += _asks(came, due.get("asks", [] if is_literal(host) else [host]))
    if "tunnel_b64" in due:
        found += _tunnel(came, base64.b64decode(due["tunnel_b64"]))
    if "upstream" in due:
        found += _upstream(came, due["upstream"])
    if "body" in due:
        found += _body(came, due["body"])
    if "client" in due:
        found += _client(came, due["client"])
    if came["request"]["form"] == "absolute":
        found += _one_request(came, due)
    return found


def _asks(came: Outcome, due: list[str] | str) -> list[str]:
    return [] if due == "any" else compare("asks", sorted(came["asks"]), sorted(due))


def _tunnel(came: Outcome, due: bytes) -> list[str]:
    found = [
        f"the 200 has {name}, which a tunnel has not"
        for name in ("content-length", "transfer-encoding")
        if name in came["answer_has"]
    ]
    if "tunnel_b64" not in came:
        return [*found, "there is no tunnel"]
    taken = base64.b64decode(came["tunnel_b64"])
    # Reading a hello stops where it is certain that it isn't one.
    fits = due.startswith(taken) if came["hello_read"] else taken == due
    return found if fits else [*found, f"tunnel: came {taken!r}, due {due!r}"]


def _upstream(came: Outcome, due: Outcome) -> list[str]:
    unknown(due, UPSTREAM, "field of upstream")
    if "upstream" not in came:
        return ["the server got no request"]
    got = came["upstream"]
    found = compare("upstream.method", got["method"], due.get("method", got["method"]))
    found += compare("upstream.target", got["target"], due.get("target", got["target"]))
    if "host" in due and not _is_one_of(got["host"], due["host"]):
        found.append(f"upstream.host: came {got['host']}, due one of {due['host']}")
    return found + compare_fields(got, due)


def _is_one_of(came: list[str], due: list[str]) -> bool:
    """Tell whether there is just one `Host`, and a right one."""
    return len(came) == 1 and any(same_authority(came[0], each) for each in due)


def _body(came: Outcome, due: Outcome) -> list[str]:
    """Compare a body's data; it may have been framed anew."""
    unknown(due, {"framing", "data_b64", "length"}, "field of body")
    if "body" not in came:
        return ["the server got no body"]
    if due["framing"] not in ("none", "length", "chunked"):
        raise ValueError(f"unknown framing: {due['framing']!r}")
    if due["framing"] == "none":
        return compare("body.length", came["body"]["length"], 0)
    found = compare("upstream_complete", came["upstream_complete"], True)
    for key in due.keys() - {"framing"}:
        found += compare(f"body.{key}", came["body"][key], due[key])
    return found


def _client(came: Outcome, due: Outcome) -> list[str]:
    unknown(due, CLIENT, "field of client")
    if "client" not in came:
        return ["the program got no answer of the server's"]
    got = came["client"]
    found = compare("client.complete", got["complete"], due.get("complete", True))
    for key in due.keys() & {"status", "body_b64"}:
        found += compare(f"client.{key}", got[key], due[key])
    if "content_length" in due:
        lengths = [int(each) for each in got["content_length"]]
        said = due["content_length"]
        found += compare("client.content_length", lengths, [] if said is None else [int(said)])
    gets = [n for n in due.get("lacks", []) if n.lower() in came["answer_has"]]
    return found + [f"client gets {name}" for name in gets]


def _one_request(came: Outcome, due: Outcome) -> list[str]:
    """Check that just one request went out, whole and with nothing behind it."""
    if "client" in came and came["client"]["framing"] == "chunked" and came["old_client"]:
        return ["a chunked answer to a program that speaks HTTP/1.0"]
    first, *others = came["servers"]
    found = compare("requests on the first connection", first, 1)
    found += [f"behind the request: {each}" for each in came["behind_b64"] if each]
    if others and due.get("after") != "own_connection_or_close":
        found.append(f"opened {len(others) + 1} connections")
    if "client" not in due and not came["upstream_complete"]:
        found.append("the server got half a request")
    return found


def _after(came: Outcome, due: Outcome) -> list[str]:
    """Judge what became of bytes behind the request."""
    rule = due.get("after")
    if rule is None and due["verdict"] == "accept":
        rule = "close"  # nothing stands there, so nothing comes of it
    if rule is None:
        return []
    if rule not in AFTER:
        raise ValueError(f"unknown rule for what comes after: {rule!r}")
    others = came["answers"][1:]
    if rule == "close" and others:
        return [f"more answers: {others}"]
    if rule == "refuse_or_close":
        found = [f"the next request got {status}" for status in others if status < 400]
        return found + ([f"opened {came['connects']}"] if len(came["connects"]) > 1 else [])
    return []
