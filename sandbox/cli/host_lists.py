"""Whether the hosts that a request or a spec lists are hosts, by the proxy's own rules.

The tables judge a host's shape alone, since programs that import them have no proxy.  A
list that the proxy could not read must be refused before anything starts.
"""

from __future__ import annotations

from sandbox.place import Place, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proto.policy.cures import Cures
    from proto.policy.hosts import Policy
    from sandbox.confinement import Proxy, WrapRequest
    from sandbox.handed import ProxyBind
    from sandbox.spec import Spec

    Make = Callable[[Sequence[str], Cures], object]


NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
NAME_MAX_CHARS, LABEL_MAX_CHARS = 253, 63


def _hosts(entries: Sequence[str], cures: Cures) -> Policy:
    from proto.policy.hosts import Policy

    return Policy.of(entries, cures=cures)


def _tcp(entries: Sequence[str], cures: Cures) -> Policy:
    from proto.policy.hosts import Policy

    return Policy.of((), tcp=entries, cures=cures)


def _lan(entries: Sequence[str], cures: Cures) -> Policy:
    from proto.policy.hosts import Policy

    return Policy.of((), lan=entries, cures=cures)


def is_plain_name(entry: str) -> bool:
    """Tell whether an entry is a name, or `*.` and one, that needs no rules to be told.

    Most lists hold nothing else, and importing the rules costs four bare sandboxes.  What
    this takes the rules take too; what it doesn't, they judge.
    """
    name = entry.removeprefix("*.")
    labels = name.split(".")
    return (
        NAME_LETTERS.issuperset(name)
        and len(name) <= NAME_MAX_CHARS
        and all(0 < len(label) <= LABEL_MAX_CHARS for label in labels)
        and labels[-1].isalpha()  # else it may be a number: an address, by some spelling
    )


THIS_MACHINE = ("localhost", "0.0.0.0", "::1", "::")  # noqa: S104 - nothing listens there
NEVER_REACHED = "is this machine, which a proxy never reaches; name its port in [localhost] ports"


def is_this_machine(host: str) -> bool:
    """Tell whether a host of a list is this machine's loopback, by its name or an address."""
    bare = host.strip("[]").removesuffix(".").lower()
    if bare.startswith("127."):
        return bare.count(".") == 3 and bare.replace(".", "").isdecimal()
    return bare in THIS_MACHINE or bare.endswith(".localhost")


def never_reached(host: str) -> str:
    """Return why a host of a list is reached by no proxy whatever lists it, empty where it may be.

    A name is judged when it is looked up: what it leads to isn't known before.
    """
    if is_this_machine(host):
        return NEVER_REACHED
    bare = host.strip("[]")
    if not (":" in bare or bare.replace(".", "").isdecimal()):
        return ""  # it is no address
    from proto.policy.addresses import metadata_of

    words = metadata_of(bare)
    return f"is {words}, which no list opens; take it out" if words else ""


def check_request(request: WrapRequest) -> None:
    """Refuse a host of a wrap request by its path (SpecError)."""
    net = None if request.confinement is None else request.confinement.net
    proxy = getattr(net, "proxy", None)
    if proxy is not None:
        check_proxy(proxy, Place(("confinement", "net", "proxied", "proxy")))
    if request.unwalled is not None:
        check_proxy(request.unwalled.proxy, Place(("unwalled", "proxy")))


def check_proxy(proxy: Proxy, place: Place) -> None:
    """Refuse a host of a proxy's lists by its path (SpecError).

    One that no list opens stays: its calls are refused "whatever the list says" (R32).
    """
    _check(proxy.hosts or (), _hosts, place.at("hosts"), "wrap")
    _check(proxy.tcp, _tcp, place.at("tcp"), "wrap")
    _check(proxy.lan, _lan, place.at("lan"), "wrap")
    _check_exit(proxy.upstream, place.at("upstream"))


def check_bind(bind: ProxyBind) -> None:
    """Refuse a host of a blank proxy's binding by its path (SpecError)."""
    place = Place(root="bind")
    _check(bind.host or (), _hosts, place.at("host"), "bind")
    _check(bind.lan, _lan, place.at("lan"), "bind")
    _check_exit(bind.upstream, place.at("upstream"))


def check_spec(spec: Spec, place: Place) -> None:
    """Refuse a host of a spec's lists by its path (SpecError)."""
    _check(spec.internet.hosts or (), _hosts, place.at("internet", "hosts"), "spec")
    _check(spec.internet.tcp, _tcp, place.at("internet", "tcp"), "spec")
    _check(spec.lan.hosts, _lan, place.at("lan", "hosts"), "spec")
    _check_exit(spec.network.upstream, place.at("network", "upstream"))
    # Each would be on a list and open nothing.
    for steps, entries in (
        (("internet", "hosts"), spec.internet.hosts or ()),
        (("internet", "tcp"), [entry.rpartition(":")[0] for entry in spec.internet.tcp]),
        (("lan", "hosts"), [entry.rpartition(":")[0] for entry in spec.lan.hosts]),
    ):
        for at, host in enumerate(entries):
            if why := never_reached(host):
                place.at(*steps, at).refuse(f"{shown(host)} {why}")


def _check(entries: Sequence[str], make: Make, place: Place, by: str) -> None:
    """Make a policy of a whole list; only where that fails, find the entry it fails for.

    by: whose words it is refused in (`proto.policy.cures`).
    """
    if not entries or (make is _hosts and all(map(is_plain_name, entries))):
        return  # there is nothing in them to judge
    from proto.policy.cures import CURES

    cures = CURES[by]
    try:
        make(entries, cures)
    except ValueError as error:
        for at, entry in enumerate(entries):
            _check_one(entry, make, place.at(at), cures)
        place.refuse(str(error))


def _check_exit(upstream: str, place: Place) -> None:
    if upstream == "direct":
        return
    from proto.policy.exits import Exit

    try:
        Exit.of(upstream)
    except ValueError as error:
        place.refuse(str(error).removesuffix("."))


def _check_one(entry: str, make: Make, place: Place, cures: Cures) -> None:
    try:
        make((entry,), cures)
    except ValueError as error:
        place.refuse(str(error))
