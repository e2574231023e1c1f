"""A remote tool's token, taken out of what its server says (R53).

A server that repeats its request, in an error or for debugging, would hand the token to the
program.  Only fields that are taken for secret ones are looked for: the value of another may
be a word that stands in any answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proto.codecs.jsonrpc import Answer, Message, Notification, Object, Request, Value, write
from proto.verbs.masking import SHORT_BYTES
from proto.verbs.spelled import Spelled, credentials

SECRET_WORDS = ("auth", "cookie", "key", "pass", "secret", "session", "token")
"""A field whose name has one of them is taken for one that holds a secret."""


def holds_secret(name: str) -> bool:
    """Tell whether a field is taken for one that holds a secret."""
    return any(word in name.lower() for word in SECRET_WORDS)


class Token:
    """What of a tool's fields its server must not say to the program."""

    __slots__ = ("_spelled",)

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        found = {
            each
            for name, value in fields
            if holds_secret(name)
            for each in _forms(value.encode("ascii"))
            if len(each) >= SHORT_BYTES
        }
        self._spelled = Spelled(found) if found else None

    def __repr__(self) -> str:
        return "Token(...)"

    def out_of(self, message: Message) -> bytes:
        """Print a message as a line, asterisks in the token's stead."""
        # Not in the line itself: a letter there may be half of an escape.
        return write(message if self._spelled is None else self._without(message)) + b"\n"

    def _without(self, message: Message) -> Message:
        match message:
            case Answer():
                return Answer(message.id, self._star(message.result), self._in(message.error))
            case Request():
                return Request(message.id, message.method, self._in(message.params))
            case _:
                return Notification(message.method, self._in(message.params))

    def _in(self, value: Object | None) -> Object | None:
        if value is None:
            return None
        return {self._text(name): self._star(inner) for name, inner in value.items()}

    def _star(self, value: Value) -> Value:
        match value:
            case str():
                return self._text(value)
            case list():
                return [self._star(each) for each in value]
            case dict():
                return self._in(value)
            case _:
                return value

    def _text(self, text: str) -> str:
        assert self._spelled is not None, "something was found"
        # Credentials of no UTF-8 may end within a letter, of which the rest is none.
        return self._spelled.starred(text.encode()).decode("utf-8", "replace")


def _forms(value: bytes) -> Iterator[bytes]:
    """Give a field's value, what of it is the credentials, and what those are made of."""
    last = value.split()[-1]
    yield value
    yield last
    yield last.partition(b"=")[2].rstrip(b";")
    if value.lower().startswith(b"basic "):
        yield from credentials(last)
