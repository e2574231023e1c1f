"""A small loop over poll(2), for processes outside that hold few descriptors.

A bridge of tools or pages talks to processes, terminals and the proxy's connections, which
scripts and their shells have no word for.  It holds a few dozen descriptors, so it has no
event loop to import: callbacks, and a clock.
"""

from __future__ import annotations

import errno
import heapq
import os
import select
import socket
from collections.abc import Callable
from itertools import count
from time import monotonic

PIECE_BYTES = 64 * 1024
SPENT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SPENT_S = 1.0
"""After that a connection is taken again, where there was no descriptor for one."""
_ENDED = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Loop:
    """Calls back what a descriptor is ready for, until `stop`."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._watched: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        """A heap, for there may be one of each connection of the last half minute."""
        self._numbers = count()
        self._running = True
        self.held = 0
        """The bytes that all streams hold for readers who haven't taken them."""

    def watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready` with what happened on a descriptor; anew for one that is watched."""
        self._poll.register(fd, events)
        self._watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        """Watch a descriptor no more; always before it is closed."""
        if self._watched.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` once, so much later."""
        heapq.heappush(self._timers, (monotonic() + seconds, next(self._numbers), act))

    def stop(self) -> None:
        """End `run` once what is being called back is done."""
        self._running = False

    def run(self) -> None:
        """Call back until stopped."""
        while self._running:
            for fd, events in self._poll.poll(self._wait_ms()):
                ready = self._watched.get(fd)
                if ready is not None:  # it may have been closed by the one before
                    ready(events)
            now = monotonic()
            due = []
            while self._timers and self._timers[0][0] <= now:
                due.append(heapq.heappop(self._timers)[2])
            for act in due:
                act()

    def _wait_ms(self) -> int | None:
        if not self._timers:
            return None
        return max(0, int((self._timers[0][0] - monotonic()) * 1000) + 1)


class Stream:
    """One descriptor, read and written without blocking.

    `on_data` gets what was read, `on_end` is called once when the other side has ended or
    broken off, or when `queue_max` bytes wait for a reader who stands still.
    """

    __slots__ = ("_fd", "_loop", "_queue", "_queue_max", "_reads", "_wanted",
                 "on_close", "on_data", "on_end", "on_sent")  # fmt: skip

    def __init__(
        self,
        loop: Loop,
        fd: int,
        *,
        on_data: Callable[[bytes], None] | None = None,
        on_end: Callable[[], None] | None = None,
        queue_max: int = 64 << 20,
    ) -> None:
        """Take a descriptor over; one without `on_data` is only written."""
        os.set_blocking(fd, False)
        self._loop, self._fd = loop, fd
        self._queue = bytearray()  # a list of what was written would take more, of small pieces
        self._queue_max = queue_max
        self._reads = on_data is not None
        self._wanted = -1
        self.on_data, self.on_end = on_data, on_end
        self.on_sent: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self._watch()

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._fd < 0

    def write(self, data: bytes) -> None:
        """Send bytes, as the other side takes them."""
        if self.closed or not data:
            return
        self._queue += data
        self._loop.held += len(data)
        self._flush()

    def finish(self) -> None:
        """Close once all is sent."""
        self.on_end = None
        self.on_sent = self.close
        if not self._queue:
            self.close()

    def close(self) -> None:
        """Close now."""
        if not self.closed:
            self._loop.unwatch(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._loop.held -= len(self._queue)
            self._queue = bytearray()
            if self.on_close is not None:
                self.on_close()

    def _watch(self) -> None:
        wanted = (select.POLLIN if self._reads else 0) | (select.POLLOUT if self._queue else 0)
        if wanted != self._wanted:
            self._wanted = wanted
            self._loop.watch(self._fd, wanted, self._ready)

    def _ready(self, events: int) -> None:
        if events & select.POLLOUT:
            self._flush()
        if self.closed:
            return
        if self._reads and events & (select.POLLIN | _ENDED):
            self._read()
        elif events & _ENDED:
            self._end()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            assert self.on_data is not None
            self.on_data(data)
        else:
            self._end()

    def _flush(self) -> None:
        while self._queue:
            try:
                sent = os.write(self._fd, self._queue)
            except BlockingIOError:
                break
            except OSError:
                self._end()
                return
            self._loop.held -= sent
            del self._queue[:sent]
        if len(self._queue) > self._queue_max:
            self._end()
            return
        self._watch()
        if not self._queue and self.on_sent is not None:
            self.on_sent()

    def _end(self) -> None:
        self.close()
        ended, self.on_end = self.on_end, None
        if ended is not None:
            ended()


def accept_on(loop: Loop, listener: socket.socket, took: Callable[[int], None]) -> None:
    """Have `took` called with the descriptor of each connection, until the listener is closed."""
    listener.setblocking(False)

    def ready(_: int) -> None:
        try:
            sock, _address = listener.accept()
        except OSError as error:
            if error.errno in SPENT:
                # Who waits would be told of again at once, and again, for as long as that lasts.
                loop.unwatch(listener.fileno())
                loop.after(SPENT_S, watch)
            return  # else it left before we came
        took(sock.detach())

    def watch() -> None:
        if listener.fileno() >= 0:
            loop.watch(listener.fileno(), select.POLLIN, ready)

    watch()
