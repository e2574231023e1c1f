"""Dot files: what is closed, and every way that we know to get around it, tried inside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from sandbox.errors import LaunchError
from sandbox.linux import dot_files, packing
from sandbox.linux.dot_mounts import Guard, Layout, Needed, merged
from sandbox.linux.walk import FOLDER
from tests.sandbox import lnk, projects
from tests.sandbox.projects import git_alone

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = (".git", ".vscode", ".idea", ".husky")
HELD = (*FOLDERS, "HEAD")
"""What is held in a folder that has no dot file yet."""
NOWHERE = "/nonexistent"

# -- what is closed, by name -----------------------------------------------------------------


def looked(
    folder: str, *more: str, opened: tuple[str, ...] = (), settings: tuple[str, ...] = (),
    layout: list[str | list[str]] | None = None, home: str = NOWHERE,
) -> list[Guard]:  # fmt: skip
    """Return what would be closed, were a sandbox started that writes these folders."""
    written = [folder, *more]
    arguments = layout or [word for one in written for word in ("--bind", one, one)]
    return dot_files.look(
        [one for one in written if one not in opened],
        {one: f"write names {one}" for one in written},
        list(settings),
        Layout(arguments),
        home,
    )


def closed(folder: str, *more: str, **keys: object) -> dict[str, str]:
    """Return the same as paths from the folder, each with how it stands: there, held, or kept
    in its place alone.
    """
    found = {}
    for guard in looked(folder, *more, **keys):
        name = guard.at.removeprefix(f"{folder}/")
        found[name] = "there" if guard.kind else {FOLDER: "folder"}.get(guard.by, "file")
        if guard.written:
            found[name] = "stays"
    return found


def refusal(folder: str, *more: str, **keys: object) -> str:
    with pytest.raises(LaunchError) as caught:
        looked(folder, *more, **keys)
    assert caught.value.exit_code == 125
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def plain(tmp_path) -> str:
    """A folder with nothing in it."""
    made = os.path.realpath(tmp_path / "plain")
    os.mkdir(made)
    return made


@pytest.fixture
def repository(tmp_path) -> str:
    """A repository with one commit."""
    made = os.path.realpath(tmp_path / "repository")
    os.mkdir(made)
    git_alone(made, "init", "-q")
    write(f"{made}/file")
    git_alone(made, "add", "file")
    git_alone(made, "commit", "-qm", "first")
    return made


def write(path: str, text: str = "x") -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    return path


USUAL = {".git": "there", ".vscode": "folder", ".idea": "folder", ".husky": "folder"}
"""In a repository."""


def test_in_an_empty_folder_all_but_an_envrc_is_held(plain):
    assert closed(plain) == dict.fromkeys(HELD, "folder")


def test_what_is_there_is_closed_as_it_is(plain):
    for name in (".vscode/tasks.json", ".idea/x", ".husky/_/h", ".envrc"):
        write(f"{plain}/{name}")
    assert closed(plain) == {
        ".git": "folder", ".envrc": "there", ".vscode": "there", ".idea": "there",
        ".husky": "there", "HEAD": "folder",
    }  # fmt: skip


def test_in_a_repository_no_head_is_held(repository):
    assert closed(repository) == USUAL


@pytest.mark.parametrize("kind", ["empty", "without objects", "without a HEAD"])
def test_a_broken_repository_holds_no_head_back(plain, kind):
    """Git passes over one, and looks whether the folder itself is a repository."""
    os.mkdir(f"{plain}/.git")
    if kind != "empty":
        os.mkdir(f"{plain}/.git/refs")
    if kind == "without objects":
        write(f"{plain}/.git/HEAD", "ref: refs/heads/main")
    if kind == "without a HEAD":
        os.mkdir(f"{plain}/.git/objects")
    assert closed(plain)["HEAD"] == "folder"


@pytest.mark.parametrize("name", [".git", ".envrc", ".vscode", ".idea", ".husky", "HEAD"])
@pytest.mark.parametrize("target", ["/etc", "nowhere", "."])
def test_a_link_in_a_dot_files_place_is_refused(plain, name, target):
    os.symlink(target, f"{plain}/{name}")
    said = refusal(plain)
    assert said.startswith(f"{plain}/{name} is a link")
    assert "write_dot_files" in said
    assert closed(plain, opened=(plain,)) == {}


def test_a_hooks_folder_is_closed_and_one_that_is_missing_held(repository):
    git_alone(repository, "config", "core.hooksPath", "tools/hooks")
    assert closed(repository) == {**USUAL, "tools/hooks": "folder"}
    os.makedirs(f"{repository}/tools/hooks")
    assert closed(repository) == {**USUAL, "tools/hooks": "there"}


def test_what_a_path_goes_into_and_back_out_of_stays_where_it_is(repository):
    """What is missing on the way could be made as a link, and a file be replaced by one."""
    os.makedirs(f"{repository}/tools/deep")
    os.mkdir(f"{repository}/hooks")
    path = "tools/deep/../../gone/../file/../hooks"
    git_alone(repository, "config", "core.hooksPath", path)
    assert closed(repository) == {
        **USUAL, "tools": "stays", "tools/deep": "stays", "gone": "stays", "file": "there",
        "hooks": "there",
    }  # fmt: skip
    git_alone(repository, "config", "core.hooksPath", "tools/../tools/deep")
    assert closed(repository) == {**USUAL, "tools/deep": "there"}, "what holds it stays anyway"


@pytest.mark.parametrize("of", ["its folder", "what it shares", "its work tree"])
def test_a_link_on_the_way_to_a_repository_is_refused(repository, of):
    """The sandbox could lead git to a repository of its own by it."""
    os.symlink(".", f"{repository}/link")
    if of == "its folder":
        os.rename(f"{repository}/.git", f"{repository}/own")
        write(f"{repository}/.git", "gitdir: link/own\n")
    if of == "what it shares":
        shutil.copytree(f"{repository}/.git", f"{repository}/own")
        write(f"{repository}/.git/commondir", "../link/own\n")
    if of == "its work tree":
        git_alone(repository, "config", "core.worktree", "../link")
        git_alone(repository, "config", "core.hooksPath", "hooks")
    assert refusal(repository).startswith(f"{repository}/link is a link, and leads to git's ")


def test_settings_that_are_included_are_closed_and_missing_ones_held_by_a_file(repository):
    """A folder in their place would be an error to git, outside too."""
    git_alone(repository, "config", "include.path", "../shared/one")
    git_alone(repository, "config", "includeIf.onbranch:main.path", f"{repository}/shared/two")
    write(f"{repository}/shared/two", "[include]\npath = deeper/three\n")
    write(f"{repository}/shared/deeper/three", "[core]\nhooksPath = from/three\n")
    assert closed(repository) == {
        **USUAL, "shared/one": "file", "shared/two": "there", "shared/deeper/three": "there",
        "from/three": "folder",
    }  # fmt: skip


def test_a_persons_own_settings_count_too(repository, plain):
    mine = write(f"{plain}/mine", "[core]\nhooksPath = .githooks\n[include]\npath = ~/dots/more\n")
    found = closed(repository, settings=(mine,), home=repository)
    assert found == {**USUAL, ".githooks": "folder", "dots/more": "file"}


def test_what_git_begins_a_repository_with_is_closed(plain):
    """Its hooks are copied into each new one, and so are its settings."""
    mine = write(f"{os.path.dirname(plain)}/mine", "[init]\ntemplateDir = ~/git/template\n")
    found = closed(plain, settings=(mine,), home=plain)
    assert found["git/template"] == "folder"
    os.makedirs(f"{plain}/git/template/hooks")
    assert closed(plain, settings=(mine,), home=plain)["git/template"] == "there"
    write(f"{os.path.dirname(plain)}/mine", "[init]\ntemplateDir = git/template\n")
    assert "git/template" not in closed(plain, settings=(mine,), home=plain), "from anywhere"


def test_a_persons_own_settings_that_lie_in_the_folder_are_closed(plain):
    """Also by a link: many keep their dot files in a repository."""
    found = closed(plain, settings=(f"{plain}/gitconfig",))
    assert found["gitconfig"] == "file"
    write(f"{plain}/dots/gitconfig", "")
    os.symlink(f"{plain}/dots/gitconfig", f"{os.path.dirname(plain)}/linked")
    found = closed(plain, settings=(f"{os.path.dirname(plain)}/linked",))
    assert found["dots/gitconfig"] == "there"


def test_settings_that_a_link_in_the_folder_leads_to_are_refused(repository):
    git_alone(repository, "config", "core.hooksPath", "tools/hooks")
    os.makedirs(f"{repository}/other/hooks")
    os.symlink("other", f"{repository}/tools")
    assert refusal(repository).startswith(f"{repository}/tools is a link, and leads to git's hooks")


def test_a_hook_that_is_a_link_has_its_file_closed(repository):
    write(f"{repository}/scripts/check.sh")
    os.symlink("../../scripts/check.sh", f"{repository}/.git/hooks/pre-commit")
    os.symlink("../../scripts/missing.sh", f"{repository}/.git/hooks/pre-push")
    assert closed(repository) == {
        **USUAL, "scripts/check.sh": "there", "scripts/missing.sh": "file",
    }  # fmt: skip


def test_a_hooks_folder_that_is_a_link_has_its_folder_closed(repository):
    shutil.rmtree(f"{repository}/.git/hooks")
    os.makedirs(f"{repository}/shared/hooks")
    os.symlink("../shared/hooks", f"{repository}/.git/hooks")
    assert closed(repository) == {**USUAL, "shared/hooks": "there"}


def test_a_worktrees_own_settings_count(repository, tmp_path):
    tree = os.path.realpath(tmp_path / "tree")
    git_alone(repository, "worktree", "add", "-q", tree)
    git_alone(repository, "config", "extensions.worktreeConfig", "true")
    git_alone(tree, "config", "--worktree", "core.hooksPath", "mine")
    git_alone(repository, "config", "include.path", f"{tree}/theirs")
    assert closed(tree) == {**USUAL, "mine": "folder", "theirs": "file"}


def test_what_holds_the_folder_counts_too(repository):
    """A repository above may name hooks in a folder that the sandbox is given."""
    os.makedirs(f"{repository}/src/deep")
    git_alone(repository, "config", "core.hooksPath", "src/hooks")
    assert closed(f"{repository}/src") == {**dict.fromkeys(HELD, "folder"), "hooks": "folder"}
    git_alone(repository, "config", "core.hooksPath", "elsewhere")
    assert closed(f"{repository}/src") == dict.fromkeys(HELD, "folder")


def test_a_repositorys_folder_beside_its_file_is_closed_whole(plain):
    git_alone(plain, "init", "-q", "--separate-git-dir", f"{plain}/.bare")
    assert os.path.isfile(f"{plain}/.git")
    assert closed(plain) == {**USUAL, ".bare": "there"}


@pytest.mark.parametrize("manager", ["pre-commit", "lefthook", "both", "neither"])
def test_a_managers_settings_are_closed_where_it_runs(repository, manager):
    hook = f"{repository}/.git/hooks/pre-commit"
    write(hook, {"pre-commit": projects.PRE_COMMIT_HOOK, "lefthook": projects.LEFTHOOK_HOOK,
                 "both": projects.PRE_COMMIT_HOOK + projects.LEFTHOOK_HOOK,
                 "neither": "#!/bin/sh\nmake check\n"}[manager])  # fmt: skip
    write(f"{repository}/lefthook.yml")
    found = closed(repository)
    assert (".pre-commit-config.yaml" in found) == (manager in ("pre-commit", "both"))
    assert (found.get("lefthook.yml") == "there") == (manager in ("lefthook", "both"))


def test_every_spelling_of_lefthooks_settings_is_closed(repository):
    write(f"{repository}/.git/hooks/pre-push", projects.LEFTHOOK_HOOK)
    found = closed(repository)
    for name in ("lefthook", ".lefthook", ".config/lefthook"):
        for local in ("", "-local"):
            for end in ("yml", "yaml", "json", "jsonc", "toml"):
                # The one that is read before all others and may be empty is a file.
                first = f"{name}{local}.{end}" == "lefthook-local.yml"
                assert found[f"{name}{local}.{end}"] == ("file" if first else "folder")
    assert found[".lefthook"] == found[".lefthook-local"] == "folder"


def test_pre_commits_settings_may_have_another_name(repository):
    text = projects.PRE_COMMIT_HOOK.replace(
        "--config=.pre-commit-config.yaml", "--config=ci/pc.yml"
    )
    write(f"{repository}/.git/hooks/pre-commit", text)
    assert closed(repository)["ci/pc.yml"] == "folder"


def test_samples_are_no_hooks(repository):
    with open(f"{repository}/.git/hooks/pre-commit.sample") as sample:
        assert "pre-commit" in sample.read()
    assert closed(repository) == USUAL


def test_husky_is_closed_whole_wherever_its_hooks_are_named(repository):
    git_alone(repository, "config", "core.hooksPath", "web/.husky/_")
    write(f"{repository}/web/.husky/pre-commit", "pre-commit run")
    write(f"{repository}/web/.husky/_/h")
    assert closed(repository) == {
        **USUAL, "web/.husky": "there", ".pre-commit-config.yaml": "folder",
    }  # fmt: skip


def test_submodules_are_closed_there_or_not(repository, tmp_path):
    """`git status` at the top looks into each with that one's own settings."""
    library = os.path.realpath(tmp_path / "library")
    os.mkdir(library)
    git_alone(library, "init", "-q")
    git_alone(library, "commit", "-q", "--allow-empty", "-m", "x")
    for name in ("libs/one", "two"):
        git_alone(repository, "submodule", "--quiet", "add", library, name)
    git_alone(repository, "submodule", "--quiet", "deinit", "-f", "two")
    write(f"{repository}/.gitmodules", "a program wrote this")
    assert closed(repository) == {**USUAL, "libs/one/.git": "there", "two/.git": "folder"}
    git_alone(f"{repository}/libs/one", "config", "core.hooksPath", "hooks")
    assert closed(repository)["libs/one/hooks"] == "folder"


