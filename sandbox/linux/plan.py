"""The plan of a sandbox: everything about it, as data, before anything is done.

`plan` is pure.  It takes what was asked for (a confinement) and what the machine is
like (facts), and returns mounts, namespaces, the filter, the environment and the
descriptors a launcher has to make.  A wall that can't be built is an error here, never
a thinner wall.
"""

from __future__ import annotations

from sandbox.confinement import (
    Closed,
    Confinement,
    Host,
    Loopback,
    Net,
    Proxied,
    Proxy,
    Reaching,
)
from sandbox.errors import LaunchError, Unsupported
from sandbox.exits import has_login, login_file, without_login
from sandbox.linux import environment, local, seccomp
from sandbox.linux.facts import Facts
from sandbox.linux.values import Value, replaced
from sandbox.linux.view import OURS, Mount, View, check_outside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.linux.exec_list import Inside

DESCRIPTORS = ("args", "seccomp", "info", "status", "block")
"""bubblewrap's: its arguments, the filter, where it tells of the sandbox and of the
program's end, and where it waits for its go-ahead."""


class Dots(Value):
    """Where dot files are closed; which they are is looked up at each start."""

    closed: tuple[str, ...]
    """The written folders whose dot files are read only."""
    written: dict[str, str]
    """Every folder that is written, with the words that say which key names it."""
    settings: tuple[str, ...]
    """The person's and the machine's own files of git's settings."""


class Plan(Value):
    """A sandbox as data; what a launcher applies."""

    name: str
    bubblewrap: str
    holds_folders: bool
    """Named folders are mounted by a descriptor, opened and looked at when it starts."""
    namespaces: tuple[str, ...]
    """bubblewrap's flags for namespaces, capabilities and lifetime."""
    mounts: tuple[Mount, ...]
    """In the order they are made."""
    filter: bytes
    """The seccomp filter, as `struct sock_filter`s."""
    environment: dict[str, str]
    """What is added to the program's environment; the empty values stay outside."""
    descriptors: tuple[str, ...]
    """What the launcher makes for bubblewrap at each start, beside the files it copies."""
    proxy: dict[str, object] | None = None
    """The wire's settings (`sandbox.cli.serving.WireSettings`), None without a proxy."""
    port: int = 0
    """The proxy's port inside, 0 without one."""
    home: str = ""
    checks: tuple[str, ...] = ()
    """Folders that must be at each start what they were: folders, and no links."""
    state: str = ""
    """Link's settings, where placeholders are written down."""
    dots: Dots | None = None
    """None where no dot files are closed."""
    sockets: tuple[str, ...] = ()
    """Folders in which path sockets are masked, those that are known at each start."""
    scoped: bool = False
    """Whether Landlock closes the machine's abstract sockets, which a network of its own does
    elsewhere."""
    inside: Inside | None = None
    """The stage inside; None where bubblewrap starts the program itself."""
    uid: int = 0
    """Whom it was made for: some walls are for root alone."""

    @property
    def logs(self) -> bool:
        """Whether it has a log: of calls, or of refused programs."""
        return self.proxy is not None or (self.inside is not None and bool(self.inside.programs))


def plan(
    confinement: Confinement, facts: Facts, *, log: str | None = None, learns: bool = False
) -> Plan:
    """Return the plan of a confinement on a machine.

    log: the folder of the wire's log.  learns: whether each program that runs is told of.
    Raises LaunchError (125) for a path that is missing, a link, of the wrong kind, or one
    that no sandbox shows; Unsupported for a machine whose filter isn't known.
    """
    if facts.arch not in seccomp.AUDIT_ARCH:
        raise Unsupported(
            "seccomp", f"there is no system call filter for {facts.arch}: x86_64 and aarch64 have."
        )
    net = confinement.net
    listed = confinement.commands is not None
    has_stage = learns or listed or confinement.terminal or isinstance(net, Reaching)
    view = View(confinement, facts, has_stage=has_stage)
    inside = _inside(confinement, facts, view, log, learns=learns) if has_stage else None
    port = (net.proxy.listen or environment.PROXY_PORT) if isinstance(net, Proxied) else 0
    return Plan(
        name=confinement.name,
        bubblewrap=facts.bubblewrap.path,
        holds_folders=facts.bubblewrap.holds_folders,
        namespaces=_namespaces(
            facts,
            own_network=not isinstance(net, Host),
            has_stage=has_stage,
            terminal=confinement.terminal,
        ),
        mounts=view.mounts(shares_network=isinstance(net, Host)),
        filter=seccomp.encode(seccomp.assemble(facts.arch)),
        environment=_environment(net, port, facts, view, inside),
        descriptors=DESCRIPTORS,
        proxy=_wire(confinement.name, net, view, log, facts.state),
        port=port,
        home=view.home,
        checks=view.checks(),
        state=facts.state,
        dots=_dots(confinement, facts),
        sockets=view.read(),
        scoped=isinstance(net, Host) and _has_scopes(facts),
        inside=inside,
        uid=facts.uid,
    )


