"""The folder of a proxy's sockets: what it has to be, and who is connected to (R42)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.errors import LaunchError
from sandbox.linux import wire_folder
from sandbox.linux.wire_folder import ALONE, IN, OUT, Folder, Shared
from tests.sandbox import lnk

GROUP, AGENT = 4242, 4343
"""Nobody's: root alone can give a folder to them."""


@contextlib.contextmanager
def opened(path: Path, shared: Shared | None = None, **more: bool) -> Iterator[Folder]:
    folder = Folder(str(path), shared, **more)
    yield folder
    folder.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def reaches(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0


def test_a_folder_that_is_not_there_is_made_its_user_s_alone_and_taken_away(
    tmp_path: Path,
) -> None:
    path = tmp_path / "above" / "wire"
    with opened(path) as folder:
        assert mode(path) == mode(path.parent) == ALONE
        out = folder.listen()
        assert mode(path / OUT) == 0o600
        assert reaches(path / OUT)
        assert os.listdir(path) == [OUT]
        os.close(out)
    assert not path.exists()


def test_what_a_proxy_left_that_was_killed_while_it_made_its_socket_goes(tmp_path: Path) -> None:
    gone = 999_999_999
    tmp_path.chmod(ALONE)
    for name in (f".{OUT}.{gone}", f".{OUT}.1", f".{OUT}.x", f".{IN}.{gone}", f".{OUT}.{gone - 1}"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(tmp_path / name))
        if not name.endswith(str(gone - 1)):  # that one may be being made just now
            os.utime(tmp_path / name, (1, 1))
    (tmp_path / f".{OUT}.{gone + 1}").write_text("no socket")
    kept = {f".{OUT}.1", f".{OUT}.x", f".{IN}.{gone}", f".{OUT}.{gone + 1}", f".{OUT}.{gone - 1}"}
    with opened(tmp_path) as folder:
        os.close(folder.listen())
        assert set(os.listdir(tmp_path)) == {OUT} | kept
    with opened(tmp_path / "made") as folder:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(f"{folder.path}/.{OUT}.{gone}")
            os.utime(f"{folder.path}/.{OUT}.{gone}", (1, 1))
        folder.take_over(made=True)
    assert not (tmp_path / "made").exists()


def test_of_proxies_that_start_at_once_in_a_folder_one_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(ALONE)
    monkeypatch.setattr(wire_folder, "_sweep", lambda *_: time.sleep(0.05))  # between look and name
    said, tell = os.pipe()
    stay, go = os.pipe()
    children = []
    for _ in range(4):
        children.append(os.fork())
        if children[-1] == 0:
            os.close(go)
            made = Folder(str(tmp_path)).listen()
            os.write(tell, b"+" if made >= 0 else b"-")
            os.read(stay, 1)  # listening
            os._exit(0)
    answers = b"".join(os.read(said, 1) for _ in children)
    assert sorted(answers) == sorted(b"+---")
    assert reaches(tmp_path / OUT)
    os.close(go)
    for child in children:
        os.waitpid(child, 0)
    for fd in (said, tell, stay):
        os.close(fd)


def test_a_folder_that_somebody_holds_locked_is_waited_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(ALONE)
    monkeypatch.setattr(wire_folder, "LOCK_S", 0.05)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with opened(tmp_path) as folder:
        os.close(folder.listen())
        assert os.listdir(tmp_path) == [OUT]
    os.close(held)


def test_what_cannot_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    tmp_path.chmod(ALONE)
    with opened(tmp_path) as folder:
        monkeypatch.setattr(wire_folder.posix, "rename", refused)
        with pytest.raises(LaunchError, match="No space left"):
            folder.listen()
        assert os.listdir(tmp_path) == []


def test_a_folder_of_a_long_path_has_its_socket_too(tmp_path: Path) -> None:
    with opened(tmp_path / "long" / ("x" * 100)) as folder:
        out = folder.listen()
        assert os.listdir(folder.path) == [OUT]
        os.close(out)


def test_a_folder_that_was_there_stays_and_its_socket_goes(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with opened(tmp_path) as folder:
        os.close(folder.listen())
        (tmp_path / "other").touch()
    assert os.listdir(tmp_path) == ["other"]


def listening(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


def test_the_socket_of_a_relay_that_has_ended_goes_with_the_proxy_s(tmp_path: Path) -> None:
    path = tmp_path / "wire"
    with opened(path) as folder:
        os.close(folder.listen())
        listening(path / IN).close()
    assert not path.exists()


def test_one_of_a_relay_that_lives_stays_and_so_does_what_is_no_socket(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with listening(tmp_path / IN), opened(tmp_path) as folder:
        os.close(folder.listen())
        listening(tmp_path / "elsewhere").close()
    assert set(os.listdir(tmp_path)) == {IN, "elsewhere"}
    (tmp_path / IN).unlink()
    (tmp_path / IN).symlink_to("elsewhere")  # which has ended; but a link is nobody's socket
    with opened(tmp_path) as folder:
        os.close(folder.listen())
    assert (tmp_path / IN).is_symlink()


def test_where_another_proxy_listens_the_relay_s_socket_is_its(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    listening(tmp_path / IN).close()
    with listening(tmp_path / OUT), opened(tmp_path) as folder:
        assert folder.listen() == -1
    assert set(os.listdir(tmp_path)) == {IN, OUT}


def test_a_socket_that_was_left_behind_is_replaced_and_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o700)
    with opened(tmp_path) as killed:
        os.close(killed.listen())
        with opened(tmp_path) as folder:
            out = folder.listen()
            assert out >= 0
            assert reaches(tmp_path / OUT)
            with opened(tmp_path) as second:
                assert second.listen() == -1
            assert reaches(tmp_path / OUT), "what isn't ours stays"
            os.close(out)


def test_a_folder_whose_path_is_longer_than_a_socket_s_address_does(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120) / ("y" * 120)
    with opened(path) as folder:
        os.close(folder.listen())
        assert os.listdir(path) == [OUT]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.mkdir(0o755), "run chmod 700"),
        (lambda path: path.mkdir(0o700) or path.chmod(0o710), "run chmod 700"),
        (lambda path: path.mkdir(0o700) or path.chmod(0o2770), "run chmod 700"),
        (lambda path: path.symlink_to("/tmp"), "a link to one"),
        (lambda path: path.touch(), "isn't a folder"),
        (lambda path: path.mkdir(0o700) or os.chown(path, AGENT, -1), "another user's"),
    ],
)
def test_a_folder_that_others_have_a_hand_in_is_refused(
    tmp_path: Path, make: object, why: str
) -> None:
    path = tmp_path / "wire"
    make(path)
    with pytest.raises(LaunchError, match=why) as refused:
        Folder(str(path))
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_stands_in_the_socket_s_place_is_not_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / OUT).symlink_to("/etc/passwd")
    with opened(tmp_path) as folder, pytest.raises(LaunchError, match="is no socket: remove it"):
        folder.listen()
    assert (tmp_path / OUT).is_symlink()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="can't be made"):
        Folder(str(tmp_path / "file" / "wire"))
    with pytest.raises(LaunchError, match="can't be opened"):
        Folder(str(tmp_path / "none"), make=False)


