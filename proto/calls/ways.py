"""What a wire has beside its policy: the ways in which its calls go on."""

from __future__ import annotations

import msgspec

from proto.calls.mounts import NO_MOUNTS, Mounts
from proto.policy.admission import Admission
from proto.policy.cures import SPEC, Cures
from proto.policy.exits import Exit


class Ways(msgspec.Struct, frozen=True):
    """`exit`: the proxy by which calls to the internet leave this machine; None: directly.

    `mounts`: the wire's routes.
    `admission`: what counts the wire's calls and refusals; None counts nothing.
    `cures`: what refusals tell a person to change.
    """

    exit: Exit | None = None
    mounts: Mounts = NO_MOUNTS
    admission: Admission | None = None
    cures: Cures = SPEC


PLAIN = Ways()
"""Nothing beside the policy."""
