"""`lnk sandbox ready`: what this machine lacks, found on machines that do lack it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable

import pytest

from sandbox.cli import ready
from sandbox.errors import Unsupported
from sandbox.linux import facts, readiness
from tests.sandbox import lnk

Ready = Callable[..., "tuple[int, str]"]
OWN_MOUNTS = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "sh", "-euc"]
"""A mount namespace of its own: what is mounted there is seen there alone."""
AS_ROOT = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-euc"]


def after(
    installed: lnk.Installed,
    who: lnk.Account,
    script: str,
    *flags: str,
    outer: list[str] = OWN_MOUNTS,
    environ: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Run `ready` on a machine changed by a script; return its status and what it said."""
    command = shlex.join(installed.argv("ready", *flags))
    drop = "setpriv --inh-caps=-all --ambient-caps=-all"
    given = {"PATH": f"/usr/sbin:/sbin:{lnk.PATH}", **(environ or {})}
    done = lnk.run(who, [*outer, f"{script}\nexec {drop} {command}"], environ=given)
    assert done.stderr == ""
    return done.returncode, done.stdout


def no_bubblewrap() -> str:
    """Return the script that takes bubblewrap away."""
    places = [f"{folder}/bwrap" for folder in ("/usr/bin", "/usr/local/bin")]
    return "\n".join(f"mount --bind /dev/null {p}" for p in places if os.path.exists(p))


def stand_in(who: lnk.Account, folder: str, name: str, script: str) -> str:
    """Return the script that puts a program of ours in a system's program's place."""
    path = f"{folder}/{name}"
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\n{script}\n")
    os.chmod(path, 0o755)
    os.chown(path, who.uid, who.gid)
    return f"mount --bind {path} /usr/bin/{name}"


def test_a_machine_that_can_says_so(installed, who):
    done = installed.run(who, "ready")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready: a sandbox runs here.\n", "")


def test_a_missing_bubblewrap_is_named_with_its_cure(installed, who):
    code, said = after(installed, who, no_bubblewrap())
    assert code == 1
    assert said == (
        "not ready: bubblewrap isn't installed: run `lnk sandbox ready --yes`, which adds it.\n"
    )


def test_run_says_the_same(installed, who):
    command = shlex.join(installed.argv("run", "--yes", "--", "true"))
    done = lnk.run(who, [*OWN_MOUNTS, f"{no_bubblewrap()}\nexec {command}"])
    assert done.returncode == 125
    assert done.stderr == (
        "lnk sandbox: bubblewrap isn't installed: run `lnk sandbox ready --yes`, which adds it.\n"
    )


def test_yes_installs_it_by_apt_as_root(installed, who, folder):
    """The apt here notes what it is asked, and brings bubblewrap back."""
    apt = stand_in(who, folder, "apt-get", f'printf "%s\\n" "$*" >> {folder}/asked\n'
                   'case "$1" in install) umount /usr/bin/bwrap;; esac')  # fmt: skip
    code, said = after(installed, who, f"{no_bubblewrap()}\n{apt}", "--yes", outer=AS_ROOT)
    assert said == "installing bubblewrap by apt\nready: a sandbox runs here.\n"
    assert code == 0
    with open(f"{folder}/asked") as file:
        assert file.read().splitlines() == [
            "update -qq", "install -y -qq --no-install-recommends bubblewrap",
        ]  # fmt: skip


def test_yes_installs_it_by_sudo_where_that_asks_nothing(installed, ordinary, ordinary_folder):
    folder = ordinary_folder
    os.mkdir(f"{folder}/bin")
    os.chown(f"{folder}/bin", ordinary.uid, ordinary.gid)
    with open("/usr/bin/bwrap", "rb") as source, open(f"{folder}/kept", "wb") as copy:
        copy.write(source.read())
    sudo = stand_in(ordinary, folder, "sudo", f'printf "%s\\n" "$*" >> {folder}/asked\n'
                    f'case "$*" in *install*) cp {folder}/kept {folder}/bin/bwrap; '
                    f"chmod 755 {folder}/bin/bwrap;; esac")  # fmt: skip
    environ = {"PATH": f"{folder}/bin:{lnk.PATH}"}
    code, said = after(installed, ordinary, f"{no_bubblewrap()}\n{sudo}", "--yes", environ=environ)
    assert said == "installing bubblewrap by apt\nready: a sandbox runs here.\n"
    assert code == 0
    with open(f"{folder}/asked") as file:
        asked = file.read().splitlines()
    assert asked[0] == "-n true"
    assert asked[2].startswith("-n env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=")
    assert asked[2].endswith("/apt-get install -y -qq --no-install-recommends bubblewrap")


