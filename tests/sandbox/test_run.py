"""`lnk sandbox run`, as a person uses it: as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.policy.hosts import Policy
from sandbox.cli.host_lists import is_plain_name
from sandbox.linux import environment
from sandbox.linux.environment import PROXY_PORT
from sandbox.linux.facts import own_authorities
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Server, http, ok, on_network
from tests.sandbox import lnk
from tests.sandbox.terminal import Terminal

HOST, ADDRESS = "www.example.com", "203.0.113.10"
HELLO = b"hello from outside\n"


class Net:
    """`lnk` in the test network, where example.com's server is."""

    def __init__(
        self, installed: lnk.Installed, network: Network, dns: DnsDouble, authority: Authority,
        server: Server,
    ) -> None:  # fmt: skip
        self.installed, self.network, self.dns, self.server = installed, network, dns, server
        self.pem = os.path.join(installed.folder, "test-ca.pem")
        shutil.copy(authority.pem, self.pem)
        os.chmod(self.pem, 0o644)

    def run(
        self, who: lnk.Account, *words: str, **more: object
    ) -> subprocess.CompletedProcess[str]:
        argv = self.network.argv(*as_other(who), *self.installed.argv("run", "--yes", *words))
        given = {"capture_output": True, "text": True, "timeout": lnk.LONG_S, "cwd": who.home,
                 "stdin": subprocess.DEVNULL, **more}  # fmt: skip
        return subprocess.run(
            argv, env={**who.environ, "PATH": "/usr/sbin:/sbin:" + lnk.PATH}, **given
        )

    def curl(self, who: lnk.Account, flags: list[str], *words: str, **more: object):
        curl = ["curl", "-sSf", "-m", "20", "--cacert", self.pem, *words]
        return self.run(who, "--read", self.pem, *flags, "--", *curl, **more)


def as_other(who: lnk.Account) -> list[str]:
    if who.uid == os.geteuid():
        return []
    return ["setpriv", "--reuid", str(who.uid), "--regid", str(who.gid), "--clear-groups"]


@pytest.fixture
def net(installed, network, dns, authority) -> Iterator[Net]:
    context = authority.context(HOST, "example.com")
    with (
        on_network(network, ADDRESS, 443, http(lambda *_: ok(HELLO)), context) as server,
        on_network(network, ADDRESS, 80, http(lambda *_: ok(HELLO))),
    ):
        yield Net(installed, network, dns, authority, server)


def test_a_listed_host_is_reached(net, who):
    done = net.curl(who, ["--internet-host", HOST], f"https://{HOST}/")
    assert (done.returncode, done.stdout, done.stderr) == (0, HELLO.decode(), "")
    done = net.curl(who, ["--internet-host", HOST], f"http://{HOST}/")
    assert (done.returncode, done.stdout, done.stderr) == (0, HELLO.decode(), "")


def test_another_host_is_refused_with_one_sentence_that_names_the_flag(net, who):
    urls = ["https://evil.test/", "https://evil.test/again", "http://evil.test/"]
    done = net.curl(who, ["--internet-host", HOST], *urls)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("lnk sandbox: ")]
    assert said == ["lnk sandbox: evil.test isn't among the hosts; add --internet-host evil.test"]
    assert net.dns.asked == [], "a refused name is never looked up"
    assert net.server.accepted == 0


def test_the_program_is_told_the_flag_and_no_key_that_a_run_without_a_spec_has_not(net, who):
    done = net.curl(who, ["--internet-host", HOST], "--no-fail", "http://evil.test/")
    assert "add --internet-host evil.test." in done.stdout
    assert "[internet]" not in done.stdout


def test_with_no_host_at_all_the_sentence_is_the_same(net, who):
    done = net.curl(who, [], f"https://{HOST}/")
    assert done.returncode != 0
    assert f"lnk sandbox: {HOST} isn't among the hosts; add --internet-host {HOST}" in done.stderr
    assert net.dns.asked == []


def test_no_way_around_the_proxy_is_there(net, who):
    """What the environment says is no wall: without it there is no network at all."""
    done = net.curl(who, ["--internet-host", HOST], "--noproxy", "*", f"https://{HOST}/",
                    f"https://{ADDRESS}/", "--resolve", f"{HOST}:443:{ADDRESS}")  # fmt: skip
    assert done.returncode != 0
    assert done.stdout == ""
    assert net.server.accepted == 0
    assert net.dns.asked == []


