"""Fuzz target: the head of a call to a hosted model (`proto.verbs.model.read_call`).

Its corpus is `corpus/model_path`: a provider, a method and a target in one line, then fields.
"""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote, urlsplit

from proto.codecs.http1 import RequestHead, RequestReader
from proto.errors import ProxyError
from proto.verbs.model import ModelRoute, read_call
from proto.verbs.providers import PROVIDERS

KEY, HELD = "sk-real-key", "lnk-placeholder"
CALLS = re.compile(
    r"POST (?:/v1/messages(?:/count_tokens)?|(?:/api|/openai)?/v1/(?:chat/completions|responses"
    r"|embeddings|fim/completions|responses/input_tokens)|/chat/completions"
    r"|/v1(?:beta)?/models/[^/:]+:(?:generateContent|streamGenerateContent|countTokens"
    r"|embedContent|batchEmbedContents))"
    r"|GET (?:(?:/api|/openai)?/v1(?:beta)?/models|/models)"
)


def one_input(data: bytes) -> None:
    """Judge a head: what goes on is one of the known calls, however its target is read."""
    about, _, fields = data.partition(b"\n")
    provider, _, line = about.decode("latin-1").partition(" ")
    method, _, target = line.partition(" ")
    if provider not in PROVIDERS:
        return
    route = ModelRoute.of(PROVIDERS[provider], KEY, HELD, server_tools=False, listed=True)
    text = f"{method} /x{target} HTTP/1.1\r\nHost: x\r\n".encode("latin-1") + fields + b"\r\n"
    try:
        found = RequestReader().feed(text)
        if found is None:
            return
        head: RequestHead = found[0]
        call = read_call(route, head, head.target.removeprefix(b"/x"))
    except ProxyError:
        return
    sent = call.target.decode("ascii")
    path = urlsplit(f"https://host{sent}").path
    assert path == sent.partition("?")[0] == unquote(path) == posixpath.normpath(path)
    assert urlsplit(f"https://host{sent}").netloc == "host"
    assert CALLS.fullmatch(f"{head.method} {path}"), sent
    assert call.lines.count(KEY.encode()) == 1
    assert HELD.encode() not in call.lines + call.target
