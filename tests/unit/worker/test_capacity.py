"""W2: no more than free slots plus a small, measured prefetch."""

from catbird_django.worker import capacity
from catbird_django.worker.capacity import Capacities, Capacity, HandlerLimits, Meter


def finish(held: Capacity, task_id: int, count: int) -> None:
    for _ in range(count):
        held.take([task_id])
        held.give_back(task_id, finished=True)


def test_nothing_is_prefetched_until_something_was_finished() -> None:
    held = Capacity(4, prefetch=200)

    assert held.room(1) == 4
    held.take([1] * 3)
    assert held.room(1) == 1
    held.take([1])
    assert held.room(1) == 0


def test_a_handler_may_hold_as_many_as_it_just_finished() -> None:
    held = Capacity(4, prefetch=200)
    finish(held, task_id=1, count=30)

    assert held.room(1) == 34
    assert held.room(2) == 4


def test_the_prefetch_is_bounded() -> None:
    held = Capacity(4, prefetch=20)
    finish(held, task_id=1, count=500)

    assert held.room(1) == 24


def test_what_waits_counts_against_the_prefetch() -> None:
    held = Capacity(4, prefetch=200)
    finish(held, task_id=1, count=30)
    held.take([1] * 20)

    assert held.room(1) == 14
    assert held.room(2) == 0


def test_what_was_taken_back_is_not_counted_as_finished() -> None:
    held = Capacity(2, prefetch=200)
    held.take([1])
    held.give_back(1, finished=False)

    assert held.room(1) == 2


def test_a_free_slot_is_always_worth_a_claim() -> None:
    """Also while nine of ten slots are busy for an hour."""
    held = Capacity(10, prefetch=200)
    held.take([1] * 10)
    assert not held.is_low()

    held.give_back(1, finished=False)
    assert held.is_low()


def test_with_a_prefetch_it_is_time_when_half_of_it_is_left() -> None:
    held = Capacity(10, prefetch=100)
    finish(held, task_id=1, count=100)
    held.take([1] * 100)
    assert not held.is_low()

    for _ in range(45):
        held.give_back(1, finished=False)
    assert held.is_low()


def test_the_meter_forgets_after_its_window() -> None:
    meter = Meter(most=200)
    for _ in range(5):
        meter.add(100.0)

    assert meter.count(100.0 + capacity.WINDOW / 2) == 5
    assert meter.count(100.0 + capacity.WINDOW * 1.1) == 0


def test_sync_and_async_handlers_do_not_take_each_others_slots() -> None:
    on_threads, on_loop = Capacity(1, prefetch=10), Capacity(1, prefetch=10)
    capacities = Capacities({1: on_threads, 2: on_loop, 3: on_loop})
    capacities[1].take([1])

    assert (capacities[1].room(1), capacities[2].room(2)) == (0, 1)
    assert capacities.is_low()
    assert capacities.in_flight == 1

    capacities[3].take([3])
    assert not capacities.is_low()


def test_a_finished_run_is_worth_a_claim_when_a_slot_is_free_or_it_has_just_become_low() -> None:
    """Not each time: ringing for every run costs more than running a small one."""
    held = Capacity(2, prefetch=100)
    finish(held, task_id=1, count=100)
    held.take([1] * 60)

    answers = [held.give_back(1, finished=False) for _ in range(60)]

    assert answers.index(True) == 8  # 51 left: fewer than the slots and half of the prefetch
    assert answers.count(True) == 3  # then, and when each of the two slots became free


def test_a_task_holds_no_more_than_its_concurrency_allows() -> None:
    """T10: also of what would only wait, since runners begin whatever they are given."""
    held = Capacity(4, prefetch=200, limits={1: HandlerLimits(concurrency=2)})
    finish(held, task_id=1, count=30)

    held.take([1, 2])
    assert (held.left(1), held.left(2)) == (1, None)
    held.take([1])
    assert held.left(1) == 0

    held.give_back(1, finished=True)
    assert held.left(1) == 1


def test_the_prefetch_of_a_task_is_bounded_by_its_batch_size() -> None:
    """T10."""
    held = Capacity(4, prefetch=200, limits={1: HandlerLimits(batch_size=5), 2: HandlerLimits(batch_size=0)})
    for task_id in (1, 2, 3):
        finish(held, task_id=task_id, count=50)

    assert [held.room(task_id) for task_id in (1, 2, 3)] == [4 + 5, 4, 4 + 50]


def test_a_batch_size_beyond_the_prefetch_changes_nothing() -> None:
    held = Capacity(4, prefetch=20, limits={1: HandlerLimits(batch_size=500)})
    finish(held, task_id=1, count=300)

    assert held.room(1) == 24


def test_without_claiming_ahead_there_is_room_for_free_slots_only() -> None:
    """T7a: nothing waits beside a run that is claimed alone."""
    held = Capacity(4, prefetch=200)
    finish(held, task_id=1, count=30)

    held.take([1] * 3)
    assert (held.room(1, ahead=False), held.has_free_slot(), held.has_waiting()) == (1, True, False)
    held.take([1] * 2)
    assert (held.room(1, ahead=False), held.has_free_slot(), held.has_waiting()) == (0, False, True)
