"""From a confinement to its plan on this machine, for the commands that make one."""

from __future__ import annotations

import os
import stat

from sandbox.confinement import Confinement, Host, Proxied, Proxy, Reaching
from sandbox.errors import LaunchError, SandboxError
from sandbox.linux.facts import Facts, gather
from sandbox.linux.plan import Plan, opening_pages, plan
from sandbox.state import State, settings_folder, user_home

MODES = (0o700, 0o2770)
"""Of the folder of a proxy that is reached: its user's alone, or a group's with its proxy's."""


def planned(
    confinement: Confinement, state: str | None = None, *, learns: bool = False
) -> tuple[Plan, Facts]:
    """Return the plan of a confinement on this machine, and what this machine is like.

    state: Link's settings; None looks them up.  learns: whether each program that runs is told
    of, and none refused.  Raises LaunchError or Unsupported (125) where no such sandbox can be
    made here; nothing is left of it then (R10).
    """
    state = state or settings_folder()
    home = user_home()
    shown = [*confinement.write, *confinement.read, *([home] if confinement.read_home else [])]
    # They are closed by a mount, which needs a folder: else the program would make it.
    needs_state = any(state.startswith(f"{path}/") for path in shown)
    made = _make_settings(state) if needs_state else []
    try:
        return _planned(confinement, state, home, shown, learns=learns)
    except SandboxError:
        for folder in reversed(made):
            _away(folder)
        raise


def _make_settings(state: str) -> list[str]:
    """Make the folders of Link's settings; return those that weren't there."""
    missing = [path for path in (state, State(state).path) if not os.path.lexists(path)]
    State(state).folder()
    return missing


def _away(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        return  # another has put something there by now


def _planned(
    confinement: Confinement, state: str, home: str, shown: list[str], *, learns: bool
) -> tuple[Plan, Facts]:
    facts = gather(
        [*shown, *confinement.hide, *_folder(confinement), *_reached(confinement)],
        home=home,
        state=state,
        write_dot_files=confinement.write_dot_files,
        landlock=isinstance(confinement.net, Host),
        programs=None if learns else confinement.commands,
        outside=_outside(confinement),
    )
    log = os.path.join(state, "sandbox", "log")
    made = plan(confinement, facts, log=log, learns=learns)
    if isinstance(confinement.net, Proxied):
        check_folder(confinement.net.proxy)
    return (opening_pages(made, facts) if _opens(confinement) else made), facts


def _opens(confinement: Confinement) -> bool:
    net = confinement.net
    if not isinstance(net, Proxied) or not net.proxy.routes:
        return False
    from sandbox.route import Open

    return any(isinstance(route, Open) for route in net.proxy.routes)


def check_folder(proxy: Proxy) -> None:
    """Raise LaunchError where a proxy's folder is there, and is one that it will refuse."""
    if os.path.lexists(proxy.dir):
        from sandbox.linux.wire_folder import Folder

        Folder(proxy.dir, make=False).close()


def _reached(confinement: Confinement) -> list[str]:
    """Return the folders of the proxies apart that are reached, having looked at each.

    Raises LaunchError for one that isn't the user's, or is open to others than a group that
    its proxy's user is in.
    """
    net = confinement.net
    if not isinstance(net, Reaching):
        return []
    for one in net.reached:
        try:
            about = os.lstat(one.dir)
        except OSError:
            continue  # it is made
        mode = stat.S_IMODE(about.st_mode)
        if stat.S_ISDIR(about.st_mode) and (about.st_uid != os.geteuid() or mode not in MODES):
            raise LaunchError(
                "dir", 0, f"reached names {one.dir}, which isn't yours alone: run chmod 700 on one "
                "of your own, or chmod 2770 where its proxy is another user's, of a group of both.",
            )  # fmt: skip
    return [one.dir for one in net.reached]


def _folder(confinement: Confinement) -> list[str]:
    """Return the folder of a confinement's proxy, none where it has none."""
    net = confinement.net
    return [net.proxy.dir] if isinstance(net, Proxied) else []


def _outside(confinement: Confinement) -> list[str]:
    """Return the files that a proxy's routes run or reach outside."""
    net = confinement.net
    if not isinstance(net, Proxied) or not net.proxy.routes:
        return []
    from sandbox.mounts import outside_of

    return [path for route in net.proxy.routes for _, path in outside_of(route)]
