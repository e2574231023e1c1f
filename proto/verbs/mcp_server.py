"""A tool's server process, as its hub (`proto.verbs.mcp`) has it: greeted, asked, and heard (R53).

A `Server` is started when something is to be sent to it, and again once it has died.  It is
greeted once, whichever client's `initialize` that was; what the hub forwards meanwhile waits.

Ids: two clients may both have a request 1.  An id goes on as it came where this process of
the server has never seen it, and else as one of ours, so that no late answer is ever taken
for another's.  Progress tokens likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import msgspec

from proto.codecs.jsonrpc import (
    INTERNAL,
    INVALID_REQUEST,
    Answer,
    Id,
    LineReader,
    MalformedMessage,
    Message,
    Notification,
    Number,
    Object,
    Request,
    TooManyParts,
    Value,
    answered_by,
    error,
    read,
    write,
)
from proto.verbs.mcp_answers import Call
from proto.verbs.mcp_effects import Effect, Start, Stop, Write
from proto.verbs.mcp_question import QUESTION_MAX_CHARS
from proto.verbs.mcp_rules import ELICITATION, META, UNSUPPORTED_VERSION, claims, meta_of

THEIRS_MAX = 256
"""Requests of the server's that clients haven't answered."""
USED_MAX = 100_000
"""Ids a server process is remembered to have seen; past that all are ours."""
USED_MAX_CHARS = 1 << 20
"""The most letters of all of them together, as they are written: one may have thousands."""
START_S = 120.0
"""How long a server may take to answer `initialize`: a package runner installs it first."""
PROBE_S = 5.0
"""How long it may take to say whether it speaks the current revision; older ones may stay
silent (2026-07-28, stdio, backward compatibility)."""

SPOILT_S = 2.0
"""How long an answer is waited for behind one that isn't read.  A server may say such things
before it answers; where it was the answer, its client would wait for ever."""

SAID_TOO_MUCH = "the tool's server said more than is read."

CODE_MAX_CHARS = 8
"""An error's code that means something here is no longer."""

OWN = "link-"
"""Our ids and tokens begin so; a client's that does is made ours as well."""


class _Greeting(Enum):
    """How far the server's process has got with `initialize`."""

    NONE = "not begun"
    SENT = "not answered"
    ANSWERED = "waits for notifications/initialized"
    DONE = "done"


class _Speaks(Enum):
    """Whether the server's process speaks the current revision."""

    UNKNOWN = "unknown"
    ASKED = "asked"
    YES = "yes"
    NO = "no"


class Session(msgspec.Struct, eq=False):
    """A client's session.

    `stream`: the call of its GET, if it listens.  `waiting`: messages for that, printed: read,
    one may take twenty times as much.
    """

    id: str
    ready: bool = False
    stream: Call | None = None
    waiting: list[bytes] = msgspec.field(default_factory=list)


class Pending(msgspec.Struct, eq=False):
    """A client's request that isn't answered.  `call` None: its client has left."""

    request: Request
    call: Call | None
    session: Session | None
    question: int = 0
    sent_as: Id | None = None
    token: Id | None = None
    token_as: Id | None = None


class Theirs(msgspec.Struct, eq=False):
    """A request of the server's that isn't answered: who was asked, and its id there.

    `elicits`: it asks the person.  `printed`: what it asks them, printed: read, it may take twenty
    times as much; empty where it is longer than what is shown.  `question`: by which the person
    is asked whether the answer is theirs, 0 for none.
    """

    session: Session
    id: Id
    elicits: bool = False
    printed: bytes = b""
    question: int = 0