def through_the_proxy(targets: list[str]) -> list[str]:
    """Return a Python program that asks the proxy inside for each target and prints its answer."""
    script = f"""
import socket, sys
for target in {targets!r}:
    with socket.create_connection(("127.0.0.1", {PROXY_PORT}), 10) as made:
        made.sendall(f"CONNECT {{target}} HTTP/1.1\\r\\nHost: {{target}}\\r\\n\\r\\n".encode())
        print(made.recv(4096).split(b"\\r\\n")[0].decode().split()[1])
"""
    return ["-I", "-S", "-c", script]


def test_this_machine_and_metadata_are_closed_through_the_proxy_too(net, who, installed):
    canary = net.network.on_client_side(lambda: listening("0.0.0.0"))
    port = canary.getsockname()[1]
    hosts = ["127.0.0.1", "127.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]",
             "2130706433", "0x7f.1", "198.51.100.2", "[2001:db8:1::2]", "inside.example.net",
             "10.0.0.1", "192.168.0.1", "100.64.0.1"]  # fmt: skip
    targets = [f"{host}:{port}" for host in hosts] + [f"127.0.0.1:{PROXY_PORT}", "localhost:80"]
    metadata = ["[fd00:ec2::254]:80", "169.254.169.254:80"]
    flags = [word for host in ("*.example.net", HOST) for word in ("--internet-host", host)]
    with canary:
        tried = through_the_proxy([*targets, *metadata])
        done = net.run(who, *flags, "--", installed.python, *tried)
        assert done.returncode == 0, done.stderr
        *answers, first, second = done.stdout.split()
        assert set(answers) == {"403", "400"}
        assert (first, second) == ("403", "503")  # the one call has paused the wire
        assert "is paused, since it called a cloud's metadata service" in done.stderr
        canary.settimeout(0)
        with pytest.raises(BlockingIOError):
            canary.accept()


def listening(host: str) -> socket.socket:
    made = socket.create_server((host, 0))
    made.setblocking(False)
    return made


