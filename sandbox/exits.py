"""The login of an exit: it goes to the proxy alone, in no command line and no environment.

A kept command names the exit without its login, and the file that `wrap` wrote beside it.
"""

from __future__ import annotations

import os

from sandbox.errors import LaunchError

FILE_MAX_BYTES = 4096
ANOTHER = "make the command anew with wrap"


def without_login(upstream: str) -> str:
    """Return an exit as it may be shown."""
    scheme, mark, rest = upstream.partition("://")
    return scheme + mark + rest.rpartition("@")[2]


def exit_failed(reason: str, upstream: str) -> str:
    """Return what a log says of an exit that failed a call as a sentence that names the exit."""
    said = reason.partition(": ")[2] if reason[:3].isdigit() else reason
    return said.replace("the upstream proxy", f"the upstream proxy {without_login(upstream)}", 1)


def has_login(upstream: str) -> bool:
    """Tell whether an exit is written with a login."""
    return "@" in upstream


def login_file(state: str, name: str) -> str:
    """Return the file in Link's settings that holds the exit of a sandbox, its login too."""
    return os.path.join(state, "sandbox", f"{name}.upstream")


def read_login(path: str, plain: str) -> str:
    """Return the exit that a file holds, which must be the one named without its login.

    Raises LaunchError where it isn't there, isn't its user's alone, or is another.
    """
    from sandbox.alone import NotAlone, read_alone

    try:
        # Whoever writes it chooses where every call goes.
        text = read_alone(path, FILE_MAX_BYTES + 1).decode(errors="replace").removesuffix("\n")
    except OSError as error:
        cure = f"; {ANOTHER}" if plain else ""
        raise _error(error.errno or 0, f"{path} can't be opened: {error.strerror}{cure}.") from None
    except NotAlone as error:
        raise _error(0, f"{path} {error}.") from None
    if plain and without_login(text) != plain:
        raise _error(0, f"{path} holds another exit by now: {ANOTHER}.")
    return text


def _error(number: int, message: str) -> LaunchError:
    return LaunchError("upstream", number, f"the exit's login: {message}")
