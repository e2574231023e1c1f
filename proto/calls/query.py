"""DNS for the sandbox's endpoints (R34): what is answered here, and what is asked outside.

    A      of an endpoint       an address of the sandbox's own, at which the wire listens
    AAAA, HTTPS, SVCB  of one   no data: an error would fail the whole look-up (musl's does)
    SRV, TXT  of one            asked outside, and counted as a call
    anything else               refused, and nobody is asked

A name that isn't listed doesn't exist (NXDOMAIN): a resolver takes that for an answer, where
it would try a refusal again until its time is up.  What is asked outside is a question
written anew; nothing else of a query leaves the sandbox, no option and no letter's case.
"""

from __future__ import annotations

import msgspec

from proto.calls.gate import pass_gate
from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.codecs import dns
from proto.commands import CLIENT, DATAGRAMS, OUT, UPSTREAM, Close, Connect, Listen, Receive, Send
from proto.errors import CallCancelled, MalformedRequest, ProxyError, Refused, UpstreamError
from proto.events import Closed, Connected, Listening, Received, Sent
from proto.policy.admission import Admission
from proto.policy.endpoints import Endpoints, no_endpoint
from proto.policy.hosts import canonical_host
from proto.script import Script

DNS_PORT = 53
OWN_TTL_S = 60
"""A name keeps its address; a short time lets a program that lives long notice a new sandbox."""

QUERIES_A_CONNECTION = 64
"""Then a TCP client has to connect anew (RFC 7766 §6.2.3 lets a server choose)."""
ENTROPY_BYTES = 2 * QUERIES_A_CONNECTION

NO_DATA = frozenset({dns.AAAA, dns.HTTPS, dns.SVCB})
ASKED = frozenset({dns.SRV, dns.TXT})
TRANSPORTS = ("_tcp", "_udp")
"""The second label of a service's name (RFC 2782): `_mongodb._tcp.db.example.com`."""
PASSED_ON = frozenset({dns.NOERROR, dns.NXDOMAIN})
"""What a resolver says that is an answer; for anything else the next is asked."""

SERVERS_MOST = 3
"""As many as resolv.conf(5) has."""
STRANGE_MOST = 32
"""Datagrams that answer another question: so many are a forger's guesses (RFC 5452 §9)."""
TRY_S = 2.5
"""What one resolver has for its answer, by datagrams or by TCP."""


class Desk(msgspec.Struct, frozen=True):
    """What the queries of one wire share.

    `servers`: the addresses of this machine's resolvers.  `admission`: what counts those
    that ask outside, and what is refused.
    """

    endpoints: Endpoints
    servers: tuple[str, ...]
    limits: Limits
    admission: Admission | None = None


class RefusedQuery(Refused):
    """A query that our policy refuses; `rcode` is the code that says so."""

    status_hint = None

    def __init__(self, message: str, rcode: int = dns.REFUSED, key: str | None = None) -> None:
        super().__init__(message, key=key)
        self.rcode = rcode


def serve_datagram(desk: Desk, entropy: bytes, now: float) -> Script[None]:
    """Answer one query that came as a datagram; `entropy` has ENTROPY_BYTES of chance."""
    event = yield Receive((CLIENT,), dns.MESSAGE_MAX_BYTES, now + desk.limits.grace_s)
    if isinstance(event, Received):
        ledger = _begun(desk, event.now)
        answer, _ = yield from answer_query(desk, ledger, event.data, entropy, in_datagrams=True)
        if answer:
            yield Send(ledger.now + desk.limits.grace_s, to_client=answer)


def serve_stream(desk: Desk, entropy: bytes, now: float) -> Script[None]:
    """Answer the queries of one connection, one after the other (RFC 7766)."""
    frames, grace_s = dns.Frames(), desk.limits.grace_s
    for at in range(0, ENTROPY_BYTES, 2):
        message = frames.next()
        by = now + desk.limits.head_s
        while message is None:
            event = yield Receive((CLIENT,), frames.room, by)
            if not isinstance(event, Received) or not event.data:
                return
            frames.feed(event.data)
            now, message = event.now, frames.next()
        ledger, chance = _begun(desk, now), entropy[at:]
        answer, goes_on = yield from answer_query(desk, ledger, message, chance, in_datagrams=False)
        now = ledger.now
        if answer:
            sent = yield Send(now + grace_s, to_client=dns.framed(answer))
            goes_on = goes_on and isinstance(sent, Sent)
        if not goes_on:
            break
    yield Close(CLIENT, now + grace_s)


