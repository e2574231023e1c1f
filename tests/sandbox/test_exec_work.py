"""Ordinary work under a list of programs: git, a compiler, make, and what they run beside."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.sandbox import lnk

MAKEFILE = """\
CFLAGS = -O1 -pipe
all: tool
tool: main.o other.o
\t$(CC) -o $@ $^
clean:
\trm -f *.o tool
"""


@pytest.fixture
def project(who: lnk.Account, folder: str) -> str:
    """A repository of theirs with a program in two files."""
    os.mkdir(path := f"{folder}/project")
    for name, text in (
        ("main.c", "int other(void);\nint main(void) { return other(); }\n"),
        ("other.c", "int other(void) { return 7; }\n"),
        ("Makefile", MAKEFILE),
    ):
        with open(f"{path}/{name}", "w") as file:
            file.write(text)
    subprocess.run(["chown", "-R", f"{who.uid}:{who.gid}", path], check=True, timeout=lnk.LONG_S)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        done = lnk.run(
            who, ["git", "-C", path, "-c", "user.name=t", "-c", "user.email=t@t", *words]
        )
        assert done.returncode == 0, done.stderr
    return path


def spec_of(who: lnk.Account, folder: str, text: str) -> str:
    path = f"{folder}/box.toml"
    with open(path, "w") as file:
        file.write(text)
    os.chown(path, who.uid, who.gid)
    return path


def test_git_works_with_git_and_a_shell(installed, who, folder, project):
    """git runs itself, on some systems by another path, and by a shell what it clones from."""
    done = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True)
    inner = f"{done.stdout.strip()}/git"
    files = f'[files]\nwrite = ["{project}", "{folder}/in"]\nwrite_dot_files = ["{project}"]\n'
    os.mkdir(f"{folder}/in")
    os.chown(f"{folder}/in", who.uid, who.gid)
    spec = spec_of(who, folder, f'{files}[commands]\nonly = ["git", "sh", "{inner}"]\n')

    def git(*words: str, at: str = project) -> str:
        line = ["git", "-C", at, "-c", "user.name=t", "-c", "user.email=t@t", *words]
        done = installed.run(who, "run", "--yes", "--spec", spec, "--", *line)
        assert done.returncode == 0, done.stderr
        assert "isn't in [commands]" not in done.stderr
        return done.stdout

    assert git("status", "--porcelain") == ""
    with open(f"{project}/other.c", "a") as file:
        file.write("/* changed */\n")
    assert "+/* changed */" in git("diff")
    git("commit", "-qam", "second")
    assert git("log", "--format=%s") == "second\nfirst\n"
    git("clone", "-q", "--no-local", f"file://{project}", f"{folder}/in/clone", at="/")
    assert git("log", "--format=%s", at=f"{folder}/in/clone") == "second\nfirst\n"
    git("gc", "-q")
    git("stash", "list")


def test_make_and_a_compiler_work_with_what_learn_prints(installed, who, folder, project):
    files = f'[files]\nwrite = ["{project}"]\n'
    argv = ["make", "-j4", "-C", project, "-B", "all"]
    spec = spec_of(who, folder, files)
    done = installed.run(who, "learn", "--yes", "--spec", spec, "--", *argv)
    assert done.returncode == 0, done.stderr
    lines = done.stdout[done.stdout.index("[commands]") :]
    assert "cc1" in lines
    assert "collect2" in lines
    spec = spec_of(who, folder, files + lines)
    again = installed.run(who, "run", "--yes", "--spec", spec, "--", *argv)
    assert (again.returncode, again.stderr) == (0, ""), again.stdout
    assert lnk.run(who, [f"{project}/tool"]).returncode == 7
    # What it has built is no program that was listed, and can't be.
    tool = installed.run(who, "run", "--yes", "--spec", spec, "--", f"{project}/tool")
    assert tool.returncode == 126
    assert tool.stderr == (
        f"lnk sandbox: tool isn't in [commands] only, and can't be: the sandbox writes {project}.\n"
    )


def test_a_tracer_traces_what_is_its_own(installed, who, folder):
    """The domain keeps a program from what stands outside it, not from its children."""
    done = lnk.run(who, installed.wrapped(
        who, ["strace", "-f", "-o", "/dev/null", "sh", "-c", "true"],
        commands={"only": ["/usr/bin/strace", "/bin/sh", "/usr/bin/true"]},
    ))  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_python_starts_processes_in_every_way_it_knows(installed, who, folder):
    code = (
        "import asyncio, multiprocessing, os, subprocess\n"
        "subprocess.run(['sh', '-c', ':'], check=True)\n"
        "subprocess.run('exit 0', shell=True, check=True)\n"
        "os.system(':'); os.popen(':').close()\n"
        "async def one(): await (await asyncio.create_subprocess_exec('sh', '-c', ':')).wait()\n"
        "asyncio.run(one())\n"
        "with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "    print(pool.map(abs, [-1, -2]))\n"
    )
    path = f"{folder}/starts.py"
    with open(path, "w") as file:
        file.write(f"if __name__ == '__main__':\n    {code.replace(chr(10), chr(10) + '    ')}\n")
    done = lnk.run(who, installed.wrapped(
        who, ["python3", path], read=[folder], commands={"only": ["/usr/bin/python3", "/bin/sh"]},
    ))  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2]\n", "")
