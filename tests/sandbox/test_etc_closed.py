"""What of a mounted folder of /etc isn't everybody's to read: root's sandbox reads none of it."""

from __future__ import annotations

import os

import pytest

from sandbox.linux.etc_closed import closed_in, mask
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
    return folder


def test_what_others_may_not_read_is_found_once(settings):
    found = {
        path.removeprefix(f"{settings}/"): is_folder for path, is_folder in closed_in(settings)
    }
    assert found == {"key": False, "groups": False, "open/key": False, "shut": True, "listed": True}


def test_what_is_no_folder_holds_nothing(settings):
    assert closed_in(f"{settings}/plain") == closed_in(f"{settings}/gone") == []


def test_each_has_a_mount_behind_the_one_that_shows_it(settings):
    before = ["--ro-bind", "/usr", "/usr", "--ro-bind", settings, settings]
    made = mask([*before, "--remount-ro", "/"], within=f"{settings}")
    assert made[: len(before)] == before
    assert made[-2:] == ["--remount-ro", "/"]
    over = made[len(before) : -2]
    assert over[:3] == ["--ro-bind", "/dev/null", f"{settings}/groups"]
    shut = over.index(f"{settings}/shut")
    assert over[shut - 3 : shut + 3] == [
        "--perms", "0000", "--tmpfs", f"{settings}/shut", "--remount-ro", f"{settings}/shut",
    ]  # fmt: skip


def test_nothing_is_added_where_all_may_be_read(settings):
    arguments = ["--ro-bind", f"{settings}/open/plain", f"{settings}/open/plain"]
    assert mask(arguments, within=settings) is arguments


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
