"""The conversations of the contract suite."""

from __future__ import annotations

from random import Random

from proto.calls.exchange import Exchange
from proto.calls.forward import carry
from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.refuse import end_badly
from proto.commands import (
    BOTH,
    CLIENT,
    DATAGRAMS,
    IN,
    UPSTREAM,
    Close,
    Connect,
    Listen,
    Locate,
    Log,
    Look,
    Open,
    Receive,
    Resolve,
    Send,
    Side,
    Splice,
    StartTls,
)
from proto.errors import BadAnswer
from proto.events import Cause, Connected, Event, Failed, Place, Received, Resolved, Sent
from proto.policy.records import Allowed, Ending, Paused
from proto.script import Script
from shells.sim_world import (
    SILENT,
    Await,
    Deaf,
    Echo,
    End,
    Fin,
    Hear,
    HearEnd,
    Leave,
    Reset,
    Saw,
    Say,
    Signal,
    Trade,
)
from tests.proto.requests import get, head_bytes, plain
from tests.shells.contract import REFUSED, SECURE_HOST, Conversation, Due, Secured, Talk

HEAD = b"CONNECT example.com:22 HTTP/1.1\r\n\r\n"
OK = b"HTTP/1.1 200 Connection established\r\n\r\n"
ONE, TWO, THREE = "127.0.0.1", "127.0.0.2", "127.0.0.3"
UP, DOWN = Random(1).randbytes(900_000), Random(2).randbytes(700_000)
ALLOWED = Allowed("connect", "example.com", 22)
DONE = Ending("connect", "example.com", 22, 0, 0, 0.0)


def read_until(talk: Talk, side: Side, marker: bytes) -> Script[bytes]:
    """Read one side until a marker has come; return all that was read."""
    data = b""
    while marker not in data:
        event = yield Receive((side,), 65536, talk.by)
        assert isinstance(event, Received), event
        assert event.data, "it ended"
        data += event.data
    return data


def read_to_end(talk: Talk, side: Side, limit: int = 65536) -> Script[bytes]:
    """Read one side until it has ended."""
    data = b""
    while True:
        event = yield Receive((side,), limit, talk.by)
        assert isinstance(event, Received), event
        assert len(event.data) <= limit, "more came than was asked for"
        if not event.data:
            return data
        data += event.data


def send_all(talk: Talk, to_client: bytes, to_upstream: bytes = b"") -> Script[None]:
    """Send both buffers whole."""
    while to_client or to_upstream:
        event = yield Send(talk.by, to_client, to_upstream)
        assert isinstance(event, Sent), event
        to_client, to_upstream = to_client[event.to_client :], to_upstream[event.to_upstream :]


def connect(talk: Talk, address: str = ONE) -> Script[None]:
    """Connect to one address."""
    event = yield Connect((address,), talk.port, talk.by)
    assert isinstance(event, Connected), event


def tunnel(talk: Talk, idle_s: float = 30.0) -> Script[None]:
    """Read a head, connect, splice; what came behind the head is the tunnel's first."""
    early = (yield from read_until(talk, CLIENT, b"\r\n\r\n")).partition(b"\r\n\r\n")[2]
    yield Log(ALLOWED)
    found = yield from talk.ask(Resolve("example.com", talk.by))
    assert isinstance(found, Resolved)
    yield from talk.ask(Locate(found.addresses))
    yield from talk.ask(Connect(found.addresses, talk.port, talk.by))
    yield from talk.ask(Splice(OK, early, idle_s))
    yield Log(DONE)


def short_tunnel(talk: Talk) -> Script[None]:
    """The same, given up after a moment without a byte."""
    yield from tunnel(talk, idle_s=0.2)


REQUEST = get()
ONWARD = head_bytes("GET /a HTTP/1.1", "Host: example.com")
ANSWER = head_bytes("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")


def breaks_off(talk: Talk) -> Script[None]:
    """Serve a plain request whose answer can't be read to its end."""
    request, early = plain((yield from read_until(talk, CLIENT, b"\r\n\r\n")))
    ledger = Ledger(talk.now, "http", "example.com", 80)
    yield ledger.allow()
    yield from connect(talk)
    try:
        yield from carry(ledger, Exchange(request, early), Limits())
    except BadAnswer as error:
        yield from end_badly(ledger, error, Limits())


def asks_by_datagrams(talk: Talk) -> Script[None]:
    """Send two datagrams and hear their answers, each by itself; then a tunnel inside."""
    yield from talk.ask(Connect((TWO,), talk.port, talk.by, DATAGRAMS))
    for question in (b"one", b"two"):
        yield from talk.ask(Send(talk.by, to_upstream=question))
    for _ in range(2):
        yield from talk.ask(Receive((UPSTREAM,), 4096, talk.by))
    yield from talk.ask(Receive((UPSTREAM,), 4096, talk.soon))
    yield Close(UPSTREAM, talk.past)
    yield from talk.ask(Connect((ONE,), talk.port, talk.by, IN))
    yield from talk.ask(Splice(b"", b"", 30.0))


