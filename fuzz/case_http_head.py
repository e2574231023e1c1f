"""The suite of `http_head`: what a program sends to the proxy's listener."""

from __future__ import annotations

import base64
from itertools import chain

from fuzz.case_calls import (
    Observed,
    answers,
    first_final,
    observed,
    outside,
    policy_of,
    serve,
)
from fuzz.case_files import Case, Outcome, Suite, Way, says, segments
from fuzz.case_http_due import differences
from fuzz.http_reading import Message, Reader, request_reader
from proto.commands import CLIENT, Connect, Receive
from proto.events import Received
from shells.sim_world import Fin, HearUntil, Leave, Say, Steps, Transcript, World

ADDRESS = "203.0.113.10"
"""Every name that is looked up has this one."""

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
"""What a server says here once it has a whole request, where the case doesn't say."""


def perform(case: Case, way: Way) -> Outcome:
    """Send a case's bytes to the proxy, and say what came of them."""
    config = case["config"]
    world = World(
        client=(*says(case, way), *((Fin(),) if case.get("eof") else ())),
        any_name=(ADDRESS,),
        any_server=server_of(case),
        cut=way.cut,
    )
    transcript = serve(policy_of(config), world, way.seed, config.get("pointed_secret"))
    return outcome_of(case, observed(transcript), _read_for_hello(transcript))


def method_of(case: Case) -> bytes:
    """Return the method of a case's first request, as the program means it."""
    return _first_line(case).partition(b" ")[0]


def _first_line(case: Case) -> bytes:
    return b"".join(segments(case)).partition(b"\r\n")[0]


def server_of(case: Case) -> Steps:
    """Return what a server does: nothing in a tunnel, else it answers each whole request."""
    heard = HearUntil(lambda: request_reader().feed)
    if "upstream_b64" in case:
        said = base64.b64decode(case["upstream_b64"])
        leaves = (Leave(),) if case.get("upstream_closes") else ()
        return (heard, *((Say(said),) if said else ()), *leaves)
    return () if method_of(case) == b"CONNECT" else (heard, Say(ANSWER)) * 3


def outcome_of(case: Case, seen: Observed, hello: bytes | None) -> Outcome:
    """Return all that is compared, in the words of `expect`.

    `servers` counts the requests of each connection as a server reads them.  `hello` is
    what the proxy itself read of a tunnel, None where it read nothing.
    """
    reader = answers(seen, method_of(case))
    first = first_final(reader)
    # A CONNECT behind the first call has a connection of its own, the last one: what goes
    # down it is a tunnel's, and no server's to read as requests.
    tunnels = sum(verb == "connect" for verb, _, _ in seen.allowed[1:])
    plain = seen.servers[: max(1, len(seen.servers) - tunnels)]
    servers = [_as_a_server(saw.data) for _, saw in plain]
    messages = [message for server in servers for message in server.messages]
    outcome: Outcome = {
        "verdict": "refuse",
        "status": first.status if first else None,
        "old_client": _first_line(case).endswith(b" HTTP/1.0"),
        "answer_has": sorted({name for name, _ in first.fields}) if first else [],
        "answers": [message.status for message in reader.messages if message.status >= 200],
        "servers": [*(len(server.messages) for server in servers), *[0] * tunnels],
        "behind_b64": [_b64(server.rest) for server in servers],
        "upstream_complete": any(message.complete for message in messages),
        "untidy": [
            _b64(b" ".join(m.words)) for m in chain(reader.messages, messages) if not m.tidy
        ],
        **outside(seen),
    }
    for verb, host, port in seen.allowed[:1]:
        form = "connect" if verb == "connect" else "absolute"
        outcome["request"] = {"form": form, "host": host, "port": port}
        if form == "connect":
            outcome |= _tunnelled(outcome, seen, hello)
        else:
            outcome |= _forwarded(case, outcome, first, messages, seen.own_status)
            if first is not None and first.status == 101:
                outcome |= _switched(outcome, reader)
    return outcome


