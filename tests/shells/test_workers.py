"""Threads for what blocks: how many, and what becomes of them."""

from __future__ import annotations

import threading

import pytest

from shells.workers import Workers

SOON_S = 60.0


def test_jobs_run_at_once_up_to_the_bound_and_then_in_turn() -> None:
    workers, gate = Workers(most=2), threading.Event()
    started, ended = threading.Semaphore(0), threading.Semaphore(0)

    def job() -> None:
        started.release()
        assert gate.wait(SOON_S)
        ended.release()

    for _ in range(3):
        workers.submit(job)
    for _ in range(2):
        assert started.acquire(timeout=SOON_S)
    assert not started.acquire(timeout=0.05)
    gate.set()
    for _ in range(3):
        assert ended.acquire(timeout=SOON_S)
    workers.close()


def test_an_idle_thread_is_used_again() -> None:
    workers = Workers(most=8)
    names: list[int] = []
    done = threading.Semaphore(0)

    def job() -> None:
        names.append(threading.get_ident())
        done.release()

    for _ in range(5):
        workers.submit(job)
        assert done.acquire(timeout=SOON_S)
        while not workers._idle:  # the thread says that it is free just after
            threading.Event().wait(0.001)
    assert len(set(names)) == 1
    workers.close()


def test_what_waits_when_the_pool_is_closed_never_runs() -> None:
    workers, gate, started = Workers(most=1), threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        started.set()
        assert gate.wait(SOON_S)
        ran.append("first")

    workers.submit(first)
    workers.submit(lambda: ran.append("second"))
    assert started.wait(SOON_S)
    threads = [thread for thread in threading.enumerate() if thread.name == "lookup"]
    workers.close()
    gate.set()
    for thread in threads:
        thread.join(SOON_S)
    assert ran == ["first"]


def test_without_any_thread_a_job_is_an_error_and_with_one_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NoThread:
        def __init__(self, **_: object) -> None:
            pass

        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    def wait() -> None:
        assert gate.wait(SOON_S)

    workers, gate, done = Workers(most=8), threading.Event(), threading.Event()
    thread = threading.Thread
    monkeypatch.setattr(threading, "Thread", NoThread)
    with pytest.raises(RuntimeError):
        workers.submit(done.set)
    monkeypatch.setattr(threading, "Thread", thread)
    workers.submit(wait)
    monkeypatch.setattr(threading, "Thread", NoThread)
    workers.submit(done.set)
    gate.set()
    assert done.wait(SOON_S)
    workers.close()
