"""What is measured of whom, and under which names: the one place that puts measures, sizes and contenders together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.bench import Bench
from benchmarks.contenders import OURS, RAW
from benchmarks.run import Step
from benchmarks.tasks import measures, producers, steady
from benchmarks.tasks.finished import database_with_finished
from benchmarks.tasks.sizes import Sizes

DOCUMENT_SIZES = (50, 830)  # bytes
FEWEST_JOBS = 500
LONGER = 5  # drains that are compared with each other are so much longer than the others: the effects are small


def steps_of(bench: Bench, kinds: list[str], sizes: Sizes, round_number: int) -> Iterator[Step]:
    """What to measure of a contender in this round."""
    for kind, steps in KINDS.items():
        if kind in kinds and bench.contender.takes_part_in(kind):
            found = list(steps(bench, sizes))
            # Pairs are compared with each other: who comes second must not always be the same.
            yield from found if round_number % 2 else reversed(found)


def _drain(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    jobs = _jobs(bench, sizes)
    yield _one("drain, 1 process", lambda: measures.drain(bench, jobs, 1))
    yield _one("drain, 2 processes", lambda: measures.drain(bench, jobs, 2))


def _enqueue(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    yield Step("enqueue", lambda: measures.enqueue(bench, _jobs(bench, sizes), sizes.singles))


def _payloads(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if bench.contender.engine.takes_documents:
        for size in DOCUMENT_SIZES:
            yield _one(f"bulk enqueue, {size} B", partial(measures.documents, bench, sizes.jobs, size))


def _pickup(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if not _is_raw(bench):
        yield Step("pick-up", lambda: measures.pickup(bench, sizes.pickups))


def _idle(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if not _is_raw(bench) and not bench.contender.engine.needs_redis:
        yield Step("idle", lambda: measures.idle(bench, sizes.idle_seconds))


def _finished(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if bench.contender.engine.finish:
        jobs = LONGER * sizes.jobs
        yield _one("drain, nothing finished", lambda: measures.drain(bench, jobs, 1))
        yield _one("drain, finished rows", lambda: _drain_beside_finished(bench, jobs, sizes.finished))


def _drain_beside_finished(bench: Bench, jobs: int, finished: int) -> float:
    return measures.drain(bench, jobs, 1, template=database_with_finished(bench, finished))


def _tomorrow(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if bench.contender.engine.postpone:
        jobs = LONGER * sizes.jobs
        yield _one("drain, nothing for tomorrow", lambda: measures.drain(bench, jobs, 1))
        yield _one("drain, jobs for tomorrow", lambda: measures.drain(bench, jobs, 1, postponed=sizes.postponed))


def _soak(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if bench.contender.engine.hot_table:
        yield Step("soak", lambda: steady.soak(bench, sizes.soak))


def _old_transaction(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    if bench.contender.engine.hot_table:
        yield _one("steady, no old transaction", lambda: steady.under_load(bench, sizes, is_held=False))
        yield _one("steady, old transaction", lambda: steady.under_load(bench, sizes, is_held=True))


def _producers(bench: Bench, sizes: Sizes) -> Iterator[Step]:
    seconds = sizes.produce_seconds
    if bench.contender.engine.hot_table:
        yield _one("8 producers, wake-ups", lambda: producers.enqueue_from_many(bench, seconds))
    if bench.contender.engine.name == OURS:
        measure = partial(producers.enqueue_from_many, bench, seconds)
        yield _one("8 producers, no wake-ups", lambda: measure(notify=False))
        yield _one("8 producers alone, wake-ups", lambda: measure(served=False))
        yield _one("8 producers alone, no wake-ups", lambda: measure(served=False, notify=False))


def _one(name: str, take: Callable[[], float]) -> Step:
    return Step(name, lambda: {name: take()})


def _jobs(bench: Bench, sizes: Sizes) -> int:
    return max(FEWEST_JOBS, sizes.jobs // bench.contender.engine.slowness)


def _is_raw(bench: Bench) -> bool:
    """The raw limit neither sleeps nor is woken."""
    return bench.contender.engine.name == RAW


KINDS: dict[str, Callable[[Bench, Sizes], Iterator[Step]]] = {
    "drain": _drain,
    "enqueue": _enqueue,
    "payloads": _payloads,
    "pickup": _pickup,
    "idle": _idle,
    "finished": _finished,
    "tomorrow": _tomorrow,
    "soak": _soak,
    "old-transaction": _old_transaction,
    "producers": _producers,
}
