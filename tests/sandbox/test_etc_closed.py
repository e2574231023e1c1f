"""What of a mounted folder of /etc isn't everybody's to read: root's sandbox reads none of it."""

from __future__ import annotations

import os
import posix
import types

import pytest

from sandbox.linux import etc_closed
from sandbox.linux.etc_closed import closed_in, mask
from sandbox.linux.etc_files import COPIES_MAX
from tests.sandbox import lnk


@pytest.fixture
def settings(tmp_path) -> str:
    """A folder of settings, some of which are their owner's alone."""
    folder = os.path.realpath(tmp_path / "settings")
    for path, mode in (("", 0o755), ("open", 0o755), ("shut", 0o700), ("listed", 0o754)):
        os.mkdir(f"{folder}/{path}")
        os.chmod(f"{folder}/{path}", mode)
    for path, mode in (
        ("plain", 0o644), ("key", 0o600), ("groups", 0o640), ("open/key", 0o400),
        ("open/plain", 0o444), ("shut/plain", 0o644), ("listed/plain", 0o644),
    ):  # fmt: skip
        with open(f"{folder}/{path}", "w") as file:
            file.write(f"of {path}")
        os.chmod(f"{folder}/{path}", mode)
    os.symlink("key", f"{folder}/link")
    for number in range(COPIES_MAX):  # more than are copied one by one
        with open(f"{folder}/{number}", "w"):
            os.chmod(f"{folder}/{number}", 0o644)
    return folder


def test_what_others_may_not_read_is_found_once(settings):
    found = {
        path.removeprefix(f"{settings}/"): is_folder for path, is_folder in closed_in(settings)
    }
    assert found == {"key": False, "groups": False, "open/key": False, "shut": True, "listed": True}


def test_what_is_no_folder_holds_nothing(settings):
    assert closed_in(f"{settings}/plain") == closed_in(f"{settings}/gone") == []


class Entries(list):
    """Entries that were listed before, used as those of scandir are."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """End."""


def test_what_goes_while_it_is_looked_at_is_passed_over(settings, monkeypatch):
    def scandir(path):
        with posix.scandir(path) as entries:
            found = list(entries)
        if os.path.exists(f"{settings}/key"):
            os.unlink(f"{settings}/key")
        return Entries(found)

    monkeypatch.setattr(etc_closed, "posix", types.SimpleNamespace(scandir=scandir))
    found = closed_in(settings)
    assert (f"{settings}/key", False) not in found
    assert (f"{settings}/groups", False) in found


def test_each_has_a_mount_behind_the_one_that_shows_it(settings):
    before = ["--ro-bind", "/usr", "/usr", "--ro-bind", settings, settings]
    made = mask([*before, "--remount-ro", "/"], [], within=settings)
    assert made[: len(before)] == before
    assert made[len(before) :] == [
        "--ro-bind", "/dev/null", f"{settings}/groups", "--ro-bind", "/dev/null", f"{settings}/key",
        "--perms", "0000", "--tmpfs", f"{settings}/listed",
        "--perms", "0000", "--tmpfs", f"{settings}/shut",
        "--ro-bind", "/dev/null", f"{settings}/open/key",
        *(word for name in order(settings) for word in ("--remount-ro", name)), "--remount-ro", "/",
    ]  # fmt: skip


def order(settings: str) -> list[str]:
    """Return the closed folders in the order in which they are found."""
    return [path for path, is_folder in closed_in(settings) if is_folder]


def test_what_is_named_stays_as_it_is(settings):
    arguments = ["--ro-bind", settings, settings, "--remount-ro", "/"]
    named = [f"{settings}/key", f"{settings}/shut/plain", f"{settings}/open"]
    made = mask(arguments, named, within=settings)
    assert f"{settings}/key" not in made
    assert f"{settings}/open/key" not in made
    shut = made.index(f"{settings}/shut")
    assert made[shut - 3 : shut] == ["--perms", "0711", "--tmpfs"]
    assert mask(arguments, [settings], within=settings) is arguments


def test_nothing_is_added_where_all_may_be_read(settings):
    arguments = ["--ro-bind", f"{settings}/open/plain", f"{settings}/open/plain"]
    assert mask(arguments, [], within=settings) is arguments


@pytest.mark.skipif(os.geteuid() != 0, reason="as root it would be read by ownership")
def test_root_reads_no_private_key_beside_the_certificates(installed, people, settings):
    """In a mount namespace of the test's own, so that the machine's /etc stays as it is."""
    root = people["root"]
    names = ("plain", "key", "groups", "link", "open/key", "shut/plain", "listed/plain")
    reads = f"cd /etc/ssl/certs; for one in {' '.join(names)}; do cat $one; echo; done"
    command = installed.wrapped(root, ["sh", "-c", reads])
    script = f'mount --bind {settings} /etc/ssl/certs && exec "$@"'
    own = ["unshare", "--mount", "sh", "-c", script, "sh"]
    done = lnk.run(root, [*own, *command])
    assert done.stdout.split("\n") == ["of plain", *[""] * len(names)], done.stderr
    assert done.stderr.count("\n") == len(names) - 1


@pytest.mark.skipif(os.geteuid() != 0, reason="as root it would be read by ownership")
def test_root_reads_there_what_it_names(installed, people, settings):
    root = people["root"]
    at = "/etc/ssl/certs"
    script = f'mount --bind {settings} {at} && exec "$@"'
    named = [word for name in ("key", "shut/plain") for word in ("--read", f"{at}/{name}")]
    reads = ["cat", f"{at}/key", f"{at}/shut/plain", f"{at}/open/key"]
    words = installed.argv("run", "--yes", *named, "--", *reads)
    done = lnk.run(root, ["unshare", "--mount", "sh", "-c", script, "sh", *words])
    assert done.stdout == "of keyof shut/plain"
    assert f"{at}/open/key: Permission denied" in done.stderr
