"""A real sshd on the test network, which lets one key in, to what ALLOWED has."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.net.namespaces import Network

PORT = 22
START_S = 120

ALLOWED = (
    'case "$SSH_ORIGINAL_COMMAND" in '
    "echo) cat;; "  # what it is sent
    "leave) kill -KILL $PPID;; "  # the server ends, without a word
    'git-*) git shell -c "$SSH_ORIGINAL_COMMAND";; '
    "esac"
)
"""What the key's holder may run."""

SETTINGS = """\
ListenAddress {address}:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""


@contextmanager
def sshd(network: Network, address: str, folder: Path) -> Iterator[Path]:
    """Run sshd; give the private key that it lets in."""
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
                       check=True, timeout=START_S)  # fmt: skip
    allowed = (folder / "key.pub").read_text()
    command = ALLOWED.replace('"', '\\"')
    (folder / "authorized").write_text(f'restrict,command="{command}" {allowed}')
    (folder / "settings").write_text(SETTINGS.format(address=address, port=PORT, folder=folder))
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where it locks itself up
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    words = [program, "-D", "-e", "-f", str(folder / "settings")]
    with (folder / "said").open("w") as said:
        server = subprocess.Popen(
            ["ip", "netns", "exec", network.server, *words], stdin=subprocess.DEVNULL, stderr=said
        )
    try:
        network.on_server_side(lambda: _await(address, folder, server))
        yield folder / "key"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(START_S)


def _await(address: str, folder: Path, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex((address, PORT)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"sshd did not start: {(folder / 'said').read_text()}")