def listens_inside(talk: Talk) -> Script[None]:
    """Serve an address inside, and find another taken; a cancel is for what waits."""
    yield from talk.ask(Listen(TWO, talk.port))
    yield from talk.ask(Listen(THREE, talk.port))
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))


BAD_CHUNK = "the line before a chunk of the body is malformed."
TUNNEL_NAMES = {"example.com": (ONE,)}
FOUND = (f"resolved {ONE}", "located ELSEWHERE", f"connected {ONE}")
TUNNEL_LOG = (ALLOWED, DONE)


def tunnelled(name: str, client: tuple, server: tuple, due: Due, **more: object) -> Conversation:
    """Return a conversation by way of `tunnel`, unless it has a script of its own."""
    filled = Due(due.client, due.servers, (*FOUND, *due.notes), ("example.com",), TUNNEL_LOG)
    parts = {"script": tunnel, "names": TUNNEL_NAMES, "servers": {ONE: server}} | more
    return Conversation(name=name, client=client, due=filled, **parts)  # type: ignore[arg-type]


TUNNELS = [
    tunnelled(
        "both ends talk at once",
        (Say(HEAD), Hear(len(OK)), Trade(UP, len(DOWN)), Fin()),
        (Trade(DOWN, len(UP)), Fin()),
        Due(
            Saw(OK + DOWN, End.FIN),
            {ONE: (Saw(UP, End.FIN),)},
            (f"spliced {len(UP)} {len(OK + DOWN)}",),
        ),
    ),
    tunnelled(
        "bytes that come with the head are the tunnel's first",
        (Say(HEAD + b"early"), Hear(len(OK)), Say(b"late"), Fin()),
        (HearEnd(), Leave()),
        Due(Saw(OK, End.FIN), {ONE: (Saw(b"earlylate", End.FIN),)}, (f"spliced 9 {len(OK)}",)),
    ),
    tunnelled(
        "the server speaks first",
        (Say(HEAD), Hear(len(OK) + 6), Say(b"hello"), Fin()),
        (Say(b"banner"), Hear(5), Fin()),
        Due(
            Saw(OK + b"banner", End.FIN),
            {ONE: (Saw(b"hello", End.FIN),)},
            (f"spliced 5 {len(OK) + 6}",),
        ),
    ),
    tunnelled(
        "a late answer after the client's half-close arrives",
        (Say(HEAD + b"question"), Fin(), HearEnd()),
        (HearEnd(), Say(DOWN), Leave()),
        Due(
            Saw(OK + DOWN, End.FIN),
            {ONE: (Saw(b"question", End.FIN),)},
            (f"spliced 8 {len(OK + DOWN)}",),
        ),
    ),
    tunnelled(
        "a client goes on after the server's half-close",
        (Say(HEAD), HearEnd(), Say(UP), Fin()),
        (Say(b"bye"), Fin(), HearEnd()),
        Due(
            Saw(OK + b"bye", End.FIN),
            {ONE: (Saw(UP, End.FIN),)},
            (f"spliced {len(UP)} {len(OK) + 3}",),
        ),
    ),
    tunnelled(
        "an echo comes back whole",
        (Say(HEAD), Hear(len(OK)), Trade(UP, len(UP)), Fin()),
        (Echo(),),
        Due(
            Saw(OK + UP, End.FIN),
            {ONE: (Saw(UP, End.FIN),)},
            (f"spliced {len(UP)} {len(OK + UP)}",),
        ),
    ),
    tunnelled(
        "a server's reset reaches the client",
        (Say(HEAD + b"abc"), Hear(len(OK)), Signal("established"), HearEnd()),
        (Hear(3), Await("established"), Reset()),
        Due(
            Saw(OK, End.RESET),
            {ONE: (Saw(b"abc", End.OPEN),)},
            (f"failed RESET upstream 3 {len(OK)}",),
        ),
    ),
    tunnelled(
        "a client's reset reaches the server",
        (Say(HEAD + b"abc"), Hear(len(OK)), Await("heard"), Reset()),
        (Hear(3), Signal("heard"), HearEnd()),
        Due(
            Saw(OK, End.OPEN),
            {ONE: (Saw(b"abc", End.RESET),)},
            (f"failed RESET client 3 {len(OK)}",),
        ),
    ),
    tunnelled(
        "an idle tunnel is given up and both ends can tell",
        (Say(HEAD + b"abc"), HearEnd()),
        (Hear(3), HearEnd()),
        Due(
            Saw(OK, End.RESET),
            {ONE: (Saw(b"abc", End.RESET),)},
            (f"failed TIMED_OUT nobody 3 {len(OK)}",),
        ),
        script=short_tunnel,
    ),
    tunnelled(
        "a cancelled tunnel ends for both and tells what it moved",
        (Say(HEAD + b"abc"), Hear(len(OK)), Await("heard"), Signal("stop"), HearEnd()),
        (Hear(3), Signal("heard"), HearEnd()),
        Due(
            Saw(OK, End.RESET),
            {ONE: (Saw(b"abc", End.RESET),)},
            (f"cancelled STOPPED 3 {len(OK)}",),
        ),
        cancels_on={"stop": Cause.STOPPED},
    ),
    tunnelled(
        "a slow reader gets every byte",
        (Say(HEAD), Hear(len(OK)), Await("said"), HearEnd(), Fin()),
        (Signal("said"), Say(DOWN), Fin(), HearEnd()),
        Due(Saw(OK + DOWN, End.FIN), {ONE: (Saw(b"", End.FIN),)}, (f"spliced 0 {len(OK + DOWN)}",)),
        small=True,
    ),
]


