"""Frozen values with named fields, as `dataclasses` makes them.

They aren't made by `dataclasses`, whose import costs more than a bare sandbox: facts and
plans are made at every start of `run`.  To a type checker they are frozen dataclasses.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, TypeVar, dataclass_transform

    T = TypeVar("T", bound="Value")
else:

    def dataclass_transform(**_: object) -> object:
        """Stand in for typing's, which only a type checker reads."""
        return lambda made: made


@dataclass_transform(frozen_default=True)
class Value:
    """What all values have: fields by place or name, never changed, compared field by field.

    A subclass writes its fields as annotations, those with a default last.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.FIELDS = tuple(cls.__annotations__)

    def __init__(self, *given: Any, **named: Any) -> None:
        values = {**dict(zip(self.FIELDS, given, strict=False)), **named}
        if len(given) + len(named) != len(values) or not values.keys() <= set(self.FIELDS):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.FIELDS)}")
        for name in self.FIELDS:
            if name not in values and not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} needs {name}")
            # A default is the class's own attribute.
            self.__dict__[name] = values[name] if name in values else getattr(type(self), name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} can't be changed")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({fields})"


def replaced(value: T, **changes: object) -> T:
    """Return a value with some fields changed."""
    return type(value)(**{**value.__dict__, **changes})


def plain(value: object) -> object:
    """Return a value as JSON has it, all that it holds too; bytes are written in hex."""
    if isinstance(value, Value):
        return {name: plain(one) for name, one in value.__dict__.items()}
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value.hex() if isinstance(value, bytes) else value
