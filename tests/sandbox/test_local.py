"""This machine's ports inside, the sandbox's ports outside, and a loopback without a proxy ."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from sandbox.linux.environment import PROXY_PORT
from tests.net.servers import Server, echo, listen
from tests.sandbox import lnk

PYTHON = "/usr/bin/python3"
CALLS = """
import socket, sys
for address in sys.argv[2:]:
    try:
        with socket.create_connection((address, int(sys.argv[1])), 20) as made:
            made.sendall(b"ping"); made.shutdown(socket.SHUT_WR)
            print(address, made.makefile().read() or "closed")
    except OSError as error:
        print(address, error.strerror)
"""
SERVES = """
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
with socket.create_server((address, port), family=family) as door:
    print("ready", flush=True)
    peer, _ = door.accept()
    with peer:
        peer.sendall(b"inside: " + peer.makefile("rb").readline())
    sys.stdin.read()
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this machine's, on its loopback alone."""
    with Server(listen("127.0.0.1", 0), echo) as made:
        yield made


def net(ports: list[int], **proxy: object) -> dict[str, Any]:
    whole = {"upstream": "direct", "dir": "", "hosts": [], **proxy}
    return {"proxied": {"proxy": whole, "ports": ports}}


@pytest.fixture
def wrapped(installed: lnk.Installed, who: lnk.Account, folder: str) -> Callable[..., list[str]]:
    """Return a kept command, its environment set, and where its wire logs."""

    def wrap(argv: list[str], mode: dict[str, Any]) -> list[str]:
        if "proxied" in mode:
            mode["proxied"]["proxy"]["dir"] = f"{who.home}/wires/{os.path.basename(folder)}"
        made = installed.wrap(who, argv, net=mode, name=os.path.basename(folder))
        return ["env", *(f"{key}={value}" for key, value in made["env"].items()), *made["argv"]]

    return wrap


@pytest.fixture
def log(who: lnk.Account, folder: str) -> Callable[[], list[tuple[object, ...]]]:
    def read() -> list[tuple[object, ...]]:
        path = f"{who.home}/.lnk/sandbox/log/{os.path.basename(folder)}.jsonl"
        with open(path) as lines:
            told = [json.loads(line) for line in lines]
        return [(one["verb"], one["host"], one["port"], one["verdict"]) for one in told]

    return read


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def test_a_port_of_this_machine_is_at_the_same_localhost_inside(wrapped, who, server, log):
    port = server.address[1]
    calls = [PYTHON, "-c", CALLS, str(port), "localhost", "127.0.0.1", "::1"]
    done = lnk.run(who, wrapped(calls, net([port])))
    assert done.stdout == "localhost ping\n127.0.0.1 ping\n::1 ping\n", done.stderr
    told = log()
    assert sorted(told) == sorted(
        [("localhost", "localhost", port, how) for how in ("allowed", "ended")] * 3
    )


def test_a_server_of_the_other_family_is_localhost_too(wrapped, who):
    with Server(listen("::1", 0), echo) as six:
        port = six.address[1]
        done = lnk.run(who, wrapped([PYTHON, "-c", CALLS, str(port), "127.0.0.1"], net([port])))
    assert done.stdout == "127.0.0.1 ping\n", done.stderr


def test_no_other_port_of_this_machine_is(wrapped, who, server):
    other = free_port()
    calls = [PYTHON, "-c", CALLS, str(server.address[1]), "127.0.0.1", "::1"]
    done = lnk.run(who, wrapped(calls, net([other])))
    assert done.stdout == "127.0.0.1 Connection refused\n::1 Connection refused\n"
    assert server.accepted == 0


def test_a_port_where_nobody_listens_is_closed_again(wrapped, who, log):
    port = free_port()
    done = lnk.run(who, wrapped([PYTHON, "-c", CALLS, str(port), "127.0.0.1"], net([port])))
    assert done.stdout in ("127.0.0.1 closed\n", "127.0.0.1 Connection reset by peer\n")
    assert [verdict for *_, verdict in log()] == ["allowed", "ended"]


