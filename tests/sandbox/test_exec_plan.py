"""The list of programs and the stage inside as data, on machines of every kind."""

from __future__ import annotations

import pytest

from sandbox.confinement import Confinement
from sandbox.errors import LaunchError, Unsupported
from sandbox.linux import bubblewrap, environment, exec_list, kept, packing, seccomp
from sandbox.linux import plan as p
from sandbox.linux import view as v
from sandbox.linux.commands import Needed, Program
from sandbox.linux.values import replaced
from tests.sandbox import bpf
from tests.sandbox.test_plan import HOME, PACKAGE, STATE, confined, machine, named, proxied

LOADER = Needed("/usr/lib/ld.so", "the loader", False)
GIT = Program("/usr/bin/git", "/usr/bin/git", "", (LOADER,))
SSH = Program("/usr/bin/ssh", "/usr/bin/ssh", "", (LOADER,))
PYTHON = Program("/usr/bin/python3.11", "/usr/bin/python3.11", "", (LOADER,))
STAGE = ("/usr/bin/python3.11", "/usr/lib/python3.11", f"{PACKAGE}/sandbox")


def listed(*programs: Program, net: object = None, **keys: object) -> Confinement:
    made = confined(net=net, **keys)
    return replaced_table(made, commands=tuple(one.named for one in programs))


def replaced_table(made: Confinement, **changes: object) -> Confinement:
    from sandbox.table import replaced as changed

    return changed(made, **changes)


def planned(confinement: Confinement, *programs: Program, learns: bool = False, **changes: object):
    own = {"inside": STAGE, "inside_script": f"{PACKAGE}/sandbox/linux/inside_start.py"}
    own |= changes.pop("own", {})
    facts = machine(named(confinement), **{"landlock": 7, **changes})
    facts = replaced(facts, programs=programs, interpreter=PYTHON, opener=PYTHON,
                     own=replaced(facts.own, **own))  # fmt: skip
    return p.plan(confinement, facts, learns=learns)


def test_without_a_list_and_a_terminal_nothing_of_ours_runs_inside():
    made = p.plan(confined(), machine())
    assert made.inside is None
    assert "--as-pid-1" not in made.namespaces
    assert "--new-session" in made.namespaces
    assert kept.Kept(packing.fields_of(made, ())).inside is None


def test_a_list_is_files_with_what_they_need():
    made = planned(listed(GIT), GIT)
    assert made.inside is not None
    programs = made.inside.programs
    assert programs is not None
    assert programs.listed == ("/usr/bin/git",)
    assert programs.needed == (("/usr/lib/ld.so", "the loader"),)
    assert programs.helpers == ()
    assert programs.files == ("/usr/bin/git", "/usr/lib/ld.so")
    assert "--as-pid-1" in made.namespaces
    assert "--new-session" in made.namespaces
    stage = kept.Kept(packing.fields_of(made, ())).inside
    assert stage is not None
    settings = stage["settings"]
    assert settings["only"] == ["/usr/bin/git", "/usr/lib/ld.so"]
    assert settings["numbers"] == [59, 319, 317]
    assert bytes.fromhex(settings["watch"]) == seccomp.encode(
        seccomp.watching("x86_64", seals=True)
    )
    assert stage["learns"] is None


def test_a_terminal_alone_lists_and_watches_nothing():
    made = planned(replaced_table(confined(), terminal=True))
    assert made.inside is not None
    assert (made.inside.programs, made.inside.watch) == (None, b"")
    assert "--new-session" not in made.namespaces
    assert "--as-pid-1" in made.namespaces


def test_learning_lists_nothing_and_watches():
    made = planned(listed(GIT), learns=True, landlock=0)
    assert made.inside is not None
    assert made.inside.programs is None
    assert made.inside.watch
    assert made.inside.learns == ("/usr/bin/git",)


def test_a_kernel_without_landlock_has_no_list():
    with pytest.raises(Unsupported, match="needs Landlock, which this kernel doesn't have"):
        planned(listed(GIT), GIT, landlock=0)


