"""Commands of a proxy that stands without a sandbox of its own: before a program, or alone.

    <python> -I -S <script> proxy --settings <JSON>… --listen 127.0.0.1:<port> … -- <argv>

As a kept plan does, the settings stand in the command, cut where the kernel wants it, and
hold nothing secret.
"""

from __future__ import annotations

import json

from sandbox import pointing
from sandbox.linux import environment
from sandbox.linux.packing import parts
from sandbox.linux.plan import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.confinement import Proxy, Unwalled
    from sandbox.linux.own import Own


def before(
    unwalled: Unwalled, wire: Mapping[str, object], own: Own, argv: Sequence[str], secret: str
) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs a program as it is under its proxy, and its environment.

    secret: what the proxy requires where the program is pointed at it, in HTTPS_PROXY alone.
    """
    port = unwalled.proxy.listen or 0
    words = [*_proxy(wire, own), "--listen", f"127.0.0.1:{port}"]
    env = variables(unwalled.proxy, port)
    if unwalled.pointed:
        words += ["--pointed-by", pointing.POINTER]
        env |= {
            **pointing.pointed(port, secret),
            **environment.by_ssh(own.python, own.ssh_proxy),
        }
    return [*words, "--", *argv], env


def alone(proxy: Proxy, wire: Mapping[str, object], own: Own) -> tuple[list[str], dict[str, str]]:
    """Return the command of a proxy that holds no program, and the environment of one.

    That is of a program as it reaches the proxy from a sandbox started apart, at `listen`.
    """
    port = proxy.listen or environment.PROXY_PORT
    env = {
        **environment.proxied(port),
        **environment.by_ssh(own.python),
        **variables(proxy, port),
    }
    if any(route.kind == "open" for route in proxy.routes):
        env["BROWSER"] = own.browser
    return [*_proxy(wire, own), "--dir", proxy.dir, "--hold"], env


def _proxy(wire: Mapping[str, object], own: Own) -> list[str]:
    """Return the words with which every such command begins."""
    settings = json.dumps({**wire, "path": list(own.imports)}, separators=(",", ":"))
    flags = [word for part in parts(settings) for word in ("--settings", part)]
    return [own.python, "-I", "-S", own.script, "proxy", *flags]
