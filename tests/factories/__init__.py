"""Rows in every state, written past the SQL functions: for pages and figures, not for the engine's own tests."""

from tests.factories.records import EventFactory, RunLogFactory, RunTagFactory
from tests.factories.tasks import TaskFactory, TaskRunFactory
from tests.factories.workers import WorkerFactory

__all__ = ["EventFactory", "RunLogFactory", "RunTagFactory", "TaskFactory", "TaskRunFactory", "WorkerFactory"]
