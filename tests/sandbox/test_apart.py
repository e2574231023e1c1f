"""Proxies started apart: held, and blank until they are bound (R42)."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_bind import one_input
from proto.errors import Refused
from proto.policy.target import Scope
from sandbox.cli.blank import told_of
from sandbox.cli.serving import WireSettings, policy_of
from sandbox.client import LaunchError, ProxyBind, bind_proxy
from sandbox.handed import APART
from sandbox.route import Local, Open, Secret
from sandbox.route import Rule as SecretRule
from sandbox.table import dump_table, keys_of
from tests.sandbox import lnk
from tests.sandbox.test_exits import PASSWORD, Exit, exit_

__all__ = ["exit_"]  # a fixture

SOON_S = 110
CONNECT = b"CONNECT %b:443 HTTP/1.1\r\nHost: %b:443\r\n\r\n"
CALLER, KEY = "caller-key-0123456789", "treasure-4d0c8f"
URL_SECRET = "abcdefghijklmnop0123"


def answer(path: str | Path, head: bytes = CONNECT % ((b"evil.test",) * 2)) -> bytes:
    """Return what is answered to a head by the proxy at a socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(SOON_S)
        sock.connect(str(path))
        sock.sendall(head)
        said = b""
        while data := sock.recv(4096):
            said += data
    return said


