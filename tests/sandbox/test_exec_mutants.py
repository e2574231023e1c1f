"""Each wall around a list of programs, taken away: then a try gets through, or a test would fail.

The tries are those of `test_exec_attacks`, run with a copy of the project in which a few words
are changed, or with a kept command whose settings are.  Where two walls hold alone, each is
shown to: with one of them gone nothing gets through, with both something does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sandbox.linux import packing, seccomp
from tests.sandbox import lnk
from tests.sandbox.test_exec_attacks import ONLY, OPEN, REFUSED, command_of, outcome

ARCH = os.uname().machine
WATCH, STAGE = "sandbox/linux/exec_watch.py", "sandbox/linux/inside.py"
FILTER = "sandbox/linux/seccomp.py"
UNDUMPABLE = (STAGE, '        libc.call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)\n', "")

MUTANTS: dict[str, tuple[list[tuple[str, str, str]], dict[str, str]]] = {
    # what is taken away: the changes of the source, and what then comes of tries
    "memory files are sealed": (
        [(WATCH, "MFD_CLOEXEC | MFD_NOEXEC_SEAL | sealing",
          "MFD_CLOEXEC | MFD_ALLOW_SEALING")],
        {"memory_file": "ran", "memory_file_executable": "ran",
         "memory_file_of_a_process_that_cannot_be_read": "ran"},
    ),
    "memory files are no others' to seal": (
        [(WATCH, "        if not sealing:\n", "        if False:\n")],
        {"memory_files_work": "AssertionError: "},
    ),
    "memory of a process that can't be read is made all the same": (
        [(WATCH, "        except PermissionError:\n            called",
          "        except KeyError:\n            called")],
        {"memory_file_of_a_process_that_cannot_be_read": "PermissionError: "},
    ),
    "unknown flags are refused": (
        [(WATCH, "if flags & ~MEMORY_FLAGS:", "if False:")],
        {"memory_files_work": "AssertionError: "},
    ),
    "renames across folders are granted": (
        [(STAGE, '        landlock.allow(libc, rules, "/", landlock.REFER)\n', "        pass\n")],
        {"files_move_between_folders": "OSError: [Errno 18]"},
    ),
    "a descriptor isn't run, where memory can't be sealed": (
        [(FILTER, "(RET, 0, 0, ERRNO | EACCES),\n            (RET, 0, 0, USER_NOTIF)",
          "(RET, 0, 0, USER_NOTIF),\n            (RET, 0, 0, USER_NOTIF)"),
         (FILTER, "sealed = USER_NOTIF if seals else ALLOW", "sealed = ALLOW")],
        {"execveat_of_memory": "ran", "memory_file": "ran"},
    ),
    "pid 1 has no handler of Python's": (
        [(STAGE, "            _signal.signal(number, _signal.SIG_DFL)\n", "            pass\n")],
        {"kill_the_watch": ""},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def copy(open_folder: str) -> lnk.Installed:
    """A copy of the project of this module's own, to be changed."""
    folder = os.path.join(open_folder, "mutants")
    os.mkdir(folder, 0o755)
    return lnk.install(folder)


@contextmanager
def changed(copy: lnk.Installed, changes: list[tuple[str, str, str]]) -> Iterator[None]:
    """Change words of the copy's source for a while; each must be there, and once."""
    originals: dict[str, str] = {}
    try:
        for name, old, new in changes:
            path = os.path.join(copy.folder, name)
            with open(path) as file:
                text = file.read()
            originals.setdefault(path, text)
            assert text.count(old) == 1, f"{name} has changed: {old!r}"
            _write(path, text.replace(old, new))
        yield
    finally:
        for path, text in originals.items():
            _write(path, text)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
    shutil.rmtree(os.path.join(os.path.dirname(path), "__pycache__"), ignore_errors=True)


def tried(
    copy: lnk.Installed,
    who: lnk.Account,
    folder: str,
    names: list[str],
    change: Callable[[dict[str, object]], None] | None = None,
) -> dict[str, str]:
    command = command_of(copy, who, folder, names, commands={"only": ONLY})
    if change is not None:
        plan = lnk.plan_of(command)
        settings = plan["inside"]["settings"]
        change(settings)
        plan["inside"]["settings"] = settings
        command[4] = packing.written(plan)
    return outcome(lnk.run(who, command, timeout=lnk.LONG_S))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wall_that_is_gone_is_noticed(copy, ordinary, ordinary_folder, name):
    changes, expected = MUTANTS[name]
    due = {**REFUSED, **OPEN}
    whole = tried(copy, ordinary, ordinary_folder, list(expected))
    assert whole == {one: due[one] for one in expected}
    for entry in os.listdir(ordinary_folder):
        path = os.path.join(ordinary_folder, entry)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    with changed(copy, changes):
        found = tried(copy, ordinary, ordinary_folder, list(expected))
    for one, said in expected.items():
        assert found.get(one, "").startswith(said), found
        assert found.get(one) != due[one]


BY_THE_FILE = ["unlisted", "copy_of_an_unlisted_program", "symbolic_link", "by_a_descriptor",
               "deleted_file", "file_without_a_name", "copy_in_shared_memory",
               "script_of_a_listed_interpreter"]  # fmt: skip


