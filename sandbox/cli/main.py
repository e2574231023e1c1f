"""The entry of `lnk` and `lnk-sandbox`: find the command, import its module, run it.

Only the module of the command that is run is imported (R4).  Each has
`main(words: list[str]) -> int`, which returns the exit status or raises a SandboxError:
one sentence on stderr and the error's own status.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from errno import ENOSPC

from sandbox.errors import SandboxError, quoted, sentence

VERSION = "0.1.0"


class Command:
    """A row of the table: where a command lives, what it is for, how it is used."""

    __slots__ = ("example", "module", "summary")

    def __init__(self, module: str, summary: str, example: str) -> None:
        self.module = module
        self.summary = summary
        self.example = example


COMMANDS: dict[str, Command] = {
    "proxy": Command(
        "sandbox.cli.proxy",
        "a filtering proxy that stands by itself",
        "lnk sandbox proxy --listen 127.0.0.1:8080 --hosts example.com,'*.example.org'",
    ),
    "run": Command(
        "sandbox.cli.run",
        "a program in a sandbox of the flags given, or of a spec",
        "lnk sandbox run --write . --internet-host example.com -- curl https://example.com/",
    ),
    "check": Command(
        "sandbox.cli.check",
        "tries a sandbox from inside: each thing it closes, each thing it opens",
        "lnk sandbox check --spec box.toml",
    ),
    "learn": Command(
        "sandbox.cli.learn",
        "the programs that a command runs, as lines for a spec's [commands] only",
        "lnk sandbox learn --spec box.toml -- make",
    ),
    "ready": Command(
        "sandbox.cli.ready",
        "whether this machine can run a sandbox, and what it lacks",
        "lnk sandbox ready --yes",
    ),
    "tool": Command(
        "sandbox.cli.tool",
        "the tools that run outside, MCP servers that a sandbox may call",
        "lnk sandbox tool add notes --allow list_notes -- npx -y notes-server ~/notes",
    ),
    "mcp-remote": Command(
        "sandbox.cli.mcp_remote",
        "a tool at a URL, as an MCP server on standard input and output",
        "lnk sandbox mcp-remote https://docs.example/mcp",
    ),
    "answer": Command(
        "sandbox.cli.answer",
        "the questions of sandboxes that wait for an answer",
        "lnk sandbox answer k3x9p yes",
    ),
    "wrap": Command(
        "sandbox.cli.wrap",
        "the command that runs a program confined, for programs that keep it",
        "lnk sandbox wrap --explain < request.json",
    ),
    "stop": Command(
        "sandbox.cli.stop",
        "the kill switch: every wire closes, open calls end within two seconds",
        "lnk sandbox stop",
    ),
    "start": Command(
        "sandbox.cli.start",
        "opens the wires that stop has closed",
        "lnk sandbox start",
    ),
    "paused": Command(
        "sandbox.cli.paused",
        "which wires are closed, and why",
        "lnk sandbox paused --json",
    ),
    "resume": Command(
        "sandbox.cli.resume",
        "opens a wire that was paused since its calls looked wrong",
        "lnk sandbox resume run-4711",
    ),
    "log": Command(
        "sandbox.cli.log",
        "each call that was allowed or refused, and how it ended",
        "lnk sandbox log run-4711 --follow",
    ),
    "traffic": Command(
        "sandbox.cli.traffic",
        "the bytes that each running sandbox's proxy has carried",
        "lnk sandbox traffic --json",
    ),
}

HIDDEN: dict[str, Command] = {
    "proxy-inside": Command(
        "sandbox.cli.proxy_inside",
        "joins ports inside a sandbox to the folders of proxies started apart",
        "lnk sandbox proxy-inside --also /srv/agent/wire=40781",
    ),
    "on-stop": Command(
        "sandbox.cli.on_stop",
        "what stop runs, for plugins that run sandboxes in the background",
        "lnk sandbox on-stop agent-ann -- agent stop -a ann",
    ),
}
"""Commands that other programs call: they aren't listed."""


