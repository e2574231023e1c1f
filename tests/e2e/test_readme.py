"""README's first command, as it stands there: a real pip, one folder written, one index reached."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.run_indexes import INDEX_S, got

ROOT = Path(__file__).parents[2]
SET_UP, THEN = "sh .ci/setup", " && "
HOSTS = re.compile(r"\$\([^)]*\)")

pytestmark = pytest.mark.timeout(1200)


def command() -> str:
    """Return what follows the set-up, with the environment that these tests run in."""
    block = (ROOT / "README.md").read_text().partition("```sh\n")[2].partition("```")[0]
    set_up, and_then, rest = block.partition(THEN)
    assert (set_up, and_then) == (SET_UP, THEN)
    assert HOSTS.search(rest)
    return rest.replace(".venv", sys.prefix).replace(".ci/", f"{ROOT}/.ci/")


def done(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", script], cwd=folder, capture_output=True, text=True, timeout=INDEX_S,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def test_it_gets_a_package_into_the_folder(tmp_path: Path) -> None:
    ran = got(lambda: done(command(), tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert "lnk sandbox: " not in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (wheel,) = (tmp_path / "out").iterdir()
    assert wheel.name.startswith("six-")


def test_without_its_hosts_it_is_refused_with_the_flag(tmp_path: Path) -> None:
    ran = done(HOSTS.sub("", command()), tmp_path)
    assert ran.returncode not in (0, 2, 125)
    (said,) = [line for line in ran.stderr.splitlines() if line.startswith("lnk sandbox: ")]
    assert re.fullmatch(
        r"lnk sandbox: (\S+) isn't among the hosts; add --internet-host \1", said
    ), said
    assert list((tmp_path / "out").iterdir()) == []
