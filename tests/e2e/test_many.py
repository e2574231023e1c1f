"""Ten thousand idle tunnels in one process, as far as the limit of descriptors goes (R43)."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator

import pytest

from bench.load import FIRST_PORT, HOST, Load
from shells.listen import DESCRIPTORS_RESERVED
from tests.e2e.proxy import SHELLS, Proxy

pytestmark = pytest.mark.netns
WANTED = 10_000
RSS_MOST_KIB = {"uvloop": 150 << 10, "trio": 200 << 10}
"""With ten thousand of them; the goal is the uvloop shell's."""
SOON_S = 60.0


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    with Load(f"m{os.getpid()}") as made:
        yield made


def how_many() -> int:
    """Return as many tunnels as both their ends' processes may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(WANTED, (hard - DESCRIPTORS_RESERVED) // 2 - 8)


@contextlib.contextmanager
def all_descriptors() -> Iterator[None]:
    """Let the load's processes have as many descriptors as the proxy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shell", SHELLS)
def test_ten_thousand_idle_tunnels_are_held_and_let_go(shell: str, load: Load) -> None:
    with all_descriptors(), Proxy(load.network, "--hosts", HOST, shell=shell) as proxy:
        at = (FIRST_PORT + SHELLS.index(shell), proxy.port)
        with load.held("idle", at, 1):
            before = proxy.descriptors()
        count = how_many()
        with load.held("idle", at, count):
            assert proxy.descriptors() >= 2 * count
            assert proxy.rss_kib() < RSS_MOST_KIB[shell]
            load.measure("calls", at, 1, 0.2)  # and others are served beside them
        deadline = time.monotonic() + SOON_S
        while proxy.descriptors() > before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert proxy.descriptors() <= before
        assert "Traceback" not in proxy.stderr()
        allowed = [line["call"] for line in proxy.log() if line["verdict"] == "allowed"]
        ended = [line["call"] for line in proxy.log() if line["verdict"] == "ended"]
        assert len(allowed) >= count + 1
        assert sorted(allowed) == sorted(ended)
