"""Whole connections in the simulated shell: faults, cancels, cuts and noise.

Each conversation is what a program and the servers outside say.  Whatever goes wrong in
it, at whichever command: the log has one first and one last line for each call, nothing
opens once the call was cancelled, and no byte is in a tunnel but the tunnel's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import h11
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies_hello import hello_for, record
from fuzz.strategies_http import lenient, requests, spoilt
from proto.calls.connect import ESTABLISHED
from proto.calls.limits import Limits
from proto.calls.mounts import Mount, Mounts
from proto.calls.serve import serve_connection
from proto.calls.ways import PLAIN, Ways
from proto.codecs.connect_hop import ConnectHop
from proto.codecs.socks5 import connect_request, greeting, login_request
from proto.commands import (
    Close,
    Command,
    Connect,
    Locate,
    Log,
    Look,
    Open,
    Receive,
    Resolve,
    Send,
    Splice,
    StartTls,
)
from proto.errors import AuthenticationRequired
from proto.events import Cancelled, Cause, Connected, Event, Failed, Looked, Reason, Sent, Spliced
from proto.policy.admission import TARGETS_MOST, Admission
from proto.policy.exits import Exit
from proto.policy.hosts import Policy
from proto.policy.keys import Key
from proto.policy.records import Allowed, Ending, Paused, Record, Refusal
from proto.policy.secret import Secret
from proto.script import Script
from proto.verbs.bridge import Outgoing, Request, bridge_connection, onward_lines, provider_verb
from proto.verbs.hosted import hosted_models
from proto.verbs.local_model import relayed_connection
from proto.verbs.model import ModelRoute
from proto.verbs.providers import ANTHROPIC
from shells.env import WATCH_S
from shells.sim_shell import run
from shells.sim_world import (
    TRUSTED,
    Cut,
    Echo,
    Fin,
    Hear,
    HearEnd,
    HearUntil,
    Pause,
    Reset,
    Say,
    Steps,
    Transcript,
    World,
)
from tests.proto.requests import get, head_bytes

LIMITS = Limits(idle_s=60.0)
HELD_MAX_BYTES = 66 * 1024
"""64 KiB, and what printing a head anew adds to it."""

HELLO = record(hello_for(b"example.com"))
OTHER_HELLO = record(hello_for(b"www.example.com"))
OK = head_bytes("HTTP/1.1 200 OK", "Content-Length: 2") + b"ok"
CHUNKED_OK = head_bytes("HTTP/1.1 200 OK", "Transfer-Encoding: chunked") + b"2\r\nok\r\n0\r\n\r\n"
ENDLESS_OK = head_bytes("HTTP/1.1 200 OK") + b"ok"
ASKS = ("Connection: Upgrade", "Upgrade: websocket")
SWITCH = head_bytes("HTTP/1.1 101 Switching Protocols", *ASKS)


def tunnel(port: int) -> bytes:
    return head_bytes(f"CONNECT example.com:{port} HTTP/1.1", f"Host: example.com:{port}")


def until(end: bytes) -> HearUntil:
    """Make the step that hears until some bytes have come."""

    def make() -> Callable[[bytes], bool]:
        heard = bytearray()

        def enough(data: bytes) -> bool:
            heard.extend(data)
            return end in heard

        return enough

    return HearUntil(make)


HEAD = until(b"\r\n\r\n")
POST = get("Content-Length: 10", method="POST")
CHUNKED_POST = get("Transfer-Encoding: chunked", method="POST")


@dataclass(frozen=True)
class Talk:
    """What a client and its server say; `secret` is what the proxy wants.

    `hop`: what an exit hears before a tunnel's own bytes.  `serves`: another script than a
    proxy's.
    """

    client: Steps
    server: Steps = ()
    secret: Secret | None = None
    tunnels: bool = False
    ways: Ways = PLAIN
    hop: bytes = b""
    serves: Callable[[float], Script[None]] | None = None
    names: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    def world(self, **more: object) -> World:
        world = World(
            client=self.client,
            any_name=("203.0.113.10",),
            names=self.names,
            any_server=self.server,
            tls={"example.com": TRUSTED},
        )
        return replace(world, **more)  # type: ignore[arg-type]

    def script(self, now: float) -> Script[None]:
        """Return the script of a connection."""
        if self.serves is not None:
            return self.serves(now)
        policy = Policy.of(["example.com", "*.example.com"])
        return serve_connection(policy, LIMITS, self.secret, now, self.ways)

    def play(self, seed: int = 0, **more: object) -> Transcript:
        return run(self.script, self.world(**more), seed)


BY_HTTP = Ways(exit=Exit.of("http://user:password@10.0.0.9:3128"))
BY_SOCKS5 = Ways(exit=Exit.of("socks5://user:password@10.0.0.9:1080"))
TO_EXIT = ConnectHop("203.0.113.10:22", b"Basic dXNlcjpwYXNzd29yZA==").to_send
PLAIN_TO_EXIT = TO_EXIT.replace(b":22", b":80")
TO_SOCKS5 = (
    greeting(login=True),
    login_request(b"user", b"password"),
    connect_request(bytes((203, 0, 113, 10)), 22),
)
EXIT_OK = head_bytes("HTTP/1.1 200 Connection established")

CALLER = Key("c" * 16)
ROUTED = Ways(
    mounts=Mounts(
        [
            Mount(b"other", "bridge", "bridge other"),
            Mount(b"local/11434", "local", needs_secret=True, host="localhost", port=11434),
        ],
        caller=CALLER,
        secret=Key("s" * 16),
    )
)
ROUTE = head_bytes("POST /_link/other/a HTTP/1.1", "Host: a", "Content-Length: 5") + b"hello"
RUNTIME = head_bytes("GET /api/tags HTTP/1.1", "Host: localhost:11434")
BY_PATH = RUNTIME.replace(b"/api/", b"/_link/s/" + b"s" * 16 + b"/local/11434/api/")
TO_BRIDGE = ROUTE.replace(b"/_link/other/", b"/").replace(
    b"Host: a", b"Host: a\r\nLink-Caller: " + b"c" * 16
)


class ToExample:
    """A verb that calls example.com, its body read first or passed on."""

    def __init__(self, most: int) -> None:
        self.most = most

    def reads(self, request: Request) -> int:
        return self.most

    def call(self, request: Request, body: bytes) -> Outgoing:
        whole = body if self.most else None
        return Outgoing("example.com", request.path, onward_lines(request), whole)


def bridged(most: int) -> Callable[[float], Script[None]]:
    serve = provider_verb(ToExample(most))
    return lambda now: bridge_connection(serve, CALLER, LIMITS, now)


ASK = b'{"model":"m","messages":[]}'
TO_MODEL = (
    head_bytes(
        "POST /anthropic/v1/messages HTTP/1.1",
        "Host: a",
        "Link-Caller: " + "c" * 16,
        "X-Api-Key: placeholder",
        "Content-Type: application/json",
        f"Content-Length: {len(ASK)}",
    )
    + ASK
)
EVENTS = b'data: {"usage":{"input_tokens":3}}\n\n'
STREAM = head_bytes(
    "HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"
) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENTS), EVENTS)


def hosted(now: float) -> Script[None]:
    """Serve calls to a hosted model whose provider is example.com."""
    here = msgspec.structs.replace(ANTHROPIC, host="example.com")
    route = ModelRoute.of(here, "sk-real-key", "placeholder", server_tools=False, listed=True)
    return bridge_connection(hosted_models([route], lambda _: None), CALLER, LIMITS, now)


TALKS = {
    "plain": Talk((Say(get()), until(b"ok"), Fin()), (HEAD, Say(OK), Fin())),
    "kept": Talk(
        (Say(get()), until(b"\r\n\r\nok"), Say(get()), until(b"\r\n\r\nok"), Fin()),
        (HEAD, Say(OK), HEAD, Say(OK), HearEnd()),
    ),
    "pipelined": Talk((Say(get() * 3), HearEnd()), (HEAD, Say(OK), HEAD, Say(OK), HEAD, Say(OK))),
    "another server": Talk(
        (Say(get() + get(url="http://www.example.com/b") + get()), Fin(), HearEnd()),
        (HEAD, Say(OK), HearEnd()),
    ),
    "upload": Talk(
        (Say(POST + b"hello"), Say(b"world"), Fin()), (until(b"helloworld"), Say(OK), Fin())
    ),
    "chunked": Talk(
        (Say(CHUNKED_POST + b"5\r\nhello\r\n"), Say(b"0\r\n\r\n"), Fin()),
        (until(b"0\r\n\r\n"), Say(CHUNKED_OK), Fin()),
    ),
    "expects": Talk(
        (Say(get("Expect: 100-continue", "Content-Length: 10", method="POST")), HEAD,
         Say(b"helloworld"), HearEnd()),
        (HEAD, Say(head_bytes("HTTP/1.1 100 Continue")), Hear(10), Say(OK), Fin()),
    ),
    "early": Talk((Say(POST + b"hello"), HearEnd()), (HEAD, Say(OK), Fin())),
    "until the end": Talk((Say(get()), until(b"ok"), Fin()), (HEAD, Say(ENDLESS_OK), Fin())),
    "old client": Talk((Say(get(version="1.0")), HearEnd()), (HEAD, Say(ENDLESS_OK), Fin())),
    "cut short": Talk((Say(get()), HearEnd()), (HEAD, Say(OK[:-1]), Fin())),
    "reset": Talk((Say(get()), HearEnd()), (HEAD, Say(OK[:-1]), Reset())),
    "spoilt": Talk(
        (Say(get()), HearEnd()),
        (HEAD, Say(head_bytes("HTTP/1.1 103 Early Hints") + CHUNKED_OK[:-5]), Say(b"zz"),
         HearEnd()),
    ),
    "spoilt at once": Talk(
        (Say(get()), HearEnd()), (HEAD, Say(CHUNKED_OK.replace(b"2\r\n", b"zz\r\n")), HearEnd())
    ),
    "no head": Talk(
        (Say(get()), HearEnd()),
        (HEAD, Say(head_bytes("HTTP/1.1 103 Early Hints") + b"HTTP/1.1 200 OK\n\n"), HearEnd()),
    ),
    "no answer": Talk((Say(get()), HearEnd()), (HEAD, Fin())),
    "no HTTP": Talk((Say(get()), HearEnd()), (Say(b"SSH-2.0-x\r\n"), HearEnd())),
    "websocket": Talk(
        (Say(get(*ASKS) + b"frame"), until(b"frame"), Fin(), HearEnd()), (HEAD, Say(SWITCH), Echo())
    ),
    "tunnel": Talk(
        (Say(tunnel(22) + b"hello"), until(b"hello"), Fin(), HearEnd()), (Echo(),), tunnels=True
    ),
    "hello": Talk((Say(tunnel(443)), HEAD, Say(HELLO), Fin(), HearEnd()), (Echo(),), tunnels=True),
    "other hello": Talk(
        (Say(tunnel(443)), HEAD, Say(OTHER_HELLO), HearEnd()), (Echo(),), tunnels=True
    ),
    "no hello": Talk((Say(tunnel(443)), HearEnd()), (Say(b"hi"), Echo()), tunnels=True),
    "by http": Talk(
        (Say(tunnel(22) + b"hello"), until(b"hello"), Fin(), HearEnd()),
        (HEAD, Say(EXIT_OK), Echo()),
        tunnels=True, ways=BY_HTTP, hop=TO_EXIT,
    ),
    "by socks5": Talk(
        (Say(tunnel(22) + b"hello"), until(b"hello"), Fin(), HearEnd()),
        (Hear(4), Say(b"\5\2"), until(b"password"), Say(b"\1\0"), Hear(10),
         Say(b"\5\0\0\1\0\0\0\0\0\0"), Echo()),
        tunnels=True, ways=BY_SOCKS5, hop=b"".join(TO_SOCKS5),
    ),
    "plain by http": Talk(
        (Say(get()), until(b"ok"), Say(get()), until(b"ok"), Fin()),
        (HEAD, Say(EXIT_OK), HEAD, Say(OK), HEAD, Say(OK), HearEnd()),
        ways=BY_HTTP, hop=PLAIN_TO_EXIT,
    ),
    "websocket by http": Talk(
        (Say(get(*ASKS) + b"frame"), until(b"frame"), Fin(), HearEnd()),
        (HEAD, Say(EXIT_OK), HEAD, Say(SWITCH), Echo()),
        ways=BY_HTTP, hop=PLAIN_TO_EXIT,
    ),
    "refused by socks5": Talk(
        (Say(tunnel(22)), HearEnd()), (Hear(4), Say(b"\5\xff"), HearEnd()),
        tunnels=True, ways=BY_SOCKS5, hop=TO_SOCKS5[0],
    ),
    "malformed": Talk((Say(b"GET / HTTP/1.1\n\n"), HearEnd())),
    "unlisted": Talk((Say(get(url="http://evil.test/")), HearEnd())),
    "private": Talk((Say(get()), HearEnd()), names={"example.com": (("10.0.0.1",),)}),
    "no such name": Talk((Say(get()), HearEnd()), names={"example.com": ((),)}),
    "secret": Talk(
        (Say(POST + b"helloworld"), HEAD, Say(get()), HearEnd()), secret=Secret("x" * 16)
    ),
    "route": Talk(
        (Say(ROUTE), until(b"ok"), Say(ROUTE), until(b"ok"), Fin()),
        (until(b"hello"), Say(OK), Fin()),
        ways=ROUTED,
    ),
    "no route": Talk((Say(ROUTE.replace(b"other", b"nothing")), HearEnd()), ways=ROUTED),
    "local model": Talk(
        (Say(BY_PATH), until(b"ok"), HearEnd()), (HEAD, Say(OK), Fin()), ways=ROUTED
    ),
    "runtime": Talk(
        (Say(RUNTIME), until(b"ok"), HearEnd()), (HEAD, Say(OK), Fin()),
        serves=lambda now: relayed_connection(11434, LIMITS, now),
    ),
    "bridge": Talk(
        (Say(TO_BRIDGE), until(b"ok"), HearEnd()), (until(b"hello"), Say(OK), Fin()),
        serves=bridged(0),
    ),
    "bridge that reads": Talk(
        (Say(TO_BRIDGE), until(b"ok"), HearEnd()), (until(b"hello"), Say(CHUNKED_OK), Fin()),
        serves=bridged(100),
    ),
    "hosted model": Talk(
        (Say(TO_MODEL), until(b"0\r\n\r\n"), HearEnd()), (until(ASK), Say(STREAM), Fin()),
        serves=hosted,
    ),
    "hosted model refused": Talk(
        (Say(TO_MODEL.replace(b"X-Api-Key: p", b"X-Api-Key: q")), HearEnd()), serves=hosted
    ),
    "silent": Talk((HearEnd(),)),
    "slow": Talk((Say(b"GET "), Pause(100.0), HearEnd())),
}  # fmt: skip
every_talk = pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)


def check(talk: Talk, seen: Transcript) -> None:
    """Hold a transcript to what holds whatever went wrong."""
    check_log(seen.log)
    check_counts(talk, seen)
    check_cancelled(seen)
    check_waits(seen)
    for command in seen.commands:
        assert held(command) <= HELD_MAX_BYTES
    if talk.tunnels:
        check_tunnel(talk, seen)


def check_log(log: tuple[Record, ...]) -> None:
    """One first and one last line for each call, and no call inside another."""
    allowed: Allowed | None = None
    for line in log:
        if isinstance(line, Allowed):
            assert allowed is None, log
            allowed = line
            continue
        if isinstance(line, Ending):
            assert allowed is not None, log
        if isinstance(line, Paused):
            continue  # its call's own line comes next
        if allowed is not None:
            assert (line.verb, line.host, line.port) == (allowed.verb, allowed.host, allowed.port)
        allowed = None
    assert allowed is None, log


def check_waits(seen: Transcript) -> None:
    """Nothing waits for longer than a peer may be silent: else one holds a connection for ever."""
    longest = max(LIMITS.idle_s, LIMITS.keepalive_s)
    for step in seen.performed:
        if isinstance(step.command, Splice):
            assert step.command.idle_s <= longest
        elif isinstance(by := getattr(step.command, "by", None), float):
            assert by <= step.at + longest, step.command


def check_counts(talk: Talk, seen: Transcript) -> None:
    """A call's last line counts what moved since its first, but for the proxy's own words.

    Those are its answers, and what an exit hears first.
    """
    up = down = hop = 0
    allowed = False
    for each in seen.performed:
        match each.command, each.event:
            case Log(record=record), _:
                if isinstance(record, Ending):
                    assert (record.up, record.down) == (max(0, up - hop), down)
                if not isinstance(record, Paused):
                    allowed, up, down, hop = isinstance(record, Allowed), 0, 0, 0
            case Connect(), Connected():
                hop = len(talk.hop)
            case (Send() | Splice()) as command, event:
                more_up, more_down = moved(event)
                if not allowed:
                    assert more_up == 0
                    assert command.to_client.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
                ours = len(ESTABLISHED) if command.to_client.startswith(ESTABLISHED) else 0
                up, down = up + more_up, down + max(0, more_down - ours)
            case _:
                pass


def moved(event: Event) -> tuple[int, int]:
    """Return the bytes up and down of what answered a `Send` or a `Splice`."""
    if isinstance(event, Sent):
        return event.to_upstream, event.to_client
    assert isinstance(event, Spliced | Failed | Cancelled)
    return event.up, event.down


def check_cancelled(seen: Transcript) -> None:
    """Nothing opens once a call was cancelled, and it ends within two seconds."""
    at = next((each for each in seen.performed if isinstance(each.event, Cancelled)), None)
    if at is None:
        return
    behind = seen.performed[seen.performed.index(at) + 1 :]
    allowed: tuple[type[Command], ...] = (Log, Send, Close)
    assert all(isinstance(each.command, allowed) for each in behind), behind
    assert sum(isinstance(each.command, Log) for each in behind) <= 1
    assert seen.ended - at.event.now < 2


def held(command: Command) -> int:
    """Return the most bytes that a command holds for one side."""
    match command:
        case Send(to_client=down, to_upstream=up) | Splice(to_client=down, to_upstream=up):
            return max(len(down), len(up))
        case Receive(limit=limit):
            return limit
        case Resolve() | Locate() | Connect() | Open() | StartTls() | Close() | Look() | Log():
            return 0


def check_tunnel(talk: Talk, seen: Transcript) -> None:
    """Either side of a tunnel hears a beginning of what the other said, and nothing else."""
    said = b"".join(step.data for step in talk.client if isinstance(step, Say))
    said = said.partition(b"\r\n\r\n")[2]
    heard = b"".join(dial.saw.data for dial in seen.opened if dial.saw)
    assert said.startswith(behind(talk.hop, heard))
    if seen.client.data.startswith(b"HTTP/1.1 200 "):
        assert (ESTABLISHED + said).startswith(seen.client.data)
    else:
        assert b" 200 " not in seen.client.data


def behind(hop: bytes, heard: bytes) -> bytes:
    """Return what of a server's bytes is behind an exit's."""
    assert hop.startswith(heard) or heard.startswith(hop)
    return heard[len(hop) :]


@every_talk
def test_a_conversation_is_well_formed(talk: Talk) -> None:
    check(talk, talk.play())


@every_talk
@pytest.mark.parametrize("reason", Reason)
def test_every_command_may_fail(talk: Talk, reason: Reason) -> None:
    for number in range(len(talk.play().performed)):
        for seed in range(3):  # the seed chooses which side is blamed
            check(talk, talk.play(seed, faults={number: reason}))


@every_talk
@pytest.mark.parametrize("cause", Cause)
def test_every_command_may_be_cancelled(talk: Talk, cause: Cause) -> None:
    for number in range(len(talk.play().performed)):
        check(talk, talk.play(cancels_before={number: cause}))
        check(talk, talk.play(faults={number: Reason.RESET}, cancels_before={number + 1: cause}))


def check_ends(seen: Transcript, by: float) -> None:
    """Each call that looked and found the wire open has its last line by then."""
    begun = False
    for each in seen.performed:
        if isinstance(each.command, Look):
            begun = each.event == Looked(None, each.event.now)
        elif isinstance(each.command, Log) and isinstance(each.command.record, Ending | Refusal):
            assert not begun or each.at < by
            begun = False
    assert not begun


@every_talk
@pytest.mark.parametrize("cause", [Cause.STOPPED, Cause.PAUSED, Cause.UNSEEN])
def test_a_wire_that_is_closed_lets_nothing_begin_and_ends_what_runs(
    talk: Talk, cause: Cause
) -> None:
    whole = talk.play()
    moments = sorted({each.at - whole.started for each in whole.performed} | {5.0})
    for seed, after in enumerate(moments):
        seen = talk.play(seed, closed_at=((after, cause),))
        check(talk, seen)
        closed = seen.started + after
        for each in seen.performed:
            if each.at > closed and isinstance(each.command, Look):
                assert each.event == Looked(cause, each.event.now)
            if each.at > closed + WATCH_S:
                assert isinstance(each.command, Log | Look | Send | Close | Receive), each
        check_ends(seen, closed + 2)
        if any(each.event == Looked(cause, each.event.now) for each in seen.performed):
            refused = [line for line in seen.log if isinstance(line, Refusal)]
            assert refused[-1].status == 503
            assert refused[-1].reason.startswith(f"{cause.value}; ")


def test_a_wire_that_is_opened_again_serves_again() -> None:
    shut = ((0.0, Cause.STOPPED), (0.0, None))
    seen = TALKS["plain"].play(closed_at=shut, delay_s=0.0)
    assert not any(isinstance(line, Refusal) for line in seen.log)


def test_a_connection_that_tries_targets_in_turn_pauses_its_wire() -> None:
    """Each refusal ends its connection, so the connections share the wire's admission."""
    admission = Admission()
    logs = []
    for number in range(TARGETS_MOST + 1):
        request = get(url=f"http://h{number}.test/")
        talk = Talk((Say(request), HearEnd()), ways=Ways(admission=admission))
        logs.append(talk.play(number).log)
    assert [len(log) for log in logs] == [1] * (TARGETS_MOST - 1) + [2, 1]
    assert isinstance(logs[TARGETS_MOST - 1][0], Paused)


