"""What this machine is like, probed once and handed to `plan`, which looks at nothing itself.

Everything here reads names, kinds and links of files, and of bubblewrap its own words;
nothing is run and nothing is written.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox.errors import LaunchError, Unsupported
from sandbox.linux import environment, etc_files
from sandbox.linux.own import Own, find_own, links_to, nearest_folder
from sandbox.linux.values import Value, replaced
from sandbox.linux.walk import walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.linux.commands import Program

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "opt")
"""What of `/` is shown, read only."""
ROOT_LINKS = ("home", "root", "var", "srv")
"""Folders of `/` whose being a link elsewhere (image-based systems) is kept as it is."""
PROC_CLOSED = ("acpi", "asound", "driver", "fs", "mtrr", "pressure", "scsi", "sysrq-trigger")
"""What of /proc may act on the machine, beside /proc/sys and what bubblewrap closes itself
(bus, irq).  Its permissions go by uid, and run by root the sandbox's uid is root's: only a
read-only mount holds, whatever the capabilities."""
PROC_MASKED = ("keys", "latency_stats", "sched_debug", "timer_stats")
"""What of /proc tells of others' keys and programs.  (What tells of memory needs a
capability, or names pages by numbers that mean nothing without one.)"""

BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""The machine's certificate authorities in one file; the first that is there."""
BUNDLE_LIST = "/etc/ca-certificates.conf"
"""The distribution's authorities in it, a line each (Debian's `ca-certificates`)."""
BUNDLE_MAX_BYTES = 4 << 20

GIT_SYSTEM = ("/etc", "/usr/local/etc", "/home/linuxbrew/.linuxbrew/etc")
"""Where git's builds look for the machine's settings."""
BUBBLEWRAP_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin")
NEEDED = ("--args", "--seccomp", "--json-status-fd", "--block-fd", "--perms", "--clearenv")
"""Options that every sandbox uses (all there from bubblewrap 0.5)."""
HELP_MAX_BYTES = 4 << 20

MFD_NOEXEC_SEAL = 8

FOLDER, FILE, LINK, OTHER, MISSING, UNREADABLE = (
    "a folder", "a file", "a link", "neither a file nor a folder", "missing", "unreadable",
)  # fmt: skip


class Found(Value):
    """What stands at a path: its kind, and the path without its links (the same, if none)."""

    kind: str
    real: str
    ways: tuple[str, ...] = ()
    """The folders that hold a link on the way to it."""


class Bubblewrap(Value):
    """The bubblewrap that is used: an absolute path, and what it can."""

    path: str
    holds_folders: bool
    """--bind-fd: a folder is mounted by its descriptor, so nothing can be put in its
    place after it was looked at."""
    disables_userns: bool
    """--disable-userns: no user namespace can be made inside, filter or not."""
    places: tuple[str, ...] = ()
    """The folders that decide which one it is, where it isn't the system's."""


class Facts(Value):
    """A machine, as far as a sandbox on it is concerned."""

    arch: str
    uid: int
    home: str
    state: str
    """Link's settings (`~/.lnk`), closed in every sandbox."""
    bubblewrap: Bubblewrap
    own: Own
    system: tuple[tuple[str, str | None], ...]
    """Folders shown read only, and links of `/` with what they lead to: (path, target)."""
    etc: tuple[tuple[str, str, str], ...]
    """What of /etc is shown: path, how (`etc_files.COPY`, `BIND`, `LINK`), a link's target."""
    proc_closed: tuple[str, ...]
    """What of /proc this user could write, and act on the machine by."""
    proc_masked: tuple[str, ...]
    authorities: str
    """The machine's bundle of certificates, where authorities of its own are in it; else
    empty."""
    userns_limit_writable: bool
    """Whether /proc/sys can be written by bubblewrap, as --disable-userns needs."""
    landlock: int
    """The kernel's Landlock ABI where a wall needs it; 0 for none, and where none does."""
    paths: dict[str, Found]
    """Every path the confinement names, home and state, and what `repositories` has."""
    home_links: tuple[tuple[str, str], ...] = ()
    """The links by which HOME names the home, each with what it leads to."""
    state_links: tuple[str, ...] = ()
    """The folders that hold a link on the way to Link's settings, or to the home."""
    git_settings: tuple[str, ...] = ()
    """The person's and the machine's own files of git's settings, there or not."""
    repositories: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - a value's default, never changed
    """For a folder of write_dot_files, the folders outside that git writes for a commit there."""
    programs: tuple[Program, ...] = ()
    """Those of `[commands] only`."""
    interpreter: Program | None = None
    """Link's own, where programs are listed: a helper inside may need it."""
    opener: Program | None = None
    """What runs where a page is to be opened, where programs are listed."""
    outside: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - a value's default, never changed
    """For each file that a route runs or reaches outside, the places that decide what that is."""
    seals_memory: bool = True
    """Whether the kernel makes memory files that are never run (6.3)."""


