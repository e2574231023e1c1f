"""srt, the sandbox that npm installs (@anthropic-ai/sandbox-runtime), where it can be run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

PACKAGE = "@anthropic-ai/sandbox-runtime"
NEEDS = {"npm": "npm", "node": "nodejs", "socat": "socat", "rg": "ripgrep"}
INSTALL_S = 120


class CannotRun(Exception):
    """Why srt isn't measured, as one sentence."""


def install(folder: str, hosts: list[str]) -> tuple[list[str], str]:
    """Install it below a folder; return the command that runs a shell's line, and its version.

    It writes the folder `write` below it and reaches `hosts`.  Raises CannotRun.
    """
    missing = [package for command, package in NEEDS.items() if not shutil.which(command)]
    if missing:
        raise CannotRun(f"run `apt-get install {' '.join(missing)}`.")
    command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", folder, PACKAGE]
    try:
        subprocess.run(command, check=True, timeout=INSTALL_S, capture_output=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"npm could not install it: {error}.") from None
    write = os.path.join(folder, "write")
    os.mkdir(write)
    settings = os.path.join(folder, "settings.json")
    with open(settings, "w") as file:
        json.dump(
            {
                "network": {"allowedDomains": hosts, "deniedDomains": []},
                "filesystem": {"denyRead": [], "allowWrite": [write], "denyWrite": []},
            },
            file,
        )
    with open(os.path.join(folder, "node_modules", PACKAGE, "package.json")) as file:
        version = json.load(file)["version"]
    program = os.path.join(folder, "node_modules", PACKAGE, "dist", "cli.js")
    node = shutil.which("node") or ""
    return [node, program, "--settings", settings, "-c"], version
