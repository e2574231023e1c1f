"""`lnk sandbox check`: as a person uses it, and each probe with its wall or grant taken away."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator

import pytest

from sandbox.cli import check
from sandbox.linux import prober, tries_network
from sandbox.linux.landlock import SCOPE_ABI, abi
from sandbox.linux.values import replaced
from tests.sandbox import lnk, projects
from tests.sandbox.test_exec_mutants import changed
from tests.sandbox.test_plan import confined, planned

PTRACE = {"x86_64": 101, "aarch64": 117}[platform.machine()]
HERE = os.path.dirname(os.path.abspath(__file__))
CLOSED = {"name": "box", "write": [], "read": [], "commands": "any", "net": "closed"}
PROXY = {"upstream": "direct", "dir": "~/wire", "hosts": ["example.com"]}
PROXIED = {"proxied": {"proxy": PROXY, "ports": []}}
HOST = {"host": {"ports": [], "localhost": True}}


def checked(installed, who, confinement, *flags: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Check a confinement; return the status, and each probe with its result and why."""
    request = json.dumps({"confinement": {**CLOSED, **confinement}})
    done = installed.run(who, "check", "--policy", "--json", *flags, input=request)
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    rows = json.loads(done.stdout)
    found = {row["probe"]: (row["result"], row["why"]) for row in rows}
    assert len(found) == len(rows), "no two lines say the same"
    return done.returncode, found


def bad(found: dict[str, tuple[str, str]], *but: str) -> dict[str, tuple[str, str]]:
    """Return what is neither blocked nor allowed."""
    return {
        what: row for what, row in found.items()
        if row[0] not in ("blocked", "allowed") and what not in but
    }  # fmt: skip


def test_a_plain_check_finds_no_leak(installed, who):
    done = installed.run(who, "check")
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    notes = [line for line in lines if line.startswith("note: ")]
    lines = lines[: len(lines) - len(notes)]
    assert {line.split()[0] for line in lines} == {"blocked", "allowed"}, done.stdout
    assert last.endswith(" blocked")
    assert int(last.split()[0]) == len(lines) > 100, "as README says"
    assert os.listdir(f"{who.home}/.lnk/sandbox/placeholders") == ["lock"]
    if who.uid:
        assert objects_of(who) == []


@pytest.mark.parametrize(
    "keys", [{}, {"net": PROXIED}, {"net": HOST}], ids=["closed", "proxied", "host"]
)
def test_every_mode_holds_and_works(installed, who, folder, keys):
    code, found = checked(installed, who, {"write": [folder], **keys})
    # This machine may be one that reaches no host.
    assert not bad(found, "reach example.com through the proxy")
    assert code == 0
    assert len(found) >= 60
    names = [name for name in os.listdir(folder) if name.startswith(".lnk")]
    assert names == [], "what was tried leaves nothing"


def test_hidden_read_and_reopened_folders_hold(installed, who, folder):
    for name in ("hidden/mine", "hidden/theirs", "read", "write/deep/read"):
        os.makedirs(f"{folder}/{name}")
    subprocess.run(["chown", "-R", f"{who.uid}:{who.gid}", folder], check=True)
    keys = {
        "read": [folder, f"{folder}/write/deep/read"],
        "write": [f"{folder}/hidden/mine", f"{folder}/write"], "hide": [f"{folder}/hidden"],
        "read_home": True,
    }  # fmt: skip
    code, found = checked(installed, who, keys)
    assert (code, bad(found)) == (0, {})
    for what in (f"look into {folder}/hidden", f"move {folder}/write/deep away",
                 f"write {folder}/write/deep/read", f"write {who.home}/.lnk"):  # fmt: skip
        assert found[what][0] == "blocked", what
    assert found[f"write {folder}/hidden/mine"][0] == "allowed"


def test_dot_files_are_tried_as_they_are_and_where_they_are_written(installed, who, folder):
    for words in (["init", "-q"], ["config", "core.hooksPath", "a/b/hooks"]):
        assert lnk.run(who, ["git", *words], cwd=folder).returncode == 0
    _, found = checked(installed, who, {"write": [folder]})
    for what in (f"write {folder}/.git", f"move {folder}/.git away", f"write {folder}/.husky",
                 f"write {folder}/a/b/hooks", f"move {folder}/a/b away"):  # fmt: skip
        assert found[what][0] == "blocked", what
    code, found = checked(installed, who, {"write": [folder], "write_dot_files": [folder]})
    assert (code, bad(found)) == (0, {})
    assert found[f"write {folder}/.git"][0] == "allowed"


