"""The probes of what a sandbox could reach: shared objects, sockets, the network, its proxy."""

from __future__ import annotations

from sandbox.linux import local
from sandbox.linux import plan as p
from sandbox.linux import view as v
from sandbox.linux.probes import CLOSED, GAP, GRANTED, Outside, Probe, View

HOSTS_TRIED = 8
"""Of the listed hosts: each is a real connection."""
UNLISTED = ("not-listed.lnk-check.example", "not-listed.lnk-check.test")
METADATA = ("169.254.169.254", "fd00:ec2::254")
ELSEWHERE = ("192.0.2.1", "10.0.0.1", "2001:db8::1", *METADATA)
"""Addresses for documentation, a private one, a cloud's metadata: no way leads to any."""


def of_shared(outside: Outside) -> list[Probe]:
    """Return the probes of what processes share beside files, and of memory files."""
    found = [
        Probe(f"find the machine's System V {kind}", CLOSED, (("finds_shared", kind, key),),
              "flag --unshare-ipc")
        for kind, key in outside.keys.items()
    ]  # fmt: skip
    if outside.queue:
        found.append(Probe("find the machine's message queues", CLOSED,
                           (("finds_queue", outside.queue),), "flag --unshare-ipc"))  # fmt: skip
    return [*found, Probe("make a memory file, seal it and map it executable", GRANTED,
                          (("makes_memory",),), "filter memory")]  # fmt: skip


def of_sockets(plan: p.Plan, outside: Outside, view: View) -> list[Probe]:
    """Return the probes of unix sockets, abstract ones and those at paths."""
    words = "connect to the machine's abstract sockets"
    tries = (("connects_unix", f"@{outside.abstract}"),)
    if "--unshare-net" in plan.namespaces:
        found = [Probe(words, CLOSED, tries, "flag --unshare-net")]
    else:
        found = [Probe(words, CLOSED if plan.scoped else GAP, tries, "scope")]
    for path in outside.sockets:
        due = GAP if view.how(path) in (v.WRITE, v.PIN) else CLOSED
        wall = "sockets" if view.stands(path) else "view"
        found.append(Probe(f"connect to {path}", due, (("connects_unix", path),), wall))
    return found


def of_network(plan: p.Plan, outside: Outside) -> list[Probe]:
    """Return the probes of addresses and names, reached without the proxy."""
    canaries = tuple(("connects", host, outside.port) for host in outside.addresses)
    own = Probe(
        "serve and connect on its own loopback", GRANTED, (("uses_loopback",),), "filter sockets"
    )
    if "--unshare-net" not in plan.namespaces:
        words = "reach the machine's loopback, as its network is asked for"
        return [own, Probe(words, GRANTED, canaries[:1], "network")]
    wall = "flag --unshare-net"
    return [
        own,
        Probe("reach this machine by any of its addresses", CLOSED, canaries, wall),
        *(Probe(f"have a route to {host}", CLOSED, (("has_route", host),), wall)
          for host in (*ELSEWHERE, *outside.nameservers)),
        Probe("look a name up by itself", CLOSED, (("looks_up", UNLISTED[0]),)),
        Probe("look localhost up", GRANTED, (("looks_up", "localhost"),), "copies"),
    ]  # fmt: skip


def of_proxy(plan: p.Plan, outside: Outside, hosts: tuple[str, ...] | None) -> list[Probe]:
    """Return the probes of the proxy: what it refuses, and a few of the hosts that it lists."""
    port = plan.port
    listed = hosts or ()
    this = [f"[{a}]" if ":" in a else a for a in (*outside.addresses, *METADATA)]
    unlisted = [name for name in UNLISTED if hosts is not None and not _covers(listed, name)]
    refused = ("403", "400")
    found = [
        Probe("connect to its proxy", GRANTED, (("connects", "127.0.0.1", port),), "proxy"),
        Probe("reach this machine and metadata through the proxy", CLOSED,
              tuple(("asks_proxy", port, f"{host}:{outside.port}") for host in this), "proxy guard",
              refused),
        Probe("reach this machine by name through the proxy", CLOSED,
              (("asks_proxy", port, f"localhost:{outside.port}"),
               ("asks_plain", port, f"localhost:{outside.port}")), "proxy guard", refused),
        Probe("reach what isn't mounted on the proxy", CLOSED,
              (("asks_path", port, "/"), ("asks_path", port, "/_link/lnk-check/")), "proxy paths",
              ("404", "403", "401")),
    ]  # fmt: skip
    for name in unlisted:
        tries = (("asks_proxy", port, f"{name}:443"), ("asks_plain", port, name))
        found.append(Probe(f"reach {name}, which isn't listed, through the proxy", CLOSED, tries,
                           "proxy hosts", ("403",)))  # fmt: skip
    for host in [h for h in listed if "*" not in h][:HOSTS_TRIED]:
        literal = f"[{host}]" if ":" in host else host
        found.append(Probe(f"reach {host} through the proxy", GRANTED,
                           (("asks_proxy", port, f"{literal}:443"),), "proxy hosts"))  # fmt: skip
    return found


def of_reached(plan: p.Plan) -> list[Probe]:
    """Return the probes of the ports at which proxies that stand apart are reached."""
    reached = plan.inside.reached if plan.inside is not None else ()
    return [
        Probe(f"connect to the proxy at port {port}", GRANTED,
              (("joins", "127.0.0.1", port),), "reached")
        for _, port in reached
    ]  # fmt: skip


def of_local(wire: dict[str, object], ports: tuple[int, ...]) -> list[Probe]:
    """Try what is joined to the sandbox's loopback: the machine's ports, endpoints, their DNS."""
    found = []
    for _, address, port, what in wire["inside"]:  # type: ignore[attr-defined]
        if what == local.DNS:
            continue
        words = {local.PORT: "this machine's port", local.ENDPOINT: "an endpoint"}[what]
        found.append(Probe(f"reach {words} at {address} {port}", GRANTED,
                           (("joins", address, port),), "inside"))  # fmt: skip
    if wire["inside"]:
        names = [one.rpartition(":")[0] for one in wire["tcp"]]  # type: ignore[attr-defined]
        found += [
            Probe(f"look {name} up, an endpoint", GRANTED, (("looks_up", name),), "inside")
            for name in dict.fromkeys(names)
            if "*" not in name and not name.replace(".", "").isdigit() and ":" not in name
        ]
    found += [
        Probe(f"serve at port {port}", GRANTED, (("serves", port),), "filter sockets")
        for port in ports
    ]
    return found


def _covers(hosts: tuple[str, ...], name: str) -> bool:
    return any(h == name or (h.startswith("*.") and name.endswith(h[1:])) for h in hosts)
