"""A start that is disturbed: parts killed and signals sent at chosen moments (`disturbed`)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable

import pytest

from sandbox.linux import packing
from sandbox.linux.etc_files import COPIES_MAX
from tests.sandbox import lnk
from tests.sandbox.people import folder_of
from tests.sandbox.test_launcher import (
    MANY_SOCKETS,
    MARK,
    PROXIED,
    children_of,
    in_sessions_of,
    wait_for,
)

with open(os.path.join(os.path.dirname(__file__), "disturbed.py")) as file:
    DISTURBED = file.read()
LOOKS = "scandir/2"
"""Root's launcher looks through /etc while bubblewrap works."""
GIVES_UP, IS_GIVEN_UP, STARTS_ANEW = "waitpid/2", "kill/2", "posix_spawn/3"
GOES_AHEAD = "write/2"
BEFORE_BUBBLEWRAP, AFTER_BUBBLEWRAP = "posix_spawn/1", "close/2"
CERTIFICATES = "/etc/ssl/certs"
KEY = f"{CERTIFICATES}/key"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root's start alone looks through /etc")


def disturbed(command: list[str], *moments: str) -> list[str]:
    return [*command[:3], "-c", DISTURBED, ";".join(moments), *command[3:]]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.fixture
def root(people) -> lnk.Account:
    return people["root"]


@pytest.fixture
def with_a_key(tmp_path) -> list[str]:
    """What a command is begun with, for a machine whose certificates have a key beside them."""
    folder = os.path.realpath(tmp_path / "settings")
    os.mkdir(folder, 0o755)
    for name in ("key", *map(str, range(COPIES_MAX))):  # more than are copied one by one
        with open(f"{folder}/{name}", "w") as file:
            file.write(f"of {name}")
            os.chmod(file.fileno(), 0o600 if name == "key" else 0o644)
    script = f'mount --bind {folder} {CERTIFICATES} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


@pytest.fixture(params=["bare", "write", "terminal", "only", "proxied", "many"])
def command(request, installed, root, root_folder) -> list[str]:
    """A command of root's that writes down that it runs, and reads the key."""
    keys: dict[str, object] = {
        "bare": {"write": [f"{root_folder}/ran"]},
        "write": {"write": [root_folder]},
        "terminal": {"write": [root_folder], "terminal": True},
        "only": {"write": [root_folder], "commands": {"only": ["/bin/sh", "/bin/cat"]}},
        "proxied": {"write": [root_folder], "terminal": True, **PROXIED},
        "many": {"write": [root_folder], "net": {"proxied": {
            "proxy": {"upstream": "direct", "dir": f"{root.home}/wire", "hosts": []},
            "ports": list(range(20000, 20000 + MANY_SOCKETS // 2)),
        }}},
    }[request.param]  # fmt: skip
    os.mkdir(f"{root_folder}/ran")
    script = f"echo ran >> {root_folder}/ran/times; cat {KEY}; exit 7"
    made = installed.wrapped(root, ["sh", "-c", script, MARK], **keys)
    if "net" in keys:
        plan = lnk.plan_of(made)
        plan["wire"]["serve"] = [free_port()]
        made[4] = packing.written(plan)
    return made


@pytest.fixture
def root_folder(root):
    with folder_of(root) as path:
        yield path


def times(folder: str) -> int:
    try:
        with open(f"{folder}/ran/times") as file:
            return file.read().count("ran")
    except FileNotFoundError:
        return 0


def is_clean(who: lnk.Account, folder: str) -> bool:
    """Tell whether nothing is left: no process, nothing in the folder, the wire or the journal."""
    journal = f"{who.home}/.lnk/sandbox/placeholders"
    return (
        in_sessions_of(who) == []
        and set(os.listdir(folder)) <= {"ran"}
        and set(os.listdir(f"{folder}/ran")) <= {"times"}
        and not os.path.exists(f"{who.home}/wire")
        and (not os.path.exists(journal) or set(os.listdir(journal)) <= {"lock"})
    )


# -- what root's look finds ----------------------------------------------------------------


@AS_ROOT
def test_a_program_has_its_go_ahead_once_all_is_covered(root, root_folder, with_a_key, command):
    """At the look the sandbox stands and waits; were it let go by then, it would run twice."""
    moment = f"{LOOKS}=gate:{root_folder}/ran/times"
    done = lnk.run(root, [*with_a_key, *disturbed(command, moment)])
    assert done.returncode == 7, done.stderr
    assert times(root_folder) == 1
    assert (done.stdout, done.stderr) == ("", f"cat: {KEY}: Permission denied\n")
    wait_for(lambda: is_clean(root, root_folder))


@AS_ROOT
@pytest.mark.parametrize("moment", [LOOKS, GIVES_UP, IS_GIVEN_UP, STARTS_ANEW])
@pytest.mark.parametrize("part", ["keeper", "bwrap", "inner", "self"])
def test_whatever_is_killed_meanwhile_no_program_reads_the_key(
    root, root_folder, with_a_key, command, moment, part
):
    ready = f"{LOOKS}=gate:{root_folder}/ran/times"
    first = [f"{ready},{part}"] if moment == LOOKS else [ready, f"{moment}={part}"]
    done = lnk.run(root, [*with_a_key, *disturbed(command, *first)])
    assert "of key" not in done.stdout
    assert "Traceback" not in done.stderr
    assert done.returncode in (7, 125, -signal.SIGKILL)
    assert times(root_folder) == (done.returncode == 7)
    wait_for(lambda: is_clean(root, root_folder))


@AS_ROOT
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGCHLD])
def test_a_signal_meanwhile_is_heeded_once_the_second_has_begun(
    root, root_folder, with_a_key, command, number
):
    moment = f"{LOOKS}=gate:{root_folder}/ran/times,{int(number)}"
    done = lnk.run(root, [*with_a_key, *disturbed(command, moment)])
    ends = number in (signal.SIGTERM, signal.SIGINT)
    assert done.returncode == (128 + number if ends else 7), done.stderr
    assert "of key" not in done.stdout
    wait_for(lambda: is_clean(root, root_folder))


