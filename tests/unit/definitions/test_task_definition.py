"""T1, T2: what a declaration takes, and what it refuses at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from catbird_django import DefinitionError, Task, TaskContext, task
from catbird_django.definitions.registry import Registry, registry
from catbird_django.definitions.task import UNSTATED, define_task

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.fixture(autouse=True)
def _only_the_tasks_of_the_test() -> Iterator[None]:
    with registry.isolated():
        registry.tasks.clear()
        yield


def test_the_name_is_the_functions_unless_given() -> None:
    @task
    def charge() -> None: ...

    @task(name="other", queue="mail")
    def charge_again() -> None: ...

    assert (charge.name, charge_again.name) == ("charge", "other")
    assert (charge.definition.queue, charge_again.definition.queue) == ("default", "mail")
    assert set(registry.tasks) == {"charge", "other"}


def test_types_come_from_annotations_also_of_what_is_defined_later() -> None:
    @task
    def charge(input: Later) -> list[Later]: ...

    assert charge.definition.types == (Later, list[Later])


@dataclass
class Later:
    n: int


def test_without_annotations_anything_goes() -> None:
    @task
    def charge(input): ...  # type: ignore[no-untyped-def] # on purpose

    assert charge.definition.types == (Any, Any)


def test_an_annotation_that_cannot_be_resolved_says_where() -> None:
    @task
    def charge(input: Decimal) -> None: ...

    with pytest.raises(DefinitionError, match=r"test_task_definition\.py:\d+.*Decimal"):
        _ = charge.definition.types


def nothing() -> None: ...
def one(input: int) -> None: ...
def two(input: int, ctx: TaskContext) -> None: ...
def only_context(ctx: TaskContext) -> None: ...
async def asynchronous(input: int) -> None: ...


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (nothing, (False, False, False)),
        (one, (True, False, False)),
        (two, (True, True, False)),
        (only_context, (False, True, False)),
        (asynchronous, (True, False, True)),
    ],
)
def test_the_parameters_say_what_is_passed(handler: Any, expected: tuple[bool, bool, bool]) -> None:
    signature = define_task(name=None, handler=handler, types=(UNSTATED, UNSTATED), options={}).signature

    assert (signature.takes_input, signature.takes_context, signature.is_async) == expected


def three(a: int, b: int, ctx: TaskContext) -> None: ...
def two_inputs(a: int, b: int) -> None: ...
def keyword_only(*, input: int) -> None: ...
def star(*inputs: int) -> None: ...
def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("handler", [three, two_inputs, keyword_only, star, generator])
def test_a_function_that_cannot_be_called_is_refused_with_its_place(handler: Any) -> None:
    with pytest.raises(DefinitionError, match=rf"test_task_definition\.py:{handler.__code__.co_firstlineno}"):
        task(handler)

    assert registry.tasks == {}


def test_a_name_in_place_of_a_function_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"Task\('mail'"):
        task("mail")  # type: ignore[call-overload] # on purpose


@pytest.mark.parametrize("name", ["input", "ctx", "and", "Charge", "1st", "a-b", "", "x" * 65])
def test_a_reserved_or_bad_name_is_refused(name: str) -> None:
    """R10."""
    with pytest.raises(DefinitionError, match="name"):
        task(name=name)(nothing)
    with pytest.raises(DefinitionError, match="name"):
        Task(name)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"batch_size": -1}, "batch_size"),
        ({"breaker": (0, 60)}, "breaker"),
        ({"breaker": (5, -1)}, "breaker"),
        ({"breaker": 5}, "breaker"),
        ({"retention": -1}, "retention"),
        ({"retention": timedelta(days=36600)}, "retention"),
        ({"isolation": "container"}, "isolation"),
        ({"on_cancel": "ignore"}, "on_cancel"),
        ({"on_fail": "No Name"}, "name"),
        ({"on_fail": 7}, "name"),
    ],
)
def test_a_bad_option_is_refused_and_named(options: dict[str, Any], complaint: str) -> None:
    """T8, T9, T11, T12, T15: negative, too large, or of the wrong kind."""
    with pytest.raises(DefinitionError, match=complaint):
        task(**options)(nothing)


def nothing() -> None: ...


@pytest.mark.parametrize("queue", ["", "No", "input"])
def test_a_bad_queue_is_refused(queue: str) -> None:
    with pytest.raises(DefinitionError, match="queue"):
        task(queue=queue)(nothing)


def test_a_type_that_cannot_be_used_names_the_task_and_the_place() -> None:
    @task
    def charge(input: type[Registry]) -> None: ...

    with pytest.raises(DefinitionError, match=r"test_task_definition\.py:\d+: input of task 'charge'"):
        _ = charge.definition.fingerprint


def test_two_tasks_of_one_name_are_a_conflict_that_names_both() -> None:
    """T1: one name in two apps is a check error."""
    first: Task[None, None] = task(name="mail")(nothing)
    second: Task[int, None] = task(name="mail")(one)

    assert registry.task("mail") is first.definition
    with pytest.raises(DefinitionError, match=r"two tasks are named 'mail'.*:\d+ and .*:\d+"):
        second.run(1)


def test_a_module_that_is_imported_again_replaces_its_own_tasks() -> None:
    task(nothing)
    again = task(nothing)

    assert registry.conflicts == {}
    assert registry.task("nothing") is again.definition


def test_the_fingerprint_follows_what_is_stored() -> None:
    """F21."""

    def fingerprint(handler: Any, queue: str = "default") -> str:
        return define_task(
            name="mail", handler=handler, types=(UNSTATED, UNSTATED), options={"queue": queue}
        ).fingerprint

    assert fingerprint(one) == fingerprint(one)
    assert len({fingerprint(one), fingerprint(two), fingerprint(nothing), fingerprint(one, "mail")}) == 4
