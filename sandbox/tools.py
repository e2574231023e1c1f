"""The tools that run outside: MCP servers that a person defined, each a file of Link's (R53).

    {"name": "notes", "argv": ["/usr/bin/notes-server"], "ask": "all", "allow": ["read_note"]}

A file holds what its server is started with, a token perhaps, so it is its user's alone.
"""

from __future__ import annotations

import os

from sandbox.errors import SandboxError, SpecError, quoted
from sandbox.place import Place
from sandbox.route import Tool, remote_words
from sandbox.strict_json import read_json
from sandbox.table import dump_table, read_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.state import State

FOLDER = "tools"
WORK = "work"
"""Of the folders that their servers work in."""
FILE_MAX_BYTES = 1 << 20
LEFT_OUT = ": …"
"""In place of a field's value; no field can hold it, for it isn't ASCII."""


def load(state: State, name: str) -> Tool | None:
    """Return a tool, None where there is none of that name.

    Raises SpecError, with the cure, for a file that holds none, or another's.
    """
    if not _is_there(state, name):
        return None
    data = state.read(FOLDER, f"{name}.json") or b""
    place = Place(("tools", name))
    try:
        tool = read_table(Tool, read_json(data, FILE_MAX_BYTES, str(place)), place)
        if tool.name != name:
            place.at("name").refuse(f"{quoted(tool.name)} isn't the name that its file bears")
    except SpecError as error:
        cure = f"lnk sandbox tool remove {name} takes it away"
        raise SpecError(error.key, f"{error.message}; {cure}") from None
    return tool


def _is_there(state: State, name: str) -> bool:
    return f"{name}.json" in state.names(FOLDER)


def load_all(state: State) -> list[Tool]:
    """Return every tool, by name."""
    names = [name.removesuffix(".json") for name in state.names(FOLDER) if name.endswith(".json")]
    found = (load(state, name) for name in names if not name.startswith("."))
    return [tool for tool in found if tool is not None]


def save(state: State, tool: Tool) -> None:
    """Write a tool; raises SandboxError (2) where there is one of its name."""
    try:
        state.write(text_of(tool).encode() + b"\n", FOLDER, f"{tool.name}.json", new=True)
    except FileExistsError:
        raise SandboxError(
            f"there is a tool {tool.name} already: lnk sandbox tool remove {tool.name}, "
            "then add it.",
            exit_code=2,
        ) from None


def remove(state: State, name: str) -> str | None:
    """Remove a tool; return the folder in which its server has left something, empty for none.

    None where there is no tool of that name.  What a server wrote is its person's: it stays.
    """
    if not _is_there(state, name):
        return None
    state.remove(FOLDER, f"{name}.json")
    if name not in state.names(WORK):
        return ""
    folder = os.path.join(state.path, WORK, name)
    try:
        os.rmdir(folder)
    except OSError:
        return folder
    return ""


def text_of(tool: Tool) -> str:
    """Return a tool as it is kept, on one line."""
    import json

    told = dump_table(tool)
    return json.dumps({key: told.get(key, []) for key in ("name", "argv", "ask", "allow")})


def shown(tool: Tool) -> str:
    """Return a tool as `tool list --json` prints it: of a far one's fields the names alone."""
    argv = _shown_argv(tool.argv)
    return text_of(Tool(name=tool.name, argv=argv, ask=tool.ask, allow=tool.allow))


def _shown_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    found = list(argv)
    for at in _fields_of(argv):
        found[at] = f"{found[at].partition(':')[0]}{LEFT_OUT}"
    return tuple(found)


def _fields_of(argv: tuple[str, ...]) -> list[int]:
    """Return where the fields of a tool at a URL stand in its command."""
    far = remote_words(argv) or []
    return [at for at in range(len(argv) - len(far) + 1, len(argv)) if argv[at - 1] == "--header"]


def whole_argv(tool: Tool, state: State, place: Place) -> tuple[str, ...]:
    """Return a route's command, with the fields that `tool list --json` has left out of it.

    So who makes a route of what is listed needs no token, and never has one.  Raises SpecError
    at `place` where the tool isn't kept as it was listed.
    """
    if not any(tool.argv[at].endswith(LEFT_OUT) for at in _fields_of(tool.argv)):
        return tool.argv
    kept = load(state, tool.name)
    if kept is None or _shown_argv(kept.argv) != tool.argv:
        place.refuse(
            f"isn't how {tool.name} is defined by now; take it anew from lnk sandbox tool list "
            "--json"
        )
    return kept.argv


def found(command: str, path: str) -> str:
    """Return the absolute path of a command, as a shell finds it; SandboxError (2) for none."""
    try:
        at = os.path.abspath(command) if "/" in command else _on_path(command, path)
    except OSError:
        at = None  # the working folder is gone
    if at is None or not os.path.isfile(at):
        raise SandboxError(f"{quoted(command)} is no program here: write its path.", exit_code=2)
    if not os.access(at, os.X_OK):
        raise SandboxError(f"{at} can't be run: make it executable.", exit_code=2)
    return at


def _on_path(command: str, path: str) -> str | None:
    for folder in path.split(":"):
        at = os.path.join(folder, command)
        if folder.startswith("/") and os.path.isfile(at) and os.access(at, os.X_OK):
            return at
    return None
