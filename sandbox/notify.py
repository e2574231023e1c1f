"""A notification on the person's desktop, where there is one.

The program is named by its path and gets an environment of our own: the proxy has none,
and its caller's may be a sandboxed program's.  So the desktop's bus is looked for where
systemd puts it, not where a variable says.
"""

from __future__ import annotations

import os
import stat

PROGRAM = "/usr/bin/notify-send"
PATIENCE_S = 10
"""How long the desktop may take; nobody waits for it."""


def notify(title: str, text: str) -> None:
    """Show a notification, in a thread of its own; nothing where there is no desktop."""
    command = command_for(title, text)
    if command is None:
        return
    import threading

    threading.Thread(target=_show, args=command, name="notification", daemon=True).start()


def command_for(
    title: str, text: str, *, program: str = PROGRAM, run: str = "/run/user"
) -> tuple[list[str], dict[str, str]] | None:
    """Return the command and its environment, None where no desktop of this user is found."""
    folder = f"{run}/{os.geteuid()}"
    bus = f"{folder}/bus"
    try:
        theirs, socket = os.lstat(program), os.lstat(bus)
    except OSError:
        return None
    runs = stat.S_ISREG(theirs.st_mode) and theirs.st_mode & 0o111 and not theirs.st_mode & 0o022
    if not runs or theirs.st_uid not in (0, os.geteuid()):
        return None
    if not stat.S_ISSOCK(socket.st_mode) or socket.st_uid != os.geteuid():
        return None
    environ = {
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={bus}",
        "XDG_RUNTIME_DIR": folder,
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }
    words = [program, "--app-name=lnk sandbox", "--urgency=critical", "--", title, text]
    return words, environ


def _show(words: list[str], environ: dict[str, str]) -> None:
    import subprocess

    try:
        subprocess.run(
            words, env=environ, cwd="/", timeout=PATIENCE_S, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return  # the pause itself stands, and stderr and the log say so
