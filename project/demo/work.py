"""What the demo asks the worker to do."""

from __future__ import annotations

from project.demo.tasks import Division, Greeting, Report, Tea, brew, divide, greet, render_report


def enqueue_demo_work() -> set[int]:
    """Ask for a handful of runs, one of which will fail; give their ids."""
    handles = [
        greet.run(Greeting(name="Ada")),
        greet.run(Greeting(name="Grace")),
        brew.run(Tea(kind="green")),
        brew.run(Tea(kind="mint", seconds=1)),
        render_report.run(Report(title="Figures of the month", pages=5)),
        divide.run(Division(dividend=1, divisor=3)),
        divide.run(Division(dividend=1, divisor=0)),
    ]
    return {handle.id for handle in handles}
