"""Ordinary work is unchanged in a sandbox, with any program and with a list of them.

Each kind of work is a script.  It runs with any program first; then `learn` tells which programs it
runs, and it runs again with those alone.  Programs that the work itself makes can't be listed,
so what it builds is run only where any program may.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.e2e import run_indexes
from tests.e2e.run_indexes import Indexes
from tests.sandbox import lnk

pytestmark = [pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Work:
    """One kind of work.

    files: what it begins with.  script: shell, in a folder that it writes; ends with an error
    where something is wrong.  alone: what is run besides where any program may.  made: a file
    that shows that it worked.
    """

    script: str
    made: str
    files: dict[str, str] | None = None
    alone: str = ""
    needs: str = "sh"


HELLO = (
    '#include <stdio.h>\nint add(int a, int b);\nint main(void) { printf("%d\\n", add(3, 4)); }\n'
)
ADD = "int add(int a, int b) { return a + b; }\n"
MAKEFILE = """\
all: hello
hello: main.o add.o
\t$(CC) -o $@ $^
%.o: %.c
\t$(CC) -g -c -o $@ $<
"""
TESTS = """\
import pytest


@pytest.mark.parametrize("n", range(8))
def test_it(n):
    assert n < 8
"""
AS_SOMEBODY = "-c user.name=t -c user.email=t@example.com"

WORK = {
    "git": Work(
        f"""git clone -q --no-local file://$PWD/there here && cd here && git status --porcelain &&
        echo more > more && git add more && git {AS_SOMEBODY} commit -qm more &&
        git log --format=%s | grep -x more && git diff HEAD~1 --stat -- > ../done""",
        "done",
        {"there/file": "text\n"},
        needs="git",
    ),
    "gcc": Work("gcc -O2 -g -o hello main.c add.c", "hello", {"main.c": HELLO, "add.c": ADD},
                'test "$(./hello)" = 7', needs="gcc"),
    "make -j": Work("make -s -j4", "hello", {"main.c": HELLO, "add.c": ADD, "Makefile": MAKEFILE},
                    'test "$(./hello)" = 7', needs="make"),
    "venv": Work("python3 -m venv --without-pip env && env/bin/python -c 'print(7)' > done", "done",
                 needs="python3"),
    "strace": Work("strace -f -o trace sh -c 'true; true' && grep -q execve trace", "trace",
                   needs="strace"),
    "cargo build": Work("cargo build -q --offline", "target/debug/small", {
        "Cargo.toml": '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/main.rs": 'fn main() { println!("{}", 3 + 4); }\n',
    }, 'test "$(target/debug/small)" = 7', needs="cargo"),
    "a browser's screenshot": Work(
        # Its own sandbox wants namespaces, of which ours lets nobody make any.
        """chromium --headless=new --no-sandbox --disable-gpu --screenshot=$PWD/page.png \
        file://$PWD/page.html 2> said || { cat said >&2; exit 1; }""",
        "page.png", {"page.html": "<h1>Hello</h1>"}, needs="chromium",
    ),
}  # fmt: skip
HERE = {name: work for name, work in WORK.items() if shutil.which(work.needs, path=lnk.PATH)}


@pytest.fixture
def project(who: lnk.Account, folder: str) -> Callable[[Work], str]:
    """Make the folder that a work begins with."""

    def make(work: Work) -> str:
        for name, text in (work.files or {}).items():
            os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
        subprocess.run(["chown", "-R", f"{who.uid}:{who.gid}", folder], check=True, timeout=20)
        if os.path.isdir(f"{folder}/there"):
            for words in ("init -q", "add -A", f"{AS_SOMEBODY} commit -qm first"):
                done = lnk.run(who, ["git", "-C", f"{folder}/there", *words.split()])
                assert done.returncode == 0, done.stderr
        return folder

    return make


def spec_of(who: lnk.Account, folder: str, more: str = "") -> str:
    """Write a spec beside the folder that it lets write; return its path."""
    path = f"{folder}.toml"
    with open(path, "w") as file:
        file.write(f'[files]\nwrite = ["{folder}"]\n{more}')
    os.chown(path, who.uid, who.gid)
    return path


def cleared(folder: str, work: Work) -> None:
    """Take away what a run has made."""
    kept = {name.split("/")[0] for name in work.files or {}}
    for name in set(os.listdir(folder)) - kept:
        path = f"{folder}/{name}"
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


