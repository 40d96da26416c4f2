"""F2: what cannot work is refused, with file and line: alone by the decorator, as a whole on first use, all at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from catbird_django import DefinitionError
from catbird_django.client.flows import Flow, Optional, Signal

if TYPE_CHECKING:
    from decimal import Decimal

HERE = r"test_flow_bad_definitions\.py:\d+: "

Declare = Callable[[Flow[Any, Any]], Any]


@dataclass
class Order:
    id: int


@dataclass
class Invoice:
    id: int


@dataclass
class Approval:
    ok: bool
    by: str = ""


def plain() -> None: ...
def of_input(input: Order) -> None: ...
def of_validate(validate: int) -> None: ...
def of_signal(signal: Approval) -> None: ...
def of_star(*steps: int) -> None: ...
def of_two_stars(**steps: int) -> None: ...
def of_positional(input: Order, /) -> None: ...
def of_item(item: int) -> None: ...
def of_word(exists: int) -> None: ...
def of_capital(Order: int) -> None: ...
def of_two(left: int, right: int) -> None: ...
def stream() -> Iterator[int]:
    yield 1


async def async_stream():  # type: ignore[no-untyped-def]
    yield 1


AT_ONCE: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (plain, {"name": "Ship"}, "'Ship' cannot be the name of a step"),
    (plain, {"name": "input"}, "'input' is a reserved word"),
    (plain, {"name": "exists"}, "'exists' is a reserved word"),
    (plain, {"name": "x" * 65}, "at most 64 characters"),
    (lambda: None, {}, "'<lambda>' cannot be the name of a step"),
    (of_star, {}, r"its parameter \*steps: 'int' cannot be filled"),
    (of_two_stars, {}, r"its parameter \*\*steps: 'int' cannot be filled"),
    (of_positional, {}, "its parameter input: 'Order' cannot be filled"),
    (of_item, {}, "it takes 'item', a reserved word that stands for nothing in a step"),
    (of_word, {}, "'exists' is a reserved word"),
    (of_capital, {}, "'Order' cannot be the name of a step"),
    (stream, {}, "a step cannot be a generator"),
    (async_stream, {}, "a step cannot be a generator"),
    (of_signal, {}, "it takes a signal but waits for none: say which with signal=Type"),
    (plain, {"signal": Signal}, r"its signal has no type: write signal=Signal\(Type\)"),
    (dict, {}, "its parameters are not known: wrap it in a function"),
    (plain, {"condition": "input.a eq"}, "condition 'input.a eq': expected a JSON value after 'eq'"),
    (plain, {"condition": 3}, "a condition must be a string"),
    (of_validate, {"condition": "approve.ok"}, r"there is no field 'approve' here \(there is: input, validate\)"),
    (plain, {"condition": "signal.ok"}, r"there is no field 'signal' here \(there is: input\)"),
    (plain, {"on_unmet": "skip"}, "on_unmet says what follows from its condition, but it has none"),
    (plain, {"condition": "input", "on_unmet": "stop"}, "on_unmet must be 'skip' or 'skip_downstream' or 'fail'"),
    (plain, {"on_exhausted": True}, "on_exhausted must be 'skip' or"),
    (plain, {"may_skip": "yes"}, "may_skip must be True or False, not 'yes'"),
    (plain, {"after": "Ship"}, "'Ship' cannot be the name of a step"),
    (plain, {"after": 3}, "after must be a list of steps, not 3"),
    (plain, {"after": ["a", "b", "a"]}, "after names 'a' twice"),
    (of_validate, {"after": ["validate"]}, "after names 'validate', whose output it takes anyway"),
    (of_validate, {"depends_on": []}, r"depends_on names 0 steps for 1 parameters \(validate\)"),
    (of_input, {"depends_on": ["validate"]}, r"depends_on names 1 steps for 0 parameters \(none\)"),
    (of_two, {"depends_on": ["validate", "validate"]}, "depends_on names 'validate' twice"),
    (of_validate, {"depends_on": ["signal"]}, "'signal' is a reserved word"),
    (plain, {"max_retries": -1}, "max_retries must be a whole number"),
    (plain, {"backoff": (5, 1)}, "backoff must be 0 ≤ shortest ≤ longest"),
    (plain, {"retry_on": "ValueError"}, "retry_on must be an exception class"),
    (plain, {"max_lost": True}, "max_lost must be a whole number"),
    (plain, {"timeout": 0}, "timeout must be more than 0 seconds"),
    (plain, {"concurrency": 0}, "concurrency must be a whole number from 1"),
    (plain, {"batch_size": -1}, "batch_size must be a whole number from 0"),
    (plain, {"isolation": "cloud"}, "isolation must be 'thread' or 'process'"),
    (plain, {"on_cancel": "ignore"}, "on_cancel must be 'stop' or 'finish'"),
    (plain, {"delay": -3}, "delay must be more than 0 seconds"),
    (plain, {"deadline": "tomorrow"}, "deadline must be more than 0 seconds"),
    (plain, {"delay": 60, "deadline": timedelta(seconds=60)}, "its delay is not shorter than its deadline"),
]


@pytest.mark.parametrize(("handler", "options", "message"), AT_ONCE)
def test_a_decorator_refuses_at_once_what_it_can_know_alone(
    handler: Callable[..., Any], options: dict[str, Any], message: str
) -> None:
    """F2: name, reserved word, parameters, options, condition."""
    where = HERE if hasattr(handler, "__code__") else "<class 'dict'>: "
    with pytest.raises(DefinitionError, match=f"{where}step '.*': .*{message}"):
        Flow("order").step(**options)(handler)


def test_a_second_step_of_the_same_name_is_refused_at_once_and_both_are_named() -> None:
    """F2."""
    flow = Flow("order")
    flow.step(plain)

    with pytest.raises(DefinitionError, match=f"{HERE}flow 'order' already has a step 'plain', at .*{HERE[:-2]}; give"):
        flow.step(name="plain")(of_input)


def test_an_unknown_option_says_which_was_meant() -> None:
    with pytest.raises(TypeError, match="a step has no option 'retries'; did you mean 'max_retries'"):
        Flow("order").step(retries=3)(plain)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="a flow has no option 'on_failure'; did you mean 'on_fail'"):
        Flow("order", on_failure="mail")  # type: ignore[call-overload]


def test_a_name_in_place_of_a_function_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"@order.step decorates a function; name it with step\(name='ship'\)"):
        Flow("order").step("ship")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": "No"}, "'No' cannot be the name of a queue"),
        ({"description": None}, "description must be text"),
        ({"output": [3]}, "the name of a step must be a string"),
        ({"output": ["a", "a"]}, "output names 'a' twice"),
        ({"output_required": 1}, "output_required must be True or False"),
        ({"on_fail": "No"}, "'No' cannot be the name of a task"),
        ({"deadline": 0}, "deadline must be more than 0"),
        ({"retention": timedelta(days=9999)}, "retention must be more than 0 seconds.* at most ten years"),
    ],
)
def test_a_flow_refuses_bad_options_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=f"{HERE}flow 'order': {message}"):
        Flow("order", **options)


@pytest.mark.parametrize("name", ["Order", "input", "", 3])
def test_a_flow_refuses_a_bad_name_at_once(name: Any) -> None:
    """R10."""
    with pytest.raises(DefinitionError, match=f"{HERE}flow {name!r}: "):
        Flow(name)


# As a whole: a function that declares, and what is found.
WHOLE: list[Any] = []


def found(*messages: str, **options: Any) -> Callable[[Declare], Declare]:
    """Enter a case: everything that is to be found in the flow it declares."""

    def enter(declare: Declare) -> Declare:
        WHOLE.append(pytest.param(declare, messages, options, id=declare.__name__))
        return declare

    return enter


@found("flow 'order' has no step")
def no_step(flow: Flow[Any, Any]) -> None: ...


@found("step 'ship' needs 'validat', but flow 'order' has no such step; did you mean 'validate'?")
def an_unknown_step(flow: Flow[Any, Any]) -> None:
    @flow.step
    def validate() -> int: ...

    @flow.step
    def ship(validat: int) -> None: ...


@found("step 'ship' needs 'elsewhere', but flow 'order' has no such step")
def an_unknown_step_in_after(flow: Flow[Any, Any]) -> None:
    @flow.step(after=["elsewhere"])
    def ship() -> None: ...


@found("step 'ship' needs 'elsewhere', but flow 'order' has no such step")
def an_unknown_step_in_depends_on(flow: Flow[Any, Any]) -> None:
    @flow.step(depends_on=["elsewhere"])
    def ship(check: int) -> None: ...


@found("step 'ship' needs 'verbose', but flow 'order' has no such step")
def a_parameter_with_a_default_is_a_dependency_too(flow: Flow[Any, Any]) -> None:
    @flow.step
    def ship(verbose: bool = False) -> None: ...


@found("step 'ship' depends on itself")
def a_step_that_needs_itself(flow: Flow[Any, Any]) -> None:
    @flow.step
    def ship(ship: int) -> int: ...


@found("step 'ship' depends on itself")
def a_step_that_comes_after_itself(flow: Flow[Any, Any]) -> None:
    @flow.step(after=["ship"])
    def ship() -> int: ...


@found("the steps need each other in a circle: first → second → third → first")
def a_circle(flow: Flow[Any, Any]) -> None:
    @flow.step
    def first(third: int) -> int: ...

    @flow.step
    def second(first: int) -> int: ...

    @flow.step
    def third(second: int) -> int: ...

    @flow.step
    def behind(third: int) -> int: ...


@found("the steps need each other in a circle: ship → approve → ship")
def a_circle_by_order(flow: Flow[Any, Any]) -> None:
    @flow.step(after=["approve"])
    def ship() -> int: ...

    @flow.step
    def approve(ship: int) -> int: ...


@found("the steps need each other in a circle: a → b → a", "the steps need each other in a circle: c → d → c")
def two_circles(flow: Flow[Any, Any]) -> None:
    @flow.step
    def a(b: int) -> int: ...

    @flow.step
    def b(a: int) -> int: ...

    @flow.step
    def c(d: int) -> int: ...

    @flow.step
    def d(c: int) -> int: ...


@found("output of flow 'order' names 'shipp', which is no step of it; did you mean 'ship'?", output=["shipp", "ship"])
def an_unknown_output(flow: Flow[Any, Any]) -> None:
    @flow.step
    def ship() -> int: ...


@found("step 'ship' takes validate: str, but 'validate' returns int")
def another_type(flow: Flow[Any, Any]) -> None:
    @flow.step
    def validate() -> int: ...

    @flow.step
    def ship(validate: str) -> None: ...


@found("step 'ship' takes check: Invoice, but 'validate' returns Order")
def another_type_under_another_name(flow: Flow[Any, Any]) -> None:
    @flow.step
    def validate() -> Order: ...

    @flow.step(depends_on=["validate"])
    def ship(check: Invoice) -> None: ...


@found("step 'ship' takes validate: list[str], but 'validate' returns list[int]")
def another_type_inside(flow: Flow[Any, Any]) -> None:
    @flow.step
    def validate() -> list[int]: ...

    @flow.step
    def ship(validate: list[str]) -> None: ...


@found("step 'ship' takes validate: int, but 'validate' returns int | None")
def none_where_a_value_is_needed(flow: Flow[Any, Any]) -> None:
    @flow.step
    def validate() -> int | None: ...

    @flow.step
    def ship(validate: int) -> None: ...


@found("step 'ship' takes validate: int, but 'validate' returns None")
def nothing_where_a_value_is_needed(flow: Flow[Any, Any]) -> None:
    @flow.step
    def validate() -> None: ...

    @flow.step
    def ship(validate: int) -> None: ...


@found("step 'ship' takes approve: Optional[str], but 'approve' returns bool")
def another_type_in_an_optional(flow: Flow[Any, Any]) -> None:
    @flow.step(condition="input")
    def approve() -> bool: ...

    @flow.step
    def ship(approve: Optional[str]) -> None: ...


@found(
    "step 'ship' takes approve: bool, but 'approve' may be skipped (its condition): "
    "annotate it as Optional[bool] or bool | None"
)
def a_skip_by_condition_that_is_not_expected(flow: Flow[Any, Any]) -> None:
    """F11."""

    @flow.step(condition="input")
    def approve() -> bool: ...

    @flow.step
    def ship(approve: bool) -> None: ...


@found("step 'ship' takes approve: bool, but 'approve' may be skipped (on_exhausted='skip'): annotate")
def a_skip_after_the_last_failure_that_is_not_expected(flow: Flow[Any, Any]) -> None:
    """F11."""

    @flow.step(on_exhausted="skip")
    def approve() -> bool: ...

    @flow.step
    def ship(approve: bool) -> None: ...


@found(
    "step 'ship' takes approve, but 'approve' may be skipped (its condition, on_exhausted='skip', may_skip=True): "
    "annotate it as Optional[…] or … | None"
)
def a_skip_for_three_reasons_without_an_annotation(flow: Flow[Any, Any]) -> None:
    """F11."""

    @flow.step(may_skip=True, on_exhausted="skip", condition="input")
    def approve() -> bool: ...

    @flow.step
    def ship(approve) -> None: ...  # type: ignore[no-untyped-def]


@found("step 'ship' takes input: Invoice, but the input of flow 'order' is Order")
def two_inputs(flow: Flow[Any, Any]) -> None:
    @flow.step
    def validate(input: Order) -> None: ...

    @flow.step
    def ship(input: Invoice) -> None: ...


@found("step 'validate' takes input: Order, but the input of flow 'order' is Invoice: let all", input=Invoice)
def another_input_than_stated(flow: Flow[Any, Any]) -> None:
    @flow.step
    def validate(input: Order) -> None: ...


@found("step 'approve' takes signal: bool, but its signal is Approval")
def another_signal(flow: Flow[Any, Any]) -> None:
    """F12."""

    @flow.step(signal=Approval)
    def approve(signal: bool) -> None: ...


@found("step 'approve' takes signal: Approval, but its signal is list[Approval] (of a quorum of 2)")
def one_signal_of_a_quorum(flow: Flow[Any, Any]) -> None:
    """F13: with a quorum the parameter is a list."""

    @flow.step(signal=Signal(Approval, quorum=2))
    def approve(signal: Approval) -> None: ...


@found("signal of step 'approve' is decided by 'okay', but Approval has no such field; did you mean 'ok'?")
def a_decision_that_is_no_field(flow: Flow[Any, Any]) -> None:
    """F13."""

    @flow.step(signal=Signal(Approval, decision="okay"))
    def approve(signal: Approval) -> None: ...


@found("signal of step 'approve' is decided by 'by', but Approval has it as text, which is neither true nor false")
def a_decision_that_is_not_a_bool(flow: Flow[Any, Any]) -> None:
    """F13."""

    @flow.step(signal=Signal(Approval, decision="by"))
    def approve(signal: Approval) -> None: ...


@found("signal of step 'approve' is decided by 'ok', but bool has no such field")
def a_decision_of_a_type_without_fields(flow: Flow[Any, Any]) -> None:
    """F13."""

    @flow.step(signal=Signal(bool, decision="ok"))
    def approve(signal: bool) -> None: ...


@found("signal of step 'approve' has a payload for its deadline that does not fit: on_deadline.ok: is missing")
def a_payload_that_is_no_signal(flow: Flow[Any, Any]) -> None:
    """F13."""

    @flow.step(signal=Signal(Approval, deadline=60, on_deadline={"by": "nobody"}))
    def approve(signal: Approval) -> None: ...


@found("signal of step 'approve': type[.*Order] cannot be the type of a stored value")
def a_signal_without_a_json_form(flow: Flow[Any, Any]) -> None:
    @flow.step(signal=type[Order])
    def approve() -> None: ...


@found("output of step 'ship': bytes cannot be the type of a stored value: bytes have no JSON form")
def an_output_without_a_json_form(flow: Flow[Any, Any]) -> None:
    @flow.step
    def ship() -> bytes: ...


@found(
    "parameter 'input' of step 'ship': bytes cannot be the type",
    "input of flow 'order': bytes cannot be the type",
)
def an_input_without_a_json_form(flow: Flow[Any, Any]) -> None:
    @flow.step
    def ship(input: bytes) -> None: ...


@found(
    "parameter 'input' of step 'ship': .*Optional is for a step's parameter; inside a value write T | None",
    "input of flow 'order': .*Optional is for",
)
def our_optional_inside_the_input(flow: Flow[Any, Any]) -> None:
    """F11: only a whole output can be missing."""

    @flow.step
    def ship(input: list[Optional[int]]) -> None: ...


@found(
    "step 'ship' takes input: Optional[Order], but only the output of a step can be missing: "
    "write Order or Order | None"
)
def an_input_that_cannot_be_missing(flow: Flow[Any, Any]) -> None:
    """F11."""

    @flow.step
    def ship(input: Optional[Order]) -> None: ...


@found("step 'approve' takes signal: Optional[Approval], but only the output of a step can be missing")
def a_signal_that_cannot_be_missing(flow: Flow[Any, Any]) -> None:
    """F11."""

    @flow.step(signal=Approval)
    def approve(signal: Optional[Approval]) -> None: ...


@found("condition of step 'approve' looks at validate.idd, but Order has no such field; did you mean 'id'?")
def a_condition_on_a_field_that_does_not_exist(flow: Flow[Any, Any]) -> None:
    """F10: it would be missing in every run."""

    @flow.step
    def validate() -> Order: ...

    @flow.step(condition="validate.idd gt 1000", after=["validate"])
    def approve() -> bool: ...


@found(
    "condition of step 'approve' looks at input.lines, but Order has no such field",
    "condition of step 'approve' looks at signal[0].okay, but list[Approval] has no such field; did you mean 'ok'?",
)
def a_condition_on_fields_of_input_and_signal_that_do_not_exist(flow: Flow[Any, Any]) -> None:
    """F10, F13."""

    @flow.step(condition="not (input.lines exists and signal[0].okay)", signal=Signal(Approval, quorum=2))
    def approve(input: Order) -> bool: ...


@found("an annotation of step 'ship' cannot be resolved (name 'Decimal' is not defined)")
def an_annotation_that_cannot_be_resolved(flow: Flow[Any, Any]) -> None:
    @flow.step
    def ship(input: Decimal) -> None: ...

    @flow.step
    def mail(ship: int) -> None: ...


@found(
    "step 'validate' needs 'inputt'",
    "step 'approve' takes validate: str, but 'validate' returns int",
    "step 'ship' takes approve: bool, but 'approve' may be skipped (may_skip=True)",
    "step 'ship' takes approve: bool, but 'approve' returns str",
    "step 'ship' depends on itself",
    "the steps need each other in a circle: mail → post → mail",
    "output of flow 'order' names 'nothing'",
    output="nothing",
)
def everything_at_once(flow: Flow[Any, Any]) -> None:
    @flow.step
    def validate(inputt: Order) -> int: ...

    @flow.step(may_skip=True)
    def approve(validate: str) -> str: ...

    @flow.step
    def ship(approve: bool, ship: int) -> int: ...

    @flow.step
    def mail(post: int) -> int: ...

    @flow.step
    def post(mail: int) -> int: ...


@pytest.mark.parametrize(("declare", "messages", "options"), WHOLE)
def test_a_flow_is_refused_on_first_use_with_everything_that_is_wrong(
    declare: Declare, messages: tuple[str, ...], options: dict[str, Any]
) -> None:
    """F2: nothing is raised before; each problem has its file and line."""
    flow = Flow("order", **options)
    declare(flow)

    with pytest.raises(DefinitionError) as refused:
        _ = flow.definition

    problems = sorted(refused.value.problems)
    assert len(problems) == len(messages), problems
    for message in messages:
        pattern = re.compile(f"^/.*{HERE}" + re.escape(message).replace(r"\.\*", ".*"))
        assert any(pattern.search(problem) for problem in problems), problems
    assert all(problem in str(refused.value) for problem in problems)


def test_every_problem_names_the_line_of_the_step_that_must_change() -> None:
    """F2."""
    flow = Flow("order")

    @flow.step
    def validate() -> int: ...

    @flow.step
    def ship(validate: str) -> None: ...

    line = ship.definition.handler.__code__.co_firstlineno  # type: ignore[attr-defined]
    [problem] = flow.draft.problems()
    assert str(problem) == f"{__file__}:{line}: step 'ship' takes validate: str, but 'validate' returns int"


def test_one_problem_is_the_whole_message_and_several_are_counted() -> None:
    one, many = Flow("one"), Flow("many")
    a_step_that_needs_itself(one)
    two_circles(many)

    with pytest.raises(DefinitionError, match=f"^/.*{HERE}step 'ship' depends on itself$"):
        _ = one.definition
    with pytest.raises(DefinitionError, match=r"^2 things are wrong with flow 'many':\n  /"):
        _ = many.definition
