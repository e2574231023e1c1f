"""A key is struck out of an answer: `proto/verbs/masking.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.verbs.masking import Mask

KEY = b"sk-REAL-key"


@given(st.lists(st.sampled_from([KEY, b"sk-", b"s", b"k", b"REAL-key", b"x", b"\n", b"sk-REAL"])))
def test_a_stream_cut_anywhere_loses_the_key_and_nothing_else(pieces: list[bytes]) -> None:
    stream = b"".join(pieces)
    mask = Mask(KEY)
    went = b"".join(map(mask.feed, pieces)) + mask.end()
    assert KEY not in went
    assert went == stream.replace(KEY, b"*" * len(KEY))
    by_byte = Mask(KEY)
    singly = b"".join(by_byte.feed(stream[at : at + 1]) for at in range(len(stream)))
    assert singly + by_byte.end() == went


def test_only_what_the_key_may_begin_in_is_held_back() -> None:
    mask = Mask(KEY)
    assert mask.feed(b"data: yes\n\n") == b"data: yes\n\n"
    assert mask.feed(b"it is s") == b"it is "
    assert mask.feed(b"o") == b"so"
    assert mask.feed(b"sk-REAL") == b""
    assert mask.end() == b"sk-REAL"
    assert mask.end() == b""


def test_a_mask_does_not_show_its_secret() -> None:
    assert "REAL" not in repr(Mask(KEY))


@pytest.mark.parametrize("short", [b"", b"a", b"seven--"])
def test_a_secret_that_stands_everywhere_is_struck_out_nowhere(short: bytes) -> None:
    mask = Mask(short)
    assert mask.feed(b"a seven-- b") == b"a seven-- b"
    assert mask.end() == b""