def test_another_sandboxes_proxy_is_not_there(net, who, installed):
    """Each network is its own: the port is everywhere the same, and never another's."""
    other = installed.argv("run", "--yes", "--internet-host", HOST, "--", "cat")
    running = lnk.popen(
        who, net.network.argv(*as_other(who), *other) if who.uid == os.geteuid() else other,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        running.stdin.write("up\n")
        running.stdin.flush()
        assert running.stdout.readline() == "up\n"
        script = f"""
import socket
for host in ("127.0.0.1", "127.0.0.2", "198.51.100.2"):
    try: socket.create_connection((host, {PROXY_PORT}), 3); print("open")
    except OSError as error: print("closed")
"""
        done = installed.run(who, "run", "--yes", "--spec", spec(who, "[network]\nmode='none'"),
                             "--", installed.python, "-I", "-S", "-c", script)  # fmt: skip
        assert done.stdout.split() == ["closed"] * 3, done.stderr
    finally:
        running.stdin.close()
        running.wait(lnk.LONG_S)
        running.stdout.close()


def spec(who: lnk.Account, text: str, folder: str | None = None) -> str:
    path = f"{folder or who.home}/box.toml"
    with open(path, "w") as file:
        file.write(text)
    os.chown(path, who.uid, who.gid)
    return path


def test_the_calls_are_on_the_wires_log(net, who):
    net.curl(who, ["--internet-host", HOST], f"https://{HOST}/secret-path", "https://evil.test/x")
    folder = f"{who.home}/.lnk/sandbox/log"
    newest = max(os.listdir(folder), key=lambda name: os.stat(f"{folder}/{name}").st_mtime_ns)
    assert re.fullmatch(r"run-[0-9]+\.jsonl", newest)
    with open(f"{folder}/{newest}") as file:
        lines = [json.loads(line) for line in file]
    seen = {(line["host"], line["verdict"]) for line in lines}
    assert seen == {(HOST, "allowed"), (HOST, "ended"), ("evil.test", "refused")}
    assert "secret-path" not in json.dumps(lines)


def test_the_last_lines_are_logged_though_the_program_ends_at_once(net, who, installed):
    """A call still open at the end has its last line all the same."""
    script = (
        f"import socket; made = socket.create_connection(('127.0.0.1', {PROXY_PORT}), 10); "
        f"made.sendall(b'CONNECT {HOST}:80 HTTP/1.1\\r\\nHost: {HOST}:80\\r\\n\\r\\n'); "
        "assert b'200' in made.recv(999)"
    )
    done = net.run(who, "--internet-host", HOST, "--", installed.python, "-I", "-S", "-c", script)
    assert done.returncode == 0, done.stderr
    folder = f"{who.home}/.lnk/sandbox/log"
    newest = max(os.listdir(folder), key=lambda name: os.stat(f"{folder}/{name}").st_mtime_ns)
    with open(f"{folder}/{newest}") as file:
        assert [json.loads(line)["verdict"] for line in file] == ["allowed", "ended"]


def test_it_writes_the_folder_and_nothing_else(installed, who, folder):
    script = f"echo x > {folder}/made; echo x > {who.home}/other; echo x > /usr/x"
    done = installed.run(who, "run", "--yes", "--write", folder, "--", "sh", "-c", script)
    assert done.returncode != 0
    assert os.listdir(folder) == ["made"]
    assert not os.path.exists(f"{who.home}/other")


def test_relative_paths_are_the_working_folders(installed, who, folder):
    argv = ["run", "--yes", "--write", ".", "--", "sh", "-c", "pwd; touch made"]
    done = installed.run(who, *argv, cwd=folder)
    assert (done.returncode, done.stdout) == (0, f"{folder}\n"), done.stderr
    assert os.listdir(folder) == ["made"]


def test_the_program_gets_a_persons_variables_and_no_more(installed, who):
    environ = {"LC_TIME": "C", "TZ": "UTC", "COLORTERM": "truecolor", "SHELL": "/bin/sh",
               "LOGNAME": who.name, "AWS_SECRET_ACCESS_KEY": "s", "SSH_AUTH_SOCK": "/tmp/x",
               "PYTHONPATH": "/tmp", "LD_LIBRARY_PATH": "/tmp", "DISPLAY": ":0",
               "XDG_RUNTIME_DIR": "/run/user/0", "DBUS_SESSION_BUS_ADDRESS": "x"}  # fmt: skip
    done = installed.run(who, "run", "--yes", "--", "env", environ=environ)
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert names == {
        "HOME", "PATH", "USER", "LOGNAME", "LANG", "TERM", "LC_TIME", "TZ", "COLORTERM", "SHELL",
        "PWD", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy",
        "NO_PROXY", "no_proxy", "NODE_USE_ENV_PROXY", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS",
        "GIT_SSH_COMMAND",
    } | environment.trusting(own_authorities()).keys()  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--write", "nowhere"], "write names {home}/nowhere, which does not exist"),
        (["--read", "nowhere/at/all"], "read names {home}/nowhere/at/all, which does not exist"),
        (["--write", "a-file"], "write names {home}/a-file, which is a file"),
        (["--write", "a-link"], "write names {home}/a-link, a link to /etc: name that instead"),
        (["--read", "a-socket"], "{home}/a-socket, which is neither a file nor a folder"),
        (["--read", ".lnk"], "Link's settings stay closed"),
        (["--write", ".lnk/sandbox"], "Link's settings stay closed"),
        (["--write", "/"], "whole machine"),
        (["--read", "/run"], "read names /run, and no sandbox shows anything of /run"),
        (["--write", "/usr"], "write names /usr, which no sandbox opens whole"),
    ],
)  # fmt: skip
def test_a_path_that_cannot_be_opened_is_one_sentence_before_anything_starts(
    installed, who, flags, words
):
    with open(f"{who.home}/a-file", "w"):
        pass
    os.symlink("/etc", f"{who.home}/a-link")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{who.home}/a-socket")
    try:
        done = installed.run(who, "run", "--yes", *flags, "--", "echo", "started")
    finally:
        for name in ("a-file", "a-link", "a-socket"):
            os.unlink(f"{who.home}/{name}")
    assert done.returncode in (2, 125)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert words.format(home=who.home) in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--yes"], "there is no program to run"),
        (["--yes", "--"], "there is no program to run"),
        (["--yes", "--wriet", "x", "--", "true"], "'--wriet' is not one of its flags"),
        (["--yes", "--with-fd", "9", "--", "true"], "--with-fd 9: no such descriptor is open"),
        (["--yes", "--with-fd", "0", "--", "true"], "--with-fd '0' is no descriptor of its own"),
        (["--yes", "--with-fd", "x", "--", "true"], "--with-fd 'x' is no descriptor of its own"),
        (["--yes", "--write-dot-files", ".", "--", "true"], "which isn't written: add --write"),
        (["--yes", "--internet-host", "127.1", "--", "true"], "'127.1' in --internet-host"),
        (["--yes", "--internet-host", "a b", "--", "true"], "'a b' in --internet-host is no host"),
        (
            ["--yes", "--internet-host", "localhost", "--", "true"],
            "localhost is this machine, which",
        ),
        (["--yes", "--internet-host", "127.0.0.1", "--", "true"], "[localhost] ports of a spec.\n"),
        (
            ["--yes", "--internet-host", "169.254.169.254", "--", "true"],
            "--internet-host 169.254.169.254 is a cloud's metadata service",
        ),
        (["--yes", "--internet-host", "*", "--", "true"], "'*' would be any host: write that"),
        (["--yes", "--write", "", "--", "true"], "--write names no folder: write --write FOLDER."),
        (["--yes", "--read", "", "--", "true"], "--read names no path: write --read PATH."),
        (["--yes", "--write", "/", "--", "true"], "--write names the whole machine: name the"),
        (["--yes", "--read", "//", "--", "true"], "--read names the whole machine: name the"),
        (["--yes", "--spec", "", "--", "true"], "--spec names no file: write --spec FILE."),
        (["--yes", "--spec", "nowhere.toml", "--", "true"], "nowhere.toml"),
    ],
)
def test_flags_that_cannot_be_followed_are_one_sentence(installed, who, words, said):
    done = installed.run(who, "run", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_folder_read_from_a_working_folder_that_is_gone_is_one_sentence(installed, who):
    script = 'mkdir "$HOME/gone"; cd "$HOME/gone"; rmdir ../gone; exec "$0" "$@"'
    for words in (["--write", "."], ["--read", "x"], ["--spec", "box.toml"]):
        argv = installed.argv("run", "--yes", *words, "--", "true")
        done = lnk.run(who, ["/bin/sh", "-c", script, *argv])
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert "gone: go to one" in done.stderr or "No such file" in done.stderr


def test_it_ends_with_the_programs_status(installed, who):
    for code in (0, 1, 42):
        assert (
            installed.run(who, "run", "--yes", "--", "sh", "-c", f"exit {code}").returncode == code
        )
    done = installed.run(who, "run", "--yes", "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + signal.SIGTERM


def test_a_program_that_is_not_there_or_cannot_be_run(installed, who, folder):
    done = installed.run(who, "run", "--yes", "--", "no-such-program")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "lnk sandbox: no-such-program: there is no such program in PATH.\n"
    done = installed.run(who, "run", "--yes", "--", "/etc/passwd")
    assert done.returncode == 126
    assert done.stderr.count("\n") == 1
    os.mkdir(f"{folder}/closed", 0)
    done = installed.run(who, "run", "--yes", "--read", folder, "--", f"{folder}/closed/x")
    assert done.returncode == (127 if who.uid == 0 else 126)


@pytest.fixture
def manager(who: lnk.Account) -> Iterator[str]:
    """A version manager in the home, as pyenv lays it out: shims, versions, links."""
    folder = f"{who.home}/.pyenv"
    version = f"{folder}/versions/3.99.1"
    os.makedirs(f"{version}/bin")
    os.makedirs(f"{folder}/shims")
    name = os.path.basename(lnk.public_python())
    shutil.copy(lnk.public_python(), f"{version}/bin/{name}")
    os.symlink(name, f"{version}/bin/python")
    with open(f"{folder}/shims/python", "w") as file:
        file.write(f'#!/usr/bin/env bash\nexec "{version}/bin/python" "$@"\n')
    os.chmod(f"{folder}/shims/python", 0o755)
    for above, names, files in os.walk(folder):
        for one in [*names, *files]:
            os.chown(os.path.join(above, one), who.uid, who.gid, follow_symlinks=False)
    os.chown(folder, who.uid, who.gid)
    yield folder
    shutil.rmtree(folder)


def test_a_python_of_a_version_manager_is_named_and_works_with_its_folder(installed, who, manager):
    environ = {"PATH": f"{manager}/shims:{lnk.PATH}"}
    words = ["--", "python", "-c", "import json, ssl; print('works')"]
    done = installed.run(who, "run", "--yes", *words, environ=environ)
    assert done.returncode == 127
    assert done.stderr == (
        f"lnk sandbox: python is {manager}/shims/python, in a folder that the sandbox doesn't "
        "show: add --read ~/.pyenv to show it.\n"
    )
    done = installed.run(
        who, "run", "--yes", "--read", f"{who.home}/.pyenv", *words, environ=environ
    )
    assert (done.returncode, done.stdout) == (0, "works\n"), done.stderr


def test_a_virtual_environment_made_by_it_works_too(installed, who, manager, folder):
    python = f"{manager}/versions/3.99.1/bin/python"
    made = lnk.run(who, [python, "-I", "-m", "venv", "--without-pip", f"{folder}/venv"])
    assert made.returncode == 0, made.stderr
    argv = ["--", f"{folder}/venv/bin/python", "-c", "import sys; print(sys.prefix)"]
    done = installed.run(who, "run", "--yes", "--read", folder, *argv)
    assert done.returncode == 127
    assert "--read ~/.pyenv" in done.stderr
    done = installed.run(who, "run", "--yes", "--read", folder, "--read", manager, *argv)
    assert (done.returncode, done.stdout) == (0, f"{folder}/venv\n"), done.stderr


def test_without_yes_and_a_terminal_nothing_runs(installed, who, folder):
    done = installed.run(
        who, "run", "--write", folder, "--", "touch", f"{folder}/made", start_new_session=True
    )
    assert done.returncode == 125
    assert done.stderr.count("\n") == 1
    assert "there is no terminal to ask on: look at it and add --yes" in done.stderr
    assert os.listdir(folder) == []


def test_what_was_not_run_before_is_shown_and_asked_about_once(installed, who, folder):
    command = installed.argv("run", "--write", folder, "--internet-host", "example.com",
                             "--", "echo", "it runs")  # fmt: skip
    for answer, code in (("n", 125), ("", 125), ("yes", 0)):
        with Terminal(who, command) as terminal:
            said = terminal.read_until("Run it? [y/N] ")
            assert f"writes {folder}" in said
            assert "reaches on the internet example.com" in said
            terminal.type(f"{answer}\n")
            if code == 0:
                terminal.read_until("it runs")
            assert terminal.wait() == code
    with Terminal(who, command) as terminal:
        said = terminal.read_until("it runs")
        assert "Run it?" not in said
        assert terminal.wait() == 0
    more = installed.argv("run", "--write", folder, "--internet-host", "example.org", "--", "true")
    with Terminal(who, more) as terminal:
        terminal.read_until("Run it? [y/N] ")
        terminal.type("n\n")
        assert terminal.wait() == 125


def test_a_descriptor_that_cannot_be_read_is_told_with_the_cure(installed, who, folder):
    folder_fd = os.open(folder, os.O_RDONLY)
    words = ["run", "--yes", "--with-fd", str(folder_fd), "--", "true"]
    done = installed.run(who, *words, pass_fds=[folder_fd])
    os.close(folder_fd)
    assert done.returncode == 125
    assert done.stderr == (
        f"lnk sandbox: --with-fd {folder_fd} can't be read: Is a directory: open it on a file "
        f"({folder_fd}< FILE) or a pipe.\n"
    )


def test_an_end_of_input_is_no_answer_and_leaves_no_line_begun(installed, who, folder):
    with Terminal(who, installed.argv("run", "--write", folder, "--", "true")) as terminal:
        terminal.read_until("Run it? [y/N] ")
        terminal.type("\x04")
        said = terminal.read_until("nothing was run: it was not agreed to.")
        assert said == "\r\nlnk sandbox: nothing was run: it was not agreed to."
        assert terminal.wait() == 125


def test_what_was_typed_ahead_answers_nothing(installed, who, folder):
    command = installed.argv("run", "--write", folder, "--", "echo", "it runs")
    with Terminal(who, command) as terminal:
        terminal.type("y\ny\n")
        terminal.read_until("Run it? [y/N] ")
        terminal.type("n\n")
        assert terminal.wait() == 125


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[commands]\nonly = ['true',\n'nosuch']", "box.toml:3: commands.only[1]: nosuch is on no"),
        ("[commands]\nonly = ['/nosuch']", "box.toml:2: [commands] only names /nosuch, which does"),
        ("[files]\nread = ['/usr',\n'/nosuch']", "box.toml:3: read names /nosuch, which does not"),
        ("[files]\nread = ['/tmp']", "box.toml:2: read names /tmp, which no sandbox opens whole"),
        ("[files]\nread = ['.']\n\nhide = ['.']", "box.toml:4: hide names "),
        ("[files]\nread = ['.']\nhide = ['nope']", "box.toml:3: hide names "),
        ("[models]\nopenai = { key = 'env:NOPE' }", "box.toml:2: models.openai.key: names the var"),
        ("[tools]\nuse = [\n'nope']", "box.toml:3: tools.use[0]: names nope, which isn't defined"),
        ("[internet]\ntcp = ['a.example:9']\n[localhost]\nserve = [53]",
         "box.toml:4: serve names 53, which is its DNS's inside"),
    ],
)  # fmt: skip
def test_what_is_refused_after_a_spec_was_read_has_its_file_and_line(
    installed, ordinary, text, said
):
    os.makedirs(f"{ordinary.home}/placed", exist_ok=True)
    path = spec(ordinary, text, f"{ordinary.home}/placed")
    done = installed.run(ordinary, "run", "--yes", "--spec", path, "--", "true")
    assert done.returncode in (2, 125)
    assert done.stderr.startswith(f"lnk sandbox: {path.removesuffix('box.toml')}{said}")
    assert done.stderr.count("\n") == 1


