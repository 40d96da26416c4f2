"""What the demo asks the worker to do."""

from __future__ import annotations

from project.demo.flows import Newsletter, newsletter
from project.demo.tasks import Division, Greeting, Report, Tea, brew, divide, greet, render_report


def enqueue_demo_work() -> set[int]:
    """Ask for a handful of runs, one of which will fail, and for a run of a flow; give the ids of those of tasks."""
    newsletter.run(Newsletter(title="June", readers=[f"reader {number}" for number in range(1, 41)]))
    return {
        greet.run(Greeting(name="Ada")).id,
        greet.run(Greeting(name="Grace")).id,
        brew.run(Tea(kind="green")).id,
        brew.run(Tea(kind="mint", seconds=1)).id,
        render_report.run(Report(title="Figures of the month", pages=5)).id,
        divide.run(Division(dividend=1, divisor=3)).id,
        divide.run(Division(dividend=1, divisor=0)).id,
    }
