"""One direction of a `Splice`: bytes from one socket to another, by the cheapest means.

A pump is a plain state machine that never waits.  `step` moves what can be moved and
says what it would have to wait for; the shells differ only in how they wait.

The first COPIED_FIRST_BYTES of a direction go through one shared buffer: most tunnels
carry less, and a pipe costs two descriptors.  Past that, bytes go from socket to pipe to
socket by splice(2), never entering this process.  A pipe is leased only while a step
runs or while bytes lie in it, so a few serve any number of directions, and an idle
tunnel holds neither pipe nor buffer.

The pipe is always empty before bytes are spliced in: EAGAIN would otherwise mean either
"the source is empty" or "the pipe is full", and a pipe is also full when its slots are.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from enum import Enum

from proto.commands import Side
from shells.descriptors import is_spare, none_left
from shells.reasons import reason_for
from shells.sides import Stream

COPIED_FIRST_BYTES = 256 * 1024
"""What a direction copies before it is worth a pipe."""

PIPE_BYTES = 1024 * 1024
"""With the default 64 KiB the gain of splice(2) is gone at sixteen connections."""

BUFFER_BYTES = 64 * 1024
"""The shared buffer, and so the most that a direction may keep for a slow reader."""

MOVES_A_STEP = 4
"""More would let one fast connection starve the others."""

RESCUE_STEPS = 16
"""Enough for a receive buffer of the kernel's (net.ipv4.tcp_rmem: 6 MiB)."""

PIPES_MOST = 32
"""An ordinary user has 64 pipes of 1 MiB (pipe-user-pages-soft), shared with every
other process of that user, the sandboxed program too: we take half."""

PIPES_KEPT = 8
"""Empty pipes that wait for the next lease; the rest are closed."""

ASK_AGAIN_AFTER = 64
"""After a refused pipe, so many leases are refused without asking the kernel."""

_FLAGS = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE


class Want(Enum):
    """What a pump needs before its next step."""

    READ = "the source can be read"
    WRITE = "the target can be written"
    TURN = "the others had their turn"
    NOTHING = "it has ended"


READ, WRITE, TURN, NOTHING = Want


class Broken(Exception):
    """A side failed under a pump: which, and for what `Reason`."""

    def __init__(self, side: Side, error: OSError) -> None:
        super().__init__(side.value)
        self.side = side
        self.reason = reason_for(error)


class Pipe:
    """A pipe of PIPE_BYTES, both ends non-blocking."""

    __slots__ = ("read_fd", "write_fd")

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not is_spare(max(self.read_fd, self.write_fd)):
                raise none_left()
            fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close both ends, and drop what lies between."""
        os.close(self.read_fd)
        os.close(self.write_fd)


class Plumbing:
    """One shell's pipes and its copy buffer.  Not for use by two threads."""

    __slots__ = ("_free", "_refused", "buffer", "leased", "most", "view")

    def __init__(self, most: int = PIPES_MOST) -> None:
        self.most = most
        self.leased = 0
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self._free: list[Pipe] = []
        self._refused = 0

    def lease(self) -> Pipe | None:
        """Return an empty pipe, or None when none is to be had: copy instead."""
        if self._free:
            self.leased += 1
            return self._free.pop()
        if self.leased >= self.most or self._refused:
            self._refused = max(0, self._refused - 1)
            return None
        try:
            pipe = Pipe()
        except OSError:  # EMFILE, ENFILE, or EPERM: the user's share of pages is spent
            self._refused = ASK_AGAIN_AFTER
            return None
        self.leased += 1
        return pipe

    def give_back(self, pipe: Pipe) -> None:
        """Take back an *empty* pipe: bytes left in it would reach another call's peer."""
        self.leased -= 1
        if len(self._free) < PIPES_KEPT:
            self._free.append(pipe)
        else:
            pipe.close()

    def discard(self, pipe: Pipe) -> None:
        """Close a leased pipe that may hold bytes."""
        self.leased -= 1
        pipe.close()

    def close(self) -> None:
        """Close the pipes that nobody has leased."""
        while self._free:
            self._free.pop().close()


