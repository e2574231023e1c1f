"""The bridge of pages: each is asked about, then opened in the person's browser (R54).

A login's answer comes to a port of localhost.  That port is held before the person is asked,
so that a taken one is refused, and listened at once the page may open: for one request, for
five minutes, at both addresses that a browser takes localhost for.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress

from proto.codecs.http1 import RequestHead
from proto.policy.keys import Key
from proto.verbs.open_page import CALLBACK_S, Page, PageRefused, question, read_page
from sandbox.asking import find
from sandbox.cli.bridge_parts import Asker, Connection, person, say
from sandbox.cli.callback import Callbacks, PortTaken
from shells.bridges import DOOR_FD
from shells.children import DEFAULTED, pidfd_of
from shells.poll_loop import Loop, accept_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.cli.bridge import Told
    from sandbox.cli.callback import Port
    from sandbox.route import Route

URL_MAX_BYTES = 32 << 10
OPENERS = (("xdg-open",), ("gio", "open"), ("wslview",), ("x-www-browser",), ("sensible-browser",))
OPENED_S = 3.0
"""How long what opens a page may take to say that it can't."""
WAITING_MAX = 8

SAID = {
    "no": "the person refused to open the page.",
    "silence": "nobody answered in time, so the page was not opened.",
    "enough": "too many pages were refused or not answered in the last minutes; ask again later.",
}


def serve(told: Told, _: tuple[Route, ...]) -> None:
    """Serve pages until the wire ends."""
    from sandbox.cli.bridge import LIFE_FD, LISTENER_FD

    for fd in (LIFE_FD, LISTENER_FD, DOOR_FD):
        with suppress(OSError):  # not every proxy has a door inward
            os.set_inheritable(fd, False)  # neither a browser nor an asker gets them
    loop = Loop()
    pages = Pages(loop, told)
    caller = Key(told.caller)
    with socket.socket(fileno=LISTENER_FD) as listener:
        accept_on(
            loop,
            listener,
            lambda fd: Connection.begin(loop, fd, caller, pages.call, URL_MAX_BYTES),
        )
        loop.watch(LIFE_FD, select.POLLIN, lambda _: loop.stop())
        loop.run()
    pages.end()


class Pages:
    """What is asked about now, and the ports that wait for an answer."""

    def __init__(self, loop: Loop, told: Told) -> None:
        self._loop, self._told = loop, told
        self._asker = Asker(loop, told)
        self._callbacks = Callbacks(loop, told)
        self._asked: set[int] = set()
        self._made = 0

    def call(self, connection: Connection, head: RequestHead, body: bytes) -> Callable[[], None]:
        """Take a request for a page; return what is called when who asked has left.

        Whether a port is taken tells of this machine: so who asks for one that is, or gives one
        back before the person has answered, has asked for nothing, and can do so as seldom.
        """
        if self._asker.had_enough:
            connection.refuse(403, SAID["enough"])
            return _nothing
        try:
            page = self._judge(head, body)
            port = None if page.callback is None else self._callbacks.hold(page.callback)
        except PageRefused as refused:
            connection.refuse(403, str(refused))
            return _nothing
        except PortTaken as taken:
            self._asker.count()
            connection.refuse(409, str(taken))
            return _nothing
        self._made += 1
        number = self._made
        self._asked.add(number)

        def answered(said: str) -> None:
            self._asked.discard(number)
            self._answered(connection, page, port, said)

        def left() -> None:
            if number in self._asked:
                self._asked.discard(number)
                self._asker.withdraw(number)
                if port is not None:
                    self._asker.count()
                    port.close()

        self._asker.ask(number, question(page), answered)
        return left

    def _judge(self, head: RequestHead, body: bytes) -> Page:
        if head.method != "POST" or head.target != b"/":
            raise PageRefused("a page is asked for by a POST of its URL.")
        if head.get_all(b"origin"):
            raise PageRefused("pages may not open pages.")
        if len(self._asked) >= WAITING_MAX:
            raise PageRefused("too many pages wait for an answer.")
        return read_page(body)

    def _answered(self, connection: Connection, page: Page, port: Port | None, said: str) -> None:
        if said != "yes":
            if port is not None:
                port.close()
            connection.refuse(403, SAID.get(said, SAID["enough"]))
            return
        if port is not None:
            port.listen(CALLBACK_S)

        def ended(why: str | None) -> None:
            if why is None:
                connection.answer(200, "the page is open.")
                return
            if port is not None:
                port.close()
            connection.refuse(502, why)

        open_page(self._loop, page.url, self._told.desktop, ended)

    def end(self) -> None:
        """Take all questions back, and let all ports go."""
        self._asker.end()
        self._callbacks.end()


def _nothing() -> None:
    return


def open_page(
    loop: Loop, url: str, desktop: dict[str, str], then: Callable[[str | None], None]
) -> None:
    """Open a page by what this machine has; `then` is told why not, where it isn't opened."""
    for name, *words in OPENERS:
        program = find(name)
        if program is not None:
            _start(loop, [program, *words, url], desktop, then)
            return
    say(f"this machine has nothing that opens a page; open it yourself: {url}")
    then("this machine has nothing that opens a page (xdg-open).")


def _start(
    loop: Loop, argv: list[str], desktop: dict[str, str], then: Callable[[str | None], None]
) -> None:
    """Start what opens a page; it may be the browser itself, and go on for as long."""
    try:
        pid = os.posix_spawn(
            argv[0],
            argv,
            person() | desktop,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
            ],
            setpgroup=0,
            setsigmask=(),
            setsigdef=DEFAULTED,
        )
        process = pidfd_of(pid)
    except OSError as error:
        then(f"{argv[0]} can't be run: {error.strerror}.")
        return
    told = [then]

    def tell(why: str | None) -> None:
        if told:
            told.pop()(why)

    def ended(_: int) -> None:
        loop.unwatch(process)
        os.close(process)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        tell(None if code == 0 else f"{argv[0]} could not open the page (status {code}).")

    loop.watch(process, select.POLLIN, ended)
    loop.after(OPENED_S, lambda: tell(None))
