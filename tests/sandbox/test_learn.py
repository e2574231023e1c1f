"""`lnk sandbox learn`: what ran, as lines that let it run; and nothing that could be replaced."""

from __future__ import annotations

import os
import shutil
import tomllib

import pytest

from sandbox.linux import learned
from tests.sandbox import lnk
from tests.sandbox.terminal import Terminal


def spec_of(who: lnk.Account, folder: str, text: str) -> str:
    path = f"{folder}/spec.toml"
    with open(path, "w") as file:
        file.write(text)
    os.chown(path, who.uid, who.gid)
    return path


def learn(installed: lnk.Installed, who: lnk.Account, spec: str, *argv: str, **more: object):
    return installed.run(who, "learn", "--yes", "--spec", spec, "--", *argv, **more)


def test_what_is_printed_lets_the_same_run_under_the_list(installed, who, folder):
    os.mkdir(f"{folder}/work")
    os.chown(f"{folder}/work", who.uid, who.gid)
    text = f'[files]\nwrite = ["{folder}/work"]\n'
    script = "ls > /dev/null && perl -e 'print 6 * 7' && git --version > there && cat there"
    argv = ["sh", "-c", f"cd {folder}/work && {script}"]
    done = learn(installed, who, spec_of(who, folder, text), *argv)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("42git version ")
    lines = done.stdout[done.stdout.index("[commands]") :]
    assert tomllib.loads(lines)["commands"]["only"]
    spec = spec_of(who, folder, text + lines)
    again = installed.run(who, "run", "--yes", "--spec", spec, "--", *argv)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith("42git version ")
    # And it has learnt all there is.
    done = learn(installed, who, spec, *argv)
    assert done.stdout.endswith("\n# nothing to add to [commands] only\n")


def test_interpreters_scripts_and_loaders_are_marked(installed, who, folder):
    tool = f"{folder}/tool"
    with open(tool, "w") as file:
        file.write("#!/usr/bin/env python3\nprint('tool')\n")
    os.chmod(tool, 0o755)
    spec = spec_of(who, folder, f'files.read = ["{tool}"]\n')
    loader = learned.look("/usr/bin/true", learned.SEARCH).needs[0].path
    script = f"{tool}; python3 -c ''; {loader} /usr/bin/true; id > /dev/null"
    done = learn(installed, who, spec, "sh", "-c", script)
    lines = done.stdout.splitlines()
    real = os.path.realpath("/usr/bin/python3")
    code = "  # an interpreter: it runs any code"
    assert (
        f'    "{tool}",  # a script: it brings "/usr/bin/env" and "{real}", which runs any code'
        in lines
    )
    assert f'    "{real}",{code}' in lines or f'    "/usr/bin/python3",{code}' in lines
    assert f'    "/usr/bin/sh",{code}' in lines or f'    "/bin/sh",{code}' in lines
    assert f'    "{loader}",  # a loader: it runs any file' in lines
    assert '    "/usr/bin/id",' in lines


def test_nothing_is_offered_that_the_sandbox_could_replace(installed, who, folder):
    for name in ("mine", "named-sh"):
        shutil.copy("/usr/bin/true", f"{folder}/{name}")
    os.symlink("/usr/bin/id", f"{folder}/linked")
    spec = spec_of(who, folder, f'files.write = ["{folder}"]\n')
    script = (
        f"{folder}/mine; cp /usr/bin/true /tmp/own; /tmp/own; {folder}/linked > /dev/null; "
        "cp /usr/bin/true ~/home; ~/home; cp /usr/bin/true /dev/shm/x; /dev/shm/x; "
        f"cp {folder}/mine {folder}/gone; {folder}/gone; rm {folder}/gone; cd {folder}; ./named-sh"
    )
    done = learn(installed, who, spec, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    offered = tomllib.loads(done.stdout[done.stdout.index("[commands]") :])["commands"]["only"]
    assert "/usr/bin/id" in offered, "by what it is, not by a link that can be led elsewhere"
    for path in offered:
        assert not path.startswith((folder, "/tmp", "/dev", who.home)), path
    for path, place in (("mine", folder), ("named-sh", folder)):
        assert f'# not offered: "{folder}/{path}" lies in "{place}"' in done.stdout
    assert '# not offered: "/tmp/own" lies in "/tmp"' in done.stdout
    assert '# not offered: "/dev/shm/x" lies in "/dev"' in done.stdout


def test_what_a_list_refuses_whatever_it_says_is_refused_while_learning(installed, who, folder):
    """Else a program would work once, and never again."""
    spec = spec_of(who, folder, "")
    code = "import os; os.execve(os.open('/usr/bin/id', os.O_RDONLY), ['id'], {})"
    done = learn(installed, who, spec, "python3", "-c", code)
    assert done.returncode == 1
    assert "PermissionError" in done.stderr


def test_it_writes_nothing(installed, who, folder):
    spec = spec_of(who, folder, "")
    before = os.stat(spec)
    learn(installed, who, spec, "true")
    after = os.stat(spec)
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_it_is_asked_about_as_what_it_is(installed, ordinary, ordinary_folder):
    """Its spec was agreed to; that any program runs wasn't."""
    path = spec_of(ordinary, ordinary_folder, "[commands]\nonly = ['true']\n")
    words = installed.argv("learn", "--spec", path, "--", "true")
    with Terminal(ordinary, words) as terminal:
        assert "runs any program, once, to learn which" in terminal.read_until("Run it? [y/N] ")
        terminal.type("n\n")
        assert terminal.wait() == 125


def test_it_ends_with_the_programs_status(installed, who, folder):
    spec = spec_of(who, folder, "")
    assert learn(installed, who, spec, "sh", "-c", "exit 7").returncode == 7
    assert learn(installed, who, spec, "sh", "-c", "kill -TERM $$").returncode == 143
    assert learn(installed, who, spec, "no-such-program").returncode == 127


def test_it_asks_for_a_spec_and_a_program(installed, who):
    done = installed.run(who, "learn", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lnk sandbox: learn runs under a spec: write --spec FILE.\n"
    assert (
        "lnk sandbox learn --spec box.toml -- make" in installed.run(who, "learn", "--help").stdout
    )


@pytest.mark.parametrize(
    ("path", "runs_code"),
    [
        ("/usr/bin/python3.11", True), ("/usr/bin/perl5.36.0", True), ("/bin/dash", True),
        ("/usr/bin/lua5.4", True), ("/usr/bin/qemu-arm-static", True), ("/usr/bin/sqlite3", True),
        ("/usr/bin/git", False), ("/usr/bin/ls", False), ("/usr/bin/gcc-12", False),
    ],
)  # fmt: skip
def test_interpreters_are_known_by_their_names(path, runs_code):
    assert learned.is_interpreter(path) is runs_code


def test_a_name_does_nothing_to_a_terminal_and_is_toml():
    path = '/opt/a"b\\c\n\x1b[31m\u202e\U0001f600'
    lines = learned.lines_of({path: path}, [], {})
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert tomllib.loads("\n".join(lines))["commands"]["only"] == [path]
    assert learned.lines_of({"/opt/\udcff": "/opt/\udcff"}, [], {})[1].startswith("# not offered")
