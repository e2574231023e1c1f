"""One connection in the trio shell: performs its script's commands on raw sockets.

A connection is a task, which takes its script from command to command.  What a command
does is a *job*, a generator that tries what can be done at once, and yields where it has
to wait.  Most never do.  For one that does, the task sleeps under a cancel scope with
the command's deadline; whenever a socket of the call has news (`shells.edges`), the
shell's dispatcher lets the job go on, and wakes the task once it is done.  So each
command is written straight down, none of them awaits, and an edge in a tunnel costs no
change of tasks.

trio's own streams are not used for proxied connections: a stream reads ahead, which
can't be spliced.  Nor does a task wait for a socket itself: it could for one, where a
call has two that may each speak first.
"""

from __future__ import annotations

import socket
from time import monotonic
from typing import assert_never

import trio
from trio.lowlevel import Abort, Task

from proto.commands import (
    CLIENT,
    UPSTREAM,
    Close,
    Command,
    Connect,
    Listen,
    Locate,
    Log,
    Look,
    Open,
    Receive,
    Resolve,
    Send,
    Splice,
    StartTls,
)
from proto.events import NO_RESULT, Cancelled, Cause, Event
from proto.script import Call
from shells.env import MakeScript
from shells.sides import truncates
from shells.trio_jobs import Job, Jobs, Shared

COMMANDS_A_TURN = 32
"""A script whose peers are always ready must not keep the others from theirs."""

ANSWERS_AT_MOST = 64
"""A script that goes on after so many cancelled commands has a bug."""


class Conversation(Jobs):
    """One connection from a client, and what its script has opened."""

    __slots__ = ("_job", "_outcome", "_scope", "_task", "_to_the_last")

    def __init__(self, shared: Shared, client: socket.socket) -> None:
        super().__init__(shared, client)
        self._to_the_last = False
        self._scope: trio.CancelScope | None = None
        self._task: Task | None = None
        self._job: Job | None = None  # while the task sleeps
        self._outcome: Event | Exception | None = None

    # -- the script ---------------------------------------------------------------------

    async def serve(self, make_script: MakeScript) -> None:
        """Run a script to its end, then close what is open; a bug of ours ends this call alone."""
        try:
            await self._play(Call(make_script(monotonic())))
        except Exception as bug:  # noqa: BLE001
            self._truncated = True
            self._journal.bug(bug, monotonic())
        finally:
            self._shut(CLIENT, reset=self._truncated)
            self._shut(UPSTREAM, reset=self._truncated)

    async def _play(self, call: Call) -> None:
        performed = last = 0
        while (command := call.pending) is not None:
            event = await self._perform(command)
            if self._truncated or type(event) in NO_RESULT:
                self._truncated = truncates(command, event, self._truncated)
                self._cancelled_once |= type(event) is Cancelled
            call.answer(event)
            del event  # or what it brought is held twice while the next command waits
            performed += 1
            if performed % COMMANDS_A_TURN == 0:
                await trio.lowlevel.checkpoint()
            last += self._to_the_last
            if last > ANSWERS_AT_MOST:
                raise RuntimeError("the script doesn't end")

    def cancel(self, cause: Cause) -> None:
        """Answer the command that waits, or the next that does, with `Cancelled`."""
        self._cause = self._cause or cause
        if self._scope is not None:
            self._scope.cancel()

    def close(self, cause: Cause) -> None:
        """Cancel the present call, if one has begun."""
        if self._journal.begun:
            self.cancel(cause)

    def end_now(self, cause: Cause) -> None:
        """Cancel every further command that waits, until the script ends."""
        self._to_the_last = True
        self.cancel(cause)

    async def _perform(self, command: Command) -> Event:  # noqa: C901  # a flat match
        """Perform one command and return its event."""
        self._up = self._down = 0
        match command:
            case Log():
                return self._log(command)
            case Look():
                return self._look()
            case Locate():
                return self._locate(command)
            case Listen():
                return self._listen(command)
            case _ if self._cause is not None:
                return self._cancelled(command)
            case Receive():
                job = self._receive(command)
            case Send():
                job = self._send(command)
            case Splice():
                job = self._splice(command)
            case Close():
                job = self._close(command)
            case Connect():
                job = self._connect(command)
            case Resolve():
                job = self._resolve(command)
            case Open():
                job = self._open(command)
            case StartTls():
                job = self._start_tls(command)
            case _:
                assert_never(command)
        try:
            can_go_on = next(job)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # a Job returns an Event
        return await self._finish(command, job, can_go_on)

    # -- waiting ------------------------------------------------------------------------

    async def _finish(self, command: Command, job: Job, can_go_on: bool) -> Event:
        """Sleep until the job is done, has to be tried again, or is ended."""
        try:
            while True:
                if can_go_on:
                    await trio.lowlevel.checkpoint()
                elif await self._sleep(job):
                    return self._awakened()
                if self._cause is not None:
                    break
                late = self._due <= monotonic()
                can_go_on = next(job)
                if late:
                    break
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # a Job returns an Event
        finally:
            job.close()
        return self._late(command) if self._cause is None else self._cancelled(command)

    async def _sleep(self, job: Job) -> bool:
        """Leave a job to the dispatcher; tell whether it is done (else: time, or a cancel)."""
        self._job, self._task = job, trio.lowlevel.current_task()
        with trio.CancelScope(deadline=self._try_at + self._shared.ahead_s) as self._scope:
            await trio.lowlevel.wait_task_rescheduled(self._stop_sleeping)
            return True
        return False

    def _stop_sleeping(self, _: object) -> Abort:
        self._job = None
        return Abort.SUCCEEDED

    def run(self) -> None:
        """Let the job go on where there is one; wake the task once it is done."""
        if self._job is None:
            return
        try:
            if next(self._job):
                self._shared.again.add(self)
            return
        except StopIteration as done:
            self._outcome = done.value
        except Exception as bug:  # noqa: BLE001  # raised again in the call's own task
            self._outcome = bug
        assert self._task is not None
        self._job = None
        trio.lowlevel.reschedule(self._task)

    def _awakened(self) -> Event:
        outcome, self._outcome = self._outcome, None
        assert outcome is not None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _cancelled(self, command: Command) -> Cancelled:
        cause = self._cause
        assert cause is not None
        if not self._to_the_last:
            self._cause = None
        if isinstance(command, Close):
            self._shut(command.side, reset=command.broken)
        return Cancelled(cause, monotonic(), self._up, self._down)
