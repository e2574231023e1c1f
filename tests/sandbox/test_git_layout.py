"""Where git keeps a repository, found as git finds it, and paths walked as the kernel does."""

from __future__ import annotations

import os
import posix
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.linux.git_layout import (
    is_repository,
    opened_with,
    own_folder_around,
    repositories_above,
    repository_at,
)
from sandbox.linux.walk import FILE, FOLDER, Unreadable, inside, read_file, walk
from tests.sandbox import lnk
from tests.sandbox.projects import git_alone


@pytest.fixture
def here(tmp_path) -> str:
    return os.path.realpath(tmp_path)


@pytest.fixture
def top(here: str) -> str:
    made = f"{here}/top"
    os.mkdir(made)
    git_alone(made, "init", "-q")
    git_alone(made, "commit", "-q", "--allow-empty", "-m", "x")
    return made


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def test_a_repository_is_found_by_its_folder_or_its_file(here, top):
    found = repository_at(top)
    assert (found.top, found.folder, found.common) == (top, f"{top}/.git", f"{top}/.git")
    tree = f"{here}/tree"
    git_alone(top, "worktree", "add", "-q", tree)
    found = repository_at(tree)
    assert found.common == f"{top}/.git"
    assert found.folder == f"{top}/.git/worktrees/tree"
    os.makedirs(f"{tree}/a/b")
    assert [one.top for one in repositories_above(f"{tree}/a/b")] == [tree]
    assert repository_at(here) is None


def test_what_a_file_leads_to_ends_where_it_does_for_git(here, top):
    os.rename(f"{top}/.git", f"{here}/real")
    write(f"{top}/.git", "gitdir: ../real\0junk\n")
    assert git_alone(top, "rev-parse", "--absolute-git-dir") == f"{here}/real\n"
    assert repository_at(top).folder == f"{here}/real"


def test_a_repository_by_a_link_is_one(here, top):
    os.rename(f"{top}/.git", f"{here}/moved")
    os.symlink("../moved", f"{top}/.git")
    assert repository_at(top).folder == f"{here}/moved"


@pytest.mark.parametrize(
    ("head", "is_one"),
    [
        ("ref: refs/heads/main\n", True),
        ("ref:refs/heads/main", True),
        ("ref:  refs/x", True),
        ("ref: heads/main", False),
        ("0123456789abcdef0123456789ABCDEF01234567\n", True),
        ("0123456789abcdef\n", False),
        ("", False),
        ("refs/heads/main", False),
    ],
)
def test_git_agrees_on_what_a_repository_is(top, head, is_one):
    write(f"{top}/.git/HEAD", head)
    done = subprocess.run(
        ["git", "rev-parse", "--git-dir"], cwd=top, capture_output=True, timeout=lnk.LONG_S,
        env={"PATH": lnk.PATH, "GIT_CEILING_DIRECTORIES": os.path.dirname(top)},
    )  # fmt: skip
    assert (done.returncode == 0) == is_one
    assert is_repository(f"{top}/.git") == is_one


def test_a_folder_in_gits_own_is_known(here, top):
    bare = f"{here}/bare"
    git_alone(here, "init", "-q", "--bare", bare)
    assert own_folder_around(bare) == bare
    assert own_folder_around(f"{bare}/hooks") == bare
    assert own_folder_around(f"{top}/.git/objects") == f"{top}/.git"
    assert own_folder_around(top) is None


def test_a_worktree_opens_its_repository_and_a_plain_one_nothing(here, top):
    git_alone(top, "worktree", "add", "-q", f"{here}/tree")
    assert opened_with(f"{here}/tree", "/") == (f"{top}/.git",)
    assert opened_with(top, "/") == ()
    assert opened_with(here, "/") == ()


def test_a_worktree_of_a_bare_repository_opens_that(here, top):
    git_alone(here, "clone", "-q", "--bare", top, ".bare")
    git_alone(f"{here}/.bare", "worktree", "add", "-q", "../tree")
    assert opened_with(f"{here}/tree", "/") == (f"{here}/.bare",)


def test_a_submodule_opens_its_own_folder_alone(here, top):
    git_alone(here, "init", "-q", "super")
    git_alone(f"{here}/super", "submodule", "--quiet", "add", top, "sub")
    assert opened_with(f"{here}/super/sub", "/") == (f"{here}/super/.git/modules/sub",)


def test_a_repository_of_which_all_lies_in_the_folder_opens_nothing(here):
    git_alone(here, "init", "-q", "--separate-git-dir", "own")
    assert opened_with(here, "/") == ()