def _begun(desk: Desk, now: float) -> Ledger:
    return Ledger(
        now, verb="dns", port=DNS_PORT, began=now, answered=True, admission=desk.admission
    )


def answer_query(
    desk: Desk, ledger: Ledger, message: bytes, entropy: bytes, *, in_datagrams: bool
) -> Script[tuple[bytes, bool]]:
    """Return the answer to one message, none where it gets none, and whether another may follow."""
    try:
        query = dns.read_query(message)
    except (dns.UnfitQuery, dns.NoQuery) as error:
        yield ledger.fail(error, 0)
        # Whoever sends what gets no answer is out of step.
        return (error.answer, True) if isinstance(error, dns.UnfitQuery) else (b"", False)
    records: tuple[dns.Record, ...] = ()
    goes_on = True
    try:
        rcode, records = yield from _answered(desk, ledger, query, entropy)
        yield ledger.end("done" if rcode == dns.NOERROR else "there is no such name")
    except ProxyError as error:
        rcode = _rcode_of(error)
        goes_on = not isinstance(error, CallCancelled)
        # A look-up asks for both families, and is one: the second question counts for nothing.
        if query.kind not in NO_DATA and (pause := ledger.pause(error)) is not None:
            yield pause
        yield ledger.fail(error, 0)
    room = query.room if in_datagrams else dns.MESSAGE_MAX_BYTES
    return dns.write_answer(query, rcode, records, room=room), goes_on


def _rcode_of(error: ProxyError) -> int:
    """Return the code that tells a client of an error: refused is ours, failed the world's."""
    if isinstance(error, RefusedQuery):
        return error.rcode
    return dns.REFUSED if isinstance(error, Refused) else dns.SERVFAIL


Found = tuple[int, tuple[dns.Record, ...]]


def _answered(desk: Desk, ledger: Ledger, query: dns.Query, entropy: bytes) -> Script[Found]:
    """Judge a query by its class, name and type, in this order; then answer it."""
    if query.group != dns.IN:
        raise RefusedQuery("only names of the internet's class are answered.")
    ledger.host = name = _name_of(query.labels)
    host = _host_of(name, query.kind)
    policy = desk.endpoints.policy
    ports_of = policy.endpoint_ports
    if not (ports_of(name) or ports_of(host)):
        error = no_endpoint(name, policy.cures)
        raise RefusedQuery(error.message, dns.NXDOMAIN, error.key)
    if query.kind == dns.A:
        return (yield from _own_address(desk, ledger, name))
    if query.kind in NO_DATA:
        yield ledger.allow()
        return dns.NOERROR, ()
    if query.kind not in ASKED:
        raise RefusedQuery("only A, SRV and TXT of an endpoint are answered.")
    if "." not in host or host.endswith(".local"):
        # This machine's resolver would ask the local network, which the sandbox never reaches.
        raise RefusedQuery("a name of the local network is looked up by nobody.")
    yield from pass_gate(ledger)  # once a look-up, however many resolvers it takes
    yield ledger.allow()
    reply = yield from ask_outside(desk, ledger, name, query.kind, entropy)
    return reply.rcode, reply.records if reply.rcode == dns.NOERROR else ()


def _name_of(labels: tuple[bytes, ...]) -> str:
    """Return a name in its one form; RefusedQuery for what is no host's name.

    A dot inside a label would make another name of it, once it is text; and letters beyond
    ASCII another still, which the host of a URL may have and a name in DNS never has.
    """
    if not labels:
        raise RefusedQuery("the root is no endpoint.")
    name = b".".join(labels)
    try:
        if name.isascii() and name.count(b".") == len(labels) - 1:
            return canonical_host(name)
    except MalformedRequest:
        pass  # refused as the rest is
    raise RefusedQuery("a name that no host can have was looked up.", dns.NXDOMAIN)


