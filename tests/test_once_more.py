"""Under CI a test of real parts that fails is run once more, and only once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.once_more import AT_MOST

REPOSITORY = Path(__file__).parents[1]
FAILS_AT_FIRST = """
import pathlib

import pytest

@pytest.mark.parametrize("number", range({count}))
def test_that_fails_at_first(number, request):
    tried = pathlib.Path(__file__).with_name(f"tried-{{number}}")
    times = int(tried.read_text()) if tried.exists() else 0
    tried.write_text(str(times + 1))
    assert times >= {times}, "not yet"
"""


def run(
    folder: Path, where: str, *, times: int = 1, count: int = 1, is_ci: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run `count` tests that each fail the first `times`, in a file of that name."""
    file = folder / where
    file.parent.mkdir(parents=True)
    file.write_text(FAILS_AT_FIRST.format(times=times, count=count))
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    environ |= {"CI": "true"} if is_ci else {}
    argv = ["-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, *argv, "--rootdir", str(folder), "-c", os.devnull, str(folder)],
        cwd=REPOSITORY, env=environ, capture_output=True, text=True, timeout=110,
    )  # fmt: skip


@pytest.mark.parametrize("where", ["e2e", "net", "sandbox", "shells"])
def test_what_fails_once_is_named_and_passes(tmp_path: Path, where: str) -> None:
    done = run(tmp_path, f"tests/{where}/test_it.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"failed by chance, to be mended: tests/{where}/test_it.py::" in done.stdout
    assert "not yet" in done.stdout


def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    assert run(tmp_path, "tests/e2e/test_it.py", times=2).returncode == 1


def test_too_many_that_fail_once_fail_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, "tests/e2e/test_it.py", count=AT_MOST + 1)
    assert done.returncode == 1
    assert done.stdout.count("failed by chance, to be mended: ") == AT_MOST + 1


@pytest.mark.parametrize(
    "where", ["proto/test_it.py", "attack/test_it.py", "sandbox/test_attack.py", "test_it.py"]
)
def test_a_pure_test_and_an_attack_get_no_second_try(tmp_path: Path, where: str) -> None:
    assert run(tmp_path, f"tests/{where}").returncode == 1


def test_elsewhere_nothing_gets_a_second_try(tmp_path: Path) -> None:
    assert run(tmp_path, "tests/e2e/test_it.py", is_ci=False).returncode == 1
