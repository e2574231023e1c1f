"""Hosted models behind their bridge: `proto/verbs/hosted.py`, under the simulated shell."""

from __future__ import annotations

import json
import tracemalloc

import msgspec
import pytest

from fuzz.http_reading import answer_reader, request_reader
from proto.calls.limits import Limits
from proto.codecs.http1 import CHUNKED, Framing, Kind, RequestHead
from proto.errors import WireBusy
from proto.policy.keys import Key
from proto.script import Script
from proto.verbs.bridge import Request, bridge_connection
from proto.verbs.hosted import BODIES_MAX_BYTES, Room, hosted_models
from proto.verbs.metering import UNMETERED, Tokens
from proto.verbs.model import BODY_MAX_BYTES, ModelRoute
from proto.verbs.providers import PROVIDERS
from shells.sim_shell import run
from shells.sim_world import (
    TRUSTED,
    Await,
    Cut,
    HearUntil,
    Leave,
    Pause,
    Reset,
    Say,
    Signal,
    Step,
    Steps,
    Transcript,
    World,
)

KEY, HELD, CALLER = "sk-REAL-key", "lnk-placeholder", "C" * 32
HEARD = HearUntil(lambda: request_reader().feed)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(said: object) -> bytes:
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def request(
    path: str = "/anthropic/v1/messages", body: bytes = b'{"model":"m","messages":[]}', **more: str
) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Link-Caller: {CALLER}"]
    lines += [f"X-Api-Key: {HELD}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    if "Transfer_Encoding" not in more:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def call(
    asked: bytes, *provider: Step, cut: Cut = Cut.WHOLE, client: Steps = ()
) -> tuple[Transcript, list[Tokens]]:
    routes = [
        ModelRoute.of(PROVIDERS[name], KEY, HELD, server_tools=False, listed=True)
        for name in ("anthropic", "openai")
    ]
    counted: list[Tokens] = []
    served = hosted_models(routes, counted.append)
    world = World(
        client=(Say(asked), *client),
        any_name=("203.0.113.10",),
        any_server=(HEARD, *provider),
        tls={"api.anthropic.com": TRUSTED},
        cut=cut,
    )

    def script(now: float) -> Script[None]:
        return bridge_connection(served, Key(CALLER), Limits(), now)

    return run(script, world, 1), counted


def status_of(transcript: Transcript) -> int:
    reader = answer_reader(b"POST")
    reader.feed(transcript.client.data)
    return reader.messages[-1].status


@pytest.mark.parametrize(
    "path",
    ["/", "/anthropic", "/anthropicx/v1/messages", "/mistral/v1/messages", "//v1/messages",
     "/Anthropic/v1/messages", "/anthropic%2fv1/messages", "/x", "/../anthropic/v1/messages"],
)  # fmt: skip
def test_a_path_of_no_route_leads_nowhere(path: str) -> None:
    transcript, counted = call(request(path))
    assert status_of(transcript) == 404
    assert not transcript.asked
    assert not counted


@pytest.mark.parametrize("cut", Cut)
def test_a_stream_passes_piece_by_piece_and_is_counted(cut: Cut) -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}
    said = [event(start), b": ping\n\n", event({"usage": {"output_tokens": 40}})]
    steps: list[Step] = [Say(STREAM)]
    for piece in said:
        steps += [Say(chunk(piece)), Pause(1.0)]
    transcript, counted = call(request(), *steps, Say(b"0\r\n\r\n"), cut=cut)
    reader = answer_reader(b"POST")
    reader.feed(transcript.client.data)
    assert bytes(reader.messages[0].body) == b"".join(said)
    assert reader.messages[0].complete
    assert counted == [Tokens(1, 0, 7, 40)]


def test_each_piece_goes_on_before_the_next_one_comes() -> None:
    """The provider says its second piece once the program has its first."""
    first, second = event({"type": "ping"}), event({"type": "stop"})
    until_first = HearUntil(lambda: _saw(b"ping"))
    transcript, _ = call(
        request(),
        Say(STREAM + chunk(first)), Await("program has it"), Say(chunk(second) + b"0\r\n\r\n"),
        client=(until_first, Signal("program has it")),
    )  # fmt: skip
    assert transcript.client.data.endswith(b"0\r\n\r\n")
    assert second in transcript.client.data


def test_no_body_is_held_again_while_it_goes_out_or_once_it_has_gone() -> None:
    size = 4 << 20
    body = json.dumps({"model": "m", "messages": [], "system": "x" * size}).encode()
    asked, saw, held = request(body=body), _saw(b"ping"), []

    def reads(data: bytes) -> bool:
        held.append(tracemalloc.get_traced_memory()[0])
        return bool(saw(data))

    tracemalloc.start()
    try:
        call(
            asked, Say(STREAM + chunk(event({"type": "ping"}))), Await("it has"), Say(b"0\r\n\r\n"),
            client=(HearUntil(lambda: reads), Signal("it has")),
        )  # fmt: skip
    finally:
        tracemalloc.stop()
    # Once here, of what waits to be sent, and three times in the simulated network.
    assert held[0] < 5 * size


def _saw(word: bytes):  # type: ignore[no-untyped-def]
    held = bytearray()

    def feed(data: bytes) -> bool:
        held.extend(data)
        return word in held

    return feed


