"""Under CI a skipped test fails the run, but for the exceptions that are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SKIPPED = """
import pytest

def test_that_holds():
    pass

@pytest.mark.skipif(True, reason={reason!r})
def test_that_is_skipped():
    pass
"""
WHOLE_FILE = """
import pytest

pytest.skip({reason!r}, allow_module_level=True)
"""
EXPECTED_TO_FAIL = """
import pytest

@pytest.mark.xfail(reason={reason!r})
def test_that_fails():
    raise AssertionError

def test_that_holds():
    pass
"""


def run(folder: Path, text: str, *, is_ci: bool) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with what all of these tests share."""
    (folder / "test_it.py").write_text(text)
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    environ |= {"CI": "true"} if is_ci else {}
    argv = ["-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, *argv, "--rootdir", str(folder), "-c", os.devnull, str(folder)],
        cwd=REPOSITORY, env=environ, capture_output=True, text=True, timeout=110,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", [SKIPPED, WHOLE_FILE, EXPECTED_TO_FAIL], ids=["a test", "a file", "xfail"]
)
def test_a_skip_fails_the_run_under_ci_and_is_named(tmp_path: Path, text: str) -> None:
    done = run(tmp_path, text.format(reason="no mood"), is_ci=True)
    assert done.returncode != 0
    assert "skipped under CI, which fails the run: " in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("reason", ["kernel: Landlock ABI 9", "Go: it isn't installed"])
def test_a_kernels_feature_and_go_may_be_missing(tmp_path: Path, reason: str) -> None:
    done = run(tmp_path, SKIPPED.format(reason=reason), is_ci=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout


def test_elsewhere_a_skip_is_a_skip(tmp_path: Path) -> None:
    done = run(tmp_path, SKIPPED.format(reason="no mood"), is_ci=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
