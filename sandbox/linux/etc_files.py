"""What of /etc is shown: a list, so that what nobody thought of stays closed.

Run by root the sandbox's files are root's, and /etc/shadow would be readable by
ownership alone.  Nothing on the list holds a secret: no shadow files, no host keys, no
private keys, no machine-id, no settings of services.  What not everybody may read (an
npmrc with a token in it) isn't shown either: root could read it inside.

A file is copied into the sandbox's own /etc as it starts, for each mount costs
bubblewrap about 0.3 ms (it reads the whole table of mounts again); a folder is mounted.
So folders are few: those that programs don't run without.
"""

from __future__ import annotations

import os
import stat

COPY, BIND, LINK = "copy", "bind", "link"

FILES = (
    # who and where: names of users, hosts, services
    "passwd", "group", "nsswitch.conf", "hosts", "host.conf", "hostname", "gai.conf",
    "networks", "protocols", "services", "rpc", "ethertypes", "netconfig", "shells",
    "localtime", "timezone", "os-release", "debian_version", "lsb-release", "redhat-release",
    "fedora-release", "system-release", "alpine-release", "arch-release", "login.defs", "mtab",
    # the loader
    "ld.so.cache", "ld.so.conf", "ld-musl-x86_64.path", "ld-musl-aarch64.path",
    # public settings of certificates; never ssl/private or pki/tls/private
    "ssl/openssl.cnf", "ssl/cert.pem", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "krb5.conf",
    # locale, terminals, shells
    "locale.alias", "locale.conf", "default/locale", "inputrc", "profile", "bash.bashrc",
    "bashrc", "zshrc", "zshenv", "zprofile", "csh.cshrc", "csh.login",
    # what programs read as their settings
    "gitconfig", "gitattributes", "npmrc", "pip.conf", "wgetrc", "curlrc", "mime.types", "magic",
    "magic.mime", "papersize", "nanorc", "screenrc", "tmux.conf", "manpath.config", "xattr.conf",
    "ssh/ssh_config", "ssh/ssh_known_hosts", "php.ini", "postgresql-common/supported_versions",
    "postgresql-common/user_clusters",
)  # fmt: skip
FOLDERS = (
    "alternatives", "ssl/certs", "pki/ca-trust", "pki/tls/certs", "pki/java", "crypto-policies",
    "fonts", "php", "php.d", "java", "maven", "xdg/pip", "chromium", "chromium.d",
)  # fmt: skip
FAMILIES = ("java-",)
"""Folders that carry a version: `java-17-openjdk`."""

COPIES_MAX = 8
"""What a folder may hold to be copied rather than mounted: about what a mount costs."""

SHOWN_TARGETS = ("/usr/", "/opt/", "/proc/", "/lib/", "/bin/")


def existing() -> list[tuple[str, str, str]]:
    """Return what of the list this machine has and everybody may read.

    Each as its path, how it is shown (COPY, BIND, LINK), and a link's target.
    """
    versions = [n for n in sorted(os.listdir("/etc")) if n.startswith(FAMILIES)]
    paths = ["/etc/" + name for name in (*FILES, *FOLDERS, *versions)]
    return [one for path in paths for one in _entries(path)]


def _entries(path: str) -> list[tuple[str, str, str]]:
    """Return how one path is shown: a small folder by its files."""
    one = shown(path)
    if one is None:
        return []
    few = few_files(path) if one[1] == BIND else None
    if few is None:
        return [one]
    found = [shown(file) for file in few]
    return [file for file in found if file is not None and file[1] != BIND]


def few_files(folder: str) -> list[str] | None:
    """Return all files and links of a folder, None where a mount costs less than copies."""
    found: list[str] = []
    folders = [folder]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except OSError:
            continue  # it isn't everybody's to read
        with entries:
            for entry in entries:
                # No more is looked at than has to be: some folders hold hundreds of links.
                kind = folders if entry.is_dir(follow_symlinks=False) else found
                kind.append(entry.path)
                if len(found) + len(folders) > COPIES_MAX:
                    return None
    return sorted(found)


def shown(path: str) -> tuple[str, str, str] | None:
    """Return how one path is shown, or None: it is missing, or not everybody's to read."""
    try:
        about = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISLNK(about.st_mode):
        if os.path.realpath(path).startswith(SHOWN_TARGETS):
            return path, LINK, os.readlink(path)
        try:
            about = os.stat(path)  # elsewhere: what it leads to is shown in its place
        except OSError:
            return None
    if stat.S_ISDIR(about.st_mode) and about.st_mode & 0o005 == 0o005:
        return path, BIND, ""
    if stat.S_ISREG(about.st_mode) and about.st_mode & 0o004:
        return path, COPY, ""
    return None