def test_a_log_that_cannot_be_begun_is_told_with_its_folder(installed, ordinary):
    settings = f"{ordinary.home}/closed-log"
    log = f"{settings}/sandbox/log"
    os.makedirs(log)
    for path in (settings, f"{settings}/sandbox", log):
        os.chown(path, ordinary.uid, ordinary.gid)
        os.chmod(path, 0o700)
    os.chmod(log, 0o500)
    environ = {**ordinary.environ, "LNK_HOME": settings}
    done = installed.run(ordinary, "run", "--yes", "--", "sleep", "30", environ=environ)
    assert done.returncode == 125
    assert done.stderr.splitlines() == [
        f"lnk sandbox: the proxy: the log in {log} can't be begun: Permission denied.",
        "lnk sandbox: a part of the sandbox outside ended, so all of it ends.",
    ]


def test_a_check_names_the_line_too(installed, ordinary):
    path = spec(ordinary, "[files]\nwrite = ['/nosuch']")
    done = installed.run(ordinary, "check", "--spec", path)
    assert done.returncode == 125
    assert done.stderr.startswith(f"lnk sandbox: {path}:2: write names /nosuch, which does not")


def test_a_folder_of_a_flag_is_refused_by_the_flag_though_there_is_a_spec(installed, ordinary):
    path = spec(ordinary, "[files]\nread = ['/usr']")
    for words in ([], ["--spec", path]):
        done = installed.run(ordinary, "run", "--yes", *words, "--write", "nosuch", "--", "true")
        named = f"{ordinary.home}/nosuch"
        assert done.stderr.startswith(f"lnk sandbox: --write names {named}, which does not exist")


