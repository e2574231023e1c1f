"""The journal of placeholders: shared, taken away by the last, and swept after a crash anywhere."""

from __future__ import annotations

import _socket
import contextlib
import errno
import fcntl
import json
import os
import random
import select
import signal
import socket
import stat
import subprocess
import time
import types
from collections.abc import Callable, Iterator

import pytest

from sandbox.errors import LaunchError
from sandbox.linux import placeholders
from sandbox.linux.placeholders import Journal, Raced, Run
from sandbox.linux.walk import FILE, FOLDER
from tests.sandbox import lnk
from tests.sandbox.test_launcher import alive, family, wait_for

Begin = Callable[..., Run]


@pytest.fixture
def settings(tmp_path) -> str:
    return os.path.join(os.path.realpath(tmp_path), "lnk")


@pytest.fixture
def work(tmp_path) -> str:
    made = os.path.join(os.path.realpath(tmp_path), "work")
    os.mkdir(made)
    return made


@pytest.fixture
def begin(settings: str) -> Iterator[Begin]:
    made: list[Run] = []

    def begin(missing: dict[str, int], standing: list[str] | None = None) -> Run:
        journal = Journal(settings)
        with journal.locked():
            run = journal.begin(missing, standing or [])
        made.append(run)
        return run

    yield begin
    for run in made:
        forget(run)


def forget(run: Run) -> None:
    """Be as if the process that holds a run had been killed: its descriptors are closed."""
    for fd in (run.listener, *run.folders.values(), *run.shared):
        with contextlib.suppress(OSError):
            os.close(fd)
    run.listener = -1
    run.folders.clear()
    run.shared.clear()


def journal_of(settings: str) -> list[str]:
    folder = f"{settings}/sandbox/placeholders"
    return sorted(os.listdir(folder)) if os.path.exists(folder) else []


def everything(folder: str) -> list[str]:
    found = [os.path.join(a, n) for a, d, f in os.walk(folder) for n in (*d, *f)]
    return sorted(os.path.relpath(path, folder) for path in found)


def test_a_run_makes_and_takes_away_what_is_missing(begin, settings, work):
    run = begin({f"{work}/.git": FOLDER, f"{work}/a": FOLDER, f"{work}/a/file": FILE})
    assert everything(work) == [".git", "a", "a/file"]
    assert os.path.getsize(f"{work}/a/file") == 0
    assert os.stat(f"{work}/.git").st_mode & stat.S_ISVTX
    assert len(journal_of(settings)) == 3
    run.end()
    assert everything(work) == []
    assert journal_of(settings) == ["lock"]


def test_others_see_that_it_is_empty_whatever_the_umask(begin, work):
    """Else another user's run wouldn't know it for one, and couldn't keep it from going."""
    before = os.umask(0o077)
    try:
        begin({f"{work}/.git": FOLDER, f"{work}/file": FILE})
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(os.stat(f"{work}/{name}").st_mode) for name in (".git", "file")]
    assert modes == [0o1755, 0o1644]


