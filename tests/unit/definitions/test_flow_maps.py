"""F14, F14a: what a map is made of, what others see of it, and what cannot work."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from catbird_django import DefinitionError, ItemError
from catbird_django.client.flows import Flow, Optional, Step
from catbird_django.definitions.parameters import Source, WhenMissing
from catbird_django.definitions.plan import StepPlan
from catbird_django.definitions.step_kinds import StepKind

HERE = r"test_flow_maps\.py:\d+: "

Declare = Callable[[Flow[Any, Any]], Any]


@dataclass
class Line:
    price: float


@dataclass
class Parcel:
    weight: float


@dataclass
class Approval:
    ok: bool


def plan(flow: Flow[Any, Any], step: str) -> StepPlan:
    return flow.definition.plan.step(step)


def test_a_map_takes_the_items_of_a_step_and_needs_it() -> None:
    """F14: without its list there is nothing to do, so the step is never optional, not even for items of None."""
    flow = Flow("order")

    @flow.step
    def lines() -> list[Line | None]: ...

    @flow.map(over="lines")
    def price(ctx: Any, item: Line | None) -> float: ...

    assert flow.definition.graph == {"lines": [], "price": ["lines"]}
    assert [parameter.source for parameter in price.definition.parameters] == [Source.CONTEXT, Source.ITEM]
    planned = plan(flow, "price")
    assert (planned.kind, planned.over, planned.max_failed_items, planned.required_count) == ("map", "lines", 0, 1)
    [needed] = planned.dependencies
    assert (needed.step, needed.parameter, needed.argument_position) == ("lines", "item", 2)
    assert (needed.is_optional, needed.is_order_only) == (False, False)


def test_a_map_over_the_input_needs_no_step_and_is_not_sent_the_whole_input() -> None:
    """F14: the database makes the items; the input goes only to who asks for it."""
    flow = Flow("order")

    @flow.map(over="input")
    def price(item: Line) -> float: ...

    @flow.map(over="input")
    def share(item: Line, input: list[Line]) -> float: ...

    assert flow.definition.graph == {"price": [], "share": []}
    assert (plan(flow, "price").takes_input, plan(flow, "share").takes_input) == (False, True)
    assert plan(flow, "price").over == "input"


def test_a_map_over_the_input_tells_the_type_of_the_input() -> None:
    """F14: with no step that takes it as a whole, it is a list of what the items are."""
    flow = Flow("order")

    @flow.map(over="input")
    def price(item: Line) -> float: ...

    assert flow.definition.input_type == list[Line]
    assert flow.definition.input_codec.encode([{"price": 1.5}], name="input", max_bytes=100) == '[{"price":1.5}]'


def test_a_map_may_be_given_the_step_itself_and_take_what_other_steps_take() -> None:
    """F1, F14."""
    flow = Flow("order")

    @flow.step
    def lines() -> list[Line]: ...

    @flow.step
    def rate() -> float: ...

    @flow.map(over=lines, signal=Approval, depends_on=["rate"], after=["audit"], name="priced", max_retries=3)
    def price(factor: float, item: Line, signal: Approval, input: str) -> float: ...

    @flow.step
    def audit() -> None: ...

    planned = plan(flow, "priced")
    assert flow.definition.graph["priced"] == ["rate", "lines", "audit"]
    assert (planned.required_count, planned.takes_signal, planned.takes_input, planned.max_retries) == (
        4,
        True,
        True,
        3,
    )
    assert list(planned.argument_schemas) == ["factor", "item", "signal", "input"]


def test_calling_a_map_calls_the_function_for_one_item() -> None:
    flow = Flow("sums")

    @flow.map(over="input")
    def double(item: int) -> int:
        return 2 * item

    assert isinstance(double, Step)
    assert double(4) == 8
    assert double.definition.kind is StepKind.MAP


def test_others_see_a_list_and_so_does_the_schema() -> None:
    """F14a: of the flow too, when the map is its last step."""
    flow = Flow("sums")

    @flow.map(over="input")
    def double(item: int) -> float: ...

    assert double.definition.output_type is float
    assert flow.definition.output_type == double.definition.result_type == list[float]
    assert plan(flow, "double").output_schema == {"items": {"type": "number"}, "type": "array"}


@pytest.mark.parametrize(
    ("options", "most", "result"),
    [
        ({}, 0, list[int]),
        ({"on_item_failure": "fail"}, 0, list[int]),
        ({"on_item_failure": "collect"}, None, list[int | ItemError]),
        ({"tolerate": 20_000}, 20_000, list[int | ItemError]),
    ],
)
def test_the_policy_for_failed_items_decides_whether_there_are_errors_among_the_outputs(
    options: dict[str, Any], most: int | None, result: Any
) -> None:
    """F14a."""
    flow = Flow("sums")

    @flow.map(over="input", **options)
    def double(item: int) -> int: ...

    assert plan(flow, "double").max_failed_items == most
    assert flow.definition.output_type == result


def test_an_error_in_the_place_of_an_item_can_be_read_from_json() -> None:
    """F14a: as when the map is the last step and its output the flow's."""
    flow = Flow("sums")

    @flow.map(over="input", on_item_failure="collect")
    def double(item: int) -> int: ...

    text = '[2,{"index":1,"type":"ValueError","message":"odd"}]'
    assert flow.definition.output_codec.decode(text, name="output") == [2, ItemError(1, "ValueError", "odd")]