def echo_in_pieces(talk: Talk) -> Script[None]:
    """Take three bytes at most at a time; send them back together."""
    data = yield from read_to_end(talk, CLIENT, limit=3)
    yield from send_all(talk, data)


def empty(talk: Talk) -> Script[None]:
    """Read an end three times."""
    for _ in range(3):
        yield from talk.ask(Receive((CLIENT,), 10, talk.by))


def both_sides(talk: Talk) -> Script[None]:
    """Hear whichever side speaks, and let the other speak by an answer."""
    yield from connect(talk)
    for _ in range(4):
        event = yield from talk.ask(Receive(BOTH, 1, talk.by))
        assert isinstance(event, Received)
        yield from send_all(talk, event.data)
    yield from send_all(talk, b"", b".")


def one_ends(talk: Talk) -> Script[None]:
    """Hear that one side has ended, then the other."""
    yield from connect(talk)
    yield from talk.ask(Receive(BOTH, 9, talk.by))
    yield from send_all(talk, b"", b"go")
    talk.notes.append(repr((yield from read_until(talk, UPSTREAM, b"\n"))))


def send_both(talk: Talk) -> Script[None]:
    """Send both buffers at once, whichever goes faster."""
    yield from connect(talk)
    yield from send_all(talk, DOWN, UP)


def heeding(talk: Talk) -> Script[None]:
    """Send to a client that doesn't read, until the server says something."""
    yield from connect(talk)
    left, heard = DOWN, b""
    while not heard:
        event = yield Send(talk.by, to_client=left, heed=(UPSTREAM,))
        assert isinstance(event, Sent), event
        assert event.to_client < len(left), "so much can't have gone"
        left = left[event.to_client :]
        event = yield Receive((UPSTREAM,), 100, talk.by)
        assert isinstance(event, Received), event
        heard = event.data
    yield from send_all(talk, left, heard)


def late_send(talk: Talk) -> Script[None]:
    """Send more than a client that doesn't read has room for."""
    event = yield Send(talk.soon, to_client=DOWN)
    assert isinstance(event, Failed), event
    assert 0 < event.down < len(DOWN)
    talk.notes.append(f"failed {event.reason.name} {event.side} {event.up}")


def sends_into_a_reset(talk: Talk) -> Script[None]:
    """Send to a server that has broken off, until that is told."""
    yield from connect(talk)
    yield from send_all(talk, b"", b"x")
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    event: Event | None = None
    while not isinstance(event, Failed):
        event = yield Send(talk.by, to_upstream=b"x")
    talk.notes.append(f"failed {event.reason.name} {event.side}")


def hears_of_a_reset_again(talk: Talk) -> Script[None]:
    """The same, and then wait for what that server says."""
    yield from sends_into_a_reset(talk)
    yield from talk.ask(Receive((UPSTREAM,), 9, talk.by))


def hears_a_reset(talk: Talk) -> Script[None]:
    """Wait for a server that breaks off."""
    yield from connect(talk)
    yield from send_all(talk, b"", b"x")
    yield from talk.ask(Receive((UPSTREAM,), 9, talk.by))


def refusal(talk: Talk) -> Script[None]:
    """Refuse a client that goes on sending, and close in good order."""
    yield Receive((CLIENT,), 1, talk.by)
    yield from send_all(talk, b"HTTP/1.1 403 Forbidden\r\n\r\n")
    yield from talk.ask(Close(CLIENT, talk.by))


def closes_after_a_cancel(talk: Talk) -> Script[None]:
    """Close a server that stays, are cancelled meanwhile, and close the client."""
    yield from talk.ask(Connect((ONE,), talk.port, talk.by))
    yield from talk.ask(Close(UPSTREAM, talk.by))
    yield from talk.ask(Close(CLIENT, talk.by))


def impatient_close(talk: Talk) -> Script[None]:
    """Close a client that never ends, and a side that isn't open."""
    yield from talk.ask(Close(UPSTREAM, talk.by))
    yield from send_all(talk, b"bye")
    yield from talk.ask(Close(CLIENT, talk.soon))


def stopped(talk: Talk) -> Script[None]:
    """Serve a call that is cancelled, and tell its client."""
    yield from connect(talk)
    yield Log(ALLOWED)
    yield from send_all(talk, b"", b"x")
    yield from talk.ask(Receive(BOTH, 1, talk.by))
    yield Log(DONE)
    yield from send_all(talk, b"503")
    yield from talk.ask(Close(CLIENT, talk.by))


def broken_close(talk: Talk) -> Script[None]:
    """Close a client so that it can tell that what it heard was cut short."""
    yield Receive((CLIENT,), 1, talk.by)
    yield from send_all(talk, b"half")
    yield from talk.ask(Close(CLIENT, talk.soon, broken=True))


