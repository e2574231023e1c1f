"""A hub with its clients, its server and its person at hand, for tests."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from proto.codecs.http1 import RequestHead, RequestReader
from proto.verbs.mcp import Hub
from proto.verbs.mcp_effects import Ask, Reply, Start, Stop, Withdraw, Write
from proto.verbs.mcp_rules import Rule

WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s"}}
CALL = {"name": "f", "arguments": {"x": 1}}
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def head_of(method: str, **fields: str) -> RequestHead:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    found = RequestReader().feed(f"{method} / HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode())
    assert found is not None
    return found[0]


class Stage:
    """`wrote`: messages the server got and that no test has taken yet; `asks`: questions."""

    def __init__(self, *allow: str, asks: bool = True) -> None:
        names = count(1)
        self.hub = Hub("notes", Rule(asks=asks, allow=frozenset(allow)), lambda: f"s{next(names)}")
        self.now = 1000.0
        self.calls = count(1)
        self.wrote: list[dict[str, Any]] = []
        self.asks: list[Ask] = []
        self.withdrawn: list[int] = []
        self.starts = self.stops = 0
        self.replies: dict[int, bytes] = {}
        self.ended: set[int] = set()

    def play(self) -> None:
        for effect in self.hub.take():
            match effect:
                case Start():
                    self.starts += 1
                case Stop():
                    self.stops += 1
                case Write(data=data):
                    assert data.endswith(b"\n")
                    assert data.count(b"\n") == 1
                    self.wrote.append(json.loads(data))
                case Ask():
                    self.asks.append(effect)
                case Withdraw(number=number):
                    self.withdrawn.append(number)
                case Reply(call=call, data=data, last=last):
                    assert call not in self.ended
                    self.replies[call] = self.replies.get(call, b"") + data
                    self.ended |= {call} if last else set()

    def send(self, method: str, body: bytes = b"", **fields: str) -> int:
        number = next(self.calls)
        self.hub.request(number, head_of(method, **fields), body, self.now)
        self.play()
        return number

    def post(self, message: object, session: str | None = None, **fields: str) -> int:
        if session is not None:
            fields["mcp_session_id"] = session
        fields = {"content_type": "application/json"} | fields
        return self.send("POST", json.dumps(message).encode(), **fields)

    def request(
        self, method: str, params: object = None, *, id_: object = 1, session: str | None = "s1"
    ) -> int:
        message = {"jsonrpc": "2.0", "id": id_, "method": method}
        return self.post(message | ({} if params is None else {"params": params}), session)

    def tell(self, method: str, params: object = None, session: str = "s1") -> int:
        message = {"jsonrpc": "2.0", "method": method}
        return self.post(message | ({} if params is None else {"params": params}), session)

    def modern(self, method: str, params: dict[str, Any] | None = None, id_: object = 1) -> int:
        params = {"_meta": MODERN_META} | (params or {})
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        return self.post(message, mcp_protocol_version="2026-07-28", mcp_method=method)

    def say(self, *messages: object) -> None:
        """Have the server say messages."""
        self.hub.read(b"".join(json.dumps(m).encode() + b"\n" for m in messages), self.now)
        self.play()

    def result(self, id_: object, result: object = None) -> None:
        self.say({"jsonrpc": "2.0", "id": id_, "result": {} if result is None else result})

    def notify(self, method: str, params: object) -> None:
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, *, yes: bool) -> None:
        """Have the person answer the question that came last."""
        self.hub.answered(self.asks[-1].number, yes=yes, why="no.", now=self.now)
        self.play()

    def leave(self, call: int) -> None:
        self.hub.left(call, self.now)
        self.play()

    def die(self) -> None:
        self.hub.ended(self.now)
        self.play()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.hub.tick(self.now)
        self.play()

    def begin(self, id_: object = "i") -> str:
        """Begin a session; return its name."""
        call = self.request("initialize", {"protocolVersion": "2025-11-25"}, id_=id_, session=None)
        if call not in self.ended:
            self.result(self.take()["id"], WELCOME)
        session = self.field(call, "Mcp-Session-Id")
        assert session is not None
        self.tell("notifications/initialized", session=session)
        self.wrote.clear()
        return session

    def take(self) -> dict[str, Any]:
        """Return the next message that the server got."""
        return self.wrote.pop(0)

    # What clients got.

    def status(self, call: int) -> int:
        return int(self.replies[call].split(b" ", 2)[1])

    def field(self, call: int, name: str) -> str | None:
        for line in self.replies[call].partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]:
            if line.lower().startswith(f"{name.lower()}: "):
                return line.partition(": ")[2]
        return None

    def body(self, call: int) -> dict[str, Any]:
        """Return a JSON answer."""
        assert self.field(call, "Content-Type") == "application/json"
        body = self.replies[call].partition(b"\r\n\r\n")[2]
        assert len(body) == int(self.field(call, "Content-Length") or -1)
        found: dict[str, Any] = json.loads(body)
        return found

    def events(self, call: int) -> list[dict[str, Any]]:
        """Return the messages of a stream so far."""
        assert self.field(call, "Content-Type") == "text/event-stream"
        lines = self.replies[call].partition(b"\r\n\r\n")[2].split(b"\n")
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]

    def error(self, call: int) -> int:
        """Return the code of the error that a call ended with."""
        body = self.body(call)
        return int(body["error"]["code"])
