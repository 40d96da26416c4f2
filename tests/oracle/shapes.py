"""A random flow, as data, made from a seed.

Steps, maps and reduces, with dependencies, conditions, signals, failures, skips and early ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

ALWAYS = 99  # failures: more than there are attempts
MOST_STEPS = 12
MODULUS = 21  # outputs are whole numbers below it, and lists of them
ERROR = 1  # what an item that failed counts as

Output = int | list[Any]
Decision = dict[str, int | bool]


def number_of(value: Any) -> int:
    """One number that tells values and lists apart, also lists of another order."""
    if isinstance(value, int):
        return value
    if isinstance(value, Iterable) and not isinstance(value, dict):
        return sum((place + 1) * (number_of(one) + 1) for place, one in enumerate(value))
    return ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """That a step takes the output of another."""

    step: str
    is_optional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """What a step is and does."""

    name: str
    position: int
    needs: tuple[Need, ...]
    after: tuple[str, ...]
    condition: str | None
    on_unmet: str
    on_exhausted: str
    has_signal: bool
    may_skip: bool
    max_retries: int
    failures: int
    """How many attempts fail before one succeeds."""
    is_async: bool
    kind: str = "step"
    over: str = ""
    gives_list: bool = False
    """Whether a plain step returns a list."""
    tolerated: int | None = 0
    """How many items of a map may fail; None for all."""
    is_inline: bool = False
    ends_early: bool = False
    """Whether it may complete the run early; of a map, each item."""

    @property
    def has_list(self) -> bool:
        """Whether its output is a list."""
        return self.kind == "map" or self.gives_list

    @property
    def fails_for_good(self) -> bool:
        """Whether so many attempts fail that none is left. An inline step is tried in memory first, and once more."""
        return self.failures > (1 if self.is_inline else self.max_retries)

    @property
    def taken(self) -> tuple[Need, ...]:
        """What it takes as it is, and does not go over."""
        return tuple(need for need in self.needs if need.step != self.over)

    @property
    def dependencies(self) -> tuple[str, ...]:
        return (*(need.step for need in self.needs), *self.after)

    @property
    def may_be_skipped_alone(self) -> bool:
        """Whether its dependents may have to run without it."""
        by_condition = self.condition is not None and self.on_unmet == "skip"
        return by_condition or self.on_exhausted == "skip" or self.may_skip

    def value(self, flow_input: Output, outputs: dict[str, Output | None], decision: Decision | None) -> int:
        """What its handler makes of what it gets."""
        taken = sum(
            (place + 2) * number_of(output)
            for place, need in enumerate(self.taken)
            if (output := outputs.get(need.step)) is not None
        )
        given = int(decision["value"]) if decision is not None else 0
        return (self.position * 7 + 3 * number_of(flow_input) + taken + given) % MODULUS

    def output(self, value: int) -> Output:
        """What a plain step returns, given its value."""
        return [(value + number) % MODULUS for number in range(value % 5)] if self.gives_list else value

    def value_of_item(self, value: int, item: Any) -> int:
        """What a map makes of an item, given its value."""
        return (value + 3 * number_of(item)) % MODULUS

    def added(self, value: int, acc: int, item: Any) -> int:
        """What a reduce makes of an item and what it made of those before, given its value."""
        return (2 * acc + number_of(item) + value) % MODULUS


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowShape:
    """A flow, with what its run is started and signaled with."""

    name: str
    seed: int
    steps: tuple[StepShape, ...]
    input: Output
    decisions: dict[str, Decision]

    def step(self, name: str) -> StepShape:
        return next(step for step in self.steps if step.name == name)

    @property
    def final_steps(self) -> list[str]:
        needed = {name for step in self.steps for name in step.dependencies}
        return [step.name for step in self.steps if step.name not in needed]


def random_flow(seed: int) -> FlowShape:
    """The flow of a seed: always the same."""
    chance = random.Random(seed)
    has_list, may_end_early = chance.random() < 0.4, chance.random() < 0.25
    steps: list[StepShape] = []
    for position in range(1, chance.randint(1, MOST_STEPS) + 1):
        steps.append(_random_step(chance, position, steps, takes_list=has_list))
    if may_end_early:
        steps = _ending_early(chance, steps)
    return FlowShape(
        name=f"dag_{seed}",
        seed=seed,
        steps=tuple(steps),
        input=[chance.randint(0, 9) for _ in range(chance.choice([0, 1, 3, 6]))] if has_list else chance.randint(0, 9),
        decisions={
            step.name: {"ok": chance.random() < 0.7, "value": chance.randint(0, 9)} for step in steps if step.has_signal
        },
    )


def _ending_early(chance: random.Random, steps: list[StepShape]) -> list[StepShape]:
    """Let some of these end the run early: with a number, so that is what the flow must give in any case."""
    needed = {name for step in steps for name in step.dependencies}
    lists = [step for step in steps if step.has_list and step.name not in needed]
    if lists:
        last = _random_plain(chance, len(steps) + 1, [], takes_list=False)
        needs = tuple(Need(step=step.name, is_optional=True) for step in lists)
        steps = [*steps, replace(last, needs=needs, condition=None, on_unmet="skip", gives_list=False)]
    may = [step.kind == "step" or (step.kind == "map" and step.failures == 0) for step in steps]
    return [
        replace(step, ends_early=chance.random() < 0.3) if can else step for step, can in zip(steps, may, strict=True)
    ]


def _random_step(chance: random.Random, position: int, before: list[StepShape], *, takes_list: bool) -> StepShape:
    lists = [step.name for step in before if step.has_list] + ["input"] * takes_list
    followed = [step for step in before if step.kind != "map"]
    what = chance.random()
    if lists and what < 0.4:
        return _random_loop(chance, position, before, chance.choice(lists), takes_list=takes_list)
    if followed and what > 0.85:
        return _random_inline(chance, position, chance.choice(followed))
    return _random_plain(chance, position, before, takes_list=takes_list)


def _random_loop(
    chance: random.Random, position: int, before: list[StepShape], over: str, *, takes_list: bool
) -> StepShape:
    """A map or a reduce."""
    plain = _random_plain(chance, position, before, takes_list=takes_list)
    kind = chance.choice(["map", "map", "reduce"])
    failures = chance.choice([0, 0, plain.max_retries, ALWAYS, ALWAYS]) if kind == "map" else plain.failures
    needs = tuple(need for need in plain.needs if need.step != over)
    return replace(
        plain,
        kind=kind,
        over=over,
        needs=needs if over == "input" else (*needs, Need(step=over, is_optional=False)),
        after=tuple(name for name in plain.after if name != over),
        may_skip=False,
        gives_list=False,
        failures=failures,
        tolerated=chance.choice([0, 1, 2, None]) if kind == "map" else 0,
    )


def _random_inline(chance: random.Random, position: int, before: StepShape) -> StepShape:
    return StepShape(
        name=f"s{position}",
        position=position,
        needs=(Need(step=before.name, is_optional=before.may_be_skipped_alone or chance.random() < 0.3),),
        after=(),
        condition=None,
        on_unmet="skip",
        on_exhausted=chance.choice(["fail", "fail", "skip", "skip_downstream"]),
        has_signal=False,
        may_skip=False,
        max_retries=0,
        failures=chance.choice([0] * 5 + [1, 1, 1, ALWAYS]),
        is_async=False,
        is_inline=True,
        gives_list=chance.random() < 0.2,
    )


def _random_plain(chance: random.Random, position: int, before: list[StepShape], *, takes_list: bool) -> StepShape:
    chosen = chance.sample(before, k=min(len(before), chance.choice([0, 1, 1, 2, 2, 3])))
    after = [step for step in chosen if chance.random() < 0.2]
    needs = tuple(
        Need(step=step.name, is_optional=step.may_be_skipped_alone or chance.random() < 0.3)
        for step in chosen
        if step not in after
    )
    has_signal = chance.random() < 0.15
    condition = _random_condition(chance, chosen, has_signal, takes_list=takes_list) if chance.random() < 0.35 else None
    return StepShape(
        name=f"s{position}",
        position=position,
        needs=needs,
        after=tuple(step.name for step in after),
        condition=condition,
        on_unmet=chance.choice(["skip", "skip", "skip_downstream", "fail"]) if condition else "skip",
        on_exhausted=chance.choice(["fail", "fail", "skip", "skip_downstream"]),
        has_signal=has_signal,
        may_skip=chance.random() < 0.15,
        max_retries=(max_retries := chance.choice([0, 0, 1, 2])),
        failures=chance.choice([0] * 12 + [1, 1, 2, ALWAYS]) if max_retries else chance.choice([0] * 15 + [ALWAYS]),
        is_async=chance.random() < 0.3,
        gives_list=chance.random() < 0.25,
    )


def _random_condition(chance: random.Random, chosen: list[StepShape], has_signal: bool, *, takes_list: bool) -> str:
    if takes_list:
        tests = ["input", f"input contains {chance.randint(0, 9)}", f"input[0] lt {chance.randint(0, 9)}"]
    else:
        tests = [f"input gte {chance.randint(0, 9)}", f"input in [{chance.randint(0, 9)}, {chance.randint(0, 9)}]"]
    for step in chosen:
        name = step.name
        if step.has_list:
            number = chance.randint(0, MODULUS)
            tests += [f"{name} contains {number}", f"{name} exists", f"not {name}", f"{name}[1] exists"]
            continue
        tests += [
            f"{name} gt {chance.randint(0, MODULUS)}",
            f"not {name} exists or {name} lte {chance.randint(0, MODULUS)}",
            f"{name} exists",
            f"not {name}",
            f"{name} ne {chance.randint(0, MODULUS)}",
        ]
        if chance.random() < 0.1:
            tests.append(f'{name} gt "ten"')  # cannot be decided, unless the step was skipped
    if has_signal:
        tests += ["signal.ok", f"signal.value lt {chance.randint(0, 9)}"]
    first, second = chance.choice(tests), chance.choice(tests)
    return chance.choice([first, f"({first}) and ({second})", f"({first}) or ({second})"])
