"""What `run` says of what its wire refuses."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace

import pytest

from proto.policy.records import Ending, Refusal
from sandbox.cli import wire
from sandbox.cli.wire import Teller


def refusal(host: str, key: str = "internet.hosts") -> Refusal:
    return Refusal("connect", host, 443, 403, f"{host} is refused.", key)


@pytest.fixture
def said(monkeypatch):
    """A pipe in stderr's place; read what came by calling it."""
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w") as stderr, os.fdopen(ours, "rb") as reader:
        monkeypatch.setattr(wire, "sys", SimpleNamespace(stderr=stderr))
        os.set_blocking(ours, False)
        yield lambda: (reader.read() or b"").decode().splitlines()


def test_a_refused_host_is_told_once_with_its_flag(said):
    teller = Teller(None)
    for _ in range(3):
        teller(refusal("a.example"))
    assert said() == ["lnk sandbox: a.example isn't among the hosts; add --internet-host a.example"]


def test_a_spec_is_named_where_there_is_one(said):
    Teller("/srv/spec.toml")(refusal("2001:db8::1"))
    assert said() == [
        "lnk sandbox: [2001:db8::1] isn't among the hosts; add --internet-host 2001:db8::1, "
        "or [internet] hosts of /srv/spec.toml"
    ]


def test_another_refusal_is_told_in_its_own_words(said):
    Teller(None)(refusal("a.example", "lan.hosts"))
    assert said() == ["lnk sandbox: a.example is refused."]


def test_a_call_that_was_not_allowed_is_told_with_its_tool(said):
    Teller(None)(Refusal("tool", "notes", 0, 200, "nobody answered."))
    assert said() == ["lnk sandbox: the tool notes: nobody answered."]


def failed(reason: str) -> Ending:
    return Ending("connect", "a.example", 443, 0, 0, 1.0, reason, at_exit=True)


def test_an_exit_that_fails_is_named_once_without_its_login(said):
    teller = Teller(None, "http://user:treasure@10.0.0.9:3128")
    for _ in range(2):
        teller(failed("502: the upstream proxy could not be reached: x; see [network] upstream."))
        teller(failed("the upstream proxy wants a login; see [network] upstream."))
    where = "the upstream proxy http://10.0.0.9:3128"
    assert said() == [
        f"lnk sandbox: {where} could not be reached: x; see [network] upstream.",
        f"lnk sandbox: {where} wants a login; see [network] upstream.",
    ]


def test_after_a_thousand_hosts_one_sentence_says_that_there_are_more(said, monkeypatch):
    monkeypatch.setattr(Teller, "TOLD_MAX", 2)
    teller = Teller(None)
    for number in range(5):
        teller(refusal(f"{number}.example"))
    assert [line.split()[2] for line in said()] == ["0.example", "1.example", "more"]


def test_a_reader_who_stands_still_is_not_waited_for(said):
    theirs = wire.sys.stderr.fileno()
    os.set_blocking(theirs, False)
    with contextlib.suppress(BlockingIOError):
        for _ in range(64):  # a pipe holds sixteen of them
            os.write(theirs, b"x" * 4096)
    os.set_blocking(theirs, True)
    teller = Teller(None)
    teller(refusal("a.example"))  # returns
    assert teller.told == set()