def test_a_spec_that_was_piped_in_is_refused_without_being_read_again(installed, ordinary):
    words = installed.argv("run", "--yes", "--spec", "/dev/stdin", "--", "true")
    pipes = """printf '[commands]\\nonly = ["nosuch"]' | "$@" """
    done = lnk.run(ordinary, ["/bin/sh", "-c", pipes, "sh", *words])
    assert done.returncode == 2
    assert done.stderr.startswith("lnk sandbox: commands.only[0]: nosuch is on no folder of PATH")


def test_a_spec_says_what_it_may_touch(installed, who, folder):
    path = spec(who, f"[files]\nwrite = ['{folder}']\n")
    done = installed.run(who, "run", "--yes", "--spec", path, "--", "touch", f"{folder}/made")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(folder) == ["made"]


def test_a_bridge_says_once_that_the_exit_is_dead(net, who, folder):
    key = f"{folder}-key"
    with open(key, "w") as file:
        file.write("treasure")
    os.chown(key, who.uid, who.gid)
    path = spec(
        who,
        "[network]\nupstream = 'http://127.0.0.1:9'\n"
        f"[secrets.it]\nkey = 'file:{key}'\nhost = '{HOST}'\npaths = ['/{{secret}}/{{path}}']\n",
    )
    script = 'for _ in 1 2; do curl -sS "$LNK_SECRET_IT/$LNK_SECRET_IT_PLACEHOLDER/a"; done'
    done = net.run(who, "--spec", path, "--", "/bin/sh", "-c", script)
    assert done.stderr == (
        "lnk sandbox: the upstream proxy http://127.0.0.1:9 could not be reached: connection "
        "refused; see [network] upstream.\n"
    )
    assert "127.0.0.1:9" not in done.stdout


