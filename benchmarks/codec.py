"""Compares msgspec and pydantic as the core of catbird_django.codec, and weighs what the codec adds to the one chosen.

Run from the checkout: `python benchmarks/codec.py`. Prints tables, then the same numbers as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import timeit
import typing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pydantic
from typing_extensions import TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from catbird_django.codec import codec_for

if TYPE_CHECKING:
    from collections.abc import Callable

Numbers = dict[str, float]


@dataclass
class Small:
    x: int
    y: str = "a"


@dataclass
class Line:
    sku: str
    price: Decimal
    quantity: int


@dataclass
class Order:
    id: UUID
    placed_at: datetime
    lines: list[Line]
    note: str | None = None


@dataclass
class Refund:
    amount: Decimal
    reason: str


class Colour(Enum):
    RED = "red"


class Movie(TypedDict):
    title: str


class OldMovie(typing.TypedDict):
    title: str


class Point(NamedTuple):
    x: int
    y: int


class Model(pydantic.BaseModel):
    x: int


class Struct(msgspec.Struct):
    x: int


@dataclass
class Linked:
    value: int
    next: Linked | None = None


ORDER = Order(UUID(int=7), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), [Line("a-1", Decimal("9.50"), 2)] * 5)
SPEED: dict[str, tuple[Any, Any]] = {
    "small dataclass": (Small, Small(1)),
    "nested dataclass": (Order, ORDER),
    "untyped dict": (Any, {"a": 1, "b": [1, 2, {"c": "x"}]}),
}
BREADTH: dict[str, tuple[Any, Any]] = {
    "dataclass": (Order, ORDER),
    "TypedDict": (Movie, {"title": "a"}),
    "TypedDict of typing": (OldMovie, {"title": "a"}),
    "NamedTuple": (Point, Point(1, 2)),
    "Enum": (Colour, Colour.RED),
    "Literal": (Literal["a", 1], "a"),
    "optional": (int | None, None),
    "scalar union": (int | str, "a"),
    "union of dataclasses": (Line | Refund, Refund(Decimal(1), "late")),
    "list": (list[Line], ORDER.lines),
    "dict": (dict[str, Line], {"a": ORDER.lines[0]}),
    "dict with int keys": (dict[int, str], {1: "a"}),
    "tuple": (tuple[int, str], (1, "a")),
    "set": (set[int], {1, 2}),
    "frozenset": (frozenset[str], frozenset({"a"})),
    "datetime": (datetime, ORDER.placed_at),
    "date": (date, date(2026, 1, 2)),
    "time": (time, time(1, 2, 3)),
    "timedelta": (timedelta, timedelta(days=1, microseconds=5)),
    "UUID": (UUID, UUID(int=7)),
    "Decimal": (Decimal, Decimal("1.50")),
    "Any": (Any, {"a": [1, None]}),
    "None": (None, None),
    "pydantic model": (Model, Model(x=1)),
    "msgspec Struct": (Struct, Struct(x=1)),
    "forward reference": (Linked, Linked(1, Linked(2))),
    "Decimal beside float": (Decimal | float, 1.5),
}
WRONG = '{"id": 5, "placed_at": "x", "lines": [{"sku": "a", "price": "1", "quantity": "2"}]}'


def microseconds(call: Callable[[], object]) -> float:
    """Return the best of five rounds, per call."""
    timer = timeit.Timer(call)
    loops, _ = timer.autorange()
    loops = max(1, loops // 10)
    return round(min(timer.repeat(repeat=5, number=loops)) / loops * 1e6, 2)


def speed(annotation: Any, value: Any) -> Numbers:
    """Time both libraries and the codec on one value."""
    adapter = pydantic.TypeAdapter(annotation)
    encoder, decoder = msgspec.json.Encoder(), msgspec.json.Decoder(annotation)
    codec = codec_for(annotation)
    text = codec.encode(value, name="input", max_bytes=2**20)
    return {
        "msgspec encode": microseconds(lambda: encoder.encode(value)),
        "msgspec decode": microseconds(lambda: decoder.decode(text)),
        "pydantic encode": microseconds(lambda: adapter.dump_json(value)),
        "pydantic decode": microseconds(lambda: adapter.validate_json(text, strict=True)),
        "codec encode": microseconds(lambda: codec.encode(value, name="input", max_bytes=2**20)),
        "codec decode": microseconds(lambda: codec.decode(text, name="input")),
    }


def import_milliseconds(statement: str) -> float:
    """Return the best of five fresh interpreters, without the interpreter's own start."""
    program = f"import time; t = time.perf_counter(); {statement}; print((time.perf_counter() - t) * 1000)"
    runs = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(5)
    )
    return round(min(float(run.stdout) for run in runs), 1)