@pytest.mark.parametrize("key", ["ports", "serve"])
def test_the_proxys_own_port_is_refused(installed, who, key):
    mode = net([PROXY_PORT]) if key == "ports" else net([], serve=[PROXY_PORT])
    mode["proxied"]["proxy"]["dir"] = "/srv/wire"
    box = {"name": "box", "write": [], "read": [], "commands": "any", "net": mode}
    asked = {"confinement": box, "argv": ["true"]}
    done = installed.run(who, "wrap", input=json.dumps(asked))
    assert (done.returncode, done.stdout) == (125, "")
    assert f"{key} names {PROXY_PORT}, which is the proxy's own inside" in done.stderr


def test_a_local_models_port_that_is_the_proxys_own_is_refused(installed, who, folder):
    box = {"name": "box", "write": [], "read": [], "commands": "any"}
    proxy = {"upstream": "direct", "dir": "/srv/wire", "caller": "c" * 32}
    proxy["routes"] = [{"kind": "local", "port": PROXY_PORT}]
    asked = {"confinement": {**box, "net": {"proxied": {"proxy": proxy, "ports": []}}}}
    said = f"a local model names {PROXY_PORT}, which is the proxy's own inside: take another port."
    done = installed.run(who, "wrap", input=json.dumps({**asked, "argv": ["true"]}))
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == f"lnk sandbox: {said}\n"
    with open(f"{folder}/local.toml", "w") as file:
        file.write(f"models.local = [{PROXY_PORT}]\n")
    done = installed.run(who, "run", "--yes", "--spec", f"{folder}/local.toml", "--", "true")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == f"lnk sandbox: {folder}/local.toml:1: {said}\n"


def test_a_served_port_that_is_handed_and_leads_out_too_is_refused(installed, who, folder):
    read, write = os.pipe()
    with open(write, "w") as file:
        file.write('{"serve": [5432]}')
    with open(f"{folder}/ports.toml", "w") as file:
        file.write("localhost.ports = [5432]\n")
    words = ["run", "--yes", "--spec", f"{folder}/ports.toml", "--with-fd", str(read)]
    with os.fdopen(read):
        done = installed.run(who, *words, "--", "true", pass_fds=(read,))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--with-fd serves 5432, which the spec has in [localhost] ports" in done.stderr


def test_what_is_handed_is_refused_by_its_flag_and_key(installed, who):
    read, write = os.pipe()
    with open(write, "w") as file:
        file.write('{"serve": [0]}')
    with os.fdopen(read):
        words = ["run", "--yes", "--with-fd", str(read), "--", "true"]
        done = installed.run(who, *words, pass_fds=(read,))
    assert (done.returncode, done.stdout) == (2, "")
    said = f"--with-fd {read}: serve[0]: 0 isn't a port; it is 1 to 65535"
    assert done.stderr == f"lnk sandbox: {said}\n"


