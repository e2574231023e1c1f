"""The trio shell: the connections of one `trio.run`, and the doors they come in by.

The twin of the uvloop shell: the same commands, the same events, the same shared rooms.
What differs is how a call waits (`shells.trio_call`).
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic

import trio

from proto.events import Cause
from shells.datagrams import Asked, Post
from shells.edges import Edges
from shells.env import WATCH_S, Env, MakeScript
from shells.listen import REOPEN_AFTER_S, Door, connections_most
from shells.sides import prepare
from shells.splice import Plumbing
from shells.trio_call import Conversation
from shells.trio_jobs import Shared
from shells.workers import Workers

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
    trio.run(_serve, [*((each, make_script) for each in listeners), *more], env, stop_fd)


async def _serve(
    doors: list[tuple[socket.socket, MakeScript]], env: Env, stop_fd: int | None
) -> None:
    async with trio.open_nursery() as nursery:
        shell = Shell(nursery, env)
        try:
            for listener, make_script in doors:
                shell.open(listener, make_script)
            await _told_to_stop(stop_fd)
            shell.shut_doors()
            env.cancel_all(Cause.SHUTDOWN)
            with trio.move_on_after(SHUTDOWN_S):
                await shell.idle()
            shell.end_all(Cause.SHUTDOWN)
            await shell.idle()
        finally:
            shell.close()


async def _told_to_stop(stop_fd: int | None) -> None:
    """Wait for the signal, or for the descriptor."""
    if stop_fd is not None:
        await trio.lowlevel.wait_readable(stop_fd)
        return
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            return


class Shell:
    """The connections of one `trio.run`."""

    def __init__(self, nursery: trio.Nursery, env: Env) -> None:
        self._nursery = nursery
        self._env = env
        self._dispatching = trio.CancelScope()
        self._shared = Shared(
            env=env,
            edges=Edges(self),
            plumbing=Plumbing(),
            workers=Workers(),
            token=trio.lowlevel.current_trio_token(),
            ahead_s=trio.current_time() - monotonic(),
            open=self.open,
            again=set(),
        )
        self._running: set[Conversation] = set()
        self._one_ended = trio.Event()
        self._watching = False
        self._doors: list[tuple[Door, trio.CancelScope]] = []
        self._posts: list[tuple[Post, trio.CancelScope]] = []
        self._most = connections_most()

    def open(self, listener: socket.socket, make_script: MakeScript) -> None:
        """Serve a listening socket's connections, or a bound one's datagrams; it is ours now."""
        scope = trio.CancelScope()
        if listener.type == socket.SOCK_DGRAM:
            post = Post(listener)
            self._posts.append((post, scope))
            self._nursery.start_soon(self._collect, post, scope, make_script)
            return
        prepare(listener)
        door = Door(listener, self._env.say)
        self._doors.append((door, scope))
        self._nursery.start_soon(self._answer, door, scope, make_script)

    def start(self, make_script: MakeScript, client: socket.socket) -> None:
        """Run a script on an accepted connection."""
        if not self._watching:
            self._env.watch()  # what was closed meanwhile ends nobody who comes now
        conversation = Conversation(self._shared, client)
        self._running.add(conversation)
        self._env.calls.add(conversation)
        self._env.counters.accepted += 1
        if not self._watching:
            self._watching = True
            self._nursery.start_soon(self._watch)
        self._nursery.start_soon(self._run, conversation, make_script)

    async def idle(self) -> None:
        """Wait until nothing runs any more."""
        while self._running:
            await self._one_ended.wait()

    def end_all(self, cause: Cause) -> None:
        """Cancel every further command of every call, until its script ends."""
        for conversation in tuple(self._running):
            conversation.end_now(cause)

    def shut_doors(self) -> None:
        """Accept nobody any more, and close the listening sockets."""
        for door, scope in self._doors:
            scope.cancel()
            door.listener.close()
        self._doors.clear()
        for post, scope in self._posts:
            scope.cancel()
            for end in (post.listener, *(asked.end for asked in post.asked)):
                trio.lowlevel.notify_closing(end)
            post.close()
        self._posts.clear()

    def close(self) -> None:
        """Give everything back."""
        self.shut_doors()
        self._nursery.cancel_scope.cancel()
        self._shared.close()

    # What `Edges` asks of an event loop: to be told when its set can be read.

    def add_reader(self, fd: int, dispatch: Callable[[], None]) -> None:
        """Dispatch whenever a descriptor can be read."""
        self._nursery.start_soon(self._dispatch, fd, dispatch)

    def remove_reader(self, _: int) -> None:
        """Dispatch no more: there is just the one descriptor."""
        self._dispatching.cancel()

    async def _dispatch(self, fd: int, dispatch: Callable[[], None]) -> None:
        """Let those jobs go on whose sockets have news, and those that have let others."""
        with self._dispatching:
            while not self._dispatching.cancel_called:  # then the descriptor is closed
                again, self._shared.again = self._shared.again, set()
                if again:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(fd)
                dispatch()
                while again:
                    again.pop().run()  # held by nothing while this waits: it may be its last turn

    async def _run(self, conversation: Conversation, make_script: MakeScript) -> None:
        try:
            await conversation.serve(make_script)
        finally:
            self._running.discard(conversation)
            self._env.calls.discard(conversation)
            self._env.counters.ended += 1
            self._tell_of_an_end()

    def _tell_of_an_end(self) -> None:
        self._one_ended.set()
        self._one_ended = trio.Event()

    async def _collect(self, post: Post, scope: trio.CancelScope, make_script: MakeScript) -> None:
        """Take datagrams in, each of which is a call."""
        with scope:
            while not scope.cancel_called:  # then the socket is closed
                if post.full:
                    await self._one_ended.wait()
                    continue
                with suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_readable(post.listener)
                if scope.cancel_called:
                    return
                for asked in post.take():
                    self._nursery.start_soon(self._reply, asked)
                    self.start(make_script, asked.client)

    async def _reply(self, asked: Asked) -> None:
        with suppress(trio.ClosedResourceError):
            await trio.lowlevel.wait_readable(asked.end)
            asked.reply()
        self._tell_of_an_end()

    async def _watch(self) -> None:
        """Look at the flags each second while anything runs, and once after."""
        while self._watching:
            await trio.sleep(WATCH_S)
            self._watching = bool(self._running)
            self._env.watch()

    async def _answer(self, door: Door, scope: trio.CancelScope, make_script: MakeScript) -> None:
        """Take in those who wait at a door."""
        with scope:
            while not scope.cancel_called:  # then the listener is closed
                await trio.lowlevel.wait_readable(door.listener)
                if scope.cancel_called:
                    return
                for client in door.take(self._most - len(self._running), monotonic()):
                    self.start(make_script, client)
                if door.shut:
                    with trio.move_on_after(REOPEN_AFTER_S):
                        await self._one_ended.wait()  # its descriptors may be enough
                    door.reopen()