def test_what_a_process_has_too_many_open_for_is_no_race(begin, work, monkeypatch):
    os.mkdir(f"{work}/a")

    def refused(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    journal = Journal(f"{work}/settings")
    os.mkdir(journal.settings, 0o700)
    with journal.locked():
        monkeypatch.setattr(placeholders, "_folder", refused)
        with pytest.raises(OSError, match="Too many open files"):
            journal.begin({f"{work}/a/.git": FOLDER}, [])
        monkeypatch.undo()
    journal.sweep()
    assert journal_of(journal.settings) == ["lock"]


def test_settings_on_a_disk_without_sockets_are_refused_with_their_cure(
    settings, work, monkeypatch
):
    class Refused(_socket.socket):
        def bind(self, *_: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    fake = types.SimpleNamespace(**{**vars(_socket), "socket": Refused})
    journal = Journal(settings)
    with journal.locked():
        monkeypatch.setattr(placeholders, "_socket", fake)
        with pytest.raises(LaunchError, match="have LNK_HOME name a folder on a disk"):
            journal.begin({f"{work}/.git": FOLDER}, [])
    assert everything(work) == []


def test_the_journal_is_the_users_alone(begin, settings, work):
    before = os.umask(0)
    try:
        begin({f"{work}/.git": FOLDER})
    finally:
        os.umask(before)
    folder = f"{settings}/sandbox/placeholders"
    for path in (settings, f"{settings}/sandbox", folder):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    for name in os.listdir(folder):
        assert stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) == 0o600, name


@pytest.mark.parametrize("first", [0, 1])
def test_what_two_runs_rest_on_goes_with_the_last(begin, settings, work, first):
    one = begin({f"{work}/.git": FOLDER})
    two = begin({}, [f"{work}/.git"])
    runs = [one, two]
    runs.pop(first).end()
    forget([one, two][first])
    assert everything(work) == [".git"]
    runs.pop().end()
    assert everything(work) == []
    assert journal_of(settings) == ["lock"]


def test_folders_above_go_with_the_last_that_needs_them(begin, work):
    paths = {f"{work}/a": FOLDER, f"{work}/a/b": FOLDER, f"{work}/a/b/hooks": FOLDER}
    one = begin(paths)
    two = begin({}, list(paths))
    one.end()
    forget(one)
    assert everything(work) == ["a", "a/b", "a/b/hooks"]
    two.end()
    assert everything(work) == []


def test_what_stands_and_nobody_made_is_nobodys(begin, work):
    os.mkdir(f"{work}/.git")
    run = begin({f"{work}/.idea": FOLDER}, [f"{work}/.git"])
    assert [path for path, _ in run.entries] == [f"{work}/.idea"]
    run.end()
    assert everything(work) == [".git"]


@pytest.mark.parametrize("kind", [FOLDER, FILE])
@pytest.mark.parametrize("change", ["filled", "made anew", "chmod", "link", "gone"])
def test_what_is_not_the_empty_thing_that_was_made_is_left(begin, settings, work, kind, change):
    path = f"{work}/x"
    run = begin({path: kind})
    left = ["x"]
    match change:
        case "filled" if kind == FOLDER:
            os.mkdir(f"{path}/inner")
            left = ["x", "x/inner"]
        case "filled":
            with open(path, "w") as file:
                file.write("mine")
        case "made anew":
            os.rename(path, f"{work}/y")  # whose inode stays taken
            os.mkdir(path)
            left = ["x", "y"]
        case "chmod":
            os.chmod(path, 0o755)
        case "link":
            os.rename(path, f"{work}/y")
            os.symlink("y", path)
            left = ["x", "y"]
        case "gone":
            os.rmdir(path) if kind == FOLDER else os.unlink(path)
            left = []
    run.end()
    assert everything(work) == left
    assert journal_of(settings) == ["lock"]


def test_a_folder_that_was_moved_is_cleaned_where_it_is(begin, work):
    run = begin({f"{work}/.git": FOLDER})
    os.rename(work, f"{work}-moved")
    run.end()
    assert everything(f"{work}-moved") == []


@pytest.mark.parametrize("inner", ["a", "a/deep"])
def test_a_folder_that_became_a_link_leads_nowhere(begin, work, settings, inner):
    os.makedirs(f"{work}/{inner}")
    run = begin({f"{work}/{inner}/.git": FOLDER})
    os.rename(f"{work}/a", f"{work}/b")
    os.symlink("b", f"{work}/a")
    forget(run)
    Journal(settings).sweep()
    assert f"b{inner[1:]}/.git" in everything(work), "by a link nothing is taken away"
    with pytest.raises(Raced):
        begin({f"{work}/{inner}/.idea": FOLDER})
    assert f"b{inner[1:]}/.idea" not in everything(work), "and nothing made"


def test_a_run_is_over_once_nobody_holds_its_socket(begin, settings, work):
    run = begin({f"{work}/.git": FOLDER})
    held = os.dup(run.listener)
    forget(run)
    for _ in range(5):  # more than its backlog holds
        Journal(settings).sweep()
        assert everything(work) == [".git"]
    os.close(held)
    Journal(settings).sweep()
    assert everything(work) == []
    assert journal_of(settings) == ["lock"]


def test_a_socket_whose_file_is_gone_is_a_dead_runs(begin, settings, work):
    run = begin({f"{work}/.git": FOLDER})
    os.unlink(f"{settings}/sandbox/placeholders/{run.name}.sock")
    Journal(settings).sweep()
    assert everything(work) == []


@pytest.mark.parametrize("text", [b"", b"[", b"{}", b"[[]]", b"[1]", b"\xff", b"null"])
def test_a_journal_cut_short_is_passed_over(begin, settings, work, text):
    run = begin({f"{work}/.git": FOLDER})
    with open(f"{settings}/sandbox/placeholders/{run.name}.json", "wb") as file:
        file.write(text)
    forget(run)
    Journal(settings).sweep()
    assert journal_of(settings) == ["lock"]


def test_strange_names_are_written_down_as_they_are(begin, settings, tmp_path):
    work = os.path.join(os.path.realpath(tmp_path), 'a "b"\n\udcff\\')
    os.mkdir(work)
    run = begin({f"{work}/.git": FOLDER})
    forget(run)
    Journal(settings).sweep()
    assert os.listdir(work) == []


def test_what_came_meanwhile_is_looked_at_again_and_nothing_is_left(settings, work):
    os.mkdir(f"{work}/.idea")
    journal = Journal(settings)
    with journal.locked(), pytest.raises(Raced):
        journal.begin({f"{work}/.git": FOLDER, f"{work}/.idea": FOLDER}, [])
    with journal.locked(), pytest.raises(Raced):
        journal.begin({}, [f"{work}/gone"])
    assert everything(work) == [".idea"]
    assert journal_of(settings) == ["lock"]


@pytest.mark.parametrize("wrong", ["link", "file", "mode"])
@pytest.mark.parametrize("step", ["", "/sandbox", "/sandbox/placeholders"])
def test_a_journal_that_others_could_write_is_refused(settings, work, step, wrong):
    path = f"{settings}{step}"
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    match wrong:
        case "link":
            os.mkdir(f"{work}/elsewhere")
            os.symlink(f"{work}/elsewhere", path)
        case "file":
            with open(path, "w"):
                pass
        case "mode":
            os.mkdir(path)
            os.chmod(path, 0o777)
    with pytest.raises(LaunchError, match="can't be used"), Journal(settings).locked():
        raise AssertionError


def test_a_journal_that_somebody_keeps_is_not_waited_for_without_end(settings, monkeypatch):
    monkeypatch.setattr(placeholders, "LOCK_S", 0.05)
    journal = Journal(settings)
    with journal.locked():
        pass
    reader, writer = os.pipe()
    pid = os.fork()  # a process's own locks don't keep it out
    if pid == 0:
        with journal.locked():
            os.write(writer, b"x")
            signal.pause()
    os.read(reader, 1)
    try:
        with pytest.raises(LaunchError, match="can't be used"), Journal(settings).locked():
            raise AssertionError
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)


