"""The bridge of tools: one server process a sandbox and tool, its clients behind the proxy (R53).

What is decided is in the hub (`proto.verbs.mcp`), which this process has one of for each
tool.  Here are the descriptors: connections of the proxy's, each with one call; the servers'
pipes; and the asker, one process a question, one question at a time.

A server is started by the absolute path that its person gave, in a folder of Link's own,
with an environment that is made here: their HOME, and nothing of this process's or the
sandbox's.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import sys
from time import monotonic

from proto.codecs.http1 import RequestHead
from proto.policy.keys import Key
from proto.verbs.mcp import Hub
from proto.verbs.mcp_effects import Ask, Reply, Start, Stop, Withdraw, Write
from proto.verbs.mcp_rules import Rule
from sandbox.cli.bridge_parts import PATH, Asker, Connection, person, say, spawn_in
from sandbox.cli.tool_ends import Ending, Started, await_ends
from sandbox.errors import LaunchError
from sandbox.route import REMOTE, Tool, remote_words
from sandbox.state import State
from shells.poll_loop import Loop, Stream, accept_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.cli.bridge import Told
    from sandbox.route import Route

REQUEST_MAX_BYTES = 8 << 20
"""A message of a client's; what asks is shown whole, and so is much shorter."""
TICK_S = 1.0
PARTING_S = 0.3
"""How long the wire's end waits for servers: less than its proxy waits for this process."""
EARLY_MAX_BYTES = 4 * REQUEST_MAX_BYTES
"""What waits for a process that is started once the last has ended; a letter of a request may
take three times as much when it is printed anew."""
TOLD_MAX, TOLD_S = 10, 600.0
"""So many sentences on a tool are told in so long a time: a program may call one that dies again
and again, and must not fill the terminal."""
STDERR_MAX_BYTES = 2048
"""So much of what a server said last on its standard error is told when it dies."""

SAID = {
    "no": "the person refused the call.",
    "silence": "nobody answered the question in time, so the call was refused.",
}
ENOUGH = "too many calls were refused or not answered in the last minutes; this one wasn't asked."


def serve(told: Told, routes: tuple[Route, ...]) -> None:
    """Serve the routes that are tools until the wire ends."""
    from sandbox.cli.bridge import LIFE_FD, LISTENER_FD

    for fd in (LIFE_FD, LISTENER_FD):
        os.set_inheritable(fd, False)  # neither a tool's server nor an asker gets them
    loop = Loop()
    asker = Asker(loop, told)
    tools = {
        f"/{route.name}".encode(): Server(loop, told, route, asker)
        for route in routes
        if isinstance(route, Tool)
    }
    caller = Key(told.caller)

    def call(connection: Connection, head: RequestHead, body: bytes) -> Callable[[], None]:
        server = tools.get(head.target)
        if server is None:
            connection.refuse(404, "there is nothing at this path of the tool.")
            return lambda: None
        number = server.request(connection, head, body)
        return lambda: server.left(number)

    with socket.socket(fileno=LISTENER_FD) as listener:
        accept_on(
            loop,
            listener,
            lambda fd: Connection.begin(loop, fd, caller, call, REQUEST_MAX_BYTES),
        )
        loop.watch(LIFE_FD, select.POLLIN, lambda _: loop.stop())
        loop.run()
    asker.end()
    let_all_go([each.process for each in tools.values() if each.process is not None])


def let_all_go(processes: list[Process]) -> None:
    """Let servers end with their wire; what they don't do at once, their guards see to."""
    for each in processes:
        each.close()
    await_ends([each.started for each in processes], monotonic() + PARTING_S)


