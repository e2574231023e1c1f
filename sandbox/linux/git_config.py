"""Git's settings, read by a parser of our own, bounded: git never runs on them outside (R3).

What is asked of them is little: which hooks folder they name (`core.hooksPath`), which
files they include, where the work tree is, and what a new repository begins with
(`init.templateDir`: its hooks and settings are copied).  A condition (`includeIf`) counts as
met, for it may be met when git runs.

The syntax is git-config(1)'s as git's own reader takes it, byte for byte: a file that git
refuses is refused here, since git runs nothing on it, and one that git reads must never
look empty here.  Imported at every start of a sandbox, so it imports no `os` and no `re`.
"""

from sandbox.linux.program import text_of
from sandbox.linux.walk import Unreadable, read_file

TOTAL_MAX_BYTES = 512 << 10
"""Of all settings of a sandbox's folders together; a large repository's are some KiB."""
FILES_MAX = 128

BOM = b"\xef\xbb\xbf"
SPACES = b" \t\n\r"
"""Git's own white space, which has no form feed."""
LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
IN_KEYS = LETTERS + b"0123456789-"
IN_SECTIONS = IN_KEYS + b"."
ESCAPES = {b"t"[0]: b"\t", b"b"[0]: b"\b", b"n"[0]: b"\n", b"\\"[0]: b"\\", b'"'[0]: b'"'}
NEWLINE, BACKSLASH, QUOTE, HASH, SEMICOLON, OPEN, CLOSE, EQUALS = b'\n\\"#;[]='


class GitConfigError(Exception):
    """A file that git refuses to read; `line` counts from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is none of git's settings")
        self.line = line


def parse(data: bytes) -> "list[tuple[bytes, bytes | None]]":
    """Return every variable of a settings file in its order, with its value.

    A name is in full, as git compares it: `core.hookspath`, `includeif.<condition>.path`,
    section and key in small letters.  A value is None where there is no `=`.  Raises
    GitConfigError.
    """
    # A file ends as a line does, and so does one whose last byte is a backslash.
    text = data.removeprefix(BOM).replace(b"\r\n", b"\n") + b"\n\n"
    found: list[tuple[bytes, bytes | None]] = []
    at, section = 0, b""
    while at < len(text):
        byte = text[at]
        if byte in SPACES:
            at += 1
        elif byte in (HASH, SEMICOLON):
            at = text.index(b"\n", at)
        elif byte == OPEN:
            section, at = _section(text, at + 1)
        elif byte in LETTERS:
            name, value, at = _variable(text, at)
            # A name is C's to git: `[core "hookspath<NUL>"]` names core.hookspath.
            found.append(((section + name).partition(b"\0")[0], value))
        else:
            raise _error(text, at)
    return found


def _section(text: bytes, at: int) -> "tuple[bytes, int]":
    """Read a section's head behind its bracket; return its name and dot, and where to go on."""
    end = at
    while text[end] in IN_SECTIONS:
        end += 1
    name = text[at:end].lower()
    if text[end] == CLOSE and name:
        return name + b".", end + 1
    if text[end] not in SPACES:
        raise _error(text, end)
    while text[end] in SPACES:
        if text[end] == NEWLINE:
            raise _error(text, end)
        end += 1
    if text[end] != QUOTE:
        raise _error(text, end)
    subsection, end = _quoted(text, end + 1)
    if text[end] != CLOSE:
        raise _error(text, end)
    return name + b"." + subsection + b".", end + 1


def _quoted(text: bytes, at: int) -> "tuple[bytes, int]":
    """Read a subsection's name up to its closing quote; a backslash takes any byte as it is."""
    found = bytearray()
    while text[at] != QUOTE:
        at += text[at] == BACKSLASH
        if text[at] == NEWLINE:
            raise _error(text, at)
        found.append(text[at])
        at += 1
    return bytes(found), at + 1


def _variable(text: bytes, at: int) -> "tuple[bytes, bytes | None, int]":
    end = at
    while text[end] in IN_KEYS:
        end += 1
    name = text[at:end].lower()
    while text[end] in b" \t":
        end += 1
    if text[end] == NEWLINE:
        return name, None, end + 1
    if text[end] != EQUALS:
        raise _error(text, end)
    value, end = _value(text, end + 1)
    return name, value, end