def test_another_users_placeholder_is_taken_for_no_folder(begin, work, tmp_path):
    begin({f"{work}/.git": FOLDER})
    os.mkdir(f"{work}/.git itself")
    other = Journal(os.path.join(os.path.realpath(tmp_path), "other"))
    with other.locked():
        theirs = other.begin({f"{work}/.git itself/x": FOLDER}, [f"{work}/.git"])
    assert os.listdir(f"{work}/.git itself") == ["x"]
    theirs.end()
    forget(theirs)


def test_a_run_that_was_raced_keeps_no_descriptor(begin, work, tmp_path):
    begin({f"{work}/.git": FOLDER})
    other = Journal(os.path.join(os.path.realpath(tmp_path), "other"))
    with other.locked():
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(Raced):
            other.begin({f"{work}/x": FOLDER, f"{work}/.git": FOLDER}, [f"{work}/.git"])
        assert len(os.listdir("/proc/self/fd")) == before
    assert everything(work) == [".git"]


def test_a_folder_of_another_users_that_is_closed_to_us_is_no_placeholder(
    installed, ordinary, open_folder
):
    """Theirs stands, and is read only inside as any dot file that is there."""
    shared = f"{open_folder}/shared-with-all"
    lnk.made_anew(shared)
    os.chmod(shared, 0o1777)
    os.mkdir(f"{shared}/.git")
    os.chmod(f"{shared}/.git", 0o1700)
    done = installed.run(ordinary, "run", "--yes", "--write", shared, "--", "ls", "-A", shared)
    assert (done.returncode, done.stderr) == (0, "")
    assert ".git" in done.stdout.split()


@pytest.mark.parametrize("kind", ["pipe", "link", "socket", "another"])
def test_what_takes_a_placeholders_place_while_it_is_looked_at_is_a_race(
    begin, work, monkeypatch, kind
):
    """A pipe would be waited for, with the journal locked for every run of the user."""
    path = f"{work}/.git"
    os.mkdir(path)
    os.chmod(path, 0o1755)
    held = contextlib.ExitStack()

    def replaced(*_: object) -> bool:
        os.rename(path, f"{work}/.old")
        if kind == "pipe":
            os.mkfifo(path)
            held.callback(os.close, os.open(path, os.O_RDWR))  # so a failure doesn't wait either
        elif kind == "link":
            os.symlink(f"{work}/.old", path)
        elif kind == "socket":
            held.enter_context(socket.socket(socket.AF_UNIX)).bind(path)
        else:
            os.mkdir(path, 0o755)
        return True

    monkeypatch.setattr(placeholders, "_is_empty", replaced)
    with held, pytest.raises(Raced):
        begin({}, [path])


