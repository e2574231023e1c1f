"""The variables a sandbox sets, and those that never cross its wall.

Three environments are kept apart: the caller's, which is the program's; what a sandbox
adds to it; and what the processes outside have, which is nothing at all.
"""

PROXY_PORT = 40781
"""The proxy's port inside.  The network is the sandbox's own, so it is free there."""

LOOPBACK = "localhost,127.0.0.1,::1"
"""What is never asked of the proxy: it would refuse this machine, and a server that the
program starts itself stands there."""

NEUTRAL = dict.fromkeys(("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GCONV_PATH", "LOCPATH"), "")
"""Set by whoever runs a kept command: its first process stands outside the sandbox, and a
loader variable meant for the program would be its own.  The C library reads an empty value
as none."""

NODE_PROXY = "/etc/lnk-sandbox/node_proxy.cjs"
"""Where the sandbox shows what teaches an older Node's fetch its proxy (`node_proxy.cjs`).
/etc is its own there, and read only."""

SSH_PROXY = "/etc/lnk-sandbox/ssh_proxy.py"
"""Where the sandbox shows what takes ssh out by the proxy (`ssh_proxy.py`)."""

OPEN_PAGE = "/etc/lnk-sandbox/open_page.py"
"""Where the sandbox shows what asks for a page to be opened (`open_page.py`)."""

PASSED = (b"HOME", b"PATH", b"SHELL", b"USER", b"LOGNAME", b"TERM", b"COLORTERM", b"LANG", b"TZ")
"""What `run` passes of its own environment, and every LC_ variable."""


def proxy_url(port: int = PROXY_PORT) -> str:
    """Return where a program reaches its proxy."""
    return f"http://127.0.0.1:{port}"


def proxied(port: int = PROXY_PORT) -> dict[str, str]:
    """Return what points programs at their proxy.

    Most read the upper-case or the lower-case name, curl only the lower-case `http_proxy`
    (the upper-case one could be a CGI request's header).  ALL_PROXY is for those that ask
    it alone.  Node's fetch looks at them only with NODE_USE_ENV_PROXY, from 22.21 on; an
    older one is taught by a file that it loads first.  Java reads none: its properties come
    by JAVA_TOOL_OPTIONS, at the price of a line on stderr that says so; nothing else reaches
    every JVM.
    """
    url = proxy_url(port)
    found = {}
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        found[name] = found[name.lower()] = url
    found["NO_PROXY"] = found["no_proxy"] = LOOPBACK
    found["NODE_USE_ENV_PROXY"] = "1"
    found["NODE_OPTIONS"] = f"--require {NODE_PROXY}"
    found["JAVA_TOOL_OPTIONS"] = (
        f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={port} "
        f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={port} "
        "-Dhttp.nonProxyHosts=localhost|127.*|[::1]"
    )
    return found


def by_ssh(python: str, script: str = SSH_PROXY) -> dict[str, str]:
    """Return what has git's ssh go out by the proxy; python: an interpreter shown inside.

    git hands the command to a shell, and ssh its ProxyCommand to another, having put in
    what follows a percent sign.
    """
    run, what = (_quoted(path.replace("%", "%%")) for path in (python, script))
    helper = f"{run} -I -S {what} %h %p"
    return {"GIT_SSH_COMMAND": f"ssh -o {_quoted(f'ProxyCommand={helper}')}"}


def _quoted(text: str) -> str:
    """Return one word for a shell (`shlex.quote` brings `re`)."""
    if text.isascii() and text.translate({ord(each): "" for each in "/._-"}).isalnum():
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def trusting(bundle: str) -> dict[str, str]:
    """Return what has programs that bring their own list of authorities trust the machine's too.

    bundle: the machine's, in one file; empty where theirs says the same.  Node adds a file
    to its own; uv reads the machine's in place of its own, by one name before version 0.9
    and by the other since.  Whatever else R61 names reads /etc/ssl/certs as it is.
    """
    if not bundle:
        return {}
    return {"NODE_EXTRA_CA_CERTS": bundle, "UV_NATIVE_TLS": "1", "UV_SYSTEM_CERTS": "1"}


def passed_by_run(outside: "Mapping[bytes, bytes]") -> "dict[bytes, bytes]":
    """Return what of the person's environment a program gets from `run` (R21)."""
    return {
        name: value for name, value in outside.items() if name in PASSED or name.startswith(b"LC_")
    }


DESKTOP = (
    b"DISPLAY", b"WAYLAND_DISPLAY", b"XAUTHORITY", b"XDG_RUNTIME_DIR", b"XDG_SESSION_TYPE",
    b"XDG_CURRENT_DESKTOP", b"DBUS_SESSION_BUS_ADDRESS", b"DESKTOP_SESSION", b"BROWSER",
    b"LANG", b"LC_ALL",
)  # fmt: skip
"""What of a person's environment leads to their screen: for what asks them, outside."""


def to_the_desktop(outside: "Mapping[bytes, bytes]") -> "dict[str, str]":
    """Return what leads to the person's screen."""
    return {
        name.decode(): outside[name].decode(errors="replace") for name in DESKTOP if name in outside
    }


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
