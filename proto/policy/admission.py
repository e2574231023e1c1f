"""Whether a wire lets one more call begin, and when what it refuses looks wrong (R35, R36).

One `Admission` is shared by all calls of a wire, of every verb.  It holds times and
nothing else: what stands outside (the kill switch, a pause) the shell looks at for each
call (`proto.commands.Look`), and what it says here outlives no process.

A pause ends a busy program's way out, so only what no normal work makes counts, and
loosely: hundreds of refusals, many targets tried in turn, a cloud's metadata service.
"""

from __future__ import annotations

from proto.errors import RateLimited
from proto.policy.addresses import metadata_of
from proto.policy.cures import SPEC
from proto.policy.target import authority

MINUTE_S = 60.0

REFUSALS_MOST = 300
"""In a minute.  A client that tries again with growing pauses makes some thirty."""

TARGETS_MOST = 100
"""Different ones refused in a minute.  A page with all its trackers names some fifty."""

METADATA_NAMES = frozenset(
    {
        "instance-data",  # AWS
        "instance-data.ec2.internal",
        "metadata",  # Google
        "metadata.goog",
        "metadata.google.internal",
        "metadata.azure.internal",
        "metadata.platformequinix.com",
        "metadata.tencentyun.com",
    }
)
"""Names by which clouds' metadata services are asked for; none is on anybody's list by chance."""


class Admission:
    """The calls of a wire's last minute: those let through to be judged, and those refused.

    `per_minute`: the most calls a minute, None for any number, `named` what the person calls
    that.  Times are the shell's monotonic seconds and never go back.
    """

    __slots__ = ("_calls", "_named", "_per_minute", "_refusals", "_targets")

    def __init__(self, per_minute: int | None = None, named: str = SPEC.per_minute) -> None:
        self._per_minute = per_minute
        self._named = named
        self._calls = _Minute()
        self._refusals = _Minute()
        self._targets: dict[tuple[str, int], float] = {}  # when each was refused last, in order

    def count(self, now: float) -> None:
        """Count one call; RateLimited (429) where the last minute has as many as it may.

        A call over the limit isn't counted: else one who tries again would never get
        through.
        """
        if self._per_minute is None:
            return
        made = self._calls
        if made.count(now) >= self._per_minute:
            raise _over(self._per_minute, made.oldest + MINUTE_S - now, self._named)
        made.add(now)

    def refused(self, host: str, port: int, now: float, *, metadata: bool = False) -> str:
        """Note one refusal by policy; return why the wire is to be paused, or nothing.

        `host` is empty where the request named none.  `metadata`: what the name led to
        was a metadata service.  After a reason has been given, counting begins anew.
        """
        why = self._why(host, port, now, metadata)
        if why:
            self._refusals = _Minute()
            self._targets.clear()
        return why

    def _why(self, host: str, port: int, now: float, metadata: bool) -> str:
        if metadata or host in METADATA_NAMES or metadata_of(host) is not None:
            return f"it called a cloud's metadata service ({authority(host, port)})"
        self._refusals.add(now)
        if self._refusals.count(now) >= REFUSALS_MOST:
            return f"{REFUSALS_MOST} of its calls were refused within a minute"
        if host and self._tried(host, port, now) >= TARGETS_MOST:
            return f"{TARGETS_MOST} different targets of its calls were refused within a minute"
        return ""

    def _tried(self, host: str, port: int, now: float) -> int:
        """Note a target; return how many the last minute has."""
        targets = self._targets
        targets.pop((host, port), None)  # it goes to the end
        targets[host, port] = now
        while next(iter(targets.values())) <= now - MINUTE_S:
            del targets[next(iter(targets))]
        return len(targets)


class _Minute:
    """Times of the last minute, oldest first."""

    __slots__ = ("_first", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._first = 0  # those before it are over

    @property
    def oldest(self) -> float:
        """The earliest that `count` has counted."""
        return self._times[self._first]

    def add(self, now: float) -> None:
        """Add one, the latest."""
        self._times.append(now)

    def count(self, now: float) -> int:
        """Return how many there are, having dropped what is over."""
        times, first = self._times, self._first
        while first < len(times) and times[first] <= now - MINUTE_S:
            first += 1
        if first > len(times) // 2:  # each is moved once at most
            del times[:first]
            first = 0
        self._first = first
        return len(times) - first


def _over(per_minute: int, after_s: float, named: str) -> RateLimited:
    wait = max(1, -int(-after_s // 1))  # whole seconds, rounded up
    seconds = "second" if wait == 1 else "seconds"
    calls = "call" if per_minute == 1 else "calls"
    return RateLimited(
        f"this sandbox has made its {per_minute} {calls} of this minute; try again in {wait} "
        f"{seconds} ({named} sets how many).",
        retry_after_s=wait,
    )