def test_a_sudo_that_asks_for_a_password_is_left_to_the_person(
    installed, ordinary, ordinary_folder
):
    folder = ordinary_folder
    sudo = stand_in(ordinary, folder, "sudo", "exit 1")
    code, said = after(installed, ordinary, f"{no_bubblewrap()}\n{sudo}", "--yes")
    assert code == 1
    assert said == (
        "not ready: bubblewrap isn't installed, and sudo asks for a password: "
        "run `sudo apt-get install bubblewrap`.\n"
    )


def test_an_apt_that_fails_is_quoted(installed, who, folder):
    apt = stand_in(who, folder, "apt-get", "echo 'E: no network' >&2; exit 100")
    code, said = after(installed, who, f"{no_bubblewrap()}\n{apt}", "--yes", outer=AS_ROOT)
    assert code == 1
    assert said.splitlines()[-1] == ("not ready: apt could not install bubblewrap: E: no network")


def test_a_limit_of_no_user_namespaces_is_named(installed, who):
    code, said = after(installed, who, "echo 0 > /proc/sys/user/max_user_namespaces")
    assert code == 1
    assert said.startswith("not ready: this kernel's limit of user namespaces is 0: run `sudo ")


def test_a_masked_proc_is_named(installed, who):
    code, said = after(installed, who, "mount --bind /dev/null /proc/version")
    assert code == 1
    assert said.startswith("not ready: parts of /proc are masked, as in most containers")
    assert "systempaths=unconfined" in said


OFF = {"kernel/unprivileged_userns_clone": "0"}
NONE_LEFT = {"user/max_user_namespaces": "0"}
UBUNTU = {"kernel/apparmor_restrict_unprivileged_userns": "1"}


@pytest.mark.parametrize(
    ("said", "switches", "cause", "cure"),
    [
        ("bwrap: No permissions to create a new namespace", OFF, "user namespaces are off",
         "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("bwrap: Creating new namespace failed: No space left on device", NONE_LEFT, "limit of",
         "sysctl -w user.max_user_namespaces=15000"),
        ("bwrap: setting up uid map: Permission denied", UBUNTU, "AppArmor", "apparmor_parser -r"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", {}, "AppArmor", "userns,"),
        ("bwrap: Creating new namespace failed: Permission denied", UBUNTU, "AppArmor", "userns,"),
        ("bwrap: Creating new namespace failed: Operation not permitted", {}, "namespaces are",
         "seccomp=unconfined"),
        ("bwrap: Can't mount proc on /newroot/proc: Not permitted", {}, "/proc", "unmask"),
        ("bwrap: prctl(PR_SET_SECCOMP): Invalid argument", {}, "seccomp", "CONFIG_SECCOMP_FILTER"),
        ("bwrap: Creating new namespace failed, likely because the kernel does not support user "
         "namespaces", {}, "no user namespaces", "CONFIG_USER_NS"),
        ("bwrap: Creating new namespace failed: No space left on device", {}, "are used", "raise"),
        ("", {"kernel/seccomp/actions_avail": None}, "seccomp", "CONFIG_SECCOMP_FILTER"),
        ("bwrap: something new\nand more", {}, "the trial sandbox", "bwrap: something new"),
        ("", {}, "the trial sandbox", "no reason"),
    ],
)  # fmt: skip
def test_each_cause_has_its_cure(said, switches, cause, cure):
    found = readiness.causes(said, switches)
    assert len(found) == 1
    assert cause in found[0].cause
    assert cure in found[0].cure
    assert "\n" not in str(found[0])


def test_yes_sets_a_limit_of_no_user_namespaces_and_keeps_it(installed, who):
    """For real, as the root of a user namespace of its own."""
    script = (
        "mount -t tmpfs none /etc/sysctl.d; echo 0 > /proc/sys/user/max_user_namespaces; "
        'trap "cat /etc/sysctl.d/60-lnk-sandbox.conf" EXIT; '
    )
    command = shlex.join(installed.argv("ready", "--yes"))
    done = lnk.run(who, [*AS_ROOT, f"{script}\n{command}"],
                   environ={"PATH": f"/usr/sbin:/sbin:{lnk.PATH}"})  # fmt: skip
    assert done.stdout == (
        "setting user.max_user_namespaces=15000, now and at each boot\n"
        "ready: a sandbox runs here.\nuser.max_user_namespaces=15000\n"
    )
    assert done.returncode == 0


class Fake:
    """A machine as data: what it lacks until the steps were taken, and who may take them."""

    def __init__(self, monkeypatch, lacks: list[list[readiness.Lack]], *, uid: int = 0,
                 sudo: int = 0, fails: str = "", terminal: bool = False) -> None:  # fmt: skip
        self.lacks, self.sudo, self.fails = lacks, sudo, fails
        self.ran: list[tuple[list[str], str]] = []
        monkeypatch.setattr(ready, "look", lambda: self.lacks.pop(0))
        monkeypatch.setattr(ready, "_program", lambda name: f"/sbin/{name}")
        monkeypatch.setattr(ready, "_run", self._run)
        monkeypatch.setattr(ready, "_landlock", lambda: 7)
        monkeypatch.setattr(ready.os, "geteuid", lambda: uid)
        for stream in (ready.sys.stdin, ready.sys.stdout):
            monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)

    def _run(self, argv: list[str], timeout_s: float = 0, text: str = "") -> tuple[int, str]:
        if argv == ["/sbin/sudo", "-n", "true"]:
            return self.sudo, ""
        self.ran.append((argv, text))
        return (1, "first\nit said why") if self.fails and self.fails in argv[-1] else (0, "")


