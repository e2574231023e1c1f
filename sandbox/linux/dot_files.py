"""A project's dot files: what runs on your side though you never run the project (R70, R71).

Git runs what its settings and hooks name on almost any command, direnv an `.envrc`, an
editor a folder's tasks.  So at the top of each folder that a sandbox writes these are read
only, missing ones are held by an empty folder while it runs (`placeholders`), and the
folders above a deeper one are pinned, or they could be moved away and made again.

All of it is looked up at each start, by the launcher: between a `wrap` and a start a clone
gets a hooks folder, or a folder its first repository.  Three steps, the first two of which
change nothing:

    look    what has to be closed, from names, links, and git's own settings
    Needed  which of it is missing, and which folders above have to stay where they are
    merged  bubblewrap's arguments with a mount for each (`dot_mounts`)

Imported at every start, so it imports no `os`.
"""

import posix

from sandbox.linux.dot_mounts import Guard, Layout, Needed, merged
from sandbox.linux.git_config import Reader, joined
from sandbox.linux.git_layout import (
    Repository,
    own_folder_around,
    repositories_above,
    repository_at,
)
from sandbox.linux.kept import Kept
from sandbox.linux.placeholders import Journal, Raced
from sandbox.linux.walk import FILE, FOLDER, LINK, Unreadable, inside, kind_of, read_file, walk

WHOLE = (".git", ".vscode", ".idea", ".husky")
"""Folders of which all is closed.  Of `.git` not only settings and hooks: a file in it,
`commondir`, points git at settings anywhere."""
UNHELD = ".envrc"
"""direnv runs a new one only once you have allowed it, having seen it; and a folder of that
name would stand where it expects a file."""
HEAD = "HEAD"
"""Held where the folder isn't the top of a repository: with a HEAD, objects and refs at its
top it would be a repository itself, whose settings git reads though `.git` is held."""

PRE_COMMIT = ".pre-commit-config.yaml"
LEFTHOOK_FOLDERS = (".lefthook", ".lefthook-local")
LEFTHOOK_NAMES = ("lefthook", ".lefthook", ".config/lefthook")
LEFTHOOK_ENDS = (".yml", ".yaml", ".json", ".jsonc", ".toml")
HOOK_MAX_BYTES = 256 << 10
"""What of a hook is searched for a manager's name: their own are some KiB."""
HOOKS_MAX = 512
SUBMODULES_MAX = 256
"""Each costs bubblewrap mounts, and it takes about 3,000 in all."""


TRIES = 8
"""How often to look again where something came or went between the look and the making."""


def hold(kept: Kept) -> "Run | None":
    """Close the dot files of a sandbox that is about to start, in its arguments.

    Returns what it rests on, to be ended with it; None where no dot files are closed.
    Whatever else starts, it takes away what dead runs left.
    """
    journal = Journal(kept.state)
    if kept.dots is None:
        journal.sweep()
        return None
    closed, written, settings = kept.dots
    layout = Layout(kept.arguments)
    with journal.locked():
        for _ in range(TRIES):
            needed = Needed(look(closed, written, settings, layout, kept.home), layout)
            try:
                run = journal.begin(needed.missing, needed.standing())
            except Raced:
                continue
            needed.without(run.unmade)
            kept.arguments = merged(kept.arguments, layout, needed)
            return run
    raise _error("the dot files change faster than they can be looked at: try again.")


def look(
    closed: "list[str]",
    written: "dict[str, str]",
    settings: "list[str]",
    layout: Layout,
    home: str,
) -> "list[Guard]":
    """Return all that has to be closed, in order; nothing is changed.

    closed: the written folders whose dot files are closed.  written: every folder that is
    written, with the words that say which key names it.  settings: the person's and the
    machine's own files of git's settings.  Raises LaunchError for a link where a dot file
    should be, a folder that is itself one, and settings that can't be read.
    """
    looker = _Looker(closed, written, layout, home)
    try:
        for folder in closed:
            looker.top(folder)
        looker.settings(settings)
    except Unreadable as error:
        raise _error(f"{error}: it may name what runs outside.") from None
    return looker.found()