# -- folders in folders ----------------------------------------------------------------------


def test_a_link_on_the_way_to_a_submodule_is_refused(repository, tmp_path):
    """Git passes over it while it is one; a folder in its place would be looked into."""
    library = os.path.realpath(tmp_path / "library")
    os.mkdir(library)
    git_alone(library, "init", "-q")
    git_alone(library, "commit", "-q", "--allow-empty", "-m", "x")
    git_alone(repository, "submodule", "--quiet", "add", library, "libs/one")
    os.rename(f"{repository}/libs", tmp_path / "away")
    os.symlink(tmp_path / "away", f"{repository}/libs")
    assert refusal(repository).startswith(
        f"{repository}/libs is a link, and leads to a submodule's repository"
    )


def test_each_written_folder_has_its_own_in_another_too(repository):
    inner = f"{repository}/packages/a"
    os.makedirs(inner)
    found = closed(repository, inner)
    assert found == {**USUAL, **{f"packages/a/{name}": "folder" for name in HELD}}
    assert closed(repository, inner, opened=(inner,)) == USUAL
    assert closed(repository, inner, opened=(repository,)) == {
        f"packages/a/{name}": "folder" for name in HELD
    }


@pytest.mark.parametrize("inner", [".git", ".git/hooks", ".vscode", ".idea/x", ".husky/_"])
def test_a_written_folder_that_is_a_dot_file_is_refused_by_name(repository, inner):
    folder = f"{repository}/{inner}"
    os.makedirs(folder, exist_ok=True)
    said = refusal(folder)
    assert said.startswith(f"write names {folder}, which is or lies in a .")
    assert closed(folder, opened=(folder,)) == {}
    said = refusal(repository, folder, opened=(folder,))
    assert said.startswith(f"write names {folder}, but {repository}/.")


