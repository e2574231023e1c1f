"""What a kept command runs: its plan from the command line, a sandbox, and its proxy.

The program is started before anything is imported that only the proxy needs, and the
launcher imports no more than it has to (`sandbox.linux.launcher`).
"""

import gc
import posix
import sys


def main(words: "list[str]") -> int:
    """Run `<plan>… -- <program> <argument>…`; return only where it couldn't be started."""
    gc.disable()  # as every start of ours has it (`sandbox.cli.main`)
    if words and words[0] in OUTSIDE:
        return _outside(*words)
    if words[:1] == ["proxy"]:
        return _proxy(words)
    from sandbox.linux import kept, launcher
    from sandbox.linux.given import as_it_came

    try:
        found = kept.taken_apart(words)
        if found is None:
            _say("this command is for Link alone: make one with lnk sandbox wrap.")
            return 2
        text = found[0]
        plan = kept.unpacked(kept.taken_from(text) if text.startswith(kept.FROM_FD) else text)
        environ = as_it_came(dict(posix.environ)) if plan.run is None else kept.environ_of(plan.run)
        serve = None if plan.wire is None else _server(plan)
        launcher.run(plan, found[1], environ, serve)
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise
        from sandbox.errors import sentence

        _say(sentence(error))
        return int(code)


OUTSIDE = {"bridge": "bridge", "ask": "ask", "mcp-remote": "mcp_remote"}
"""What stands outside beside a proxy, and is started this way: isolated, and quickly."""


def _outside(word: str, *words: str) -> int:
    """Be a bridge of a proxy's, or what a bridge starts."""
    from sandbox.errors import SandboxError, sentence

    name = f"sandbox.cli.{OUTSIDE[word]}"
    __import__(name)
    try:
        code: int = sys.modules[name].main(list(words))
    except SandboxError as error:
        _say(f"a bridge: {sentence(error)}")
        return error.exit_code
    return code


def _proxy(words: "list[str]") -> int:
    """Run the proxy of a command that has no sandbox of its own (`sandbox.linux.apart`)."""
    from sandbox.cli.main import main as lnk

    sys.argv[1:] = words
    return lnk()


def _server(plan: "Kept") -> "Serve":
    """Return what serves the proxy on its listener, on the main thread."""
    routes = plan.wire["routes"] if plan.wire is not None else None
    if isinstance(routes, dict) and "desktop" not in routes:
        from sandbox.linux.environment import to_the_desktop

        routes["desktop"] = to_the_desktop(posix.environ)  # which is emptied soon

    def serve(doors: "Doors", stopped: int, ready: "Callable[[], None]") -> None:
        sys.path += [folder for folder in plan.imports if folder not in sys.path]
        from sandbox.cli.wire import Teller, serve_wire

        assert plan.wire is not None
        teller = None
        if plan.run is not None:
            teller = Teller(plan.run["tell"], plan.wire["upstream"])  # type: ignore[arg-type]
        serve_wire(plan.wire, doors, stopped, ready, teller)

    return serve


def _say(sentence: str) -> None:
    print(f"lnk sandbox: {sentence}", file=sys.stderr)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.linux.kept import Kept
    from sandbox.linux.running import Serve
    from sandbox.linux.socket_maker import Doors