def test_a_socket_where_it_writes_is_a_gap_and_one_where_it_reads_is_closed(installed, who, folder):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{folder}/agent.sock")
        made.listen()
        os.chmod(f"{folder}/agent.sock", 0o777)
        what = f"connect to {folder}/agent.sock"
        assert checked(installed, who, {"write": [folder]})[1][what][0] == "open"
        assert checked(installed, who, {"read": [folder]})[1][what][0] == "blocked"
        assert checked(installed, who, {})[1][what][0] == "blocked"


@pytest.mark.skipif(abi() < SCOPE_ABI, reason="kernel: Landlock scopes came with ABI 6")
def test_abstract_sockets_are_closed_on_the_machines_network(installed, who):
    _, found = checked(installed, who, {"net": HOST})
    assert found["connect to the machine's abstract sockets"] == ("blocked", "EPERM")


def test_a_spec_is_checked_as_run_would_make_it(installed, who, folder):
    with open(f"{folder}/box.toml", "w") as file:
        file.write('[files]\nwrite = ["."]\n[internet]\nhosts = ["*.example.com"]\n')
    done = installed.run(who, "check", "--spec", f"{folder}/box.toml")
    assert done.returncode == 0, done.stdout
    assert f"allowed  write {folder}\n" in done.stdout
    assert "blocked  reach not-listed.lnk-check.example, which isn't listed" in done.stdout
    assert f"blocked  write {folder}/box.toml" in done.stdout
    assert "not tried" not in done.stdout
    with open(f"{folder}/box.toml", "a") as file:
        file.write("[models]\nlocal = [11434]\n")
    done = installed.run(who, "check", "--spec", f"{folder}/box.toml")
    assert done.returncode == 0, done.stdout
    assert "\nnot tried: its models, secrets, tools and pages\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (["--spec"], "", "--spec needs a value: write --spec FILE."),
        (["--spec", "x", "--policy"], "", "--spec and --policy are both given"),
        (["--nope"], "", "is not one of its flags"),
        (["--spec", "/nope.toml"], "", "/nope.toml: No such file or directory"),
        (["--policy"], "", "JSON"),
        (["--policy"], "[]", "isn't an object"),
        (["--policy"], "{}", "confinement: is missing"),
        (["--policy"], '{"policy": {}}', 'send {"confinement"}'),
        (["--policy"], '{"unwalled": {}}', "unwalled: has no wall to check"),
        (["--policy"], '{"confinement": {"name": "b"}}', "confinement.write: is missing"),
        (["--policy"], '{"confinement": {}, "argv": ["true"]}', "argv: unknown key"),
        (
            ["--policy"],
            json.dumps({"confinement": {**CLOSED, "net": {"proxied": {"proxy": {
                **PROXY, "hosts": ["a b"]}, "ports": []}}}}),
            "confinement.net.proxied.proxy.hosts[0]",
        ),
        (
            ["--policy"],
            json.dumps({"confinement": {**CLOSED, "net": {"proxied": {"proxy": {
                **PROXY, "hold": True}, "ports": []}}}}),
            "confinement.net.proxied.proxy.hold: makes a proxy alone, which has no wall to check",
        ),
    ],
)  # fmt: skip
def test_what_it_refuses_is_one_line(installed, who, words, stdin, said):
    done = installed.run(who, "check", *words, input=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_sandbox_that_does_not_start_is_no_check(installed, who):
    request = json.dumps({"confinement": {**CLOSED, "write": ["/nope"]}})
    done = installed.run(who, "check", "--policy", input=request)
    assert (done.returncode, done.stdout) == (125, "")
    assert "write names /nope, which does not exist: make it first" in done.stderr


def test_a_leak_is_said_and_ends_it_with_1(who, open_folder):
    """A copy of the project without its filter of calls."""
    folder = f"{open_folder}/leaks-{who.name}"
    lnk.made_anew(folder, 0o755)
    copy = lnk.install(folder)
    filtered = '            flags += ["--seccomp", str(memory(kept.filter, given))]\n'
    request = json.dumps({"confinement": CLOSED})
    with changed(copy, [("sandbox/linux/launcher.py", filtered, "")]):
        done = copy.run(who, "check", "--policy", input=request)
        assert "\nleaked   make the calls" in done.stdout, done.stdout + done.stderr
        assert " leaked" in done.stdout.splitlines()[-1]
        assert done.returncode == 1
        assert copy.run(who, "check", "--policy", "--json", input=request).returncode == 1
    assert copy.run(who, "check", "--policy", input=request).returncode == 0


def test_what_an_older_bubblewrap_holds_in_one_way_is_said():
    plan = planned(confined(write=("/work",)))
    assert check.thinner(plan) == []
    old = replaced(plan, holds_folders=False, namespaces=("--unshare-user",))
    assert [words.split()[0] for words in check.thinner(old)] == ["this", "new"]


def test_help_is_printed(installed, who):
    done = installed.run(who, "check", "--help")
    assert done.returncode == 0
    assert "Exit status 1 where something leaked" in done.stdout


# -- each probe can fail -------------------------------------------------------------------------

HELD_TWICE = {
    "write /proc/mtrr": "the kernel asks for a capability too",
    "make calls that nobody has judged": "no kernel of today has them",
    "make the calls of x32": "kernels are built without them",
    "read the outside environment in /proc/1": "without a sandbox that is the machine's first",
    "open a descriptor of /proc/1 anew": "without a sandbox that is the machine's first",
    "look a name up by itself": "the name exists nowhere",
}
"""Closed by a second wall on such a machine; `test_probes` shows that each can say leaked."""
NEEDED = {"read /usr", "run a program of the machine's"}
"""Without /usr nothing starts that could say so."""


def mutated(
    installed, who, confinement, which: str, only: list[str] | None = None
) -> dict[str, dict[str, tuple[str, str]]]:
    """Check a confinement without each of its walls or grants in turn."""
    sources = []
    for name in ("mutants.py", "checked.py"):
        with open(os.path.join(HERE, name)) as file:
            sources.append(file.read().replace("from __future__ import annotations\n", ""))
    with listening(who) as sockets:
        told = json.dumps({"confinement": {**CLOSED, **confinement}, "which": which, "only": only,
                           "sockets": sockets})  # fmt: skip
        return _mutated(installed, who, sources, told.replace('"~/', f'"{who.home}/'))


@contextlib.contextmanager
def listening(who: lnk.Account) -> Iterator[list[str]]:
    """Listen on a socket where no sandbox looks, one that anybody may connect to."""
    path = f"{who.home}/listening.sock"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)
        made.listen(64)
        os.chmod(path, 0o777)
        try:
            yield [path]
        finally:
            os.unlink(path)


