"""The ways out beside the network: which routes a wire has, and where each is mounted (5.2).

A path is compared as it came, byte for byte.  It is never decoded or tidied, so no other
spelling of a mounted path reaches anything.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proto.errors import NoSuchRoute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proto.policy.keys import Key  # brings hashlib, which a wire without routes never needs

PREFIX = b"/_link/"
WITH_SECRET = b"/_link/s/"


class Mount(msgspec.Struct, frozen=True, gc=False):
    """One route.

    `path`: where it is mounted below `/_link/`, or below `/_link/s/<secret>/` where it
    `needs_secret`; one step or two.  `bridge`: whom its calls go to, empty for a local model,
    which the proxy serves itself.  `below`: where on that bridge it stands.  `verb`, `host`
    and `port` are for the log.
    """

    path: bytes
    verb: str
    bridge: str = ""
    below: bytes = b""
    needs_secret: bool = False
    host: str = ""
    port: int = 0


class Mounts:
    """A wire's routes, and what its calls are known by.

    `caller`: what the proxy tells its bridges; `secret`: what it is told in a path, without
    which routes that need one aren't there.  `sandbox` is the wire's name.
    """

    __slots__ = ("_closed", "_open", "_secret", "caller", "sandbox")

    def __init__(
        self,
        mounts: Iterable[Mount] = (),
        *,
        caller: Key | None = None,
        secret: Key | None = None,
        sandbox: str = "",
    ) -> None:
        every = tuple(mounts)
        self._open = {each.path: each for each in every if not each.needs_secret}
        self._closed = {each.path: each for each in every if each.needs_secret}
        self._secret = secret
        self.caller = caller
        self.sandbox = sandbox

    def find(self, target: bytes) -> tuple[Mount, bytes]:
        """Return the route of an origin-form target, and the target on its bridge.

        Raises NoSuchRoute (404), whatever is wrong: a wrong secret tells nothing either.
        """
        path, question, query = target.partition(b"?")
        found = None
        if path.startswith(WITH_SECRET):
            told, _, rest = path[len(WITH_SECRET) :].partition(b"/")
            if self._secret is not None and self._secret.is_told(told):
                found = _longest(self._closed, rest)
        elif path.startswith(PREFIX):
            found = _longest(self._open, path[len(PREFIX) :])
        if found is None:
            raise NoSuchRoute("this is a proxy, and there is nothing at this path of its own.")
        mount, rest = found
        return mount, (mount.below + rest or b"/") + question + query


def _longest(table: dict[bytes, Mount], path: bytes) -> tuple[Mount, bytes] | None:
    """Return what is mounted at the first two steps of a path, or at its first."""
    first, slash, rest = path.partition(b"/")
    second = rest.partition(b"/")[0]
    for at in (first + slash + second, first):
        if at in table:
            return table[at], path[len(at) :]
    return None


NO_MOUNTS = Mounts()