@pytest.mark.parametrize(
    ("landlock", "seals", "more"),
    [
        (7, True, []), (2, True, []), (1, True, [exec_list.REFER_GAP]),
        (7, False, [exec_list.MEMORY_GAP]), (1, False, [exec_list.REFER_GAP, exec_list.MEMORY_GAP]),
    ],
)  # fmt: skip
def test_what_a_kernel_cannot_hold_is_stated(landlock, seals, more):
    made = planned(listed(GIT), GIT, landlock=landlock, seals_memory=seals)
    assert made.inside is not None
    assert made.inside.programs is not None
    stated = [
        exec_list.LOADER_GAP,
        exec_list.PRELOAD_GAP,
        exec_list.LINK_GAP,
        exec_list.PASSED_GAP,
        *more,
    ]
    assert list(made.inside.programs.gaps) == stated
    memory = bpf.run(made.inside.watch, bpf.data(seccomp.AUDIT_ARCH["x86_64"], 319, 0, 0))
    assert memory == (seccomp.USER_NOTIF if seals else seccomp.ALLOW)


def test_the_helper_of_ssh_counts_where_ssh_is_listed():
    made = planned(listed(GIT, SSH, net=proxied()), GIT, SSH)
    assert made.inside is not None
    assert made.inside.programs is not None
    assert [path for path, _ in made.inside.programs.helpers] == ["/usr/bin/python3.11"]
    assert "GIT_SSH_COMMAND" in made.environment
    made = planned(listed(GIT, net=proxied()), GIT)
    assert made.inside is not None
    assert made.inside.programs is not None
    assert made.inside.programs.helpers == ()
    assert "GIT_SSH_COMMAND" not in made.environment, "it could run nothing"
    made = planned(listed(GIT, SSH), GIT, SSH)
    assert made.inside is not None
    assert made.inside.programs is not None
    assert made.inside.programs.helpers == (), "without a proxy there is no way out to help with"


def test_what_asks_for_pages_counts_where_it_is_there():
    confinement = listed(GIT, net=proxied())
    facts = replaced(machine(named(confinement), landlock=7), programs=(GIT,), interpreter=PYTHON,
                     opener=PYTHON)  # fmt: skip
    made = p.opening_pages(p.plan(confinement, facts), facts)
    assert made.inside is not None
    assert made.inside.programs is not None
    found = [path for path, _ in made.inside.programs.helpers]
    script = facts.own.browser == environment.OPEN_PAGE
    assert found[0] == (environment.OPEN_PAGE if script else "/usr/bin/python3.11")
    assert found[1:] == ["/usr/lib/ld.so"]


def test_the_stage_is_shown_whatever_is_closed_around_it():
    """A venv below Link's own settings, or in a hidden folder, is reached and not listed."""
    home_python = f"{HOME}/agents/python/bin/python3.11"
    package = f"{STATE}/plugin/sandbox"
    own = {"inside": (home_python, package)}
    confinement = replaced_table(listed(GIT, read=(HOME,), hide=(f"{HOME}/agents",)), terminal=True)
    made = planned(confinement, GIT, own=own)
    found = {mount.at: (mount.how, mount.perms) for mount in made.mounts}
    assert found[f"{HOME}/agents"] == (v.HIDDEN, "0711")
    assert found[STATE] == (v.MASK, "0711")
    assert found[home_python] == (v.READ, "")
    assert found[package] == (v.READ, "")
    without = planned(replaced_table(confinement, commands=None, terminal=False), own=own)
    found = {mount.at: (mount.how, mount.perms) for mount in without.mounts}
    assert found[f"{HOME}/agents"] == (v.HIDDEN, "0000")
    assert found[STATE] == (v.MASK, "0000")
    assert home_python not in found


def test_a_stage_in_a_written_folder_is_read_only_there():
    own = {"inside": (f"{HOME}/work/venv/sandbox",)}
    made = planned(listed(GIT, write=(f"{HOME}/work",)), GIT, own=own)
    found = {mount.at: mount.how for mount in made.mounts}
    assert found[f"{HOME}/work/venv/sandbox"] == v.READ
    assert found[f"{HOME}/work/venv"] == v.PIN
    assert made.inside is not None
    assert made.inside.places[f"{HOME}/work"]
    assert not made.inside.places[f"{HOME}/work/venv/sandbox"]


