"""Fuzz target: a program's answer to a login, as the browser gets it (`proto.verbs.login_answer`).

Its corpus is `corpus/login_answer`; the first byte chooses how many bytes come at a time.
"""

from __future__ import annotations

from proto.codecs.http1 import AnswerReader
from proto.errors import BadAnswer
from proto.verbs.login_answer import INERT, TYPES, Shown


def shown(data: bytes, step: int) -> tuple[bytes, bool, bool]:
    """Return what a browser gets, whether that is all, and whether it was refused at some point."""
    made, said = Shown("GET"), b""
    try:
        for at in range(0, len(data), step):
            said += made.feed(data[at : at + step])
    except BadAnswer:
        return said, made.over, True
    over = made.over
    return said + (b"" if over else made.ended()), over, False


def one_input(data: bytes) -> None:
    """Show an answer: one head of ours, inert, and the same however it came."""
    step, answer = (data[0] if data else 0) or 1, data[1:]
    said, over, refused = shown(answer, step)
    whole, whole_over, whole_refused = shown(answer, max(1, len(answer)))
    assert (over, refused) == (whole_over, whole_refused)
    # Pieces that came before one that is refused have gone on: then the connection breaks off.
    assert said == whole or (refused and said.startswith(whole))
    if not said:
        return
    found = AnswerReader().feed(said)
    assert found is not None
    head, _ = found
    fields = dict(INERT)
    assert {name.lower() for name, _ in head.fields} == {
        b"content-type", *(name.lower() for name in fields)
    }  # fmt: skip
    kind = TYPES.fullmatch(head.one(b"content-type") or b"")
    assert kind is not None
    assert kind[1].lower() == b"plain", "a link of HTML leads to another page"
    assert not 300 <= head.status < 400