def broken_close_of_an_ended(talk: Talk) -> Script[None]:
    """The same, of a client that has ended and not read yet."""
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    yield from send_all(talk, b"half")
    yield from talk.ask(Close(CLIENT, talk.by, broken=True))


def late_broken_close(talk: Talk) -> Script[None]:
    """The same, at a deadline that has passed, once the client has heard all."""
    yield from send_all(talk, b"half")
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    yield from talk.ask(Close(CLIENT, talk.past, broken=True))


def connect_again(talk: Talk) -> Script[None]:
    """Close the upstream side, and open it anew to another server."""
    for address in (ONE, TWO):
        yield from talk.ask(Connect((address,), talk.port, talk.by))
        yield from send_all(talk, b"", address.encode())
        yield from talk.ask(Close(UPSTREAM, talk.by))


def dial_in_order(talk: Talk) -> Script[None]:
    """Dial a refusing address, one that accepts, and one that is never needed."""
    yield from talk.ask(Connect((ONE, TWO, THREE), talk.port, talk.by))
    yield from send_all(talk, b"", b"here")


def give_up_dialling(talk: Talk) -> Script[None]:
    """Dial an address that never answers, for a moment."""
    yield from talk.ask(Connect((ONE,), talk.port, talk.soon))


def past(talk: Talk) -> Script[None]:
    """Ask for what can't be done any more."""
    yield from talk.ask(Receive((CLIENT,), 1, talk.past))
    yield from talk.ask(Resolve("example.com", talk.past))
    yield from talk.ask(Connect((ONE,), talk.port, talk.past))
    yield from talk.ask(Close(CLIENT, talk.past))


def lookups(talk: Talk) -> Script[None]:
    """Look up a name that is there, one that isn't, and one for which no answer comes."""
    yield from talk.ask(Resolve("both.example.com", talk.by))
    yield from talk.ask(Resolve("nowhere.test", talk.by))
    yield from talk.ask(Resolve("silent.test", talk.later))


def places(talk: Talk) -> Script[None]:
    """Ask where addresses lead."""
    yield from talk.ask(Locate(("192.168.1.9", "203.0.113.1", "10.0.0.1", "224.0.0.1")))
    yield from talk.ask(Locate(()))


def waits_then_reads(talk: Talk) -> Script[None]:
    """Give up one read at its deadline; the bytes stay for the next."""
    yield from talk.ask(Receive((CLIENT,), 9, talk.soon))
    yield from send_all(talk, b"speak")
    assert (yield from read_until(talk, CLIENT, b"\n")) == b"spoken\n"


def interrupted_then_reads(talk: Talk) -> Script[None]:
    """Be cancelled in one read; the bytes stay for the next."""
    yield from talk.ask(Receive((CLIENT,), 9, talk.by))
    yield from send_all(talk, b"speak")
    assert (yield from read_until(talk, CLIENT, b"\n")) == b"spoken\n"


def between_two(talk: Talk) -> Script[None]:
    """Be cancelled before a log line: what waits next is answered so, and nothing else."""
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    yield from talk.ask(Log(ALLOWED))
    yield from talk.ask(Locate((ONE,)))
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    yield Log(DONE)


def cancelled_everywhere(talk: Talk) -> Script[None]:
    """Be cancelled before each command that waits."""
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    yield from talk.ask(Send(talk.by, to_client=b"x"))
    yield from talk.ask(Resolve("example.com", talk.by))
    yield from talk.ask(Connect((ONE,), talk.port, talk.by))
    yield from talk.ask(Close(CLIENT, talk.by))


def unloggable(talk: Talk) -> Script[None]:
    """Let a call through whose line can't be written."""
    yield from talk.ask(Log(ALLOWED))
    yield from talk.ask(Connect((ONE,), talk.port, talk.by))


def stop_while(command: str) -> Conversation:
    """Return a conversation that is cancelled while it waits for what never comes."""

    def script(talk: Talk) -> Script[None]:
        yield from send_all(talk, b"!")
        yield from talk.ask(
            {
                "receive": Receive((CLIENT,), 1, talk.by),
                "resolve": Resolve("silent.test", talk.by),
                "connect": Connect((ONE,), talk.port, talk.by),
                "close": Close(CLIENT, talk.by),
            }[command]
        )

    return Conversation(
        name=f"a cancel interrupts a {command} that waits",
        script=script,
        client=(Hear(1), Signal("stop"), Deaf()),
        servers={ONE: SILENT},
        names={"silent.test": SILENT},
        cancels_on={"asked silent.test" if command == "resolve" else "stop": Cause.PAUSED},
        due=Due(
            Saw(b"!", End.OPEN),
            {ONE: ()},
            ("cancelled PAUSED 0 0",),
            ("silent.test",) if command == "resolve" else (),
        ),
    )


def stop_while_sending() -> Conversation:
    """Return a conversation that is cancelled while its client doesn't read."""

    def script(talk: Talk) -> Script[None]:
        event = yield Send(talk.by, to_client=DOWN)
        while isinstance(event, Sent):
            event = yield Send(talk.by, to_client=DOWN)
        talk.notes.append(type(event).__name__)

    return Conversation(
        name="a cancel interrupts a send that waits",
        script=script,
        client=(Signal("stop"), Deaf()),
        cancels_on={"stop": Cause.PAUSED},
        small=True,
        due=Due(Saw(b"", End.OPEN), notes=("Cancelled",)),
    )