class Server:
    """One tool: its hub, the process of its server, the connections with a call of it."""

    def __init__(self, loop: Loop, told: Told, tool: Tool, asker: Asker) -> None:
        rule = Rule(asks=tool.ask == "all", allow=frozenset(tool.allow))
        self._hub = Hub(tool.name, rule, lambda: secrets.token_urlsafe(24))
        self._loop, self._told, self._tool, self._asker = loop, told, tool, asker
        self._calls: dict[int, Connection] = {}
        self._made = 0
        self._ticks = False
        self._told_at: list[float] = []
        self.process: Process | None = None
        self._ends = False
        """Whether a process of it is ending: the next one may need what that has still got."""
        self._early: bytearray | None = None
        """What the next process is to read, where one is to be started then."""

    def request(self, connection: Connection, head: RequestHead, body: bytes) -> int:
        """Hand a whole request to the hub; return its number."""
        self._made += 1
        number = self._made
        self._calls[number] = connection
        self._hub.request(number, head, body, monotonic())
        self._perform()
        return number

    def left(self, number: int) -> None:
        """Take that a call's caller has left."""
        self._calls.pop(number, None)
        self._hub.left(number, monotonic())
        self._perform()

    def _perform(self) -> None:
        """Do what the hub wants done, and tell it the time while it has calls."""
        while effects := self._hub.take():
            for effect in effects:
                self._do(effect)
        if not self._hub.idle and not self._ticks:
            self._ticks = True
            self._loop.after(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticks = False
        self._hub.tick(monotonic())
        self._perform()

    def _do(self, effect: object) -> None:
        match effect:
            case Reply(call=call, data=data, last=last):
                self._reply(call, data, last=last)
            case Write(data=data):
                self._write(data)
            case Start():
                if self._ends:
                    self._early = bytearray()
                else:
                    self._start()
            case Stop(why=why):
                self._stop(why)
            case Ask(number=number, text=text):
                self._asker.ask((self, number), text, lambda said: self._answered(number, said))
            case Withdraw(number=number):
                self._asker.withdraw((self, number))

    def _reply(self, call: int, data: bytes, *, last: bool) -> None:
        connection = self._calls.get(call)
        if connection is None:
            return
        if last:
            del self._calls[call]
        connection.say(data, last=last)

    def _write(self, data: bytes) -> None:
        """Write to its process, or keep it for the next one while the last is ending."""
        if self.process is not None:
            self.process.write(data)
        elif self._early is not None:
            self._early += data
            if len(self._early) > EARLY_MAX_BYTES:
                self._early = None
                self._hub.ended(monotonic())

    def _stop(self, why: str) -> None:
        self._early = None
        if self.process is not None:
            self._tell(f"is ended, and the next call starts it again: {why}")
            self._let_end(self.process)

    def _answered(self, number: int, said: str) -> None:
        self._hub.answered(number, yes=said == "yes", why=SAID.get(said, ENOUGH), now=monotonic())
        self._perform()

    def _tell(self, what: str) -> None:
        """Tell the person what has become of the tool, as often as they would read it."""
        now = monotonic()
        self._told_at = [at for at in self._told_at if at > now - TOLD_S]
        if len(self._told_at) >= TOLD_MAX:
            return
        self._told_at.append(now)
        last = len(self._told_at) == TOLD_MAX
        more = " More of the kind isn't told for some minutes." if last else ""
        say(f"the tool {self._tool.name} {what}{more}")

    def _start(self) -> None:
        process = None
        try:
            process = Process(self._loop, self._told, self._tool)
        except OSError as error:
            self._tell(f"can't be started: {error.strerror}.")
        except LaunchError as error:
            self._tell(f"can't be started: {error.message}")
        self.process = process
        if process is None:
            self._loop.after(0, lambda: self._ended(None))
        else:
            process.on_data = self._hear
            process.on_end = lambda: self._ended(process)

    def _hear(self, data: bytes) -> None:
        self._hub.read(data, monotonic())
        self._perform()

    def _ended(self, process: Process | None) -> None:
        if self.process is not process:
            return  # it was stopped, and another may run by now
        if process is not None:
            last = process.last_words()
            self._let_end(process)
            said = f'; it said last: "{last}"' if last else ""
            self._tell(f"ended; the next call starts it again{said}.")
        self._hub.ended(monotonic())
        self._perform()

    def _let_end(self, process: Process) -> None:
        """Let its process end, however long that takes; the next one is started behind it."""
        self.process, self._ends = None, True
        process.end(self._gone)

    def _gone(self) -> None:
        self._ends = False
        early, self._early = self._early, None
        if early is not None:
            self._start()
            if self.process is not None:
                self.process.write(bytes(early))


class Process:
    """A server's process, in a group of its own, and its three pipes."""

    def __init__(self, loop: Loop, told: Told, tool: Tool) -> None:
        argv, environ = command_of(tool, told.imports)
        theirs: list[int] = []
        ours: list[int] = []
        try:
            for _ in range(3):
                reads, writes = os.pipe2(os.O_CLOEXEC)
                theirs.append(reads if not theirs else writes)
                ours.append(writes if len(theirs) == 1 else reads)
            self.started = Started(spawn_in(work_folder(told, tool.name), argv, environ, theirs))
        except (OSError, LaunchError):
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self._loop = loop
        self._errors = b""
        self.on_data: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self._in = Stream(loop, ours[0], on_end=self._ended)
        self._out = Stream(loop, ours[1], on_data=self._said, on_end=self._ended)
        self._err = Stream(loop, ours[2], on_data=self._complained)

    def write(self, data: bytes) -> None:
        """Write to its standard input."""
        self._in.write(data)

    def end(self, then: Callable[[], None]) -> None:
        """Let it end: its input ends first; `then` is called once it has."""
        self.close()
        Ending(self._loop, self.started, then)

    def close(self) -> None:
        """End its input, and listen to it no more."""
        self.on_data = self.on_end = None
        for stream in (self._in, self._out, self._err):
            stream.close()

    def last_words(self) -> str:
        """Return the last line of its standard error, as plain text."""
        lines = self._errors.decode("ascii", "replace").strip().splitlines()
        return "".join(c if c.isprintable() and c.isascii() else "?" for c in lines[-1])[:200] if (
            lines
        ) else ""  # fmt: skip

    def _said(self, data: bytes) -> None:
        if self.on_data is not None:
            self.on_data(data)

    def _complained(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-STDERR_MAX_BYTES:]

    def _ended(self) -> None:
        ended, self.on_end = self.on_end, None
        if ended is not None:
            ended()


def command_of(tool: Tool, imports: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment of a tool's server.

    The words of Link's own `mcp-remote` go by the environment: they hold a token, and every
    user of a machine can read a command line.
    """
    environ = person()
    words = remote_words(tool.argv)
    if words is None:
        folder = os.path.dirname(tool.argv[0])
        # A program beside it runs it: npx is a script that its Node runs.
        environ["PATH"] = f"{folder}:{PATH}" if folder not in PATH.split(":") else PATH
        return list(tool.argv), environ
    from sandbox.cli.mcp_remote import WORDS
    from sandbox.cli.wire_routes import START

    environ[WORDS] = json.dumps({"words": words, "imports": imports})
    return [sys.executable, "-I", "-S", START, REMOTE], environ


def work_folder(told: Told, name: str) -> str:
    """Return the folder that a tool's server works in; Link's, and that tool's alone."""
    from sandbox.tools import WORK

    return "/" if told.state is None else State(told.state).folder(WORK, name)
