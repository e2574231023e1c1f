"""Where routes are mounted: every other spelling of a path is nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.calls.mounts import NO_MOUNTS, Mount, Mounts
from proto.errors import NoSuchRoute
from proto.policy.keys import Key

SECRET = "s" * 20
TELEGRAM = Mount(b"secret/telegram", "secret", "secret", b"/telegram")
MODEL = Mount(b"model/openai", "model", "model", b"/openai")
NOTES = Mount(b"mcp/notes", "tool", "tool", b"/notes", needs_secret=True)
LOCAL = Mount(b"local/11434", "local", needs_secret=True, host="localhost", port=11434)
OPEN = Mount(b"open", "open", "open", needs_secret=True)
OTHER = Mount(b"other", "bridge", "bridge other")
MOUNTS = Mounts([TELEGRAM, MODEL, NOTES, LOCAL, OPEN, OTHER], secret=Key(SECRET))


@pytest.mark.parametrize(
    ("target", "mount", "below"),
    [
        (b"/_link/secret/telegram/botX/getMe?a=1", TELEGRAM, b"/telegram/botX/getMe?a=1"),
        (b"/_link/secret/telegram", TELEGRAM, b"/telegram"),
        (b"/_link/secret/telegram?a", TELEGRAM, b"/telegram?a"),
        (b"/_link/secret/telegram//x", TELEGRAM, b"/telegram//x"),
        (b"/_link/model/openai/v1/models", MODEL, b"/openai/v1/models"),
        (b"/_link/s/%s/mcp/notes" % SECRET.encode(), NOTES, b"/notes"),
        (b"/_link/s/%s/local/11434/v1/models" % SECRET.encode(), LOCAL, b"/v1/models"),
        (b"/_link/s/%s/local/11434" % SECRET.encode(), LOCAL, b"/"),
        (b"/_link/s/%s/open" % SECRET.encode(), OPEN, b"/"),
        (b"/_link/s/%s/open?x" % SECRET.encode(), OPEN, b"/?x"),
        (b"/_link/other", OTHER, b"/"),
        (b"/_link/other/a/b?c", OTHER, b"/a/b?c"),
        (b"/_link/other/?", OTHER, b"/?"),
    ],
)
def test_a_mounted_path_is_found(target: bytes, mount: Mount, below: bytes) -> None:
    assert MOUNTS.find(target) == (mount, below)


@pytest.mark.parametrize(
    "target",
    [
        b"/", b"/_link", b"/_link/", b"/_link//secret/telegram", b"/_link/secret",
        b"/_link/secret/",
        b"/_link/secret/slack/x", b"/_link/secret/TELEGRAM/x", b"/_link/Secret/telegram/x",
        b"/_LINK/secret/telegram/x", b"/_link/secret/telegram2/x", b"/_link/secret/telegra/x",
        b"/_link/secret/%74elegram/x", b"/_link/secret%2ftelegram/x", b"/_link/secret//telegram/x",
        b"/_link/./secret/telegram/x", b"/_link/../_link/secret/telegram/x", b"//_link/other",
        b"/x/_link/other", b"/_link/other2", b"/_link/othe", b"/_link/mcp/notes",
        b"/_link/local/11434/v1/models", b"/_link/open", b"/_link/s", b"/_link/s/",
        b"/_link/s/%s" % SECRET.encode(), b"/_link/s/%s/" % SECRET.encode(),
        b"/_link/s/%s/secret/telegram/x" % SECRET.encode(),
        b"/_link/s/%s/other" % SECRET.encode(), b"/_link/s/%s/local/11435/x" % SECRET.encode(),
        b"/_link/s/%s/local/011434/x" % SECRET.encode(), b"/_link/S/%s/open" % SECRET.encode(),
        b"/_link/s/%s/open" % SECRET[1:].encode(), b"/_link/s/%sx/open" % SECRET.encode(),
        b"/_link/s/%s/open" % SECRET.upper().encode(), b"/_link/s//open", b"/_link/s?/open",
        b"/_link/?secret/telegram/x", b"*",
    ],
)  # fmt: skip
def test_every_other_path_is_nothing(target: bytes) -> None:
    with pytest.raises(NoSuchRoute, match="nothing at this path"):
        MOUNTS.find(target)


def test_without_a_secret_no_route_that_needs_one_is_there() -> None:
    mounts = Mounts([NOTES, OTHER])
    for told in (b"", b"x", SECRET.encode()):
        with pytest.raises(NoSuchRoute):
            mounts.find(b"/_link/s/%b/mcp/notes" % told)
    assert mounts.find(b"/_link/other")[0] is OTHER


def test_a_wire_without_routes_has_none() -> None:
    with pytest.raises(NoSuchRoute):
        NO_MOUNTS.find(b"/_link/secret/telegram/x")


@given(st.binary(max_size=60))
def test_what_is_found_is_spelled_as_it_is_mounted(path: bytes) -> None:
    for target in (b"/_link/" + path, b"/_link/secret/telegram" + path):
        try:
            mount, below = MOUNTS.find(target)
        except NoSuchRoute:
            continue
        assert target.startswith(b"/_link/" + mount.path)
        assert target[len(b"/_link/" + mount.path) :][:1] in (b"", b"/", b"?")
        assert below.startswith(b"/")