def looked_at(talk: Talk) -> Script[None]:
    """Look, join two sides until somebody closes the wire, and look again; then once more."""
    yield from connect(talk)
    yield from talk.ask(Look())
    yield from talk.ask(Splice(b"on", b"", 30.0))
    yield from talk.ask(Look())
    yield from talk.ask(Close(UPSTREAM, talk.past))
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    yield from talk.ask(Look())


PAUSE = Paused("connect", "example.com", 22, "it looks wrong")


def pauses_itself(talk: Talk) -> Script[None]:
    """Write the line that pauses the wire; who waits then is ended."""
    yield from talk.ask(Look())
    yield from talk.ask(Log(PAUSE))
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    yield from talk.ask(Look())


COMMANDS = [
    Conversation(
        name="a look tells of the wire, and closing it ends within a second who waits",
        script=looked_at,
        client=(Hear(2), Signal("stop"), Await("opened"), Say(b"!"), HearEnd()),
        servers={ONE: (HearEnd(), Signal("opened"))},
        closes_on={"stop": Cause.STOPPED, "opened": None},
        due=Due(
            Saw(b"on", End.FIN),
            {ONE: (Saw(b"", End.FIN),)},
            (
                "looked open",
                "cancelled STOPPED 0 2",
                "looked STOPPED",
                "closed",
                "received client b'!'",
                "looked open",
            ),
        ),
    ),
    Conversation(
        name="a line that pauses the wire closes it, and ends who waits",
        script=pauses_itself,
        client=(HearEnd(),),
        due=Due(
            Saw(b"", End.FIN),
            notes=("looked open", "logged", "cancelled PAUSED 0 0", "looked PAUSED"),
            log=(PAUSE,),
        ),
    ),
    Conversation(
        name="no read gives more than its limit",
        script=echo_in_pieces,
        client=(Say(b"0123456789"), Fin(), HearEnd()),
        due=Due(Saw(b"0123456789", End.FIN)),
    ),
    Conversation(
        name="an end is read as nothing, again and again",
        script=empty,
        client=(Fin(), HearEnd()),
        due=Due(Saw(b"", End.FIN), notes=("received client b''",) * 3),
    ),
    Conversation(
        name="whichever side speaks is heard",
        script=both_sides,
        client=(Hear(2), Say(b"c"), Hear(1), Signal("again"), Hear(1)),
        servers={ONE: (Say(b"ab"), Await("again"), Say(b"d"), HearEnd())},
        due=Due(
            Saw(b"abcd", End.FIN),
            {ONE: (Saw(b".", End.FIN),)},
            (
                "received upstream b'a'",
                "received upstream b'b'",
                "received client b'c'",
                "received upstream b'd'",
            ),
        ),
    ),
    Conversation(
        name="a client that leaves is seen while the server is waited for",
        script=one_ends,
        client=(Fin(), HearEnd()),
        servers={ONE: (Hear(2), Say(b"answer\n"), HearEnd())},
        due=Due(
            Saw(b"", End.FIN),
            {ONE: (Saw(b"go", End.FIN),)},
            ("received client b''", "b'answer\\n'"),
        ),
    ),
    Conversation(
        name="two buffers go at once and neither waits for the other",
        script=send_both,
        client=(HearEnd(),),
        servers={ONE: (HearEnd(),)},
        small=True,
        due=Due(Saw(DOWN, End.FIN), {ONE: (Saw(UP, End.FIN),)}),
    ),
    Conversation(
        name="a send to a slow reader heeds the other side",
        script=heeding,
        client=(Await("heard"), HearEnd()),
        servers={ONE: (Say(b"!"), Hear(1), Signal("heard"), HearEnd())},
        small=True,
        due=Due(Saw(DOWN, End.FIN), {ONE: (Saw(b"!", End.FIN),)}),
    ),
    Conversation(
        name="a late send tells how much had gone",
        script=late_send,
        client=(Deaf(),),
        small=True,
        due=Due(Saw(b"", End.OPEN), notes=("failed TIMED_OUT None 0",)),
    ),
    Conversation(
        name="sending into a reset fails on that side",
        script=sends_into_a_reset,
        client=(Await("gone"), Say(b"x"), HearEnd()),
        servers={ONE: (Hear(1), Reset(), Signal("gone"))},
        due=Due(
            Saw(b"", End.RESET),
            {ONE: (Saw(b"x", End.OPEN),)},
            ("received client b'x'", "failed RESET Side.UPSTREAM"),
        ),
    ),
    Conversation(
        name="a reset that a send has met doesn't look like an end to who then waits",
        script=hears_of_a_reset_again,
        client=(Await("gone"), Say(b"x"), HearEnd()),
        servers={ONE: (Hear(1), Reset(), Signal("gone"))},
        due=Due(
            Saw(b"", End.RESET),
            {ONE: (Saw(b"x", End.OPEN),)},
            ("received client b'x'", "failed RESET Side.UPSTREAM", "failed RESET upstream 0 0"),
        ),
    ),
    Conversation(
        name="a reset is told to who waits for that side, and passed on",
        script=hears_a_reset,
        servers={ONE: (Hear(1), Reset())},
        due=Due(Saw(b"", End.RESET), {ONE: (Saw(b"x", End.OPEN),)}, ("failed RESET upstream 0 0",)),
    ),
    Conversation(
        name="a close drains, so that a refusal is read by who goes on sending",
        script=refusal,
        client=(Say(UP), HearEnd(), Leave()),
        due=Due(Saw(b"HTTP/1.1 403 Forbidden\r\n\r\n", End.FIN), notes=("closed",)),
    ),
    Conversation(
        name="a side's end is told after another's close was cancelled",
        script=closes_after_a_cancel,
        client=(HearEnd(), Signal("gone"), Leave()),
        servers={ONE: (HearEnd(), Signal("ended"), Await("gone"))},
        cancels_on={"ended": Cause.STOPPED},
        due=Due(
            Saw(b"", End.FIN),
            {ONE: (Saw(b"", End.FIN),)},
            (f"connected {ONE}", "cancelled STOPPED 0 0", "closed"),
        ),
    ),
    Conversation(
        name="a close ends at its deadline, and a side that isn't open is closed",
        script=impatient_close,
        client=(Hear(3), Deaf()),
        due=Due(Saw(b"bye", End.OPEN), notes=("closed", "closed")),
    ),
    Conversation(
        name="a server's part of a cancelled call ends in a reset, its client's in good order",
        script=stopped,
        client=(HearEnd(), Leave()),
        servers={ONE: (Hear(1), Signal("there"), HearEnd())},
        cancels_on={"there": Cause.STOPPED},
        due=Due(
            Saw(b"503", End.FIN),
            {ONE: (Saw(b"x", End.RESET),)},
            ("cancelled STOPPED 0 0", "closed"),
            log=(ALLOWED, DONE),
        ),
    ),
    Conversation(
        name="a broken close is a reset, once what is on the way has been read",
        script=broken_close,
        client=(Say(UP), HearEnd()),
        due=Due(Saw(b"half", End.RESET), notes=("closed",)),
    ),
    Conversation(
        name="so is a late broken close, that waits no longer",
        script=late_broken_close,
        client=(Hear(4), Say(b"x"), HearEnd()),
        due=Due(Saw(b"half", End.RESET), notes=("received client b'x'", "closed")),
    ),
    Conversation(
        name="a side that was closed opens again",
        script=connect_again,
        servers={ONE: (HearEnd(), Leave()), TWO: (HearEnd(), Leave())},
        due=Due(
            Saw(b"", End.FIN),
            {ONE: (Saw(ONE.encode(), End.FIN),), TWO: (Saw(TWO.encode(), End.FIN),)},
            (f"connected {ONE}", "closed", f"connected {TWO}", "closed"),
        ),
    ),
    Conversation(
        name="the first address that accepts wins and no other is dialled",
        script=dial_in_order,
        servers={ONE: REFUSED, TWO: (HearEnd(),), THREE: (HearEnd(),)},
        due=Due(
            Saw(b"", End.FIN),
            {ONE: (), TWO: (Saw(b"here", End.FIN),), THREE: ()},
            (f"connected {TWO}",),
        ),
    ),
    Conversation(
        name="an address that never answers is passed after a moment",
        script=dial_in_order,
        servers={ONE: SILENT, TWO: (HearEnd(),), THREE: (HearEnd(),)},
        due=Due(
            Saw(b"", End.FIN),
            {ONE: (), TWO: (Saw(b"here", End.FIN),), THREE: ()},
            (f"connected {TWO}",),
        ),
    ),
    Conversation(
        name="where every address refuses the connect is refused",
        script=lambda talk: (yield from talk.ask(Connect((ONE, TWO), talk.port, talk.by))),
        servers={ONE: REFUSED, TWO: REFUSED},
        due=Due(Saw(b"", End.FIN), {ONE: (), TWO: ()}, ("failed REFUSED upstream 0 0",)),
    ),
    Conversation(
        name="dialling ends at its deadline",
        script=give_up_dialling,
        servers={ONE: SILENT},
        due=Due(Saw(b"", End.FIN), {ONE: ()}, ("failed TIMED_OUT upstream 0 0",)),
    ),
    Conversation(
        name="in the past nobody is asked, dialled or waited for",
        script=past,
        servers={ONE: (HearEnd(),)},
        names=TUNNEL_NAMES,
        due=Due(
            Saw(b"", End.FIN),
            {ONE: ()},
            (
                "failed TIMED_OUT nobody 0 0",
                "failed TIMED_OUT upstream 0 0",
                "failed TIMED_OUT upstream 0 0",
                "closed",
            ),
        ),
    ),
    Conversation(
        name="names are looked up once each, and fail in their own ways",
        script=lookups,
        names={"both.example.com": ("2001:db8::1", "203.0.113.1"), "silent.test": SILENT},
        due=Due(
            Saw(b"", End.FIN),
            notes=(
                "resolved 2001:db8::1 203.0.113.1",
                "failed UNRESOLVED upstream 0 0",
                "failed TIMED_OUT upstream 0 0",
            ),
            asked=("both.example.com", "nowhere.test", "silent.test"),
        ),
    ),
    Conversation(
        name="places come in the order asked",
        script=places,
        places={
            "192.168.1.9": Place.OWN_NETWORK,
            "10.0.0.1": Place.THIS_MACHINE,
            "224.0.0.1": Place.MANY,
        },
        due=Due(
            Saw(b"", End.FIN),
            notes=("located OWN_NETWORK ELSEWHERE THIS_MACHINE MANY", "located "),
        ),
    ),
    Conversation(
        name="a read that was late leaves the bytes to the next",
        script=waits_then_reads,
        client=(Hear(5), Say(b"spoken\n"), HearEnd()),
        due=Due(Saw(b"speak", End.FIN), notes=("failed TIMED_OUT nobody 0 0",)),
    ),
    Conversation(
        name="a read that was cancelled leaves the bytes to the next",
        script=interrupted_then_reads,
        client=(Signal("pause"), Hear(5), Say(b"spoken\n"), HearEnd()),
        cancels_on={"pause": Cause.PAUSED},
        due=Due(Saw(b"speak", End.FIN), notes=("cancelled PAUSED 0 0",)),
    ),
    Conversation(
        name="a cancel between two commands answers the next that waits",
        script=between_two,
        client=(Say(b"ab"), HearEnd()),
        cancels_before={1: Cause.STOPPED},
        due=Due(
            Saw(b"", End.FIN),
            notes=(
                "received client b'a'",
                "logged",
                "located ELSEWHERE",
                "cancelled STOPPED 0 0",
                "received client b'b'",
            ),
            log=(ALLOWED, DONE),
        ),
    ),
    Conversation(
        name="every command that waits can be cancelled before it is begun",
        script=cancelled_everywhere,
        client=(HearEnd(),),
        servers={ONE: (HearEnd(),)},
        names=TUNNEL_NAMES,
        cancels_before=dict.fromkeys(range(5), Cause.SHUTDOWN),
        due=Due(Saw(b"", End.FIN), {ONE: ()}, ("cancelled SHUTDOWN 0 0",) * 5),
    ),
    Conversation(
        name="a call that can't be logged doesn't happen",
        script=unloggable,
        servers={ONE: (HearEnd(),)},
        log_full=True,
        due=Due(Saw(b"", End.FIN), {ONE: ()}, ("logged", "cancelled UNLOGGED 0 0")),
    ),
    Conversation(
        name="an answer that breaks off is counted as far as it went",
        script=breaks_off,
        client=(Say(REQUEST), HearEnd()),
        servers={ONE: (Hear(len(ONWARD)), Say(ANSWER + b"\n"), HearEnd())},
        due=Due(
            Saw(ANSWER, End.FIN),
            {ONE: (Saw(ONWARD, End.FIN),)},
            log=(
                Allowed("http", "example.com", 80),
                Ending("http", "example.com", 80, len(ONWARD), len(ANSWER), 0.0, BAD_CHUNK),
            ),
        ),
    ),
    Conversation(
        name="datagrams are heard one by one and a connection may lead inside",
        script=asks_by_datagrams,
        client=(Say(b"into it"), Hear(4), Fin()),
        servers={ONE: (Hear(7), Say(b"back"), HearEnd(), Fin())},
        datagrams={TWO: lambda data: b"answer to " + data},
        due=Due(
            Saw(b"back", End.FIN),
            {ONE: (Saw(b"into it", End.FIN),)},
            (
                f"connected {TWO}",
                "sent",
                "sent",
                "received upstream b'answer to one'",
                "received upstream b'answer to two'",
                "failed TIMED_OUT nobody 0 0",
                f"connected {ONE}",
                "spliced 7 4",
            ),
        ),
    ),
    Conversation(
        name="an address inside is served unless it is taken",
        script=listens_inside,
        client=(HearEnd(),),
        servers={ONE: ()},
        listen_fails=(THREE,),
        cancels_before={0: Cause.STOPPED},
        due=Due(
            Saw(b"", End.FIN),
            {ONE: ()},
            ("listening", "failed BROKEN nobody 0 0", "cancelled STOPPED 0 0"),
        ),
    ),
    *map(stop_while, ("receive", "resolve", "connect", "close")),
    stop_while_sending(),
]


