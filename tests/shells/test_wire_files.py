"""The wire's log: what a line holds, where it goes, and what happens when it can't."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from proto.policy.records import Allowed, Ending, Refusal
from shells.wire_files import FileSink, StderrSink, UnsafeLog, WireLog, open_log

ALLOWED = Allowed("connect", "example.com", 443)
REFUSAL = Refusal("connect", "evil.test", 443, 403, "evil.test is not listed", "internet.hosts")
ENDING = Ending("connect", "example.com", 443, 517, 4096, 1.23456)
AT = 1_700_000_000.0625


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


def file_log(folder: Path, name: str = "test", **sizes: int) -> WireLog:
    return WireLog(FileSink(str(folder), name, **sizes), clock=lambda: AT)


def ticking_log(folder: Path) -> WireLog:
    """A log whose lines are a second apart."""
    times = count(AT)
    return WireLog(FileSink(str(folder), "test"), clock=lambda: next(times))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines() if line]


class FullDisk:
    """A sink that takes lines only while there is room."""

    def __init__(self, name: str = "") -> None:
        self.name, self.room, self.taken = name, False, b""

    def check(self) -> None:
        pass

    def put(self, lines: bytes) -> None:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.taken += lines

    def close(self) -> None:
        self.room = False


def test_each_record_is_one_line_with_its_own_fields_in_order(folder: Path) -> None:
    with closing(file_log(folder)) as log:
        assert log.write(ALLOWED, "a-1")
        assert log.write(REFUSAL, "a-2")
        assert log.write(ENDING, "a-1")
    start = '{"time":"2023-11-14T22:13:20.062Z","call":'
    assert (folder / "test.jsonl").read_text().splitlines() == [
        start + '"a-1","verb":"connect","host":"example.com","port":443,"verdict":"allowed"}',
        start + '"a-2","verb":"connect","host":"evil.test","port":443,"verdict":"refused",'
        '"reason":"evil.test is not listed","status":403}',
        start + '"a-1","verb":"connect","host":"example.com","port":443,"verdict":"ended",'
        '"reason":"done","up":517,"down":4096,"seconds":1.235}',
    ]


def test_the_time_follows_the_clock_from_second_to_second(folder: Path) -> None:
    times = iter([AT, AT + 0.9375, AT + 86400])
    with closing(WireLog(FileSink(str(folder), "test"), clock=lambda: next(times))) as log:
        for _ in range(3):
            assert log.write(ALLOWED, "a-1")
    assert [line["time"] for line in lines(folder / "test.jsonl")] == [
        "2023-11-14T22:13:20.062Z",
        "2023-11-14T22:13:21.000Z",
        "2023-11-15T22:13:20.062Z",
    ]


@pytest.mark.parametrize("text", ["\u202eevil", "\x9b31m", "\x7f", "\x1b[2J", "a\nb", "\udc80"])
def test_nothing_that_a_terminal_acts_on_reaches_a_line(folder: Path, text: str) -> None:
    with closing(file_log(folder)) as log:
        assert log.write(Refusal("connect", text, 1, 403, text), "a-1")
    (line,) = (folder / "test.jsonl").read_bytes().splitlines()
    assert all(0x20 <= byte < 0x7F for byte in line)
    json.loads(line)


def test_the_folder_is_made_0700_and_the_file_0600_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        file_log(folder).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "test.jsonl").stat().st_mode) == 0o600


def test_a_file_that_others_could_read_is_closed_to_them(folder: Path) -> None:
    folder.mkdir(0o700)
    (folder / "test.jsonl").touch(0o644)
    file_log(folder).close()
    assert stat.S_IMODE((folder / "test.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UnsafeLog, match="others can write") as refused:
        file_log(folder)
    cure = "name one of your own" if mode & stat.S_ISVTX else "chmod go-w"  # never on /tmp
    assert cure in str(refused.value.strerror)


def test_a_link_in_the_folders_place_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    folder.symlink_to(tmp_path / "real")
    with pytest.raises(UnsafeLog, match="link"):
        file_log(folder)
    assert list((tmp_path / "real").iterdir()) == []


def test_a_file_in_the_folders_place_is_refused(folder: Path) -> None:
    folder.touch()
    with pytest.raises(UnsafeLog, match="no folder"):
        file_log(folder)


def test_a_folder_of_somebody_elses_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(UnsafeLog, match="somebody else"):
        file_log(folder)


def test_a_folder_whose_parent_is_missing_is_not_made(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_log(folder / "deeper")


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_anything_but_a_plain_file_in_the_logs_place_is_refused(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    folder.mkdir(0o700)
    place, elsewhere = folder / "test.jsonl", tmp_path / "elsewhere"
    elsewhere.touch()
    match kind:
        case "link":
            place.symlink_to(elsewhere)
        case "fifo":
            os.mkfifo(place)
        case _:
            place.mkdir()
    with pytest.raises(UnsafeLog, match="no file of ours"):
        file_log(folder)
    assert elsewhere.read_bytes() == b""


def test_a_fifo_that_somebody_reads_is_refused_too(folder: Path) -> None:
    folder.mkdir(0o700)
    os.mkfifo(folder / "test.jsonl")
    reader = os.open(folder / "test.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(UnsafeLog, match="no file of ours"):
            file_log(folder)
    finally:
        os.close(reader)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a" * 65, "a\n", "é", "-x"])
def test_a_name_that_could_lead_elsewhere_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(UnsafeLog, match="is no name for a log"):
        file_log(folder, name)
    assert not folder.exists()


def test_a_full_file_is_renamed_and_the_oldest_is_dropped(folder: Path) -> None:
    with closing(file_log(folder, max_bytes=400, keep=2)) as log:
        for number in range(20):
            assert log.write(ALLOWED, f"a-{number}")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["test.jsonl", "test.jsonl.1", "test.jsonl.2"]
    oldest_first = [folder / name for name in ("test.jsonl.2", "test.jsonl.1", "test.jsonl")]
    kept = [line["call"] for path in oldest_first for line in lines(path)]
    assert kept == [f"a-{number}" for number in range(20 - len(kept), 20)]
    assert all(path.stat().st_size <= 400 for path in oldest_first)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in oldest_first)


def test_two_proxies_of_one_name_lose_no_line_when_both_rotate(folder: Path) -> None:
    with (
        closing(file_log(folder, max_bytes=1000, keep=200)) as one,
        closing(file_log(folder, max_bytes=1000, keep=200)) as two,
    ):
        for number in range(200):
            one.write(ALLOWED, f"one-{number}")
            two.write(ALLOWED, f"two-{number}")
    calls = [line["call"] for path in folder.iterdir() for line in lines(path)]
    assert sorted(calls) == sorted(f"{who}-{n}" for who in ("one", "two") for n in range(200))


def test_names_that_begin_alike_rotate_apart(folder: Path) -> None:
    with (
        closing(file_log(folder, "a", max_bytes=200, keep=1)) as one,
        closing(file_log(folder, "a.jsonl", max_bytes=200, keep=1)) as two,
    ):
        for number in range(6):
            one.write(ALLOWED, f"one-{number}")
            two.write(ALLOWED, f"two-{number}")
    assert {line["call"][:3] for line in lines(folder / "a.jsonl.1")} == {"one"}
    assert {line["call"][:3] for line in lines(folder / "a.jsonl.jsonl")} == {"two"}


def test_a_file_that_cannot_be_rotated_goes_on_growing(folder: Path) -> None:
    with closing(file_log(folder, max_bytes=400, keep=1)) as log:
        (folder / "test.jsonl.1").mkdir()  # a rename onto a folder fails
        for number in range(20):
            assert log.write(ALLOWED, f"a-{number}")
        assert len(lines(folder / "test.jsonl")) == 20
        (folder / "test.jsonl.1").rmdir()
        for number in range(20, 23):
            assert log.write(ALLOWED, f"a-{number}")
    assert len(lines(folder / "test.jsonl.1")) + len(lines(folder / "test.jsonl")) == 23


def test_a_rotation_that_another_proxy_is_at_is_left_to_it(folder: Path) -> None:
    import fcntl

    with closing(file_log(folder, max_bytes=400, keep=1)) as log:
        with (folder / "test.jsonl").open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            for number in range(10):
                assert log.write(ALLOWED, f"a-{number}")
        assert sorted(path.name for path in folder.iterdir()) == ["test.jsonl"]


def test_a_removed_file_is_begun_again_within_a_second(folder: Path) -> None:
    with closing(ticking_log(folder)) as log:
        assert log.write(ALLOWED, "a-1")
        (folder / "test.jsonl").unlink()
        assert log.write(ALLOWED, "a-2")
    assert [line["call"] for line in lines(folder / "test.jsonl")] == ["a-2"]


def test_a_removed_folder_is_made_again(folder: Path) -> None:
    with closing(ticking_log(folder)) as log:
        (folder / "test.jsonl").unlink()
        folder.rmdir()
        assert log.write(ALLOWED, "a-1")
    assert [line["call"] for line in lines(folder / "test.jsonl")] == ["a-1"]


def test_a_link_put_in_a_removed_folders_place_is_not_followed(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    with closing(ticking_log(folder)) as log:
        (folder / "test.jsonl").unlink()
        folder.rmdir()
        folder.symlink_to(tmp_path / "elsewhere")
        assert not log.write(ALLOWED, "a-1")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert "calls are refused meanwhile" in capfd.readouterr().err


def test_a_line_that_cannot_be_written_stops_the_call_and_is_counted_later() -> None:
    sink = FullDisk()
    log = WireLog(sink, clock=lambda: AT)
    assert not log.write(ALLOWED, "a-1")
    assert not log.write(ENDING, "a-1")
    sink.room = True
    assert log.write(ALLOWED, "a-2")
    assert log.write(ALLOWED, "a-3")
    gap, *after = [json.loads(line) for line in sink.taken.splitlines()]
    assert gap["verdict"] == "lost"
    assert gap["reason"] == "lines that could not be written: 2 (No space left on device)"
    assert [line["call"] for line in after] == ["a-2", "a-3"]


def test_an_outage_is_said_once_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    log = WireLog(FullDisk("the log /x/y.jsonl"))
    for _ in range(3):
        assert not log.write(ALLOWED, "a-1")
    assert capfd.readouterr().err == (
        "lnk sandbox: the log /x/y.jsonl can't be written (No space left on device): "
        "calls are refused meanwhile.\n"
    )


@contextmanager
def room_for(bytes_in_a_file: int) -> Iterator[None]:
    """Make the kernel cut writes short past this size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_in_a_file, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_half_a_line_on_a_full_disk_spoils_no_other_line(folder: Path) -> None:
    with closing(file_log(folder)) as log:
        assert log.write(ALLOWED, "a-1")
        with room_for((folder / "test.jsonl").stat().st_size + 50):
            assert not log.write(ALLOWED, "a-2")
            assert not log.write(ALLOWED, "a-3")
        assert log.write(ALLOWED, "a-4")
    first, half, gap, last = (folder / "test.jsonl").read_bytes().splitlines()
    assert len(half) == 50
    assert json.loads(first)["call"] == "a-1"
    assert json.loads(gap)["verdict"] == "lost"
    assert json.loads(last)["call"] == "a-4"