def _mutated(
    installed: lnk.Installed, who: lnk.Account, sources: list[str], told: str
) -> dict[str, dict[str, tuple[str, str]]]:
    start = f"import sys\nsys.path.append({installed.folder!r})\n"
    command = [installed.python, "-I", "-S", "-c", start + "".join(sources), told]
    done = lnk.run(who, command, start_new_session=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, tuple[str, str]]] = json.loads(done.stdout)
    return found


@pytest.fixture
def whole(who, folder):
    """A confinement that has one of everything, on its network of its own."""
    for name in ("write/hidden/mine", "write/a/b/read", "read"):
        os.makedirs(f"{folder}/{name}")
    for path in (f"{folder}/write/.envrc", f"{folder}/write/hidden/key", f"{who.home}/something"):
        with open(path, "w") as file:
            file.write("x")
    subprocess.run(["chown", "-R", f"{who.uid}:{who.gid}", folder], check=True)
    made = socket.socket(socket.AF_UNIX)
    made.bind(f"{folder}/read/agent.sock")
    made.listen()
    os.chmod(f"{folder}/read/agent.sock", 0o777)
    yield {
        "write": [f"{folder}/write", f"{folder}/write/hidden/mine"],
        "read": [f"{folder}/read", f"{folder}/write/a/b/read"],
        "hide": [f"{folder}/write/hidden"], "net": PROXIED,
    }  # fmt: skip
    made.close()
    os.unlink(f"{who.home}/something")


