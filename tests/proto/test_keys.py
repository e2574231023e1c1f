from __future__ import annotations

import pytest

from proto.policy.keys import Key

KEY = "k" * 15 + "é".encode().hex()


def test_a_key_is_told_or_it_is_not() -> None:
    key = Key("abcdefghijklmnop")
    assert key.is_told(b"abcdefghijklmnop")
    for wrong in (None, b"", b"abcdefghijklmno", b"abcdefghijklmnopq", b"ABCDEFGHIJKLMNOP"):
        assert not key.is_told(wrong)


def test_a_key_never_shows() -> None:
    assert "abcdefghijklmnop" not in repr(Key("abcdefghijklmnop"))
    assert Key("abcdefghijklmnop").reveal() == b"abcdefghijklmnop"


@pytest.mark.parametrize("text", ["", "short", "abcdefghijklmno", "abcdefghijklmnopé"])
def test_a_key_that_could_be_guessed_or_is_no_plain_text_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="16 ASCII"):
        Key(text)