class _Looker:
    """Collects guards; each step may rest on what an earlier one has closed."""

    def __init__(
        self, closed: "list[str]", written: "dict[str, str]", layout: Layout, home: str
    ) -> None:
        self.closed = closed
        self.written = written
        self.layout = layout
        self.reader = Reader(home)
        self.guards: dict[str, Guard] = {}
        self.stays: dict[str, Guard] = {}
        self.repositories: dict[str, Repository] = {}
        self._scanned: set[tuple[str, str]] = set()
        self._submodules = 0

    def found(self) -> "list[Guard]":
        """Return the guards, but those that lie in another, or stay where they are anyway."""
        outer = [g for g in self.guards.values() if not self._within(g.at.rpartition("/")[0])]
        above = {folder for guard in outer for folder in self.layout.above(guard.at)}
        stays = [guard for at, guard in self.stays.items() if at not in above]
        outer += [guard for guard in stays if not self._within(guard.at)]
        return sorted(outer, key=lambda guard: guard.at)

    # -- names at the top of a folder

    def top(self, folder: str) -> None:
        """Close a folder's own dot files; find the repositories that git finds from there."""
        self._refuse_folder(folder)
        for name in WHOLE:
            self._name(f"{folder}/{name}", FOLDER, "a dot file")
        self._name(f"{folder}/{UNHELD}", 0, "direnv's settings")
        own = repository_at(folder)
        if own is None:
            self._head(folder)
        for repository in (*filter(None, [own]), *repositories_above(folder)):
            self._repository(repository)

    def _refuse_folder(self, folder: str) -> None:
        """Refuse a written folder that is itself what runs outside."""
        words = self.written[folder]
        found = walk(folder)
        if found.links:
            raise _error(f"{folder} leads elsewhere by a link: name what it leads to.")
        if found.kind != FOLDER:
            raise _error(f"{folder} does not exist any more.")
        cure = "add it to write_dot_files (--write-dot-files), or name another folder."
        names = [name for name in folder.split("/") if name in WHOLE]
        if names:
            raise _error(f"{words}, which is or lies in a {names[0]}: {cure}")
        around = own_folder_around(folder)
        if around is not None:
            raise _error(f"{words}, and {around} is git's own folder, of a repository: {cure}")

    def _name(self, path: str, by: int, why: str) -> None:
        kind = kind_of(path)
        if kind == LINK:
            # What a mount is made on is what the link leads to, and the link stays free.
            raise _error(
                f"{path} is a link: put what it leads to in its place, or add its folder "
                "to write_dot_files."
            )
        self._add(Guard(path, kind, by, why))

    def _head(self, folder: str) -> None:
        if kind_of(f"{folder}/{HEAD}") == FILE:
            raise _error(
                f"{folder} holds a {HEAD}, as folders of git's own do: take it away, or add "
                "the folder to write_dot_files."
            )
        self._name(f"{folder}/{HEAD}", FOLDER, "what would make it git's own folder")

    # -- what git's settings name

    def _repository(self, repository: Repository) -> None:
        if repository.top in self.repositories:
            return
        self.repositories[repository.top] = repository
        for path in repository.ways:
            self._candidate(path, 0, "git's own folder")
        self._submodules_of(repository)

    def settings(self, theirs: "list[str]") -> None:
        """Close what git's settings name: theirs, and each repository's own."""
        tops = [*self.repositories, *self.closed]
        for path in theirs:
            hooks, _ = self.reader.read(path)
            for one in hooks:
                for top in tops:
                    self._hooks(joined(top, one), [top])
        for repository in self.repositories.values():
            self._settings_of(repository)
        for path in self.reader.files:
            # A folder in a missing one's place would be an error to git; an empty file isn't.
            self._candidate(path, FILE, "git's settings")
        for path in self.reader.templates:
            self._candidate(path, FOLDER, "what git begins a repository with")

    def _settings_of(self, repository: Repository) -> None:
        common, folder = repository.common, repository.folder
        tops = [repository.top]
        hooks: list[str] = []
        for path in dict.fromkeys(
            (f"{common}/config", f"{folder}/config.worktree", f"{common}/config.worktree")
        ):
            named, trees = self.reader.read(path)
            hooks += named
            tops += [joined(folder, tree) for tree in trees]
        for top in tops:
            self._hooks(f"{common}/hooks", [top])
            for one in hooks:
                self._hooks(joined(top, one), [top])

    def _hooks(self, path: str, tops: "list[str]") -> None:
        """Close a hooks folder, what its links lead to, and the settings of its managers."""
        found = walk(path)
        self._candidate(path, FOLDER, "git's hooks")
        before, husky, behind = f"{found.real}/".partition("/.husky/")
        if husky and behind:
            # husky's stubs, in `_`, run its scripts, beside it.
            self._hooks(f"{before}/.husky", tops)
        if found.kind != FOLDER:
            return
        try:
            names = posix.listdir(found.real)
        except OSError as error:
            if not self._is_open(found.real):
                return
            raise Unreadable(found.real, f"can't be listed: {error.strerror}") from None
        if len(names) > HOOKS_MAX:
            raise Unreadable(found.real, f"holds more than {HOOKS_MAX} hooks")
        for name in names:
            if not name.endswith(".sample"):
                self._hook(f"{found.real}/{name}", tops)

    def _hook(self, path: str, tops: "list[str]") -> None:
        if kind_of(path) == LINK:
            self._candidate(path, FILE, "a hook")
        text = _beginning(path)
        for top in tops:
            if (path, top) in self._scanned:
                continue
            self._scanned.add((path, top))
            if b"pre-commit" in text or b"pre_commit" in text:
                for name in _pre_commit_settings(text):
                    self._candidate(joined(top, name), FOLDER, "pre-commit's settings")
            if b"lefthook" in text:
                self._lefthook(top)

    def _lefthook(self, top: str) -> None:
        for name in LEFTHOOK_FOLDERS:
            self._candidate(f"{top}/{name}", FOLDER, "lefthook's scripts")
        own = [f"{top}/{n}-local{end}" for end in LEFTHOOK_ENDS for n in LEFTHOOK_NAMES]
        # Each is optional but read first, and a folder in its place would be an error.
        by = FOLDER if any(kind_of(path) for path in own) else FILE
        for path in own:
            self._candidate(path, by, "lefthook's settings")
            by = FOLDER
        for name in LEFTHOOK_NAMES:
            for end in LEFTHOOK_ENDS:
                self._candidate(f"{top}/{name}{end}", FOLDER, "lefthook's settings")

    def _submodules_of(self, repository: Repository) -> None:
        """Close the `.git` of each submodule: git looks into it from the top, whatever it is."""
        for name in _submodule_paths(repository.folder):
            path = f"{repository.top}/{name}"
            if not self._is_open(path) and not self._is_open(walk(path).real):
                continue
            self._submodules += 1
            if self._submodules > SUBMODULES_MAX:
                raise Unreadable(repository.top, f"has more than {SUBMODULES_MAX} submodules")
            self._candidate(f"{path}/.git", FOLDER, "a submodule's repository")
            inner = repository_at(path)
            if inner is not None:
                self._repository(inner)

    # -- adding

    def _candidate(self, path: str, by: int, why: str) -> None:
        """Close what a path leads to, if a sandbox could change it."""
        found = walk(path)
        for link in found.links:
            if self._is_open(link) and not self._within(link.rpartition("/")[0]):
                # It can't be mounted over, and where it leads would be the sandbox's to say.
                raise _error(
                    f"{link} is a link, and leads to {why}: put what it leads to in its "
                    "place, or add its folder to write_dot_files."
                )
        for place in found.left:
            self._stay(place, why)
        if found.kind or by:
            self._add(Guard(found.real, found.kind, by, why))

    def _stay(self, place: str, why: str) -> None:
        """Keep in its place what a path goes into and back out of: a link could stand there."""
        if self._is_open(place) and place not in self.layout.mounts:
            kind = kind_of(place)
            self._add(Guard(place, kind, FOLDER, why, written=kind in (0, FOLDER)))

    def _add(self, guard: Guard) -> None:
        if not self._is_open(guard.at) or guard.at in self.guards:
            return
        for above in self.layout.above(guard.at):
            if kind_of(above) not in (0, FOLDER):
                # A file stands where a folder is named: in its place one could be made.
                guard = Guard(above, kind_of(above), 0, guard.why)
        if guard.written:
            self.stays[guard.at] = guard
            return
        for folder, words in self.written.items():
            if inside(folder, guard.at):
                raise _error(
                    f"{words}, but {guard.at} is closed ({guard.why}): add the folder whose dot "
                    "file that is to write_dot_files."
                )
        if guard.kind or guard.by:
            self.guards[guard.at] = guard

    def _is_open(self, path: str) -> bool:
        """Tell whether a sandbox could write here, and the folder's dot files are closed."""
        closed = any(inside(path, folder) for folder in self.closed)
        return closed and self.layout.holder(path) is not None

    def _within(self, path: str) -> bool:
        """Tell whether a path is closed already, or lies in a folder that is."""
        while path not in ("", "/"):
            if path in self.guards:
                return True
            path = path.rpartition("/")[0]
        return False