CONSUMERS: list[tuple[Any, Any, bool | None]] = [
    # annotation, type of the whole, and whether a stream is async; None if it is none
    (Iterable[float], list[float], False),
    (Iterator[float], list[float], False),
    (Iterable, list[Any], False),
    (AsyncIterable[float], list[float], True),
    (AsyncIterator[float], list[float], True),
    (Iterable[float] | None, list[float], False),
    (Optional[Iterable[float]], list[float], False),
    (list[float], list[float], None),
    (Sequence[float], Sequence[float], None),
    (tuple[float, ...], tuple[float, ...], None),
    (list[float] | None, list[float] | None, None),
    (Any, Any, None),
]


@pytest.mark.parametrize(("annotation", "whole", "is_async"), CONSUMERS)
def test_a_step_takes_the_outputs_of_a_map_as_a_stream_or_as_a_whole(
    annotation: Any, whole: Any, is_async: bool | None
) -> None:
    """F14a."""
    flow = Flow("sums")

    @flow.map(over="input")
    def double(item: int) -> float: ...

    if is_async:

        async def total(double) -> float: ...  # type: ignore[no-untyped-def]
    else:

        def total(double) -> float: ...  # type: ignore[no-untyped-def, misc]

    total.__annotations__["double"] = annotation
    step = flow.step(total)

    assert plan(flow, "total").takes_lists
    [argument] = step.definition.arguments
    assert argument.stored_type == whole
    assert (argument.stream.is_async if argument.stream else None) == is_async


def test_a_stream_that_may_be_missing_says_so() -> None:
    """F11, F14a."""
    flow = Flow("sums")

    @flow.map(over="input", condition="input")
    def double(item: int) -> int: ...

    @flow.step
    def total(double: Optional[Iterable[int]]) -> int: ...

    @flow.step
    def mean(double: Iterable[int] | None) -> int: ...

    _ = flow.definition
    assert total.definition.arguments[0].when_missing is WhenMissing.OPTIONAL
    assert mean.definition.arguments[0].when_missing is WhenMissing.NONE


def test_lists_are_taken_only_of_maps() -> None:
    """A map over a map is passed its items one by one; the list of an ordinary step is an output like any other."""
    flow = Flow("sums")

    @flow.step
    def numbers() -> list[int]: ...

    @flow.map(over="numbers")
    def double(item: int) -> int: ...

    @flow.map(over="double")
    def square(item: int) -> int: ...

    @flow.map(over="square")
    def compare(item: int, double: list[int]) -> int: ...

    @flow.step
    def total(numbers: list[int]) -> int: ...

    assert {step.name for step in flow.definition.plan.steps if step.takes_lists} == {"compare"}