def test_a_flag_or_a_descriptor_gives_no_program_its_spec_s_key(
    installed, ordinary, ordinary_folder
):
    os.makedirs(f"{ordinary_folder}/keys")
    key = f"{ordinary_folder}/keys/it"
    with open(key, "w") as file:
        file.write("treasure")
    path = spec(ordinary, f"[models]\nopenai = {{ key = 'file:{key}' }}")
    given = f"{ordinary.home}/given"
    with open(given, "w") as file:
        json.dump({"write": [f"{ordinary_folder}/keys"]}, file)
    for one in (f"{ordinary_folder}/keys", key, given):
        os.chown(one, ordinary.uid, ordinary.gid)
    for words in (["--read", key], ["--write", f"{ordinary_folder}/keys"], ["--with-fd", "9"]):
        argv = installed.argv("run", "--yes", "--spec", path, *words, "--", "cat", key)
        done = lnk.run(ordinary, ["sh", "-c", f'exec "$@" 9<{given}', "sh", *argv])
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"lnk sandbox: {path}:2: models.openai.key: leads to a file")


def test_flags_stand_beside_a_spec(net, who, folder):
    path = spec(who, "[internet]\nhosts = ['example.com']\n")
    flags = ["--spec", path, "--internet-host", HOST]
    done = net.curl(who, flags, f"https://{HOST}/", "https://evil.test/")
    assert HELLO.decode() in done.stdout
    assert (
        "lnk sandbox: evil.test isn't among the hosts; add --internet-host evil.test, "
        f"or [internet] hosts of {path}" in done.stderr
    )
    done = net.curl(who, flags, "--no-fail", "http://evil.test/")
    assert 'add "evil.test" to [internet] hosts (--internet-host evil.test).' in done.stdout