def assert_served_once(process: subprocess.Popen[str], port: int) -> None:
    """Ask a program that serves one call at a port of its sandbox, and see it end."""
    assert process.stdout.readline() == "ready\n"
    with socket.create_connection(("127.0.0.1", port), 20) as made:
        made.settimeout(lnk.LONG_S)
        made.sendall(b"hello\n")
        assert made.makefile("rb").read() == b"inside: hello\n"
    process.stdin.close()
    assert process.wait(lnk.LONG_S) == 0


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0"])
def test_a_port_of_the_sandboxs_is_served_on_this_machines_loopback(wrapped, who, log, address):
    port = free_port()
    command = wrapped([PYTHON, "-c", SERVES, address, str(port)], net([], serve=[port]))
    with lnk.popen(who, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert_served_once(process, port)
    assert log() == [("serve", "localhost", port, how) for how in ("allowed", "ended")]
    with closing(socket.socket()) as outside:
        assert outside.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_what_a_served_port_says_is_from_the_sandbox(installed, wrapped, who, folder):
    """`traffic` counts from the sandbox, whoever began the call."""
    port = free_port()
    command = wrapped([PYTHON, "-c", SERVES, "127.0.0.1", str(port)], net([], serve=[port]))
    with lnk.popen(who, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        with socket.create_connection(("127.0.0.1", port), 20) as made:
            made.settimeout(lnk.LONG_S)
            made.sendall(b"hello\n")
            assert made.makefile("rb").read() == b"inside: hello\n"
        until = time.monotonic() + lnk.LONG_S
        while carried(installed, who, os.path.basename(folder)) != (14, 6):
            assert time.monotonic() < until
            time.sleep(0.05)
        process.stdin.close()
        assert process.wait(lnk.LONG_S) == 0


def carried(installed: lnk.Installed, who: lnk.Account, name: str) -> tuple[int, int]:
    """Return the bytes from a sandbox and to it, as they are published."""
    told = json.loads(installed.run(who, "traffic", "--json").stdout)
    ((up, down),) = [(one["up"], one["down"]) for one in told if one["sandbox"] == name]
    return up, down


def test_a_served_port_is_no_other_machines(wrapped, who):
    port = free_port()
    command = wrapped([PYTHON, "-c", SERVES, "127.0.0.1", str(port)], net([], serve=[port]))
    with lnk.popen(who, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        listening = subprocess.run(
            ["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True
        ).stdout
        process.terminate()
    assert [line.split()[3] for line in listening.splitlines()] == [f"127.0.0.1:{port}"]


def test_a_served_port_that_is_taken_is_refused_and_nothing_runs(wrapped, who, server, folder):
    port = server.address[1]
    touch = f"{folder}/ran"
    done = lnk.run(who, wrapped(["touch", touch], net([], serve=[port])))
    assert done.returncode == 125
    assert f"port {port} of this machine is taken" in done.stderr
    assert not os.path.exists(touch)
    assert server.accepted == 0


def test_a_loopback_reaches_its_ports_and_nothing_else(wrapped, who, server, folder, log):
    port = server.address[1]
    with Server(listen("127.0.0.1", 0), echo) as other:
        script = (
            f"{PYTHON} -c '{CALLS}' {port} localhost ::1; {PYTHON} -c '{CALLS}' "
            f"{other.address[1]} 127.0.0.1; {PYTHON} -c '{CALLS}' {PROXY_PORT} 127.0.0.1; "
            "env | grep -ci proxy; ls /etc/resolv.conf 2>&1"
        )
        mode = {"loopback": {"ports": [port], "dir": f"{folder}/wire"}}
        done = lnk.run(who, wrapped(["sh", "-c", script], mode))
        assert other.accepted == 0
    assert done.stdout.splitlines() == [
        "localhost ping", "::1 ping", "127.0.0.1 Connection refused",
        "127.0.0.1 Connection refused", "0", "ls: cannot access '/etc/resolv.conf': "
        "No such file or directory",
    ], done.stderr  # fmt: skip
    assert log() == [("localhost", "localhost", port, how) for how in ("allowed", "ended")] * 2
    assert not os.path.exists(f"{folder}/wire")  # no socket anywhere by which to reach it


def test_another_sandboxs_proxy_is_reached_by_nothing(wrapped, who, server):
    """Each wire listens in its own sandbox's network alone, at the same port."""
    port = server.address[1]
    first = wrapped([PYTHON, "-c", SERVES, "127.0.0.1", str(port + 1)], net([port]))
    with lnk.popen(who, first, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        calls = [PYTHON, "-c", CALLS, str(port), "127.0.0.1", "127.53.0.1"]
        second = lnk.run(who, wrapped(calls, net([], hosts=["example.com"])))
        with closing(socket.socket()) as outside:
            outside.settimeout(lnk.LONG_S)
            reached = outside.connect_ex(("127.0.0.1", PROXY_PORT))
        process.terminate()
    assert second.stdout == "127.0.0.1 Connection refused\n127.53.0.1 Connection refused\n"
    assert reached == errno.ECONNREFUSED


def test_a_spec_has_ports_and_serves_others(installed, who, server, folder):
    port, served = server.address[1], free_port()
    spec = f"{folder}/box.toml"
    with open(spec, "w") as file:
        file.write(f"[localhost]\nports = [{port}]\nserve = [{served}]\n")
    os.chown(spec, who.uid, who.gid)
    calls = [PYTHON, "-c", CALLS, str(port), "localhost"]
    done = installed.run(who, "run", "--yes", "--spec", spec, "--", *calls)
    assert done.stdout == "localhost ping\n", done.stderr
    for text, said in (('ports = ["*"]', '"*" would open other sandboxes'),):
        with open(spec, "w") as file:
            file.write(f"[localhost]\n{text}\n")
        refused = installed.run(who, "run", "--yes", "--spec", spec, "--", "true")
        assert refused.returncode == 2
        assert said in refused.stderr


def test_a_spec_of_ports_alone_has_no_proxy(installed, who, server, folder):
    port = server.address[1]
    spec = f"{folder}/box.toml"
    with open(spec, "w") as file:
        file.write(f"[localhost]\nports = [{port}]\n")
    os.chown(spec, who.uid, who.gid)
    script = f"{PYTHON} -c '{CALLS}' {port} localhost; env | grep -ci proxy"
    done = installed.run(who, "run", "--yes", "--spec", spec, "--", "sh", "-c", script)
    assert done.stdout == "localhost ping\n0\n", done.stderr


def test_a_run_serves_what_it_is_handed(installed, who, folder):
    port = free_port()
    read, write = os.pipe()
    os.write(write, json.dumps({"serve": [port]}).encode())
    os.close(write)
    words = ["run", "--yes", "--with-fd", str(read), "--", PYTHON, "-c", SERVES, "127.0.0.1",
             str(port)]  # fmt: skip
    command = installed.argv(*words)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": (read,)}
    with lnk.popen(who, command, **pipes) as process:
        os.close(read)
        assert_served_once(process, port)


HOLDS = """
import socket, sys
port, served = map(int, sys.argv[1:])
door = socket.create_server(("127.0.0.1", served))
held = socket.create_connection(("127.0.0.1", port), 20)
held.sendall(b"x"); held.recv(1)
print("ready", flush=True)
peer, _ = door.accept()
def heard(sock):
    try:
        return sock.recv(1)
    except OSError:
        return b""
print(heard(held), heard(peer), flush=True)
sys.stdin.readline()
again = socket.create_connection(("127.0.0.1", port), 20)
print(heard(again), flush=True)
sys.stdin.readline()
with socket.create_connection(("127.0.0.1", port), 20) as more:
    more.sendall(b"x")
    print(more.recv(1), flush=True)
"""


def test_the_kill_switch_ends_them_both_ways_until_it_is_taken_back(
    installed, wrapped, who, server
):
    port, served = server.address[1], free_port()
    command = wrapped([PYTHON, "-c", HOLDS, str(port), str(served)], net([port], serve=[served]))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    try:
        with lnk.popen(who, command, **pipes) as process:
            assert process.stdout.readline() == "ready\n"
            with socket.create_connection(("127.0.0.1", served), 20) as outside:
                outside.settimeout(lnk.LONG_S)
                assert installed.run(who, "stop").returncode == 0
                assert process.stdout.readline() == "b'' b''\n"
                with contextlib.suppress(ConnectionResetError):
                    assert outside.recv(1) == b""
            came = server.accepted
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "b''\n"
            assert server.accepted == came
            assert installed.run(who, "start").returncode == 0
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "b'x'\n"
    finally:
        installed.run(who, "start")
