"""The seam: a call is a generator that yields one command and is sent one event.

Rules that every script keeps and every shell may count on:

1. Each command gets exactly one event: its result, `Failed` or `Cancelled`.
2. Kill switch, pause and shutdown reach a call only as `Cancelled`, and only at a
   command that waits (any but `Locate`, `Listen`, `Look` and `Log`).  One that lands between two
   commands answers the next that waits.
3. A script never yields in a `finally`, and a shell never closes a script: it
   answers until the script ends, then closes both sides.
4. After `Cancelled` a script opens nothing new.
5. The last command that is no `Close` and no `Send` of a refusal is a `Log`, always.
6. A command that waits is answered by the first of these that holds: a cancel; a result
   that is there without waiting; `Failed(TIMED_OUT)` once its deadline has passed.  So a
   `by` in the past asks "is it there?", and bytes that came in time are never lost to a
   busy shell.  `Resolve`, `Connect`, `Open` and `StartTls` begin nothing after their deadline.
7. A side that isn't open is one only to `Close`; naming it elsewhere is a bug.
8. Both sides are closed at the script's end as it left them: with a FIN; with a reset
   where the last `Splice` didn't end, or the last `Receive` or `Send` failed for another
   reason than its deadline, so that what was cut short never looks complete.  The upstream
   side of a cancelled call is reset with its `Ending`: megabytes that a kernel has taken
   must not go on to a slow server after a stop.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from proto.commands import (
    CLIENT,
    UPSTREAM,
    Command,
    Connect,
    Listen,
    Locate,
    Open,
    Resolve,
    Send,
    StartTls,
)
from proto.errors import (
    CallCancelled,
    ClientError,
    ProxyError,
    RequestTimeout,
    UpstreamError,
    UpstreamTimeout,
    WireBusy,
)
from proto.events import NO_RESULT, Cancelled, Event, Failed, Reason

T = TypeVar("T")
E = TypeVar("E")
Script = Generator[Command, Event, T]


def ask(command: Command, wanted: type[E]) -> Script[E]:
    """Yield one command; return its answer, or raise what went wrong."""
    event = yield command
    if isinstance(event, NO_RESULT):
        raise error_for(command, event)
    assert isinstance(event, wanted), f"{command!r} answered by {event!r}"
    return event


def error_for(command: Command, event: Failed | Cancelled) -> ProxyError:
    """Return the error that a script raises for an answer that is no result."""
    if isinstance(event, Cancelled):
        return CallCancelled(event.cause)
    if event.reason is Reason.EXHAUSTED:
        return WireBusy("the proxy is out of descriptors or memory; try again in a moment.")
    if _failed_upstream(command, event):
        late = event.reason is Reason.TIMED_OUT
        kind = UpstreamTimeout if late else UpstreamError
        return kind(f"the server could not be reached: {event.reason.value}.")
    if event.reason is Reason.TIMED_OUT:
        return RequestTimeout("the request did not come in time.")
    return ClientError(f"the client left: {event.reason.value}.")


def _failed_upstream(command: Command, event: Failed) -> bool:
    """Tell which end an answer blames; where the shell doesn't say, the command does."""
    if event.side is not None:
        return event.side is UPSTREAM
    if isinstance(command, Resolve | Locate | Connect | Listen | Open | StartTls):
        return True
    if isinstance(command, Send):
        return not command.to_client
    sides = getattr(command, "sides", (CLIENT,))
    return CLIENT not in sides


class Call:
    """A running script and its pending command, which is all the state there is.

    `pending` is None once the script has ended.  An exception other than the
    script's own end passes through `answer` to the shell, which closes both sides:
    it is a bug of ours, and nothing opens because of it.
    """

    __slots__ = ("_script", "pending")

    def __init__(self, script: Script[None]) -> None:
        self._script = script
        self.pending: Command | None = None
        self._step(None)

    def answer(self, event: Event) -> None:
        """Hand the pending command's event to the script and take its next command."""
        self._step(event)

    def _step(self, event: Event | None) -> None:
        try:
            self.pending = self._script.send(event)  # type: ignore[arg-type]  # None starts it
        except StopIteration:
            self.pending = None
        except BaseException:
            self.pending = None
            raise