def test_a_spec_in_the_folder_it_opens_is_read_only_meanwhile(installed, who, folder):
    path = spec(who, "[files]\nwrite = ['.']\n", folder)
    script = "echo '[network]' >> box.toml; mv box.toml other; touch made"
    done = installed.run(who, "run", "--yes", "--spec", path, "--", "sh", "-c", script, cwd=folder)
    assert done.returncode == 0
    assert sorted(os.listdir(folder)) == ["box.toml", "made"]
    with open(path) as file:
        assert "[network]" not in file.read()


def test_a_spec_that_is_named_by_a_link_is_read_only_too(installed, ordinary, ordinary_folder):
    path = spec(ordinary, "[files]\nwrite = ['.']\n", ordinary_folder)
    link = f"{ordinary.home}/link-to-box"
    os.symlink(ordinary_folder, link)
    for named in (path, f"{link}/box.toml", f"{link}/../link-to-box/box.toml"):
        script = f"cd {ordinary_folder}; echo '[network]' >> box.toml"
        words = ["run", "--yes", "--spec", named, "--", "sh", "-c", script]
        done = installed.run(ordinary, *words)
        assert done.returncode == 2
        assert "Read-only file system" in done.stderr
    os.unlink(link)
    os.symlink(path, link)
    words = ["run", "--yes", "--spec", link, "--write", ordinary_folder, "--", "true"]
    done = installed.run(ordinary, *words)
    assert done.returncode == 125
    assert done.stderr.startswith(f"lnk sandbox: read names {link}, a link to {path}: ")
    os.unlink(link)


def test_a_spec_with_a_mistake_is_one_sentence_with_its_line(installed, who):
    path = spec(who, "[files]\nwirte = ['.']\n")
    done = installed.run(who, "run", "--yes", "--spec", path, "--", "true")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{path}:2: files.wirte: unknown key" in done.stderr


def test_a_host_network_cannot_be_given_hosts(installed, who):
    path = spec(who, "[network]\nmode = 'host'\n")
    done = installed.run(
        who, "run", "--yes", "--spec", path, "--internet-host", "example.com", "--", "true"
    )
    assert done.returncode == 2
    assert "--internet-host opens nothing" in done.stderr


def test_a_spec_chooses_the_machines_network_or_none(installed, who):
    """Beside the proxy, which is what a run without a spec has."""
    script = (
        "import os, socket, sys\n"
        "print([name for name in os.environ if 'proxy' in name.lower()])\n"
        "try: socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10); print('open')\n"
        "except OSError as error: print(type(error).__name__)"
    )
    with socket.create_server(("127.0.0.1", 0)) as canary:
        program = [installed.python, "-I", "-S", "-c", script, str(canary.getsockname()[1])]
        for mode, said in (("host", "open"), ("none", "ConnectionRefusedError")):
            path = spec(who, f"[network]\nmode = '{mode}'\n")
            done = installed.run(who, "run", "--yes", "--spec", path, "--", *program)
            assert done.stdout.splitlines() == ["[]", said], (mode, done.stderr)


def test_help_is_printed(installed, who):
    done = installed.run(who, "run", "--help")
    assert done.returncode == 0
    assert "lnk sandbox run --yes --write ." in done.stdout


