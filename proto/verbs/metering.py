"""What an answer says of the tokens it took, read without changing a byte of it.

Plain answers tell it once, streamed ones as they go: what comes later stands.  An answer
that can't be read, or that is too long to be held, counts as unmetered; it is passed on as
every other.
"""

from __future__ import annotations

import msgspec

from proto.codecs.http1 import ResponseHead
from proto.codecs.sse import SseReader
from proto.verbs.providers import Usage

PLAIN_MAX_BYTES = 8 * 1024 * 1024
"""The longest plain answer that is held to be read: an image in it may take some megabytes."""

COUNT_MAX = 2**53
"""No answer takes so many tokens: a larger number is no count."""

_COUNTED = b"usage"
"""Every schema has this in the name of the field (`usageMetadata` is Google's)."""


class Tokens(msgspec.Struct, frozen=True, gc=False, rename={"prompt": "input", "answer": "output"}):
    """Tokens of a route's answers, as the counters publish them.

    `requests` for an answer that were answered, and of them those whose answer gave no
    usage, `unmetered`.  Of the others the tokens of the prompts, cached or not, and of the
    answers; and of the prompts, those read from the provider's cache, `cached`, and those
    written to it, `written`.
    """

    requests: int = 0
    unmetered: int = 0
    prompt: int = 0
    answer: int = 0
    cached: int = 0
    written: int = 0

    def counts(self) -> dict[str, int]:
        """Return them by the names that they are published by."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


UNMETERED = Tokens(requests=1, unmetered=1)


class Meter:
    """Reads the usage of one answer from its body's bytes."""

    __slots__ = ("_counts", "_held", "_stream", "_usage")

    def __init__(self, usage: Usage, head: ResponseHead) -> None:
        self._usage = usage
        kind = b"".join(head.get_all(b"content-type")[:1]).partition(b";")[0].strip().lower()
        self._stream = SseReader() if kind == b"text/event-stream" else None
        self._held: bytearray | None = bytearray()
        self._counts: dict[str, int] = {}

    def feed(self, data: bytes) -> None:
        """Take bytes of the body."""
        if self._stream is not None:
            for event in self._stream.feed(data):
                if _COUNTED in event:
                    self._read(event)
        elif self._held is not None:
            self._held += data
            if len(self._held) > PLAIN_MAX_BYTES:
                self._held = None

    def tokens(self) -> Tokens:
        """Return what the answer took, as far as it told; the body has ended, or was cut short."""
        if self._held:
            self._read(bytes(self._held))
            self._held = None
        return _READERS[self._usage](self._counts) if self._counts else UNMETERED

    def _read(self, text: bytes) -> None:
        try:
            said = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        for each in said if isinstance(said, list) else [said]:  # Google's plain stream is a list
            if isinstance(each, dict):
                self._counts |= _counts_in(each)


def _counts_in(said: dict[str, object]) -> dict[str, int]:
    """Return the counts that one message tells, by their names, inner ones by theirs too."""
    counts: dict[str, int] = {}
    for holder in (said, *(said.get(name) for name in ("message", "response", "x_groq"))):
        if not isinstance(holder, dict):
            continue
        for name in ("usage", "usageMetadata"):
            if isinstance(usage := holder.get(name), dict):
                for inner in (usage, *(usage.get(name) for name in _DETAILS)):
                    if isinstance(inner, dict):
                        counts |= {
                            key: n for key, n in inner.items() if key in _NAMES and _is_count(n)
                        }
    return counts


_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_NAMES = frozenset(
    {
        "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
        "prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens",
        "prompt_cache_hit_tokens", "cache_write_tokens", "promptTokenCount",
        "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount",
        "cachedContentTokenCount",
    }
)  # fmt: skip
"""All that is read: of a stream that goes on telling others, each would be kept."""


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < COUNT_MAX


def _anthropic(counts: dict[str, int]) -> Tokens:
    """Sum the prompt's three parts: read from the cache, written to it, and neither."""
    cached = counts.get("cache_read_input_tokens", 0)
    written = counts.get("cache_creation_input_tokens", 0)
    prompt = counts.get("input_tokens", 0) + cached + written
    return Tokens(1, 0, prompt, counts.get("output_tokens", 0), cached, written)


def _chat(counts: dict[str, int]) -> Tokens:
    """Read chat's; where the total has more than both parts, the rest was thought (xAI's)."""
    prompt, answer = counts.get("prompt_tokens", 0), counts.get("completion_tokens", 0)
    answer = max(answer, counts.get("total_tokens", 0) - prompt)
    cached = counts.get("cached_tokens", counts.get("prompt_cache_hit_tokens", 0))
    return Tokens(1, 0, prompt, answer, cached, counts.get("cache_write_tokens", 0))


def _responses(counts: dict[str, int]) -> Tokens:
    return Tokens(
        1,
        0,
        counts.get("input_tokens", 0),
        counts.get("output_tokens", 0),
        counts.get("cached_tokens", 0),
        counts.get("cache_write_tokens", 0),
    )


def _google(counts: dict[str, int]) -> Tokens:
    """Read Google's: thoughts are the answer's, and what tools gave is the prompt's."""
    prompt = counts.get("promptTokenCount", 0) + counts.get("toolUsePromptTokenCount", 0)
    answer = counts.get("candidatesTokenCount", 0) + counts.get("thoughtsTokenCount", 0)
    return Tokens(1, 0, prompt, answer, counts.get("cachedContentTokenCount", 0))


_READERS = {
    Usage.ANTHROPIC: _anthropic,
    Usage.CHAT: _chat,
    Usage.RESPONSES: _responses,
    Usage.GOOGLE: _google,
}
