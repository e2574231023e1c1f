"""What all tests share: one network and one installed copy a session, and Hypothesis profiles.

The profiles are `default` for every run, and `fuzz` for the security reviewers' long one.  The
first draws the same examples each time, so that no run fails by chance; the second searches.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import no_skips, once_more
from tests.net.fixtures import authority, dns, network, resolver
from tests.sandbox.people import (
    folder,
    hidden_folder,
    installed,
    open_folder,
    ordinary,
    ordinary_folder,
    people,
    who,
)

__all__ = [  # fixtures, here for all: a session's would be made once for each file that imports it
    "authority", "dns", "folder", "hidden_folder", "installed", "network", "open_folder",
    "ordinary", "ordinary_folder", "people", "resolver", "who",
]  # fmt: skip


ENDING = signal.SIGINT, signal.SIGHUP, signal.SIGQUIT


@pytest.fixture(scope="session", autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the person's own kill switch and pauses out of the tests, and the tests out of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LNK_HOME", str(tmp_path_factory.mktemp("lnk-home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def heeded_signals() -> Iterator[None]:
    """Let what the tests start heed the signals that a shell's `&` and nohup have ignored."""
    ignored = [each for each in ENDING if signal.getsignal(each) is signal.SIG_IGN]
    for each in ignored:
        signal.signal(each, signal.SIG_DFL)
    yield
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


settings.register_profile(
    "default",
    max_examples=100,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    max_examples=20_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    """Have CI's own rules where CI is set: on skips, and on a second try."""
    no_skips.register(config)
    once_more.register(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let no time limit end the long run."""
    if config.getoption("--hypothesis-profile") == "fuzz":
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