def test_of_what_env_finds_the_first_that_is_shown_is_listed():
    """A version manager's own folder stands first in PATH, and isn't shown."""
    hidden, first, second = (
        Program(path, path, "", (LOADER,))
        for path in (f"{HOME}/.pyenv/shims/python3", "/usr/bin/python3.11", "/usr/bin/python3.9")
    )
    env = Needed("/usr/bin/env", "the interpreter of /usr/bin/x", True)
    script = Program("/usr/bin/x", "/usr/bin/x", "", (env,), (hidden, first, second))
    made = planned(listed(script), script)
    assert made.inside is not None
    assert made.inside.programs is not None
    assert dict(made.inside.programs.needed) == {
        env.path: env.why, first.real: "the interpreter of /usr/bin/x", LOADER.path: LOADER.why,
    }  # fmt: skip
    nowhere = Program("/usr/bin/x", "/usr/bin/x", "", (env,), (hidden,))
    with pytest.raises(LaunchError, match=f"needs {hidden.named}, which isn't shown"):
        planned(listed(nowhere), nowhere)
    broken = Program("/usr/bin/b", "/usr/bin/b", "is a script for /no, which does not exist")
    lacks = Program("/usr/bin/x", "/usr/bin/x", "", (env,), (broken, first))
    with pytest.raises(LaunchError, match="is a script for /usr/bin/b, which is a script for /no"):
        planned(listed(lacks), lacks)


def test_a_program_where_the_sandbox_writes_is_refused():
    mine = Program(f"{HOME}/work/x", f"{HOME}/work/x", "")
    with pytest.raises(LaunchError, match=f"lies in {HOME}/work, which the sandbox writes"):
        planned(listed(mine, write=(f"{HOME}/work",)), mine)
    needs = Program("/usr/bin/x", "/usr/bin/x", "", (Needed(f"{HOME}/work/i", "by x", True),))
    with pytest.raises(LaunchError, match=f"needs {HOME}/work/i, which lies in {HOME}/work"):
        planned(listed(needs, write=(f"{HOME}/work",)), needs)
    bad = Needed(f"{HOME}/work/ld.so", "the loader", False)
    later = Program("/usr/bin/tool", "/usr/bin/tool", "", (bad,))
    by_env = Program("/usr/bin/x", "/usr/bin/x", "", (), (later,))
    with pytest.raises(LaunchError, match=f"needs {HOME}/work/ld.so, which lies in {HOME}/work"):
        planned(listed(by_env, write=(f"{HOME}/work",)), by_env)
    own = Program("/tmp/x", "/tmp/x", "")
    with pytest.raises(LaunchError, match="isn't shown in the sandbox: name it in read too"):
        planned(listed(own), own)


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_watching_filter_judges_by_what_a_filter_can_see(arch):
    at = seccomp.COLUMNS[arch]
    program = seccomp.encode(seccomp.watching(arch, seals=True))

    def judged(number: int, *arguments: int) -> int:
        return bpf.run(program, bpf.data(seccomp.AUDIT_ARCH[arch], number, *arguments))

    errno = seccomp.ERRNO
    assert judged(seccomp.EXECVE[at]) == seccomp.USER_NOTIF
    for flags in (0, 0x100, 1 << 40):
        assert judged(seccomp.EXECVEAT[at], 3, 0, 0, 0, flags) == seccomp.USER_NOTIF
    for flags in (0x1000, 0x1100, 0x1000 | 1 << 40):
        assert judged(seccomp.EXECVEAT[at], 3, 0, 0, 0, flags) == errno | seccomp.EACCES
    memory = seccomp.MEMFD_CREATE[at]
    for flags in (0, 1, 2, 3, 16, 0x20, 1 << 40):
        assert judged(memory, 0, flags) == seccomp.USER_NOTIF
    for flags in (8, 9, 10, 8 | 1 << 40):
        assert judged(memory, 0, flags) == seccomp.ALLOW
    for flags in (4, 12, 5, 4 | 1 << 40, 4 | 21 << 26):
        assert judged(memory, 0, flags) == errno | seccomp.EINVAL
    for number in (0, 1, 56, 57, 60, 435, 447, 0x40000000 | seccomp.EXECVE[0]):
        if number not in (seccomp.EXECVE[at], seccomp.EXECVEAT[at], memory):
            assert judged(number) == seccomp.ALLOW
    assert bpf.run(program, bpf.data(0x40000003, 11)) == errno | seccomp.ENOSYS


def test_a_person_is_shown_what_a_list_brings_and_leaves_open():
    said = bubblewrap.explain(planned(listed(GIT, SSH, net=proxied()), GIT, SSH))
    assert "  listed     /usr/bin/git\n" in said
    assert "  needed     /usr/lib/ld.so  (the loader)\n" in said
    assert "  ours       /usr/bin/python3.11  (takes ssh out by the proxy" in said
    assert f"  open       {exec_list.LOADER_GAP}\n" in said
