"""`lnk sandbox traffic`: what each running sandbox's proxy has carried (R39)."""

from __future__ import annotations

from sandbox.cli.flags import Flag, describe, read_flags
from sandbox.state import State, settings_folder

FLAGS = (
    Flag("--json", "", 'print [{"pid", "sandbox", "up", "down"}], in bytes'),
    Flag("--help", "", "print this"),
)

HELP = f"""\
What each running sandbox's proxy has carried since it started: every call it let through,
in bytes from the sandbox (up) and to it (down).

usage: lnk sandbox traffic [--json]

{describe(FLAGS)}

  lnk sandbox traffic --json"""

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def main(words: list[str]) -> int:
    """Print it, and remove what proxies that were killed have left; return 0."""
    flags = read_flags(FLAGS, words)
    if "--help" in flags:
        print(HELP)
        return 0
    from sandbox.published import sweep, traffic

    state = State(settings_folder())
    found = traffic(state.settings)
    sweep(state)
    if "--json" in flags:
        import json

        print(json.dumps([one.as_json() for one in found]))
        return 0
    for one in found:
        print(f"{one.sandbox} (pid {one.pid}): up {spelled(one.up)}, down {spelled(one.down)}")
    if not found:
        print("No sandbox with a proxy is running.")
    return 0


def spelled(size: int) -> str:
    """Return a number of bytes as a person reads it."""
    value, unit = float(size), UNITS[0]
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