@pytest.mark.timeout(600)
def test_each_probe_says_leaked_without_its_wall(installed, who, whole):
    found = mutated(installed, who, whole, "walls")
    probes = found.pop("all")
    results = {what: row for rows in found.values() for what, row in rows.items()}
    closed = [what for what, (due, _) in probes.items() if due == "closed"]
    assert len(closed) > 60
    wrong = {
        what: results.get(what)
        for what in closed
        if results.get(what, [""])[0] != "leaked" and what not in HELD_TWICE
    }
    if who.uid != 0:
        # The machine's own permissions hold what a sandbox run by root would do, and
        # bubblewrap gives an ordinary user's a user namespace whatever its flags.
        wrong.pop("share the machine's user namespace")
        wrong = {what: row for what, row in wrong.items() if row[1] not in ("EACCES", "EPERM")}
    assert not wrong


@pytest.mark.timeout(600)
def test_each_probe_says_missed_without_its_grant(installed, who, whole):
    found = mutated(installed, who, whole, "grants")
    probes = found.pop("all")
    results = {what: row for rows in found.values() for what, row in rows.items()}
    granted = [what for what, (due, _) in probes.items() if due == "granted"]
    wrong = {
        what: results.get(what)
        for what in granted
        if results.get(what, [""])[0] != "missed" and what not in NEEDED
    }
    assert not wrong


@pytest.mark.skipif(abi() < SCOPE_ABI, reason="kernel: Landlock scopes came with ABI 6")
def test_on_the_machines_network_too(installed, who):
    found = mutated(installed, who, {"net": HOST}, "walls", ["scope"])
    assert [row[0] for row in found["scope"].values()] == ["leaked"]
    found = mutated(installed, who, {"net": HOST}, "grants", ["network"])
    assert [row[0] for row in found["network"].values()] == ["missed"]


LISTED = {"commands": {"only": ["/bin/sh", "/usr/bin/git"]}}


def test_a_list_of_programs_holds_and_its_gaps_are_said(installed, who, folder):
    code, found = checked(installed, who, {"write": [folder], **LISTED})
    gaps = {what for what, (word, _) in found.items() if word == "open"}
    assert not bad(found, *gaps)
    assert code == 0
    assert any("ld.so FILE" in what for what in gaps)
    assert any("LD_PRELOAD" in what for what in gaps)
    assert found["run /usr/bin/true, which isn't listed"] == ("blocked", "EACCES")
    request = json.dumps({"confinement": {**CLOSED, **LISTED}})
    done = installed.run(who, "check", "--policy", input=request)
    assert f"counts as listed for the check alone: {installed.python}" in done.stdout


@pytest.mark.skipif(abi() < SCOPE_ABI, reason="kernel: Landlock scopes came with ABI 6")
def test_a_list_on_the_machines_network_holds_both_in_one_ruleset(installed, who, folder):
    """A second ruleset beside it would refuse each rename across folders."""
    code, found = checked(installed, who, {"write": [folder], "net": HOST, **LISTED})
    assert code == 0
    assert {row[0] for row in bad(found).values()} == {"open"}
    assert found["connect to the machine's abstract sockets"] == ("blocked", "EPERM")
    assert found["rename a file into another folder"] == ("allowed", "")


def test_without_the_list_its_probes_say_leaked_and_with_an_empty_one_missed(
    installed, who, folder
):
    for which, word in (("walls", "leaked"), ("grants", "missed")):
        found = mutated(installed, who, {"write": [folder], **LISTED}, which, ["commands"])
        assert len(found["commands"]) >= 2
        assert {row[0] for row in found["commands"].values()} == {word}, found["commands"]


EVERYTHING = {"proxied": {"ports": [5999], "proxy": {
    **PROXY, "dir": "/srv/wire", "tcp": ["db.example.com:5432"], "serve": [31999], "per_minute": 1,
    "upstream": "http://somebody:password@127.0.0.1:9", "caller": "c" * 32,
    "routes": [{"kind": "local", "port": 11434}],
}}}  # fmt: skip


