"""Which submodules an index names: as git writes it, in every version, and in no order at all."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_git_index import one_input
from sandbox.linux.git_index import SUBMODULE_MODE, submodules
from tests.sandbox import lnk
from tests.sandbox.projects import git_alone

CORPUS = os.path.join(lnk.REPOSITORY, "fuzz", "corpus", "git_index")
NAMES = ["d3/deep/sub", "sub", "z" * 201]


def index_with(folder: str, version: str, kind: str) -> bytes:
    """Return an index of 200 files and three submodules."""
    for name in ("library", "top"):
        os.mkdir(f"{folder}/{name}")
        git_alone(f"{folder}/{name}", "init", "-q", f"--object-format={kind}")
    git_alone(f"{folder}/library", "commit", "-q", "--allow-empty", "-m", "x")
    commit = git_alone(f"{folder}/library", "rev-parse", "HEAD").strip()
    top = f"{folder}/top"
    for number in range(200):
        os.makedirs(f"{top}/d{number % 7}", exist_ok=True)
        with open(f"{top}/d{number % 7}/f{number}", "w") as file:
            file.write(str(number))
    git_alone(top, "add", ".")
    for name in NAMES:
        git_alone(top, "update-index", "--add", "--cacheinfo", f"160000,{commit},{name}")
    git_alone(top, "update-index", "--index-version", version)
    if version == "3":  # which git writes only where an entry needs it
        with open(f"{top}/new", "w"):
            pass
        git_alone(top, "add", "-N", "new")
    with open(f"{top}/.git/index", "rb") as file:
        return file.read()


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_submodule_of_an_index_is_found_and_nothing_else(tmp_path, version, kind):
    index = index_with(str(tmp_path), version, kind)
    assert index[7] == int(version)
    assert submodules(index) == NAMES


@pytest.mark.parametrize("version", ["2", "4"])
def test_an_index_cut_short_is_read_as_far_as_it_goes(tmp_path, version):
    index = index_with(str(tmp_path), version, "sha1")
    for end in range(0, len(index), 97):
        assert set(submodules(index[:end])) <= set(NAMES)


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC\0\0\0\2" + b"\0" * 90, b"x" * 100])
def test_what_is_no_index_names_none(data):
    assert submodules(data) == []


@given(
    st.sampled_from([2, 3, 4, 5]),
    st.integers(0, 2**32 - 1),
    st.lists(st.binary(max_size=80) | st.just(SUBMODULE_MODE), max_size=8).map(b"".join),
)
def test_nothing_is_raised_whatever_it_holds(version, count, data):
    one_input(b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big") + data)


@pytest.mark.parametrize("name", sorted(os.listdir(CORPUS)))
def test_the_corpus_is_read(name):
    with open(os.path.join(CORPUS, name), "rb") as file:
        one_input(file.read())