UBUNTU_SAYS = "bwrap: setting up uid map: Permission denied"


def test_yes_adds_ubuntus_profile_as_root(monkeypatch, capsys):
    fake = Fake(monkeypatch, [readiness.causes(UBUNTU_SAYS, {}, "/usr/bin/bwrap"), []])
    assert ready.main(["--yes"]) == 0
    (tee, profile), (parser, _) = fake.ran
    assert tee == ["/sbin/tee", "/etc/apparmor.d/lnk-bwrap"]
    assert "profile lnk-bwrap /usr/bin/bwrap flags=(unconfined) {\n  userns,\n}" in profile
    assert parser == ["/sbin/apparmor_parser", "-r", "/etc/apparmor.d/lnk-bwrap"]
    assert capsys.readouterr().out == (
        "adding an AppArmor profile for bubblewrap\nready: a sandbox runs here.\n"
    )


def test_yes_adds_it_by_sudo_where_that_asks_nothing(monkeypatch, capsys):
    fake = Fake(monkeypatch, [readiness.causes(UBUNTU_SAYS, {}), []], uid=1000)
    assert ready.main(["--yes"]) == 0
    assert [argv[:3] for argv, _ in fake.ran] == [["/sbin/sudo", "-n", "env"]] * 2


def test_a_sudo_that_asks_is_the_persons_to_call(monkeypatch, capsys):
    fake = Fake(monkeypatch, [readiness.causes(UBUNTU_SAYS, {})], uid=1000, sudo=1)
    assert ready.main(["--yes"]) == 1
    assert fake.ran == []
    said = capsys.readouterr().out
    assert said.startswith("not ready: AppArmor keeps bubblewrap from using its user namespace")
    assert "and sudo asks for a password: run `printf 'abi" in said


def test_a_cure_that_fails_is_told_with_its_reason(monkeypatch, capsys):
    lacks = readiness.causes("", {"user/max_user_namespaces": "0",
                                  "kernel/unprivileged_userns_clone": "0"})  # fmt: skip
    Fake(monkeypatch, [lacks], fails="clone=1")
    assert ready.main(["--yes"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "not ready: sysctl could not set kernel.unprivileged_userns_clone=1: it said why"
    )


def test_what_nobody_here_can_cure_is_left(monkeypatch, capsys):
    fake = Fake(monkeypatch, [[readiness.NO_SECCOMP]])
    assert ready.main(["--yes"]) == 1
    assert fake.ran == []


def test_a_cure_may_bring_the_next_lack_to_light(monkeypatch, capsys):
    first = [readiness.bubblewrap("bubblewrap isn't installed: run it.")]
    fake = Fake(monkeypatch, [first, readiness.causes(UBUNTU_SAYS, {}), []])
    assert ready.main(["--yes"]) == 0
    assert [os.path.basename(argv[0]) for argv, _ in fake.ran] == [
        "apt-get", "apt-get", "tee", "apparmor_parser",
    ]  # fmt: skip


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("", 1)])
def test_on_a_terminal_it_offers_and_asks(monkeypatch, capsys, answer, code):
    fake = Fake(monkeypatch, [readiness.causes(UBUNTU_SAYS, {}), []], uid=1000, sudo=1,
                terminal=True)  # fmt: skip
    monkeypatch.setattr(ready.sys.stdin, "readline", lambda: answer, raising=False)
    assert ready.main([]) == code
    said = capsys.readouterr().out
    assert "Cure it by adding an AppArmor profile for bubblewrap? [y/N] " in said
    # There sudo may ask for its password: the person is there.
    assert [argv[:2] for argv, _ in fake.ran] == ([["/sbin/sudo", "env"]] * 2 if not code else [])


