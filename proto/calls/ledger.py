"""What a call needs for its log lines, and how far it has got (R38)."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from proto.commands import Command, Log
from proto.errors import ExitError, ExitRefused, ProxyError, Refused
from proto.events import NO_RESULT
from proto.policy.admission import Admission
from proto.policy.records import Allowed, Ending, Paused, Refusal
from proto.script import Script, error_for

E = TypeVar("E")


class Ledger(msgspec.Struct, gc=False):
    """One call's account.  `now` is the time of its last event, `began` of its head's last byte.

    `answered`: bytes of an answer may have gone, so that no other answer can be given.
    `due`: bytes of that answer that the client hasn't got yet.  `until_close`: it is whole for
    its client once the connection ends in good order, whatever was to come.
    `admission`: what counts the wire's calls and refusals; None counts nothing.
    """

    now: float
    verb: str = "http"
    host: str = ""
    port: int = 0
    began: float = 0.0
    up: int = 0
    down: int = 0
    allowed: bool = False
    answered: bool = False
    due: bytes = b""
    until_close: bool = False
    admission: Admission | None = None

    def ask(self, command: Command, wanted: type[E]) -> Script[E]:
        """Yield one command, as `proto.script.ask` does, and note the time."""
        event = yield command
        self.now = event.now
        if isinstance(event, NO_RESULT):
            raise error_for(command, event)
        assert isinstance(event, wanted), f"{command!r} answered by {event!r}"
        return event

    def allow(self) -> Log:
        """Return the line that the call was let through."""
        self.allowed = True
        return Log(Allowed(self.verb, self.host, self.port))

    def end(self, reason: str = "done", *, at_exit: bool = False) -> Log:
        """Return the last line of a call that was let through."""
        seconds = self.now - self.began
        where = self.verb, self.host, self.port
        return Log(Ending(*where, self.up, self.down, seconds, reason, at_exit))

    def pause(self, error: ProxyError) -> Log | None:
        """Note an error that looks wrong; return the line that pauses the wire for it, if any."""
        if self.admission is None or not isinstance(error, Refused) or not error.looks_wrong:
            return None
        why = self.admission.refused(self.host, self.port, self.now, metadata=error.metadata)
        return Log(Paused(self.verb, self.host, self.port, why)) if why else None

    def fail(self, error: ProxyError, status: int) -> Log:
        """Return the last line of a call that came to nothing; `status` 0: nobody was told.

        What our policy refused is a Refusal, also after the call was let through by
        name: its addresses or its ClientHello were refused before a byte of it passed.
        """
        if self.allowed and not isinstance(error, Refused):
            at_exit = isinstance(error, ExitError) and not isinstance(error, ExitRefused)
            said = f"{status}: {error.message}" if status else error.message
            return self.end(said, at_exit=at_exit)
        key = getattr(error, "key", None) or ""
        return Log(Refusal(self.verb, self.host, self.port, status, error.message, key))