def test_without_landlock_any_file_runs(copy, ordinary, ordinary_folder):
    def unlist(settings: dict[str, object]) -> None:
        settings["only"] = None

    found = tried(copy, ordinary, ordinary_folder, BY_THE_FILE, unlist)
    assert found == dict.fromkeys(BY_THE_FILE, "ran")


ON_THE_WATCH = ["trace_the_watch", "memory_of_the_watch", "memory_of_the_watch_by_a_call"]


def test_the_watch_is_kept_by_its_domain_and_by_not_being_dumpable(copy, ordinary, ordinary_folder):
    def unlist(settings: dict[str, object]) -> None:
        settings["only"] = None

    kept = {name: REFUSED[name] for name in ON_THE_WATCH}
    assert tried(copy, ordinary, ordinary_folder, ON_THE_WATCH, unlist) == kept
    with changed(copy, [UNDUMPABLE]):
        alone = tried(copy, ordinary, ordinary_folder, ON_THE_WATCH)
        assert "ran" not in alone.values()
        found = tried(copy, ordinary, ordinary_folder, ON_THE_WATCH, unlist)
    # By its number the filter keeps the first process from being traced too.
    assert found == dict.fromkeys(ON_THE_WATCH, "ran") | {"trace_the_watch": "EPERM"}


def test_a_watch_without_its_filter_sees_nothing(copy, ordinary, ordinary_folder):
    """A filter that hands nothing over leaves memory as it is: what runs then is unlisted."""

    def open_filter(settings: dict[str, object]) -> None:
        settings["watch"] = seccomp.encode([(seccomp.RET, 0, 0, seccomp.ALLOW)]).hex()

    names = ["memory_file", "execveat_of_memory", "unlisted"]
    found = tried(copy, ordinary, ordinary_folder, names, open_filter)
    assert found == {"memory_file": "ran", "execveat_of_memory": "ran", "unlisted": "EACCES"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"numbers": [59, 319, 9999]}, "Function not implemented"),
        ({"watch": "ff" * 8}, "Invalid argument"),
    ],
)
def test_a_wall_that_cannot_be_built_starts_no_program(
    copy, ordinary, ordinary_folder, change, said
):
    command = command_of(copy, ordinary, ordinary_folder, ["unlisted"], commands={"only": ONLY})
    plan = lnk.plan_of(command)
    settings = {**plan["inside"]["settings"], **change}
    plan["inside"]["settings"] = settings
    command[4] = packing.written(plan)
    done = lnk.run(ordinary, command)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("lnk sandbox: the stage inside: ")
    assert said in done.stderr


def test_a_kernel_without_landlock_starts_no_program(copy, ordinary, ordinary_folder):
    """The kernel may have changed since the command was kept."""
    change = (
        "sandbox/linux/landlock.py",
        "CREATE, ADD, RESTRICT = 444,",
        "CREATE, ADD, RESTRICT = 999,",
    )
    command = command_of(copy, ordinary, ordinary_folder, ["unlisted"], commands={"only": ONLY})
    with changed(copy, [change]):
        done = lnk.run(ordinary, command)
    assert (done.returncode, done.stdout) == (125, "")
    assert "the stage inside: this kernel has no Landlock any more" in done.stderr


def test_a_watch_that_ends_ends_the_sandbox(copy, ordinary, ordinary_folder):
    change = (
        WATCH,
        "                if error.errno not in (ENOENT, EINTR):",
        "                if True:",
    )
    broken = (
        WATCH,
        "                ioctl(listener, RECV, notif)\n",
        "                ioctl(listener, 5, notif)\n",
    )
    command = copy.wrapped(ordinary, ["sh", "-c", "sleep 1000"], commands={"only": ["/bin/sh"]})
    with changed(copy, [change, broken]):
        done = lnk.run(ordinary, command)
    assert done.returncode == 125
    assert "the stage inside: " in done.stderr


def test_an_older_kernels_way_of_waiting_holds_as_well(copy, ordinary, ordinary_folder):
    """Before 5.19 a call that the watch has can be interrupted, and begins anew."""
    change = (WATCH, "SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE_RECV = 1, 8, 32",
              "SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE_RECV = 1, 8, 1 << 20")  # fmt: skip
    names = ["unlisted", "memory_file", "signals_meanwhile", "threads_of_one_process",
             "after_vfork"]  # fmt: skip
    with changed(copy, [change]):
        found = tried(copy, ordinary, ordinary_folder, names)
    assert found == {name: REFUSED[name] for name in names}


@pytest.mark.parametrize("keys", [{"commands": {"only": ["/bin/sh"]}}, {"terminal": True}])
def test_what_the_stage_starts_beside_the_program_is_not_taken_for_it(copy, ordinary, keys):
    """A signal is for the program, whoever was started first."""
    spawn = '        posix.posix_spawn("/bin/sleep", ["sleep", "1000"], {}, setsid=True)\n'
    program = "        program = _Program("
    script = "trap 'echo got; exit 9' TERM; echo ready; while :; do read line; done"
    command = copy.wrapped(ordinary, ["sh", "-c", script], **keys)
    with (
        changed(copy, [(STAGE, program, spawn + program)]),
        lnk.popen(
            ordinary, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as process,
    ):
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "got\n"
        assert process.wait(lnk.LONG_S) == 9
