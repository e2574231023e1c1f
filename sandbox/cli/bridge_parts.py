"""What the bridges with a loop of their own share: the proxy's connections, and the asker."""

from __future__ import annotations

import json
import os
import sys
from time import monotonic

from proto.codecs.body import BodyReader
from proto.codecs.http1 import (
    RequestHead,
    RequestReader,
    expects_continue,
    request_framing,
    write_response_head,
)
from proto.errors import MalformedRequest, ProxyError, Refused, WireBusy
from proto.policy.keys import Key
from proto.verbs.bridge import CONTINUE, TooLarge
from sandbox.asking import ANSWER_S
from shells.children import DEFAULTED
from shells.poll_loop import Loop, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.cli.bridge import Told

    Serve = Callable[["Connection", RequestHead, bytes], Callable[[], None]]
    """Takes a whole request; returns what is called when its caller has left."""

HEAD_S = 30.0
HELD_MAX_BYTES = 128 << 20
"""What a bridge holds in all, of requests that aren't whole and answers that aren't taken: a
program can open many calls and read none of them."""
MESSAGE_MAX_BYTES = HELD_MAX_BYTES // 4
"""What one message may take once it is read (`weight_of`)."""
PART_BYTES = 100
"""What one value in a message takes at most: `{},` is three bytes as text and 72 as an object."""
CONNECTIONS_MAX = 512
PATH = "/usr/local/bin:/usr/bin:/bin"

UNANSWERED_MAX, UNANSWERED_S = 10, 600.0
"""So many questions may be refused or stay unanswered in so long a time.  A program that asks
on is then answered for the person, who has said no often enough."""


class Connection:
    """One connection of the proxy's: a request, then an answer."""

    open = 0
    """How many there are."""

    def __init__(self, loop: Loop, fd: int, caller: Key, serve: Serve, most: int) -> None:
        self._loop, self._caller, self._serve, self._most = loop, caller, serve, most
        self._reader = RequestReader()
        self._head: RequestHead | None = None
        self._reads: BodyReader | None = None
        self._body = bytearray()
        self._weight = 0
        self._whole = False
        self._gone: Callable[[], None] | None = None
        self.stream = Stream(loop, fd, on_data=self._hear, on_end=self._left)
        self.stream.on_close = self._closed
        Connection.open += 1
        loop.after(HEAD_S, self._late)

    @classmethod
    def begin(cls, loop: Loop, fd: int, caller: Key, serve: Serve, most: int) -> None:
        """Serve a connection, whose request's body has at most so many bytes; the loop holds it."""
        if cls.open >= CONNECTIONS_MAX:
            os.close(fd)
        else:
            cls(loop, fd, caller, serve, most)

    def _late(self) -> None:
        if not self._whole:
            self.stream.close()

    def _hear(self, data: bytes) -> None:
        if self._whole:
            return  # nothing is due behind a request
        try:
            self._read(data)
        except ProxyError as error:
            self._whole = True
            self.refuse(error.status_hint or 400, error.message)

    def _read(self, data: bytes) -> None:
        if self._reads is None:
            found = self._reader.feed(data)
            if found is None:
                return
            self._head, data = found
            if not self._caller.is_told(self._head.one(b"link-caller")):
                raise Refused("this bridge serves its own proxy alone.")
            if expects_continue(self._head):
                self.stream.write(CONTINUE)
            self._reads = BodyReader(request_framing(self._head), MalformedRequest)
        for piece in self._reads.feed(data):
            self._body += piece
            self._loop.held += len(piece)
        if self._loop.held > HELD_MAX_BYTES:
            raise WireBusy("the bridge holds as much as it may; try again in a moment.")
        if len(self._body) > self._most:
            raise TooLarge(f"the request's body has more than {self._most} bytes.")
        if self._reads.done:
            assert self._head is not None
            self._whole = True
            body = self._taken()
            self._keep(weight_of(body))
            self._gone = self._serve(self, self._head, body)

    def _keep(self, weight: int) -> None:
        """Count what the message takes for as long as its call is open."""
        if weight > MESSAGE_MAX_BYTES:
            raise TooLarge("the request's body has more parts than are read here.")
        if self._loop.held + weight > HELD_MAX_BYTES:
            raise WireBusy("the bridge holds as much as it may; try again in a moment.")
        self._weight = weight
        self._loop.held += weight

    def _taken(self) -> bytes:
        """Return the body, which is held here no more."""
        body, self._body = bytes(self._body), bytearray()
        self._loop.held -= len(body)
        return body

    def _closed(self) -> None:
        self._taken()
        self._loop.held -= self._weight
        self._weight = 0
        # A timer still knows of this connection: what it holds would pile up behind it.
        self._head, self._reads, self._reader = None, None, RequestReader()
        Connection.open -= 1

    def say(self, data: bytes, *, last: bool) -> None:
        """Pass an answer on; one whose reader stands still is broken off where too much is held."""
        self.stream.write(data)
        if last:
            self.stream.finish()
        if self._loop.held > HELD_MAX_BYTES and not self.stream.closed:
            self.stream.close()
            self._left()

    def _left(self) -> None:
        if self._gone is not None:
            self._gone()

    def answer(self, status: int, words: str, more: bytes = b"") -> None:
        """Answer in plain text, and close.  more: further field lines."""
        body = words.encode("ascii", "replace") + b"\n"
        lines = b"Content-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n"
        phrase = PHRASES.get(status, b"Refused")
        head = write_response_head(status, phrase, lines % len(body) + more)
        self.stream.write(head + body)
        self.stream.finish()

    def refuse(self, status: int, why: str) -> None:
        """Refuse; the proxy has it in the wire's log."""
        self.answer(status, why, b"Link-Refused: %b\r\n" % why.encode("ascii", "replace"))


