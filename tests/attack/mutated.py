"""Attack a sandbox without each of its walls in turn; behind mutants.py, as one script.

One argument: {"confinement", "argv", "told"}.  Prints a JSON object: for each wall, the attempts
that got through without it, or the words by which no sandbox started.
"""

import json
import os
import subprocess
import sys

EVERYTHING = ("/proc", "capabilities", "namespaces", "descriptors", "terminals")
TRIED = {
    "mount /dev": ("devices", "files", "ipc"), "mount /proc": ("/proc",), "mount": ("files",),
    "flag --unshare-net": ("sockets", "namespaces"), "flag --unshare-ipc": ("ipc", "namespaces"),
    "flag": EVERYTHING, "filter sockets": ("sockets",), "filter pairs": ("sockets",),
    "filter terminals": ("terminals",), "filter use keyrings": ("ipc", "calls"),
    "filter clone": ("namespaces",), "filter": ("calls",), "dots": ("dot files",),
    "view": ("files",), "sockets": ("sockets",), "proxy": ("sockets",), "remount": ("files",),
}  # fmt: skip
"""Which attempts a wall could hold, by how its name begins: trying all each time takes minutes."""


def tried(wall: str) -> "tuple[str, ...]":
    """Return the groups of the longest beginning that fits."""
    return TRIED[max((one for one in TRIED if wall.startswith(one)), key=len)]


def main() -> None:
    from sandbox.cli import check
    from sandbox.cli.planned import planned
    from sandbox.linux import bubblewrap, canaries, packing
    from sandbox.linux.canaries import Canaries

    told = json.loads(sys.argv[1])
    request = json.dumps({"confinement": told["confinement"]}).encode()
    confinement = check.read_request(request)
    plan, facts = planned(confinement)
    plan = check.apart(plan, confinement)
    passed = {name: os.environ[name] for name in ("PATH", "HOME", "LNK_MARKER")}
    # Of the machine's own, one that was listed may be gone before it is mounted.
    canaries.listening_sockets = lambda: [told["told"]["path_socket"], told["told"]["read_socket"]]
    original = bubblewrap.arguments
    found = {}
    with check.Login(confinement, plan), Canaries(plan.home) as outside:
        for name, (mutant, change) in walls(plan, outside, outside.arch).items():  # noqa: F821
            bubblewrap.arguments = lambda plan, change=change: change(original(plan))
            argv = [*told["argv"], json.dumps({**told["told"], "groups": tried(name)})]
            done = subprocess.run(
                packing.command(mutant, facts.own, argv), capture_output=True, text=True, stdin=0,
                env={**passed, **mutant.environment}, timeout=300,
            )  # fmt: skip
            if done.returncode != 0:
                found[name] = done.stderr.strip()
                continue
            results = json.loads(done.stdout)
            found[name] = [attempt for attempt, word in results.items() if word == "open"]
    print(json.dumps(found))


main()
