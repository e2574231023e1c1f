"""Under CI a skipped test fails the run: what isn't run doesn't hold.

The exceptions are named by the first word of the reason: `kernel:` for a kernel feature
that this machine lacks, `Go:` for Go's toolchain.
"""

from __future__ import annotations

import os

import pytest

ALLOWED = ("kernel:", "Go:")


class NoSkips:
    """Collects the skips that aren't allowed, and fails the session over them."""

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test's skip."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note the skip of a whole file."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Note a skip whose reason isn't one of the exceptions."""
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "xfail"
            words = str(reason).removeprefix("Skipped: ")
            if not words.startswith(ALLOWED):
                self.skipped.append(f"{report.nodeid}: {words}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run where a test was skipped."""
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what was skipped."""
        for line in self.skipped:
            terminalreporter.write_line(f"skipped under CI, which fails the run: {line}", red=True)


def register(config: pytest.Config) -> None:
    """Turn the rule on where CI is set."""
    if os.environ.get("CI"):
        config.pluginmanager.register(NoSkips(), "no-skips")