def _submodule_paths(folder: str) -> "list[str]":
    from sandbox.linux.git_index import INDEX_MAX_BYTES, submodules

    try:
        index = read_file(f"{folder}/index", INDEX_MAX_BYTES) or b""
        found = submodules(index)
        if b"link" in index:  # most of it may be in a file that several indices share
            shared = [n for n in posix.listdir(folder) if n.startswith("sharedindex.")]
            for name in shared:
                found += submodules(read_file(f"{folder}/{name}", INDEX_MAX_BYTES) or b"")
    except OSError as error:
        raise Unreadable(f"{folder}/index", f"can't be read: {error.strerror}") from None
    # Git refuses these itself; here they would leave the work tree.
    return [name for name in found if not {"", ".", "..", ".git"} & set(name.split("/"))]


def _beginning(path: str) -> bytes:
    """Return what of a hook is searched; nothing of what isn't a file that can be read."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return posix.read(fd, HOOK_MAX_BYTES)
    except OSError:
        return b""
    finally:
        posix.close(fd)


def _pre_commit_settings(hook: bytes) -> "list[str]":
    """Return the settings files that a hook of pre-commit's reads, its own first."""
    found = [PRE_COMMIT]
    for part in hook.split(b"--config=")[1:]:
        words = part.replace(b")", b" ").split(maxsplit=1)
        name = words[0].strip(b"'\"") if words else b""
        if name and b"\0" not in name:
            found.append(name.decode("utf-8", "surrogateescape"))
    return found


def _error(message: str) -> "LaunchError":
    from sandbox.errors import LaunchError

    return LaunchError("dot files", 0, message)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.errors import LaunchError
    from sandbox.linux.placeholders import Run
