"""F11, F11a: which steps may be skipped, and who must be ready for it."""

from __future__ import annotations

from typing import Any

import pytest

from catbird_django import DefinitionError
from catbird_django.client.flows import Flow, Optional


def skips(flow: Flow[Any, Any]) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Of each step that may be skipped: reasons that concern it alone, and reasons that concern its dependents too."""
    found = flow.definition.skips
    return {name: (why.alone, why.with_dependents) for name, why in found.items() if why}


def chain(**options: Any) -> Flow[Any, Any]:
    """`first`, with options; `needs` needs it, `last` needs that, `optional` and `later` can do without."""
    flow = Flow("chain")

    @flow.step(**options)
    def first() -> int: ...

    @flow.step
    def needs(first: int) -> int: ...

    @flow.step
    def last(needs: int) -> int: ...

    @flow.step
    def optional(first: Optional[int], needs: int | None) -> int: ...

    @flow.step(after=["needs"])
    def later() -> int: ...

    return flow


def test_without_a_reason_nothing_is_skipped() -> None:
    assert skips(chain()) == {}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"condition": "input", "on_unmet": "skip_downstream"}, "its condition"),
        ({"on_exhausted": "skip_downstream"}, "on_exhausted='skip_downstream'"),
    ],
)
def test_skip_downstream_reaches_every_descendant_that_cannot_do_without(options: dict[str, Any], reason: str) -> None:
    """F11a: Optional and order-only ones run."""
    assert skips(chain(**options)) == {
        "first": ((), (reason,)),
        "needs": ((), ("'first', which it needs, may be skipped",)),
        "last": ((), ("'needs', which it needs, may be skipped",)),
    }


@pytest.mark.parametrize("options", [{"condition": "input"}, {"on_exhausted": "skip"}, {"may_skip": True}])
def test_a_skip_alone_must_be_expected_by_every_dependent(options: dict[str, Any]) -> None:
    """F11: and only by its own dependents."""
    with pytest.raises(DefinitionError) as refused:
        _ = chain(**options).definition

    [problem] = refused.value.problems
    assert "step 'needs' takes first: int, but 'first' may be skipped" in problem


@pytest.mark.parametrize("options", [{"condition": "input", "on_unmet": "fail"}, {"on_exhausted": "fail"}])
def test_what_fails_is_not_skipped(options: dict[str, Any]) -> None:
    assert skips(chain(**options)) == {}


@pytest.mark.parametrize("annotation", [Optional[int], int | None, Optional, None | int, Any | None])
def test_every_spelling_of_optional_will_do(annotation: Any) -> None:
    """F11."""
    flow = Flow("order")

    @flow.step(may_skip=True)
    def first() -> int: ...

    def second(first): ...  # type: ignore[no-untyped-def]

    second.__annotations__["first"] = annotation
    flow.step(second)

    assert [one.is_optional for one in flow.definition.plan.steps[1].dependencies] == [True]


def test_a_step_may_be_skipped_in_both_ways() -> None:
    """F11: then its dependents must be optional all the same."""
    flow = Flow("order")

    @flow.step(may_skip=True, on_exhausted="skip_downstream")
    def first() -> int: ...

    @flow.step
    def second(first: int | None) -> int: ...

    assert skips(flow) == {"first": (("may_skip=True",), ("on_exhausted='skip_downstream'",))}


def test_branches_that_may_be_skipped_merge_again() -> None:
    """F11."""
    flow = Flow("merge")

    @flow.step(condition="input.left")
    def left() -> int: ...

    @flow.step(condition="not input.left")
    def right() -> int: ...

    @flow.step
    def merged(left: Optional[int], right: Optional[int]) -> int: ...

    assert set(skips(flow)) == {"left", "right"}
    assert flow.definition.output_type is int


def test_a_skip_goes_down_a_long_chain() -> None:
    flow = Flow("long")
    for number in range(500):
        scope: dict[str, Any] = {}
        exec(f"def s{number}({f's{number - 1}: int' if number else ''}) -> int: ...", scope)
        options: Any = {} if number else {"on_exhausted": "skip_downstream"}
        flow.step(**options)(scope[f"s{number}"])

    assert len(skips(flow)) == 500


def test_two_skips_that_meet_are_both_reasons() -> None:
    flow = Flow("two")

    @flow.step(on_exhausted="skip_downstream")
    def left() -> int: ...

    @flow.step(on_exhausted="skip_downstream")
    def right() -> int: ...

    @flow.step
    def both(left: int, right: int) -> int: ...

    reasons = skips(flow)["both"][1]
    assert sorted(reasons) == [f"{name!r}, which it needs, may be skipped" for name in ("left", "right")]