@every_talk
def test_everything_may_fail_at_any_time(talk: Talk) -> None:
    for seed in range(40):
        check(talk, talk.play(seed, fault_rate=0.15, cut=Cut.RANDOM))


@dataclass(frozen=True)
class Outcome:
    """What a conversation came to, however its bytes were cut."""

    log: tuple[tuple[str, str, int, str], ...]
    dials: tuple[tuple[str, int], ...]
    servers: tuple[list[bytes], ...]
    client: list[bytes]


def outcome(seen: Transcript) -> Outcome:
    return Outcome(
        tuple((line.verb, line.host, line.port, getattr(line, "reason", "")) for line in seen.log),
        tuple((dial.address, dial.port) for dial in seen.dials),
        tuple(read(dial.saw.data, h11.SERVER) for dial in seen.opened if dial.saw),
        read(seen.client.data, h11.CLIENT),
    )


def read(data: bytes, role: type[h11.Sentinel]) -> list[bytes]:
    """Return the parts of a stream of HTTP, with the chunks of a body joined."""
    parts: list[bytes] = []
    while data:
        connection = h11.Connection(role)
        if role is h11.CLIENT:
            connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
            connection.send(h11.EndOfMessage())
        try:
            connection.receive_data(data)
            body = b""
            while True:
                event = connection.next_event()
                if isinstance(event, h11.Data):
                    body += bytes(event.data)
                    continue
                if isinstance(event, h11.EndOfMessage):
                    parts.append(body)
                    break
                if event in (h11.NEED_DATA, h11.PAUSED):
                    return [*parts, body, b"..."]
                parts.append(repr(event).encode())
        except h11.RemoteProtocolError:
            return [*parts, data]  # a tunnel's bytes
        data = connection.trailing_data[0]
    return parts


