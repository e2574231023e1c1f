"""A hello that its server asks for once more: `proto/codecs/hello_retry.py`."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies_hello import Hello, record, server_name, sized
from proto.calls.limits import Limits
from proto.calls.serve import serve_connection
from proto.codecs.client_hello import HELLO_MAX_BYTES, RAW_MAX_BYTES
from proto.codecs.client_hello import server_name as server_name_of
from proto.codecs.hello_retry import HelloAnswer
from proto.errors import HelloRefused
from proto.policy.hosts import Policy
from shells.sim_shell import run
from shells.sim_world import Cut, Pause, Reply, Say, World

HOST = "listed.example"
OTHER = "other.example"
CHANGE = b"\x14\x03\x03\x00\x01\x01"
WARNING = b"\x15\x03\x03\x00\x02\x01\x70"
DATA = b"\x17\x03\x03\x00\x05early"
RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
RETRY = record(b"\x02\x00\x00\x28\x03\x03" + RANDOM + bytes(6))
ANSWER = record(b"\x02\x00\x00\x28\x03\x03" + bytes(38))
X25519 = b"\x00\x1d"


def hello(name: str, *, share: bool = True) -> bytes:
    """Return a hello that a TLS 1.3 server goes on with, or asks for anew without a share."""
    key = X25519PrivateKey.generate().public_key().public_bytes_raw()
    shares = X25519 + sized(2, key) if share else b""
    tls13 = (43, b"\x02\x03\x04"), (10, sized(2, X25519)), (13, sized(2, b"\x08\x04\x04\x03"))
    return Hello((server_name(name.encode()), *tls13, (51, sized(2, shares)))).message()


SECOND = record(hello(HOST))


def followed(*said: tuple[str, bytes]) -> HelloAnswer:
    """Follow a tunnel in which the client ("c") and the server ("s") say these."""
    answer = HelloAnswer(HOST)
    for side, data in said:
        (answer.hear_client if side == "c" else answer.hear_server)(data)
    return answer


def test_an_answer_that_asks_for_nothing_settles_it() -> None:
    for said in (ANSWER, WARNING + ANSWER, CHANGE + ANSWER, b"SSH-2.0-x\r\n", b"\x16\x03\x03\0\0"):
        answer = followed(("s", said))
        assert answer.settled
        assert not answer.retried


def test_before_the_server_answers_nothing_is_settled() -> None:
    answer = followed(("c", CHANGE + DATA), ("s", WARNING), ("s", ANSWER[:11]), ("c", DATA))
    assert not answer.settled
    answer.hear_server(ANSWER[11:])
    assert answer.settled


@pytest.mark.parametrize("ahead", [b"", CHANGE, DATA * 3, CHANGE + DATA, WARNING])
def test_a_second_hello_for_the_same_host_settles_it(ahead: bytes) -> None:
    answer = followed(("c", ahead), ("s", RETRY))
    assert answer.retried
    assert not answer.settled
    answer.hear_server(CHANGE)
    answer.hear_client(DATA + CHANGE + SECOND[:70])
    assert not answer.settled
    answer.hear_client(SECOND[70:] + CHANGE)
    assert answer.settled


def test_a_second_hello_that_was_sent_ahead_is_judged_once_it_is_asked_for() -> None:
    assert followed(("c", SECOND), ("s", RETRY)).settled
    assert followed(("c", record(hello(OTHER))), ("s", ANSWER)).settled
    with pytest.raises(HelloRefused, match="another name in its second ClientHello"):
        followed(("c", record(hello(OTHER))), ("s", RETRY))


@pytest.mark.parametrize(
    "second",
    [
        record(hello(OTHER)),
        record(hello(f"www.{HOST}")),
        record(Hello([(43, b"\x02\x03\x04")]).message()),
        record(hello(HOST) + b"\x01"),
        record(hello(HOST)[:50]) + CHANGE + record(hello(HOST)[50:]),
        record(hello(HOST)[:50]) + b"\x16\x03\x03\x00\x00",
        record(b"\x0b" + hello(HOST)[1:]),
        record(b"\x01\x00\x40\x01"),
        b"GET / HTTP/1.1\r\n",
        DATA * (RAW_MAX_BYTES // len(DATA) + 1),
        record(b"\x01\x00\x00\x00"),
    ],
)
def test_any_other_second_hello_is_refused(second: bytes) -> None:
    for pieces in ([second], [second[:9], second[9:]], [bytes((each,)) for each in second]):
        with pytest.raises(HelloRefused):
            followed(("s", RETRY), *(("c", piece) for piece in pieces))


PIECES = st.sampled_from(
    [
        CHANGE,
        WARNING,
        DATA,
        SECOND,
        SECOND[:70],
        SECOND[70:],
        record(hello(OTHER)),
        b"\x16\x03",
        b"x",
    ]
)


def outcome(*said: tuple[str, bytes]) -> object:
    try:
        answer = followed(*said)
    except HelloRefused:
        return "refused"
    return answer.settled, answer.retried


@given(st.lists(PIECES, max_size=3), st.sampled_from([RETRY, ANSWER]), st.lists(PIECES, max_size=4))
def test_how_a_side_is_cut_changes_nothing(
    ahead: list[bytes], said: bytes, behind: list[bytes]
) -> None:
    whole = [("c", b"".join(ahead)), ("s", said), ("c", b"".join(behind))]
    bytewise = [(side, bytes((each,))) for side, data in whole for each in data]
    assert outcome(*whole) == outcome(*bytewise)


def test_what_is_held_of_a_side_is_bounded() -> None:
    answer = HelloAnswer(HOST)
    for _ in range(100):
        answer.hear_client(record(b"\x01\x00\xff\xff" + bytes(16000)))
    assert len(answer._client.message) < HELLO_MAX_BYTES + RAW_MAX_BYTES


def hellos_in(data: bytes) -> list[bytes]:
    """Return the hellos that a lax server finds: it passes over whatever isn't one."""
    message, found = b"", []
    while len(data) >= 5 and len(data) >= (end := 5 + int.from_bytes(data[3:5], "big")):
        message += data[5:end] if data[0] == 22 else b""
        data = data[end:]
        while len(message) >= 4 and len(message) >= (
            size := 4 + int.from_bytes(message[1:4], "big")
        ):
            found.append(message[:size])
            message = message[size:]
    return found


