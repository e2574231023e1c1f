"""What of /etc is shown, and how."""

from __future__ import annotations

import os

from sandbox.linux import etc_files
from sandbox.linux.etc_files import BIND, COPY, LINK, few_files, shown


def test_what_everybody_may_read_is_copied_and_nothing_else(tmp_path):
    public, private = tmp_path / "public", tmp_path / "private"
    for path, mode in ((public, 0o644), (private, 0o640)):
        path.write_text("x")
        path.chmod(mode)
    assert shown(str(public)) == (str(public), COPY, "")
    assert shown(str(private)) is None
    assert shown(str(tmp_path / "missing")) is None


def test_a_folder_is_mounted_where_everybody_may_look_into_it(tmp_path):
    for name, mode in (("open", 0o755), ("closed", 0o711)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    assert shown(str(tmp_path / "open")) == (str(tmp_path / "open"), BIND, "")
    assert shown(str(tmp_path / "closed")) is None


def test_a_link_stays_one_where_its_target_is_shown(tmp_path):
    (tmp_path / "zone").symlink_to("/usr/bin/env")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "file")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "file").write_text("x")
    assert shown(str(tmp_path / "zone")) == (str(tmp_path / "zone"), LINK, "/usr/bin/env")
    assert shown(str(tmp_path / "elsewhere")) == (str(tmp_path / "elsewhere"), COPY, "")
    assert shown(str(tmp_path / "nowhere")) is None


def test_few_files_are_copied_and_many_mounted(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(etc_files.COPIES_MAX - 1):
        (tmp_path / "in" / str(number)).write_text("x")
    found = few_files(str(tmp_path))
    assert found is not None
    assert sorted(found) == [str(tmp_path / "in" / str(n)) for n in range(7)]
    (tmp_path / "in" / "more").write_text("x")
    (tmp_path / "in" / "most").write_text("x")
    assert few_files(str(tmp_path)) is None


def test_nothing_on_the_list_is_secret():
    names = {*etc_files.FILES, *etc_files.FOLDERS}
    for secret in ("shadow", "gshadow", "sudoers", "machine-id", "ssh", "ssl", "ssl/private",
                   "pki", "pki/tls", "sudoers.d", "cron.d", "wireguard"):  # fmt: skip
        assert secret not in names
    for path, how, _ in etc_files.existing():
        assert os.stat(path).st_mode & 0o004 or how == LINK, path
