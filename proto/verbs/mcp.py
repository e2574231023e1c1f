"""A tool that runs outside: many clients over HTTP, one server process over stdio (R53).

A `Hub` is a pure machine.  It is told what came (a request, bytes of the server's, the
person's answer, that somebody left, what time it is) and says what is to be done, as
`Effect`s that `take` hands out in order.  It holds all there is between the two sides:

    client  ──POST──▶  judged ──▶ asked about ──▶ its id made the server's ──▶ a line
            ◀─JSON or stream── its own id again ◀── the answer, by the server's id

What a tool's folders are is the person's to say, in its command.  A client may say so too in the
protocol (its *roots*), and servers of files then open what it names instead: so no server is
told that a client has any, nor asks one.

What the server has of it, and by which ids, is `proto.verbs.mcp_server`'s.  A server that dies
fails the calls it had.  The next call starts it again, and where its clients hold sessions it
is told their `initialize` again, so that they never notice.
"""

from __future__ import annotations

from collections.abc import Callable

from proto.codecs.fields import Fields
from proto.codecs.http1 import RequestHead
from proto.codecs.jsonrpc import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Answer,
    Message,
    Notification,
    Number,
    Object,
    Request,
    Value,
    error,
    read,
    write,
)
from proto.verbs.mcp_answers import Call, refusal, whole
from proto.verbs.mcp_effects import Ask, Effect, Reply, Withdraw
from proto.verbs.mcp_question import consent, hint_of, question
from proto.verbs.mcp_rules import (
    ACTION,
    FROM_CLIENT,
    HEADER_MISMATCH,
    META,
    NAME_MAX_CHARS,
    REFUSED,
    ROOTS,
    ROOTS_CHANGED,
    SAYS_NO,
    SUBSCRIPTION_KEY,
    UNSUPPORTED_VERSION,
    Post,
    Rule,
    Turned,
    accepted,
    asks,
    check_origin,
    check_request,
    is_plain_no,
    meta_of,
    read_post,
)
from proto.verbs.mcp_server import Pending, Server, Session, Theirs, code_of

CALLS_MAX = 256
OPEN_MAX = 1024
"""Requests that the server has and hasn't answered, those of clients that have left among them."""
SESSIONS_MAX = 64
QUESTIONS_MAX = 8
"""So many calls wait for the person at once; one more is refused, not heaped up."""
WAITING_MAX = 64
"""Messages kept for a session that has no stream open; the oldest go first."""
WAITING_MAX_BYTES = 16 << 10
"""Of one that is kept; longer ones aren't."""
HINTS_MAX = 4096
TAKEN_BACK = "the program took the call back before anybody had answered."


