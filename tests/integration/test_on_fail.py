"""on_fail from the declaration to the handler, with a real worker."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.core import checks

from catbird_django import TaskFailure, task
from catbird_django.checks import check_definitions
from catbird_django.definitions.registry import registry
from catbird_django.models import TaskRun
from tests.support import until, working

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Order:
    id: int


def test_the_answer_gets_the_typed_input_and_the_error() -> None:
    """T11: with its own retry options, after the last attempt."""
    told: list[TaskFailure[Order]] = []
    with registry.isolated():

        @task(max_retries=1, backoff=(0, 0))
        def refund(failure: TaskFailure[Order]) -> str:
            told.append(failure)
            if len(told) == 1:
                raise ConnectionError("not now")
            return f"refunded {failure.input.id}"

        @task(max_retries=1, backoff=(0, 0), on_fail=refund)
        def charge(input: Order) -> None:
            raise ValueError("card refused")

        handle = charge.run(Order(id=7))
        with working("charge", "refund"):
            until(lambda: TaskRun.objects.filter(task__name="refund", status="completed").exists())

    answer = TaskRun.objects.get(task__name="refund")
    assert (answer.status, answer.output) == ("completed", "refunded 7")
    assert [failure.input for failure in told] == [Order(id=7)] * 2
    assert (told[0].run_id, told[0].error.message, told[0].attempts) == (handle.id, "card refused", 2)
    assert TaskRun.objects.get(id=handle.id).status == "failed"


def test_an_answer_that_is_declared_nowhere_here_is_warned_about() -> None:
    with registry.isolated():

        @task(on_fail="refnud")
        def charge(input: Order) -> None: ...

        found = [message for message in check_definitions() if isinstance(message, checks.CheckMessage)]

    assert [(message.id, "refnud" in message.msg) for message in found] == [("catbird.W002", True)]
