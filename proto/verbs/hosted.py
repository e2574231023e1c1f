"""Hosted models behind their bridge: each call judged, sent with the key, its answer counted.

One bridge serves all of a wire's routes to providers; the first step of a path names the
provider, as the proxy's mount does.  A refusal is told as the providers tell theirs, in JSON:
of anything else most of their clients show the status alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from proto.calls.ledger import Ledger
from proto.calls.limits import Limits
from proto.calls.reach import Link
from proto.calls.refuse import plain
from proto.codecs.http1 import Kind
from proto.codecs.strict_json import write_json
from proto.errors import NoSuchRoute, ProxyError, WireBusy
from proto.script import Script
from proto.verbs.answering import ModelAnswer
from proto.verbs.bridge import Outgoing, Request, Serve, read_body, relay
from proto.verbs.metering import Tokens
from proto.verbs.model import BODY_MAX_BYTES, ModelCall, ModelRoute, read_call

BODIES_MAX_BYTES = 8 * BODY_MAX_BYTES
"""What of bodies one bridge holds at a time: a program must not be able to fill the memory
of the machine with bodies that it never ends."""


class Room:
    """How much room there is for bodies.  It is the bridge's, and so one sandbox's own."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = BODIES_MAX_BYTES

    def take(self, request: Request) -> int:
        """Take the room for a request's body, and return it; WireBusy (503) without any."""
        chunked = request.framing.kind is Kind.CHUNKED
        size = BODY_MAX_BYTES if chunked else min(request.framing.length, BODY_MAX_BYTES)
        if size > self._left:
            raise WireBusy("too many calls to models are open at once; try again in a moment.")
        self._left -= size
        return size

    def give(self, size: int) -> None:
        """Give room back."""
        self._left += size


def hosted_models(routes: Iterable[ModelRoute], count: Callable[[Tokens], None]) -> Serve:
    """Return what serves calls to hosted models; `count` is told what each answer took."""
    by_name = {route.provider.name.encode(): route for route in routes}
    room = Room()

    def serve(link: Link, ledger: Ledger, request: Request, limits: Limits) -> Script[None]:
        size = 0
        try:
            route, below = find(by_name, request)
            call = read_call(route, request.head, below)
            size = room.take(request)
            yield from serve_call(link, ledger, request, call, count, limits)
        except ProxyError as error:
            error.told = told_of(error)
            raise
        finally:
            room.give(size)

    return serve


def find(by_name: Mapping[bytes, ModelRoute], request: Request) -> tuple[ModelRoute, bytes]:
    """Return a call's route, and its target below that; NoSuchRoute (404) without one."""
    name, slash, below = request.path.removeprefix(b"/").partition(b"/")
    if not slash or name not in by_name:
        raise NoSuchRoute("this wire has no route to such a provider.")
    return by_name[name], slash + below + request.question + request.query


def serve_call(
    link: Link,
    ledger: Ledger,
    request: Request,
    call: ModelCall,
    count: Callable[[Tokens], None],
    limits: Limits,
) -> Script[None]:
    """Serve one call whose head was judged."""
    answer = ModelAnswer(call.endpoint.usage, call.route.key)
    # No frame keeps the body, which may take minutes less than its answer.
    made = relay(
        link, ledger, request, (yield from _outgoing(link, ledger, request, call, answer, limits)),
        limits,
    )  # fmt: skip
    try:
        yield from made
    finally:
        if (tokens := answer.tokens()).requests:
            count(tokens)  # also of an answer that was cut short, as far as it told


def _outgoing(
    link: Link,
    ledger: Ledger,
    request: Request,
    call: ModelCall,
    answer: ModelAnswer,
    limits: Limits,
) -> Script[Outgoing]:
    """Return the call to the provider, its body read whole, and judged, where it has one."""
    body = None
    if call.endpoint.body is not None:
        body = call.body((yield from read_body(link, ledger, request, BODY_MAX_BYTES, limits)))
    return Outgoing(call.route.provider.host, call.target, call.lines, body, answer)


def told_of(error: ProxyError) -> tuple[bytes, bytes]:
    """Return an error as an answer in the shape that all the providers' clients read."""
    words = plain(f"{error.message} {error.aside}").decode("ascii")
    inner = {"type": "lnk_sandbox", "message": f"lnk sandbox: {words}", "code": "lnk_sandbox"}
    return b"application/json", write_json({"type": "error", "error": inner}) + b"\n"
