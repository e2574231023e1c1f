"""What the suites that drive whole calls share: one connection under the simulated shell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from fuzz.case_files import Outcome
from fuzz.http_reading import Message, Reader, answer_reader
from proto.calls.limits import Limits
from proto.calls.serve import serve_connection
from proto.commands import Receive, Send, Splice
from proto.policy.hosts import Policy
from proto.policy.records import Allowed, Record, Refusal
from proto.policy.secret import Secret
from proto.script import Script
from shells.sim_shell import run
from shells.sim_world import End, Saw, Transcript, World

LIMITS = Limits()

HELD_MAX_BYTES = 2 * 64 * 1024
"""The most that a script may hand to one `Send`, or ask of one `Receive`: a call's memory is
bounded to 64 KiB each way (R43), a hello's to what its reader takes."""


def policy_of(config: dict[str, Any]) -> Policy:
    """Return the policy that a case's `config` describes.

    `["*"]` is any host, as null is.  What no sandbox is made with (`wrap` refuses it by its
    key) opens nothing: the rest of its list stands.
    """
    lists = {key: config.get(key) or () for key in ("hosts", "lan", "tcp")}
    good = {key: [one for one in lists[key] if _makes(key, one)] for key in lists}
    any_host = config["hosts"] is None or config["hosts"] == ["*"]
    return Policy.of(
        None if any_host else good["hosts"],
        good["lan"],
        good["tcp"],
        no_internet=bool(config.get("no_internet", False)),
    )


def _makes(key: str, entry: str) -> bool:
    """Tell whether a policy can be made with an entry of one of its lists."""
    alone = {key: [entry]}
    try:
        Policy.of(alone.get("hosts", ()), alone.get("lan", ()), alone.get("tcp", ()))
    except ValueError:
        return False
    return True


def serve(policy: Policy, world: World, seed: int, secret: str | None = None) -> Transcript:
    """Run one connection through the product; what grows past its bounds is an error."""

    def script(now: float) -> Script[None]:
        return serve_connection(policy, LIMITS, Secret(secret) if secret else None, now)

    transcript = run(script, world, seed)
    for command in transcript.commands:
        match command:
            case Receive(limit=size):
                held = size
            case Send(to_client=down, to_upstream=up) | Splice(to_client=down, to_upstream=up):
                held = max(len(down), len(up))
            case _:
                held = 0
        if held > HELD_MAX_BYTES:
            raise ValueError(f"{held} bytes are held in one {type(command).__name__}")
    return transcript


@dataclass(frozen=True, slots=True)
class Observed:
    """What could be seen of one connection from outside, under whatever shell.

    `servers` has each server that was reached, its address and what it heard; `allowed`
    what was let through by name: the call's verb, its host and its port.  `own_status` is
    what the proxy says in its log that it answered the first call itself, 0 for nothing.
    """

    client: Saw
    servers: tuple[tuple[str, Saw], ...]
    asked: tuple[str, ...]
    dialled: tuple[str, ...]
    allowed: tuple[tuple[str, str, int], ...]
    own_status: int = 0


def observed(transcript: Transcript) -> Observed:
    """Return what the simulated shell's run looked like from outside."""
    lets = [record for record in transcript.log if isinstance(record, Allowed)]
    return Observed(
        transcript.client,
        tuple((dial.address, dial.saw) for dial in transcript.opened if dial.saw is not None),
        transcript.asked,
        tuple(dial.address for dial in transcript.dials),
        tuple((record.verb, record.host, record.port) for record in lets),
        next((own_status(record) for record in transcript.log if record not in lets), 0),
    )


def own_status(record: Record) -> int:
    """Return the status that the proxy itself gave a call, by the call's last line."""
    if isinstance(record, Refusal):
        return record.status
    status, colon, _ = getattr(record, "reason", "").partition(": ")
    return int(status) if colon and status.isdigit() else 0


