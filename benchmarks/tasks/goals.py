"""The goals for tasks by their numbers: G1 to G14 without those about flows and plans."""

from __future__ import annotations

from benchmarks.contenders import RAW
from benchmarks.goals import Goal

GOALS = [
    Goal(id="G1", measure="drain, 1 process", over="pgqueuer", at_least=1.5),
    Goal(id="G1", measure="drain, 1 process", over="procrastinate", at_least=15),
    Goal(id="G1", measure="drain, 1 process", over="celery", at_least=10),
    Goal(id="G1", measure="drain, 1 process", over="django-tasks-db", at_least=30),
    Goal(id="G2", measure="drain, 2 processes", over="pgqueuer", at_least=1.5),
    Goal(id="G2", measure="drain, 2 processes", over_measure="drain, 1 process", at_least=1.25),
    Goal(id="G3", measure="drain, 1 process", over=RAW, at_least=0.5),
    Goal(id="G4", measure="bulk enqueue", over="pgqueuer", at_least=1.5),
    Goal(id="G4", measure="bulk enqueue, 50 B", over=RAW, at_least=0.6),
    Goal(id="G4", measure="bulk enqueue, 830 B", over=RAW, at_least=0.6),
    Goal(id="G5", measure="single enqueue", over=RAW, at_least=0.7),
    Goal(id="G5", measure="single enqueue", over="django-tasks-db", at_least=1.5),
    Goal(id="G8", measure="pick-up p50, ms", at_most=3),
    Goal(id="G8", measure="pick-up p99, ms", at_most=20),
    Goal(id="G8", measure="pick-up p50, ms", over="pgqueuer", at_most=1.5),
    Goal(id="G9", measure="idle statements/s", at_most=0.5),
    Goal(id="G9", measure="idle CPU, %", at_most=1),
    Goal(id="G10", measure="drain, finished rows", over_measure="drain, nothing finished", at_least=0.9),
    Goal(id="G11", measure="soak, last slice", over_measure="soak, first slice", at_least=0.9),
    Goal(id="G11", measure="soak, dead share", at_most=0.2),
    Goal(id="G12", measure="steady, old transaction", over_measure="steady, no old transaction", at_least=0.7),
    Goal(id="G13", measure="8 producers, wake-ups", over_measure="8 producers, no wake-ups", at_least=0.6),
    Goal(id="G13", measure="8 producers alone, wake-ups", over_measure="8 producers alone, no wake-ups", at_least=0.6),
    Goal(id="G14", measure="drain, jobs for tomorrow", over_measure="drain, nothing for tomorrow", at_least=0.95),
]
