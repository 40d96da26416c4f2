"""F11: `Optional[T]`, an object that is set or not."""

from __future__ import annotations

import copy
import pickle

import pytest

from catbird_django import DefinitionError
from catbird_django.client.flows import Optional
from catbird_django.codec import codec_for


def test_it_is_set_or_not() -> None:
    assert Optional(3).is_set
    assert Optional(None).is_set
    assert not Optional().is_set
    assert Optional(3).value == 3


def test_the_value_of_one_that_is_not_set_says_what_to_ask_first() -> None:
    with pytest.raises(LookupError, match="the step was skipped and has no output: ask is_set first"):
        _ = Optional[int]().value


def test_it_is_neither_true_nor_false() -> None:
    """`if approve:` would mean one thing to its author and another to a reader."""
    with pytest.raises(TypeError, match="ask is_set, or take its value"):
        bool(Optional(False))


def test_it_does_not_change() -> None:
    optional = Optional(3)

    with pytest.raises(AttributeError, match="does not change"):
        optional.value = 4  # type: ignore[misc]
    with pytest.raises(AttributeError):
        optional.other = 4  # type: ignore[attr-defined]


def test_equal_ones_are_equal() -> None:
    assert Optional(3) == Optional(3) != Optional()
    assert Optional() == Optional[int]()
    assert Optional(None) != Optional()
    assert Optional(3) != 3
    assert len({Optional(3), Optional(3), Optional()}) == 2


@pytest.mark.parametrize("optional", [Optional(3), Optional()])
def test_it_can_be_shown_and_copied(optional: Optional[int]) -> None:
    assert eval(repr(optional)) == optional
    assert copy.deepcopy(optional) == optional
    assert pickle.loads(pickle.dumps(optional)) == optional


def test_inside_a_stored_value_it_is_refused_with_advice() -> None:
    with pytest.raises(DefinitionError, match=r"Optional is for a step's parameter; inside a value write T \| None"):
        codec_for(list[Optional[int]])
