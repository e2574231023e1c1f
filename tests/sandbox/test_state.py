"""Link's settings on disk: where they are, and that only their user has a hand in them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox.errors import LaunchError
from sandbox.state import State, remember_run, settings_folder, user_home, was_run


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(str(tmp_path / "lnk"))


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_the_settings_are_where_lnk_home_says():
    assert settings_folder({"LNK_HOME": "/srv/lnk/", "HOME": "/home/u"}) == "/srv/lnk"
    assert settings_folder({"LNK_HOME": "//srv//lnk", "HOME": "/home/u"}) == "/srv/lnk"


@pytest.mark.parametrize("path", ["/", "//", "/."])
def test_settings_that_are_the_whole_machine_are_refused(path: str):
    with pytest.raises(LaunchError, match="LNK_HOME is the whole machine; name a folder in it"):
        settings_folder({"LNK_HOME": path, "HOME": "/home/u"})


@pytest.mark.parametrize("environ", [{"HOME": "/home/u"}, {"HOME": "/home/u", "LNK_HOME": ""}])
def test_the_settings_are_in_the_home_folder_without_lnk_home(environ: dict[str, str]):
    assert settings_folder(environ) == "/home/u/.lnk"


@pytest.mark.parametrize("path", ["lnk", "./lnk", "~/.lnk", "/srv/../lnk"])
def test_settings_that_depend_on_the_working_folder_are_refused(path: str):
    with pytest.raises(LaunchError, match="LNK_HOME isn't an absolute path"):
        settings_folder({"LNK_HOME": path, "HOME": "/home/u"})


def test_a_home_that_is_not_absolute_is_refused():
    with pytest.raises(LaunchError, match="HOME isn't an absolute path"):
        user_home({"HOME": "home"})


def test_without_home_the_account_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HOME", raising=False)
    assert user_home() == os.path.realpath(os.path.expanduser("~"))


def test_a_home_behind_a_link_is_named_without_it(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to("real")
    assert user_home({"HOME": str(tmp_path / "home")}) == str(tmp_path / "real")


def test_naming_the_settings_makes_nothing(tmp_path: Path):
    settings_folder({"LNK_HOME": str(tmp_path / "lnk")})
    state = State(str(tmp_path / "lnk"))
    assert state.read("specs", "x") is None
    assert state.names("paused") == []
    state.remove("specs", "x")
    assert list(tmp_path.iterdir()) == []


def test_every_folder_made_is_its_users_alone(state: State, tmp_path: Path):
    umask = os.umask(0)
    try:
        made = state.folder("traffic", "inner")
    finally:
        os.umask(umask)
    assert made == str(tmp_path / "lnk/sandbox/traffic/inner")
    for part in ("lnk", "lnk/sandbox", "lnk/sandbox/traffic", "lnk/sandbox/traffic/inner"):
        assert mode(tmp_path / part) == 0o700


@pytest.mark.parametrize("umask", [0, 0o777])
def test_a_file_is_its_users_alone_whatever_the_umask(state: State, umask: int):
    state.folder("specs")
    old = os.umask(umask)
    try:
        path = state.write(b"kept", "specs", "a")
    finally:
        os.umask(old)
    assert mode(path) == 0o600
    assert state.read("specs", "a") == b"kept"


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(state: State):
    path = state.write(b"old", "specs", "a")
    with open(path, "rb") as before:
        state.write(b"new", "specs", "a")
        assert before.read() == b"old"  # its readers keep the one they opened
    assert state.read("specs", "a") == b"new"
    assert state.names("specs") == ["a"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    state: State, monkeypatch: pytest.MonkeyPatch
):
    state.write(b"old", "specs", "a")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LaunchError, match="No space"):
        state.write(b"new", "specs", "a")
    assert state.read("specs", "a") == b"old"
    assert state.names("specs") == ["a"]


def test_a_removed_file_is_gone(state: State):
    state.write(b"x", "stopped")
    state.remove("stopped")
    assert state.read("stopped") is None


@pytest.mark.parametrize("bits", [0o020, 0o002, 0o022])
@pytest.mark.parametrize("part", ["", "sandbox", "sandbox/specs"])
def test_a_folder_that_others_can_write_is_refused(state: State, part: str, bits: int):
    state.folder("specs")
    os.chmod(os.path.join(state.settings, part), 0o700 | bits)
    for attempt in (
        lambda: state.write(b"x", "specs", "a"),
        lambda: state.read("specs", "a"),
        lambda: state.names("specs"),
        lambda: state.remove("specs", "a"),
    ):
        with pytest.raises(LaunchError) as raised:
            attempt()
        whole = os.path.join(state.settings, part).rstrip("/")
        said = f"{whole!r} can be written by others; run chmod go-w on it."
        assert str(raised.value) == f"Link's settings: {said}"


def test_nobody_is_told_to_close_a_folder_that_is_everybodys(tmp_path: Path):
    tmp_path.chmod(0o1777)
    with pytest.raises(LaunchError, match="written by others; it is everybody's, so name one of"):
        State(str(tmp_path)).names()


@pytest.mark.parametrize("part", ["", "sandbox", "sandbox/specs"])
def test_a_link_in_the_place_of_a_folder_is_refused(state: State, part: str):
    state.folder("specs")
    place = os.path.join(state.settings, part).rstrip("/")
    os.rename(place, place + ".moved")
    os.symlink(place + ".moved", place)
    with pytest.raises(LaunchError, match="isn't a folder, or is a link to one"):
        state.write(b"x", "specs", "a")
    with pytest.raises(LaunchError, match="isn't a folder, or is a link to one"):
        state.read("specs", "a")


def test_a_file_in_the_place_of_a_folder_is_refused(state: State):
    state.write(b"x", "specs")
    with pytest.raises(LaunchError, match="isn't a folder"):
        state.write(b"x", "specs", "a")


def test_a_folder_of_another_users_is_refused(state: State, monkeypatch: pytest.MonkeyPatch):
    state.folder("specs")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(LaunchError, match="is another user's"):
        state.read("specs", "a")


def test_a_link_in_the_place_of_a_file_is_not_followed(state: State, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    folder = state.folder("specs")
    os.symlink(secret, os.path.join(folder, "a"))
    with pytest.raises(LaunchError):
        state.read("specs", "a")
    state.write(b"mine", "specs", "a")
    assert secret.read_bytes() == b"secret"
    assert state.read("specs", "a") == b"mine"


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(state: State):
    os.mkfifo(os.path.join(state.folder("specs"), "a"))
    with pytest.raises(LaunchError, match="isn't a file"):
        state.read("specs", "a")


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path):
    with pytest.raises(LaunchError, match="can't be made: No such file or directory") as refused:
        State(str(tmp_path / "none" / "lnk")).folder()
    assert refused.value.exit_code == 125


def test_a_spec_is_known_again_once_it_was_agreed_to(state: State):
    assert not was_run(state, "ab12")
    remember_run(state, "ab12", b"{}")
    assert was_run(state, "ab12")
    assert not was_run(state, "cd34")


def test_reading_and_writing_leak_no_descriptor(state: State):
    state.write(b"x", "specs", "a")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        state.write(b"x", "specs", "a")
        state.read("specs", "a")
        state.read("none", "a")
        state.names("specs")
    assert len(os.listdir("/proc/self/fd")) == before
