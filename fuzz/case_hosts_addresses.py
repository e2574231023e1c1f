"""The suite of `hosts_addresses`: whom a CONNECT may name, who is asked, who is dialled."""

from __future__ import annotations

from typing import Any

from fuzz.case_calls import (
    answers,
    at_first,
    by_verdict,
    compare,
    compare_refusal,
    first_final,
    observed,
    outside,
    policy_of,
    same_address,
    serve,
)
from fuzz.case_files import Case, Outcome, Suite, Way, segments, unknown
from shells.sim_world import SILENT, Addresses, Say, World

DUE = frozenset(
    {"verdict", "status", "host", "port", "asks", "dials", "never_dials", "also_ok", "or_close"}
)


def perform(case: Case, way: Way) -> Outcome:
    """CONNECT to a case's target, and say what came of it."""
    config = case["config"]
    target = b"".join(segments(case))
    world = World(
        client=(Say(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, target)),),
        names=_names(config),
        any_server=(),
        connect_fails=dict.fromkeys(config.get("connect_fails", ()), SILENT),
        own_addresses=tuple(config.get("own_addresses", ())),
        own_networks=tuple(config.get("own_networks", ())),
        cut=way.cut,
    )
    seen = observed(serve(policy_of(config), world, way.seed))
    first = first_final(answers(seen, b"CONNECT"))
    outcome: Outcome = {
        "verdict": "accept" if first and 200 <= first.status < 300 else "refuse",
        "status": first.status if first else None,
        "unanswering": list(config.get("connect_fails", ())),
        **outside(seen),
    }
    for _, host, port in seen.allowed[:1]:
        outcome |= {"host": host, "port": port}
    return outcome


def _names(config: dict[str, Any]) -> dict[str, tuple[Addresses, ...]]:
    """Return each name's addresses turn by turn.

    A name that is an alias is asked for by its own name, and its addresses come with it.
    """
    names: dict[str, tuple[Addresses, ...]] = {}
    for name, answer in config.get("dns", {}).items():
        names[name] = (_addresses(answer),)
    for name, turns in config.get("dns_turns", {}).items():
        names[name] = tuple(_addresses(turn) for turn in turns)
    # A resolver knows no case and no trailing dot; a name that is there as it is comes first.
    return {name.rstrip(".").lower(): answer for name, answer in names.items()} | names


def _addresses(answer: list[str] | dict[str, Any]) -> Addresses:
    if isinstance(answer, dict):
        unknown(answer, {"cname", "addresses"}, "key of a name's answer")
        answer = answer["addresses"]
    return tuple(answer)


def differences(came: Outcome, due: Outcome) -> list[str]:
    """Name each difference between what came and one right outcome."""
    unknown(due, DUE, "field of an outcome")
    found = at_first(came, due)
    if due.get("asks", "any") != "any":
        right = sorted(name.rstrip(".").lower() for name in due["asks"])
        found += compare("asks", sorted(came["asks"]), right)
    return found + by_verdict(came, due, _refusal, _acceptance)


def _refusal(came: Outcome, due: Outcome) -> list[str]:
    """Check that nothing was opened; only what doesn't answer may have been tried."""
    found = compare_refusal(came, due) + compare("connects", came["connects"], [])
    return found + _outside_of("dialled", came["dials"], came["unanswering"])


def _acceptance(came: Outcome, due: Outcome) -> list[str]:
    found = _same_host(came.get("host", ""), due["host"]) if "host" in due else []
    found += compare("port", came.get("port"), due["port"]) if "port" in due else []
    if "dials" in due:  # what doesn't answer may be tried before what does
        found += _outside_of("dialled", came["dials"], [*due["dials"], *came["unanswering"]])
        found += _outside_of("connected to", came["connects"], due["dials"])
    return found + compare("connections", len(came["connects"]), 1)


def _same_host(came: str, due: str) -> list[str]:
    """Compare hosts, addresses as addresses."""
    return [] if same_address(came, due) else compare("host", came, due)


def _outside_of(what: str, addresses: list[str], right: list[str]) -> list[str]:
    """Name each address that isn't one of those that are right."""
    return [
        f"{what} {each}, due one of {right}"
        for each in addresses
        if not any(same_address(each, other) for other in right)
    ]


SUITE = Suite(
    name="hosts_addresses",
    kinds=frozenset(
        {
            "address_form",
            "lan",
            "list_match",
            "literal",
            "metadata",
            "range",
            "rebinding",
            "tcp",
            "this_machine",
        }
    ),
    needs=frozenset({"hosts"}),
    # `localhost_ports` opens ports inside the sandbox; by way of the proxy it opens nothing.
    config=frozenset(
        {
            "connect_fails",
            "dns",
            "dns_turns",
            "lan",
            "localhost_ports",
            "no_internet",
            "own_addresses",
            "own_networks",
            "tcp",
        }
    ),
    fields=frozenset(),
    perform=perform,
    differences=differences,
)
