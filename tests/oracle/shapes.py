"""A random flow, as data: steps with dependencies, conditions, signals, failures and skips, made from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

ALWAYS = 99  # failures: more than there are attempts
MOST_STEPS = 12
MODULUS = 21  # outputs are whole numbers below it


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

    @property
    def dependencies(self) -> tuple[str, ...]:
        return (*(need.step for need in self.needs), *self.after)

    @property
    def may_be_skipped_alone(self) -> bool:
        """Whether its dependents may have to run without it."""
        by_condition = self.condition is not None and self.on_unmet == "skip"
        return by_condition or self.on_exhausted == "skip" or self.may_skip

    def value(self, flow_input: int, outputs: dict[str, int | None], decision: dict[str, int | bool] | None) -> int:
        """What its handler makes of what it gets."""
        taken = sum(
            (place + 2) * output
            for place, need in enumerate(self.needs)
            if (output := outputs.get(need.step)) is not None
        )
        given = int(decision["value"]) if decision is not None else 0
        return (self.position * 7 + 3 * flow_input + taken + given) % MODULUS


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowShape:
    """A flow, with what its run is started and signaled with."""

    name: str
    seed: int
    steps: tuple[StepShape, ...]
    input: int
    decisions: dict[str, dict[str, int | bool]]

    @property
    def final_steps(self) -> list[str]:
        needed = {name for step in self.steps for name in step.dependencies}
        return [step.name for step in self.steps if step.name not in needed]


def random_flow(seed: int) -> FlowShape:
    """The flow of a seed: always the same."""
    chance = random.Random(seed)
    steps: list[StepShape] = []
    for position in range(1, chance.randint(1, MOST_STEPS) + 1):
        steps.append(_random_step(chance, position, steps))
    return FlowShape(
        name=f"dag_{seed}",
        seed=seed,
        steps=tuple(steps),
        input=chance.randint(0, 9),
        decisions={
            step.name: {"ok": chance.random() < 0.7, "value": chance.randint(0, 9)} for step in steps if step.has_signal
        },
    )


def _random_step(chance: random.Random, position: int, before: list[StepShape]) -> StepShape:
    chosen = chance.sample(before, k=min(len(before), chance.choice([0, 1, 1, 2, 2, 3])))
    after = [step for step in chosen if chance.random() < 0.2]
    needs = tuple(
        Need(step=step.name, is_optional=step.may_be_skipped_alone or chance.random() < 0.3)
        for step in chosen
        if step not in after
    )
    has_signal = chance.random() < 0.15
    condition = (
        _random_condition(chance, [step.name for step in chosen], has_signal) if chance.random() < 0.35 else None
    )
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
    )


def _random_condition(chance: random.Random, names: list[str], has_signal: bool) -> str:
    tests = [f"input gte {chance.randint(0, 9)}", f"input in [{chance.randint(0, 9)}, {chance.randint(0, 9)}]"]
    for name in names:
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
