"""The last descriptors are the lookups': nobody else takes them, and they are enough."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from shells.descriptors import KEPT, has_spare, is_spare

ROOT = Path(__file__).parents[2]

FULL = """
import os, resource, socket, threading
from concurrent.futures import ThreadPoolExecutor
from shells.descriptors import KEPT, has_spare
from shells.listen import Door, listen_tcp
from shells.resolve import lookup
from shells.sides import new_upstream
from shells.splice import Pipe, Plumbing
from shells.workers import WORKERS_MOST

listener = listen_tcp("127.0.0.1", 0)
clients = [socket.create_connection(listener.getsockname()) for _ in range(4)]
limit = max(map(int, os.listdir("/proc/self/fd"))) + KEPT + 10
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
held = []
while has_spare():
    held.append(os.dup(0))
for make in (lambda: new_upstream("127.0.0.1"), Pipe):
    try:
        make()
    except OSError as error:
        print("errno", error.errno)
print("pipe", Plumbing().lease())
door, taken = Door(listener, lambda said: print("said", said)), []
for _ in range(3):
    taken += door.take(10, 0.0)
    print("taken", len(taken), "shut", door.shut)
    door.reopen()

def look_up(name):
    together.wait()
    try:
        return len(lookup(name)) > 0
    except socket.gaierror as error:
        return error.errno

# As many at once as there are threads, none of which finds the others in its way.
together = threading.Barrier(WORKERS_MOST)
with ThreadPoolExecutor(WORKERS_MOST) as pool:
    found = list(pool.map(look_up, ["localhost", "a.invalid"] * (WORKERS_MOST // 2)))
print("found", set(found[::2]), "not", set(found[1::2]) <= {socket.EAI_NONAME, socket.EAI_AGAIN})
for _ in range(2):
    os.close(held.pop(0))
    taken += door.take(10, 0.0)
    print("taken", len(taken))
    door.reopen()
"""


def test_calls_never_take_what_lookups_need() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL], cwd=ROOT, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    said = "said new connections wait until another ends: "
    assert ran.stdout.splitlines() == [
        f"errno {errno.EMFILE}",
        f"errno {errno.EMFILE}",
        "pipe None",
        # One has to be taken to see its number; no second one is.
        f"{said}the descriptors left are kept for name lookups.",
        "taken 1 shut True",
        "taken 1 shut True",
        "taken 1 shut True",
        "found {True} not True",
        "taken 2",
        "taken 3",
    ]


@pytest.mark.parametrize(
    ("limit", "spare", "kept"),
    [
        (1024, 1023 - KEPT, 1024 - KEPT),
        (40, 19, 20),
        (resource.RLIM_INFINITY, 1 << 30, None),
    ],
)
def test_the_last_numbers_below_the_limit_are_the_lookups(
    monkeypatch: pytest.MonkeyPatch, limit: int, spare: int, kept: int | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert is_spare(spare)
    assert kept is None or not is_spare(kept)


def test_no_descriptor_at_all_is_none_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_spare()

    def dup(_: int) -> int:
        raise OSError(errno.EMFILE, "none")

    monkeypatch.setattr(os, "dup", dup)
    assert not has_spare()
