"""Doubles of the providers' APIs: what they answer is chosen by the model that is asked for.

    plain       a plain answer, or a stream of three pieces
    waits       a stream whose rest comes once the list of models was asked for
    tools       a call of get_weather
    limited     429        overloaded  529        refused  401
    echo        401, and says back the whole request, key and all
    slips       200, and says the key back in a field and in the body
    redirect    a redirect that has the key in it
    coded       an answer in a coding that nobody asked for
    cut         half of an answer

The shapes are those of each provider's own documentation.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.net.servers import Connection

Json = dict[str, Any]
PIECES = ("hel", "lo ", "there")
TEXT = "".join(PIECES)
CUT = object()
"""In a stream: the connection ends here."""
WAIT = object()
"""In a stream: the rest comes once the models were asked for."""


class Double:
    """One provider.  `calls` keeps each request's head and body, as they came.

    `on_models` is called when the list of models is asked for.
    """

    def __init__(self, speak: Callable[[str, str, bool], Iterator[Any]], error: Any) -> None:
        self.calls: list[tuple[bytes, Json]] = []
        self.asked_for_models = threading.Event()
        self.on_models: Callable[[], None] | None = None
        self._speak, self._error = speak, error

    def __call__(self, connection: Connection) -> None:
        """Serve one connection, which carries one call."""
        head, _, body = connection.until(b"\r\n\r\n").partition(b"\r\n\r\n")
        length = int((re.search(rb"(?i)\r\ncontent-length: (\d+)", head) or [b"", b"0"])[1])
        while len(body) < length:
            if not (data := connection.recv()):
                return  # it left: there is nobody to answer
            body += data
        self.calls.append((head, json.loads(body) if body else {}))
        self._answer(connection, head, json.loads(body) if body else {})

    def _answer(self, connection: Connection, head: bytes, body: Json) -> None:
        path = head.split(b" ")[1].decode()
        if head.startswith(b"GET "):
            self.asked_for_models.set()
            if self.on_models is not None:
                self.on_models()
        named = re.search(r"/models/([^:]+):", path)
        model = body.get("model") or (named[1] if named else "")
        key = head.partition(b"sk-real-")[2].partition(b"\r\n")[0]
        match model:
            case "limited":
                self._say(connection, 429, self._error("slow down"), "Retry-After: 7")
            case "overloaded":
                self._say(connection, 529, self._error("overloaded"))
            case "refused":
                self._say(connection, 401, self._error("no"))
            case "echo":
                said = head.decode("latin-1")
                self._say(connection, 401, self._error(said), f"X-Echo: {said.splitlines()[2]}")
            case "slips":
                self._say(connection, 200, {"key": f"sk-real-{key.decode()}"})
            case "redirect":
                to = f"Location: https://evil.test/?key=sk-real-{key.decode()}"
                self._say(connection, 307, {}, to)
            case "coded":
                self._say(connection, 200, {}, "Content-Encoding: gzip")
            case _:
                streams = bool(body.get("stream")) or "stream" in path
                self._stream(connection, model, self._speak(path, model, streams), streams)

    def _say(self, connection: Connection, status: int, body: Json, *fields: str) -> None:
        text = json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(text)}"]
        lines += ["Content-Type: application/json", "Set-Cookie: a=b", *fields, "", ""]
        connection.send("\r\n".join(lines).encode() + text)

    def _stream(
        self, connection: Connection, model: str, said: Iterator[Any], streams: bool
    ) -> None:
        if not streams:
            body = next(said)
            text = json.dumps(body).encode()
            kind = "Content-Type: application/json"
            head = f"HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {len(text)}\r\n\r\n".encode()
            connection.send(head + (text[:20] if model == "cut" else text))
            return
        kind = "Content-Type: text/event-stream"
        connection.send(f"HTTP/1.1 200 OK\r\n{kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for number, event in enumerate(said):
            if model == "cut" and number == 2:
                return
            if model == "waits" and number == 4:
                assert self.asked_for_models.wait(60)
            connection.send(b"%x\r\n%b\r\n" % (len(event), event))
        connection.send(b"0\r\n\r\n")


def sse(said: object, name: str = "") -> bytes:
    """Print one event."""
    event = f"event: {name}\n" if name else ""
    return f"{event}data: {json.dumps(said)}\n\n".encode()


# -- Anthropic ------------------------------------------------------------------------------

USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 30,
    "output_tokens": 5,
}


def anthropic(path: str, model: str, streams: bool) -> Iterator[Any]:
    if path == "/v1/models":
        yield {"data": [{"id": "plain", "type": "model", "display_name": "p",
                         "created_at": "2025-01-01T00:00:00Z"}], "has_more": False}  # fmt: skip
        return
    if path.endswith("/count_tokens"):
        yield {"input_tokens": 3}
        return
    content: list[Json] = [{"type": "text", "text": TEXT}]
    stop = "end_turn"
    if model == "tools":
        content = [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "x"}}]
        stop = "tool_use"
    message: Json = {"id": "m1", "type": "message", "role": "assistant", "model": model,
                     "content": content, "stop_reason": stop, "stop_sequence": None,
                     "usage": USAGE}  # fmt: skip
    if not streams:
        yield message
        return
    start = {**message, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    yield sse({"type": "message_start", "message": start}, "message_start")
    block = {"type": "text", "text": ""}
    name = "content_block_start"
    yield sse({"type": name, "index": 0, "content_block": block}, name)
    for piece in PIECES:
        delta = {"type": "text_delta", "text": piece}
        name = "content_block_delta"
        yield sse({"type": name, "index": 0, "delta": delta}, name)
    yield sse({"type": "content_block_stop", "index": 0}, "content_block_stop")
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    last = {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}}
    yield sse(last, "message_delta")
    yield sse({"type": "message_stop"}, "message_stop")


def anthropics_error(message: str) -> Json:
    return {"type": "error", "error": {"type": "x", "message": message}}


# -- OpenAI and Mistral ---------------------------------------------------------------------

CHATS_USAGE = {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15,
               "prompt_tokens_details": {"cached_tokens": 8}}  # fmt: skip
RESPONSES_USAGE = {
    "input_tokens": 11, "output_tokens": 4, "total_tokens": 15,
    "input_tokens_details": {"cached_tokens": 8}, "output_tokens_details": {"reasoning_tokens": 0},
}  # fmt: skip


def openai(path: str, model: str, streams: bool) -> Iterator[Any]:
    if path == "/v1/models":
        yield {"object": "list", "data": [{"id": "plain", "object": "model", "created": 1,
                                           "owned_by": "x"}]}  # fmt: skip
    elif path == "/v1/embeddings":
        rows = [{"object": "embedding", "index": n, "embedding": [0.1, 0.2]} for n in (0, 1)]
        yield {"id": "e", "object": "list", "model": model, "data": rows, "usage": CHATS_USAGE}
    elif path == "/v1/responses":
        yield from _responses(model, streams)
    else:
        yield from _chat(model, streams)


def _chat(model: str, streams: bool) -> Iterator[Any]:
    about: Json = {"id": "c1", "created": 1, "model": model}
    message: Json = {"role": "assistant", "content": TEXT}
    if model == "tools":
        function = {"name": "get_weather", "arguments": '{"city": "x"}'}
        call = {"id": "t1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    if not streams:
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        yield {**about, "object": "chat.completion", "choices": [choice], "usage": CHATS_USAGE}
        return
    for piece in PIECES:
        choice = {"index": 0, "delta": {"role": "assistant", "content": piece}}
        choice["finish_reason"] = None
        yield sse({**about, "object": "chat.completion.chunk", "choices": [choice]})
    last = {"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}
    chunk = {**about, "object": "chat.completion.chunk", "choices": [last]}
    yield sse({**chunk, "usage": CHATS_USAGE})
    yield b"data: [DONE]\n\n"


def _responses(model: str, streams: bool) -> Iterator[Any]:
    part = {"type": "output_text", "text": TEXT, "annotations": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
            "content": [part]}  # fmt: skip
    made: Json = {"id": "r1", "object": "response", "created_at": 1, "status": "completed",
                  "model": model, "output": [item], "parallel_tool_calls": True,
                  "tool_choice": "auto", "tools": [], "usage": RESPONSES_USAGE}  # fmt: skip
    if not streams:
        yield made
        return
    begun = {**made, "status": "in_progress", "output": [], "usage": None}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", "item_id": "m1", "output_index": 0,
         "content_index": 0, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", "item_id": "m1", "output_index": 0,
         "content_index": 0, "delta": TEXT, "logprobs": []},
        {"type": "response.completed", "response": made},
    ]  # fmt: skip
    for number, event in enumerate(events):
        yield sse({**event, "sequence_number": number}, str(event["type"]))


def openais_error(message: str) -> Json:
    return {"error": {"message": message, "type": "x", "param": None, "code": None}}


# -- Google ---------------------------------------------------------------------------------


def google(path: str, model: str, streams: bool) -> Iterator[Any]:
    if path.partition("?")[0].endswith(":countTokens"):
        yield {"totalTokens": 3}
        return
    if path.endswith(":batchEmbedContents"):
        yield {"embeddings": [{"values": [0.1, 0.2]}] * 2}
        return
    if not streams:
        part: Json = {"text": TEXT}
        if model == "tools":
            part = {"functionCall": {"name": "get_weather", "args": {"city": "x"}}}
        yield _candidate(part)
        return
    for piece in PIECES:
        yield sse(_candidate({"text": piece}))


def _candidate(part: Json) -> Json:
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 4, "totalTokenCount": 15,
             "cachedContentTokenCount": 8}  # fmt: skip
    content = {"role": "model", "parts": [part]}
    return {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}


def googles_error(message: str) -> Json:
    return {"error": {"code": 429, "message": message, "status": "X"}}


def doubles() -> dict[str, Double]:
    """Return a double of each provider that has an official client here, by its host."""
    return {
        "api.anthropic.com": Double(anthropic, anthropics_error),
        "api.openai.com": Double(openai, openais_error),
        "generativelanguage.googleapis.com": Double(google, googles_error),
        "api.mistral.ai": Double(openai, openais_error),
    }