def open_and_talk(talk: Talk) -> Script[None]:
    """Open a bridge, close it, open another, and one that isn't there."""
    for name in ("first", "second"):
        yield from talk.ask(Open(name, talk.by))
        yield from send_all(talk, b"", name.encode())
        talk.notes.append(repr((yield from read_until(talk, UPSTREAM, b"\n"))))
        yield from talk.ask(Close(UPSTREAM, talk.by))
    yield from talk.ask(Open("nowhere", talk.by))
    yield from talk.ask(Open("first", talk.past))


def secure(talk: Talk, by: float | None = None) -> Script[Event]:
    """Connect to the one server and begin TLS with it."""
    yield from connect(talk)
    return (yield from talk.ask(StartTls(SECURE_HOST, talk.by if by is None else by)))


def secret_end(talk: Talk) -> Script[None]:
    """Hear a server's last word inside TLS, which its end is right behind."""
    yield from secure(talk)
    yield from send_all(talk, b"", b"x")
    yield from talk.ask(Receive((CLIENT,), 1, talk.by))
    for _ in range(3):
        yield from talk.ask(Receive((UPSTREAM,), 9, talk.by))


def secret_talk(talk: Talk) -> Script[None]:
    """Say much and hear much inside TLS, in turns."""
    yield from secure(talk)
    yield from send_all(talk, b"", UP)
    heard = b""
    while len(heard) < len(DOWN):
        event = yield Receive((UPSTREAM,), 70_001, talk.by)
        assert isinstance(event, Received), event
        heard += event.data
    yield from send_all(talk, heard)


