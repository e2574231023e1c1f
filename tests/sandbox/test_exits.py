"""An exit with a login: from a request or a spec to the proxy, and nowhere else (R40)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cli import proxy
from sandbox.cli.flags import UsageError, read_flags
from sandbox.cli.proxy import settings_of
from sandbox.errors import LaunchError
from sandbox.exits import has_login, login_file, read_login, without_login
from tests.sandbox import lnk

USER, PASSWORD = "someone", "treasure-5c1e"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode())
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nbehind"


class Exit:
    """An HTTP proxy that asks for its login and answers each tunnel with one page."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heads: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                with self._listener.accept()[0] as sock:
                    sock.settimeout(lnk.LONG_S)
                    self._answer(sock)

    def _answer(self, sock: socket.socket) -> None:
        self.heads.append(head_of(sock))
        if b"Basic " + BASIC not in self.heads[-1]:
            sock.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
            return
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        self.heads.append(head_of(sock))
        sock.sendall(PAGE)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


def head_of(sock: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n") and (byte := sock.recv(1)):
        head += byte
    return head


@pytest.fixture
def exit_() -> Iterator[Exit]:
    made = Exit()
    yield made
    made.close()


def proxied(folder: str, upstream: str) -> dict[str, object]:
    made = {"upstream": upstream, "dir": f"{folder}-wire", "hosts": ["203.0.113.10"]}
    return {"net": {"proxied": {"proxy": made, "ports": []}}}


LOOK = """\
for one in /proc/[0-9]*; do cat $one/cmdline $one/environ 2>/dev/null | tr '\\0' '\\n'; done
curl -sS http://203.0.113.10/a
"""


def test_a_kept_command_goes_by_its_exit_and_shows_no_login(
    installed: lnk.Installed, who: lnk.Account, folder: str, exit_: Exit
) -> None:
    made = installed.wrap(who, ["/bin/sh", "-c", LOOK], **proxied(folder, exit_.url))
    assert PASSWORD not in json.dumps(made)
    file = Path(login_file(f"{who.home}/.lnk", "box"))
    assert file.read_text() == exit_.url
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for _ in range(2):
        done = lnk.run(who, made["argv"], environ=made["env"])
        assert done.stdout.endswith("behind"), done.stderr
        assert PASSWORD not in done.stdout + done.stderr
    assert exit_.heads[0].startswith(b"CONNECT 203.0.113.10:80 HTTP/1.1\r\n")
    assert exit_.heads[1].startswith(b"GET /a HTTP/1.1\r\nHost: 203.0.113.10\r\n")
    assert BASIC not in exit_.heads[1]
    for path in Path(f"{who.home}/.lnk").rglob("*.jsonl"):
        assert PASSWORD not in path.read_text()


def test_a_kept_command_whose_exit_is_another_by_now_does_not_go_out(
    installed: lnk.Installed, who: lnk.Account, folder: str, exit_: Exit
) -> None:
    kept = installed.wrap(who, ["/bin/sleep", "60"], **proxied(folder, exit_.url))
    installed.wrap(who, ["/bin/true"], **proxied(folder, "socks5://a:b@203.0.113.9:1080"))
    done = lnk.run(who, kept["argv"], environ=kept["env"])
    assert done.returncode == 125
    assert "another exit by now: make the command anew with wrap" in done.stderr


def test_an_explained_plan_names_the_exit_without_its_login(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    confinement = {"name": "box", "write": [], "read": [], "commands": "any",
                   **proxied(folder, "http://u:treasure@exit.example:3128")}  # fmt: skip
    request = json.dumps({"confinement": confinement, "argv": ["/bin/true"]})
    for more in ((), ("--json",)):
        done = installed.run(who, "wrap", "--explain", *more, input=request)
        assert "http://exit.example:3128" in done.stdout
        assert "treasure" not in done.stdout + done.stderr


def test_a_run_goes_by_its_spec_s_exit_and_shows_no_login(
    installed: lnk.Installed, who: lnk.Account, folder: str, exit_: Exit
) -> None:
    spec = Path(folder) / "box.toml"
    spec.write_text(f'[network]\nupstream = "{exit_.url}"\n[internet]\nhosts = ["203.0.113.10"]\n')
    os.chown(spec, who.uid, who.gid)
    done = installed.run(who, "run", "--yes", "--spec", str(spec), "--", "/bin/sh", "-c", LOOK)
    assert done.stdout.endswith("behind"), done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert not Path(login_file(f"{who.home}/.lnk", f"run-{os.getpid()}")).exists()


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_a_run_whose_exit_is_dead_says_so_once_and_names_it(
    installed: lnk.Installed, who: lnk.Account, folder: str, scheme: str
) -> None:
    with socket.socket() as taken:  # bound and not listening: whoever connects is refused
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        spec = Path(folder) / "box.toml"
        spec.write_text(
            f'[network]\nupstream = "{scheme}://{USER}:{PASSWORD}@{where}"\n'
            '[internet]\nhosts = ["203.0.113.10"]\n'
        )
        os.chown(spec, who.uid, who.gid)
        argv = ["/usr/bin/curl", "-sS", "http://203.0.113.10/a", "http://203.0.113.10/b"]
        done = installed.run(who, "run", "--yes", "--spec", str(spec), "--", *argv)
    said = [line for line in done.stderr.splitlines() if line.startswith("lnk sandbox: ")]
    assert said == [
        f"lnk sandbox: the upstream proxy {scheme}://{where} could not be reached: connection "
        "refused; see [network] upstream."
    ]
    assert PASSWORD not in done.stdout + done.stderr
    assert where not in done.stdout, "the program isn't told where it is"


@pytest.mark.parametrize(
    "upstream", ["http://treasure@exit.example", "http://u:trea:sure@exit.example:1",
                 "socks5://treasure@exit.example:1080", "http://exit.example:99999"],
)  # fmt: skip
def test_what_is_no_exit_is_refused_by_its_path_and_not_shown(
    installed: lnk.Installed, who: lnk.Account, folder: str, upstream: str
) -> None:
    confinement = {"name": "box", "write": [], "read": [], "commands": "any",
                   **proxied(folder, upstream)}  # fmt: skip
    request = json.dumps({"confinement": confinement, "argv": ["/bin/true"]})
    done = installed.run(who, "wrap", input=request)
    assert (done.returncode, done.stdout) == (2, "")
    assert "confinement.net.proxied.proxy.upstream: " in done.stderr
    assert re.fullmatch("[^\n]*\n", done.stderr)
    assert "sure" not in done.stderr
    spec = Path(folder) / "box.toml"
    spec.write_text(f'[network]\nupstream = "{upstream}"\n[internet]\nhosts = ["a.example"]\n')
    os.chown(spec, who.uid, who.gid)
    done = installed.run(who, "run", "--yes", "--spec", str(spec), "--", "/bin/true")
    assert (done.returncode, done.stdout) == (2, "")
    assert "box.toml:2: network.upstream: " in done.stderr
    assert "sure" not in done.stderr


# -- the proxy's flags ------------------------------------------------------------------------


def upstream(*words: str) -> str:
    return settings_of(read_flags(proxy.FLAGS, ["--any-host", *words]), 8080).upstream


def test_an_exit_without_a_login_may_stand_on_the_command_line() -> None:
    assert upstream() == "direct"
    assert upstream("--upstream", "direct") == "direct"
    assert upstream("--upstream", "socks5://127.0.0.1:1080") == "socks5://127.0.0.1:1080"


def test_an_exit_with_a_login_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "exit"
    file.write_text("http://u:treasure@exit.example:3128\n")
    file.chmod(0o600)
    assert upstream("--upstream-file", str(file)) == "http://u:treasure@exit.example:3128"


@pytest.mark.parametrize(
    ("words", "named", "cure"),
    [
        (["--upstream", "http://u:treasure@a.example:1"], "--upstream", "--upstream-file FILE"),
        (["--upstream", "ftp://a.example:1"], "--upstream", "socks5://HOST:PORT"),
        (["--upstream", "direct", "--upstream-file", "/x"], "--upstream-file", "write one"),
        (["--upstream-file", "/nonexistent"], "--upstream-file", "can't be opened"),
    ],
)
def test_a_bad_exit_is_one_sentence(words: list[str], named: str, cure: str) -> None:
    with pytest.raises(UsageError) as refused:
        upstream(*words)
    assert named in refused.value.message
    assert cure in refused.value.message
    assert "treasure" not in refused.value.message


def test_a_file_that_others_may_look_at_is_refused(tmp_path: Path) -> None:
    file, link = tmp_path / "exit", tmp_path / "link"
    file.write_text("http://u:treasure@exit.example:3128")
    file.chmod(0o640)
    link.symlink_to(file)
    for path in (file, link, tmp_path):
        with pytest.raises(LaunchError) as refused:
            read_login(str(path), "")
        assert "treasure" not in str(refused.value)
    file.chmod(0o600)
    assert read_login(str(file), "http://exit.example:3128").startswith("http://u:")
    with pytest.raises(LaunchError, match="another exit"):
        read_login(str(file), "http://other.example:3128")


def test_an_exit_is_shown_without_its_login() -> None:
    assert without_login("socks5://u:p@h:1") == without_login("socks5://h:1") == "socks5://h:1"
    assert without_login("direct") == "direct"
    assert has_login("http://u@h:1")
    assert not has_login("http://h:1")