def weight_of(body: bytes) -> int:
    """Return what a message takes at most, in bytes, as text and as the objects it becomes."""
    parts = sum(body.count(sign) for sign in (b",", b":", b"[", b"{"))
    # One letter past the first 256, or 65536, makes a text two or four bytes a letter.
    wide = 1 if body.isascii() and b"\\u" not in body else 4
    return len(body) * (1 + wide) + parts * PART_BYTES


PHRASES = {
    200: b"OK", 400: b"Bad Request", 403: b"Forbidden", 404: b"Not Found",
    405: b"Method Not Allowed", 409: b"Conflict", 413: b"Content Too Large", 431: b"Too Large",
    502: b"Bad Gateway", 503: b"Service Unavailable",
}  # fmt: skip


def spawn_in(folder: str, argv: list[str], environ: dict[str, str], fds: list[int]) -> int:
    """Start a program in a folder, with these descriptors and no others, its group its own."""
    here = os.open(".", os.O_PATH | os.O_CLOEXEC)
    try:
        os.chdir(folder)
        return os.posix_spawn(
            argv[0],
            argv,
            environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)],
            setpgroup=0,
            setsigmask=(),
            setsigdef=DEFAULTED,
        )
    finally:
        os.fchdir(here)
        os.close(here)


def person() -> dict[str, str]:
    """Return the environment of whoever runs Link, made from their account alone."""
    import pwd

    environ = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/"}
    try:
        found = pwd.getpwuid(os.geteuid())
    except KeyError:
        return environ
    names = {"HOME": found.pw_dir, "USER": found.pw_name, "LOGNAME": found.pw_name}
    return environ | names | {"SHELL": found.pw_shell or "/bin/sh"}