class LaxServer:
    """Asks for each hello once more, and answers the second, whatever it is for."""

    def __init__(self) -> None:
        self.heard = b""
        self._asked = False

    def reply(self, data: bytes) -> tuple[bytes, ...] | None:
        count = len(hellos_in(self.heard + data))
        said = () if self._asked or not count else (RETRY,)
        said += (ANSWER,) if count > 1 else ()
        self._asked = self._asked or bool(said)
        if said:
            self.heard += data
        return said or None


@given(
    st.lists(PIECES, max_size=3),
    st.lists(PIECES, max_size=3),
    st.sampled_from(Cut),
    st.integers(0, 999),
)
def test_no_answer_to_a_hello_for_another_host_comes_back(
    ahead: list[bytes], behind: list[bytes], cut: Cut, seed: int
) -> None:
    server = LaxServer()
    head = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode()
    world = World(
        client=(Say(head + SECOND + b"".join(ahead)), Pause(1.0), Say(b"".join(behind) or CHANGE)),
        any_name=("203.0.113.10",),
        any_server=(Reply(server.reply),) * 2,
        cut=cut,
    )
    policy = Policy.of([HOST])
    seen = run(lambda now: serve_connection(policy, Limits(), None, now), world, seed)
    if ANSWER in seen.client.data:
        first, second, *_ = hellos_in(server.heard)
        assert server_name_of(first) == server_name_of(second) == HOST


# -- with real ends -------------------------------------------------------------------------


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a client's and a server's, which asks for another share than clients send."""
    authority, server = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST, OTHER).configure_cert(server)
    server.set_ecdh_curve("secp384r1")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(client)
    return client, server


class Real:
    """One end of a handshake, bytes in and bytes out."""

    def __init__(self, context: ssl.SSLContext, host: str | None = None) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.end = context.wrap_bio(
            self._in, self._out, server_side=host is None, server_hostname=host
        )

    def hear(self, data: bytes) -> bytes:
        self._in.write(data)
        with suppress(ssl.SSLWantReadError):
            self.end.do_handshake()
        return self._out.read()


def cut(data: bytes, sizes: Iterable[int]) -> Iterable[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


def test_a_real_server_goes_by_the_name_of_a_second_hello() -> None:
    """Why this is read at all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(HOST).configure_cert(context)
    seen: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    server = Real(context)
    assert RANDOM in server.hear(record(hello(HOST, share=False)))
    assert server.hear(record(hello(OTHER))) != b""
    assert seen == [HOST, OTHER]


@given(st.lists(st.integers(1, 200), max_size=6), st.lists(st.integers(1, 200), max_size=6))
def test_real_ends_settle_it_however_they_are_cut(up: list[int], down: list[int]) -> None:
    ours, theirs = contexts()
    client, server, answer = Real(ours, HOST), Real(theirs), HelloAnswer(HOST)
    asked = server.hear(client.hear(b""))
    for piece in cut(asked, down):
        answer.hear_server(piece)
    assert answer.retried
    second = client.hear(asked)
    for piece in cut(second, up):
        assert not answer.settled
        answer.hear_client(piece)
        if answer.settled:
            break
    assert answer.settled
    client.hear(server.hear(second))
    assert client.end.version() == "TLSv1.3"