# -- with an agent of its own -----------------------------------------------------------------


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of an agent and a group, as an administrator makes it."""
    path = tmp_path / "theirs"
    path.mkdir()
    os.chown(path, AGENT, GROUP)
    path.chmod(0o2770)
    return path


SHARED = Shared(AGENT, GROUP)


def test_the_sockets_of_a_shared_folder_are_the_group_s(theirs: Path) -> None:
    before = os.umask(0o077)
    os.umask(before)
    with opened(theirs, SHARED) as folder:
        os.close(folder.listen())
        assert mode(theirs / OUT) == 0o660
        assert (theirs / OUT).stat().st_gid == GROUP
    assert os.umask(before) == before
    assert mode(theirs) == 0o2770


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: path.chmod(0o770), "has mode 0770: run chmod 2770"),
        (lambda path: path.chmod(0o2777), "has mode 2777: run chmod 2770"),
        (lambda path: path.chmod(0o3770), "has mode 3770: run chmod 2770"),
        (lambda path: path.chmod(0o2750), "has mode 2750: run chmod 2770"),
        (lambda path: os.chown(path, -1, 1), f"is of group 1: run chgrp {GROUP}"),
        (lambda path: os.chown(path, 1, GROUP) or path.chmod(0o2770), "is of user 1: it has to be"),
        (lambda path: path.rmdir(), "can't be opened"),
    ],
)
def test_a_shared_folder_that_is_not_as_it_has_to_be_is_refused(
    theirs: Path, change: object, why: str
) -> None:
    change(theirs)
    with pytest.raises(LaunchError, match=why):
        Folder(str(theirs), SHARED)


def bound(path: Path, uid: int = -1) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    os.chown(path, uid, -1)
    return made


def test_the_agent_s_socket_is_taken_by_its_descriptor(theirs: Path) -> None:
    with opened(theirs, SHARED) as folder, bound(theirs / IN, AGENT) as its:
        fd = folder.inside()
        (theirs / IN).rename(theirs / "moved")  # what was looked at is what is connected to
        (theirs / IN).symlink_to("/nowhere")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(f"/proc/self/fd/{fd}")
            its.accept()[0].close()
        os.close(fd)


@pytest.mark.parametrize(
    "put",
    [
        lambda path: bound(path).close(),  # root's own
        lambda path: bound(path, 1).close(),
        lambda path: path.touch() or os.chown(path, AGENT, -1),
        lambda path: os.mkfifo(path) or os.chown(path, AGENT, -1),
        lambda path: path.symlink_to(path.parent / "real"),
        lambda path: path.mkdir() or os.chown(path, AGENT, -1),
        lambda path: None,
    ],
)
def test_anything_else_in_its_place_is_not_connected_to(theirs: Path, put: object) -> None:
    with opened(theirs, SHARED) as folder, bound(theirs / "real", AGENT):
        put(theirs / IN)
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match=r"No such file|no socket of the sandbox's user"):
            folder.inside()
        assert len(os.listdir("/proc/self/fd")) == before


def test_without_an_agent_it_has_to_be_our_own(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with opened(tmp_path) as folder, bound(tmp_path / IN):
        os.close(folder.inside())
        os.chown(tmp_path / IN, AGENT, -1)
        with pytest.raises(OSError, match="no socket of the sandbox's user"):
            folder.inside()


# -- of a sandbox's own proxy -----------------------------------------------------------------

REFUSED = b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"


def test_every_proxy_serves_its_folder_s_socket_while_its_sandbox_runs(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    wire = Path(f"{folder}-wire")
    proxy = {"upstream": "direct", "dir": str(wire), "hosts": []}
    script = "exec 3<>/dev/tcp/127.0.0.1/40781; echo served; read line"
    made = installed.wrap(
        who, ["/bin/bash", "-c", script], net={"proxied": {"proxy": proxy, "ports": []}}
    )
    process = lnk.popen(
        who, made["argv"], env={**who.environ, **made["env"]}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "served\n"
    wait_for(lambda: (wire / OUT).exists())
    assert mode(wire) == 0o700
    assert mode(wire / OUT) == 0o600
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(lnk.LONG_S)
        sock.connect(str(wire / OUT))
        sock.sendall(REFUSED)
        assert sock.recv(4096).startswith(b"HTTP/1.1 403 ")
    _, err = process.communicate("\n", timeout=lnk.LONG_S)
    assert (process.returncode, err) == (0, "")
    assert not wire.exists()


def wait_for(there: Callable[[], bool]) -> None:
    until = time.monotonic() + lnk.LONG_S
    while not there():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("script", ["true", "sleep 0.5"])
def test_a_run_leaves_no_folder_behind(
    installed: lnk.Installed, who: lnk.Account, script: str
) -> None:
    done = installed.run(who, "run", "--yes", "--", "/bin/sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    wires = f"{who.home}/.lnk/sandbox/wires"
    assert not os.path.exists(wires) or os.listdir(wires) == []


def test_a_folder_that_is_open_to_others_ends_the_sandbox(
    installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    proxy = {"upstream": "direct", "dir": f"{folder}-wire", "hosts": []}
    net = {"proxied": {"proxy": proxy, "ports": []}}
    made = installed.wrap(who, ["/bin/sleep", "60"], net=net)
    os.mkdir(f"{folder}-wire", 0o755)  # wrap would refuse it too
    os.chmod(f"{folder}-wire", 0o755)
    os.chown(f"{folder}-wire", who.uid, who.gid)
    done = lnk.run(who, made["argv"], environ=made["env"])
    assert done.returncode == 125
    assert "run chmod 700 on it" in done.stderr
