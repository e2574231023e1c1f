"""The suite of `secret_rule`: a call that carries a secret by a rule, or a rule."""

from __future__ import annotations

import json
from typing import Any

from fuzz.case_bridge import Wire, accepted, body_of, call, reached, refused
from fuzz.case_calls import by_verdict
from fuzz.case_files import Case, Outcome, Suite, Way, unknown
from proto.calls.mounts import Mount
from proto.verbs.bridge import provider_verb
from proto.verbs.secret import Held, SecretVerb
from sandbox.cli.wrap import read_request
from sandbox.errors import SpecError

DUE = frozenset(
    {
        "verdict",
        "status",
        "upstream",
        "body_lacks",
        "also_ok",
        "never_dials",
        "client",
        "at",
        "or_close",
        "stage",
        "upstream_complete",
    }
)
SECRET = frozenset({"rule", "placeholder", "secret"})
PLAIN = {"placeholder": "lnkPlaceholder", "secret": "a-real-secret"}
"""What a rule that is tried alone comes with."""


def perform(case: Case, way: Way) -> Outcome:
    """Make a case's call, or give a rule to `wrap`, and say what came of it."""
    if case["kind"] == "rule":
        unknown(case["input"], {"rule"}, "key of the input")
        said = refusal({"one": {**PLAIN, "rule": case["input"]["rule"]}})
        return {"verdict": "refuse" if said else "accept", "at": "wrap", "said": said}
    given = case["input"]
    unknown(given, {"method", "target", "headers", "body", "body_b64"}, "key of the input")
    secrets = case["config"]["secrets"]
    if said := refusal(secrets):
        raise ValueError(f"wrap refuses the case's own secrets: {said}")
    held = [_held(name, each) for name, each in secrets.items()]
    mounts = tuple(
        Mount(b"secret/" + each.name, "secret", "secret", b"/" + each.name) for each in held
    )
    wire = Wire(mounts, provider_verb(SecretVerb(held)), tuple(each.host for each in held))
    outcome = call(case, way, wire, given["target"])
    _check(case, outcome)
    return outcome


def refusal(secrets: dict[str, Any]) -> str:
    """Return what `wrap` says against a proxy with these secrets; nothing if it takes them."""
    routes = []
    for name, each in secrets.items():
        unknown(each, SECRET, "key of a secret")
        routes.append({"kind": "secret", "name": name, **each})
    proxy = {"upstream": "direct", "dir": "/d", "hosts": [], "routes": routes, "caller": "c" * 16}
    confinement = {
        "name": "box", "write": [], "read": [], "commands": "any",
        "net": {"proxied": {"proxy": proxy, "ports": []}},
    }  # fmt: skip
    try:
        read_request(json.dumps({"confinement": confinement, "argv": ["true"]}).encode())
    except SpecError as error:
        return str(error)
    return ""


def _held(name: str, each: dict[str, Any]) -> Held:
    rule = each["rule"]
    header = rule.get("header")
    return Held(
        name,
        rule["host"],
        rule["paths"],
        rule.get("refused", ()),
        (header["name"], header["value"]) if header else None,
        each["placeholder"],
        each["secret"],
    )


def differences(came: Outcome, due: Outcome) -> list[str]:
    """Name each difference between what came and one right outcome."""
    unknown(due, DUE, "field of an outcome")
    if "at" in came:
        found = [] if came["verdict"] == due["verdict"] else [f"wrap said {came['said']!r}"]
        at_wrap = due["verdict"] == "accept" or due.get("at") == came["at"]
        return found if at_wrap else [*found, "it is refused by wrap"]
    found = reached(came, due)
    if found:
        return found
    return by_verdict(came, due, refused, accepted)


def _check(case: Case, outcome: Outcome) -> None:
    """Hold what is true of every call: no secret comes back, and each goes to one place."""
    for each in case["config"]["secrets"].values():
        secret = each["secret"]
        if secret in outcome["client"]["raw"]:
            raise ValueError("the program got a secret")
        given = case["input"]
        said = json.dumps(given).count(secret)
        said += body_of(given).count(secret.encode()) if "body_b64" in given else 0
        if "upstream" in outcome and outcome["upstream"]["raw"].count(secret) > 1 + said:
            raise ValueError("a secret is in more than one place of the call")


SUITE = Suite(
    name="secret_rule",
    kinds=frozenset(
        {
            "answer",
            "header",
            "path",
            "placeholder",
            "refused_name",
            "route",
            "rule",
            "shape",
            "valid",
        }
    ),
    needs=frozenset(),
    config=frozenset({"secrets"}),
    fields=frozenset({"answer"}),
    perform=perform,
    differences=differences,
)