@AS_ROOT
def test_what_was_given_up_leaves_no_descriptor_open(root, root_folder, with_a_key, command):
    """Nor a child: the launcher holds what it does where nothing is found."""
    program = ["sh", "-c", "echo ready; cat", MARK]
    argv = [*command[: command.index("--") + 1], *program]
    helpers = 3 if lnk.plan_of(command)["wire"] else 2

    def held(front: list[str]) -> list[str]:
        with lnk.popen(
            root, [*front, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout.readline() == "ready\n"
            wait_for(lambda: len(children_of(process.pid)) == helpers)
            fds = f"/proc/{process.pid}/fd"
            kinds = sorted(os.readlink(f"{fds}/{fd}").partition("[")[0] for fd in os.listdir(fds))
            process.kill()
        wait_for(lambda: is_clean(root, root_folder))
        return kinds

    assert held(with_a_key) == held([])


@AS_ROOT
@pytest.mark.parametrize(
    ("fault", "first"),
    [("bubblewrap", f"{LOOKS}=gone"), ("maker", f"{LOOKS}=gone"), ("maker", "")],
)
def test_what_cannot_be_made_is_said_once(installed, root, with_a_key, fault, first):
    made = installed.wrapped(root, ["true"], **PROXIED)
    own = with_a_key
    if fault == "bubblewrap":
        own = [*with_a_key, "sh", "-c", 'mount --bind /dev/null /proc/version; exec "$@"', "sh"]
    else:
        plan = lnk.plan_of(made)
        plan["wire"]["inside"] = [["tcp", "127.0.0.1", plan["port"]]]  # where the proxy listens
        made[4] = packing.written(plan)
    done = lnk.run(root, [*own, *(disturbed(made, first) if first else made)])
    assert done.returncode == 125
    why, what = done.stderr.splitlines()
    assert ("mount proc" if fault == "bubblewrap" else "Address already in use") in why
    assert "the sandbox could not be made; the line above says why" in what


# -- the go-ahead ---------------------------------------------------------------------------


@pytest.fixture
def writer(installed, who, folder) -> Callable[..., list[str]]:
    """Return what makes a command that writes down that it runs, in a folder of theirs."""

    def make(**keys: object) -> list[str]:
        os.mkdir(f"{folder}/ran")
        os.chown(f"{folder}/ran", who.uid, who.gid)
        words = ["sh", "-c", f"echo ran >> {folder}/ran/times; exit 7", MARK]
        return installed.wrapped(who, words, write=[folder], **keys)

    return make


@AS_ROOT
@pytest.mark.parametrize("keys", [{}, {"terminal": True}, PROXIED], ids=["bare", "stage", "proxy"])
@pytest.mark.parametrize("first", ["", "gate:{},"], ids=["early", "at the gate"])
def test_the_end_of_launcher_and_keeper_at_once_is_no_go_ahead(
    installed, who, folder, writer, keys, first
):
    """What waits at the gate is nobody's, and waits on: but no program runs that nobody watches."""
    does = first.format(f"{folder}/ran/times") + "keeper,self"
    process = lnk.popen(who, disturbed(writer(**keys), f"{GOES_AHEAD}={does}"))
    assert process.wait(lnk.LONG_S) == -signal.SIGKILL
    wait_for(lambda: times(folder) or all(map(waits, in_sessions_of(who))))
    while left := in_sessions_of(who):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert times(folder) == 0
    assert lnk.run(who, installed.wrapped(who, ["true"])).returncode == 0
    wait_for(lambda: is_clean(who, folder))  # the next command took away what was left


def waits(pid: int) -> bool:
    """Tell whether a sandbox's process waits to be let on, at the gate or before it, or has ended.

    bubblewrap's first, which stands outside, waits for one that does.
    """
    try:
        with open(f"/proc/{pid}/status") as file:
            is_inside = len(file.read().partition("NSpid:")[2].split("\n")[0].split()) > 1
        if not is_inside:
            return bool(children_of(pid))
        with open(f"/proc/{pid}/syscall") as file:
            number, _, rest = file.read().partition(" ")
        fd = int(rest.split()[0], 16) if number in ("0", "63") else -1
        kind = os.readlink(f"/proc/{pid}/fd/{fd}") if fd >= 0 else ""
        return kind.startswith("pipe:") or kind == "anon_inode:[eventfd]"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("keys", [{}, {"terminal": True}, PROXIED], ids=["bare", "stage", "proxy"])
@pytest.mark.parametrize(
    "moment",
    [
        *(f"{BEFORE_BUBBLEWRAP}={part}" for part in ("keeper", "self")),
        *(f"{AFTER_BUBBLEWRAP}={part}" for part in ("keeper", "bwrap", "keeper,bwrap", "self")),
        *(f"{GOES_AHEAD}={part}" for part in ("keeper", "bwrap", "born,inner", "self")),
    ],
)
def test_whatever_is_killed_before_the_go_ahead_nothing_is_left(who, folder, writer, keys, moment):
    done = lnk.run(who, disturbed(writer(**keys), moment))
    assert done.returncode in (125, 137, -signal.SIGKILL), done.stderr
    assert "Traceback" not in done.stderr
    if "keeper" not in moment:  # without it the go-ahead may come, and then it is ended
        assert times(folder) == 0
    wait_for(lambda: is_clean(who, folder))


# -- the proxy's end ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moments",
    [("close/3=stop", "read/3=0", "read/3=go,made:{0}"), ("waitpid/3=made:{0}", "waitpid/3=proxy")],
    ids=["as it comes to serve", "as it ends"],
)
def test_a_proxy_that_is_killed_at_the_very_end_leaves_nothing(installed, who, folder, moments):
    """By the launcher, for which it serves nobody yet, or by somebody else."""
    os.mkdir(f"{folder}/ran")
    out = f"{who.home}/wire/out.sock"
    wait_for(lambda: not os.path.exists(f"{who.home}/wire"))  # an earlier one's proxy still ends
    made = installed.wrapped(who, ["cat"], **PROXIED)
    argv = disturbed(made, *(one.format(out) for one in moments))
    with lnk.popen(who, argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(lambda: len(children_of(process.pid)) == 3)  # the proxy comes last
        assert process.communicate("", timeout=lnk.LONG_S)[1] == ""
        assert process.returncode == 0
    wait_for(lambda: is_clean(who, folder))
    assert os.listdir(f"{who.home}/.lnk/sandbox/traffic") == []