def _host_of(name: str, kind: int) -> str:
    """Return the host that a name is about: a service's is the one behind its two labels."""
    service, _, rest = name.partition(".")
    transport, _, host = rest.partition(".")
    if kind == dns.SRV and service.startswith("_") and transport in TRANSPORTS and host:
        return host
    return name


def _own_address(desk: Desk, ledger: Ledger, host: str) -> Script[Found]:
    """Return the address that stands for an endpoint, once the wire listens there."""
    try:
        address = desk.endpoints.address_of(host)
    except Refused as error:
        raise RefusedQuery(error.message) from None
    yield ledger.allow()
    for place in desk.endpoints.to_listen(host):
        yield from ledger.ask(Listen(*place), Listening)
        desk.endpoints.listens(place)
    return dns.NOERROR, (dns.address_record(address, OWN_TTL_S),)


# -- outside --------------------------------------------------------------------------------


def ask_outside(
    desk: Desk, ledger: Ledger, name: str, kind: int, entropy: bytes
) -> Script[dns.Reply]:
    """Ask this machine's resolvers one question, in their order, until one knows.

    Raises UpstreamError where none does in time.
    """
    ident, question = int.from_bytes(entropy[:2], "big"), dns.question_of(name, kind)
    by = ledger.now + desk.limits.setup_s
    failure = UpstreamError("this machine has no resolver.")
    for server in desk.servers[:SERVERS_MOST]:
        try:
            reply = yield from _ask(ledger, server, ident, question, by)
            failure = UpstreamError(f"the resolver failed (code {reply.rcode}).")
        except dns.BadMessage:
            reply, failure = None, UpstreamError("the resolver's answer can't be read.")
        except UpstreamError as error:
            reply, failure = None, error
        yield from ledger.ask(Close(UPSTREAM, ledger.now), Closed)
        if reply is not None and reply.rcode in PASSED_ON:
            return reply
    raise failure


def _ask(ledger: Ledger, server: str, ident: int, question: bytes, by: float) -> Script[dns.Reply]:
    """Ask one resolver by a datagram; by TCP where its answer is cut, or forgers guess."""
    late = min(by, ledger.now + TRY_S)
    yield from ledger.ask(Connect((server,), DNS_PORT, late, DATAGRAMS), Connected)
    yield from _say(ledger, dns.write_query(ident, question), late)
    for _ in range(STRANGE_MOST):
        data = yield from _hear(ledger, dns.MESSAGE_MAX_BYTES, late)
        reply = dns.read_answer(data, ident, question)
        if reply is not None and reply.cut:
            break
        if reply is not None:
            return reply
    yield from ledger.ask(Close(UPSTREAM, ledger.now), Closed)
    return (yield from _ask_by_tcp(ledger, server, ident, question, by))


def _say(ledger: Ledger, data: bytes, by: float) -> Script[None]:
    """Send a resolver its question; what passes is on the log as any call's bytes are."""
    sent = yield from ledger.ask(Send(by, to_upstream=data), Sent)
    ledger.up += sent.to_upstream


def _hear(ledger: Ledger, limit: int, by: float) -> Script[bytes]:
    came = yield from ledger.ask(Receive((UPSTREAM,), limit, by), Received)
    ledger.down += len(came.data)
    return came.data


def _ask_by_tcp(
    ledger: Ledger, server: str, ident: int, question: bytes, by: float
) -> Script[dns.Reply]:
    late = min(by, ledger.now + TRY_S)
    yield from ledger.ask(Connect((server,), DNS_PORT, late, OUT), Connected)
    yield from _say(ledger, dns.framed(dns.write_query(ident, question)), late)
    frames = dns.Frames()
    while (message := frames.next()) is None:
        data = yield from _hear(ledger, frames.room, late)
        if not data:
            raise UpstreamError("the resolver ended its connection before its answer.")
        frames.feed(data)
    reply = dns.read_answer(message, ident, question)
    if reply is None or reply.cut:
        raise UpstreamError("the resolver answered another question.")
    return reply