def test_a_bare_repository_is_refused_by_name(plain):
    git_alone(plain, "init", "-q", "--bare")
    assert f"and {plain} is git's own folder, of a repository" in refusal(plain)
    assert f"and {plain} is git's own folder, of a repository" in refusal(f"{plain}/hooks")
    assert closed(plain, opened=(plain,)) == {}


def test_a_head_without_the_rest_is_refused(plain):
    write(f"{plain}/HEAD", "ref: refs/heads/main")
    assert "holds a HEAD" in refusal(plain)


@pytest.mark.parametrize("path", [".", "inner", "inner/"])
def test_a_written_folder_that_is_the_hooks_folder_is_refused_by_name(repository, path):
    os.makedirs(f"{repository}/inner")
    git_alone(repository, "config", "core.hooksPath", path)
    folders = (repository, f"{repository}/inner")
    said = refusal(*folders)
    assert "is closed (git's hooks)" in said
    assert "write_dot_files" in said


def test_what_the_sandbox_cannot_write_anyway_needs_nothing(repository):
    git_alone(repository, "config", "core.hooksPath", "tools/hooks")
    layout = ["--bind", repository, repository, "--ro-bind", "/etc", f"{repository}/tools",
              "--perms", "0000", "--tmpfs", f"{repository}/.idea"]  # fmt: skip
    assert closed(repository, layout=layout) == {".git": "there", ".vscode": "folder",
                                                 ".husky": "folder"}  # fmt: skip


