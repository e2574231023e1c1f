"""`lnk sandbox ask`: one question put to the person, for a bridge of Link's (hidden; R57).

It reads the question as one line of JSON from its standard input, which then stays open: its
end takes the question back.  It prints the answer: yes, no or silence.
"""

from __future__ import annotations

import signal

from sandbox.cli.bridge import read_line
from sandbox.cli.flags import UsageError

QUESTION_MAX_BYTES = 256 * 1024
"""The longest question (`proto.verbs.mcp_question`), each letter of it two in JSON, and more."""


def main(words: list[str]) -> int:
    """Ask, and print the answer."""
    if words:
        raise UsageError("this command is for Link's bridges alone.")
    import json

    from sandbox.asking import Withdrawn, asker

    signal.signal(signal.SIGTERM, _end)
    try:
        print(asker(json.loads(read_line(0, QUESTION_MAX_BYTES)), 0), flush=True)
    except Withdrawn:
        return 1
    return 0


def _end(*_: object) -> None:
    from sandbox.asking import Withdrawn

    raise Withdrawn
