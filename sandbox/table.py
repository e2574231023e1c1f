"""Tables of keys, and the one strict reader that walks them.

A table is a class whose fields are made with `key(kind, effect)`: the field's name is
the key's, its default is what a missing key means, its kind reads and prints its value,
and its effect is one line for a person.  From the same fields come the reader's
refusals, what a request prints back, and the README's reference, so none of the three
can say something else than another.

To those who use one, and to a type checker, a table is a frozen dataclass whose fields
are given by name.  It isn't made by `dataclasses`: importing that costs four bare
sandboxes at every start of `run`, and its repr would print secrets.

The tables import the standard library alone, for programs that import
`sandbox.client` have no more.
"""

from __future__ import annotations

from sandbox.built import NOT_BUILT
from sandbox.place import Place, an_object, guess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_: object) -> object:
        """Stand in for typing's, which only a type checker reads."""
        return lambda made: made


MISSING = object()
"""The default of a required key."""


class Kind:
    """What a key's value must be.  `words` say it to a person.

    A value whose kind is not `show` may be a secret: no message and no repr shows it.
    """

    words = "anything"
    show = True

    def read(self, value: object, place: Place) -> Any:
        """Return the value as the program holds it, or refuse it."""
        return self._read(value, place)

    def dump(self, value: Any) -> object:
        """Return the value as JSON has it."""
        return self._dump(value)

    def refuse_unbuilt(self, value: Any, place: Place) -> None:
        """Refuse what of a value asks for something that isn't built; most kinds can't."""

    def _read(self, value: object, place: Place) -> Any:
        """Read a value; each kind has its own (`abc` would cost every start its import)."""
        raise NotImplementedError

    def _dump(self, value: Any) -> object:
        return value


class Key:
    """One key of a table: its name, kind, effect, and what a missing one means.

    `field` is the attribute that holds it: its name, but where Python needs another.
    `always` keys are printed even where they say what a missing one would.
    `effect` is empty for a field that no request can give.
    """

    __slots__ = ("always", "default", "effect", "field", "kind", "name", "required")

    def __init__(self, kind: Kind, effect: str, name: str, default: Any, always: bool) -> None:
        self.kind = kind
        self.effect = effect
        self.name = name
        self.field = ""
        self.required = default is MISSING
        self.default = default
        self.always = always


def key(
    kind: Kind, effect: str, *, default: Any = MISSING, always: bool = False, name: str = ""
) -> Any:
    """Return a field that is one key of a table."""
    return Key(kind, effect, name, default, always)


def beside(*, default: Any) -> Any:
    """Return a field that no request can give: what a reader adds."""
    return Key(Kind(), "", "", default, False)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key, beside))
class Table:
    """What all tables have: fields given by name, never changed, compared by value."""

    FIELDS: ClassVar[Mapping[str, Key]] = {}
    """Every field, in the order they were written, those of the table it extends behind its own."""
    KEYS: ClassVar[Mapping[str, Key]] = {}
    """The fields that a request can give, by their key."""

    def __init_subclass__(cls) -> None:
        own = {name: one for name, one in vars(cls).items() if isinstance(one, Key)}
        for name, one in own.items():
            one.field = name
            one.name = one.name or name
            delattr(cls, name)  # else a class would seem to have values
        cls.FIELDS = {**own, **cls.FIELDS}
        cls.KEYS = {one.name: one for one in cls.FIELDS.values() if one.effect}

    def __init__(self, **given: object) -> None:
        for name, one in self.FIELDS.items():
            if name in given:
                value = given.pop(name)
            elif one.required:
                raise TypeError(f"{type(self).__name__} needs {name}")
            else:
                value = one.default
            self.__dict__[name] = dict(value) if isinstance(value, dict) else value
        if given:
            raise TypeError(f"{type(self).__name__} has no {next(iter(given))}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} can't be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} can't be taken away")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        fields = (
            f"{name}={self.__dict__[name]!r}" if one.kind.show else f"{name}=…"
            for name, one in self.FIELDS.items()
        )
        return f"{type(self).__name__}({', '.join(fields)})"


def keys_of(made: type[Any]) -> Mapping[str, Key]:
    """Return a table's keys by name, in the order they were written."""
    keys: Mapping[str, Key] = made.KEYS
    return keys


def replaced(made: T, **changes: object) -> T:
    """Return a table with some fields changed."""
    return type(made)(**{**made.__dict__, **changes})


def read_table(made: type[T], value: object, place: Place) -> T:
    """Read one table strictly; raise SpecError for the first key that is wrong.

    A table's `RETIRED` holds keys of older forms, each with the sentence that refuses it,
    or with None where a stored one is read as nothing.
    """
    known = keys_of(made)
    pairs = an_object(value, place, needed=(name for name, one in known.items() if one.required))
    retired: Mapping[str, str | None] = getattr(made, "RETIRED", {})
    for name in pairs:
        if name not in known and name not in retired:
            place.at(name).refuse(f"unknown key{guess(name, known)}")
        if retired.get(name) is not None:
            place.at(name).refuse(str(retired[name]))
    kept: dict[str, Any] = {}
    for name, one in known.items():
        if name in pairs:
            kept[one.field] = one.kind.read(pairs[name], place.at(name))
        elif one.required:
            place.at(name).refuse(f"is missing; it takes {one.kind.words}")
    ready = made(**kept)
    check = getattr(ready, "check", None)
    if check is not None:
        check(place)
    return ready


def refuse_unbuilt(made: Any, place: Place) -> None:
    """Refuse the first key of a table, however it was made, that asks for what isn't built.

    Never ignored: a wall that somebody asked for and that isn't there is worse than none.
    A key that says what a missing one would asks for nothing.
    """
    for name, one in keys_of(type(made)).items():
        value = getattr(made, one.field)
        if value == one.default:
            continue
        missing = NOT_BUILT.get(f"{type(made).__name__}.{name}")
        if missing is not None:
            place.at(name).refuse(f"isn't built yet in this version ({missing}); leave it out")
        if value is not None:
            one.kind.refuse_unbuilt(value, place.at(name))


def dump_table(made: Any) -> dict[str, object]:
    """Return a table as JSON has it, without the keys that say what a missing one means."""
    said: dict[str, object] = {}
    for name, one in keys_of(type(made)).items():
        value = getattr(made, one.field)
        if one.always or one.required or value != one.default:
            said[name] = one.kind.dump(value)
    return said
