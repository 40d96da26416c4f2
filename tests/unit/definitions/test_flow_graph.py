"""F2, F3a: the order of steps, their circles and their ends, on graphs that nobody thought of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catbird_django import DefinitionError
from catbird_django.client.flows import Flow
from catbird_django.definitions.graph import Graph, final_steps, find_cycles, sort_steps
from catbird_django.definitions.registry import registry

unhurried = settings(deadline=None)  # a machine that is busy with something else is not a failure


@st.composite
def dags(draw: st.DrawFn) -> dict[str, list[str]]:
    """Steps in any order of definition, each needing some of those that come before it in another order."""
    names = [f"s{number}" for number in range(draw(st.integers(1, 12)))]
    hidden = draw(st.permutations(names))
    needs = {
        name: draw(st.lists(st.sampled_from(hidden[:place]), unique=True)) if place else []
        for place, name in enumerate(hidden)
    }
    return {name: needs[name] for name in names}


@st.composite
def graphs_with_a_circle(draw: st.DrawFn) -> dict[str, list[str]]:
    graph = {name: list(needed) for name, needed in draw(dags()).items()}
    circle = draw(st.permutations(list(graph)))[: draw(st.integers(2, max(2, len(graph))))]
    if len(circle) < 2:
        graph["extra"] = []
        circle = [*circle, "extra"]
    for name, needed in zip(circle, circle[1:] + circle[:1], strict=True):
        graph[name] = sorted({*graph[name], needed})
    return graph


def flow_of(graph: Graph) -> Flow[Any, Any]:
    flow = Flow("random")
    for name, needed in graph.items():
        scope: dict[str, Any] = {}
        exec(f"def {name}({', '.join(f'{one}: int' for one in needed)}) -> int: ...", scope)
        flow.step(scope[name])
    return flow


@unhurried
@given(dags())
def test_without_a_circle_every_step_comes_after_what_it_needs(
    graph: dict[str, list[str]],
) -> None:
    """F2."""
    with registry.isolated():
        plan = flow_of(graph).definition.plan

    positions = {step.name: step.position for step in plan.steps}
    assert sorted(positions.values()) == list(range(1, len(graph) + 1))
    assert all(positions[needed] < positions[name] for name in graph for needed in graph[name])
    assert all(one.step_position == positions[one.step] for step in plan.steps for one in step.dependencies)
    assert {step.name: step.required_count for step in plan.steps} == {name: len(graph[name]) for name in graph}


@unhurried
@given(dags())
def test_the_ends_are_needed_by_nobody_and_everything_leads_to_one(graph: dict[str, list[str]]) -> None:
    """F3a: when the final steps have ended, so have all."""
    ends = final_steps(graph)

    before = set(ends)
    for name in reversed(sort_steps(graph)):
        before |= set(graph[name]) if name in before else set()
    assert not any(end in needed for end in ends for needed in graph.values())
    assert before == graph.keys()


@unhurried
@given(graphs_with_a_circle())
def test_a_circle_is_refused_and_named(graph: dict[str, list[str]]) -> None:
    """F2: what is shown is a circle indeed, and without those shown there is none."""
    cycles = find_cycles(graph)

    for cycle in cycles:
        assert all(before in graph[name] for before, name in zip(cycle, cycle[1:] + cycle[:1], strict=True))
        assert len(set(cycle)) == len(cycle)
    broken = {name for cycle in cycles for name in cycle}
    left = {name: needed for name, needed in graph.items() if name not in broken}
    assert len(sort_steps(left)) == len(left)
    with registry.isolated(), pytest.raises(DefinitionError) as refused:
        _ = flow_of(graph).definition
    assert all(f"circle: {' → '.join([*cycle, cycle[0]])}" in str(refused.value) for cycle in cycles)
    assert len(refused.value.problems) == len(cycles) > 0


@unhurried
@given(dags())
def test_the_order_is_that_of_definition_where_the_graph_leaves_a_choice(graph: dict[str, list[str]]) -> None:
    """So that the same declaration always has the same plan."""
    defined = list(graph)
    done: list[str] = []

    for name in sort_steps(graph):
        ready = [one for one in defined if one not in done and set(graph[one]) <= set(done)]
        assert name == ready[0]
        done.append(name)


def test_a_chain_may_be_long() -> None:
    """No recursion limit: neither for the order, nor for a circle."""
    chain = {f"s{number}": [f"s{number - 1}"] if number else [] for number in range(3000)}
    circle = chain | {"s0": ["s2999"]}

    assert sort_steps(chain) == list(chain)
    assert len(find_cycles(circle)[0]) == 3000


def test_what_is_no_step_is_left_out() -> None:
    graph = {"ship": ["nowhere"], "mail": ["ship"]}

    assert sort_steps(graph) == ["ship", "mail"]
    assert find_cycles(graph) == []
    assert final_steps(graph) == ["mail"]


def test_a_step_that_needs_itself_is_a_circle_of_one() -> None:
    assert find_cycles({"ship": ["ship"], "mail": ["ship"]}) == [["ship"]]