def gather(
    named: list[str],
    *,
    home: str,
    state: str,
    write_dot_files: tuple[str, ...] = (),
    landlock: bool = False,
    programs: tuple[str, ...] | None = None,
    outside: Sequence[str] = (),
) -> Facts:
    """Probe this machine and the paths a confinement names.

    landlock: whether a wall needs Landlock; asking for it costs a millisecond.  programs:
    those that are listed, None where any may run.  outside: the files that routes run or reach.

    Raises Unsupported where bubblewrap or a filter for this machine is missing, LaunchError
    where a folder of write_dot_files leads to a repository that doesn't lead back.
    """
    repositories = {folder: _repository(folder, home) for folder in write_dot_files}
    named = [*named, *(path for paths in repositories.values() for path in paths)]
    wrapper = find_bubblewrap(os.environ.get("PATH", ""))
    arch = os.uname().machine
    bits = 0o222 if os.getuid() == 0 else 0o002
    system = tuple(_shown("/" + name) for name in SYSTEM + ROOT_LINKS if _counts(name))
    own = find_own()
    search = os.environ.get("PATH", "")
    told = os.environ.get("HOME", "")
    return Facts(
        arch=arch,
        uid=os.getuid(),
        home=home,
        state=state,
        bubblewrap=wrapper,
        own=own,
        system=system,
        etc=tuple(etc_files.existing()),
        proc_closed=tuple(p for name in PROC_CLOSED if _has_writable(p := "/proc/" + name, bits)),
        proc_masked=tuple(p for name in PROC_MASKED if os.path.isfile(p := "/proc/" + name)),
        authorities=own_authorities(),
        userns_limit_writable=_is_limit_writable(),
        landlock=_landlock() if landlock or programs is not None else 0,
        paths={path: look_at(path) for path in [*named, home, state, default_settings(home)]},
        home_links=_links(told) if os.path.isabs(told) else (),
        state_links=links_to(state, told),
        git_settings=git_settings(home),
        repositories=repositories,
        programs=_programs(programs, search),
        interpreter=None if programs is None else _programs((own.python,), search)[0],
        opener=None if programs is None else _programs((_opener(own),), search)[0],
        outside=_outside(outside),
        seals_memory=_seals_memory(),
    )


