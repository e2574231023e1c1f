"""What a list of programs reads of files; `test_exec_list` runs them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_exec import one_input
from sandbox.linux import commands
from sandbox.linux.program import script_line
from tests.sandbox import lnk

CORPUS = os.path.join(lnk.REPOSITORY, "fuzz", "corpus", "exec")
PATH = "/usr/bin:/bin"


@pytest.mark.parametrize("name", sorted(os.listdir(CORPUS)))
def test_the_corpus_is_read(name):
    with open(os.path.join(CORPUS, name), "rb") as file:
        one_input(file.read())


@given(st.sampled_from([b"e", b"s", b"n", b"q"]), st.binary(max_size=300))
def test_whatever_a_file_or_the_pipe_holds_is_read(kind, data):
    one_input(kind + data)


@given(st.binary(min_size=56, max_size=400), st.integers(0, 2**64 - 1), st.integers(0, 65535))
def test_whatever_an_elf_file_says_of_its_headers_is_read(data, offset, count):
    head = b"\x7fELF\x02\x01" + data[6:32] + offset.to_bytes(8, "little") + data[40:56]
    one_input(b"e" + head + count.to_bytes(2, "little") + data[56:])


@given(st.lists(st.tuples(st.sampled_from([b"s", b"x"]), st.binary(max_size=20))))
def test_records_cut_anywhere_say_the_same(records):
    plain = [(kind, path.replace(b"\0", b"")) for kind, path in records]
    whole = b"".join(b"s\0" if kind == b"s" else b"x%b\0%b\0" % (p, p) for kind, p in plain)
    one_input(b"n" + whole)


@pytest.mark.parametrize(
    ("head", "interpreter", "argument"),
    [
        (b"#!/bin/sh\necho", b"/bin/sh", b""),
        (b"#! /bin/sh -e \n", b"/bin/sh", b"-e"),
        (b"#!/bin/sh", b"/bin/sh", b""),
        (b"#!\t/usr/bin/perl\t-w  -T\n", b"/usr/bin/perl", b"-w  -T"),
        (b"#!/bin/sh\r\necho", b"/bin/sh\r", b""),
        (b"#!/bin/sh -e\r\n", b"/bin/sh", b"-e\r"),
        (b"#!/bin/sh\x0b-e\n", b"/bin/sh\x0b-e", b""),
        (b"#!/bin/sh\0x\n", b"/bin/sh", b""),
        (b"#!/bin/sh -e\0x\n", b"/bin/sh", b"-e"),
        (b"#!\n/bin/sh", b"", b""),
        (b"#!", b"", b""),
    ],
)
def test_a_scripts_line_is_cut_as_the_kernel_cuts_it(head, interpreter, argument):
    assert script_line(head) == (interpreter, argument)


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("sh", "sh"),
        ("/bin/sh", "/bin/sh"),
        ("sh -e", "sh -e"),
        ("python3\r", "python3\r"),
        ("-S sh -e", "sh"),
        ("-Ssh -e", "sh"),
        ("-vS sh", "sh"),
        ("-iS  A=b  sh", "sh"),
        ("--split-string=sh -e", "sh"),
        ("-S -u NAME sh", "sh"),
        ("-S -uNAME --chdir /tmp -i sh", "sh"),
        ("-S 'sh' -c", "sh"),
        ("-S A=b", ""),
        ("-i", ""),
        ("-u sh", ""),
        ("", ""),
    ],
)
def test_env_runs_what_stands_behind_its_options(argument, name):
    assert commands.run_by_env(argument) == name


def listed(tmp_path, line: str, search: str = PATH) -> commands.Program:
    path = tmp_path / "script"
    path.write_text(f"#!{line}\n")
    path.chmod(0o755)
    return commands.look(str(path), search)


def test_what_env_finds_is_kept_apart_in_paths_order(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "two" / "tool").chmod(0o755)
    search = f"relative:{tmp_path}/two:{tmp_path}/one:{tmp_path}/none:/usr/bin"
    found = listed(tmp_path, "/usr/bin/env tool", search)
    assert [each.named for each in found.found] == [f"{tmp_path}/two/tool"], "the other can't run"
    assert os.path.realpath("/bin/sh") in [need.path for need in found.found[0].needs]
    assert found.needs[0].path == os.path.realpath("/usr/bin/env")
    assert not found.lack


@pytest.mark.parametrize(
    ("line", "lack"),
    [
        ("/usr/bin/env no-such", "is a script for no-such, which does not exist"),
        ("/usr/bin/env sh -e", "is a script for sh -e, which does not exist"),
        ("/usr/bin/env sh\r", "is a script for sh\r, which does not exist"),
        ("/bin/sh\r", "is a script for /bin/sh\r, which does not exist"),
        ("/etc", "is a script for /etc, which is a folder"),
        ("/usr/bin/env", ""),
        ("sh", ""),
        ("", ""),
    ],
)
def test_what_a_script_lacks_is_said_by_its_name(tmp_path, line, lack):
    assert listed(tmp_path, line).lack == lack


def test_what_decides_a_program_is_where_it_stands_and_all_that_leads_to_it(tmp_path):
    names = ("bin", "real", "other", "way", "in")
    bin_, real, other, way, inner = (tmp_path / name for name in names)
    for folder in (bin_, real, other, way / "deep", inner):
        folder.mkdir(parents=True)
    for path, text in ((real / "tool", f"#!{way}/deep/../python -I"), (real / "plain", "text")):
        path.write_text(f"{text}\n")
        path.chmod(0o755)
    (bin_ / "tool").symlink_to(other / "tool")
    (other / "tool").symlink_to(real / "tool")
    (way / "python").symlink_to(inner / "python")
    (inner / "python").symlink_to("/usr/bin/env")
    found = commands.decided_by(str(bin_ / "tool"))
    links = {str(bin_), str(other), str(way), str(inner)}
    assert links | {str(real / "tool"), os.path.realpath("/usr/bin/env")} <= set(found)
    assert os.path.realpath(commands.loader_of("/usr/bin/env")) in found
    assert commands.decided_by(str(real / "plain")) == (str(real / "plain"),)
    assert commands.decided_by("/no/where") == ("/no/where",)
    (real / "by-env").write_text("#!/usr/bin/env plain\n")
    assert str(real / "plain") in commands.decided_by(str(real / "by-env")), (
        "it is looked for first"
    )
    (real / "itself").write_text(f"#!{real}/itself\n")
    assert commands.decided_by(str(real / "itself")) == (str(real / "itself"),)


def test_a_script_that_has_env_run_itself_ends(tmp_path):
    assert listed(tmp_path, f"/usr/bin/env {tmp_path}/script").found


def test_a_chain_that_turns_in_a_circle_ends(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        path = tmp_path / name
        path.write_text(f"#!{tmp_path}/{other}\n")
        path.chmod(0o755)
    found = commands.look(str(tmp_path / "a"), PATH)
    assert {need.path for need in found.needs} == {str(tmp_path / "a"), str(tmp_path / "b")}


def test_a_chain_longer_than_the_kernel_follows_is_refused(tmp_path):
    for number in range(7):
        path = tmp_path / str(number)
        path.write_text(f"#!{tmp_path}/{number + 1}\n" if number < 6 else "#!/bin/sh\n")
        path.chmod(0o755)
    assert "is one interpreter too many" in commands.look(str(tmp_path / "0"), PATH).lack


def test_a_loader_is_found_as_the_kernel_finds_it():
    assert "/ld-" in commands.loader_of("/usr/bin/true")
    assert commands.loader_of("/etc/passwd") == ""
    assert commands.loader_of("/nowhere") == ""