def answers(seen: Observed, method: bytes) -> Reader:
    """Read what the client got, as the client of a request of that method reads it."""
    reader = answer_reader(method)
    reader.feed(seen.client.data)
    if seen.client.end is End.FIN:
        reader.end()
    return reader


def first_final(reader: Reader) -> Message | None:
    """Return the first answer that is no interim one."""
    finals = [m for m in reader.messages if m.status >= 200 or m.status == 101]
    return finals[0] if finals else None


def outside(seen: Observed) -> Outcome:
    """Return who was asked, dialled and reached."""
    return {
        "asks": list(seen.asked),
        "dials": list(seen.dialled),
        "connects": [address for address, _ in seen.servers],
    }


def same_address(one: str, other: str) -> bool:
    """Tell whether two texts are one address; an IPv4-mapped one is the IPv4 one that it is."""
    try:
        return _unmapped(one) == _unmapped(other)
    except ValueError:
        return False


def _unmapped(text: str) -> IPv4Address | IPv6Address:
    address = ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def touched(outcome: Outcome, never: list[str]) -> list[str]:
    """Return those of the names and addresses that were looked up or dialled."""
    asked = {name.rstrip(".").lower() for name in outcome["asks"]}
    return [
        each
        for each in never
        if each.rstrip(".").lower() in asked
        or any(same_address(each, dial) for dial in outcome["dials"])
    ]


def same_authority(one: str, other: str) -> bool:
    """Tell whether two texts are one host and port: names as texts, addresses as addresses."""
    if one == other:
        return True
    (host, port), (its, its_port) = map(_parted, (one, other))
    return port == its_port and same_address(host, its)


def _parted(text: str) -> tuple[str, str]:
    host, bracket, port = text.rpartition("]")
    if bracket:
        return host.removeprefix("["), port
    host, colon, port = text.partition(":")
    return (text, "") if ":" in port else (host, colon + port)


def compare(name: str, came: Any, due: Any) -> list[str]:
    """Return a difference in one value, or none."""
    return [] if came == due else [f"{name}: came {came!r}, due {due!r}"]


def compare_refusal(outcome: Outcome, due: Outcome) -> list[str]:
    """Compare how a call was refused: by a status that is right, or by closing."""
    status = outcome["status"]
    if status is None:
        closing = bool(due.get("or_close"))
        return [] if closing else ["status: closed without an answer"]
    right = due.get("status", range(400, 600))
    return [] if status in right else [f"status: came {status}, due {right}"]


def at_first(came: Outcome, due: Outcome) -> list[str]:
    """Compare the verdict, and who was never to be touched."""
    found = [f"touched: {each}" for each in touched(came, due.get("never_dials", []))]
    return found + compare("verdict", came["verdict"], due["verdict"])


Compare = Callable[[Outcome, Outcome], list[str]]


def by_verdict(came: Outcome, due: Outcome, refused: Compare, accepted: Compare) -> list[str]:
    """Compare the rest, as the verdict that is due has it."""
    match due["verdict"]:
        case "refuse":
            return refused(came, due)
        case "accept":
            return accepted(came, due)
        case other:
            raise ValueError(f"unknown verdict: {other!r}")


def values(got: Outcome, name: str) -> list[str]:
    """Return a field's values in what a server got."""
    return [value for key, value in got["fields"] if key == name.lower()]


def compare_fields(got: Outcome, due: Outcome) -> list[str]:
    """Compare the fields that a server got: those it `has`, once each, and those it `lacks`."""
    found: list[str] = []
    for name, value in due.get("has", {}).items():
        came = values(got, name)
        # A case is text: bytes over 0x7f stand there as the letters that they spell, or each
        # as the letter of its number.
        if came != [value.encode().decode("latin-1")]:
            found += compare(f"upstream.{name}", came, [value])
    return found + [f"upstream has {each}" for each in due.get("lacks", []) if values(got, each)]
