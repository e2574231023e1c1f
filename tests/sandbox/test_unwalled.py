"""A program as it is under its proxy: `unwalled`, `pointed`, port zero, held ports (R11, R42)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from sandbox.client import HeldPort, Proxy, SandboxError, Unwalled
from sandbox.held_port import VARIABLE, take_over
from sandbox.pointing import filled, with_twins
from tests.sandbox import lnk

SOON_S = 110
REFUSED = b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n"
SECRET = re.compile(r"http://lnk:([A-Za-z0-9]{16,64})@127\.0\.0\.1:([0-9]+)")
POINTED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


def request(argv: list[str], *, pointed: bool = True, **proxy: object) -> str:
    made = {"upstream": "direct", "dir": "/nonexistent/unread", "hosts": ["example.com"], **proxy}
    unwalled = {"name": "bare", "proxy": made, "pointed": pointed}
    return json.dumps({"unwalled": unwalled, "argv": argv})


def wrapped(
    installed: lnk.Installed, who: lnk.Account, argv: list[str], **keys: Any
) -> tuple[list[str], dict[str, str]]:
    done = installed.run(who, "wrap", input=request(argv, **keys))
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    return made["argv"], made["env"]


def ran(
    installed: lnk.Installed, who: lnk.Account, argv: list[str], **keys: Any
) -> subprocess.CompletedProcess[str]:
    command, env = wrapped(installed, who, argv, **keys)
    return lnk.run(who, command, environ=env)


def answer(port: int, head: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), SOON_S) as sock:
        sock.sendall(head + b"\r\n")
        return sock.recv(4096)


def login(secret: str) -> bytes:
    return b"Proxy-Authorization: Basic " + base64.b64encode(f"any:{secret}".encode()) + b"\r\n"


def test_a_refusal_names_the_request_s_key(installed: lnk.Installed, who: lnk.Account) -> None:
    done = ran(installed, who, ["/usr/bin/curl", "-sS", "http://evil.test/"])
    assert 'add "evil.test" to proxy.hosts.' in done.stdout, done.stderr
    log = Path(f"{who.home}/.lnk/sandbox/log/bare.jsonl").read_text()
    assert 'add \\"evil.test\\" to proxy.hosts.' in log.splitlines()[-1]


# -- what wrap prints -----------------------------------------------------------------------


def test_the_secret_is_in_one_printed_variable_alone(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    argv, env = wrapped(installed, who, ["/bin/true"])
    secret, port = SECRET.fullmatch(env["HTTPS_PROXY"]).groups()
    assert port == "0"
    assert secret not in json.dumps(argv)
    assert [name for name, value in env.items() if secret in value] == ["HTTPS_PROXY"]
    assert "ProxyCommand=" in env["GIT_SSH_COMMAND"]
    assert argv[-2:] == ["--", "/bin/true"]
    _, again = wrapped(installed, who, ["/bin/true"])
    assert secret not in again["HTTPS_PROXY"], "each wrap makes its own"


def test_a_listen_port_stands_in_what_is_printed(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    argv, env = wrapped(installed, who, ["/bin/true"], listen=40781)
    assert env["HTTPS_PROXY"].endswith("@127.0.0.1:40781")
    assert "127.0.0.1:40781" in argv


def test_without_pointed_nothing_points_at_the_proxy(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    argv, env = wrapped(installed, who, ["/usr/bin/env"], pointed=False)
    assert env == {}
    done = lnk.run(who, argv)
    assert done.returncode == 0
    assert "proxy" not in done.stdout.lower()
    assert VARIABLE not in done.stdout


@pytest.mark.parametrize(
    ("text", "key", "cure"),
    [
        (request(["x"], upstream="socks5://u:treasure@h.example:1"), "unwalled.proxy.upstream",
         '"direct"'),
        (request(["x"], upstream="http://h.example:1"), "unwalled.proxy.upstream", '"direct"'),
        (request(["x"], hots=[]), "unwalled.proxy.hots: unknown key", "hosts"),
        (request(["x"], listen=0), "unwalled.proxy.listen", "1 to 65535"),
        (request(["x"], hosts=["a b"]), "unwalled.proxy.hosts[0]", "host"),
        (request(["x"], hosts=["a.example:1"]), "unwalled.proxy.hosts[0]", "tcp"),
        (request([]), "argv", "program"),
        ('{"unwalled": {"name": "a", "pointed": true}, "argv": ["x"]}', "unwalled.proxy", "is m"),
        (json.dumps({**json.loads(request(["x"])), "confinement": {
            "name": "a", "write": [], "read": [], "commands": "any", "net": "closed"}}),
         "unwalled", "one of the two"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_its_path_and_nothing_is_written(
    installed: lnk.Installed, ordinary: lnk.Account, tmp_path: Path, text: str, key: str, cure: str
) -> None:
    os.chmod(tmp_path, 0o777)
    home = f"{tmp_path}/home"
    done = installed.run(ordinary, "wrap", input=text, environ={"LNK_HOME": home})
    assert (done.returncode, done.stdout) == (2, "")
    assert key in done.stderr
    assert cure in done.stderr
    assert done.stderr.count("\n") == 1
    assert "treasure" not in done.stderr
    assert not os.path.exists(home)


def test_a_plan_that_is_explained_shows_no_secret(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    done = installed.run(who, "wrap", "--explain", input=request(["x"]))
    assert done.returncode == 0
    assert "no wall" in done.stdout
    assert "lnk:<secret>@" in done.stdout
    assert not SECRET.search(done.stdout)
    done = installed.run(who, "wrap", "--explain", "--json", input=request(["x"]))
    plan = json.loads(done.stdout)
    assert "lnk:<secret>@" in plan["environment"]["HTTPS_PROXY"]
    assert (plan["listens"], plan["proxy"]["name"]) == ("127.0.0.1:a port that is free", "bare")


@pytest.mark.parametrize("flags", [[], ["--json"]])
@pytest.mark.parametrize("hold", [False, True])
def test_no_explained_plan_shows_the_secret_of_its_routes(
    installed: lnk.Installed, ordinary: lnk.Account, hold: bool, flags: list[str]
) -> None:
    secret = "treasure4d0c8f0123"
    proxy = {"upstream": "direct", "dir": f"{ordinary.home}/wire", "hosts": [], "hold": hold,
             "caller": "caller-key-0123456789", "secret": secret,
             "routes": [{"kind": "local", "port": 11434}]}  # fmt: skip
    confinement = {"name": "box", "write": [], "read": [], "commands": "any",
                   "net": {"proxied": {"proxy": proxy, "ports": []}}}  # fmt: skip
    text = json.dumps({"confinement": confinement, "argv": ["x"]})
    done = installed.run(ordinary, "wrap", "--explain", *flags, input=text)
    assert done.returncode == 0, done.stderr
    assert "/_link/s/<secret>/local/11434" in done.stdout
    assert secret not in done.stdout
    if flags:
        assert isinstance(json.loads(done.stdout), dict)


# -- how its program runs ---------------------------------------------------------------------


def test_the_program_finds_the_real_port_and_its_twins(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    argv, env = wrapped(installed, who, ["/usr/bin/env", "-0"])
    mine = {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:0/_link/model/anthropic",
        "OTHER": "http://127.0.0.1:01 http://127.0.0.1:8080 127.0.0.1:0",
        "http_proxy": "http://elsewhere.example:1",
        "JAVA_TOOL_OPTIONS": "-Dmine=1",
        "NODE_OPTIONS": "--no-warnings",
    }
    done = lnk.run(who, argv, environ={**mine, **env})
    found = dict(line.partition("=")[::2] for line in done.stdout.split("\0") if line)
    secret, port = SECRET.fullmatch(found["HTTPS_PROXY"]).groups()
    assert int(port) > 0
    assert {found[name] for name in POINTED} == {f"http://lnk:{secret}@127.0.0.1:{port}"}
    assert found["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:{port}/_link/model/anthropic"
    assert found["OTHER"] == mine["OTHER"]
    assert found["JAVA_TOOL_OPTIONS"].startswith("-Dmine=1 -Dhttp.proxyHost=127.0.0.1 ")
    assert f"-Dhttps.proxyPort={port}" in found["JAVA_TOOL_OPTIONS"]
    assert found["NODE_OPTIONS"].startswith("--no-warnings --require /")
    assert secret not in found["JAVA_TOOL_OPTIONS"] + found["GIT_SSH_COMMAND"]
    assert found["HOME"] == who.home, "the rest is as it was"


def test_its_streams_folder_descriptors_and_status_are_its_own(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    with open("/dev/zero") as file:
        script = f"cat; pwd; readlink /proc/self/fd/{file.fileno()} >&2; exit 42"
        argv, env = wrapped(installed, who, ["/bin/sh", "-c", script])
        done = subprocess.run(
            argv, input="in", env={**who.environ, **env}, cwd=folder, text=True,
            capture_output=True, timeout=SOON_S, pass_fds=[file.fileno()], **lnk.identity(who),
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (42, f"in{folder}\n")
    assert done.stderr == "/dev/zero\n"


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("/nonexistent/program", 127, "there is no such program"),
        ("no-such-program", 127, "there is no such program"),
        ("/etc/passwd", 126, "Permission denied"),
        ("/tmp", 126, "Permission denied"),
    ],
)
def test_a_program_that_cannot_be_run_is_one_sentence(
    installed: lnk.Installed, who: lnk.Account, program: str, code: int, said: str
) -> None:
    done = ran(installed, who, [program])
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"lnk sandbox: {program}: {said}.\n"


class Started:
    """An unwalled command that runs a shell script, which says when it is there."""

    def __init__(
        self, installed: lnk.Installed, who: lnk.Account, script: str, **more: Any
    ) -> None:
        script = f"echo $$ $HTTPS_PROXY; {script}"
        argv, env = wrapped(installed, who, ["/bin/sh", "-c", script])
        self.process = lnk.popen(
            who, argv, env={**who.environ, **env}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, **more,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        pid, _, url = line.partition(" ")
        self.program = int(pid)
        self.secret, port = SECRET.fullmatch(url.strip()).groups()
        self.port = int(port)

    @property
    def wire(self) -> int:
        """The pid of the process that serves."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        (found,) = {int(pid) for pid in Path(path).read_text().split()} - {self.program}
        return found

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.program, signal.SIGKILL)
        self.process.communicate(timeout=SOON_S)


