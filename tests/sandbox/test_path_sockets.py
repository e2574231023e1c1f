"""Path sockets where a sandbox reads: masked at each start, and left where it writes."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator

import pytest

from sandbox.errors import LaunchError
from sandbox.linux import packing, path_sockets, wire_folder
from tests.sandbox import lnk

CONNECT = """\
import socket, sys
for path in sys.argv[1:]:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.connect(path)
        print("open")
    except OSError as error:
        print(error.__class__.__name__)
"""


@pytest.fixture
def listener(who: lnk.Account, folder: str) -> Iterator[str]:
    """A socket of theirs in a folder of theirs, which anybody may connect to."""
    path = f"{folder}/in/agent.sock"
    os.mkdir(f"{folder}/in")
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
    made.listen()
    for name in (f"{folder}/in", path):
        os.chown(name, who.uid, who.gid)
    yield path
    made.close()


def connected(installed, who, path, **keys) -> str:
    command = installed.wrapped(who, [installed.python, "-c", CONNECT, path], **keys)
    done = lnk.run(who, command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_socket_in_a_folder_that_is_read_cannot_be_connected_to(installed, who, folder, listener):
    for keys in ({"read": [folder]}, {"read_home": True},
                 {"read": [f"{folder}/in"], "write": [folder]}):  # fmt: skip
        assert connected(installed, who, listener, **keys) == "ConnectionRefusedError"


def test_a_socket_in_a_folder_of_the_systems_is_masked_too(installed, who, people):
    if "root" not in people:
        return  # nobody else puts one there
    folder = tempfile.mkdtemp(prefix="lnk-tests-", dir="/opt")
    os.chmod(folder, 0o755)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"{folder}/agent.sock")
            made.listen()
            os.chmod(f"{folder}/agent.sock", 0o777)
            assert connected(installed, who, f"{folder}/agent.sock") == "ConnectionRefusedError"
    finally:
        shutil.rmtree(folder)


def test_one_in_a_folder_that_is_written_can(installed, who, folder, listener):
    assert connected(installed, who, listener, write=[folder]) == "open"
    assert connected(installed, who, listener, write=[f"{folder}/in"], read=[folder]) == "open"


def test_without_the_wall_it_is_open(installed, who, folder, listener):
    command = installed.wrapped(who, [installed.python, "-c", CONNECT, listener], read=[folder])
    command[4] = packing.written({**lnk.plan_of(command), "sockets": []})
    assert lnk.run(who, command).stdout == "open\n"


def test_one_that_a_link_leads_to_is_masked_where_it_is(installed, who, folder, listener):
    os.symlink("in", f"{folder}/link")
    assert connected(installed, who, f"{folder}/link/agent.sock", read=[folder]) == (
        "ConnectionRefusedError"
    )


def test_one_that_has_another_name_by_now_is_masked_by_that(installed, who, folder, listener):
    """OpenSSH links its ControlMaster's socket to its name: the kernel lists the name before."""
    os.rename(listener, f"{folder}/in/control")
    assert connected(installed, who, f"{folder}/in/control", read=[folder]) == (
        "ConnectionRefusedError"
    )


def test_one_that_was_bound_by_a_relative_name_is_masked(installed, who, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("agent.sock")
        made.listen()
        os.chown("agent.sock", who.uid, who.gid)
        # Who may not look at another's working folder doesn't know where it lies.
        found = connected(installed, who, f"{folder}/agent.sock", read=[folder])
    assert found == ("ConnectionRefusedError" if who.uid == os.getuid() else "open")


def test_the_proxy_of_another_sandbox_is_masked(installed, who, folder):
    """Whoever connects to it goes out by its wire, and a folder that is read shows it."""
    wire = f"{folder}/agents/one"
    os.makedirs(wire, 0o700)
    fd = os.open(wire, os.O_RDONLY)
    out = wire_folder.listen_at(fd, "out.sock", 0o600)
    for path in (f"{folder}/agents", wire, f"{wire}/out.sock"):
        os.chown(path, who.uid, who.gid)
    assert connected(installed, who, f"{wire}/out.sock", read=[folder]) == "ConnectionRefusedError"
    os.close(out)
    os.close(fd)


def test_one_in_a_hidden_folder_shows_not_even_its_name(installed, who, folder, listener):
    command = installed.wrapped(
        who, ["ls", "-a", f"{folder}/in"], read=[folder], hide=[f"{folder}/in"]
    )
    done = lnk.run(who, command)
    assert "agent.sock" not in done.stdout


def test_the_kernels_list_is_read_with_its_odd_names(tmp_path, monkeypatch):
    real = tmp_path / "a b @ c"
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(real))
    listing = tmp_path / "unix"
    listing.write_bytes(
        b"Num       RefCount Protocol Flags    Type St Inode Path\n"
        b"0000000000000000: 00000002 00000000 00010000 0001 01 12 " + str(real).encode() + b"\n"
        b"0000000000000000: 00000002 00000000 00010000 0001 01 12 @/abstract /name\n"
        b"0000000000000000: 00000002 00000000 00010000 0001 01 12 @name\n"
        b"0000000000000000: 00000002 00000000 00010000 0001 01    12\n"
        b"0000000000000000: 00000002 00000000 00010000 0001 01 12 relative/name\n"
        b"0000000000000000: 00000002 00000000 00010000 0001 01 12 /gone/name\n"
    )
    monkeypatch.setattr(path_sockets, "LIST", str(listing))
    monkeypatch.setattr(path_sockets, "_working_folders", lambda: {"/gone"})
    assert path_sockets.bound(["/"]) == [str(real), "/gone/name", "/gone/relative/name"]
    assert path_sockets.bound([str(tmp_path)]) == [str(real)]
    masked = path_sockets.mask(["--ro-bind", "/", "/"], ["/"])
    assert masked == ["--ro-bind", "/", "/", "--ro-bind", "/dev/null", str(real)]
    monkeypatch.setattr(path_sockets, "LIST", str(tmp_path / "missing"))
    assert path_sockets.bound(["/"]) == []
    made.close()


def test_more_than_can_be_masked_are_refused(monkeypatch):
    paths = [f"/work/{n}" for n in range(path_sockets.MASKS_MAX + 1)]
    monkeypatch.setattr(path_sockets, "bound", lambda _: paths)
    monkeypatch.setattr(path_sockets, "_is_socket", lambda _: True)
    arguments = ["--ro-bind", "/work", "/work"]
    with pytest.raises(LaunchError, match="more than 512 sockets"):
        path_sockets.mask(arguments, ["/work"])
    monkeypatch.setattr(path_sockets, "bound", lambda _: paths[:1])
    assert path_sockets.mask(arguments, ["/work"]) == [
        *arguments, "--ro-bind", "/dev/null", "/work/0",
    ]  # fmt: skip
    monkeypatch.setattr(path_sockets, "bound", lambda _: [])
    assert path_sockets.mask(arguments, ["/other"]) == arguments
