"""Find the program to run as the sandbox will see it, before it starts.

bubblewrap would only say "No such file or directory".  Here a program that exists
outside and isn't shown inside is named, with the flag that shows it.  Imported at every
start, so it imports no `os` (see `launcher`).
"""

import posix
import sys

ENOENT, EACCES, EINVAL, ELOOP = 2, 13, 22, 40
REGULAR, FOLDER = 0o100000, 0o040000
LINKS_MAX = 40
"""As the kernel has it (MAXSYMLINKS)."""
SCRIPTS_MAX = 5
"""Of scripts that `env` finds for each other; the kernel has as many for those named in full."""
SHARED = (".local", ".config", ".cache", ".nix-profile")
"""Folders of a home that many programs share: what is named is a part of them."""
TOGETHER = {"~/.cargo": ("~/.cargo/bin", "~/.rustup")}
"""What is named in a folder's stead: beside rustup's programs lie cargo's credentials."""
HEAD_BYTES = 256
"""What the kernel reads of a file to see whether it names an interpreter."""


class View:
    """What a sandbox shows, taken from its bubblewrap arguments.

    Everything shown stands at the path it has outside, so a view is which paths are
    shown: True for a file or folder of the machine's, False for one of its own.
    """

    __slots__ = ("links", "shown")

    def __init__(self, arguments: "list[str | list[str]]", copies: "list[str]") -> None:
        self.shown: dict[str, bool] = dict.fromkeys(copies, True)
        self.links: dict[str, str] = {}
        at = 0
        while at < len(arguments):
            flag = arguments[at]
            match flag:
                case "--ro-bind" | "--bind" | "--ro-bind-fd" | "--bind-fd":
                    self.shown[str(arguments[at + 2])] = True
                    at += 3
                case "--symlink":
                    self.links[str(arguments[at + 2])] = str(arguments[at + 1])
                    at += 3
                case "--tmpfs" | "--proc" | "--dev":
                    self.shown[str(arguments[at + 1])] = False
                    at += 2
                case "--perms" | "--cap-drop" | "--remount-ro":
                    at += 2
                case _:
                    at += 1

    def shows(self, path: str) -> bool:
        """Tell whether a path without links is one of the machine's that is shown."""
        while path not in self.shown:
            if path == "/":
                return False
            path = path.rpartition("/")[0] or "/"
        return self.shown[path]

    def stands(self, folder: str) -> bool:
        """Tell whether a folder is there inside, shown or the sandbox's own."""
        if folder == "/" or folder in self.shown or self.shows(folder):
            return True
        # The folders above what is shown stand there too, though with nothing else in them.
        return any(path.startswith(f"{folder}/") for path in self.shown)

    def follow(self, path: str) -> "tuple[str, str | None]":
        """Walk an absolute path as the kernel will inside.

        Returns the path without its links, and the first place on the way that exists
        outside and isn't shown, None where all of it is.  Raises OSError as stat would.
        """
        left = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        here, links, hidden = "", 0, None
        while left:
            part = left.pop()
            if part == "..":
                here = here.rpartition("/")[0]
                continue
            step = f"{here}/{part}"
            target = self.links.get(step)
            if target is None:
                try:
                    target = posix.readlink(step)
                except OSError as error:
                    if error.errno != EINVAL:  # which says that it is no link
                        raise
                    target = ""
                else:
                    hidden = hidden or self._unseen(step)
            if not target:
                here = step
                continue
            links += 1
            if links > LINKS_MAX:
                raise OSError(ELOOP, posix.strerror(ELOOP), path)
            if target.startswith("/"):
                here = ""
            left += [p for p in reversed(target.split("/")) if p not in ("", ".")]
        return here or "/", hidden or self._unseen(here)

    def _unseen(self, path: str) -> "str | None":
        return None if self.shows(path) else path


def find(name: str, search: str, cwd: str, view: View, home: str, left: int = SCRIPTS_MAX) -> str:
    """Return the path by which to run a program; the sandbox shows all it needs to start.

    name: as the person wrote it.  search: PATH.  cwd: the working folder.  left: the scripts
    that may still run each other.  Raises LaunchError: 127 where there is none, 126 where it
    can't be run.
    """
    if "/" in name:
        return _judged(_joined(cwd, name), name, search, cwd, view, home, left)
    unseen = None
    refused = None
    for folder in search.split(":"):
        path = _joined(cwd, f"{folder}/{name}" if folder else name)
        try:
            real, hidden = view.follow(path)
            if _kind(real) != REGULAR:
                continue
        except OSError:
            continue
        if hidden is not None:
            unseen = unseen or (path, hidden)
        elif posix.access(real, posix.X_OK):
            return _judged(path, name, search, cwd, view, home, left)
        else:
            refused = refused or path
    if refused is not None:
        raise _error(126, EACCES, f"{refused} can't be run: it isn't marked as a program.")
    if unseen is not None:
        raise _not_shown(127, name, *unseen, home)
    raise _error(127, ENOENT, f"{name}: there is no such program in PATH.")


