from django.db.models import Count
from django.utils import timezone

from catbird_django.models import TaskRun


def failed_today() -> dict[str, int]:
    """Count the runs that failed since midnight, by task."""
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    failed = TaskRun.objects.failed().filter(finished_at__gte=midnight)
    return dict(failed.values_list("task__name").annotate(Count("id")))