def test_another_users_run_on_the_same_folder_keeps_it(begin, settings, work, tmp_path):
    """Their journals are two, and neither knows the other's runs."""
    mine = begin({f"{work}/.git": FOLDER})
    other = Journal(os.path.join(os.path.realpath(tmp_path), "other"))
    with other.locked():
        theirs = other.begin({}, [f"{work}/.git"])
    mine.end()
    forget(mine)
    assert everything(work) == [".git"]
    assert len(journal_of(settings)) > 1, "it is for a later command"
    theirs.end()
    assert everything(work) == [".git"], "who didn't make it doesn't take it away"
    forget(theirs)
    Journal(settings).sweep()
    assert everything(work) == []


def test_one_that_is_just_being_taken_away_is_looked_at_again(begin, settings, work, tmp_path):
    begin({f"{work}/.git": FOLDER})
    fd = os.open(f"{work}/.git", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    other = Journal(os.path.join(os.path.realpath(tmp_path), "other"))
    with other.locked(), pytest.raises(Raced):
        other.begin({}, [f"{work}/.git"])
    os.close(fd)


class Dying:
    """Stands for `posix` in a process that dies before its n-th call that changes anything."""

    CHANGES = ("mkdir", "open", "rename", "unlink", "rmdir", "chmod", "write", "fchmod")

    def __init__(self, after: int) -> None:
        self.left = after

    def __getattr__(self, name: str) -> object:
        made = getattr(os, name) if hasattr(os, name) else getattr(placeholders.posix, name)
        if name not in self.CHANGES:
            return made

        def called(*arguments: object, **named: object) -> object:
            if self.left == 0:
                os._exit(9)
            self.left -= 1
            return made(*arguments, **named)

        return called


def test_a_crash_at_any_moment_leaves_nothing_after_the_next_command(settings, work):
    """Each call that changes something, of beginning and of ending, is the last of a process."""
    os.mkdir(f"{work}/mine")
    paths = {f"{work}/.git": FOLDER, f"{work}/a": FOLDER, f"{work}/a/f": FILE}
    died = 0
    for after in range(200):
        pid = os.fork()
        if pid == 0:
            placeholders.posix = Dying(after)
            journal = Journal(settings)
            with journal.locked():
                run = journal.begin(paths, [])
            run.end()
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
            break
        died += 1
        Journal(settings).sweep()
        assert everything(work) == ["mine"], after
        assert journal_of(settings) in (["lock"], []), after
    assert died > 20


def test_what_a_person_made_of_the_same_name_outlives_a_crash(settings, work):
    """A run that died just before it made its placeholder has written down only the name."""
    run = Journal(settings)
    with run.locked():
        made = run.begin({}, [])
        run._write(made.name, [(f"{work}/.idea", placeholders.UNKNOWN)])
    forget(made)
    os.mkdir(f"{work}/.idea")
    Journal(settings).sweep()
    assert everything(work) == [".idea"]


# -- sandboxes -------------------------------------------------------------------------------

HELD = (".git", ".vscode", ".idea", ".husky", "HEAD")


def test_a_crash_of_all_processes_is_cleaned_by_the_next_command(installed, who, folder):
    """Launcher and keeper killed together: then there is nobody to take it away."""
    command = installed.wrapped(who, ["sh", "-c", "echo ready; cat"], write=[folder])
    nets = {"net": "closed", "name": "next", "write": [], "read": [], "commands": "any"}
    for word in ("kept", "run", "wrap", "ready"):
        with crashed(who, command):
            assert sorted(os.listdir(folder)) == sorted(HELD)
        match word:
            case "kept":
                lnk.run(who, installed.wrapped(who, ["true"]))
            case "run":
                installed.run(who, "run", "--yes", "--", "true")
            case "wrap":
                text = json.dumps({"confinement": nets, "argv": ["true"]})
                installed.run(who, "wrap", input=text)
            case "ready":
                installed.run(who, "ready")
        assert os.listdir(folder) == [], word


def test_what_a_living_process_has_mounted_stays_though_its_run_is_dead(installed, who, folder):
    """A process that outlived all that was outside: its mount would go with the placeholder."""
    command = installed.wrapped(who, ["sh", "-c", "echo ready; cat"], write=[folder])
    with crashed(who, command):
        script = f"mount --bind {folder}/.git {folder}/.git; echo mounted; cat"
        outlived = lnk.popen(who, [*OWN_MOUNTS, script], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)  # fmt: skip
        assert outlived.stdout.readline() == "mounted\n"
    try:
        lnk.run(who, installed.wrapped(who, ["true"]))
        assert sorted(os.listdir(folder)) == sorted(HELD)
        inside = lnk.run(who, installed.wrapped(who, ["sh", "-c", f"ls -A {folder}"],
                                                write=[folder]))  # fmt: skip
        assert sorted(inside.stdout.split()) == sorted(HELD), inside.stderr
        assert sorted(os.listdir(folder)) == sorted(HELD), "another's end takes nothing either"
    finally:
        outlived.communicate()
    lnk.run(who, installed.wrapped(who, ["true"]))
    assert os.listdir(folder) == []


OWN_MOUNTS = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "sh", "-euc"]


