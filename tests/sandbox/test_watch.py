"""The flags outside: raised, seen by a proxy, and odd in every way (`wires`, `watch`)."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from proto.kinds import Cause
from sandbox import watch as watching
from sandbox import wires as flags
from sandbox.errors import LaunchError, Unavailable
from sandbox.state import State
from sandbox.watch import Watch
from sandbox.wires import Wires, wires


class Told:
    """What a watch says and shows."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown: list[tuple[str, str]] = []


@pytest.fixture
def settings(tmp_path: Path) -> str:
    return str(tmp_path / "lnk")


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watch(settings: str, told: Told) -> Watch:
    return Watch(settings, "box", told.said.append, lambda *shown: told.shown.append(shown))


def as_read(found: Wires) -> tuple[bool, dict[str, str]]:
    return found.stopped, {one.sandbox: one.why for one in found.paused}


# -- raising and reading ---------------------------------------------------------------------


def test_missing_state_is_open_and_reading_makes_nothing(settings: str, tmp_path: Path) -> None:
    assert as_read(wires(settings)) == (False, {})
    assert os.listdir(tmp_path) == []
    os.makedirs(f"{settings}/sandbox", 0o700)
    assert as_read(wires(settings)) == (False, {})
    assert os.listdir(f"{settings}/sandbox") == []


def test_flags_are_whole_private_files_and_are_lowered_again(settings: str) -> None:
    state = State(settings)
    flags.stop(state)
    flags.pause(state, "run-12", "100 targets")
    assert as_read(wires(settings)) == (True, {"run-12": "100 targets"})
    assert wires(settings).as_json() == {
        "stopped": True, "paused": [{"sandbox": "run-12", "why": "100 targets"}],
    }  # fmt: skip
    for path in ("stopped", "paused/run-12"):
        assert stat.S_IMODE(os.stat(f"{settings}/sandbox/{path}").st_mode) == 0o600
    for path in ("", "sandbox", "sandbox/paused"):
        assert stat.S_IMODE(os.stat(f"{settings}/{path}").st_mode) == 0o700
    assert flags.start(state)
    assert flags.resume(state, "run-12")
    assert as_read(wires(settings)) == (False, {})
    assert not flags.start(state)
    assert not flags.resume(state, "run-12")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"why": 3}', b'{"why": ""}', b"\xff", b"[" * 100_000]
)
def test_a_flag_that_does_not_say_why_is_a_flag(settings: str, data: bytes) -> None:
    State(settings).write(data, "paused", "box")
    assert as_read(wires(settings)) == (False, {"box": flags.WHY_UNKNOWN})


def test_a_reason_is_one_printable_line(settings: str) -> None:
    why = "a\x1b[2J\u202e" + "b" * 1000
    State(settings).write(json.dumps({"why": why}).encode(), "paused", "box")
    shown = wires(settings).paused[0].why
    assert shown.startswith("a?[2J?bb")
    assert len(shown) == flags.WHY_MAX_CHARS


def test_a_half_written_flag_is_none_and_a_link_is_one(settings: str, tmp_path: Path) -> None:
    folder = State(settings).folder("paused")
    Path(folder, ".box.0011").write_text("")
    Path(folder, "linked").symlink_to(tmp_path / "nowhere")
    Path(folder, "folder").mkdir()
    assert as_read(wires(settings)) == (
        False, {"folder": flags.WHY_UNKNOWN, "linked": flags.WHY_UNKNOWN},
    )  # fmt: skip


def odd_settings(settings: str, how: str) -> None:
    """Make Link's settings odd in one way."""
    made = f"{settings}/sandbox/paused"
    os.makedirs(made, 0o700)
    match how.split():
        case ["open", *below]:
            os.chmod("/".join([settings, *below]), 0o777)
        case ["linked", *below]:
            path = "/".join([settings, *below])
            os.rename(path, f"{settings}-moved")
            os.symlink(f"{settings}-moved", path)
        case ["file", *below]:
            path = "/".join([settings, *below])
            os.rename(path, f"{settings}-moved")
            Path(path).write_text("")
        case ["theirs", *below]:
            os.chown("/".join([settings, *below]), 12345, 12345)


ODD = [
    f"{how}{below}"
    for how in ("open", "linked", "file", "theirs")
    for below in ("", " sandbox", " sandbox paused")
]


@pytest.mark.parametrize("how", ODD)
def test_odd_settings_are_unavailable_to_who_reads(settings: str, how: str) -> None:
    odd_settings(settings, how)
    with pytest.raises(Unavailable, match="Link's settings"):
        wires(settings)