class Server:
    """The server of a tool, whose processes come and go.

    do: takes an effect.  finish: takes a client's request and its answer.  welcome: takes an
    `initialize` and what the server said to the first.  hear: takes what the server asks or
    tells of its own accord.  listed: takes the result of a `tools/list`.  dropped: takes a
    request of its own to which no answer is wanted any more.
    """

    def __init__(
        self,
        *,
        do: Callable[[Effect], None],
        finish: Callable[[Pending, Answer], None],
        welcome: Callable[[Pending, Value], None],
        hear: Callable[[Request | Notification], None],
        listed: Callable[[Value], None],
        dropped: Callable[[Theirs], None],
    ) -> None:
        self._do, self._finish, self._welcome = do, finish, welcome
        self._hear, self._listed, self._dropped = hear, listed, dropped
        self.now = 0.0
        """The time, which the hub tells before it asks for anything."""
        self._hello: Object | None = None
        """The parameters of the last `initialize` that was answered well."""
        self._running = False
        self._new_process()

    def _new_process(self) -> None:
        """Forget all that was the last server process's."""
        self._lines = LineReader()
        self._sent: dict[Id, Pending] = {}
        self._tokens: dict[Id, Pending] = {}
        self._spoilt: dict[Id, tuple[float, str]] = {}
        """Requests whose answer wasn't read: until when another may come, and what was wrong."""
        self._used: set[Id] = set()
        self._used_chars = 0
        self._made = 0
        self._queue: list[Pending] = []
        """What waits until the process has been greeted, or has said what it speaks."""
        self._greeters: list[Pending] = []
        self._greeting, self._speaks = _Greeting.NONE, _Speaks.UNKNOWN
        self._welcomed: Value = None
        self._greet_id: Id | None = None
        self._probe_id: Id | None = None
        self._greet_by = self._probe_by = 0.0
        self._theirs: dict[Id, Theirs] = {}
        """The server's own requests, by our id for each."""

    # What is told.

    def read(self, data: bytes) -> None:
        """Take bytes of its standard output."""
        for line in self._lines.feed(data):
            try:
                self._take(read(line))
            except TooManyParts:
                # Whose answer it was isn't known: one of the calls would wait for ever.
                self._stop(SAID_TOO_MUCH)
                return
            except MalformedMessage as wrong:
                # Servers print other things there, though they must not.
                self._spoil(answered_by(line), wrong.message)
        if self._lines.overlong:
            self._stop(SAID_TOO_MUCH)

    def ended(self) -> None:
        """Take that its process has ended."""
        if self._running:
            self._lost("the tool's server ended before it answered.")

    def tick(self) -> None:
        """Look whether it has taken too long to begin, or to answer anew."""
        if self._speaks is _Speaks.ASKED and self.now >= self._probe_by:
            self._probed(_Speaks.NO)
        if self._greeting is _Greeting.SENT and self.now >= self._greet_by:
            self._stop("the tool's server doesn't answer.")
        for id_, (by, why) in list(self._spoilt.items()):
            if self.now >= by:
                self._fail(self._sent[id_], INTERNAL, f"the tool's answer can't be read: {why}")

    def _spoil(self, id_: Id | None, why: str) -> None:
        """Take that an answer wasn't read; a greeting has a time of its own."""
        pending = self.sent(id_)
        if id_ is not None and pending is not None and pending not in self._greeters:
            self._spoilt.setdefault(id_, (self.now + SPOILT_S, why))

    def _stop(self, why: str) -> None:
        """End its process, and fail all that it had."""
        self._do(Stop(why))
        self._lost(why)

    def _lost(self, why: str) -> None:
        """Fail all that its process had, and forget it."""
        self._running = False
        for theirs in self._theirs.values():
            self._dropped(theirs)
        lost = dict.fromkeys([*self._sent.values(), *self._queue, *self._greeters])
        for pending in lost:
            self._fail(pending, INTERNAL, why)
        self._new_process()

    # What the hub asks for.

    def greet(self, pending: Pending) -> None:
        """Pass a client's `initialize` on; where it was greeted already, it isn't again."""
        self._start()
        if self._greeting is _Greeting.SENT:
            self._greeters.append(pending)
        elif self._greeting is _Greeting.NONE:
            self._greeters.append(pending)
            self._greeting, self._greet_by = _Greeting.SENT, self.now + START_S
            self._send(pending)
        else:
            self._welcome(pending, self._welcomed)

    def initialized(self) -> None:
        """Tell it that a client is ready, the first time one is."""
        if self._greeting is _Greeting.ANSWERED:
            self._greeting = _Greeting.DONE
            self.write(Notification("notifications/initialized", None))

    def _start(self) -> None:
        if not self._running:
            self._running = True
            self._do(Start())

    def forward(self, pending: Pending) -> None:
        """Send a request on, as soon as the server is ready for it."""
        self._start()
        if pending.session is None:
            self._forward_modern(pending)
            return
        if self._greeting is _Greeting.NONE:
            # A session is older than this process: it is told what the last one was.
            self._greeting, self._greet_by = _Greeting.SENT, self.now + START_S
            self._greet_id = self._own_id()
            self.write(Request(self._greet_id, "initialize", self._hello))
        if self._greeting is _Greeting.SENT:
            self._queue.append(pending)
            return
        if pending.session.ready:
            self.initialized()  # the client that was to say so hasn't yet
        self._send(pending)

    def _forward_modern(self, pending: Pending) -> None:
        """Send a request of the current revision on, if the server speaks it.

        One that doesn't might take it for something else, so it is asked first, as the
        revision advises.
        """
        if self._speaks is _Speaks.UNKNOWN:
            self._speaks, self._probe_by = _Speaks.ASKED, self.now + PROBE_S
            self._probe_id = self._own_id()
            meta = {
                key: value
                for key, value in meta_of(pending.request.params).items()
                if key != "progressToken"
            }
            probe = Request(self._probe_id, "server/discover", {META: meta})
            self.write(Request(probe.id, probe.method, claims(probe)))
        if self._speaks is _Speaks.YES:
            self._send(pending)
        elif self._speaks is _Speaks.NO:
            self._fail(pending, INVALID_REQUEST, "this tool's server begins with initialize.")
        else:
            self._queue.append(pending)

    def _probed(self, speaks: _Speaks) -> None:
        self._speaks, self._probe_id = speaks, None
        for pending in [each for each in self._queue if each.session is None]:
            self._queue.remove(pending)
            self._forward_modern(pending)

    def _send(self, pending: Pending) -> None:
        """Write a request with an id, and a progress token, that this process hasn't seen."""
        request = pending.request
        pending.sent_as = self._unseen(request.id)
        self._sent[pending.sent_as] = pending
        params = claims(request)
        meta = meta_of(params)
        token = meta.get("progressToken")
        if isinstance(token, str | Number) and params is not None:
            pending.token, pending.token_as = token, self._unseen(token, kind="token")
            self._tokens[pending.token_as] = pending
            params = {**params, META: {**meta, "progressToken": pending.token_as}}
        self.write(Request(pending.sent_as, request.method, params))
        if pending not in self._greeters:  # what those said is told to a next process
            pending.request = Request(request.id, request.method, None)

    def _unseen(self, wanted: Id, kind: str = "id") -> Id:
        """Return an id as it is where it was never used with this process, else one of ours."""
        mark = f"{kind} {wanted.text}" if isinstance(wanted, Number) else f"{kind} {wanted!r}"
        own = isinstance(wanted, str) and wanted.startswith(OWN)
        full = len(self._used) >= USED_MAX or self._used_chars + len(mark) > USED_MAX_CHARS
        if own or full or mark in self._used:
            return self._own_id()
        self._used.add(mark)
        self._used_chars += len(mark)
        return wanted

    def _own_id(self) -> Id:
        self._made += 1
        return f"{OWN}{self._made}"

    def _fail(self, pending: Pending, code: int, message: str) -> None:
        self._finish(pending, error(pending.request.id, code, message))

    def tell(self, message: Notification) -> None:
        """Tell it something; where no process runs there is nobody who would need it."""
        if self._running:
            self.write(message)

    def write(self, message: Message) -> None:
        """Write a message to its process."""
        self._do(Write(write(message) + b"\n"))

    def forget(self, pending: Pending) -> None:
        """Forget a request: its answer, if it still comes, is nobody's."""
        for waiting in (self._queue, self._greeters):
            if pending in waiting:
                waiting.remove(pending)
        if pending.sent_as is not None:
            self._sent.pop(pending.sent_as, None)
            self._spoilt.pop(pending.sent_as, None)
        if pending.token_as is not None:
            self._tokens.pop(pending.token_as, None)

    def sent(self, id_: Value) -> Pending | None:
        """Return the request that it has by an id and hasn't answered."""
        return self._sent.get(id_) if isinstance(id_, str | Number) else None

    def sent_with(self, token: Value) -> Pending | None:
        """Return the request that it has with a progress token."""
        return self._tokens.get(token) if isinstance(token, str | Number) else None

    # Its own requests.

    def ask(self, session: Session, request: Request) -> Request | None:
        """Return its request by an id of ours, to be put to a session; None where too many wait."""
        if len(self._theirs) >= THEIRS_MAX:
            self.write(error(request.id, INTERNAL, "too many requests are unanswered."))
            return None
        ours = self._own_id()
        elicits = request.method == ELICITATION
        printed = write(request) if elicits else b""
        if len(printed) > QUESTION_MAX_CHARS:
            printed = b""
        self._theirs[ours] = Theirs(session, request.id, elicits, printed)
        return Request(ours, request.method, request.params)

    def asked(self, session: Session, answer: Answer) -> Theirs | None:
        """Return the request that a session's answer is to, None for one that it wasn't asked."""
        found = None if answer.id is None else self._theirs.get(answer.id)
        return found if found is not None and found.session is session else None

    def answered(self, answer: Answer) -> None:
        """Take the answer to a request of its own that isn't answered."""
        assert answer.id is not None, "`asked` has found it by its id"
        theirs = self._theirs.pop(answer.id)
        self.write(Answer(theirs.id, answer.result, answer.error))

    def left(self, session: Session) -> None:
        """Take that a session has ended: what it was asked isn't answered any more."""
        for ours, theirs in list(self._theirs.items()):
            if theirs.session is session:
                self._drop_theirs(ours)
                self.write(error(theirs.id, INTERNAL, "the client has left."))

    def took_back(self, id_: Value) -> list[tuple[Session, Id]]:
        """Take that it withdrew its request; return whom it was put to, by which id."""
        found = [(asked.session, ours) for ours, asked in self._theirs.items() if asked.id == id_]
        for _, ours in found:
            self._drop_theirs(ours)
        return found

    def _drop_theirs(self, ours: Id) -> None:
        self._dropped(self._theirs.pop(ours))

    # What it says.

    def _take(self, message: Message) -> None:
        match message:
            case Answer():
                self._take_answer(message)
            case Request(method="ping"):
                self.write(Answer(message.id, result={}))
            case _:
                self._hear(message)

    def _take_answer(self, answer: Answer) -> None:
        if answer.id is None:
            return
        if answer.id == self._greet_id:
            self._greet_id = None
            why = "the tool's server was started again, and refused to begin."
            self._greeted(answer, why, again=True)
            return
        if answer.id == self._probe_id:
            modern = answer.error is None or code_of(answer) == UNSUPPORTED_VERSION
            self._probed(_Speaks.YES if modern else _Speaks.NO)
            return
        pending = self._sent.get(answer.id)
        if pending is None:
            return  # a late answer to what was cancelled, or to nothing at all
        if pending in self._greeters:
            if answer.error is None:
                self._hello = claims(pending.request)
            self._greeted(answer, "the tool's server refused to begin.")
            return
        if pending.request.method == "tools/list":
            self._listed(answer.result)
        self._finish(pending, Answer(pending.request.id, answer.result, answer.error))

    def _greeted(self, answer: Answer, why: str, *, again: bool = False) -> None:
        """Take the answer to an `initialize`: all who waited for one get the same.

        why: what is said where it was refused.  again: it was our own, for sessions older than
        the process, whose clients have said long ago that they are ready.
        """
        waiting, self._greeters = self._greeters, []
        queue = [each for each in self._queue if each.session is not None]
        if answer.error is not None:
            self._greeting = _Greeting.NONE
            for pending in waiting:
                self._finish(pending, Answer(pending.request.id, error=answer.error))
            for pending in queue:
                self._fail(pending, INTERNAL, why)
            return
        self._welcomed, self._greeting = answer.result, _Greeting.ANSWERED
        for pending in waiting:
            self._welcome(pending, answer.result)
        if again:
            self.initialized()
        for pending in queue:
            self._queue.remove(pending)
            self.forward(pending)


def code_of(answer: Answer) -> int:
    """Return the code of an answer's error, 0 for none that means something here."""
    code = (answer.error or {}).get("code")
    text = code.text if isinstance(code, Number) else ""
    return int(text) if len(text) <= CODE_MAX_CHARS and text.lstrip("-").isdigit() else 0
