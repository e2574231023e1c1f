"""A plan with one of its walls, or one of its grants, taken away; each by its probes' name.

It is run where the tests' user may look, beside the installed copy: it imports nothing of
the tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from sandbox.linux import plan as p
from sandbox.linux import seccomp
from sandbox.linux import view as v
from sandbox.linux.probes import Outside
from sandbox.linux.probing_calls import GROUPS
from sandbox.linux.values import replaced

Arguments = Callable[[list], list]
Mutant = tuple[p.Plan, Arguments]
"""A plan, and what is done to its bubblewrap arguments."""


def same(arguments: list) -> list:
    return arguments


def walls(plan: p.Plan, outside: Outside, arch: str) -> dict[str, Mutant]:
    """Return a mutant for each wall of a plan."""
    found: dict[str, Mutant] = {"remount /": (plan, lambda given: given[:-2])}
    for mount in plan.mounts:
        name = f"mount {mount.at}"
        match mount.how:
            case v.SYSTEM if mount.at.startswith("/proc/"):
                found[name] = (without_mount(plan, mount.at), same)
            case v.READ if holder(plan, mount.at) in (v.WRITE, v.PIN):
                found[name] = (without_mount(plan, mount.at), same)
            case v.SYSTEM | v.READ:
                found[name] = (with_mount(plan, v.Mount(v.WRITE, mount.at, "mutant")), same)
            case v.OURS:
                found[name] = (plan, swapped(["--ro-bind", mount.target, mount.at],
                                             ["--bind", mount.target, mount.at]))  # fmt: skip
            case v.OWN:
                found[name] = (with_mount(plan, v.Mount(v.WRITE, mount.at, "mutant")), same)
            case v.HIDDEN | v.MASK | v.PIN | v.NOTHING:
                found[name] = (without_mount(plan, mount.at), same)
            case v.DEV:
                found[name] = (plan, swapped(["--dev", "/dev"], ["--dev-bind", "/dev", "/dev"]))
    for flag in plan.namespaces:
        if flag.startswith("--") and flag != "--cap-drop":
            kept = tuple(one for one in plan.namespaces if one != flag)
            found[f"flag {flag}"] = (replaced(plan, namespaces=kept), same)
    if "flag --unshare-net" in found:  # nobody makes sockets in the machine's own network
        shared, _ = found["flag --unshare-net"]
        found["flag --unshare-net"] = (replaced(shared, proxy=None), same)
    users = ("--unshare-user", "--disable-userns")  # the second wants the first
    kept = tuple(one for one in plan.namespaces if one not in users)
    found["flag --unshare-user"] = (replaced(plan, namespaces=kept), same)
    kept = tuple(one for one in plan.namespaces if one not in ("--cap-drop", "ALL"))
    found["flag --cap-drop ALL"] = (replaced(plan, namespaces=(*kept, "--cap-add", "ALL")), same)
    for name, changes in FILTERS.items():
        found[f"filter {name}"] = (replaced(plan, filter=filter_with(arch, changes)), same)
    for reason, name in GROUPS.items():
        rows = {call: row for call, row in seccomp.REFUSED.items() if row[2] != reason}
        found[f"filter {name}"] = (
            replaced(plan, filter=filter_with(arch, {"REFUSED": rows})), same,
        )  # fmt: skip
    program = seccomp.assemble(arch)
    program[1] = (*program[1][:2], 1, program[1][3])
    found["filter architecture"] = (replaced(plan, filter=seccomp.encode(program)), same)
    shown = (*outside.files, *outside.sockets)
    views = tuple(v.Mount(v.SYSTEM, path, "mutant") for path in shown)
    found["view"] = (replaced(plan, mounts=(*plan.mounts, *views)), same)
    if plan.inside is not None and plan.inside.programs is not None:
        kept = tuple(one for one in plan.namespaces if one != "--as-pid-1")
        found["commands"] = (replaced(plan, inside=None, namespaces=kept), same)
        found.pop("flag --as-pid-1", None)
    if plan.dots is not None:
        found["dots"] = (replaced(plan, dots=None), same)
    if plan.scoped:
        found["scope"] = (replaced(plan, scoped=False), same)
    if plan.sockets:
        found["sockets"] = (replaced(plan, sockets=()), same)
    if plan.proxy is not None:
        names = ["not-listed.lnk-check.example", "not-listed.lnk-check.test"]
        found["proxy hosts"] = (replaced(plan, proxy={**plan.proxy, "hosts": names}), same)
    return found


def grants(plan: p.Plan, arch: str) -> dict[str, Mutant]:
    """Return a mutant for each thing that a plan opens."""
    found: dict[str, Mutant] = {}
    for mount in plan.mounts:
        if mount.how not in (v.HIDDEN, v.MASK, v.NOTHING):
            found[f"mount {mount.at}"] = (without_mount(plan, mount.at), same)
        if mount.how == v.READ:
            closed = v.Mount(v.MASK, mount.at, "mutant", perms="0000")
            found[f"mount {mount.at}"] = (with_mount(plan, closed), same)
        if mount.how in (v.WRITE, v.PIN):
            read = v.Mount(v.READ, mount.at, "mutant")
            found[f"mount {mount.at}"] = (with_mount(plan, read), same)
    if plan.inside is not None and plan.inside.reached:
        found["reached"] = (replaced(plan, inside=replaced(plan.inside, reached=())), same)
    if plan.inside is not None and plan.inside.programs is not None:
        none = replaced(plan.inside, programs=replaced(plan.inside.programs, listed=()))
        found["commands"] = (replaced(plan, inside=none), same)
    copied = next(m.at for m in plan.mounts if m.how == v.COPY and m.at == "/etc/hosts")
    found["copies"] = (without_mount(plan, copied), same)
    changes = {"FAMILIES": (40,), "ROUTE": 21}
    found["filter sockets"] = (replaced(plan, filter=filter_with(arch, changes)), same)
    threads = {"NEW_NAMESPACES": seccomp.NEW_NAMESPACES | 0x10000}
    found["filter clone"] = (replaced(plan, filter=filter_with(arch, threads)), same)
    rows = {**seccomp.REFUSED, "execveat": (322, 281, "a mutant")}
    found["filter programs"] = (replaced(plan, filter=filter_with(arch, {"REFUSED": rows})), same)
    rows = {**seccomp.REFUSED, "memfd_create": (319, 279, "a mutant")}
    found["filter memory"] = (replaced(plan, filter=filter_with(arch, {"REFUSED": rows})), same)
    if plan.proxy is not None:
        found["proxy"] = (replaced(plan, port=plan.port + 1), same)
        found["proxy hosts"] = (replaced(plan, proxy={**plan.proxy, "hosts": []}), same)
        found["inside"] = (replaced(plan, proxy={**plan.proxy, "inside": []}), same)
    else:
        namespaces = (*plan.namespaces, "--unshare-net")
        found["network"] = (replaced(plan, namespaces=namespaces), same)
    return found


NOWHERE = (9999, 9999)
FILTERS: dict[str, dict[str, object]] = {
    "clone": {"NEW_NAMESPACES": 0},
    "clone3": {"CLONE3": NOWHERE},
    "terminals": {"TERMINAL_INPUT": ()},
    "disciplines": {"DISCIPLINES": ()},
    "sockets": {"SOCKET": NOWHERE},
    "pairs": {"SOCKETPAIR": NOWHERE},
    "personality": {"PERSONALITY": NOWHERE},
    "first": {"FIRST": 9999},
    "unknown": {"LAST_KNOWN": 0xFFFFFFFF},
}
"""What of the filter's tables is changed so that a group of its rows never counts."""


