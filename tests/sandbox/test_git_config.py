"""Git's settings as git reads them: by a table, by properties, and beside git itself."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import example, given, settings

from fuzz.strategies_git import FILES, VARIABLES, meant, written
from fuzz.target_git_config import one_input
from sandbox.linux import git_config
from sandbox.linux.git_config import GitConfigError, Reader, parse
from sandbox.linux.walk import Unreadable
from tests.sandbox import lnk

CORPUS = os.path.join(lnk.REPOSITORY, "fuzz", "corpus", "git_config")


def value(text: bytes) -> bytes | None:
    """Return the value that a line's text after the `=` has."""
    ((name, found),) = parse(b"[s]\n\tk = " + text)
    assert name == b"s.k"
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"plain", b"plain"),
        (b"  two  words  ", b"two  words"),
        (b'" kept "', b" kept "),
        (b'a" b "c', b"a b c"),
        (b'"a" ', b"a"),
        (b'a "" ', b"a "),
        (b"a # comment", b"a"),
        (b"a;comment", b"a"),
        (b'"a # b" ; c', b"a # b"),
        (b"a\\\\b", b"a\\b"),
        (b'a\\"b', b'a"b'),
        (b"a\\tb\\nc\\bd", b"a\tb\nc\bd"),
        (b"a\\\nb", b"ab"),
        (b"a\\\n   b", b"a   b"),
        (b'"a\\\nb"', b"ab"),
        (b"a \\\n", b"a "),
        (b"a\\", b"a"),
        (b"", b""),
        (b"=", b"="),
        (b"a = b", b"a = b"),
        (b"a\r\n", b"a"),
        (b"a\rb", b"a\rb"),
        (b"[x]", b"[x]"),
        (b"\xc3\xa9", b"\xc3\xa9"),
    ],
)
def test_a_value_is_what_git_takes_it_for(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize("text", [b'"a', b"a\\x", b'a" b', b'"a\nb"', b"a\\ "])
def test_a_value_that_git_refuses_is_refused(text):
    with pytest.raises(GitConfigError):
        value(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"[core]\nhooksPath = x", b"core.hookspath"),
        (b"[CORE] HooksPath=x", b"core.hookspath"),
        (b"  [core]\n  hooksPath=x", b"core.hookspath"),
        (b"[core]hooksPath=x", b"core.hookspath"),
        (b'[Sub "Name.X"]\nK=x', b"sub.Name.X.k"),
        (b'[sub   "a\\"b\\\\c\\d"]\nk=x', b'sub.a"b\\cd.k'),
        (b"[sub.Name]\nk=x", b"sub.name.k"),
        (b'[s ""]\nk=x', b"s..k"),
        (b"\xef\xbb\xbf[s]\nk=x", b"s.k"),
        (b"# [a]\n;[b]\n[s]\nk=x", b"s.k"),
        (b"[s]\r\nk=x\r\n", b"s.k"),
    ],
)
def test_a_name_is_in_full_and_small_but_for_a_subsection(text, name):
    assert parse(text) == [(name, b"x")]


def test_a_variable_without_a_value_is_none():
    assert parse(b"[s]\na\nb =\nc") == [(b"s.a", None), (b"s.b", b""), (b"s.c", None)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"[s", 1),
        (b"[]", 1),
        (b"[s x]", 1),
        (b'[s "x]', 1),
        (b'[s "x"', 1),
        (b'[s "x" ]', 1),
        (b'[s\n"x"]', 1),
        (b"[s_t]", 1),
        (b"[s]\n1a = x", 2),
        (b"[s]\na_b = x", 2),
        (b"[s]\na b", 2),
        (b"[s]\na # b", 2),
        (b"[s]\n\n=x", 3),
        (b"\xef\xbb[s]", 1),
        (b"[s]\nk = \\\n \\\n \\x", 4),
    ],
)
def test_what_is_none_of_gits_settings_is_refused_with_its_line(text, line):
    with pytest.raises(GitConfigError) as caught:
        parse(text)
    assert caught.value.line == line


@given(VARIABLES)
def test_what_is_written_is_read_back(variables):
    assert parse(written(variables)) == meant(variables)


@given(FILES)
def test_only_its_own_error_is_raised(data):
    one_input(data)


