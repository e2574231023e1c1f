"""Run `lnk` as it is installed, as root and as an ordinary user that the tests make.

The working copy may lie where only root can look, so its packages are copied, compiled
and readable, beside the packages they need; the interpreter is one that everybody may run.
"""

from __future__ import annotations

import compileall
import datetime
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.linux import kept

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGES = ("sandbox", "proto", "shells")
NEEDS = ("msgspec", "uvloop", "trio", "attr", "attrs", "outcome", "sniffio", "sortedcontainers",
         "idna")  # fmt: skip
USER = f"lnk-tests-{os.getpid()}"  # two runs of the tests don't get in each other's way
ENTRY = """\
import sys
sys.path.append({folder!r})
sys.argv[0] = "lnk"
from sandbox.cli.main import main
sys.exit(main())
"""
PATH = "/usr/local/bin:/usr/bin:/bin"
LONG_S = 110.0
"""How long what takes a second may take on a slow machine where others work: no test is judged by
it, and it ends before a test's own limit."""


def now() -> str:
    """Return the time as the log writes it."""
    made = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return made.replace("+00:00", "Z")


def logged_since(text: str, began: str) -> list[dict[str, Any]]:
    """Return the lines of a run's log from a time on.

    A run's name is its process's number, which an earlier run of the same person may have had.
    """
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if line["time"] >= began]


def plan_of(command: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the plan that a kept command carries."""
    taken = kept.taken_apart(list(command[4:]))
    assert taken is not None
    return kept.read(taken[0])


@dataclass(frozen=True)
class Account:
    """Who runs a command: uid, gid, a home folder, and a word for test ids."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def environ(self) -> dict[str, str]:
        """A person's environment, and nothing of the test run's."""
        return {"HOME": self.home, "PATH": PATH, "USER": self.name, "LANG": "C.UTF-8",
                "TERM": "xterm", "LNK_HOME": f"{self.home}/.lnk"}  # fmt: skip


@dataclass(frozen=True)
class Installed:
    """A copy of the project that everybody may read: its interpreter, folder and entry."""

    python: str
    folder: str
    entry: str
    started: list[int] = field(default_factory=list)

    def argv(self, *words: str) -> list[str]:
        """Return the command line of `lnk sandbox <words>`."""
        return [self.python, "-I", "-S", self.entry, "sandbox", *words]

    def run(
        self,
        who: Account,
        *words: str,
        environ: Mapping[str, str] | None = None,
        **more: object,
    ) -> subprocess.CompletedProcess[str]:
        """Run `lnk sandbox <words>` to its end.

        A path in its input, as JSON has it, that begins with ~ is in the account's home.
        """
        if isinstance(more.get("input"), str):
            more["input"] = str(more["input"]).replace('"~/', f'"{who.home}/')
        return run(who, self.argv(*words), environ=environ, **more)

    def wrapped(self, who: Account, argv: Sequence[str], **keys: object) -> list[str]:
        """Return the kept command that runs `argv` in a sandbox of these keys, closed if none."""
        command: list[str] = self.wrap(who, argv, **keys)["argv"]
        return command

    def wrap(self, who: Account, argv: Sequence[str], **keys: object) -> dict[str, Any]:
        """Return what `wrap` prints for `argv` in a sandbox of these keys."""
        confinement = {"name": "box", "write": [], "read": [], "commands": "any", "net": "closed",
                       **keys}  # fmt: skip
        request = json.dumps({"confinement": confinement, "argv": list(argv)})
        done = self.run(who, "wrap", input=request)
        assert done.returncode == 0, done.stderr
        made: dict[str, Any] = json.loads(done.stdout)
        return made


def run(
    who: Account,
    argv: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    **more: object,
) -> subprocess.CompletedProcess[str]:
    """Run a command as somebody, in their home, with their environment alone."""
    given = {"cwd": who.home, "timeout": LONG_S, "text": True, "capture_output": True, **more}
    if "input" not in given:
        given.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(argv, env={**who.environ, **(environ or {})}, **identity(who), **given)


def popen(who: Account, argv: Sequence[str], **more: object) -> subprocess.Popen[str]:
    """Start a command as somebody, in their home, with their environment alone."""
    given = {"cwd": who.home, "env": who.environ, "text": True, **more}
    return subprocess.Popen(argv, **identity(who), **given)


def made_anew(path: str, mode: int = 0o777) -> None:
    """Make a folder; what a try before has left there goes."""
    if os.path.islink(path):
        os.unlink(path)
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path, mode)


def identity(who: Account) -> dict[str, object]:
    """Return what makes subprocess run as somebody else; nothing for ourselves."""
    if who.uid == os.geteuid():
        return {}
    return {"user": who.uid, "group": who.gid, "extra_groups": []}


def install(folder: str) -> Installed:
    """Copy the project into a folder, compiled, where everybody may read it."""
    for name in PACKAGES:
        shutil.copytree(
            os.path.join(REPOSITORY, name),
            os.path.join(folder, name),
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    site = next(f for f in sys.path if os.path.isdir(os.path.join(f, "msgspec")))
    for name in NEEDS:
        if os.path.isdir(os.path.join(site, name)):
            shutil.copytree(os.path.join(site, name), os.path.join(folder, name))
    entry = os.path.join(folder, "lnk.py")
    with open(entry, "w") as file:
        file.write(ENTRY.format(folder=folder))
    compileall.compile_dir(folder, quiet=2, workers=1)
    for above, names, files in os.walk(folder):
        for name in [*names, *files]:
            path = os.path.join(above, name)
            os.chmod(path, 0o755 if os.path.isdir(path) else 0o644)
    return Installed(public_python(), folder, entry)


def public_python() -> str:
    """Return an interpreter of our version that everybody may run."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    ours = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    for candidate in (ours, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        if os.path.exists(candidate) and everybody_reaches(candidate):
            return candidate
    raise AssertionError(f"no {version} that an ordinary user may run: install it in /usr")


def everybody_reaches(path: str) -> bool:
    """Tell whether a program and every folder above it are open to all."""
    path = os.path.realpath(path)
    while path != "/":
        if not os.stat(path).st_mode & 0o001:
            return False
        path = os.path.dirname(path)
    return True


def make_user(home: str) -> Account:
    """Make the ordinary user; `home` is made too."""
    command = ["useradd", "--system", "--no-create-home", "--home-dir", home,
               "--shell", "/bin/sh", USER]  # fmt: skip
    remove_users_left_behind()
    subprocess.run(command, check=True, capture_output=True)
    found = pwd.getpwnam(USER)
    os.makedirs(home, 0o700)
    os.chown(home, found.pw_uid, found.pw_gid)
    return Account("user", found.pw_uid, found.pw_gid, home)


def remove_users_left_behind() -> None:
    """Remove the users of runs that were killed."""
    for one in pwd.getpwall():
        stem, _, pid = one.pw_name.rpartition("-")
        if stem == "lnk-tests" and not os.path.exists(f"/proc/{pid}"):
            subprocess.run(["userdel", one.pw_name], capture_output=True)


def remove_user() -> None:
    """Remove the ordinary user."""
    subprocess.run(["userdel", USER], capture_output=True)
