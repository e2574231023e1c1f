"""How a sandbox can fail to be made.

`exit_code` is what the command ends with: 2 for a request or a spec that can't be
read, 125 where the sandbox itself could not start (as other launchers have it, so
that a program's own codes stay its own).  The message is one sentence for a person.
"""

from __future__ import annotations

import os

Step = str | int
"""One step of a key's path: a key's name, or a place in a list."""


class SandboxError(Exception):
    """The root.  `exit_code` is what the command ends with."""

    exit_code = 125

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        if exit_code is not None:
            self.exit_code = exit_code


class SpecError(SandboxError):
    """A key of a request or a spec is unknown, missing, malformed or not built.

    `key` is its full path as a person reads it (`confinement.net.proxied.ports[0]`),
    `steps` the same path taken apart, `line` the spec's line, counted from 1, or None.
    """

    exit_code = 2

    def __init__(
        self,
        key: str,
        message: str,
        *,
        steps: tuple[Step, ...] = (),
        line: int | None = None,
        file: str | None = None,
    ) -> None:
        super().__init__(message)
        self.key = key
        self.steps = steps
        self.line = line
        self.file = file

    def __str__(self) -> str:
        """Return `file:line: key: message`, without the parts that aren't known."""
        place = "" if self.file is None else f"{self.file}: "
        if self.line is not None:
            place = f"{self.file or 'spec'}:{self.line}: "
        key = f"{self.key}: " if self.key else ""
        return f"{place}{key}{self.message}"


class Unsupported(SandboxError):
    """The machine's kernel, or what is installed on it, lacks something a wall needs.

    `feature` names it in the field's words (`user namespaces`, `Landlock`).
    """

    def __init__(self, feature: str, message: str) -> None:
        super().__init__(message)
        self.feature = feature


class LaunchError(SandboxError):
    """A step of starting a sandbox failed; `errno` says how, 0 where nothing says.

    `about`: the key, and what of its list, that it failed for, where it is one's.
    """

    def __init__(
        self,
        step: str,
        errno: int,
        message: str | None = None,
        *,
        exit_code: int | None = None,
        about: tuple[str, str] | None = None,
    ) -> None:
        said = message or f"{step}: {os.strerror(errno)}."
        super().__init__(said, exit_code=exit_code)
        self.step = step
        self.errno = errno
        self.about = about


class Unavailable(SandboxError):
    """Link's settings can't be read now, so nothing is known of what they hold."""


def one_line(text: str) -> str:
    """Return a text as a terminal may print it: what is no letter or sign is escaped.

    A name in it may have been chosen by a program that a sandbox held: with a terminal's own
    codes in it, or with those that turn the order of letters about.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


SENTENCE_MAX_CHARS = 9000
"""Two paths as long as the kernel takes them, and words; what is longer loses its middle."""
QUOTED_MAX_CHARS = 80


def sentence(error: BaseException) -> str:
    """Return what an error says as a terminal may print it, however long a name in it is."""
    said = one_line(str(error))
    if len(said) <= SENTENCE_MAX_CHARS:
        return said
    half = SENTENCE_MAX_CHARS // 2
    return f"{said[:half]}...{said[-half:]}"


def quoted(text: str) -> str:
    """Return what a person wrote as a sentence shows it: in quotes, escaped, cut short."""
    return repr(text if len(text) <= QUOTED_MAX_CHARS else f"{text[:QUOTED_MAX_CHARS]}...")
