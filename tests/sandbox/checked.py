"""Check a sandbox with each of its walls taken away in turn; behind mutants.py, as one script.

One argument: {"folder", "confinement", "which": "walls" or "grants", "only": names
or null, "sockets": the paths that somebody listens on for as long as this runs; of the machine's
own one may be gone before it is mounted}.  Prints an object: for each mutant, for each probe that
rests on it, its result and why.
"""

import json
import os
import sys


def main() -> None:
    from sandbox.cli import check
    from sandbox.cli.planned import planned
    from sandbox.linux import bubblewrap, canaries
    from sandbox.linux.canaries import Canaries
    from sandbox.linux.checker import run, with_interpreter
    from sandbox.linux.probes import verdict

    told = json.loads(sys.argv[1])
    _, terminal = os.openpty()
    os.close(os.open(os.ttyname(terminal), os.O_RDWR))  # it is this session's now
    request = json.dumps({"confinement": told["confinement"]}).encode()
    confinement = check.read_request(request)
    plan, facts = planned(confinement)
    plan, _ = with_interpreter(check.apart(plan, confinement), facts.own)
    canaries.listening_sockets = lambda: told["sockets"]
    original = bubblewrap.arguments
    found = {}
    with check.Login(confinement, plan), Canaries(plan.home) as outside:
        probes = check.probes_of(confinement, plan, outside)
        if told["which"] == "walls":
            made = walls(plan, outside, outside.arch)  # noqa: F821
            due = ("closed", "gap")
        else:
            made = grants(plan, outside.arch)  # noqa: F821
            due = ("granted",)
        for name, (mutant, change) in made.items():
            mine = [probe for probe in probes if probe.wall == name and probe.due in due]
            if not mine or (told["only"] is not None and name not in told["only"]):
                continue
            bubblewrap.arguments = lambda plan, change=change: change(original(plan))
            try:
                answers = run(mutant, facts.own, mine, outside)
            except Exception as error:
                found[name] = {"": ["error", str(error)]}
                continue
            found[name] = {
                probe.what: verdict(probe, told_)
                for probe, told_ in zip(mine, answers, strict=True)
            }
        if told["which"] == "walls":
            found |= without_any(plan, facts.own, probes, outside)
        found["all"] = {probe.what: [probe.due, probe.wall] for probe in probes}
    print(json.dumps(found))


def without_any(plan, own, probes, outside):
    """Run what rests on the launcher, or on the kernel, with no sandbox at all.

    And the proxy's own, at one that lets everything through.
    """
    import socket
    import threading

    from sandbox.linux import packing
    from sandbox.linux.checker import run
    from sandbox.linux.probes import verdict
    from sandbox.linux.values import replaced

    mine = [probe for probe in probes if probe.wall in ("", "filter all") and probe.due == "closed"]
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            made, _ = server.accept()
            made.recv(4096)
            made.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            made.close()

    threading.Thread(target=serve, daemon=True).start()
    port = server.getsockname()[1]
    for probe in probes:
        if probe.wall in ("proxy guard", "proxy paths"):
            tries = tuple((verb, port, *rest) for verb, _, *rest in probe.tries)
            mine.append(replaced(probe, tries=tries))
    before = packing.command
    packing.command = lambda plan, own, argv: argv
    try:
        answers = run(plan, own, mine, outside)
    finally:
        packing.command = before
    return {
        "no sandbox": {
            probe.what: verdict(probe, told) for probe, told in zip(mine, answers, strict=True)
        }
    }


main()