UNHURRIED = {
    name: talk for name, talk in TALKS.items() if name not in ("early", "no HTTP", "reset")
}
"""Where no side acts out of turn, so that time alone changes nothing."""


@pytest.mark.parametrize("talk", UNHURRIED.values(), ids=UNHURRIED)
def test_how_the_bytes_are_cut_changes_nothing(talk: Talk) -> None:
    whole = outcome(talk.play())
    assert outcome(talk.play(cut=Cut.BYTES)) == whole
    for seed in range(10):
        assert outcome(talk.play(seed, cut=Cut.RANDOM)) == whole


@dataclass
class Answerer:
    """Make the steps of a server that answers each head that it hears, ten times."""

    answer: bytes = OK

    def steps(self) -> Steps:
        return (HEAD, Say(self.answer)) * 10


noise = st.one_of(
    requests.map(lambda request: request.data),
    spoilt(),
    st.sampled_from([tunnel(22), tunnel(443), get(), POST, CHUNKED_POST, get(*ASKS), HELLO]),
    st.binary(max_size=20),
)
answers = st.sampled_from([OK, CHUNKED_OK, ENDLESS_OK, SWITCH, OK * 2, OK[:-1], b"", b"noise"])
answers_bent = st.builds(
    lambda answer, at, junk: answer[:at] + junk + answer[at:],
    answers, st.integers(0, 80), st.binary(max_size=3),
)  # fmt: skip