@pytest.mark.parametrize("name", HERE)
def test_work_is_unchanged(name, installed, who, project):
    work = HERE[name]
    folder = project(work)
    spec = spec_of(who, folder)
    script = f"set -e\n{work.script}\ncd {folder}\n{work.alone}"
    done = installed.run(who, "run", "--yes", "--spec", spec, "--", "sh", "-c", script, cwd=folder,
                         timeout=400)  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert os.path.getsize(f"{folder}/{work.made}") > 0


@pytest.mark.parametrize("name", HERE)
def test_work_is_unchanged_with_the_programs_that_learn_tells(name, installed, who, project):
    work = HERE[name]
    folder = project(work)
    spec = spec_of(who, folder)
    argv = ["sh", "-c", f"set -e\n{work.script}"]
    learnt = installed.run(who, "learn", "--yes", "--spec", spec, "--", *argv, cwd=folder,
                           timeout=400)  # fmt: skip
    assert learnt.returncode == 0, learnt.stderr
    cleared(folder, work)
    spec = spec_of(who, folder, learnt.stdout[learnt.stdout.index("[commands]") :])
    done = installed.run(who, "run", "--yes", "--spec", spec, "--", *argv, cwd=folder, timeout=400)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "isn't in [commands] only" not in done.stderr
    assert os.path.getsize(f"{folder}/{work.made}") > 0


GDB = ("gdb -q -batch -nx -ex 'break add' -ex run -ex bt -ex 'print a' -ex continue ./hello > said "
       "2>&1; grep -q 'add (a=3, b=4)' said && grep -q '= 3' said")  # fmt: skip


def test_a_debugger_debugs_a_program_of_its_own(installed, who, project):
    """Without a list: what it debugs is what the sandbox has built."""
    work = WORK["make -j"]
    folder = project(work)
    done = installed.run(who, "run", "--yes", "--write", folder, "--", "sh", "-c",
                         f"make -s && {GDB}", cwd=folder, timeout=400)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr + read(f"{folder}/said")


def read(path: str) -> str:
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


@pytest.fixture(scope="module")
def stock_pip(open_folder: str) -> str:
    """The pip that Python brings, in a folder that everybody may read."""
    return run_indexes.environment_with_pip(os.path.join(open_folder, "ordinary", "pip"))


@pytest.fixture
def at(stock_pip: str, who: lnk.Account) -> Indexes:
    return run_indexes.indexes(stock_pip, "", who)


def test_pip_installs_and_pytest_runs_in_parallel(installed, who, folder, at):
    """pip from the real index into a new environment, then pytest-xdist's workers."""
    with open(f"{folder}/test_it.py", "w") as file:
        file.write(TESTS)
    os.chown(f"{folder}/test_it.py", who.uid, who.gid)
    hosts = [word for host in at.hosts for word in ("--internet-host", host)]
    script = (
        "set -e\npython3 -m venv env\nenv/bin/pip install -q --retries=0 pytest pytest-xdist\n"
        "env/bin/python -m pytest -q -n 2 -p no:cacheprovider > said 2>&1 || { cat said; exit 1; }"
    )
    words = ["run", "--yes", "--write", folder, *hosts, "--", "sh", "-c", script]
    done = run_indexes.got(lambda: installed.run(who, *words, cwd=folder, timeout=400))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in read(f"{folder}/said")


def test_npm_ci_installs_what_a_lock_file_names(installed, who, folder, at):
    with open(f"{folder}/package.json", "w") as file:
        file.write('{"name": "small", "version": "1.0.0", "dependencies": {"is-number": "7.0.0"}}')
    os.chown(f"{folder}/package.json", who.uid, who.gid)
    script = (
        "set -e\nnpm install -s --package-lock-only --no-audit --no-fund\n"
        "npm ci -s --no-audit --no-fund\nnode -p 'require(\"is-number\")(7)' > said"
    )
    host = ["--internet-host", at.registry_host]
    words = ["run", "--yes", "--write", folder, *host, "--", "sh", "-c", script]
    done = run_indexes.got(lambda: installed.run(who, *words, cwd=folder, timeout=400))
    assert done.returncode == 0, done.stdout + done.stderr
    assert read(f"{folder}/said") == "true\n"