@pytest.mark.parametrize(
    "forged", ["another's", "gitdir", "commondir", "beside", "a file's", "missing"]
)
def test_what_does_not_lead_back_is_not_opened(here, top, forged):
    tree, other = f"{here}/tree", f"{here}/other"
    git_alone(top, "worktree", "add", "-q", tree)
    git_alone(top, "worktree", "add", "-q", other)
    own = f"{top}/.git/worktrees/tree"
    match forged:
        case "another's":
            write(f"{tree}/.git", f"gitdir: {top}/.git/worktrees/other\n")
        case "gitdir":
            write(f"{own}/gitdir", f"{tree}/x/.git\n")
        case "commondir":
            # With the key a program writes this file: it must not name what it is given next.
            git_alone(here, "init", "-q", "victim")
            write(f"{own}/commondir", f"{here}/victim/.git\n")
        case "beside":
            os.mkdir(f"{top}/.git/elsewhere")
            os.rename(own, f"{top}/.git/elsewhere/tree")
            write(f"{tree}/.git", f"gitdir: {top}/.git/elsewhere/tree\n")
        case "a file's":
            write(f"{tree}/.git", f"gitdir: {top}/.git\n")
        case "missing":
            write(f"{tree}/.git", f"gitdir: {here}/nowhere\n")
    if forged == "missing":
        assert opened_with(tree, "/") == ()
        return
    with pytest.raises(Unreadable, match=r"\.git leads to "):
        opened_with(tree, "/")


@pytest.mark.parametrize("kind", ["worktree", "submodule"])
def test_what_leads_back_by_a_link_is_not_opened(here, top, kind):
    """A sandbox that writes the folder above could put one in a worktree's place."""
    mine = f"{here}/mine"
    os.mkdir(mine)
    if kind == "worktree":
        git_alone(top, "worktree", "add", "-q", f"{mine}/tree")
        leads = f"{top}/.git/worktrees/tree"
    else:
        git_alone(here, "init", "-q", "--separate-git-dir", f"{here}/kept", f"{mine}/tree")
        git_alone(f"{mine}/tree", "commit", "-q", "--allow-empty", "-m", "x")
        git_alone(f"{mine}/tree", "config", "core.worktree", f"{mine}/tree")
        leads = f"{here}/kept"
    os.rename(f"{mine}/tree", f"{mine}/old")
    os.symlink(".", f"{mine}/tree")
    write(f"{mine}/.git", f"gitdir: {leads}\n")
    with pytest.raises(Unreadable, match="lead back"):
        opened_with(mine, "/")


# -- walking ---------------------------------------------------------------------------------


def test_a_walk_names_every_link_it_passes(here):
    os.makedirs(f"{here}/a/b")
    os.symlink("a", f"{here}/one")
    os.symlink(f"{here}/one/b", f"{here}/two")
    write(f"{here}/a/b/file", "")
    found = walk(f"{here}/two/./../b//file")
    assert (found.real, found.kind) == (f"{here}/a/b/file", FILE)
    assert found.links == (f"{here}/two", f"{here}/one")


def test_what_is_missing_stands_as_it_was_written(here):
    found = walk(f"{here}/a/b")
    assert (found.real, found.kind, found.links) == (f"{here}/a/b", 0, ())
    os.symlink("nowhere/x", f"{here}/link")
    found = walk(f"{here}/link/y")
    assert (found.real, found.kind) == (f"{here}/nowhere/x/y", 0)
    assert walk(f"{here}/a/../b").real == f"{here}/b"
    assert walk("/").kind == FOLDER


def test_a_link_that_is_taken_away_while_it_is_read_is_missing(here, monkeypatch):
    os.symlink("a", f"{here}/link")

    def taken(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(posix, "readlink", taken)
    found = walk(f"{here}/link/x")
    assert (found.real, found.kind, found.links) == (f"{here}/link/x", 0, ())


def test_a_walk_ends_where_links_lead_in_circles(here):
    os.symlink("two", f"{here}/one")
    os.symlink("one", f"{here}/two")
    assert walk(f"{here}/one/x").kind == 0
    assert len(walk(f"{here}/one").links) == 40


PARTS = st.sampled_from(["a", "b", "link", "deep", "..", ".", "", "missing"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> str:
    made = os.path.realpath(tmp_path_factory.mktemp("tree"))
    os.makedirs(f"{made}/a/b/deep")
    os.symlink("../a/b", f"{made}/a/link")
    os.symlink("a/link/deep", f"{made}/link")
    os.symlink("..", f"{made}/a/b/link")
    return made


@given(parts=st.lists(PARTS, max_size=8))
def test_a_walk_ends_where_the_kernel_does(tree, parts):
    path = "/".join([tree, *parts])
    try:
        there = os.stat(path)
    except OSError:
        return
    found = walk(path)
    assert found.kind == there.st_mode & 0o170000
    assert os.path.samestat(os.stat(found.real), there)
    assert found.real == os.path.realpath(path)
    assert all(os.path.islink(link) for link in found.links)


def test_a_folder_holds_itself_and_what_is_in_it():
    assert inside("/a", "/a")
    assert inside("/a/b", "/a")
    assert inside("/a", "/")
    assert not inside("/ab", "/a")
    assert not inside("/", "/a")


def test_a_file_is_read_whole_or_not_at_all(here):
    write(f"{here}/file", "x" * 10)
    assert read_file(f"{here}/file", 10) == b"x" * 10
    with pytest.raises(Unreadable, match="is longer"):
        read_file(f"{here}/file", 9)
    assert read_file(f"{here}/nowhere", 9) is None
    with pytest.raises(Unreadable, match="is no file"):
        read_file(here, 9)
