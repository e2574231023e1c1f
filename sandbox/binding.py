"""Binding a blank proxy, by a program of the machine's; standard library alone."""

from __future__ import annotations

import json
import socket
from contextlib import suppress

from sandbox.errors import LaunchError
from sandbox.kinds import Text
from sandbox.table import Table, dump_table, key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.handed import ProxyBind

ANSWER_MAX_BYTES = 1 << 16
BIND_S = 30.0
"""How long a proxy may take: it imports an event loop meanwhile."""


class ProxyBound(Table):
    """What a blank proxy answers to its binding: nothing, or what is wrong with it."""

    error: str | None = key(Text("a sentence"), "Why it isn't bound.", default=None)


def bind_proxy(control: str, bind: ProxyBind, *, timeout_s: float = BIND_S) -> ProxyBound:
    """Bind the blank proxy whose control socket is at a path; return its answer.

    Once it is bound calls are served.  Raises LaunchError where there is none.
    """
    line = json.dumps(dump_table(bind)).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect(control)
            # It may have answered without reading, or without reading to the end.
            with suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(line)
            with sock.makefile("rb") as answer:
                told = json.loads(answer.readline(ANSWER_MAX_BYTES))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it gave no answer"
            number = getattr(error, "errno", None) or 0
            raise LaunchError("bind", number, f"the blank proxy at {control}: {why}") from None
    return ProxyBound(error=told.get("error"))