def _inside(
    confinement: Confinement, facts: Facts, view: View, log: str | None, *, learns: bool
) -> Inside:
    from sandbox.linux import exec_list  # most starts have no stage inside

    net = confinement.net
    lists = confinement.commands is not None and not learns
    ssh = isinstance(net, Proxied)
    programs = exec_list.exec_list(facts, view.place, ssh=ssh) if lists else None
    reached = net.reached if isinstance(net, Reaching) else ()
    return exec_list.Inside(
        python=facts.own.python,
        script=facts.own.inside_script,
        programs=programs,
        watch=exec_list.watch_filter(facts) if lists or learns else b"",
        numbers=seccomp.watched(facts.arch),
        terminal=confinement.terminal,
        places=view.places(),
        log=log,
        reached=tuple((one.dir, one.port) for one in reached),
        learns=(confinement.commands or ()) if learns else None,
    )


def _environment(
    net: Net, port: int, facts: Facts, view: View, inside: Inside | None
) -> dict[str, str]:
    """Return what is added to the program's environment: what leads it out, and whom it trusts."""
    told = dict(environment.NEUTRAL)
    if isinstance(net, Proxied):
        told |= environment.proxied(port) | _ssh(view, facts, inside)
    if not isinstance(net, Closed):
        told |= environment.trusting(facts.authorities)
    if isinstance(net, Proxied):
        told |= variables(net.proxy, port)
    return told


def variables(proxy: Proxy, port: int) -> dict[str, str]:
    """Return what leads a program to a proxy's routes."""
    if not proxy.routes:
        return {}
    from sandbox.mounts import variables_of

    return variables_of(proxy.routes, environment.proxy_url(port), proxy.secret or "")


def _ssh(view: View, facts: Facts, inside: Inside | None) -> dict[str, str]:
    """Return what takes ssh out by the proxy, where the interpreter that it takes may run."""
    if view.nearest_shown(facts.own.python, itself=True) is None:
        return {}
    if inside is not None and inside.programs is not None and not inside.programs.helpers:
        return {}
    return environment.by_ssh(facts.own.python)


def _has_scopes(facts: Facts) -> bool:
    from sandbox.linux.landlock import SCOPE_ABI

    return facts.landlock >= SCOPE_ABI


def opening_pages(made: Plan, facts: Facts) -> Plan:
    """Return a plan in which the program may ask for a page to be opened (R54)."""
    own = facts.own
    mount = Mount(OURS, environment.OPEN_PAGE, "asks to open pages", own.open_page)
    inside = made.inside
    if inside is not None and inside.programs is not None:
        from sandbox.linux import exec_list

        programs = exec_list.opening_pages(inside.programs, facts)
        inside = replaced(inside, programs=programs)
    return replaced(
        made,
        inside=inside,
        mounts=(*made.mounts, mount),
        environment={**made.environment, "BROWSER": own.browser},
    )


def _dots(confinement: Confinement, facts: Facts) -> Dots | None:
    closed = [one for one in confinement.write if one not in confinement.write_dot_files]
    if not closed:
        return None
    written = {one: f"write names {one}" for one in confinement.write}
    for folder, paths in facts.repositories.items():
        for path in paths:
            written[path] = f"write_dot_files names {folder}, whose repository is {path}"
    return Dots(tuple(closed), written, facts.git_settings)


