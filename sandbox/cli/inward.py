"""Calls from outside into a sandbox that reaches its proxy: by the `in.sock` of their folder.

The relay inside listens there, and whoever writes the folder may have put anything in its
place: so it is connected to by a descriptor that was looked at (`Folder.inside`).
"""

from __future__ import annotations

import errno
import os
import socket

from proto.calls.raw import served_call
from sandbox.linux.socket_maker import serve_outside
from sandbox.linux.wire_folder import Folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proto.calls.limits import Limits
    from proto.calls.ways import Ways
    from shells.env import MakeScript


class Inward:
    """A sandbox's network as a shell needs it (`shells.env.Inside`), as far as it is reached."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def listener(self, address: str, port: int) -> socket.socket:
        """Raise OSError: a proxy apart makes no sockets in the sandbox's network."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def connector(self, address: str) -> socket.socket:
        """Return a socket that connects by `in.sock`; the relay knows what a port is."""
        return InSocket(self._folder)

    def script_at(self, address: str, port: int) -> MakeScript:
        """Raise OSError, as `listener`."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


class InSocket(socket.socket):
    """A socket that is connected to a port inside by way of the relay there."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._folder = folder

    def connect_ex(self, address: object, /) -> int:
        """Connect, and tell the relay which port is meant; return 0 or an errno."""
        assert isinstance(address, tuple)
        try:
            fd = self._folder.inside()
        except OSError:
            return errno.ECONNREFUSED  # nobody who may be trusted listens there
        try:
            super().connect(f"/proc/self/fd/{fd}")
            self.send(b"%d\n" % address[1])  # which a new socket's buffer has room for
        except OSError as error:
            return error.errno or errno.ECONNREFUSED
        finally:
            os.close(fd)
        return 0


def served(ports: list[int], limits: Limits, ways: Ways) -> list[tuple[socket.socket, MakeScript]]:
    """Listen at ports of this machine's loopback, for the sandbox's own; raises LaunchError."""

    def at(port: int) -> MakeScript:
        return lambda now: served_call(limits, ways, port, now)

    made = zip(ports, serve_outside(ports), strict=True)
    return [(socket.socket(fileno=fd), at(port)) for port, fd in made]
