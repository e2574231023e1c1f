"""A local model's filter, by both ways in; every path of it is tried by the cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_local_model import one_input
from proto.calls.limits import Limits
from proto.calls.mounts import Mount
from proto.calls.ways import Ways
from proto.errors import MalformedRequest, Refused
from proto.events import Cause
from proto.policy.admission import Admission
from proto.policy.records import Allowed, Ending, Refusal
from proto.script import Script
from proto.verbs.local_model import ADDRESSES, INFERENCE, check_inference, relayed_connection
from shells.sim_shell import run
from shells.sim_world import End, Fin, HearEnd, Leave, Say, Signal, Step, Steps, Transcript, World
from tests.proto.wires import HEARD, SECRET, answers, fields, heard, request, said, wire

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "local_model"
LOCAL = Mount(b"local/11434", "local", needs_secret=True, host="localhost", port=11434)


def relayed(
    client: bytes | Steps,
    *runtime: Step,
    address: str = ADDRESSES[0],
    ways: Ways | None = None,
    stops: bool = False,
) -> Transcript:
    world = World(
        client=(Say(client),) if isinstance(client, bytes) else client,
        servers={(address, 11434): (HEARD, *runtime)} if runtime else {},
        cancels_on={"stop": Cause.STOPPED} if stops else {},
    )

    def script(now: float) -> Script[None]:
        return relayed_connection(11434, Limits(), now, ways or Ways())

    return run(script, world, 0)


def asked(path: str = "/api/tags", method: str = "GET", **more: str) -> bytes:
    return request(path, method, host=more.pop("host", "localhost:11434"), **more)


@pytest.mark.parametrize("method", INFERENCE)
def test_what_infers_is_let_through(method: str) -> None:
    for path in INFERENCE[method]:
        check_inference(method, path)
        check_inference(method, path + b"?a=%2F..")


@given(st.sampled_from(["GET", "POST", "HEAD", "DELETE", "PUT", "get"]), st.binary(max_size=40))
def test_nothing_else_is(method: str, path: bytes) -> None:
    if path.partition(b"?")[0] not in INFERENCE.get(method, ()):
        with pytest.raises((Refused, MalformedRequest)):
            check_inference(method, path)


def test_a_target_has_no_fragment() -> None:
    for target in (b"/api/tags#", b"/api/tags?a#b"):
        with pytest.raises(MalformedRequest):
            check_inference("GET", target)


def test_a_call_reaches_the_runtime_and_its_connection_ends() -> None:
    seen = relayed(asked(X_A="1", Link_Caller="forged"), said(b"{}"))
    (got,) = heard(seen)
    assert fields(got)["host"] == "localhost:11434"
    assert fields(got)["connection"] == "close"
    (answer,) = answers(seen)
    assert (answer.status, answer.body) == (200, b"{}")
    assert seen.client.end is End.FIN
    assert seen.log[0] == Allowed("local", "localhost", 11434)
    assert isinstance(seen.log[1], Ending)
    assert seen.asked == ()


def test_a_runtime_on_the_other_loopback_is_found_too() -> None:
    assert answers(relayed(asked(), said(), address="::1"))[0].status == 200


def test_one_request_a_connection_whatever_comes_behind() -> None:
    seen = relayed(asked() + asked("/api/delete", "DELETE"), said())
    assert len(heard(seen)) == len(answers(seen)) == 1


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.2", "localhost:11435", "localhost.evil"])
def test_a_host_that_is_not_the_runtimes_is_refused(host: str) -> None:
    seen = relayed(asked(host=host), said())
    assert answers(seen)[0].status == 403
    assert not seen.dials


@pytest.mark.parametrize(
    "data",
    [
        b"CONNECT localhost:11434 HTTP/1.1\r\nHost: localhost:11434\r\n\r\n",
        b"GET http://localhost:11434/api/tags HTTP/1.1\r\nHost: localhost:11434\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost:11434\r\n\r\n",
    ],
)
def test_no_other_form_of_a_target_is_taken(data: bytes) -> None:
    seen = relayed(data, said())
    assert answers(seen)[0].status == 403
    assert not seen.dials
    assert isinstance(seen.log[0], Refusal)


def test_what_is_malformed_is_told_so() -> None:
    assert answers(relayed(b"GET /api/tags\n\n", said()))[0].status == 400
    assert answers(relayed(asked(Expect="more"), said()))[0].status == 417


def test_who_says_nothing_gets_nothing() -> None:
    seen = relayed((Fin(), HearEnd()))
    assert seen.client.data == b""
    assert seen.log == ()


def test_a_runtime_that_does_not_run_is_a_502() -> None:
    assert answers(relayed(asked()))[0].status == 502


def test_a_runtime_that_dies_is_a_502() -> None:
    assert answers(relayed(asked(), Leave()))[0].status == 502


def test_an_upgrade_never_goes_on() -> None:
    seen = relayed(asked(Connection="Upgrade", Upgrade="h2c"), said())
    assert "upgrade" not in fields(heard(seen)[0])
    switch = Say(b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    websocket = asked(Connection="Upgrade", Upgrade="websocket")
    assert answers(relayed(websocket, switch))[0].status == 502


def test_a_call_counts_and_is_stopped_as_any_other() -> None:
    ways = Ways(admission=Admission(1))
    assert answers(relayed(asked(), said(), ways=ways))[0].status == 200
    assert answers(relayed(asked(), said(), ways=ways))[0].status == 429
    stopped = relayed(asked(), Signal("stop"), HearEnd(), stops=True)
    assert answers(stopped)[0].status == 503


def test_the_same_filter_stands_at_the_proxys_path() -> None:
    servers = {(ADDRESSES[0], 11434): (HEARD, said(b"{}"))}
    at = f"/_link/s/{SECRET}/local/11434"
    right = wire(request(f"{at}/api/tags?a"), [LOCAL], servers=servers)
    assert heard(right)[0].words[1] == b"/api/tags?a"
    assert answers(right)[0].body == b"{}"
    assert right.client.end is End.FIN
    for path in ("/api/delete", "", "/", "/api/tags/", "/api%2ftags"):
        wrong = wire(request(at + path), [LOCAL], servers=servers)
        assert answers(wrong)[0].status in (403, 404)
        assert not wrong.dials


@given(
    st.integers(1, 255),
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.sampled_from(["/api/tags", "/api/chat", "/v1/models"]),
    st.text("/.?#%ab ", max_size=6),
    st.binary(max_size=30),
)
def test_a_client_says_what_it_likes(
    step: int, method: str, path: str, more: str, behind: bytes
) -> None:
    one_input(bytes([step]) + request(path + more, method, b"ab", host="localhost") + behind)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_the_corpus_holds(path: Path) -> None:
    one_input(path.read_bytes())
