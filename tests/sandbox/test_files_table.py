"""What each way to name files shows, as tables: overlapping, nested, linked, missing, no folders.

A row of the first table is data against data; a row of the second is seen inside, as root and
as a user.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from typing import Any

import pytest

from sandbox.errors import LaunchError
from sandbox.linux import bubblewrap, facts
from sandbox.linux import plan as p
from sandbox.linux.values import replaced
from tests.sandbox import lnk
from tests.sandbox.test_plan import HOME, STATE, confined, machine, view
from tests.sandbox.test_walls import try_out

W, R = "write", "read"

TABLE: list[tuple[str, dict[str, tuple[str, ...] | bool], dict[str, str]]] = [
    # overlapping
    ("the same folder read and written is written", {W: ("/w",), R: ("/w",)}, {"/w": "write"}),
    ("a folder named twice is one", {W: ("/w", "/w")}, {"/w": "write"}),
    ("read twice is one", {R: ("/r", "/r")}, {"/r": "read"}),
    # nested
    ("a written folder in a written one is the same mount", {W: ("/w", "/w/a/b")}, {"/w": "write"}),
    ("a read folder in a read one is the same mount", {R: ("/r", "/r/a")}, {"/r": "read"}),
    ("a written folder in a read one is written", {R: ("/r",), W: ("/r/a/b",)},
     {"/r": "read", "/r/a/b": "write"}),
    ("a read folder in a written one is read only, its parents stay", {W: ("/w",), R: ("/w/a/b",)},
     {"/w": "write", "/w/a": "pin", "/w/a/b": "read"}),
    ("three deep: written, read, written", {W: ("/w", "/w/a/b/c"), R: ("/w/a",)},
     {"/w": "write", "/w/a": "read", "/w/a/b/c": "write"}),
    ("a name that only begins alike is another folder", {W: ("/w",), R: ("/wider",)},
     {"/w": "write", "/wider": "read"}),
    ("siblings stay apart", {W: ("/a/x",), R: ("/a/y",)}, {"/a/x": "write", "/a/y": "read"}),
    # home
    ("nothing of home unless named", {}, {HOME: "own"}),
    ("a folder of home is that alone", {R: (f"{HOME}/a",)}, {HOME: "own", f"{HOME}/a": "read"}),
    ("read_home reads it, Link's settings closed", {"read_home": True},
     {HOME: "read", STATE: "mask"}),
    ("a written folder in a home that is read", {"read_home": True, W: (f"{HOME}/a",)},
     {HOME: "read", f"{HOME}/a": "write", STATE: "mask"}),
    ("read_home in a written home changes nothing", {"read_home": True, W: (HOME,)},
     {HOME: "write", STATE: "mask"}),
    # hide
    ("hide in a folder that is read", {R: ("/r",), "hide": ("/r/h",)},
     {"/r": "read", "/r/h": "hidden"}),
    ("hide deep in a written one pins its parents", {W: ("/w",), "hide": ("/w/a/b/h",)},
     {"/w": "write", "/w/a": "pin", "/w/a/b": "pin", "/w/a/b/h": "hidden"}),
    ("what write reopens in it", {R: ("/r",), "hide": ("/r/h",), W: ("/r/h/mine",)},
     {"/r": "read", "/r/h": "hidden", "/r/h/mine": "write"}),
    ("what read reopens in it", {R: ("/r", "/r/h/theirs"), "hide": ("/r/h",)},
     {"/r": "read", "/r/h": "hidden", "/r/h/theirs": "read"}),
    ("two reopened, at two depths", {W: ("/w", "/w/h/a", "/w/h/b/c"), "hide": ("/w/h",)},
     {"/w": "write", "/w/h": "hidden", "/w/h/a": "write", "/w/h/b/c": "write"}),
    ("hide in what is reopened", {R: ("/r", "/r/h/mine"), "hide": ("/r/h", "/r/h/mine/not")},
     {"/r": "read", "/r/h": "hidden", "/r/h/mine": "read", "/r/h/mine/not": "hidden"}),
    ("hide in hide is one", {R: ("/r",), "hide": ("/r/h", "/r/h/x")},
     {"/r": "read", "/r/h": "hidden"}),
    ("hide of what nothing shows", {"hide": ("/else",)}, {HOME: "own"}),
    ("hide of home's folder with read_home", {"read_home": True, "hide": (f"{HOME}/h",)},
     {HOME: "read", f"{HOME}/h": "hidden", STATE: "mask"}),
    # the system's
    ("what Link runs in a written folder of the system's", {W: ("/usr/bin",)},
     {"/usr/bin": "write", "/usr/bin/bwrap": "read", "/usr/bin/python3.11": "read"}),
    # Link's settings
    ("settings in a written folder above home", {W: ("/home/ann",)},
     {HOME: "write", STATE: "mask"}),
    ("settings that hide names are closed once", {"read_home": True, "hide": (STATE,)},
     {HOME: "read", STATE: "mask"}),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "shown"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_what_is_named_is_what_is_shown(keys, shown):
    assert seen(keys) == {HOME: "own", **shown} if HOME not in shown else seen(keys) == shown


def seen(keys: dict[str, Any], files: tuple[str, ...] = ()) -> dict[str, str]:
    named = [path for key in (W, R, "hide") for path in keys.get(key, ())]
    here = machine([path for path in named if path not in files], files)
    return view(p.plan(confined(**keys), here))


@pytest.mark.parametrize(("keys", "shown"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_no_mount_comes_before_one_that_holds_it(keys, shown):
    named = [path for key in (W, R, "hide") for path in keys.get(key, ())]
    given = bubblewrap.arguments(p.plan(confined(**keys), machine(named)))
    flags = ("--bind-fd", "--ro-bind-fd", "--tmpfs")
    order = [str(given[at + (1 if given[at] == "--tmpfs" else 2)])
             for at, one in enumerate(given) if one in flags]  # fmt: skip
    for at, path in enumerate(order):
        assert not [later for later in order[at + 1 :] if path.startswith(f"{later}/")], path


REFUSED: list[tuple[str, dict[str, tuple[str, ...]], facts.Found | None, str]] = [
    *((f"{key} of {path}", {key: (path,)}, None, "which no sandbox opens whole: name what of it")
      for key in (W, R) for path in ("/", "/etc", "/home", "/var", "/tmp")),
    *((f"{key} of {path}", {key: (path,)}, None, f"no sandbox shows anything of {place}: leave it")
      for key in (W, R) for path, place in (
          ("/run", "/run"), ("/run/media/ann/disk", "/run"), ("/proc", "/proc"),
          ("/proc/self", "/proc"), ("/sys/fs", "/sys"), ("/dev", "/dev"), ("/dev/shm", "/dev"))),
    *((f"{key} of a missing path", {key: ("/x/y",)}, facts.Found(facts.MISSING, "/x/y"),
       "which does not exist: ") for key in (W, R)),
    *((f"{key} of a link", {key: ("/x/y",)}, facts.Found(facts.LINK, "/secret"),
       "a link to /secret: name that instead") for key in (W, R)),
    *((f"{key} by a link on the way", {key: ("/x/y",)}, facts.Found(facts.FOLDER, "/z/y"),
       "a link to /z/y: name that instead") for key in (W, R)),
    *((f"{key} of a socket or device", {key: ("/x/y",)}, facts.Found(facts.OTHER, "/x/y"),
       "which is neither a file nor a folder: ") for key in (W, R)),
    *((f"{key} of what may not be looked at", {key: ("/x/y",)},
       facts.Found(facts.UNREADABLE, "/x/y"), "which you may not look at: ") for key in (W, R)),
    ("write of a file", {W: ("/x/y",)}, facts.Found(facts.FILE, "/x/y"),
     "which is a file: name the folder it lies in"),
    *((f"{key} of {path}", {key: (path,)}, None, "Link's settings stay closed. Leave it out")
      for key in (W, R) for path in (STATE, f"{STATE}/sandbox", f"{STATE}/sandbox/log/x")),
    ("hide of what write names", {W: ("/x",), "hide": ("/x",)}, None, "take it out of one"),
    ("hide of what read names", {R: ("/x",), "hide": ("/x",)}, None, "take it out of one"),
    ("hide of the home that read_home opens", {"hide": (HOME,), R: (HOME,)}, None,
     "take it out of one"),
    ("write of the system's", {W: ("/usr",)}, None, "which no sandbox opens whole"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "found", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_cannot_be_shown_is_refused_by_name_with_a_cure(keys, found, said):
    named = [path for paths in keys.values() for path in paths]
    here = machine(named)
    if found is not None:
        here = replaced(here, paths={**here.paths, named[0]: found})
    with pytest.raises(LaunchError) as caught:
        p.plan(confined(**keys), here)
    assert named[0] in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.exit_code == 125


@pytest.mark.parametrize("keys", [{}, {W: ("/work",)}, {"read_home": True}, {W: (HOME,)}])
def test_nothing_of_run_is_ever_shown(keys):
    shown = view(p.plan(confined(**keys), machine(keys.get(W, ()))))
    assert not [at for at in shown if at in ("/run", "/var", "/sys") or at.startswith("/run/")]


# -- seen inside --------------------------------------------------------------------------------


@pytest.fixture
def tree(who: lnk.Account, folder: str) -> str:
    """Folders with a file in each, links, and what is no folder."""
    for name in ("w/a/b", "w/h/mine/deep", "r/a/b", "wider", "elsewhere"):
        os.makedirs(f"{folder}/{name}")
    for above, _, _ in list(os.walk(folder)):
        with open(f"{above}/file", "w") as file:
            file.write("x")
    os.symlink("elsewhere", f"{folder}/link")
    os.symlink(f"{folder}/elsewhere", f"{folder}/r/out")
    os.mkfifo(f"{folder}/pipe")
    subprocess.run(["chown", "-hR", f"{who.uid}:{who.gid}", folder], check=True)
    return folder


INSIDE: list[tuple[str, dict[str, Any], list[str], list[str], list[str], list[str]]] = [
    # keys; files read, files not read; folders in which a file is made, and where not
    ("nested", {W: ["w"], R: ["w/a/b"]},
     ["w/file", "w/a/file", "w/a/b/file"], ["r/file", "wider/file"], ["w", "w/a"], ["w/a/b", "r"]),
    ("written in read", {R: ["r"], W: ["r/a/b"]},
     ["r/file", "r/a/b/file"], ["w/file", "r/out/file"], ["r/a/b"], ["r", "r/a"]),
    ("hidden and reopened", {W: ["w", "w/h/mine"], "hide": ["w/h"]},
     ["w/file", "w/h/mine/file", "w/h/mine/deep/file"], ["w/h/file"], ["w/h/mine"], ["w/h"]),
    ("hidden in what is read", {R: ["r"], "hide": ["r/a"]},
     ["r/file"], ["r/a/file", "r/a/b/file"], [], ["r", "r/a"]),
    ("a file alone", {R: ["r/file"]}, ["r/file"], ["r/a/file"], [], ["/"]),
    ("all of home", {"read_home": True}, ["w/file", "link/file", "r/out/file"], [], [], ["w", "."]),
    ("all of home but", {"read_home": True, "hide": ["w"], W: ["w/h/mine"]},
     ["r/file", "w/h/mine/file"], ["w/file", "w/a/file"], ["w/h/mine"], ["w", "w/h"]),
    ("the same read and written", {R: ["w"], W: ["w"]}, ["w/file"], [], ["w", "w/a/b"], []),
    ("a name that begins alike", {W: ["w"]}, [], ["wider/file"], ["w"], ["wider"]),
    ("a prefix of temp names", {"tmp_prefix": "mine"}, [], ["w/file"], ["/tmp"], ["/"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "read", "unread", "made", "unmade"),
    [r[1:] for r in INSIDE],
    ids=[r[0] for r in INSIDE],
)
def test_what_is_named_is_what_is_seen(installed, who, tree, keys, read, unread, made, unmade):
    def whole(path: str) -> str:
        return path if path.startswith("/") else os.path.normpath(f"{tree}/{path}")

    given = {key: [whole(path) for path in value] if isinstance(value, list) else value
             for key, value in keys.items()}  # fmt: skip
    told = {
        "reads": [whole(path) for path in (*read, *unread)],
        "makes": [f"{whole(path)}/made" for path in (*made, *unmade)],
    }
    found = try_out(installed, who, told, **given)
    for path in read:
        assert found["reads"][whole(path)] == "open", path
    for path in unread:
        assert found["reads"][whole(path)] in ("ENOENT", "EACCES"), path
    for path in made:
        assert found["makes"][f"{whole(path)}/made"] == "open", path
    for path in unmade:
        refused = found["makes"][f"{whole(path)}/made"]
        # In its own home, the empty folders above what is shown are the sandbox's own.
        assert refused in ("ENOENT", "EACCES", "EROFS"), (path, refused)


@pytest.mark.parametrize(
    ("key", "path", "said"),
    [(W, "missing", "does not exist: make it first"), (R, "missing", ": name what is there"),
     (W, "file", "which is a file"), (W, "link", "a link to"), (R, "link/file", "a link to"),
     (R, "pipe", "neither a file nor a folder"), (W, "pipe", "neither a file nor a folder")],
)  # fmt: skip
def test_what_is_no_such_thing_is_refused_before_anything_starts(
    installed, who, tree, key, path, said
):
    confinement = {"name": "box", W: [], R: [], "commands": "any", "net": "closed",
                   key: [f"{tree}/{path}"]}  # fmt: skip
    request = json.dumps({"confinement": confinement, "argv": ["true"]})
    done = installed.run(who, "wrap", input=request)
    assert (done.returncode, done.stdout) == (125, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_folder_that_became_a_link_since_is_refused_at_the_start(installed, who, tree):
    command = installed.wrapped(who, ["true"], read=[f"{tree}/r"])
    os.rename(f"{tree}/r", f"{tree}/was")
    os.symlink("elsewhere", f"{tree}/r")
    done = lnk.run(who, command)
    assert done.returncode == 125
    assert "leads elsewhere by a link" in done.stderr


def test_sockets_of_run_are_not_there_whatever_is_open(installed, who):
    run = "/run/lnk-tests.sock" if who.uid == 0 else None
    paths = ["/run/dbus/system_bus_socket", "/run/systemd/private", "/var/run/docker.sock"]
    made = None
    if run is not None:
        made = socket.socket(socket.AF_UNIX)
        made.bind(run)
        made.listen()
        paths.append(run)
    try:
        for keys in ({}, {"read_home": True}, {"write": [who.home]}):
            found = try_out(installed, who, {"unix": paths, "lists": ["/run", "/var/run"]}, **keys)
            assert set(found["unix"].values()) == {"ENOENT"}
            assert found["lists"]["/run"] == "ENOENT"
    finally:
        if made is not None and run is not None:
            made.close()
            os.unlink(run)
