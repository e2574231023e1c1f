"""Routes that are handed to a proxy, keys among them: who gets what of them (R22, R42)."""

from __future__ import annotations

import json
import os

import pytest

from tests.sandbox import lnk
from tests.sandbox.test_apart import Standing, answer, blank, bound

CALLER, URL_SECRET, KEY = "caller-key-0123456789", "abcdefghijklmnop0123", "treasure-4d0c8f"
LOOKING = """\
#!/usr/bin/python3
# Answers one call with the environment and the descriptors that it was started with.
import json, os, socket
held = {}
for fd in os.listdir("/proc/self/fd"):
    try: held[fd] = os.readlink("/proc/self/fd/" + fd)
    except OSError: pass  # the one that listed them
told = json.dumps([held, dict(os.environ)]).encode()
head = b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(told)
with socket.socket(fileno=3) as listener, listener.accept()[0] as one:
    one.recv(65536)
    one.sendall(head + told)
"""


@pytest.fixture
def handed(ordinary_folder: str) -> dict[str, object]:
    """Two routes: another plugin's, and a secret that is none of that plugin's business."""
    path = f"{ordinary_folder}/looking.py"
    with open(path, "w") as file:
        file.write(LOOKING)
    os.chmod(path, 0o755)
    os.chmod(ordinary_folder, 0o700)
    rule = {"host": "api.example.com", "paths": ["/bot{secret}/{name}"]}
    routes = [
        {"kind": "bridge", "name": "look", "argv": [path], "needs_secret": True},
        {"kind": "secret", "name": "s", "rule": rule, "secret": KEY, "placeholder": "p" * 16},
    ]
    return {"routes": routes, "caller": CALLER}


HEAD = f"GET /_link/s/{URL_SECRET}/look/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def handing(value: object) -> int:
    """Return a descriptor from which a value is read to its end."""
    read, write = os.pipe()
    with open(write, "w") as file:
        json.dump(value, file)
    os.set_inheritable(read, True)
    return read


def assert_just_its_own(said: bytes) -> None:
    held, environ = json.loads(said.partition(b"\r\n\r\n")[2])
    assert {*held} == {"0", "1", "2", "3"}, held
    assert {*environ} <= {"LC_CTYPE"}, "Python's own"


def test_a_plugins_bridge_of_a_blank_proxy_gets_no_descriptor_of_the_routes(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, handed: dict[str, object]
) -> None:
    with blank(installed, ordinary, ordinary_folder) as one:
        line = {"upstream": "direct", "host": [], "url_secret": URL_SECRET, **handed}
        assert bound(ordinary_folder, line) == {}
        said = answer(f"{ordinary_folder}/wire/out.sock", HEAD.encode())
        assert one.end()[0] == 0
    assert_just_its_own(said)


def test_a_plugins_bridge_gets_no_descriptor_of_the_routes_that_were_handed(
    installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str, handed: dict[str, object]
) -> None:
    fd = handing({**handed, "secret": URL_SECRET})
    argv = installed.argv("proxy", "--dir", f"{ordinary_folder}/wire", "--hold", "--no-internet",
                          "--routes-handed", "ROUTES")  # fmt: skip
    with Standing(
        ordinary, argv, env={**ordinary.environ, "ROUTES": str(fd)}, pass_fds=[fd]
    ) as one:
        os.close(fd)
        said = answer(f"{ordinary_folder}/wire/out.sock", HEAD.encode())
        assert one.end()[0] == 0
    assert_just_its_own(said)


def test_a_program_behind_the_proxy_uses_the_routes_and_gets_no_descriptor_of_them(
    installed: lnk.Installed, ordinary: lnk.Account, handed: dict[str, object]
) -> None:
    fd = handing({**handed, "secret": URL_SECRET})
    script = (
        "import json, os, socket\n"
        "every = os.listdir('/proc/self/fd')\n"
        "held = [fd for fd in every if os.path.lexists('/proc/self/fd/' + fd)]\n"
        "port = int(os.environ['AT'].rpartition(':')[2])\n"
        "with socket.create_connection(('127.0.0.1', port), 60) as sock:\n"
        f"    sock.sendall({HEAD.encode()!r})\n"
        "    said = b''.join(iter(lambda: sock.recv(4096), b''))\n"
        "print(json.dumps([sorted(held), 'ROUTES' in os.environ, said.decode()]))\n"
    )
    argv = installed.argv("proxy", "--listen", "127.0.0.1:0", "--no-internet", "--routes-handed",
                          "ROUTES", "--", "/usr/bin/python3", "-c", script)  # fmt: skip
    environ = {"ROUTES": str(fd), "AT": "http://127.0.0.1:0"}
    done = lnk.run(ordinary, argv, environ=environ, pass_fds=[fd])
    os.close(fd)
    held, told, said = json.loads(done.stdout)
    assert (held, told) == (["0", "1", "2"], False), done.stderr
    assert said.startswith("HTTP/1.1 200 "), said
    assert_just_its_own(said.encode())
