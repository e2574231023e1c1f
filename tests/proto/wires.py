"""Conversations with a wire and with a bridge, under the simulated shell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fuzz.http_reading import Message, answer_reader, request_reader
from proto.calls.limits import Limits
from proto.calls.mounts import Mount, Mounts
from proto.calls.serve import serve_connection
from proto.calls.ways import Ways
from proto.events import Cause
from proto.policy.admission import Admission
from proto.policy.hosts import Policy
from proto.policy.keys import Key
from proto.script import Script
from proto.verbs.bridge import Serve, bridge_connection
from shells.sim_shell import run
from shells.sim_world import (
    BRIDGE_PORT,
    TRUSTED,
    Cut,
    HearUntil,
    Leave,
    Say,
    Step,
    Steps,
    Transcript,
    World,
)

CALLER, SECRET = "C" * 32, "s" * 20
HEARD = HearUntil(lambda: request_reader().feed)
"""A server's step: it has a whole request."""
ADDRESS = "203.0.113.10"


def said(body: bytes = b"ok", status: str = "200 OK", **fields: str) -> Step:
    """Return the step by which a server says a whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return Say("\r\n".join([*lines, "", ""]).encode() + body)


def request(
    target: str, method: str = "GET", body: bytes | None = None, host: str = "a", **fields: str
) -> bytes:
    """Return a request's bytes."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    if body is not None and "Transfer_Encoding" not in fields:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def wire(
    client: bytes | Steps,
    mounts: Iterable[Mount],
    bridges: Mapping[str, Steps] | None = None,
    *,
    cut: Cut = Cut.WHOLE,
    seed: int = 0,
    cancels_on: Mapping[str, Cause] | None = None,
    servers: Mapping[tuple[str, int], Steps] | None = None,
    silent: tuple[str, ...] = (),
    cancels_before: Mapping[int, Cause] | None = None,
    admission: Admission | None = None,
) -> Transcript:
    """Run one connection of a program's to a wire with routes."""
    ways = Ways(
        mounts=Mounts(mounts, caller=Key(CALLER), secret=Key(SECRET), sandbox="box"),
        admission=admission,
    )
    world = World(
        client=(Say(client),) if isinstance(client, bytes) else client,
        servers={
            **{(name, BRIDGE_PORT): steps for name, steps in (bridges or {}).items()},
            **(servers or {}),
        },
        cut=cut,
        cancels_on=cancels_on or {},
        connect_fails=dict.fromkeys(silent),
        cancels_before=cancels_before or {},
    )

    def script(now: float) -> Script[None]:
        return serve_connection(Policy.of([]), Limits(), None, now, ways)

    return run(script, world, seed)


def bridge(
    asked: bytes | Steps,
    serve: Serve,
    *provider: Step,
    host: str = "api.example.com",
    names: Mapping[str, tuple[tuple[str, ...] | None, ...]] | None = None,
    tls: Mapping[str, object] | None = None,
    cut: Cut = Cut.WHOLE,
    seed: int = 0,
) -> Transcript:
    """Run one connection of a proxy's to a bridge whose provider stands at `host`."""
    world = World(
        client=(Say(asked),) if isinstance(asked, bytes) else asked,
        names=names or {},
        any_name=() if names else (ADDRESS,),
        any_server=(HEARD, *provider, Leave()),
        tls=tls if tls is not None else {host: TRUSTED},  # type: ignore[arg-type]
        cut=cut,
    )

    def script(now: float) -> Script[None]:
        return bridge_connection(serve, Key(CALLER), Limits(), now)

    return run(script, world, seed)


def answers(seen: Transcript, method: bytes = b"GET") -> list[Message]:
    """Return the final answers that a client got."""
    reader = answer_reader(method)
    reader.feed(seen.client.data)
    reader.end()
    return [message for message in reader.messages if message.status >= 200]


def heard(seen: Transcript) -> list[Message]:
    """Return the requests that servers got."""
    reader = request_reader()
    reader.feed(b"".join(dial.saw.data for dial in seen.opened if dial.saw is not None))
    return reader.messages


def fields(message: Message) -> dict[str, str]:
    """Return a message's fields by their names in small letters."""
    return dict(message.fields)