class Hub:
    """One tool's clients and its server process.

    `make_id` gives a session's name, which nobody can guess.
    """

    def __init__(self, tool: str, rule: Rule, make_id: Callable[[], str]) -> None:
        self._tool, self._rule, self._make_id = tool, rule, make_id
        self._effects: list[Effect] = []
        self._now = 0.0
        self._calls: dict[int, Call] = {}
        self._sessions: dict[str, Session] = {}
        self._open: list[Pending] = []
        """Every request of a client's that isn't answered, in the order they came."""
        self._questions: dict[int, Pending] = {}
        self._consents: dict[int, Answer] = {}
        """What programs would answer for their person, who is asked."""
        self._asked = 0
        self._hints: dict[str, Object] = {}
        self._server = Server(
            do=self._do,
            finish=self._finish,
            welcome=self._welcome,
            hear=self._hear,
            listed=self._remember,
            dropped=self._unasked,
        )

    def _at(self, now: float) -> None:
        self._now = self._server.now = now

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    # What is told.

    def take(self) -> list[Effect]:
        """Return what is to be done, in order, and forget it."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def idle(self) -> bool:
        """Whether no call is open: then no time needs to be told."""
        return not self._calls

    def request(self, number: int, head: RequestHead, body: bytes, now: float) -> None:
        """Take a client's whole request; `number` names its call from now on."""
        self._at(now)
        call = Call(number, now)
        self._calls[number] = call
        try:
            if len(self._calls) > CALLS_MAX:
                raise Turned(503, "too many calls of this tool are open.")
            check_origin(head)
            match head.method:
                case "POST":
                    self._post(call, read_post(head, body))
                case "GET":
                    self._listen(call, head)
                case "DELETE":
                    self._forget(self._session_of(head))
                    self._close(call, whole(204, None))
                case _:
                    raise Turned(405, "that is no method here.", allow="GET, POST, DELETE")
        except Turned as turned:
            self._turn(call, turned)

    def left(self, number: int, now: float) -> None:
        """Take that a client closed its call's connection.

        Until 2025-11-25 that doesn't cancel a request, and since then it does; but what the
        server doesn't have yet is taken back either way, and a question too: nobody would
        hear what came of it.
        """
        self._at(now)
        call = self._calls.pop(number, None)
        for session in self._sessions.values():
            if call is not None and session.stream is call:
                session.stream = None
        for pending in [each for each in self._open if each.call is call and call is not None]:
            pending.call = None
            if pending.sent_as is None or pending.session is None:
                self._cancel(pending, None)

    def answered(self, number: int, *, yes: bool, why: str, now: float) -> None:
        """Take the person's answer; `why` says to the program what became of a no."""
        self._at(now)
        consent = self._consents.pop(number, None)
        if consent is not None:
            self._server.answered(consent if yes else _declined(consent))
        pending = self._questions.pop(number, None)
        if pending is None:
            return
        pending.question = 0
        if yes:
            self._server.forward(pending)
        else:
            self._finish(pending, error(pending.request.id, REFUSED, why), refused=why)

    def read(self, data: bytes, now: float) -> None:
        """Take bytes of the server's standard output."""
        self._at(now)
        self._server.read(data)

    def ended(self, now: float) -> None:
        """Take that the server's process has ended."""
        self._at(now)
        self._server.ended()

    def tick(self, now: float) -> None:
        """Take the time, at least each second while a call is open."""
        self._at(now)
        for call in self._calls.values():
            data = call.late(now)
            if data:
                self._do(Reply(call.number, data, last=False))
        self._server.tick()

    # A client's requests.

    def _turn(self, call: Call, turned: Turned) -> None:
        extra: Fields = ((b"Allow", turned.allow.encode()),) if turned.allow else ()
        extra += refusal(turned.message) if turned.refuses else ()
        self._close(
            call, whole(turned.status, error(turned.id, turned.code, turned.message), extra)
        )

    def _close(self, call: Call, data: bytes) -> None:
        """Send the last of a call's answer."""
        del self._calls[call.number]
        self._do(Reply(call.number, data, last=True))

    def _say(self, call: Call, message: Message) -> None:
        data = call.say(message, self._now)
        if data:
            self._do(Reply(call.number, data, last=False))

    def _session_of(self, head: RequestHead) -> Session:
        values = head.get_all(b"mcp-session-id")
        if len(values) > 1:
            raise Turned(400, "the field mcp-session-id came more than once.")
        return self._session(values[0].decode("latin-1") if values else None)

    def _session(self, name: str | None) -> Session:
        if name is None:
            raise Turned(400, "the request names no session: begin with initialize.")
        session = self._sessions.pop(name, None)
        if session is None:
            raise Turned(404, "there is no such session: begin again with initialize.")
        self._sessions[name] = session  # the last used comes last
        return session

    def _listen(self, call: Call, head: RequestHead) -> None:
        """Open a session's stream for what is no answer; it takes the place of an older one."""
        _, call.sse = accepted(head)
        if not call.sse or not head.get_all(b"accept"):
            raise Turned(406, "a GET opens a stream of events, and must accept one.")
        session = self._session_of(head)
        if session.stream is not None:
            self._close(session.stream, session.stream.hang_up(self._now))
        session.stream = call
        self._do(Reply(call.number, call.open(self._now), last=False))
        waiting, session.waiting = session.waiting, []
        for line in waiting:
            self._say(call, read(line))

    def _forget(self, session: Session) -> None:
        """End a session, and all that it waits for."""
        del self._sessions[session.id]
        for pending in [each for each in self._open if each.session is session]:
            self._cancel(pending, "its session ended")
        if session.stream is not None:
            self._close(session.stream, session.stream.hang_up(self._now))
        self._server.left(session)

    def _post(self, call: Call, post: Post) -> None:
        call.json, call.sse = post.json, post.sse
        message = post.message
        if isinstance(message, Request):
            check_request(message)
            if len(self._open) >= OPEN_MAX:
                raise Turned(503, "too many calls of this tool are unanswered.", id_=message.id)
            if post.modern:
                self._accept(call, None, message)
            elif message.method == "initialize":
                self._initialize(call, post, message)
            else:
                self._accept(call, self._session(post.session), message)
            return
        if isinstance(message, Notification) and message.method not in FROM_CLIENT:
            raise Turned(400, "that is no notification that a client sends.")
        if not post.modern:
            self._told(self._session(post.session), message)
        self._close(call, whole(202, None))

    def _accept(self, call: Call, session: Session | None, request: Request) -> None:
        """Take a request that may go on: ask about it, or let it."""
        if session is not None and self._find(session, request.id) is not None:
            raise Turned(400, "a request with that id isn't answered yet.", id_=request.id)
        pending = Pending(request, call, session)
        if not asks(self._rule, request):
            self._open.append(pending)
            self._server.forward(pending)
            return
        if self._is_full:
            raise Turned(200, "too many questions wait for an answer; this call was not "
                         "asked about.", code=REFUSED, id_=request.id)  # fmt: skip
        text = question(self._tool, request, self._hint(request))
        if text is None:
            raise Turned(200, "the call is too long to be shown whole, and so is not asked "
                         "about.", code=REFUSED, id_=request.id)  # fmt: skip
        self._open.append(pending)
        pending.question = self._ask(text)
        self._questions[pending.question] = pending

    @property
    def _is_full(self) -> bool:
        """Whether as many questions wait as may."""
        return len(self._questions) + len(self._consents) >= QUESTIONS_MAX

    def _ask(self, text: str) -> int:
        self._asked += 1
        self._do(Ask(self._asked, text))
        return self._asked

    def _hint(self, request: Request) -> Object | None:
        name = (request.params or {}).get("name")
        if request.method != "tools/call" or not isinstance(name, str):
            return None
        return self._hints.get(name)

    def _find(self, session: Session, id_: Value) -> Pending | None:
        for pending in self._open:
            if pending.session is session and pending.request.id == id_:
                return pending
        return None

    def _initialize(self, call: Call, post: Post, request: Request) -> None:
        """Begin a session; a server that was greeted already isn't greeted again."""
        if post.session is not None:
            raise Turned(400, "a session begins once.", id_=request.id)
        self._make_room()
        session = Session(self._make_id())
        call.extra = ((b"Mcp-Session-Id", session.id.encode()),)
        pending = Pending(request, call, session)
        self._open.append(pending)
        self._server.greet(pending)

    def _make_room(self) -> None:
        """Forget the session that was longest unused, where there are too many."""
        if len(self._sessions) < SESSIONS_MAX:
            return
        for session in self._sessions.values():
            if session.stream is None and all(p.session is not session for p in self._open):
                self._forget(session)
                return
        raise Turned(503, "too many clients of this tool are open.")

    def _welcome(self, pending: Pending, result: Value) -> None:
        """Answer an `initialize` as the server answered the first."""
        assert pending.session is not None
        if pending.call is None:
            self._drop(pending)
            return
        self._sessions[pending.session.id] = pending.session
        self._finish(pending, Answer(pending.request.id, result=result))

    def _told(self, session: Session, message: Notification | Answer) -> None:
        """Take a notification of a client's, or its answer to the server's request."""
        if isinstance(message, Answer):
            self._answer(session, message)
        elif message.method == "notifications/initialized":
            session.ready = True
            self._server.initialized()
        elif message.method == ROOTS_CHANGED:
            return
        elif message.method == "notifications/cancelled":
            params = message.params or {}
            pending = self._find(session, params.get("requestId"))
            reason = params.get("reason")
            if pending is not None and pending.request.method != "initialize":
                self._cancel(pending, reason if isinstance(reason, str) else None)
        else:
            self._server.tell(message)

    def _answer(self, session: Session, answer: Answer) -> None:
        """Take a client's answer to its server's request.

        What a server asks the person is answered by their program.  So they are asked whether
        that is their answer, as they are about calls: else a server that confirms by it what it
        does, or asks how much, would have the program's word for theirs.
        """
        asked = self._server.asked(session, answer)
        if asked is None or asked.question:
            return  # what the person reads can't be said anew
        says = asked.elicits and answer.error is None and not is_plain_no(answer.result)
        if not says or not self._rule.asks:
            self._server.answered(answer)
            return
        text = None
        if asked.printed and not self._is_full:
            request = read(asked.printed)
            assert isinstance(request, Request), "it was printed from one"
            text = consent(self._tool, request, answer.result)
        if text is None:
            self._server.answered(_declined(answer))
            return
        asked.question = self._ask(text)
        self._consents[asked.question] = answer

    def _unasked(self, theirs: Theirs) -> None:
        """Take a question back whose answer the server no longer waits for."""
        if self._consents.pop(theirs.question, None) is not None:
            self._do(Withdraw(theirs.question))

    def _cancel(self, pending: Pending, reason: str | None) -> None:
        """Take a request back, wherever it has got to."""
        asked = pending.question
        self._drop(pending)
        if pending.sent_as is not None:
            params: Object = {"requestId": pending.sent_as}
            if reason is not None:
                params["reason"] = reason
            self._server.write(Notification("notifications/cancelled", params))
        if pending.call is not None:
            refused = TAKEN_BACK if asked else ""
            self._close(pending.call, pending.call.hang_up(self._now, refused))

    def _drop(self, pending: Pending) -> None:
        """Forget a request everywhere."""
        self._open.remove(pending)
        if self._questions.pop(pending.question, None) is not None:
            self._do(Withdraw(pending.question))
        self._server.forget(pending)

    def _finish(self, pending: Pending, answer: Answer, refused: str = "") -> None:
        """Hand a client its answer; refused: why, where it is the person or their policy's no."""
        self._drop(pending)
        if pending.call is not None:
            status = _status_of(answer) if pending.session is None else 200
            self._close(pending.call, pending.call.end(answer, status, self._now, refused))

    # From the server.

    def _hear(self, message: Request | Notification) -> None:
        if isinstance(message, Request):
            self._hear_request(message)
        else:
            self._hear_notification(message)

    def _remember(self, result: Value) -> None:
        """Keep what a server's list says of its calls, to be shown with a question."""
        tools = result.get("tools") if isinstance(result, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                room = name in self._hints or len(self._hints) < HINTS_MAX
                if room and len(name) <= NAME_MAX_CHARS:  # no call has a longer one
                    self._hints[name] = hint_of(tool)

    def _hear_request(self, request: Request) -> None:
        """Hand a request of the server's to the client it is most likely about."""
        session, call = self._listener()
        if session is None or call is None or request.method == ROOTS:
            why = "no client is here to be asked."
            self._server.write(error(request.id, METHOD_NOT_FOUND, why))
            return
        asked = self._server.ask(session, request)
        if asked is not None:
            self._say(call, asked)

    def _listener(self) -> tuple[Session | None, Call | None]:
        """Return the session whose request came last and can be told of more, or that listens."""
        for pending in reversed(self._open):
            if pending.session and pending.sent_as and pending.call and pending.call.sse:
                return pending.session, pending.call
        for session in reversed(self._sessions.values()):
            if session.stream is not None:
                return session, session.stream
        return None, None

    def _hear_notification(self, message: Notification) -> None:
        """Hand a notification on: by its token or subscription, else once to each session."""
        params = message.params or {}
        if message.method == "notifications/progress":
            self._progressed(message, params)
            return
        if message.method == "notifications/cancelled":
            self._cancelled_there(params)
            return
        subscription = meta_of(params).get(SUBSCRIPTION_KEY)
        if isinstance(subscription, str | Number):
            pending = self._server.sent(subscription)
            if pending is not None and pending.call is not None:
                meta = {**meta_of(params), SUBSCRIPTION_KEY: pending.request.id}
                self._say(pending.call, Notification(message.method, {**params, META: meta}))
            return
        for session in self._sessions.values():
            self._say_to(session, message)
        modern = [p.call for p in self._open if p.session is None and p.sent_as and p.call]
        if len(modern) == 1 and message.method == "notifications/message":
            self._say(modern[0], message)

    def _say_to(self, session: Session, message: Message) -> None:
        """Say something on one of a session's streams, or keep it until it has one."""
        call = session.stream
        for pending in reversed(self._open):
            if call is None and pending.session is session and pending.sent_as:
                call = pending.call if pending.call and pending.call.sse else None
        if call is not None:
            self._say(call, message)
        elif len(line := write(message)) <= WAITING_MAX_BYTES:
            session.waiting = [*session.waiting[-(WAITING_MAX - 1) :], line]

    def _progressed(self, message: Notification, params: Object) -> None:
        pending = self._server.sent_with(params.get("progressToken"))
        if pending is not None and pending.call is not None:
            own = {**params, "progressToken": pending.token}
            self._say(pending.call, Notification(message.method, own))

    def _cancelled_there(self, params: Object) -> None:
        """Take that the server ended a subscription, or took its own request back."""
        theirs = params.get("requestId")
        pending = self._server.sent(theirs)
        if pending is not None and pending.request.method == "subscriptions/listen":
            self._drop(pending)
            if pending.call is not None:
                self._close(pending.call, pending.call.hang_up(self._now))
            return
        for session, ours in self._server.took_back(theirs):
            told = {**params, "requestId": ours}
            self._say_to(session, Notification("notifications/cancelled", told))


def _declined(answer: Answer) -> Answer:
    """Return the answer of a person who doesn't give the one that their program has for them."""
    return Answer(answer.id, result={ACTION: SAYS_NO[0]})


def _status_of(answer: Answer) -> int:
    """Return the status that goes with an answer in the current revision."""
    match code_of(answer):
        case code if code == METHOD_NOT_FOUND:
            return 404
        case code if HEADER_MISMATCH >= code >= UNSUPPORTED_VERSION or code == INVALID_REQUEST:
            return 400
    return 200
