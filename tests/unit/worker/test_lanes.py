"""T4b and the low-water mark: which lanes are asked, in which order, from where."""

from uuid import uuid4

from catbird_django.engine.tasks import Lane, LaneHead, TaskClaim
from catbird_django.worker.capacity import Capacities, Capacity
from catbird_django.worker.lanes import Lanes


def claim(run_id: int, task_id: int = 1, priority: int = 0) -> TaskClaim:
    return TaskClaim(run_id, uuid4(), "default", task_id, priority, "null", None, 1, 0, 0)


def lanes_with(*heads: tuple[int, int, int]) -> Lanes:
    lanes = Lanes()
    lanes.found(LaneHead("default", *head) for head in heads)
    return lanes


def capacities(**slots: int) -> Capacities:
    """One capacity for each task that is named, as t1=3."""
    return Capacities({int(name[1:]): Capacity(count, prefetch=1) for name, count in slots.items()})


def shared(slots: int, *task_ids: int) -> Capacities:
    return Capacities(dict.fromkeys(task_ids, Capacity(slots, prefetch=1)))


def test_the_highest_head_is_served_first_then_the_oldest() -> None:
    lanes = lanes_with((1, 0, 50), (2, 5, 90), (3, 5, 80), (4, -1, 1))

    requests = lanes.requests(capacities(t1=1, t2=1, t3=1, t4=1))

    assert [request.lane.task_id for request in requests] == [3, 2, 1, 4]


def test_lanes_of_one_runner_share_its_room() -> None:
    lanes = lanes_with((1, 5, 1), (2, 0, 2))

    requests = lanes.requests(shared(3, 1, 2))

    assert [(request.lane.task_id, request.limit) for request in requests] == [(1, 3)]


def test_a_task_without_room_is_not_asked_for() -> None:
    lanes = lanes_with((1, 0, 1), (2, 0, 2))

    assert [request.lane.task_id for request in lanes.requests(capacities(t1=0, t2=4))] == [2]


def test_the_mark_is_the_smallest_id_of_the_last_batch() -> None:
    """Ids commit out of order: the largest would skip what commits later."""
    lanes = lanes_with((1, 0, 1))
    requests = lanes.requests(capacities(t1=3))
    assert requests[0].low_id == 0

    lanes.claimed(requests, [claim(12), claim(10), claim(11)])

    assert lanes.requests(capacities(t1=3))[0].low_id == 10
    assert not lanes.is_stale()


def test_a_lane_that_gave_less_is_looked_for_anew() -> None:
    lanes = lanes_with((1, 0, 1), (2, 0, 5))
    requests = lanes.requests(capacities(t1=2, t2=2))

    lanes.claimed(requests, [claim(1), claim(5, 2), claim(6, 2)])  # one of two, and two of two

    assert lanes.is_stale()
    assert [request.lane for request in lanes.requests(capacities(t1=9, t2=9))] == [Lane("default", 2, 0)]


def test_without_lanes_there_is_nothing_to_ask() -> None:
    lanes = Lanes()

    assert lanes.is_stale()
    assert lanes.requests(capacities()) == []