def test_refusals_are_shown_to_whoever_asked_even_when_they_cannot_be_logged() -> None:
    seen: list[Refusal] = []
    log = WireLog(FullDisk(), tell=seen.append)
    assert not log.write(REFUSAL, "a-1")
    assert not log.write(ALLOWED, "a-2")
    assert seen == [REFUSAL]


def test_without_a_folder_lines_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with closing(open_log(None, "test")) as log:
        assert log.write(ALLOWED, "a-1")
    assert json.loads(capfd.readouterr().err)["host"] == "example.com"


def test_a_reader_of_stderr_who_stands_still_stops_the_calls_and_never_the_loop() -> None:
    reader, writer = os.pipe()
    try:
        log = WireLog(StderrSink(writer))
        wrote = 0
        while log.write(ALLOWED, "a-1"):  # the pipe fills; a blocking write would hang here
            wrote += 1
        first = os.read(reader, 1 << 20)
        assert first.count(b"\n") == wrote
        assert log.write(ALLOWED, "a-2")
        gap, line = os.read(reader, 1 << 20).splitlines()
        assert json.loads(gap)["reason"] == "lines that could not be written: 1 (nobody reads it)"
        assert json.loads(line)["call"] == "a-2"
    finally:
        os.close(reader)
        os.close(writer)


def test_a_stderr_whose_reader_left_stops_the_calls() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert not WireLog(StderrSink(writer)).write(ALLOWED, "a-1")
    finally:
        os.close(writer)


def test_a_file_log_holds_two_descriptors_and_gives_them_back(folder: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    log = open_log(str(folder), "test")
    assert len(os.listdir("/proc/self/fd")) == before + 2
    log.close()
    assert len(os.listdir("/proc/self/fd")) == before
