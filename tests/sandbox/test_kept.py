"""A kept command: run later, from anywhere, by anybody's service, steered by nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.sandbox import lnk

HOSTILE = ("proto", "json", "encodings", "sandbox", "shells", "msgspec", "uvloop", "_json", "os",
           "posix", "sitecustomize", "usercustomize", "asyncio", "socket", "trio")  # fmt: skip
PROXIED = {
    "net": {"proxied": {"proxy": {"upstream": "direct", "dir": "~/wire", "hosts": []},
                        "ports": []}},
}  # fmt: skip

MODULE = """\
import posix
with open({mark!r}, "a") as file:
    file.write("{name} in " + posix.readlink("/proc/self/ns/pid") + "\\n")
"""
PRELOAD = """\
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) void sprung(void) {
    char space[99] = "";
    FILE *file = fopen("MARK", "a");
    readlink("/proc/self/ns/pid", space, 98);
    if (file) { fprintf(file, "preload in %s\\n", space); fclose(file); }
}
"""


def wrapped(installed, who, argv, **keys) -> tuple[list[str], dict[str, str]]:
    made = installed.wrap(who, argv, **keys)
    return made["argv"], made["env"]


def test_a_refusal_names_the_request_s_key_and_no_flag(installed, who):
    argv, env = wrapped(installed, who, ["/usr/bin/curl", "-sS", "http://evil.test/"], **PROXIED)
    done = lnk.run(who, argv, environ=env)
    assert 'add "evil.test" to proxy.hosts.' in done.stdout, done.stderr
    assert "--" not in done.stdout


def test_it_carries_its_plan_and_no_descriptor(installed, who):
    argv, _ = wrapped(installed, who, ["true", "--", "x"], **PROXIED)
    assert argv[:3] == [installed.python, "-I", "-S"]
    assert argv[3] == f"{installed.folder}/sandbox/cli/kept_start.py"
    assert argv[5:] == ["--", "true", "--", "x"]
    assert all(isinstance(word, str) and "/proc/self/fd" not in word for word in argv)


def test_it_runs_from_another_folder_with_nothing_but_its_own_environment(installed, who, folder):
    script = 'echo "$HTTPS_PROXY"; echo "$HOME"; pwd; echo x > "$0/made"'
    argv, env = wrapped(installed, who, ["sh", "-c", script, folder], write=[folder], **PROXIED)
    done = subprocess.run(
        argv,
        env=env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=lnk.LONG_S,
        **lnk.identity(who),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [env["HTTPS_PROXY"], "", "/"]
    assert os.path.exists(f"{folder}/made")


def test_no_program_starts_beside_a_proxy_whose_folder_is_open_to_others(installed, ordinary):
    wire = f"{ordinary.home}/open-wire"
    proxy = {"upstream": "direct", "dir": wire, "hosts": []}
    confinement = {"name": "box", "write": [], "read": [], "commands": "any",
                   "net": {"proxied": {"proxy": proxy, "ports": []}}}  # fmt: skip
    asked = json.dumps({"confinement": confinement, "argv": ["echo", "ran"]})
    command = json.loads(installed.run(ordinary, "wrap", input=asked).stdout)["argv"]
    lnk.made_anew(wire)
    os.chown(wire, ordinary.uid, ordinary.gid)
    said = f"lnk sandbox: the proxy's dir: {wire} is open to others: run chmod 700 on it.\n"
    for mode, code, out, err in ((0o755, 125, "", said), (0o700, 0, "ran\n", "")):
        os.chmod(wire, mode)
        done = lnk.run(ordinary, command)
        assert (done.returncode, done.stdout, done.stderr) == (code, out, err)
        made = installed.run(ordinary, "wrap", input=asked)
        assert (made.returncode, made.stderr) == (code, err)
        assert (made.stdout == "") == (code != 0)
    os.rmdir(wire)
    os.symlink("/tmp", wire)
    done = lnk.run(ordinary, command)
    assert (done.returncode, done.stdout) == (125, "")
    assert "isn't a folder, or is a link to one" in done.stderr
    os.unlink(wire)


def with_a_route(name: str = "box", caller: str = "caller-key-0123456789", **keys) -> dict:
    proxy = {"upstream": "direct", "dir": "~/wire", "hosts": [], "caller": caller,
             "routes": [{"kind": "local", "port": 11434}], **keys}  # fmt: skip
    return {"name": name, "net": {"proxied": {"proxy": proxy, "ports": []}}}


CALLED = ["/bin/sh", "-c", "curl -s -o /dev/null -w '%{http_code}' $LNK_LOCAL_MODEL_11434/api/pull"]
"""Told apart from an address that isn't its own (404): refused by the route (403)."""