def test_settings_that_can_not_be_read_are_unavailable(
    settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    State(settings).folder("paused")

    def listdir(_: object) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(Unavailable, match="Input/output error"):
        wires(settings)


def test_without_a_folder_named_the_persons_own_is_read(
    settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags.stop(State(settings))
    monkeypatch.setenv("LNK_HOME", settings)
    assert wires().stopped
    monkeypatch.setenv("LNK_HOME", "relative")
    with pytest.raises(Unavailable, match="LNK_HOME"):
        wires()


def test_a_flag_that_can_not_be_changed_is_one_sentence(settings: str) -> None:
    os.makedirs(f"{settings}/sandbox/stopped", 0o700)
    with pytest.raises(LaunchError, match="/stopped' can't be written"):
        flags.stop(State(settings))
    with pytest.raises(LaunchError, match="/stopped' can't be removed"):
        flags.start(State(settings))


# -- a proxy's own look ----------------------------------------------------------------------


def test_a_wire_without_any_state_is_open(settings: str, watch: Watch, told: Told) -> None:
    assert watch.look() is None
    watch.begin()
    assert watch.look() is None
    assert watch.watch(0, 0) is None
    watch.end()
    assert told.said == []


def test_flags_are_seen_by_the_next_look_and_told_once_by_the_watch(
    settings: str, watch: Watch
) -> None:
    state = State(settings)
    for raise_, lower, cause in (
        (lambda: flags.stop(state), lambda: flags.start(state), Cause.STOPPED),
        (lambda: flags.pause(state, "box", "x"), lambda: flags.resume(state, "box"), Cause.PAUSED),
    ):
        raise_()
        assert watch.look() is cause
        assert watch.watch(0, 0) is cause
        assert watch.watch(0, 0) is None  # who comes now is answered, not cut off
        lower()
        assert watch.look() is None
        raise_()  # and between two looks of the watch nobody has seen it lowered
        assert watch.watch(0, 0) is cause
        lower()
        assert watch.watch(0, 0) is None


def test_another_sandboxes_pause_is_not_its_own(settings: str, watch: Watch) -> None:
    flags.pause(State(settings), "box2", "x")
    assert watch.look() is None
    assert watch.watch(0, 0) is None


@pytest.mark.parametrize("kind", ["link", "folder"])
@pytest.mark.parametrize("flag", ["stopped", "paused/box"])
def test_whatever_bears_a_flags_name_is_a_flag(
    settings: str, watch: Watch, kind: str, flag: str
) -> None:
    State(settings).folder("paused")
    path = Path(settings, "sandbox", flag)
    if kind == "link":
        path.symlink_to("/nowhere/at/all")
    else:
        path.mkdir()
    cause = Cause.STOPPED if flag == "stopped" else Cause.PAUSED
    assert watch.look() is cause
    assert watch.watch(0, 0) is cause


@pytest.mark.parametrize("how", ODD)
def test_odd_settings_close_the_wire_and_say_so_once(
    settings: str, watch: Watch, told: Told, how: str
) -> None:
    odd_settings(settings, how)
    assert watch.watch(0, 0) is Cause.UNSEEN
    assert watch.look() is Cause.UNSEEN
    assert watch.watch(0, 0) is None
    refused = [said for said in told.said if said.startswith("calls are refused: ")]
    assert len(refused) == 1


def test_settings_put_right_open_the_wire_again(settings: str, watch: Watch) -> None:
    odd_settings(settings, "open sandbox")
    assert watch.watch(0, 0) is Cause.UNSEEN
    os.chmod(f"{settings}/sandbox", 0o700)
    assert watch.watch(0, 0) is None
    assert watch.look() is None


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ELOOP])
def test_flags_that_can_not_be_looked_at_close_the_wire(
    watch: Watch, told: Told, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def lstat(_: str) -> os.stat_result:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(watching.os, "lstat", lstat)
    assert watch.watch(0, 0) is Cause.UNSEEN
    assert watch.look() is Cause.UNSEEN
    assert os.strerror(number) in told.said[0]


def test_a_killed_run_s_pause_is_not_a_later_one_s_of_the_same_number(
    settings: str, watch: Watch, told: Told
) -> None:
    ours, box = f"run-{os.getppid()}", "box"
    for name in (ours, box):
        flags.pause(State(settings), name, "100 targets")
    for name, left in ((box, {ours, box}), (ours, {box})):
        Watch(settings, name, told.said.append, lambda *_: None).begin()
        assert set(as_read(wires(settings))[1]) == left


def test_a_pause_is_written_outside_and_told(settings: str, watch: Watch, told: Told) -> None:
    watch.pause("300 of its calls were refused within a minute")
    assert watch.look() is Cause.PAUSED
    assert watch.watch(0, 0) is Cause.PAUSED
    found = as_read(wires(settings))
    assert found == (False, {"box": "300 of its calls were refused within a minute"})
    assert "lnk sandbox resume box" in told.said[0]
    assert told.shown[0][0] == "The wire of box is paused"
    flags.resume(State(settings), "box")
    assert watch.look() is None
    assert watch.watch(0, 0) is None


def test_a_pause_that_can_not_be_written_closes_the_wire_and_is_written_later(
    settings: str, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:

        def pause(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(watching, "pause", pause)
        watch.pause("it looks wrong")
        assert watch.look() is Cause.PAUSED
        assert watch.watch(0, 0) is Cause.PAUSED
        assert watch.watch(0, 0) is None
        assert watch.look() is Cause.PAUSED
        assert as_read(wires(settings)) == (False, {})
    watch.watch(0, 0)
    assert as_read(wires(settings)) == (False, {"box": "it looks wrong"})
    flags.resume(State(settings), "box")
    assert watch.look() is None


def test_a_runs_pause_ends_with_it_and_anothers_stays(settings: str, told: Told) -> None:
    for name, left in ((f"run-{os.getppid()}", {}), ("run-1", {"run-1": "x"})):
        watch = Watch(settings, name, told.said.append, lambda *_: None)
        watch.begin()
        watch.pause("x")
        watch.end()
        assert as_read(wires(settings)) == (False, left)


def test_settings_removed_under_a_running_proxy_are_looked_for_where_they_stand(
    settings: str, watch: Watch
) -> None:
    """A descriptor kept open would show the folder that was, and never a new flag."""
    watch.begin()
    os.rename(settings, f"{settings}-moved")
    assert watch.look() is None
    flags.stop(State(settings))
    assert watch.look() is Cause.STOPPED
    assert watch.watch(0, 0) is Cause.STOPPED