@settings(max_examples=60)
@given(FILES)
@example(b"[s]\nk=\\\n")
@example(b"[]\nk=v")
@example(b'[ "x"]\nk=v')
@example(b'[s]\nk = "a\\\n b" ; c')
@example(b'[core "hookspath\0"]\nk = a')
@example(b'[include "path\0"]\nk = a\0b')
def test_git_reads_the_same(tmp_path_factory, data):
    """Beside git itself, which turned blanks in a value into spaces before version 2.45."""
    path = tmp_path_factory.mktemp("settings") / "config"
    path.write_bytes(data)
    environ = {"PATH": lnk.PATH, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "config", "--file", str(path), "--no-includes", "--list", "-z"],
        capture_output=True, env=environ, cwd="/", timeout=lnk.LONG_S,
    )  # fmt: skip
    theirs: list[tuple[bytes, bytes | None]] | None = None
    if done.returncode == 0:
        rows = [row.partition(b"\n") for row in done.stdout.split(b"\0")[:-1]]
        theirs = [(name, text if mark else None) for name, mark, text in rows]
    try:
        ours: list[tuple[bytes, bytes | None]] | None = parse(data)
    except GitConfigError:
        ours = None
    if b"\0" in data and ours is not None:  # git's own list is cut there
        ours = [(name, text and text.partition(b"\0")[0]) for name, text in ours]
    assert blanked(ours) == blanked(theirs)


def blanked(
    found: list[tuple[bytes, bytes | None]] | None,
) -> list[tuple[bytes, bytes | None]] | None:
    if found is None:
        return None
    table = bytes.maketrans(b"\t\r", b"  ")
    return [(name, None if text is None else text.translate(table)) for name, text in found]


@pytest.mark.parametrize("name", sorted(os.listdir(CORPUS)))
def test_the_corpus_is_read(name):
    with open(os.path.join(CORPUS, name), "rb") as file:
        one_input(file.read())


# -- files, and what they include ------------------------------------------------------------


@pytest.fixture
def write(tmp_path):
    def to(name: str, text: str) -> str:
        path = os.path.join(os.path.realpath(tmp_path), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    return to


def test_every_hooks_folder_and_work_tree_is_named(write):
    path = write("a/config", "[core]\nhooksPath=one\nhooksPath=~/two\nworktree=../tree\nhooksPath")
    write("a/more", "[core]\nhooksPath = /three\n")
    reader = Reader("/home/ann")
    assert reader.read(path) == (["one", "/home/ann/two"], ["../tree"])
    assert list(reader.files) == [path]


@pytest.mark.parametrize(
    "text",
    [
        "[include]\npath = more",
        "[includeIf \"gitdir:/never/\"]\npath = ./more",
        "[includeIf \"onbranch:no.such\"]\npath = more",
        "[include]\npath = {folder}/more",
        "[include]\npath = ~/more",
        "[include]\npath = :(optional)more",
        "[include]\npath = \"mo\\\nre\"",
    ],
)  # fmt: skip
def test_what_is_included_is_read_whatever_its_condition(write, tmp_path, text):
    folder = os.path.realpath(tmp_path)
    path = write("config", text.replace("{folder}", folder))
    write("more", "[core]\nhooksPath = found\n")
    reader = Reader(folder)
    assert reader.read(path) == (["found"], [])
    assert len(reader.files) == 2


@pytest.mark.parametrize(
    "text", ["[includeIf]\npath = x", "[include \"a\"]\npath = x", "[include]\npaths = x",
             "[include]\npath", "[include]\npath =", "[include]\npath = %(prefix)/x",
             "[include]\npath = ~nobody-of-that-name/x"]
)  # fmt: skip
def test_what_git_does_not_include_is_not_read(write, text):
    reader = Reader("/home/ann")
    reader.read(write("config", text))
    assert len(reader.files) == 1


def test_a_path_ends_where_it_does_for_git(write):
    assert Reader("/").read(write("config", "[core]\nhooksPath = a\0b\n")) == (["a"], [])


@pytest.mark.parametrize("head", ['[core "hookspath\0"]\nx', '[core "hookspath\0\\"x"] y'])
def test_a_name_ends_where_it_does_for_git(write, head):
    assert Reader("/").read(write("config", f"{head} = evil\n")) == (["evil"], [])


def test_anothers_home_is_looked_up(write):
    path = write("config", "[core]\nhooksPath = ~root/hooks\n")
    assert Reader("/home/ann").read(path) == (["/root/hooks"], [])


def test_a_file_that_is_not_there_names_nothing_and_is_known(write, tmp_path):
    reader = Reader("/")
    path = str(tmp_path / "missing")
    assert reader.read(path) == ([], [])
    assert list(reader.files) == [path]


def test_a_device_is_an_empty_file():
    assert Reader("/").read("/dev/null") == ([], [])


def test_what_can_be_read_has_an_end(write, tmp_path, monkeypatch):
    reader = Reader("/")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Unreadable, match="is no file"):
        reader.read(str(tmp_path / "fifo"))
    for number in range(3):
        write(f"big{number}", "#" * (200 << 10))
    reader.read(str(tmp_path / "big0"))
    reader.read(str(tmp_path / "big1"))
    with pytest.raises(Unreadable, match="is longer than"):
        reader.read(str(tmp_path / "big2"))
    monkeypatch.setattr(git_config, "FILES_MAX", 2)
    with pytest.raises(Unreadable, match="more than 2 files"):
        reader.read(str(tmp_path / "another"))
