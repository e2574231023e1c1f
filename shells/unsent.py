"""What of a call's bytes never leaves, where a reset ends it.

A socket takes bytes long before they go: megabytes, where the peer is slow.  A reset drops those
that haven't left yet, so the call's last line doesn't count them, whether the reset comes with
that line or before it.  What was on its way counts: it has left, whether the peer has read it
or not.

A server that makes room just then gets more.  So the side to it is held back, measured and reset
in one go, and the line written after that: else one that works together with the program would
have megabytes that nobody counts.  A segment or two it may still have.
"""

from __future__ import annotations

import fcntl
import socket
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from proto.policy.records import Ending

if TYPE_CHECKING:
    from shells.sides import Stream

SIOCOUTQNSD = 0x894B
"""Linux's ioctl(2) for the bytes of a send queue that were never sent."""
SO_MAX_PACING_RATE = 47
"""Linux's socket option for how many bytes a second may leave, at most."""
SIOCOUTQ = 0x5411
"""Linux's ioctl(2) for the bytes of a send queue that the peer hasn't acknowledged."""
OPEN_TO_US = (1, 8)
"""ESTABLISHED and CLOSE_WAIT: what is queued still goes to the peer."""
LOOK_AGAIN_S = 0.02
"""When a queue is looked at again: the kernel doesn't tell of its end."""
ENDED = (4, 9, 11)
"""FIN_WAIT1, LAST_ACK and CLOSING (net/tcp_states.h): the last place in the queue is the FIN's."""


def without_unsent(record: Ending, up: int, down: int) -> Ending:
    """Return a call's last line without the bytes that never left on either side."""
    return replace(record, up=max(0, record.up - up), down=max(0, record.down - down))


def hold_back(sock: Stream) -> None:
    """Have no more leave than is on its way, whatever room the peer makes.  Raises OSError."""
    if sys.platform == "linux":
        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 1)


def unsent(sock: Stream) -> int:
    """Return how many bytes lie in a side's kernel; 0 where that isn't known.

    Of TLS they are other bytes than the call's, and what a unix socket has taken its peer has.
    """
    state, size = _queue(sock, SIOCOUTQNSD)
    return max(0, size - (state in ENDED))


def is_under_way(sock: Stream) -> bool:
    """Tell whether a side's peer has yet to take some of what it was sent, and may."""
    state, size = _queue(sock, SIOCOUTQ)
    return state in OPEN_TO_US and size > 0


def _queue(sock: Stream, question: int) -> tuple[int, int]:
    """Return the state of a side's TCP and the size of its send queue; 0 for what isn't known."""
    if not isinstance(sock, socket.socket) or sys.platform != "linux":
        return 0, 0
    try:
        (state,) = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        told = fcntl.ioctl(sock, question, bytes(4))
    except OSError:
        return 0, 0
    return state, int.from_bytes(told, sys.byteorder, signed=True)