def test_without_a_terminal_and_yes_nothing_is_done(monkeypatch, capsys):
    fake = Fake(monkeypatch, [readiness.causes(UBUNTU_SAYS, {})])
    assert ready.main([]) == 1
    assert fake.ran == []


@pytest.mark.parametrize(
    ("abi", "words"), [(0, "has no Landlock"), (1, "ABI 1"), (5, "ABI 5"), (6, ""), (7, "")]
)
def test_an_older_landlock_is_told_of_and_no_lack(monkeypatch, capsys, abi, words):
    Fake(monkeypatch, [[]])
    monkeypatch.setattr(ready, "_landlock", lambda: abi)
    assert ready.main([]) == 0
    noted = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert len(noted) == bool(words)
    assert words in "".join(noted)


def test_what_root_would_do_is_what_a_person_is_told_to():
    for settings in ({"kernel/unprivileged_userns_clone": "0"}, {"user/max_user_namespaces": "0"}):
        (lack,) = readiness.causes("", settings)
        assert lack.steps[0].argv[-1] in lack.cure
        assert lack.steps[1].text == lack.steps[0].argv[-1] + "\n"
    assert readiness.apparmor("/opt/bwrap").steps[0].text == readiness.profile_of("/opt/bwrap")


def test_a_bubblewrap_that_is_too_old_is_named(tmp_path, monkeypatch):
    path = tmp_path / "bwrap"
    path.write_bytes(b"\x7fELF --args --seccomp --block-fd --clearenv")
    path.chmod(0o755)
    monkeypatch.setattr(facts, "BUBBLEWRAP_FOLDERS", (str(tmp_path),))
    with pytest.raises(Unsupported, match=r"is too old \(it has no --json-status-fd\)"):
        facts.find_bubblewrap("")


def test_a_bubblewrap_that_others_can_write_is_not_used(tmp_path, monkeypatch):
    path = tmp_path / "bwrap"
    path.write_bytes(" ".join(facts.NEEDED).encode())
    path.chmod(0o757)
    monkeypatch.setattr(facts, "BUBBLEWRAP_FOLDERS", ())
    with pytest.raises(Unsupported, match="isn't installed"):
        facts.find_bubblewrap(f"{tmp_path}:.:")
    path.chmod(0o755)
    found = facts.find_bubblewrap(f".::{tmp_path}")
    assert (found.path, found.holds_folders, found.disables_userns) == (str(path), False, False)


def test_where_another_bubblewrap_could_be_put_is_told(tmp_path, monkeypatch):
    """One that is put into a folder before it on PATH, or behind a link, would run outside."""
    first, second, third, real = (tmp_path / name for name in ("first", "second", "third", "real"))
    for folder in (first, third, real):
        folder.mkdir()
    path = real / "bwrap"
    path.write_bytes(" ".join(facts.NEEDED).encode())
    path.chmod(0o755)
    (third / "bwrap").symlink_to(path)
    monkeypatch.setattr(facts, "BUBBLEWRAP_FOLDERS", ())
    found = facts.find_bubblewrap(f"relative:{first}:{second}/bin:{third}:{real}")
    assert found.path == str(path)
    assert found.places == (str(first), str(tmp_path), str(third))
    monkeypatch.setattr(facts, "BUBBLEWRAP_FOLDERS", (str(real),))
    assert facts.find_bubblewrap(str(first)).places == (), "the system's comes first"


def test_help_is_printed(installed, who):
    done = installed.run(who, "ready", "--help")
    assert done.returncode == 0
    assert "lnk sandbox ready [--yes]" in done.stdout