# -- what can't be told is refused -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[core", "line 1 is none of git's settings"),
        ('[core]\n\nhooksPath = "x\n', "line 3 is none of git's settings"),
        ("x" * (600 << 10), "is longer than"),
        (None, "is no file"),
    ],
)
def test_settings_that_git_refuses_are_refused(repository, text, words):
    git_alone(repository, "config", "include.path", "../more")
    if text is None:
        os.mkdir(f"{repository}/more")
    else:
        write(f"{repository}/more", text)
    said = refusal(repository)
    assert f"{repository}/.git/../more" in said
    assert words in said
    assert said.endswith("it may name what runs outside.")


def test_settings_without_end_are_refused(repository):
    for number in range(200):
        write(f"{repository}/c/{number}", f"[include]\npath = {number + 1}\n")
    git_alone(repository, "config", "include.path", "../c/0")
    assert "more than 128 files" in refusal(repository)


def test_settings_that_include_each_other_end(repository):
    write(f"{repository}/a", "[include]\npath = b\n")
    write(f"{repository}/b", "[include]\npath = a\n[core]\nhooksPath = h\n")
    git_alone(repository, "config", "include.path", "../a")
    assert closed(repository) == {**USUAL, "a": "there", "b": "there", "h": "folder"}


def test_a_file_where_a_folder_is_named_is_closed_itself(repository):
    write(f"{repository}/tools")
    git_alone(repository, "config", "core.hooksPath", "tools/hooks")
    assert closed(repository) == {**USUAL, "tools": "there"}


# -- what is mounted, and in which order -----------------------------------------------------


def needed(guards: list[tuple[str, int]], arguments: list[str | list[str]]) -> Needed:
    made = [Guard(at, kind, FOLDER, "") for at, kind in guards]
    return Needed(made, Layout(arguments))


def test_the_folders_above_a_deeper_one_are_pinned_and_made(plain):
    arguments = ["--bind", plain, plain]
    os.mkdir(f"{plain}/a")
    found = needed([(f"{plain}/a/b/hooks", 0)], arguments)
    assert found.pins == [f"{plain}/a", f"{plain}/a/b"]
    assert list(found.missing) == [f"{plain}/a/b", f"{plain}/a/b/hooks"]
    assert found.standing() == [f"{plain}/a"]
    assert merged(arguments, Layout(arguments), found) == [
        *arguments, "--bind", f"{plain}/a", f"{plain}/a", "--bind", f"{plain}/a/b",
        f"{plain}/a/b", "--ro-bind", f"{plain}/a/b/hooks", f"{plain}/a/b/hooks",
    ]  # fmt: skip


def test_what_could_not_be_made_is_not_mounted_nor_what_lies_in_it(plain):
    found = needed([(f"{plain}/a/hooks", 0), (f"{plain}/b", 0)], ["--bind", plain, plain])
    found.without({f"{plain}/a", f"{plain}/a/hooks"})
    assert [guard.at for guard in found.guards] == [f"{plain}/b"]
    assert found.pins == []


def test_a_mount_comes_behind_all_that_hold_it_and_before_all_that_it_holds():
    arguments = [
        "--unshare-user", "--cap-drop", "ALL", "--symlink", "/deep/er/x", "/etc/a/b/c",
        "--bind-fd", ["/w"], "/w", "--ro-bind", "/usr", "/usr", "--bind-fd", ["/w/a"], "/w/a",
        "--perms", "0000", "--tmpfs", "/w/.git/hidden", "--ro-bind-fd", ["/w/a/b"], "/w/a/b",
        "--remount-ro", "/w/.git/hidden", "--remount-ro", "/",
    ]  # fmt: skip
    found = needed([("/w/.git", FOLDER), ("/w/a/hooks", FOLDER)], arguments)
    assert found.pins == []
    assert merged(arguments, Layout(arguments), found) == [
        *arguments[:9], "--ro-bind-fd", ["/w/.git"], "/w/.git", *arguments[9:15],
        "--ro-bind-fd", ["/w/a/hooks"], "/w/a/hooks", *arguments[15:],
    ]  # fmt: skip


# -- tried inside, as root and as an ordinary user -------------------------------------------

NEVER = ("mount over", "remount", "unmount", "open_tree", "unshare")
"""What other walls refuse whatever is open."""
REFUSED = {"EROFS", "EBUSY", "EXDEV", "EPERM"}
NOTHING_TO_TRY = {"ENOENT", "EISDIR", "ENOTDIR"}
"""An attempt on files made on a folder, or on the folders above where there are none."""


