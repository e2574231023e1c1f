"""How long a call may wait and how much it may hold (5.1, R30, R33, R43).

Every command that waits takes its deadline from here; timeouts live nowhere else.
"""

from __future__ import annotations

import msgspec

PIECE_BYTES = 64 * 1024 - 64
"""The most that one Receive takes: with the framing of a chunk round it, a direction
holds 64 KiB (R43)."""

DRAIN_MAX_BYTES = 64 * 1024
"""Of an unwanted body this much is read, so that the connection can be kept; a longer
one costs more than a new connection."""

INTERIM_MAX = 100
"""Interim answers (1xx) to one request.  A long WebDAV call sends one every 20 s
(RFC 2518 §10.1); a server that sends them without end only burns our time."""


class Limits(msgspec.Struct, frozen=True, gc=False):
    """Seconds."""

    head_s: float = 30.0
    """From a head's first byte to its last, and from a connection's start to its first."""

    keepalive_s: float = 75.0
    """From an answer to the next request's first byte: what nginx grants, and longer than
    the pools of clients keep a connection that they mean to use."""

    setup_s: float = 10.0
    """To resolve, check and connect, all together."""

    hello_s: float = 10.0
    """From the 200 to the end of the ClientHello."""

    idle_s: float = 4 * 3600.0
    """Without a byte either way in a tunnel, an upgraded connection or a plain exchange.
    A shell left open over lunch and a model that thinks must live; a peer that has
    vanished is told by the kernel's keepalive long before."""

    grace_s: float = 2.0
    """For a last answer to go out and be read."""

    parting_s: float = 0.5
    """The same when the call is cancelled: open calls end within two seconds (R37)."""
