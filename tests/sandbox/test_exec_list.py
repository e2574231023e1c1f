"""`[commands] only` for real: what is listed runs, what isn't is refused and named."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys

import pytest

from tests.sandbox import lnk
from tests.sandbox.terminal import Terminal
from tests.sandbox.test_launcher import alive, family, parent_of, states, wait_for

SH = ["/bin/sh", "/usr/bin/true"]


def ran(
    installed: lnk.Installed, who: lnk.Account, argv: list[str], only: list[str], **keys: object
) -> subprocess.CompletedProcess[str]:
    """Run a program in a sandbox in which these programs may run."""
    more = {name: keys.pop(name) for name in ("environ", "input", "cwd") if name in keys}
    return lnk.run(who, installed.wrapped(who, argv, commands={"only": only}, **keys), **more)


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what was named, in order; a shell's own words may stand in the same line."""
    return re.findall(r"lnk sandbox: \S+ isn't in \[commands\] only: add \"(.*)\" to", done.stderr)


def refusal(installed: lnk.Installed, who: lnk.Account, only: list[str], **keys: object) -> str:
    """Return the sentence with which a list is refused."""
    confinement = {"name": "box", "write": [], "read": [], "net": "closed",
                   "commands": {"only": only}, **keys}  # fmt: skip
    request = json.dumps({"confinement": confinement, "argv": ["true"]})
    done = installed.run(who, "wrap", input=request)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("lnk sandbox: [commands] only names ")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("lnk sandbox: [commands] only names ").rstrip()


def script(folder: str, name: str, text: str, who: lnk.Account) -> str:
    path = f"{folder}/{name}"
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)
    os.chown(path, who.uid, who.gid)
    return path


@pytest.mark.parametrize("code", [0, 3, 125, 126, 127, 255])
def test_it_ends_with_the_programs_status(installed, who, code):
    done = ran(installed, who, ["sh", "-c", f"exit {code}"], SH)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("KILL", 137), ("SEGV", 139)])
def test_a_program_killed_by_a_signal_is_128_and_the_signal(installed, who, name, code):
    done = ran(installed, who, ["sh", "-c", f"kill -{name} $$"], SH)
    assert done.returncode == code


def test_what_is_not_listed_is_refused_and_named_once(installed, who):
    script_ = "true && echo one; id || echo no; id || echo no; /bin/ls || echo no; exec whoami"
    done = ran(installed, who, ["sh", "-c", script_], SH)
    assert done.returncode == 126
    assert done.stdout.splitlines() == ["one", "no", "no", "no"]
    assert told(done) == ["/usr/bin/id", "/bin/ls", "/usr/bin/whoami"]
    assert 'id isn\'t in [commands] only: add "/usr/bin/id" to let it run.\n' in done.stderr


def test_the_program_itself_must_be_listed(installed, who):
    done = ran(installed, who, ["id"], SH)
    assert (done.returncode, done.stdout) == (126, "")
    assert done.stderr == (
        'lnk sandbox: id isn\'t in [commands] only: add "/usr/bin/id" to let it run.\n'
    )