def test_all_that_a_wire_opens_is_tried_apart_from_the_sandboxes_own(installed, who):
    request = json.dumps({"confinement": {**CLOSED, "net": EVERYTHING}})
    done = installed.run(who, "check", "--policy", input=request)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for line in ("allowed  reach an endpoint at 127.53.", "allowed  look db.example.com up",
                 "allowed  reach this machine's port at 127.0.0.1 5999",
                 "allowed  serve at port 31999",
                 "failed   reach example.com through the proxy  (502)",
                 "not tried: the route local"):  # fmt: skip
        assert f"\n{line}" in done.stdout, done.stdout
    assert "\nleaked" not in done.stdout
    assert "\nmissed" not in done.stdout
    state = f"{who.home}/.lnk/sandbox"
    left = [os.path.join(above, n) for above, d, f in os.walk(state) for n in (*d, *f)]
    assert not [path for path in left if "check-" in path], "not even a pause or its login"


def test_this_machines_ports_without_a_proxy_are_tried(installed, who):
    net = {"loopback": {"ports": [5999], "dir": f"{who.home}/sockets"}}
    code, found = checked(installed, who, {"net": net})
    assert (code, bad(found)) == (0, {})
    assert found["reach this machine's port at 127.0.0.1 5999"] == ("allowed", "")
    assert "connect to its proxy" not in found
    gone = mutated(installed, who, {"net": net}, "grants", ["inside"])
    assert {row[0] for row in gone["inside"].values()} == {"missed"}


def test_a_sandbox_that_reaches_proxies_is_tried_apart_from_them(installed, who, folder):
    wire = f"{folder}/wire"
    os.mkdir(wire, 0o700)
    os.chown(wire, who.uid, who.gid)
    net = {"reaching": {"reached": [{"dir": wire, "port": 8080}], "ports": [5999]}}
    os.mkfifo(f"{wire}/in.sock")  # what a running one's would be: left alone
    code, found = checked(installed, who, {"net": net})
    assert (code, bad(found)) == (0, {})
    assert found["connect to the proxy at port 8080"] == ("allowed", "")
    assert found["reach this machine's port at 127.0.0.1 5999"] == ("allowed", "")
    assert os.listdir(wire) == ["in.sock"]
    assert stat.S_ISFIFO(os.lstat(f"{wire}/in.sock").st_mode)
    os.unlink(f"{wire}/in.sock")
    gone = mutated(installed, who, {"net": net}, "grants", ["reached"])
    assert gone["reached"]["connect to the proxy at port 8080"][0] == "missed"


def test_a_terminal_that_is_kept_is_no_leak(installed, who):
    code, found = checked(installed, who, {"terminal": True})
    assert (code, bad(found)) == (0, {})
    assert "be in the session it was started in" not in found


FORGERS = [
    ["writes", "/proc/2/fd/1"], ["reads", "/proc/2/fd/1"], ["reads", "/proc/2/mem"],
    ["writes", "/proc/2/mem"], ["reads", "/proc/2/environ"], ["reads", "/proc/2/root/etc/hosts"],
    ["calls", PTRACE, 16, 2, 0, 0], ["calls", PTRACE, 0x4206, 2, 0, 0],
]  # fmt: skip
"""To open its socket anew, to write its memory, to trace it."""


def test_no_try_can_forge_what_is_told(installed, who):
    """The prober is process 2; what a try would have to open or trace is closed to it."""
    argv = prober.command(installed.python)
    ours, its = socket.socketpair()
    with ours, its:
        command = installed.wrapped(who, argv)
        done = subprocess.run(
            command, input=json.dumps([[one] for one in FORGERS]).encode(), stdout=its.fileno(),
            env=who.environ, cwd="/", timeout=lnk.LONG_S, check=False, stderr=subprocess.PIPE,
            **lnk.identity(who),
        )  # fmt: skip
        its.close()
        told = b""
        while data := ours.recv(1 << 16):
            told += data
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in told.splitlines()]
    assert len(answers) == len(FORGERS)
    for number, (answer,) in answers:
        assert answer in ("EACCES", "EPERM", "ENXIO"), (FORGERS[number], answer)


