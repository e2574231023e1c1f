"""What is Link's own on this machine, and which files a sandbox must never write for it.

Whoever writes what Link runs, imports, or is started by runs code outside.  Only names and
links are looked at.
"""

from __future__ import annotations

import os
import sys

from sandbox.linux import environment
from sandbox.linux.values import Value
from sandbox.linux.walk import LINKS_MAX, walk


class Own(Value):
    """What is Link's own on this machine, all paths real ones."""

    python: str
    script: str
    """The kept command's script."""
    imports: tuple[str, ...]
    """Folders to append to `sys.path`: those of the packages that ours depend on."""
    guarded: tuple[str, ...]
    """Files and folders a sandbox must never write: whoever does runs code outside."""
    environment: str | None
    """The virtual environment's folder, where there is one."""
    resolv_conf: str
    """What names the sandbox's own resolver, shown where endpoints bring one."""
    node_proxy: str
    """What teaches an older Node's fetch its proxy, shown in each sandbox that has one."""
    ssh_proxy: str
    """What takes ssh out by the proxy, shown there too."""
    open_page: str
    """What asks for a page to be opened, shown where a sandbox may ask."""
    browser: str
    """The command that runs it there."""
    places: tuple[str, ...] = ()
    """Folders in which a new file decides what the interpreter runs, or which one it is."""
    inside_script: str = ""
    """The stage inside's script."""
    inside: tuple[str, ...] = ()
    """What the stage inside runs and imports: shown, read only, where there is one."""


def _browser(script: str, python: str) -> str:
    """Return $BROWSER: the script by itself, where it was installed with its right to run."""
    if os.access(script, os.X_OK):
        return environment.OPEN_PAGE
    return f"{python} -I -S {environment.OPEN_PAGE} %s"


def find_own() -> Own:
    """Return where Link's own code lies: interpreter, standard library, package, dependencies."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    base = getattr(sys, "_base_executable", None) or sys.executable
    python = os.path.realpath(base)
    library = os.path.realpath(os.path.dirname(os.__file__))
    dependencies = [f for name in ("msgspec", "uvloop", "trio") if (f := _imported_from(name))]
    ours = [os.path.join(package, name) for name in ("sandbox", "proto", "shells")]
    script = sys.argv[0] if sys.argv else ""
    guarded = [python, library, *_mapped_python(), *ours, *dependencies]
    if os.path.isabs(script) and os.path.isfile(script):
        guarded.append(os.path.realpath(script))  # the `lnk` that was typed, and will be again
    return Own(
        python=python,
        script=os.path.join(package, "sandbox", "cli", "kept_start.py"),
        imports=tuple(dict.fromkeys(dependencies)),
        guarded=tuple(dict.fromkeys(guarded)),
        environment=os.path.realpath(sys.prefix) if sys.prefix != sys.base_prefix else None,
        inside_script=os.path.join(package, "sandbox", "linux", "inside_start.py"),
        node_proxy=os.path.join(package, "sandbox", "linux", "node_proxy.cjs"),
        resolv_conf=os.path.join(package, "sandbox", "linux", "resolv.conf"),
        ssh_proxy=os.path.join(package, "sandbox", "linux", "ssh_proxy.py"),
        open_page=os.path.join(package, "sandbox", "linux", "open_page.py"),
        browser=_browser(os.path.join(package, "sandbox", "linux", "open_page.py"), python),
        inside=tuple(
            dict.fromkeys((python, library, *_platform_library(), *_mapped_python(), ours[0]))
        ),
        places=tuple(
            dict.fromkeys(
                (
                    *places_of(sys.executable, base, library),
                    *links_to(sys.executable, script, os.path.abspath(__file__)),
                    *searched_by(),
                )
            )
        ),
    )


def _platform_library() -> list[str]:
    """Return the folder of the standard library's C modules, where it is one of its own."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    folder = os.path.realpath(os.path.join(sys.base_exec_prefix, sys.platlibdir, version))
    return [folder] if os.path.isdir(folder) else []


def searched_by() -> tuple[str, ...]:
    """Return the folders that this interpreter imports from, PYTHONPATH's among them.

    `lnk` as it is typed isn't isolated: pip's script can't be.  A module left in such a
    folder would run outside the next time.  One that isn't there could be made: then the
    folder counts in which it would be.
    """
    found: dict[str, None] = {}
    for entry in [*sys.path, *_compiled()]:
        found |= dict.fromkeys(links_to(os.path.abspath(entry)))
        folder = os.path.dirname(entry) if entry.endswith(".zip") else entry
        found[nearest_folder(folder)] = None
    own = _user_packages()
    # Who writes the whole home writes what its shell starts with as well.
    if own and (folder := nearest_folder(own)) != os.path.realpath(os.path.expanduser("~")):
        found[folder] = None
    found.pop("/", None)
    return tuple(found)


def _compiled() -> list[str]:
    """Return the folder of all compiled modules, where PYTHONPYCACHEPREFIX names one."""
    return [sys.pycache_prefix] if sys.pycache_prefix else []


def _user_packages() -> str:
    """Return where this interpreter looks for its user's own packages, there or not; or "".

    The first package that is put there, or `.pth`, is run at the next start.
    """
    site = sys.modules.get("site")
    if site is None or not site.ENABLE_USER_SITE:
        return ""  # an environment of its own, most often
    own: str = site.getusersitepackages()
    return own


def nearest_folder(path: str) -> str:
    """Return a folder without its links; where it isn't there, the one it would be made in."""
    folder = os.path.realpath(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def links_to(*started: str) -> tuple[str, ...]:
    """Return the folders of all links on some paths: whoever writes one leads it elsewhere.

    `lnk` itself is one where an installer keeps it in an environment (pipx, uv).  What a path
    goes into and back out of counts as one: a link could take its place.
    """
    ways = [walk(path) for path in started if os.path.isabs(path)]
    found = [os.path.dirname(place) for way in ways for place in (*way.links, *way.left)]
    return tuple(folder for folder in dict.fromkeys(found) if folder != "/")


def places_of(*started: str) -> tuple[str, ...]:
    """Return the folders that decide what an interpreter is, given the paths it starts from.

    A link on the way to it could be made anew (`bin/python3`).  Beside it, and above its
    folder, it looks for a `pyvenv.cfg` that names another standard library; beside the
    standard library for a `python311.zip`, which it searches first.
    """
    found: dict[str, None] = {}
    for path in started:
        here = path
        for _ in range(LINKS_MAX):
            folder = os.path.realpath(os.path.dirname(here))
            found |= dict.fromkeys((folder, os.path.dirname(folder)))
            here = os.path.join(folder, os.path.basename(here))
            if not os.path.islink(here):
                break
            here = os.path.join(folder, os.readlink(here))
    found.pop("/", None)
    return tuple(found)


def _imported_from(name: str) -> str | None:
    """Return the folder of `sys.path` that a package would be imported from, unimported."""
    for folder in sys.path:
        if folder and os.path.isdir(os.path.join(folder, name)):
            return os.path.realpath(folder)
    return None


def _mapped_python() -> list[str]:
    """Return the libpython this process runs, if it is a file of its own."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        lines = [line.rstrip("\n").split(maxsplit=5) for line in maps]
    names = {line[5] for line in lines if len(line) == 6 and "/libpython" in line[5]}
    return sorted(os.path.realpath(name) for name in names)