def test_a_link_is_listed_as_what_it_leads_to(installed, who):
    done = ran(installed, who, ["/usr/bin/python3", "-c", "print(6 * 7)"], ["/usr/bin/python3"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


def test_an_ordinary_program_sees_what_it_saw_without_a_list(installed, who):
    """The stage before it adds nothing: environment, arguments, descriptors, signals, folder."""
    code = """
import os, sys
keep = ("SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "CapEff", "CapBnd", "Seccomp:")
with open("/proc/self/status") as file:
    status = [line for line in file if line.startswith(keep)]
print(sorted(os.environb.items()), sys.argv, len(os.listdir("/proc/self/fd")), os.getcwd(),
      os.umask(0), status, os.getpgrp() == 1, os.getsid(0))
"""
    argv = ["/usr/bin/python3", "-I", "-S", "-X", "utf8=0", "-c", code, "a b", "", "ü"]
    environ = {"LANG": "C", "EMPTY": "", "ODD": "a=b\nc", "LD_PRELOAD": "/nowhere.so"}
    without = lnk.run(who, installed.wrapped(who, argv), environ=environ)
    within = ran(installed, who, argv, ["/usr/bin/python3"], environ=environ)
    assert without.returncode == 0, without.stderr
    assert within.stdout == without.stdout


def test_a_script_brings_its_interpreter(installed, who, folder):
    path = script(folder, "tool", "#!/usr/bin/env -S sh -e\ntrue; echo ran $1; id\n", who)
    done = ran(installed, who, [path, "well"], [path, "/usr/bin/true"], read=[folder])
    assert done.stdout == "ran well\n"
    assert 'id isn\'t in [commands] only: add "/usr/bin/id"' in done.stderr


@pytest.mark.parametrize("kind", ["itself", "its interpreter"])
def test_a_link_that_the_sandbox_could_lead_elsewhere_lists_nothing(installed, who, folder, kind):
    """Led to a shell, it would list that at the next start."""
    os.mkdir(f"{folder}/work")
    os.chown(f"{folder}/work", who.uid, who.gid)
    os.symlink("/usr/bin/true", f"{folder}/work/link")
    named = f"{folder}/work/link"
    if kind == "its interpreter":
        named = script(folder, "tool", f"#!{folder}/work/link\n", who)
    keys = {"write": [f"{folder}/work"], "read": [f"{folder}/tool"] * (kind != "itself")}
    cure = f"; name {os.path.realpath(named)} instead" if kind == "itself" else ""
    assert refusal(installed, who, [named], **keys) == (
        f"{named}, which is reached by way of {folder}/work, which the sandbox writes: it could "
        f"lead to any other program the next time{cure}."
    )
    done = ran(installed, who, [named], [named], read=[folder])
    assert done.returncode == 0, done.stderr


def test_a_chain_of_interpreters_is_followed(installed, who, folder):
    first = script(folder, "first", "#!/bin/sh\nshift; echo through first: $*\n", who)
    second = script(folder, "second", f"#!{first}\n", who)
    done = ran(installed, who, [second, "x"], [second], read=[folder])
    assert (done.returncode, done.stdout) == (0, "through first: x\n"), done.stderr


def test_a_program_that_cannot_be_listed_is_refused_by_name(installed, who, folder):
    tool = script(folder, "tool", "#!/bin/sh\n", who)
    plain = script(folder, "plain", "text", who)
    os.chmod(plain, 0o644)
    lost = script(folder, "lost", "#!/no/such/interpreter\n", who)
    by_env = script(folder, "by-env", "#!/usr/bin/env no-such-program\n", who)
    by_tool = script(folder, "by-tool", f"#!{tool}\n", who)
    shown = {"read": [folder]}
    assert refusal(installed, who, ["/usr/bin/no-such-program"]) == (
        "/usr/bin/no-such-program, which does not exist."
    )
    assert refusal(installed, who, ["/usr/bin"]) == "/usr/bin, which is a folder."
    assert refusal(installed, who, [plain], **shown) == (
        f"{plain}, which can't be run: it isn't marked as a program."
    )
    assert refusal(installed, who, [lost], **shown) == (
        f"{lost}, which is a script for /no/such/interpreter, which does not exist."
    )
    assert refusal(installed, who, [by_env], **shown) == (
        f"{by_env}, which is a script for no-such-program, which does not exist."
    )
    assert refusal(installed, who, [tool]) == (
        f"{tool}, which isn't shown in the sandbox: name it in read too."
    )
    assert refusal(installed, who, [by_tool], read=[by_tool]) == (
        f"{by_tool}, which needs {tool}, which isn't shown in the sandbox: name it in read too."
    )


def test_no_program_is_listed_that_the_sandbox_could_replace(installed, who, folder):
    tool = script(folder, "tool", "#!/bin/sh\n", who)
    link = f"{who.home}/a-link"
    os.symlink(tool, link)
    os.mkdir(f"{folder}/inner")
    by_tool = script(f"{folder}/inner", "by-tool", f"#!{tool}\n", who)
    cure = "which the sandbox writes: it could put any program in its place."
    try:
        assert refusal(installed, who, [tool], write=[folder]) == (
            f"{tool}, which lies in {folder}, {cure}"
        )
        assert refusal(installed, who, [link], write=[folder], read=[]) == (
            f"{link}, which lies in {folder}, which the sandbox writes (it leads to {tool}): "
            "it could put any program in its place."
        )
    finally:
        os.unlink(link)
    # The script itself is read only there, its interpreter isn't.
    keys = {"write": [folder], "read": [f"{folder}/inner"]}
    assert refusal(installed, who, [by_tool], **keys) == (
        f"{by_tool}, which needs {tool}, which lies in {folder}, {cure}"
    )
    done = ran(installed, who, [f"{folder}/inner/by-tool"], ["/bin/sh"], **keys)
    assert done.returncode == 126


def test_a_program_without_a_loader_runs(installed, who, folder):
    source, path = f"{folder}/static.c", f"{folder}/static"
    with open(source, "w") as file:
        file.write("int main(void) { return 7; }\n")
    subprocess.run(["gcc", "-static", "-o", path, source], check=True, timeout=lnk.LONG_S)
    os.chmod(path, 0o755)
    assert ran(installed, who, [path], [path], read=[folder]).returncode == 7


def test_a_program_that_may_be_run_and_not_read_runs(installed, who, folder):
    path = f"{folder}/unread"
    shutil.copy("/usr/bin/true", path)
    os.chmod(path, 0o111)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o111
    done = ran(installed, who, [path], [path], read=[folder])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_listed_program_that_is_gone_since_is_only_gone(installed, who, folder):
    path = script(folder, "tool", "#!/bin/sh\n", who)
    command = installed.wrapped(
        who, ["sh", "-c", "echo here; exec " + path], read=[folder],
        commands={"only": [path, "/bin/sh"]},
    )  # fmt: skip
    os.unlink(path)
    done = lnk.run(who, command)
    assert done.stdout == "here\n"
    assert done.returncode == 127


def test_the_refused_are_on_the_log(installed, who):
    ran(installed, who, ["sh", "-c", "id; ls"], SH, name="logged")
    lines = []
    with open(f"{who.home}/.lnk/sandbox/log/logged.jsonl") as file:
        lines = [json.loads(line) for line in file]
    assert [line["verdict"] for line in lines] == ["refused", "refused"]
    assert [line["verb"] for line in lines] == ["exec", "exec"]
    assert lines[0]["reason"].startswith("id isn't in [commands] only")
    assert stat.S_IMODE(os.stat(f"{who.home}/.lnk/sandbox/log/logged.jsonl").st_mode) == 0o600


def test_orphans_are_reaped(installed, who):
    """The first process is the watch: whoever loses its parent becomes its child."""
    code = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
until = time.monotonic() + 60
while len(left := [n for n in os.listdir('/proc') if n.isdigit()]) > 2:
    assert time.monotonic() < until, left
print(left)
"""
    done = ran(installed, who, ["/usr/bin/python3", "-c", code], ["/usr/bin/python3"])
    assert len(json.loads(done.stdout.replace("'", '"'))) == 2, done.stderr


def test_what_the_program_left_running_ends_with_it(installed, who):
    done = ran(installed, who, ["sh", "-c", "sleep 1000 & echo ready"],
               ["/bin/sh", "/usr/bin/sleep"])  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ready\n")


def proxied(who: lnk.Account) -> dict[str, object]:
    proxy = {"upstream": "direct", "dir": f"{who.home}/wire", "hosts": []}
    return {"net": {"proxied": {"proxy": proxy, "ports": []}}}


def test_a_list_and_a_proxy_go_together(installed, who):
    code = (
        "import urllib.request, urllib.error\n"
        "try: urllib.request.urlopen('http://example.org/')\n"
        "except urllib.error.HTTPError as error: print(error.code)"
    )
    made = installed.wrap(who, ["python3", "-c", code],
                          commands={"only": ["/usr/bin/python3"]}, **proxied(who))  # fmt: skip
    done = lnk.run(who, made["argv"], environ=made["env"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "403\n", "")


@pytest.mark.parametrize("has_proxy", [False, True], ids=["closed", "proxied"])
def test_the_watchs_end_is_the_sandboxs(installed, who, has_proxy):
    """Killed from outside: from inside nothing can."""
    net = proxied(who) if has_proxy else {}
    only = {"only": ["/bin/sh", "/usr/bin/sleep"]}
    command = installed.wrapped(
        who,
        ["sh", "-c", "(while :; do sleep 0.2; done) & echo ready; read x"],
        commands=only,
        **net,
    )
    with lnk.popen(who, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        # A listing of children leaves some out while others end.
        wait_for(lambda: first_process(process.pid) != 0 or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        everything = family(process.pid)
        os.kill(first_process(process.pid), signal.SIGKILL)
        wait_for(lambda: not alive(everything))
        process.wait(lnk.LONG_S)


def first_process(launcher: int) -> int:
    """Return the sandbox's pid 1, which is bubblewrap's child; 0 where it wasn't seen."""
    everything = family(launcher)
    for pid in everything:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if everything.get(parent_of(pid)) == "bwrap":
                return pid
    return 0


def is_stopped(process):
    """Tell whether a launcher is stopped; one that has ended instead says why."""
    assert process.poll() is None, process.stderr.read()
    return states(process.pid) == "T"


def test_a_stopped_sandbox_goes_on_where_it_was(installed, who):
    """The watch stops with it, in the middle of a call or not, and answers afterwards."""
    script = "while :; do /usr/bin/true && echo tick; done"
    command = installed.wrapped(who, ["sh", "-c", script],
                                commands={"only": ["/bin/sh", "/usr/bin/true"]})  # fmt: skip
    with lnk.popen(who, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for _ in range(5):
            assert process.stdout.readline() == "tick\n"
            process.send_signal(signal.SIGTSTP)
            wait_for(lambda: is_stopped(process))
            process.send_signal(signal.SIGCONT)
            for _ in range(20):
                assert process.stdout.readline() == "tick\n"
        process.kill()


def test_an_interpreter_in_a_home_that_is_closed_runs_the_stage(installed, ordinary):
    """A version manager's Python: its folder isn't shown, but what the stage needs of it is."""
    prefix = f"{ordinary.home}/.versions/python"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = os.path.dirname(os.__file__)
    large = shutil.ignore_patterns("test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3",
                                   "pydoc_data", "config-*")  # fmt: skip
    shutil.rmtree(f"{ordinary.home}/.versions", ignore_errors=True)
    shutil.copytree(library, f"{prefix}/lib/{version}", symlinks=True, ignore=large)
    os.mkdir(f"{prefix}/bin")
    python = f"{prefix}/bin/{version}"
    shutil.copy(os.path.realpath(installed.python), python)
    subprocess.run(["chown", "-R", f"{ordinary.uid}:{ordinary.gid}", f"{ordinary.home}/.versions"],
                   check=True, timeout=lnk.LONG_S)  # fmt: skip
    theirs = lnk.Installed(python, installed.folder, installed.entry)
    for keys in ({}, {"read_home": True, "hide": [f"{ordinary.home}/.versions"]}):
        done = ran(theirs, ordinary, ["sh", "-c", "true; ls"], SH, **keys)
        assert told(done) == ["/usr/bin/ls"], done.stderr
        made = theirs.wrapped(ordinary, ["true"], commands={"only": SH}, **keys)
        assert made[0] == python, "it is the one that runs inside too"
    shutil.rmtree(f"{ordinary.home}/.versions")


def test_a_terminals_interrupt_reaches_the_programs_whole_group(installed, who):
    """In a session of its own, too, and neither the watch nor bubblewrap ends by it."""
    script = (
        "trap 'echo parent' INT; sh -c 'trap \"echo child; exit\" INT; echo up; "
        "while :; do sleep 0.05; done'; echo last"
    )
    only = {"only": ["/bin/sh", "/usr/bin/sleep"]}
    with Terminal(who, installed.wrapped(who, ["sh", "-c", script], commands=only)) as terminal:
        terminal.read_until("up")
        terminal.type("\x03")
        said = terminal.read_until("last")
        assert (said.count("child"), said.count("parent")) == (1, 1)
        assert terminal.wait() == 0


def test_a_list_holds_on_the_machines_network_as_well(installed, who):
    """There the launcher is in a domain of its own already, for abstract sockets."""
    done = ran(installed, who, ["sh", "-c", "true; id"], SH,
               net={"host": {"ports": [], "localhost": True}})  # fmt: skip
    assert told(done) == ["/usr/bin/id"]


def test_a_folder_in_a_listed_files_place_opens_nothing(installed, who, folder):
    """A rule for a folder would be one for all that lies in it."""
    path = script(folder, "tool", "#!/bin/sh\n", who)
    command = installed.wrapped(
        who, ["sh", "-c", f"{path}/inner"], read=[folder], commands={"only": [path, "/bin/sh"]}
    )
    os.unlink(path)
    os.mkdir(path)
    shutil.copy("/usr/bin/true", f"{path}/inner")
    done = lnk.run(who, command)
    assert done.returncode == 126
    assert told(done) == [f"{path}/inner"]


@pytest.mark.parametrize(
    "keys",
    [{}, {"terminal": True}, {"commands": {"only": ["/bin/sh"]}}],
    ids=["plain", "kept", "listed"],
)
def test_a_script_without_an_interpreter_is_the_shells(installed, who, folder, keys):
    path = script(folder, "bare", "echo $1\n", who)
    if "commands" in keys:
        keys = {"commands": {"only": [path, "/bin/sh"]}}
    done = lnk.run(who, installed.wrapped(who, [path, "ran"], read=[folder], **keys),
                   start_new_session=True)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_words_arrive_byte_for_byte_whatever_the_locale(installed, who, folder):
    """Not every byte comes through a reading by the locale's letters and a writing by them."""
    odd = bytes(range(1, 256))
    code = "import sys, os; sys.stdout.buffer.write(b'|'.join(map(os.fsencode, sys.argv[1:])))"
    command = installed.wrapped(who, ["/usr/bin/python3", "-X", "utf8", "-c", code],
                                commands={"only": ["/usr/bin/python3"]})  # fmt: skip
    words = [*map(os.fsencode, command), odd, b"", "ü".encode("latin-1")]
    for locale in ("C", "C.UTF-8", "POSIX", "en_US.ISO-8859-1"):
        done = subprocess.run(words, env={**who.environ, "LANG": locale}, capture_output=True,
                              timeout=lnk.LONG_S, cwd=who.home, **lnk.identity(who))  # fmt: skip
        assert done.stdout == b"|".join(words[-3:]), done.stderr
