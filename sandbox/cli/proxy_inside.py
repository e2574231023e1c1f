"""`lnk sandbox proxy-inside`: the relay of a sandbox that reaches proxies apart, by itself (R42).

`wrap` has the stage inside start it (`sandbox.linux.relay`); a sandbox of another kind's making
starts it by this name.
"""

from __future__ import annotations

from sandbox.cli.flags import UsageError

HELP = """\
Join ports of this network's loopback to proxies started apart, until it is ended.

usage: lnk sandbox proxy-inside --also DIR=PORT …

  --also DIR=PORT  connections to 127.0.0.1:PORT go to DIR/out.sock, and DIR/in.sock leads in

  lnk sandbox proxy-inside --also /srv/agent/wire=40781"""


def main(words: list[str]) -> int:
    """Relay until ended; raises UsageError."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    from sandbox.linux.relay import reached, run

    try:
        reached(words)
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    run(words)
    return 125  # pragma: no cover - `run` ends the process