@contextlib.contextmanager
def crashed(who: lnk.Account, command: list[str]) -> Iterator[None]:
    """A sandbox whose processes outside are all killed at once; then those inside end too."""
    with lnk.popen(who, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        everything = family(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        for pid in (*children_of(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        wait_for(lambda: not alive(everything))
    yield


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


RACER = """\
import os, sys
os.chdir(sys.argv[1])
if os.fork() == 0:  # goes on when the program has ended, for as long as it can
    while True:
        for name in (".git", ".vscode", "HEAD"):
            try:
                os.mkdir(name + "/escaped")
            except OSError:
                pass
            try:
                os.mkdir(name)
            except OSError:
                pass
"""


def test_what_is_left_running_inside_makes_nothing_as_the_sandbox_ends(installed, who, folder):
    """Nothing is taken away before the last process is dead, also by others that end then."""
    program = [installed.python, "-I", "-S", "-c", RACER, folder]
    command = installed.wrapped(who, program, write=[folder])
    for _ in range(6):
        racing = [lnk.popen(who, command) for _ in range(3)]
        for one in racing:
            assert one.wait(lnk.LONG_S) == 0
        assert os.listdir(folder) == []


WATCHER = """\
cd "$1" || exit 9
while :; do
  for name in .git .vscode .idea .husky HEAD; do
    [ -d $name ] || echo $name is gone >> found
    mkdir $name/x 2>/dev/null && echo $name is open >> found
  done
  sleep 0.2
done
"""


def mounted_in(folder: str) -> list[int]:
    """Return the processes that a folder is mounted for: those of its sandboxes."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/mountinfo") as file:
            if f" {folder} " in file.read():
                found.append(int(name))
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_many_sandboxes_on_one_folder_started_and_killed_at_random(
    installed, who, folder, pytestconfig
):
    """Ended in every way: nothing is left, and nothing goes too early.

    32 at a time for a quarter of a minute, on a slow machine for longer; in the reviewers' long
    run (`--hypothesis-profile fuzz`) 64 for a whole one.
    """
    is_long = pytestconfig.getoption("--hypothesis-profile") == "fuzz"
    at_once, seconds, least = (64, 60, 120) if is_long else (32, 15, 40)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    command = installed.wrapped(who, ["sh", "-c", WATCHER, "sh", folder], write=[folder])
    running: list[subprocess.Popen[str]] = []
    started = 0
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until or started <= least:
            while len(running) < at_once:
                made = lnk.popen(who, command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                running.append(made)
                started += 1
            select.select([], [], [], chance.uniform(0, 0.2))
            strike(chance, running.pop(chance.randrange(len(running))))
    finally:
        for one in running:
            strike(chance, one)
    wait_for(lambda: not mounted_in(folder))
    lnk.run(who, installed.wrapped(who, ["true"]))
    assert os.listdir(folder) == [], f"seed {seed}"
    assert os.listdir(f"{who.home}/.lnk/sandbox/placeholders") == ["lock"], f"seed {seed}"
    print(f"{started} sandboxes, {at_once} at once, {seconds} s")


def strike(chance: random.Random, process: subprocess.Popen[str]) -> None:
    """End a sandbox in one way or another, whatever stage it has reached.

    Never all of its processes outside at once: while it starts, bubblewrap's first process
    isn't bound to its parent yet, and nobody would be left to end it (SECURITY.md).
    """
    targets = [process.pid]
    how = chance.choice(["term", "kill", "kill", "keeper", "bwrap"])
    with contextlib.suppress(OSError):
        if how in ("keeper", "bwrap"):
            targets = (
                children_of(process.pid)[:1] if how == "keeper" else children_of(process.pid)[1:2]
            )
    for pid in targets or [process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM if how == "term" else signal.SIGKILL)
    process.wait(lnk.LONG_S)
