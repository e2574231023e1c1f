"""The suite of `mcp`: a call to a tool that runs outside, or a tool's URL.

A call goes through the proxy, as far as its bridge, and then through the hub of its tool; the
tool is a server that answers whatever it is asked.  The pieces a case is cut into are those of
the request and of the tool's output.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fuzz.case_bridge import Wire, asked, bridge_hears, said
from fuzz.case_calls import compare, compare_refusal
from fuzz.case_files import WHOLE, Case, Outcome, Suite, Way, unknown
from fuzz.http_reading import answer_reader
from proto.calls.mounts import Mount
from proto.codecs.body import BodyReader
from proto.codecs.http1 import RequestHead, RequestReader, request_framing
from proto.codecs.url import MalformedUrl
from proto.errors import MalformedRequest
from proto.verbs.mcp import Hub
from proto.verbs.mcp_effects import Ask, Reply, Start, Stop, Write
from proto.verbs.mcp_remote import Open, Remote, check_url
from proto.verbs.mcp_rules import Rule
from shells.sim_world import Cut

INPUT = {"method", "target", "headers", "body", "body_b64"}
TOOL_KEYS = {"ask", "allow"}
SESSION = "session-0123456789"
WELCOME = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "double", "version": "1"},
}
ANSWERS = frozenset({"yes", "no", "silence"})
SLOWLY_MAX_BYTES = 16 << 10
"""A longer request comes whole: what is cut of it is the codec's, which other files try."""

LATE_S = 600.0
TICK_S = 1.0
SILENCE_S = 120.0


@dataclass
class Double:
    """The tool's server: it notes what it gets, and answers as the case says."""

    config: dict[str, Any]
    way: Way
    got: list[bytes] = field(default_factory=list)
    noted: bool = True
    asked: list[object] = field(default_factory=list)
    """The ids of its own requests."""

    def hear(self, data: bytes) -> list[bytes]:
        """Take what is written to its standard input; return its output, cut into pieces."""
        said = b""
        for line in data.splitlines(keepends=True) if not self.noted else data.split(b"\n"):
            if line:
                said += self._answer(line)
        return list(self._cut(said))

    def _answer(self, line: bytes) -> bytes:
        message = json.loads(line)
        if self.noted and message.get("id") in self.asked and "method" not in message:
            return b""  # the wire's own answer to what the tool asked, a ping say
        if self.noted:
            self.got.append(line)
            if "tool_writes_b64" in self.config:
                return self._says()
        if "id" not in message or "method" not in message:
            return b""
        result: dict[str, Any] = {}
        if message["method"] == "initialize":
            result = WELCOME
        elif message["method"] == "tools/list":
            says = self.config.get("tool_says", {})
            result = {"tools": [{"name": name, **said} for name, said in says.items()]}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return json.dumps(answer).encode() + b"\n"

    def _says(self) -> bytes:
        """Return what the case has it write, once it has the call."""
        said, self.config = base64.b64decode(self.config["tool_writes_b64"]), {}
        for line in said.split(b"\n"):
            with suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict) and "method" in message:
                    self.asked.append(message.get("id"))
        return said

    def _cut(self, said: bytes) -> Iterator[bytes]:
        rng = Random(self.way.seed)  # chance that must replay, no secret
        while said:
            size = len(said)
            if self.way.cut is Cut.BYTES:
                size = 1
            elif self.way.cut is Cut.RANDOM:
                size = rng.randint(1, len(said))
            yield said[:size]
            said = said[size:]


@dataclass
class Outside:
    """The hub, its tool's server and the person, played together."""

    hub: Hub
    double: Double
    answer: str
    asked: list[str] = field(default_factory=list)
    replies: dict[int, bytes] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    now: float = 100.0
    running: bool = False
    exits: bool = False

    def call(self, number: int, head: RequestHead, body: bytes) -> None:
        """Send a request and play on until nothing more happens."""
        self.hub.request(number, head, body, self.now)
        self.play()
        while number not in self.done and self.now < LATE_S:
            self.now += TICK_S
            self.hub.tick(self.now)
            self.play()

    def play(self) -> None:
        """Do what the hub wants done."""
        while effects := self.hub.take():
            for effect in effects:
                self._do(effect)

    def _do(self, effect: object) -> None:
        match effect:
            case Start():
                self.running = True
            case Stop():
                self.running = False
            case Write(data=data):
                assert self.running, "written to no process"
                for piece in self.double.hear(data):
                    self.hub.read(piece, self.now)
                if self.double.noted and self.exits:
                    self.running = False
                    self.hub.ended(self.now)
            case Ask(number=number, text=text):
                self._ask(number, text)
            case Reply(call=call, data=data, last=last):
                assert call not in self.done, "more after the end"
                self.replies[call] = self.replies.get(call, b"") + data
                self.done |= {call} if last else set()
            case _:
                raise ValueError(f"unknown effect: {effect!r}")

    def _ask(self, number: int, text: str) -> None:
        self.asked.append(text)
        if not (text.isascii() and text.replace("\n", "").isprintable()):
            raise ValueError(f"the question isn't plain: {text!r}")
        if self.answer == "silence":
            self.now += SILENCE_S
        why = "the person said no." if self.answer == "no" else "nobody answered."
        self.hub.answered(number, yes=self.answer == "yes", why=why, now=self.now)


