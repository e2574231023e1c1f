"""A plan as bubblewrap's arguments.

They are given by `--args FD`, NUL-separated: the command line of the sandbox's first
process can be read inside.  What has to be opened at each start stands there as a
`Held` path, for whose descriptor the launcher puts the number.
"""

from __future__ import annotations

from sandbox.errors import one_line
from sandbox.linux import plan as p
from sandbox.linux import view as v

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.linux.exec_list import Inside


class Held(str):
    """A path that the launcher opens, looks at, and hands over as a descriptor."""

    __slots__ = ()


Argument = str | Held
Guards = list[tuple[str, bool, str]] | tuple[()]


def arguments(plan: p.Plan) -> list[Argument]:
    """Return a plan's arguments, in the order in which bubblewrap does them.

    Copies are left out (`copies`): they come first, and a file that has gone is no error.
    """
    found: list[Argument] = list(plan.namespaces)
    for mount in plan.mounts:
        if mount.how != v.COPY:
            found += _mounted(mount, holds=plan.holds_folders)
    for mount in plan.mounts:
        if mount.how in (v.HIDDEN, v.MASK):
            found += ["--remount-ro", mount.at]
    # Everything bubblewrap made itself: folders above mounts, links, copies.
    return [*found, "--remount-ro", "/"]


def copies(plan: p.Plan) -> list[str]:
    """Return the files whose content is copied in at each start."""
    return [mount.at for mount in plan.mounts if mount.how == v.COPY]


def _mounted(mount: v.Mount, *, holds: bool) -> list[Argument]:
    at = mount.at
    match mount.how:
        case v.SYSTEM:
            return ["--ro-bind", at, at]
        case v.OURS:
            return ["--ro-bind", mount.target, at]
        case v.READ:
            return ["--ro-bind-fd", Held(at), at] if holds else ["--ro-bind", at, at]
        case v.WRITE | v.PIN:
            return ["--bind-fd", Held(at), at] if holds else ["--bind", at, at]
        case v.OWN | v.HIDDEN | v.MASK:
            return ["--perms", mount.perms, "--tmpfs", at]
        case v.LINKED:
            return ["--symlink", mount.target, at]
        case v.PROC:
            return ["--proc", at]
        case v.DEV:
            return ["--dev", at]
        case v.NOTHING:
            # Mounted without devices, so that opening it fails instead of reading nothing.
            return ["--ro-bind", "/dev/null", at]
        case _:
            raise AssertionError(mount.how)


def explain(plan: p.Plan, guards: Guards = ()) -> str:
    """Return a plan as a person reads it: a line a mount, then the rest.

    guards: the dot files closed were it started now: a path, whether it is there, and why.
    """
    words = {
        v.SYSTEM: "read only", v.READ: "read only", v.WRITE: "writable", v.PIN: "pinned",
        v.OWN: "its own", v.HIDDEN: "closed", v.MASK: "closed", v.COPY: "copied",
        v.LINKED: "link", v.OURS: "read only", v.PROC: "its own", v.DEV: "its own",
        v.NOTHING: "closed",
    }  # fmt: skip
    lines = [f"sandbox {plan.name}, by {plan.bubblewrap}", "", "files"]
    for mount in plan.mounts:
        target = f" -> {mount.target}" if mount.target else ""
        lines.append(f"  {words[mount.how]:<10} {mount.at}{target}  ({mount.why})")
    if plan.dots is not None:
        lines += ["", f"dot files, looked up at each start, of {' '.join(plan.dots.closed)}"]
        for at, is_there, why in guards:
            lines.append(f"  {'read only' if is_there else 'held':<10} {at}  ({why})")
    lines += ["", "namespaces", f"  {' '.join(plan.namespaces)}"]
    if plan.sockets:
        lines += ["", f"sockets, looked up at each start, of {' '.join(plan.sockets)}"]
    if plan.scoped:
        lines += ["", "Landlock", "  abstract sockets of the machine are closed"]
    if plan.inside is not None:
        lines += ["", "inside, before the program", *_stage(plan.inside)]
    lines += ["", "filter", f"  {len(plan.filter) // 8} instructions, 8 bytes each"]
    lines += ["", "descriptors", f"  {' '.join(plan.descriptors)}", "", "environment"]
    lines += [f"  {name}={value}" for name, value in plan.environment.items()] or ["  as it is"]
    lines += ["", "proxy"]
    if plan.proxy is None:
        lines.append("  none")
    else:
        lines.append(f"  127.0.0.1:{plan.port} inside" if plan.port else "  local ports alone")
        lines += [f"  {name}: {value}" for name, value in plan.proxy.items()]
    # A submodule's path is the choice of whoever made the repository.
    return "\n".join(map(one_line, lines))


def _stage(inside: Inside) -> list[str]:
    """Return what the stage inside does, a line each."""
    lines = [f"  {inside.python} {inside.script}"]
    if inside.terminal:
        lines.append("  terminal   the one it is started on")
    if inside.programs is None:
        return lines
    lists = inside.programs
    lines += [f"  listed     {path}" for path in lists.listed]
    lines += [f"  needed     {path}  ({why})" for path, why in lists.needed]
    lines += [f"  ours       {path}  ({why})" for path, why in lists.helpers]
    return [*lines, *(f"  open       {gap}" for gap in lists.gaps)]
