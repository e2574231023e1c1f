"""Hundreds of attempts inside a sandbox: none gets through, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from sandbox.linux.landlock import SCOPE_ABI, abi
from tests.attack.world import World, argv, world
from tests.sandbox import lnk
from tests.sandbox.people import PEOPLE, folder_of
from tests.sandbox.test_walls import Canary

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GROUPS = ("files", "dot files", "/proc", "devices", "capabilities", "namespaces", "calls", "ipc",
          "sockets", "descriptors", "terminals")  # fmt: skip
OPEN_ON_THE_MACHINES_NETWORK = ("sockets: AF_INET", "sockets: a way to", "sockets: look up",
                                "namespaces: be in the machine's net",
                                "capabilities: listen on a port below")  # fmt: skip


@pytest.fixture
def canary(open_folder: str) -> Iterator[Canary]:
    made = Canary(open_folder)
    yield made
    made.close()
    os.unlink(made.path)


@pytest.fixture
def attacked(
    installed: lnk.Installed, who: lnk.Account, folder: str, canary: Canary
) -> Iterator[World]:
    with world(installed, who, folder, canary) as made:
        yield made


def attack(installed, attacked: World, net: str, **told: object) -> dict[str, str]:
    """Make every attempt in one sandbox; return what became of each."""
    words = argv(installed, {**attacked.told, **told})
    command = installed.wrapped(attacked.who, words, **attacked.confinement(net))
    return json.loads(started(attacked, command))


def started(attacked: World, command: list[str], timeout_s: float = lnk.LONG_S) -> str:
    """Run a command in the foreground of a terminal, as a person starts it; return what it said."""
    command = ["setsid", "--ctty", "--wait", *command]
    control, terminal = os.openpty()
    os.fchown(terminal, attacked.who.uid, attacked.who.gid)
    crossing = os.open(attacked.told["unnamed"], os.O_RDONLY)
    try:
        done = lnk.run(attacked.who, command, stdin=terminal, pass_fds=[crossing],
                       environ={"LNK_MARKER": attacked.told["marker"][::-1]},
                       timeout=timeout_s)  # fmt: skip
    finally:
        for fd in (control, terminal, crossing):
            os.close(fd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("net", ["closed", "proxied", "listed"])
def test_no_attempt_gets_through(installed, attacked, canary, net):
    found = attack(installed, attacked, net)
    groups = Counter(name.partition(":")[0] for name in found)
    print(len(found), dict(groups))
    assert set(groups) == set(GROUPS)
    assert len(found) >= 500  # as SECURITY.md says
    through = [name for name, word in found.items() if word == "open"]
    assert not through
    assert not [(name, word) for name, word in found.items() if word.startswith("broken")]
    assert canary.touched == []
    assert not os.path.exists(f"{attacked.project}/stolen")


@pytest.mark.skipif(abi() < SCOPE_ABI, reason="kernel: Landlock scopes came with ABI 6")
def test_on_the_machines_network_only_its_network_is_open(installed, attacked):
    found = attack(installed, attacked, "host")
    through = [name for name, word in found.items() if word == "open"]
    assert not [n for n in through if not n.startswith(OPEN_ON_THE_MACHINES_NETWORK)]
    assert through


NO_WALL_TO_AN_ORDINARY_USER = ("mount /opt", "mount /usr", "mount /etc/", "mount /proc/keys",
                               "flag --unshare-user", "flag --disable-userns")  # fmt: skip
"""What the machine's own permissions hold, and what bubblewrap gives any user's sandbox."""
GUARDED_AT_LEAST = 0.9


@pytest.fixture
def strongest(
    installed: lnk.Installed, people: dict[str, lnk.Account], canary: Canary
) -> Iterator[World]:
    """The world of who could do most: root's, where the tests may be root."""
    who = people[PEOPLE[0]]
    with folder_of(who) as folder, world(installed, who, folder, canary) as made:
        yield made


@pytest.mark.timeout(900)
def test_nine_in_ten_walls_are_guarded_by_an_attempt(installed, strongest):
    """Without each wall of the plan in turn, something gets through.

    Not guarded here are bubblewrap's --die-with-parent (test_launcher kills each part of a
    running sandbox), calls that no kernel of today has, and what the kernel itself refuses.
    """
    source = ""
    for name in ("sandbox/mutants.py", "attack/mutated.py"):
        with open(os.path.join(TESTS, name)) as file:
            source += file.read().replace("from __future__ import annotations\n", "")
    *program, told = argv(installed, strongest.told)
    request = {"confinement": strongest.confinement("proxied"), "argv": program,
               "told": json.loads(told)}  # fmt: skip
    start = f"import sys\nsys.path.append({installed.folder!r})\n"
    command = [installed.python, "-I", "-S", "-c", start + source, json.dumps(request)]
    found = json.loads(started(strongest, command, 880))
    if strongest.who.uid != 0:
        found = {wall: through for wall, through in found.items()
                 if not wall.startswith(NO_WALL_TO_AN_ORDINARY_USER)}  # fmt: skip
    guarded = [wall for wall, through in found.items() if through]
    ratio = len(guarded) / len(found)
    print(f"{len(guarded)} of {len(found)} walls are guarded ({ratio:.1%}); not:",
          sorted(set(found) - set(guarded)))  # fmt: skip
    assert len(found) > 40
    assert not [wall for wall, through in found.items() if isinstance(through, str)]
    assert ratio >= GUARDED_AT_LEAST
