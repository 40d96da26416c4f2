"""What is measured of whom, and under which names: the one place that puts measures, sizes and contenders together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmarks.bench import Bench
from benchmarks.contenders import OURS, Contender
from benchmarks.flows import measures
from benchmarks.flows.contenders import SQL_ALONE
from benchmarks.flows.measures import Load
from benchmarks.flows.shapes import DIAMOND, FAN_OUT, FANOUT, LARGE_MAP, LINEAR, MAP, Shape
from benchmarks.flows.sizes import Sizes
from benchmarks.run import Numbers, Step

FEWEST_FLOWS = 5
FEWEST_ITEMS = 50
PROCESSES = (1, 2)
DOUBLINGS = {"doubling, 1 × the items": 1, "doubling, 2 ×": 2, "doubling, 4 ×": 4, "doubling, 8 ×": 8}  # noqa: RUF001
HOW = ("as a set", "row by row")
PIECES = ("steps", "items")


def steps_of(bench: Bench, kinds: Sequence[str], sizes: Sizes, round_number: int) -> Iterator[Step]:
    """What to measure of a contender in this round."""
    for kind, steps in KINDS.items():
        if kind in kinds:
            found = list(steps(bench, sizes))
            # What is compared with itself: who comes second must not always be the same.
            yield from found if round_number % 2 else reversed(found)


def load_of(contender: Contender, shape: Shape, sizes: Sizes) -> Load:
    """How many runs, with how many items: slow engines have fewer runs, or, where there is but one, fewer items."""
    slowness = contender.engine.slowness
    whole = {LINEAR: sizes.linear, DIAMOND: sizes.diamond, FANOUT: sizes.fanouts}
    if shape in whole:
        return Load(shape, max(FEWEST_FLOWS, whole[shape] // slowness), FAN_OUT)
    items = sizes.items if shape == MAP else sizes.large
    return Load(shape, 1, max(FEWEST_ITEMS, items // slowness))


def notes(contenders: Sequence[Contender], _sizes: Sizes) -> Iterator[str]:
    """What was made smaller for whom."""
    for engine in dict.fromkeys(contender.engine.name for contender in contenders):
        slowness = next(each.engine.slowness for each in contenders if each.engine.name == engine)
        if slowness > 1:
            yield f"{engine} has 1/{slowness} of the runs, and maps of 1/{slowness} of the items"


def _of_shape(shape: Shape) -> Callable[[Bench, Sizes], Iterator[Step]]:
    def steps(bench: Bench, sizes: Sizes) -> Iterator[Step]:
        if takes_part(bench.contender, shape):
            load = load_of(bench.contender, shape, sizes)
            for processes in PROCESSES:
                name = f"{shape.title}, {processes} process{'es' if processes > 1 else ''}"
                yield Step(name, partial(measures.work_off, bench, load, processes))

    return steps


def takes_part(contender: Contender, shape: Shape) -> bool:
    shapes = contender.options.get("shapes")
    return shapes is None or shape.name in shapes


def _doubling(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if _is_ours(bench):
        for name, factor in DOUBLINGS.items():
            yield Step(name, partial(_map_of, bench, name, factor * sizes.doubling))


def _map_of(bench: Bench, name: str, items: int) -> Numbers:
    found = measures.work_off(bench, Load(Shape(MAP.name, name, MAP.steps), 1, items), 1)
    return {name: found[f"{name}, 1 process"], f"{name}: MB": found.get(f"{name}, 1 process: MB", 0.0)}


def _cost(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if bench.contender.is_main or not _is_ours(bench):
        for shape in (LINEAR, FANOUT, MAP):
            if takes_part(bench.contender, shape):
                load = load_of(bench.contender, shape, sizes)
                yield Step(f"{shape.title}: cost", partial(measures.cost, bench, load))


def _claims(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if _is_ours(bench):
        yield Step("claim p99, ms", partial(measures.claims, bench, load_of(bench.contender, LARGE_MAP, sizes)))


def _batches(bench: Bench, _sizes: Sizes) -> Iterator[Step]:
    if bench.contender.engine == SQL_ALONE:
        for kind in PIECES:
            yield Step(f"{kind}: batches", partial(measures.batch, bench, kind))


def _loop(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if bench.contender.engine == SQL_ALONE:
        for kind in PIECES:
            for how in HOW:
                name = f"{kind}: settled {how}"
                yield Step(name, partial(measures.settle, bench, kind, sizes.settled, how))


def _is_ours(bench: Bench) -> bool:
    """With the settings that what only concerns us is measured with."""
    return bench.contender.engine.name == OURS and bench.contender.is_main


KINDS: dict[str, Callable[[Bench, Sizes], Iterator[Step]]] = {
    "linear": _of_shape(LINEAR),
    "diamond": _of_shape(DIAMOND),
    "fanout": _of_shape(FANOUT),
    "map": _of_shape(MAP),
    "large-map": _of_shape(LARGE_MAP),
    "doubling": _doubling,
    "cost": _cost,
    "claims": _claims,
    "batches": _batches,
    "loop": _loop,
}