def _value(text: bytes, at: int) -> "tuple[bytes, int]":
    end = text.index(b"\n", at)
    line = text[at:end]
    if not any(byte in line for byte in b'"\\#;'):
        return line.strip(SPACES), end + 1
    return _intricate_value(text, at)


def _intricate_value(text: bytes, at: int) -> "tuple[bytes, int]":
    """Read a value with quotes, escapes, comments or lines that go on in the next."""
    found = bytearray()
    kept = 0  # how much of it stays though blanks follow
    quoted = False
    while text[at] != NEWLINE:
        byte = text[at]
        at += 1
        if byte in SPACES and not quoted:
            if found:
                found.append(byte)
            continue
        if byte in (HASH, SEMICOLON) and not quoted:
            at = text.index(b"\n", at)
            break
        if byte == QUOTE:
            quoted = not quoted
        elif byte != BACKSLASH:
            found.append(byte)
        elif text[at] == NEWLINE:
            at += 1
            kept = len(found)
            continue
        elif text[at] in ESCAPES:
            found += ESCAPES[text[at]]
            at += 1
        else:
            raise _error(text, at)
        kept = len(found)
    if quoted:
        raise _error(text, at)
    return bytes(found[:kept]), at + 1


def _error(text: bytes, at: int) -> GitConfigError:
    return GitConfigError(text.count(b"\n", 0, at) + 1)


class Reader:
    """Reads settings and all that they include, within one budget.

    home: what `~/` stands for.  files: every file looked for so far, there or not.  templates:
    the folders from which repositories are begun, as far as they are named in full.
    """

    def __init__(self, home: str) -> None:
        self.home = home
        self.files: dict[str, None] = {}
        self.templates: dict[str, None] = {}
        self._left = TOTAL_MAX_BYTES

    def read(self, path: str) -> "tuple[list[str], list[str]]":
        """Return the hooks folders and the work trees that a file and its includes name.

        Both as they are written there, `~` replaced.  A file that may not be read names
        nothing: git doesn't get to read it either.  Raises Unreadable for one that git
        refuses, and for more than can be looked through.
        """
        hooks: list[str] = []
        trees: list[str] = []
        waiting = [path]
        seen = set()
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            for name, value in self._variables(path):
                text = "" if value is None else self._path(value)
                if not text:
                    continue
                if name == b"core.hookspath":
                    hooks.append(text)
                elif name == b"core.worktree":
                    trees.append(text)
                elif name == b"init.templatedir" and text.startswith("/"):
                    self.templates[text] = None
                elif _is_include(name):
                    waiting.append(joined(path.rpartition("/")[0], text))
        return hooks, trees

    def _variables(self, path: str) -> "list[tuple[bytes, bytes | None]]":
        self.files[path] = None
        if len(self.files) > FILES_MAX:
            raise Unreadable(path, f"is one of more than {FILES_MAX} files of git's settings")
        try:
            data = read_file(path, self._left)
        except PermissionError:
            return []
        if data is None:
            return []
        self._left -= len(data)
        try:
            return parse(data)
        except GitConfigError as error:
            raise Unreadable(path, f"can't be read by git: {error}") from None

    def _path(self, value: bytes) -> str:
        """Return a path as git takes it, empty where it names no file of this machine's folders."""
        text = text_of(value.partition(b"\0")[0]).removeprefix(":(optional)")
        if text.startswith("%(prefix)/"):
            return ""  # git's own installation
        if not text.startswith("~"):
            return text
        user, slash, rest = text[1:].partition("/")
        home = _home_of(user) if user else self.home
        return f"{home}{slash}{rest}" if home else ""


def _is_include(name: bytes) -> bool:
    return name == b"include.path" or (
        name.startswith(b"includeif.") and name.endswith(b".path") and name.count(b".") > 1
    )


def _home_of(user: str) -> str:
    import pwd  # hardly any settings name another's home

    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        return ""


def joined(folder: str, path: str) -> str:
    """Return a path read from a folder."""
    return path if path.startswith("/") else f"{folder}/{path}"
