"""Fuzz target: a service's answer, out of which the secret is taken (`proto.verbs.secret`).

Its corpus is `corpus/secret_answer`; the first byte chooses how many bytes come at a time.
"""

from __future__ import annotations

import base64

from proto.verbs.secret import Held, Scrub

TOKEN = "x:se/cret+word"
LOGIN = base64.b64encode(TOKEN.encode()).decode()
HELD = Held(
    "a", "a.example", ["/{path}"], [], ("Authorization", "Basic {secret}"), "lnkHeld", LOGIN
)
FORMS = tuple(
    each.encode()
    for each in (
        LOGIN, LOGIN.replace("=", "%3D"), TOKEN, TOKEN.replace("/", r"\/"), "se/cret+word",
        "se%2Fcret%2Bword", "se%2fcret%2bword", r"se\/cret+word",
    )
)  # fmt: skip

SIGNS = "/+=:"
ESCAPED = {
    way.encode(): sign.encode()
    for sign in SIGNS
    for way in (
        f"\\{sign}", f"%{ord(sign):x}", f"%{ord(sign):X}", f"\\u00{ord(sign):x}",
        f"\\u00{ord(sign):X}", f"&#x{ord(sign):x};", f"&#x{ord(sign):X};", f"&#{ord(sign)};",
    )
}  # fmt: skip


def plain(body: bytes) -> bytes:
    """Return a body with each sign of the secret's written as itself."""
    for way, sign in ESCAPED.items():
        body = body.replace(way, sign)
    return body


def one_input(data: bytes) -> None:
    """Take it out of a body however it is cut: the same comes out, as long as it came in."""
    step, body = (data[0] if data else 0) or 1, data[1:]
    whole, pieces = Scrub(HELD), Scrub(HELD)
    due = whole.body(body) + whole.end()
    came = b"".join(pieces.body(body[at : at + step]) for at in range(0, len(body), step))
    assert came + pieces.end() == due
    assert len(due) == len(body)
    for form in FORMS:
        assert form not in due
    if not any(form in plain(body) for form in FORMS):
        assert due == body