def secretly_heeding(talk: Talk) -> Script[None]:
    """Send to a client that doesn't read, until the server speaks inside TLS.

    What TLS itself says after a handshake is no such word.
    """
    yield from secure(talk)
    event = yield Send(talk.by, to_client=DOWN, heed=(UPSTREAM,))
    assert isinstance(event, Sent), event
    talk.notes.append(f"whole: {event.to_client == len(DOWN)}")
    yield from talk.ask(Receive((UPSTREAM,), 1, talk.by))
    yield from send_all(talk, DOWN[event.to_client :], b".")


def fails_to_secure(name: str, how: Secured, answer: str) -> Conversation:
    """Return a conversation whose handshake comes to nothing."""

    def script(talk: Talk) -> Script[None]:
        yield from secure(talk, talk.soon if how is Secured.NEVER_ANSWERS else None)

    return Conversation(
        name=name,
        script=script,
        servers={ONE: (HearEnd(),)},
        secured={ONE: how},
        due=Due(Saw(b"", End.FIN), {ONE: (Saw(b"", End.FIN),)}, (f"failed {answer} upstream 0 0",)),
    )


BEYOND = [
    Conversation(
        name="a bridge is opened by its name, another after it, and none that isn't there",
        script=open_and_talk,
        bridges={
            "first": (Hear(5), Say(b"one\n"), HearEnd(), Leave()),
            "second": (Hear(6), Say(b"two\n"), HearEnd(), Leave()),
        },
        due=Due(
            Saw(b"", End.FIN),
            {"first": (Saw(b"first", End.FIN),), "second": (Saw(b"second", End.FIN),)},
            (
                "opened",
                "b'one\\n'",
                "closed",
                "opened",
                "b'two\\n'",
                "closed",
                "failed REFUSED upstream 0 0",
                "failed TIMED_OUT upstream 0 0",
            ),
        ),
    ),
    Conversation(
        name="what is inside TLS arrives whole, both ways",
        script=secret_talk,
        client=(HearEnd(),),
        servers={ONE: (Hear(len(UP)), Say(DOWN), HearEnd())},
        secured={ONE: Secured.RIGHT},
        small=True,
        due=Due(Saw(DOWN, End.FIN), {ONE: (Saw(UP, End.FIN),)}, ("secured",)),
    ),
    Conversation(
        name="an end inside TLS is seen right behind what was said, before the connection's own",
        script=secret_end,
        client=(Await("ended"), Say(b"c"), HearEnd()),
        servers={ONE: (Hear(1), Say(b"!"), Fin(), Signal("ended"), HearEnd())},
        secured={ONE: Secured.RIGHT},
        due=Due(
            Saw(b"", End.FIN),
            {ONE: (Saw(b"x", End.FIN),)},
            (
                "secured",
                "received client b'c'",
                "received upstream b'!'",
                "received upstream b''",
                "received upstream b''",
            ),
        ),
    ),
    Conversation(
        name="a send to a slow reader heeds what a server says inside TLS",
        script=secretly_heeding,
        client=(Hear(1), Signal("full"), Await("heard"), HearEnd()),
        servers={ONE: (Await("full"), Say(b"!"), Hear(1), Signal("heard"), HearEnd())},
        secured={ONE: Secured.RIGHT},
        small=True,
        due=Due(
            Saw(DOWN, End.FIN),
            {ONE: (Saw(b".", End.FIN),)},
            ("secured", "whole: False", "received upstream b'!'"),
        ),
    ),
    fails_to_secure(
        "a certificate for another name isn't trusted", Secured.OTHER_NAME, "UNTRUSTED"
    ),
    fails_to_secure(
        "a certificate of an unknown authority isn't trusted",
        Secured.UNKNOWN_AUTHORITY,
        "UNTRUSTED",
    ),
    fails_to_secure("a server that speaks no TLS breaks it off", Secured.NOT_AT_ALL, "BROKEN"),
    fails_to_secure("a server that leaves a handshake has reset", Secured.LEAVES, "RESET"),
    fails_to_secure("a handshake ends at its deadline", Secured.NEVER_ANSWERS, "TIMED_OUT"),
]

CONVERSATIONS = [*TUNNELS, *COMMANDS, *BEYOND]