def test_it_holds_after_another_wrap_of_its_name(installed, who):
    """What each has, for they are called by the same proxy: the secret in their routes' URLs."""
    argv, env = wrapped(installed, who, CALLED, **with_a_route())
    _, later = wrapped(installed, who, ["true"], **with_a_route())
    _, other = wrapped(installed, who, ["true"], **with_a_route("other"))
    assert lnk.run(who, argv, environ=env).stdout == "403"
    assert later["LNK_LOCAL_MODEL_11434"] == env["LNK_LOCAL_MODEL_11434"]
    assert other["LNK_LOCAL_MODEL_11434"] != env["LNK_LOCAL_MODEL_11434"]
    for damaged in ("", "short", "not/letters/and/digits", "x" * 65):
        with open(f"{who.home}/.lnk/sandbox/box.url-secret", "w") as file:
            file.write(damaged)
        _, made = wrapped(installed, who, ["true"], **with_a_route())
        assert made["LNK_LOCAL_MODEL_11434"] != env["LNK_LOCAL_MODEL_11434"]


def test_it_does_not_start_with_the_routes_of_another_caller(installed, ordinary):
    proxy = with_a_route()["net"]["proxied"]["proxy"]
    asked = {"unwalled": {"name": "box", "proxy": {**proxy, "dir": "/unread"}, "pointed": False}}
    said = json.dumps({**asked, "argv": ["echo", "ran"]})
    unwalled = json.loads(installed.run(ordinary, "wrap", input=said).stdout)["argv"]
    argv, env = wrapped(installed, ordinary, ["echo", "ran"], **with_a_route())
    for caller in ("another-caller-of-its-routes-0123", "caller-key-01234"):
        wrapped(installed, ordinary, ["true"], **with_a_route(caller=caller))
        for command in (argv, unwalled):
            done = lnk.run(ordinary, command, environ=env)
            assert (done.returncode, done.stdout) == (125, ""), done.stderr
            assert "is another caller's by now; make the command anew with wrap." in done.stderr
            assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}])
@pytest.mark.parametrize("kind", ["kept", "unwalled", "run"])
def test_the_interpreter_adds_no_variable_of_its_own(installed, ordinary, kind, locale):
    """Where no locale is set Python sets LC_CTYPE in its own environment (PEP 538)."""
    environ = {"HOME": ordinary.home, "PATH": lnk.PATH, **locale}
    proxy = {"upstream": "direct", "dir": "/unread", "hosts": []}
    asked = {"unwalled": {"name": "bare", "proxy": proxy, "pointed": False}, "argv": ["env"]}
    argv, env = installed.argv("run", "--yes", "--", "env"), {}
    if kind == "kept":
        argv, env = wrapped(installed, ordinary, ["env"])
    elif kind == "unwalled":
        argv = json.loads(installed.run(ordinary, "wrap", input=json.dumps(asked)).stdout)["argv"]
    done = lnk.popen(ordinary, argv, env={**environ, **env}, stdout=subprocess.PIPE)
    told = dict(line.partition("=")[::2] for line in done.communicate(timeout=60)[0].splitlines())
    assert done.returncode == 0
    assert {name: told[name] for name in told if name.startswith("LC_")} == locale
    assert told["HOME"] == ordinary.home


