"""Fuzz target: a tool's hub (`proto.verbs.mcp`); its corpus is `corpus/mcp`.

The input is a list of lines, each one thing that happens to the hub: what a client sends,
what the server says, an answer, a departure, the server's end, time.
"""

from __future__ import annotations

from itertools import count

from proto.codecs.http1 import RequestReader
from proto.codecs.jsonrpc import MESSAGE_MAX_BYTES, Answer, Id, MalformedMessage, Request, read
from proto.verbs.mcp import Hub
from proto.verbs.mcp_effects import Ask, Reply, Start, Stop, Write
from proto.verbs.mcp_rules import ELICITATION, Rule, asks, is_plain_no

RULE = Rule(asks=True, allow=frozenset({"f"}))
HEADS = {
    b"P": "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\r\n",
    b"S": "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    "mcp-session-id: s1\r\n\r\n",
    b"M": "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    "mcp-protocol-version: 2026-07-28\r\n\r\n",
    b"G": "GET / HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nmcp-session-id: s1\r\n\r\n",
    b"D": "DELETE / HTTP/1.1\r\nhost: x\r\nmcp-session-id: s1\r\n\r\n",
}


def one_input(data: bytes) -> None:
    """Play the lines: nothing that asks reaches the server without a yes."""
    names, calls = count(1), count(1)
    hub = Hub("t", RULE, lambda: f"s{next(names)}")
    play = _Play(hub)
    now = 0.0
    for line in data.split(b"\n")[:100]:
        kind, rest = line[:1], line[1:]
        now += 1
        if kind in HEADS:
            found = RequestReader().feed(HEADS[kind].encode())
            assert found is not None
            hub.request(next(calls), found[0], rest, now)
        elif kind == b">":
            play.said(rest)
            hub.read(rest + b"\n", now)
        elif kind in (b"y", b"n"):
            play.allowed += kind == b"y" and len(rest) + 1 in hub._questions
            play.agreed += kind == b"y" and len(rest) + 1 in hub._consents
            hub.answered(len(rest) + 1, yes=kind == b"y", why="no.", now=now)
        elif kind == b"l":
            hub.left(len(rest) + 1, now)
        elif kind == b"x":
            hub.ended(now)
        else:
            now += 5
            hub.tick(now)
        play.on()


class _Play:
    """Holds what the hub does to its promises."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.allowed = self.agreed = 0
        self.seen: set[Id] = set()
        """By what ids the server has asked something, and of those, once, its person."""
        self.elicited: set[Id] = set()
        self.running = False
        self.ended: set[int] = set()

    def said(self, line: bytes) -> None:
        """Take what the server says."""
        try:
            message = read(line)
        except MalformedMessage:
            return
        if isinstance(message, Request):
            if message.method == ELICITATION and message.id not in self.seen:
                self.elicited.add(message.id)
            else:
                self.elicited.discard(message.id)
            self.seen.add(message.id)

    def on(self) -> None:
        for effect in self.hub.take():
            match effect:
                case Start() | Stop():
                    assert self.running is isinstance(effect, Stop)
                    self.running = isinstance(effect, Start)
                case Write(data=data):
                    self._written(data)
                case Ask(text=text):
                    assert text.isascii()
                    assert text.replace("\n", "").isprintable()
                case Reply(call=call, last=last):
                    assert call not in self.ended
                    self.ended |= {call} if last else set()
        # `ended` has no effect of its own: what was running is gone.
        self.running = self.hub._server._running

    def _written(self, data: bytes) -> None:
        assert len(data) < MESSAGE_MAX_BYTES
        assert len(data.splitlines()) == 1
        try:
            message = read(data)
        except MalformedMessage as error:
            raise AssertionError(f"malformed: {error.message}") from None
        if isinstance(message, Request) and asks(RULE, message):
            self.allowed -= 1
            assert self.allowed >= 0, "it was to be asked about"
        if isinstance(message, Answer) and message.error is None and message.id in self.elicited:
            self.agreed -= not is_plain_no(message.result)
            assert self.agreed >= 0, "nobody has agreed to it"
