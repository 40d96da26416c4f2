"""T9: what is not begun while the database does not know of failures that may open a breaker."""

from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.worker.doubts import Doubts


def claim(run_id: int, task_id: int = 1) -> TaskClaim:
    return TaskClaim(run_id, Delivery(run_id, "token"), "default", task_id, 0, "null", None, 1, 0, 0)


def test_a_task_is_in_doubt_with_as_many_failures_as_open_its_breaker() -> None:
    doubts = Doubts({1: 2, 2: 3})

    doubts.failed(claim(1))
    assert doubts.tasks == frozenset()
    doubts.failed(claim(2))
    doubts.failed(claim(3, task_id=2))

    assert doubts.tasks == {1}


def test_once_the_database_knows_there_is_no_doubt() -> None:
    doubts = Doubts({1: 2})
    held = [claim(1), claim(2), claim(3)]
    for failed in held:
        doubts.failed(failed)

    assert not doubts.settled([Delivery(9, "token")])
    assert doubts.settled([held[0].delivery])
    assert doubts.tasks == {1}
    assert doubts.settled([held[1].delivery, Delivery(9, "token")])
    assert doubts.tasks == frozenset()


def test_tasks_without_a_breaker_are_never_in_doubt() -> None:
    doubts = Doubts({})

    doubts.failed(claim(1))

    assert doubts.tasks == frozenset()
    assert not doubts.settled([claim(1).delivery])