def _as_a_server(data: bytes) -> Reader:
    reader = request_reader()
    reader.feed(data)
    return reader


def _tunnelled(outcome: Outcome, seen: Observed, hello: bytes | None) -> Outcome:
    """Return what of the input was taken for the tunnel's.

    A tunnel in which a hello is read reaches the server only if it is one, which isn't
    judged here: then what was read of it counts.
    """
    request = {**outcome["request"], "method": "CONNECT"}
    if outcome["status"] is None or not 200 <= outcome["status"] < 300:
        return {"request": request}
    reached = b"".join(saw.data for _, saw in seen.servers)
    return {
        "verdict": "accept",
        "request": request,
        "tunnel_b64": _b64(reached if hello is None else hello),
        "hello_read": hello is not None,
        "upstream_complete": False,
        "untidy": [],
    }


def _read_for_hello(transcript: Transcript) -> bytes | None:
    """Return what the proxy read of a tunnel by itself; None where it read nothing."""
    commands = transcript.commands
    connected = next((n for n, c in enumerate(commands) if isinstance(c, Connect)), len(commands))
    if not any(isinstance(command, Receive) for command in commands[connected:]):
        return None
    events = [each.event for each in transcript.performed]
    taken = b"".join(e.data for e in events if isinstance(e, Received) and e.side is CLIENT)
    return taken.partition(b"\r\n\r\n")[2]


def _forwarded(
    case: Case, outcome: Outcome, first: Message | None, messages: list[Message], own: int
) -> Outcome:
    """Return what the server got; the call is accepted where the server's own answer came back."""
    found: Outcome = {}
    if messages:
        request = messages[0]
        method = request.words[0].decode("latin-1")
        found["request"] = {**outcome["request"], "method": method}
        found["upstream"] = {
            "method": method,
            "target": request.words[1].decode("latin-1"),
            "host": request.values("host"),
            "fields": sorted(request.fields),
        }
        found["body"] = {
            "framing": request.framing,
            "length": len(request.body),
            "data_b64": _b64(request.body),
        }
    if first is not None and not own and first.status in _statuses(case):
        found["verdict"] = "accept"
        found["client"] = {
            "status": first.status,
            "framing": first.framing,
            "body_b64": _b64(first.body),
            "content_length": first.values("content-length"),
            "complete": first.complete,
        }
    return found


def _switched(outcome: Outcome, reader: Reader) -> Outcome:
    """Return what differs where both sides are a WebSocket's: what follows is its frames."""
    found: Outcome = {"behind_b64": []}
    if "client" in outcome:
        found["client"] = {**outcome["client"], "body_b64": _b64(reader.rest)}
    return found


def _statuses(case: Case) -> set[int]:
    """Return the statuses of the server's own final answers."""
    said = base64.b64decode(case["upstream_b64"]) if "upstream_b64" in case else ANSWER
    words = [line.split()[1:2] for line in said.split(b"\n") if line.startswith(b"HTTP/")]
    return {int(word[0]) for word in words if word and word[0].isdigit()}


def _b64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode()


SUITE = Suite(
    name="http_head",
    kinds=frozenset(
        {
            "after_head",
            "authority",
            "chunk",
            "control",
            "cut",
            "framing",
            "header",
            "hop_by_hop",
            "line_ending",
            "other_protocol",
            "proxy_auth",
            "request_line",
            "response",
            "size",
            "transfer_encoding",
            "unicode_host",
            "valid",
            "valid_client",
            "verb_path",
        }
    ),
    needs=frozenset({"hosts"}),
    # No route is mounted by a bare proxy: whatever `routes` turns on must be refused in
    # every spelling that isn't its own, and its own spelling is its suite's to judge.
    config=frozenset({"pointed_secret", "routes", "url_secret"}),
    fields=frozenset({"upstream_b64", "upstream_closes"}),
    perform=perform,
    differences=differences,
)