def test_a_map_is_skipped_with_what_it_goes_over_and_so_is_who_needs_it() -> None:
    """F11: an item cannot be optional."""
    flow = Flow("sums")

    @flow.step(condition="input")
    def numbers() -> list[int]: ...

    @flow.map(over="numbers")
    def double(item: int) -> int: ...

    @flow.reduce(over="double", initial=0)
    def total(acc: int, item: int) -> int: ...

    @flow.step
    def report(total: int | None) -> None: ...

    found = {name: (why.alone, why.with_dependents) for name, why in flow.definition.skips.items() if why}
    assert found == {
        "numbers": (("its condition",), ()),
        "double": ((), ("'numbers', which it needs, may be skipped",)),
        "total": ((), ("'double', which it needs, may be skipped",)),
    }


def test_a_condition_may_look_at_the_list_of_a_map_and_at_what_a_map_goes_over() -> None:
    """F10, F14."""
    flow = Flow("order")

    @flow.step
    def lines() -> list[Line]: ...

    @flow.map(over="lines", condition="lines[0].price gt 3")
    def check(item: Line) -> Line: ...

    @flow.step(condition="check[0].price gt 3", after=["check"])
    def report() -> None: ...

    assert plan(flow, "check").condition_roots == ("lines",)
    assert plan(flow, "report").condition_roots == ("check",)


def test_what_a_map_goes_over_is_part_of_how_its_handler_is_called() -> None:
    """F21: kind, source and element type; not how many items may fail, which the database counts."""

    def declared(over: str = "input", **options: Any) -> Flow[Any, Any]:
        flow = Flow("sums")

        @flow.step
        def numbers() -> list[int]: ...

        @flow.map(over=over, **options)
        def double(item: int) -> int: ...

        return flow

    usual, other, tolerant = declared(), declared(over="numbers"), declared(on_exhausted="skip")

    assert plan(usual, "double").fingerprint != plan(other, "double").fingerprint
    assert plan(usual, "double").fingerprint == plan(tolerant, "double").fingerprint
    assert len({flow.definition.fingerprint for flow in (usual, other, tolerant)}) == 3


def of_item(item: int) -> int: ...
def of_nothing() -> int: ...
def of_acc(acc: int, item: int) -> int: ...
def of_numbers(item: int, numbers: list[int]) -> int: ...
def of_signal(item: int, signal: bool) -> int: ...
def stream(item: int) -> Iterator[int]:
    yield item


AT_ONCE: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (of_nothing, {}, "a map needs a parameter 'item', and it has none"),
    (of_acc, {}, "it takes 'acc', a reserved word that stands for nothing in a map"),
    (stream, {}, "a map cannot be a generator; return a list instead"),
    (of_signal, {}, "it takes a signal but waits for none"),
    (of_item, {"over": "signal"}, "'signal' is a reserved word and cannot be the name of a step"),
    (of_item, {"over": "No"}, "'No' cannot be the name of a step"),
    (of_item, {"over": ["numbers"]}, r"over must be a step or \"input\", not \['numbers'\]"),
    (of_item, {"over": None}, 'over must be a step or "input", not None'),
    (of_item, {"after": ["numbers"]}, "after names 'numbers', whose output it takes anyway"),
    (of_numbers, {}, "it goes over 'numbers' and takes it as a whole too, once for each item"),
    (of_item, {"may_skip": True}, "a map has no option 'may_skip': an item cannot be skipped"),
    (of_item, {"inline": True}, "a map has no option 'inline': each item is a piece of work"),
    (of_item, {"on_item_failure": "skip"}, "on_item_failure must be 'fail' or 'collect', not 'skip'"),
    (of_item, {"tolerate": 0}, "tolerate must be a whole number from 1 to 1 000 000 000, not 0"),
    (of_item, {"tolerate": True}, "tolerate must be a whole number"),
    (of_item, {"tolerate": 1, "on_item_failure": "collect"}, "on_item_failure and tolerate exclude each other"),
    (of_item, {"condition": "item gt 3"}, r"there is no field 'item' here \(there is: input, numbers\)"),
    (of_item, {"max_retries": -1}, "max_retries must be a whole number"),
    (of_item, {"timeout": 0}, "timeout must be more than 0 seconds"),
    (of_item, {"name": "item"}, "'item' is a reserved word"),
]


@pytest.mark.parametrize(("handler", "options", "message"), AT_ONCE)
def test_a_map_refuses_at_once_what_it_can_know_alone(
    handler: Callable[..., Any], options: dict[str, Any], message: str
) -> None:
    """F2, F14, F14a."""
    with pytest.raises(DefinitionError, match=f"{HERE}map '.*': .*{message}"):
        Flow("sums").map(**{"over": "numbers", **options})(handler)


