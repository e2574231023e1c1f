"""`lnk sandbox tool add|list|remove`: the tools that run outside (R53)."""

from __future__ import annotations

import os

from sandbox.cli.flags import Flag, Flags, UsageError, describe, read_flags
from sandbox.errors import SandboxError, one_line, quoted
from sandbox.state import State, settings_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.route import Tool

ADD_FLAGS = (
    Flag("--allow", "CALL", "a call that doesn't ask, exactly as it is named", many=True),
    Flag("--ask", "all|none", "which calls ask: all but those allowed (default), or none"),
    Flag("--help", "", "print this"),
)
LIST_FLAGS = (
    Flag("--json", "", "a line of JSON for each"),
    Flag("--help", "", "print this"),
)
REMOVE_FLAGS = (Flag("--help", "", "print this"),)

HELP = f"""\
Tools that run outside: MCP servers of yours that a sandbox may call, each call asked about.

usage: lnk sandbox tool add NAME [flags] -- PROGRAM [ARGUMENT…]
       lnk sandbox tool list [--json]
       lnk sandbox tool remove NAME

{describe(ADD_FLAGS)}

A sandbox reaches the tools that its spec names, [tools] use = ["NAME"], at the address in
LNK_TOOL_<NAME>.  A tool's server is started outside at the first call, and gets your HOME.

  lnk sandbox tool add notes --allow list_notes -- npx -y notes-server ~/notes
  lnk sandbox tool add docs -- lnk-sandbox sandbox mcp-remote https://docs.example/mcp \\
      --header-file ~/docs.header"""


def main(words: list[str]) -> int:
    """Do one of the three; raises SandboxError."""
    verb, *rest = words or [""]
    match verb:
        case "add":
            return _add(rest)
        case "list":
            return _list(rest)
        case "remove":
            return _remove(rest)
        case "--help" | "-h":
            print(HELP)
            return 0
    raise UsageError("write lnk sandbox tool add, list or remove.")


def _read(
    verb: str, known: tuple[Flag, ...], words: list[str], *, takes_rest: bool = False
) -> tuple[str, Flags] | None:
    """Return which tool, and the flags; None where help was asked for, which is printed."""
    has_name = bool(words) and not words[0].startswith("-")
    flags = read_flags(known, words[has_name:], takes_rest=takes_rest)
    if "--help" in flags:
        print(HELP)
        return None
    if not has_name:
        raise UsageError(f"which tool? Write lnk sandbox tool {verb} NAME.")
    return words[0], flags


def _add(words: list[str]) -> int:
    read = _read("add", ADD_FLAGS, words, takes_rest=True)
    if read is None:
        return 0
    from sandbox import tools
    from sandbox.place import Place
    from sandbox.route import Tool
    from sandbox.table import read_table

    name, flags = read
    argv = flags.rest
    if not argv or not argv[0]:
        raise UsageError("there is no program to run: write it after --.")
    told = {
        "name": name,
        "argv": _with_fields([tools.found(argv[0], os.environ.get("PATH", "")), *argv[1:]]),
        "ask": flags.one("--ask", "all"),
        "allow": flags.all("--allow"),
    }
    tool = read_table(Tool, told, Place(("tool",)))
    tools.save(State(settings_folder()), tool)
    print(one_line(f"{name}: {tool.argv[0]}; {_asking(tool)}."))
    return 0


def _asking(tool: Tool) -> str:
    """Return in words which calls of a tool ask."""
    if tool.ask == "none":
        return "no call asks you"
    return "every call asks you" + (f", but {', '.join(tool.allow)}" if tool.allow else "")


def _with_fields(argv: list[str]) -> list[str]:
    """Return a tool's command; where it is reached at a URL, judged, and with its fields."""
    from sandbox.route import remote_words

    words = remote_words(argv)
    if words is None:
        return argv
    from sandbox.cli.mcp_remote import kept_words

    return [*argv[: len(argv) - len(words)], *kept_words(words)]


def _list(words: list[str]) -> int:
    flags = read_flags(LIST_FLAGS, words)
    if "--help" in flags:
        print(HELP)
        return 0
    from sandbox import tools

    found = tools.load_all(State(settings_folder()))
    for tool in found:
        if "--json" in flags:
            print(tools.shown(tool))
        else:
            print(one_line(f"{tool.name}: {tool.argv[0]}; {_asking(tool)}."))
    if not found and "--json" not in flags:
        print("No tool is defined: lnk sandbox tool add --help says how.")
    return 0


def _remove(words: list[str]) -> int:
    read = _read("remove", REMOVE_FLAGS, words)
    if read is None:
        return 0
    from sandbox import tools

    name, _ = read
    left = tools.remove(State(settings_folder()), name)
    if left is None:
        raise SandboxError(
            f"there is no tool {quoted(name)}: lnk sandbox tool list names them.", exit_code=1
        )
    if left:
        print(one_line(f"{name}: removed; what its server wrote stays in {left}."))
    return 0
