"""A few threads for what blocks: name lookups.

`concurrent.futures` joins its threads when the interpreter ends, and getaddrinfo(3) can
hang for half a minute: a stopped proxy would live on as long.  These threads are daemons
and nobody waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

WORKERS_MOST = 16
"""Lookups at once.  More than a resolver's few seconds of patience allows wait their
turn, and their deadline, here."""

Job = Callable[[], None]


class Workers:
    """Runs jobs in at most `most` threads, started when they are first needed.

    A job must not raise: it hands over its result by itself, as its loop wants it.
    """

    def __init__(self, most: int = WORKERS_MOST) -> None:
        self._most = most
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()
        self._idle = 0  # threads that wait, less the jobs that they were promised

    def submit(self, job: Job) -> None:
        """Run a job as soon as a thread is free.

        Raises RuntimeError when there is no thread at all and none can be started: the
        user's other processes, the sandboxed program's too, may have used them up.
        """
        with self._lock:
            self._idle -= 1
            if self._idle < 0 and self._threads < self._most:
                self._start()
        self._jobs.put(job)

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="lookup", daemon=True).start()
        except RuntimeError:
            if self._threads == 0:
                self._idle += 1
                raise
        else:
            self._threads += 1
            self._idle += 1

    def close(self) -> None:
        """Let the threads end when they are free, and forget the jobs that wait."""
        while not self._jobs.empty():
            self._jobs.get()
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it holds its call
            with self._lock:
                self._idle += 1