def test_an_unknown_option_of_a_map_says_which_was_meant() -> None:
    with pytest.raises(TypeError, match="a map has no option 'on_item_fail'; did you mean 'on_item_failure'"):
        Flow("sums").map(over="input", on_item_fail="collect")(of_item)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="a step has no option 'tolerate'"):
        Flow("sums").step(tolerate=3)(of_nothing)  # type: ignore[call-overload]


WHOLE: list[Any] = []


def found(*messages: str, **options: Any) -> Callable[[Declare], Declare]:
    """Enter a case: everything that is to be found in the flow it declares."""

    def enter(declare: Declare) -> Declare:
        WHOLE.append(pytest.param(declare, messages, options, id=declare.__name__))
        return declare

    return enter


@found("map 'double' needs 'numbrs', but flow 'sums' has no such step; did you mean 'numbers'?")
def over_an_unknown_step(flow: Flow[Any, Any]) -> None:
    @flow.step
    def numbers() -> list[int]: ...

    @flow.map(over="numbrs")
    def double(item: int) -> int: ...


@found("map 'double' depends on itself")
def over_itself(flow: Flow[Any, Any]) -> None:
    @flow.map(over="double")
    def double(item: int) -> int: ...


@found("the steps need each other in a circle: double → square → double")
def in_a_circle(flow: Flow[Any, Any]) -> None:
    @flow.map(over="square")
    def double(item: int) -> int: ...

    @flow.map(over="double")
    def square(item: int) -> int: ...


@found("map 'double' goes over 'numbers', but 'numbers' returns dict[str, int], which is no list")
def over_something_that_is_no_list(flow: Flow[Any, Any]) -> None:
    @flow.step
    def numbers() -> dict[str, int]: ...

    @flow.map(over="numbers")
    def double(item: int) -> int: ...


@found("map 'double' goes over 'numbers', but 'numbers' returns list[int] | None, which is no list")
def over_something_that_may_be_none(flow: Flow[Any, Any]) -> None:
    @flow.step
    def numbers() -> list[int] | None: ...

    @flow.map(over="numbers")
    def double(item: int) -> int: ...


