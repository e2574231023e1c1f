"""Starting, ending and being killed: as root and as a user, with a proxy and without."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from sandbox.linux import packing, seccomp
from tests.sandbox import lnk
from tests.sandbox.terminal import Terminal

SOON_S = 1.0
"""Within this all ends; on a machine that others keep busy, at one of so many attempts."""
ATTEMPTS = 3
PROXIED = {
    "net": {"proxied": {"proxy": {"upstream": "direct", "dir": "~/wire", "hosts": []},
                        "ports": []}},
}  # fmt: skip
NETS = {
    "closed": {},
    "proxied": PROXIED,
    "host": {"net": {"host": {"ports": [], "localhost": True}}},
}


@pytest.fixture(params=sorted(NETS))
def keys(request: pytest.FixtureRequest) -> dict[str, object]:
    return dict(NETS[request.param])


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(installed: lnk.Installed, who: lnk.Account) -> Iterator[Start]:
    """Start a kept command; what is left of it is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def begin(argv: list[str], keys: dict[str, object], *, change=None, **more: object):
        given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = installed.wrapped(who, argv, **keys)
        if change is not None:
            command[4] = packing.written(change(lnk.plan_of(command)))
        made = lnk.popen(who, command, **{**given, **more})
        started.append(made)
        return made

    yield begin
    for one in started:
        one.kill()
        one.communicate()


def finished(installed, who, argv, keys, **more):
    return lnk.run(who, installed.wrapped(who, argv, **keys), **more)


@pytest.mark.parametrize("code", [0, 1, 3, 42, 125, 126, 127, 255])
def test_it_ends_with_the_programs_status(installed, who, code):
    done = finished(installed, who, ["sh", "-c", f"exit {code}"], {})
    assert (done.returncode, done.stderr) == (code, "")


def test_it_ends_with_the_programs_status_with_a_proxy_too(installed, who, keys):
    done = finished(installed, who, ["sh", "-c", "exit 42"], keys)
    assert (done.returncode, done.stderr) == (42, "")


@pytest.mark.parametrize("number", ["TERM", "KILL", "SEGV", "HUP"])
def test_a_program_killed_by_a_signal_is_128_and_the_signal(installed, who, number):
    done = finished(installed, who, ["sh", "-c", f"kill -{number} $$"], {})
    assert done.returncode == 128 + getattr(signal, f"SIG{number}")


