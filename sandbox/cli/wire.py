"""Serve a sandbox's wire on the listener that was made inside it, in a process of its own."""

from __future__ import annotations

import os
import socket
import sys

from sandbox.cli.serving import WireSettings, run_wire
from sandbox.exits import exit_failed, read_login
from sandbox.linux.wire_folder import Folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

    from proto.policy.records import Ending, Refusal
    from sandbox.linux.socket_maker import Doors


def serve_wire(
    wire: dict[str, Any],
    doors: Doors,
    stopped: int,
    on_ready: Callable[[], None],
    tell: Callable[[Refusal | Ending], None] | None = None,
) -> None:
    """Serve until `stopped` can be read.

    wire: the settings as the plan keeps them.  Raises what `run_wire` does.
    """
    settings = settings_from(wire)
    listeners = [] if doors.main is None else [socket.socket(fileno=doors.main)]
    folders: list[Folder] = []

    def ready() -> None:
        # A proxy whose program has ended by now is killed: it must leave no folder behind.
        on_ready()
        if doors.main is None:
            return  # it joins ports, and is no proxy that could be reached
        folders.append(Folder(wire["dir"]))
        out = folders[0].listen()
        if out >= 0:
            listeners.append(socket.socket(fileno=out))

    try:
        run_wire(
            settings,
            listeners,
            runtimes=_runtimes(wire, doors),
            beside=(wire, doors) if _leads_inside(wire) else None,
            stop_fd=stopped,
            on_ready=ready,
            tell=tell,
            group=os.getpgrp(),  # the keeper's, which ends all that is in it
        )
    finally:
        for folder in folders:
            folder.close()


def _leads_inside(wire: dict[str, Any]) -> bool:
    """Tell whether there is more to serve than the listener, or a login's answer may come in."""
    opens = wire["routes"] and {"kind": "open"} in wire["routes"]["mounts"]
    return bool(wire["inside"] or wire["serve"] or opens)


def _runtimes(wire: dict[str, Any], doors: Doors) -> dict[int, socket.socket]:
    """Return the listeners inside that stand for local models' runtimes, by their ports."""
    if not wire["routes"]:
        return {}
    from sandbox.mounts import relayed

    wanted = relayed(wire["routes"]["mounts"])
    made = zip(wire["inside"], doors.inside, strict=True)
    return {
        one[2]: socket.socket(fileno=fd) for one, fd in made if one in wanted and fd is not None
    }


def settings_from(wire: dict[str, Any]) -> WireSettings:
    """Return a wire's settings from those that a plan keeps.  Raises LaunchError."""
    return WireSettings(
        wire["hosts"],
        lan=wire["lan"],
        tcp=wire["tcp"],
        no_internet=wire["no_internet"],
        upstream=upstream_of(wire),
        log=wire["log"],
        name=wire["name"],
        routes=wire["routes"] and _of_the_run(wire["routes"]),
        state=wire["state"],
        per_minute=wire["per_minute"],
        serve=wire.get("serve"),
        by=wire.get("by", "wrap"),
    )


def _of_the_run(routes: dict[str, Any]) -> dict[str, Any]:
    """Return routes with what tells a bridge where the run is: its terminal, its program."""
    launcher = os.getppid()
    return {**routes, "front": os.getpgid(launcher), "launcher": launcher}


def upstream_of(wire: dict[str, Any]) -> str:
    """Return the exit, with its login where a file of Link's holds one.  Raises LaunchError."""
    plain: str = wire["upstream"]
    return read_login(wire["login"], plain) if wire["login"] else plain


def _takes(stream: TextIO) -> bool:
    """Tell whether a sentence can be written now.

    A reader who stands still must not stop the wire.  poll(2) promises room for PIPE_BUF
    bytes, more than any sentence has.
    """
    import select

    poll = select.poll()
    poll.register(stream.fileno(), select.POLLOUT)
    return bool(poll.poll(0))


class Teller:
    """Says on stderr what the wire refuses, once a host, with what would allow it.

    It says too that the exit, by which calls leave, doesn't work: that is nothing the program
    could tell from a server that is down.  upstream: the exit as it is written.
    """

    TOLD_MAX = 1000
    """A program that tries names in turn must not fill the terminal, or memory."""

    def __init__(self, spec: str | None, upstream: str = "direct") -> None:
        self.spec = spec
        self.upstream = upstream
        self.told: set[tuple[str, str]] = set()

    def __call__(self, record: Refusal | Ending) -> None:
        """Tell of one refusal, if its host hasn't been told of."""
        from proto.policy.records import Ending  # whoever made the record has it

        seen = ("", record.reason) if isinstance(record, Ending) else (record.host, record.key)
        if seen in self.told or len(self.told) > self.TOLD_MAX or not _takes(sys.stderr):
            return
        self.told.add(seen)
        more = "more hosts are refused than are told here; the wire's log has them all."
        sentence = self.sentence(record) if len(self.told) <= self.TOLD_MAX else more
        print(f"lnk sandbox: {sentence}", file=sys.stderr, flush=True)

    def sentence(self, record: Refusal | Ending) -> str:
        """Return what to print: the flag where there is one, else the key."""
        from proto.policy.records import Ending

        if isinstance(record, Ending):
            return exit_failed(record.reason, self.upstream)
        # Printable as it is: a host in a record is canonical, hence plain ASCII.
        if record.verb == "tool":
            return f"the tool {record.host}: {record.reason}"
        if record.key != "internet.hosts":
            return record.reason
        name = f"[{record.host}]" if ":" in record.host else record.host
        what = f"{name} isn't among the hosts; add --internet-host {record.host}"
        return f"{what}, or [internet] hosts of {self.spec}" if self.spec else what