def test_a_check_that_is_ended_leaves_no_canaries(installed, ordinary):
    command = installed.argv("check")
    for seconds, number in ((0.2, 15), (0.4, 1), (0.6, 15), (0.8, 1), (1.2, 1)):
        process = lnk.popen(ordinary, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.send_signal(number)
        said, _ = process.communicate(timeout=lnk.LONG_S)
        assert process.returncode in (0, 128 + number, -number), said
    assert objects_of(ordinary) == []


def objects_of(who: lnk.Account) -> list[str]:
    """Return what of theirs is in /dev/shm, in the temp folder and among System V objects."""
    paths = [f"{folder}/{name}" for folder in ("/dev/shm", "/tmp") for name in os.listdir(folder)
             if name.startswith("lnk-check-")]  # fmt: skip
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            found += [path] * (os.stat(path).st_uid == who.uid)
    for name, column in (("shm", 7), ("sem", 4), ("msg", 7)):
        with open(f"/proc/sysvipc/{name}") as file:
            found += [line for line in file.readlines()[1:] if line.split()[column] == str(who.uid)]
    return found


def any_confinement(chance: random.Random, folder: str, wire: str) -> dict[str, object]:
    """Return a confinement by chance, of folders in one another; none is hidden that is named."""
    folders = [f"{folder}/{name}" for name in ("a", "a/b", "a/b/c", "d", "d/e", "d/e/f", "g")]

    def some(most: int) -> list[str]:
        return chance.sample(folders, chance.randint(0, most))

    write, read = some(3), some(3)
    proxy = {"upstream": "direct", "dir": wire, "hosts": chance.choice([[], ["*.lnk-check.test"]])}
    nets = ["closed", HOST, {"proxied": {"proxy": proxy, "ports": chance.choice([[], [5999]])}}]
    return {
        "write": write, "read": read, "hide": [p for p in some(2) if p not in (*write, *read)],
        "write_dot_files": [path for path in write if chance.random() < 0.3],
        "commands": chance.choice(["any", {"only": ["/bin/sh"]}]),
        "terminal": chance.random() < 0.3, "net": chance.choice(nets),
    }  # fmt: skip


def test_confinements_by_chance_hold_and_work(installed, who, folder, pytestconfig):
    """A few in each run, and many in the reviewers' long one; the seed is printed."""
    is_long = pytestconfig.getoption("--hypothesis-profile") == "fuzz"
    for name in ("a/b/c", "d/e/f", "g", "a/.git", "d/.git/hooks"):
        os.makedirs(f"{folder}/{name}")
    subprocess.run(["chown", "-R", f"{who.uid}:{who.gid}", folder], check=True)
    for _ in range(60 if is_long else 4):
        seed = random.randrange(1 << 32)
        keys = any_confinement(random.Random(seed), folder, f"{who.home}/wire")
        print("seed", seed, json.dumps(keys))
        code, found = checked(installed, who, keys)
        assert code == 0
        assert {row[0] for row in bad(found).values()} <= {"open"}, bad(found)


def test_a_name_that_others_chose_stays_on_its_line(installed, who, folder, tmp_path):
    """A submodule's path comes with the repository, and could hide what leaked."""
    name = "s\x1b[31m\nblocked  all"
    made = str(tmp_path / "made")
    os.makedirs(f"{made}/{name}")
    projects.git_alone(made, "init", "-q")
    added = ("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{name}")
    projects.git_alone(made, *added)
    shutil.copytree(made, folder, dirs_exist_ok=True)
    for above, folders, files in os.walk(folder):
        for one in ("", *folders, *files):
            os.chown(f"{above}/{one}", who.uid, who.gid)
    request = {"name": "box", "write": [folder], "read": [], "commands": "any", "net": "closed"}
    done = installed.run(who, "check", "--policy", input=json.dumps({"confinement": request}))
    assert f"move {folder}/s\\x1b[31m\\nblocked  all/.git away" in done.stdout, done.stderr
    assert "\x1b" not in done.stdout


def test_a_socket_whose_path_has_an_at_sign_is_connected_to(tmp_path):
    """Else it would be blocked by another path's being none, mask or no mask."""
    path = str(tmp_path / "me@host:22")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)
        made.listen()
        assert tries_network.connects_unix(path) is None
    abstract = f"lnk-test-{os.getpid()}@x"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"\0{abstract}")
        made.listen()
        assert tries_network.connects_unix(f"@{abstract}") is None
