"""A local model's runtime: inference alone, by exact method and path (R52).

An allow-list: a runtime's new endpoint is refused until it is known, for what manages models
writes files, fetches URLs or shows what others ask.  A path is compared as it came; an encoded
or relative one is refused, not decoded, since the runtime might read it otherwise.  One
request a connection, so that each one is read, and never an upgrade, over which any call could
follow unread.

There are two ways in with this one filter: the runtime's own port, carried into the sandbox
(`relayed_connection`), and the proxy's path (`local_call`).
"""

from __future__ import annotations

import re

from proto.calls.exchange import Exchange
from proto.calls.forward import carry
from proto.calls.gate import pass_gate
from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.reach import Link
from proto.calls.refuse import end_badly
from proto.calls.rewrite import SAID_ANEW, SAID_ANEW_1_0, Onward, PlainRequest
from proto.calls.ways import PLAIN, Ways
from proto.codecs.http1 import Framing, RequestHead, expects_continue, request_framing
from proto.codecs.target import OriginTarget, read_target
from proto.commands import CLIENT, Close, Connect
from proto.errors import MalformedRequest, ProxyError, Refused
from proto.events import Connected
from proto.policy.target import Scope, Target
from proto.script import Script

VERB = "local"
HOST = "localhost"
ADDRESSES = ("127.0.0.1", "::1")
"""This machine's loopback: the one place that this verb dials, at its own port."""

_OPENAI = ("chat/completions", "completions", "embeddings", "responses", "rerank", "score")

INFERENCE: dict[str, frozenset[bytes]] = {
    "POST": frozenset(
        path.encode()
        for path in (
            # OpenAI-compatible: every one of them, at /v1 and llama.cpp without it
            *(f"/v1/{each}" for each in _OPENAI),
            "/chat/completions", "/completions", "/embeddings",
            # Anthropic-compatible: Ollama, llama.cpp, LM Studio, vLLM
            "/v1/messages", "/v1/messages/count_tokens",
            # Ollama; show tells what a model can do
            "/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show",
            # llama.cpp
            "/completion", "/infill", "/embedding", "/tokenize", "/detokenize", "/apply-template",
            # LM Studio
            "/api/v0/chat/completions", "/api/v0/completions", "/api/v0/embeddings",
        )
    ),
    # What models there are: clients ask before they infer, and it changes nothing.
    "GET": frozenset({b"/v1/models", b"/api/tags", b"/api/version", b"/api/v0/models"}),
}  # fmt: skip
"""The paths of each method: Ollama, llama.cpp, LM Studio, vLLM and what is compatible."""

_THIS_MACHINE = re.compile(
    rb"(?:localhost|127\.0\.0\.1|\[::1\])(?::([1-9][0-9]{0,4}+))?", re.IGNORECASE
)


def relayed_connection(port: int, limits: Limits, now: float, ways: Ways = PLAIN) -> Script[None]:
    """Serve one connection to a runtime's own port, carried in."""
    from proto.calls.serve import read_head

    link, ledger = Link(), Ledger(now, VERB, HOST, port, admission=ways.admission)
    method = ""
    try:
        head = yield from read_head(link, ledger, limits, limits.head_s)
        if head is None:
            return
        method = head.method
        framing, wanted = request_framing(head), read_target(head)
        expects_continue(head)
        yield from pass_gate(ledger)
        if not isinstance(wanted, OriginTarget) or not _names_runtime(head, port):
            raise Refused("this port carries requests to a local model, and to nothing else.")
    except ProxyError as error:
        yield from end_badly(ledger, error, limits, method)
        return
    yield from local_call(link, ledger, head, framing, wanted.path, limits)


def local_call(
    link: Link, ledger: Ledger, head: RequestHead, framing: Framing, target: bytes, limits: Limits
) -> Script[None]:
    """Serve one request to the runtime at the ledger's port; it ends the connection."""
    port = ledger.port
    try:
        check_inference(head.method, target)
        exchange = Exchange(_for_runtime(head, framing, target, port), link.take_early())
        yield from link.drop(ledger)
        yield ledger.allow()
        by = ledger.now + limits.setup_s
        yield from ledger.ask(Connect(ADDRESSES, port, by), Connected)
        link.upstream = Target(HOST, port, Scope.LAN, literal=False, reads_hello=False)
        yield from carry(ledger, exchange, limits)
    except ProxyError as error:
        yield from end_badly(ledger, error, limits, head.method)
        return
    yield ledger.end()
    yield Close(CLIENT, ledger.now + limits.grace_s)


def check_inference(method: str, target: bytes) -> None:
    """Refuse (403) what isn't inference; a query isn't the path, and stays as it is.

    MalformedRequest (400) for a fragment: readers differ on whose it is.
    """
    if b"#" in target:
        raise MalformedRequest("a request's target has no fragment.")
    path = target.partition(b"?")[0]
    if path not in INFERENCE.get(method, ()):
        raise Refused(
            "a local model is open for inference alone, by its exact methods and paths.",
            phrase="Forbidden: inference alone",
        )


def _names_runtime(head: RequestHead, port: int) -> bool:
    """Tell whether a `Host` is the runtime's: a page led here by DNS would name its own."""
    host = head.one(b"host")
    match = _THIS_MACHINE.fullmatch(host or HOST.encode())
    return match is not None and match[1] in (None, b"%d" % port)


def _for_runtime(head: RequestHead, framing: Framing, target: bytes, port: int) -> PlainRequest:
    lines = head.lines_without(SAID_ANEW if head.version == (1, 1) else SAID_ANEW_1_0)
    url = Onward(b"%b:%d" % (HOST.encode(), port), target)
    return PlainRequest(head, url, framing, lines, alone=True, last=True)
