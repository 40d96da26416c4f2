"""Why a queued run is not being run."""

from __future__ import annotations

from django.utils.translation import gettext as _

from catbird_django.models import Breaker, TaskRun
from catbird_django.models.tasks import SUSPECT
from catbird_django.monitoring.clock import DatabaseNow
from catbird_django.statuses import TaskStatus


def why_waiting(run: TaskRun) -> list[str]:
    """What keeps a queued run back beside the runs before it, in sentences; none for any other."""
    if run.status != TaskStatus.QUEUED:
        return []
    return [*_breaker_reasons(run), *_suspect_reasons(run)]


def _breaker_reasons(run: TaskRun) -> list[str]:
    known = Breaker.objects.using(run._state.db).annotate(now=DatabaseNow())  # noqa: SLF001 - documented by Django
    breaker = known.filter(task_id=run.task_id, open_until__isnull=False).first()
    if breaker is None or breaker.open_until is None:
        return []
    if breaker.open_until > breaker.now:
        return [
            _("Its task has failed %(count)d times in a row and rests; then one run is tried.")
            % {"count": breaker.failure_count}
        ]
    return [
        _("Its task has failed %(count)d times in a row and has rested; one run is tried before the others.")
        % {"count": breaker.failure_count}
    ]


def _suspect_reasons(run: TaskRun) -> list[str]:
    if run.lost_count < SUSPECT:
        return []
    return [
        _("It has lost its worker %(count)d times: it is claimed alone, once a worker has nothing waiting.")
        % {"count": run.lost_count}
    ]
