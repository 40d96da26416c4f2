"""Flows that cannot work, for a worker that must say so."""

from catbird_django import Flow

first = Flow("first_broken")


@first.step(name="alone")
def waits_for_nobody(nobody: int) -> int:
    return nobody


second = Flow("second_broken")


@second.step(name="alone")
def waits_for_nowhere(nowhere: int) -> int:
    return nowhere