def perform(case: Case, way: Way) -> Outcome:
    """Do what a case says, and say what came of it."""
    match case["kind"]:
        case "remote_url":
            return _remote_url(case)
        case "remote_redirect":
            return _remote_redirect(case)
    config, given = case["config"], case["input"]
    unknown(given, INPUT, "key of an input")
    refused: Outcome = {
        "verdict": "refuse", "status": None, "asks": False, "to_tool": [], "lines": 0,
        "answer_has": [],
    }  # fmt: skip
    request = asked(case, given["target"])
    slowly = way if len(request) <= SLOWLY_MAX_BYTES else WHOLE
    heard, status = bridge_hears(slowly, _wire(config), request)
    if not heard:
        return refused | {"status": status}
    found = RequestReader().feed(heard)
    assert found is not None, "the bridge hears a whole head"
    head, rest = found
    body = b"".join(BodyReader(request_framing(head), MalformedRequest).feed(rest))
    tools = {f"/{name}": name for name in config["tools"]}
    name = tools.get(head.target.decode("latin-1"))
    if name is None:
        return refused | {"status": 404}
    return _call(given, config, name, head, body, way)


def _wire(config: dict[str, Any]) -> Wire:
    """Return the wire of a sandbox that names a case's tools."""
    mounts = tuple(
        Mount(f"mcp/{name}".encode(), "tool", "tool", f"/{name}".encode(), needs_secret=True)
        for name in config["named"]
    )
    return Wire(mounts, secret=config["url_secret"])


def _call(
    given: dict[str, Any],
    config: dict[str, Any],
    name: str,
    head: RequestHead,
    body: bytes,
    way: Way,
) -> Outcome:
    tool = config["tools"][name]
    unknown(tool, TOOL_KEYS, "key of a tool")
    rule = Rule(asks={"all": True, "none": False}[tool["ask"]], allow=frozenset(tool["allow"]))
    answer = config.get("answer", "silence")
    if answer not in ANSWERS:
        raise ValueError(f"unknown answer of the person's: {answer!r}")
    outside = Outside(Hub(name, rule, lambda: SESSION), Double(config, way), answer)
    named = any(field.lower() == "mcp-session-id" for field, _ in given["headers"])
    if not named and not _begins(body):
        _begin_session(outside)
        head = with_field(head, (b"mcp-session-id", SESSION.encode()))
    outside.double.noted = True
    outside.exits = bool(config.get("tool_exits"))
    outside.asked.clear()
    outside.call(7, head, body)
    return _outcome(outside, given["method"])


def with_field(head: RequestHead, field: tuple[bytes, bytes]) -> RequestHead:
    """Return a head with one field more."""
    return RequestHead(head.method, head.target, head.version, (*head.fields, field))


def _begin_session(outside: Outside) -> None:
    """Begin a session, and have its server list its calls."""
    outside.double.noted = False
    first = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
    head = RequestHead("POST", b"/", (1, 1), ((b"content-type", b"application/json"),))
    for number, method, params in ((1, "initialize", first), (2, "tools/list", {})):
        message = {"jsonrpc": "2.0", "id": f"case-{number}", "method": method, "params": params}
        outside.call(number, head, json.dumps(message).encode())
        head = with_field(head, (b"mcp-session-id", SESSION.encode()))


