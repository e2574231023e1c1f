"""Strategies for tools: what clients, servers and persons do, in any order."""

from __future__ import annotations

import json

from hypothesis import strategies as st

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
IDS = st.sampled_from([1, 2, "1", "link-1", "link-2", "i"])
NAMES = st.sampled_from(["f", "g", "F"])
METHODS = st.sampled_from(
    ["ping", "tools/list", "something/new", "subscriptions/listen", "initialize", "resources/read"]
)


def _line(kind: str, **message: object) -> bytes:
    return kind.encode() + json.dumps({"jsonrpc": "2.0"} | message).encode()


def _meta(token: object, *, modern: bool) -> dict[str, object]:
    return (META if modern else {}) | ({} if token is None else {"progressToken": token})


CALLS = st.builds(
    lambda kind, id_, name, token: _line(
        kind, id=id_, method="tools/call",
        params={"name": name, "_meta": _meta(token, modern=kind == "M")},
    ),
    st.sampled_from(["S", "M", "P"]), IDS, NAMES, st.none() | IDS,
)  # fmt: skip
REQUESTS = st.builds(
    lambda kind, id_, method: _line(
        kind, id=id_, method=method, params={"uri": "x", "_meta": _meta(None, modern=kind == "M")}
    ),
    st.sampled_from(["S", "M", "P"]), IDS, METHODS,
)  # fmt: skip
TOLD = st.builds(
    lambda kind, method, id_: _line(
        kind, method=method, params={"requestId": id_, "progressToken": id_}
    ),
    st.sampled_from(["S", ">"]),
    st.sampled_from(
        ["notifications/initialized", "notifications/cancelled", "notifications/progress",
         "notifications/message", "tools/call"]
    ),
    IDS,
)  # fmt: skip
ANSWERS = st.builds(
    lambda kind, id_, result: _line(
        kind, id=id_, **({"result": result} if result else {"error": {"code": -1, "message": "m"}})
    ),
    st.sampled_from(["S", ">"]), IDS,
    st.sampled_from([None, {"a": 1}, {"action": "accept"}, {"action": "decline"}]),
)  # fmt: skip
ASKED = st.builds(
    lambda id_, method: _line(">", id=id_, method=method),
    IDS,
    METHODS | st.just("elicitation/create"),
)
ACTS = st.sampled_from([b"G", b"D", b"x", b"t", b"y", b"y.", b"n", b"l", b"l.", b"l..", b"l...."])
BEGUN = b"\n".join(
    [_line("P", id="i", method="initialize"), _line(">", id="i", result={}),
     _line("S", method="notifications/initialized")]
)  # fmt: skip

PLAYS = st.builds(
    lambda begun, lines: b"\n".join(([BEGUN] if begun else []) + lines),
    st.booleans(),
    st.lists(st.one_of(CALLS, REQUESTS, TOLD, ANSWERS, ASKED, ACTS), max_size=25),
)
"""Inputs of `target_mcp` that are mostly meant."""