WAITS = "trap 'echo TERM; exit 5' TERM; trap 'echo HUP; exit 6' HUP; trap 'echo INT; exit 7' INT;"
FOREVER = "while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("number", "word", "code"),
    [(signal.SIGTERM, "TERM", 5), (signal.SIGHUP, "HUP", 6), (signal.SIGINT, "INT", 7)],
)
def test_signals_are_forwarded_as_they_come(
    installed: lnk.Installed, who: lnk.Account, number: int, word: str, code: int
) -> None:
    with Started(installed, who, f"{WAITS} echo ready; {FOREVER}") as one:
        assert one.process.stdout.readline() == "ready\n"
        one.process.send_signal(number)
        out, _ = one.process.communicate(timeout=SOON_S)
        assert out == f"{word}\n"
        assert one.process.returncode == code


def test_a_program_that_a_signal_ends_is_128_and_the_signal(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    assert ran(installed, who, ["/bin/sh", "-c", "kill -KILL $$"]).returncode == 137
    with Started(installed, who, FOREVER) as one:
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(SOON_S) == 143


def test_the_secret_is_required_and_the_wire_ends_with_the_program(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    with Started(installed, who, f"trap 'exit 0' TERM; echo ready; {FOREVER}") as one:
        assert one.process.stdout.readline() == "ready\n"  # its trap stands
        refused = answer(one.port, REFUSED)
        assert refused.startswith(b"HTTP/1.1 407 ")
        assert b"Proxy-Authenticate: Basic" in refused
        assert answer(one.port, REFUSED + login(one.secret)).startswith(b"HTTP/1.1 403 ")
        plain = b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n"
        assert answer(one.port, plain).startswith(b"HTTP/1.1 407 ")
        assert answer(one.port, b"GET /_link/x HTTP/1.1\r\nHost: x\r\n").startswith(
            b"HTTP/1.1 404 "
        )
        shown = Path(f"/proc/{one.wire}/cmdline").read_text()
        assert one.secret not in shown
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(SOON_S) == 0
        with pytest.raises(ConnectionRefusedError):
            answer(one.port, REFUSED)
        assert one.process.stderr.read() == ""
    log = Path(f"{who.home}/.lnk/sandbox/log/bare.jsonl").read_text()
    assert one.secret not in log
    assert '"status":407' in log


def test_the_kill_switch_and_a_pause_close_it_too(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    metadata = b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254\r\n"
    try:
        with Started(installed, who, FOREVER) as one:
            its = login(one.secret)
            assert installed.run(who, "stop").returncode == 0
            assert answer(one.port, REFUSED + its).startswith(b"HTTP/1.1 503 The wire is stopped")
            assert installed.run(who, "start").returncode == 0
            assert answer(one.port, metadata + its).startswith(b"HTTP/1.1 403 ")
            assert answer(one.port, REFUSED + its).startswith(b"HTTP/1.1 503 The wire is paused")
            assert installed.run(who, "resume", "bare").returncode == 0
            assert answer(one.port, REFUSED + its).startswith(b"HTTP/1.1 403 ")
    finally:
        installed.run(who, "start")


def test_without_pointed_no_secret_is_required(
    installed: lnk.Installed, ordinary: lnk.Account
) -> None:
    script = "import socket,sys\ns=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n" \
        "s.sendall(b'CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n')\n" \
        "print(s.recv(12))"  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    argv = ["/usr/bin/python3", "-c", script, str(port)]
    done = ran(installed, ordinary, argv, pointed=False, listen=port)
    assert done.stdout == "b'HTTP/1.1 403'\n", done.stderr


def test_the_wire_ends_though_what_stands_in_front_is_killed(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    with Started(installed, who, FOREVER) as one:
        held = os.pidfd_open(one.wire)
        one.process.kill()
        ended = select.poll()
        ended.register(held, select.POLLIN)
        assert ended.poll(SOON_S * 1000)
        os.close(held)
        with pytest.raises(ConnectionRefusedError):
            answer(one.port, REFUSED)


def test_a_program_whose_wire_is_gone_is_told_to_end(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    with Started(installed, who, f"{WAITS} echo ready; {FOREVER}") as one:
        assert one.process.stdout.readline() == "ready\n"  # its traps stand
        os.kill(one.wire, signal.SIGKILL)
        out, err = one.process.communicate(timeout=SOON_S)
        assert (out, one.process.returncode) == ("TERM\n", 5)
        assert err == "lnk sandbox: the proxy ended, so its program is told to.\n"


def test_what_a_terminal_sends_reaches_the_program_once(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'INT\\n'))\n"
        "os.write(1, b'ready\\n')\n"
        "sys.stdin.readline()\n"
    )
    argv, env = wrapped(installed, who, ["/usr/bin/python3", "-c", code])
    ours, its = os.openpty()
    process = lnk.popen(
        who, argv, env={**who.environ, **env}, stdin=its, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, 0x540E, 0),  # TIOCSCTTY
    )  # fmt: skip
    os.close(its)
    try:
        assert process.stdout.readline() == "ready\n"
        os.write(ours, b"\x03")
        assert process.stdout.readline() == "INT\n"
        os.write(ours, b"\n")
        out, _ = process.communicate(timeout=SOON_S)
        assert (out, process.returncode) == ("", 0)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=SOON_S)
        os.close(ours)


@pytest.mark.parametrize("others", [0o777, None])
def test_where_the_wire_cannot_begin_the_program_does_not(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, others: int | None
) -> None:
    home = f"{ordinary_folder}/lnk"
    mark = f"{ordinary_folder}/ran"
    done = installed.run(
        ordinary, "wrap", input=request(["/usr/bin/touch", mark]), environ={"LNK_HOME": home}
    )
    made = json.loads(done.stdout)
    log = f"{home}/sandbox/log"
    if others is None:
        os.rmdir(log)
        os.rmdir(f"{home}/sandbox")
    else:
        os.chmod(log, others)
    done = lnk.run(ordinary, made["argv"], environ=made["env"])
    assert done.returncode in (2, 125)
    assert done.stderr.startswith("lnk sandbox: ")
    assert done.stderr.count("\n") == 1
    assert not os.path.exists(mark)


def test_a_taken_port_is_one_sentence(installed: lnk.Installed, ordinary: lnk.Account) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ran(installed, ordinary, ["/bin/true"], listen=port)
    assert done.returncode == 125
    assert f"port {port} of 127.0.0.1 is taken" in done.stderr


@pytest.mark.parametrize("pointed", [True, False])
def test_its_routes_are_reached_pointed_or_not(
    installed: lnk.Installed, who: lnk.Account, pointed: bool
) -> None:
    """`LNK_LOCAL_MODEL_<port>` names port zero until the proxy has one."""
    with socket.create_server(("127.0.0.1", 0)) as runtime:
        port = runtime.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError), runtime.accept()[0] as sock:
                sock.recv(4096)
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nmodels")

        thread = threading.Thread(target=serve)
        thread.start()
        routes = {"routes": [{"kind": "local", "port": port}], "caller": "c" * 16}
        script = f"curl -sS $LNK_LOCAL_MODEL_{port}/api/tags; env | grep -c ^HTTPS_PROXY"
        argv, env = wrapped(installed, who, ["/bin/sh", "-c", script], pointed=pointed, **routes)
        name = f"LNK_LOCAL_MODEL_{port}"
        assert re.fullmatch(rf"http://127\.0\.0\.1:0/_link/s/\w+/local/{port}", env[name])
        assert ("HTTPS_PROXY" in env) is pointed
        assert env[name].split("/")[5] not in json.dumps(argv)
        done = lnk.run(who, argv, environ=env)
        assert done.stdout == f"models{int(pointed)}\n", done.stderr
        thread.join(SOON_S)