def _outside(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    if not paths:
        return {}
    from sandbox.linux.commands import decided_by

    return {path: decided_by(path) for path in paths}


def _opener(own: Own) -> str:
    return own.open_page if own.browser == environment.OPEN_PAGE else own.python


def _programs(named: tuple[str, ...] | None, search: str) -> tuple[Program, ...]:
    if named is None:
        return ()
    from sandbox.linux.commands import decided_by, look

    known: dict[str, tuple[str, ...]] = {}
    return tuple(replaced(look(one, search), ways=decided_by(one, search, known)) for one in named)


def _seals_memory() -> bool:
    try:
        os.close(os.memfd_create("lnk", MFD_NOEXEC_SEAL | os.MFD_CLOEXEC))
    except OSError:
        return False
    return True


def _is_limit_writable() -> bool:
    try:
        return not os.statvfs("/proc/sys/user").f_flag & os.ST_RDONLY
    except OSError:
        return False  # a kernel without user namespaces, of which bubblewrap will tell


def _landlock() -> int:
    from sandbox.linux.landlock import abi

    return abi()


def default_settings(home: str) -> str:
    """Return where Link's settings are, unless LNK_HOME names others."""
    return f"{home}/.lnk"


def _links(path: str) -> tuple[tuple[str, str], ...]:
    """Return the links on the way of a path, each with where it ends: what is there inside."""
    return tuple((link, os.path.realpath(link)) for link in walk(path).links)


def git_settings(home: str) -> tuple[str, ...]:
    """Return where git may find the machine's settings and the person's (git-config(1))."""
    named = [os.environ.get(name, "") for name in ("GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL")]
    found = [path for path in named if os.path.isabs(path)]
    found += [f"{folder}/gitconfig" for folder in GIT_SYSTEM]
    config = os.environ.get("XDG_CONFIG_HOME", "")
    folders = [config] if os.path.isabs(config) else []
    found += [f"{folder}/git/config" for folder in (*folders, f"{home}/.config")]
    return tuple(dict.fromkeys([*found, f"{home}/.gitconfig"]))


def _repository(folder: str, home: str) -> tuple[str, ...]:
    from sandbox.linux.git_layout import opened_with
    from sandbox.linux.walk import Unreadable

    try:
        return opened_with(folder, home)
    except Unreadable as error:
        raise LaunchError("dot files", 0, f"write_dot_files: {error}.") from None


def look_at(path: str) -> Found:
    """Return what stands at an absolute path; a link is a link, whatever it leads to."""
    real = os.path.realpath(path)
    ways = () if real == path else links_to(path)
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
        return Found(MISSING if gone else UNREADABLE, real, ways)
    kinds = ((stat.S_ISLNK, LINK), (stat.S_ISDIR, FOLDER), (stat.S_ISREG, FILE))
    return Found(next((kind for test, kind in kinds if test(mode)), OTHER), real, ways)


def find_bubblewrap(path: str) -> Bubblewrap:
    """Return bubblewrap, the system's first, then one on `path` that nobody else can write.

    Raises Unsupported where there is none, or only one too old.
    """
    for folder in BUBBLEWRAP_FOLDERS:
        real = os.path.realpath(f"{folder}/bwrap")
        if _is_program(real):
            return _understood(real)
    searched: list[str] = []
    for folder in filter(os.path.isabs, path.split(":")):
        # One that is put into a folder before it would be found the next time.
        searched.append(nearest_folder(folder))
        named = os.path.join(folder, "bwrap")
        real = os.path.realpath(named)
        if _is_program(real) and _is_their_own(real):
            places = dict.fromkeys([*searched, *links_to(named)])
            return replaced(_understood(real), places=tuple(places))
    raise Unsupported(
        "bubblewrap", "bubblewrap isn't installed: run `lnk sandbox ready --yes`, which adds it."
    )


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _is_their_own(path: str) -> bool:
    """Tell whether only root or this user can change a program."""
    about = os.stat(path)
    return about.st_uid in (0, os.getuid()) and not about.st_mode & 0o002


def _understood(path: str) -> Bubblewrap:
    """Read from a bubblewrap which options it knows.

    Its binary holds each option's name (they are compared with, and in its help), so it
    needn't be run: two starts of it cost as much as a sandbox.
    """
    with open(path, "rb") as file:
        words = file.read(HELP_MAX_BYTES)
    missing = [name for name in NEEDED if name.encode() not in words]
    if missing:
        raise Unsupported(
            "bubblewrap",
            f"{path} is too old (it has no {missing[0]}): install bubblewrap 0.5 or later.",
        )
    return Bubblewrap(path, b"--ro-bind-fd" in words, b"--disable-userns" in words)


def own_authorities() -> str:
    """Return the machine's bundle of certificates where authorities of its own are in it, or "".

    A company's, most often.  Programs that bring a list of their own don't know them.  What
    the distribution puts there is on those lists already, and reading it again would cost
    Node up to 60 ms a start.  Where nothing tells the two apart they count as its own.
    """
    for bundle in BUNDLES:
        try:
            with open(bundle, "rb") as file:
                found = file.read(BUNDLE_MAX_BYTES).count(b"-----BEGIN CERTIFICATE-----")
        except OSError:
            continue
        return bundle if found > _distributed() else ""
    return ""


def _distributed() -> int:
    try:
        with open(BUNDLE_LIST, "rb") as file:
            return sum(line[:1] not in (b"#", b"!", b"\n") for line in file)
    except OSError:
        return 0


def _counts(name: str) -> bool:
    """Tell whether a folder of `/` is shown: those of the system, and links of the rest."""
    path = "/" + name
    return os.path.islink(path) or (name in SYSTEM and os.path.isdir(path))


def _shown(path: str) -> tuple[str, str | None]:
    return path, os.readlink(path) if os.path.islink(path) else None


def _has_writable(path: str, bits: int) -> bool:
    """Tell whether something at a path of /proc has one of these permissions to write."""
    try:
        if not os.path.isdir(path):
            return bool(os.stat(path).st_mode & bits)
        return any(_has_writable(os.path.join(path, name), bits) for name in os.listdir(path))
    except OSError:
        return os.path.exists(path)  # what can't be seen into is closed