def attacked(
    installed: lnk.Installed, who: lnk.Account, top: str, paths: list[str], **keys: object
) -> dict[str, dict[str, str]]:
    """Try all attempts on paths in a sandbox that writes `top`; return what became of each."""
    with open(os.path.join(HERE, "dot_attacks.py")) as file:
        argv = [installed.python, "-I", "-S", "-c", file.read()]
    told = json.dumps({"paths": paths, "top": top})
    done = lnk.run(who, installed.wrapped(who, [*argv, told], **{"write": [top], **keys}))
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def test_nothing_changes_a_projects_dot_files(installed, who, folder):
    paths = projects.with_everything(who, folder)
    before = projects.state_of(folder)
    found = attacked(installed, who, folder, paths)
    for path, attempts in found.items():
        for name, outcome in attempts.items():
            assert outcome in REFUSED | NOTHING_TO_TRY, (path, name)
        assert len({name for name in attempts if attempts[name] in REFUSED}) >= 20, path
    assert projects.state_of(folder) == before


def test_the_same_attempts_get_through_where_dot_files_are_written(installed, who, folder):
    """So that the test above tries what works where there is no wall."""
    paths = projects.with_everything(who, folder)
    found = attacked(installed, who, folder, paths, write_dot_files=[folder])
    for path, attempts in found.items():
        refused = {name for name, outcome in attempts.items() if outcome in REFUSED}
        assert refused == set(NEVER), path
    for name in found[paths[0]].keys() - set(NEVER):
        assert any(attempts[name] == "open" for attempts in found.values()), name


def test_nothing_takes_the_place_of_what_is_held(installed, who, folder):
    projects.repository(who, f"{folder}/project")
    top = f"{folder}/project"
    projects.git(who, top, "config", "core.hooksPath", "tools/git/hooks")
    projects.git(who, top, "config", "include.path", "../settings/more")
    held = [f"{top}/{name}" for name in (".vscode", ".idea", ".husky", "tools/git/hooks",
                                         "settings/more")]  # fmt: skip
    before = projects.state_of(top)
    for path, attempts in attacked(installed, who, top, held).items():
        for name, outcome in attempts.items():
            assert outcome in REFUSED | NOTHING_TO_TRY, (path, name)
    assert projects.state_of(top) == before, "and nothing of it is left"


def test_a_written_folder_in_another_is_walled_as_deep(installed, who, folder):
    """What lies between is written, and can't be moved away."""
    inner = f"{folder}/a/b/inner"
    projects.write(who, f"{inner}/.vscode/tasks.json")
    paths = [f"{inner}/{name}" for name in (".git", ".vscode", "HEAD")]
    before = projects.state_of(folder)
    found = attacked(installed, who, inner, paths, write=[folder, inner])
    for path, attempts in found.items():
        for name, outcome in attempts.items():
            assert outcome in REFUSED | NOTHING_TO_TRY, (path, name)
    script = f"cd {folder}; mv a z; mv a/b a/y; mv a/b/inner a/b/x; touch a/b/beside"
    lnk.run(who, installed.wrapped(who, ["sh", "-c", script], write=[folder, inner]))
    os.unlink(f"{folder}/a/b/beside")
    assert projects.state_of(folder) == before


def test_in_an_empty_folder_nothing_is_made_that_git_or_an_editor_reads(installed, who, folder):
    held = [f"{folder}/{name}" for name in HELD]
    for path, attempts in attacked(installed, who, folder, held).items():
        for name, outcome in attempts.items():
            assert outcome in REFUSED | NOTHING_TO_TRY, (path, name)
    assert os.listdir(folder) == []


Inside = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def inside(installed: lnk.Installed, who: lnk.Account, folder: str) -> Inside:
    """Run a shell script in a sandbox that writes the folder, and starts there."""

    def run(script: str, **keys: object) -> subprocess.CompletedProcess[str]:
        given = {"write": [folder], **keys}
        command = installed.wrapped(who, ["sh", "-euc", script], **given)
        return lnk.run(who, command, cwd=given["write"][0])

    return run


EVIL = "touch {mark}"
"""What a planted setting runs, outside, if somebody's git ever looks at it."""


def planted(who: lnk.Account, folder: str, cwd: str | None = None) -> bool:
    """Use git outside as a person does; tell whether something planted was run."""
    mark = f"{who.home}/planted"
    for words in (["status"], ["diff"], ["log", "-1"], ["commit", "--allow-empty", "-qm", "x"]):
        lnk.run(who, ["git", *projects.NAMES, *words], cwd=cwd or folder)
    if os.path.exists(mark):
        os.unlink(mark)
        return True
    return False


