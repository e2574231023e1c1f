"""How a proxy stands: where it listens, whose its folder is, alone or before a program."""

from __future__ import annotations

import re
import socket

from sandbox.cli.flags import Flag, Flags, UsageError, full_path
from sandbox.errors import SandboxError, quoted
from sandbox.linux.wire_folder import OUT, Folder, Shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

FLAGS = (
    Flag("--dir", "FOLDER", "listen at FOLDER/out.sock too, for sandboxes started apart"),
    Flag("--hold", "", "hold no program: stand for sandboxes that reach --dir"),
    Flag("--agent-user", "UID", "the user of those sandboxes, where it isn't the proxy's"),
    Flag("--group", "GID", "the group of --dir then, whose mode is 2770"),
)
ID_MAX = (1 << 32) - 2
"""The last one stands for nobody in system calls."""


class Standing:
    """Where a proxy listens beside the loopback, and for whom.

    `folder` is absolute, None without one.  `argv`: the program that is started, or None.
    """

    __slots__ = ("argv", "folder", "shared")

    def __init__(self, folder: str | None, shared: Shared | None, argv: list[str] | None) -> None:
        self.folder = folder
        self.shared = shared
        self.argv = argv

    @classmethod
    def of(cls, flags: Flags) -> Standing:
        """Read the flags; raises UsageError."""
        folder, argv = flags.one("--dir"), flags.rest
        if folder is not None:
            folder = full_path("--dir", folder)
        if argv is not None and not "".join(argv[:1]):
            raise UsageError("there is no program to run: write it after --, or leave -- out.")
        holds = "--hold" in flags
        if holds and argv is not None:
            raise UsageError("--hold holds no program: leave it out, or -- and the program.")
        if holds and folder is None:
            raise UsageError("--hold is reached by a folder: add --dir FOLDER.")
        if folder is not None and not holds and argv is None and "--listen" not in flags:
            raise UsageError("--dir alone starts nothing: add --hold, or -- and a program.")
        return cls(folder, _shared(flags), argv)

    def open(self) -> AbstractContextManager[tuple[list[socket.socket], Folder | None]]:
        """Open the folder for a block, which gets what listens there, and it; SandboxError."""
        from contextlib import contextmanager

        @contextmanager
        def opened() -> Iterator[tuple[list[socket.socket], Folder | None]]:
            if self.folder is None:
                yield [], None
                return
            folder = Folder(self.folder, self.shared)
            try:
                yield self._listening(folder), folder
            finally:
                folder.close()

        return opened()

    def _listening(self, folder: Folder) -> list[socket.socket]:
        made = folder.listen()
        if made >= 0:
            return [socket.socket(fileno=made)]
        if self.argv is not None:
            return []  # its own program doesn't go this way
        raise SandboxError(
            f"another proxy listens at {self.folder}/{OUT}: end it, or name another --dir.",
            exit_code=2,
        )


def _shared(flags: Flags) -> Shared | None:
    agent, group = _id(flags, "--agent-user"), _id(flags, "--group")
    if agent is None and group is None:
        return None
    if agent is None or group is None:
        missing = "--agent-user UID" if agent is None else "--group GID"
        raise UsageError(f"--agent-user and --group stand together: add {missing}.")
    if "--dir" not in flags:
        raise UsageError("--agent-user and --group say whose --dir is: add --dir FOLDER.")
    return Shared(agent, group)


def _id(flags: Flags, name: str) -> int | None:
    return None if name not in flags else read_id(name, flags.one(name) or "")


def read_id(name: str, text: str) -> int:
    """Read a user's or group's number; raises UsageError."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,9}", text) or int(text) > ID_MAX:
        raise UsageError(
            f"{name} {quoted(text)} is no user's or group's number: write {name} 1000."
        )
    return int(text)
