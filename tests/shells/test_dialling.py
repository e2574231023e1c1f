"""Addresses that are dialled one after the other: `shells/dialling.py`, stepped by hand."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from typing import ClassVar

import pytest

from proto.commands import ATTEMPT_DELAY_S, Connect
from shells.dialling import Dialling
from shells.edges import Edges
from tests.shells.test_edges import Call, Loop

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


class Late(socket.socket):
    """A socket that isn't connected until somebody asks for the third time."""

    codes: ClassVar[list[int]] = []
    dialled: ClassVar[list[str]] = []

    def connect_ex(self, address: tuple[str, int]) -> int:  # type: ignore[override]
        Late.dialled.append(address[0])
        return Late.codes.pop(0)


class Env:
    def maker_of(self, _: object) -> object:
        return lambda address: Late()


@pytest.fixture
def dialling() -> Iterator[Dialling]:
    Late.codes, Late.dialled = [errno.EINPROGRESS, errno.EALREADY, 0], []
    edges = Edges(Loop())
    command = Connect((FIRST, SECOND), 9, 10.0)
    made = Dialling(edges, Call(), command, Env())  # type: ignore[arg-type]
    yield made
    made.abandon()
    edges.close()


def test_after_a_stall_who_has_accepted_wins_and_no_other_is_dialled(dialling: Dialling) -> None:
    """A timer then comes before the news of the sockets."""
    assert dialling.advance(0.0) is None
    won = dialling.advance(ATTEMPT_DELAY_S)
    assert won is not None
    address, end = won
    end.hang_up()
    assert (address, Late.dialled) == (FIRST, [FIRST] * 3)


def test_before_its_time_nobody_else_is_dialled(dialling: Dialling) -> None:
    assert dialling.advance(0.0) is None
    assert dialling.advance(ATTEMPT_DELAY_S / 2) is None
    assert Late.dialled == [FIRST] * 2