def through_pydantic(annotation: Any, value: Any) -> Any:
    adapter = pydantic.TypeAdapter(annotation)
    return adapter.validate_json(adapter.dump_json(value), strict=True)


def through_msgspec(annotation: Any, value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value), type=annotation)


def through_codec(annotation: Any, value: Any) -> Any:
    codec = codec_for(annotation)
    return codec.decode(codec.encode(value, name="input", max_bytes=2**20), name="input")


def comes_back(through: Callable[[Any, Any], Any], annotation: Any, value: Any) -> bool:
    """Say whether the value comes back equal and of the same class."""
    try:
        back = through(annotation, value)
    except Exception:  # noqa: BLE001  # any failure at all means: not supported
        return False
    return bool(back == value and type(back) is type(value))


def error_of(read: Callable[[], object]) -> str:
    try:
        read()
    except Exception as error:  # noqa: BLE001  # the messages are what we came for
        return " | ".join(str(error).splitlines())
    return "no error"


def breadth() -> dict[str, dict[str, bool]]:
    # One way after the other, the codec last: its first use teaches pydantic about Structs, in this very process.
    ways = {"msgspec": through_msgspec, "pydantic": through_pydantic, "codec": through_codec}
    columns = {
        way: {name: comes_back(through, *case) for name, case in BREADTH.items()} for way, through in ways.items()
    }
    return {name: {way: columns[way][name] for way in ways} for name in BREADTH}


def measure() -> dict[str, Any]:
    return {
        "breadth": breadth(),
        "microseconds": {name: speed(*case) for name, case in SPEED.items()},
        "import_ms": {
            "msgspec": import_milliseconds("import msgspec"),
            "pydantic": import_milliseconds("from pydantic import TypeAdapter"),
        },
        "error": {
            "msgspec": error_of(lambda: msgspec.json.decode(WRONG, type=Order)),
            "pydantic": error_of(lambda: pydantic.TypeAdapter(Order).validate_json(WRONG, strict=True)),
            "codec": error_of(lambda: codec_for(Order).decode(WRONG, name="input")),
        },
    }


def show(numbers: dict[str, Any]) -> None:
    columns = list(next(iter(numbers["microseconds"].values())))
    print(f"{'µs per call':<22}" + "".join(f"{column:>17}" for column in columns))
    for name, row in numbers["microseconds"].items():
        print(f"{name:<22}" + "".join(f"{row[column]:>17.2f}" for column in columns))
    print("\nimport, ms: " + ", ".join(f"{name} {value}" for name, value in numbers["import_ms"].items()))
    print(f"\n{'comes back':<22}{'msgspec':>10}{'pydantic':>10}{'codec':>10}")
    for name, row in numbers["breadth"].items():
        print(f"{name:<22}" + "".join(f"{'yes' if row[way] else 'NO':>10}" for way in row))
    print("\nthree mistakes in one document:")
    for way, message in numbers["error"].items():
        print(f"  {way}: {message}")


if __name__ == "__main__":
    numbers = measure()
    show(numbers)
    print(json.dumps(numbers))
