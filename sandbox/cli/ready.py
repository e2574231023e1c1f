"""`lnk sandbox ready`: whether this machine can run a sandbox, and what it lacks (R66).

It tries: a sandbox is made as `run` would make it, with a proxy, and `true` is run in it.
Where that fails, the cause is read from what bubblewrap said and from the kernel's own
settings (`sandbox.linux.readiness`), and each cause is named with its cure.  What root can cure is
done with --yes, as root or by a sudo that asks nothing, and offered on a terminal.  All is
looked at afresh, here and at each start: nothing is kept of a machine.
"""

from __future__ import annotations

import os
import sys

from sandbox.cli.flags import Flag, describe, read_flags
from sandbox.errors import SandboxError, Unsupported, one_line
from sandbox.linux.readiness import SETTINGS, Lack, bubblewrap, by_hand, causes, notes
from sandbox.state import settings_folder, user_home

FLAGS = (
    Flag("--yes", "", "ask nothing, and add what it lacks, as root or by sudo -n"),
    Flag("--help", "", "print this"),
)
HELP = f"""\
Say whether this machine can run a sandbox, and what it lacks.

usage: lnk sandbox ready [--yes]

{describe(FLAGS)}

On a terminal it offers to add what it lacks. Exit status 0 once a sandbox can run, else 1.

  lnk sandbox ready --yes"""

TRIAL_S = 30
ROUNDS = 4
"""A cure may bring the next lack to light: bubblewrap, then what keeps it from its work."""
STEP_S = 600
PLAIN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
"""All the environment of what is started here."""


def main(words: list[str]) -> int:
    """Return 0 where a sandbox can be made here, 1 where not, having said why."""
    flags = read_flags(FLAGS, words)
    if "--help" in flags:
        print(HELP)
        return 0
    lacks = look()
    for _ in range(ROUNDS):
        chosen = [lack for lack in lacks if lack.steps and agreed(lack, yes="--yes" in flags)]
        if not chosen:
            break
        failed = [lack for lack in map(cure, chosen) if lack is not None]
        lacks = [*(lack for lack in lacks if lack not in chosen), *failed] if failed else look()
    if lacks:
        for lack in lacks:
            print(one_line(f"not ready: {lack}"))
        return 1
    print("ready: a sandbox runs here.")
    for note in notes(_landlock()):
        print(f"note: {note}")
    return 0


def look() -> list[Lack]:
    """Return what keeps a sandbox from being made here, nothing where one runs."""
    return missing_bubblewrap() or trial()


def agreed(lack: Lack, *, yes: bool) -> bool:
    """Tell whether a lack is to be cured: --yes says so, or the person at the terminal."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    print(f"{lack.cause}. Cure it by {lack.doing}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def cure(lack: Lack) -> Lack | None:
    """Take a lack's steps as root; return what kept it from that, None where they were taken."""
    before = as_root()
    if before is None:
        return by_hand(lack)
    found = [(step, _program(step.argv[0])) for step in lack.steps]
    if any(program is None for _, program in found):
        gone = next(step.argv[0] for step, program in found if program is None)
        how = "install it by this system's package manager" if gone == "apt-get" else lack.cure
        return Lack(lack.cause, f"{how.rstrip('.')} (there is no {gone} here).")
    print(lack.doing, flush=True)
    for step, program in found:
        words = [*before, str(program), *step.argv[1:]]
        code, said = _run(words, STEP_S, step.text)
        if code != 0 and step.fails:
            last = (said.strip().splitlines() or ["it gave no reason"])[-1]
            return Lack(step.fails, last)
    return None


def as_root() -> list[str] | None:
    """Return what a command of root's begins with, None where nothing here is root's to run.

    On a terminal sudo may ask for its password, as the person has just agreed to.
    """
    if os.geteuid() == 0:
        return []
    sudo = _program("sudo")
    if sudo is None:
        return None
    environ = ["env", *(f"{name}={value}" for name, value in PLAIN.items())]
    if _run([sudo, "-n", "true"])[0] == 0:
        return [sudo, "-n", *environ]
    return [sudo, *environ] if sys.stdin.isatty() and sys.stdout.isatty() else None


def missing_bubblewrap() -> list[Lack]:
    """Return what keeps bubblewrap from being used, nothing where one is there."""
    from sandbox.linux.facts import find_bubblewrap

    try:
        find_bubblewrap(os.environ.get("PATH", ""))
    except Unsupported as error:
        return [bubblewrap(str(error))]
    return []


def trial() -> list[Lack]:
    """Run `true` in a sandbox with a proxy; return what kept it from running."""
    from sandbox.confinement import Confinement, Proxied, Proxy
    from sandbox.linux import packing
    from sandbox.linux.facts import gather
    from sandbox.linux.plan import plan

    state = settings_folder()
    proxy = Proxy(upstream="direct", dir=os.path.join(state, "sandbox", "ready"), hosts=())
    net = Proxied(proxy=proxy, ports=())
    confinement = Confinement(name="ready", write=(), read=(), commands=None, net=net)
    try:
        facts = gather([], home=user_home(), state=state)
        made = plan(confinement, facts)
    except SandboxError as error:
        return [Lack("no sandbox can be planned here", str(error))]
    code, said = _run(packing.command(made, facts.own, ["true"]), TRIAL_S)
    if code == 0:
        return []
    settings = {name: _setting(name) for name in SETTINGS}
    return causes(said, settings, facts.bubblewrap.path)


def _landlock() -> int:
    from sandbox.linux.landlock import abi

    return abi()


def _setting(name: str) -> str | None:
    try:
        with open(f"/proc/sys/{name}") as file:
            return file.read().strip()
    except OSError:
        return None


def _program(name: str) -> str | None:
    """Return a program of the system's, by its absolute path."""
    for folder in ("/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    return None


def _run(argv: list[str], timeout_s: float = TRIAL_S, text: str = "") -> tuple[int, str]:
    """Run a command to its end, given a text; return its status and what it said on stderr."""
    import subprocess

    sys.stdout.flush()
    try:
        done = subprocess.run(
            argv,
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=PLAIN,
            cwd="/",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"{argv[0]} did not end within {timeout_s} s."
    except OSError as error:
        return 1, f"{argv[0]}: {error.strerror}."
    return done.returncode, done.stderr.decode(errors="replace")
