"""The types that the tests of the codec encode and decode."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import pydantic
from typing_extensions import TypedDict

MEGABYTE = 2**20


class Colour(Enum):
    RED = "red"
    DARK_BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Size(StrEnum):
    SMALL = "s"


@dataclass(frozen=True, slots=True)
class Line:
    sku: str
    price: Decimal
    quantity: int = 1


@dataclass
class Order:
    """An order of a customer."""

    id: uuid.UUID
    placed_at: datetime
    lines: list[Line]
    colour: Colour = Colour.RED
    note: str | None = None


@dataclass
class Ticket:
    title: str
    number: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass
class Refund:
    amount: Decimal
    reason: str


@dataclass
class Cash:
    amount: int


@dataclass
class Card:
    amount: int


@dataclass
class TaggedCash:
    amount: int
    kind: Literal["cash"] = "cash"


@dataclass
class TaggedCard:
    amount: int
    kind: Literal["card"] = "card"


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class Reading:
    level: float | None
    raw: Any = None


@dataclass
class Positive:
    amount: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("must not be negative")
        if self.amount == 0:
            raise LookupError("nothing at zero")


class Point(NamedTuple):
    x: int
    y: Decimal = Decimal(0)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Customer(pydantic.BaseModel):
    name: str
    score: float | None = None
    email_address: Annotated[str | None, pydantic.Field(alias="emailAddress")] = None

    model_config = pydantic.ConfigDict(populate_by_name=True)


class OpenModel(pydantic.BaseModel):
    name: str

    model_config = pydantic.ConfigDict(extra="allow")


class Numbers(pydantic.RootModel[list[int]]):
    pass


@dataclass
class Survey:
    age: Annotated[int, pydantic.Field(title="Your age", description="In years", ge=0)]
    colour: Colour
    paid_with: TaggedCash | TaggedCard
    place: Point
    tags: list[str] = field(default_factory=list)
    limits: dict[str, Decimal] = field(default_factory=dict)
    size: Literal["s", "m"] | None = None
    tree: Tree | None = None
    extra: Any = None
