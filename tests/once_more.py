"""Under CI a test of real parts that fails is run once more, and named.

Real parts share two cores with whatever else a machine does, and of nine thousand tests one
now and then fails by chance.  What fails twice fails the run, and so does a run in which more
than AT_MOST tests needed it.  Pure tests and attacks get no second try: there, chance is a
fault (DECISIONS.md).
"""

from __future__ import annotations

import os

import pytest

AT_MOST = 3
REAL_PARTS = "tests/e2e/", "tests/net/", "tests/sandbox/", "tests/shells/"


class OnceMore:
    """Gives the second tries, counts them, and fails the session over too many."""

    def __init__(self) -> None:
        self.tried_again: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the tests that get a second try (pytest-rerunfailures)."""
        for item in items:
            if item.nodeid.startswith(REAL_PARTS) and "attack" not in item.nodeid:
                item.add_marker(pytest.mark.flaky(reruns=1))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that is tried again."""
        if report.outcome == "rerun":
            self.tried_again.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run where too many needed it."""
        if len(self.tried_again) > AT_MOST and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each that was tried again, with what had failed."""
        for line in self.tried_again:
            terminalreporter.write_line(f"failed by chance, to be mended: {line}", red=True)


def register(config: pytest.Config) -> None:
    """Turn the second try on where CI is set."""
    if os.environ.get("CI"):
        config.pluginmanager.register(OnceMore(), "once-more")