@found("map 'price' goes over 'input', but the input of flow 'sums' is Line, which is no list", input=Line)
def over_an_input_that_is_no_list(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def price(item: Line) -> float: ...


@found("map 'price' takes item: Parcel, but the input of flow 'sums' is list[Line]", input=list[Line])
def other_items_than_the_input_has(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def price(item: Parcel) -> float: ...


@found("map 'price' takes item: Parcel, but 'lines' returns tuple[Line, ...]")
def other_items_than_the_step_returns(flow: Flow[Any, Any]) -> None:
    @flow.step
    def lines() -> tuple[Line, ...]: ...

    @flow.map(over="lines")
    def price(item: Parcel) -> float: ...


@found("map 'square' takes item: str, but 'double' gives list[int]")
def other_items_than_the_map_gives(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def double(item: int) -> int: ...

    @flow.map(over="double")
    def square(item: str) -> int: ...


@found("map 'double' takes item: Optional[int], but only the output of a step can be missing: write int or int | None")
def an_item_that_cannot_be_missing(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def double(item: Optional[int]) -> int: ...


@found(
    "map 'square' takes item: int, but 'double' leaves errors in the place of items that failed: write int | ItemError",
    "step 'total' takes double: Iterable[int], but 'double' leaves errors in the place of items that failed: "
    "the items are int | ItemError",
    "step 'report' takes double: list[dict], but 'double' leaves errors in the place",
    "reduce 'sum_up' takes item: int, but 'double' leaves errors in the place",
)
def items_that_are_taken_as_if_none_had_failed(flow: Flow[Any, Any]) -> None:
    """F14a."""

    @flow.map(over="input", tolerate=3)
    def double(item: int) -> Any: ...

    @flow.map(over="double")
    def square(item: int) -> int: ...

    @flow.step
    def total(double: Iterable[int]) -> int: ...

    @flow.step
    def report(double: list[dict]) -> int: ...  # type: ignore[type-arg]

    @flow.reduce(over="double", initial=0)
    def sum_up(acc: int, item: int) -> int: ...

    @flow.step
    def fine(double: list[int | ItemError]) -> int: ...

    @flow.step
    def also_fine(double: list[Any]) -> int: ...


@found("step 'total' takes double: Iterable[str], but 'double' gives list[int]")
def other_items_in_a_stream(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def double(item: int) -> int: ...

    @flow.step
    def total(double: Iterable[str]) -> int: ...


@found("step 'total' takes double: int, but 'double' gives list[int]")
def one_item_where_there_is_a_list(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def double(item: int) -> int: ...

    @flow.step
    def total(double: int) -> int: ...


@found("step 'total' takes double: Iterable[int], but it is async: write AsyncIterable[int], or list[int]")
def a_stream_that_would_block_the_loop(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def double(item: int) -> int: ...

    @flow.step
    async def total(double: Iterable[int]) -> int: ...


@found("step 'total' takes double: AsyncIterator[int], but it is not async: write Iterable[int], or list[int]")
def a_stream_that_cannot_be_awaited(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def double(item: int) -> int: ...

    @flow.step
    def total(double: AsyncIterator[int]) -> int: ...


@found(
    "step 'total' takes double: Iterable[int] as it is read, but runs in a process of its own, "
    'which does not read the database for it: leave out isolation="process"; or write list[int]'
)
def a_stream_into_another_process(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def double(item: int) -> int: ...

    @flow.step(isolation="process")
    def total(double: Iterable[int]) -> int: ...

    @flow.step(isolation="process")
    def fine(double: list[int]) -> int: ...


@found(
    "step 'total' takes numbers: Iterable[int], but 'numbers' is no map, so there is nothing to stream: write list[int]"
)
def a_stream_of_what_is_no_map(flow: Flow[Any, Any]) -> None:
    @flow.step
    def numbers() -> list[int]: ...

    @flow.step
    def total(numbers: Iterable[int]) -> int: ...


@found(
    "step 'total' takes double: Iterable[int], but 'double' may be skipped (its condition): annotate it as Optional["
)
def a_map_that_may_be_skipped(flow: Flow[Any, Any]) -> None:
    """F11."""

    @flow.map(over="input", condition="input")
    def double(item: int) -> int: ...

    @flow.step
    def total(double: Iterable[int]) -> int: ...


@found("condition of step 'report' looks at price[0].weight, but list[Line] has no such field")
def a_condition_on_a_field_that_no_item_has(flow: Flow[Any, Any]) -> None:
    """F10."""

    @flow.map(over="input")
    def price(item: Line) -> Line: ...

    @flow.step(condition="price[0].weight gt 3", after=["price"])
    def report() -> None: ...


@found("output of map 'double': bytes cannot be the type of a stored value")
def an_output_without_a_json_form(flow: Flow[Any, Any]) -> None:
    @flow.map(over="input")
    def double(item: int) -> bytes: ...


@found(
    "map 'double' needs 'numbrs'",
    "map 'square' takes item: str, but 'double' gives list[int]",
    "reduce 'total' takes acc: int, but returns str",
    "step 'report' takes square: AsyncIterable[int], but it is not async",
)
def everything_at_once(flow: Flow[Any, Any]) -> None:
    @flow.map(over="numbrs")
    def double(item: int) -> int: ...

    @flow.map(over="double")
    def square(item: str) -> int: ...

    @flow.reduce(over="square", initial=0)
    def total(acc: int, item: int) -> str: ...

    @flow.step
    def report(square: AsyncIterable[int]) -> None: ...


@pytest.mark.parametrize(("declare", "messages", "options"), WHOLE)
def test_a_flow_is_refused_on_first_use_with_everything_that_is_wrong(
    declare: Declare, messages: tuple[str, ...], options: dict[str, Any]
) -> None:
    """F2, F14, F14a: nothing is raised before; each problem has its file and line."""
    flow = Flow("sums", **options)
    declare(flow)

    with pytest.raises(DefinitionError) as refused:
        _ = flow.definition

    problems = [problem.partition(": ") for problem in refused.value.problems]
    assert len(problems) == len(messages), problems
    assert all(f"{__file__}:" in place for place, _, _ in problems)
    for message in messages:
        assert any(text.startswith(message) for _, _, text in problems), problems
