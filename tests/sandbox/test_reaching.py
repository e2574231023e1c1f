"""One sandbox for several proxies started apart: `reaching`, its relay and its walls (R42)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import lnk
from tests.sandbox.test_apart import BIND, Standing, blank, bound, held

SOON_S = 110


def reaching(
    installed: lnk.Installed,
    who: lnk.Account,
    argv: list[str],
    reached: dict[str, int],
    ports: tuple[int, ...] = (),
    **keys: Any,
) -> list[str]:
    net = {"reached": [{"dir": path, "port": port} for path, port in reached.items()],
           "ports": list(ports)}  # fmt: skip
    command: list[str] = installed.wrap(who, argv, net={"reaching": net}, **keys)["argv"]
    return command


CALL = "curl -sS -o /dev/null -w '%{http_connect}' -x 127.0.0.1:{} https://{}/; echo ' {} {}';"


def calls(*made: tuple[int, str]) -> list[str]:
    """Return a script that asks proxies at ports for tunnels, and prints their answers."""
    script = "".join(
        f"curl -sS -o /dev/null -w '%{{http_connect}} {host}\\n' -x 127.0.0.1:{port} "
        f"https://{host}/ 2>/dev/null;"
        for port, host in made
    )
    return ["/bin/sh", "-c", script]


def test_each_proxy_is_reached_at_its_port_and_holds_to_its_own_lists(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    one, other = f"{folder}/one", f"{folder}/other"
    first, env = held(installed, who, one, hosts=["192.0.2.1"], listen=40791)
    second, _ = held(installed, who, other, hosts=["192.0.2.2"], listen=40792)
    assert env["HTTPS_PROXY"] == "http://127.0.0.1:40791"
    script = calls((40791, "one.test"), (40792, "other.test"), (40793, "none.test"))
    with Standing(who, first), Standing(who, second):
        command = reaching(installed, who, script, {one: 40791, other: 40792})
        done = lnk.run(who, command)
        assert done.stdout == "403 one.test\n403 other.test\n000 none.test\n", done.stderr
        # A kept command of a proxy's environment finds it there.
        argv = ["/bin/sh", "-c", "curl -sS https://two.test/ 2>&1; test $? = 56"]
        again = reaching(installed, who, argv, {one: 40791})
        assert lnk.run(who, again, environ=env).returncode == 0
    logs = Path(f"{who.home}/.lnk/sandbox/log/box.jsonl").read_text()
    for host in ("one.test", "other.test", "two.test"):
        assert f'"host":"{host}"' in logs


def test_a_proxy_may_start_later_and_start_again(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    wire = f"{ordinary_folder}/wire"
    argv, _ = held(installed, ordinary, wire, listen=40791)
    once = "curl -sS -o /dev/null -w '%{http_connect}\\n' -x 127.0.0.1:40791 https://a.test/ 2>&-"
    script = f"while read line; do {once}; done"
    command = reaching(installed, ordinary, ["/bin/sh", "-c", script], {wire: 40791})
    assert stat.S_IMODE(os.stat(wire).st_mode) == 0o700, "wrap has made it"
    process = lnk.popen(ordinary, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:

        def ask() -> str:
            process.stdin.write("x\n")
            process.stdin.flush()
            return process.stdout.readline()

        assert ask() == "000\n"
        for _ in range(2):
            with Standing(ordinary, argv) as one:
                assert ask() == "403\n"
                assert one.end()[0] == 0
            assert ask() == "000\n"
    finally:
        process.communicate("", timeout=SOON_S)


def test_a_blank_proxy_is_reached_before_and_after_it_is_bound(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    os.chmod(ordinary_folder, 0o700)
    wire = f"{ordinary_folder}/wire"
    command = reaching(installed, ordinary, calls((40791, "a.test")), {wire: 40791})
    with blank(installed, ordinary, ordinary_folder):
        assert lnk.run(ordinary, command).stdout == "503 a.test\n"
        assert bound(ordinary_folder, BIND) == {}
        assert lnk.run(ordinary, command).stdout == "403 a.test\n"


LOOK = """\
import os, socket, sys
def tried(what):
    try: what(); return "open"
    except OSError as error: return os.strerror(error.errno) if error.errno else str(error)
