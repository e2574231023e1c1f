"""The suite of `hosted_model`: a call to a hosted model, by its proxy and its bridge."""

from __future__ import annotations

import json

from fuzz.case_bridge import Wire, accepted, body_of, call, reached, refused
from fuzz.case_calls import by_verdict
from fuzz.case_files import Case, Outcome, Suite, Way, unknown
from proto.calls.mounts import Mount
from proto.verbs.hosted import hosted_models
from proto.verbs.metering import Tokens
from proto.verbs.model import ModelRoute
from proto.verbs.providers import PROVIDERS

DUE = frozenset(
    {
        "verdict",
        "status",
        "upstream",
        "bodies",
        "body_lacks",
        "also_ok",
        "never_dials",
        "client",
        "or_close",
        "stage",
        "upstream_complete",
    }
)


def perform(case: Case, way: Way) -> Outcome:
    """Make a case's call, and say what came of it."""
    given, config = case["input"], case["config"]
    unknown(given, {"method", "path", "headers", "body", "body_b64"}, "key of the input")
    provider = PROVIDERS[config["provider"]]
    route = ModelRoute.of(
        provider,
        config["key"],
        config["placeholder"],
        server_tools=config["server_tools"],
        listed=config["hosts"] not in (None, ["*"]),
    )
    tokens: list[Tokens] = []
    name = config["provider"].encode()
    wire = Wire(
        (Mount(b"model/" + name, "model", "model", b"/" + name),),
        hosted_models([route], tokens.append),
        (provider.host,),
        config["hosts"],
    )
    outcome = call(case, way, wire, f"/_link/model/{config['provider']}{given['path']}")
    _check(case, outcome)
    return outcome


def differences(came: Outcome, due: Outcome) -> list[str]:
    """Name each difference between what came and one right outcome."""
    unknown(due, DUE, "field of an outcome")
    found = reached(came, due)
    if found:
        return found
    return by_verdict(came, due, refused, _accepted)


def _accepted(came: Outcome, due: Outcome) -> list[str]:
    found, body = accepted(came, due), came["upstream"]["body"]
    if "bodies" in due and json.loads(body) not in due["bodies"]:
        found.append(f"body: came {body[:300]}")
    return found


def _check(case: Case, outcome: Outcome) -> None:
    """Hold what is true of every case: the key is in its one field, and nowhere else."""
    key: str = case["config"]["key"]
    if key in outcome["client"]["raw"]:
        raise ValueError("the program got the key")
    said = body_of(case["input"]).count(key.encode())
    if "upstream" in outcome and outcome["upstream"]["raw"].count(key) != 1 + said:
        raise ValueError("the key isn't in one place of the call")


SUITE = Suite(
    name="hosted_model",
    kinds=frozenset(
        {"json", "key", "path", "plain", "redirect", "search_model", "tools", "url_source"}
    ),
    needs=frozenset({"provider", "placeholder", "key", "hosts", "server_tools"}),
    config=frozenset(),
    fields=frozenset({"answer"}),
    perform=perform,
    differences=differences,
)