class Standing:
    """A proxy that was started apart, and says where it listens."""

    def __init__(self, who: lnk.Account, argv: list[str], **more: Any) -> None:
        given = {"env": who.environ, **more}
        self.process = lnk.popen(
            who, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            **given,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()

    @property
    def pids(self) -> set[int]:
        """It and all that it has started."""
        found = {self.process.pid}
        for stat_ in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                pid, _, rest = stat_.read_text().partition(" ")
                if int(rest.rpartition(")")[2].split()[1]) == self.process.pid:
                    found.add(int(pid))
        return found

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it by a signal; return its status, and what it has said."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=SOON_S)
        return self.process.returncode, err

    def __enter__(self) -> Standing:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()


# -- hold -------------------------------------------------------------------------------------


def held(
    installed: lnk.Installed, who: lnk.Account, folder: str, **keys: Any
) -> tuple[list[str], dict[str, str]]:
    proxy = {"upstream": "direct", "dir": folder, "hosts": ["example.com"], "hold": True, **keys}
    made = installed.wrap(who, ["unread"], net={"proxied": {"proxy": proxy, "ports": []}})
    return made["argv"], made["env"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_held_proxy_stands_alone_until_it_is_stopped(
    installed: lnk.Installed, who: lnk.Account, folder: str, number: int
) -> None:
    wire = f"{folder}/wire"
    argv, env = held(installed, who, wire, listen=40790)
    assert "unread" not in argv
    assert env["HTTPS_PROXY"] == env["http_proxy"] == "http://127.0.0.1:40790"
    with Standing(who, argv) as one:
        assert one.line == f"listening on {wire}/out.sock\n"
        assert stat.S_IMODE(os.stat(wire).st_mode) == 0o700
        assert answer(f"{wire}/out.sock").startswith(b"HTTP/1.1 403 ")
        with Standing(who, argv) as second:
            assert second.end() == (
                2,
                f"lnk sandbox: another proxy listens at {wire}/out.sock: end it, or name another "
                "--dir.\n",
            )
        said = answer(f"{wire}/out.sock")
        assert said.startswith(b"HTTP/1.1 403 Forbidden: add evil.test to proxy.hosts\r\n")
        assert one.end(number) == (0, "")
    assert not os.path.exists(wire)
    log = Path(f"{who.home}/.lnk/sandbox/log/box.jsonl").read_text()
    assert '"host":"evil.test"' in log.splitlines()[-1]


def test_the_kill_switch_and_a_pause_close_a_held_proxy_too(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    argv, _ = held(installed, who, f"{folder}/wire")
    out = f"{folder}/wire/out.sock"
    metadata = CONNECT % ((b"169.254.169.254",) * 2)
    try:
        with Standing(who, argv):
            assert installed.run(who, "stop").returncode == 0
            assert answer(out).startswith(b"HTTP/1.1 503 The wire is stopped")
            assert installed.run(who, "start").returncode == 0
            assert answer(out, metadata).startswith(b"HTTP/1.1 403 ")
            assert answer(out).startswith(b"HTTP/1.1 503 The wire is paused")
            assert installed.run(who, "resume", "box").returncode == 0
            assert answer(out).startswith(b"HTTP/1.1 403 ")
    finally:
        installed.run(who, "start")


def test_one_that_was_killed_leaves_a_socket_that_the_next_replaces(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    wire = f"{ordinary_folder}/wire"
    argv, _ = held(installed, ordinary, wire)
    with Standing(ordinary, argv) as one:
        one.end(signal.SIGKILL)
    assert os.listdir(wire) == ["out.sock"]
    with Standing(ordinary, argv) as again:
        assert answer(f"{wire}/out.sock").startswith(b"HTTP/1.1 403 ")
        assert again.end() == (0, "")


@pytest.mark.parametrize(
    ("proxy", "net", "key"),
    [
        ({"tcp": ["db.example.com:5432"]}, {}, "confinement.net.proxied.proxy.tcp: needs DNS"),
        ({}, {"ports": [5432]}, "confinement.net.proxied.ports: are opened in"),
        ({"hosts": ["a b"]}, {}, "confinement.net.proxied.proxy.hosts[0]"),
    ],
)
def test_what_a_held_proxy_cannot_do_is_refused_by_its_path(
    installed: lnk.Installed, ordinary: lnk.Account, proxy: Any, net: Any, key: str
) -> None:
    made = {"upstream": "direct", "dir": "~/wire", "hold": True, **proxy}
    confinement = {"name": "box", "write": [], "read": [], "commands": "any",
                   "net": {"proxied": {"proxy": made, "ports": [], **net}}}  # fmt: skip
    text = json.dumps({"confinement": confinement, "argv": ["x"]})
    done = installed.run(ordinary, "wrap", input=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert key in done.stderr
    assert done.stderr.count("\n") == 1


def test_its_folder_lies_in_none_that_a_sandbox_is_shown(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    proxy = {"upstream": "direct", "dir": f"{ordinary_folder}/wire", "hold": True}
    confinement = {"name": "box", "write": [ordinary_folder], "read": [], "commands": "any",
                   "net": {"proxied": {"proxy": proxy, "ports": []}}}  # fmt: skip
    link = f"{ordinary.home}/link-to-wire"
    os.symlink(ordinary_folder, link)
    for folder, hold in itertools.product((f"{ordinary_folder}/wire", f"{link}/wire"), (1, 0)):
        proxy |= {"dir": folder, "hold": bool(hold)}
        text = json.dumps({"confinement": confinement, "argv": ["x"]})
        done = installed.run(ordinary, "wrap", input=text)
        assert (done.returncode, done.stdout) == (125, "")
        assert f"{folder} lies in {ordinary_folder}, which is shown" in done.stderr
    os.unlink(link)


def test_an_explained_hold_names_its_socket(
    installed: lnk.Installed, ordinary: lnk.Account
) -> None:
    proxy = {"upstream": "direct", "dir": "/srv/held", "hold": True}
    confinement = {"name": "box", "write": [], "read": [], "commands": "any",
                   "net": {"proxied": {"proxy": proxy, "ports": []}}}  # fmt: skip
    text = json.dumps({"confinement": confinement, "argv": ["x"]})
    done = installed.run(ordinary, "wrap", "--explain", input=text)
    assert "a proxy alone" in done.stdout
    assert "/srv/held/out.sock" in done.stdout


# -- the flags --------------------------------------------------------------------------------

HOLD = ["--dir", "/srv/x", "--hold"]
BAD = [
    (["--hold"], "--hold", "add --dir"),
    ([*HOLD, "--", "x"], "--hold holds no program", "leave it out"),
    (["--dir", "/srv/x"], "--dir alone", "add --hold"),
    (["--dir", ""], "--dir names no folder", "--dir FOLDER"),
    ([*HOLD, "--agent-user", "1"], "--agent-user and --group", "add --group"),
    ([*HOLD, "--group", "1"], "--agent-user and --group", "add --agent-user"),
    ([*HOLD, "--group", "x", "--agent-user", "1"], "--group 'x'", "--group 1000"),
    ([*HOLD, "--group", "1", "--agent-user", "-1"], "--agent-user '-1'", "1000"),
    ([*HOLD, "--group", "1", "--agent-user", "4294967295"], "--agent-user", "1000"),
    (["--agent-user", "1", "--group", "1", "--", "x"], "--agent-user and --group", "add --dir"),
    (["--blank"], "--blank needs --control", "add it"),
    (["--blank", "--control", "/srv/c"], "--blank needs --dir", "add it"),
    (["--blank", "--control", "/srv/c", "--dir", "/x", "--listen", "127.0.0.1:0", "--hold"],
     "--listen stands beside --blank", "leave it out"),
    (["--blank", "--control", "/srv/c", "--dir", "/x", "--hosts", "a.b", "--hold"],
     "--hosts stands beside --blank", "leave it out"),
    (["--blank", "--control", "/srv/c", "--dir", "/x", "--dns", "--hold"], "'--dns'", "--help"),
    (["--blank", "--control", "/nowhere/c", *HOLD], "--control /nowhere/c", "can't be opened"),
    (["--blank", "--control", "/srv/c", "--binder", "x", *HOLD], "--binder 'x'", "--binder 1000"),
    (["--blank", "--control", "", *HOLD], "--control", "names no socket"),
    (["--control", "/srv/c", *HOLD], "--control is for a blank proxy", "add --blank"),
    (["--binder", "0", *HOLD], "--binder is for a blank proxy", "add --blank"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "named", "cure"), BAD)
def test_a_bad_flag_is_one_sentence(
    installed: lnk.Installed, ordinary: lnk.Account, words: list[str], named: str, cure: str
) -> None:
    hosts = [] if "--blank" in words else ["--any-host"]
    done = installed.run(ordinary, "proxy", *hosts, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert cure in done.stderr
    assert done.stderr.count("\n") == 1


# -- blank ------------------------------------------------------------------------------------


@pytest.fixture
def place(who: lnk.Account, folder: str) -> Iterator[str]:
    """A folder for a control, its user's alone."""
    os.chmod(folder, 0o700)
    return folder


def blank(installed: lnk.Installed, who: lnk.Account, place: str, *words: str) -> Standing:
    argv = installed.argv("proxy", "--blank", "--control", f"{place}/control",
                          "--dir", f"{place}/wire", *(words or ("--hold",)))  # fmt: skip
    return Standing(who, argv)


@contextlib.contextmanager
def as_its_user(path: str) -> Iterator[None]:
    """Be to those whom we connect to the user whose a file is."""
    uid, ours = os.stat(path).st_uid, os.geteuid()
    os.seteuid(uid)
    yield
    os.seteuid(ours)


def bound(place: str, line: bytes | dict[str, Any], *, as_ourselves: bool = False) -> Any:
    """Send a line to a control, as its user; return its answer, None where there is none."""
    data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
    control = f"{place}/control"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(SOON_S)
        with contextlib.nullcontext() if as_ourselves else as_its_user(control):
            sock.connect(control)
        text = b""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)  # it may have answered without reading
            sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(4096):
                text += piece
    assert text.count(b"\n") <= 1
    return json.loads(text) if text else None


BIND = {"upstream": "direct", "host": ["example.com"], "name": "bound"}


def test_a_blank_proxy_answers_503_until_it_is_bound_and_serves_then(
    installed: lnk.Installed, who: lnk.Account, place: str
) -> None:
    out = f"{place}/wire/out.sock"
    with blank(installed, who, place) as one:
        assert one.line == f"listening on {out}\n"
        control = os.stat(f"{place}/control")
        assert (stat.S_IMODE(control.st_mode), control.st_uid) == (0o600, who.uid)
        for head in (
            CONNECT % ((b"example.com",) * 2),
            b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
            b"GET /_link/x HTTP/1.1\r\nHost: x\r\n\r\n",
        ):
            said = answer(out, head)
            assert said.startswith(b"HTTP/1.1 503 "), said
            assert b"bound to no sandbox yet" in said
        assert bound(place, {**BIND, "wire": f"{place}/link"}) is not None
        os.makedirs(f"{place}/link", 0o700)
        os.chown(f"{place}/link", who.uid, who.gid)
        assert bound(place, {**BIND, "wire": f"{place}/link"}) == {}
        said = answer(out)
        assert said.startswith(b"HTTP/1.1 403 Forbidden: add evil.test to host\r\n")
        assert said.endswith(b'add "evil.test" to host.\n')
        second = bound(place, {**BIND, "host": ["evil.test"]})
        assert "bound already" in second["error"]
        assert answer(out).startswith(b"HTTP/1.1 403 ")
        code, err = one.end()
        assert code == 0
        assert "evil.test" not in err, "its log is the binding's"
    log = Path(f"{place}/link/log/bound.jsonl").read_text()
    assert log.count('"host":"evil.test"') == 2
    assert not os.path.exists(out)
    assert not os.path.exists(f"{place}/control")


def test_a_binding_limits_its_calls_a_minute(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    os.chmod(ordinary_folder, 0o700)
    with blank(installed, ordinary, ordinary_folder):
        assert bound(ordinary_folder, {**BIND, "per_minute": 1}) == {}
        out = f"{ordinary_folder}/wire/out.sock"
        assert answer(out).startswith(b"HTTP/1.1 403 ")
        over = answer(out)
        assert over.startswith(b"HTTP/1.1 429 ")
        assert b"per_minute" in over


def test_a_binding_without_hosts_reaches_any_by_its_upstream(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, exit_: Exit
) -> None:
    os.chmod(ordinary_folder, 0o700)
    with blank(installed, ordinary, ordinary_folder) as one:
        assert bound(ordinary_folder, {"upstream": exit_.url}) == {}
        asked = b"GET http://203.0.113.10/ HTTP/1.1\r\nHost: 203.0.113.10\r\n" \
            b"Connection: close\r\n\r\n"  # fmt: skip
        assert answer(f"{ordinary_folder}/wire/out.sock", asked).endswith(b"behind")
        assert exit_.heads[0].startswith(b"CONNECT 203.0.113.10:80 HTTP/1.1\r\n")
        code, err = one.end()
        assert (code, PASSWORD in err) == (0, False)


@pytest.mark.parametrize("closed", [False, True])
def test_a_binding_opens_the_local_network_beside_the_internet_or_without_it(closed: bool) -> None:
    bind = ProxyBind(upstream="direct", lan=("10.0.0.9:8080",), no_internet=closed)
    told, _ = told_of(bind, {})
    policy = policy_of(WireSettings(told.pop("hosts"), **told))
    assert policy.admit("10.0.0.9", 8080).scope is Scope.LAN
    with pytest.raises(Refused) if closed else contextlib.nullcontext():
        policy.admit("example.com", 443)


def test_the_flags_of_its_binding_close_the_wire(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    os.chmod(ordinary_folder, 0o700)
    link = f"{ordinary_folder}/link"
    os.makedirs(f"{link}/paused", 0o700)
    for path in (link, f"{link}/paused"):
        os.chown(path, ordinary.uid, ordinary.gid)
    with blank(installed, ordinary, ordinary_folder):
        assert bound(ordinary_folder, {**BIND, "wire": link}) == {}
        out = f"{ordinary_folder}/wire/out.sock"
        assert answer(out).startswith(b"HTTP/1.1 403 ")
        with open(f"{link}/stopped", "w") as flag:
            os.fchown(flag.fileno(), ordinary.uid, ordinary.gid)
        assert answer(out).startswith(b"HTTP/1.1 503 The wire is stopped")


ROUTED = {**BIND, "caller": CALLER, "url_secret": URL_SECRET}
BAD_BINDS = [
    (b"\n", "is empty"),
    (b"treasure\n", "isn't JSON"),
    (b"[]\n", "isn't an object"),
    (b'{"upstream": "direct"', "doesn't end"),
    (b'{"upstream": "direct"}\n{}\n', "doesn't end"),
    ({"upstream": "direct", "hosts": []}, "hosts: unknown key; did you mean host?"),
    ({}, "upstream: is missing"),
    ({"upstream": "ftp://treasure@x"}, "upstream: "),
    ({"upstream": "http://u:treasure@x"}, "upstream: "),
    ({**BIND, "host": ["a b"]}, "host[0]: "),
    ({**BIND, "host": ["a.example:1"]}, "host[0]: "),
    ({**BIND, "lan": ["x"]}, "lan[0]: "),
    ({**BIND, "name": "../treasure"}, "name: "),
    ({**BIND, "wire": "relative"}, "wire: "),
    ({**BIND, "tcp": ["db.example.com:5432"]}, "tcp: needs DNS"),
    ({**BIND, "reach": [5432]}, "reach: opens ports"),
    ({**BIND, "no_internet": True}, "no_internet: closes what host opens"),
    ({**BIND, "per_minute": 0}, "per_minute: "),
    ({**BIND, "routes": [{"kind": "local", "port": 1}]}, "caller: is missing"),
    ({**BIND, "routes": [{"kind": "local", "port": 1}], "caller": CALLER}, "url_secret: is m"),
    ({**BIND, "routes": [{"kind": "local", "port": 1}] * 2, "caller": CALLER}, "routes[1].port: "),
    ({**BIND, "routes": [{"kind": "treasure"}], "caller": CALLER}, "routes[0].kind: "),
    ({**BIND, "wire": "/nonexistent/link"}, "/nonexistent/link"),
    ({**ROUTED, "routes": [{"kind": "open"}], "desktop": True}, "wire: is missing; tools and p"),
    (
        {
            **ROUTED,
            "routes": [
                {"kind": "tool", "name": "t", "argv": ["/bin/true"], "ask": "none", "allow": []}
            ],
        },
        "wire: is missing; tools and pages",
    ),
    (b'{"upstream": "direct", "upstream": "direct"}\n', "upstream: is given twice"),
]


def test_what_cannot_be_bound_is_told_and_leaves_it_blank(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    os.chmod(ordinary_folder, 0o700)
    with blank(installed, ordinary, ordinary_folder) as one:
        for line, why in BAD_BINDS:
            said = bound(ordinary_folder, line)
            assert why in said["error"], (line, said)
            assert "\n" not in said["error"]
            if b"treasure" in json.dumps(line if isinstance(line, dict) else "").encode():
                assert "treasure@" not in said["error"]
                assert "u:treasure" not in said["error"]
        out = f"{ordinary_folder}/wire/out.sock"
        assert answer(out).startswith(b"HTTP/1.1 503 ")
        assert bound(ordinary_folder, BIND) == {}
        assert answer(out).startswith(b"HTTP/1.1 403 ")
        assert one.end()[0] == 0


def test_a_binding_is_made_in_python(
    installed: lnk.Installed, who: lnk.Account, place: str
) -> None:
    control = f"{place}/control"
    with pytest.raises(LaunchError, match="No such file"):
        bind_proxy(control, ProxyBind(upstream="direct"))
    with blank(installed, who, place):
        with as_its_user(control):
            told = bind_proxy(control, ProxyBind(upstream="direct", host=("a b",)))
            assert told.error is not None
            assert "host[0]" in told.error
            assert bind_proxy(control, ProxyBind(upstream="direct", host=())).error is None
        assert answer(f"{place}/wire/out.sock").startswith(b"HTTP/1.1 403 ")


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be two users")
def test_only_its_own_user_and_the_binder_may_bind(
    installed: lnk.Installed, people: dict[str, lnk.Account]
) -> None:
    user, place = people["user"], f"{people['user'].home}/bind"
    lnk.made_anew(place, 0o700)
    os.chown(place, user.uid, user.gid)
    with blank(installed, user, place) as one:
        refused = bound(place, BIND, as_ourselves=True)
        assert "this user may not bind it" in refused["error"], "root isn't one who binds"
        assert answer(f"{place}/wire/out.sock").startswith(b"HTTP/1.1 503 ")
        told = bind_proxy(f"{place}/control", ProxyBind(upstream="direct"))
        assert told.error is not None
        assert one.end()[0] == 0
    with blank(installed, user, place, "--binder", "0", "--hold") as one:
        assert bound(place, BIND, as_ourselves=True) == {}
        assert one.end()[0] == 0
    os.rmdir(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be two users")
def test_who_is_refused_can_go_on_with_its_line(
    installed: lnk.Installed, people: dict[str, lnk.Account]
) -> None:
    """It may be answered before it has said all: its write must not fail for that."""
    user, place = people["user"], f"{people['user'].home}/bind"
    os.mkdir(place, 0o700)
    os.chown(place, user.uid, user.gid)
    with blank(installed, user, place) as one, socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(SOON_S)
        sock.connect(f"{place}/control")
        with sock.makefile("rb") as answers:
            assert b"this user may not bind it" in answers.read()
        sock.sendall(json.dumps(BIND).encode() + b"\n")
        assert one.end()[0] == 0
    os.rmdir(place)


@pytest.mark.parametrize("read", [0, 1])
def test_an_answer_that_comes_before_the_line_was_read_is_heard(tmp_path: Path, read: int) -> None:
    control = str(tmp_path / "control")

    def refuse(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(read)
            sock.sendall(b'{"error": "not yours"}\n')

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(control)
        listener.listen()
        refusing = threading.Thread(target=refuse, args=(listener,))
        refusing.start()
        many = tuple(f"h{number}.example.com" for number in range(100_000))
        told = bind_proxy(control, ProxyBind(upstream="direct", host=many))
        refusing.join()
    assert told.error == "not yours"


def test_a_binder_that_says_nothing_does_not_keep_the_next_from_binding(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    os.chmod(ordinary_folder, 0o700)
    with blank(installed, ordinary, ordinary_folder), socket.socket(socket.AF_UNIX) as silent:
        with as_its_user(f"{ordinary_folder}/control"):
            silent.connect(f"{ordinary_folder}/control")
        assert bound(ordinary_folder, BIND) == {}


SECRET_ROUTE = Secret(
    name="hub", rule=SecretRule(host="hub.example.com", paths=("/v1/{secret}/{name}",)),
    secret=KEY, placeholder="placeholder-1234",
)  # fmt: skip


def test_its_keys_reach_no_memory_of_the_process_that_serves_and_no_file(
    installed: lnk.Installed, who: lnk.Account, place: str
) -> None:
    model = socket.create_server(("127.0.0.1", 0))
    port = model.getsockname()[1]

    def serve() -> None:
        with contextlib.suppress(OSError), model.accept()[0] as sock:
            sock.recv(4096)
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    thread = threading.Thread(target=serve)
    thread.start()
    bind = ProxyBind(
        upstream="http://someone:login-1f2e@127.0.0.1:1", host=(), name="keys",
        routes=(SECRET_ROUTE, Local(port=port)), caller=CALLER, url_secret=URL_SECRET,
    )  # fmt: skip
    with blank(installed, who, place) as one:
        assert bound(place, dump_table(bind)) == {}
        out = f"{place}/wire/out.sock"
        local = f"/_link/s/{URL_SECRET}/local/{port}/api/tags"
        head = f"GET {local} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        assert answer(out, head).startswith(b"HTTP/1.1 200 ")
        wrong = head.replace(URL_SECRET.encode(), b"x" * 20)
        assert answer(out, wrong).split(b" ")[1] in (b"403", b"404")
        assert KEY.encode() not in memory_of(one.process.pid)
        for pid in one.pids:
            shown = Path(f"/proc/{pid}/cmdline").read_bytes()
            shown += Path(f"/proc/{pid}/environ").read_bytes()
            assert KEY.encode() not in shown
        assert one.end()[0] == 0
    thread.join(SOON_S)
    model.close()
    for path in Path(place).rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def memory_of(pid: int) -> bytes:
    """Return all of a process's memory that can be read."""
    found = b""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, flags = line.split()[:2]
            begin, end = (int(part, 16) for part in span.split("-"))
            if flags.startswith("rw"):
                with contextlib.suppress(OSError, OverflowError, ValueError):
                    memory.seek(begin)
                    found += memory.read(end - begin)
    return found


def test_a_page_is_opened_only_where_there_is_a_desktop() -> None:
    from sandbox.errors import SpecError

    bind = ProxyBind(
        upstream="direct", routes=(Open(),), caller=CALLER, url_secret=URL_SECRET, wire="/wire"
    )
    with pytest.raises(SpecError, match="no page can be opened"):
        told_of(bind, {})
    keys = {**dump_table(bind), "desktop": True}
    keys.pop("routes")
    whole = ProxyBind(**{**bind.__dict__, "desktop": True})
    told, given = told_of(whole, {"DISPLAY": ":0"})
    assert told["routes"]["desktop"] == {"DISPLAY": ":0"}
    assert given is not None


def test_every_key_that_a_proxy_apart_has_no_network_for_is_one_of_a_binding() -> None:
    assert {name for name, _ in APART} <= set(keys_of(ProxyBind))


# -- before a program -------------------------------------------------------------------------


def test_a_blank_proxy_stands_before_a_program_and_ends_with_it(
    installed: lnk.Installed, who: lnk.Account, place: str
) -> None:
    script = "echo started; read line; echo $line; exit 9"
    argv = installed.argv("proxy", "--blank", "--control", f"{place}/control",
                          "--dir", f"{place}/wire", "--", "/bin/sh", "-c", script)  # fmt: skip
    process = lnk.popen(who, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE)  # fmt: skip
    try:
        assert process.stdout.readline() == "started\n"
        assert answer(f"{place}/wire/out.sock").startswith(b"HTTP/1.1 503 ")
        assert bound(place, BIND) == {}
        assert answer(f"{place}/wire/out.sock").startswith(b"HTTP/1.1 403 ")
        out, _ = process.communicate("in\n", timeout=SOON_S)
        assert (out, process.returncode) == ("in\n", 9)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert not os.path.exists(f"{place}/wire")
    wait_until_gone(f"{place}/control")


def wait_until_gone(path: str) -> None:
    import time

    until = time.monotonic() + SOON_S
    while os.path.exists(path):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_control_that_another_has_is_refused(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    os.chmod(ordinary_folder, 0o700)
    with blank(installed, ordinary, ordinary_folder) as one:
        argv = installed.argv("proxy", "--blank", "--control", f"{ordinary_folder}/control",
                              "--dir", f"{ordinary_folder}/other", "--hold")  # fmt: skip
        done = lnk.run(ordinary, argv)
        assert (done.returncode, done.stdout) == (2, "")
        assert "another proxy is bound there" in done.stderr
        assert bound(ordinary_folder, BIND) == {}
        assert one.end()[0] == 0
    Path(f"{ordinary_folder}/control").touch()
    done = lnk.run(ordinary, argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no socket: remove it" in done.stderr
    os.chmod(ordinary_folder, 0o777)
    os.unlink(f"{ordinary_folder}/control")
    done = lnk.run(ordinary, argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert "others can write its folder" in done.stderr


def test_the_other_event_loop_stands_apart_too(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    os.chmod(ordinary_folder, 0o700)
    argv, _ = held(installed, ordinary, f"{ordinary_folder}/held")
    with Standing(ordinary, [*argv, "--shell", "trio"]) as one:
        assert answer(f"{ordinary_folder}/held/out.sock").startswith(b"HTTP/1.1 403 ")
        assert one.end() == (0, "")
    with blank(installed, ordinary, ordinary_folder, "--hold", "--shell", "trio") as one:
        assert answer(f"{ordinary_folder}/wire/out.sock").startswith(b"HTTP/1.1 503 ")
        assert bound(ordinary_folder, BIND) == {}
        assert answer(f"{ordinary_folder}/wire/out.sock").startswith(b"HTTP/1.1 403 ")
        assert one.end()[0] == 0


# -- the line, whatever it is -----------------------------------------------------------------

CORPUS = Path(lnk.REPOSITORY) / "fuzz" / "corpus" / "bind"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12)
    | st.sampled_from(["direct", "example.com", "*", "/x", "c" * 16, "local", "secret"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
lines = st.dictionaries(st.sampled_from([*keys_of(ProxyBind), "hosts"]), values, max_size=6).map(
    lambda keys: json.dumps({"upstream": "direct", **keys}).encode()
)


@given(st.binary(max_size=80) | lines)
def test_a_line_is_refused_in_one_sentence_or_means_what_it_says(data: bytes) -> None:
    one_input(data)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_the_corpus_is_read(path: Path) -> None:
    one_input(path.read_bytes())


# -- for an agent of another user -------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be two users")
@pytest.mark.parametrize("way", ["--hold", "--blank"])
def test_a_folder_may_be_a_group_s(
    installed: lnk.Installed, people: dict[str, lnk.Account], way: str
) -> None:
    user = people["user"]
    place = Path(user.home) / "theirs"
    lnk.made_anew(str(place), 0o700)
    (place / "wire").mkdir()
    for path in (place, place / "wire"):
        os.chown(path, user.uid, user.gid)
    words = ["--dir", f"{place}/wire", "--agent-user", "0", "--group", str(user.gid), "--hold"]
    words += ["--any-host"] if way == "--hold" else ["--blank", "--control", f"{place}/control"]
    argv = installed.argv("proxy", *words)
    done = lnk.run(user, argv)
    assert done.returncode != 0
    assert "run chmod 2770 on it" in done.stderr
    (place / "wire").chmod(0o2770)
    with Standing(user, argv) as one:
        out = os.stat(place / "wire" / "out.sock")
        assert stat.S_IMODE(out.st_mode) == 0o660
        assert (out.st_uid, out.st_gid) == (user.uid, user.gid)
        assert answer(place / "wire" / "out.sock")
        assert one.end()[0] == 0
    assert (place / "wire").exists(), "who made it takes it away"
    (place / "wire").rmdir()
    wait_until_gone(str(place / "control"))
    place.rmdir()
