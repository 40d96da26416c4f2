"""F15: what a reduce is made of, and what cannot work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from catbird_django import DefinitionError, ItemError
from catbird_django.client.flows import Flow, Optional, Step
from catbird_django.definitions.parameters import Source
from catbird_django.definitions.plan import StepPlan
from catbird_django.definitions.step_kinds import StepKind

HERE = r"test_flow_reduces\.py:\d+: "


@dataclass
class Totals:
    count: int = 0
    names: list[str] = field(default_factory=list)


def plan(flow: Flow[Any, Any], step: str) -> StepPlan:
    return flow.definition.plan.step(step)


def test_a_reduce_over_a_map_takes_its_items_and_what_it_returned_before() -> None:
    """F15: the example of the specification."""
    flow = Flow("sums")

    @flow.map(over="input")
    def double(item: int) -> int: ...

    @flow.reduce(over="double", initial=0)
    def total(acc: int, item: int) -> int:
        return acc + item

    planned = plan(flow, "total")
    assert isinstance(total, Step)
    assert total(3, 4) == 7
    assert total.definition.kind is StepKind.REDUCE
    assert [parameter.source for parameter in total.definition.parameters] == [Source.ACC, Source.ITEM]
    assert (planned.kind, planned.over, planned.initial, planned.takes_lists) == ("reduce", "double", 0, True)
    assert [(one.step, one.parameter, one.is_optional) for one in planned.dependencies] == [("double", "item", False)]
    assert flow.definition.output_type is int


def test_a_reduce_over_a_list_takes_it_as_any_output() -> None:
    """F15: only the outputs of a map are not there as a whole."""
    flow = Flow("sums")

    @flow.step
    def numbers() -> list[int]: ...

    @flow.reduce(over=numbers, initial=0, max_retries=2)
    def total(acc: int, item: int, ctx: Any) -> int: ...

    planned = plan(flow, "total")
    assert (planned.takes_lists, planned.takes_input, planned.max_retries) == (False, False, 2)


def test_a_reduce_over_the_input_is_sent_the_input() -> None:
    """F15."""
    flow = Flow("sums")

    @flow.reduce(over="input", initial=0)
    async def total(acc: int, item: int) -> int: ...

    assert plan(flow, "total").takes_input
    assert plan(flow, "total").dependencies == ()
    assert flow.definition.input_type == list[int]


def test_what_a_reduce_starts_with_is_read_anew_each_time() -> None:
    """F15: a handler that changes it does not change what the next run starts with."""
    flow = Flow("names")

    @flow.reduce(over="input", initial=Totals())
    def collect(acc: Totals, item: str) -> Totals:
        acc.names.append(item)
        return acc

    acc = collect.definition.argument_from(Source.ACC)
    assert acc is not None
    first, second = acc.value_of(collect.definition.initial_text), acc.value_of(collect.definition.initial_text)
    collect(first, "kim")
    assert (first.names, second.names) == (["kim"], [])
    assert plan(flow, "collect").initial == {"count": 0, "names": []}


def test_what_a_reduce_starts_with_may_be_given_in_its_json_form_and_as_another_number() -> None:
    flow = Flow("sums")

    @flow.reduce(over="input", initial={"count": 3})
    def collect(acc: Totals, item: str) -> Totals: ...

    @flow.reduce(over="input", initial=0)
    def total(acc: float, item: str) -> float: ...

    @flow.reduce(over="input", initial=None)
    def last(acc: str | None, item: str) -> str | None: ...

    _ = flow.definition
    assert collect.definition.initial_text == '{"count":3,"names":[]}'
    assert total.definition.initial_text == "0.0"
    assert last.definition.initial_text == "null"


def test_what_a_reduce_starts_with_is_part_of_the_flow_but_not_of_how_its_handler_is_called() -> None:
    """F21: a run that began before can still be worked on."""

    def declared(initial: int) -> Flow[Any, Any]:
        flow = Flow("sums")

        @flow.reduce(over="input", initial=initial)
        def total(acc: int, item: int) -> int: ...

        return flow

    one, other = declared(0), declared(1)

    assert one.definition.fingerprint != other.definition.fingerprint
    assert plan(one, "total").fingerprint == plan(other, "total").fingerprint


def test_errors_among_the_items_are_taken_by_who_says_so() -> None:
    """F14a."""
    flow = Flow("sums")

    @flow.map(over="input", on_item_failure="collect")
    def double(item: int) -> int: ...

    @flow.reduce(over="double", initial=0)
    def failed(acc: int, item: int | ItemError) -> int:
        return acc + isinstance(item, ItemError)

    assert flow.definition.final_steps == ["failed"]


def of_item(item: int) -> int: ...
def of_acc(acc: int) -> int: ...
def of_both(acc: int, item: int) -> int: ...


@pytest.mark.parametrize(
    ("handler", "options", "message"),
    [
        (of_item, {}, "a reduce needs a parameter 'acc', and it has none"),
        (of_acc, {}, "a reduce needs a parameter 'item', and it has none"),
        (of_both, {"may_skip": True}, "a reduce has no option 'may_skip': it has an output even without items"),
        (of_both, {"inline": True}, "a reduce has no option 'inline'"),
        (of_both, {"atomic": True}, "a reduce has no option 'atomic'"),
        (of_both, {"over": 3}, 'over must be a step or "input", not 3'),
        (of_both, {"deadline": 0}, "deadline must be more than 0 seconds"),
    ],
)
def test_a_reduce_refuses_at_once_what_it_can_know_alone(
    handler: Callable[..., Any], options: dict[str, Any], message: str
) -> None:
    """F2, F15."""
    with pytest.raises(DefinitionError, match=f"{HERE}reduce '.*': {message}"):
        Flow("sums").reduce(**{"over": "numbers", "initial": 0, **options})(handler)


def test_a_reduce_cannot_do_without_something_to_start_with() -> None:
    """F15."""
    with pytest.raises(TypeError, match="initial"):
        Flow("sums").reduce(over="input")  # type: ignore[call-arg]


def returns_another_type(acc: int, item: int) -> str: ...
def takes_text(acc: str, item: int) -> str: ...
def never_returns_none(acc: float | None, item: int) -> float: ...
def takes_our_optional(acc: Optional[int], item: int) -> int: ...
def takes_text_items(acc: int, item: str) -> int: ...


@pytest.mark.parametrize(
    ("handler", "initial", "messages"),
    [
        (returns_another_type, 0, ["takes acc: int, but returns str"]),
        (takes_text, 0, ["cannot start with what it is given, and return it if there are no items: initial: "]),
        (
            never_returns_none,
            None,
            ["cannot start with what it is given, and return it if there are no items: initial: "],
        ),
        (of_both, object(), ["cannot start with what it is given"]),
        (
            takes_our_optional,
            0,
            ["takes acc: Optional[int], but only the output of a step can be missing: write int or"],
        ),
        (takes_text_items, 0, ["takes item: str, but 'numbers' returns list[int]"]),
    ],
)
def test_a_flow_with_a_reduce_that_cannot_work_is_refused_on_first_use(
    handler: Callable[..., Any], initial: Any, messages: list[str]
) -> None:
    """F2, F15."""
    flow = Flow("sums")

    @flow.step
    def numbers() -> list[int]: ...

    flow.reduce(over="numbers", initial=initial, name="total")(handler)

    with pytest.raises(DefinitionError) as refused:
        _ = flow.definition

    problems = refused.value.problems
    assert len(problems) == len(messages), problems
    for problem, message in zip(problems, messages, strict=True):
        assert f"reduce 'total' {message}" in problem
        assert problem.startswith(__file__)


def test_a_process_of_its_own_cannot_read_the_items_of_a_map_one_by_one() -> None:
    """F14a, F15: but it can be sent a list."""
    flow = Flow("sums")

    @flow.step
    def numbers() -> list[int]: ...

    @flow.map(over="numbers")
    def double(item: int) -> int: ...

    flow.reduce(over="numbers", initial=0, isolation="process", name="fine")(of_both)
    flow.reduce(over="double", initial=0, isolation="process", name="far")(of_both)

    [problem] = flow.draft.problems()
    assert "reduce 'far' goes over the items of 'double' as they are read, but runs in a process of its own" in str(
        problem
    )