def test_listen_is_the_proxy_s_port_inside_too(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    proxy = {"upstream": "direct", "dir": f"{folder}-wire", "hosts": [], "listen": 40990}
    script = "echo $HTTPS_PROXY; curl -sS http://evil.test/"
    net = {"proxied": {"proxy": proxy, "ports": []}}
    made = installed.wrap(who, ["/bin/sh", "-c", script], net=net)
    done = lnk.run(who, made["argv"], environ=made["env"])
    assert done.stdout.startswith("http://127.0.0.1:40990\nevil.test:80 is ")


# -- held ports -------------------------------------------------------------------------------


def held_run(
    installed: lnk.Installed, who: lnk.Account, argv: list[str], held: HeldPort, **more: str
) -> subprocess.CompletedProcess[str]:
    command, env = wrapped(installed, who, argv, listen=held.port)
    return lnk.run(who, command, environ={**env, **held.env, **more}, pass_fds=[held.fd])


def test_a_held_port_is_served_as_it_is_and_the_program_gets_none_of_it(
    installed: lnk.Installed, who: lnk.Account
) -> None:
    look = "ls -l /proc/self/fd /proc/$PPID/fd; env; curl -sS http://evil.test/"
    with HeldPort() as held:
        its = os.readlink(f"/proc/self/fd/{held.fd}")
        done = held_run(installed, who, ["/bin/sh", "-c", look], held)
        assert done.returncode == 0, done.stderr
        assert "is not among this sandbox's hosts" in done.stdout
        assert f"127.0.0.1:{held.port}" in done.stdout
        assert VARIABLE not in done.stdout
        assert its not in done.stdout


def test_the_one_who_holds_it_may_let_go_once_it_is_handed_over(
    installed: lnk.Installed, ordinary: lnk.Account
) -> None:
    with HeldPort() as held, pytest.raises(OSError, match="in use"):
        HeldPort(held.port)
    port = held.port
    with HeldPort(port) as again:
        assert again.port == port


Made = contextlib.AbstractContextManager[socket.socket]


def listening(family: int, kind: int, address: Any, *, listens: bool = True) -> socket.socket:
    made = socket.socket(family, kind)
    if address is not None:
        made.bind(address)
    if listens:
        made.listen()
    return made


HERE = ("127.0.0.1", 0)
TCP, UDP, UNIX = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.AF_UNIX
BAD = {
    "another port": (socket.AF_INET, TCP, HERE, True, "doesn't listen on 127.0.0.1:40781"),
    "all addresses": (socket.AF_INET, TCP, ("0.0.0.0", 0), True, "doesn't listen on 127.0.0.1"),
    "another loopback": (socket.AF_INET, TCP, ("127.0.0.2", 0), True, "doesn't listen on 127.0"),
    "not listening": (socket.AF_INET, TCP, HERE, False, "doesn't listen;"),
    "not bound": (socket.AF_INET, TCP, None, False, "doesn't listen;"),
    "UDP": (socket.AF_INET, UDP, HERE, False, "is no TCP socket of IPv4"),
    "IPv6": (socket.AF_INET6, TCP, ("::1", 0), True, "is no TCP socket of IPv4"),
    "unix": (UNIX, TCP, "\0lnk-test-held", True, "is no TCP socket of IPv4"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_socket_that_is_not_the_one_meant_is_refused(
    installed: lnk.Installed, ordinary: lnk.Account, bad: Any
) -> None:
    family, kind, address, listens, why = bad
    with listening(family, kind, address, listens=listens) as made:
        command, env = wrapped(installed, ordinary, ["/bin/echo", "ran"], listen=40781)
        done = lnk.run(
            ordinary, command, environ={**env, VARIABLE: str(made.fileno())},
            pass_fds=[made.fileno()],
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"lnk sandbox: {VARIABLE}: descriptor ")
    assert why in done.stderr
    assert "HeldPort" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "no descriptor above 2"),
        ("treasure", "no descriptor above 2"),
        ("-1", "no descriptor above 2"),
        ("0", "no descriptor above 2"),
        ("2", "no descriptor above 2"),
        ("³", "no descriptor above 2"),
        ("99999999999", "no descriptor above 2"),
        ("977", "isn't open"),
    ],
)
def test_what_is_no_descriptor_is_refused_and_not_shown(
    installed: lnk.Installed, ordinary: lnk.Account, value: str, why: str
) -> None:
    command, env = wrapped(installed, ordinary, ["/bin/echo", "ran"], listen=40781)
    done = lnk.run(ordinary, command, environ={**env, VARIABLE: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert "treasure" not in done.stderr


def test_a_file_and_a_port_that_listen_does_not_name_are_refused() -> None:
    with open("/dev/null") as file, pytest.raises(SandboxError, match="is no socket") as refused:
        take_over({VARIABLE: str(file.fileno())}, 40781)
    assert refused.value.exit_code == 2
    with HeldPort() as held, pytest.raises(SandboxError, match="listen names none"):
        take_over(dict(held.env), 0)
    assert take_over({}, 40781) is None


def test_the_variable_is_taken_out_and_the_listener_is_not_inherited() -> None:
    with HeldPort() as held:
        os.set_inheritable(held.fd, True)
        environ = {**held.env, "A": "b"}
        taken = take_over(environ, held.port)
        assert taken is not None
        assert environ == {"A": "b"}
        assert not taken.get_inheritable()
        taken.detach()


# -- pure -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("http://127.0.0.1:0", "http://127.0.0.1:8"),
        ("http://127.0.0.1:0/a/b", "http://127.0.0.1:8/a/b"),
        ("http://lnk:s3cret@127.0.0.1:0", "http://lnk:s3cret@127.0.0.1:8"),
        ("x http://127.0.0.1:0 http://127.0.0.1:0/y", "x http://127.0.0.1:8 http://127.0.0.1:8/y"),
        ("http://127.0.0.1:00", "http://127.0.0.1:00"),
        ("http://127.0.0.1:08", "http://127.0.0.1:08"),
        ("http://127.0.0.1:80", "http://127.0.0.1:80"),
        ("https://127.0.0.1:0", "https://127.0.0.1:0"),
        ("http://localhost:0", "http://localhost:0"),
        ("http://a/b@127.0.0.1:0", "http://a/b@127.0.0.1:0"),
    ],
)
def test_only_port_zero_of_the_proxy_s_urls_is_filled_in(value: str, made: str) -> None:
    assert filled({"A": value}, 8) == {"A": made}


def test_the_twins_are_the_pointer_s() -> None:
    made = with_twins({"MY": "http://lnk:x@127.0.0.1:8", "http_proxy": "y"}, "MY", 8)
    assert {made[name] for name in POINTED} == {"http://lnk:x@127.0.0.1:8"}


def test_an_unwalled_is_made_in_python_too() -> None:
    proxy = Proxy(upstream="direct", dir="/d", listen=40781)
    made = Unwalled(name="a", proxy=proxy, pointed=True)
    assert made.as_json()["proxy"]["listen"] == 40781
