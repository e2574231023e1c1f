"""`lnk sandbox proxy-inside`: the relay of a sandbox that reaches proxies apart, by itself (R42).

`wrap` has the stage inside start it (`sandbox.linux.relay`); a sandbox of another kind's making
starts it by this name.
"""

from __future__ import annotations

from sandbox.cli.flags import Flag, UsageError, describe, read_flags
from sandbox.errors import quoted

FLAGS = (
    Flag("--also", "DIR=PORT", "connections to 127.0.0.1:PORT go to DIR/out.sock, and DIR/in.sock "
         "leads in", many=True),
    Flag("--help", "", "print this"),
)  # fmt: skip
HELP = f"""\
Join ports of this network's loopback to proxies started apart, until it is ended.

usage: lnk sandbox proxy-inside --also DIR=PORT …

{describe(FLAGS)}

  lnk sandbox proxy-inside --also /srv/agent/wire=40781"""


def main(words: list[str]) -> int:
    """Relay until ended; raises UsageError."""
    flags = read_flags(FLAGS, words)
    if "--help" in flags:
        print(HELP)
        return 0
    from sandbox.linux.relay import reached, run

    also = flags.all("--also")
    if not also:
        raise UsageError("proxy-inside reaches nothing: add --also DIR=PORT.")
    for each in also:
        try:
            reached(["--also", each])
        except ValueError:
            raise UsageError(
                f"--also {quoted(each)} is no folder, in full, and a port: write --also DIR=PORT."
            ) from None
    run([word for each in also for word in ("--also", each)])
    return 125  # pragma: no cover - `run` ends the process
