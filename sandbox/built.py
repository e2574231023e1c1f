"""What of the interface isn't built yet: the one table that later work empties.

A key of a table (`Table.key`) is refused by its path where it asks for something, never
ignored: a wall that somebody asked for and that isn't there is worse than none.
"""

from __future__ import annotations

NOT_BUILT: dict[str, str] = {
    "Confinement.developer_tools": "the wall on macOS",
    "Macos.developer_tools": "the wall on macOS",
}
