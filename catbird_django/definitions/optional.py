"""`Optional[T]`: what a step receives from a step that may have been skipped (F11)."""

from __future__ import annotations

from typing import Any, Final, Generic, NoReturn, TypeVar, final

from catbird_django.errors import DefinitionError

T = TypeVar("T")

_MISSING: Final = object()


@final
class Optional(Generic[T]):
    """The output of a step, or nothing if the step was skipped.

    Unlike `T | None` it tells a step that was skipped from one whose output is None: `Optional(value)` is set,
    `Optional()` is not.
    """

    __slots__ = ("_value",)
    _value: Any

    def __init__(self, value: T = _MISSING) -> None:  # type: ignore[assignment] # no T: there is no value
        object.__setattr__(self, "_value", value)

    @property
    def is_set(self) -> bool:
        """Whether the step completed."""
        return self._value is not _MISSING

    @property
    def value(self) -> T:
        """What the step returned; raise LookupError if it was skipped."""
        if not self.is_set:
            raise LookupError("the step was skipped and has no output: ask is_set first")
        return self._value  # type: ignore[no-any-return] # as given

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name!r} cannot be set: an Optional does not change")

    def __bool__(self) -> NoReturn:
        # Optional(False) would be true or false depending on whom one asks.
        raise TypeError("an Optional is neither true nor false: ask is_set, or take its value")

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Optional) else NotImplemented

    def __hash__(self) -> int:
        return hash(("Optional", self._value))

    def __reduce__(self) -> tuple[Any, ...]:
        return Optional, ((self._value,) if self.is_set else ())

    def __repr__(self) -> str:
        return f"Optional({self._value!r})" if self.is_set else "Optional()"

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> NoReturn:
        """Refuse to be part of a stored value, with advice."""
        raise DefinitionError("Optional is for a step's parameter; inside a value write T | None")