def test_it_runs_any_number_of_times_and_at_once(installed, who):
    argv, _ = wrapped(installed, who, ["sh", "-c", "cat; exit 7"], **PROXIED)
    many = [
        lnk.popen(who, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for number, one in enumerate(many):
        out, said = one.communicate(str(number), timeout=lnk.LONG_S)
        assert (one.returncode, out, said) == (7, str(number), "")


def test_the_printed_environment_points_at_the_proxy_and_clears_the_loaders_variables(
    installed, who
):
    _, env = wrapped(installed, who, ["true"], **PROXIED)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert env[name] == env[name.lower()] == "http://127.0.0.1:40781"
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GCONV_PATH", "LOCPATH"):
        assert env[name] == ""


@pytest.fixture
def trap(who: lnk.Account, folder: str) -> dict[str, str]:
    """A folder full of what an interpreter, a loader or a library might pick up by mistake.

    Whatever is imported, preloaded or read there writes a file beside it.
    """
    mark = f"{folder}/sprung"
    for name in HOSTILE:
        with open(f"{folder}/{name}.py", "w") as file:
            file.write(MODULE.format(name=name, mark=mark))
    source = f"{folder}/preload.c"
    with open(source, "w") as file:
        file.write(PRELOAD.replace("MARK", mark))
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", f"{folder}/preload.so", source],
        check=True,
        timeout=lnk.LONG_S,
    )
    with open(f"{folder}/openssl.cnf", "w") as file:
        file.write("openssl_conf = x\n[x]\nengines = y\n[y]\nz = w\n[w]\n"
                   f"dynamic_path = {folder}/preload.so\ninit = 1\n")  # fmt: skip
    return {
        "PYTHONPATH": folder, "PYTHONHOME": folder, "PYTHONSTARTUP": f"{folder}/os.py",
        "PYTHONUSERBASE": folder, "PYTHONINSPECT": "1", "PYTHONPYCACHEPREFIX": folder,
        "OPENSSL_CONF": f"{folder}/openssl.cnf", "SSL_CERT_FILE": f"{folder}/none.pem",
        "HOME": folder, "LNK_HOME": folder, "XDG_CONFIG_HOME": folder,
        "LD_PRELOAD": f"{folder}/preload.so", "LD_AUDIT": f"{folder}/preload.so",
        "GCONV_PATH": folder, "LOCPATH": folder, "TMPDIR": folder,
        "HOSTALIASES": f"{folder}/aliases", "RES_OPTIONS": "debug", "LOCALDOMAIN": "evil.example",
        "BASH_ENV": f"{folder}/os.py", "ENV": f"{folder}/os.py",
    }  # fmt: skip


def outside(mark: str) -> list[str]:
    """Return what sprang in a process of this machine, rather than in a sandbox's own."""
    if not os.path.exists(mark):
        return []
    with open(mark) as file:
        return [line for line in file if os.readlink("/proc/self/ns/pid") in line]


@pytest.mark.parametrize("keys", [{}, PROXIED], ids=["closed", "proxied"])
def test_a_hostile_environment_and_folder_steer_nothing_outside(installed, who, folder, trap, keys):
    """The caller's environment is the program's: outside the sandbox nothing may obey it."""
    mark = f"{folder}/sprung"
    # Its own proxy is asked, so that every part of it has been loaded by the end.
    script = (
        "import os, urllib.request, urllib.error\n"
        "try: urllib.request.urlopen('http://example.org/')\n"
        "except OSError as error: print(error)\n"
        "print(os.environ['HOME'])"
    )
    argv, env = wrapped(
        installed, who, [installed.python, "-I", "-S", "-c", script], write=[folder], **keys
    )
    done = subprocess.run(
        argv,
        env={"PATH": lnk.PATH, **trap, **env},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=lnk.LONG_S,
        **lnk.identity(who),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == folder, "the program has its own environment"
    if keys:
        assert "403" in done.stdout
    assert outside(mark) == []


def test_the_trap_springs_where_nobody_takes_care(who, folder, trap):
    """A test of the test above: what it lays out does work."""
    mark = f"{folder}/sprung"
    python = lnk.public_python()
    environ = {name: trap[name] for name in ("PYTHONPATH", "LD_PRELOAD")}
    os.unlink(f"{folder}/encodings.py")  # with it, not even an interpreter starts
    lnk.run(who, [python, "-c", "import uvloop"], environ=environ)
    assert {line.split()[0] for line in outside(mark)} >= {"preload", "sitecustomize", "uvloop"}
    os.unlink(mark)
    environ = {"OPENSSL_CONF": trap["OPENSSL_CONF"]}
    lnk.run(who, [python, "-I", "-c", "import ssl; ssl.create_default_context()"], environ=environ)
    assert {line.split()[0] for line in outside(mark)} == {"preload"}


def test_what_a_sandbox_puts_beside_our_packages_is_not_imported(installed, who, tmp_path_factory):
    """In a clone that a sandbox writes, only our three packages are pinned."""
    clone = f"{who.home}/clone"
    lnk.made_anew(clone)
    copy = lnk.install(clone)
    os.chown(clone, who.uid, who.gid)
    mark = f"{clone}/sprung"
    script = "import os\nfor name in names: open(f'{name}.py', 'w').write(f'open({mark!r}, \"a\")')"
    names = [name for name in HOSTILE if name not in ("sandbox", "proto", "shells")]
    # Their dependencies stand in a folder of their own, as in an environment.
    os.mkdir(f"{clone}/site")
    for name in lnk.NEEDS:
        if os.path.isdir(f"{clone}/{name}"):
            os.rename(f"{clone}/{name}", f"{clone}/site/{name}")
    with open(copy.entry, "w") as file:
        file.write(lnk.ENTRY.format(folder=f"{clone}/site").replace(
            # As pip's finder for a clone does it: found by name, and the clone on no path.
            "sys.argv[0]", f"sys.path.append({clone!r}); import sandbox, proto, shells; "
            f"sys.path.remove({clone!r}); sys.argv[0]"))  # fmt: skip
    argv, _ = wrapped(
        copy, who,
        [installed.python, "-I", "-S", "-c",
         f"mark = {mark!r}\nnames = {names!r}\n{script}\n"
         "try: open('sandbox/x', 'w')\nexcept OSError as error: print(error.errno)\n"
         "try: os.rename('site', 'gone')\nexcept OSError as error: print(error.errno)"],
        write=[clone], **PROXIED,
    )  # fmt: skip
    for _ in range(2):
        done = lnk.run(who, argv, cwd=clone)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["30", "16"], "read only, and pinned"
    assert os.path.exists(f"{clone}/msgspec.py")
    assert not os.path.exists(mark)


def test_nothing_is_imported_before_the_program_starts_that_it_does_not_need(installed, who):
    """The goal of a few bare bubblewraps: no os, json, re, enum, socket, subprocess, typing."""
    argv, _ = wrapped(installed, who, ["true"])
    argv[1:1] = ["-X", "importtime"]
    done = lnk.run(who, argv)
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "sandbox.linux.launcher" in names
    unwanted = {"os", "json", "re", "enum", "socket", "subprocess", "typing", "dataclasses",
                "argparse", "tomllib", "ctypes", "signal", "threading", "asyncio", "ssl",
                "msgspec", "sandbox.confinement", "sandbox.table", "sandbox.errors"}  # fmt: skip
    assert names & unwanted == set()


@pytest.mark.parametrize(
    "words",
    [[], ["{}"], ["{}", "--"], ["{}", "x", "y"], ["{}", "--", "true"], ["nonsense", "--", "true"]],
)
def test_words_that_are_no_kept_command_are_one_sentence(installed, who, words):
    script = f"{installed.folder}/sandbox/cli/kept_start.py"
    done = lnk.run(who, [installed.python, "-I", "-S", script, *words])
    assert done.returncode in (2, 125)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("lnk sandbox: ")


def test_it_needs_nothing_of_links_settings_but_the_log(installed, who):
    """No launcher or proxy reads HOME or LNK_HOME: the folder stands in the plan."""
    argv, env = wrapped(installed, who, ["true"], **PROXIED)
    assert lnk.plan_of(argv)["wire"]["log"] == f"{who.home}/.lnk/sandbox/log"
    environ = {"PATH": lnk.PATH, "HOME": "/nonexistent", "LNK_HOME": "/nonexistent", **env}
    done = lnk.run(who, argv, environ=environ)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_plans_reader_takes_what_json_takes(installed):
    assert sys.version_info >= (3, 11)
    from sandbox.linux.kept import read_json

    for value in ({"a": [1, None, True, "é\n\x00"]}, [], "x", 5, {"b": {"c": [[]]}}):
        assert read_json(json.dumps(value)) == value
    with pytest.raises(ValueError, match="no JSON"):
        read_json("")


def test_ten_thousand_hosts_are_kept_and_run(installed, who):
    hosts = [f"host-{at}.example.com" for at in range(10_000)]
    proxy = {"upstream": "direct", "dir": "~/wire", "hosts": hosts}
    command = installed.wrapped(who, ["echo", "--", "x"],
                                net={"proxied": {"proxy": proxy, "ports": []}})  # fmt: skip
    assert len(command) > 10
    done = lnk.run(who, command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "-- x\n", "")


@pytest.mark.parametrize(
    "plan",
    ["fd:x", "fd:", "fd:99", "fd:-1", f"fd:{9**30}", "fd:0", "fd:1", "plan 3;end 6", "",
     f"plan 3;wire {'[' * 100_000};end 100012", "\udcff"],
    ids=lambda plan: repr(plan[:12]),
)  # fmt: skip
def test_what_is_no_plan_is_refused_with_a_sentence(installed, who, plan):
    command = installed.wrapped(who, ["true"])
    done = lnk.run(who, [*command[:4], plan, *command[5:]])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == (
        "lnk sandbox: this command was kept by another version of Link, or isn't whole: make it "
        "anew with wrap.\n"
    )