def filter_with(arch: str, changes: dict[str, object]) -> bytes:
    """Return the filter that other tables would make."""
    with patched(changes):
        return seccomp.encode(seccomp.assemble(arch))


@contextlib.contextmanager
def patched(changes: dict[str, object]) -> Iterator[None]:
    before = {name: getattr(seccomp, name) for name in changes}
    for name, value in changes.items():
        setattr(seccomp, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(seccomp, name, value)


def holder(plan: p.Plan, path: str) -> str:
    """Return how the mount stands that holds another."""
    held = v.nearest({mount.at: mount for mount in plan.mounts}, path)
    return "" if held is None else held.how


def without_mount(plan: p.Plan, at: str) -> p.Plan:
    return replaced(plan, mounts=tuple(mount for mount in plan.mounts if mount.at != at))


def with_mount(plan: p.Plan, made: v.Mount) -> p.Plan:
    """Put another mount in the place of the one at its path."""
    mounts = tuple(made if mount.at == made.at else mount for mount in plan.mounts)
    return replaced(plan, mounts=mounts)


def swapped(words: list[str], by: list[str]) -> Arguments:
    def swap(given: list) -> list:
        for at in range(len(given)):
            if given[at : at + len(words)] == words:
                return [*given[:at], *by, *given[at + len(words) :]]
        raise AssertionError(f"{words} isn't there")

    return swap
