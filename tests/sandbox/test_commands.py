"""What a list of programs reads of files; `test_exec_list` runs them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.target_exec import one_input
from sandbox.linux import commands
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
    ("line", "found"),
    [
        (b"#!/bin/sh\n", ["/bin/sh"]),
        (b"#! /bin/sh -e\n", ["/bin/sh"]),
        (b"#!/bin/sh", ["/bin/sh"]),
        (b"#!\t/usr/bin/perl\t-w\n", ["/usr/bin/perl"]),
        (b"#!/usr/bin/env sh\n", ["/usr/bin/env", "/usr/bin/sh"]),
        (b"#!/usr/bin/env -S sh -e\n", ["/usr/bin/env", "/usr/bin/sh"]),
        (b"#!/usr/bin/env -S A=b sh\n", ["/usr/bin/env", "/usr/bin/sh"]),
        (b"#!/usr/bin/env /bin/sh\n", ["/usr/bin/env", "/bin/sh"]),
        (b"#!/usr/bin/env no-such-program\n", ["/usr/bin/env", "no-such-program"]),
        (b"#!/usr/bin/env\n", ["/usr/bin/env"]),
        (b"#!sh\n", []),
        (b"#!\n", []),
    ],
)
def test_interpreters_are_those_the_kernel_and_env_run(line, found):
    assert commands.interpreters(line, PATH) == found


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