def test_standard_streams_are_the_programs(installed, who, keys):
    done = finished(installed, who, ["sh", "-c", "cat; echo no >&2"], keys, input="yes\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "yes\n", "no\n")


def test_a_hundred_mebibytes_pass_through_unchanged(installed, who):
    command = installed.wrapped(who, ["cat"])
    block = os.urandom(1 << 20)
    sent, came = hashlib.sha256(), hashlib.sha256()
    with lnk.popen(
        who, command, text=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        to, back = process.stdin, process.stdout
        left = memoryview(block * 100)
        sent.update(left)
        os.set_blocking(to.fileno(), False)
        while back is not None:
            readable, writable, _ = select.select([back], [to] if left else [], [], lnk.LONG_S)
            assert readable or writable
            if writable:
                left = left[os.write(to.fileno(), left[: 1 << 16]) :]
                if not left:
                    to.close()
            if readable:
                data = os.read(back.fileno(), 1 << 16)
                came.update(data)
                if not data:
                    break
    assert process.returncode == 0
    assert came.digest() == sent.digest()


def test_output_that_nobody_reads_ends_the_program_as_a_pipe_does(start, keys):
    process = start(["yes"], keys, stdin=subprocess.DEVNULL)
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(lnk.LONG_S) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_program_which_decides(start, keys, number):
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo got; exit 9' {name}; echo ready; while :; do read line || sleep 0.1; done"
    process = start(["sh", "-c", script], keys)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "got\n"
    assert process.wait(lnk.LONG_S) == 9


def test_a_signal_that_the_program_leaves_alone_ends_it(start, keys):
    process = start(["sh", "-c", "echo ready; exec cat"], keys)
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait(lnk.LONG_S) == 128 + signal.SIGTERM


def test_a_terminals_interrupt_reaches_the_programs_whole_group(installed, who):
    """Ctrl-C in a shell's foreground: the program and what it started get it, once."""
    command = installed.wrapped(who, [
        "sh", "-c",
        "trap 'echo parent' INT; sh -c 'trap \"echo child; exit\" INT; echo up; "
        "while :; do sleep 0.05; done'; echo last",
    ])  # fmt: skip
    with Terminal(who, command) as terminal:
        terminal.read_until("up")
        terminal.type("\x03")
        said = terminal.read_until("last")
        assert said.count("child") == 1
        assert said.count("parent") == 1
        assert terminal.wait() == 0


def test_a_terminals_size_changes_are_told(installed, who):
    command = installed.wrapped(who, [
        "sh", "-c", "trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.05; done",
    ])  # fmt: skip
    with Terminal(who, command) as terminal:
        terminal.read_until("up")
        terminal.resize(33, 77)
        terminal.read_until("33 77")
        assert terminal.wait() == 0


def test_a_terminals_stop_stops_the_program_until_it_goes_on(installed, who):
    command = installed.wrapped(who, [
        "sh", "-c", "echo up; while :; do echo tick; sleep 0.05; done",
    ])  # fmt: skip
    with Terminal(who, command) as terminal:
        terminal.read_until("up")
        terminal.read_until("tick")
        terminal.type("\x1a")
        wait_for(lambda: "T" in states(terminal.pid))
        terminal.continue_()
        terminal.read_until("tick")


def states(pid: int) -> str:
    """Return the state letter of a process."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def wait_for(holds: Callable[[], object], within_s: float = lnk.LONG_S) -> None:
    """Look until something holds; fail where it doesn't in time."""
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until, "it did not come to hold"
        select.select([], [], [], 0.01)


def ends_soon(start_and_kill: Callable[[], dict[int, str]]) -> None:
    """See that all that was there when a part was killed ends, and at one attempt soon."""
    took = []
    while not took or took[-1] > SOON_S:
        assert len(took) < ATTEMPTS, took
        left = start_and_kill()
        began = time.monotonic()
        wait_for(lambda left=left: not alive(left))
        took.append(time.monotonic() - began)


MARK = f"1000.{os.getpid():07d}"
"""A number of seconds by which a sleep of these tests is known, and of no other run's."""


def in_sessions_of(who: lnk.Account) -> list[int]:
    """Return the processes of somebody that bubblewrap or our mark shows to be a sandbox's."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == who.uid:
                with open(f"/proc/{name}/cmdline", errors="replace") as file:
                    if MARK in file.read().split("\0"):
                        found.append(int(name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def family(pid: int) -> dict[int, str]:
    """Return a process and all it started, with the name of each."""
    found: dict[int, str] = {}
    left = [pid]
    while left:
        one = left.pop()
        try:
            with open(f"/proc/{one}/comm") as file:
                found[one] = file.read().strip()
            with open(f"/proc/{one}/task/{one}/children") as file:
                left += [int(child) for child in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def children_of(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


def alive(pids: dict[int, str]) -> dict[int, str]:
    """Return those that are still there, and no zombies."""
    found = {}
    for pid, name in pids.items():
        try:
            if states(pid) != "Z":
                found[pid] = name
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def of_the_sandbox(process: subprocess.Popen[str], names: int) -> dict[int, str]:
    """Return all processes of a sandbox, once there are as many as there will be."""
    wait_for(lambda: len(family(process.pid)) >= names)
    return family(process.pid)


PARTS = ("lnk", "bwrap", "inside", "maker", "proxy")


def part_of(process: subprocess.Popen[str], everything: dict[int, str], part: str) -> int:
    """Return the process that is a part of a proxied sandbox."""
    own = [int(pid) for pid in children_of(process.pid)]  # as they were started
    wrappers = [pid for pid in own if everything[pid] == "bwrap"]
    helpers = [pid for pid in own if everything[pid] != "bwrap"]
    match part:
        case "lnk":
            return process.pid
        case "bwrap":
            return wrappers[0]
        case "inside":
            return next(pid for pid in everything if parent_of(pid) == wrappers[0])
        case "maker":
            return helpers[0]
        case _:
            return helpers[1]


def parent_of(pid: int) -> int:
    """Return a process's parent, 0 where it has just ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


@pytest.mark.parametrize("part", PARTS)
def test_whichever_part_is_killed_all_ends_within_a_second(start, who, folder, part):
    script = "(while :; do sleep 0.2; done) & echo ready; cat"
    wait_for(lambda: not os.path.exists(f"{who.home}/wire"))  # an earlier one's proxy still ends
    before = sorted({*os.listdir(who.home), ".lnk"})
    sandbox = f"{who.home}/.lnk/sandbox"

    def start_and_kill() -> dict[int, str]:
        process = start(["sh", "-c", script], {**PROXIED, "write": [folder]})
        assert process.stdout.readline() == "ready\n"
        wait_for(lambda: len(children_of(process.pid)) == 3)  # the proxy comes last
        # lnk, the maker, the proxy, two of bubblewrap's, two shells, a cat, a sleep
        everything = of_the_sandbox(process, 8)
        proxy = part_of(process, everything, "proxy")
        wait_for(lambda: os.path.exists(f"{who.home}/wire/out.sock"))
        wait_for(lambda: os.path.exists(f"{sandbox}/traffic/{proxy}.json"))
        os.kill(part_of(process, everything, part), signal.SIGKILL)
        return everything

    ends_soon(start_and_kill)
    assert os.listdir(folder) == []
    assert sorted(os.listdir(who.home)) == before
    assert os.listdir(f"{sandbox}/traffic") == []
    assert os.listdir(f"{sandbox}/placeholders") == ["lock"]


@pytest.mark.parametrize("made", ["empty", "served"])
def test_a_folder_that_a_killed_proxy_had_not_made_stays(start, who, made):
    """Another sandbox's proxy may serve it, and then its socket is that one's."""
    wire = f"{who.home}/wire-of-theirs"
    lnk.made_anew(wire, 0o700)
    os.chown(wire, who.uid, who.gid)
    proxy = {"upstream": "direct", "dir": wire, "hosts": []}
    keys = {"net": {"proxied": {"proxy": proxy, "ports": []}}}
    with contextlib.ExitStack() as stack:
        if made == "served":
            other = stack.enter_context(socket.socket(socket.AF_UNIX))
            other.bind(f"{wire}/out.sock")
            os.chown(f"{wire}/out.sock", who.uid, who.gid)
            other.listen()
        process = start(["sh", "-c", "echo ready; cat"], keys)
        assert process.stdout.readline() == "ready\n"
        everything = of_the_sandbox(process, 7)
        wait_for(lambda: os.path.exists(f"{wire}/out.sock"))
        os.kill(part_of(process, everything, "proxy"), signal.SIGKILL)
        assert process.wait(lnk.LONG_S) == 125
        assert os.listdir(wire) == (["out.sock"] if made == "served" else [])
    shutil.rmtree(wire)


@pytest.mark.parametrize("part", ["lnk", "bwrap", "inside"])
def test_without_a_proxy_all_ends_too(start, part):
    def start_and_kill() -> dict[int, str]:
        process = start(["sh", "-c", "(while :; do sleep 0.2; done) & echo ready; cat"], {})
        assert process.stdout.readline() == "ready\n"
        everything = of_the_sandbox(process, 6)
        os.kill(part_of(process, everything, part), signal.SIGKILL)
        return everything

    ends_soon(start_and_kill)


def test_what_the_program_left_running_ends_with_it(start, keys):
    """A server left behind would hold on to the sandbox, and to the caller's pipes."""
    process = start(["sh", "-c", "sleep 1000 & echo ready"], keys)
    assert process.stdout.readline() == "ready\n"
    assert process.wait(lnk.LONG_S) == 0
    assert process.stdout.read() == "", "and its output ends"


EVERYBODY = "for one in /proc/[0-9]*; do cat $one/comm; readlink $one/fd/*; done"


def test_nothing_of_ours_runs_inside(installed, who, keys):
    """No relay and no interpreter: the proxy's listener was made inside and handed out."""
    done = finished(installed, who, ["sh", "-c", EVERYBODY], keys)
    names = done.stdout.splitlines()
    assert {one for one in names if one.isalpha()} <= {"bwrap", "sh", "cat", "readlink"}
    assert names[0] == "bwrap"
    assert "socket:" not in done.stdout


STEERS = """\
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for number in (16, 0x4206):
    print(libc.ptrace(number, 1, None, None), ctypes.get_errno())
local, remote = (ctypes.c_size_t * 2)(), (ctypes.c_size_t * 2)(4096, 1)
print(libc.process_vm_writev(1, local, 1, remote, 1, 0), ctypes.get_errno())
for path in ("/proc/1/mem", "/proc/1/task/1/mem"):
    try:
        print(os.open(path, os.O_WRONLY))
    except PermissionError as error:
        print("closed")
"""


@pytest.mark.parametrize("keys", [{}, {"terminal": True}], ids=str)
def test_the_first_process_is_not_steered(installed, who, keys):
    """It would drop its death signal, and outlive a kill of all that stands outside."""
    done = finished(installed, who, [installed.python, "-I", "-c", STEERS], keys)
    assert done.stdout.split("\n") == ["-1 1"] * 3 + ["closed"] * 2 + [""], done.stderr


def without_the_rule_on_tracing(fields):
    """Take the filter's rule on ptrace(2), of five instructions, out of a kept plan."""
    program = bytes.fromhex(fields["bpf"])
    each = [program[at : at + 8] for at in range(0, len(program), 8)]
    number = seccomp.PTRACE[os.uname().machine == "aarch64"].to_bytes(4, "little")
    at = next(at for at, one in enumerate(each) if one[:4] == b"\x15\0\0\4" and one[4:] == number)
    return {**fields, "bpf": b"".join(each[:at] + each[at + 5 :]).hex()}


def test_a_program_that_steers_the_first_process_to_tell_of_its_end_ends_all_the_same(
    start, who, keys
):
    """Were the first process traced inside, what it tells outside would be the program's."""
    with open(os.path.join(os.path.dirname(__file__), "steering.py")) as file:
        script = file.read()
    # The `exec` keeps the script off the command line, by which the mark is looked for.
    process = start(["python3", "-c", "exec(input().encode().decode('unicode_escape'))", MARK],
                    keys, change=without_the_rule_on_tracing)  # fmt: skip
    process.stdin.write(script.encode("unicode_escape").decode() + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    process.wait(lnk.LONG_S)
    wait_for(lambda: in_sessions_of(who) == [])


def test_killing_the_proxy_says_so(start):
    process = start(["sh", "-c", "echo ready; cat"], PROXIED)
    process.stdout.readline()
    # lnk, the maker, two of bubblewrap's, a shell, a cat; the proxy comes last
    everything = of_the_sandbox(process, 7)
    os.kill(part_of(process, everything, "proxy"), signal.SIGKILL)
    assert process.wait(lnk.LONG_S) == 125
    assert "a part of the sandbox outside ended, so all of it ends" in process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("net", ["closed", "proxied"])
def test_a_signal_before_the_program_runs_ends_everything(installed, who, number, net):
    """The launcher may be ended while bubblewrap still sets up, and promises nothing yet."""
    command = installed.wrapped(who, ["sleep", MARK], **NETS[net])
    for step in range(16):
        process = lnk.popen(who, command, stderr=subprocess.DEVNULL)
        select.select([], [], [], step * 0.006)
        everything = family(process.pid)
        process.send_signal(number)
        assert process.wait(lnk.LONG_S) == {signal.SIGTERM: 143, signal.SIGKILL: -9}[number] or (
            process.returncode == -number  # the interpreter had only just started
        )
        wait_for(lambda seen=everything: not alive(seen))
        wait_for(lambda: not in_sessions_of(who))


def test_the_working_folder_is_kept_where_it_is_shown(installed, who, folder):
    done = finished(installed, who, ["pwd"], {"write": [folder]}, cwd=folder)
    assert done.stdout == f"{folder}\n"
    done = finished(installed, who, ["pwd"], {}, cwd=folder)
    assert done.stdout == f"{who.home}\n", "elsewhere it is the home of its own"
    done = finished(installed, who, ["pwd"], {}, cwd="/usr/lib")
    assert done.stdout == "/usr/lib\n"


def test_a_folder_that_became_a_link_since_is_refused(installed, who, folder, hidden_folder):
    """What one sandbox writes must not choose what the next is given."""
    target = f"{folder}/given"
    os.mkdir(target)
    os.chown(target, who.uid, who.gid)
    command = installed.wrapped(who, ["ls", target], write=[target])
    assert lnk.run(who, command).returncode == 0
    os.rmdir(target)
    os.symlink(hidden_folder, target)
    done = lnk.run(who, command)
    assert done.returncode == 125
    assert f"{target} leads elsewhere by a link" in done.stderr
    os.unlink(target)
    done = lnk.run(who, command)
    assert done.returncode == 125
    assert done.stderr == f"lnk sandbox: {target} does not exist any more.\n"


def test_a_parent_that_became_a_link_since_is_refused(installed, who, folder, hidden_folder):
    os.makedirs(f"{folder}/above/given")
    command = installed.wrapped(who, ["true"], read=[f"{folder}/above/given"])
    os.rename(f"{folder}/above", f"{folder}/moved")
    os.makedirs(f"{hidden_folder}/given")
    os.symlink(hidden_folder, f"{folder}/above")
    done = lnk.run(who, command)
    assert done.returncode == 125
    assert "leads elsewhere by a link" in done.stderr


def test_a_namespace_that_is_refused_is_125_with_a_sentence(installed, who, keys):
    """bubblewrap fails where the kernel gives no user namespace: here by a limit of none."""
    command = installed.wrapped(who, ["true"], **keys)
    outer = [
        "unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all "$@"',
        "sh", *command,
    ]  # fmt: skip
    done = lnk.run(who, outer)
    assert done.returncode == 125, done.stderr
    assert "the sandbox could not be made; the line above says why" in done.stderr
    assert "lnk sandbox ready" in done.stderr


def test_a_mount_that_is_refused_is_125_too(installed, who, keys):
    """It fails later than the namespaces do, and before there is a program."""
    command = installed.wrapped(who, ["true"], **keys)
    outer = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "sh", "-euc",
             'mount --bind /dev/null /proc/version; exec setpriv --ambient-caps=-all "$@"',
             "sh", *command]  # fmt: skip
    done = lnk.run(who, outer)
    assert done.returncode == 125, done.stderr
    assert "mount proc" in done.stderr
    assert "the sandbox could not be made; the line above says why" in done.stderr


def test_sockets_that_cannot_be_made_inside_are_125_too(installed, ordinary):
    command = installed.wrapped(ordinary, ["echo", "ran"], **PROXIED)
    plan = lnk.plan_of(command)
    plan["wire"]["inside"] = [["tcp", "127.0.0.1", plan["port"]]]  # where the proxy itself listens
    command[4] = packing.written(plan)
    done = lnk.run(ordinary, command)
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert "the sandbox's network: [Errno 98] Address already in use" in done.stderr


def test_a_missing_bubblewrap_is_125_with_a_sentence(installed, who):
    command = installed.wrapped(who, ["true"])
    plan = lnk.plan_of(command)
    plan["bwrap"] = "/nowhere/bwrap"
    command[4] = packing.written(plan)
    done = lnk.run(who, command)
    assert done.returncode == 125
    assert done.stderr.startswith("lnk sandbox: bubblewrap could not be started (/nowhere/bwrap")


def test_a_program_that_bubblewrap_cannot_run_is_126(installed, who, folder, keys):
    path = f"{folder}/broken"
    with open("/bin/true", "rb") as true, open(path, "wb") as file:
        file.write(true.read().replace(b"/ld-linux", b"/nowhere-", 1))
    os.chmod(path, 0o755)
    os.chown(path, who.uid, who.gid)
    done = finished(installed, who, [path], {**keys, "read": [folder]})
    assert done.returncode == 126
    assert "the program could not be run; the line above says why" in done.stderr


SECOND_FORK_FAILS = """
import errno, os, posix, runpy, sys
forks = [posix.fork]
def fork():
    if not forks:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return forks.pop()()
posix.fork = fork
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The keeper is forked, and then the user has as many processes as they may: the program runs by
now, and may have made them."""


@pytest.mark.parametrize("wire", [PROXIED, "many"])
def test_a_proxy_that_cannot_be_forked_ends_all(installed, who, folder, wire):
    keys = many_sockets(who) if wire == "many" else wire
    command = installed.wrapped(who, ["sleep", "100"], **keys, write=[folder])
    done = lnk.run(who, [*command[:3], "-c", SECOND_FORK_FAILS, *command[3:]])
    assert done.returncode == 125
    assert done.stderr == (
        "lnk sandbox: the proxy could not be started (Resource temporarily unavailable), so all of "
        "the sandbox ends.\n"
    )
    assert os.listdir(folder) == []  # what is held goes once every process inside is dead


MANY_SOCKETS = 700
"""More than the pair between socket maker and proxy holds: the maker waits for the proxy."""


def many_sockets(who: lnk.Account) -> dict[str, object]:
    wire = {"upstream": "direct", "dir": f"{who.home}/wires/many", "hosts": []}
    ports = list(range(20000, 20000 + MANY_SOCKETS // 2))  # each has two, for there is ::1 as well
    return {"net": {"proxied": {"proxy": wire, "ports": ports}}}


def test_more_sockets_than_can_wait_for_the_proxy_are_handed_over(installed, who):
    done = finished(installed, who, ["true"], many_sockets(who))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("after_ms", [0, 20, 40, 60, 80])
def test_it_ends_as_it_is_told_while_the_maker_waits_for_the_proxy(installed, who, after_ms):
    command = installed.wrapped(who, ["sleep", "100"], **many_sockets(who))
    with lnk.popen(who, command) as process:
        time.sleep(after_ms / 1000)  # what is tried is whatever moment that is
        process.terminate()
        assert process.wait(lnk.LONG_S) in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_many_variables_are_passed_and_too_many_refused(installed, who):
    some = {f"LNK_TESTS_{n}": "x" for n in range(1500)}
    done = lnk.run(
        who, installed.wrapped(who, ["sh", "-c", "env | grep -c LNK_TESTS_"]), environ=some
    )
    assert done.stdout == "1500\n"
    many = {f"LNK_TESTS_{n}": "x" for n in range(4000)}
    done = lnk.run(who, installed.wrapped(who, ["true"]), environ=many)
    assert done.returncode == 125
    assert "too many variables" in done.stderr


def test_strange_variables_arrive_as_they_are(installed, who):
    value = "a\nb\t\x01 'c' \"d\" $e"
    environ = {"LNK_TESTS_VALUE": value, "LNK_TESTS_EMPTY": "", "LNK_TESTS_BYTES": "\udcff\udcfe"}
    script = (
        "import os, sys; names = (b'LNK_TESTS_VALUE', b'LNK_TESTS_EMPTY', b'LNK_TESTS_BYTES'); "
        "sys.stdout.buffer.write(b'|'.join(os.environb[name] for name in names))"
    )
    command = installed.wrapped(who, [installed.python, "-I", "-S", "-c", script])
    done = lnk.run(who, command, environ=environ, text=False)
    assert done.stdout == value.encode() + b"||\xff\xfe"


def test_an_older_bubblewrap_mounts_what_was_looked_at(installed, who, folder, hidden_folder):
    """Without --bind-fd a folder is mounted by its path, and refused where that leads away."""
    command = installed.wrapped(who, ["touch", f"{folder}/made"], write=[folder], **PROXIED)
    plan = lnk.plan_of(command)
    words = {"--bind-fd": "--bind", "--ro-bind-fd": "--ro-bind"}
    plan["args"] = [
        one[0] if isinstance(one, list) else words.get(one, one) for one in plan["args"]
    ]
    command[4] = packing.written(plan)
    done = lnk.run(who, command)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(folder) == ["made"]
    os.rename(folder, f"{folder}-moved")
    os.symlink(hidden_folder, folder)
    done = lnk.run(who, command)
    os.unlink(folder)
    os.rename(f"{folder}-moved", folder)
    assert done.returncode == 125
    assert "leads elsewhere by a link" in done.stderr


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_closed_standard_stream_stays_nothing(installed, who, keys, folder, closed):
    """Its number must not be given to what bubblewrap is told, or to the proxy's listener."""
    script = f"import os; open({folder!r} + '/made', 'w').write(os.readlink('/proc/self/fd/%d'))"
    command = installed.wrapped(
        who, [installed.python, "-I", "-S", "-c", script % closed[0]], **{**keys, "write": [folder]}
    )

    def close() -> None:
        for fd in closed:
            os.close(fd)

    done = lnk.run(who, command, capture_output=False, preexec_fn=close)
    assert done.returncode == 0
    with open(f"{folder}/made") as file:
        assert file.read() == "/dev/null"


def test_a_proxy_that_cannot_serve_ends_all_with_a_sentence(installed, who, folder):
    command = installed.wrapped(who, ["sleep", "1000"], **PROXIED)
    plan = lnk.plan_of(command)
    plan["wire"]["log"] = "/proc/nowhere"
    command[4] = packing.written(plan)
    done = lnk.run(who, command)
    assert done.returncode == 125
    assert done.stderr.startswith("lnk sandbox: the proxy: ")


def test_no_socket_of_the_runs_is_held_inside(installed, who, folder):
    """The first process can be steered: a shutdown of it would free a project's dot files."""
    script = "readlink /proc/1/fd/* /proc/self/fd/*"
    command = installed.wrapped(who, ["sh", "-c", script], write=[folder])
    done = lnk.run(who, command)
    assert "socket:" not in done.stdout
    assert "eventfd" in done.stdout


def test_a_first_process_that_has_been_reaped_is_known_to_be_gone():
    from sandbox.linux import keeper

    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    assert keeper._opened(child) == -1
    here = keeper._opened(os.getpid())
    assert here >= 0
    os.close(here)