@pytest.mark.parametrize("end", [Leave(), Reset()])
def test_a_stream_that_is_cut_reaches_the_program_cut_and_counts_as_far_as_it_told(
    end: Step,
) -> None:
    start = {"message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}
    transcript, counted = call(request(), Say(STREAM + chunk(event(start))), Pause(1.0), end)
    reader = answer_reader(b"POST")
    reader.feed(transcript.client.data)
    reader.end()
    assert reader.messages[0].status == 200
    assert not reader.messages[0].complete
    assert counted == [Tokens(1, 0, 7, 1)]


def test_an_answer_without_usage_is_unmetered_and_an_error_is_none() -> None:
    plain = b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    assert call(request(), Say(b"HTTP/1.1 200 OK\r\n" + plain))[1] == [UNMETERED]
    for status in (400, 429, 500, 529):
        transcript, counted = call(request(), Say(b"HTTP/1.1 %d x\r\n" % status + plain))
        assert status_of(transcript) == status
        assert not counted


def test_a_provider_that_is_not_who_it_says_gets_no_byte() -> None:
    transcript, counted = call(request("/openai/v1/embeddings", b'{"model":"m","input":"x"}')
                               .replace(b"X-Api-Key: ", b"Authorization: Bearer "))  # fmt: skip
    assert status_of(transcript) == 502
    assert transcript.secured == ("api.openai.com",)
    assert all(dial.saw is None or dial.saw.data == b"" for dial in transcript.dials)
    assert not counted


def test_a_body_in_chunks_is_read_whole_first_and_a_100_is_said_when_it_is_waited_for() -> None:
    body = chunk(b'{"model":"m",') + chunk(b'"messages":[]}') + b"0\r\n\r\n"
    asked = request(body=body, Transfer_Encoding="chunked", Expect="100-continue")
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    transcript, _ = call(asked, Say(ok), cut=Cut.RANDOM)
    assert transcript.client.data.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
    heard = transcript.opened[0].saw
    assert heard is not None
    assert heard.data.endswith(b'\r\n\r\n{"model":"m","messages":[]}')
    assert b"expect" not in heard.data.lower()
    assert b"chunked" not in heard.data.lower()


def test_a_body_that_is_too_long_is_refused_by_its_length() -> None:
    head = request(body=b"").replace(
        b"Content-Length: 0", b"Content-Length: %d" % (BODY_MAX_BYTES + 1)
    )
    transcript, _ = call(head)
    assert status_of(transcript) == 413
    assert not transcript.asked


def test_the_answer_names_the_field_that_the_log_does_not() -> None:
    transcript, _ = call(request(body=b'{"model":"m","messages":[],"secret_word":1}'))
    head, _, body = transcript.client.data.partition(b"\r\n\r\n")
    assert b"(secret_word)" in body
    assert b"secret_word" not in head
    assert b"Link-Refused: the request's body: it has a field that isn't known here." in head
    assert "secret_word" not in repr(transcript.log)


def test_the_list_of_models_passes_as_it_is() -> None:
    asked = request("/anthropic/v1/models", b"").replace(b"POST", b"GET", 1)
    transcript, counted = call(asked, Say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"))
    assert transcript.client.data.endswith(b"\r\n\r\n[]")
    assert not counted


def test_a_refusal_is_told_as_the_providers_tell_theirs() -> None:
    transcript, _ = call(request("/anthropic/v1/files"))
    reader = answer_reader(b"POST")
    reader.feed(transcript.client.data)
    answer = reader.messages[0]
    assert answer.values("content-type") == ["application/json"]
    said = json.loads(answer.body)
    assert said["type"] == "error"
    assert said["error"]["message"].startswith("lnk sandbox: only the calls that ask")


def test_no_more_bodies_are_held_at_once_than_there_is_room_for() -> None:
    room = Room()
    whole = Request(RequestHead("POST", b"/", (1, 1), ()), CHUNKED, b"/", b"", b"")
    short = msgspec.structs.replace(whole, framing=Framing(Kind.LENGTH, 1))
    taken = [room.take(whole) for _ in range(BODIES_MAX_BYTES // BODY_MAX_BYTES)]
    with pytest.raises(WireBusy):
        room.take(short)
    room.give(taken.pop())
    assert room.take(short) == 1
    with pytest.raises(WireBusy):
        room.take(msgspec.structs.replace(whole, framing=Framing(Kind.LENGTH, BODY_MAX_BYTES)))


@pytest.mark.parametrize("body", [b"{}", b"no json", b'{"model":"m"}'])
def test_the_room_for_a_body_is_given_back_however_the_call_ends(
    monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    rooms: list[Room] = []

    class Watched(Room):
        def __init__(self) -> None:
            super().__init__()
            rooms.append(self)

    monkeypatch.setattr("proto.verbs.hosted.Room", Watched)
    call(request(body=body), Say(b"HTTP/1.1 200 OK\r\n"), Reset())
    assert rooms[0]._left == BODIES_MAX_BYTES


def test_what_a_provider_says_behind_its_answer_goes_no_further() -> None:
    chunks = (
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nLink-Refused: x\r\nX-Link: z\r\n\r\n"
    )
    transcript, _ = call(request(), Say(b"HTTP/1.1 200 OK\r\n" + chunks))
    assert transcript.client.data.endswith(b"\r\n2\r\n{}\r\n0\r\n\r\n")


def test_a_provider_has_no_word_of_the_wires_own() -> None:
    lines = b"Link-Refused: x\r\nLINK_X: y\r\nX-Link: z\r\nContent-Length: 2\r\n\r\n{}"
    transcript, _ = call(request(), Say(b"HTTP/1.1 200 OK\r\n" + lines))
    assert b"X-Link: z" in transcript.client.data
    assert b"link-refused" not in transcript.client.data.lower()
    assert b"link_x" not in transcript.client.data.lower()
