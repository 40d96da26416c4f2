"""F1, F7, F8: what a flow and its steps are made of."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from catbird_django import DefinitionError, UnknownName
from catbird_django.client.flows import Flow, Optional, Step
from catbird_django.definitions.parameters import Source, WhenMissing
from catbird_django.definitions.registry import registry
from catbird_django.errors import PayloadError


@dataclass
class Order:
    id: int
    total: float


@dataclass
class Approval:
    ok: bool


def needs(flow: Flow[Any, Any]) -> dict[str, list[str]]:
    return flow.definition.graph


def test_parameters_are_dependencies_and_input_signal_and_ctx_are_given() -> None:
    """F1."""
    flow = Flow("order")

    @flow.step
    def validate(input: Order) -> float:
        return input.total

    @flow.step(signal=Approval)
    def approve(ctx: Any, validate: float, signal: Approval, input: Order) -> bool:
        return signal.ok

    assert needs(flow) == {"validate": [], "approve": ["validate"]}
    assert [parameter.source for parameter in approve.definition.parameters] == [
        Source.CONTEXT,
        Source.STEP,
        Source.SIGNAL,
        Source.INPUT,
    ]


def test_a_step_may_need_one_that_is_declared_further_down() -> None:
    """F1, F2: forward references are fine."""
    flow = Flow("order")

    @flow.step
    def ship(validate: float) -> str: ...

    @flow.step
    def validate(input: Order) -> float: ...

    assert [step.name for step in flow.definition.order] == ["validate", "ship"]


def test_after_is_an_order_without_an_output() -> None:
    """F1: by name, or the step itself."""
    flow = Flow("order")

    @flow.step
    def validate() -> float: ...

    @flow.step
    def reserve() -> int: ...

    @flow.step(after=[validate, "reserve"])
    def ship() -> str: ...

    plan = flow.definition.plan.steps[2]
    assert needs(flow)["ship"] == ["validate", "reserve"]
    assert [(one.is_order_only, one.is_optional, one.parameter) for one in plan.dependencies] == [
        (True, True, None)
    ] * 2
    assert plan.argument_schemas == {}


def test_depends_on_names_the_steps_of_parameters_that_are_called_otherwise() -> None:
    """F1: in the order of the parameters, those aside that are given anyway."""
    flow = Flow("sums")

    @flow.step
    def left(input: int) -> int: ...

    @flow.step
    def right(input: int) -> str: ...

    def add(a: int, ctx: Any, b: str) -> str:
        return f"{a}{b}"

    total = flow.step(name="total", depends_on=[left, "right"])(add)

    assert needs(flow)["total"] == ["left", "right"]
    assert [(one.name, one.step) for one in total.definition.parameters] == [("a", "left"), ("ctx", ""), ("b", "right")]
    assert [one.argument_position for one in flow.definition.plan.steps[2].dependencies] == [1, 3]
    assert total(1, None, "2") == "12"


def test_one_function_may_be_several_steps() -> None:
    flow = Flow("twice")

    def work(input: int) -> int: ...

    flow.step(name="first")(work)
    flow.step(name="second", after=["first"])(work)

    assert needs(flow) == {"first": [], "second": ["first"]}


def test_calling_a_step_calls_the_function() -> None:
    """F1."""
    flow = Flow("order")

    @flow.step
    def ship(input: Order, approve: Optional[bool]) -> str:
        return f"{input.id} {approve.is_set}"

    assert isinstance(ship, Step)
    assert ship(Order(3, 1.0), Optional(False)) == "3 True"
    assert ship(Order(3, 1.0), approve=Optional()) == "3 False"


def test_keyword_only_parameters_and_async_steps_will_do() -> None:
    flow = Flow("order")

    @flow.step
    def validate(*, input: Order) -> float: ...

    @flow.step
    async def ship(*, validate: float) -> str: ...

    assert needs(flow)["ship"] == ["validate"]
    assert (validate.definition.is_async, ship.definition.is_async) == (False, True)
    assert flow.definition.output_type is str


def test_branches_need_not_know_each_other_and_may_merge() -> None:
    """F7."""
    flow = Flow("diamond")

    @flow.step
    def top(input: int) -> int: ...

    @flow.step
    def left(top: int) -> int: ...

    @flow.step
    def right(top: int, input: int) -> int: ...

    @flow.step
    def bottom(left: int, right: int) -> int: ...

    steps = {step.name: step for step in flow.definition.plan.steps}
    assert [steps[name].required_count for name in ("top", "left", "right", "bottom")] == [0, 1, 1, 2]
    assert [name for name, step in steps.items() if step.takes_input] == ["top", "right"]
    assert flow.definition.final_steps == ["bottom"]


def two_ends(**options: Any) -> Flow[Any, Any]:
    flow = Flow("order", **options)

    @flow.step
    def validate(input: Order) -> float: ...

    @flow.step
    def ship(validate: float) -> str: ...

    @flow.step(condition="validate gt 3")
    def refund(validate: float) -> int: ...

    return flow


def test_the_output_is_that_of_the_final_steps_in_the_order_of_definition() -> None:
    """F8."""
    definition = two_ends().definition

    assert definition.outputs == ["ship", "refund"]
    assert definition.output_type == str | int
    assert definition.plan.final_count == 2


def test_output_chooses_and_orders_the_steps_whose_output_counts() -> None:
    """F8: final or not."""
    assert two_ends(output=["refund", "ship"]).definition.outputs == ["refund", "ship"]
    assert two_ends(output="validate").definition.output_type is float


def test_an_output_that_may_be_skipped_may_be_none_unless_it_is_required() -> None:
    """F8."""
    assert two_ends(output="refund").definition.output_type == int | None
    assert two_ends(output="refund", output_required=True).definition.output_type is int


def test_the_input_is_what_the_steps_take() -> None:
    """The narrowest of them, so that every step can read what was checked."""
    flow = Flow("order")

    @flow.step
    def audit(input: dict[str, Any]) -> None: ...

    @flow.step
    def loose(input) -> None: ...  # type: ignore[no-untyped-def] # on purpose

    @flow.step
    def ship(input: Order) -> None: ...

    @flow.step
    def maybe(input: Order | None) -> None: ...

    assert flow.definition.input_type is Order


def test_the_input_may_be_stated() -> None:
    flow = Flow("order", input=int)

    @flow.step
    def ship(input: float) -> None: ...

    assert flow.definition.input_type is int


def test_without_a_step_that_takes_it_the_input_is_anything() -> None:
    flow = Flow("order")

    @flow.step(condition="input.total gt 3")
    def ship() -> None: ...

    assert flow.definition.input_type is Any


@pytest.mark.parametrize(
    ("annotation", "when_missing", "of_true", "of_nothing"),
    [
        (Optional[bool], WhenMissing.OPTIONAL, Optional(True), Optional()),
        (Optional, WhenMissing.OPTIONAL, Optional(True), Optional()),
        (bool | None, WhenMissing.NONE, True, None),
        (Any | None, WhenMissing.NONE, True, None),
    ],
)
def test_an_optional_parameter_is_made_of_what_there_is(
    annotation: Any, when_missing: WhenMissing, of_true: Any, of_nothing: Any
) -> None:
    """F11: ours is an object, `T | None` is None."""
    argument = argument_of(annotation)

    assert argument.when_missing is when_missing
    assert argument.value_of("true") == of_true
    assert argument.value_of(None) == of_nothing


@pytest.mark.parametrize("annotation", [bool, Any, object])
def test_another_parameter_needs_its_value(annotation: Any) -> None:
    """F11: also without a type, or `skip_downstream` would stop nothing."""
    argument = argument_of(annotation)

    assert argument.value_of("true") is True
    with pytest.raises(LookupError, match="'approve'"):
        argument.value_of(None)


def test_an_optional_tells_null_from_nothing() -> None:
    argument = argument_of(Optional[bool | None])

    assert argument.value_of("null") == Optional(None)
    assert argument.value_of(None) == Optional()


def test_a_value_of_another_type_names_the_parameter() -> None:
    with pytest.raises(PayloadError, match="approve: should be a valid boolean"):
        argument_of(Optional[bool]).value_of('"yes"')


def argument_of(annotation: Any) -> Any:
    def ship(approve): ...  # type: ignore[no-untyped-def]

    ship.__annotations__["approve"] = annotation
    return Flow("order").step(ship).definition.arguments[0]


def test_a_flow_is_found_by_name() -> None:
    flow = two_ends()

    assert registry.flow("order").definition is flow.definition
    with pytest.raises(UnknownName, match="no flow named 'other'"):
        registry.flow("other")


def test_two_flows_of_one_name_are_a_conflict_that_names_both() -> None:
    first = Flow("order")
    second = Flow("order")

    assert registry.flow("order") is first.draft
    with pytest.raises(DefinitionError, match=r"two flows are named 'order': .*\.py:\d+ and .*:\d+; rename"):
        _ = second.definition


def test_a_module_that_is_imported_again_replaces_its_own_flows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_flows.py").write_text(
        "from catbird_django.client.flows import Flow\n\n"
        "orders = Flow('order')\n\n"
        "@orders.step\n"
        "def ship() -> int: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    first = importlib.import_module("shop_flows")
    again = importlib.reload(sys.modules["shop_flows"])

    assert registry.flow("order") is again.orders.draft
    assert registry.flow_conflicts == {}
    assert again.orders.draft.location == f"{tmp_path}/shop_flows.py:3"
    assert first.orders.definition.fingerprint == again.orders.definition.fingerprint


def test_a_step_that_comes_after_the_first_use_is_refused() -> None:
    """F2: checked once; half of the processes would know another flow."""
    flow = two_ends()
    _ = flow.definition

    with pytest.raises(DefinitionError, match="'order' has been used without step 'late'"):
        flow.step(name="late")(lambda: None)


def test_a_flow_that_was_found_wrong_can_still_be_completed() -> None:
    flow = Flow("order")
    with pytest.raises(DefinitionError, match="no step"):
        _ = flow.definition

    flow.step(name="ship")(lambda: None)

    assert flow.definition.outputs == ["ship"]


def test_nothing_is_entered_when_a_step_is_refused() -> None:
    flow = Flow("order")
    with pytest.raises(DefinitionError):
        flow.step(name="ship", max_retries=-1)(lambda: None)

    flow.step(name="ship")(lambda: None)

    assert list(flow.definition.steps) == ["ship"]


def test_the_example_of_the_specification_declares_cleanly() -> None:
    """SPEC 4; the file that mypy reads."""
    sys.modules.pop("tests.typing.flows", None)
    example = importlib.import_module("tests.typing.flows")

    definition = example.orders.definition

    assert [step.name for step in definition.order] == ["validate", "approve", "ship", "refund"]
    assert [definition.steps[name].condition_roots for name in ("approve", "ship")] == [{"validate"}, {"approve"}]
    assert definition.input_type is example.Order
    assert definition.output_type == str | None
    assert example.ship(example.Order(1, 5.0), Optional()) == "shipped 1 without asking"


def test_flows_and_steps_show_their_names() -> None:
    flow = Flow("order")
    step = flow.step(name="ship")(lambda: None)

    assert (repr(flow), repr(step)) == ("<Flow order>", "<Step ship>")
