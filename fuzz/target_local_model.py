"""Fuzz target: a connection to a local model's own port (`proto.verbs.local_model`).

Its corpus is `corpus/local_model`; the first byte chooses how many bytes come at a time.
"""

from __future__ import annotations

import re

from fuzz.http_reading import request_reader
from proto.calls.limits import Limits
from proto.script import Script
from proto.verbs.local_model import ADDRESSES, relayed_connection
from shells.sim_shell import run
from shells.sim_world import Fin, HearUntil, Leave, Say, World

PORT = 11434
CALLS = re.compile(
    r"POST (?:(?:/v1|/api/v0)?/(?:chat/completions|completions|embeddings)"
    r"|/v1/(?:responses|rerank|score|messages|messages/count_tokens)"
    r"|/api/(?:chat|generate|embed|embeddings|show)"
    r"|/(?:completion|infill|embedding|tokenize|detokenize|apply-template))(?:\?[^#]*)?"
    r"|GET /(?:v1/models|api/tags|api/version|api/v0/models)(?:\?[^#]*)?"
)


def one_input(data: bytes) -> None:
    """Say it to the port; the runtime hears one call that infers, or none."""
    step, said = (data[0] if data else 0) or 1, data[1:]
    pieces = [Say(said[at : at + step]) for at in range(0, len(said), step)]
    answer = (
        HearUntil(lambda: request_reader().feed),
        Say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        Leave(),
    )
    world = World(client=(*pieces, Fin()), servers={(ADDRESSES[0], PORT): answer})

    def script(now: float) -> Script[None]:
        return relayed_connection(PORT, Limits(), now)

    seen = run(script, world, 0)
    assert not seen.asked
    assert {(dial.address, dial.port) for dial in seen.dials} <= {(ADDRESSES[0], PORT)}
    heard = request_reader()
    heard.feed(b"".join(dial.saw.data for dial in seen.opened if dial.saw is not None))
    assert len(heard.messages) <= 1
    for message in heard.messages:
        call = b" ".join(message.words[:2]).decode("latin-1")
        assert CALLS.fullmatch(call), call
        assert message.tidy
        assert message.values("host") == [f"localhost:{PORT}"]
        assert message.values("connection") == ["close"]
        assert not message.values("upgrade")
        assert not (message.complete and heard.rest)