def test_a_folder_that_the_persons_python_imports_from_is_not_given_away(net, who, folder):
    """`lnk` as it is typed isn't isolated: what is left in PYTHONPATH runs the next time."""
    entry = [net.installed.python, net.installed.entry, "sandbox", "run", "--yes"]
    argv = [*entry, "--write", folder, "--", "touch", f"{folder}/json.py"]
    done = lnk.run(who, argv, environ={"PYTHONPATH": folder})
    assert (done.returncode, done.stdout) == (125, "")
    assert f"write names {folder}" in done.stderr
    assert "PYTHONPATH" in done.stderr
    assert os.listdir(folder) == []


NAMES = st.text(alphabet="abz019-._*AZ:[]@ü ", min_size=1, max_size=12)


@given(entry=NAMES | st.builds("*.{}".format, NAMES) | st.from_regex(r"[a-z0-9.-]{1,20}"))
def test_a_plain_name_is_one_that_the_proxys_rules_take(entry):
    """`run` asks those only where it must: what it passes over must never be refused later."""
    if is_plain_name(entry):
        assert Policy.of([entry]).hosts is not None


@pytest.mark.parametrize("entry", ["example.com", "*.example.org", "localhost", "a-b.c", "x" * 63])
def test_most_names_are_plain(entry):
    assert is_plain_name(entry)


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "a..b", ".a", "a.", "127.1", "1.2.3.4", "0x7f.1", "a.0x1", "a:80", "[::1]",
     "A.b", "ü.de", "a_b.c", "x" * 64 + ".a", "a." * 130 + "a", "**.a", "a.*.b", "a b"],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_the_rules(entry):
    assert not is_plain_name(entry)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_with_closed_standard_streams_it_runs_and_wrap_says_what_is_wrong(installed, who, closed):
    run = ["sh", "-c", f'"$@" {closed}', "sh", *installed.argv("run", "--yes", "--", "sh", "-c")]
    done = lnk.run(who, [*run, "exit 5"])
    assert (done.returncode, done.stderr) == (5, "")
    done = lnk.run(who, ["sh", "-c", f'"$@" {closed}', "sh", *installed.argv("wrap")], input="")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_a_name_cannot_steer_the_terminal_that_an_error_is_shown_on(installed, who, folder):
    """A program that was held before may have chosen it."""
    os.symlink(f"{folder}/\x1b]0;x\x07\n", f"{folder}/link")
    done = installed.run(who, "run", "--yes", "--read", f"{folder}/link", "--", "true")
    assert done.returncode == 125
    assert done.stderr.count("\n") == 1
    assert done.stderr.removesuffix("\n").isprintable()
    with open(f"{folder}/script", "w") as file:
        file.write("#!/\x1b]0;x\x07\n")
    os.chmod(f"{folder}/script", 0o755)
    command = installed.wrapped(who, [f"{folder}/script"], read=[folder])
    done = lnk.run(who, command)
    assert done.returncode == 127
    assert done.stderr.removesuffix("\n").isprintable()


def in_session(leader: int) -> list[int]:
    """Return the processes of a session that are no zombies."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, _, _, session = file.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it has ended
        if int(session) == leader and state != "Z":
            found.append(int(name))
    return found


def none_left(leader: int) -> bool:
    until = time.monotonic() + lnk.LONG_S
    empty = 0
    while empty < 3:  # one that was forked as its leader was killed is missed by a look
        if time.monotonic() > until:
            return False
        empty = 0 if in_session(leader) else empty + 1
        time.sleep(0.02)
    return True


def test_a_run_that_is_refused_leaves_no_proxy_behind(installed, who):
    argv = installed.argv("run", "--yes", "--write", "/nope", "--", "true")
    with lnk.popen(who, argv, start_new_session=True, stderr=subprocess.PIPE) as process:
        _, said = process.communicate(timeout=lnk.LONG_S)
        assert (process.returncode, said.count("\n")) == (125, 1)
        assert none_left(process.pid)


@pytest.mark.parametrize("after_ms", [0, 4, 8, 12, 16, 24, 32, 48, 64, 96])
def test_a_run_killed_while_it_starts_leaves_no_proxy_behind(installed, who, after_ms):
    argv = installed.argv("run", "--yes", "--", "sleep", "1000")
    with lnk.popen(who, argv, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        time.sleep(after_ms / 1000)  # what is tried is whatever moment that is
        process.kill()
        assert none_left(process.pid)
