"""What events tell by name: why something failed, why we ended it, where an address leads.

Apart from the events themselves, so that a policy can be read and judged without msgspec.
"""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Why the world failed a command; a shell maps every OSError to one of these."""

    TIMED_OUT = "timed out"
    RESET = "connection reset"
    REFUSED = "connection refused"
    UNREACHABLE = "unreachable"
    UNRESOLVED = "name not found"
    UNTRUSTED = "its certificate is not trusted"
    EXHAUSTED = "out of descriptors or memory"
    BROKEN = "input or output error"


class Cause(Enum):
    """Why we ended a call ourselves."""

    STOPPED = "the wire is stopped"
    PAUSED = "the wire is paused"
    UNSEEN = "whether the wire is stopped can't be read"
    SHUTDOWN = "the proxy is shutting down"
    UNLOGGED = "the log can't be written"
    """Every call is on the log, so one that can't be logged doesn't happen (R38)."""


class Place(Enum):
    """Where an address leads, as this machine's kernel says (RTM_GETROUTE, bind)."""

    ELSEWHERE = "elsewhere"
    OWN_NETWORK = "a network this machine stands on"
    THIS_MACHINE = "this machine"
    MANY = "broadcast, multicast or anycast"
