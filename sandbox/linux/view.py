"""How the files stand in a sandbox: what it sees, what it writes, and what is closed to it.

The view is one table: a path and how it stands there.  A deeper path wins
over the one that holds it, so the mounts are made in the order of their depth:

    SYSTEM  the machine's, read only         READ   named, read only
    OWN     the sandbox's own, empty         WRITE  named, writable
    HIDDEN  closed but for what lies deeper  MASK   closed
    PIN     a writable folder that can't be renamed, for something closed lies in it
    COPY    a file's content                 LINKED a link
    OURS    a file of Link's, at a path that is the sandbox's own
    PROC    its own processes alone          DEV    a few devices
    NOTHING a file that can't be opened
"""

from __future__ import annotations

from sandbox.confinement import Confinement, Proxied, Reached, Reaching
from sandbox.errors import LaunchError
from sandbox.linux import environment, etc_files, local
from sandbox.linux.facts import (
    FILE,
    FOLDER,
    LINK,
    MISSING,
    UNREADABLE,
    Facts,
    default_settings,
)
from sandbox.linux.values import Value, replaced
from sandbox.linux.walk import inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM, READ, WRITE, OWN, HIDDEN, MASK, PIN, COPY, LINKED, OURS, PROC, DEV, NOTHING = (
    "system", "read", "write", "own", "hidden", "mask", "pin", "copy", "link", "ours", "proc",
    "dev", "nothing",
)  # fmt: skip

CLOSED_PLACES = ("/proc", "/sys", "/dev", "/run")
"""Never shown, nor anything in them: sockets of services, devices, the kernel's own."""
WHOLE_PLACES = ("/", "/etc", "/home", "/tmp", "/usr", "/var")  # noqa: S108
"""Never named whole: what lies in them is the machine's, and one name would open it all."""

FIRST_MEMORY = ("/proc/1/mem", "/proc/1/task/1/mem")
"""Of the sandbox's first process: see `seccomp.FIRST`."""

REAL = (SYSTEM, READ, WRITE, PIN)
"""What shows files that exist outside."""


class Mount(Value):
    """One entry of the view: how a path stands there, and why."""

    how: str
    at: str
    why: str
    target: str = ""
    """What a link leads to; the file that is shown as OURS."""
    perms: str = ""
    """An empty folder's permissions, octal."""


def nearest(table: Mapping[str, Mount], path: str, *, itself: bool = False) -> Mount | None:
    """Return the entry of a table that holds a path, its own only with `itself`."""
    if itself and path in table:
        return table[path]
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in table:
            return table[path]
    return None


WOULD = {
    "runs": "whoever writes it would run outside; take another program.",
    "reaches": "whoever writes it could lead it to any other socket; take another.",
}
"""What would come of a route's file that the sandbox writes, by what becomes of it outside."""


def check_outside(does: str, path: str, place: str, held: Mount | None) -> None:
    """Refuse what a route `does` outside with a file where the sandbox writes.

    place: one that decides which file that is (`commands.decided_by`), `held` by a mount.
    """
    if held is not None and held.how in (WRITE, PIN):
        where = held.at if inside(path, held.at) else f"{held.at} by way of {place}"
        raise LaunchError(
            "routes", 0, f"a route {does} {path} outside, in {where}, which the sandbox writes: "
            f"{WOULD[does]}",
        )  # fmt: skip