def connect(address):
    with socket.create_connection(address, 5): pass
print(tried(lambda: connect(("203.0.113.1", 80))))
print(tried(lambda: connect(("127.0.0.1", int(sys.argv[1])))))
print(sorted(os.listdir("/proc/self/task/%d/../../../../proc/net" % os.getpid()))[:0])
print(tried(lambda: os.listdir(os.path.dirname(sys.argv[2]))))
print(open("/proc/1/comm").read().strip() != "")
print(tried(lambda: os.kill(1, 9)))
"""


def test_its_only_ways_out_are_the_proxies(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    wire = f"{folder}/wire"
    with socket.create_server(("127.0.0.1", 0)) as machine:
        port = str(machine.getsockname()[1])
        argv = ["/usr/bin/python3", "-c", LOOK, port, f"{folder}/wire"]
        done = lnk.run(who, reaching(installed, who, argv, {wire: 40791}))
    lines = done.stdout.splitlines()
    assert lines[0] == "Network is unreachable", done.stderr
    assert lines[1] == "Connection refused"
    assert done.returncode == 0


def test_ports_of_this_machine_are_reached_beside_them(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    wire = f"{folder}/wire"
    with served() as port:
        argv = ["/bin/bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}; head -c 2 <&3"]
        command = reaching(installed, who, argv, {wire: 40791}, (port,))
        assert lnk.run(who, command).stdout == "hi"


@contextlib.contextmanager
def served() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as sock:
                    sock.sendall(b"hi")

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(SOON_S)


def test_a_list_of_programs_holds_beside_the_relay(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    wire = f"{folder}/wire"
    argv, _ = held(installed, who, wire, listen=40791)
    script = [*calls((40791, "a.test"))[:2], calls((40791, "a.test"))[2] + "id; echo $?"]
    with Standing(who, argv):
        command = reaching(
            installed, who, script, {wire: 40791},
            commands={"only": ["/bin/sh", "/usr/bin/curl"]},
        )  # fmt: skip
        done = lnk.run(who, command)
    assert done.stdout == "403 a.test\n126\n", done.stderr


def test_its_status_is_the_program_s_and_nothing_lives_on(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    wire = f"{folder}/wire"
    argv = ["/bin/sh", "-c", "sleep 1000 & exit 7"]
    done = lnk.run(who, reaching(installed, who, argv, {wire: 40791}))
    assert (done.returncode, done.stderr) == (7, "")
    found = subprocess.run(["pgrep", "-f", "--", f"--also {wire}=40791"], capture_output=True)
    assert found.returncode == 1, found.stdout


# -- inward -----------------------------------------------------------------------------------

SERVES = """\
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
while True:
    with listener.accept()[0] as sock:
        sock.sendall(b"from inside ")
        sock.sendall(sock.recv(64))
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def asked(port: int) -> bytes:
    got = b""
    with (
        contextlib.suppress(ConnectionResetError, BrokenPipeError),
        socket.create_connection(("127.0.0.1", port), SOON_S) as sock,
    ):
        sock.sendall(b"hello")
        while data := sock.recv(64):
            got += data
    return got


