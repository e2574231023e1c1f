"""Deadlines and bounds of a call: `proto/calls/limits.py`."""

from __future__ import annotations

from proto.calls.limits import PIECE_BYTES, Limits
from proto.codecs.body import LAST_CHUNK, chunk


def test_a_piece_in_its_chunk_stays_within_64_kib() -> None:
    assert len(chunk(bytes(PIECE_BYTES)) + LAST_CHUNK) <= 64 * 1024


def test_deadlines_are_those_of_the_specification() -> None:
    limits = Limits()
    assert (limits.head_s, limits.setup_s, limits.hello_s) == (30, 10, 10)


def test_a_cancelled_call_ends_within_two_seconds() -> None:
    assert Limits().parting_s < 2