def _namespaces(
    facts: Facts, *, own_network: bool, has_stage: bool, terminal: bool
) -> tuple[str, ...]:
    flags = ["--unshare-user"]
    if facts.bubblewrap.disables_userns and facts.userns_limit_writable:
        # Without it the filter alone keeps new user namespaces from being made.
        flags.append("--disable-userns")
    flags += ["--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if own_network:
        flags.append("--unshare-net")
    # Run by root bubblewrap keeps root's capabilities unless they are dropped by name.
    # A session of its own: what is typed into a shared terminal would be the shell's to run.
    flags += ["--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL"]
    flags += [] if terminal else ["--new-session"]
    return (*flags, *(["--as-pid-1"] if has_stage else []))


def _wire(name: str, net: Net, view: View, log: str | None, state: str) -> dict[str, object] | None:
    """Return the settings of a sandbox's wire, None where it has none."""
    if isinstance(net, Proxied):
        return _proxied(name, net, view, log, state)
    if isinstance(net, Loopback):
        return _joined(name, net.dir, net.ports, log, state)
    if isinstance(net, Reaching) and net.ports:
        return _joined(name, "", net.ports, log, state)
    return None


def _joined(
    name: str, folder: str, ports: tuple[int, ...], log: str | None, state: str
) -> dict[str, object]:
    """Return a wire with no listener of its own: it joins ports and does nothing else."""
    nothing = Proxy(upstream="direct", dir=folder, hosts=(), no_internet=True)
    wire = wire_of(name, nothing, log, state)
    return {**wire, "inside": local.of_ports(ports), "serve": []}


def _proxied(name: str, net: Proxied, view: View, log: str | None, state: str) -> dict[str, object]:
    """Return a filtering proxy's wire; LaunchError for what can't be served beside another."""
    proxy = net.proxy
    found = view.facts.paths.get(proxy.dir)
    real = proxy.dir if found is None else found.real  # it may be named by a link
    if (shown := view.nearest_shown(real, itself=True)) is not None:
        # Whoever writes there puts a socket of its own in the proxy's place.
        raise LaunchError(
            "dir", 0, f"the proxy's dir {proxy.dir} lies in {shown}, which is shown: name a folder "
            "outside of what read and write name.",
        )  # fmt: skip
    inside: list[list[object]] = []
    if proxy.routes:
        from sandbox.mounts import mount_of, relayed

        _check_programs(proxy, view)
        inside += relayed(mount_of(each) for each in proxy.routes)
    models = [port for _, _, port in inside if isinstance(port, int)]
    endpoints = local.of_endpoints(proxy.tcp, no_internet=proxy.no_internet)
    taken = local.taken_inside(proxy.listen or environment.PROXY_PORT, dns=bool(endpoints))
    if endpoints and proxy.listen is not None:
        local.check_ports("listen", [proxy.listen], local.DNS_TAKES)
    local.check_ports("a local model", models, taken)
    local.check_ports("ports", net.ports, taken)
    local.check_ports("serve", proxy.serve, taken)
    return {
        **wire_of(name, proxy, log, state),
        "inside": inside + endpoints + local.of_ports(net.ports),
        "serve": list(dict.fromkeys(proxy.serve)),
    }


def wire_of(
    name: str, proxy: Proxy, log: str | None, state: str, by: str = "wrap"
) -> dict[str, object]:
    """Return the settings of a wire, as a command keeps them: nothing secret is among them.

    by: whose words it refuses in (`proto.policy.cures`).
    """
    return {
        "name": name,
        "by": by,
        "hosts": None if proxy.hosts is None else list(proxy.hosts),
        "lan": list(proxy.lan),
        "tcp": list(proxy.tcp),
        "no_internet": proxy.no_internet,
        "upstream": without_login(proxy.upstream),
        "login": login_file(state, name) if has_login(proxy.upstream) else "",
        "log": log,
        "dir": proxy.dir,
        "routes": _routes(name, proxy, state) if proxy.routes else None,
        "state": state,
        "per_minute": proxy.per_minute,
    }


def _check_programs(proxy: Proxy, view: View) -> None:
    """Refuse a route that runs or reaches outside what the sandbox writes."""
    from sandbox.mounts import outside_of

    for does, path in (each for route in proxy.routes for each in outside_of(route)):
        for place in view.facts.outside[path]:
            check_outside(does, path, place, view.nearest(place, itself=True))


def _routes(name: str, proxy: Proxy, state: str) -> dict[str, object]:
    """Return a wire's routes as its proxy knows them; the rest is in the file that is named."""
    from sandbox.mounts import mount_of, needs_secret
    from sandbox.routes_file import head_of, routes_file, secret_file

    assert proxy.caller is not None, "routes come with their caller's key"
    return {
        "mounts": [mount_of(each) for each in proxy.routes],
        "file": routes_file(state, name),
        "head": len(head_of(proxy.caller)),
        "url_secret": secret_file(state, name) if needs_secret(proxy.routes) else None,
        "state": state,
    }