ENDED_BY_SIGPIPE = 128 + 13
"""As a shell has it for who prints on to a reader that has left."""


def main() -> int:
    """Run the command that the process was started with; return its exit status."""
    gc.disable()  # a start leaves no garbage, and looking for it takes a tenth of one
    _hold_standard_streams()
    if sys.stdout.encoding != "utf-8" and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # as stderr is: our texts hold an ellipsis
    program = os.path.basename(sys.argv[0])
    try:
        status = run(sys.argv[1:], bare="lnk" if program == "lnk" else "lnk-sandbox")
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # head(1) has seen enough
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        return ENDED_BY_SIGPIPE
    except OSError as error:
        if error.errno != ENOSPC or error.filename is not None:
            return _out_of_something(error)
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)  # what is left of it goes nowhere at the end
        _say("lnk sandbox: what it prints finds no space left: make room.")
        return 1
    except SandboxError as error:
        _say(f"lnk sandbox: {sentence(error)}")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    finally:
        gc.enable()


def run(words: list[str], *, bare: str = "lnk-sandbox") -> int:
    """Run `words`; `bare` is the program's name: only `lnk` needs the word `sandbox`.

    (`lnk` is to hold other plugins' commands beside ours.)
    """
    first = words[0] if words else ""
    if first == "sandbox":
        words = words[1:]
    elif bare == "lnk" and first in COMMANDS:
        return _refuse(f"{quoted(first)} is a command of the sandbox: write lnk sandbox {first}.")
    name, *rest = words or [""]
    match name:
        case "":
            _say(help_text())
            return 2
        case "--help" | "-h" | "help":
            print(help_text())
            return 0
        case "--version":
            print(f"lnk-sandbox {VERSION}")
            return 0
    command = COMMANDS.get(name) or HIDDEN.get(name)
    if command is None:
        from sandbox.cli.flags import meant

        what = f"{quoted(name)} is no command{meant(name, COMMANDS)}"
        return _refuse(f"{what}: lnk sandbox --help lists them.")
    __import__(command.module)  # importlib costs a start half a millisecond
    status: int = sys.modules[command.module].main(rest)
    return status


def help_text() -> str:
    """Return what `--help` prints: each command, with a line to copy."""
    rows = [f"  {name}: {row.summary}\n      {row.example}" for name, row in COMMANDS.items()]
    return "\n".join(
        [
            "Shuts a program in and gives it one wire out.",
            "",
            "usage: lnk sandbox <command> [flags]   (or lnk-sandbox <command> [flags])",
            "",
            *rows,
            "",
            "lnk sandbox <command> --help says more; --version names this version.",
        ]
    )


def _refuse(sentence: str) -> int:
    _say(f"lnk sandbox: {sentence}")
    return 2


def _say(text: str) -> None:
    """Print on stderr; that nobody can read it changes no exit status (a full disk)."""
    try:
        print(text, file=sys.stderr)
    except OSError:
        os.dup2(os.open("/dev/null", os.O_WRONLY), 2)  # Python tries once more as it ends


def _out_of_something(error: OSError) -> int:
    """Say what this machine has no more of, and what to do; another error is raised again."""
    from sandbox.linux.given import CURES

    cure = CURES.get(error.errno or 0)
    if cure is None:
        raise error
    what = "" if error.filename is None else f"{error.filename}: "
    said = sentence(SandboxError(f"{what}{error.strerror}: {cure}."))
    _say(f"lnk sandbox: {said}")
    return SandboxError.exit_code


def _hold_standard_streams() -> None:
    """Open what of 0, 1 and 2 is closed.

    The next socket would get the free number, and whatever is printed would go to it.
    """
    while (fd := os.open("/dev/null", os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    # Python found them closed, and has None in their place.
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - stays open
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - stays open
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - stays open


if __name__ == "__main__":
    sys.exit(main())
