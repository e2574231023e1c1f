"""The uvloop shell: accepts connections and runs a script on each, in one thread.

What a connection does is in `shells.uvloop_call`.  uvloop's own transports are never
used for proxied connections: they read ahead, which can't be spliced, and dropping a
half-closed one aborts the process.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic

import uvloop

from proto.events import Cause
from shells.datagrams import Asked, Post
from shells.edges import Edges
from shells.env import WATCH_S, Env, MakeScript
from shells.listen import REOPEN_AFTER_S, Door, connections_most
from shells.sides import prepare
from shells.splice import Plumbing
from shells.uvloop_call import Conversation, Shared
from shells.workers import Workers

SWEEP_S = WATCH_S
"""How far ahead deadlines get timers of their own.  Most waits are over long before, so
one look at all of them each second costs less than a timer for each; the flags outside
are looked at in the same turn."""

SHUTDOWN_S = 1.0
"""What calls have to write their last line after a shutdown."""


def serve(
    listeners: Iterable[socket.socket],
    make_script: MakeScript,
    env: Env,
    *,
    more: Iterable[tuple[socket.socket, MakeScript]] = (),
    stop_fd: int | None = None,
) -> None:
    """Serve connections until told to stop; then end the calls and close everything.

    more: further sockets, each with what serves it; a datagram of a UDP socket is a call.
    Runs in the calling thread, which must be the main one when `stop_fd` is None: then
    SIGTERM and SIGINT stop it, else `stop_fd` does as soon as it can be read.  Takes
    the listeners over.  At most SHUTDOWN_S later every call has written its last line.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve([*((each, make_script) for each in listeners), *more], env, stop_fd))


async def _serve(
    doors: list[tuple[socket.socket, MakeScript]], env: Env, stop_fd: int | None
) -> None:
    loop = asyncio.get_running_loop()
    shell = Shell(loop, env)
    stopped = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT) if stop_fd is None else ()
    for number in signals:
        loop.add_signal_handler(number, stopped.set)
    if stop_fd is not None:
        loop.add_reader(stop_fd, stopped.set)
    try:
        for listener, make_script in doors:
            shell.open(listener, make_script)
        await stopped.wait()
    finally:
        if stop_fd is not None:
            loop.remove_reader(stop_fd)
        shell.shut_doors()
        env.cancel_all(Cause.SHUTDOWN)
        await shell.idle(SHUTDOWN_S)
        shell.close()
        for number in signals:
            loop.remove_signal_handler(number)


class Shell:
    """The connections of one loop, and the doors that they come in by."""

    def __init__(self, loop: asyncio.AbstractEventLoop, env: Env) -> None:
        self._loop = loop
        self._env = env
        self._shared = Shared(
            loop=loop,
            env=env,
            edges=Edges(loop),
            plumbing=Plumbing(),
            workers=Workers(),
            open=self.open,
        )
        self._running: set[Conversation] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._none_left: asyncio.Event | None = None
        self._doors: list[tuple[Door, MakeScript]] = []
        self._posts: list[Post] = []
        self._most = connections_most()

    def open(self, listener: socket.socket, make_script: MakeScript) -> None:
        """Serve a listening socket's connections, or a bound one's datagrams; it is ours now."""
        if listener.type == socket.SOCK_DGRAM:
            post = Post(listener)
            self._posts.append(post)
            self._loop.add_reader(listener, self._collect, post, make_script)
            return
        prepare(listener)
        door = Door(listener, self._env.say)
        self._doors.append((door, make_script))
        self._watch(door, make_script)

    def start(self, make_script: MakeScript, client: socket.socket) -> None:
        """Run a script on an accepted connection."""
        if self._sweeping is None:
            self._env.watch()  # what was closed meanwhile ends nobody who comes now
        conversation = Conversation(self._shared, client, self._ended)
        self._running.add(conversation)
        self._env.calls.add(conversation)
        self._env.counters.accepted += 1
        if self._sweeping is None:
            self._set_timers()
        conversation.begin(make_script)

    def _ended(self, conversation: Conversation) -> None:
        """Forget a conversation; its descriptors may let a shut door open again."""
        self._running.discard(conversation)
        self._env.calls.discard(conversation)
        self._env.counters.ended += 1
        if self._none_left is not None and not self._running:
            self._none_left.set()
        for door, make_script in self._doors:
            if door.shut:
                self._reopen(door, make_script)

    async def idle(self, at_most_s: float | None = None) -> None:
        """Wait until nothing runs any more, or for so many seconds."""
        self._none_left = asyncio.Event()
        if self._running:
            with suppress(TimeoutError):
                async with asyncio.timeout(at_most_s):
                    await self._none_left.wait()

    def shut_doors(self) -> None:
        """Accept nobody any more, and close the listening sockets."""
        for door, _ in self._doors:
            self._loop.remove_reader(door.listener)
            door.listener.close()
        self._doors.clear()
        for post in self._posts:
            for end in (post.listener, *(asked.end for asked in post.asked)):
                self._loop.remove_reader(end)
            post.close()
        self._posts.clear()

    def close(self) -> None:
        """End what still runs, its last lines written, and give everything back."""
        self.shut_doors()
        for conversation in tuple(self._running):
            conversation.end_now(Cause.SHUTDOWN)
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._shared.close()

    def _sweep(self) -> None:
        """Look at the flags, and set timers; once more where nothing runs any longer."""
        self._env.watch()
        self._set_timers()

    def _set_timers(self) -> None:
        """Set timers for the deadlines of the next SWEEP_S, as long as anything runs."""
        self._shared.swept_until = until = monotonic() + SWEEP_S
        for conversation in self._running:
            conversation.set_timer(until)
        running = bool(self._running)
        self._sweeping = self._loop.call_later(SWEEP_S, self._sweep) if running else None

    def _watch(self, door: Door, make_script: MakeScript) -> None:
        self._loop.add_reader(door.listener, self._knock, door, make_script)

    def _knock(self, door: Door, make_script: MakeScript) -> None:
        """Take in one of those who wait at a door.

        The loop comes back at once while there are more: cheaper than to ask accept(2)
        for one more each time, and in a storm the calls that run have their turn between.
        """
        for client in door.take(self._most - len(self._running), monotonic(), at_most=1):
            self.start(make_script, client)
        if door.shut:
            self._loop.remove_reader(door.listener)
            self._loop.call_later(REOPEN_AFTER_S, self._reopen, door, make_script)

    def _collect(self, post: Post, make_script: MakeScript) -> None:
        """Take datagrams in, each of which is a call."""
        for asked in post.take():
            self._loop.add_reader(asked.end, self._reply, post, asked, make_script)
            self.start(make_script, asked.client)
        if post.full:
            self._loop.remove_reader(post.listener)

    def _reply(self, post: Post, asked: Asked, make_script: MakeScript) -> None:
        was_full = post.full
        self._loop.remove_reader(asked.end)
        asked.reply()
        if was_full:
            self._loop.add_reader(post.listener, self._collect, post, make_script)

    def _reopen(self, door: Door, make_script: MakeScript) -> None:
        if door.shut and (door, make_script) in self._doors:
            door.reopen()
            self._watch(door, make_script)