def _judged(path: str, name: str, search: str, cwd: str, view: View, home: str, left: int) -> str:
    """Return a path that can be run inside, or say why it can't."""
    try:
        real, hidden = view.follow(path)
        kind = _kind(real)
    except PermissionError:
        raise _error(126, EACCES, f"{name} lies in a folder that you may not look into.") from None
    except OSError:
        raise _error(127, ENOENT, f"{name}: there is no such program.") from None
    if kind != REGULAR:
        what = "a folder" if kind == FOLDER else "no file"
        raise _error(126, EACCES, f"{name} is {what}, not a program.")
    if not posix.access(real, posix.X_OK):
        raise _error(126, EACCES, f"{name} can't be run: it isn't marked as a program.")
    if hidden is not None:
        raise _not_shown(127, name, path, hidden, home)
    _judge_interpreter(real, name, search, cwd, view, home, left)
    return path


def _judge_interpreter(
    real: str, name: str, search: str, cwd: str, view: View, home: str, left: int
) -> None:
    """Look at the interpreter that a script names (`#!`): it has to be shown too."""
    try:
        # No pipe may have come in its place: nothing ends a start that waits for a writer.
        file = posix.open(real, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    except OSError:
        return  # a program may be run that can't be read
    try:
        head = posix.read(file, HEAD_BYTES)
    except OSError:
        return
    finally:
        posix.close(file)
    if not head.startswith(b"#!"):
        return
    word, argument = script_line(head)
    interpreter = text_of(word)
    if not interpreter.startswith("/"):
        return
    try:
        _, hidden = view.follow(interpreter)
    except OSError:
        raise _error(
            127, ENOENT, f"{name} is a script for {interpreter}, which does not exist."
        ) from None
    if hidden is not None:
        raise _not_shown(127, name, interpreter, hidden, home)
    if interpreter.endswith("/env") and argument and not argument.startswith(b"-"):
        if not left:
            raise _error(
                126, ELOOP, f"{name} is a script for scripts that run each other: name a program."
            )
        find(text_of(argument), search, cwd, view, home, left - 1)


def script_line(head: bytes) -> "tuple[bytes, bytes]":
    """Return a script's interpreter and the one argument that it gets, as the kernel cuts them.

    A blank or a tab ends a name, and a carriage return doesn't: it is the name's last letter.
    """
    line = head[2:].partition(b"\n")[0].partition(b"\0")[0].strip(b" \t")
    name = line.replace(b"\t", b" ").partition(b" ")[0]
    return name, line[len(name) :].lstrip(b" \t")


def _not_shown(code: int, name: str, path: str, hidden: str, home: str) -> "LaunchError":
    """Say which folder a program stands in, and the flag that shows it."""
    folder = _folder_to_show(hidden, home)
    short = "~" + folder[len(home) :] if folder.startswith(home + "/") else folder
    flags = " --read ".join(TOGETHER.get(short, (short,)))
    via = "" if path == hidden else f" (it leads to {hidden})"
    return _error(
        code,
        ENOENT,
        f"{name} is {path}{via}, in a folder that the sandbox doesn't show: "
        f"add --read {flags} to show it.",
    )


def _folder_to_show(path: str, home: str) -> str:
    """Return what to name so that a program works: its version manager's or its own folder.

    In a home that is the first folder, `~/.pyenv`, for what it runs lies all over it; in
    one that many programs share a part of it, `~/.local/share/uv`; elsewhere what holds
    its `bin`.
    """
    if path.startswith(home + "/"):
        parts = path[len(home) + 1 :].split("/")
        if parts[0].startswith(".") and len(parts) > 1:
            depth = 3 if parts[0] in SHARED and parts[1] in ("share", "lib", "state") else 2
            depth = depth if parts[0] in SHARED else 1
            return "/".join([home, *parts[: min(depth, len(parts) - 1)]])
    folder = path.rpartition("/")[0]
    above = folder.rpartition("/")[0]
    if folder.endswith(("/bin", "/sbin")) and above not in ("", home):
        folder = above
    return folder if folder not in ("", home) else path


def _joined(cwd: str, path: str) -> str:
    return path if path.startswith("/") else f"{cwd}/{path}"


def _kind(path: str) -> int:
    """Return what lies at a path, as `stat` has it (S_IFMT)."""
    return posix.stat(path).st_mode & 0o170000


def text_of(data: bytes) -> str:
    """Return a name as Python has it (`os.fsdecode`)."""
    return data.decode(sys.getfilesystemencoding(), "surrogateescape")


def _error(code: int, errno: int, message: str) -> "LaunchError":
    from sandbox.errors import LaunchError

    return LaunchError("program", errno, message, exit_code=code)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.errors import LaunchError
