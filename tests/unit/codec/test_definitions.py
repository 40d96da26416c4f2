"""T2: a type is looked at when it is declared, and one without a JSON form is refused there with advice."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pydantic
import pytest
from django.db import models

from catbird_django.codec import codec_for
from catbird_django.errors import DefinitionError
from tests.unit.codec.shapes import Cash


class Shop(models.Model):
    class Meta:
        app_label = "codec_tests"

    def __str__(self) -> str:
        return "shop"


@dataclass
class HoldsAModel:
    shop: Shop


@dataclass
class HoldsBytes:
    parts: list[bytes]


@dataclass
class Unfinished:
    other: Nowhere  # type: ignore[name-defined]  # noqa: F821  # undefined on purpose


@pytest.mark.parametrize(
    ("annotation", "advice"),
    [
        (Callable[[int], int], "pass a name"),
        (Shop, "pass the primary key"),
        (list[Shop] | None, "pass the primary key"),
        (models.QuerySet, "list of primary keys"),
        (models.QuerySet[Shop], "list of primary keys"),
        (HoldsAModel, "Shop"),
        (bytes, "base64"),
        (HoldsBytes, "base64"),
        (dict[bytes, int], "base64"),
        (complex, "two parts"),
        (Iterable[int], "pass a list"),
        (Generator[int, None, None], "pass a list"),
        (Iterator[int], "Iterator"),
        (type[int], "pass a name"),
        (type, "no JSON form"),
        (pydantic.SecretStr, "asterisks"),
        (pydantic.Secret[int], "asterisks"),
        (Unfinished, "not defined"),
        ("Nowhere", "not defined"),
        (5, "5"),
    ],
    ids=repr,
)
def test_a_type_without_a_json_form_is_refused(annotation: Any, advice: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be the type of a stored value") as caught:
        codec_for(annotation)

    assert advice in str(caught.value)


def test_a_type_has_one_codec() -> None:
    assert codec_for(Cash) is codec_for(Cash)
    assert codec_for(list[Cash]) is codec_for(list[Cash])


def test_equal_unions_of_different_order_have_their_own() -> None:
    """For an ambiguous value the order counts."""
    assert int | str == str | int
    assert codec_for(int | str) is not codec_for(str | int)


def test_an_annotation_that_cannot_be_hashed_still_gets_a_codec() -> None:
    codec = codec_for(Annotated[int, {"not": "hashable"}])

    assert codec.decode("5", name="input") == 5
