"""The pages of catbird in Django's admin. They show; whatever changes something goes through `monitoring/`."""

from catbird_django.admin.flow_runs import FlowRunAdmin
from catbird_django.admin.flows import FlowAdmin
from catbird_django.admin.items import ItemAdmin
from catbird_django.admin.task_runs import TaskRunAdmin
from catbird_django.admin.tasks import TaskAdmin
from catbird_django.admin.workers import WorkerAdmin

__all__ = ["FlowAdmin", "FlowRunAdmin", "ItemAdmin", "TaskAdmin", "TaskRunAdmin", "WorkerAdmin"]