@given(st.lists(noise, max_size=4), answers | answers_bent, st.sampled_from(Cut), st.integers(0, 9))
def test_whatever_is_said_only_listed_servers_hear_only_their_requests(
    said: list[bytes], answer: bytes, cut: Cut, seed: int
) -> None:
    client = tuple(Say(data) for data in said if data)
    server = (*(Answerer(answer).steps() if answer else (HEAD,)), Fin(), HearEnd())
    talk = Talk((*client, Fin(), HearEnd()), server)
    seen = talk.play(seed, cut=cut)
    check(talk, seen)
    assert all(host == "example.com" or host.endswith(".example.com") for host in seen.asked)
    plain = {(line.host, line.port) for line in seen.log if getattr(line, "verb", "") == "http"}
    if any(isinstance(each.command, Splice) for each in seen.performed):
        return  # a tunnel's bytes are its own
    for dial in seen.opened:
        assert dial.saw is not None
        hosts = {host for host, port in plain if port == dial.port}
        for request in whole(dial.saw.data):
            assert request.decode().removesuffix(f":{dial.port}") in hosts


def whole(data: bytes) -> list[bytes]:
    """Return the hosts of the requests that a lax server reads in a stream, the cut last too."""
    return [seen.host or b"none" for seen in lenient(data)]


def test_a_refused_secret_is_no_reason_to_close() -> None:
    seen = TALKS["secret"].play()
    status = AuthenticationRequired.status_hint
    assert [line.status for line in seen.log if isinstance(line, Refusal)] == [status, status]