def test_a_port_inside_is_served_by_the_proxy_that_it_reaches(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    wire, port = f"{folder}/wire", free_port()
    argv, _ = held(installed, who, wire, listen=40791, serve=[port])
    program = ["/usr/bin/python3", "-c", SERVES, str(port)]
    command = reaching(installed, who, program, {wire: 40791})
    with Standing(who, argv):
        assert asked(port) == b"", "nobody is inside yet"
        process = lnk.popen(who, command, stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == "listens\n"
            assert asked(port) == b"from inside hello"
        finally:
            process.kill()
            process.communicate(timeout=SOON_S)
    log = Path(f"{who.home}/.lnk/sandbox/log/box.jsonl").read_text()
    assert f'"verb":"serve","host":"localhost","port":{port}' in log


def test_nothing_but_the_agent_s_socket_is_given_a_served_call(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    wire, port = f"{ordinary_folder}/wire", free_port()
    argv, _ = held(installed, ordinary, wire, serve=[port])
    with Standing(ordinary, argv), socket.socket(socket.AF_UNIX) as elsewhere:
        elsewhere.bind(f"{ordinary_folder}/elsewhere")
        elsewhere.listen()
        elsewhere.settimeout(0)
        os.chown(f"{ordinary_folder}/elsewhere", ordinary.uid, ordinary.gid)
        os.symlink(f"{ordinary_folder}/elsewhere", f"{wire}/in.sock")
        assert asked(port) == b""
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
        os.unlink(f"{wire}/in.sock")
        if os.geteuid() == 0:
            os.rename(f"{ordinary_folder}/elsewhere", f"{wire}/in.sock")
            os.chown(f"{wire}/in.sock", 0, 0)
            assert asked(port) == b""
            with pytest.raises(BlockingIOError):
                elsewhere.accept()


def test_a_port_that_is_taken_is_told(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        argv, _ = held(installed, ordinary, f"{ordinary_folder}/wire", serve=[port])
        done = lnk.run(ordinary, argv)
        assert done.returncode != 0
        assert f"port {port} of this machine is taken" in done.stderr
        os.chmod(ordinary_folder, 0o700)
        with blank(installed, ordinary, ordinary_folder):
            told = bound(ordinary_folder, {**BIND, "serve": [port]})
            assert f"port {port} of this machine is taken" in told["error"]
            assert bound(ordinary_folder, {**BIND, "serve": [free_port()]}) == {}


# -- the folder -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o700, 0o2770])
def test_a_folder_that_is_its_user_s_stays_as_it_is(
    installed: lnk.Installed, who: lnk.Account, folder: str, mode: int
) -> None:
    wire = f"{folder}/wire"
    os.mkdir(wire)
    os.chown(wire, who.uid, who.gid)
    os.chmod(wire, mode)
    look = f"stat -c '%a %F' {wire}/in.sock"
    done = lnk.run(who, reaching(installed, who, ["/bin/sh", "-c", look], {wire: 40791}))
    assert done.stdout == f"{'660' if mode == 0o2770 else '600'} socket\n", done.stderr
    assert stat.S_IMODE(os.stat(wire).st_mode) == mode
    if mode == 0o2770:
        assert os.lstat(f"{wire}/in.sock").st_gid == os.stat(wire).st_gid


def refused(installed: lnk.Installed, who: lnk.Account, wire: str, **keys: Any) -> str:
    confinement = {"name": "box", "write": [], "read": [], "commands": "any",
                   "net": {"reaching": {"reached": [{"dir": wire, "port": 40791}], "ports": []}},
                   **keys}  # fmt: skip
    text = json.dumps({"confinement": confinement, "argv": ["true"]})
    done = installed.run(who, "wrap", input=text)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_folder_that_others_have_a_hand_in_is_refused(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    wire = f"{ordinary_folder}/wire"
    os.mkdir(wire)
    os.chown(wire, ordinary.uid, ordinary.gid)
    for mode in (0o755, 0o770, 0o2777, 0o3770, 0o777):
        os.chmod(wire, mode)
        assert "run chmod 700" in refused(installed, ordinary, wire)
    os.chmod(wire, 0o700)
    if os.geteuid() == 0:
        os.chown(wire, 0, 0)
        assert "isn't yours alone" in refused(installed, ordinary, wire)
    os.symlink("/tmp", f"{ordinary_folder}/link")
    assert "a link to" in refused(installed, ordinary, f"{ordinary_folder}/link")
    Path(f"{ordinary_folder}/file").touch()
    assert "name the folder of a proxy" in refused(installed, ordinary, f"{ordinary_folder}/file")
    said = refused(installed, ordinary, f"{ordinary_folder}/w/x", write=[ordinary_folder])
    assert "which is shown" in said
    assert not os.path.exists(f"{ordinary_folder}/w"), "and nothing was made"


def test_what_the_program_puts_in_place_of_in_sock_is_its_own_loss(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    wire = f"{ordinary_folder}/wire"
    argv = ["/bin/sh", "-c", f"rm {wire}/in.sock; ln -s /elsewhere {wire}/in.sock; echo done"]
    assert lnk.run(ordinary, reaching(installed, ordinary, argv, {wire: 40791})).stdout == "done\n"
    command = reaching(installed, ordinary, ["true"], {wire: 40791})
    done = lnk.run(ordinary, command)
    assert done.returncode == 125, "the next relay doesn't follow it"
    assert "the relay inside" in done.stderr


# -- host -------------------------------------------------------------------------------------


def test_host_has_no_wall_before_the_loopback_on_linux(
    installed: lnk.Installed, ordinary: lnk.Account
) -> None:
    confinement = {"name": "box", "write": [], "read": [], "commands": "any",
                   "net": {"host": {"ports": [5432], "localhost": False}}}  # fmt: skip
    text = json.dumps({"confinement": confinement, "argv": ["true"]})
    done = installed.run(ordinary, "wrap", input=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert "confinement.net.host.localhost: false can't be held on Linux" in done.stderr
    assert "write true, or take proxied or loopback" in done.stderr
    confinement["net"]["host"]["localhost"] = True
    with served() as port:
        confinement["net"]["host"]["ports"] = [port]
        argv = ["/bin/bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}; head -c 2 <&3"]
        made = installed.wrap(ordinary, argv, net=confinement["net"])
        assert lnk.run(ordinary, made["argv"], environ=made["env"]).stdout == "hi"


def test_the_relay_is_a_command_of_its_own(installed: lnk.Installed, ordinary: lnk.Account) -> None:
    for words, said in (
        (["--also", "wire=1"], "--also 'wire=1' is no folder, in full, and a port: write --also"),
        (["--also=/x=70000"], "--also '/x=70000' is no folder"),
        (["--also"], "--also needs a value"),
        ([], "proxy-inside reaches nothing: add --also DIR=PORT."),
    ):
        done = installed.run(ordinary, "proxy-inside", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"lnk sandbox: {said}")
    done = installed.run(ordinary, "proxy-inside", "--also=/no/such=4000")
    assert done.returncode == 125
    assert done.stderr == "lnk sandbox: the relay inside: /no/such: No such file or directory.\n"
    assert "--also DIR=PORT" in installed.run(ordinary, "proxy-inside", "--help").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be two users")
def test_a_proxy_of_another_user_serves_its_agent_by_their_group_s_folder(
    installed: lnk.Installed, people: dict[str, lnk.Account]
) -> None:
    proxy, agent = people["root"], people["user"]
    wire, port = f"{agent.home}/together", free_port()
    lnk.made_anew(wire)
    os.chown(wire, agent.uid, agent.gid)
    os.chmod(wire, 0o2770)
    settings = installed.wrap(
        proxy, ["unread"], net={"proxied": {"ports": [], "proxy": {
            "upstream": "direct", "dir": wire, "hosts": [], "hold": True, "serve": [port]}}},
    )["argv"]  # fmt: skip
    whose = ["--agent-user", str(agent.uid), "--group", str(agent.gid)]
    script = f"{calls((40791, 'a.test'))[2]} exec /usr/bin/python3 -c '{SERVES}' {port}"
    command = reaching(installed, agent, ["/bin/sh", "-c", script], {wire: 40791})
    with Standing(proxy, [*settings, *whose]) as one:
        process = lnk.popen(agent, command, stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == "403 a.test\n"
            assert process.stdout.readline() == "listens\n"
            assert os.lstat(f"{wire}/in.sock").st_uid == agent.uid
            assert asked(port) == b"from inside hello"
        finally:
            process.kill()
            process.communicate(timeout=SOON_S)
        assert one.end()[0] == 0
    os.rmdir(wire)  # nothing is left in it, the relay's socket neither