def _begins(body: bytes) -> bool:
    """Tell whether a request begins a session itself."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("method") == "initialize"


def _outcome(outside: Outside, method: str) -> Outcome:
    """Return what came of a call, in the words of `expect`."""
    reader = answer_reader(method.encode())
    reader.feed(outside.replies.get(7, b""))
    first = reader.messages[0] if reader.messages else None
    to_tool = [json.loads(line) for line in outside.double.got]
    outcome: Outcome = {
        "status": first.status if first else None,
        "asks": bool(outside.asked),
        "to_tool": to_tool,
        "lines": len(outside.double.got),
        "answer_has": sorted({name for name, _ in first.fields}) if first else [],
        "ended": 7 in outside.done,
        "questions": list(outside.asked),
        "client": _client(bytes(first.body)) if first else {},
    }
    denied = outside.asked and not to_tool
    outcome["verdict"] = "accept" if to_tool else "denied" if denied else "refuse"
    if method in ("GET", "DELETE") and outcome["status"] in (200, 204) and not outside.asked:
        # A stream of the session's, which stays open, or its end: the hub's own to answer, so
        # the tool gets nothing of it, and its status alone says which it was.
        outcome |= {"verdict": "accept", "ended": True, "own": True}
    return outcome


def _client(body: bytes) -> Outcome:
    """Return the answer in a body, JSON or the last event of a stream."""
    lines = [line for line in body.split(b"\n") if line.startswith(b"data: ")]
    text = lines[-1].removeprefix(b"data: ") if lines else body
    if not text or text.startswith(b":"):
        return {}  # nothing, or a stream's comment alone
    message = json.loads(text)
    if "error" in message:
        return {"error": message["error"], "error_code": message["error"]["code"]}
    return {"result": message["result"]} if "result" in message else {}


def _remote_url(case: Case) -> Outcome:
    try:
        check_url(case["input"])
    except MalformedUrl as error:
        return {"verdict": "refuse", "why": str(error)}
    return {"verdict": "accept"}


def _remote_redirect(case: Case) -> Outcome:
    """Send a call with the token, answered by a redirect; note every connection there is."""
    config, answer = case["config"], case["input"]["answer"]
    unknown(case["input"], {"answer"}, "key of an input")
    url = check_url(config["url"])
    host = f"[{url.host}]" if ":" in url.host else url.host
    origin = f"{host}:{url.port}"
    remote = Remote(url, (("Authorization", f"Bearer {config['token']}"),))
    remote.line(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}')
    dials, seen, lines = [], [], []
    while effects := remote.take():
        for effect in effects:
            if isinstance(effect, Open):
                dials.append(origin)  # a shell connects to the URL's own origin alone
                seen += [origin] if config["token"].encode() in effect.data else []
                remote.hear(effect.call, said({"answer": answer}))
                remote.hear(effect.call, b"")  # and closes
            elif hasattr(effect, "data"):
                lines.append(json.loads(effect.data))
    refused = all("error" in line for line in lines) and bool(lines)
    return {
        "verdict": "refuse" if refused else "accept",
        "token_goes_to": sorted(set(seen)),
        "dials": dials,
    }


KNOWN = {
    "verdict", "status", "also_ok", "asks", "to_tool", "client", "lines", "answer_lacks",
    "token_goes_to", "never_dials", "or_close",
}  # fmt: skip


def differences(outcome: Outcome, due: Outcome) -> list[str]:
    """Name each way in which an outcome isn't the one that is due."""
    unknown(due, KNOWN, "key of an outcome")
    own = outcome.get("own", False)
    found = [] if own else compare("verdict", outcome["verdict"], due["verdict"])
    if found:
        return found
    if "status" in due or (own and due["verdict"] == "refuse"):
        found += compare_refusal(outcome, due)
    if due["verdict"] == "refuse" and outcome.get("status") == 200 and not own:
        found += [] if outcome.get("client", {}).get("error") else ["a 200 without an error"]
    for key in ("asks", "lines", "token_goes_to"):
        found += compare(key, outcome[key], due[key]) if key in due else []
    # A case that accepts without it: a number of thousands of digits, which its own file
    # can't hold.
    if "to_tool" in due and (due["to_tool"] or due["verdict"] != "accept"):
        found += compare("to_tool", outcome["to_tool"], due["to_tool"])
    if outcome.get("ended") is False:
        found.append("the call has no end")
    found += [
        f"the answer has {n}" for n in due.get("answer_lacks", ()) if n in outcome["answer_has"]
    ]
    return found + _of_client(outcome, due) + _of_dials(outcome, due)


def _of_client(outcome: Outcome, due: Outcome) -> list[str]:
    found: list[str] = []
    wanted = dict(due.get("client", {}))
    if wanted.get("error") == "any" or due["verdict"] == "denied":
        wanted.pop("error", None)
        found += [] if outcome["client"].get("error") else ["client: no error came"]
    for key, value in wanted.items():
        found += compare(f"client.{key}", outcome["client"].get(key), value)
    return found


def _of_dials(outcome: Outcome, due: Outcome) -> list[str]:
    dials = outcome.get("dials", [])
    hosts = {dial.rpartition(":")[0].strip("[]") for dial in dials} | set(dials)
    return [f"dialled {each}" for each in due.get("never_dials", ()) if each in hosts]


SUITE = Suite(
    name="mcp",
    kinds=frozenset(
        {
            "plain", "address", "http", "message", "json", "hints", "tool_output",
            "remote_url", "remote_redirect",
        }
    ),
    needs=frozenset(),
    config=frozenset(
        {
            "tools", "named", "url_secret", "answer", "tool_says", "tool_writes_b64",
            "tool_exits", "url", "token",
        }
    ),
    fields=frozenset(),
    perform=perform,
    differences=differences,
)  # fmt: skip
