"""Where in a request or a spec a reader stands, and how it refuses what stands there.

A refusal is a `SpecError` with the key's full path.  It shows what was found, shortened
and escaped (one line, plain ASCII, whatever the request held), and never a value that
may be a secret.

Imported at every start of `run`: neither typing nor json nor re, which cost more than
bubblewrap itself.
"""

from __future__ import annotations

from sandbox.errors import SpecError, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

SHOWN_MAX = 40
"""How much of a refused value a message shows."""
NUMBER_MAX_BITS = 256
"""Of a number that is shown: more than SHOWN_MAX digits hold."""


class Bases:
    """What a spec's paths are read from: both absolute."""

    __slots__ = ("folder", "home")

    def __init__(self, home: str, folder: str) -> None:
        self.home = home
        self.folder = folder


class Place:
    """Where in a request or a spec the reader stands.

    `bases` is None where paths must be absolute; `root` is what the whole is called.
    """

    __slots__ = ("bases", "root", "steps")

    def __init__(
        self, steps: tuple[Step, ...] = (), bases: Bases | None = None, root: str = "request"
    ) -> None:
        self.steps = steps
        self.bases = bases
        self.root = root

    def at(self, *steps: Step) -> Place:
        """Return the place these steps further in."""
        return Place((*self.steps, *steps), self.bases, self.root)

    def __str__(self) -> str:
        text = ""
        for step in self.steps:
            if isinstance(step, int):
                text += f"[{step}]"
            elif _is_plain(step):
                text += f".{step}" if text else step
            else:
                text += f"[{shown(step)}]"
        return text or self.root

    def refusal(self, message: str) -> SpecError:
        """Return the refusal of what stands here."""
        return SpecError(str(self), message, steps=self.steps)

    def refuse(self, message: str) -> NoReturn:
        """Raise the refusal of what stands here."""
        raise self.refusal(message)


def _is_plain(step: str) -> bool:
    """Tell whether a key is one that a path can show as it is."""
    return len(step) <= SHOWN_MAX and step.isascii() and step.replace("-", "_").isidentifier()


class Pairs(dict[str, object]):
    """An object as it was written; `twice` is the first key given twice, or None."""

    twice: str | None = None


class NotJson:
    """A number JSON has no word for, or that is too long to be one: no kind takes it."""

    def __init__(self, text: str) -> None:
        self.text = text


def shown(value: object) -> str:
    """Return a value as a message shows it: one line of ASCII, cut short."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value if len(value) <= SHOWN_MAX else value[:SHOWN_MAX] + "...")
        case int() if value.bit_length() > NUMBER_MAX_BITS:
            return "so long a number"  # Python doesn't print one of 4,300 digits, as 0x… can be
        case int() | float():
            return repr(value)[:SHOWN_MAX]
        case NotJson():
            return value.text[:SHOWN_MAX]
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def _quoted(text: str) -> str:
    import json  # only a refusal needs it

    return json.dumps(text).replace("\x7f", "\\u007f")


def as_found(value: object, show: bool) -> str:
    """Return a value as a message shows it, where it may hold a secret."""
    return shown(value) if show else "what stands here"


def a_text(value: object, place: Place, words: str, *, show: bool = True) -> str:
    """Return a text that can be handed to the kernel; refuse any other value."""
    if not isinstance(value, str):
        place.refuse(f"{as_found(value, show)} isn't {words}; write it as a text")
    if "\0" in value:
        # A NUL ends a C string: what is checked here and what the kernel takes would differ.
        place.refuse(f"{as_found(value, show)} holds a NUL; no {words.split()[-1]} can hold one")
    try:
        value.encode()
    except UnicodeEncodeError:
        # A lone surrogate has no bytes; os.fsencode would turn it into bytes nobody wrote.
        place.refuse(f"{as_found(value, show)} holds half of a character; write it as UTF-8")
    return value


def an_object(
    value: object, place: Place, words: str = "an object", needed: Iterable[str] = ()
) -> Pairs:
    """Return an object's pairs; refuse any other value, and a key given twice.

    needed: the keys that it can't do without, which a refusal names.
    """
    if not isinstance(value, dict):
        # A text here is often a key, pasted in place of the table that says where it is.
        found = as_found(value, show=not isinstance(value, str))
        keys = ", ".join(needed)
        place.refuse(
            f"{found} isn't {words}; write it between {{ and }}" + f", with {keys}" * bool(keys)
        )
    pairs = value if isinstance(value, Pairs) else Pairs(value)
    if pairs.twice is not None:
        # Two readers may each take another one of the two.
        place.at(pairs.twice).refuse("is given twice; keep one of the two")
    return pairs


def guess(name: object, known: Iterable[str]) -> str:
    """Return `; did you mean …?` where a known name is near, else what there is."""
    names = sorted(known)
    found = near(str(name), names)
    if found is not None:
        return f"; did you mean {found}?"
    return f"; there are {', '.join(names)}" if names else ""


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that one is most like, None where none is near."""
    import difflib  # only a refusal needs it

    return next(iter(difflib.get_close_matches(name[:SHOWN_MAX], sorted(known), 1)), None)
