"""What other Python programs import to run a program in a sandbox; standard library alone.

    from sandbox.client import Confinement, Spec, wrap

    wrapped = wrap(Confinement.of(Spec.read("box.toml"), name="box"), ["make", "test"])
    subprocess.run(wrapped.argv, env={**my_environment, **wrapped.env})

The sandbox decides only what the program may touch; what runs, where and with which
environment stays the caller's.  The command is complete: it can be kept and run later.
"""

from __future__ import annotations

import os
import sys

from sandbox.binding import ProxyBound, bind_proxy
from sandbox.confinement import (
    Closed,
    Confinement,
    Host,
    Loopback,
    Net,
    Proxied,
    Proxy,
    Reached,
    Reaching,
    Unwalled,
)
from sandbox.errors import LaunchError, SandboxError, SpecError, Unavailable, Unsupported
from sandbox.handed import ProxyBind, RunSecret, RunWith
from sandbox.held_port import HeldPort
from sandbox.published import Traffic, traffic
from sandbox.spec import Spec
from sandbox.tokens import Tokens, tokens
from sandbox.wires import PausedWire, Wires, wires

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Closed",
    "Confinement",
    "HeldPort",
    "Host",
    "LaunchError",
    "Loopback",
    "Net",
    "PausedWire",
    "Proxied",
    "Proxy",
    "ProxyBind",
    "ProxyBound",
    "Reached",
    "Reaching",
    "RunSecret",
    "RunWith",
    "SandboxError",
    "Spec",
    "SpecError",
    "Tokens",
    "Traffic",
    "Unavailable",
    "Unsupported",
    "Unwalled",
    "Wires",
    "Wrapped",
    "bind_proxy",
    "tokens",
    "traffic",
    "wires",
    "wrap",
]

WRAP_TIMEOUT_S = 60
"""`wrap` looks at this machine and prints; what takes longer than this hangs."""
DEPENDENCIES = ("msgspec", "uvloop", "trio")
"""What the printed command's proxy imports: `wrap` has to see where they are."""
KEPT_VARIABLES = ("HOME", "LNK_HOME", "PATH", "LANG", "LC_ALL")
"""All that `wrap` reads of the caller's environment; a loader's settings aren't among them."""

_START = """\
import sys
from _frozen_importlib_external import PathFinder
package, *dependencies = sys.argv[1].split("\\n")
class Ours:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is None and name in ("sandbox", "proto", "shells"):
            return PathFinder.find_spec(name, [package])
sys.meta_path.insert(0, Ours)
sys.path += dependencies
sys.argv = ["lnk-sandbox", "sandbox", "wrap"]
from sandbox.cli.main import main
sys.exit(main())
"""
"""Of the package's own folder only its packages are imported: it may be a clone that a
sandbox writes, and nothing else there may ever run outside."""


class Wrapped:
    """A command that runs a program confined (`argv`), and what to add to its environment."""

    __slots__ = ("argv", "env")

    def __init__(self, argv: tuple[str, ...], env: dict[str, str]) -> None:
        self.argv = argv
        self.env = env


def wrap(confinement: Confinement | Unwalled, argv: Sequence[str]) -> Wrapped:
    """Return the command that runs `argv` confined (`lnk sandbox wrap`).

    Raises SandboxError with the sentence that `wrap` printed and its exit status: 2 for a
    request it refuses, 125 where no sandbox can be made on this machine.
    """
    import json
    import subprocess

    key = "unwalled" if isinstance(confinement, Unwalled) else "confinement"
    request = json.dumps({key: confinement.as_json(), "argv": list(argv)})
    try:
        done = subprocess.run(
            _command(),
            input=request.encode(),
            capture_output=True,
            env={name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ},
            cwd="/",
            timeout=WRAP_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError("wrap", getattr(error, "errno", 0) or 0, f"wrap: {error}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise SandboxError(said.removeprefix("lnk sandbox: "), exit_code=done.returncode)
    made = json.loads(done.stdout)
    return Wrapped(tuple(made["argv"]), made["env"])


def _command() -> list[str]:
    """Return `lnk sandbox wrap` as the interpreter that runs this, isolated.

    Nothing of the working folder or of PYTHON* is imported: the package's own folder and
    its dependencies' are named in full, after the standard library.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = dict.fromkeys(filter(None, map(_imported_from, DEPENDENCIES)))
    return [sys.executable, "-I", "-S", "-c", _START, "\n".join([package, *folders])]


def _imported_from(name: str) -> str | None:
    """Return the folder that a package would be imported from, unimported."""
    for folder in sys.path:
        if os.path.isabs(folder) and os.path.isdir(os.path.join(folder, name)):
            return folder
    return None
