"""T4b and the low-water mark: which lanes are asked, in which order, from where."""

from uuid import uuid4

from catbird_django.engine.tasks import Lane, LaneHead, TaskClaim
from catbird_django.worker.capacity import Capacities, Capacity, HandlerLimits
from catbird_django.worker.lanes import Lanes


def claim(run_id: int, task_id: int = 1, priority: int = 0) -> TaskClaim:
    return TaskClaim(run_id, uuid4(), "default", task_id, priority, "null", None, 1, 0, 0)


def lanes_with(*heads: tuple[int, int, int] | tuple[int, int, int, float, bool]) -> Lanes:
    lanes = Lanes()
    lanes.found([LaneHead("default", *head) for head in heads])
    return lanes


def capacities(**slots: int) -> Capacities:
    """One capacity for each task that is named, as t1=3."""
    return Capacities({int(name[1:]): Capacity(count, prefetch=1) for name, count in slots.items()})


def shared(slots: int, *task_ids: int) -> Capacities:
    return Capacities(dict.fromkeys(task_ids, Capacity(slots, prefetch=1)))


def test_the_highest_head_is_served_first_then_the_oldest() -> None:
    lanes = lanes_with((1, 0, 50), (2, 5, 90), (3, 5, 80), (4, -1, 1))

    requests = lanes.requests(capacities(t1=1, t2=1, t3=1, t4=1))

    assert [request.lane.handler_id for request in requests] == [3, 2, 1, 4]


def test_lanes_of_one_runner_share_its_room() -> None:
    lanes = lanes_with((1, 5, 1), (2, 0, 2))

    requests = lanes.requests(shared(3, 1, 2))

    assert [(request.lane.handler_id, request.limit) for request in requests] == [(1, 3)]


def test_a_task_without_room_is_not_asked_for() -> None:
    lanes = lanes_with((1, 0, 1), (2, 0, 2))

    assert [request.lane.handler_id for request in lanes.requests(capacities(t1=0, t2=4))] == [2]


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
    asked_next = [request.lane for request in lanes.requests(capacities(t1=9, t2=9))]
    assert asked_next == [Lane("default", 2, 0), Lane("default", 1, 0)]  # the one that gave less comes last


def test_a_look_that_took_long_is_not_repeated_at_once() -> None:
    """An old transaction keeps dead rows in the index: then a look at all of it costs more than it brings."""
    lanes = lanes_with((1, 0, 1))
    lanes.found([LaneHead("default", 1, 0, 1, False, None, None)], seconds=1000.0)
    requests = lanes.requests(capacities(t1=2))

    lanes.claimed(requests, [claim(7)])  # one of two

    assert not lanes.is_stale()
    assert [request.low_id for request in lanes.requests(capacities(t1=2))] == [7]


def test_without_lanes_there_is_nothing_to_ask() -> None:
    lanes = Lanes()

    assert lanes.is_stale()
    assert lanes.requests(capacities()) == []


def limited(slots: int, **concurrency: int) -> Capacities:
    """One capacity for all, and a concurrency for each task that is named, as t1=3."""
    limits = {int(name[1:]): HandlerLimits(concurrency=count) for name, count in concurrency.items()}
    return Capacities(dict.fromkeys(range(1, 10), Capacity(slots, prefetch=200, limits=limits)))


def asked(lanes: Lanes, given: Capacities, **options: bool) -> list[tuple[int, int, int]]:
    """(task, priority, limit) of each request."""
    requests = lanes.requests(given, **options)
    return [(request.lane.handler_id, request.lane.priority, request.limit) for request in requests]


def test_a_task_at_its_limit_leaves_its_room_to_the_others() -> None:
    """T4b, T10: saturated handlers do not clog the head."""
    lanes = lanes_with((1, 9, 1), (2, 0, 2))
    given = limited(8, t1=3)

    assert asked(lanes, given) == [(1, 9, 3), (2, 0, 5)]

    given[1].take([1] * 3)
    assert asked(lanes, given) == [(2, 0, 5)]


def test_lanes_of_one_task_share_its_concurrency() -> None:
    """T10: a higher lane is asked for all of it, since it may have so many."""
    lanes = lanes_with((1, 5, 9), (1, 0, 1), (1, -5, 2))

    assert asked(lanes, limited(8, t1=3)) == [(1, 5, 3)]


def test_a_lower_lane_is_asked_as_soon_as_the_higher_gave_less() -> None:
    """T4b: once the higher are done the lower are reached by the next claim, not by the next look at everything."""
    lanes = lanes_with((1, 5, 9), (1, 0, 1))
    given = shared(3, 1)
    requests = lanes.requests(given)

    lanes.claimed(requests, [claim(9, priority=5)])

    assert asked(lanes, given)[0] == (1, 0, 3)


def test_suspects_are_known_by_their_task_and_have_no_lane() -> None:
    """T7a."""
    lanes = lanes_with((1, 0, 7, 0.0, True), (2, 0, 9, 0.0, False))
    given = limited(4, t1=1)

    assert lanes.suspects(given) == [Lane("default", 1, 0)]
    assert [lane[0] for lane in asked(lanes, given)] == [2]

    given[1].take([1])
    assert lanes.suspects(given) == []

    lanes.forget_suspects()
    given[1].give_back(1, finished=True)
    assert lanes.suspects(given) == []


def test_suspects_alone_are_worth_a_look() -> None:
    lanes = lanes_with((1, 0, 7, True))

    assert lanes
    assert not lanes.is_stale()


def test_without_claiming_ahead_only_free_slots_are_asked_for() -> None:
    """T7a."""
    lanes = lanes_with((1, 0, 1))
    given = limited(4)
    given[1].take([1] * 30)
    for _ in range(28):
        given[1].give_back(1, finished=True)

    assert asked(lanes, given, ahead=False) == [(1, 0, 2)]
    assert asked(lanes, given)[0][2] > 2


def test_tasks_that_are_in_doubt_or_resting_are_left_alone() -> None:
    """T9."""
    lanes = Lanes()
    moment = 7.0
    lanes.found(
        [
            LaneHead("default", 1, 0, 1),
            LaneHead("default", 2, 0, 2),
            LaneHead("default", 3, 0, 3, breaker="open", rests_for=3 * moment),
            LaneHead("default", 4, 0, 4, breaker="half_open", rests_for=moment),
            LaneHead("default", 5, 0, 5, breaker="half_open"),
            LaneHead("default", 6, 0, 6, is_suspect=True, breaker="open", rests_for=moment),
        ]
    )
    given = limited(9)

    assert [request.lane.handler_id for request in lanes.requests(given, ahead=False, without={2})] == [1]
    assert {request.lane.handler_id for request in lanes.requests(capacities(t1=1, t2=1, t5=1))} == {1, 2, 5}
    assert lanes.suspects(given) == []
    assert (lanes.resting, lanes.rests_for) == ({3, 6}, moment)