class Asker:
    """Puts questions to the person, one after the other, each by a process of its own.

    What waits behind another has its own two minutes.  Questions that are refused, or that
    nobody answers, count, and so do those that are taken back while they are asked: a program
    can't wear its person down, nor have one question stand where another just stood.
    """

    def __init__(self, loop: Loop, told: Told) -> None:
        self._loop, self._told = loop, told
        self._queue: list[tuple[object, str, float, Callable[[str], None]]] = []
        self._running: tuple[object, int, Callable[[str], None]] | None = None
        self._life: Stream | None = None
        self._said = b""
        self._unanswered: list[float] = []

    def ask(self, key: object, text: str, then: Callable[[str], None]) -> None:
        """Ask; `then` is told yes, no, silence or enough."""
        self._queue.append((key, text, monotonic() + ANSWER_S, then))
        self._next()

    @property
    def had_enough(self) -> bool:
        """Whether nothing more is asked for now."""
        now = monotonic()
        self._unanswered = [at for at in self._unanswered if at > now - UNANSWERED_S]
        return len(self._unanswered) >= UNANSWERED_MAX

    def count(self) -> None:
        """Count what came to nothing as a question that nobody answered."""
        self._unanswered.append(monotonic())

    def withdraw(self, key: object) -> None:
        """Take a question back."""
        self._queue = [each for each in self._queue if each[0] != key]
        if self._running is not None and self._running[0] == key:
            self._running = None
            self.count()
            if self._life is not None:
                self._life.close()  # its end is told by `_ended`

    def end(self) -> None:
        """Take every question back."""
        self._queue.clear()
        if self._life is not None:
            self._life.close()

    def _next(self) -> None:
        if self._life is not None or not self._queue:
            return
        key, text, until, then = self._queue.pop(0)
        now = monotonic()
        if self.had_enough or self._told.state is None:
            self._loop.after(0, lambda: self._tell(then, "enough"))
            return
        if until <= now:
            self._loop.after(0, lambda: self._tell(then, "silence"))
            return
        try:
            self._start(key, text, until - now, then)
        except OSError as error:
            # A program may fill the machine with processes: what it asks then is a no, and
            # this process, which knows how often it has asked, goes on.
            say(f"nobody could be asked: {error.strerror}.")
            self.count()
            self._loop.after(0, lambda: self._tell(then, "silence"))

    def _tell(self, then: Callable[[str], None], said: str) -> None:
        then(said)
        self._next()

    def _start(self, key: object, text: str, left: float, then: Callable[[str], None]) -> None:
        from sandbox.cli.wire_routes import START

        told = {
            "sandbox": self._told.name,
            "text": text,
            "seconds": left,
            "desktop": self._told.desktop,
            "front": self._told.front,
            "launcher": self._told.launcher,
            "state": self._told.state,
        }
        life, ours = os.pipe2(os.O_CLOEXEC)
        try:
            reads, says = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(life)
            os.close(ours)
            raise
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", START, "ask"],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, life, 0), (os.POSIX_SPAWN_DUP2, says, 1)],
                setsigmask=(),
                setsigdef=DEFAULTED,
            )
        except OSError:
            os.close(ours)
            os.close(reads)
            raise
        finally:
            os.close(life)
            os.close(says)
        self._running, self._said = (key, pid, then), b""
        self._life = Stream(self._loop, ours)
        self._life.write(json.dumps(told).encode() + b"\n")
        Stream(self._loop, reads, on_data=self._hear, on_end=lambda: self._ended(pid))

    def _hear(self, data: bytes) -> None:
        self._said = (self._said + data)[-64:]

    def _ended(self, pid: int) -> None:
        """Take the answer: what isn't a plain yes is none."""
        killed = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) < 0
        if killed and self._told.launcher:
            from sandbox.linux.freezing import go_on

            go_on(self._told.launcher)
        if self._life is not None:
            self._life.close()
            self._life = None
        running, self._running = self._running, None
        if running is not None:
            said = self._said.decode("ascii", "replace").strip()
            said = said if said in ("yes", "no") else "silence"
            if said != "yes":
                self.count()
            running[2](said)
        self._next()


def say(sentence: str) -> None:
    """Tell the person something, where there is somebody to read it."""
    try:
        os.write(2, f"lnk sandbox: {sentence}\n".encode("ascii", "replace"))
    except OSError:
        return
