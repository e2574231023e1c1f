"""What of the folders of /etc isn't everybody's to read: closed inside, where root runs it.

A file of /etc is copied only where everybody may read it, for run by root the sandbox's user is
root, and what is root's alone would be read by ownership.  A folder is mounted whole, with what
an administrator has put into it (a private key beside the certificates, a password in settings).
So it is looked through at each start, and what others may not read has a mount over it.  A link is
left: what it leads to is judged where it lies.

Imported at a start by root, so it imports no `os`, and what it covers things with once there is
something to cover.
"""

import posix

READ, READ_AND_SEARCH = 0o004, 0o005


def mask(
    arguments: "list[str | list[str]]", named: "list[str]", within: str = "/etc/"
) -> "list[str | list[str]]":
    """Return bubblewrap's arguments with a mount over each entry that isn't everybody's to read.

    named: what a key names stays as it is.  within: what the folders that are looked through
    begin with.
    """
    folders = [
        str(arguments[at + 2])
        for at, one in enumerate(arguments)
        if one == "--ro-bind" and str(arguments[at + 2]).startswith(within)
    ]
    found = [one for folder in folders for one in closed_in(folder)]
    if not found:
        return arguments
    from sandbox.linux.dot_mounts import Layout, inserted
    from sandbox.linux.walk import inside

    mounts: dict[str, list[str | list[str]]] = {}
    ends: list[str | list[str]] = []
    for path, is_folder in found:
        if any(inside(path, one) for one in named):
            continue
        if is_folder:
            # What is named in it is mounted behind it, and has to be reached.
            perms = "0711" if any(inside(one, path) for one in named) else "0000"
            mounts[path] = ["--perms", perms, "--tmpfs", path]
            ends += ["--remount-ro", path]
        else:
            # Mounted without devices, so that it can't be opened.
            mounts[path] = ["--ro-bind", "/dev/null", path]
    if not mounts:
        return arguments
    made = inserted(arguments, Layout(arguments), mounts)
    return [*made[:-2], *ends, *made[-2:]]  # the root is made read only last


def closed_in(folder: str) -> "list[tuple[str, bool]]":
    """Return what in a folder others may not read, each with whether it is a folder."""
    found: list[tuple[str, bool]] = []
    waiting = [folder]
    while waiting:
        try:
            entries = posix.scandir(waiting.pop())
        except (FileNotFoundError, NotADirectoryError):
            continue  # it is no folder, or has just gone
        with entries:
            for entry in entries:
                if entry.is_symlink():
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                needed = READ_AND_SEARCH if is_folder else READ
                try:
                    mode = entry.stat(follow_symlinks=False).st_mode
                except FileNotFoundError:
                    continue  # an editor's, say, that has just been renamed
                if mode & needed != needed:
                    found.append((entry.path, is_folder))
                elif is_folder:
                    waiting.append(entry.path)
    return found