class Pump:
    """Moves one direction of a tunnel, and its FIN.

    `held` are bytes to send before any that is read.  `moved` counts the bytes handed
    to the target's kernel, `held` included.  Both sockets are non-blocking.
    """

    __slots__ = (
        "_copied_first",
        "_eof",
        "_held",
        "_in_pipe",
        "_passes_fin",
        "_pipe",
        "_plumbing",
        "_source",
        "_source_side",
        "_target",
        "_target_side",
        "moved",
        "want",
    )

    def __init__(
        self,
        plumbing: Plumbing,
        source: tuple[Side, Stream],
        target: tuple[Side, Stream],
        held: bytes,
    ) -> None:
        self._plumbing = plumbing
        self._source_side, self._source = source
        self._target_side, self._target = target
        # What TLS takes or gives is made in this process, where splice(2) doesn't look.
        self._copied_first: float = COPIED_FIRST_BYTES
        if not all(isinstance(each, socket.socket) for each in (self._source, self._target)):
            self._copied_first = float("inf")
        self._held = held
        self._pipe: Pipe | None = None
        self._in_pipe = 0
        self._eof = False
        self._passes_fin = True
        self.moved = 0
        self.want = TURN

    def step(self, *, to_the_end: bool = True, may_read: bool = True) -> Want:
        """Move bytes until something must be waited for, and say what (also in `want`).

        With `to_the_end` false, a read that didn't fill the buffer counts as the last
        there is, which saves a call.  An edge-triggered caller may say so only while
        no FIN and no error was reported: those come with no further edge.  With `may_read`
        false nothing has come since the source's last EAGAIN, so it isn't asked.
        Once NOTHING was returned, the target has had its FIN.  Raises Broken.
        """
        want: Want | None = TURN
        for _ in range(MOVES_A_STEP):
            if (self._held or self._pipe is not None) and not self._flush():
                want = WRITE
            elif self._eof:
                want = self._pass_fin()
            elif not may_read:
                want = READ
            elif self.moved >= self._copied_first and (pipe := self._plumbing.lease()) is not None:
                want = self._splice(pipe)
            else:
                want = self._copy(to_the_end)
            if want is not None:
                break
        self.want = want or TURN
        return self.want

    def rescue(self) -> None:
        """Move what can be moved of what the source has sent, but no FIN.

        For a source that has broken: reported once, an error reads like an end.
        """
        self._passes_fin = False
        with suppress(Broken):
            for _ in range(RESCUE_STEPS):
                if self.want is NOTHING or self.step() is not TURN:
                    break

    def abandon(self) -> None:
        """Stop for good: what is still in a pipe is dropped with the pipe."""
        self.want = NOTHING
        self._held = b""
        if self._pipe is not None:
            pipe, self._pipe = self._pipe, None
            self._plumbing.discard(pipe)

    def _flush(self) -> bool:
        """Send what was taken from the source before; tell whether all of it went."""
        try:
            while self._held:
                sent = self._target.send(self._held)
                self._held = self._held[sent:]
                self.moved += sent
            while self._in_pipe:
                assert self._pipe is not None
                sent = os.splice(
                    self._pipe.read_fd, self._target.fileno(), self._in_pipe, flags=_FLAGS
                )
                self._in_pipe -= sent
                self.moved += sent
        except BlockingIOError:
            return False
        except OSError as error:
            raise Broken(self._target_side, error) from None
        self._give_back()
        return True

    def _give_back(self) -> None:
        if self._pipe is not None:
            pipe, self._pipe = self._pipe, None
            self._plumbing.give_back(pipe)

    def _copy(self, to_the_end: bool) -> Want | None:
        """Take one buffer from the source and send it on."""
        view = self._plumbing.view
        try:
            size = self._source.recv_into(view)
        except BlockingIOError:
            return READ
        except OSError as error:
            raise Broken(self._source_side, error) from None
        if size == 0:
            self._eof = True
            return self._pass_fin()
        try:
            sent = self._target.send(view[:size])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise Broken(self._target_side, error) from None
        self.moved += sent
        if sent < size:  # the next flush tells whether the target is full
            self._held = bytes(view[sent:size])
            return None
        return READ if size < BUFFER_BYTES and not to_the_end else None

    def _splice(self, pipe: Pipe) -> Want | None:
        """Move what the source has into an empty pipe, and from there to the target."""
        self._pipe = pipe
        try:
            size = os.splice(self._source.fileno(), pipe.write_fd, PIPE_BYTES, flags=_FLAGS)
        except BlockingIOError:
            self._give_back()
            return READ
        except OSError as error:
            raise Broken(self._source_side, error) from None
        if size == 0:
            self._give_back()
            self._eof = True
            return self._pass_fin()
        self._in_pipe = size
        return None if self._flush() else WRITE

    def _pass_fin(self) -> Want:
        try:
            if self._passes_fin:
                self._target.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise Broken(self._target_side, error) from None
        return NOTHING
