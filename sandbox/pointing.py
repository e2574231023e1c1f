"""What points a program at a proxy on this machine's loopback (R12).

`wrap` prints the proxy's secret in HTTPS_PROXY alone.  The proxy, which stands in front of
the program, makes the twins of that variable for it, and puts the port in that it got.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

POINTER = "HTTPS_PROXY"
TWINS = ("HTTP_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy")
LOOPBACK = "localhost,127.0.0.1,::1"
"""What is never asked of the proxy, which refuses this machine."""

_PORT_ZERO = re.compile(r"(http://(?:[^\s/@:]*:[^\s/@]*@)?127\.0\.0\.1:)0(?![0-9])")
"""A URL of the proxy's before its port is known; no real one has port zero."""


def pointed(port: int, secret: str) -> dict[str, str]:
    """Return what `wrap` prints for a program that is pointed at its proxy."""
    return {
        POINTER: f"http://lnk:{secret}@127.0.0.1:{port}",
        "NO_PROXY": LOOPBACK,
        "no_proxy": LOOPBACK,
        "NODE_USE_ENV_PROXY": "1",
    }


def filled(environ: Mapping[str, str], port: int) -> dict[str, str]:
    """Return an environment whose URLs of the proxy have its port in place of zero."""
    return {
        name: _PORT_ZERO.sub(rf"\g<1>{port}", value) if ":0" in value else value
        for name, value in environ.items()
    }


def with_twins(environ: Mapping[str, str], pointer: str, port: int) -> dict[str, str]:
    """Return an environment in which all that looks for a proxy finds the pointer's.

    Java reads no variable but its own, and refuses Basic in tunnels unless it is told
    otherwise; the login a program has to give it (java.net.Authenticator).  An older Node is
    taught by a file.  Both are added to what the program's user says.
    """
    url = environ[pointer]
    made = {**environ, **dict.fromkeys((POINTER, *TWINS), url)}
    java = (
        f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={port} "
        f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={port} "
        "-Dhttp.nonProxyHosts=localhost|127.*|[::1] -Djdk.http.auth.tunneling.disabledSchemes="
    )
    for name, ours in (("JAVA_TOOL_OPTIONS", java), ("NODE_OPTIONS", f"--require {_node_proxy()}")):
        made[name] = f"{environ.get(name, '')} {ours}".strip()
    return made


def _node_proxy() -> str:
    """Return the file that teaches an older Node its proxy, quoted where Node would cut it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "linux", "node_proxy.cjs")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if " " in path or escaped != path else path