PLANTS = {
    "settings": "git config core.fsmonitor '{evil}; false'",
    "a hook": "printf '#!/bin/sh\\n{evil}\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/*",
    "a hooks folder": "mkdir -p h; printf '#!/bin/sh\\n{evil}\\n' > h/pre-commit; chmod +x h/*; "
    "git config core.hooksPath h",
    "a repository in its place": "mv .git old; git init -q .; git config core.fsmonitor '{evil}'",
    "a file in its place": "mv .git old; cp -r old other; echo gitdir: other > .git; "
    "git -C . config core.fsmonitor '{evil}; false'",
    "a worktree's settings": "git config extensions.worktreeConfig true; "
    "git worktree add -q tree; git config --worktree core.fsmonitor '{evil}; false'",
    "a shared folder": "cp -r .git evil; git config -f evil/config core.fsmonitor '{evil}; false'; "
    "echo ../evil > .git/commondir",
    "a repository's folder": "git init -q --bare new; mv new/* .; "
    "git config -f config core.bare false; git config -f config core.worktree .; "
    "git config -f config core.fsmonitor '{evil}; false'",
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("kind", ["repository", "empty folder"])
def test_what_is_planted_is_not_run_by_git_outside(inside, who, folder, plant, kind):
    if kind == "repository":
        projects.repository(who, folder)
    script = PLANTS[plant].format(evil=EVIL.format(mark=f"{who.home}/planted"))
    script = f"set +e\n{script.replace('; ', chr(10))}"
    if kind == "empty folder":
        script = f"set +e\ngit init -q .\n{script}"
    inside(script)
    assert not planted(who, folder)


@pytest.mark.parametrize("plant", PLANTS)
def test_the_same_is_run_where_dot_files_are_written(inside, who, folder, plant):
    if plant != "a repository's folder":
        projects.repository(who, folder)
    script = PLANTS[plant].format(evil=EVIL.format(mark=f"{who.home}/planted"))
    inside(f"set +e\n{script.replace('; ', chr(10))}", write_dot_files=[folder])
    assert planted(who, folder)


def test_what_is_planted_in_a_submodule_is_not_run_by_git_at_the_top(inside, who, folder):
    """Whether it is checked out or not: git at the top looks into both."""
    library = projects.repository(who, f"{folder}/library")
    top = projects.repository(who, f"{folder}/top")
    for name in ("one", "two"):
        projects.git(who, top, "submodule", "--quiet", "add", library, name)
    projects.git(who, top, "commit", "-qm", "submodules")
    projects.git(who, top, "submodule", "--quiet", "deinit", "-f", "two")
    evil = EVIL.format(mark=f"{who.home}/planted")
    script = f"""set +e
        git init -q evil
        git -C evil -c user.name=x -c user.email=x commit -q --allow-empty -m x
        git -C evil config core.fsmonitor '{evil}; false'
        for name in one two; do
            rm -rf $name/.git; mv $name gone-$name
            mkdir -p $name; cp -r evil/.git $name/.git
        done"""
    inside(script, write=[top])
    assert not planted(who, top)
    inside(script, write=[top], write_dot_files=[top])
    assert planted(who, top)


@pytest.mark.parametrize("by_the_way", ["tools", "gone", "file", "gone/deeper/.."])
def test_a_folder_that_a_path_leaves_again_leads_nowhere_else(inside, who, folder, by_the_way):
    """`tools/../hooks` is beside `tools`, and a link in its place would lead elsewhere."""
    projects.repository(who, folder)
    os.mkdir(f"{folder}/tools")
    projects.git(who, folder, "config", "core.hooksPath", f"{by_the_way}/../hooks")
    evil = EVIL.format(mark=f"{who.home}/planted")
    script = f"""set +e
        mkdir -p far/off/deeper far/hooks gone/deeper
        for name in tools gone file; do mv $name old-$name; ln -s far/off $name; done
        printf '#!/bin/sh\\n{evil}\\n' > far/hooks/pre-commit
        cp far/hooks/pre-commit hooks
        chmod +x far/hooks/* hooks/*"""
    inside(script)
    assert not planted(who, folder)
    inside(script, write_dot_files=[folder])
    assert planted(who, folder)


def test_a_repository_beside_its_file_is_found_by_no_other_way(inside, who, folder):
    projects.repository(who, folder)
    os.mkdir(f"{folder}/tools")
    os.rename(f"{folder}/.git", f"{folder}/own")
    projects.write(who, f"{folder}/.git", "gitdir: tools/../own\n")
    evil = EVIL.format(mark=f"{who.home}/planted")
    script = f"""set +e
        mkdir -p far/off; cp -r own far/own
        git config -f far/own/config core.fsmonitor '{evil}; false'
        mv tools old-tools; ln -s far/off tools"""
    inside(script)
    assert not planted(who, folder)
    inside(script, write_dot_files=[folder])
    assert planted(who, folder)


# -- git goes on working ---------------------------------------------------------------------


def test_a_repository_is_read_inside(inside, who, folder):
    projects.repository(who, folder)
    done = inside(
        "echo more >> file; touch new; git status --short; git diff --stat; git log --oneline; "
        "git show --stat HEAD; git diff HEAD --stat; git branch; git stash list"
    )
    assert done.returncode == 0, done.stderr
    assert " M file\n?? new\n" in done.stdout
    assert "first" in done.stdout


def test_a_commit_wants_the_key(inside, who, folder):
    projects.repository(who, folder)
    commit = ("echo more >> file; git -c user.name=x -c user.email=x@example.com "
              "commit -qam second; git log --oneline | wc -l")  # fmt: skip
    done = inside(commit)
    assert done.returncode != 0
    assert "Read-only file system" in done.stderr
    done = inside(commit, write_dot_files=[folder])
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr
    assert "second" in projects.git(who, folder, "log", "--oneline").stdout


def test_repositories_are_cloned_and_made_in_a_folder_inside(inside, who, folder):
    projects.repository(who, f"{folder}/origin")
    done = inside(
        "git clone -q origin clone; cd clone; echo x >> file; git -c user.name=x "
        "-c user.email=x@example.com commit -qam x; git config core.hooksPath hooks; "
        "git worktree add -q ../tree; git -C ../tree status --short; git init -q ../new"
    )
    assert done.returncode == 0, done.stderr


def test_a_commit_in_a_worktree_wants_the_key_alone(inside, who, folder):
    """Its repository lies outside, and is opened with it."""
    top = projects.repository(who, f"{folder}/main")
    tree = f"{folder}/tree"
    projects.git(who, top, "worktree", "add", "-q", tree)
    commit = ("echo more >> file; git add file; git -c user.name=x -c user.email=x@example.com "
              "commit -qm second; git status --short; git log --oneline")  # fmt: skip
    done = inside(commit, write=[tree])
    assert done.returncode != 0
    before = projects.state_of(f"{tree}/.git")
    done = inside(commit, write=[tree], write_dot_files=[tree])
    assert done.returncode == 0, done.stderr
    assert "second" in projects.git(who, tree, "log", "--oneline").stdout
    assert projects.state_of(f"{tree}/.git") == before
    assert not os.path.exists(f"{top}/.vscode"), "the repository's work tree isn't shown"


def test_a_worktree_is_read_where_its_repository_is(inside, who, folder):
    top = projects.repository(who, f"{folder}/main")
    projects.git(who, top, "worktree", "add", "-q", f"{folder}/tree")
    done = inside(
        "git status --short; git diff; git log --oneline",
        write=[f"{folder}/tree"], read=[f"{top}/.git"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_commit_in_a_submodule_wants_the_key_alone(inside, who, folder):
    library = projects.repository(who, f"{folder}/library")
    top = projects.repository(who, f"{folder}/top")
    projects.git(who, top, "submodule", "--quiet", "add", library, "sub")
    commit = ("echo more >> file; git -c user.name=x -c user.email=x@example.com "
              "commit -qam second; git log --oneline")  # fmt: skip
    done = inside(commit, write=[f"{top}/sub"])
    assert done.returncode != 0
    done = inside(commit, write=[f"{top}/sub"], write_dot_files=[f"{top}/sub"])
    assert done.returncode == 0, done.stderr
    assert "second" in done.stdout


@pytest.mark.parametrize("target", ["worktree", "submodule", "plain"])
def test_a_git_file_that_a_sandbox_wrote_opens_no_other_repository(installed, who, folder, target):
    """With the key it writes its own `.git`, and must not be given what that names."""
    theirs = projects.repository(who, f"{folder}/theirs")
    leads = f"{theirs}/.git"
    if target == "worktree":
        projects.git(who, theirs, "worktree", "add", "-q", f"{folder}/theirs-tree")
        leads = f"{theirs}/.git/worktrees/theirs-tree"
    if target == "submodule":
        projects.git(who, theirs, "config", "core.worktree", "../../theirs")
    mine = projects.write(who, f"{folder}/mine/.git", f"gitdir: {leads}\n")
    mine = os.path.dirname(mine)
    done = installed.run(
        who, "run", "--yes", "--write", mine, "--write-dot-files", mine, "--", "true"
    )
    assert done.returncode == 125
    assert done.stderr.startswith(f"lnk sandbox: write_dot_files: {mine}/.git leads to {theirs}")
    assert done.stderr.count("\n") == 1


def test_a_worktrees_repository_that_is_closed_is_refused_by_name(installed, who, folder):
    top = projects.repository(who, f"{folder}/main")
    tree = f"{folder}/tree"
    projects.git(who, top, "worktree", "add", "-q", tree)
    flags = ["--yes", "--write", top, "--write", tree, "--write-dot-files", tree]
    done = installed.run(who, "run", *flags, "--", "true")
    assert done.returncode == 125
    assert done.stderr == (
        f"lnk sandbox: write_dot_files names {tree}, whose repository is {top}/.git, but "
        f"{top}/.git is closed (a dot file): add the folder whose dot file that is to "
        "write_dot_files.\n"
    )
    done = installed.run(who, "run", *flags, "--write-dot-files", top, "--", "true")
    assert done.returncode == 0, done.stderr


# -- starts ----------------------------------------------------------------------------------


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(installed: lnk.Installed, who: lnk.Account, folder: str) -> Iterator[Start]:
    """Start a sandbox that writes the folder and waits for its stdin to end."""
    started: list[subprocess.Popen[str]] = []

    def begin(script: str = "cat", **keys: object) -> subprocess.Popen[str]:
        command = installed.wrapped(
            who, ["sh", "-c", f"echo ready; {script}"], **{"write": [folder], **keys}
        )
        made = lnk.popen(who, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(made)
        assert made.stdout is not None
        assert made.stdout.readline() == "ready\n"
        return made

    yield begin
    for one in started:
        with one:  # which closes its pipes
            one.kill()


def ended(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(lnk.LONG_S)


def test_git_outside_goes_on_working_meanwhile(start, who, folder):
    """What is held is no repository to it, and no settings."""
    top = projects.repository(who, f"{folder}/top")
    os.makedirs(f"{top}/inner")
    os.chown(f"{top}/inner", who.uid, who.gid)
    projects.git(who, top, "config", "include.path", "../missing")
    projects.git(who, top, "config", "core.hooksPath", "inner/hooks")
    one = start(write=[f"{top}/inner"])
    two = start(write=[top])
    assert sorted(os.listdir(f"{top}/inner")) == sorted([*HELD, "hooks"])
    for where in (top, f"{top}/inner"):
        assert "first" in projects.git(who, where, "log").stdout
        for words in (["status", "--short"], ["diff"], ["commit", "--allow-empty", "-qm", "x"]):
            projects.git(who, where, *words)
    assert ended(one) == ended(two) == 0
    assert os.listdir(f"{top}/inner") == []
    assert sorted(os.listdir(top)) == [".git", "file", "inner"]


FDS = """\
import json, os
found = {}
for pid in ("self", "1"):
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        try:
            kind = os.readlink(path).partition(":")[0]
        except OSError:
            continue
        if pid == "self":
            found.setdefault(pid, []).append(int(name))
        elif int(name) > 2:
            try:
                os.close(os.open(path, os.O_RDWR))
                kind += " opened"
            except OSError:
                pass
            found.setdefault(pid, []).append(kind)
print(json.dumps(found))
"""


def test_the_program_is_given_nothing_that_the_run_is_known_by(installed, who, folder):
    """Its first process holds a socket, which can't be opened by its name there."""
    argv = [installed.python, "-I", "-S", "-c", FDS]
    done = lnk.run(who, installed.wrapped(who, argv, write=[folder]))
    found = json.loads(done.stdout)
    assert sorted(found["self"])[:3] == [0, 1, 2]
    assert len(found["self"]) <= 4, "the last is the listing itself"
    assert set(found.get("1", [])) <= {"socket", "anon_inode", "anon_inode opened"}


def test_a_kept_command_looks_at_each_start(installed, who, folder):
    command = installed.wrapped(who, ["sh", "-c", "echo x > hooks/new; ls -A"], write=[folder])
    done = lnk.run(who, command, cwd=folder)
    assert "hooks/new" in done.stderr, "there is no such folder"
    projects.repository(who, folder)
    projects.git(who, folder, "config", "core.hooksPath", "hooks")
    done = lnk.run(who, command, cwd=folder)
    assert "Read-only file system" in done.stderr
    assert "HEAD" not in done.stdout.split()
    assert sorted(os.listdir(folder)) == [".git", "file"]
    os.symlink("/etc", f"{folder}/.vscode")
    done = lnk.run(who, command, cwd=folder)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith(f"lnk sandbox: {folder}/.vscode is a link")


def test_what_would_be_refused_at_a_start_is_refused_by_wrap(installed, who, folder):
    os.symlink("/etc", f"{folder}/.vscode")
    request = {"confinement": {"name": "box", "write": [folder], "read": [], "commands": "any",
                               "net": "closed"}, "argv": ["true"]}  # fmt: skip
    done = installed.run(who, "wrap", input=json.dumps(request))
    assert (done.returncode, done.stdout) == (125, "")
    assert f"{folder}/.vscode is a link" in done.stderr


def test_explain_names_what_is_closed(installed, who, folder):
    projects.repository(who, folder)
    request = {"confinement": {"name": "box", "write": [folder], "read": [], "commands": "any",
                               "net": "closed"}, "argv": ["true"]}  # fmt: skip
    done = installed.run(who, "wrap", "--explain", input=json.dumps(request))
    assert f"read only  {folder}/.git  (a dot file)" in done.stdout
    assert f"held       {folder}/.vscode  (a dot file)" in done.stdout
    assert sorted(os.listdir(folder)) == [".git", "file"], "nothing was made"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_nothing_is_left_however_the_launcher_ends(start, folder, number):
    process = start()
    assert sorted(os.listdir(folder)) == sorted(HELD)
    process.send_signal(number)
    process.wait(lnk.LONG_S)
    if number == signal.SIGKILL:  # the keeper goes on, to take it away
        until_empty(folder)
    assert os.listdir(folder) == []


def until_empty(folder: str, within_s: float = lnk.LONG_S) -> None:
    """Look until nothing is left in a folder; fail where it isn't so in time."""
    import select
    import time

    until = time.monotonic() + within_s
    while os.listdir(folder):
        assert time.monotonic() < until, os.listdir(folder)
        select.select([], [], [], 0.005)


def test_a_program_that_does_not_start_leaves_nothing(installed, who, folder):
    for argv in (["no-such-program"], ["/etc/passwd"], [folder]):
        command = installed.wrapped(who, argv, write=[folder])
        assert lnk.run(who, command).returncode in (126, 127)
        assert os.listdir(folder) == []


def test_a_sandbox_that_does_not_start_leaves_nothing(installed, who, folder):
    command = installed.wrapped(who, ["true"], write=[folder])
    plan = lnk.plan_of(command)
    for changes in ({"bwrap": "/nowhere/bwrap"}, {"args": [*plan["args"], "--no-such-flag"]},
                    {"check": ["/nowhere"]}):  # fmt: skip
        command[4] = packing.written({**plan, **changes})
        done = lnk.run(who, command)
        assert done.returncode == 125, done.stderr
        until_empty(folder)


def test_a_folder_that_cannot_be_written_needs_nothing_held(installed, ordinary, open_folder):
    """Neither can the program inside make anything there."""
    folder = f"{open_folder}/roots"
    lnk.made_anew(folder, 0o755)
    command = installed.wrapped(ordinary, ["sh", "-c", "ls -A; mkdir .git"], write=[folder])
    done = lnk.run(ordinary, command, cwd=folder)
    if os.geteuid() == 0:
        assert done.stdout == ""
        assert "cannot create directory" in done.stderr
    os.rmdir(folder)


def test_a_folder_of_ones_own_that_is_not_writable_is_refused(installed, ordinary, ordinary_folder):
    """Its owner could make it writable inside, and then make what isn't held."""
    os.chmod(ordinary_folder, 0o555)
    command = installed.wrapped(ordinary, ["true"], write=[ordinary_folder])
    done = lnk.run(ordinary, command)
    if ordinary.uid != 0:
        assert done.returncode == 125
        assert "can't be held while the sandbox runs" in done.stderr
        assert (
            "(Permission denied): make it writable (chmod u+wx), or give it by read" in done.stderr
        )
    os.chmod(ordinary_folder, 0o755)


def test_with_a_proxy_nothing_is_left_either(start, folder):
    net = {"proxied": {"proxy": {"upstream": "direct", "dir": "~/wire", "hosts": []},
                       "ports": []}}  # fmt: skip
    process = start(net=net)
    assert sorted(os.listdir(folder)) == sorted(HELD)
    assert ended(process) == 0
    assert os.listdir(folder) == []


def test_run_takes_the_flag(installed, who, folder):
    projects.repository(who, folder)
    script = f"cd {folder}; git config a.b c"
    flags = ["--yes", "--write", folder]
    assert installed.run(who, "run", *flags, "--", "sh", "-c", script).returncode != 0
    flags += ["--write-dot-files", folder]
    assert installed.run(who, "run", *flags, "--", "sh", "-c", script).returncode == 0
    assert projects.git(who, folder, "config", "a.b").stdout == "c\n"