class View:
    """The table of paths, built up in the order in which walls give way to each other."""

    def __init__(self, confinement: Confinement, facts: Facts, *, has_stage: bool) -> None:
        self.facts = facts
        self.home = facts.paths[facts.home].real
        self.table: dict[str, Mount] = {}
        self._system()
        if not has_stage:  # which can't be looked into
            for path in FIRST_MEMORY:
                self._put(NOTHING, path, "who writes it steers the first process")
        self._named(confinement)
        self._own()
        if isinstance(confinement.net, Proxied | Reaching):
            self._put(OURS, environment.NODE_PROXY, "teaches an older Node its proxy",
                      facts.own.node_proxy)  # fmt: skip
            self._put(OURS, environment.SSH_PROXY, "takes ssh out by the proxy",
                      facts.own.ssh_proxy)  # fmt: skip
        if isinstance(confinement.net, Reaching):
            # Whether one of its proxies opens pages that one knows: its environment says so.
            self._put(OURS, environment.OPEN_PAGE, "asks to open pages", facts.own.open_page)
        if isinstance(confinement.net, Proxied):
            proxy = confinement.net.proxy
            if local.has_dns(proxy.tcp, no_internet=proxy.no_internet):
                self._put(OURS, "/etc/resolv.conf", "its DNS", facts.own.resolv_conf)
        self._hide(confinement.hide)
        self._close_state()
        if isinstance(confinement.net, Reaching):
            self._reach(confinement.net.reached)
        self._guard()
        if has_stage:
            self._show_stage()
        self._merge()
        self._pin()

    def mounts(self, *, shares_network: bool) -> tuple[Mount, ...]:
        """Return the mounts in their order: a path after the ones that hold it."""
        copies = [
            Mount(LINKED if how == etc_files.LINK else COPY, path, "settings", target)
            for path, how, target in self.facts.etc
            if how != etc_files.BIND
        ]
        if shares_network:
            # Elsewhere there is none: a resolver then asks 127.0.0.1, where nothing answers.
            copies.append(Mount(COPY, "/etc/resolv.conf", "the machine's network is shared"))
        return (*copies, *sorted(self.table.values(), key=lambda m: (m.at.count("/"), m.at)))

    def checks(self) -> tuple[str, ...]:
        """Return the folders whose being what they are the walls rest on."""
        closed = (READ, WRITE, HIDDEN, MASK, PIN)
        return tuple(m.at for m in self.table.values() if m.how in closed)

    def nearest(self, path: str, *, itself: bool = False) -> Mount | None:
        """Return the entry that holds a path, its own only with `itself`."""
        return nearest(self.table, path, itself=itself)

    def nearest_shown(self, path: str, *, itself: bool = False) -> str | None:
        """Return the shown folder that a path lies in, None where nothing shows it."""
        held = self.nearest(path, itself=itself)
        return held.at if held is not None and held.how in REAL else None

    def read(self) -> tuple[str, ...]:
        """Return the folders in which it reads what others may have put: a socket, for one."""
        shown = {path for path, target in self.facts.system if target is None}
        return tuple(m.at for m in self.table.values() if m.how == READ or m.at in shown)

    def place(self, path: str) -> tuple[str, str] | None:
        """Return how a path without links stands inside (`exec_list.Place`)."""
        from sandbox.linux import exec_list

        held = self.nearest(path, itself=True)
        if held is None or held.how in (HIDDEN, MASK):
            return None
        kinds = {SYSTEM: exec_list.READ, READ: exec_list.READ, WRITE: exec_list.WRITTEN,
                 PIN: exec_list.WRITTEN}  # fmt: skip
        return kinds.get(held.how, exec_list.OWN), held.at

    def places(self) -> dict[str, bool]:
        """Return where the sandbox makes files, given or its own (True), and where in it not."""
        made = (WRITE, PIN, OWN, DEV, PROC)
        places = {m.at: m.how in made for m in self.table.values()}
        within = [at for at, is_made in places.items() if is_made]
        return {
            at: is_made
            for at, is_made in places.items()
            if is_made or any(inside(at, folder) for folder in within)
        }

    def _put(self, how: str, at: str, why: str, target: str = "", perms: str = "") -> None:
        self.table[at] = Mount(how, at, why, target, perms)

    def _system(self) -> None:
        for path, target in self.facts.system:
            if target is None:
                self._put(SYSTEM, path, "programs and libraries")
            else:
                self._put(LINKED, path, "a link of the system's", target)
        for path, how, _ in self.facts.etc:
            if how == etc_files.BIND:
                self._put(SYSTEM, path, "settings")
        self._put(OWN, "/tmp", "its own temp folder", perms="1777")  # noqa: S108
        self._put(DEV, "/dev", "null, zero, full, random, urandom, tty, its own shm and pts")
        self._put(PROC, "/proc", "its own processes alone")
        # Permissions there go by uid, not by capability: only a read-only mount holds.
        self._put(SYSTEM, "/proc/sys", "the kernel's settings")
        for path in self.facts.proc_closed:
            self._put(SYSTEM, path, "acts on the machine")
        for path in self.facts.proc_masked:
            if self.facts.uid == 0 or path == "/proc/keys":
                self._put(NOTHING, path, "tells of the machine, or of others")

    def _named(self, confinement: Confinement) -> None:
        read = list(confinement.read)
        if confinement.read_home:
            read.append(self.home)
        for path in read:
            self._look(path, (FOLDER, FILE), "read")
            if path not in self.table:
                self._put(READ, path, "read")
        for path in confinement.write:
            self._look(path, (FOLDER,), "write")
            self._put(WRITE, path, "write")
        for folder, paths in self.facts.repositories.items():
            for path in paths:
                self._look(path, (FOLDER,), "write_dot_files")
                self._put(WRITE, path, f"the repository of {folder}")

    def _look(self, path: str, kinds: tuple[str, ...], key: str) -> None:
        """Refuse a named path that isn't there as it is written, or is never shown."""
        held = self.table.get(path)
        if held is not None and held.how == SYSTEM and key == "read":
            return
        for place in CLOSED_PLACES:
            if inside(path, place):
                raise _refused(0, key, path, f", and no sandbox shows anything of {place}: leave "
                               "it out, and keep what the program needs elsewhere.")  # fmt: skip
        if path in WHOLE_PLACES:
            raise _refused(0, key, path, ", which no sandbox opens whole: "
                           "name what of it the program needs.")  # fmt: skip
        if any(inside(path, place) for state in self._states() for place in state):
            raise _refused(0, key, path, ": Link's settings stay closed. Leave it out, "
                           "and keep what the program needs elsewhere.")  # fmt: skip
        found = self.facts.paths[self.facts.home if path == self.home else path]
        if found.kind == MISSING:
            make = "make it first (mkdir -p), or " if kinds == (FOLDER,) else ""
            raise _refused(2, key, path, f", which does not exist: {make}name what is "
                           "there.")  # fmt: skip
        if found.kind == UNREADABLE:
            raise _refused(13, key, path, ", which you may not look at: leave it out, "
                           "or have its owner let you in.")  # fmt: skip
        if found.kind == LINK or found.real != path:
            # A sandbox could have put it there, to be given what it leads to.
            raise _refused(40, key, path, f", a link to {found.real}: name that instead.")
        if found.kind not in kinds:
            cure = "name the folder it lies in" if key != "read" else "name a file or a folder"
            raise _refused(20, key, path, f", which is {found.kind}: {cure}.")

    def _own(self) -> None:
        """Give it a home of its own where nothing shows the real one."""
        home = self.home
        if home in WHOLE_PLACES or any(inside(home, place) for place in CLOSED_PLACES):
            return
        if home not in self.table and self.nearest_shown(home) is None:
            self._put(OWN, home, "its own home, empty", perms="0700")
        for link, target in self.facts.home_links:
            # HOME says it as a person does; what shows the link's folder has it already.
            held = self.nearest(link)
            if link not in self.table and (held is None or held.how == OWN):
                self._put(LINKED, link, "the home, as HOME names it", target)

    def _hide(self, hide: tuple[str, ...]) -> None:
        for path in hide:
            if path in self.table and self.table[path].how in (READ, WRITE):
                raise _refused(0, "hide", path, ", which read or write opens: take it out of "
                               "one of the two.")  # fmt: skip
        for path in sorted(hide):
            real = self.facts.paths[path].real
            if self.nearest_shown(real, itself=True) is None:
                continue  # nothing shows it
            if self.facts.paths[path].kind not in (FOLDER, LINK):
                raise _refused(2, "hide", path, f", which is {self.facts.paths[path].kind}: only a "
                               "folder that exists can be hidden in one that is shown; make it "
                               "first, or take it out.")  # fmt: skip
            for folder in self.facts.paths[path].ways:
                held = self.nearest(folder, itself=True)
                if held is not None and held.how in (WRITE, PIN):
                    # Led elsewhere, it would have something else hidden the next time.
                    raise _refused(40, "hide", path, f", by a link in {folder}, which the sandbox "
                                   f"writes: name {real} instead.")  # fmt: skip
            opened = any(m.how in (READ, WRITE) and inside(m.at, real) for m in self.table.values())
            self._put(HIDDEN, real, "hidden", perms="0755" if opened else "0000")

    def _states(self) -> list[tuple[str, str]]:
        """Return Link's settings, each as it is named and without links.

        Those of LNK_HOME, and those in the home, which a command has that is told of no others.
        """
        named = dict.fromkeys((self.facts.state, default_settings(self.facts.home)))
        return [(one, self.facts.paths[one].real) for one in named if one in self.facts.paths]

    def _close_state(self) -> None:
        for state, real in self._states():
            kind = self.facts.paths[state].kind
            if self.nearest_shown(real) is None:
                continue
            if kind in (FOLDER, LINK):
                self._put(MASK, real, "Link's settings", perms="0000")
            elif state == self.facts.state:
                raise LaunchError(
                    "files", 2, f"Link's settings {real} are {kind}: make the folder."
                )
        for folder in self.facts.state_links:
            held = self.nearest(folder, itself=True)
            if held is not None and held.how == WRITE:
                # Led elsewhere it would name settings of the sandbox's own, tools among them.
                raise LaunchError(
                    "files", 0, f"write names {held.at}, and a link in {folder} leads to Link's "
                    "settings: have LNK_HOME and HOME name their folders themselves.",
                )  # fmt: skip

    def _reach(self, reached: tuple[Reached, ...]) -> None:
        """Show the folders of the proxies that it reaches: its relay makes sockets there."""
        for one in reached:
            found = self.facts.paths[one.dir]
            if found.kind == LINK or (found.kind != MISSING and found.real != one.dir):
                raise _refused(40, "reached", one.dir, f", a link to {found.real}: "
                               "name that instead.")  # fmt: skip
            if found.kind not in (FOLDER, MISSING):
                raise _refused(20, "reached", one.dir, f", which is {found.kind}: name the "
                               "folder of a proxy.")  # fmt: skip
            if (shown := self.nearest_shown(one.dir)) is not None:
                # Whoever writes there could put another folder in its place.
                raise _refused(0, "reached", one.dir, f", which lies in {shown}, which is shown:"
                               " name a folder outside of what read and write name.")  # fmt: skip
            self._open_for(one.dir)
            self._put(WRITE, one.dir, "the sockets of a proxy that it reaches")

    def _guard(self) -> None:
        """Keep Link's own code read only: whoever writes it runs code outside."""
        own, wrapper = self.facts.own, self.facts.bubblewrap
        # Who writes the whole home writes what its shell starts with as well.
        found = [folder for folder in wrapper.places if folder not in ("/", self.home)]
        environment_ = [*own.places, *found, *([own.environment] if own.environment else [])]
        for path in sorted({*own.guarded, wrapper.path, *environment_}):
            written = [m.at for m in self.table.values() if m.how == WRITE and inside(m.at, path)]
            # In a virtual environment, and where an interpreter stands, a folder may be
            # written that lies beside the code; where packages of ours lie, none.
            beside = path in environment_ and path not in own.imports
            if written and (not beside or path in written):
                raise LaunchError(
                    "files", 0,
                    f"write names {written[0]}, which is part of {path}: Link runs or imports "
                    "from there, and a sandbox that wrote it would run outside: "
                    "name another folder (and see PYTHONPATH).",
                )  # fmt: skip
            held = self.nearest(path)
            if held is not None and held.how in (WRITE, PIN):
                self._put(READ, path, "Link's own code")

    def _show_stage(self) -> None:
        """Show what the stage inside runs and imports, whatever is closed around it."""
        for path in self.facts.own.inside:
            held = self.nearest(path, itself=True)
            if held is not None and held.how in (SYSTEM, READ):
                continue
            self._open_for(path)
            self._put(READ, path, "the stage inside")

    def _open_for(self, path: str) -> None:
        """Let what is shown at a path be reached in what is closed around it; nobody lists that."""
        held = self.nearest(path)
        if held is not None and held.how in (HIDDEN, MASK) and held.perms == "0000":
            self.table[held.at] = replaced(held, perms="0711")

    def _merge(self) -> None:
        """Leave out what another entry shows the same way: each mount costs bubblewrap."""
        same = {READ: (READ, SYSTEM), WRITE: (WRITE,)}
        for path, mount in sorted(self.table.items()):
            held = self.nearest(path)
            if held is None or held.how not in same.get(mount.how, ()):
                continue
            if held.how == SYSTEM and inside(path, "/etc"):
                continue  # root's start closes there what isn't named (`etc_closed`)
            del self.table[path]

    def _pin(self) -> None:
        """Pin the folders above what is closed inside a writable one.

        A mount keeps its own place from being renamed, not the folders above it: one
        could be moved away, and a forgery made where it was.
        """
        for mount in list(self.table.values()):
            held = self.nearest(mount.at)
            if mount.how == WRITE or held is None or held.how not in (WRITE, PIN):
                continue
            above = mount.at.rpartition("/")[0]
            while above != held.at:
                self._put(PIN, above, f"holds {mount.at}")
                above = above.rpartition("/")[0]


def _refused(errno: int, key: str, path: str, why: str) -> LaunchError:
    return LaunchError("files", errno, f"{key} names {path}{why}", about=(key, path))
