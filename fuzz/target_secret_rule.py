"""Fuzz target: a call that a secret is added to (`proto.verbs.secret`).

Its corpus is `corpus/secret_rule`: a method and a target in one line, then fields.
"""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote, urlsplit

from proto.codecs.http1 import RequestReader
from proto.errors import ProxyError
from proto.policy.keys import Key
from proto.verbs.bridge import known
from proto.verbs.secret import Held, SecretVerb

CALLER = "C" * 32
TOKEN, LOGIN, HELD = "7:AAHreal-secret", "cmVhbDpzZWNyZXQ=", "lnkPlaceholder"
TELEGRAM = Held(
    "telegram", "api.telegram.org", ["/bot{secret}/{name}", "/file/bot{secret}/{path}"],
    ["/bot{secret}/setWebhook", "/bot{secret}/logOut", "/bot{secret}/close"], None, HELD, TOKEN,
)  # fmt: skip
GITHUB = Held(
    "github", "github.com", ["/{path}"], ["/{name}/delete"],
    ("Authorization", "Basic {secret}"), HELD, LOGIN,
)  # fmt: skip
VERB = SecretVerb([TELEGRAM, GITHUB])
CALLS = {
    "api.telegram.org": re.compile(
        rf"/bot{TOKEN}/[A-Za-z0-9]+|/file/bot{TOKEN}/[\w.~/-]+", re.ASCII
    ),
    "github.com": re.compile(r"/[\w.~/-]+", re.ASCII),
}
REFUSED = re.compile(r"/bot[^/]*/(?:setwebhook|logout|close)|/[a-z0-9]+/delete", re.IGNORECASE)


def one_input(data: bytes) -> None:
    """Judge a call: what goes on is one that the rule allows, with the secret in one place."""
    line, _, more = data.partition(b"\n")
    text = b"%b HTTP/1.1\r\nHost: a\r\nLink-Caller: %b\r\n%b\r\n" % (line, CALLER.encode(), more)
    try:
        found = RequestReader().feed(text)
        if found is None:
            return
        request = known(found[0], Key(CALLER))
        assert VERB.reads(request) == 0
        outgoing = VERB.call(request, b"")
    except ProxyError as error:
        if TOKEN in error.message or LOGIN in error.message:
            raise
        return
    target, lines = outgoing.target.decode("ascii"), outgoing.lines.decode("latin-1")
    # A program may send what it has guessed; the rule adds the secret once.
    of_rule = TOKEN if outgoing.host == "api.telegram.org" else LOGIN
    assert (target + lines).count(of_rule) == 1 + data.decode("latin-1").count(of_rule)
    url = urlsplit(f"https://{outgoing.host}{target}")
    assert url.netloc == outgoing.host
    assert not url.fragment
    assert url.path == unquote(url.path) == posixpath.normpath(url.path)
    assert CALLS[outgoing.host].fullmatch(url.path), target
    assert not REFUSED.fullmatch(url.path), target
    assert "link-caller" not in lines.lower()
    for each in lines.split("\r\n")[:-1]:
        assert re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: ?[^\r\n\0]*", each), each
